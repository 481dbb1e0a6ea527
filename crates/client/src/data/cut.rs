//! The consistent cut: whether the units read from one stripe belong together (PROTOCOL sections 2 and 5).
//!
//! A parity unit's bytes are the parity of exactly the versions in its cover. Units may be combined only if
//! every data unit read has the version that every parity unit read covers. During a write some columns
//! return the new stamp and others the old one. Under an exclusive lease a stripe has at most one unsettled
//! write (C1), so all columns can serve the older of the two: that cut is then requested explicitly.

use braid_layout::{Role, Version};

/// A drive's answer to a read, without the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) version: Version,
    pub(crate) cover: Vec<Version>,
    /// Ends of the bytes of the data units in `cover`, as offsets in their units. For a read of a data unit:
    /// the end of its own bytes.
    pub(crate) ends: Vec<u32>,
    /// True if the drive does not know the version as settled: a writer may be at work.
    pub(crate) pending: bool,
}

/// The versions that one read of a stripe returned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) role: Role,
    /// For a data unit: its version.
    pub(crate) version: Version,
    /// For a parity unit: one version per data unit. Empty if it was never written.
    pub(crate) cover: &'a [Version],
}

/// Result of [`judge`]: do the reads of a stripe form one cut?
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The reads are of one cut: their bytes may be combined.
    Agreed,
    /// The reads are not of one cut. The contained cut, one version per data unit, is the newest that all of
    /// them can serve.
    Torn(Vec<Version>),
}

/// Judges the reads of one stripe with `k` data units.
pub(crate) fn judge(k: u8, seen: &[Seen<'_>]) -> Cut {
    let cut: Vec<Version> =
        (0..k).map(|data| seen.iter().filter_map(|one| one.claim(data)).min().unwrap_or_default()).collect();
    if seen.iter().all(|one| one.fits(&cut)) { Cut::Agreed } else { Cut::Torn(cut) }
}

/// The newest version of each data unit that any of these reads mentions.
pub(crate) fn newest(k: u8, seen: &[Seen<'_>]) -> Vec<Version> {
    (0..k).map(|data| seen.iter().filter_map(|one| one.claim(data)).max().unwrap_or_default()).collect()
}

impl Seen<'_> {
    /// The first data unit of which this read has an older version than `newest`, as both versions.
    pub(crate) fn older(&self, newest: &[Version]) -> Option<(Version, Version)> {
        let claims = (0..).zip(newest).filter_map(|(data, named)| Some((self.claim(data)?, *named)));
        claims.into_iter().find(|(has, named)| has < named)
    }

    /// The version of data unit `data` that this read represents; `None` if it says nothing about that unit.
    fn claim(&self, data: u8) -> Option<Version> {
        match self.role {
            Role::Data(own) => (own == data).then_some(self.version),
            Role::Parity(_) => Some(self.cover.get(usize::from(data)).copied().unwrap_or_default()),
        }
    }

    /// Returns true if this read belongs to the cut.
    pub(crate) fn fits(&self, cut: &[Version]) -> bool {
        (0..).zip(cut).all(|(data, version)| self.claim(data).is_none_or(|claimed| claimed == *version))
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Lease};

    use super::*;

    fn version(n: u64) -> Version {
        Version { g: Generation(1), lease: Lease(1), n }
    }

    fn check(reads: &[(Role, &[u64])], expected: Option<&[u64]>) {
        let covers: Vec<Vec<Version>> =
            reads.iter().map(|(_, ns)| ns.iter().map(|&n| version(n)).collect()).collect();
        let seen: Vec<Seen<'_>> = reads
            .iter()
            .zip(&covers)
            .map(|((role, _), cover)| match role {
                Role::Data(_) => Seen { role: *role, version: cover[0], cover: &[] },
                Role::Parity(_) => Seen { role: *role, version: version(99), cover },
            })
            .collect();
        let expected = expected.map_or(Cut::Agreed, |ns| Cut::Torn(ns.iter().map(|&n| version(n)).collect()));
        assert_eq!(judge(3, &seen), expected, "{reads:?}");
    }

    #[test]
    fn reads_that_agree_and_reads_that_do_not() {
        use Role::{Data, Parity};
        check(&[(Data(0), &[5]), (Data(2), &[7]), (Parity(0), &[5, 6, 7])], None);
        check(&[(Data(0), &[5]), (Data(1), &[6]), (Data(2), &[7])], None);
        check(&[(Parity(0), &[5, 6, 7]), (Parity(1), &[5, 6, 7])], None);
        // A write to unit 0 has reached only the data column.
        check(&[(Data(0), &[8]), (Data(2), &[7]), (Parity(0), &[5, 6, 7])], Some(&[5, 6, 7]));
        // It has reached only one parity column.
        check(&[(Data(0), &[5]), (Parity(0), &[8, 6, 7]), (Parity(1), &[5, 6, 7])], Some(&[5, 6, 7]));
        // Two reads of one unit, before and after the write.
        check(&[(Data(0), &[5]), (Data(0), &[8]), (Data(1), &[6]), (Data(2), &[7])], Some(&[5, 6, 7]));
    }

    #[test]
    fn whoever_stands_for_less_than_the_newest_is_behind() {
        let covers = [[version(5), version(6)], [version(4), version(6)]];
        let data = |data, n| Seen { role: Role::Data(data), version: version(n), cover: &[] };
        let parity = |index, cover: usize| Seen {
            role: Role::Parity(index),
            version: version(9),
            cover: &covers[cover],
        };
        let behind = |seen: &[Seen<'_>]| -> Vec<Role> {
            let newest = newest(2, seen);
            seen.iter().filter(|one| one.older(&newest).is_some()).map(|one| one.role).collect()
        };
        let all = [data(0, 5), data(1, 6), parity(0, 0), parity(1, 0)];
        assert_eq!(behind(&all), []);
        assert_eq!(behind(&[data(0, 4), all[1], all[2], all[3]]), [Role::Data(0)], "both parities say so");
        assert_eq!(behind(&[all[0], all[1], all[2], parity(1, 1)]), [Role::Parity(1)]);
        assert_eq!(behind(&[data(0, 7), all[1], all[2]]), [Role::Parity(0)], "it lacks what the data has");
    }

    #[test]
    fn a_parity_unit_that_was_never_written_covers_nothing() {
        let zero = Seen { role: Role::Parity(0), version: Version::ZERO, cover: &[] };
        let data = Seen { role: Role::Data(1), version: Version::ZERO, cover: &[] };
        assert_eq!(judge(2, &[zero, data]), Cut::Agreed);
    }
}
