//! Starting and stopping: the directory, its lock, the tokens, the state, the first transaction.
//!
//! The directory holds `LOCK` (locked while a manager runs), `manager.redb` (the state), `client.token` and `join.token`. All
//! but the lock are readable to their owner only.

use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_layout::{ClusterId, DriveId, FileId};
use braid_transport::{Limits, Listener, TransportError, process, raise_descriptors};
use braid_wire::Refusal;
use braid_wire::capability::Key;
use braid_wire::token::{Standing, Token};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::core::Core;
use crate::drives::{DriveTable, margin_ms};
use crate::embedded::EmbeddedKv;
use crate::grants::CAPABILITY_MS;
use crate::kv::{Db, Kv, KvError, Tx};
use crate::leadership::Leadership;
use crate::leases::Leases;
use crate::members::has_untold;
use crate::private;
use crate::reach::Reach;
use crate::room::Room;
use crate::schema::{ClusterRecord, DriveRecord, InodeRecord, key, table};
use crate::serve::serve;
use crate::sweep::{extend_time, sweep};
use crate::time::{AHEAD_MS, ManagerClock, boot_ms};

/// All of a manager's state, in its directory.
pub(crate) const STATE_FILE: &str = "manager.redb";
const CLIENT_TOKEN: &str = "client.token";
const JOIN_TOKEN: &str = "join.token";
/// How much later time begins on a restored state. The manager that was lost may have told times up to its bound, which was that much
/// ahead of the wall clock, and have signed capabilities then: they have expired. Drives get leases before they are told what went out
/// since the backup, and would serve it by them.
const RESTORED_LATER_MS: u64 = AHEAD_MS + CAPABILITY_MS;
/// How long a stop waits for the transactions under way.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

/// A restored state begins so many terms later: a drive that does not come to be compared may have seen some that no other has.
const TERMS_PASSED_OVER: u64 = 1 << 20;

/// How to run a manager.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where its state is kept; made if it is not there.
    pub dir: PathBuf,
    /// Where it listens: `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Length of a drive's heartbeat lease, in milliseconds. A drive that dies is out of the way of writers after this;
    /// shorter finds dead drives sooner and takes a drive out for a shorter pause. Heartbeats come at a quarter of it.
    pub lease_ms: u32,
    /// Length of a client's lease on a file, in milliseconds: how long a writer that died keeps others out.
    pub client_lease_ms: u32,
}

/// A manager that serves.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Where it listens.
    pub address: String,
    /// What clients prove.
    pub client_token: Token,
    /// What drives prove to join.
    pub join_token: Token,
    /// The cluster.
    pub cluster: ClusterId,
}

/// Why a manager cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Another manager runs on the directory.
    #[error("{0} is in use by another manager: stop it, or choose another directory")]
    InUse(PathBuf),
    /// A file of the directory could not be made, read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state cannot be opened.
    #[error(
        "{0}; if it is damaged, move it away and restore a backup: braid manager restore BACKUP --dir DIR"
    )]
    State(#[from] KvError),
    /// There are tokens and no state: it was lost. A manager that began anew would know none of the cluster's files.
    #[error(
        "{dir} has the tokens of a cluster, and its state ({STATE_FILE}) is missing or empty: put it back, or restore a backup: \
         braid manager restore BACKUP --dir {dir}; to found a new cluster, use an empty directory"
    )]
    StateGone {
        /// The directory.
        dir: PathBuf,
    },
    /// A backup is restored only where there is no state.
    #[error("{0} is there already: move it away first, if the backup is to take its place")]
    StateThere(PathBuf),
    /// A file is no backup, or damaged.
    #[error("the backup {path}: {what}")]
    Backup {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The state cannot be brought up to a start.
    #[error("cannot start: {0}")]
    Start(Refusal),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] TransportError),
}

impl Config {
    /// A manager in this directory, on this address, with the default leases: 6 s for drives, 10 s for clients.
    pub fn new(dir: impl Into<PathBuf>, listen: impl Into<String>) -> Config {
        Config { dir: dir.into(), listen: listen.into(), lease_ms: 6000, client_lease_ms: 10_000 }
    }
}

