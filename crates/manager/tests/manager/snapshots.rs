//! Snapshots: what is frozen before a file is written, and the moment under writers.

use std::time::Duration;

use braid_layout::{Column, ColumnMask, HolderId, ObjectId, ReservationId};
use braid_wire::control::*;
use braid_wire::{Reason, Refusal};

use crate::fake::{Client, Cluster, commit, eventually, open, opened, raid5, release, version};
use crate::fake_drive::FakeDrive;

const HOLDER: HolderId = HolderId(7);

fn make(name: &str) -> SnapshotMake {
    SnapshotMake { at: NamePlace::of("main", ""), name: name.to_owned(), sync: false }
}

fn remove(name: &str) -> SnapshotRemove {
    SnapshotRemove { at: NamePlace::of("main", ""), name: name.to_owned() }
}

async fn made(client: &mut Client, name: &str) -> SnapshotMade {
    match client.ask(make(name)).await.unwrap() {
        ControlReply::SnapshotMade(made) => made,
        other => panic!("{other:?}"),
    }
}

/// Opens `f` for reading in a snapshot.
async fn at(client: &mut Client, name: &str) -> Result<Opened, Refusal> {
    let place = NamePlace::of(format!("main@{name}"), "f");
    client.ask(Open { at: place, ..open("f", Access::Read, false) }).await.map(opened)
}

fn refresh(file: &Opened, access: Access) -> Refresh {
    Refresh {
        file: file.stat.file,
        access,
        lease: file.lease,
        holder: HOLDER,
        turn: Turn::Any,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: file.stat.snapshot,
    }
}

fn write() -> Open {
    Open { holder: HOLDER, ..open("f", Access::Write, true) }
}

fn object(file: &Opened) -> ObjectId {
    file.stat.segments[0].columns[0].object
}

/// Makes `f`, with an object on each drive, and closes it.
async fn closed(cluster: &Cluster, client: &mut Client) -> Opened {
    let file = client.opened(write()).await;
    for column in 0..4 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    client.done(commit(&file, 100, 1)).await;
    client.done(Release { holder: HOLDER, ..release(&file, true) }).await;
    file
}

fn drives(cluster: &Cluster, file: &Opened) -> Vec<FakeDrive> {
    (0..4).map(|column| cluster.of(file, column).clone()).collect()
}

fn stills_of(drive: &FakeDrive) -> usize {
    drive.state().carried_out.iter().filter(|name| **name == "Snapshot").count()
}

#[tokio::test]
async fn the_first_open_for_writing_freezes_what_the_snapshot_shows() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client).await;
    let answer = made(&mut client, "a").await;
    assert_eq!((answer.number, answer.late), (1, 0));
    let before = at(&mut client, "a").await.unwrap();
    assert_eq!((object(&before), before.stat.snapshot), (object(&file), 1), "nothing was moved or made");
    assert!(drives(&cluster, &file).iter().all(|drive| stills_of(drive) == 0));

    let next = client.opened(write()).await;
    assert!(next.stat.g > file.stat.g && object(&next) == object(&file));
    client.done(commit(&next, 500, 1)).await;
    // A reader of the snapshot finds its capabilities stale, and is led to the stills.
    let after = client.opened(refresh(&before, Access::Read)).await;
    assert_eq!((after.stat.file, after.stat.size(), after.stat.snapshot), (file.stat.file, 100, 1));
    assert_ne!(object(&after), object(&file));
    for drive in drives(&cluster, &file) {
        let still = drive.object(file.stat.volume.0, object(&after)).expect("taken");
        assert_eq!(still.set, ColumnMask::all(4));
        assert_ne!(still.file, file.stat.file, "it is of another file, for all that heals and frees");
    }
    let stat = client.stat("f").await.unwrap();
    assert_eq!((stat.size(), stat.snapshot), (500, 0));

    // Once for each snapshot.
    client.done(Release { holder: HOLDER, ..release(&next, true) }).await;
    client.opened(write()).await;
    assert!(drives(&cluster, &file).iter().all(|drive| stills_of(drive) == 1));
}

