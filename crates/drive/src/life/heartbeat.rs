//! Heartbeats: they tell the manager that the drive lives, and the manager renews its lease in answer.
//!
//! One is sent every quarter of the lease; the timeout for its answer is twice that, and at least
//! `INTERVAL_FIRST`. After a failure the next one comes soon, then at growing intervals up to a quarter of
//! the lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_layout::ReservationId;
use braid_store::Stat;
use braid_transport::{ControlSession, Limits, Managers, Mismatch, OwnKey, TransportError, host};
use braid_wire::Addresses;
use braid_wire::capability::CAPABILITY_MS;
use braid_wire::control::{
    Admission, CertifyDrive, ControlReply, ControlRequest, FileSystem, Heartbeat, HeartbeatReply, KeyTurn,
    PROMISES_TOLD_MAX, ProcessMark,
};
use braid_wire::data::{DriveParts, ScrubState};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::calibration::{Counters, Work};
use crate::core::{Core, Timed};
use crate::damage_checks;
use crate::error::DriveError;
use crate::life::clock::Moment;
use crate::life::identity::{Directory, Identity};
use crate::life::lease::Beat;
use crate::life::stall::Stall;
use crate::parity::forward;

/// Interval between heartbeats until the manager has said how long its lease is.
const INTERVAL_FIRST: Duration = Duration::from_millis(1500);
/// Interval between heartbeats while the manager grants no lease because it must finish something first.
const INTERVAL_WAITING: Duration = Duration::from_millis(250);
/// Longest interval between heartbeats while it is not known which of several managers leads.
const INTERVAL_SEARCHING: Duration = Duration::from_millis(400);
/// Interval at which the manager's progress is stored; every heartbeat reports it. If the manager loses less
/// progress than that while its drives are killed too, its mark reveals the loss only if the manager was
/// started in between.
const STORE_EVERY: Duration = Duration::from_secs(5);
/// Pause before the manager is asked again for a certificate that it did not give.
const CERTIFY_AGAIN: Duration = Duration::from_secs(60);
/// The shortest time between heartbeats, and the pause after the first failure.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The parts of a heartbeat that stay the same.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) addresses: Addresses,
    pub(crate) host: String,
    pub(crate) directory: String,
}

/// Sends heartbeats until `closing` is set. The value returned can then send the last one. An error ends the
/// drive: the manager is another cluster's, or another process is this drive.
pub(crate) async fn run(
    core: Arc<Core>,
    directory: Arc<Directory>,
    identity: Identity,
    managers: Managers,
    about: About,
    mut closing: watch::Receiver<bool>,
) -> Result<Option<Pulse>, DriveError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    let start = u64::from_le_bytes(random);
    core.start.store(start, Ordering::Relaxed);
    let mut pulse = Pulse {
        managers,
        directory,
        identity,
        about,
        start,
        process: host::own_mark(),
        session: None,
        certify_at: None,
        interval: INTERVAL_FIRST,
        restarted: true,
        is_held: true,
        failures: 0,
        stored: (Instant::now(), 0),
        stall: Stall::default(),
        told: None,
        ended: Vec::new(),
        saving: None,
    };
    loop {
        let wait = match pulse.beat(&core, Last::No).await {
            Ok(wait) => wait,
            Err(Stop::Failed(error)) => pulse.handle_failure(&error),
            Err(Stop::Fatal(error)) => return Err(error),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = closing.wait_for(|&closing| closing) => return Ok(Some(pulse)),
        }
    }
}

/// State of the drive before the answer: with a lease (`Yes`) or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WasServing {
    Yes,
    No,
}

/// Mark of the last heartbeat of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Yes,
    No,
}

enum Stop {
    Failed(TransportError),
    Fatal(DriveError),
}

impl From<TransportError> for Stop {
    fn from(error: TransportError) -> Stop {
        Stop::Failed(error)
    }
}

