//! A parity column's unit (PROTOCOL R5, R6): a base, deltas on top of it that form one chain per data column,
//! and at most one pending stripe record.
//!
//! Deltas are xored, so they commute: the bytes for exactly the versions V are the base (or the pending
//! record) xored with each chain's deltas up to V. A settled stripe record may cover only a part of the unit.
//! The deltas that it counts in are then missing from the base's bytes outside its range. They stay with the
//! base as *layers* until folding works them in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_layout::{ClientId, Column, EndBound, OperationNumber, Version};

use crate::format::extent::Extent;
use crate::format::record::Record;
use crate::index::extent::{Few, bytes_end, clip, overlay};
use crate::index::found::Found;
use crate::index::unit::{Content, Pending, Unit, own_extent, whole_ends};
use crate::mutation::WriteKind;

/// A delta on its chain, not folded in yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainDelta {
    /// The data column.
    pub(crate) column: Column,
    /// The index of the delta's version in a cover.
    pub(crate) data: u8,
    /// The version that the delta leads from.
    pub(crate) from: Version,
    /// The version that the delta leads to.
    pub(crate) to: Version,
    /// The client that wrote the change.
    pub(crate) client: ClientId,
    /// The client's operation.
    pub(crate) operation: OperationNumber,
    /// The range that the delta changes, and its bytes.
    pub(crate) own: Extent,
    /// End of the data unit's bytes in the version that the delta leads to.
    pub(crate) end: u32,
    /// True if the delta is known to be settled.
    pub(crate) settled: bool,
}

/// Relation of a delta to its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// The delta is on the chain already.
    Known,
    /// The delta continues the chain at the tip.
    Next,
    /// Versions between the chain and the delta are missing.
    Broken,
}

/// The versions that a read of parity counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut<'a> {
    /// Everything stored here.
    Newest,
    /// The versions that are known to be settled.
    Settled,
    /// Exactly these versions.
    Exactly(&'a [Version]),
}

/// The versions that a cut counts in.
struct Counted {
    cover: Vec<Version>,
    /// Ends of the data units' bytes in the versions of `cover`.
    ends: Few<u32>,
    /// The deltas that are needed for these versions.
    extents: Vec<Extent>,
}

/// The base that folding writes, with all settled deltas counted in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fold {
    /// The range that folding replaces.
    pub(crate) range: Range<u32>,
    /// The new base's version: the newest one counted in.
    pub(crate) version: Version,
    /// The current base's version.
    pub(crate) previous: Version,
    /// The versions counted in.
    pub(crate) cover: Vec<Version>,
    /// Ends of the data units' bytes in the versions of `cover`.
    pub(crate) ends: Few<u32>,
    /// The current base's bytes in the range.
    pub(crate) extents: Vec<Extent>,
    /// The deltas to xor to those bytes.
    pub(crate) layers: Vec<Extent>,
}

impl Pending {
    /// Returns true if the stripe write touches the data unit: then the cover contains its stamp (C2).
    fn touches(&self, data: u8) -> bool {
        at(&self.cover, data) == self.version
    }
}

impl Unit {
    /// Returns true if the unit has anything that only a parity unit has.
    pub(crate) fn is_parity(&self) -> bool {
        !self.deltas.is_empty()
            || self.settled.as_ref().is_some_and(|content| content.kind != WriteKind::Data)
            || self.pending.as_ref().is_some_and(|pending| pending.kind != WriteKind::Data)
    }

    fn base_cover(&self, data: u8) -> Version {
        self.settled.as_ref().map_or(Version::ZERO, |content| at(&content.cover, data))
    }

    fn base_end(&self, data: u8) -> u32 {
        let ends = self.settled.as_ref().map_or(&[][..], |content| &content.ends);
        ends.get(usize::from(data)).copied().unwrap_or(0)
    }

    /// Ends of the data units' bytes in the versions that `pending` counts in. A data unit that the write
    /// does not touch ends where it does in the version of its cover. If nothing below knows that version,
    /// only the write's own bound is known.
    pub(crate) fn pending_ends(&self, pending: &Pending) -> Box<[u32]> {
        let end = |(data, (cover, bound)): (u8, (&Version, &EndBound))| {
            let named = |delta: &&ChainDelta| pending.touches(data) || delta.to == *cover;
            let below = self.chain(data).rfind(named);
            bound.after(below.map_or_else(|| self.base_end(data), |delta| delta.end))
        };
        (0..).zip(pending.cover.iter().zip(&pending.ends)).map(end).collect()
    }

