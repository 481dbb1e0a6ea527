//! A cluster for tests: a manager on loopback, its clients, and drives (see `fake_drive`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_layout::{
    ClientId, Column, ColumnMask, DriveId, FileId, Generation, HolderId, OperationNumber, Version,
};
use braid_manager::{Config, ManagerError, Ready, run};
pub(crate) use braid_testing::eventually;
use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::capability::Protection;
use braid_wire::control::*;
use braid_wire::{Reason, Refusal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use crate::fake_drive::FakeDrive;

/// Attributes of the files that tests make.
pub(crate) const NEW_FILE: NewAttributes = NewAttributes { mode: 0o644, uid: 1, gid: 2 };

/// Heartbeat lease of the tests' clusters.
pub(crate) const LEASE_MS: u32 = 700;
/// Client lease of clusters in which leases lapse ([`Cluster::lapsing`]).
pub(crate) const CLIENT_LEASE_MS: u32 = 900;
/// Client lease of the other clusters: longer than any test. Their clients do not renew, and may be delayed.
pub(crate) const CLIENT_LEASE_LONG_MS: u32 = 300_000;

/// A running manager, with the means to stop it.
pub(crate) struct Manager {
    pub(crate) ready: Ready,
    pub(crate) dir: PathBuf,
    leases_ms: (u32, u32),
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ManagerError>>,
}

impl Manager {
    pub(crate) async fn start(dir: &Path) -> Manager {
        Manager::start_at(dir, "127.0.0.1:0", (LEASE_MS, CLIENT_LEASE_LONG_MS)).await
    }

    /// Starts a manager at this address. If another test's connection uses the port at the moment, tries
    /// again for at most 20 s.
    async fn start_at(dir: &Path, listen: &str, leases_ms: (u32, u32)) -> Manager {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let (lease_ms, client_lease_ms) = leases_ms;
            let config = Config { lease_ms, client_lease_ms, ..Config::new(dir, listen) };
            let (tell, ready) = oneshot::channel();
            let (stop, stopped) = oneshot::channel();
            let task = tokio::spawn(run(config, tell, async {
                let _ = stopped.await;
            }));
            if let Ok(ready) = ready.await {
                return Manager { ready, dir: dir.to_owned(), leases_ms, stop: Some(stop), task };
            }
            let error = task.await.unwrap().unwrap_err();
            let taken = matches!(error, ManagerError::Listen(TransportError::InUse { .. }));
            assert!(taken && tokio::time::Instant::now() < until, "the manager does not start: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap().unwrap();
    }

    /// Stops the manager and starts it again at the same address.
    pub(crate) async fn restart(self) -> Manager {
        let dir = self.dir.clone();
        let address = self.ready.address.clone();
        let leases_ms = self.leases_ms;
        self.stop().await;
        Manager::start_at(&dir, &address, leases_ms).await
    }

    /// Stops the manager, replaces its state by the backup, and starts it again at the same address.
    pub(crate) async fn restore(self, backup: &Path) -> Manager {
        let dir = self.dir.clone();
        let address = self.ready.address.clone();
        let leases_ms = self.leases_ms;
        self.stop().await;
        std::fs::remove_file(dir.join("manager.redb")).unwrap();
        braid_manager::restore::backup::restore(&dir, backup).unwrap();
        Manager::start_at(&dir, &address, leases_ms).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.ready).await
    }
}

/// A client's session with the manager, its number, and the number of its last operation.
pub(crate) struct Client(pub(crate) ControlSession, pub(crate) ClientId, pub(crate) OperationNumber);

impl Client {
    pub(crate) async fn connect(ready: &Ready) -> Client {
        let token = &ready.client_token;
        let session = ControlSession::connect(&ready.address, token, &Limits::default()).await.unwrap();
        let number = u64::from_le_bytes(*braid_transport::challenge().first_chunk().unwrap());
        Client(session, ClientId(number), OperationNumber::NONE)
    }

    /// The head of a new operation.
    pub(crate) fn operation(&mut self) -> RequestHead {
        self.2 = self.2.next();
        let begun_ms = self.0.head().now_ms;
        RequestHead { client: self.1, operation: self.2, settled_below: self.2, begun_ms }
    }

    /// The heads of several operations that are all unsettled at the same time.
    pub(crate) fn operations(&mut self, count: usize) -> Vec<RequestHead> {
        let settled_below = self.2.next();
        (0..count).map(|_| RequestHead { settled_below, ..self.operation() }).collect()
    }

    /// Sends a request. An operation gets a new number.
    pub(crate) async fn ask(&mut self, request: impl Into<ControlRequest>) -> Result<ControlReply, Refusal> {
        let request = request.into();
        let head = if request.rules().is_operation { self.operation() } else { RequestHead::NONE };
        self.ask_as(&head, request).await
    }

    /// Sends under this head. If the manager does not lead yet, tries again for at most 20 s.
    pub(crate) async fn ask_as(
        &mut self,
        head: &RequestHead,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply, Refusal> {
        let request = request.into();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match self.0.call_as(head, &request).await {
                Ok(reply) => return Ok(reply),
                Err(TransportError::Refusal(refusal))
                    if refusal.reason == Reason::NotLeading && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(TransportError::Refusal(refusal)) => return Err(refusal),
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) async fn done(&mut self, request: impl Into<ControlRequest>) {
        let answer = self.ask(request).await.unwrap();
        assert!(matches!(answer, ControlReply::Done(_) | ControlReply::Stat(_)), "{answer:?}");
    }

    /// Asks for a file, directory or node to be made or changed. Returns its stat afterwards.
    pub(crate) async fn made(&mut self, request: impl Into<ControlRequest>) -> StatRow {
        match self.ask(request).await {
            Ok(ControlReply::Stat(row)) => row,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn refused(&mut self, request: impl Into<ControlRequest>) -> Refusal {
        self.ask(request).await.unwrap_err()
    }

    /// Renews this holder's part in the file's lease. Returns true if the manager did.
    pub(crate) async fn renews(&mut self, file: &Opened, holder: HolderId) -> bool {
        let held = HeldLease { file: file.stat.file, lease: file.lease, holder };
        match self.ask(Renew { leases: vec![held] }).await {
            Ok(ControlReply::Renewed(renewed)) => renewed.lost.is_empty(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn opened(&mut self, request: impl Into<ControlRequest>) -> Opened {
        opened(self.ask(request).await.unwrap())
    }

    pub(crate) async fn status(&mut self) -> StatusReply {
        match self.ask(Status {}).await.unwrap() {
            ControlReply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn stat(&mut self, path: &str) -> Result<StatRow, Refusal> {
        match self.ask(Lookup { at: NamePlace::of("main", path), follow: false, watch: false }).await? {
            ControlReply::Stat(row) => Ok(row),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create(&mut self, path: &str) -> Opened {
        opened(self.patient(open(path, Access::Write, true)).await.unwrap())
    }

    /// Sends until the answer is not "busy" or "leased", as a new operation each time, for at most 20 s.
    pub(crate) async fn patient(
        &mut self,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply, Refusal> {
        let request = request.into();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match self.ask(request.clone()).await {
                Err(refusal)
                    if matches!(refusal.reason, Reason::Busy | Reason::Leased | Reason::DriveInUse)
                        && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Sends under this head until the answer does not say to try again, for at most 20 s.
    pub(crate) async fn patient_as(
        &mut self,
        head: &RequestHead,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply, Refusal> {
        let request = request.into();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match self.ask_as(head, request.clone()).await {
                Err(refusal) if refusal.reason == Reason::Busy && tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Waits until the drives have leases and the manager reports them up.
    pub(crate) async fn until_up(&mut self, drives: &[&FakeDrive]) {
        eventually("they have new leases", || async { drives.iter().all(|drive| drive.serves()) }).await;
        let up = |status: &StatusReply, drive: &FakeDrive| {
            status.drives.iter().any(|row| row.drive == drive.id && row.state == DriveState::Up)
        };
        self.until("they are up", |status| drives.iter().all(|drive| up(status, drive))).await;
    }

    /// Waits until `holds` is true of the status.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&StatusReply) -> bool) -> StatusReply {
        let until = tokio::time::Instant::now() + braid_testing::PATIENCE;
        loop {
            let status = self.status().await;
            if holds(&status) {
                return status;
            }
            assert!(tokio::time::Instant::now() < until, "still not: {what}: {status:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn opened(reply: ControlReply) -> Opened {
    match reply {
        ControlReply::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn open(path: &str, access: Access, create: bool) -> Open {
    let shape = no_shape();
    Open {
        at: NamePlace::of("main", path),
        access,
        create,
        exclusive: false,
        shape,
        holder: HolderId(7),
        alone: false,
        range: None,
        takes_sealed: false,
        new: NEW_FILE,
    }
}

pub(crate) fn no_shape() -> ShapeSpec {
    ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 }
}

/// A cluster with several drives up and a volume `main` of one shape.
pub(crate) struct Cluster {
    pub(crate) manager: Manager,
    pub(crate) drives: Vec<FakeDrive>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn new(drives: u128, shape: ShapeSpec) -> Cluster {
        Cluster::with_leases(drives, shape, (LEASE_MS, CLIENT_LEASE_LONG_MS)).await
    }

    /// A cluster whose client leases lapse within a test.
    pub(crate) async fn lapsing(drives: u128, shape: ShapeSpec) -> Cluster {
        Cluster::with_leases(drives, shape, (LEASE_MS, CLIENT_LEASE_MS)).await
    }

    /// A cluster with this heartbeat lease.
    pub(crate) async fn with_drive_lease(drives: u128, shape: ShapeSpec, lease_ms: u32) -> Cluster {
        Cluster::with_leases(drives, shape, (lease_ms, CLIENT_LEASE_LONG_MS)).await
    }

    async fn with_leases(drives: u128, shape: ShapeSpec, leases_ms: (u32, u32)) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start_at(dir.path(), "127.0.0.1:0", leases_ms).await;
        let mut joined = Vec::new();
        for id in 1..=drives {
            joined.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
        }
        let cluster = Cluster { manager, drives: joined, _dir: dir };
        let mut client = cluster.manager.client().await;
        client
            .until("all up", |status| status.drives.iter().all(|drive| drive.state == DriveState::Up))
            .await;
        client
            .done(VolumeCreate {
                name: "main".into(),
                shape,
                quota_bytes: 0,
                protection: Protection::Integrity,
                key: None,
            })
            .await;
        cluster
    }

    pub(crate) async fn restart_manager(mut self) -> Cluster {
        self.manager = self.manager.restart().await;
        self
    }

    /// Loses the manager's state and restores this backup.
    pub(crate) async fn restore(mut self, backup: &Path) -> Cluster {
        self.manager = self.manager.restore(backup).await;
        self
    }

    pub(crate) fn drive(&self, id: DriveId) -> &FakeDrive {
        self.drives.iter().find(|drive| drive.id == id).unwrap()
    }

    /// The drive of a column of the first segment.
    pub(crate) fn of(&self, opened: &Opened, column: u8) -> &FakeDrive {
        self.drive(opened.stat.segments[0].columns[usize::from(column)].drive)
    }

    /// Number of components that the drives hold in all.
    pub(crate) fn objects(&self) -> usize {
        self.drives.iter().map(|drive| drive.state().objects.len()).sum()
    }
}

pub(crate) fn release(opened: &Opened, clean: bool) -> Release {
    let ending = if clean { Ending::Retired } else { Ending::Unclean };
    let end = if clean { 0 } else { u64::MAX };
    let ended = Ended { ending, end, columns: ColumnMask(u64::MAX) };
    Release {
        file: opened.stat.file,
        lease: opened.lease,
        holder: HolderId(7),
        ended,
        commit: None,
        backing: Backing::NONE,
    }
}

/// A commit of a size, and of nothing else.
pub(crate) fn commit(opened: &Opened, size: u64, order: u64) -> Commit {
    let file = opened.stat.file;
    let lease = opened.lease;
    let cut = Cut::No;
    let modified_ns = None;
    Commit { file, lease, holder: HolderId(7), size, order, cut, modified_ns, backing: Backing::NONE }
}

/// The release with this end of its writes.
pub(crate) fn ends_at(end: u64, release: Release) -> Release {
    let ended = Ended { end, ..release.ended };
    Release { ended, ..release }
}

pub(crate) fn lost(opened: &Opened, columns: &[u8]) -> ReportLost {
    let columns = columns.iter().copied().map(Column).collect();
    ReportLost {
        file: opened.stat.file,
        lease: opened.lease,
        holder: HolderId(7),
        segment: 0,
        columns,
        insist: false,
    }
}

pub(crate) fn raid5(k: u8) -> ShapeSpec {
    ShapeSpec { scheme: 5, k, m: 1, unit_bytes: 4096 }
}

pub(crate) fn version(g: u32, lease: u32, n: u64) -> Version {
    Version { g: Generation(g), lease: braid_layout::version::Lease(lease), n }
}

/// The numbers of these files.
pub(crate) fn numbers(files: &[FileId]) -> Vec<u64> {
    files.iter().map(|file| file.0).collect()
}
