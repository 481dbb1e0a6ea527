//! A manager and three drives in this process, in a temporary directory.

use braid_client::Client;
use braid_client::Config;
use braid_client::File;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_manager::Ready;
use braid_object_store::BraidStore;
pub(crate) use braid_testing::wait_for;
use braid_wire::control::DriveState;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const DRIVES: usize = 3;

pub(crate) struct Cluster {
    ready: Ready,
    /// The runtime of manager and drives. It is dropped first, so that they end before their directory is
    /// removed.
    runtime: Option<Runtime>,
    /// Senders of the orders to stop, which are never sent.
    _running: Vec<oneshot::Sender<()>>,
    _dir: TempDir,
}

impl Cluster {
    /// Starts a cluster with a volume "main".
    pub(crate) async fn start() -> Cluster {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut running = Vec::new();
        let mut until_stopped = || {
            let (stop, stopped) = oneshot::channel::<()>();
            running.push(stop);
            async move { drop(stopped.await) }
        };
        let config = braid_manager::Config::new(dir.path().join("manager"), "127.0.0.1:0");
        let (tell, told) = oneshot::channel();
        runtime.spawn(braid_manager::run(config, tell, until_stopped()));
        let ready = told.await.expect("the manager starts");
        for index in 0..DRIVES {
            let mut config =
                braid_drive::Config::new(dir.path().join(format!("drive{index}")), "127.0.0.1:0");
            config.manager = Some(ready.address.clone());
            config.token = Some(ready.join_token.clone());
            config.name = Some(format!("d{index}"));
            config.host = Some(format!("host-{index}"));
            config.settings.sync = false;
            let (tell, told) = oneshot::channel();
            runtime.spawn(braid_drive::run(config, tell, until_stopped()));
            told.await.expect("the drive starts");
        }
        let cluster = Cluster { ready, runtime: Some(runtime), _running: running, _dir: dir };
        let client = cluster.client().await;
        wait_for(|| async {
            let rows = client.status().await.expect("status").drives;
            rows.iter().filter(|row| row.state == DriveState::Up).count() == DRIVES
        })
        .await;
        client.volume_create("main", None, 0).await.expect("a volume");
        cluster
    }

    pub(crate) async fn client(&self) -> Client {
        let config = Config::new(self.ready.address.clone(), self.ready.client_token.clone());
        Client::connect(config).await.expect("a client")
    }

    /// The volume as a store, with a client of its own.
    pub(crate) async fn store(&self) -> BraidStore {
        BraidStore::new(self.client().await, "main").expect("a good name")
    }

    /// The content of the cluster's `cluster.toml`.
    pub(crate) fn file(&self) -> String {
        format!("manager = {:?}\ntoken = {:?}\n", self.ready.address, self.ready.client_token.to_string())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn name(path: &str) -> Name {
    format!("braid://main/{path}").parse().expect("a good name")
}

/// Makes a file as a program with a mount does, whether or not there is such a file already.
pub(crate) async fn write_file(client: &Client, path: &str, bytes: &[u8]) -> File {
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = client.open(&name(path), &options).await.expect("opened");
    file.write_at(bytes, 0).await.expect("written");
    file
}

/// Pseudo-random bytes, so that a misplaced byte is noticed.
pub(crate) fn pattern(seed: u64, length: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}
