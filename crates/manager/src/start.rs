//! Starting and stopping: the directory, its lock, the tokens, the state, the first transaction.
//!
//! The directory holds `LOCK` (locked while a manager runs), `manager.redb` (the state), `client.token` and
//! `join.token`. All but the lock are readable to their owner only.

use std::fs::{self, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_layout::{ClientId, ClusterId, DriveId, FileId, LockSession, TokenId};
use braid_meta::records::db::Db;
use braid_meta::records::inodes::has_untold;
use braid_meta::records::kv::Kv;
use braid_meta::records::schema::{
    AuthorityRecord, ClusterRecord, DriveRecord, ReservationRecord, TokenRecord, key, table,
};
use braid_meta::records::tx::Tx;
use braid_meta::records::upgrade::upgrade;
use braid_meta::rules::drives::{DriveTable, margin_ms};
use braid_meta::rules::leadership::Leadership;
use braid_meta::rules::leases::Leases;
use braid_meta::rules::watchers::Watchers;
use braid_meta::tree::keys;
use braid_meta::tree::snapshots::pass_over_numbers;
use braid_meta::tree::tokens::{self, Drawn};
use braid_transport::host::{self, boot_ms};
use braid_transport::{Limits, Listener, Seldom, raise_descriptors};
use braid_wire::Refusal;
use braid_wire::capability::Key;
use braid_wire::data::DriveParts;
use braid_wire::token::Token;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::catalogue::followed::Followed;
use crate::core::Core;
use crate::disk::directory::{LOCK_FILE, ManagerError, STATE_FILE, lock};
use crate::disk::embedded::EmbeddedKv;
use crate::disk::private;
use crate::drive_calls::DriveCalls;
use crate::etcd::{self, EtcdConfig};
use crate::files::receipts;
use crate::own_etcd::OwnEtcd;
use crate::rates::qualify;
use crate::restore::backup;
use crate::restore::retake::take_over;
use crate::restore::terms::{RESTORED_LATER_MS, begin_term, random};
use crate::sessions::lock_table::Locking;
use crate::sessions::serve::serve;
use crate::sessions::session_slots::SessionSlots;
use crate::sessions::trust::{self, Trust};
use crate::sessions::{callbacks, locking};
use crate::sweep::{extend_time, sweep};
use crate::time::ManagerClock;
use crate::together::Together;

/// Directory that the root of a new file system contains.
const LOST_AND_FOUND: &str = "lost+found";
const CLIENT_TOKEN: &str = "client.token";
const JOIN_TOKEN: &str = "join.token";
/// Maximum time that a stop waits for the transactions under way.
pub(crate) const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// Number of terms that a restored state skips: a drive that misses the comparison may have seen terms that
/// no other drive has seen.
const TERMS_PASSED_OVER: u64 = 1 << 20;

/// Configuration of a manager.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of the manager's state; made if it does not exist.
    pub dir: PathBuf,
    /// Address to listen on, `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Length of a drive's heartbeat lease, in milliseconds. A drive that dies delays writers for about this
    /// long. A shorter lease finds dead drives sooner, and takes a drive out after a shorter pause. Drives
    /// send a heartbeat every quarter of it.
    pub lease_ms: u32,
    /// Length of a client's lease on a file, in milliseconds: for this long a writer that died keeps others
    /// out.
    pub client_lease_ms: u32,
    /// Silence of a drive, in milliseconds, after which its columns move to other drives, if they have room;
    /// 0: never. A shorter time restores the redundancy sooner; if it is too short, the columns of a drive
    /// that only restarts are copied.
    pub lost_after_ms: u64,
    /// Etcd, if it holds the state, so that several managers may be; `None`: the state is in `dir`.
    pub etcd: Option<EtcdConfig>,
    /// Address that peers connect to, if it differs from `listen`.
    pub advertise: Option<String>,
    /// The etcd that Braid runs beside this manager, if it does.
    pub own_etcd: Option<OwnEtcd>,
}

/// The default of [`Config::lost_after_ms`]: ten minutes, more than a machine needs to restart.
pub const LOST_AFTER_MS: u64 = 600_000;

/// [`Config::lease_ms`] where the state is in etcd. Another manager leads 5 to 8 s after the death of the one
/// that leads, and drives serve what is open until then: at any moment they still hold three quarters of
/// this.
pub const SEVERAL_LEASE_MS: u32 = 10_000;

/// Address and secrets of a manager that serves.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Address that the manager listens on.
    pub address: String,
    /// The oldest admin's token that does not expire.
    pub client_token: Token,
    /// The oldest token with which any number of drives may join.
    pub join_token: Token,
    pub cluster: ClusterId,
}

