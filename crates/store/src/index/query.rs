//! Lookups in the index.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use braid_layout::{ColumnMask, ObjectId, PartitionId, Version};

use crate::error::Error;
use crate::format::extent::Extent;
use crate::format::page::Key;
use crate::index::deciding::decision::damaged;
use crate::index::extent::{Few, bytes_end, clip, overlay};
use crate::index::found::Found;
use crate::index::list::Holes;
use crate::index::owed::OwedStep;
use crate::index::parity::{ChainDelta, Cut};
use crate::index::slot::Slot;
use crate::index::unit::{Content, Pending, Unit};
use crate::index::{Chain, ChainEntry, ChainTip, ClientOperations, Index, Object, Partition, PartitionState};
use crate::mutation::WriteKind;

/// The version of a unit that a read wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The tip, pending or settled. Owed versions are not shown.
    Newest,
    /// The newest version that is known here to be settled.
    Settled,
    /// Exactly this version; [`Error::Gone`] if the chain does not have it.
    Exactly(Version),
}

impl Index {
    /// Loads objects that are about to change into the processor's cache. They are scattered in memory, and
    /// loading many at once takes hardly longer than loading one: this cuts replay time by a quarter.
    pub(crate) fn warm(&self, keys: impl Iterator<Item = (PartitionId, ObjectId)>) {
        let find = |(partition, object)| self.partitions.get(&partition)?.objects.get(&object);
        let objects: Vec<&Object> = keys.filter_map(find).map(|object| &**object).collect();
        let births = objects.iter().map(|object| object.birth).fold(0, u64::wrapping_add);
        let units = objects.iter().filter_map(|object| object.units.first_key()).fold(0, u64::wrapping_add);
        std::hint::black_box((births, units));
    }

    pub(crate) fn find_partition(&self, partition: PartitionId) -> Result<&Partition, Error> {
        match self.partitions.get(&partition) {
            Some(found) if found.known => Ok(found),
            Some(_) => Err(Error::Damaged { segment: 0, offset: 0, what: "the partition's values are lost" }),
            None => Err(self.absent(Key::At(partition, None)).unwrap_or(Error::NoPartition(partition))),
        }
    }

    pub(crate) fn find_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        let found = self.find_partition(partition)?.objects.get(&object).filter(|found| !found.husk);
        found.map(Box::as_ref).ok_or_else(|| {
            let absent = self.absent(Key::At(partition, Some(object)));
            absent.unwrap_or(Error::NoObject(partition, object))
        })
    }

    /// The error for a key that is missing because it is lost; `None`: the key really does not exist.
    fn absent(&self, key: Key) -> Option<Error> {
        let lost = self.lost.find(key)?;
        let what = if lost.segment > 0 {
            "records are lost that may belong to it"
        } else {
            "the page of the checkpoint that it may be on is damaged"
        };
        Some(Error::Damaged { segment: u64::from(lost.segment), offset: lost.offset, what })
    }

    /// An object, unless damage has made it, or what it is a still of, doubtful as a whole.
    pub(crate) fn whole_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        Ok(self.shown(partition, object)?.own)
    }

    /// An object, unless damage has made it doubtful as a whole; of a still, without a look at its base.
    pub(super) fn sound_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        let found = self.find_object(partition, object)?;
        match found.lost {
            Some(place) => Err(damaged(place)),
            None if found.known => Ok(found),
            None => Err(Error::Damaged { segment: 0, offset: 0, what: "the object's attributes are lost" }),
        }
    }

    pub(crate) fn partition_state(&self, number: PartitionId) -> Result<PartitionState, Error> {
        let partition = self.find_partition(number)?;
        Ok(PartitionState {
            partition: number,
            quota_bytes: partition.quota_bytes,
            key_epoch: partition.key_epoch,
            used: partition.used,
            reserved: partition.reserved,
            objects: u64::try_from(partition.objects.len()).unwrap_or(u64::MAX),
        })
    }
}

