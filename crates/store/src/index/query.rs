//! Looking things up.

use std::borrow::Cow;
use std::ops::Range;

use braid_layout::{ColumnMask, ObjectId, PartitionId, Version};

use super::check::damaged;
use super::extent::{Extent, clip};
use super::slot::Slot;
use super::unit::Unit;
use super::{Chain, ChainEntry, Index, Object, ObjectUsage, Partition, PartitionState};
use crate::error::Error;
use crate::format::page::Key;
use crate::mutation::WriteKind;
use crate::view::Want;

/// A version of a unit that a read asked for.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) version: Version,
    pub(crate) pending: bool,
    pub(crate) kind: WriteKind,
    pub(crate) columns: ColumnMask,
    pub(crate) cover: Vec<Version>,
    /// The asked range of its bytes.
    pub(crate) extents: Vec<Extent>,
}

impl Index {
    pub(crate) fn find_partition(&self, partition: PartitionId) -> Result<&Partition, Error> {
        match self.partitions.get(&partition) {
            Some(found) if found.known => Ok(found),
            Some(_) => Err(Error::Damaged { segment: 0, offset: 0, what: "the partition's values are lost" }),
            None => Err(self.absent(Key::At(partition, None)).unwrap_or(Error::NoPartition(partition))),
        }
    }

    pub(crate) fn find_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        let found = self.find_partition(partition)?.objects.get(&object);
        found.map(Box::as_ref).ok_or_else(|| {
            let absent = self.absent(Key::At(partition, Some(object)));
            absent.unwrap_or(Error::NoObject(partition, object))
        })
    }

    /// The error for a key that is not here because it is lost; `None`: it is truly not here.
    fn absent(&self, key: Key) -> Option<Error> {
        let lost = self.lost.find(key)?;
        let what = if lost.segment > 0 {
            "records that may be of it are lost"
        } else {
            "the page of the checkpoint that it may be on is damaged"
        };
        Some(Error::Damaged { segment: u64::from(lost.segment), offset: lost.offset, what })
    }

    /// An object that damage has not made doubtful as a whole.
    pub(crate) fn whole_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
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
            objects: u64::try_from(partition.objects.len()).unwrap_or(u64::MAX),
        })
    }
}

impl Object {
    /// A unit; one that was never written is as good as empty.
    pub(crate) fn unit(&self, unit: u64) -> Cow<'_, Unit> {
        self.units.get(unit).map_or_else(|| Cow::Owned(Unit::default()), Slot::unit)
    }

    pub(crate) fn usage(&self) -> ObjectUsage {
        let end = self.units.iter().rev().find_map(|(number, slot)| {
            let unit = slot.unit();
            let written = !unit.tip_version().is_zero();
            written.then(|| (number, unit.tip_extents().last().map_or(1, |last| last.to)))
        });
        ObjectUsage { bytes: self.bytes, units: u64::try_from(self.units.len()).unwrap_or(u64::MAX), end }
    }

    pub(crate) fn chains(&self, units: Range<u64>) -> Vec<Chain> {
        self.units.range(units).map(|(number, slot)| chain(number, &slot.unit())).collect()
    }
}

impl Unit {
    /// `range` of the content that is wanted; `None`: never written.
    pub(crate) fn wanted(&self, want: Want, range: &Range<u32>) -> Result<Option<Found>, Error> {
        if let Some(place) = self.lost {
            return Err(damaged(place));
        }
        let (tip, settled) = (self.tip_version(), self.settled_version());
        let version = match want {
            Want::Newest => tip,
            Want::Settled => settled,
            Want::Exactly(version) if version == tip || version == settled => version,
            Want::Exactly(asked) => return Err(Error::Gone { asked, tip }),
        };
        if let Some(pending) = self.pending.as_deref().filter(|pending| pending.version == version) {
            return Ok(Some(Found {
                version,
                pending: true,
                kind: pending.kind,
                columns: pending.columns,
                cover: pending.cover.to_vec(),
                extents: clip(&self.tip_extents(), range),
            }));
        }
        Ok(self.settled.as_ref().map(|content| Found {
            version,
            pending: false,
            kind: content.kind,
            columns: content.columns,
            cover: content.cover.to_vec(),
            extents: clip(&content.extents, range),
        }))
    }
}

fn chain(number: u64, unit: &Unit) -> Chain {
    let settled = unit.settled.iter().map(|content| ChainEntry {
        version: content.version,
        settled: true,
        kind: content.kind,
        columns: content.columns,
        cover: content.cover.to_vec(),
    });
    let pending = unit.pending.iter().map(|pending| ChainEntry {
        version: pending.version,
        settled: false,
        kind: pending.kind,
        columns: pending.columns,
        cover: pending.cover.to_vec(),
    });
    Chain { unit: number, entries: settled.chain(pending).collect(), lost: unit.lost.is_some() }
}