/// The state that heartbeats continue from.
pub(crate) struct Pulse {
    managers: Managers,
    directory: Arc<Directory>,
    identity: Identity,
    about: About,
    /// A random number that identifies this process.
    start: u64,
    /// Mark of this process, for a manager on the same machine.
    process: ProcessMark,
    session: Option<ControlSession>,
    /// Time at which the manager is asked for a certificate; `None`: at once.
    certify_at: Option<Instant>,
    interval: Duration,
    /// True until a heartbeat since the start is answered with a lease.
    restarted: bool,
    /// True until the manager has judged how far the log came: see [`is_judged`].
    is_held: bool,
    failures: u32,
    /// Time at which the manager's progress was last stored, and the stored value.
    stored: (Instant, u64),
    stall: Stall,
    /// Costs of the parts that the manager was told in this session.
    told: Option<DriveParts>,
    /// The reservations that the last answer told to be ended.
    ended: Vec<ReservationId>,
    /// Task that stores mere progress: no heartbeat waits for it.
    saving: Option<JoinHandle<Result<(), DriveError>>>,
}

impl Pulse {
    /// Tells the manager that the drive has served its last request.
    pub(crate) async fn farewell(mut self, core: &Arc<Core>) {
        if self.restarted {
            return;
        }
        if let Err(Stop::Failed(error)) = self.beat(core, Last::Yes).await {
            info!(managers = %self.managers, %error, "the manager was not told that the drive stops");
        }
    }

    /// Sends a heartbeat and handles its answer. Returns the time until the next heartbeat.
    async fn beat(&mut self, core: &Arc<Core>, last: Last) -> Result<Duration, Stop> {
        let stat = {
            let core = Arc::clone(core);
            // In a thread, as this asks the file system. If the disk hangs, heartbeats stop, as they should.
            host::spawn_blocking(move || {
                let device = core.calibration().device();
                let counters = device.and_then(Counters::now);
                let work = Work { commits: core.store.commit_totals(), counters };
                (core.store.stat().unwrap_or_default(), work)
            })
            .await
        };
        let (stat, work) = stat.map_err(|error| Stop::Fatal(DriveError::Task(error)))?;
        let mut session = match self.session.take() {
            Some(session) => session,
            None => {
                self.told = None;
                self.connect(core).await?
            }
        };
        self.certify(core, &mut session).await?;
        let sent = core.clock().now();
        let stalled_ms = self.stall.handle_look(core.store.commit_under_way(), sent);
        if stalled_ms > 0 {
            // Given up before the manager hears of the stall: from then on the manager may do without this
            // drive.
            core.lease().handle_stall();
        }
        let parts = self.parts(core, work, sent);
        let news = (self.told.as_ref() != Some(&parts)).then(|| parts.clone());
        let heartbeat = Heartbeat { stalled_ms, parts: news, ..self.heartbeat(core, &stat, last) };
        let reply = match session.call(&ControlRequest::Heartbeat(heartbeat)).await? {
            ControlReply::Heartbeat(reply) => reply,
            other => {
                let what = format!("{} in answer to a heartbeat", other.name());
                return Err(TransportError::Unexpected { address: session.address().to_owned(), what }.into());
            }
        };
        if reply.admission == Admission::Superseded {
            let dir = self.directory.path().to_owned();
            return Err(Stop::Fatal(DriveError::Superseded { dir, why: reply.detail }));
        }
        let is_numbered = reply.instance != self.identity.instance;
        if !core.lease().is_over(session.head()) {
            self.remember(core, &reply, stat.objects, last).await.map_err(Stop::Fatal)?;
        }
        let was_serving = if core.holds().is_ok() { WasServing::Yes } else { WasServing::No };
        let beat = core.lease().handle_heartbeat(sent, session.head(), &reply);
        if beat == Beat::Renewed {
            core.revoked().handle_time(session.head().now_ms);
        }
        let is_turned =
            beat != Beat::OldTerm && self.handle_key(core, &reply.key).await.map_err(Stop::Fatal)?;
        if beat != Beat::OldTerm {
            self.told = Some(parts);
            // Begun anew, it tells the new list of managers.
            self.session = (!session.is_outdated()).then_some(session);
            core.gate.end_promises(&reply.ended);
            self.ended.clone_from(&reply.ended);
            self.restarted &= reply.admission != Admission::Serve;
            if self.is_held && is_judged(&reply, is_numbered) {
                self.is_held = false;
                core.store.release();
                forward::start(core);
            }
        }
        if is_numbered && beat == Beat::Renewed && reply.lease_ms == 0 {
            // The manager waits to hear that the instance number is stored.
            return Ok(INTERVAL_MIN);
        }
        self.tell(beat, was_serving, &reply, last);
        // The manager is to hear soon that the key was turned: until then it makes capabilities with the one
        // before.
        Ok(if is_turned { INTERVAL_MIN } else { self.interval })
    }

