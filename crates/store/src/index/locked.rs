//! The index under its lock.

use std::sync::PoisonError;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

use super::Index;

/// The index, for many who look at it at once or one who changes it. Who looks takes one of several locks, that of its
/// thread, so that lookups on different cores do not wait for each other's cache lines; who changes it takes all of them,
/// which is little beside the write that came before.
#[derive(Debug)]
pub(crate) struct Locked(ShardedLock<Index>);

/// A look at the index.
pub(crate) type Reading<'a> = ShardedLockReadGuard<'a, Index>;

impl Locked {
    pub(crate) fn new(index: Index) -> Locked {
        Locked(ShardedLock::new(index))
    }

    /// Look at it.
    pub(crate) fn read(&self) -> Reading<'_> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change it.
    pub(crate) fn write(&self) -> ShardedLockWriteGuard<'_, Index> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> Index {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