impl Config {
    /// A manager in this directory, on this address, with the default leases: 6 s for drives, 10 s for
    /// clients.
    pub fn new(dir: impl Into<PathBuf>, listen: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen: listen.into(),
            lease_ms: 6000,
            client_lease_ms: 10_000,
            lost_after_ms: LOST_AFTER_MS,
            etcd: None,
            advertise: None,
            own_etcd: None,
        }
    }
}

/// Runs a manager until `shutdown`; `ready` is sent once it serves, or stands by. When this returns, the
/// directory is free, unless a transaction takes long: then the log says so.
pub async fn run(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    match config.etcd.clone() {
        Some(etcd) => etcd::run::run(config, etcd, ready, shutdown).await,
        None => run_embedded(config, ready, shutdown).await,
    }
}

async fn run_embedded(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let dir = &config.dir;
    private::make_dir_all(dir).map_err(|source| ManagerError::File { path: dir.clone(), source })?;
    refuse_without_state(dir)?;
    let _lock = lock(dir)?;
    // Listen before the state is touched, so that a port in use changes nothing.
    let session_slots = SessionSlots::new(raise_descriptors(SessionSlots::descriptors()));
    let listener = Listener::bind_with(&config.listen, Limits::default(), session_slots.capacity()).await?;
    let path = dir.join(STATE_FILE);
    let kv = host::spawn_blocking(move || EmbeddedKv::open(&path));
    let mut kv = kv.await.map_err(|error| ManagerError::Start(failed(&error)))??;
    private::tighten(dir);
    let closed = kv.closed();
    let core = start(Arc::new(kv), &config, session_slots).await.map_err(ManagerError::Start)?;
    let told = self::ready(&core, &listener);
    core.managers().handle_alone(told.address.clone());
    write_tokens(dir, &told)?;
    tracing::info!(address = %told.address, cluster = %told.cluster, term = core.term(), "the manager serves");
    let _ = ready.send(told);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(Arc::clone(&core), listener));
    tasks.spawn(sweep(Arc::clone(&core)));
    shutdown.await;
    tasks.shutdown().await;
    store_time(&core).await;
    drop(core);
    // A transaction in progress ends on its own thread.
    if timeout(CLOSE_WAIT, closed).await.is_err() {
        tracing::warn!("a transaction takes long to end: the state file may stay in use for a while");
    }
    tracing::info!("the manager has stopped");
    Ok(())
}

/// Stores the end of this manager's time, so that the next start begins there and not at the bound ahead of
/// it.
pub(crate) async fn store_time(core: &Arc<Core>) {
    let bound_ms = core.clock.stop();
    let storing = core.write(move |_, tx| {
        tx.set(key::meta("time"), &bound_ms);
        Ok(())
    });
    match timeout(CLOSE_WAIT, storing).await {
        Ok(Ok(())) => {}
        Ok(Err(refusal)) => {
            tracing::info!(%refusal, "the manager's clock could not be stored: it jumps ahead at the next start")
        }
        Err(_) => tracing::info!(
            "the manager's clock could not be stored in time: it jumps ahead at the next start"
        ),
    }
}

/// Begins a new term in the state, and loads the tables from it.
pub async fn start(
    kv: Arc<dyn Kv>,
    config: &Config,
    session_slots: SessionSlots,
) -> Result<Arc<Core>, Refusal> {
    let followed = Arc::new(Followed::new(kv));
    let db = Db::new(Arc::clone(&followed) as Arc<dyn Kv>);
    let first = db.clone();
    let speak_ms = u64::from(config.lease_ms) + margin_ms(u64::from(config.lease_ms));
    let own_etcd = config.own_etcd.clone();
    let opened = host::spawn_blocking(move || open_state(&first, speak_ms, own_etcd.as_ref())).await;
    let Opened {
        cluster,
        authority,
        term,
        mark,
        changes,
        clock,
        drives,
        older,
        restored,
        was_watched,
        sessions,
    } = opened.map_err(|error| failed(&error))??;
    if let Some(own) = &config.own_etcd {
        own.restored.store(false, Ordering::Release);
    }
    // Leases of earlier managers lapse one lease after this start. The very first manager has no predecessor.
    let promised_ms = if term == 1 { 0 } else { clock.now_ms() };
    let leadership = first_leadership(restored, older, drives, clock.now_ms());
    let trust = Trust::of(authority.as_ref())?;
    let core = Arc::new(Core {
        drive_calls: DriveCalls::new(trust.home(cluster.cluster)),
        session_slots,
        db,
        cluster,
        trust,
        term: Mutex::new((term, mark)),
        changes: AtomicU64::new(changes),
        leadership: Mutex::new(leadership),
        admissions: Mutex::default(),
        client_lease_ms: config.client_lease_ms,
        lost_after_ms: config.lost_after_ms,
        own_etcd: config.own_etcd.clone(),
        changing_members: tokio::sync::Mutex::default(),
        directory: config.dir.display().to_string(),
        started_boot_ms: boot_ms(),
        wake: Notify::new(),
        bad_tokens: AtomicU64::new(0),
        sessions_log: Seldom::default(),
        backups: Semaphore::new(1),
        reads: Together::new(),
        decisions: Together::new(),
        drives: Mutex::new(DriveTable::new(config.lease_ms, promised_ms, clock.pauses())),
        leases: Mutex::new(Leases::new(config.client_lease_ms, clock.pauses())),
        scarce: Mutex::default(),
        operations: Mutex::default(),
        healing: Mutex::default(),
        comparisons: Mutex::default(),
        balance: Mutex::default(),
        jobs: Mutex::default(),
        followed,
        names: Mutex::default(),
        managers: Mutex::default(),
        relayouts: Mutex::default(),
        reservations: Mutex::default(),
        ended_rates: Mutex::default(),
        books: tokio::sync::Mutex::default(),
        clients: Mutex::default(),
        tokens: Mutex::default(),
        opened_with: Mutex::default(),
        token_ends: Notify::new(),
        watchers: Mutex::new(Watchers::new(clock.pauses(), was_watched.then(|| clock.running_ms()))),
        locking: Locking::new(sessions, clock.pauses()),
        told: Notify::new(),
        heeded: Notify::new(),
        is_watched: AtomicBool::new(was_watched),
        was_watched,
        opening: tokio::sync::RwLock::new(()),
        unfinished: Mutex::default(),
        files: Mutex::default(),
        clock,
    });
    extend_time(&core).await?;
    core.read(move |core, tx| load(core, tx, restored)).await?;
    Ok(core)
}

