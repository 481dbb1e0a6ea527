//! A real cluster in this process, on loopback and in a temporary directory. The manager and each drive have
//! a runtime of their own, so that one can be killed without warning, as a process can.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use braid_client::Client;
use braid_client::Config;
use braid_client::Engine;
use braid_client::HealTally;
use braid_client::Name;
use braid_client::Transport;
use braid_client::cluster::TRANSPORT_VARIABLE;
use braid_layout::{DriveId, FileId, Scheme, Shape};
use braid_manager::{EtcdConfig, Ready};
use braid_store::disk::modelled::Device;
pub(crate) use braid_testing::wait_for;
use braid_transport::Credentials;
use braid_wire::control::DriveState;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The engine of the drives and clients of all clusters that start from now on in this process.
pub(crate) static ENGINE: OnceLock<Arc<dyn Engine>> = OnceLock::new();

/// A running role.
pub(crate) struct Node {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

pub(crate) struct Drive {
    pub(crate) node: Option<Node>,
    pub(crate) dir: PathBuf,
    pub(crate) id: DriveId,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) credentials: Credentials,
    /// Address that the drive advertises from its next start on; `None`: the one that it listens on. Several
    /// have commas between, as in `address`.
    pub(crate) advertise: Option<String>,
    pub(crate) capacity_bytes: Option<u64>,
    /// The device that its disk is as slow as, from its next start on; `None`: it is as fast as it is.
    pub(crate) disk_model: Option<Arc<Device>>,
}

pub(crate) struct Cluster {
    pub(crate) dir: TempDir,
    pub(crate) manager: Option<Node>,
    pub(crate) ready: Ready,
    pub(crate) drives: Vec<Drive>,
    /// The way of its clients to the drives.
    transport: Transport,
    times: Times,
}

/// The manager's times, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// Without a heartbeat for so long, a drive is lost.
    pub(crate) lost_after_ms: u64,
    pub(crate) client_lease_ms: u32,
    pub(crate) drive_lease_ms: u32,
}

impl Default for Times {
    fn default() -> Times {
        Times { lost_after_ms: braid_manager::LOST_AFTER_MS, client_lease_ms: 3000, drive_lease_ms: 2400 }
    }
}

impl Node {
    fn start<F: Future<Output = ()> + Send + 'static>(
        role: impl FnOnce(oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> Node {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        runtime.spawn(async move {
            role(stopped).await;
            let _ = end.send(());
        });
        Node { runtime: Some(runtime), stop: Some(stop), ended: Some(ended) }
    }

    /// Kills the node: its tasks and sockets end, whatever they were doing.
    pub(crate) fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Shuts the node down in order.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(ended) = self.ended.take() {
            let _ = tokio::time::timeout(Duration::from_secs(15), ended).await.expect("it stops in time");
        }
        // Work on the node's own threads ends too, and its files are closed, as when a process has ended.
        if let Some(runtime) = self.runtime.take() {
            let ending =
                tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(15)));
            ending.await.expect("its runtime ends");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// A cluster with this many drives.
    pub(crate) async fn start(drives: usize) -> Cluster {
        Cluster::start_with(drives, |_| None).await
    }

    /// A cluster with this many drives, of which clients use nothing but TCP: so for tests with proxies,
    /// which carry nothing else.
    pub(crate) async fn over_tcp(drives: usize) -> Cluster {
        Cluster { transport: Transport::Tcp, ..Cluster::start(drives).await }
    }

    /// A cluster in which some drives have a given capacity.
    pub(crate) async fn start_with(drives: usize, capacity: impl Fn(usize) -> Option<u64>) -> Cluster {
        Cluster::start_losing(drives, capacity, Times::default().lost_after_ms).await
    }

    /// A cluster as of [`Cluster::start_with`], in which a drive is lost after `lost_after_ms` of silence.
    pub(crate) async fn start_losing(
        drives: usize,
        capacity: impl Fn(usize) -> Option<u64>,
        lost_after_ms: u64,
    ) -> Cluster {
        Cluster::start_timed(drives, capacity, Times { lost_after_ms, ..Times::default() }).await
    }

