//! Real sessions on loopback: tokens, garbage, names, leases, quotas, two managers.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::HolderId;
use braid_manager::{Config, ManagerError, run};
use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::key;
use braid_transport::{ControlSession, Credentials, Limits, TransportError};
use braid_wire::capability::Protection;
use braid_wire::capability::{Key, Rights};
use braid_wire::control::*;
use braid_wire::token::Token;
use braid_wire::{Reason, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::crash::InMemory;
use crate::fake::{
    CLIENT_LEASE_LONG_MS, Client, Cluster, FakeDrive, Manager, NEW_FILE, commit, no_shape, open, raid5,
    release,
};

#[tokio::test]
async fn a_file_is_made_named_found_and_listed() {
    let cluster = Cluster::new(6, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let make = MakeDirectory { at: NamePlace::of("main", "a/b"), parents: true, new: NEW_FILE };
    client.done(make).await;
    let opened = client
        .opened(CreateUnnamed {
            volume: "main".into(),
            shape: no_shape(),
            holder: HolderId(7),
            avoid: Vec::new(),
            meant_for: None,
            takes_sealed: false,
            new: NEW_FILE,
        })
        .await;
    let segment = &opened.stat.segments[0];
    assert_eq!((segment.shape.k, segment.shape.m, segment.shape.unit_bytes), (4, 1, 512 << 10));
    assert_eq!(opened.grants[0].iter().flatten().count(), 5);
    let capability = &opened.grants[0][2].as_ref().unwrap().capability;
    assert!(capability.rights.include(Rights::WRITE.and(Rights::CREATE)));
    assert!(!capability.rights.include(Rights::MANAGE) && !capability.rights.include(Rights::REMOVE));
    assert_eq!((capability.lease, capability.g), (opened.lease, opened.stat.g));
    // Every drive of the file has the volume's partition before the client sees it.
    for column in 0..5 {
        assert!(cluster.of(&opened, column).state().partitions.contains(&capability.partition));
    }
    let link = Link {
        file: opened.stat.file,
        lease: opened.lease,
        holder: HolderId(7),
        at: NamePlace::of("main", "a/b/c"),
        size: 77,
        replace: false,
        over: None,
        order: 1,
        changes: AttributeChanges { mode: Some(0o640), modified_ns: Some(123), ..AttributeChanges::NONE },
        ends: None,
        backing: Backing::NONE,
    };
    let odd =
        Link { changes: AttributeChanges { mode: Some(0o100644), ..AttributeChanges::NONE }, ..link.clone() };
    assert_eq!(client.refused(odd).await.reason, Reason::Malformed);
    client.done(link.clone()).await;
    client.done(link).await; // it comes late, after itself
    client.done(release(&opened, true)).await;
    assert_eq!(client.refused(release(&opened, true)).await.reason, Reason::LeaseLost);
    let row = client.stat("a/b/c").await.unwrap();
    assert_eq!((row.size(), row.file, row.kind()), (77, opened.stat.file, EntryKind::File));
    assert_eq!((row.attributes.modified_ns, row.attributes.mode), (123, 0o640));
    let reader = client.opened(open("a/b/c", Access::Read, false)).await;
    let capability = &reader.grants[0][0].as_ref().unwrap().capability;
    assert!(capability.rights.include(Rights::READ) && !capability.rights.include(Rights::WRITE));
    assert_eq!((reader.lease.0, capability.lease.0, reader.cut), (0, 0, false));
    let list = ReadDirectory { at: NamePlace::of("main", "a/b"), after: Vec::new(), limit: 0, watch: false };
    let Ok(ControlReply::Directory(list)) = client.ask(list).await else { panic!() };
    assert_eq!(list.entries.len(), 1);
    assert_eq!((list.entries[0].name.as_slice(), list.entries[0].size(), list.more), (&b"c"[..], 77, false));
    assert_eq!(client.status().await.files, 1);
}

#[tokio::test]
async fn pages_of_a_directory_join() {
    let cluster = Cluster::new(2, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let mut names: Vec<Vec<u8>> =
        (0..25u8).map(|i| vec![b'n', i + 1, 0xff, i]).filter(|n| n[3] != 0 && n[3] != b'/').collect();
    for name in &names {
        client
            .made(MakeDirectory { at: NamePlace::of("main", name.clone()), parents: false, new: NEW_FILE })
            .await;
    }
    let mut found = Vec::new();
    loop {
        let after = found.last().cloned().unwrap_or_default();
        let list = ReadDirectory { at: NamePlace::of("main", Vec::new()), after, limit: 7, watch: false };
        let Ok(ControlReply::Directory(page)) = client.ask(list).await else { panic!() };
        assert!(page.entries.len() == 7 || !page.more);
        found.extend(page.entries.into_iter().map(|entry| entry.name));
        if !page.more {
            break;
        }
    }
    names.sort();
    assert_eq!(found, names);
}

#[tokio::test]
async fn bad_input_is_refused_with_its_reason() {
    let cluster = Cluster::new(5, no_shape()).await;
    let mut client = cluster.manager.client().await;
    client.made(MakeDirectory { at: NamePlace::of("main", "d/e"), parents: true, new: NEW_FILE }).await;
    let file = client.create("d/f").await;
    let volume = |name: &str, shape| VolumeCreate {
        name: name.into(),
        shape,
        quota_bytes: 0,
        protection: Protection::Integrity,
        key: None,
    };
    let shape = |scheme, k, m, unit_bytes| ShapeSpec { scheme, k, m, unit_bytes };
    let make = |path: &[u8]| MakeDirectory { at: NamePlace::of("main", path), parents: false, new: NEW_FILE };
    let unlink = |path: &str| Unlink { at: NamePlace::of("main", path), only: UnlinkOnly::Any, keep: false };
    let rename = |from: &str, to: &str| Rename {
        from: NamePlace::of("main", from),
        to: NamePlace::of("main", to),
        how: RenameHow::Replace,
        keep: false,
    };
    let commit = |lease, order| {
        let file = file.stat.file;
        let holder = 7;
        let size = 1;
        let cut = Cut::No;
        let modified_ns = None;
        Commit {
            file,
            lease,
            holder: HolderId(holder),
            size,
            order,
            cut,
            modified_ns,
            backing: Backing::NONE,
        }
    };
    let mut exclusive = open("d/f", Access::Write, true);
    exclusive.exclusive = true;
    let cases: Vec<(ControlRequest, Reason)> = vec![
        (volume("v", shape(3, 4, 1, 0)).into(), Reason::BadScheme),
        (volume("v", shape(5, 4, 1, 5000)).into(), Reason::BadScheme),
        (volume("v", shape(5, 4, 1, 128 << 20)).into(), Reason::BadScheme),
        (volume("v", shape(5, 5, 1, 0)).into(), Reason::TooFewDrives),
        (volume("main", no_shape()).into(), Reason::Exists),
        (volume("a/b", no_shape()).into(), Reason::BadName),
        (VolumeRemove { name: "main".into() }.into(), Reason::NotEmpty),
        (VolumeRemove { name: "other".into() }.into(), Reason::NoVolume),
        (make(b"../x").into(), Reason::BadName),
        (make(b"x\0y").into(), Reason::BadName),
        (make(&[b'x'; 256]).into(), Reason::BadName),
        (make(&b"x/".repeat(3000)).into(), Reason::BadName),
        (make(b"d").into(), Reason::Exists),
        (make(b"no/x").into(), Reason::NotFound),
        (make(b"d/f/x").into(), Reason::NotDirectory),
        (unlink("d").into(), Reason::NotEmpty),
        (unlink("d/no").into(), Reason::NotFound),
        (unlink("").into(), Reason::BadName),
        (rename("d", "d/e/x").into(), Reason::BadName),
        (rename("d", "d/f").into(), Reason::BadName),
        (rename("d/e", "d/f").into(), Reason::NotDirectory),
        (rename("d/f", "d/e").into(), Reason::IsDirectory),
        (rename("d/e", "d").into(), Reason::NotEmpty),
        (open("d", Access::Read, false).into(), Reason::IsDirectory),
        (open("d/no", Access::Read, false).into(), Reason::NotFound),
        (open("d/no", Access::Write, false).into(), Reason::NotFound),
        (exclusive.into(), Reason::Exists),
        (commit(braid_layout::Lease(9), 1).into(), Reason::LeaseLost),
        (commit(file.lease, 0).into(), Reason::Malformed),
        (StaleFiles { drive: "drive-9".into(), after: Default::default(), limit: 1 }.into(), Reason::NoDrive),
        (ReplaceDrive { old: "drive-1".into(), new: "drive-2".into() }.into(), Reason::DriveInUse),
    ];
    for (request, reason) in cases {
        let refusal = client.refused(request.clone()).await;
        assert_eq!(refusal.reason, reason, "{request:?}: {refusal}");
    }
    let refusal = client.refused(volume("v", shape(5, 5, 1, 0))).await;
    assert!(refusal.detail.contains("6 drives") && refusal.detail.contains("are 5"), "{refusal}");
}

#[tokio::test]
async fn a_quota_bounds_the_files_sizes() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    client
        .done(VolumeCreate {
            name: "small".into(),
            shape: no_shape(),
            quota_bytes: 1000,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    let mut file = open("f", Access::Write, true);
    file.at = NamePlace::of("small", "f");
    let opened = client.opened(file).await;
    let commit = |order, size| commit(&opened, size, order);
    client.done(commit(1, 1000)).await;
    assert_eq!(client.refused(commit(2, 1001)).await.reason, Reason::Quota);
    client.done(commit(3, 400)).await;
    let second = client
        .opened(CreateUnnamed {
            volume: "small".into(),
            shape: no_shape(),
            holder: HolderId(7),
            avoid: Vec::new(),
            meant_for: None,
            takes_sealed: false,
            new: NEW_FILE,
        })
        .await;
    let link = |path: &str, size, replace| Link {
        file: second.stat.file,
        lease: second.lease,
        holder: HolderId(7),
        at: NamePlace::of("small", path),
        size,
        replace,
        over: None,
        order: 1,
        changes: AttributeChanges::NONE,
        ends: None,
        backing: Backing::NONE,
    };
    assert_eq!(client.refused(link("g", 601, false)).await.reason, Reason::Quota);
    assert_eq!(client.refused(link("f", 900, false)).await.reason, Reason::Exists);
    // Files without a name count too: a new file, and one that is open when another takes its name.
    let unnamed = Commit { file: second.stat.file, lease: second.lease, ..commit(1, 601) };
    assert_eq!(client.refused(unnamed).await.reason, Reason::Quota);
    assert_eq!(client.refused(link("f", 900, true)).await.reason, Reason::Quota);
    client.done(release(&opened, true)).await;
    client.done(link("f", 900, true)).await;
    let Ok(ControlReply::Volumes(list)) = client.ask(VolumeList {}).await else { panic!() };
    let small = list.volumes.iter().find(|volume| volume.name == "small").unwrap();
    assert_eq!((small.files, small.file_bytes), (1, 900));
}

#[tokio::test]
async fn what_a_name_has_is_replaced_only_if_it_is_as_it_was_seen() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let mut unnamed = Vec::new();
    for _ in 0..3 {
        let volume = "main".into();
        let new = NEW_FILE;
        let request = CreateUnnamed {
            volume,
            shape: no_shape(),
            holder: HolderId(7),
            avoid: Vec::new(),
            meant_for: None,
            takes_sealed: false,
            new,
        };
        unnamed.push(client.opened(request).await);
    }
    let link = |index: usize, path: &str, over| Link {
        file: unnamed[index].stat.file,
        lease: unnamed[index].lease,
        holder: HolderId(7),
        at: NamePlace::of("main", path),
        size: 0,
        replace: true,
        over,
        order: 1,
        changes: AttributeChanges::NONE,
        ends: None,
        backing: Backing::NONE,
    };
    let seen = |row: StatRow| Seen { file: row.file, changed_ns: row.attributes.changed_ns };
    client.done(link(0, "a", None)).await;
    let first = seen(client.stat("a").await.unwrap());
    assert_eq!(client.refused(link(1, "b", Some(first))).await.reason, Reason::NotFound);
    client.done(link(1, "a", Some(first))).await;
    let second = seen(client.stat("a").await.unwrap());
    assert_eq!(second.file, unnamed[1].stat.file);
    assert_eq!(client.refused(link(2, "a", Some(first))).await.reason, Reason::Exists, "it is another file");
    // The same file, of which something has changed.
    let changes = AttributeChanges { mode: Some(0o600), ..AttributeChanges::NONE };
    let Ok(ControlReply::Stat(row)) =
        client.ask(SetAttributes { at: NamePlace::of("main", "a"), changes }).await
    else {
        panic!()
    };
    assert_eq!(client.refused(link(2, "a", Some(second))).await.reason, Reason::Exists);
    client.done(link(2, "a", Some(seen(row)))).await;
}

#[tokio::test]
async fn a_late_repetition_undoes_nothing_also_after_a_restart() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let unnamed = client
        .opened(CreateUnnamed {
            volume: "main".into(),
            shape: no_shape(),
            holder: HolderId(7),
            avoid: Vec::new(),
            meant_for: None,
            takes_sealed: false,
            new: NEW_FILE,
        })
        .await;
    let file = unnamed.stat.file;
    let lease = unnamed.lease;
    let link = |path: &str, size, order| Link {
        file,
        lease,
        holder: HolderId(7),
        at: NamePlace::of("main", path),
        size,
        replace: false,
        over: None,
        order,
        changes: AttributeChanges::NONE,
        ends: None,
        backing: Backing::NONE,
    };
    let sized = |size, order| commit(&unnamed, size, order);
    client.done(link("a", 10, 1)).await;
    client.done(sized(20, 2)).await;
    client.done(link("a", 10, 1)).await;
    assert_eq!(client.stat("a").await.unwrap().size(), 20, "the link was before the commit");
    client.done(sized(40, 4)).await;
    client.done(sized(30, 3)).await;
    assert_eq!(client.stat("a").await.unwrap().size(), 40, "one that is late, and was never carried out");
    // The file was linked, and then renamed or unlinked: a repeat is no error, and does nothing.
    let from = "a";
    let to = "b";
    client
        .done(Rename {
            from: NamePlace::of("main", from),
            to: NamePlace::of("main", to),
            how: RenameHow::Replace,
            keep: false,
        })
        .await;
    client.done(link("a", 10, 1)).await;
    client.done(Unlink { at: NamePlace::of("main", "b"), only: UnlinkOnly::Any, keep: false }).await;
    client.done(link("a", 10, 1)).await;
    assert_eq!(client.stat("a").await.unwrap_err().reason, Reason::NotFound);
    client.done(link("c", 50, 5)).await;
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    client.done(sized(40, 4)).await;
    assert_eq!(client.stat("c").await.unwrap().size(), 50);
    client.done(release(&unnamed, true)).await;
    // Another lease starts from 1 again.
    let next = client.opened(open("c", Access::Write, false)).await;
    client.done(commit(&next, 60, 1)).await;
    assert_eq!(client.stat("c").await.unwrap().size(), 60);
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_the_connection_closed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let address = manager.ready.address.clone();
    let limits = Limits::default();
    for token in [&manager.ready.client_token, &manager.ready.join_token] {
        let forged = Token { secret: Key::new([1; 32]), ..token.clone() };
        let error = ControlSession::connect(&address, &forged, &limits).await.unwrap_err();
        assert!(matches!(&error, TransportError::Refusal(r) if r.reason == Reason::BadToken), "{error}");
    }
    // A join token does not serve as a client token, and a client token joins no drive.
    let mut join = ControlSession::connect(&address, &manager.ready.join_token, &limits).await.unwrap();
    let error = join.call(&VolumeList {}.into()).await.unwrap_err();
    assert!(matches!(&error, TransportError::Refusal(r) if r.reason == Reason::NotAllowed), "{error}");
    let stranger = {
        let pin = manager.ready.join_token.pin;
        Credentials::of_drive(manager.ready.cluster, pin, braid_layout::DriveId(5), 1, &Key::new([2; 32]))
    };
    let error = ControlSession::connect(&address, stranger, &limits).await.unwrap_err();
    assert!(matches!(&error, TransportError::Refusal(r) if r.reason == Reason::BadToken), "{error}");
    for name in ["client.token", "join.token", "manager.redb"] {
        let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let written: Token = std::fs::read_to_string(dir.path().join("client.token")).unwrap().parse().unwrap();
    assert_eq!(written, manager.ready.client_token);
    manager.stop().await;
}

#[tokio::test]
async fn garbage_harms_nobody_else() {
    let cluster = Cluster::new(2, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let address = &cluster.manager.ready.address;
    let oversized = {
        let mut header = braid_wire::FrameHeader::new(0x0230, 1, &[], 0);
        header.body_bytes = u32::MAX;
        header.emit().to_vec()
    };
    let truncated = braid_wire::FrameHeader::new(0x0230, 1, &[0; 64], 0).emit().to_vec();
    for garbage in [vec![0xa5; 4096], b"GET / HTTP/1.1\r\n\r\n".repeat(4), oversized, truncated, vec![0; 31]]
    {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        socket.write_all(&garbage).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The manager closes the connection: with an end, or with a reset because bytes of ours were left
        // unread.
        let closed = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection is closed");
        assert_eq!(client.status().await.volumes, 1);
    }
    // Within a session, an unexpected message is refused, and the session continues.
    let refusal = client.refused(JoinDrive {
        name: String::new(),
        addresses: "127.0.0.1:1".into(),
        host: String::new(),
        rack: String::new(),
        directory: String::new(),
        pid: 0,
        capacity_bytes: 0,
    });
    assert_eq!(refusal.await.reason, Reason::NotAllowed);
    assert_eq!(client.status().await.volumes, 1);
}

#[tokio::test]
async fn one_directory_and_one_port_have_one_manager() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let attempt = |dir: &std::path::Path, listen: &str| {
        let (tell, _ready) = oneshot::channel();
        run(Config::new(dir, listen), tell, async {})
    };
    let error = attempt(dir.path(), "127.0.0.1:0").await.unwrap_err();
    assert!(matches!(error, ManagerError::InUse(_)), "{error}");
    let other = tempfile::tempdir().unwrap();
    let error = attempt(other.path(), &manager.ready.address).await.unwrap_err();
    assert!(matches!(&error, ManagerError::Listen(TransportError::InUse { .. })), "{error}");
    assert!(error.to_string().contains(&manager.ready.address));
    manager.stop().await;
    // A directory whose manager stopped can be used again, and keeps its identity.
    let again = Manager::start(dir.path()).await;
    again.stop().await;
}

#[tokio::test]
async fn a_manager_that_has_stopped_is_done_with_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let manager = Manager::start(dir.path()).await;
        let mut clients = tokio::task::JoinSet::new();
        for n in 0..8 {
            let mut client = manager.client().await;
            let volume = VolumeCreate {
                name: format!("v{round}-{n}"),
                shape: no_shape(),
                quota_bytes: 0,
                protection: Protection::Integrity,
                key: None,
            };
            let head = client.operation();
            clients.spawn(async move { client.0.call_as(&head, &volume.into()).await.is_ok() });
        }
        // The manager stops at the first answer, while the others' transactions are in progress.
        clients.join_next().await;
        manager.stop().await;
    }
}

#[tokio::test]
async fn a_restart_keeps_names_tokens_and_time_and_raises_the_term() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut client = cluster.manager.client().await;
    let opened = client.create("kept").await;
    client.done(commit(&opened, 5, 1)).await;
    client.status().await;
    let before = client.0.head().clone();
    let token = cluster.manager.ready.client_token.clone();
    let cluster = cluster.restart_manager().await;
    assert_eq!(cluster.manager.ready.client_token, token);
    let mut client = cluster.manager.client().await;
    assert_eq!(client.stat("kept").await.unwrap().size(), 5);
    let after = client.0.head().clone();
    assert!(after.term > before.term && after.now_ms >= before.now_ms, "{before:?} {after:?}");
    // The lease survives the manager's restart, and so does its holder.
    assert!(!client.renews(&opened, HolderId(8)).await);
    assert!(client.renews(&opened, HolderId(7)).await);
    client.done(commit(&opened, 6, 2)).await;
    client.done(release(&opened, true)).await;
    client.opened(open("kept", Access::Write, false)).await;
}