/// Runs a manager until `shutdown` is done. Says when it serves. When it returns, the directory is free.
pub async fn run(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let dir = &config.dir;
    private::make_dir_all(dir).map_err(|source| ManagerError::File { path: dir.clone(), source })?;
    let _lock = lock(dir)?;
    private::tighten(dir);
    refuse_without_state(dir)?;
    // Before the state is touched: a port in use costs nothing.
    let room = Room::new(raise_descriptors(Room::descriptors()));
    let listener = Listener::bind_with(&config.listen, Limits::default(), room.capacity()).await?;
    let path = dir.join(STATE_FILE);
    let kv = tokio::task::spawn_blocking(move || EmbeddedKv::open(&path));
    let mut kv = kv.await.map_err(|error| ManagerError::Start(failed(&error)))??;
    let closed = kv.closed();
    let core = start(Arc::new(kv), &config, room).await.map_err(ManagerError::Start)?;
    let told = self::ready(&core, &listener);
    write_token(dir, CLIENT_TOKEN, &told.client_token)?;
    write_token(dir, JOIN_TOKEN, &told.join_token)?;
    tracing::info!(address = %told.address, cluster = %told.cluster, term = core.term(), "the manager serves");
    let _ = ready.send(told);
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(Arc::clone(&core), listener));
    tasks.spawn(sweep(Arc::clone(&core)));
    shutdown.await;
    tasks.shutdown().await;
    drop(core);
    // A transaction that was under way ends on its own thread.
    if timeout(CLOSE_WAIT, closed).await.is_err() {
        tracing::warn!("a transaction takes long: the state may be in use for a while");
    }
    tracing::info!("the manager has stopped");
    Ok(())
}

/// Brings the state up to a new term, and the tables from it.
pub async fn start(kv: Arc<dyn Kv>, config: &Config, room: Room) -> Result<Arc<Core>, Refusal> {
    let db = Db::new(kv);
    let first = db.clone();
    let speak_ms = u64::from(config.lease_ms) + margin_ms(u64::from(config.lease_ms));
    let opened = tokio::task::spawn_blocking(move || open_state(&first, speak_ms)).await;
    let Opened { cluster, term, mark, changes, clock, drives, older, restored } =
        opened.map_err(|error| failed(&error))??;
    // What earlier managers promised lapses a lease after this start; the first of all had none before it.
    let promised_ms = if term == 1 { 0 } else { clock.now_ms() };
    let leadership = match (restored, older) {
        (true, _) => Leadership::Comparing("waiting for the drives".to_owned()),
        (false, true) => Leadership::Older("found out before this start".to_owned()),
        (false, false) => Leadership::begin(drives, clock.now_ms()),
    };
    let core = Arc::new(Core {
        reach: Reach::new(cluster.cluster),
        room,
        db,
        cluster,
        term: Mutex::new((term, mark)),
        changes: AtomicU64::new(changes),
        leadership: Mutex::new(leadership),
        admissions: Mutex::default(),
        client_lease_ms: config.client_lease_ms,
        directory: config.dir.display().to_string(),
        started_boot_ms: boot_ms(),
        wake: Notify::new(),
        bad_tokens: AtomicU64::new(0),
        backups: Semaphore::new(1),
        drives: Mutex::new(DriveTable::new(config.lease_ms, promised_ms, clock.pauses())),
        leases: Mutex::new(Leases::new(config.client_lease_ms, clock.pauses())),
        operations: Mutex::default(),
        unfinished: Mutex::default(),
        files: Mutex::default(),
        clock,
    });
    extend_time(&core).await?;
    core.read(move |core, tx| {
        for (_, record) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
            // A restored state does not know what drives were told; it is put in order when it has been compared.
            let untold = !restored && has_untold(tx, record.drive)?;
            core.drives().insert(record, untold);
        }
        if restored {
            return Ok(()); // its leases are over: the comparison says what is left to do
        }
        let (from, to) = key::all(table::ATTENTION);
        for (attention, _) in tx.scan(&from, &to, usize::MAX)? {
            let file = FileId(key::number(&attention, 1));
            let inode: Option<InodeRecord> = tx.record(&key::inode(file))?;
            match inode {
                Some(inode) if inode.is_left() => core.leases().leave(file, inode.lease),
                Some(inode) if inode.held => core.leases().grant(file, inode.lease, core.running_ms()),
                Some(inode) if inode.unfenced => drop(core.unfinished().insert(file)),
                _ => {}
            }
        }
        Ok(())
    })
    .await?;
    Ok(core)
}