/// Loads the tables of drives and leases from the state.
fn load(core: &Core, tx: &Tx, restored: bool) -> Result<(), Refusal> {
    for (_, record) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
        // A restored state does not know of what the drives were told: that is set after the comparison.
        let untold = !restored && has_untold(tx, record.drive)?;
        let draining = tx.get(&key::drain(record.drive))?.is_some();
        let paused = tx.record::<u64>(&key::pause(record.drive))?.unwrap_or_default();
        let parts = tx.record::<DriveParts>(&key::parts(record.drive))?;
        let keys = keys::of_drive(tx, record.drive)?;
        let drive = record.drive;
        let mut table = core.drives();
        table.insert(record);
        parts.into_iter().for_each(|parts| table.set_parts(drive, parts));
        table.set_keys(drive, keys);
        table.set_draining(drive, draining);
        table.set_paused(drive, paused);
        if untold {
            table.set_untold(drive);
        }
    }
    for (client, _) in keys::all_shut_out(tx)? {
        core.clients().shut_out(client);
    }
    for (token, record) in tokens::all(tx)? {
        core.tokens().put(token, record);
    }
    core.drives().set_whole(qualify::on_record(tx)?);
    for (_, record) in tx.records::<ReservationRecord>(&key::all(table::RESERVATION), usize::MAX)? {
        core.reservations().put(record);
    }
    for (drive, log) in receipts::all(tx)? {
        core.admissions().handle_receipt(drive, log);
    }
    if restored {
        return Ok(()); // its leases are over: the comparison says what is left to do
    }
    let (from, to) = key::all(table::ATTENTION);
    for (attention, _) in tx.scan(&from, &to, usize::MAX)? {
        let file = FileId(key::number(&attention, 1));
        if let Some(inode) = tx.inode(file)? {
            take_over(core, file, &inode);
        }
    }
    Ok(())
}

/// Leadership at the start, of a state that may have been restored, or found to be older.
fn first_leadership(restored: bool, older: bool, drives: usize, now_ms: u64) -> Leadership {
    match (restored, older) {
        (true, _) => Leadership::Comparing("waiting for the drives".to_owned()),
        (false, true) => Leadership::Older("it was found out before this start".to_owned()),
        (false, false) => Leadership::begin(drives, now_ms),
    }
}

/// The address and tokens that a serving manager reports to its caller.
pub fn ready(core: &Core, listener: &Listener) -> Ready {
    let known = core.tokens().all();
    let address = listener.local_address().to_string();
    ready_of(&known, &core.trust, core.cluster.cluster, &address)
        .expect("the start makes the tokens that are missing")
}

/// The report of a manager with these tokens; `None` if the first ones are not made yet.
pub(crate) fn ready_of(
    known: &[(TokenId, TokenRecord)],
    trust: &Trust,
    cluster: ClusterId,
    address: &str,
) -> Option<Ready> {
    let token = |found: Option<&(TokenId, TokenRecord)>| {
        let (id, record) = found?;
        Some(Token::lasting(record.role, trust.pin(), *id, record.secret.clone()))
    };
    Some(Ready {
        address: address.to_owned(),
        client_token: token(tokens::standing_admin(known))?,
        join_token: token(tokens::standing_join(known))?,
        cluster,
    })
}

