//! The embedded store: one redb file, every commit synced before it is acknowledged. For one machine; nothing
//! to install.
//!
//! The rows are in a few trees: each table that grows with every file has one of its own. redb fills the
//! pages of a tree only if keys come in ascending order and at its end, as those of new files do; anywhere
//! else it leaves pages half empty, and with all tables in one tree, only the last table would be at its end.
//!
//! After a disk error (the disk was full, or failed for a moment) redb serves nothing more until it is
//! reopened. So the next snapshot opens the same file again, and the state is what the file says. Whether the
//! file has the commit that failed was unknown anyway, and the caller was told an error. A commit never
//! reopens, as its batch was made from an earlier snapshot: [`Db`](braid_meta::records::db::Db) refuses all
//! that was decided on top of a commit that failed.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use braid_meta::records::kv::{Batch, Kv, KvError, Pair, Snapshot};
use braid_meta::records::schema::SCHEMA_VERSION_OLDEST;
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, TableHandle,
};
use tokio::sync::oneshot;

type Tree = TableDefinition<'static, &'static [u8], &'static [u8]>;
type OpenTree = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The trees: of the tables `c`, `d`, `i`, and of all others.
const TREES: [Tree; 4] = [
    TableDefinition::new("columns"),
    TableDefinition::new("entries"),
    TableDefinition::new(NEW),
    TableDefinition::new(STATE),
];
/// First bytes of keys, and the tree of the keys from each on up to the next.
const PARTS: [(u8, usize); 6] = [(0, 3), (b'c', 0), (b'd', 1), (b'e', 3), (b'i', 2), (b'j', 3)];
/// The tree of all other tables. In version 1 it is the only one and has all rows. So each build finds rows
/// of the other's version in it, and takes no state of the other for a new cluster's.
const STATE: &str = "state";
/// A tree that version 1 does not have.
const NEW: &str = "inodes";
/// A tree beside the state's: one row, which says how far a copy of a shared state has come.
const APPLIED: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("applied");
/// The key of that row.
const APPLIED_ROW: &str = "applied";
/// Bytes of the file cached in memory: enough for the hot paths of a name space of some million files.
const CACHE_BYTES: usize = 128 << 20;
/// Pause after a failed opening, as redb's look through a large file takes time.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// The store in one file.
pub struct EmbeddedKv {
    /// Users of the database take the read lock. Reopening takes the write lock, so that the old database has
    /// no users any more.
    state: RwLock<State>,
    /// Opens the same file as at the start, whatever is at its path now.
    open: Box<dyn Fn() -> Result<Database, String> + Send + Sync>,
    path: PathBuf,
    /// True if the last commit found the disk full.
    is_full: AtomicBool,
    /// Dropped after the database, for [`EmbeddedKv::closed`].
    closing: Option<oneshot::Sender<()>>,
}

/// The database, or the reason for which there is none at the moment.
enum State {
    Open(Opened),
    Failed { what: String, again: Instant },
}

/// An open database.
struct Opened {
    database: Database,
    /// True once the disk failed: the database serves nothing more.
    failed: Arc<AtomicBool>,
}

struct StateSnapshot {
    transaction: ReadTransaction,
    /// The trees, each opened when it is first needed.
    trees: [OnceCell<OpenTree>; 4],
    failed: Arc<AtomicBool>,
    path: PathBuf,
}