    fn chain(&self, data: u8) -> impl DoubleEndedIterator<Item = &ChainDelta> {
        self.deltas.iter().filter(move |delta| delta.data == data)
    }

    /// The newest version of a data unit that is counted in here.
    pub(crate) fn chain_tip(&self, data: u8) -> Version {
        match &self.pending {
            Some(pending) if pending.touches(data) => pending.version,
            _ => self.chain(data).next_back().map_or_else(|| self.base_cover(data), |delta| delta.to),
        }
    }

    /// Relation of a delta from one version to another to the chain (R5).
    pub(crate) fn link(&self, data: u8, from: Version, to: Version) -> Link {
        let stamp = self.pending.as_ref().filter(|pending| pending.touches(data)).map(|p| p.version);
        let tip = self.chain(data).next_back().map_or_else(|| self.base_cover(data), |delta| delta.to);
        if to == self.base_cover(data) || stamp == Some(to) || self.chain(data).any(|delta| delta.to == to) {
            Link::Known
        } else if from == tip || stamp == Some(from) {
            Link::Next
        } else {
            Link::Broken
        }
    }

    /// Applies a delta from the log.
    pub(crate) fn count(&mut self, record: &Record, unit_bytes: u32) {
        let data = record.data;
        if self.pending.as_ref().is_some_and(|p| p.touches(data) && p.version == record.previous) {
            self.settle(unit_bytes);
        }
        if self.link(data, record.previous, record.version) != Link::Next && self.lost.is_none() {
            self.lost = Some(record.position());
        }
        self.deltas.push(ChainDelta {
            column: record.column,
            data,
            from: record.previous,
            to: record.version,
            client: record.client,
            operation: record.operation,
            own: own_extent(record),
            end: record.end,
            settled: false,
        });
        self.settle_deltas(data, record.settled_below);
    }

    /// Marks a data unit's deltas up to this version as settled.
    pub(crate) fn settle_deltas(&mut self, data: u8, up_to: Version) {
        let Some(last) = self.deltas.iter().rposition(|delta| delta.data == data && delta.to == up_to) else {
            return;
        };
        self.deltas[..=last].iter_mut().filter(|delta| delta.data == data).for_each(|d| d.settled = true);
    }

    /// Returns true if [`Unit::settle_deltas`] would change something.
    pub(crate) fn has_unsettled(&self, data: u8, up_to: Version) -> bool {
        let last = self.deltas.iter().rposition(|delta| delta.data == data && delta.to == up_to);
        let up_to = last.map_or(&[][..], |last| &self.deltas[..=last]);
        up_to.iter().any(|delta| delta.data == data && !delta.settled)
    }

    /// Returns true if [`Unit::settle_deltas_below`] would change something.
    pub(crate) fn has_deltas_below(&self, stamp: Version) -> bool {
        self.deltas.iter().any(|delta| !delta.settled && is_below(delta.to, stamp))
    }

    /// Marks the deltas of the stamp's lease below the stamp as settled, and those that they stand on.
    pub(crate) fn settle_deltas_below(&mut self, stamp: Version) {
        let below = self.deltas.iter().filter(|delta| is_below(delta.to, stamp));
        let newest: BTreeMap<u8, Version> = below.map(|delta| (delta.data, delta.to)).collect();
        newest.into_iter().for_each(|(data, up_to)| self.settle_deltas(data, up_to));
    }

    /// Called when `pending` becomes the base. Removes the deltas that it counts in (all of the data units it
    /// touches, up to its cover of the others) and returns the layers: old ones and removed deltas, outside
    /// its range.
    pub(crate) fn absorb(&mut self, pending: &Pending) -> Vec<Extent> {
        let mut layers =
            self.settled.as_mut().map_or_else(Vec::new, |content| std::mem::take(&mut content.layers));
        if layers.is_empty() && self.deltas.is_empty() {
            return layers;
        }
        let stays = self.above(pending);
        for (delta, stays) in std::mem::take(&mut self.deltas).into_iter().zip(stays) {
            if stays {
                self.deltas.push(delta);
            } else {
                layers.push(delta.own);
            }
        }
        outside(&layers, pending.own)
    }

    /// For each delta, true if `pending` does not count it in.
    fn above(&self, pending: &Pending) -> Vec<bool> {
        let above = |(i, delta): (usize, &ChainDelta)| {
            let cover = at(&pending.cover, delta.data);
            let first = self.deltas.iter().position(|d| d.data == delta.data && d.from == cover);
            !pending.touches(delta.data) && first.is_some_and(|first| i >= first)
        };
        self.deltas.iter().enumerate().map(above).collect()
    }

