//! The state of one unit (PROTOCOL section 2): one settled version, and on top of it one pending version, or
//! owed ones (`owed`), or, at a parity column, deltas and at most one pending version (`parity`).

use std::borrow::Cow;
use std::cmp::Ordering;

use braid_layout::{ColumnMask, EndBound, Version};
use smallvec::SmallVec;

use crate::format::extent::{Extent, LogPosition};
use crate::format::record::{Record, flags};
use crate::index::extent::{Few, lay_over, moved, overlay, union};
use crate::index::owed::Owed;
use crate::index::parity::ChainDelta;
use crate::index::snapshots::KeptContent;
use crate::mutation::WriteKind;

/// One version of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    /// Identifies the version.
    pub(crate) version: Version,
    /// Kind of the write that made the version.
    pub(crate) kind: WriteKind,
    /// The columns that the write touched.
    pub(crate) columns: ColumnMask,
    /// Parity kinds: the version counted in per data column.
    pub(crate) cover: Box<[Version]>,
    /// Parity kinds: for each version of `cover`, one past the last byte of the data unit that is not in a
    /// hole.
    pub(crate) ends: Box<[u32]>,
    /// All bytes of the version, not only those of its own write.
    pub(crate) extents: Few<Extent>,
    /// Parity: deltas that are counted in and must be xored to the bytes (`parity`).
    pub(crate) layers: Vec<Extent>,
}

/// A stripe write's version, beside the settled one: this column does not know whether all others have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Identifies the version.
    pub(crate) version: Version,
    /// Kind of the write that made the version.
    pub(crate) kind: WriteKind,
    /// The columns that the write touched.
    pub(crate) columns: ColumnMask,
    /// Parity kinds: the version counted in per data column.
    pub(crate) cover: Box<[Version]>,
    /// Parity kinds: for each version of `cover`, the bounds that the write gives for the end of the data
    /// unit's bytes.
    pub(crate) ends: Box<[EndBound]>,
    /// The bytes of the version's own write; its other bytes are those of the settled version.
    pub(crate) own: Extent,
    /// True if the version's own write is the unit's whole content: the other bytes are a hole.
    pub(crate) whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Unit {
    /// The settled version; `None`: never written.
    pub(crate) settled: Option<Content>,
    /// The pending version.
    pub(crate) pending: Option<Box<Pending>>,
    /// Data column: versions that some parity column may not have, oldest first. Empty while one is pending.
    pub(crate) owed: Vec<Owed>,
    /// Parity column: deltas that are not in the settled version, in order of arrival.
    pub(crate) deltas: Vec<ChainDelta>,
    /// Position of the damage that hit this unit: it is lost until it is completely rewritten.
    pub(crate) lost: Option<LogPosition>,
    /// The newest live snapshot when the settled version became settled (`snapshots`).
    pub(crate) epoch: u32,
    /// Replaced settled versions that snapshots still see, oldest first.
    pub(crate) kept: Vec<KeptContent>,
}

/// The places that a unit refers to; mostly few.
pub(crate) type Pins = SmallVec<[Extent; 8]>;

impl Unit {
    /// The newest version.
    pub(crate) fn tip_version(&self) -> Version {
        match (self.owed.last(), &self.pending) {
            (Some(owed), _) => owed.version,
            (None, Some(pending)) => pending.version,
            (None, None) => self.settled_version(),
        }
    }

    /// The settled version; [`Version::ZERO`] if there is none.
    pub(crate) fn settled_version(&self) -> Version {
        self.settled.as_ref().map_or(Version::ZERO, |content| content.version)
    }

    /// The extents of the settled version.
    pub(crate) fn settled_extents(&self) -> &[Extent] {
        self.settled.as_ref().map_or(&[], |content| &content.extents)
    }

