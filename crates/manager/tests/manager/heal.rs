//! Stale columns join and become ready at the word of their drives, beside the file's writer.

use braid_layout::{Column, ColumnMask, Generation, HolderId, ReservationId};
use braid_wire::Reason;
use braid_wire::control::{
    Access, Backing, Commit, Cut, DrainDrive, DriveRow, Opened, Refresh, RemoveDrive, ReplaceDrive, Room,
    Turn,
};

use crate::failures::{mask, put_all, stale};
use crate::fake::{Client, Cluster, FakeDrive, eventually, lost, open, opened, raid5, release};
use crate::space::drives;

#[tokio::test]
async fn a_heal_takes_no_lease_and_one_that_broke_off_leaves_the_column_joining() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let dead = cluster.of(&file, 0).clone();
    dead.kill();
    client.patient(lost(&file, &[0])).await.unwrap();
    dead.start().await;
    client.until_up(&[&dead]).await;
    // Beside a writer, whose lease goes on: it learns of the new generation, in which it writes on.
    let first = dead.begin_heal(file.stat.file).await.unwrap();
    let again = dead.begin_heal(file.stat.file).await.unwrap();
    assert_eq!(again.stat.g, first.stat.g, "it has joined already");
    let refresh = Refresh {
        file: file.stat.file,
        access: Access::Write,
        lease: file.lease,
        holder: HolderId(7),
        turn: Turn::Any,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    };
    let view = client.opened(refresh).await;
    assert_eq!((view.stat.g, view.stat.segments[0].joining), (first.stat.g, mask(&[0])));
    client.done(release(&view, false)).await;
    let next = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    assert_eq!(next.stat.segments[0].joining, mask(&[0]));
    client.done(release(&next, true)).await;
    // The generation has risen since the columns were compared.
    assert_eq!(dead.end_heal(&first).await.unwrap_err().reason, Reason::StaleGeneration);
    assert_eq!(stale(&mut client, &dead.name).await, [file.stat.file.0]);
    let heal = dead.begin_heal(file.stat.file).await.unwrap();
    // Another drive cannot end this drive's heal.
    let other = cluster.of(&file, 1);
    let of_other = other.begin_comparison(file.stat.file, 0).await.unwrap();
    assert_eq!((of_other.stat.g, of_other.stat.segments[0].joining), (heal.stat.g, mask(&[0])));
    let writable = |column: usize| {
        let grant = of_other.grants[0][column].as_ref().unwrap();
        grant.capability.rights.include(braid_wire::capability::Rights::WRITE)
    };
    assert!(writable(1) && !writable(0), "each for its own column");
    other.end_heal(&heal).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].joining, mask(&[0]));
    dead.end_heal(&heal).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].joining, ColumnMask::EMPTY);
}

/// A stamp that a joining column has kept from before it went out may have been taken back since: the column
/// drops it, also while a writer's own stamps are in flight on the others; those stay.
#[tokio::test]
async fn a_column_that_joins_beside_a_writer_drops_what_it_has_pending() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    let stamp = |n| braid_layout::Version { g: Generation(1), lease: file.lease, n };
    let dead = cluster.of(&file, 0).clone();
    dead.put(&file, Column(0), &[(5, stamp(3), mask(&[0, 3]))]);
    dead.kill();
    client.patient(lost(&file, &[0])).await.unwrap();
    cluster.of(&file, 1).put(&file, Column(1), &[(6, stamp(4), mask(&[1, 3]))]);
    dead.start().await;
    client.until_up(&[&dead]).await;
    let heal = dead.begin_heal(file.stat.file).await.unwrap();
    assert_eq!(heal.stat.segments[0].joining, mask(&[0]));
    let object = file.stat.segments[0].columns[0].object;
    let told = |drive: &FakeDrive| drive.object(file.stat.volume.0, object).unwrap().verdicts;
    assert!(told(&dead).iter().any(|verdict| verdict.unit == 5 && verdict.back == [stamp(3)]));
    assert!(told(cluster.of(&file, 1)).is_empty(), "it may be in flight");
}

/// A file of this size, closed by its writer.
async fn closed(cluster: &Cluster, client: &mut Client, size: u64) -> Opened {
    let file = client.create("f").await;
    (0..3).for_each(|column| cluster.of(&file, column).put(&file, Column(column), &[]));
    let number = file.stat.file;
    let lease = file.lease;
    let order = 1;
    let cut = Cut::No;
    let backing = Backing::NONE;
    client
        .done(Commit {
            file: number,
            lease,
            holder: HolderId(7),
            size,
            order,
            cut,
            modified_ns: None,
            backing,
        })
        .await;
    client.done(release(&file, true)).await;
    file
}

