//! A state that was restored from a backup, and drives that are newer than it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_layout::{Column, ColumnMask, FileId, HolderId, PartitionId};
use braid_manager::disk::embedded::EmbeddedKv;
use braid_manager::restore::backup::unpack;
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::inodes;
use braid_meta::records::memory::MemoryKv;
use braid_wire::Reason;
use braid_wire::capability::Protection;
use braid_wire::control::*;
use braid_wire::data::UnitState;

use crate::crash::InMemory;
use crate::fake::{
    CLIENT_LEASE_LONG_MS, Client, Cluster, FakeDrive, NEW_FILE, ends_at, eventually, no_shape, open, opened,
    raid5, release, version,
};

/// Puts the file's components on the drives, as its client would.
fn put(cluster: &Cluster, file: &Opened) {
    for column in 0..4 {
        cluster.of(file, column).put(file, Column(column), &[]);
    }
}

async fn file(cluster: &Cluster, client: &mut Client, path: &str) -> Opened {
    let file = client.create(path).await;
    put(cluster, &file);
    client.done(release(&file, true)).await;
    file
}

async fn backup(client: &mut Client) -> PathBuf {
    match client.ask(Backup {}).await.unwrap() {
        ControlReply::Backup(made) => made.path.into(),
        other => panic!("{other:?}"),
    }
}

fn report(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.manager.dir.join("comparison.txt")).unwrap()
}

fn components(cluster: &Cluster, file: FileId) -> usize {
    let on = |drive: &FakeDrive| drive.state().objects.values().filter(|object| object.file == file).count();
    cluster.drives.iter().map(on).sum()
}

async fn holds_together(cluster: Cluster) {
    let dir: &Path = &cluster.manager.dir.clone();
    cluster.manager.stop().await;
    let db = Db::new(Arc::new(EmbeddedKv::open(&dir.join("manager.redb")).unwrap()));
    assert_eq!(check(&db).unwrap(), Vec::<String>::new());
}

/// Writes one unit of this many bytes, as the file's first.
fn write(cluster: &[FakeDrive], file: &Opened, bytes: u32) {
    let segment = &file.stat.segments[0];
    for (column, row) in (0u8..).map(Column).zip(&segment.columns) {
        let drive = cluster.iter().find(|drive| drive.id == row.drive).unwrap();
        drive.put(file, column, &[]);
        if column == Column(0) {
            let place = (PartitionId(file.stat.volume.0), row.object);
            let settled = version(1, file.lease.0, 7);
            let unit = UnitState { settled, end: bytes, ..UnitState::unwritten(0) };
            drive.state().objects.get_mut(&place).unwrap().units.insert(0, unit);
        }
    }
}