/// Writes the files of the tokens.
pub(crate) fn write_tokens(dir: &Path, ready: &Ready) -> Result<(), ManagerError> {
    write_token(dir, CLIENT_TOKEN, &ready.client_token)?;
    write_token(dir, JOIN_TOKEN, &ready.join_token)
}

/// A state whose new term has begun.
struct Opened {
    cluster: ClusterRecord,
    authority: Option<AuthorityRecord>,
    term: u64,
    mark: u64,
    changes: u64,
    clock: ManagerClock,
    /// Drives on record that were not replaced.
    drives: usize,
    /// True if the state was found to be older than what drives have seen.
    older: bool,
    /// True if the state was restored, and is to be compared.
    restored: bool,
    /// True if clients have watched before this start.
    was_watched: bool,
    /// Lock sessions whose locks may be claimed, each with its client.
    sessions: Vec<(LockSession, ClientId)>,
}

fn open_state(db: &Db, speak_ms: u64, own_etcd: Option<&OwnEtcd>) -> Result<Opened, Refusal> {
    db.write(|tx| {
        let older = tx.number("older")? != 0;
        if own_etcd.is_some_and(|own| own.restored.load(Ordering::Acquire)) {
            tx.set(key::meta("restored"), &1u64);
        }
        let restored = tx.number("restored")? != 0;
        let later_ms = if restored { RESTORED_LATER_MS } else { 0 };
        let clock = ManagerClock::begin_later(tx.number("time")?, later_ms, speak_ms);
        let above = if restored { tx.number("term")?.saturating_add(TERMS_PASSED_OVER) } else { 0 };
        let (term, mark) = begin_term(tx, above)?;
        tx.begin_block()?;
        upgrade(tx)?;
        if restored {
            pass_over_numbers(tx)?;
        }
        let changes = tx.number("changes")?.saturating_add(1);
        tx.set(key::meta("changes"), &changes);
        let cluster = match tx.record(&key::meta("cluster"))? {
            Some(cluster) => cluster,
            None => {
                let fresh = ClusterRecord {
                    cluster: ClusterId(u128::from_le_bytes(random())),
                    client_secret: Key::new(random()),
                    join_secret: Key::new(random()),
                    created_ms: clock.now_ms(),
                };
                tx.set(key::meta("cluster"), &fresh);
                fresh
            }
        };
        let authority = trust::on_record(tx, own_etcd.map(|own| &own.authority))?;
        let drawn = Drawn {
            ids: [(); 2].map(|()| u64::from_le_bytes(random()).max(1)),
            secrets: [(); 2].map(|()| Key::new(random())),
        };
        tokens::complete(tx, &cluster, &drawn, clock.now_ms())?;
        let drives = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
        let drives = drives.iter().filter(|(_, drive)| drive.replaced_by == DriveId(0)).count();
        let was_watched = callbacks::was_watched(tx)?;
        let sessions = locking::sessions(tx, older || restored)?;
        Ok(Opened {
            cluster,
            authority,
            term,
            mark,
            changes,
            clock,
            drives,
            older,
            restored,
            was_watched,
            sessions,
        })
    })
}

/// Refuses a directory without a state that has tokens (its state was lost) or files that are no manager's. A
/// manager's first start finds neither.
fn refuse_without_state(dir: &Path) -> Result<(), ManagerError> {
    let failed = |source| ManagerError::File { path: dir.to_owned(), source };
    if fs::metadata(dir.join(STATE_FILE)).is_ok_and(|found| found.len() > 0) {
        return Ok(());
    }
    if dir.join(etcd::STATE_FILE).exists() {
        return Err(ManagerError::OnEtcd { dir: dir.to_owned() });
    }
    let mut strange = None;
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        match name.to_str().map(|name| name.strip_suffix(".new").unwrap_or(name)) {
            Some(CLIENT_TOKEN | JOIN_TOKEN) => return Err(ManagerError::StateGone { dir: dir.to_owned() }),
            Some(LOCK_FILE | STATE_FILE | backup::FILE | LOST_AND_FOUND) => {}
            _ => strange = Some(name),
        }
    }
    match strange {
        Some(name) => Err(ManagerError::NotAManager { dir: dir.to_owned(), holds: name }),
        None => Ok(()),
    }
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(braid_wire::Reason::Medium, error.to_string())
}

/// Writes a token's file atomically.
fn write_token(dir: &Path, name: &str, token: &Token) -> Result<(), ManagerError> {
    let path = dir.join(name);
    let text = format!("{token}\n");
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let new = dir.join(format!("{name}.new"));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(|source| ManagerError::File { path: path.clone(), source })
}
