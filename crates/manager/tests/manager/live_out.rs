//! Columns that go out while their drives live: clients or other drives cannot reach them, or they cannot do
//! their part.

use braid_layout::{Column, ColumnMask, Generation};
use braid_wire::Reason;
use braid_wire::control::*;

use crate::fake::{Cluster, lost, open, opened, raid5, release};

fn only(column: u8) -> ColumnMask {
    ColumnMask::EMPTY.with(Column(column))
}

/// A file on five drives with its objects, and its writer.
async fn file(cluster: &Cluster) -> (crate::fake::Client, Opened) {
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    for column in 0..5 {
        cluster.of(&file, column).put(&file, Column(column), &[]);
    }
    (client, file)
}

/// The set that a drive was last told, for the file's object.
fn told(cluster: &Cluster, file: &Opened, column: u8) -> (Generation, ColumnMask) {
    let object = file.stat.segments[0].columns[0].object;
    let held = cluster.of(file, column).object(file.stat.volume.0, object).expect("it has the object");
    (held.g, held.set)
}

#[tokio::test]
async fn a_column_that_does_not_take_what_is_owed_goes_out_and_its_drive_is_told() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let (mut client, file) = file(&cluster).await;
    cluster.of(&file, 0).state().owes = only(4);
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    let left = ColumnMask::all(5).without(Column(4));
    assert_eq!(next.stat.segments[0].set, left);
    for column in 0..5 {
        assert_eq!(told(&cluster, &file, column), (next.stat.g, left), "column {column}");
    }
    // The drive goes on with its other files.
    let name = cluster.of(&file, 4).name.clone();
    let up = |status: &StatusReply| {
        status.drives.iter().any(|drive| drive.name == name && drive.state == DriveState::Up)
    };
    client.until("it has its lease", |status| up(status)).await;
}

#[tokio::test]
async fn a_column_that_cannot_read_what_it_owes_goes_out_itself() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let (mut client, file) = file(&cluster).await;
    cluster.of(&file, 0).state().owes = only(0);
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].set, ColumnMask::all(5).without(Column(0)));
}

/// The column's drive refuses every fence: the file is opened all the same, and the drive keeps its lease.
#[tokio::test]
async fn a_column_whose_drive_has_lost_the_objects_record_goes_out() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let (mut client, file) = file(&cluster).await;
    cluster.of(&file, 3).state().lost_records = true;
    client.done(release(&file, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].set, ColumnMask::all(5).without(Column(3)));
    let name = cluster.of(&file, 3).name.clone();
    let up = |status: &StatusReply| {
        status.drives.iter().any(|drive| drive.name == name && drive.state == DriveState::Up)
    };
    client.until("it has its lease", |status| up(status)).await;
}

#[tokio::test]
async fn a_writer_that_insists_goes_on_without_a_drive_that_only_the_manager_reaches() {
    let cluster = Cluster::new(5, raid5(4)).await;
    let (mut client, file) = file(&cluster).await;
    let refusal = client.refused(lost(&file, &[2])).await;
    assert_eq!(refusal.reason, Reason::Busy);
    let after = client.opened(ReportLost { insist: true, ..lost(&file, &[2]) }).await;
    let left = ColumnMask::all(5).without(Column(2));
    assert_eq!((after.stat.segments[0].set, told(&cluster, &file, 2)), (left, (after.stat.g, left)));
    // No more columns go out than the parity can replace.
    let refusal = client.refused(ReportLost { insist: true, ..lost(&file, &[3]) }).await;
    assert_eq!(refusal.reason, Reason::TooManyAway);
    assert_eq!(told(&cluster, &file, 3).1, left);
}

/// The drive does not answer, and its lease holds: no capability is given before the lease has lapsed.
#[tokio::test]
async fn a_drive_that_cannot_be_told_is_waited_for() {
    let cluster = Cluster::with_drive_lease(5, raid5(4), 1500).await;
    let (mut client, file) = file(&cluster).await;
    let drive = cluster.of(&file, 2).clone();
    drive.state().mute = true;
    let report = ReportLost { insist: true, ..lost(&file, &[2]) };
    let after = opened(client.patient(report).await.unwrap());
    assert!(!after.stat.segments[0].set.contains(Column(2)));
    let serves = drive.state().serves_until.is_some_and(|until| until > tokio::time::Instant::now());
    assert!(!serves, "its lease holds, and it was not told");
}
