//! A real drive on loopback, a small manager in this process that answers its heartbeats, and grants for
//! requests to it.
#![expect(dead_code, unreachable_pub, reason = "every test file uses a part of it")]

pub mod manager;
pub mod requests;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use braid_drive::Clock;
use braid_drive::Config;
use braid_drive::DriveError;
use braid_drive::Ready;
use braid_drive::Sending;
use braid_drive::Settings;
use braid_layout::{ClusterId, DriveId};
use braid_store::disk::is_residency_told;
use braid_testing::answer;
use braid_transport::{DriveSession, Limits, TransportError};
use braid_wire::control::Grant;
use braid_wire::data::{Address, DriveReply, DriveRequest, GetAttributes};
use braid_wire::{Key, Reason};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use manager::Manager;

pub const CLUSTER: ClusterId = ClusterId(0xc1);
/// The manual clock's first value.
pub const BOOT_MS: u64 = 1_000_000;
/// Longest wait of a test for something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running drive.
pub struct Drive {
    pub address: SocketAddr,
    pub id: DriveId,
    pub name: String,
    pub cluster: ClusterId,
    pub master: Key,
    pub clock: Arc<AtomicU64>,
    shutdown: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), DriveError>>,
}

/// The ways of sending that this system supports.
pub static SENDING: LazyLock<Vec<Sending>> = LazyLock::new(|| {
    let sendfile = is_residency_told().then_some(Sending::Sendfile);
    [Some(Sending::Copy), sendfile].into_iter().flatten().collect()
});

/// Settings for a test: a clock that stands still, no syncs, small segments, and reads sent by sendfile where
/// possible.
pub fn settings() -> (Settings, Arc<AtomicU64>) {
    let clock = Arc::new(AtomicU64::new(BOOT_MS));
    let settings = Settings {
        sync: false,
        segment_bytes: Some(1 << 20),
        clock: Clock::Manual(Arc::clone(&clock)),
        join_wait: Duration::from_secs(2),
        sending: *SENDING.last().expect("one of them"),
        ..Settings::default()
    };
    (settings, clock)
}

pub fn config(dir: &Path, manager: &Manager, settings: Settings) -> Config {
    let mut config = Config::new(dir, "127.0.0.1:0");
    config.manager = Some(manager.address.clone());
    config.token = Some(manager.join_token());
    config.settings = settings;
    config
}

impl Drive {
    /// Starts a drive in `dir` with test settings, and waits until it serves.
    pub async fn start(dir: &Path, manager: &Manager) -> Drive {
        let (settings, clock) = settings();
        Drive::start_with(config(dir, manager, settings), clock, manager).await
    }

    pub async fn start_with(config: Config, clock: Arc<AtomicU64>, manager: &Manager) -> Drive {
        let drive = Drive::listening(config, clock, manager).await;
        drive.until_serving().await;
        drive
    }

    /// Starts a drive, and waits until it listens.
    pub async fn listening(config: Config, clock: Arc<AtomicU64>, manager: &Manager) -> Drive {
        let (ready, when_ready) = oneshot::channel();
        let (shutdown, when_shut) = oneshot::channel::<()>();
        let running = tokio::spawn(braid_drive::run(config, ready, async {
            let _ = when_shut.await;
        }));
        let Ok(Ready { drive, name, address, .. }) = within(when_ready).await else {
            panic!("the drive did not start: {:?}", running.await);
        };
        let cluster = manager.state().cluster;
        let master = manager.master(drive).expect("the drive has joined");
        Drive { address, id: drive, name, cluster, master, clock, shutdown: Some(shutdown), running }
    }

    pub async fn session(&self) -> DriveSession {
        DriveSession::connect(&self.address.to_string(), self.id, self.cluster, &Limits::default())
            .await
            .unwrap()
    }

    /// Waits until a request is served.
    pub async fn until_serving(&self) {
        self.until(|reply| reply.is_ok()).await;
    }

    /// Waits until requests are refused for `reason`.
    pub async fn until_refused(&self, reason: Reason) {
        self.until(
            |reply| matches!(reply, Err(TransportError::Refusal(refusal)) if refusal.reason == reason),
        )
        .await;
    }

    async fn until(&self, wanted: impl Fn(&Result<(DriveReply, Vec<u8>), TransportError>) -> bool) {
        let mut session = self.session().await;
        let grant = self.grant(requests::drive_level());
        let asked = DriveRequest::from(GetAttributes { at: Address::DRIVE });
        answer("the drive answers so", async || {
            wanted(&session.call(&grant, &asked, &[]).await).then_some(())
        })
        .await;
    }

    /// Advances the manual clock.
    pub fn advance_ms(&self, milliseconds: u64) {
        self.clock.fetch_add(milliseconds, Ordering::SeqCst);
    }

    /// A grant with these public parts for this drive, as the manager would make it.
    pub fn grant(&self, mut capability: braid_wire::Capability) -> Grant {
        capability.drive = self.id;
        self.grant_as_is(capability)
    }

    pub fn grant_as_is(&self, capability: braid_wire::Capability) -> Grant {
        self.grant_under(&self.master, capability)
    }

    /// A grant made with this master key.
    pub fn grant_under(&self, master: &Key, capability: braid_wire::Capability) -> Grant {
        let drive_key = master.drive_key(capability.drive);
        let key = drive_key.partition_key(capability.partition).working_key(capability.key_epoch);
        Grant { private: key.private_part(&capability), capability }
    }

    /// Shuts the drive down in order.
    pub async fn stop(mut self) {
        drop(self.shutdown.take());
        within(&mut self.running).await.unwrap().unwrap();
    }

    /// Waits for a drive that ends by itself.
    pub async fn ended(mut self) -> Result<(), DriveError> {
        let _held = self.shutdown.take();
        within(&mut self.running).await.unwrap()
    }
}

/// Runs a drive whose start must fail, and returns the error.
pub async fn fails(config: Config) -> DriveError {
    let (ready, _) = oneshot::channel();
    within(braid_drive::run(config, ready, std::future::pending())).await.unwrap_err()
}

pub async fn within<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes in time")
}

/// A reply without the receipts that a write's answer carries.
pub fn bare(mut reply: DriveReply) -> DriveReply {
    if let DriveReply::Written(written) = &mut reply {
        written.receipts.clear();
    }
    reply
}

/// The reason of a refusal.
pub fn reason(result: Result<(DriveReply, Vec<u8>), TransportError>) -> Reason {
    match result {
        Err(TransportError::Refusal(refusal)) => refusal.reason,
        other => panic!("not refused: {other:?}"),
    }
}
