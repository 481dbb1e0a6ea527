//! Reads of the disk for a read of a unit, as the index knows them before: for those who plan the disk's
//! time.

use std::ops::Range;

use braid_layout::{ClientId, ObjectId, PartitionId, Version};

use crate::format::extent::Extent;
use crate::index::extent::clip;
use crate::index::query::Want;
use crate::index::slot::Slot;
use crate::store::Store;

/// Reads of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReads {
    /// Number of places that are read.
    pub reads: u64,
    /// Bytes of all.
    pub bytes: u64,
}

impl DiskReads {
    fn of<'e>(extents: impl IntoIterator<Item = &'e Extent>) -> DiskReads {
        extents.into_iter().fold(DiskReads::default(), |all, extent| DiskReads {
            reads: all.reads + 1,
            bytes: all.bytes + u64::from(extent.to - extent.from),
        })
    }
}

impl Store {
    /// Reads of the disk that a read of `range` of a unit needs if nothing of it is cached: of a parity unit
    /// with deltas that are not folded in, those of the base and of each delta. `None` if the unit cannot be
    /// read, or the index is being changed right now.
    pub fn disk_reads(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: &Range<u32>,
    ) -> Option<DiskReads> {
        let index = self.try_index()?;
        let shown = index.shown(partition, object).ok()?;
        let slot = shown.slot(unit);
        let slot = slot.as_deref().unwrap_or(&Slot::EMPTY);
        let found = slot.wanted(Want::Newest, range, shown.own.attributes.unit_bytes).ok()?;
        Some(found.map_or_else(DiskReads::default, |found| {
            DiskReads::of(found.extents.iter().chain(found.layers.iter()))
        }))
    }

    /// Reads of the disk that [`Store::delta`] needs if nothing is cached, and the client that wrote the owed
    /// version. `None` if it is not owed.
    pub fn delta_disk_reads(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        version: Version,
    ) -> Option<(ClientId, DiskReads)> {
        let index = self.index();
        let owner = index.whole_object(partition, object).ok()?;
        let step = owner.unit(unit).owed_step(version)?;
        let own = step.owed.own;
        let under = clip(&step.under, &(own.from..own.to));
        Some((step.owed.client, DiskReads::of(under.iter().chain([&own]))))
    }
}
