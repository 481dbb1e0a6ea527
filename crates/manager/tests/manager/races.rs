//! Events between two steps of the manager: a second open, writers while a drive returns.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use braid_layout::{ClientId, Column, ColumnMask, HolderId, OperationNumber};
use braid_manager::core::Core;
use braid_manager::files::opens;
use braid_meta::records::memory::MemoryKv;
use braid_meta::rules::operations::Operation;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use braid_wire::{Reason, Refusal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::crash::InMemory;
use crate::fake::{
    CLIENT_LEASE_LONG_MS, Client, Cluster, FakeDrive, eventually, lost, no_shape, open, opened, release,
};

async fn cluster(kv: &MemoryKv) -> (InMemory, Vec<FakeDrive>, Client) {
    let manager = InMemory::with_client_lease(kv, "127.0.0.1:0", CLIENT_LEASE_LONG_MS).await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        drives.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    client.until("all up", |s| s.drives.iter().all(|drive| drive.state == DriveState::Up)).await;
    client
        .done(VolumeCreate {
            name: "main".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    (manager, drives, client)
}

fn holds(core: &Core, file: &Opened, holder: HolderId) -> bool {
    core.leases().renew(file.stat.file, file.lease, holder, core.running_ms())
}

/// Opens for writing as an operation of its own.
async fn to_write(
    core: &Arc<Core>,
    client: ClientId,
    holder: HolderId,
    path: &str,
) -> Result<Opened, Refusal> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = OperationNumber(NUMBER.fetch_add(1, Ordering::Relaxed));
    let operation = Operation { client, number, settled_below: OperationNumber::NONE, request: 0 };
    let request = Open { holder, ..open(path, Access::Write, true) };
    opens::open_to_write(core, operation, request).await
}

#[tokio::test]
async fn a_file_that_was_made_just_now_has_its_makers_lease_whoever_finds_it() {
    let kv = MemoryKv::new();
    let (manager, _drives, _client) = cluster(&kv).await;
    let core = Arc::clone(&manager.core);
    let before = kv.commits();
    // Another transaction goes first, so that the creator must wait for its own.
    let (entered, inside) = oneshot::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let other = tokio::spawn({
        let core = Arc::clone(&core);
        let work = move |_: &Core, _: &mut _| {
            let _ = entered.send(());
            let _ = gone.recv();
            Ok(())
        };
        async move { core.write(work).await }
    });
    inside.await.unwrap();
    let mut maker = Box::pin(to_write(&core, ClientId(1), HolderId(1), "f"));
    poll_fn(|cx| {
        assert!(maker.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    // The creator's transaction is durable, but its task does not continue for a while.
    drop(go);
    other.await.unwrap().unwrap();
    eventually("the file is on record", || async { kv.commits() > before }).await;
    let finder = timeout(Duration::from_millis(500), to_write(&core, ClientId(2), HolderId(2), "f")).await;
    assert!(finder.is_err(), "it waits for its turn: {finder:?}");
    let made = maker.await.unwrap();
    let third = to_write(&core, ClientId(3), HolderId(3), "f").await.unwrap();
    assert!(third.shared && third.lease > made.lease);
    assert!(holds(&core, &made, HolderId(1)) && holds(&core, &third, HolderId(3)));
    assert!(!holds(&core, &made, HolderId(2)), "it gave up");
    manager.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_openers_of_a_new_file_share_it() {
    let (manager, _drives, _client) = cluster(&MemoryKv::new()).await;
    for round in 0..100 {
        let path = format!("f{round}");
        let ask = |client: ClientId, holder: HolderId| {
            let core = Arc::clone(&manager.core);
            let path = path.clone();
            tokio::spawn(async move { to_write(&core, client, holder, &path).await })
        };
        let one = ask(ClientId(1), HolderId(1));
        let other = ask(ClientId(2), HolderId(2));
        let answers = [one.await.unwrap(), other.await.unwrap()];
        for (answer, holder) in answers.iter().zip([HolderId(1), HolderId(2)]) {
            match answer {
                Ok(opened) => {
                    assert!(holds(&manager.core, opened, holder), "round {round}: {holder} lost it")
                }
                // The file's creator has not got its lease yet.
                Err(refusal) => assert_eq!(refusal.reason, Reason::Busy, "round {round}"),
            }
        }
        assert!(answers.iter().any(Result::is_ok), "round {round}: {answers:?}");
    }
    manager.die().await;
}

#[tokio::test]
async fn no_column_goes_out_while_its_drive_is_told_what_it_missed() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let all: ColumnMask = (0..3u8).map(Column).collect();
    let f = client.create("f").await;
    let g = client.create("g").await;
    for file in [&f, &g] {
        (0..3).for_each(|column| cluster.of(file, column).put(file, Column(column), &[]));
    }
    client.done(release(&g, true)).await;
    let dead = cluster.of(&f, 1).clone();
    dead.kill();
    let after = opened(client.patient(lost(&f, &[1])).await.unwrap());
    assert_eq!(after.stat.segments[0].set, all.without(Column(1)));
    client.done(release(&f, true)).await;
    // The drive returns, but for now it cannot be told what it missed.
    dead.state().mute = true;
    dead.start().await;
    let beats =
        |status: &StatusReply| status.drives.iter().any(|row| row.drive == dead.id && row.silent_ms < 500);
    client.until("it is heard", beats).await;
    let writer = client.opened(open("g", Access::Write, false)).await;
    assert_eq!(writer.stat.segments[0].set, all, "the writer waits for the drive");
    dead.state().mute = false;
    client.until_up(&[&dead]).await;
    assert_eq!(client.stat("g").await.unwrap().segments[0].set, all);
    assert_eq!(client.status().await.drives.iter().map(|row| row.stale).sum::<u64>(), 1);
}

#[tokio::test]
async fn a_drive_is_told_of_many_columns_in_a_few_transactions() {
    let kv = MemoryKv::new();
    let (manager, drives, mut client) = cluster(&kv).await;
    let dead = &drives[0];
    let mut files = Vec::new();
    for number in 0..30 {
        let file = client.create(&format!("f{number}")).await;
        for (column, row) in (0u8..).zip(&file.stat.segments[0].columns) {
            drives.iter().find(|drive| drive.id == row.drive).unwrap().put(&file, Column(column), &[]);
        }
        client.done(release(&file, true)).await;
        files.push(file);
    }
    dead.kill();
    // Each column goes out when a writer comes, once the drive has surely lapsed.
    for number in 0..files.len() {
        let path = format!("f{number}");
        eventually("it goes out", || {
            let path = path.clone();
            let ready = &manager.ready;
            async move {
                let mut client = Client::connect(ready).await;
                let next = opened(client.patient(open(&path, Access::Write, false)).await.unwrap());
                client.done(release(&next, true)).await;
                next.stat.segments[0].set.count() == 2
            }
        })
        .await;
    }
    let before = kv.commits();
    dead.start().await;
    client.until_up(&[dead]).await;
    // One commit for its new address, one for all columns that it was told of, and maybe one for the time.
    let commits = kv.commits() - before;
    assert!(commits <= 6, "{commits} transactions for {} columns", files.len());
    for file in &files {
        let held = dead.object(file.stat.volume.0, file.stat.segments[0].columns[0].object).unwrap();
        assert!(held.g > file.stat.g, "it was fenced for each");
    }
    manager.die().await;
}