impl Object {
    /// A unit; an empty one if it was never written.
    pub(crate) fn unit(&self, unit: u64) -> Cow<'_, Unit> {
        self.units.get(unit).map_or_else(|| Cow::Owned(Unit::default()), Slot::unit)
    }

    /// Returns true if the column is not joining, or has caught up with the unit.
    pub(crate) fn is_ready(&self, unit: u64) -> bool {
        self.are_ready(unit, unit)
    }

    /// Returns true if [`Object::is_ready`] holds for all units from `first` to `last`.
    pub(super) fn are_ready(&self, first: u64, last: u64) -> bool {
        let joining = self.attributes.joining.contains(self.attributes.column);
        !joining || self.extra.as_ref().is_some_and(|extra| extra.ready.contains_run(first, last))
    }

    /// Bytes that the object has reserved but not yet filled.
    pub(crate) fn outstanding(&self) -> u64 {
        self.attributes.reserve_bytes().saturating_sub(self.bytes)
    }

    /// The units with a pending version, owed versions, or deltas not known to be settled, in order.
    pub(crate) fn unsettled(&self) -> Vec<u64> {
        let pending =
            self.pending.iter().flat_map(|pending| pending.iter()).map(|((_, _, _, unit), ())| unit);
        let unsettled = self.extra.iter().flat_map(|extra| extra.unsettled.iter()).map(|(unit, ())| unit);
        let mut units: Vec<u64> = pending.chain(unsettled).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    pub(crate) fn operations(&self) -> Vec<ClientOperations> {
        let known = self.extra.iter().flat_map(|extra| extra.dedup.iter());
        known
            .map(|(client, watermark, done)| ClientOperations {
                client,
                watermark,
                done: done.iter().map(|(&operation, &version)| (operation, version)).collect(),
            })
            .collect()
    }
}

impl Unit {
    /// End of the unit's bytes: see [`Chain::end`].
    pub(super) fn bytes_end(&self) -> u32 {
        let settled = bytes_end(self.settled_extents());
        // Parity may be zeros where the data units' bytes cancel out, or where it was made anew as a hole.
        let counted = self.settled.iter().flat_map(|base| base.ends.iter().copied());
        let counted = counted.chain(self.deltas.iter().map(|delta| delta.end)).max().unwrap_or(0);
        self.end(Holes::PassedOver).unwrap_or(0).max(settled).max(counted)
    }

    /// One past the unit's last byte in the newest version, with or without counting `holes`. `None`: there
    /// is none.
    pub(super) fn end(&self, holes: Holes) -> Option<u32> {
        let holes = holes == Holes::Listed;
        let counts = |extent: &&Extent| holes || !extent.is_hole();
        let layers = self.settled.iter().flat_map(|base| &base.layers);
        let deltas = self.deltas.iter().map(|delta| &delta.own).chain(layers).filter(counts);
        let end = self.tip_extents().iter().rfind(counts).map(|last| last.to);
        let end = end.max(deltas.map(|own| own.to).max());
        let is_written = !self.tip_version().is_zero() || !self.deltas.is_empty();
        // A unit that was written and has no extents is a hole.
        end.or((holes && is_written).then_some(1))
    }
}

impl Content {
    /// Ends of the bytes: see [`crate::View::ends`].
    fn unit_ends(&self) -> Few<u32> {
        match self.kind {
            WriteKind::Data => Few::from_elem(bytes_end(&self.extents), 1),
            _ => Few::from_slice(&self.ends),
        }
    }

    /// `range` of the content, as a read of a settled version finds it.
    pub(super) fn found(&self, range: &Range<u32>) -> Found {
        Found {
            version: self.version,
            kind: self.kind,
            columns: self.columns,
            cover: self.cover.to_vec(),
            ends: self.unit_ends(),
            extents: clip(&self.extents, range).into(),
            layers: clip(&self.layers, range).into(),
            ..Found::default()
        }
    }
}

impl Slot {
    /// [`Unit::wanted`], without an allocation for a plain slot, where most reads end.
    pub(crate) fn wanted(
        &self,
        want: Want,
        range: &Range<u32>,
        unit_bytes: u32,
    ) -> Result<Option<Found>, Error> {
        let Some((extent, version, columns)) = self.as_plain() else {
            return self.unit().wanted(want, range, unit_bytes);
        };
        if let Want::Exactly(asked) = want
            && asked != version
        {
            return Err(Error::Gone { asked, tip: version });
        }
        let ends = Few::from_elem(bytes_end(&[extent]), 1);
        let extents = extent.clip(range).into_iter().collect();
        Ok(Some(Found { version, columns, ends, extents, ..Found::default() }))
    }
}

