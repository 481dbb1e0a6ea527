//! The embedded store: one file, by redb, every commit synced before it is acknowledged. For one machine; nothing to install.

use std::fs::OpenOptions;
use std::future::Future;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use tokio::sync::oneshot;

use crate::kv::{Batch, Kv, KvError, Pair, Snapshot};

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("state");
/// Bytes of the file kept in memory: the hot paths of a name space of some million files.
const CACHE_BYTES: usize = 128 << 20;

/// The store in one file.
pub struct EmbeddedKv {
    database: Database,
    path: PathBuf,
    /// Dropped after the database, for [`EmbeddedKv::closed`].
    closing: Option<oneshot::Sender<()>>,
}

struct TableSnapshot {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    path: PathBuf,
}

impl EmbeddedKv {
    /// Opens the file, or makes it, readable to its owner only: it holds the drives' master keys.
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
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_file(file)
            .map_err(|e| failed(e.to_string()))?;
        let kv = EmbeddedKv { database, path: path.to_owned(), closing: None };
        kv.commit(Batch::new())?; // makes the table, so that snapshots find it
        Ok(kv)
    }

    /// Done once the store was dropped and its file is closed.
    pub fn closed(&mut self) -> impl Future<Output = ()> + use<> {
        let (closing, closed) = oneshot::channel();
        self.closing = Some(closing);
        async move { drop(closed.await) }
    }

    fn failed(&self, what: impl ToString) -> KvError {
        KvError::Storage { path: self.path.clone(), what: what.to_string() }
    }
}

impl Kv for EmbeddedKv {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        let read = self.database.begin_read().map_err(|e| self.failed(e))?;
        let table = read.open_table(TABLE).map_err(|e| self.failed(e))?;
        Ok(Box::new(TableSnapshot { table, path: self.path.clone() }))
    }

    fn commit(&self, batch: Batch) -> Result<(), KvError> {
        let mut write = self.database.begin_write().map_err(|e| self.failed(e))?;
        write.set_durability(Durability::Immediate).map_err(|e| self.failed(e))?;
        {
            let mut table = write.open_table(TABLE).map_err(|e| self.failed(e))?;
            for (key, change) in &batch {
                match change {
                    Some(value) => table.insert(key.as_slice(), value.as_slice()),
                    None => table.remove(key.as_slice()),
                }
                .map_err(|e| self.failed(e))?;
            }
        }
        write.commit().map_err(|e| self.failed(e))
    }
}

impl Snapshot for TableSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let found = self.table.get(key).map_err(|e| self.failed(e))?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        let range: Range<&[u8]> = from..to;
        let rows = self.table.range(range).map_err(|e| self.failed(e))?;
        rows.take(limit)
            .map(|row| row.map(|(k, v)| (k.value().to_vec(), v.value().to_vec())).map_err(|e| self.failed(e)))
            .collect()
    }
}

impl TableSnapshot {
    fn failed(&self, what: impl ToString) -> KvError {
        KvError::Storage { path: self.path.clone(), what: what.to_string() }
    }
}