/// What a manager that serves has to tell.
pub fn ready(core: &Core, listener: &Listener) -> Ready {
    Ready {
        address: listener.local_address().to_string(),
        client_token: token(&core.cluster, Standing::Client),
        join_token: token(&core.cluster, Standing::Join),
        cluster: core.cluster.cluster,
    }
}

/// A state that is brought up to a new term.
struct Opened {
    cluster: ClusterRecord,
    term: u64,
    mark: u64,
    changes: u64,
    clock: ManagerClock,
    /// Drives on record that were not replaced.
    drives: usize,
    /// It was found to be older than what drives have seen.
    older: bool,
    /// It was restored, and is to be compared.
    restored: bool,
}

fn open_state(db: &Db, speak_ms: u64) -> Result<Opened, Refusal> {
    db.write(|tx| {
        let (older, restored) = (tx.number("older")? != 0, tx.number("restored")? != 0);
        let later_ms = if restored { RESTORED_LATER_MS } else { 0 };
        let clock = ManagerClock::begin_later(tx.number("time")?, later_ms, speak_ms);
        let above = if restored { tx.number("term")? + TERMS_PASSED_OVER } else { 0 };
        let (term, mark) = begin_term(tx, above)?;
        tx.begin_block()?;
        let changes = tx.number("changes")? + 1;
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
        let drives = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
        let drives = drives.iter().filter(|(_, drive)| drive.replaced_by == DriveId(0)).count();
        Ok(Opened { cluster, term, mark, changes, clock, drives, older, restored })
    })
}

/// Stores the next term, above `above` too, with a mark of its own. The term of a restored state is kept: see
/// [`is_of_lost_state`].
pub(crate) fn begin_term(tx: &mut Tx, above: u64) -> Result<(u64, u64), Refusal> {
    let (term, mark) = (tx.number("term")?.max(above) + 1, u64::from_le_bytes(random()));
    if tx.number("restored")? != 0 {
        tx.set(key::meta("restored_term"), &term);
    }
    tx.set(key::meta("term"), &term);
    tx.set(key::term(term), &mark);
    Ok((term, mark))
}

/// Whether a term that a drive has seen is one of the state that was lost when this one was restored. A drive that was away
/// during the comparison brings such a term for the first time when it returns, and knows nothing newer.
pub(crate) fn is_of_lost_state(tx: &Tx, term: u64) -> Result<bool, Refusal> {
    Ok(term < tx.number("restored_term")?)
}

/// A first start finds neither state nor tokens.
fn refuse_without_state(dir: &Path) -> Result<(), ManagerError> {
    let has_state = fs::metadata(dir.join(STATE_FILE)).is_ok_and(|found| found.len() > 0);
    let has_tokens = [CLIENT_TOKEN, JOIN_TOKEN].iter().any(|name| dir.join(name).exists());
    if has_tokens && !has_state {
        return Err(ManagerError::StateGone { dir: dir.to_owned() });
    }
    Ok(())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

fn token(cluster: &ClusterRecord, standing: Standing) -> Token {
    let secret = if standing == Standing::Client { &cluster.client_secret } else { &cluster.join_secret };
    Token { standing, cluster: cluster.cluster, secret: secret.clone() }
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(braid_wire::Reason::Medium, error.to_string())
}

pub(crate) fn lock(dir: &Path) -> Result<File, ManagerError> {
    let path = dir.join("LOCK");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|source| ManagerError::File { path: path.clone(), source })?;
    match process::lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(ManagerError::InUse(dir.to_owned())),
        Err(source) => Err(ManagerError::File { path, source }),
    }
}

/// Writes a token's file whole or not at all.
fn write_token(dir: &Path, name: &str, token: &Token) -> Result<(), ManagerError> {
    let (path, text) = (dir.join(name), format!("{token}\n"));
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
