//! A manager that did not run for longer than its leases last.

use std::thread::JoinHandle;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, HolderId};
use braid_manager::{Config, Ready, run};
use braid_wire::capability::Protection;
use braid_wire::control::*;
use tokio::sync::{mpsc, oneshot};

use crate::fake::{Client, FakeDrive, no_shape, open, release};

const LEASE_MS: u32 = 2000;
const CLIENT_LEASE_MS: u32 = 3000;
const PAUSE: Duration = Duration::from_secs(4);

/// A manager in its own thread, which can be paused like a stopped process.
struct Pausable {
    ready: Ready,
    pause: mpsc::UnboundedSender<oneshot::Sender<()>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Pausable {
    async fn start() -> Pausable {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            lease_ms: LEASE_MS,
            client_lease_ms: CLIENT_LEASE_MS,
            ..Config::new(dir.path(), "127.0.0.1:0")
        };
        let (tell, ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (pause, mut pauses) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::spawn(async move {
                    while let Some(begun) = pauses.recv().await {
                        let _ = begun.send(());
                        std::thread::sleep(PAUSE);
                    }
                });
                let stopped = async { drop(stopped.await) };
                run(config, tell, stopped).await.unwrap();
            });
        });
        Pausable { ready: ready.await.unwrap(), pause, stop, thread, _dir: dir }
    }

    /// Pauses the manager; returns once it is paused.
    async fn pause(&self) {
        let (begun, has_begun) = oneshot::channel();
        self.pause.send(begun).unwrap();
        has_begun.await.unwrap();
    }

    async fn stop(self) {
        drop(self.stop);
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_manager_that_was_paused_judges_nobody_by_it() {
    let manager = Pausable::start().await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        drives.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    let up = |status: &StatusReply| status.drives.iter().all(|drive| drive.state == DriveState::Up);
    client.until("all up", up).await;
    client
        .done(VolumeCreate {
            name: "main".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    let closed = client.create("closed").await;
    client.done(release(&closed, true)).await;
    let written = client.create("written").await;
    // Messages of drives and the writer in the next seconds are lost, as when a pause breaks their
    // connections.
    drives.iter().for_each(|drive| drive.state().silent = true);
    tokio::time::sleep(Duration::from_millis(200)).await; // for heartbeats on their way
    manager.pause().await;
    let next = client.opened(open("closed", Access::Write, false)).await;
    let all: ColumnMask = (0..3u8).map(Column).collect();
    assert_eq!(next.stat.segments[0].set, all, "no column goes out for a silence that was ours");
    let status = client.status().await;
    assert!(up(&status), "{status:?}");
    drives.iter().for_each(|drive| drive.state().silent = false);
    // The loop that ends leases has time to run before the writer is heard.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.renews(&written, HolderId(7)).await);
    client
        .done(Commit {
            file: written.stat.file,
            lease: written.lease,
            holder: HolderId(7),
            size: 1,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        })
        .await;
    drop(client);
    manager.stop().await;
}
