//! What all sessions share: the state, the clock, the tables, sessions with drives.
//!
//! Order of locks: a file's lock, then a transaction, then (never both at once) the table of drives or of leases. The tables'
//! locks are held for a few lines and never over an await; no call to a drive is made inside a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use braid_layout::placement::Candidate;
use braid_layout::{ColumnMask, DriveId, FileId, Shape};
use braid_wire::control::{ControlHead, DriveState};
use braid_wire::{Reason, Refusal};
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::drives::{Drive, DriveTable};
use crate::files::columns_on;
use crate::kv::{Db, Tx};
use crate::leases::Leases;
use crate::reach::Reach;
use crate::schema::ClusterRecord;
use crate::shapes::drives_for;
use crate::time::{ManagerClock, boot_ms};

/// How long a request may wait for another procedure on the same file.
const FILE_WAIT: Duration = Duration::from_secs(25);

/// The manager.
pub struct Core {
    /// The state.
    pub db: Db,
    /// Manager time.
    pub clock: ManagerClock,
    /// Identity and secrets.
    pub cluster: ClusterRecord,
    /// This manager's term.
    pub term: u64,
    /// Length of a client's lease, in milliseconds.
    pub client_lease_ms: u32,
    /// Its directory, for status.
    pub directory: String,
    /// Its start, in milliseconds since boot.
    pub started_boot_ms: u64,
    /// Sessions with drives.
    pub reach: Reach,
    /// Something for the background to do.
    pub wake: Notify,
    /// Proofs of a token that were wrong since the start.
    pub bad_tokens: AtomicU64,
    pub(crate) drives: Mutex<DriveTable>,
    pub(crate) leases: Mutex<Leases>,
    /// Files without a lease whose procedure was left undone.
    pub(crate) unfinished: Mutex<BTreeSet<FileId>>,
    pub(crate) files: Mutex<BTreeMap<FileId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Core {
    /// Now, in manager time.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// What every reply begins with.
    pub fn head(&self) -> ControlHead {
        ControlHead { term: self.term, now_ms: self.now_ms() }
    }

    /// Milliseconds since the start.
    pub fn uptime_ms(&self) -> u64 {
        boot_ms().saturating_sub(self.started_boot_ms)
    }

    /// The table of drives.
    pub fn drives(&self) -> MutexGuard<'_, DriveTable> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of leases.
    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files without a lease whose procedure was left undone.
    pub fn unfinished(&self) -> MutexGuard<'_, BTreeSet<FileId>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one state, off the async threads.
    pub async fn read<R: Send + 'static>(
        self: &Arc<Core>,
        work: impl FnOnce(&Core, &Tx) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let core = Arc::clone(self);
        joined(tokio::task::spawn_blocking(move || core.db.read(|tx| work(&core, tx))).await)
    }

    /// One transaction, off the async threads.
    pub async fn write<R: Send + 'static>(
        self: &Arc<Core>,
        work: impl FnOnce(&Core, &mut Tx) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let core = Arc::clone(self);
        joined(tokio::task::spawn_blocking(move || core.db.write(|tx| work(&core, tx))).await)
    }

    /// Waits for the turn of a procedure on this file.
    pub async fn lock_file(&self, file: FileId) -> Result<OwnedMutexGuard<()>, Refusal> {
        let busy =
            |_| Refusal::new(Reason::Busy, format!("another procedure on file {file} takes long: try again"));
        tokio::time::timeout(FILE_WAIT, self.file_mutex(file).lock_owned()).await.map_err(busy)
    }

    /// The turn of a procedure on this file, if nobody has it now.
    pub fn try_lock_file(&self, file: FileId) -> Option<OwnedMutexGuard<()>> {
        self.file_mutex(file).try_lock_owned().ok()
    }

    fn file_mutex(&self, file: FileId) -> Arc<tokio::sync::Mutex<()>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mutex) = files.get(&file).and_then(Weak::upgrade) {
            return mutex;
        }
        if files.len() > 1024 {
            files.retain(|_, mutex| mutex.strong_count() > 0);
        }
        let mutex = Arc::default();
        files.insert(file, Arc::downgrade(&mutex));
        mutex
    }

    /// Drives for a new file, and its columns that are out from the start. See [`crate::files::Place`].
    pub fn place(&self, seed: u64, shape: &Shape) -> Result<(Vec<DriveId>, ColumnMask), Refusal> {
        let (now_ms, table) = (self.now_ms(), self.drives());
        let of = |state| table.in_state(state, now_ms).into_iter().filter_map(|drive| table.drive(drive));
        let mut up: Vec<Candidate> = of(DriveState::Up).map(candidate).collect();
        // One that has lost ranges of keys cannot know that an object is new, and refuses it.
        let whole: Vec<Candidate> =
            of(DriveState::Up).filter(|drive| drive.scrub.lost == 0).map(candidate).collect();
        if whole.len() >= usize::from(shape.width()) {
            up = whole;
        }
        let away: Vec<Candidate> = of(DriveState::Away).map(candidate).collect();
        let drives = drives_for(seed, shape, &up, &away)?;
        let out = columns_on(&drives, |drive| table.state(drive, now_ms) != DriveState::Up);
        if !out.is_empty() && !table.may_judge(now_ms) {
            let detail = "the manager has just started and has not heard from every drive yet: try again";
            return Err(Refusal::new(Reason::Busy, detail));
        }
        if out.count() > u32::from(shape.m()) {
            let names = table.names(out.iter().filter_map(|column| drives.get(column.index()).copied()));
            let detail = format!("{shape} can do without {} of its drives, and {names} are away", shape.m());
            return Err(Refusal::new(Reason::TooManyAway, detail));
        }
        Ok((drives, out))
    }
}

/// A drive as placement sees it: weighted by its capacity in GiB.
pub fn candidate(drive: &Drive) -> Candidate {
    let weight = u32::try_from(drive.record.capacity_bytes >> 30).unwrap_or(u32::MAX).max(1);
    let domain = vec![drive.record.rack.clone(), drive.record.host.clone()];
    Candidate { drive: drive.record.drive, weight, domain }
}

fn joined<R>(result: Result<Result<R, Refusal>, tokio::task::JoinError>) -> Result<R, Refusal> {
    result.unwrap_or_else(|error| {
        tracing::error!(%error, "a transaction failed within the manager");
        Err(Refusal::new(Reason::Medium, "the manager failed within itself: see its log"))
    })
}
