//! The choice of a new file's drives: a pure, versioned function of the file's number and the available
//! drives.

mod rank;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::DriveId;
use rank::{Rank, Use, hash};

/// Version of the function that chooses. Existing files keep their drives: a new version moves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum PlacementVersion {
    /// Weighted rendezvous hashing as described at the top of this module.
    #[default]
    V1 = 1,
}

/// A drive that may be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Identity of the drive.
    pub drive: DriveId,
    /// The drive's share of new files, relative to the other candidates: say, its capacity in GiB. A drive of
    /// weight 0 takes none.
    pub weight: u32,
    /// The domains that the drive fails with, the widest first, the host last: `["rack-2", "host-7"]`. A
    /// host's name is unique within its rack only. Drives without domains count as on one host.
    pub domain: Vec<String>,
}

/// Reason that no drives were chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Fewer drives can take new files than there are columns. Add drives or use a narrower scheme.
    #[error("{width} columns need as many drives, but only {drives} on {hosts} hosts take new files")]
    TooFew {
        /// Number of columns asked for.
        width: u8,
        /// Number of drives that could be chosen: weight above 0, and not kept already.
        drives: usize,
        /// Number of hosts that these drives are on.
        hosts: usize,
    },
    /// A drive is listed twice.
    #[error("drive {drive} is listed twice")]
    Twice {
        /// Drive that is listed twice.
        drive: DriveId,
    },
    /// No version has this number.
    #[error("unknown placement version {0}")]
    UnknownVersion(u8),
}

impl PlacementVersion {
    /// The version with this number in a format.
    pub fn from_number(number: u8) -> Result<PlacementVersion, PlacementError> {
        match number {
            1 => Ok(PlacementVersion::V1),
            other => Err(PlacementError::UnknownVersion(other)),
        }
    }
}

/// The drives of the `width` columns of a new file, in the order of the columns. `seed` is the file's number.
pub fn choose(
    version: PlacementVersion,
    seed: u64,
    width: u8,
    candidates: &[Candidate],
) -> Result<Vec<DriveId>, PlacementError> {
    choose_beside(version, seed, &[], width, candidates)
}

/// Drives for `count` more columns of a file that keeps columns on the drives `kept`: to replace lost ones,
/// or for more copies. Kept drives count in their domains whatever their weight; candidates that are kept
/// already are ignored. With the file's number as `seed`, this keeps the file where [`choose`] would now put
/// it.
pub fn choose_beside(
    version: PlacementVersion,
    seed: u64,
    kept: &[Candidate],
    count: u8,
    candidates: &[Candidate],
) -> Result<Vec<DriveId>, PlacementError> {
    let usable = usable(version, seed, kept, count, candidates)?;
    let mut chosen = take(kept, &usable, count);
    chosen.sort_by_cached_key(|drive| (hash(*drive, seed, Use::Column), *drive));
    Ok(chosen)
}

/// The drives for one more column that are as good as [`choose_beside`]'s choice: as far from the kept ones.
/// That choice comes first, then the others by their draws. For a caller that moves many columns, and spreads
/// them more evenly than draws do.
pub fn equals_beside<'a>(
    version: PlacementVersion,
    seed: u64,
    kept: &[Candidate],
    candidates: &'a [Candidate],
) -> Result<Vec<&'a Candidate>, PlacementError> {
    let usable = usable(version, seed, kept, 1, candidates)?;
    let columns = Columns::new(kept, &usable);
    let best =
        (1..usable.len()).fold(0, |best, at| if columns.compare(at, best).is_lt() { at } else { best });
    Ok((0..usable.len()).filter(|at| columns.compare(*at, best).is_eq()).map(|at| usable[at]).collect())
}

/// The candidates that may get `count` more columns, the best draw first.
fn usable<'a>(
    version: PlacementVersion,
    seed: u64,
    kept: &[Candidate],
    count: u8,
    candidates: &'a [Candidate],
) -> Result<Vec<&'a Candidate>, PlacementError> {
    let PlacementVersion::V1 = version;
    refuse_twice(kept)?;
    refuse_twice(candidates)?;
    let mut usable: Vec<&Candidate> = candidates
        .iter()
        .filter(|candidate| candidate.weight > 0 && kept.iter().all(|kept| kept.drive != candidate.drive))
        .collect();
    if usable.len() < usize::from(count) {
        let mut hosts: Vec<&[String]> = usable.iter().map(|candidate| candidate.domain.as_slice()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        return Err(PlacementError::TooFew { width: count, drives: usable.len(), hosts: hosts.len() });
    }
    usable.sort_by_cached_key(|candidate| Rank::new(candidate.drive, candidate.weight, seed));
    Ok(usable)
}

/// Takes `count` of the drives, which are sorted by their draws, best first: each time the best draw among
/// those whose domains have the fewest columns so far.
fn take(kept: &[Candidate], usable: &[&Candidate], count: u8) -> Vec<DriveId> {
    let mut columns = Columns::new(kept, usable);
    let mut left: Vec<usize> = (0..usable.len()).collect();
    let mut chosen = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        // On a tie `min_by` gives the first: the best draw.
        let least = left.iter().enumerate().min_by(|(_, a), (_, b)| columns.compare(**a, **b));
        let (position, &candidate) = least.expect("there are enough drives");
        left.remove(position);
        columns.count(candidate);
        chosen.push(usable[candidate].drive);
    }
    chosen
}

/// Number of columns of a file in each domain.
struct Columns {
    /// For each usable drive the domains it is in, as indices into `counts`, its host first.
    domains: Vec<Vec<usize>>,
    counts: Vec<u32>,
}

impl Columns {
    fn new(kept: &[Candidate], usable: &[&Candidate]) -> Columns {
        let levels =
            usable.iter().copied().chain(kept).map(|candidate| candidate.domain.len()).max().unwrap_or(0);
        let mut indices = BTreeMap::new();
        let mut domains_of = |candidate| -> Vec<usize> {
            (0..levels)
                .map(|level| {
                    let next = indices.len();
                    *indices.entry((level, domain(candidate, level))).or_insert(next)
                })
                .collect()
        };
        let domains = usable.iter().map(|candidate| domains_of(candidate)).collect();
        let of_kept: Vec<usize> = kept.iter().flat_map(&mut domains_of).collect();
        let mut counts = vec![0; indices.len()];
        of_kept.iter().for_each(|index| counts[*index] += 1);
        Columns { domains, counts }
    }

    fn count(&mut self, candidate: usize) {
        for index in &self.domains[candidate] {
            self.counts[*index] += 1;
        }
    }

    /// Compares the numbers of columns on the two drives' hosts, then in their racks, and so on.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let around = |candidate: usize| self.domains[candidate].iter().map(|index| self.counts[*index]);
        around(a).cmp(around(b))
    }
}

/// The domain of a drive at a level: 0 is its host, 1 the rack, and so on. Drives with fewer domains than
/// others share a nameless one above.
fn domain(candidate: &Candidate, level: usize) -> &[String] {
    &candidate.domain[..candidate.domain.len().saturating_sub(level)]
}

fn refuse_twice(candidates: &[Candidate]) -> Result<(), PlacementError> {
    let mut drives: Vec<DriveId> = candidates.iter().map(|candidate| candidate.drive).collect();
    drives.sort_unstable();
    match drives.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PlacementError::Twice { drive: pair[0] }),
        None => Ok(()),
    }
}
