//! A manager that dies after any of its commits: its state is consistent, and its successor finishes what was
//! begun.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, HolderId};
use braid_manager::core::Core;
use braid_manager::sessions::serve::serve;
use braid_manager::sessions::session_slots::SessionSlots;
use braid_manager::start::{ready, start};
use braid_manager::sweep::sweep;
use braid_manager::{Config, Ready};
use braid_meta::records::check::check;
use braid_meta::records::memory::MemoryKv;
use braid_transport::Listener;
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use tokio::task::JoinSet;

use crate::fake::{
    CLIENT_LEASE_MS, Client, FakeDrive, LEASE_MS, NEW_FILE, eventually, lost, no_shape, open, release,
};

/// A manager whose state is in memory.
pub(crate) struct InMemory {
    pub(crate) core: Arc<Core>,
    pub(crate) ready: Ready,
    tasks: JoinSet<()>,
}

impl InMemory {
    pub(crate) async fn start(kv: &MemoryKv, listen: &str) -> InMemory {
        InMemory::with_client_lease(kv, listen, CLIENT_LEASE_MS).await
    }

    pub(crate) async fn with_client_lease(kv: &MemoryKv, listen: &str, client_lease_ms: u32) -> InMemory {
        let mut manager = InMemory::without_background(kv, listen, client_lease_ms).await;
        manager.tasks.spawn(sweep(Arc::clone(&manager.core)));
        manager
    }

    /// Starts a manager that answers, and runs no background work.
    pub(crate) async fn without_background(kv: &MemoryKv, listen: &str, client_lease_ms: u32) -> InMemory {
        let config = Config { lease_ms: LEASE_MS, client_lease_ms, ..Config::new("memory", listen) };
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match Listener::bind(listen).await {
                Ok(listener) => break listener,
                // Another test's connection uses the port at the moment.
                Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let core = start(Arc::new(kv.clone()), &config, SessionSlots::of(64, 64)).await.unwrap();
        let ready = ready(&core, &listener);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(Arc::clone(&core), listener));
        InMemory { core, ready, tasks }
    }

    pub(crate) async fn die(mut self) -> String {
        self.tasks.shutdown().await;
        self.ready.address
    }
}

