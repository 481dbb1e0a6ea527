//! The parts that all sessions share: the state, the clock, the tables, sessions with drives.
//!
//! Order of locks: a file's lock, then a transaction's deciding, then (never two at once) the table of
//! drives, of leases or of operations. Within a transaction a file's lock may be tried, not waited for. The
//! tables' locks are held for a few lines and never over an await; no call to a drive is made inside a
//! transaction. The tables follow a transaction once it is durable ([`Core::write_then`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use braid_layout::placement::Candidate;
use braid_layout::{ClientId, ColumnMask, DriveId, FileId, Shape};
use braid_meta::records::db::{Db, Storer};
use braid_meta::records::relayouts::Reasons;
use braid_meta::records::schema::{ClusterRecord, DriveRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::admission::Admissions;
use braid_meta::rules::clients::Clients;
use braid_meta::rules::comparisons::Comparisons;
use braid_meta::rules::drives::{Drive, DriveTable};
use braid_meta::rules::ended_rates::EndedRates;
use braid_meta::rules::fullness::Balance;
use braid_meta::rules::heal_reports::Healing;
use braid_meta::rules::jobs::JobBoard;
use braid_meta::rules::leadership::Leadership;
use braid_meta::rules::leases::Leases;
use braid_meta::rules::operations::{Once, Operation, OperationResult, Operations, recorded, remember};
use braid_meta::rules::reservations::Reservations;
use braid_meta::rules::scarce::Scarce;
use braid_meta::rules::space::{candidate, has_room};
use braid_meta::rules::watchers::{LEASE_MS, Told, Watchers};
use braid_meta::tokens::opened::OpenedWith;
use braid_meta::tokens::table::TokenTable;
use braid_meta::tree::files::columns_on;
use braid_meta::tree::shapes::drives_for;
use braid_transport::Seldom;
use braid_transport::host::{self, boot_ms};
use braid_wire::control::{ControlHead, DriveState, StateMark};
use braid_wire::{Reason, Refusal};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::asker::{asker, asker_access, asker_token};
use crate::catalogue::followed::Followed;
use crate::catalogue::kept::Kept;
use crate::drive_calls::DriveCalls;
use crate::own_etcd::OwnEtcd;
use crate::rates::books::Books;
use crate::sessions::lock_table::Locking;
use crate::sessions::managers::KnownManagers;
use crate::sessions::session_slots::SessionSlots;
use crate::sessions::trust::Trust;
use crate::time::ManagerClock;
use crate::together::Together;

/// Maximum time that a request waits for another procedure on the same file.
const FILE_WAIT: Duration = Duration::from_secs(25);

/// Maximum time that a request waits for the state's disk. Longer than a client waits for its answer.
const STATE_WAIT: Duration = Duration::from_secs(40);

/// Interval between two looks for watch leases that are over, while news are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Maximum number of transactions that a thread takes at a time.
const TOGETHER_MAX: usize = 256;

/// A read of the state, which gets a snapshot, or the refusal if there is none.
type Read = Box<dyn FnOnce(&Core, Result<&Tx, &Refusal>) + Send>;

/// A transaction to be decided; it sets its second argument if the thread is to store.
type Decision = Box<dyn FnOnce(&Arc<Core>, &mut Storer) + Send>;

pub struct Core {
    pub db: Db,
    pub clock: ManagerClock,
    /// Identity and secrets of the cluster.
    pub cluster: ClusterRecord,
    /// The cluster's certificate authority, and this manager's certificate.
    pub trust: Trust,
    /// Term of this manager, and the term's mark. Both change only while a restored state is compared.
    pub(crate) term: Mutex<(u64, u64)>,
    /// Changes made to the state, over all terms.
    pub(crate) changes: AtomicU64,
    pub(crate) leadership: Mutex<Leadership>,
    pub(crate) admissions: Mutex<Admissions>,
    /// Length of a client's lease, in milliseconds.
    pub client_lease_ms: u32,
    /// Silence of a drive, in milliseconds, after which its columns move to others; 0: never.
    pub lost_after_ms: u64,
    /// The etcd that Braid runs beside this manager, if it does.
    pub(crate) own_etcd: Option<OwnEtcd>,
    /// Held while a member of that etcd is added or taken out.
    pub(crate) changing_members: tokio::sync::Mutex<()>,
    /// Directory of the manager, for status.
    pub directory: String,
    /// Start of the manager, in milliseconds since boot.
    pub started_boot_ms: u64,
    /// Sessions with drives.
    pub drive_calls: DriveCalls,
    /// Limits on the number of sessions.
    pub session_slots: SessionSlots,
    /// Wakes the background loops.
    pub wake: Notify,
    /// Number of wrong token proofs since the start.
    pub bad_tokens: AtomicU64,
    /// Log lines about sessions that peers caused to end.
    pub sessions_log: Seldom,
    /// Semaphore with one permit: one backup at a time.
    pub(crate) backups: Semaphore,
    pub(crate) reads: Together<Read>,
    pub(crate) decisions: Together<Decision>,
    pub(crate) drives: Mutex<DriveTable>,
    pub(crate) leases: Mutex<Leases>,
    pub(crate) scarce: Mutex<Scarce>,
    pub(crate) operations: Mutex<Operations>,
    pub(crate) healing: Mutex<Healing>,
    pub(crate) comparisons: Mutex<Comparisons>,
    pub(crate) balance: Mutex<Balance>,
    pub(crate) jobs: Mutex<JobBoard>,
    /// The state's store, which notes what changed for the catalogue at the drives.
    pub(crate) followed: Arc<Followed>,
    pub(crate) names: Mutex<Kept>,
    pub(crate) relayouts: Mutex<Reasons>,
    pub(crate) reservations: Mutex<Reservations>,
    pub(crate) ended_rates: Mutex<EndedRates>,
    /// The bookings of all drives. Held while a reservation is decided on: one at a time.
    pub(crate) books: tokio::sync::Mutex<Books>,
    pub(crate) watchers: Mutex<Watchers>,
    pub(crate) clients: Mutex<Clients>,
    pub(crate) managers: Mutex<KnownManagers>,
    pub(crate) tokens: Mutex<TokenTable>,
    pub(crate) opened_with: Mutex<OpenedWith>,
    /// Signals that tokens were revoked: sessions look whether theirs is one of them.
    pub(crate) token_ends: Notify,
    pub(crate) locking: Locking,
    /// Signals that there are news for clients that watch.
    pub(crate) told: Notify,
    /// Signals that a client has said which news it has heeded.
    pub(crate) heeded: Notify,
    /// True once a client watches and that is on record.
    pub(crate) is_watched: AtomicBool,
    /// True if clients may have watched before this start.
    pub(crate) was_watched: bool,
    /// Held while a file is given to be written, and alone by a snapshot that looks for what is open.
    pub(crate) opening: tokio::sync::RwLock<()>,
    /// Files without a lease whose procedure was left undone.
    pub(crate) unfinished: Mutex<BTreeSet<FileId>>,
    pub(crate) files: Mutex<BTreeMap<FileId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Core {
    /// Present time, in manager time.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Term of this manager.
    pub fn term(&self) -> u64 {
        self.term.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Mark of the present state, for drives to remember.
    pub fn mark(&self) -> StateMark {
        let (term, mark) = *self.term.lock().unwrap_or_else(PoisonError::into_inner);
        StateMark { term, mark, changes: self.changes.load(Ordering::Acquire) }
    }

    /// Leadership: the knowledge whether this state is the current one.
    pub fn leadership(&self) -> MutexGuard<'_, Leadership> {
        self.leadership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Table of the processes that were admitted as drives.
    pub fn admissions(&self) -> MutexGuard<'_, Admissions> {
        self.admissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Present time for leases, which are granted and not stored: see `ManagerClock::running_ms`.
    pub fn running_ms(&self) -> u64 {
        self.clock.running_ms()
    }

    /// The head of every reply.
    pub fn head(&self) -> ControlHead {
        ControlHead { term: self.term(), now_ms: self.now_ms(), managers: self.managers().mark() }
    }

    /// The cluster's managers.
    pub fn managers(&self) -> MutexGuard<'_, KnownManagers> {
        self.managers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the manager's start.
    pub fn uptime_ms(&self) -> u64 {
        boot_ms().saturating_sub(self.started_boot_ms)
    }

    /// The table of drives.
    pub fn drives(&self) -> MutexGuard<'_, DriveTable> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the catalogue at the drives.
    pub(crate) fn names(&self) -> MutexGuard<'_, Kept> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clients that were heard, and those that are shut out.
    pub(crate) fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens on record, and how many sessions are open with each.
    pub(crate) fn tokens(&self) -> MutexGuard<'_, TokenTable> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that were opened with limited tokens.
    pub(crate) fn opened_with(&self) -> MutexGuard<'_, OpenedWith> {
        self.opened_with.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of leases.
    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writers that wait for room under a quota.
    pub(crate) fn scarce(&self) -> MutexGuard<'_, Scarce> {
        self.scarce.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of operations beyond the stored results.
    pub fn operations(&self) -> MutexGuard<'_, Operations> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Progress of the drives in bringing their stale columns up to date.
    pub fn healing(&self) -> MutexGuard<'_, Healing> {
        self.healing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The comparisons of columns' successors under way.
    pub fn comparisons(&self) -> MutexGuard<'_, Comparisons> {
        self.comparisons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients that are told of changes.
    pub fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the balancing of drives.
    pub fn balance(&self) -> MutexGuard<'_, Balance> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the background jobs.
    pub fn jobs(&self) -> MutexGuard<'_, JobBoard> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reasons, for people, why files are not laid out anew yet.
    pub fn relayouts(&self) -> MutexGuard<'_, Reasons> {
        self.relayouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reservations of data rates.
    pub fn reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reservations that have ended and may still be honoured.
    pub(crate) fn ended_rates(&self) -> MutexGuard<'_, EndedRates> {
        self.ended_rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files without a lease whose procedure was left undone.
    pub fn unfinished(&self) -> MutexGuard<'_, BTreeSet<FileId>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads one state, off the async threads. For short work: other reads wait for it.
    pub async fn read<R: Send + 'static>(
        self: &Arc<Core>,
        work: impl FnOnce(&Core, &Tx) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let token = asker_token();
        let access = asker_access();
        let (answer, answered) = oneshot::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let is_given_up = Arc::clone(&given_up);
        let read: Read = Box::new(move |core, tx| {
            if is_given_up.load(Ordering::Acquire) {
                return;
            }
            let result = tx.map_err(Refusal::clone).and_then(|tx| {
                tx.act_for(token, access);
                work(core, tx)
            });
            drop(answer.send(result));
        });
        if self.reads.add(read) {
            let core = Arc::clone(self);
            host::spawn_blocking(move || core.do_reads());
        }
        within(STATE_WAIT, &given_up, answered).await
    }

    /// Does all reads that wait. Reads that arrive meanwhile see a later state.
    fn do_reads(&self) {
        loop {
            let reads = self.reads.take(TOGETHER_MAX);
            if reads.is_empty() {
                return;
            }
            let mut left = reads.into_iter();
            let read = self.db.read(|tx| {
                left.by_ref().for_each(|read| guarded(|| read(self, Ok(tx))));
                Ok(())
            });
            if let Err(refusal) = read {
                left.for_each(|read| guarded(|| read(self, Err(&refusal))));
            }
        }
    }

    /// Reads one state, on a thread of its own, for work that takes longer. Work that has begun runs to its
    /// end, even after `wait`.
    pub async fn read_within<R: Send + 'static>(
        self: &Arc<Core>,
        wait: Duration,
        work: impl FnOnce(&Core, &Tx) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        let core = Arc::clone(self);
        let token = asker_token();
        let access = asker_access();
        let given_up = AtomicBool::new(false);
        let reading = host::spawn_blocking(move || {
            core.db.read(|tx| {
                tx.act_for(token, access);
                work(&core, tx)
            })
        });
        within(wait, &given_up, reading).await
    }

    /// Runs one transaction, off the async threads. It is durable when this returns.
    pub async fn write<R: Send + 'static>(
        self: &Arc<Core>,
        work: impl FnOnce(&Core, &mut Tx) -> Result<R, Refusal> + Send + 'static,
    ) -> Result<R, Refusal> {
        self.write_then(work, |_, _| ()).await
    }

    /// Runs one transaction as [`Core::write`] does. `then` updates the tables beside the state, once the
    /// transaction is durable; it must be brief. It is called in the order of the transactions, also if the
    /// caller does not wait for the result any more.
    pub async fn write_then<R: Send + 'static>(
        self: &Arc<Core>,
        work: impl FnOnce(&Core, &mut Tx) -> Result<R, Refusal> + Send + 'static,
        then: impl FnOnce(&Core, &R) + Send + 'static,
    ) -> Result<R, Refusal> {
        let by = asker();
        let token = asker_token();
        let access = asker_access();
        let work = move |core: &Core, tx: &mut Tx| {
            tx.act_for(token, access);
            work(core, tx)
        };
        let (answer, answered) = oneshot::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let is_given_up = Arc::clone(&given_up);
        let decide: Decision = Box::new(move |core, storer| {
            if is_given_up.load(Ordering::Acquire) {
                return;
            }
            let durable = {
                let core = Arc::clone(core);
                move |result: Result<Counted<R>, Refusal>| {
                    let result = result.map(|(result, changes, files)| {
                        core.changes.fetch_max(changes, Ordering::AcqRel);
                        then(&core, &result);
                        let told = core.watchers().tell(&files, by);
                        if !told.is_empty() {
                            core.told.notify_waiters();
                        }
                        (result, told, !files.is_empty())
                    });
                    drop(answer.send(result));
                }
            };
            if core.db.decide(|tx| counted(core, tx, work), durable) == Storer::Caller {
                *storer = Storer::Caller;
            }
        });
        if self.decisions.add(decide) {
            let core = Arc::clone(self);
            host::spawn_blocking(move || core.decide_all());
        }
        let (result, told, has_changed) = within(STATE_WAIT, &given_up, answered).await?;
        if by != ClientId::NONE && has_changed {
            self.until_heeded(&told).await;
            self.until_former_watchers_left().await;
        }
        Ok(result)
    }

    /// Waits until clients have heeded news. The wait ends, as clients that do not heed them lose their
    /// leases.
    pub(crate) async fn until_heeded(&self, told: &[Told]) {
        loop {
            let heeded = self.heeded.notified();
            let mut heeded = std::pin::pin!(heeded);
            heeded.as_mut().enable();
            if told.is_empty() || self.watchers().are_heeded(told, self.running_ms()) {
                return;
            }
            let _ = timeout(LOOK_EVERY, heeded).await;
        }
    }

    /// Waits, after a change, until clients that watched before this manager's start have dropped their
    /// caches.
    async fn until_former_watchers_left(&self) {
        if self.was_watched {
            let left_ms = u64::from(LEASE_MS).saturating_sub(self.uptime_ms());
            if left_ms > 0 {
                sleep(Duration::from_millis(left_ms)).await;
            }
        }
    }

    /// Decides all transactions that wait, and then has them stored if no other thread does. Others may be
    /// decided meanwhile.
    fn decide_all(self: Arc<Core>) {
        let mut storer = Storer::Other;
        loop {
            let decisions = self.decisions.take(TOGETHER_MAX);
            if decisions.is_empty() {
                break;
            }
            decisions.into_iter().for_each(|decide| guarded(|| decide(&self, &mut storer)));
            if std::mem::replace(&mut storer, Storer::Other) == Storer::Caller {
                // Stored now, and not after the next decisions, which may never come to an end.
                let core = Arc::clone(&self);
                host::spawn_blocking(move || host::repeat(move || core.db.store_step()));
            }
        }
    }

    /// Runs one transaction that carries an operation out, unless it was carried out before.
    pub async fn once<R: Send + 'static>(
        self: &Arc<Core>,
        operation: Operation,
        work: impl FnOnce(&Core, &mut Tx) -> Result<(OperationResult, R), Refusal> + Send + 'static,
    ) -> Result<Once<R>, Refusal> {
        self.once_then(operation, work, |_, _| ()).await
    }

    /// Carries an operation out as [`Core::once`] does. `then` is called as in [`Core::write_then`], if the
    /// operation was carried out now.
    pub async fn once_then<R: Send + 'static>(
        self: &Arc<Core>,
        operation: Operation,
        work: impl FnOnce(&Core, &mut Tx) -> Result<(OperationResult, R), Refusal> + Send + 'static,
        then: impl FnOnce(&Core, &R) + Send + 'static,
    ) -> Result<Once<R>, Refusal> {
        let work = move |core: &Core, tx: &mut Tx| {
            if let Some(before) = core.recall(tx, operation)? {
                return Ok(Once::Before(before));
            }
            let (outcome, result) = work(core, tx)?;
            remember(tx, operation, outcome, core.now_ms())?;
            Ok(Once::Now(result))
        };
        let then = move |core: &Core, done: &Once<R>| {
            if let Once::Now(result) = done {
                then(core, result);
            }
        };
        self.write_then(work, then).await
    }

    /// The operation's earlier result, if it was carried out. Refused if its client has settled it.
    pub(crate) fn recall(&self, tx: &Tx, operation: Operation) -> Result<Option<OperationResult>, Refusal> {
        self.operations().check(&operation)?;
        recorded(tx, operation)
    }

    /// Waits for the file's lock: one procedure runs on a file at a time.
    pub async fn lock_file(&self, file: FileId) -> Result<OwnedMutexGuard<()>, Refusal> {
        timeout(FILE_WAIT, self.file_mutex(file).lock_owned()).await.map_err(|_| busy(file))
    }

    /// The file's lock, if it is free.
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

    /// Returns the present time, the number of drives that were not replaced, and the length of their leases
    /// with its margin.
    pub fn drives_counted(&self) -> (u64, usize, u64) {
        let now_ms = self.now_ms();
        let table = self.drives();
        let drives = table.iter().filter(|drive| drive.record.replaced_by == DriveId(0)).count();
        (now_ms, drives, table.lease_ms() + table.margin_ms())
    }

    /// Drives for a new file, and its columns that are out from the start. See
    /// [`braid_meta::tree::shapes::ChooseDrives`]. Drives in `avoid` are used only if there are not enough
    /// others.
    pub fn place(
        &self,
        seed: u64,
        shape: &Shape,
        avoid: &BTreeSet<DriveId>,
    ) -> Result<(Vec<DriveId>, ColumnMask), Refusal> {
        let now_ms = self.now_ms();
        let table = self.drives();
        let of = |state| table.in_state(state, now_ms).into_iter().filter_map(|drive| table.drive(drive));
        // A drive that has lost ranges of keys cannot tell that an object is new, and refuses to create it.
        let whole = |drive: &Drive| drive.scrub.lost == 0;
        let wanted = |drive: &Drive| whole(drive) && !drive.draining && !avoid.contains(&drive.record.drive);
        let roomy = |drive: &Drive| wanted(drive) && has_room(drive);
        let those = |which: &dyn Fn(&Drive) -> bool| -> Vec<Candidate> {
            of(DriveState::Up).filter(|drive| which(drive)).map(candidate).collect()
        };
        // The best group that has enough drives. A full drive may have space again after cleaning.
        let enough = |those: &Vec<Candidate>| those.len() >= usize::from(shape.width());
        let best = [those(&roomy), those(&wanted), those(&whole)].into_iter().find(enough);
        let up = best.unwrap_or_else(|| those(&|_| true));
        let away: Vec<Candidate> = of(DriveState::Away).map(candidate).collect();
        let drives = drives_for(seed, shape, &up, &away)?;
        let out = columns_on(&drives, |drive| table.state(drive, now_ms) != DriveState::Up);
        if !out.is_empty() && !table.may_judge(now_ms) {
            let detail = "the manager has just started, or was paused, and has not heard from every drive yet: try again";
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

/// Takes a stored record of a drive over into the table of drives.
pub fn set_record(core: &Core, record: &DriveRecord) {
    core.drives().set_record(record.clone());
}

/// The refusal of a request that waited too long for the file's lock.
pub fn busy(file: FileId) -> Refusal {
    Refusal::new(Reason::Busy, format!("another procedure on file {file} takes long: try again"))
}

/// A transaction's result, the number of changes so far, and the files that it changed
/// ([`Tx::changed_files`]).
type Counted<R> = (R, u64, Vec<(FileId, bool)>);

/// Does a transaction's work, and counts it as a change of the state if it changes anything.
fn counted<R>(
    core: &Core,
    tx: &mut Tx,
    work: impl FnOnce(&Core, &mut Tx) -> Result<R, Refusal>,
) -> Result<Counted<R>, Refusal> {
    let result = work(core, tx)?;
    let mut changes = tx.number("changes")?;
    if tx.is_changed() {
        changes += 1;
        tx.set(key::meta("changes"), &changes);
    }
    Ok((result, changes, tx.changed_files()))
}

/// Does the work of one request, on a thread that other requests wait for. If it panics, that request alone
/// has no answer.
fn guarded(work: impl FnOnce()) {
    if std::panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a transaction failed within the manager");
    }
}

/// The result of a transaction, which comes from a blocking thread. After `wait`, a transaction that has not
/// begun is given up. One that hangs may or may not become durable, as after a failed commit.
async fn within<R, E: Display>(
    wait: Duration,
    given_up: &AtomicBool,
    result: impl Future<Output = Result<Result<R, Refusal>, E>>,
) -> Result<R, Refusal> {
    match timeout(wait, result).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => {
            tracing::error!(%error, "a transaction failed within the manager");
            Err(Refusal::new(Reason::Medium, "the manager met an internal error: see its log"))
        }
        Err(_) => {
            given_up.store(true, Ordering::Release);
            let seconds = wait.as_secs();
            tracing::error!(seconds, "the state's disk does not answer: a request was given up");
            let detail = format!(
                "the manager's disk has not answered for {seconds} s; whether a change was made is not known: look at its disk"
            );
            Err(Refusal::new(Reason::Medium, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_transaction_that_hangs_is_given_up_and_one_that_ends_is_not() {
        let (release, hangs) = mpsc::channel::<()>();
        let brief = Duration::from_millis(50);
        let hanging = tokio::task::spawn_blocking(move || hangs.recv().map_err(|_| unreachable!()));
        let given_up = AtomicBool::new(false);
        let refusal = within(brief, &given_up, hanging).await.unwrap_err();
        assert!(given_up.load(Ordering::Acquire), "if it has not begun, it does not");
        assert!(refusal.reason == Reason::Medium && refusal.detail.contains("not known"), "{refusal}");
        release.send(()).expect("it hangs until now");
        let ends = tokio::task::spawn_blocking(|| Ok(7));
        assert_eq!(within(STATE_WAIT, &given_up, ends).await.unwrap(), 7);
    }
}
