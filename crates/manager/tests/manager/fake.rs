//! A cluster for tests: a manager on loopback, and drives that answer just what the manager asks of them, checked as real
//! ones check it, with their state in reach of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, Version};
use braid_manager::{Config, Ready, run};
use braid_transport::{
    ControlSession, Credentials, Limits, Listener, Receiver, Sender, Stream, TransportError, challenge,
};
use braid_wire::authorise::{Denied, Scene, Verified, authorise};
use braid_wire::capability::Key;
use braid_wire::control::*;
use braid_wire::data::{
    DriveReply, DriveRequest, FenceReply, HELLO, Hello, PeerRole, PendingState, UnitState, UnitVerdict,
    VersionsReply,
};
use braid_wire::token::Token;
use braid_wire::{FrameHeader, Reason, Refusal, Wire};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

/// Heartbeat lease of the tests' clusters.
pub(crate) const LEASE_MS: u32 = 700;
/// Client lease of the tests' clusters.
pub(crate) const CLIENT_LEASE_MS: u32 = 900;
const BEAT: Duration = Duration::from_millis(60);

/// A manager, and how to stop it.
pub(crate) struct Manager {
    pub(crate) ready: Ready,
    pub(crate) dir: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), braid_manager::ManagerError>>,
}

impl Manager {
    pub(crate) async fn start(dir: &Path) -> Manager {
        Manager::start_at(dir, "127.0.0.1:0").await
    }

    pub(crate) async fn start_at(dir: &Path, listen: &str) -> Manager {
        let config =
            Config { lease_ms: LEASE_MS, client_lease_ms: CLIENT_LEASE_MS, ..Config::new(dir, listen) };
        let (tell, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(config, tell, async {
            let _ = stopped.await;
        }));
        let ready = ready.await.expect("the manager starts");
        Manager { ready, dir: dir.to_owned(), stop: Some(stop), task }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap().unwrap();
    }

    /// Stops it and starts it again at the same address.
    pub(crate) async fn restart(self) -> Manager {
        let (dir, address) = (self.dir.clone(), self.ready.address.clone());
        self.stop().await;
        Manager::start_at(&dir, &address).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.ready).await
    }
}

/// A client's session with the manager.
pub(crate) struct Client(pub(crate) ControlSession);

impl Client {
    pub(crate) async fn connect(ready: &Ready) -> Client {
        let token = &ready.client_token;
        Client(ControlSession::connect(&ready.address, token, &Limits::default()).await.unwrap())
    }

