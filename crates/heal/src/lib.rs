//! The healer in a drive's process: it brings the drive's own stale columns up to date, beside serving.
//!
//! The healer guarantees:
//! - It needs no operator: it asks the manager what is stale on its drive, and goes on until nothing is. A
//!   drive that returns, that takes the place of another, or that is given columns of a lost one is healed in
//!   the same way.
//! - Every drive heals its own columns, so the columns of a lost drive, which many others take over, are
//!   rebuilt by all of these at once.
//! - Units that the drive has found damaged are soon rebuilt in place, from the file's other columns.
//! - It writes no faster than the rate that the manager sets, and reports its progress to the manager.
//! - It keeps no state: the work that is done is known by the versions that the drive holds (PROTOCOL section
//!   7), so the healer may be stopped at any time.
//!
//! It refuses to know how a file is healed (the client library's executor does it, with plans of the
//! planner), and the drive's store, which it reaches by the drive's address like any other client.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_client::Client;
use braid_client::Config;
use braid_client::Error;
use braid_client::HealTally;
use braid_drive::Damage;
use braid_drive::DamagedPart;
use braid_drive::DriveError;
use braid_drive::Ready;
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::HealProgress;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// Interval between two reports to the manager, whose answers also tell the drive what is stale on it.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Number of stale files asked for at a time: many, as of these the manager lists those last that only
/// snapshots show.
const PAGE: u32 = 4096;
/// Maximum number of files healed at once: few enough that those which wait leave plan sets to the others.
const FILES_AT_ONCE: usize = 4;
/// Maximum number of plan sets in flight, over all files: half as many as a client may have, which has the
/// right of way.
const SETS: usize = 8;
/// Number of sessions with the manager: few, as the manager has places for eight of one drive, and heartbeats
/// need one (`manager::session_slots`).
const CONTROL_SESSIONS: usize = 2;
/// Number of bytes of a file in one plan set: few, so that a low rate is kept evenly.
const SET_BYTES: u64 = 1 << 20;
/// Pause before files that could not be healed are tried again: the first, and the longest.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// Runs a drive as [`braid_drive::run`] does, and heals it meanwhile.
pub async fn run(
    config: braid_drive::Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DriveError> {
    let (tell, told) = oneshot::channel::<Ready>();
    // The healing is aborted when this function ends: the next process begins unfinished work again.
    let mut healing = JoinSet::new();
    healing.spawn(async move {
        let Ok(started) = told.await else { return };
        let mut config = Config::with(started.managers.clone(), started.credentials.clone());
        (config.sets, config.set_bytes, config.control_sessions) = (SETS, SET_BYTES, CONTROL_SESSIONS);
        let damage = Arc::clone(&started.damage);
        // If no receiver is left, the drive is healed all the same.
        let _ = ready.send(started);
        heal(config, damage).await;
    });
    braid_drive::run(config, tell, shutdown).await
}

/// Heals the drive whose credentials are in `config`, for ever.
async fn heal(config: Config, damage: Arc<Damage>) {
    let drive = config.credentials.drive.to_string();
    let client = loop {
        match Client::connect(config.clone()).await {
            Ok(client) => break client,
            Err(error) => tracing::debug!(%error, "the healer cannot reach the manager"),
        }
        tokio::time::sleep(AGAIN_MIN).await;
    };
    let healer =
        Arc::new(Healer { client, drive, tally: HealTally::default(), done: HealWork::default(), damage });
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
    /// The drive's identity, as a string for the manager.
    drive: String,
    tally: HealTally,
    done: HealWork,
    damage: Arc<Damage>,
}

/// A file, and the result of healing it: `Ok` if its columns are up to date now.
type Healed = (FileId, Result<(), Error>);

/// Work done since the process began, and the errors of the last tries.
#[derive(Default)]
struct HealWork {
    files: AtomicU64,
    /// Errors of files that could not be healed, in the present pass and the last one.
    errors: Mutex<BTreeMap<FileId, String>>,
    /// Errors of damaged units that could not be repaired, at the last try.
    damage: Mutex<BTreeMap<FileId, String>>,
}

impl HealWork {
    /// The number of stale files on the drive. Where there is none, nothing is waited for any more: the files
    /// that could not be healed were removed, or are another drive's to heal.
    fn handle_stale(&self, stale: u64) {
        if stale == 0 {
            self.errors.lock().expect("no holder panics").clear();
        }
    }
}

impl Healer {
    /// Reports to the manager, for ever, and passes on the number of stale files that it answers.
    async fn report(&self, tell: &watch::Sender<u64>) {
        loop {
            let progress = HealProgress {
                files: self.done.files.load(Ordering::Relaxed),
                compared_bytes: self.tally.compared_bytes(),
                under_way_bytes: self.tally.under_way_bytes(),
                written_bytes: self.tally.written_bytes(),
                repaired: self.damage.repaired(),
                damaged: self.damage.damaged(),
                error: self.error(),
            };
            match self.client.report_heal(progress).await {
                Ok(orders) => {
                    self.tally.set_rate(orders.rate);
                    self.done.handle_stale(orders.stale);
                    let _ = tell.send(orders.stale);
                }
                Err(error) => tracing::debug!(%error, "the manager could not be told how far the heal is"),
            }
            tokio::time::sleep(REPORT_EVERY).await;
        }
    }

    /// Repairs damaged units, for ever, file by file. A unit that cannot be repaired comes again, later.
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
                    // The file was removed meanwhile.
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

    /// The error of a file or unit that failed at the last try; empty if all succeeded.
    fn error(&self) -> String {
        let stale = self.errors().first_key_value().map(|(_, why)| why.clone());
        let mut damage = self.done.damage.lock().expect("no holder panics");
        if self.damage.damaged() == 0 {
            damage.clear();
        }
        stale.or_else(|| damage.first_key_value().map(|(_, why)| why.clone())).unwrap_or_default()
    }

    /// Walks once over the stale files. Returns true if all could be healed.
    async fn pass(self: &Arc<Self>) -> bool {
        let mut running = JoinSet::new();
        let mut failed = BTreeMap::new();
        let mut after = FileId(0);
        loop {
            let files = match self.client.stale_files(&self.drive, after, PAGE).await {
                Ok(files) => files,
                Err(error) => {
                    tracing::debug!(%error, "the manager could not be asked which columns of the drive are stale");
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
            // The file was removed meanwhile, or a moved column is on another drive now, which heals it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_file_goes_with_the_last_stale_file() {
        let work = HealWork::default();
        work.errors.lock().unwrap().insert(FileId(7), "2 are away".to_owned());
        work.handle_stale(1);
        assert_eq!(work.errors.lock().unwrap().len(), 1);
        work.handle_stale(0);
        assert!(work.errors.lock().unwrap().is_empty(), "it was removed meanwhile");
    }
}
