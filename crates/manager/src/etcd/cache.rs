//! A manager's own copy of the state, in its directory. Etcd has the state; the copy may be removed while the
//! manager is stopped, and is then read from etcd anew.
//!
//! The copy notes in the same transaction which record of the log it applied last. So it needs no sync with
//! each commit: after a power cut it is as after some earlier record, and goes on from there.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use braid_meta::records::kv::{Batch, Kv, KvError, Snapshot};
use braid_meta::records::log::{AppliedRecord, Place, change_bytes, decode, encode};

use super::error::EtcdError;
use crate::disk::directory::STATE_FILE as EMBEDDED_FILE;
use crate::disk::embedded::EmbeddedKv;

/// The copy's file, in the manager's directory.
pub const STATE_FILE: &str = "etcd.redb";
/// The copy while it is made from a checkpoint.
const FRESH_FILE: &str = "etcd.redb.new";
/// The copy is synced this often, while it changes.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes of changes between two syncs: redb reuses no space meanwhile.
const UNSYNCED_MAX: usize = 32 << 20;

/// The copy of a state.
pub(super) struct Cache {
    dir: PathBuf,
    store: RwLock<Arc<EmbeddedKv>>,
    applied: Mutex<Applied>,
}

struct Applied {
    identity: u128,
    place: Place,
    synced: Instant,
    unsynced: usize,
}

impl Cache {
    /// Opens the copy in this directory, or makes an empty one. Blocks on the disk.
    pub(super) fn open(dir: &Path) -> Result<Cache, EtcdError> {
        if fs::metadata(dir.join(EMBEDDED_FILE)).is_ok_and(|found| found.len() > 0) {
            return Err(EtcdError::Embedded(dir.to_owned()));
        }
        let path = dir.join(STATE_FILE);
        let store = EmbeddedKv::open(&path)?;
        let found = match store.applied()? {
            Some(bytes) => decode::<AppliedRecord>(&bytes).map_err(|error| KvError::Storage {
                path,
                what: format!("it {error}; move it away, and it is made anew from etcd"),
            })?,
            None => AppliedRecord { identity: 0, index: 0, sum: 0 },
        };
        let place = Place { index: found.index, sum: found.sum };
        let applied = Applied { identity: found.identity, place, synced: Instant::now(), unsynced: 0 };
        Ok(Cache { dir: dir.to_owned(), store: RwLock::new(Arc::new(store)), applied: Mutex::new(applied) })
    }

    /// The manager's directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Identity of the state that it is a copy of; 0: of none yet.
    pub(super) fn identity(&self) -> u128 {
        self.applied().identity
    }

    /// The record that was applied last.
    pub(super) fn place(&self) -> Place {
        self.applied().place
    }

    /// Makes this the copy of that state. Blocks on the disk.
    pub(super) fn become_copy_of(&self, identity: u128) -> Result<(), KvError> {
        let mut applied = self.applied();
        applied.identity = identity;
        self.store(&mut applied, &Batch::new(), Place::default(), true)
    }

    /// Applies the record that leads from `before` to `after`. Blocks on the disk.
    pub(super) fn apply(&self, batch: &Batch, before: Place, after: Place) -> Result<(), KvError> {
        let mut applied = self.applied();
        if applied.place != before {
            let what = format!("record {} does not follow record {}", after.index, applied.place.index);
            return Err(KvError::Storage { path: self.dir.join(STATE_FILE), what });
        }
        let bytes: usize =
            batch.iter().map(|(key, change)| change_bytes(key, change.as_deref().unwrap_or_default())).sum();
        applied.unsynced += bytes;
        let due = applied.unsynced > UNSYNCED_MAX || applied.synced.elapsed() > SYNC_EVERY;
        self.store(&mut applied, batch, after, due)
    }

    /// Syncs what was applied. Blocks on the disk.
    pub(super) fn sync(&self) -> Result<(), KvError> {
        let mut applied = self.applied();
        let place = applied.place;
        self.store(&mut applied, &Batch::new(), place, true)
    }