#[tokio::test]
async fn what_is_in_a_snapshot_cannot_be_changed() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    closed(&cluster, &mut client).await;
    made(&mut client, "a").await;
    let inside = |path: &str| NamePlace::of("main@a", path);
    let only = UnlinkOnly::Any;
    let keep = false;
    let requests: Vec<ControlRequest> = vec![
        Open { at: inside("f"), ..write() }.into(),
        Open { at: inside("new"), ..write() }.into(),
        Unlink { at: inside("f"), only, keep }.into(),
        Rename { from: inside("f"), to: NamePlace::of("main", "g"), how: RenameHow::Replace, keep }.into(),
        HardLink { from: inside("f"), to: NamePlace::of("main", "g") }.into(),
        SnapshotMake { at: inside(""), name: "b".to_owned(), sync: false }.into(),
    ];
    for request in requests {
        let refusal = client.refused(request.clone()).await;
        assert!(
            matches!(refusal.reason, Reason::SnapshotReadOnly | Reason::NotFound),
            "{request:?}: {refusal}"
        );
    }
    assert_eq!(client.refused(make("a")).await.reason, Reason::Exists);
    assert_eq!(client.refused(make("a b")).await.reason, Reason::BadName);
    assert_eq!(client.refused(remove("b")).await.reason, Reason::NoSnapshot);
    let refusal = at(&mut client, "b").await.unwrap_err();
    assert!(
        refusal.reason == Reason::NoSnapshot && refusal.detail.contains("braid snapshot ls"),
        "{refusal}"
    );
    let refusal = client.refused(VolumeRemove { name: "main".to_owned() }).await;
    assert_eq!(refusal.reason, Reason::NotEmpty);
}

#[tokio::test]
async fn a_column_whose_drive_takes_no_still_is_out_in_the_frozen_file_alone() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client).await;
    made(&mut client, "a").await;
    cluster.of(&file, 2).state().no_stills = Some(Reason::Full);
    let next = client.opened(write()).await;
    assert_eq!(next.stat.segments[0].set, ColumnMask::all(4));
    let frozen = at(&mut client, "a").await.unwrap();
    assert_eq!(frozen.stat.segments[0].set, ColumnMask(0b1011));
    assert!(frozen.stat.g.0 > 1, "the others were told that it is out");
    // It is made anew as any other.
    cluster.of(&file, 2).state().no_stills = None;
    let stale = cluster.of(&file, 2).object(file.stat.volume.0, object(&frozen));
    assert!(stale.is_none());
}

#[tokio::test]
async fn nobody_writes_before_enough_drives_have_taken_stills_also_after_a_restart() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client).await;
    made(&mut client, "a").await;
    let all = drives(&cluster, &file);
    all[..2].iter().for_each(|drive| drive.state().no_stills = Some(Reason::Full));
    let refusal = client.refused(write()).await;
    assert!(refusal.reason == Reason::Busy && refusal.detail.contains("remove snapshots"), "{refusal}");
    assert_eq!(at(&mut client, "a").await.unwrap_err().reason, Reason::Busy);
    let cluster = cluster.restart_manager().await;
    let mut client = cluster.manager.client().await;
    client.until_up(&all.iter().collect::<Vec<_>>()).await;
    assert!(client.refused(write()).await.detail.contains("remove snapshots"));
    all[..2].iter().for_each(|drive| drive.state().no_stills = None);
    let next = opened(client.patient(write()).await.unwrap());
    let frozen = at(&mut client, "a").await.unwrap();
    assert_eq!(frozen.stat.segments[0].set, ColumnMask::all(4));
    assert_ne!(object(&frozen), object(&next));
}