    /// A cluster as of [`Cluster::start_with`], with these times.
    pub(crate) async fn start_timed(
        drives: usize,
        capacity: impl Fn(usize) -> Option<u64>,
        times: Times,
    ) -> Cluster {
        Cluster::start_on(None, drives, capacity, times).await
    }

    /// A cluster as of [`Cluster::start_timed`], whose manager has its state in an etcd, or in its directory.
    pub(crate) async fn start_on(
        etcd: Option<EtcdConfig>,
        drives: usize,
        capacity: impl Fn(usize) -> Option<u64>,
        times: Times,
    ) -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (manager, ready) = manager(dir.path().join("manager"), "127.0.0.1:0", etcd, times).await;
        let mut cluster =
            Cluster { dir, manager: Some(manager), ready, drives: Vec::new(), transport: transport(), times };
        for index in 0..drives {
            cluster.add_drive(index, capacity(index)).await;
        }
        cluster.all_up(&cluster.client().await).await;
        cluster
    }

    /// Waits until the manager has heard from every running drive.
    pub(crate) async fn all_up(&self, client: &Client) {
        wait_for(|| async {
            let rows = client.status().await.expect("status").drives;
            let up =
                |drive: &Drive| rows.iter().any(|row| row.drive == drive.id && row.state == DriveState::Up);
            self.drives.iter().filter(|drive| drive.node.is_some()).all(up)
        })
        .await;
    }

    pub(crate) async fn add_drive(&mut self, index: usize, capacity_bytes: Option<u64>) {
        let dir = self.dir.path().join(format!("drive{index}"));
        let name = format!("d{index}");
        let (node, ready) =
            drive(dir.clone(), "127.0.0.1:0".to_owned(), &self.ready, &name, None, capacity_bytes, None)
                .await
                .expect("the drive starts");
        let id = ready.drive;
        let address = ready.address.to_string();
        let credentials = ready.credentials;
        let node = Some(node);
        let advertise = None;
        self.drives.push(Drive {
            node,
            dir,
            id,
            name,
            address,
            credentials,
            advertise,
            capacity_bytes,
            disk_model: None,
        });
    }

    /// Short waits and small sets, so that a short test has many of each.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.ready.address.clone(), self.ready.client_token.clone());
        config.set_bytes = 64 << 10;
        config.grace = Duration::from_millis(500);
        config.avoid = Duration::from_millis(500);
        config.limits.connect = Duration::from_millis(500);
        config.patience = Duration::from_secs(20);
        config.engine = ENGINE.get().cloned();
        config.transport = self.transport;
        config
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.config()).await.expect("a client")
    }

    /// A client with the drive's credentials.
    pub(crate) async fn healer(&self, index: usize) -> braid_client::Result<Client> {
        let mut config = self.config();
        config.credentials = self.drives[index].credentials.clone();
        Client::connect(config).await
    }

    /// Brings all stale columns on a drive up to date, as the drive itself would do, and with its rights.
    /// Returns the number of healed files, and the bytes written.
    pub(crate) async fn heal(&self, index: usize) -> (u64, u64) {
        self.try_to_heal(index).await.expect("healed")
    }

    /// Like [`Cluster::heal`], for tests in which a drive may be away for a moment.
    pub(crate) async fn try_to_heal(&self, index: usize) -> braid_client::Result<(u64, u64)> {
        let drive = &self.drives[index];
        let client = self.healer(index).await?;
        let tally = HealTally::default();
        let mut after = FileId(0);
        let mut files = 0;
        loop {
            let page = client.stale_files(&drive.id.to_string(), after, 100).await?;
            let Some(&last) = page.last() else { return Ok((files, tally.written_bytes())) };
            for file in page {
                client.heal_file(file, &tally).await?;
                files += 1;
            }
            after = last;
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.drives[index].node.take().expect("it runs").kill();
    }

    /// Puts a listener at a dead drive's address that accepts connections and never answers.
    pub(crate) async fn make_mute(&mut self, index: usize) -> tokio::net::TcpListener {
        self.kill(index);
        let mut listener = None;
        wait_for(|| async { tokio::net::TcpStream::connect(&self.drives[index].address).await.is_err() })
            .await;
        for _ in 0..200 {
            match tokio::net::TcpListener::bind(&self.drives[index].address).await {
                Ok(bound) => {
                    listener = Some(bound);
                    break;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        listener.expect("the dead drive's port is free")
    }

    /// Shuts the drive down in order and waits until it has stopped.
    pub(crate) async fn stop(&mut self, index: usize) {
        self.drives[index].node.take().expect("it runs").stop().await;
    }

    /// Starts a stopped drive again, at its old address.
    pub(crate) async fn restart(&mut self, index: usize) {
        let Drive { dir, name, address, advertise, capacity_bytes, disk_model, .. } = &self.drives[index];
        let advertise = advertise.clone();
        let capacity_bytes = *capacity_bytes;
        let disk_model = disk_model.clone();
        // A drive that was killed just now may still hold its directory: its threads finish their present
        // work first.
        let until = tokio::time::Instant::now() + Duration::from_secs(15);
        let started = loop {
            let advertise = advertise.clone();
            let dir = dir.clone();
            let address = address.clone();
            let model = disk_model.clone();
            let started = drive(dir, address, &self.ready, name, advertise, capacity_bytes, model).await;
            if started.is_some() || tokio::time::Instant::now() > until {
                break started;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let (node, ready) = started.expect("the drive starts");
        self.drives[index].node = Some(node);
        self.drives[index].credentials = ready.credentials;
    }

    /// Starts a stopped drive once more. Returns true if it starts.
    pub(crate) async fn starts_again(&mut self, index: usize) -> bool {
        let Drive { dir, name, address, .. } = &self.drives[index];
        let started = drive(dir.clone(), address.clone(), &self.ready, name, None, None, None).await;
        self.drives[index].node = started.map(|(node, _)| node);
        self.drives[index].node.is_some()
    }

    /// Starts an empty drive in place of a dead one, under a new name.
    pub(crate) async fn restart_anew(&mut self, index: usize) {
        self.restart_anew_with(index, None).await;
    }

    /// Starts an empty drive of this capacity in place of a dead one, under a new name.
    pub(crate) async fn restart_anew_with(&mut self, index: usize, capacity_bytes: Option<u64>) {
        let name = format!("{}-new", self.drives[index].name);
        let dir = self.dir.path().join(&name);
        let (node, ready) =
            drive(dir.clone(), "127.0.0.1:0".to_owned(), &self.ready, &name, None, capacity_bytes, None)
                .await
                .expect("the drive starts");
        let id = ready.drive;
        let address = ready.address.to_string();
        let credentials = ready.credentials;
        let node = Some(node);
        let advertise = None;
        self.drives[index] =
            Drive { node, dir, id, name, address, credentials, advertise, capacity_bytes, disk_model: None };
    }

    /// Flips one bit in the first whole block of `bytes` found in the drive's log. Returns the number of
    /// changed blocks: 0 or 1.
    pub(crate) fn rot(&self, index: usize, bytes: &[u8]) -> usize {
        let mut stack = vec![self.drives[index].dir.clone()];
        while let Some(dir) = stack.pop() {
            for entry in std::fs::read_dir(dir).expect("the drive's directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    stack.push(path);
                    continue;
                }
                let mut log = std::fs::read(&path).expect("a file of the drive");
                for block in bytes.chunks_exact(4096) {
                    if let Some(at) = log.windows(64).position(|window| window == &block[1000..1064]) {
                        log[at] ^= 0x10;
                        std::fs::write(&path, log).expect("a file of the drive");
                        return 1;
                    }
                }
            }
        }
        0
    }

    pub(crate) async fn restart_manager(&mut self) {
        self.manager.take().expect("it runs").stop().await;
        self.start_manager().await;
    }

    /// Starts the manager again, at its address.
    pub(crate) async fn start_manager(&mut self) {
        let (node, ready) =
            manager(self.dir.path().join("manager"), &self.ready.address.clone(), None, self.times).await;
        self.manager = Some(node);
        self.ready = ready;
    }
}

/// The transport that the tester asks for (`make udp`).
fn transport() -> Transport {
    let told = std::env::var(TRANSPORT_VARIABLE).ok();
    told.map_or(Transport::Tcp, |text| text.parse().expect("a transport"))
}

async fn manager(dir: PathBuf, listen: &str, etcd: Option<EtcdConfig>, times: Times) -> (Node, Ready) {
    let mut config = braid_manager::Config::new(dir, listen);
    config.etcd = etcd;
    config.lease_ms = times.drive_lease_ms;
    config.client_lease_ms = times.client_lease_ms;
    config.lost_after_ms = times.lost_after_ms;
    let (tell, told) = oneshot::channel();
    let node = Node::start(move |stop| async move {
        let stopped = async move {
            let _ = stop.await;
        };
        if let Err(error) = braid_manager::run(config, tell, stopped).await {
            eprintln!("the manager failed: {error}");
        }
    });
    (node, told.await.expect("the manager starts"))
}

async fn drive(
    dir: PathBuf,
    listen: String,
    ready: &Ready,
    name: &str,
    advertise: Option<String>,
    capacity_bytes: Option<u64>,
    disk_model: Option<Arc<Device>>,
) -> Option<(Node, braid_drive::Ready)> {
    let rails = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut config = braid_drive::Config::new(dir, "");
    config.listen = rails(&listen);
    config.advertise = advertise.as_deref().map(rails).unwrap_or_default();
    config.manager = Some(ready.address.clone());
    config.token = Some(ready.join_token.clone());
    config.name = Some(name.to_owned());
    // Each drive is on a host of its own, so that placement spreads over all.
    config.host = Some(format!("host-{name}"));
    config.capacity_bytes = capacity_bytes;
    config.settings.sync = false;
    config.settings.disk_model = disk_model;
    config.settings.engine = ENGINE.get().cloned();
    let (tell, told) = oneshot::channel();
    let node = Node::start(move |stop| async move {
        let stopped = async move {
            let _ = stop.await;
        };
        if let Err(error) = crate::run_drive(config, tell, stopped).await {
            eprintln!("a drive failed: {error}");
        }
    });
    told.await.ok().map(|ready| (node, ready))
}

pub(crate) fn shape(scheme: Scheme, k: u8, m: u8, unit: u32) -> Shape {
    Shape::new(scheme, k, m, unit).expect("a good shape")
}

pub(crate) fn name(path: &str) -> Name {
    format!("braid://main/{path}").parse().expect("a good name")
}

/// Bytes that depend on position and seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&random.draw().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// xorshift64*: the same numbers for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }
}

/// Reads the whole file.
pub(crate) async fn read_all(client: &Client, name: &Name) -> braid_client::Result<Vec<u8>> {
    let file = client.open(name, &braid_client::OpenOptions::new().read(true)).await?;
    let mut bytes = vec![0xee; usize::try_from(file.size()).expect("small")];
    let read = file.read_at(&mut bytes, 0).await?;
    assert_eq!(read, bytes.len());
    Ok(bytes)
}

/// Creates a file with these bytes.
pub(crate) async fn put(client: &Client, name: &Name, shape: Shape, bytes: &[u8]) {
    let options = braid_client::OpenOptions::new().write(true).create(true).truncate(true).shape(shape);
    let file = client.open(name, &options).await.expect("open");
    file.write_at(bytes, 0).await.expect("write");
    file.close().await.expect("close");
}

/// Asserts equality, and reports the first differing byte instead of two long vectors.
pub(crate) fn assert_same(found: &[u8], expected: &[u8], context: &str) {
    assert_eq!(found.len(), expected.len(), "{context}: length");
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!(
            "{context}: byte {at} of {} is {:#x}, expected {:#x}",
            expected.len(),
            found[at],
            expected[at]
        );
    }
}

/// Opens the file for writing, alone, as soon as its last writer's lease has ended.
pub(crate) async fn open_when_free(client: &Client, name: &Name) -> braid_client::File {
    let options = braid_client::OpenOptions::new().read(true).write(true);
    let until = std::time::Instant::now() + Duration::from_secs(15);
    loop {
        match client.open(name, &options).await {
            Ok(file) if !file.is_shared() => return file,
            Ok(file) if std::time::Instant::now() < until => {
                file.close().await.expect("close");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) if error.kind() == braid_client::Kind::Busy && std::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => panic!("it is not free: {:?}", other.err()),
        }
    }
}