/// The requests to the manager. After it has died all are refused, which is ignored.
async fn workload(client: &mut Client, drives: &[FakeDrive]) {
    let main = || "main".to_owned();
    let _ = client
        .ask(VolumeCreate {
            name: main(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    let _ =
        client.ask(MakeDirectory { at: NamePlace::of(main(), "a/b"), parents: true, new: NEW_FILE }).await;
    let put = |file: &Opened| {
        for (index, column) in (0u8..).zip(&file.stat.segments[0].columns) {
            let drive = drives.iter().find(|drive| drive.id == column.drive).unwrap();
            drive.put(file, Column(index), &[]);
        }
    };
    for path in ["a/f", "a/b/g"] {
        if let Ok(ControlReply::Opened(file)) = client.ask(open(path, Access::Write, true)).await {
            put(&file);
            let _ = client
                .ask(Commit {
                    file: file.stat.file,
                    lease: file.lease,
                    holder: HolderId(7),
                    size: 100,
                    order: 1,
                    cut: Cut::No,
                    modified_ns: None,
                    backing: Backing::NONE,
                })
                .await;
            let _ = client.ask(release(&file, true)).await;
        }
    }
    let _ = client
        .ask(Rename {
            from: NamePlace::of(main(), "a/b"),
            to: NamePlace::of(main(), "c"),
            how: RenameHow::Replace,
            keep: false,
        })
        .await;
    let unnamed = CreateUnnamed {
        volume: main(),
        shape: no_shape(),
        holder: HolderId(7),
        avoid: Vec::new(),
        meant_for: None,
        takes_sealed: false,
        new: NEW_FILE,
    };
    if let Ok(ControlReply::Opened(file)) = client.ask(unnamed).await {
        put(&file);
        let id = file.stat.file;
        let lease = file.lease;
        let path = "a/f";
        let _ = client
            .ask(Link {
                file: id,
                lease,
                holder: HolderId(7),
                at: NamePlace::of(main(), path),
                size: 50,
                replace: true,
                over: None,
                order: 1,
                changes: AttributeChanges::NONE,
                ends: None,
                backing: Backing::NONE,
            })
            .await;
        drives[0].kill();
        let column = file.stat.segments[0].columns.iter().position(|c| c.drive == drives[0].id);
        let column = u8::try_from(column.unwrap()).unwrap();
        let answer = client.patient(lost(&file, &[column])).await;
        let _ = client.ask(release(&file, answer.is_err())).await;
        drives[0].start().await;
        if answer.is_ok() {
            heal(&drives[0], &file).await;
        }
    }
    let _ = client
        .ask(Rename {
            from: NamePlace::of(main(), "c/g"),
            to: NamePlace::of(main(), "a/f"),
            how: RenameHow::Replace,
            keep: false,
        })
        .await;
    let _ = client.ask(Unlink { at: NamePlace::of(main(), "c"), only: UnlinkOnly::Any, keep: false }).await;
}

async fn heal(drive: &FakeDrive, file: &Opened) {
    for _ in 0..200 {
        match drive.ask(BeginHeal { file: file.stat.file, comparison: 1, filling: false, in_vain: 0 }).await {
            Ok(ControlReply::Opened(opened)) => {
                let file = opened.stat.file;
                let g = opened.stat.g;
                let _ = drive.ask(EndHeal { file, g, left: 0, comparison: 1, filling: false }).await;
                return;
            }
            // The drive is not up yet, or has no session yet.
            Err(braid_transport::TransportError::Refusal(refusal))
                if matches!(refusal.reason, Reason::NoDrive | Reason::NotLeading | Reason::Busy) =>
            {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            _ => return,
        }
    }
}

/// A manager whose state is in this memory, three drives that are up, and a client.
pub(crate) async fn three_drives(kv: &MemoryKv) -> (InMemory, Client, Vec<FakeDrive>) {
    let manager = InMemory::start(kv, "127.0.0.1:0").await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        drives.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    client.until("all up", |s| s.drives.iter().all(|drive| drive.state == DriveState::Up)).await;
    (manager, client, drives)
}

/// The manager that follows on one that has died, at its address. The state that it finds is consistent.
pub(crate) async fn successor(kv: &MemoryKv, dead: InMemory, died_after: Option<u64>) -> (InMemory, Client) {
    let address = dead.die().await;
    let manager = InMemory::start(&kv.restarted(), &address).await;
    let whole = check(&manager.core.db).unwrap();
    assert!(whole.is_empty(), "died after {died_after:?}: {whole:#?}");
    let client = Client::connect(&manager.ready).await;
    (manager, client)
}

/// Runs the workload with a manager that dies after this many of its commits (or never), and its successor.
/// Returns the number of commits.
async fn run(die_after: Option<u64>) -> u64 {
    let kv = MemoryKv::new();
    let (manager, mut client, drives) = three_drives(&kv).await;
    let before = kv.commits();
    if let Some(commits) = die_after {
        kv.die_after(commits);
    }
    workload(&mut client, &drives).await;
    let commits = kv.commits() - before;
    drop(client);
    let (manager, mut client) = successor(&kv, manager, die_after).await;
    eventually("what was begun is finished", || async {
        let leases = manager.core.read(|_, tx| {
            let (from, to) =
                braid_meta::records::schema::key::all(braid_meta::records::schema::table::ATTENTION);
            Ok(tx.scan(&from, &to, usize::MAX)?.len())
        });
        leases.await.unwrap() == 0
    })
    .await;
    // Components are freed at once, but rows of files whose writer vanished stay until its capabilities
    // expire.
    client.until("drives are up", |s| s.drives.iter().all(|drive| drive.state == DriveState::Up)).await;
    let status = client.status().await;
    let wanted = usize::try_from(status.files).unwrap() * 3;
    eventually("components of removed files are freed", || async {
        drives.iter().map(|drive| drive.state().objects.len()).sum::<usize>() <= wanted
    })
    .await;
    let whole = check(&manager.core.db).unwrap();
    assert!(whole.is_empty(), "finished after {die_after:?}: {whole:#?}");
    manager.die().await;
    commits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_may_die_after_any_commit() {
    let commits = run(None).await;
    assert!(commits > 15, "{commits}");
    let mut runs = JoinSet::new();
    for after in 0..commits {
        runs.spawn(run(Some(after)));
        if runs.len() >= 12 {
            runs.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(done) = runs.join_next().await {
        done.unwrap();
    }
}
