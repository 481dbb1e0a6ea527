//! A state of the store with changes laid over it: those of transactions that were decided before and are not
//! durable yet, and on top the transaction's own. So a request reads all that was decided before it, and its
//! own writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use braid_layout::{FileId, TokenId};
use braid_wire::Wire;

use crate::records::kv::{Batch, KvError, Pair, Snapshot};
use crate::records::schema::{decode, encode, key, table};
use crate::records::seats::Seats;
use crate::tokens::access::Access;

/// A state of the store with changes over it.
pub struct Tx {
    base: Box<dyn Snapshot>,
    /// Changes that were decided before and may not be durable in `base` yet; the oldest first.
    below: Vec<Arc<Batch>>,
    changes: Batch,
    pub seats: Arc<Seats>,
    /// The token for which the transaction is, and its limits, which look-ups of names keep to.
    asker: RefCell<(TokenId, Option<Arc<Access>>)>,
}

impl Tx {
    /// A transaction without changes. The layers of `below`, the oldest first, hold over `base`, which may
    /// have some of them already. `seats` is the cache of this store's seats.
    pub fn new(base: Box<dyn Snapshot>, below: Vec<Arc<Batch>>, seats: Arc<Seats>) -> Tx {
        Tx { base, below, changes: Batch::new(), seats, asker: RefCell::default() }
    }

    /// From now on the transaction is for this token, and its look-ups of names keep to these limits; `None`:
    /// to none.
    pub fn act_for(&self, token: TokenId, access: Option<Arc<Access>>) {
        *self.asker.borrow_mut() = (token, access);
    }

    /// The token for which the transaction is; none: nobody's.
    pub fn token(&self) -> TokenId {
        self.asker.borrow().0
    }

    /// The limits to which look-ups of names keep.
    pub fn access(&self) -> Option<Arc<Access>> {
        self.asker.borrow().1.clone()
    }

    /// Returns the changes of this transaction.
    pub fn into_changes(self) -> Batch {
        self.changes
    }

    /// Returns true if this transaction has changed anything.
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Files and directories whose records this transaction has changed, each with true if the record was
    /// deleted.
    pub fn changed_files(&self) -> Vec<(FileId, bool)> {
        let (from, to) = key::all(table::INODE);
        let rows = self.changes.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        rows.map(|(row, value)| (FileId(key::number(row, 1)), value.is_none())).collect()
    }

    /// The value of a key, with all changes applied.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        match self.layers().rev().find_map(|layer| layer.get(key)) {
            Some(change) => Ok(change.clone()),
            None => self.base.get(key),
        }
    }

    /// The durable value of a key: that of the base, whatever was changed since.
    pub fn durable(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.base.get(key)
    }

    /// All changes over the base, the oldest first.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Batch> {
        self.below.iter().map(Arc::as_ref).chain([&self.changes])
    }

    /// Sets the value of a key.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    /// Deletes a key, if it is there.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// The first `limit` pairs with `from <= key < to`, ascending, with all changes applied.
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

impl Tx {
    /// All pairs of a range of keys.
    pub fn scan_all(&self, range: &(Vec<u8>, Vec<u8>)) -> Result<Vec<Pair>, KvError> {
        self.scan(&range.0, &range.1, usize::MAX)
    }

    /// The record under a key.
    pub fn record<R: Wire>(&self, key: &[u8]) -> Result<Option<R>, KvError> {
        self.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
    }

    /// Sets the record under a key.
    pub fn set(&mut self, key: Vec<u8>, record: &impl Wire) {
        self.put(key, encode(record));
    }

    /// Sets a key that has no value beyond its presence.
    pub fn mark(&mut self, key: Vec<u8>) {
        self.put(key, encode(&()));
    }

    /// The first `limit` records of a range of keys.
    pub fn records<R: Wire>(
        &self,
        range: &(Vec<u8>, Vec<u8>),
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, R)>, KvError> {
        let rows = self.scan(&range.0, &range.1, limit)?;
        rows.into_iter().map(|(key, bytes)| decode(&key, &bytes).map(|record| (key, record))).collect()
    }

    /// The number under a word of the table `m`; 0 if it was never set.
    pub fn number(&self, word: &str) -> Result<u64, KvError> {
        Ok(self.record(&key::meta(word))?.unwrap_or_default())
    }
}