    /// The extents of the newest version, without deltas.
    pub(crate) fn tip_extents(&self) -> Cow<'_, [Extent]> {
        if let Some(pending) = &self.pending {
            return Cow::Owned(self.pending_extents(pending));
        }
        let own = self.owed.iter().map(|owed| owed.own);
        own.fold(Cow::Borrowed(self.settled_extents()), |under, own| Cow::Owned(overlay(&under, own)))
    }

    /// The extents of the pending version, without deltas.
    pub(crate) fn pending_extents(&self, pending: &Pending) -> Vec<Extent> {
        let under = if pending.whole { &[] } else { self.settled_extents() };
        overlay(under, pending.own)
    }

    /// Everything the unit refers to, each stored byte once: the settled content, the bytes of each step on
    /// top of it, and kept contents, which mostly share records with the others.
    pub(crate) fn pins(&self) -> Pins {
        let mut pins = Pins::new();
        // Pushed one by one: most lists are short, and a bulk copy is slower for those.
        let settled = self
            .settled
            .as_ref()
            .map_or((&[][..], &[][..]), |content| (&content.extents[..], &content.layers[..]));
        settled.0.iter().for_each(|extent| pins.push(*extent));
        settled.1.iter().for_each(|extent| pins.push(*extent));
        if let Some(pending) = &self.pending {
            pins.push(pending.own);
        }
        self.owed.iter().for_each(|owed| pins.push(owed.own));
        self.deltas.iter().for_each(|delta| pins.push(delta.own));
        if self.kept.is_empty() {
            return pins;
        }
        for content in self.kept.iter().filter_map(|kept| kept.content.as_ref().ok()) {
            pins.extend_from_slice(&content.extents);
            pins.extend_from_slice(&content.layers);
        }
        union(pins.into_vec()).into()
    }

    /// The cleaner has moved the bytes at the `old` places to the record at `new`.
    pub(crate) fn moved(&mut self, old: &[Extent], new: LogPosition) {
        if let Some(lost) = &mut self.lost
            && *lost < new
        {
            // A write from before the damage must not look newer than the damage.
            *lost = new;
        }
        if let Some(content) = &mut self.settled {
            content.extents = moved(&content.extents, old, new).into();
            content.layers = moved(&content.layers, old, new);
        }
        let pending = self.pending.iter_mut().map(|pending| &mut pending.own);
        let owed = self.owed.iter_mut().map(|owed| &mut owed.own);
        let deltas = self.deltas.iter_mut().map(|delta| &mut delta.own);
        for own in pending.chain(owed).chain(deltas) {
            // One record's bytes are moved as a whole, or not at all.
            if let [now] = moved(&[*own], old, new)[..] {
                *own = now;
            }
        }
        self.moved_kept(old, new);
    }

    /// Settles the pending version.
    pub(crate) fn settle(&mut self, unit_bytes: u32) {
        let healed = self.mended(unit_bytes).is_some();
        let Some(pending) = self.pending.take() else { return };
        let ends = self.pending_ends(&pending);
        if healed {
            self.lost = None;
        }
        let below = self.settled.as_mut().filter(|_| !pending.whole);
        let mut extents = below.map_or_else(Few::new, |content| std::mem::take(&mut content.extents));
        lay_over(&mut extents, pending.own);
        let layers = self.absorb(&pending);
        let Pending { version, kind, columns, cover, .. } = *pending;
        self.settled = Some(Content { version, kind, columns, cover, ends, extents, layers });
    }

    /// The pending write that will make a lost unit whole again once it is settled. It must have all of the
    /// unit's bytes, and must come after the damage, because otherwise a lost version may stand above it. A
    /// parity unit that has deltas stays lost: other deltas, which the write does not count in, may be lost
    /// too. (Without deltas, the writer knew every version and all of them were settled, PROTOCOL C1 and C2.)
    pub(crate) fn mended(&self, unit_bytes: u32) -> Option<&Pending> {
        let pending = self.pending.as_deref().filter(|_| self.deltas.is_empty())?;
        let replaced = |lost: &LogPosition| {
            pending.whole && pending.own.position() > *lost || replaces(pending.own, *lost, unit_bytes)
        };
        self.lost.filter(replaced).map(|_| pending)
    }

    /// Makes the unit whole again if this settled write covers it all and came after the damage.
    pub(crate) fn heal(&mut self, own: Extent, unit_bytes: u32) {
        if self.lost.is_some_and(|lost| replaces(own, lost, unit_bytes)) {
            self.lost = None;
        }
    }

    /// Compares settled content to be installed with the current settled content. Parity is compared column
    /// by column, because a base is named by the newest version it counts in. Greater: no column is older and
    /// at least one is newer. Less: some column is older (PROTOCOL section 7).
    pub(crate) fn installs(&self, kind: WriteKind, version: Version, cover: &[Version]) -> Ordering {
        if kind == WriteKind::Data {
            return version.cmp(&self.settled_version());
        }
        let have = self.settled.as_ref().map_or(&[][..], |content| &content.cover);
        let at = |cover: &[Version], data: usize| cover.get(data).copied().unwrap_or(Version::ZERO);
        let by_column = (0..have.len().max(cover.len())).map(|data| at(cover, data).cmp(&at(have, data)));
        by_column.fold(Ordering::Equal, |all, column| match (all, column) {
            (Ordering::Less, _) | (_, Ordering::Less) => Ordering::Less,
            (all, Ordering::Equal) => all,
            _ => Ordering::Greater,
        })
    }

    /// Returns true if any newer version stays above settled content of this version and cover when it is
    /// installed.
    pub(crate) fn has_newer(&self, version: Version, cover: &[Version]) -> bool {
        let pending = self.pending.as_ref().is_some_and(|pending| pending.version > version);
        let owed = self.owed.iter().any(|owed| owed.version > version);
        pending || owed || !self.kept_above(cover).is_empty()
    }

    /// Takes the pending version back.
    pub(crate) fn back(&mut self) {
        self.pending = None;
    }

    /// Applies a write from the log. `previous` is the version below it when it was appended: the pending or
    /// an owed one (which it settled) or the settled one (a pending one was then taken back in between).
    /// Anything else means that a record is missing, and the unit is lost.
    pub(crate) fn write(&mut self, record: &Record, unit_bytes: u32) {
        if record.is(flags::INSTALLED) {
            return self.install(record, unit_bytes);
        }
        if record.version <= self.tip_version() {
            return;
        }
        if self.owed.iter().any(|owed| owed.version == record.previous) {
            self.settle_owed(record.previous, unit_bytes);
        }
        let pending = self.pending.as_ref().map(|pending| pending.version);
        let known = pending == Some(record.previous) || self.settled_version() == record.previous;
        match pending {
            Some(pending) if pending != record.previous && known => self.back(),
            _ => self.settle(unit_bytes),
        }
        let version = record.version;
        let kind = record.kind.write_kind();
        let columns = record.columns;
        let cover = record.cover.as_slice().into();
        let ends = record.ends.as_slice().into();
        let own = own_extent(record);
        let whole = record.is(flags::WHOLE);
        self.pending = Some(Box::new(Pending { version, kind, columns, cover, ends, own, whole }));
        if !known && self.lost.is_none() {
            self.lost = Some(record.position());
        }
    }

    /// Installs settled content below a newer pending write; a pending write of the same or an older version
    /// is removed. Bytes that the record does not have become a hole.
    fn install(&mut self, record: &Record, unit_bytes: u32) {
        let Content { version, kind, cover, .. } = content(record, Few::new());
        if self.installs(kind, version, &cover) == Ordering::Less {
            return;
        }
        let hole = Extent { from: 0, to: unit_bytes, segment: 0, block: 0 };
        let installed = overlay(&[hole], own_extent(record));
        // If a version stayed above the installed content that the damage may have hit, the unit stays lost.
        if !record.is(flags::BELOW) {
            self.lost = None;
        }
        if self.pending.as_ref().is_some_and(|pending| pending.version <= record.version) {
            self.pending = None;
        }
        self.owed.retain(|owed| owed.version > record.version);
        self.keep_above(&record.cover);
        self.settled = (!record.version.is_zero()).then(|| content(record, installed.into()));
    }
}