    /// Turns the master key if the manager says so. If it was turned, takes note of when capabilities made
    /// with the one before end. All that is stored before it is used. Returns true if the key was turned.
    async fn handle_key(&mut self, core: &Core, on_record: &KeyTurn) -> Result<bool, DriveError> {
        let Some(master) = &self.identity.master else { return Ok(false) };
        if on_record.number != master.number {
            return Ok(false);
        }
        let (master, is_turned) = match &on_record.next {
            Some(random) => (master.turned(random), true),
            None if master.is_open_ended() => {
                let Some(now_ms) = core.manager_ms() else { return Ok(false) };
                let left_ms = if on_record.at_once { 0 } else { CAPABILITY_MS };
                (master.until(now_ms + left_ms), false)
            }
            None => return Ok(false),
        };
        self.identity.master = Some(master.clone());
        if let Some(saving) = self.saving.take() {
            saving.await??;
        }
        save(&self.directory, &self.identity).await?;
        core.keys.handle_turn(&master);
        if is_turned {
            info!(drive = %self.identity.name, number = master.number, "the drive's key was turned");
        }
        Ok(is_turned)
    }

    /// The costs of the drive's parts, after what the disk did lately.
    fn parts(&self, core: &Core, work: Work, now: Moment) -> DriveParts {
        let mut calibration = core.calibration();
        calibration.handle_traffic(core.traffic(), now);
        let differs = calibration.handle_work(work, now);
        let parts = calibration.parts();
        drop(calibration);
        let name = &self.identity.name;
        if differs && parts.derate < 1000 {
            warn!(drive = %name, permille = parts.derate, cause = %parts.derate_cause, "derated: fewer rates can be promised");
        } else if differs {
            info!(drive = %name, "no longer derated: its disk is as fast as calibrated");
        }
        parts
    }

    fn heartbeat(&self, core: &Core, stat: &Stat, last: Last) -> Heartbeat {
        let objects = damage_checks::lost_objects(core);
        Heartbeat {
            addresses: self.about.addresses.clone(),
            host: self.about.host.clone(),
            directory: self.about.directory.clone(),
            pid: host::process_id(),
            process: self.process.clone(),
            capacity_bytes: stat.capacity,
            used_bytes: stat.used,
            live_bytes: stat.live,
            free_bytes: stat.free,
            spare_bytes: stat.spare,
            file_system: FileSystem { device: stat.disk_device, free_bytes: stat.disk_free },
            restarted: self.restarted,
            epoch: core.readmission.epoch(),
            scrub: ScrubState { objects, ..core.scrub().state(stat) },
            io: core.io(),
            start: self.start,
            instance: self.identity.instance,
            log: core.store.last_record(),
            seen: self.identity.seen.clone(),
            closing: last == Last::Yes,
            manager_ms: core.lease().manager_ms(core.clock().now()).unwrap_or_default(),
            stalled_ms: 0,
            reads: core.latencies(Timed::Read).figures(core.clock().now()),
            commits: core.latencies(Timed::Commit).figures(core.clock().now()),
            counts: core.counts(),
            parts: None,
            promises: core.gate.promises(PROMISES_TOLD_MAX),
            ended: self.ended.clone(),
            key: self.identity.master.as_ref().map_or(0, |master| master.number),
        }
    }

