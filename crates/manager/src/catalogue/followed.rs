//! The store with a note of what changed: carried rows of each commit, until they are taken for a frame.
//!
//! A commit and its note are one step for whoever takes notes. So what was taken so far is one state, exactly
//! the durable one at that moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_meta::catalogue::frame::Row;
use braid_meta::catalogue::rows::{carried, is_worth_a_frame};
use braid_meta::records::kv::{Batch, Kv, KvError, Snapshot};
use braid_meta::records::schema::{decode, key};

/// Maximum bytes of noted rows: beyond them the note is given up, and a new picture is made.
const NOTED_BYTES_MAX: usize = 64 << 20;

/// A store whose changes are noted.
pub(crate) struct Followed {
    kv: Arc<dyn Kv>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// Number of changes of the state with the last commit.
    changes: u64,
    /// True if some row is worth a frame.
    worth: bool,
    follow: Follow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Follow {
    /// Nobody wants the changes.
    #[default]
    No,
    Yes,
    /// Changes were missed: a commit failed, or there were too many.
    Missed,
}

/// Rows that were taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) rows: Vec<Row>,
    /// Number of changes of the state with them; 0: nothing was committed yet.
    pub(crate) changes: u64,
}

impl Followed {
    pub(crate) fn new(kv: Arc<dyn Kv>) -> Followed {
        Followed { kv, noted: Mutex::default() }
    }

    /// From now on changes are noted. Returns true if none were missed since the last one that was taken. May
    /// wait for a commit: not for an async task.
    pub(crate) fn follow(&self) -> bool {
        let mut noted = self.noted();
        let none_missed = noted.follow == Follow::Yes;
        if !none_missed {
            let changes = noted.changes;
            *noted = Noted { follow: Follow::Yes, changes, ..Noted::default() };
        }
        none_missed
    }

    /// Takes what was noted; `None` if changes were missed. May wait for a commit: not for an async task.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut noted = self.noted();
        if noted.follow != Follow::Yes {
            return None;
        }
        noted.bytes = 0;
        noted.worth = false;
        let changes = noted.changes;
        Some(Taken { rows: std::mem::take(&mut noted.rows).into_iter().collect(), changes })
    }

    /// Returns true if something was noted that is worth a frame, or changes were missed. May wait for a
    /// commit: not for an async task.
    pub(crate) fn is_due(&self) -> bool {
        let noted = self.noted();
        noted.worth || noted.follow != Follow::Yes
    }

    /// As [`Followed::is_due`], but does not wait: true while a commit is under way.
    pub(crate) fn may_be_due(&self) -> bool {
        match self.noted.try_lock() {
            Ok(noted) => noted.worth || noted.follow != Follow::Yes,
            Err(_) => true,
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for Followed {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.kv.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut noted = self.noted();
        let result = self.kv.commit(batch);
        match result {
            Ok(()) => noted.note(batch),
            // It may be stored all the same.
            Err(_) => noted.miss(),
        }
        result
    }

    fn serving(&self) -> Result<(), KvError> {
        self.kv.serving()
    }
}

impl Noted {
    fn note(&mut self, batch: &Batch) {
        let count = key::meta("changes");
        if let Some(Some(value)) = batch.get(&count) {
            self.changes = decode(&count, value).unwrap_or(self.changes);
        }
        if self.follow != Follow::Yes {
            return;
        }
        for (row, value) in batch {
            let Some(form) = carried(row, value.as_deref()) else { continue };
            self.worth |= is_worth_a_frame(row, value.as_deref());
            self.bytes += row.len() + form.as_ref().map_or(0, Vec::len);
            self.rows.insert(row.clone(), form);
        }
        if self.bytes > NOTED_BYTES_MAX {
            self.miss();
        }
    }

    fn miss(&mut self) {
        if self.follow == Follow::Yes {
            let changes = self.changes;
            *self = Noted { follow: Follow::Missed, changes, ..Noted::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{DriveId, FileId};
    use braid_meta::records::memory::{Disk, MemoryKv};
    use braid_meta::records::schema::encode;

    use super::*;

    fn batch(rows: &[(Vec<u8>, Option<&[u8]>)]) -> Batch {
        rows.iter().map(|(row, value)| (row.clone(), value.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn the_last_change_of_each_row_is_taken_once() {
        let kv = Followed::new(Arc::new(MemoryKv::new()));
        let f = key::entry(FileId(1), b"f");
        let g = key::entry(FileId(1), b"g");
        kv.commit(&batch(&[(f.clone(), Some(b"before"))])).unwrap();
        assert_eq!(kv.take(), None, "nobody follows");
        kv.follow();
        let changes = (key::meta("changes"), Some(encode(&9u64)));
        kv.commit(&batch(&[(f.clone(), Some(b"1")), (g.clone(), Some(b"2"))])).unwrap();
        kv.commit(&[(f.clone(), None), changes].into_iter().collect()).unwrap();
        assert!(kv.is_due());
        let taken = kv.take().unwrap();
        assert_eq!(taken, Taken { rows: vec![(f, None), (g, Some(b"2".to_vec()))], changes: 9 });
        assert_eq!(kv.take().unwrap().rows, Vec::new());
        assert!(!kv.is_due());
    }

    #[test]
    fn after_a_commit_that_failed_nothing_is_taken_before_it_is_followed_anew() {
        let memory = MemoryKv::new();
        let kv = Followed::new(Arc::new(memory.clone()));
        kv.follow();
        memory.set_disk(Disk::Unsure);
        kv.commit(&batch(&[(key::entry(FileId(1), b"f"), Some(b"1"))])).unwrap_err();
        assert_eq!(kv.take(), None);
        assert!(kv.is_due());
        kv.follow();
        assert_eq!(kv.take().unwrap().rows, Vec::new());
    }

    #[test]
    fn what_follows_from_writing_to_drives_is_not_due_by_itself() {
        let kv = Followed::new(Arc::new(MemoryKv::new()));
        kv.follow();
        kv.commit(&batch(&[(key::receipt(DriveId(1)), Some(b"1"))])).unwrap();
        assert!(!kv.is_due());
        assert_eq!(kv.take().unwrap().rows.len(), 1);
    }
}
