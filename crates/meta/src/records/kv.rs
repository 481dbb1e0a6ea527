//! The one small trait under all of the manager's state: an ordered, transactional key-value store.
//!
//! It guarantees: a [`Snapshot`] never changes while it is held; [`Kv::commit`] stores all changes of a batch
//! or none, and when it returns `Ok` they are durable. The store does not know the meaning of keys and
//! values. Batches are decided by [`Db`](crate::records::db::Db), for many requests at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use braid_wire::{Reason, Refusal};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Keys to be set (`Some`) or deleted (`None`), in key order.
pub type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An ordered transactional key-value store.
pub trait Kv: Send + Sync {
    /// A snapshot of the present state. It stays as it is while it is held.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError>;

    /// Stores all of the batch, durably, or nothing of it. After an error the batch may be stored all the
    /// same.
    fn commit(&self, batch: &Batch) -> Result<(), KvError>;
}

/// One state of the store.
pub trait Snapshot {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// The first `limit` pairs with `from <= key < to`, ascending.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError>;
}

/// Failure of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The store's file could not be read or written.
    #[error("the manager's state in {path}: {what}")]
    Storage {
        path: PathBuf,
        /// Message of the store.
        what: String,
    },
    /// The store's disk, or its owner's share of the disk, is full.
    #[error("the manager's state in {path}: {what}")]
    Full {
        path: PathBuf,
        /// Message of the store, and what to do about it.
        what: String,
    },
    /// The state is of another version of the format.
    #[error(
        "the manager's state is of version {found}, and the oldest that this build reads is {wanted}: run it with \
         the build that it is of, copy the files out, and found the cluster anew (docs/format-manager.md, History)"
    )]
    Version {
        /// Version of the stored state.
        found: u8,
        /// Oldest version that this build reads.
        wanted: u8,
    },
    /// The state is of a newer release's format.
    #[error(
        "the manager's state is of version {found}, which a newer release has written, and this build reads versions up \
         to {known}: run the newer release; to go back, restore a backup from before the upgrade (braid manager restore)"
    )]
    Newer {
        /// Version of the stored state.
        found: u64,
        /// Newest version that this build reads.
        known: u8,
    },
    /// A value does not decode: it is damaged.
    #[error("the manager's state is damaged: the value of key {key:02x?} does not decode: {what}")]
    Damaged {
        key: Vec<u8>,
        /// Description of the fault in the value.
        what: String,
    },
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Refusal {
        let reason = if matches!(error, KvError::Full { .. }) { Reason::ManagerFull } else { Reason::Medium };
        Refusal::new(reason, error.to_string())
    }
}