#[tokio::test]
async fn a_file_that_a_restore_left_is_settled_before_its_size_is_told() {
    let kv = MemoryKv::new();
    let manager = InMemory::start(&kv, "127.0.0.1:0").await;
    let mut drives = Vec::new();
    for id in 1..=4 {
        drives.push(FakeDrive::join(&manager.ready, id, "").await.unwrap());
    }
    let mut client = Client::connect(&manager.ready).await;
    client.until_up(&drives.iter().collect::<Vec<_>>()).await;
    client
        .done(VolumeCreate {
            name: "main".into(),
            shape: raid5(3),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    let mut files = Vec::new();
    for path in ["read", "looked at"] {
        let file = client.create(path).await;
        write(&drives, &file, 1000);
        client.done(release(&file, true)).await;
        files.push(file.stat.file);
    }
    // Leaves the files as a comparison does.
    let leave = manager.core.write(move |_, tx| {
        for file in files {
            let mut inode = inodes::get(tx, file)?;
            inode.g = inode.g.next().unwrap();
            (inode.held, inode.holder, inode.unfenced) = (true, HolderId::NONE, true);
            inodes::save(tx, file, &inode)?;
        }
        Ok(())
    });
    leave.await.unwrap();
    let address = manager.die().await;
    let manager = InMemory::without_background(&kv, &address, CLIENT_LEASE_LONG_MS).await;
    let mut client = Client::connect(&manager.ready).await;
    client.until_up(&drives.iter().collect::<Vec<_>>()).await;
    let file = client.opened(open("read", Access::Read, false)).await;
    assert_eq!(file.stat.size(), 1000);
    assert_eq!(client.stat("looked at").await.unwrap().size(), 1000);
    assert_eq!(check(&manager.core.db).unwrap(), Vec::<String>::new());
    let file = client.opened(open("read", Access::Write, false)).await;
    client.done(release(&file, true)).await;
}

#[tokio::test]
async fn after_a_restore_files_are_as_long_as_the_drives_say() {
    const FILES: usize = 60;
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let path = |n: usize| format!("f{n}");
    for n in 0..FILES {
        file(&cluster, &mut client, &path(n)).await;
    }
    let gone = client.create("gone").await;
    write(&cluster.drives, &gone, 1000);
    client.done(ends_at(1000, release(&gone, false))).await;
    let gone = opened(client.patient(open("gone", Access::Write, false)).await.unwrap());
    client.done(ends_at(1000, release(&gone, true))).await;
    let backup = backup(&mut client).await;
    let mut expire_ms = 0;
    for n in 0..FILES {
        let file = client.opened(open(&path(n), Access::Write, false)).await;
        write(&cluster.drives, &file, 1000);
        expire_ms = file.expires_ms;
        let release = ends_at(1000, release(&file, true));
        let (file, lease, cut) = (file.stat.file, file.lease, Cut::No);
        client
            .done(Commit {
                file,
                lease,
                holder: HolderId(7),
                size: 1000,
                order: 1,
                cut,
                modified_ns: None,
                backing: Backing::NONE,
            })
            .await;
        client.done(release).await;
    }
    client.done(Unlink { at: NamePlace::of("main", "gone"), only: UnlinkOnly::Any, keep: false }).await;
    eventually("it is freed", || async { components(&cluster, gone.stat.file) == 0 }).await;
    let cluster = cluster.restore(&backup).await;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    assert!(client.0.head().now_ms > expire_ms, "drives take no capability that was signed after the backup");
    for n in (0..FILES).rev() {
        let file = opened(client.patient(open(&path(n), Access::Read, false)).await.unwrap());
        assert_eq!(file.stat.size(), 1000, "{n}");
    }
    // A file that was removed has nothing to settle and nothing to wait for.
    assert!(report(&cluster).contains("braid://main/gone\n"));
    assert_eq!(
        client.opened(open("gone", Access::Read, false)).await.stat.segments[0].set,
        ColumnMask::EMPTY
    );
    assert_eq!(client.refused(open("gone", Access::Write, false)).await.reason, Reason::TooManyAway);
    client.done(Unlink { at: NamePlace::of("main", "gone"), only: UnlinkOnly::Any, keep: false }).await;
    client.until("it is gone at once", |status| status.removing == 0).await;
    holds_together(cluster).await;
}

/// The backup says that a truncation is under way. It has ended since, and bytes were written past it: the
/// next open of the file must not remove them.
#[tokio::test]
async fn a_truncation_that_ended_after_the_backup_is_not_done_again() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    write(&cluster.drives, &file, 1000);
    let commit = |size, order, cut| Commit {
        file: file.stat.file,
        lease: file.lease,
        holder: HolderId(7),
        size,
        order,
        cut,
        modified_ns: None,
        backing: Backing::NONE,
    };
    client.done(commit(1000, 1, Cut::No)).await;
    client.done(commit(60, 2, Cut::Begins)).await;
    let backup = backup(&mut client).await;
    client.done(commit(60, 3, Cut::Ends)).await;
    write(&cluster.drives, &file, 2000);
    client.done(commit(2000, 4, Cut::No)).await;
    client.done(ends_at(2000, release(&file, true))).await;

    let cluster = cluster.restore(&backup).await;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    let file = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert!(!file.cut, "its opener would punch out what lies past byte {}", file.stat.size());
    assert_eq!(file.stat.size(), 2000);
    client.done(ends_at(2000, release(&file, true))).await;
    holds_together(cluster).await;
}

#[tokio::test]
async fn what_got_its_name_after_the_backup_is_kept_and_what_was_removed_before_it_is_freed() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    file(&cluster, &mut client, "kept").await;
    let gone = file(&cluster, &mut client, "gone").await;
    let away = cluster.of(&gone, 0).clone();
    away.kill();
    client.done(Unlink { at: NamePlace::of("main", "gone"), only: UnlinkOnly::Any, keep: false }).await;
    eventually("it is freed where it can be", || async { components(&cluster, gone.stat.file) == 1 }).await;
    away.state().mute = true;
    away.start().await;
    // Two uploads; the second has nothing on any drive yet.
    let unnamed = || CreateUnnamed {
        volume: "main".into(),
        shape: no_shape(),
        holder: HolderId(7),
        avoid: Vec::new(),
        meant_for: None,
        takes_sealed: false,
        new: NEW_FILE,
    };
    let up = opened(client.patient(unnamed()).await.unwrap());
    client.opened(unnamed()).await;
    put(&cluster, &up);
    let backup = backup(&mut client).await;
    let file = up.stat.file;
    let lease = up.lease;
    client
        .done(Link {
            file,
            lease,
            holder: HolderId(7),
            at: NamePlace::of("main", "up"),
            size: 50,
            replace: false,
            over: None,
            order: 1,
            changes: AttributeChanges::NONE,
            ends: None,
            backing: Backing::NONE,
        })
        .await;
    client.done(release(&up, true)).await;

    let cluster = cluster.restore(&backup).await;
    away.state().mute = false;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    client
        .done(VolumeCreate {
            name: "other".into(),
            shape: raid5(3),
            quota_bytes: 0,
            protection: Protection::Integrity,
            key: None,
        })
        .await;
    client.until("the removal list is empty", |status| status.removing == 0).await;
    assert_eq!(components(&cluster, gone.stat.file), 0);
    assert_eq!(components(&cluster, up.stat.file), 4);
    let report = report(&cluster);
    assert!(report.contains("1 files have a name; 1 of them are whole, 0 are not"), "{report}");
    assert!(report.contains("1 files on the drives have no name"), "{report}");
    client.done(FreeUnnamed {}).await;
    eventually("an operator let go of it", || async { components(&cluster, up.stat.file) == 0 }).await;
    holds_together(cluster).await;
}

