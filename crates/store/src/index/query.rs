//! Looking things up.

use std::ops::Range;

use braid_layout::{ObjectId, PartitionId, Version};

use super::check::damaged;
use super::unit::{Content, Unit};
use super::{Chain, ChainEntry, Index, Object, ObjectUsage, Partition, PartitionState};
use crate::error::Error;
use crate::view::Want;

impl Index {
    pub(crate) fn find_partition(&self, partition: PartitionId) -> Result<&Partition, Error> {
        self.partitions.get(&partition).ok_or(Error::NoPartition(partition))
    }

    pub(crate) fn find_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        self.find_partition(partition)?.objects.get(&object).ok_or(Error::NoObject(partition, object))
    }

    /// An object that damage has not made doubtful as a whole.
    pub(crate) fn whole_object(&self, partition: PartitionId, object: ObjectId) -> Result<&Object, Error> {
        let found = self.find_object(partition, object)?;
        match (found.lost, found.meta) {
            (Some(place), _) => Err(damaged(place)),
            (None, None) => {
                Err(Error::Damaged { segment: 0, offset: 0, what: "the object's attributes are lost" })
            }
            (None, Some(_)) => Ok(found),
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
    pub(crate) fn usage(&self) -> ObjectUsage {
        let end =
            self.units.iter().rev().find_map(|(&number, unit)| {
                Some((number, unit.tip()?.extents.last().map_or(1, |last| last.to)))
            });
        ObjectUsage { bytes: self.bytes, units: u64::try_from(self.units.len()).unwrap_or(u64::MAX), end }
    }

    pub(crate) fn chains(&self, units: Range<u64>) -> Vec<Chain> {
        let in_range = if units.start < units.end { units } else { 0..0 };
        self.units.range(in_range).map(|(&number, unit)| chain(number, unit)).collect()
    }
}

impl Unit {
    /// The content that is wanted, and whether it is pending; `None`: never written.
    pub(crate) fn wanted(&self, want: Want) -> Result<Option<(&Content, bool)>, Error> {
        if let Some(place) = self.lost {
            return Err(damaged(place));
        }
        let settled = self.settled.as_ref().map(|content| (content, false));
        let pending = self.pending.as_ref().map(|pending| (&pending.content, true));
        let Want::Exactly(version) = want else {
            return Ok(if want == Want::Newest { pending.or(settled) } else { settled });
        };
        if version.is_zero() && settled.is_none() {
            return Ok(None);
        }
        let found = pending.into_iter().chain(settled).find(|(content, _)| content.version == version);
        found.map(Some).ok_or(Error::Gone { asked: version, tip: self.tip_version() })
    }
}

fn chain(number: u64, unit: &Unit) -> Chain {
    let entry = |content: &Content, settled| ChainEntry {
        version: content.version,
        settled,
        kind: content.kind,
        columns: content.columns,
        cover: content.cover.to_vec(),
    };
    let settled = unit.settled.iter().map(|content| entry(content, true));
    let pending = unit.pending.iter().map(|pending| entry(&pending.content, false));
    Chain { unit: number, entries: settled.chain(pending).collect(), lost: unit.lost.is_some() }
}

/// What [`Want::Exactly`] means for a unit that was never written.
pub(crate) fn never_written(want: Want) -> Result<(), Error> {
    match want {
        Want::Exactly(asked) if !asked.is_zero() => Err(Error::Gone { asked, tip: Version::ZERO }),
        _ => Ok(()),
    }
}
