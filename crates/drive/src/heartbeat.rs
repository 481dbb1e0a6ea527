//! Heartbeats: the drive's word to the manager that it lives, and the lease it gets for it.
//!
//! One every quarter of the lease. A heartbeat's answer is waited for at most half a lease; after a failure the next comes
//! soon, then later and later, but never later than a quarter of a lease.

use std::sync::Arc;
use std::time::Duration;

use braid_transport::{ControlSession, Credentials, Limits, Mismatch, TransportError};
use braid_wire::control::{ControlReply, ControlRequest, Heartbeat, HeartbeatReply};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::core::Core;
use crate::error::DriveError;
use crate::identity::{Directory, Identity};
use crate::lease::Beat;

/// Between heartbeats until the manager has told its lease.
const INTERVAL_FIRST: Duration = Duration::from_millis(1500);
/// Between heartbeats while the manager gives no lease: it has something to put in order first.
const INTERVAL_WAITING: Duration = Duration::from_millis(250);
/// The shortest time between heartbeats, and the first after a failure.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// What of a heartbeat stays the same.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) directory: String,
}

/// Sends heartbeats until `closing` is set. An error ends the drive: the manager is another cluster's.
pub(crate) async fn run(
    core: Arc<Core>,
    directory: Arc<Directory>,
    mut identity: Identity,
    manager: String,
    about: About,
    mut closing: watch::Receiver<bool>,
) -> Result<(), DriveError> {
    let mut pulse = Pulse { manager, session: None, interval: INTERVAL_FIRST, restarted: true, failures: 0 };
    loop {
        let wait = match pulse.beat(&core, &directory, &mut identity, &about).await {
            Ok(()) => pulse.interval,
            Err(Stop::Failed(error)) => pulse.handle_failure(&error),
            Err(Stop::Fatal(error)) => return Err(error),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = closing.wait_for(|&closing| closing) => return Ok(()),
        }
    }
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

struct Pulse {
    /// Where the manager is to be found.
    manager: String,
    session: Option<ControlSession>,
    interval: Duration,
    /// No heartbeat was answered since the start.
    restarted: bool,
    failures: u32,
}

impl Pulse {
    async fn beat(
        &mut self,
        core: &Arc<Core>,
        directory: &Arc<Directory>,
        identity: &mut Identity,
        about: &About,
    ) -> Result<(), Stop> {
        let stat = {
            let core = Arc::clone(core);
            // In a thread, as it asks the file system; a disk that hangs ends the heartbeats, as it should.
            tokio::task::spawn_blocking(move || core.store.stat().unwrap_or_default()).await
        };
        let stat = stat.map_err(|error| Stop::Fatal(DriveError::Task(error)))?;
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.connect(core, directory, identity).await?,
        };
        let heartbeat = Heartbeat {
            address: about.address.clone(),
            host: about.host.clone(),
            directory: about.directory.clone(),
            pid: std::process::id(),
            capacity_bytes: stat.capacity,
            used_bytes: stat.used,
            live_bytes: stat.live,
            restarted: self.restarted,
            epoch: core.gate.epoch(),
            scrub: core.scrub().state(&stat),
            io: core.means(),
        };
        let sent = core.clock().now();
        let reply = match session.call(&ControlRequest::Heartbeat(heartbeat)).await? {
            ControlReply::Heartbeat(reply) => reply,
            other => {
                let what = format!("{} in answer to a heartbeat", other.name());
                return Err(TransportError::Unexpected { address: self.manager.clone(), what }.into());
            }
        };
        if reply.epoch > core.gate.epoch() {
            adopt_epoch(core, directory, identity, reply.epoch, stat.objects).await.map_err(Stop::Fatal)?;
        }
        let was_serving = core.holds().is_ok();
        let beat = core.lease().handle_heartbeat(sent, session.head(), &reply);
        self.tell(beat, was_serving, identity, &reply);
        if beat != Beat::OldTerm {
            self.session = Some(session);
            self.restarted = false;
        }
        Ok(())
    }

    async fn connect(
        &self,
        core: &Core,
        directory: &Arc<Directory>,
        identity: &mut Identity,
    ) -> Result<ControlSession, Stop> {
        let Some(master) = &identity.master else {
            return Err(Stop::Fatal(DriveError::NoToken(directory.path().to_owned())));
        };
        let credentials = Credentials::of_drive(identity.cluster, identity.drive, master);
        let reply = (self.interval * 2).max(INTERVAL_FIRST);
        let limits = Limits { reply, stall: reply, connect: reply, ..core.settings.limits };
        match ControlSession::connect(&self.manager, credentials, &limits).await {
            Ok(session) => {
                // The session is proven: this is the manager, and it knows the drive.
                if !identity.joined || identity.manager.as_ref() != Some(&self.manager) {
                    identity.joined = true;
                    identity.manager = Some(self.manager.clone());
                    save(directory, identity).await.map_err(Stop::Fatal)?;
                }
                Ok(session)
            }
            // At the first contact it is a mistake in the configuration; later, somebody else's on the manager's port.
            Err(TransportError::WrongPeer { mismatch: Mismatch::Cluster { expected, found }, .. })
                if self.restarted =>
            {
                let dir = directory.path().to_owned();
                Err(Stop::Fatal(DriveError::OtherCluster { dir, here: expected, asked: found }))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn tell(&mut self, beat: Beat, was_serving: bool, identity: &Identity, reply: &HeartbeatReply) {
        let (name, manager) = (&identity.name, &self.manager);
        match beat {
            Beat::Renewed => {
                self.failures = 0;
                if reply.lease_ms == 0 {
                    self.interval = INTERVAL_WAITING;
                    return;
                }
                let lease = Duration::from_millis(u64::from(reply.lease_ms));
                self.interval = (lease / 4).max(INTERVAL_MIN);
                if !was_serving {
                    info!(drive = %name, %manager, lease_ms = reply.lease_ms, "serving");
                }
            }
            Beat::Replaced => {
                if self.failures == 0 {
                    error!(drive = %name, "the drive was replaced and serves no more; stop it and empty its directory");
                }
                // Told once; the heartbeats go on, so that the manager shows that it is there.
                self.failures = 1;
            }
            Beat::OldTerm => warn!(drive = %name, %manager, "a manager that no longer leads answered"),
        }
    }

    /// How long to wait after a failure: doubled each time, from the shortest to the interval.
    fn handle_failure(&mut self, error: &TransportError) -> Duration {
        let manager = &self.manager;
        self.session = None;
        self.failures = self.failures.saturating_add(1);
        // One line for the first failure, and one now and then.
        if self.failures == 1 || self.failures.is_multiple_of(64) {
            warn!(%manager, %error, failures = self.failures, "no heartbeat");
        }
        (INTERVAL_MIN * 2u32.saturating_pow(self.failures.min(10))).min(self.interval)
    }
}

/// Stores a higher epoch before anything is served under it.
async fn adopt_epoch(
    core: &Core,
    directory: &Arc<Directory>,
    identity: &mut Identity,
    epoch: u64,
    objects: u64,
) -> Result<(), DriveError> {
    identity.epoch = epoch;
    identity.was_out |= objects > 0;
    save(directory, identity).await?;
    core.gate.handle_epoch(epoch, objects);
    Ok(())
}

async fn save(directory: &Arc<Directory>, identity: &Identity) -> Result<(), DriveError> {
    let (directory, identity) = (Arc::clone(directory), identity.clone());
    tokio::task::spawn_blocking(move || directory.save(&identity)).await?
}
