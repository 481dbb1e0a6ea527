//! What a drive's process does beside serving: it brings the drive's own stale columns up to date.
//!
//! What it guarantees
//! - It needs nobody: it asks the manager what is stale on its drive, and goes on until nothing is. A drive
//!   that returns, that takes the place of another, or that is given columns of a lost one is healed alike.
//! - Every drive heals its own columns, so the columns of a lost drive, which many others take over, are
//!   rebuilt by all of these at once.
//! - Units that the drive has found damaged are made anew in place, from the file's other columns, soon.
//! - It writes no faster than the manager says, and tells it how far it is.
//! - It keeps nothing: what is done is known by the versions that the drive holds (PROTOCOL section 7), so it
//!   may be stopped at any time.
//!
//! What it refuses to know: how a file is healed (the client library's executor does it, with plans of the
//! planner), and the drive's store, which it reaches by the drive's address like anybody else.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_client::{Client, Config, Error, HealTally};
use braid_drive::{Damage, DamagedPart, DriveError, Ready};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::HealProgress;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// Between two reports to the manager, which are also how the drive learns what is stale on it.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Files asked for at a time.
const PAGE: u32 = 256;
/// Files healed at once: few enough that those which wait leave plan sets to the others.
const FILES_AT_ONCE: usize = 4;
/// Plan sets in flight, over all files: half as many as a client may have, which has the right of way.
const SETS: usize = 8;
/// Sessions with the manager: few, as the manager has places for eight of one drive, and heartbeats need one
/// (`manager::session_slots`).
const CONTROL_SESSIONS: usize = 2;
/// Bytes of a file in one plan set: few, so that a low rate is kept evenly.
const SET_BYTES: u64 = 1 << 20;
/// The pause before files that could not be healed are tried again: at first, and at most.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Runs a drive as [`braid_drive::run`] does, and heals it meanwhile.
pub async fn run(
    config: braid_drive::Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DriveError> {
    let (tell, told) = oneshot::channel::<Ready>();
    // Aborted when this ends: what it has begun is begun again by the next process.
    let mut healing = JoinSet::new();
    healing.spawn(async move {
        let Ok(started) = told.await else { return };
        let mut config = Config::with(&started.manager, started.credentials.clone());
        (config.sets, config.set_bytes, config.control_sessions) = (SETS, SET_BYTES, CONTROL_SESSIONS);
        let damage = Arc::clone(&started.damage);
        // If nobody waits for it, the drive is healed all the same.
        let _ = ready.send(started);
        heal(config, damage).await;
    });
    braid_drive::run(config, tell, shutdown).await
}

/// Heals the drive whose credentials the settings have, for ever.
async fn heal(config: Config, damage: Arc<Damage>) {
    let drive = config.credentials.drive.to_string();
    let client = loop {
        match Client::connect(config.clone()).await {
            Ok(client) => break client,
            Err(error) => tracing::debug!(%error, "the manager is not there for the healer"),
        }
        tokio::time::sleep(AGAIN_MIN).await;
    };
    let healer =
        Arc::new(Healer { client, drive, tally: HealTally::default(), done: Done::default(), damage });
    let (tell, mut stale) = watch::channel(0);
    let reporting = Arc::clone(&healer);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { reporting.report(&tell).await });
    let repairing = Arc::clone(&healer);
    tasks.spawn(async move { repairing.repair().await });
    let mut pause = AGAIN_MIN;
    while stale.wait_for(|stale| *stale > 0).await.is_ok() {
        if healer.pass().await {
            pause = AGAIN_MIN;
            // The next report says whether there is more.
            stale.mark_unchanged();
            if stale.changed().await.is_err() {
                return;
            }
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }
}

struct Healer {
    client: Client,
    /// The drive's identity, as the manager takes it.
    drive: String,
    tally: HealTally,
    done: Done,
    damage: Arc<Damage>,
}

/// A file, and whether its columns are up to date now.
type Healed = (FileId, Result<(), Error>);

/// What was done since the process began.
#[derive(Default)]
struct Done {
    files: AtomicU64,
    /// Why files could not be healed, in the present pass and the last one.
    errors: Mutex<BTreeMap<FileId, String>>,
    /// Why damaged units could not be repaired, at the last try.
    damage: Mutex<BTreeMap<FileId, String>>,
}

impl Healer {
    /// Reports, for ever, and tells what the manager answers.
    async fn report(&self, tell: &watch::Sender<u64>) {
        loop {
            let progress = HealProgress {
                files: self.done.files.load(Ordering::Relaxed),
                compared_bytes: self.tally.compared_bytes(),
                written_bytes: self.tally.written_bytes(),
                repaired: self.damage.repaired(),
                damaged: self.damage.damaged(),
                error: self.error(),
            };
            match self.client.report_heal(progress).await {
                Ok(orders) => {
                    self.tally.set_rate(orders.rate);
                    let _ = tell.send(orders.stale);
                }
                Err(error) => tracing::debug!(%error, "the manager was not told how far the heal is"),
            }
            tokio::time::sleep(REPORT_EVERY).await;
        }
    }

    /// Has damaged units made anew, for ever, file by file. What cannot be repaired comes again, later.
    async fn repair(&self) {
        loop {
            let mut files: BTreeMap<FileId, Vec<DamagedPart>> = BTreeMap::new();
            for part in self.damage.wanted().await {
                files.entry(part.file).or_default().push(part);
            }
            for (file, parts) in files {
                let units: Vec<_> = parts.iter().map(|part| (part.object, part.unit)).collect();
                let why = match self.client.repair_units(file, &units, &self.tally).await {
                    Ok(left) => left.into_iter().next().map(|((_, unit), why)| {
                        format!("unit {unit} of file number {file} is damaged and cannot be repaired: {why}")
                    }),
                    // It was removed meanwhile.
                    Err(error) if error.reason() == Some(Reason::NotFound) => None,
                    Err(error) => {
                        Some(format!("damaged units of file number {file} are not repaired yet: {error}"))
                    }
                };
                if let Some(why) = &why {
                    tracing::warn!(%file, %why, "not all of the file's damaged units are repaired");
                }
                let mut damage = self.done.damage.lock().expect("no holder panics");
                match why {
                    Some(why) => drop(damage.insert(file, why)),
                    None => drop(damage.remove(&file)),
                }
                drop(damage);
                parts.iter().for_each(|part| self.damage.tried(part));
            }
        }
    }

    /// Why something could not be done, at the last try; empty: all could.
    fn error(&self) -> String {
        let stale = self.errors().first_key_value().map(|(_, why)| why.clone());
        let mut damage = self.done.damage.lock().expect("no holder panics");
        if self.damage.damaged() == 0 {
            damage.clear();
        }
        stale.or_else(|| damage.first_key_value().map(|(_, why)| why.clone())).unwrap_or_default()
    }

    /// One walk over the stale files. Returns whether all could be healed.
    async fn pass(self: &Arc<Self>) -> bool {
        let mut running = JoinSet::new();
        let mut failed = BTreeMap::new();
        let mut after = FileId(0);
        loop {
            let files = match self.client.stale_files(&self.drive, after, PAGE).await {
                Ok(files) => files,
                Err(error) => {
                    tracing::debug!(%error, "what is stale on the drive is not known");
                    return false;
                }
            };
            let Some(&last) = files.last() else { break };
            after = last;
            for file in files {
                if running.len() >= FILES_AT_ONCE {
                    self.ended(running.join_next().await, &mut failed);
                }
                let healer = Arc::clone(self);
                running.spawn(async move { (file, healer.client.heal_file(file, &healer.tally).await) });
            }
        }
        while !running.is_empty() {
            self.ended(running.join_next().await, &mut failed);
        }
        let all = failed.is_empty();
        *self.errors() = failed;
        all
    }

    fn ended(
        &self,
        ended: Option<Result<Healed, tokio::task::JoinError>>,
        failed: &mut BTreeMap<FileId, String>,
    ) {
        match ended {
            Some(Ok((_, Ok(())))) => drop(self.done.files.fetch_add(1, Ordering::Relaxed)),
            // It was removed meanwhile, or what moved is on another drive now, which heals it.
            Some(Ok((_, Err(error)))) if error.reason() == Some(Reason::NotFound) => {}
            Some(Ok((file, Err(error)))) => {
                tracing::info!(%file, %error, "the file's columns are not up to date yet");
                self.errors().insert(file, error.to_string());
                failed.insert(file, error.to_string());
            }
            Some(Err(error)) => tracing::error!(%error, "healing a file failed within the drive"),
            None => {}
        }
    }

    fn errors(&self) -> std::sync::MutexGuard<'_, BTreeMap<FileId, String>> {
        self.done.errors.lock().expect("no holder panics")
    }
}
