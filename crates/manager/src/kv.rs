//! The one small trait under all of the manager's state: an ordered, transactional key-value store.
//!
//! It guarantees: a [`Snapshot`] never changes while it is held; [`Kv::commit`] stores all changes of a batch
//! or none, and when it returns `Ok` they are durable. It does not know what keys and values mean. There is
//! one writer: the holder of [`Db`]'s lock reads, decides and commits, so no batch is built on a state that
//! another batch has changed.
//!
//! [`Tx`] is a snapshot with changes laid over it: a request reads its own writes, and nothing reaches the
//! store before the request as a whole has succeeded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use braid_wire::{Reason, Refusal};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Keys to be set (`Some`) or deleted (`None`), in key order.
pub type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An ordered transactional key-value store.
pub trait Kv: Send + Sync {
    /// The present state, which stays as it is while the snapshot is held.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError>;

    /// Stores all of the batch, durably, or nothing of it.
    fn commit(&self, batch: Batch) -> Result<(), KvError>;
}

/// One state of the store.
pub trait Snapshot {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// The first `limit` pairs with `from <= key < to`, ascending.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError>;
}

/// Why the store could not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The store's file could not be read or written.
    #[error("the manager's state in {path}: {what}")]
    Storage {
        /// The file.
        path: PathBuf,
        /// What the store said.
        what: String,
    },
    /// A value does not decode: written by another version, or damaged.
    #[error("the manager's state is damaged: the value of key {key:02x?} does not decode: {what}")]
    Damaged {
        /// The key.
        key: Vec<u8>,
        /// What is wrong with the value.
        what: String,
    },
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Refusal {
        Refusal::new(Reason::Medium, error.to_string())
    }
}

/// The store with its one writer's lock. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    kv: Arc<dyn Kv>,
    writer: Arc<Mutex<()>>,
}

/// A state of the store with changes over it.
pub struct Tx {
    base: Box<dyn Snapshot>,
    changes: Batch,
}

impl Db {
    /// Over this store.
    pub fn new(kv: Arc<dyn Kv>) -> Db {
        Db { kv, writer: Arc::new(Mutex::new(())) }
    }

    /// Reads one consistent state. Blocks on the disk: not for an async task.
    pub fn read<R>(&self, work: impl FnOnce(&Tx) -> Result<R, Refusal>) -> Result<R, Refusal> {
        work(&Tx { base: self.kv.snapshot()?, changes: Batch::new() })
    }

    /// Reads, decides and commits, alone. An error commits nothing. Blocks on the disk: not for an async
    /// task.
    pub fn write<R>(&self, work: impl FnOnce(&mut Tx) -> Result<R, Refusal>) -> Result<R, Refusal> {
        let _alone = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tx = Tx { base: self.kv.snapshot()?, changes: Batch::new() };
        let result = work(&mut tx)?;
        let Tx { base, changes } = tx;
        drop(base);
        if !changes.is_empty() {
            self.kv.commit(changes)?;
        }
        Ok(result)
    }
}

impl Tx {
    /// Whether anything was changed here.
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The value of a key, as changed here.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.base.get(key),
        }
    }

    /// Sets a key.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// The first `limit` pairs with `from <= key < to`, ascending, as changed here.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let changed: Vec<_> = self.changes.range(from.to_vec()..to.to_vec()).collect();
        // Deleted keys take up part of the base's answer, so ask for that many more.
        let base = self.base.scan(from, to, limit.saturating_add(changed.len()))?;
        if changed.is_empty() {
            return Ok(base);
        }
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = base.into_iter().collect();
        for (key, change) in changed {
            match change {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }
}
