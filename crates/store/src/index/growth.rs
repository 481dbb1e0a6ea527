//! What the commit being gathered adds to partitions, and takes of what objects have reserved.

use std::collections::BTreeMap;

use braid_layout::{ObjectId, PartitionId};

use super::{Object, Partition};
use crate::error::Error;

/// The commit being gathered, so far.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Bytes that each partition grows by, reservations included.
    partitions: BTreeMap<PartitionId, u64>,
    /// Bytes of its reservation that each object takes.
    taken: BTreeMap<(PartitionId, ObjectId), u64>,
    /// What the last decision does to all reservations together.
    pub(crate) change: Change,
}

/// A change of what is reserved.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Bytes reserved.
    pub(crate) more: u64,
    /// Reserved bytes that a write takes.
    pub(crate) less: u64,
}

impl Growth {
    /// The next decision begins.
    pub(super) fn begin(&mut self) {
        self.change = Change::default();
    }

    /// A write of `asked` more bytes into an object; what the object has reserved of them is counted already. The quota is
    /// soft: what a write overwrites is not counted again, though it is kept until the write is settled.
    pub(super) fn write(
        &mut self,
        (partition, owner): (PartitionId, &Partition),
        (number, object): (ObjectId, &Object),
        asked: u64,
    ) -> Result<(), Error> {
        let taken = self.taken.get(&(partition, number)).copied().unwrap_or(0);
        let own = object.outstanding().saturating_sub(taken).min(asked);
        self.grow((partition, owner), asked - own)?;
        if own > 0 {
            self.taken.insert((partition, number), taken + own);
            self.change.less = own;
        }
        Ok(())
    }

    /// An object reserves so many bytes more.
    pub(super) fn reserve(&mut self, owner: (PartitionId, &Partition), more: u64) -> Result<(), Error> {
        self.grow(owner, more)?;
        self.change.more = more;
        Ok(())
    }

    fn grow(&mut self, (partition, owner): (PartitionId, &Partition), asked: u64) -> Result<(), Error> {
        let staged = self.partitions.entry(partition).or_default();
        let used = owner.used.saturating_add(owner.reserved).saturating_add(*staged);
        if let Some(quota) = owner.quota_bytes
            && asked > 0
            && used.saturating_add(asked) > quota
        {
            return Err(Error::Quota { partition, used, quota, asked });
        }
        *staged = staged.saturating_add(asked);
        Ok(())
    }
}