impl Unit {
    /// `range` of the wanted content; `None`: never written. Owed versions are found only by
    /// [`Want::Exactly`]. In a lost unit only the pending write that replaces it is found.
    pub(crate) fn wanted(
        &self,
        want: Want,
        range: &Range<u32>,
        unit_bytes: u32,
    ) -> Result<Option<Found>, Error> {
        if let Some(place) = self.lost {
            let named = |pending: &&Pending| match want {
                Want::Newest => true,
                Want::Settled => false,
                Want::Exactly(version) => version == pending.version,
            };
            let mended = self.mended(unit_bytes).filter(named).ok_or_else(|| damaged(place))?;
            return Ok(Some(self.pending_found(mended, range)));
        }
        let tip = self.tip_version();
        let settled = self.settled_version();
        let stamp = self.pending.as_ref().map_or(settled, |pending| pending.version);
        let version = match want {
            Want::Newest | Want::Settled if self.is_in_doubt() => return Err(Error::InDoubt { tip }),
            Want::Newest if !self.deltas.is_empty() => return Ok(self.cut(Cut::Newest, range)),
            Want::Settled if !self.deltas.is_empty() => return Ok(self.cut(Cut::Settled, range)),
            Want::Newest => stamp,
            Want::Settled => settled,
            Want::Exactly(version) if version == stamp || version == settled => version,
            Want::Exactly(asked) => {
                let step = self.owed_step(asked).ok_or(Error::Gone { asked, tip })?;
                return Ok(Some(self.owed_found(&step, range)));
            }
        };
        if self.pending.as_ref().is_some_and(|pending| pending.version == version) {
            let pending = self.pending.as_deref();
            return Ok(pending.map(|pending| self.pending_found(pending, range)));
        }
        Ok(self.settled.as_ref().map(|content| content.found(range)))
    }

    fn owed_found(&self, step: &OwedStep, range: &Range<u32>) -> Found {
        let content = overlay(&step.under, step.owed.own);
        Found {
            version: step.owed.version,
            pending: true,
            columns: self.settled.as_ref().map_or(ColumnMask::EMPTY, |content| content.columns),
            ends: Few::from_elem(bytes_end(&content), 1),
            extents: clip(&content, range).into(),
            ..Found::default()
        }
    }

    /// `range` of the bytes for exactly the versions of a cover.
    pub(crate) fn covered(
        &self,
        cover: &[Version],
        range: &Range<u32>,
        unit_bytes: u32,
    ) -> Result<Option<Found>, Error> {
        if let Some(place) = self.lost {
            let named = |pending: &&Pending| *pending.cover == *cover;
            let mended = self.mended(unit_bytes).filter(named).ok_or_else(|| damaged(place))?;
            return Ok(Some(self.pending_found(mended, range)));
        }
        if self.settled.is_none() && cover.iter().all(|version| version.is_zero()) {
            return Ok(None);
        }
        let asked = cover.iter().copied().max().unwrap_or(Version::ZERO);
        let gone = Error::Gone { asked, tip: self.tip_version() };
        if !self.is_parity() {
            return Err(gone);
        }
        self.cut(Cut::Exactly(cover), range).map(Some).ok_or(gone)
    }
}

pub(super) fn chain(number: u64, unit: &Unit, unit_bytes: u32) -> Chain {
    let settled = unit.settled.iter().map(|content| ChainEntry {
        version: content.version,
        settled: true,
        kind: content.kind,
        columns: content.columns,
        cover: content.cover.to_vec(),
        ends: content.ends.to_vec(),
        ..ChainEntry::default()
    });
    let pending = unit.pending.iter().map(|pending| ChainEntry {
        version: pending.version,
        kind: pending.kind,
        columns: pending.columns,
        cover: pending.cover.to_vec(),
        ends: unit.pending_ends(pending).into(),
        ..ChainEntry::default()
    });
    let owed = unit.owed.iter().map(|owed| ChainEntry {
        version: owed.version,
        owed: true,
        ..ChainEntry::default()
    });
    let tip = |delta: &ChainDelta| ChainTip { column: delta.column, version: delta.to, end: delta.end };
    let tips: BTreeMap<u8, ChainTip> = unit.deltas.iter().map(|delta| (delta.data, tip(delta))).collect();
    Chain {
        unit: number,
        entries: settled.chain(pending).chain(owed).collect(),
        tips: tips.into_values().collect(),
        in_doubt: unit.is_in_doubt(),
        lost: unit.lost.is_some() && unit.mended(unit_bytes).is_none(),
        end: unit.bytes_end(),
    }
}
