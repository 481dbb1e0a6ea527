//! A store in memory with the same interface, for tests. It can fail one commit, or all commits after some
//! number of them, as after a power cut; or its disk can be full, or fail, for a while.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::records::kv::{Batch, Kv, KvError, Pair, Snapshot};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in memory. Cheap to clone: clones are the same store.
#[derive(Debug, Clone, Default)]
pub struct MemoryKv {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    rows: Arc<Rows>,
    commits: u64,
    /// Number of commits that still succeed; `None`: no limit.
    left: Option<u64>,
    /// True if only one commit fails, instead of all from then on.
    once: bool,
    disk: Disk,
}

/// State of the store's disk, which decides the fate of commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Disk {
    /// Commits are stored.
    #[default]
    Sound,
    /// Commits fail, and nothing is stored.
    Full,
    /// Commits fail, and are stored all the same.
    Unsure,
}

struct MemorySnapshot(Arc<Rows>);

impl MemoryKv {
    /// A new store without rows.
    pub fn new() -> MemoryKv {
        MemoryKv::default()
    }

    /// The store as a restart finds it: the same rows, and a working disk.
    pub fn restarted(&self) -> MemoryKv {
        let rows = Arc::clone(&self.state().rows);
        MemoryKv { state: Arc::new(Mutex::new(State { rows, ..State::default() })) }
    }

    /// Lets `commits` more succeed, and fails all after them.
    pub fn die_after(&self, commits: u64) {
        let mut state = self.state();
        (state.left, state.once) = (Some(commits), false);
    }

    /// Lets `commits` more succeed, and fails the one after them.
    pub fn fail_once_after(&self, commits: u64) {
        let mut state = self.state();
        (state.left, state.once) = (Some(commits), true);
    }

    /// Sets the state of the disk for all commits from now on.
    pub fn set_disk(&self, disk: Disk) {
        self.state().disk = disk;
    }

    /// Number of commits that were stored so far.
    pub fn commits(&self) -> u64 {
        self.state().commits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for MemoryKv {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        Ok(Box::new(MemorySnapshot(Arc::clone(&self.state().rows))))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut state = self.state();
        if state.left == Some(0) {
            if state.once {
                state.left = None;
            }
            return Err(failed("told to fail"));
        }
        if state.disk == Disk::Full {
            return Err(KvError::Full { path: PathBuf::from("memory"), what: "no room".to_owned() });
        }
        state.left = state.left.map(|left| left - 1);
        state.commits += 1;
        let rows = Arc::make_mut(&mut state.rows);
        for (key, change) in batch {
            match change {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        if state.disk == Disk::Unsure {
            Err(failed("whether the change was made is not known"))
        } else {
            Ok(())
        }
    }
}

fn failed(what: &str) -> KvError {
    KvError::Storage { path: PathBuf::from("memory"), what: what.to_owned() }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let rows = self.0.range(from.to_vec()..to.to_vec()).take(limit);
        Ok(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