/// The backup says that a freeze is under way. It has ended since, and the file was written: stills that are
/// taken now must not be counted among those from before.
#[tokio::test]
async fn a_freeze_that_was_under_way_mixes_no_stills_of_two_moments() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = file(&cluster, &mut client, "f").await;
    let at = NamePlace::of("main", "");
    client.ask(SnapshotMake { at, name: "a".to_owned(), sync: false }).await.unwrap();
    let drives: Vec<FakeDrive> = (0..4).map(|column| cluster.of(&file, column).clone()).collect();
    let write = || open("f", Access::Write, false);
    drives[2..].iter().for_each(|drive| drive.state().no_stills = Some(Reason::Full));
    assert_eq!(client.refused(write()).await.reason, Reason::Busy);
    let backup = backup(&mut client).await;
    // One drive takes none, and has its still made later than the others.
    drives[2].state().no_stills = None;
    let next = opened(client.patient(write()).await.unwrap());
    let place = (PartitionId(file.stat.volume.0), file.stat.segments[0].columns[0].object);
    let written = UnitState { settled: version(2, next.lease.0, 1), ..UnitState::unwritten(0) };
    for drive in &drives {
        drive.state().objects.get_mut(&place).unwrap().units.insert(0, written.clone());
        drive.state().no_stills = None;
    }
    client.done(release(&next, true)).await;

    let cluster = cluster.restore(&backup).await;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    let past = Open { at: NamePlace::of("main@a", "f"), ..open("f", Access::Read, false) };
    let frozen = opened(client.patient(past).await.unwrap());
    let segment = &frozen.stat.segments[0];
    assert_eq!(segment.set, ColumnMask::all(4));
    let stills = drives.iter().map(|drive| drive.object(place.0.0, segment.columns[0].object).unwrap());
    assert!(stills.map(|still| still.units.get(&0).cloned()).all(|unit| unit == Some(written.clone())));
    assert!(report(&cluster).contains("1 files on the drives have no name"), "stills from before are kept");
    holds_together(cluster).await;
}

/// The backup says that a file without a name is being frozen, as it was removed while it was to be written:
/// the snapshot has its bytes after the restore too.
#[tokio::test]
async fn a_removed_file_whose_freeze_was_under_way_is_in_its_snapshot() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = file(&cluster, &mut client, "f").await;
    let at = NamePlace::of("main", "");
    client.ask(SnapshotMake { at, name: "a".to_owned(), sync: false }).await.unwrap();
    cluster.drives.iter().for_each(|drive| drive.state().no_stills = Some(Reason::Full));
    let write = open("f", Access::Write, false);
    assert_eq!(client.refused(write).await.reason, Reason::Busy, "it cannot be frozen");
    // Its reader keeps it, so that it stays without its name.
    let at = NamePlace::of("main", "f");
    client.done(Unlink { at, only: UnlinkOnly::Any, keep: true }).await;
    let backup = backup(&mut client).await;
    let unpacked = tempfile::tempdir().unwrap();
    let state = Db::new(unpack(&backup, &unpacked.path().join("state")).unwrap().0);
    let removed = state.read(|tx| inodes::get(tx, file.stat.file)).unwrap();
    assert!(!removed.is_named() && !removed.is_frozen() && removed.freezing.is_some(), "{removed:?}");
    let cluster = cluster.restore(&backup).await;
    let mut client = cluster.manager.client().await;
    client.until_up(&cluster.drives.iter().collect::<Vec<_>>()).await;
    let past = Open { at: NamePlace::of("main@a", "f"), ..open("f", Access::Read, false) };
    let shown = opened(client.patient(past).await.unwrap());
    assert_eq!(shown.stat.segments[0].columns[0].object, file.stat.segments[0].columns[0].object);
    assert_eq!(shown.stat.segments[0].set, ColumnMask::all(4));
    assert!(report(&cluster).contains("0 files on the drives have no name"), "{}", report(&cluster));
    holds_together(cluster).await;
}
