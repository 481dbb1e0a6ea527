//! Requests repeated after a lost answer: each is carried out once, and a repeat gets the first answer, even
//! after a restart.

use std::time::Duration;

use braid_layout::{ClientId, Column, HolderId, OperationNumber};
use braid_manager::sessions::operation_turns::forget_old;
use braid_meta::records::schema::{OperationRecord, key, table};
use braid_meta::rules::operations::{AGE_MAX_MS, KEPT_MS};
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;

use crate::fake::{Client, Cluster, NEW_FILE, lost, no_shape, open, opened, raid5, release};

fn make(path: &str) -> MakeDirectory {
    MakeDirectory { at: NamePlace::of("main", path), parents: false, new: NEW_FILE }
}

fn unlink(path: &str) -> Unlink {
    Unlink { at: NamePlace::of("main", path), only: UnlinkOnly::Any, keep: false }
}

fn rename(from: &str, to: &str) -> Rename {
    Rename {
        from: NamePlace::of("main", from),
        to: NamePlace::of("main", to),
        how: RenameHow::Replace,
        keep: false,
    }
}

fn exclusive(path: &str) -> Open {
    Open { exclusive: true, ..open(path, Access::Write, true) }
}

/// A file of this size, closed.
async fn file_of(client: &mut Client, path: &str, size: u64) {
    let file = client.create(path).await;
    client
        .done(Commit {
            file: file.stat.file,
            lease: file.lease,
            holder: HolderId(7),
            size,
            order: 1,
            cut: Cut::No,
            modified_ns: None,
            backing: Backing::NONE,
        })
        .await;
    client.done(release(&file, true)).await;
}

async fn is_done(client: &mut Client, head: &RequestHead, request: impl Into<ControlRequest>) {
    let answer = client.ask_as(head, request).await;
    assert!(matches!(answer, Ok(ControlReply::Done(_) | ControlReply::Stat(_))), "{answer:?}");
}

