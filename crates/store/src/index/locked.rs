//! The index under its lock.

use std::sync::{PoisonError, TryLockError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

use crate::index::Index;

/// The index, for many readers or one writer. A reader takes one of several locks, that of its thread, so
/// that lookups on different cores do not contend for a cache line. A writer takes all of them, which costs
/// little compared to the log write before it.
#[derive(Debug)]
pub(crate) struct Locked(ShardedLock<Index>);

/// Read access to the index.
pub(crate) type Reading<'a> = ShardedLockReadGuard<'a, Index>;

impl Locked {
    pub(crate) fn new(index: Index) -> Locked {
        Locked(ShardedLock::new(index))
    }

    /// Locks the index for reading.
    pub(crate) fn read(&self) -> Reading<'_> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the index for reading, if no writer has it or waits for it.
    pub(crate) fn try_read(&self) -> Option<Reading<'_>> {
        match self.0.try_read() {
            Ok(reading) => Some(reading),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the index for writing.
    pub(crate) fn write(&self) -> ShardedLockWriteGuard<'_, Index> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