/// Returns true if the bytes of `own` cover the whole unit and came after the damage.
fn replaces(own: Extent, lost: LogPosition, unit_bytes: u32) -> bool {
    own.from == 0 && own.to == unit_bytes && own.position() > lost
}

fn content(record: &Record, extents: Few<Extent>) -> Content {
    let version = record.version;
    let kind = record.kind.write_kind();
    let columns = record.columns;
    let cover = record.cover.clone().into_boxed_slice();
    let ends = whole_ends(record);
    Content { version, kind, columns, cover, ends, extents, layers: Vec::new() }
}

/// The ends of the data units that a record of whole content counts in.
pub(crate) fn whole_ends(record: &Record) -> Box<[u32]> {
    record.ends.iter().map(|end| end.after(0)).collect()
}

/// The bytes that `record` brings, or its hole.
pub(crate) fn own_extent(record: &Record) -> Extent {
    let LogPosition { segment, block } =
        if record.is(flags::HOLE) { LogPosition::default() } else { record.position() };
    Extent { from: record.from, to: record.to, segment, block }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::Kind;

    const UNIT_BYTES: u32 = 8192;

    fn stamp(n: u64) -> Version {
        Version { n, ..Version::ZERO }
    }

    /// A write of the whole unit, in this segment.
    fn write(unit: &mut Unit, n: u64, segment: u32, flags: u8) {
        let mut record = Record::new(Kind::Data);
        (record.segment, record.block) = (segment, 1);
        (record.to, record.version, record.previous, record.flags) =
            (UNIT_BYTES, stamp(n), unit.tip_version(), flags);
        unit.write(&record, UNIT_BYTES);
    }

    fn damaged_in(segment: u32) -> Option<LogPosition> {
        Some(LogPosition { segment, block: 1 })
    }

    #[test]
    fn only_what_came_after_the_damage_heals() {
        for (written, damaged, heals) in [(3, 2, true), (2, 3, false), (3, 3, false)] {
            let mut unit = Unit::default();
            write(&mut unit, 1, written, 0);
            unit.lost = damaged_in(damaged);
            unit.settle(UNIT_BYTES);
            assert_eq!(unit.lost.is_none(), heals, "written in {written}, damaged in {damaged}");
        }
    }

    #[test]
    fn of_a_whole_content_nothing_below_shows_and_it_goes_back_to_it() {
        for forward in [false, true] {
            let mut unit = Unit::default();
            write(&mut unit, 1, 2, 0);
            unit.settle(UNIT_BYTES);
            let mut record = Record::new(Kind::Data);
            (record.segment, record.block, record.to, record.flags) = (3, 1, 100, flags::WHOLE);
            (record.version, record.previous) = (stamp(2), stamp(1));
            unit.write(&record, UNIT_BYTES);
            assert_eq!(unit.tip_extents()[..], [own_extent(&record)]);
            if forward {
                unit.settle(UNIT_BYTES)
            } else {
                unit.back()
            }
            let end = unit.tip_extents().last().map(|extent| extent.to);
            assert_eq!(end, Some(if forward { 100 } else { UNIT_BYTES }));
        }
    }

    #[test]
    fn what_the_cleaner_moves_is_not_newer_for_that() {
        let mut unit = Unit::default();
        write(&mut unit, 1, 2, 0);
        unit.lost = damaged_in(3);
        let old: Vec<Extent> = unit.pending.iter().map(|pending| pending.own).collect();
        unit.moved(&old, LogPosition { segment: 4, block: 1 });
        assert_eq!(unit.pending.as_ref().map(|pending| pending.own.segment), Some(4), "it was moved");
        unit.settle(UNIT_BYTES);
        assert!(unit.lost.is_some());
    }

    #[test]
    fn what_is_installed_below_something_does_not_heal() {
        for (flags, heals) in [(flags::INSTALLED, true), (flags::INSTALLED | flags::BELOW, false)] {
            let mut unit = Unit { lost: damaged_in(2), ..Unit::default() };
            write(&mut unit, 1, 3, flags);
            assert_eq!(unit.lost.is_none(), heals);
        }
        let mut unit = Unit::default();
        write(&mut unit, 5, 2, 0);
        assert!(unit.has_newer(stamp(4), &[]) && !unit.has_newer(stamp(5), &[]));
    }

    #[test]
    fn a_parity_write_heals_unless_deltas_stand_on_it() {
        for (deltas, heals) in [(0, true), (1, false)] {
            let mut unit = Unit::default();
            write(&mut unit, 1, 3, 0);
            unit.pending.as_mut().expect("pending").kind = WriteKind::StripeParity;
            unit.lost = damaged_in(2);
            for n in 0..deltas {
                unit.count(&delta(n), UNIT_BYTES);
            }
            unit.settle(UNIT_BYTES);
            assert_eq!(unit.lost.is_none(), heals, "{deltas} deltas");
        }
    }

    fn delta(n: u64) -> Record {
        let mut record = Record::new(Kind::Delta);
        (record.segment, record.block) = (4, 1);
        (record.to, record.previous, record.version) = (UNIT_BYTES, stamp(n), stamp(n + 1));
        record
    }

    #[test]
    fn a_write_that_replaces_a_lost_unit_is_read_and_goes_back_to_lost() {
        use crate::index::query::Want;
        let range = 0..UNIT_BYTES;
        let mut unit = Unit::default();
        write(&mut unit, 1, 2, flags::INSTALLED);
        unit.lost = damaged_in(2);
        write(&mut unit, 2, 3, 0);
        for want in [Want::Newest, Want::Exactly(stamp(2))] {
            let found = unit.wanted(want, &range, UNIT_BYTES).expect("it is there").expect("bytes");
            assert_eq!((found.version, found.pending), (stamp(2), true));
        }
        for want in [Want::Settled, Want::Exactly(stamp(1))] {
            assert!(unit.wanted(want, &range, UNIT_BYTES).is_err(), "{want:?}");
        }
        unit.back();
        assert!(unit.wanted(Want::Newest, &range, UNIT_BYTES).is_err(), "what was below is lost as before");
    }
}
