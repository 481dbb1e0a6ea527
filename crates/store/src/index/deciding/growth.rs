//! The growth by the commit being gathered: the bytes that it adds to partitions, the bytes that it takes
//! from objects' reservations, and the objects that it creates.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{ObjectId, PartitionId};

use crate::error::Error;
use crate::index::{Object, Partition};
use crate::mutation::Attributes;

/// The commit being gathered, so far.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Bytes that each partition grows by, reservations included.
    partitions: BTreeMap<PartitionId, u64>,
    /// Bytes that each object takes from its reservation.
    taken: BTreeMap<(PartitionId, ObjectId), u64>,
    /// Objects that the commit creates: writes to them may be in the same commit.
    created: BTreeMap<(PartitionId, ObjectId), Arc<Object>>,
    /// The effect of the last decision on the sum of all reservations.
    pub(crate) change: ReservedChange,
}

/// A change of the reserved bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservedChange {
    pub(crate) more: u64,
    /// Reserved bytes that a write takes.
    pub(crate) less: u64,
}

impl Growth {
    /// Starts the next decision.
    pub(crate) fn begin(&mut self) {
        self.change = ReservedChange::default();
    }

    /// Accounts for a write of `asked` more bytes to an object. Bytes that the object has reserved are
    /// counted already. The quota is soft: overwritten bytes are not counted twice, although both copies are
    /// kept until the write is settled.
    pub(crate) fn write(
        &mut self,
        partition: PartitionId,
        owner: &Partition,
        number: ObjectId,
        object: &Object,
        asked: u64,
    ) -> Result<(), Error> {
        let taken = self.taken.get(&(partition, number)).copied().unwrap_or(0);
        let own = object.outstanding().saturating_sub(taken).min(asked);
        self.grow(partition, owner, asked - own)?;
        if own > 0 {
            self.taken.insert((partition, number), taken + own);
            self.change.less = own;
        }
        Ok(())
    }

    /// Notes that an object is created with these attributes.
    pub(crate) fn create(&mut self, own: (PartitionId, ObjectId), attributes: &Attributes) {
        // The object's birth is known once the commit has its place in the log.
        let new = Object { attributes: attributes.packed(), known: true, ..Object::unknown(0) };
        self.created.insert(own, Arc::new(new));
    }

    /// Notes that the object is not created after all, as there is no space for its record.
    pub(crate) fn forget(&mut self, own: (PartitionId, ObjectId)) {
        self.created.remove(&own);
    }

    /// The object, if it is created in this commit.
    pub(crate) fn created(&self, own: (PartitionId, ObjectId)) -> Option<Arc<Object>> {
        self.created.get(&own).cloned()
    }

    /// Accounts for `more` bytes that an object reserves.
    pub(crate) fn reserve(
        &mut self,
        partition: PartitionId,
        owner: &Partition,
        more: u64,
    ) -> Result<(), Error> {
        self.grow(partition, owner, more)?;
        self.change.more = more;
        Ok(())
    }

    fn grow(&mut self, partition: PartitionId, owner: &Partition, asked: u64) -> Result<(), Error> {
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