#[tokio::test]
async fn a_repeat_is_answered_from_memory_and_hits_nobody_elses_file() {
    let mut cluster = Cluster::new(3, no_shape()).await;
    let (mut client, mut other) = (cluster.manager.client().await, cluster.manager.client().await);
    file_of(&mut client, "f", 1).await;
    file_of(&mut client, "g", 2).await;
    let requests: [ControlRequest; 5] = [
        unlink("f").into(),
        rename("g", "h").into(),
        make("d").into(),
        VolumeCreate {
            name: "v".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        }
        .into(),
        VolumeRemove { name: "v".into() }.into(),
    ];
    let heads = client.operations(requests.len());
    for (head, request) in heads.iter().zip(&requests) {
        is_done(&mut client, head, request.clone()).await;
    }
    // The answers are lost. Another client reuses the names.
    file_of(&mut other, "f", 10).await;
    file_of(&mut other, "g", 20).await;
    other.done(unlink("d")).await;
    other
        .done(VolumeCreate {
            name: "v".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    for restarted in [false, true] {
        if restarted {
            cluster = cluster.restart_manager().await;
            (client.0, other) = (cluster.manager.client().await.0, cluster.manager.client().await);
        }
        for (head, request) in heads.iter().zip(&requests) {
            let again = client.ask_as(head, request.clone()).await;
            let is_right = match (&again, &request) {
                // The directory that it made is gone, and is not made again.
                (Err(refusal), ControlRequest::MakeDirectory(_)) => refusal.reason == Reason::NotFound,
                (again, _) => *again == Ok(ControlReply::Done(Done {})),
            };
            assert!(is_right, "{request:?}, restarted: {restarted}: {again:?}");
        }
        assert_eq!(other.stat("f").await.unwrap().size(), 10, "restarted: {restarted}");
        assert_eq!(other.stat("g").await.unwrap().size(), 20, "restarted: {restarted}");
        assert_eq!(other.stat("h").await.unwrap().size(), 2, "restarted: {restarted}");
        assert_eq!(other.stat("d").await.unwrap_err().reason, Reason::NotFound, "restarted: {restarted}");
        assert_eq!(other.status().await.volumes, 2, "restarted: {restarted}");
    }
    // A new number is a new request.
    assert_eq!(client.refused(make("f")).await.reason, Reason::Exists);
}

#[tokio::test]
async fn a_repeated_open_finds_the_lease_that_it_was_given() {
    let mut cluster = Cluster::new(3, no_shape()).await;
    let (mut client, mut other) = (cluster.manager.client().await, cluster.manager.client().await);
    file_of(&mut client, "old", 1).await;
    let unnamed = CreateUnnamed {
        volume: "main".into(),
        shape: no_shape(),
        holder: HolderId(7),
        avoid: vec![],
        meant_for: None,
        takes_sealed: false,
        new: NEW_FILE,
    };
    let requests: [ControlRequest; 3] =
        [exclusive("new").into(), open("old", Access::Write, false).into(), unnamed.into()];
    let heads = client.operations(requests.len());
    let mut files = Vec::new();
    for (head, request) in heads.iter().zip(&requests) {
        files.push(opened(client.ask_as(head, request.clone()).await.unwrap()));
    }
    // Its name now belongs to another file: the repeat is about the one that was created.
    other.done(rename("new", "moved")).await;
    other.done(make("new")).await;
    for restarted in [false, true] {
        if restarted {
            cluster = cluster.restart_manager().await;
            client.0 = cluster.manager.client().await.0;
        }
        for ((head, request), file) in heads.iter().zip(&requests).zip(&files) {
            let again = opened(client.ask_as(head, request.clone()).await.unwrap());
            assert_eq!((again.stat.file, again.lease), (file.stat.file, file.lease), "{request:?}");
            assert!(client.renews(&again, HolderId(7)).await);
        }
    }
    // A different request is refused as before.
    assert_eq!(client.refused(exclusive("old")).await.reason, Reason::Exists);
}

#[tokio::test]
async fn a_repeated_open_whose_lease_is_over_gets_another_on_the_same_file() {
    let cluster = Cluster::lapsing(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let head = client.operation();
    let file = opened(client.ask_as(&head, exclusive("f")).await.unwrap());
    for column in 0..3 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    crate::fake::eventually("its lease lapses", || async {
        cluster.of(&file, 0).state().carried_out.contains(&"Fence")
    })
    .await;
    let again = opened(client.patient_as(&head, exclusive("f")).await.unwrap());
    assert_eq!((again.stat.file, again.lease.0, again.cut), (file.stat.file, file.lease.0 + 1, false));
}

#[tokio::test]
async fn a_repeated_release_and_link_are_done_though_the_lease_is_over() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let unnamed = client
        .opened(CreateUnnamed {
            volume: "main".into(),
            shape: no_shape(),
            holder: HolderId(7),
            avoid: vec![],
            meant_for: None,
            takes_sealed: false,
            new: NEW_FILE,
        })
        .await;
    for column in 0..3 {
        cluster.of(&unnamed, column).put(&unnamed, Column(column), &[]);
    }
    let file = unnamed.stat.file;
    let lease = unnamed.lease;
    let link = Link {
        file,
        lease,
        holder: HolderId(7),
        at: NamePlace::of("main", "f"),
        size: 3,
        replace: false,
        over: None,
        order: 1,
        changes: AttributeChanges::NONE,
        ends: None,
        backing: Backing::NONE,
    };
    let heads = client.operations(2);
    is_done(&mut client, &heads[0], link.clone()).await;
    let dead = cluster.of(&unnamed, 1);
    dead.kill();
    client.patient(lost(&unnamed, &[1])).await.unwrap();
    is_done(&mut client, &heads[1], release(&unnamed, true)).await;
    is_done(&mut client, &heads[0], link.clone()).await;
    is_done(&mut client, &heads[1], release(&unnamed, true)).await;
    // As new operations they are refused, because the lease is over.
    for request in [ControlRequest::from(link), release(&unnamed, true).into()] {
        assert_eq!(client.refused(request.clone()).await.reason, Reason::LeaseLost, "{request:?}");
    }
}

#[tokio::test]
async fn a_repeated_replacement_says_what_the_first_did() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    for path in ["a", "b", "c", "d"] {
        file_of(&mut client, path, 1).await;
    }
    let status = client.status().await;
    let old = status.drives.iter().max_by_key(|row| row.components).unwrap();
    assert!(old.components > 0);
    cluster.drive(old.drive).kill();
    let new = crate::fake::FakeDrive::join(&cluster.manager.ready, 9, "new").await.unwrap();
    client.until_up(&[&new]).await;
    let replace = ReplaceDrive { old: old.name.clone(), new: new.name.clone() };
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    let (head, first) = loop {
        let head = client.operation();
        match client.patient_as(&head, replace.clone()).await {
            // The old drive's lease has not lapsed yet. The next try is another operation.
            Err(refusal) if refusal.reason == Reason::DriveInUse && tokio::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            answer => break (head, answer),
        }
    };
    assert_eq!(first, Ok(ControlReply::Replaced(ReplaceDriveReply { components: old.components })));
    // Neither columns placed on it since, nor that the new drive is away now, change the answer.
    new.kill();
    assert_eq!(client.ask_as(&head, replace).await, first);
}

#[tokio::test]
async fn a_copy_that_was_held_up_changes_nothing_once_its_asker_went_on() {
    let cluster = Cluster::new(3, no_shape()).await;
    let (mut client, mut late) = (cluster.manager.client().await, cluster.manager.client().await);
    file_of(&mut client, "f", 1).await;
    let removed = client.operation();
    let refused = client.operation();
    is_done(&mut client, &removed, unlink("f")).await;
    assert_eq!(client.ask_as(&refused, unlink("g")).await.unwrap_err().reason, Reason::NotFound);
    client.done(make("d")).await;
    // The client's next operation settled these; others use the names.
    file_of(&mut client, "f", 2).await;
    file_of(&mut client, "g", 2).await;
    for (head, path) in [(&removed, "f"), (&refused, "g")] {
        let reason = late.ask_as(head, unlink(path)).await.unwrap_err().reason;
        assert_eq!(reason, Reason::Outdated, "{path}");
        assert_eq!(client.stat(path).await.unwrap().size(), 2);
    }
    // A refused operation that no other followed is refused again, whatever exists now.
    let refused = client.operation();
    assert_eq!(client.ask_as(&refused, make("d")).await.unwrap_err().reason, Reason::Exists);
    late.done(unlink("d")).await;
    assert_eq!(late.ask_as(&refused, make("d")).await.unwrap_err().reason, Reason::Exists);
}

#[tokio::test]
async fn numbers_are_needed_rise_and_grow_old() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let bare = client.ask_as(&RequestHead::NONE, make("d")).await.unwrap_err();
    assert_eq!(bare.reason, Reason::Malformed);
    let head = client.operation();
    is_done(&mut client, &head, make("d")).await;
    let other = client.ask_as(&head, make("e")).await.unwrap_err();
    assert_eq!(other.reason, Reason::Malformed, "the number was another request's: {other}");
    let mut old = client.operation();
    old.begun_ms -= AGE_MAX_MS + 1000;
    assert_eq!(client.ask_as(&old, make("e")).await.unwrap_err().reason, Reason::Outdated);
    assert_eq!(client.stat("e").await.unwrap_err().reason, Reason::NotFound);
}