#[tokio::test]
async fn a_drive_that_died_while_its_column_moved_is_replaced_by_where_it_moved_to() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client, 5000).await;
    let number = file.stat.file;
    let holder = cluster.of(&file, 1);
    let spare = cluster.drives.iter().find(|drive| !drives(&file).contains(&drive.id)).unwrap();
    client.ask(DrainDrive { drive: holder.name.clone(), drain: true }).await.unwrap();
    eventually("it has a successor", || async { spare.begin_heal(number).await.is_ok() }).await;
    holder.kill();
    client.patient(ReplaceDrive { old: holder.name.clone(), new: spare.name.clone() }).await.unwrap();
    eventually("it joins", || async { spare.begin_heal(number).await.is_ok() }).await;
    let heal = spare.begin_heal(number).await.unwrap();
    let shown = &heal.stat.segments[0];
    assert_eq!((shown.joining, shown.columns[1].drive), (mask(&[1]), spare.id));
    spare.end_heal(&heal).await.unwrap();
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.set, segment.joining), (mask(&[0, 1, 2]), ColumnMask::EMPTY));
    assert_eq!(segment.columns[1].drive, spare.id);
}

#[tokio::test]
async fn a_drive_is_drained_of_a_sparse_file_that_is_larger_than_all_of_them() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client, 1 << 50).await;
    let holder = cluster.of(&file, 1);
    client.ask(DrainDrive { drive: holder.name.clone(), drain: true }).await.unwrap();
    let spare = cluster.drives.iter().find(|drive| !drives(&file).contains(&drive.id)).unwrap();
    let number = file.stat.file;
    eventually("it has a successor", || async { spare.begin_heal(number).await.is_ok() }).await;
}

#[tokio::test]
async fn a_drain_is_refused_with_the_numbers_if_the_others_have_no_room() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = closed(&cluster, &mut client, 5000).await;
    let number = file.stat.file;
    let holder = cluster.of(&file, 1);
    for other in cluster.drives.iter().filter(|drive| drive.id != holder.id) {
        other.state().full = true;
    }
    let full = |row: &DriveRow| row.drive == holder.id || row.free_bytes == 0;
    client.until("the manager knows", |status| status.drives.iter().all(full)).await;
    let drain = DrainDrive { drive: holder.name.clone(), drain: true };
    let refusal = client.refused(drain.clone()).await;
    assert_eq!(refusal.reason, Reason::Full);
    assert!(refusal.detail.contains("1 components of about 2500 bytes"), "{refusal}");
    let remove = RemoveDrive { drive: holder.name.clone() };
    assert_eq!(client.refused(remove.clone()).await.reason, Reason::DriveInUse);
    // With room on another drive the column moves there, and the drained drive can leave.
    let spare = cluster.drives.iter().find(|drive| !drives(&file).contains(&drive.id)).unwrap();
    spare.state().full = false;
    let roomy = |row: &DriveRow| row.drive == spare.id && row.free_bytes > 0;
    client.until("the manager knows", |status| status.drives.iter().any(roomy)).await;
    client.ask(drain).await.unwrap();
    eventually("it has a successor", || async { spare.begin_heal(number).await.is_ok() }).await;
    let heal = spare.begin_heal(number).await.unwrap();
    let shown = &heal.stat.segments[0];
    assert_eq!((shown.joining, shown.columns[1].drive), (mask(&[1]), spare.id));
    let before = client.stat("f").await.unwrap();
    assert_eq!(before.segments, file.stat.segments, "the file lacks no column meanwhile");
    spare.end_heal(&heal).await.unwrap();
    let after = client.stat("f").await.unwrap();
    let segment = &after.segments[0];
    assert_eq!((segment.columns[1].drive, segment.joining), (spare.id, ColumnMask::EMPTY));
    assert_eq!(segment.set, mask(&[0, 1, 2]));
    assert!(after.g > before.g);
    let object = file.stat.segments[0].columns[1].object;
    assert!(holder.object(file.stat.volume.0, object).is_none(), "freed before anybody reads on");
    client.done(remove).await;
    assert!(client.status().await.drives.iter().all(|row| row.drive != holder.id));
}