    /// Removes a lost column's versions above `version` and returns them. `version` need not be on the chain:
    /// it may be the version that an older base counts in at another parity column.
    pub(crate) fn cut_off(&mut self, column: Column, version: Version) -> Vec<ChainDelta> {
        let is_above = |delta: &ChainDelta| delta.column == column && delta.to > version;
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deltas).into_iter().partition(is_above);
        self.deltas = stay;
        gone
    }

    /// Removes from each chain the first delta not known to be settled and all after it. Returns them.
    pub(crate) fn drop_unsettled_deltas(&mut self) -> Vec<ChainDelta> {
        let mut ended = BTreeSet::new();
        let goes = |delta: &ChainDelta| {
            if !delta.settled {
                ended.insert(delta.data);
            }
            ended.contains(&delta.data)
        };
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deltas).into_iter().partition(goes);
        self.deltas = stay;
        gone
    }

    /// Returns true if [`Unit::cut_off`] would remove something.
    pub(crate) fn has_above(&self, column: Column, version: Version) -> bool {
        self.deltas.iter().any(|delta| delta.column == column && delta.to > version)
    }

    /// `range` of the bytes for a cut; `None` if some version is not on its chain.
    pub(crate) fn cut(&self, cut: Cut<'_>, range: &Range<u32>) -> Option<Found> {
        if cut != Cut::Settled
            && let Some(pending) = &self.pending
            && let Some(found) = self.pending_cut(pending, cut, range)
        {
            return Some(found);
        }
        let start = |data| (self.base_cover(data), self.base_end(data));
        let Counted { cover, ends, extents: counted } = self.counted(cut, &start, &|_| true)?;
        let base = self.settled.as_ref();
        let layers: Vec<Extent> = base.iter().flat_map(|base| &base.layers).copied().chain(counted).collect();
        Some(Found {
            version: self.settled_version().max(cover.iter().copied().max().unwrap_or_default()),
            pending: false,
            kind: base.map_or(WriteKind::ParityBase, |base| base.kind),
            columns: base.map_or_else(Default::default, |base| base.columns),
            cover,
            ends,
            extents: clip(self.settled_extents(), range).into(),
            layers: clip(&layers, range).into(),
        })
    }

    /// The pending version as its own write left it, without later deltas.
    pub(crate) fn pending_found(&self, pending: &Pending, range: &Range<u32>) -> Found {
        let below = self.deltas.iter().zip(self.above(pending)).filter(|(_, above)| !above);
        let base = self.settled.iter().flat_map(|base| &base.layers).copied();
        let layers: Vec<Extent> = base.chain(below.map(|(delta, _)| delta.own)).collect();
        let content = self.pending_extents(pending);
        let ends = match pending.kind {
            WriteKind::Data => Few::from_elem(bytes_end(&content), 1),
            _ => Few::from_slice(&self.pending_ends(pending)),
        };
        Found {
            version: pending.version,
            pending: true,
            kind: pending.kind,
            columns: pending.columns,
            cover: pending.cover.to_vec(),
            ends,
            extents: clip(&content, range).into(),
            layers: clip(&outside(&layers, pending.own), range).into(),
        }
    }

    fn pending_cut(&self, pending: &Pending, cut: Cut<'_>, range: &Range<u32>) -> Option<Found> {
        let above = self.above(pending);
        let is_above =
            |delta: &ChainDelta| self.deltas.iter().zip(&above).any(|(d, above)| *above && d == delta);
        let ends = self.pending_ends(pending);
        let end = |data| ends.get(usize::from(data)).copied().unwrap_or(0);
        let start = |data| (at(&pending.cover, data), end(data));
        let Counted { cover, ends, extents: counted } = self.counted(cut, &start, &is_above)?;
        let mut found = self.pending_found(pending, range);
        found.version = found.version.max(cover.iter().copied().max().unwrap_or_default());
        (found.cover, found.ends) = (cover, ends);
        found.layers.extend(clip(&counted, range));
        Some(found)
    }

    /// The versions that a cut counts in, and the deltas needed for them. Each chain begins at the version
    /// that `start` returns with its bytes' end, and has the deltas for which `on` is true.
    fn counted(
        &self,
        cut: Cut<'_>,
        start: &dyn Fn(u8) -> (Version, u32),
        on: &dyn Fn(&ChainDelta) -> bool,
    ) -> Option<Counted> {
        let covers = [
            self.settled.as_ref().map_or(0, |base| base.cover.len()),
            self.pending.as_ref().map_or(0, |pending| pending.cover.len()),
            self.deltas.iter().map(|delta| usize::from(delta.data) + 1).max().unwrap_or(0),
            if let Cut::Exactly(asked) = cut { asked.len() } else { 0 },
        ];
        let width = u8::try_from(covers.into_iter().max().unwrap_or(0)).ok()?;
        let mut cover = Vec::new();
        let mut ends = Few::new();
        let mut extents = Vec::new();
        for data in 0..width {
            let (mut version, mut end) = start(data);
            let asked = if let Cut::Exactly(asked) = cut { Some(at(asked, data)) } else { None };
            for delta in self.chain(data).filter(|delta| on(delta)) {
                if asked == Some(version) || (cut == Cut::Settled && !delta.settled) {
                    break;
                }
                (version, end) = (delta.to, delta.end);
                extents.push(delta.own);
            }
            if asked.is_some_and(|asked| asked != version) {
                return None;
            }
            cover.push(version);
            ends.push(end);
        }
        Some(Counted { cover, ends, extents })
    }

    /// The base that folding would write (R6). `None` if there is nothing to fold, while a stripe record is
    /// pending, and in a lost unit.
    pub(crate) fn fold(&self) -> Option<Fold> {
        self.fold_of(Cut::Settled)
    }

    /// The base that folding would have written when these were the settled versions.
    pub(crate) fn fold_to(&self, cover: &[Version]) -> Option<Fold> {
        self.fold_of(Cut::Exactly(cover))
    }

    fn fold_of(&self, cut: Cut<'_>) -> Option<Fold> {
        if self.pending.is_some() || self.lost.is_some() {
            return None;
        }
        let found = self.cut(cut, &(0..u32::MAX))?;
        let from = found.layers.iter().map(|layer| layer.from).min()?;
        let to = found.layers.iter().map(|layer| layer.to).max()?;
        Some(Fold {
            range: from..to,
            version: found.version,
            previous: self.settled_version(),
            cover: found.cover,
            ends: found.ends,
            extents: clip(&found.extents, &(from..to)),
            layers: found.layers.into_vec(),
        })
    }

    /// Returns true if there are settled deltas or layers to fold.
    pub(crate) fn is_foldable(&self) -> bool {
        let layers = self.settled.as_ref().is_some_and(|base| !base.layers.is_empty());
        self.pending.is_none() && self.lost.is_none() && (layers || self.deltas.iter().any(|d| d.settled))
    }

    /// Applies a folded base from the log.
    pub(crate) fn folded(&mut self, record: &Record) {
        if self.settled_version() != record.previous && self.lost.is_none() {
            self.lost = Some(record.position());
        }
        let extents = overlay(self.settled_extents(), own_extent(record)).into();
        let cover = record.cover.clone().into_boxed_slice();
        self.keep_above(&cover);
        let version = record.version;
        let columns = record.columns;
        let kind = WriteKind::ParityBase;
        let ends = whole_ends(record);
        let layers = Vec::new();
        self.settled = Some(Content { version, kind, columns, cover, ends, extents, layers });
    }
}