/// Rows of operations: client, number and time.
fn rows(core: &braid_manager::core::Core) -> Vec<(u64, u64, u64)> {
    let rows = core.db.read(|tx| Ok(tx.records::<OperationRecord>(&key::all(table::OPERATION), usize::MAX)?));
    let number = |(row, record): (Vec<u8>, OperationRecord)| {
        (key::number(&row, 1), key::number(&row, 9), record.done_ms)
    };
    rows.unwrap().into_iter().map(number).collect()
}

#[tokio::test]
async fn what_is_settled_or_old_is_forgotten() {
    let kv = braid_meta::records::memory::MemoryKv::new();
    let manager = crate::crash::InMemory::start(&kv, "127.0.0.1:0").await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        drives.push(crate::fake::FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    client.until_up(&drives.iter().collect::<Vec<_>>()).await;
    client
        .done(VolumeCreate {
            name: "main".into(),
            shape: no_shape(),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    for name in ["a", "b", "c"] {
        client.done(make(name)).await;
    }
    let left = rows(&manager.core);
    assert_eq!(left.iter().map(|row| row.1).collect::<Vec<_>>(), [4], "one is not settled");
    // Operations of another client, which left without a word an hour ago.
    let now_ms = manager.core.now_ms();
    manager
        .core
        .write(move |_, tx| {
            for (number, done_ms) in [(1, now_ms - KEPT_MS - 1), (2, now_ms - KEPT_MS + 60_000)] {
                let record = OperationRecord {
                    done_ms,
                    request: 0,
                    file: Default::default(),
                    lease: Default::default(),
                    number: 0,
                };
                tx.set(key::operation(ClientId(1), OperationNumber(number)), &record);
            }
            Ok(())
        })
        .await
        .unwrap();
    forget_old(&manager.core).await.unwrap();
    let left: Vec<(u64, u64)> = rows(&manager.core).into_iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(left, [(1, 2), (client.1.0, 4)]);
    manager.die().await;
}