/// The manager that leads next has a clock that is an hour ahead of the former one's; the one after it has
/// one that is an hour behind.
#[tokio::test]
async fn an_hour_between_the_clocks_of_two_managers_ends_no_lease_and_time_goes_on() {
    const HOUR_MS: u64 = 3_600_000;
    let kv = MemoryKv::new();
    let manager = InMemory::without_background(&kv, "127.0.0.1:0", CLIENT_LEASE_LONG_MS).await;
    let mut drives = Vec::new();
    for id in 1..=3 {
        drives.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    client.until_up(&drives.iter().collect::<Vec<_>>()).await;
    let volume = VolumeCreate {
        name: "main".into(),
        shape: no_shape(),
        quota_bytes: 0,
        protection: Protection::Integrity,
        key: None,
    };
    client.done(volume).await;
    let opened = client.create("f").await;
    let mut before_ms = client.0.head().now_ms;
    let mut address = manager.die().await;
    for (ahead_ms, order) in [(HOUR_MS, 1), (0, 2)] {
        let moved = Db::new(Arc::new(kv.clone())).write(move |tx| {
            let bound_ms = tx.number("time")?.max(before_ms) + ahead_ms;
            tx.set(key::meta("time"), &bound_ms);
            Ok::<_, Refusal>(())
        });
        moved.unwrap();
        let manager = InMemory::without_background(&kv, &address, CLIENT_LEASE_LONG_MS).await;
        let mut client = Client::connect(&manager.ready).await;
        client.until_up(&drives.iter().collect::<Vec<_>>()).await;
        let now_ms = client.0.head().now_ms;
        assert!(now_ms >= before_ms + ahead_ms, "{now_ms} {before_ms}");
        assert!(!client.renews(&opened, HolderId(8)).await, "the lease is still another's");
        assert!(client.renews(&opened, HolderId(7)).await);
        client.done(commit(&opened, 5 + order, order)).await;
        before_ms = client.0.head().now_ms;
        address = manager.die().await;
    }
}

#[tokio::test]
async fn drives_join_once_and_names_are_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start(dir.path()).await;
    let mut client = manager.client().await;
    let first = FakeDrive::join(&manager.ready, 1, "").await.unwrap();
    let named = FakeDrive::join(&manager.ready, 2, "big").await.unwrap();
    let third = FakeDrive::join(&manager.ready, 3, "").await.unwrap();
    assert_eq!((&*first.name, &*named.name, &*third.name), ("drive-1", "big", "drive-2"));
    client
        .until("all up", |s| s.drives.len() == 3 && s.drives.iter().all(|d| d.state == DriveState::Up))
        .await;
    let refused = |error: TransportError| match error {
        TransportError::Refusal(refusal) => refusal.reason,
        other => panic!("{other}"),
    };
    assert_eq!(refused(FakeDrive::join(&manager.ready, 4, "big").await.err().unwrap()), Reason::DriveInUse);
    assert_eq!(refused(FakeDrive::join(&manager.ready, 4, "a b").await.err().unwrap()), Reason::BadName);
    // The drive's key is proven: a join token cannot take the identity over.
    assert_eq!(refused(FakeDrive::join(&manager.ready, 2, "big").await.err().unwrap()), Reason::NotAllowed);
    let raid = raid5(2);
    client
        .done(VolumeCreate {
            name: "main".into(),
            shape: raid,
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    // A drive that joins later gets the partitions of existing volumes.
    let late = FakeDrive::join(&manager.ready, 5, "late").await.unwrap();
    crate::fake::eventually("the late drive has the partition", || async {
        late.state().partitions.len() == 1
    })
    .await;
    client.done(VolumeRemove { name: "main".into() }).await;
    crate::fake::eventually("partitions are removed", || async {
        [&first, &named, &third, &late].iter().all(|drive| drive.state().partitions.is_empty())
    })
    .await;
}