impl EmbeddedKv {
    /// Opens or creates the file, readable to its owner only: it holds the drives' master keys.
    pub fn open(path: &Path) -> Result<EmbeddedKv, KvError> {
        let failed = |what: String| KvError::Storage { path: path.to_owned(), what };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|e| failed(e.to_string()))?;
        let database = open_file(&file).map_err(failed)?;
        EmbeddedKv::over(database, path, move || open_file(&file))
    }

    fn over(
        database: Database,
        path: &Path,
        open: impl Fn() -> Result<Database, String> + Send + Sync + 'static,
    ) -> Result<EmbeddedKv, KvError> {
        let state = RwLock::new(State::Open(Opened::new(database)));
        let path = path.to_owned();
        let is_full = AtomicBool::new(false);
        let kv = EmbeddedKv { state, open: Box::new(open), path, is_full, closing: None };
        kv.make_trees()?;
        Ok(kv)
    }

    /// Makes the trees, so that snapshots find them. A file of version 1 is left as it is.
    fn make_trees(&self) -> Result<(), KvError> {
        let state = self.state();
        let Some(Opened { database, .. }) = state.sound() else { return Err(self.error("the disk failed")) };
        let is_old = || -> Result<bool, redb::Error> {
            let read = database.begin_read()?;
            let names: Vec<String> = read.list_tables()?.map(|tree| tree.name().to_owned()).collect();
            let has = |name: &str| names.iter().any(|found| found == name);
            Ok(has(STATE) && !has(NEW))
        };
        if is_old().map_err(|error| self.error(error))? {
            return Err(KvError::Version { found: 1, wanted: SCHEMA_VERSION_OLDEST });
        }
        let make = || -> Result<(), redb::Error> {
            let write = database.begin_write()?;
            for tree in TREES {
                write.open_table(tree)?;
            }
            Ok(write.commit()?)
        };
        make().map_err(|error| self.error(error))
    }

    /// Stores a batch together with the note of how far this copy has come. Unless `sync`, a power cut may
    /// undo it, and then it undoes all that was stored since the last one with `sync`, whole batches only.
    pub(crate) fn apply(&self, batch: &Batch, applied: &[u8], sync: bool) -> Result<(), KvError> {
        let durability = if sync { Durability::Immediate } else { Durability::None };
        self.store(|opened| opened.commit(batch, durability, Some(applied)))
    }

    /// The note that was stored last.
    pub(crate) fn applied(&self) -> Result<Option<Vec<u8>>, KvError> {
        self.mend()?;
        let state = self.state();
        let Some(Opened { database, .. }) = state.sound() else { return Err(self.error("the disk failed")) };
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let read = database.begin_read()?;
            match read.open_table(APPLIED) {
                Ok(table) => Ok(table.get(APPLIED_ROW)?.map(|row| row.value().to_vec())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        read().map_err(|error| self.error(error))
    }

    fn store(&self, commit: impl FnOnce(&Opened) -> Result<(), redb::Error>) -> Result<(), KvError> {
        let state = self.state();
        let Some(opened) = state.sound() else {
            return Err(self.error("the disk failed: nothing was changed; try again"));
        };
        let committed = commit(opened);
        self.is_full.store(committed.as_ref().is_err_and(is_full), Ordering::Release);
        committed.map_err(|error| {
            opened.failed.store(true, Ordering::Release);
            let room = if is_full(&error) { ": make room there" } else { "" };
            self.error(format!(
                "{error}{room}; whether the change was made is not known: look, and try again"
            ))
        })
    }

    /// Completes once the store was dropped and its file is closed.
    pub fn closed(&mut self) -> impl Future<Output = ()> + use<> {
        let (closing, closed) = oneshot::channel();
        self.closing = Some(closing);
        async move { drop(closed.await) }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the database again, if it has failed.
    fn mend(&self) -> Result<(), KvError> {
        if self.state().sound().is_some() {
            return Ok(());
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            state if state.sound().is_some() => return Ok(()),
            State::Failed { what, again } if Instant::now() < *again => return Err(self.error(what)),
            _ => {}
        }
        // Drop the failed database first: it must not write to the file that the next one opens.
        *state = State::Failed { what: String::new(), again: Instant::now() };
        match (self.open)() {
            Ok(database) => {
                tracing::warn!(path = %self.path.display(), "the disk had failed: the state was opened again");
                *state = State::Open(Opened::new(database));
                Ok(())
            }
            Err(why) => {
                let what = format!("the disk failed, and it cannot be opened again for now: {why}");
                tracing::error!(path = %self.path.display(), %what, "the manager's state cannot be opened");
                let error = self.error(&what);
                *state = State::Failed { what, again: Instant::now() + REOPEN_PAUSE };
                Err(error)
            }
        }
    }

    /// The error for a failure. Failures after a full disk count as a full disk too: until it has room, the
    /// database serves nothing more.
    fn error(&self, what: impl ToString) -> KvError {
        let path = self.path.clone();
        let what = what.to_string();
        if self.is_full.load(Ordering::Acquire) {
            KvError::Full { path, what }
        } else {
            KvError::Storage { path, what }
        }
    }
}

impl State {
    /// The database, if it has not failed.
    fn sound(&self) -> Option<&Opened> {
        match self {
            State::Open(opened) if !opened.failed.load(Ordering::Acquire) => Some(opened),
            _ => None,
        }
    }
}

impl Opened {
    fn new(database: Database) -> Opened {
        Opened { database, failed: Arc::default() }
    }

    fn commit(
        &self,
        batch: &Batch,
        durability: Durability,
        applied: Option<&[u8]>,
    ) -> Result<(), redb::Error> {
        let mut write = self.database.begin_write()?;
        write.set_durability(durability)?;
        if let Some(applied) = applied {
            write.open_table(APPLIED)?.insert(APPLIED_ROW, applied)?;
        }
        {
            let mut open = None;
            for (key, change) in batch {
                let tree = tree_of(key);
                // Keys come in order, so each tree is opened a few times at most.
                let (_, table) = match open.take().filter(|(of, _)| *of == tree) {
                    Some(same) => open.insert(same),
                    None => open.insert((tree, write.open_table(TREES[tree])?)),
                };
                match change {
                    Some(value) => table.insert(key.as_slice(), value.as_slice())?,
                    None => table.remove(key.as_slice())?,
                };
            }
        }
        Ok(write.commit()?)
    }
}

/// Index of the tree that a key belongs to.
fn tree_of(key: &[u8]) -> usize {
    let first = key.first().copied().unwrap_or_default();
    PARTS.iter().rev().find(|(from, _)| *from <= first).map_or(PARTS[0].1, |(_, tree)| *tree)
}

/// Opens the database on a duplicate of the file's descriptor.
fn open_file(file: &File) -> Result<Database, String> {
    let file = file.try_clone().map_err(|error| error.to_string())?;
    Database::builder().set_cache_size(CACHE_BYTES).create_file(file).map_err(|error| error.to_string())
}

impl Kv for EmbeddedKv {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.mend()?;
        let state = self.state();
        let Some(Opened { database, failed }) = state.sound() else {
            return Err(self.error("the disk failed: try again"));
        };
        let transaction = database.begin_read().map_err(|error| {
            failed.store(true, Ordering::Release);
            self.error(error)
        })?;
        let trees = Default::default();
        let failed = Arc::clone(failed);
        Ok(Box::new(StateSnapshot { transaction, trees, failed, path: self.path.clone() }))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.store(|opened| opened.commit(batch, Durability::Immediate, None))
    }
}

/// Returns true if the disk, or its owner's share of it, has no room left.
fn is_full(error: &redb::Error) -> bool {
    let redb::Error::Io(error) = error else { return false };
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Snapshot for StateSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let found = self.tree(tree_of(key))?.get(key).map_err(|e| self.failed(e))?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        let mut found = Vec::new();
        let ends = PARTS.iter().skip(1).map(|(first, _)| vec![*first]).chain([to.to_vec()]);
        for ((first, tree), end) in PARTS.into_iter().zip(ends) {
            let first = [first];
            let from = from.max(&first[usize::from(first == [0])..]);
            let to = to.min(&end);
            if from >= to || found.len() >= limit {
                continue;
            }
            let range: Range<&[u8]> = from..to;
            let rows = self.tree(tree)?.range(range).map_err(|e| self.failed(e))?;
            for row in rows.take(limit - found.len()) {
                let (key, value) = row.map_err(|e| self.failed(e))?;
                found.push((key.value().to_vec(), value.value().to_vec()));
            }
        }
        Ok(found)
    }
}

impl StateSnapshot {
    fn tree(&self, tree: usize) -> Result<&OpenTree, KvError> {
        if let Some(open) = self.trees[tree].get() {
            return Ok(open);
        }
        let open = self.transaction.open_table(TREES[tree]).map_err(|e| self.failed(e))?;
        Ok(self.trees[tree].get_or_init(|| open))
    }

    fn failed(&self, what: impl ToString) -> KvError {
        self.failed.store(true, Ordering::Release);
        KvError::Storage { path: self.path.clone(), what: what.to_string() }
    }
}

#[cfg(test)]
mod tests;