    /// A snapshot, and the record after which it is.
    pub(super) fn at(&self) -> Result<(Box<dyn Snapshot>, Place), KvError> {
        let applied = self.applied();
        Ok((self.present().snapshot()?, applied.place))
    }

    /// Takes a copy that was made from a checkpoint in place of this one. No commit may be under way.
    pub(super) fn replace(&self, fresh: Fresh, after: Place) -> Result<(), KvError> {
        let mut applied = self.applied();
        fresh.store.apply(&Batch::new(), &note(applied.identity, after), true)?;
        let path = self.dir.join(STATE_FILE);
        let put = || -> std::io::Result<()> {
            fs::rename(self.dir.join(FRESH_FILE), &path)?;
            File::open(&self.dir)?.sync_all()
        };
        put().map_err(|error| KvError::Storage { path: path.clone(), what: error.to_string() })?;
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh.store);
        applied.place = after;
        Ok(())
    }

    fn store(&self, applied: &mut Applied, batch: &Batch, after: Place, sync: bool) -> Result<(), KvError> {
        self.present().apply(batch, &note(applied.identity, after), sync)?;
        applied.place = after;
        if sync {
            applied.synced = Instant::now();
            applied.unsynced = 0;
        }
        Ok(())
    }

    fn present(&self) -> Arc<EmbeddedKv> {
        Arc::clone(&self.store.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For reads of a manager that stands by: nothing is written by it.
impl Kv for Cache {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.present().snapshot()
    }

    fn commit(&self, _: &Batch) -> Result<(), KvError> {
        Err(KvError::Deposed { what: "it stands by".to_owned() })
    }
}

/// A copy that is being made from a checkpoint.
pub(super) struct Fresh {
    store: EmbeddedKv,
}

impl Fresh {
    /// Begins an empty copy beside the present one. Blocks on the disk.
    pub(super) fn begin(dir: &Path) -> Result<Fresh, KvError> {
        let path = dir.join(FRESH_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(KvError::Storage { path, what: error.to_string() })
            }
            _ => Ok(Fresh { store: EmbeddedKv::open(&path)? }),
        }
    }

    /// Adds rows. Blocks on the disk.
    pub(super) fn add(&self, rows: &Batch) -> Result<(), KvError> {
        self.store.commit(rows)
    }
}

fn note(identity: u128, place: Place) -> Vec<u8> {
    encode(&AppliedRecord { identity, index: place.index, sum: place.sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_knows_its_place_after_a_restart_and_takes_records_in_order_only() {
        let dir = tempfile::tempdir().unwrap();
        let places: Vec<Place> = (0..3).map(|index| Place { index, sum: u128::from(index) }).collect();
        let batch = |value: u8| Batch::from([(b"k".to_vec(), Some(vec![value]))]);
        {
            let cache = Cache::open(dir.path()).unwrap();
            cache.become_copy_of(7).unwrap();
            cache.apply(&batch(1), places[0], places[1]).unwrap();
            let error = cache.apply(&batch(9), places[0], places[1]).unwrap_err();
            assert!(error.to_string().contains("record 1 does not follow record 1"), "{error}");
            cache.apply(&batch(2), places[1], places[2]).unwrap();
            cache.sync().unwrap();
        }
        let cache = Cache::open(dir.path()).unwrap();
        assert_eq!((cache.identity(), cache.place()), (7, places[2]));
        assert_eq!(cache.snapshot().unwrap().get(b"k").unwrap(), Some(vec![2]));
        let fresh = Fresh::begin(dir.path()).unwrap();
        fresh.add(&batch(5)).unwrap();
        cache.replace(fresh, places[1]).unwrap();
        assert_eq!(cache.at().unwrap().0.get(b"k").unwrap(), Some(vec![5]));
        drop(cache);
        assert_eq!(Cache::open(dir.path()).unwrap().place(), places[1]);
    }

    #[test]
    fn a_directory_with_a_state_of_its_own_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(EMBEDDED_FILE), "state").unwrap();
        let Err(error) = Cache::open(dir.path()) else { panic!("it is opened") };
        assert!(error.to_string().contains("braid manager restore"), "{error}");
    }
}