    /// Stores what the manager said before anything is served under it: the drive's epoch and instance, and
    /// the progress of the manager's state. Mere progress is stored once in `STORE_EVERY`.
    async fn remember(
        &mut self,
        core: &Core,
        reply: &HeartbeatReply,
        objects: u64,
        last: Last,
    ) -> Result<(), DriveError> {
        if !matches!(reply.admission, Admission::Serve | Admission::Wait) {
            return Ok(());
        }
        let identity = &mut self.identity;
        let new_epoch = reply.epoch > core.readmission.epoch();
        let new_state = (reply.state.term, reply.state.mark) != (identity.seen.term, identity.seen.mark);
        identity.seen = reply.state.clone();
        let before = identity.instance;
        let (stored_at, stored) = self.stored;
        let progress = reply.state.changes != stored;
        let due = progress && (last == Last::Yes || stored_at.elapsed() >= STORE_EVERY);
        if !new_epoch && !new_state && !due && reply.instance == identity.instance {
            return Ok(());
        }
        if new_epoch {
            identity.epoch = reply.epoch;
            identity.was_out |= objects > 0;
        }
        identity.instance = reply.instance;
        let mere_progress = !new_epoch && !new_state && reply.instance == before && last == Last::No;
        if mere_progress && self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return Ok(()); // the disk is slow, or hangs: the next heartbeat says so
        }
        if let Some(saving) = self.saving.take() {
            // Saved in order, so that no older state is stored over this one.
            saving.await??;
        }
        let directory = Arc::clone(&self.directory);
        let now = identity.clone();
        let saving = tokio::spawn(async move { save(&directory, &now).await });
        if mere_progress {
            self.saving = Some(saving);
        } else {
            saving.await??;
        }
        self.stored = (Instant::now(), reply.state.changes);
        if new_epoch {
            core.readmission.handle_epoch(reply.epoch, objects);
        }
        Ok(())
    }

    /// Asks the manager for a certificate if there is none, or half of its time is over. Until there is one,
    /// what is private is not served.
    async fn certify(&mut self, core: &Core, session: &mut ControlSession) -> Result<(), Stop> {
        if host::is_simulated() || self.certify_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.certify_at = Some(Instant::now() + CERTIFY_AGAIN);
        let key = OwnKey::new();
        let made_s = host::wall_ms() / 1000;
        let asked = CertifyDrive { public_key: key.public_key() };
        let certificate = match session.call(&ControlRequest::CertifyDrive(asked)).await {
            Ok(ControlReply::Certificate(certificate)) => certificate,
            Ok(other) => {
                let what = format!("{} in answer to a request for a certificate", other.name());
                return Err(TransportError::Unexpected { address: self.managers.leading(), what }.into());
            }
            Err(TransportError::Refusal(refusal)) => {
                warn!(%refusal, "the manager gives no certificate: data of private volumes is not served");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if certificate.chain.is_empty() {
            return Ok(());
        }
        match core.certificate.set_certified(&key, certificate.chain, made_s) {
            Ok(()) => {
                let lasts = Duration::from_secs(certificate.lasts_s / 2).max(CERTIFY_AGAIN);
                self.certify_at = Instant::now().checked_add(lasts);
            }
            Err(error) => warn!(%error, "the manager's certificate cannot be used"),
        }
        Ok(())
    }

    async fn connect(&mut self, core: &Core) -> Result<ControlSession, Stop> {
        let directory = &self.directory;
        let identity = &mut self.identity;
        let credentials = core.keys.credentials();
        let reply = (self.interval * 2).max(INTERVAL_FIRST);
        let limits = Limits { reply, stall: reply, connect: reply, ..core.settings.limits };
        match ControlSession::find(&self.managers, credentials, &limits).await {
            Ok(session) => {
                // The session is authenticated: this is the manager, and it knows the drive.
                let is_news = identity.handle_managers(&self.managers);
                if is_news || !identity.joined {
                    identity.joined = true;
                    if let Some(saving) = self.saving.take() {
                        // Saved in order, so that no older state is stored over this one.
                        saving.await.map_err(|error| Stop::Fatal(error.into()))?.map_err(Stop::Fatal)?;
                    }
                    save(directory, identity).await.map_err(Stop::Fatal)?;
                }
                Ok(session)
            }
            // At the first contact the configuration is wrong. Later it means that another cluster's manager
            // has taken the port.
            Err(TransportError::WrongPeer { mismatch: Mismatch::Cluster { expected, found }, .. })
                if self.restarted =>
            {
                let dir = directory.path().to_owned();
                Err(Stop::Fatal(DriveError::OtherCluster { dir, here: expected, asked: found }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&mut self, beat: Beat, was_serving: WasServing, reply: &HeartbeatReply, last: Last) {
        let name = &self.identity.name;
        let manager = self.managers.leading();
        match beat {
            Beat::Renewed => {
                self.failures = 0;
                if reply.lease_ms == 0 {
                    if self.interval != INTERVAL_WAITING && last == Last::No {
                        info!(drive = %name, why = %reply.detail, "the manager gives no lease yet");
                    }
                    self.interval = INTERVAL_WAITING;
                    return;
                }
                let lease = Duration::from_millis(u64::from(reply.lease_ms));
                self.interval = (lease / 4).max(INTERVAL_MIN);
                if was_serving == WasServing::No {
                    info!(drive = %name, %manager, lease_ms = reply.lease_ms, "serving");
                }
            }
            Beat::Replaced => {
                if self.failures == 0 {
                    error!(drive = %name, "the drive was replaced and serves no more; stop it, and keep its directory until `braid heal` says that nothing is left");
                }
                // Logged once. Heartbeats go on, so that the manager shows the drive as present.
                self.failures = 1;
            }
            Beat::OldTerm => {
                // Log the first failure, then one in 64.
                if self.failures.is_multiple_of(64) {
                    let why = &reply.detail;
                    warn!(drive = %name, %manager, %why, "the manager that answered no longer leads, or has an older state");
                }
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    /// Returns the pause after a failure: it doubles each time, from the minimum up to the interval. Where
    /// there are several managers, another one leads soon, and the drive's lease must not lapse meanwhile.
    fn handle_failure(&mut self, error: &TransportError) -> Duration {
        let managers = &self.managers;
        self.session = None;
        self.failures = self.failures.saturating_add(1);
        // Log the first failure, then one in 64.
        if self.failures == 1 || self.failures.is_multiple_of(64) {
            warn!(%managers, %error, failures = self.failures, "the manager did not answer a heartbeat");
        }
        let most = if managers.are_several() { self.interval.min(INTERVAL_SEARCHING) } else { self.interval };
        (INTERVAL_MIN * 2u32.saturating_pow(self.failures.min(10))).min(most)
    }
}

/// Returns true if the manager has this process on record as the drive, and so has compared the end of its
/// log with what it knows of it (PROTOCOL R9). A process that waits for that keeps its instance number.
/// Until then nothing may be written: what was written would count for what the log has lost.
fn is_judged(reply: &HeartbeatReply, is_numbered: bool) -> bool {
    match reply.admission {
        Admission::Serve | Admission::Replaced => true,
        Admission::Wait => is_numbered,
        Admission::Superseded | Admission::ManagerOlder => false,
    }
}

async fn save(directory: &Arc<Directory>, identity: &Identity) -> Result<(), DriveError> {
    let directory = Arc::clone(directory);
    let identity = identity.clone();
    host::spawn_blocking(move || directory.save(&identity)).await?
}
