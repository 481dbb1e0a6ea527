//! The one small trait under all of the manager's state: an ordered, transactional key-value store.
//!
//! It guarantees: a [`Snapshot`] never changes while it is held; [`Kv::commit`] stores all changes of a batch
//! or none, and when it returns `Ok` they are durable. It does not know what keys and values mean, nor who
//! decided on a batch: [`Db`](crate::db::Db) does that, for many requests at once.
//!
//! [`Tx`] is a snapshot with changes laid over it: those that were decided before and are not durable yet,
//! and on top its own. So a request reads what was decided before it, and its own writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use braid_layout::FileId;
use braid_wire::{Reason, Refusal};

use crate::schema::{key, table};
use crate::seats::Seats;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Keys to be set (`Some`) or deleted (`None`), in key order.
pub type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An ordered transactional key-value store.
pub trait Kv: Send + Sync {
    /// The present state, which stays as it is while the snapshot is held.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError>;

    /// Stores all of the batch, durably, or nothing of it. After an error it may be there all the same.
    fn commit(&self, batch: &Batch) -> Result<(), KvError>;
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
        path: PathBuf,
        /// What the store said.
        what: String,
    },
    /// Its disk, or its owner's part of it, is full.
    #[error("the manager's state in {path}: {what}")]
    Full {
        path: PathBuf,
        /// What the store said, and what to do.
        what: String,
    },
    /// The state is of another version of the format.
    #[error(
        "the manager's state is of version {found}, and the oldest that this build reads is {wanted}: run it with \
         the build that it is of, copy the files out, and found the cluster anew (docs/format-manager.md, History)"
    )]
    Version {
        /// The version it is of.
        found: u8,
        /// The oldest version that this build reads.
        wanted: u8,
    },
    /// A value does not decode: written by another version, or damaged.
    #[error("the manager's state is damaged: the value of key {key:02x?} does not decode: {what}")]
    Damaged {
        key: Vec<u8>,
        /// What is wrong with the value.
        what: String,
    },
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Refusal {
        let reason = if matches!(error, KvError::Full { .. }) { Reason::ManagerFull } else { Reason::Medium };
        Refusal::new(reason, error.to_string())
    }
}

/// A state of the store with changes over it.
pub struct Tx {
    base: Box<dyn Snapshot>,
    /// Decided before, and not durable in `base` for sure; the oldest first.
    below: Vec<Arc<Batch>>,
    changes: Batch,
    pub(crate) seats: Arc<Seats>,
}

impl Tx {
    /// Nothing is changed yet. The layers of `below`, the oldest first, hold over `base`; it may have some of
    /// them already. `seats` are what is known of the drives' seats in this store.
    pub fn new(base: Box<dyn Snapshot>, below: Vec<Arc<Batch>>, seats: Arc<Seats>) -> Tx {
        Tx { base, below, changes: Batch::new(), seats }
    }

    /// What was changed here.
    pub fn into_changes(self) -> Batch {
        self.changes
    }

    /// Whether anything was changed here.
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Files and directories whose records were changed here, and whether they have none any more.
    pub fn changed_files(&self) -> Vec<(FileId, bool)> {
        let (from, to) = key::all(table::INODE);
        let rows = self.changes.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        rows.map(|(row, value)| (FileId(key::number(row, 1)), value.is_none())).collect()
    }

    /// The value of a key, as changed here.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.layers().rev().find_map(|layer| layer.get(key)) {
            Some(change) => Ok(change.clone()),
            None => self.base.get(key),
        }
    }

    /// The value of a key in the base: what is durable, whatever was changed since.
    pub(crate) fn durable(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.base.get(key)
    }

    /// All changes over the base, the oldest first.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Batch> {
        self.below.iter().map(Arc::as_ref).chain([&self.changes])
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
        let mut changed: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        for layer in self.layers() {
            let here = layer.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
            changed.extend(here.map(|(key, change)| (key.as_slice(), change.as_deref())));
        }
        // Deleted keys take up part of the base's answer, so ask for that many more.
        let deleted = changed.values().filter(|change| change.is_none()).count();
        let base = self.base.scan(from, to, limit.saturating_add(deleted))?;
        if changed.is_empty() {
            return Ok(base);
        }
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = base.into_iter().collect();
        for (key, change) in changed {
            match change {
                Some(value) => merged.insert(key.to_vec(), value.to_vec()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }
}