    pub(crate) async fn ask(&mut self, request: impl Into<ControlRequest>) -> Result<ControlReply, Refusal> {
        match self.0.call(&request.into()).await {
            Ok(reply) => Ok(reply),
            Err(TransportError::Refusal(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn done(&mut self, request: impl Into<ControlRequest>) {
        assert!(matches!(self.ask(request).await.unwrap(), ControlReply::Done(_)));
    }

    pub(crate) async fn refused(&mut self, request: impl Into<ControlRequest>) -> Refusal {
        self.ask(request).await.unwrap_err()
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
        match self.ask(Lookup { volume: "main".into(), path: path.into() }).await? {
            ControlReply::Stat(row) => Ok(row),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn create(&mut self, path: &str) -> Opened {
        self.opened(open(path, Access::Write, true)).await
    }

    /// Asks until the answer is not "busy" or "leased", for at most 20 s.
    pub(crate) async fn patient(
        &mut self,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply, Refusal> {
        let request = request.into();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match self.ask(request.clone()).await {
                Err(refusal)
                    if matches!(refusal.reason, Reason::Busy | Reason::Leased)
                        && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Waits until status says so, for at most 20 s.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&StatusReply) -> bool) -> StatusReply {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
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
    Open { volume: "main".into(), path: path.into(), access, create, exclusive: false, shape, client: 7 }
}

pub(crate) fn no_shape() -> ShapeSpec {
    ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 }
}

/// Waits until `holds`, for at most 20 s.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An object on a fake drive.
#[derive(Debug, Clone)]
pub(crate) struct FakeObject {
    pub(crate) g: Generation,
    pub(crate) set: ColumnMask,
    pub(crate) joining: ColumnMask,
    pub(crate) units: BTreeMap<u64, UnitState>,
    pub(crate) verdicts: Vec<UnitVerdict>,
}

/// What a fake drive keeps: survives its process.
#[derive(Debug, Default)]
pub(crate) struct FakeState {
    pub(crate) partitions: BTreeSet<PartitionId>,
    pub(crate) objects: BTreeMap<(PartitionId, ObjectId), FakeObject>,
    /// When it may serve, by its own count.
    pub(crate) serves_until: Option<tokio::time::Instant>,
    /// Requests that were carried out.
    pub(crate) carried_out: Vec<&'static str>,
    /// Takes connections and requests, and answers none of them.
    pub(crate) mute: bool,
    /// Sends no heartbeats.
    pub(crate) silent: bool,
    pub(crate) replaced: bool,
    pub(crate) leases: u64,
}

/// A drive: identity and state, with or without a running process.
#[derive(Clone)]
pub(crate) struct FakeDrive {
    pub(crate) id: DriveId,
    pub(crate) name: String,
    pub(crate) master: Key,
    pub(crate) state: Arc<Mutex<FakeState>>,
    cluster: braid_layout::ClusterId,
    manager: String,
    running: Arc<Mutex<Vec<AbortHandle>>>,
}

impl FakeDrive {
    /// Joins the cluster and starts.
    pub(crate) async fn join(ready: &Ready, id: u128, name: &str) -> Result<FakeDrive, TransportError> {
        let (token, id) = (&ready.join_token, DriveId(id));
        let listener = Listener::bind("127.0.0.1:0").await?;
        let credentials = Credentials::joining(token, id);
        let mut session = ControlSession::connect(&ready.address, credentials, &Limits::default()).await?;
        let master = Token::master_key(&token.secret, session.binding(), session.nonce(), id);
        let address = listener.local_address().to_string();
        let join = JoinDrive {
            name: name.to_owned(),
            address: address.clone(),
            host: format!("host-{id}"),
            rack: String::new(),
            directory: "/nowhere".to_owned(),
            pid: 1,
            capacity_bytes: 1 << 40,
        };
        let ControlReply::Joined(joined) = session.call(&join.into()).await? else {
            panic!("no answer to a join")
        };
        let drive = FakeDrive {
            id,
            name: joined.name,
            master,
            state: Arc::default(),
            cluster: ready.cluster,
            manager: ready.address.clone(),
            running: Arc::default(),
        };
        drive.spawn(listener);
        Ok(drive)
    }

    /// Its process starts (again), at a new address.
    pub(crate) async fn start(&self) {
        self.spawn(Listener::bind("127.0.0.1:0").await.unwrap());
    }

    /// Its process dies: connections to it are refused.
    pub(crate) fn kill(&self) {
        self.running.lock().unwrap().drain(..).for_each(|task| task.abort());
        self.state().serves_until = None;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// Whether it would serve now.
    pub(crate) fn serves(&self) -> bool {
        self.state().serves_until.is_some_and(|until| tokio::time::Instant::now() < until)
    }

    pub(crate) fn object(&self, partition: u64, object: ObjectId) -> Option<FakeObject> {
        self.state().objects.get(&(PartitionId(partition), object)).cloned()
    }

    /// Puts an object there as if a client had made and written it: per unit a settled version and maybe a pending one.
    pub(crate) fn put(&self, row: &Opened, column: Column, pending: &[(u64, Version, ColumnMask)]) {
        let segment = &row.stat.segments[0];
        let units = pending.iter().map(|&(unit, stamp, columns)| {
            let pending = PendingState { stamp, columns, cover: Vec::new() };
            (unit, UnitState { pending: Some(pending), ..clean(unit) })
        });
        let object = FakeObject {
            g: row.stat.g,
            set: segment.set,
            joining: segment.joining,
            units: units.collect(),
            verdicts: Vec::new(),
        };
        let place = (PartitionId(row.stat.volume.0), segment.columns[column.index()].object);
        self.state().objects.insert(place, object);
    }

    fn spawn(&self, listener: Listener) {
        let address = listener.local_address().to_string();
        let mut running = self.running.lock().unwrap();
        running.push(tokio::spawn(accept(self.clone(), listener)).abort_handle());
        running.push(tokio::spawn(heartbeats(self.clone(), address)).abort_handle());
    }

    fn carry_out(&self, verified: &Verified) -> (Generation, DriveReply) {
        let mut state = self.state();
        let capability = &verified.capability;
        state.carried_out.push(verified.request.name());
        let place = (capability.partition, capability.object);
        let done = || DriveReply::from(braid_wire::data::Done {});
        let no = |reason| DriveReply::from(Refusal::new(reason, format!("{reason:?}")));
        let known_g = state.objects.get(&place).map(|object| object.g);
        let reply = match &verified.request {
            DriveRequest::PartitionCreate(create) => {
                state.partitions.insert(create.partition);
                done()
            }
            DriveRequest::PartitionRemove(remove) => {
                if state.objects.keys().any(|(partition, _)| *partition == remove.partition) {
                    no(Reason::PartitionNotEmpty)
                } else {
                    state.partitions.remove(&remove.partition);
                    done()
                }
            }
            DriveRequest::Remove(_) => {
                state.objects.remove(&place);
                done()
            }
            DriveRequest::Create(create) => {
                let map = &create.attributes.map;
                assert_eq!(map.objects.len(), map.drives.len());
                let object = FakeObject {
                    g: capability.g,
                    set: capability.set,
                    joining: capability.joining,
                    units: BTreeMap::new(),
                    verdicts: Vec::new(),
                };
                state.objects.entry(place).or_insert(object);
                done()
            }
            _ if known_g.is_none() => no(Reason::NoObject),
            DriveRequest::Fence(_) if known_g > Some(capability.g) => no(Reason::StaleGeneration),
            DriveRequest::Fence(fence) => {
                let object = state.objects.get_mut(&place).unwrap();
                (object.g, object.set, object.joining) = (capability.g, capability.set, capability.joining);
                let pending = |state: &&UnitState| state.pending.is_some() && state.unit >= fence.units_from;
                let units: Vec<u64> = object.units.values().filter(pending).map(|state| state.unit).collect();
                // Three at a time, so that the manager must ask again.
                let more = units.len() > 3;
                FenceReply { unsettled: units.into_iter().take(3).collect(), more }.into()
            }
            _ if known_g != Some(capability.g) => no(Reason::StaleGeneration),
            DriveRequest::Versions(asked) => {
                let object = &state.objects[&place];
                let of = |unit: &u64| object.units.get(unit).cloned().unwrap_or_else(|| clean(*unit));
                VersionsReply { units: asked.units.iter().take(2).map(of).collect() }.into()
            }
            DriveRequest::Verdict(verdict) => {
                let object = state.objects.get_mut(&place).unwrap();
                verdict.units.iter().for_each(|unit| judge(object, unit));
                done()
            }
            _ => no(Reason::Unsupported),
        };
        (state.objects.get(&place).map_or(Generation(0), |object| object.g), reply)
    }
}

fn judge(object: &mut FakeObject, verdict: &UnitVerdict) {
    object.verdicts.push(verdict.clone());
    let Some(state) = object.units.get_mut(&verdict.unit) else { return };
    let Some(pending) = state.pending.clone() else { return };
    if verdict.forward.contains(&pending.stamp) {
        (state.settled, state.pending) = (pending.stamp, None);
    } else if verdict.back.contains(&pending.stamp) {
        state.pending = None;
    }
}

pub(crate) fn clean(unit: u64) -> UnitState {
    UnitState {
        unit,
        settled: Version::ZERO,
        cover: Vec::new(),
        pending: None,
        owed: Vec::new(),
        tips: Vec::new(),
        damaged: false,
    }
}

async fn accept(drive: FakeDrive, listener: Listener) {
    let mut sessions = tokio::task::JoinSet::new();
    loop {
        let stream = listener.accept().await.unwrap();
        sessions.spawn(session(drive.clone(), stream));
    }
}

async fn session(drive: FakeDrive, stream: Stream) -> Result<(), TransportError> {
    let (mut sender, mut receiver): (Sender, Receiver) = stream.into_halves();
    let hello = Hello {
        role: PeerRole::Drive,
        version_min: 1,
        version_max: 1,
        cluster: drive.cluster,
        drive: drive.id,
        features: 0,
        challenge: challenge(),
    };
    if drive.state().mute {
        return std::future::pending().await;
    }
    sender.send(HELLO, 0, &hello.to_bytes(), &[]).await?;
    let mut sequence = 0;
    while let Some((header, body)) = receiver.frame().await? {
        if drive.state().mute {
            return std::future::pending().await;
        }
        let (kind, request, body) = answer(&drive, &hello, &mut sequence, &header, &body);
        sender.send(kind, request, &body, &[]).await?;
    }
    Ok(())
}

fn answer(
    drive: &FakeDrive,
    hello: &Hello,
    sequence: &mut u64,
    header: &FrameHeader,
    body: &[u8],
) -> (u16, u64, Vec<u8>) {
    let working_key =
        |partition, epoch| drive.master.drive_key(drive.id).partition_key(partition).working_key(epoch);
    let partitions = drive.state().partitions.clone();
    let key_epoch =
        |partition: PartitionId| (partition.0 == 0 || partitions.contains(&partition)).then_some(1);
    let scene = Scene {
        drive: drive.id,
        binding: hello.binding(),
        now_ms: drive.serves().then_some(0), // expiry is the real drive's to test
        working_key: &working_key,
        key_epoch: &key_epoch,
    };
    let (seal, g, reply) = match authorise(&scene, sequence, header, body) {
        Ok(verified) => {
            let (g, reply) = drive.carry_out(&verified);
            (verified.seal, g, reply)
        }
        Err(Denied { refusal, seal }) => (seal, Generation(0), refusal.into()),
    };
    (reply.kind(), seal.request(), seal.seal(g, &reply, 0))
}

async fn heartbeats(drive: FakeDrive, address: String) {
    let mut restarted = true;
    loop {
        if !drive.state().silent {
            let _ = beat(&drive, &address, &mut restarted).await;
        }
        tokio::time::sleep(BEAT).await;
    }
}

async fn beat(drive: &FakeDrive, address: &str, restarted: &mut bool) -> Result<(), TransportError> {
    let credentials = Credentials::of_drive(drive.cluster, drive.id, &drive.master);
    let mut session = ControlSession::connect(&drive.manager, credentials, &Limits::default()).await?;
    while !drive.state().silent {
        let beat = Heartbeat {
            address: address.to_owned(),
            host: format!("host-{}", drive.id),
            directory: "/nowhere".to_owned(),
            pid: 1,
            capacity_bytes: 1 << 40,
            used_bytes: 1,
            live_bytes: 1,
            restarted: *restarted,
            epoch: 0,
        };
        let sent = tokio::time::Instant::now();
        if let ControlReply::Heartbeat(reply) = session.call(&beat.into()).await? {
            let mut state = drive.state();
            state.serves_until = Some(sent + Duration::from_millis(u64::from(reply.lease_ms)));
            state.replaced |= reply.replaced;
            state.leases += u64::from(reply.lease_ms > 0);
            *restarted = false;
        }
        tokio::time::sleep(BEAT).await;
    }
    Ok(())
}

/// A cluster with so many drives up and a volume `main` of this shape.
pub(crate) struct Cluster {
    pub(crate) manager: Manager,
    pub(crate) drives: Vec<FakeDrive>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn new(drives: u128, shape: ShapeSpec) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start(dir.path()).await;
        let mut joined = Vec::new();
        for id in 1..=drives {
            joined.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
        }
        let cluster = Cluster { manager, drives: joined, _dir: dir };
        let mut client = cluster.manager.client().await;
        client
            .until("all up", |status| status.drives.iter().all(|drive| drive.state == DriveState::Up))
            .await;
        client.done(VolumeCreate { name: "main".into(), shape, quota_bytes: 0 }).await;
        cluster
    }

    pub(crate) async fn restart_manager(mut self) -> Cluster {
        self.manager = self.manager.restart().await;
        self
    }

    pub(crate) fn drive(&self, id: DriveId) -> &FakeDrive {
        self.drives.iter().find(|drive| drive.id == id).unwrap()
    }

    /// The drive of a column of the first segment.
    pub(crate) fn of(&self, opened: &Opened, column: u8) -> &FakeDrive {
        self.drive(opened.stat.segments[0].columns[usize::from(column)].drive)
    }

    /// Files' components anywhere.
    pub(crate) fn objects(&self) -> usize {
        self.drives.iter().map(|drive| drive.state().objects.len()).sum()
    }
}

pub(crate) fn release(opened: &Opened, clean: bool) -> Release {
    Release { file: opened.stat.file, lease: opened.lease, clean }
}

pub(crate) fn lost(opened: &Opened, columns: &[u8]) -> ReportLost {
    let columns = columns.iter().copied().map(Column).collect();
    ReportLost { file: opened.stat.file, lease: opened.lease, client: 7, segment: 0, columns }
}

pub(crate) fn raid5(k: u8) -> ShapeSpec {
    ShapeSpec { scheme: 5, k, m: 1, unit_bytes: 4096 }
}

pub(crate) fn version(g: u32, lease: u32, n: u64) -> Version {
    Version { g: Generation(g), lease: braid_layout::version::Lease(lease), n }
}

/// The numbers of files.
pub(crate) fn numbers(files: &[FileId]) -> Vec<u64> {
    files.iter().map(|file| file.0).collect()
}