impl Unit {
    /// Removes the deltas up to a new base's cover, which counts them in.
    pub(crate) fn keep_above(&mut self, cover: &[Version]) {
        self.deltas = self.kept_above(cover);
    }

    /// The deltas that a new base's cover does not count in.
    pub(crate) fn kept_above(&self, cover: &[Version]) -> Vec<ChainDelta> {
        let mut above = BTreeSet::new();
        let stays = |delta: &&ChainDelta| {
            // A chain is in order: the deltas before the one that leads from the cover are counted in.
            if delta.from == at(cover, delta.data) {
                above.insert(delta.data);
            }
            above.contains(&delta.data)
        };
        self.deltas.iter().filter(stays).cloned().collect()
    }
}

/// Returns true if a version is of the stamp's lease, and older.
fn is_below(version: Version, stamp: Version) -> bool {
    version.lease == stamp.lease && version < stamp
}

/// A data unit's version in a cover; zero (never written) if the cover does not have it.
fn at(cover: &[Version], data: u8) -> Version {
    cover.get(usize::from(data)).copied().unwrap_or(Version::ZERO)
}

/// The parts of `extents` outside `own`.
fn outside(extents: &[Extent], own: Extent) -> Vec<Extent> {
    let before = clip(extents, &(0..own.from));
    before.into_iter().chain(clip(extents, &(own.to..u32::MAX))).collect()
}