#[tokio::test]
async fn when_a_snapshot_is_removed_its_stills_go() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    closed(&cluster, &mut client).await;
    made(&mut client, "a").await;
    let next = client.opened(write()).await;
    client.done(Release { holder: HOLDER, ..release(&next, true) }).await;
    assert_eq!(cluster.objects(), 8);
    let frozen = at(&mut client, "a").await.unwrap();
    client.done(remove("a")).await;
    assert_eq!(client.refused(refresh(&frozen, Access::Read)).await.reason, Reason::NoSnapshot);
    eventually("its stills are freed", || async { cluster.objects() == 4 }).await;
    // A removed file stays for its snapshot, without any request to a drive, and goes with it.
    made(&mut client, "b").await;
    client.done(Unlink { at: NamePlace::of("main", "f"), only: UnlinkOnly::Any, keep: false }).await;
    assert_eq!(object(&at(&mut client, "b").await.unwrap()), object(&next));
    client.done(remove("b")).await;
    eventually("it is freed", || async { cluster.objects() == 0 }).await;
    client.done(VolumeRemove { name: "main".to_owned() }).await;
}

#[tokio::test]
async fn a_snapshot_under_a_writer_has_what_was_acknowledged_and_nothing_later() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.opened(write()).await;
    // A stamp of the writer that every column has counts; one that some lack does not.
    let whole = (0, version(1, 1, 1), ColumnMask::all(4));
    let half = (1, version(1, 1, 2), ColumnMask::all(4));
    for column in 0..4u8 {
        let stamps = [whole, half];
        let has = if column < 2 { 2 } else { 1 };
        cluster.of(&file, column).put(&file, Column(column), &stamps[..has]);
    }
    client.done(commit(&file, 100, 1)).await;
    let answer = made(&mut client, "a").await;
    assert_eq!(answer.late, 0);
    let frozen = at(&mut client, "a").await.unwrap();
    assert_eq!(frozen.stat.size(), 100);
    for drive in drives(&cluster, &file) {
        let still = drive.object(file.stat.volume.0, object(&frozen)).expect("taken at the moment");
        assert_eq!(still.units[&0].settled, version(1, 1, 1));
        assert!(still.units.get(&1).is_none_or(|unit| unit.settled != version(1, 1, 2)));
    }
    // The writer's lease goes on under another number, which it learns when it asks.
    assert_eq!(client.refused(commit(&file, 200, 2)).await.reason, Reason::StaleGeneration);
    let now = client.opened(refresh(&file, Access::Write)).await;
    assert!(now.lease > file.lease && now.stat.g > file.stat.g && !now.shared);
    client.done(commit(&now, 200, 1)).await;
    assert_eq!(at(&mut client, "a").await.unwrap().stat.size(), 100);
    client.done(Release { holder: HOLDER, ..release(&now, true) }).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_held_in_time_is_late_and_frozen_after() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.opened(write()).await;
    for column in 0..4 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    client.done(commit(&file, 100, 1)).await;
    cluster.of(&file, 3).state().mute = true;
    let answer = made(&mut client, "a").await;
    assert_eq!(answer.late, 1);
    assert_eq!(at(&mut client, "a").await.unwrap_err().reason, Reason::Busy);
    assert_eq!(client.stat("f").await.unwrap().size(), 100, "the present is not concerned");
    cluster.of(&file, 3).state().mute = false;
    let until = tokio::time::Instant::now() + braid_testing::PATIENCE;
    while at(&mut client, "a").await.is_err() {
        assert!(tokio::time::Instant::now() < until, "it is not frozen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let list = Snapshots { at: NamePlace::of("main", ""), after: 0 };
    match client.ask(list).await.unwrap() {
        ControlReply::Snapshots(reply) => {
            let [row] = &reply.snapshots[..] else { panic!("{reply:?}") };
            assert_eq!((row.late, row.files, row.place.as_str()), (1, 1, "braid://main"));
        }
        other => panic!("{other:?}"),
    }
}
