//! Successors of columns that move off drives that serve them.

use braid_layout::{Column, ColumnMask};
use braid_wire::Reason;
use braid_wire::control::{Access, DrainDrive, NamePlace, Opened, Unlink, UnlinkOnly};

use crate::failures::{mask, put_all};
use crate::fake::{Client, Cluster, FakeDrive, eventually, lost, open, opened, raid5, release};
use crate::space::drives;

/// A closed file, the drive of its column 1, which is drained, and the drive that takes the column.
pub(crate) async fn moving(cluster: &Cluster, client: &mut Client) -> (Opened, FakeDrive, FakeDrive) {
    let file = client.create("f").await;
    put_all(cluster, &file);
    client.done(release(&file, true)).await;
    let holder = cluster.of(&file, 1).clone();
    let spare = cluster.drives.iter().find(|drive| !drives(&file).contains(&drive.id)).unwrap().clone();
    client.ask(DrainDrive { drive: holder.name.clone(), drain: true }).await.unwrap();
    eventually("it has a successor", || async { spare.begin_heal(file.stat.file).await.is_ok() }).await;
    (file, holder, spare)
}

#[tokio::test]
async fn one_that_was_compared_while_somebody_wrote_is_compared_again() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, _, spare) = moving(&cluster, &mut client).await;
    let first = spare.begin_heal(file.stat.file).await.unwrap();
    // A writer comes and goes.
    let writer = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    client.done(release(&writer, true)).await;
    assert_eq!(spare.end_heal(&first).await.unwrap_err().reason, Reason::StaleGeneration);
    let stat = client.stat("f").await.unwrap();
    assert_eq!((stat.segments[0].set, stat.g), (mask(&[0, 1, 2]), first.stat.g), "nothing has changed");
    let second = spare.begin_heal(file.stat.file).await.unwrap();
    spare.end_heal(&second).await.unwrap();
    let stat = client.stat("f").await.unwrap();
    assert_eq!((stat.segments[0].columns[1].drive, stat.segments[0].set), (spare.id, mask(&[0, 1, 2])));
}

#[tokio::test]
async fn beside_a_writer_it_takes_the_place_first() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, holder, spare) = moving(&cluster, &mut client).await;
    let _writer = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    let first = spare.begin_heal(file.stat.file).await.unwrap();
    assert_eq!(spare.end_heal(&first).await.unwrap_err().reason, Reason::StaleGeneration);
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.columns[1].drive, segment.joining), (spare.id, mask(&[1])));
    let object = file.stat.segments[0].columns[1].object;
    assert!(holder.object(file.stat.volume.0, object).is_none());
    let second = spare.begin_heal(file.stat.file).await.unwrap();
    spare.end_heal(&second).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].joining, ColumnMask::EMPTY);
}

#[tokio::test]
async fn with_fewer_than_k_other_columns_there_is_nothing_to_compare_it_with() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, _, spare) = moving(&cluster, &mut client).await;
    let writer = opened(client.patient(open("f", Access::Write, false)).await.unwrap());
    let before = spare.begin_heal(file.stat.file).await.unwrap();
    cluster.of(&file, 0).kill();
    client.patient(lost(&writer, &[0])).await.unwrap();
    assert_eq!(spare.begin_heal(file.stat.file).await.unwrap_err().reason, Reason::TooManyAway);
    assert!(spare.end_heal(&before).await.is_err());
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert!(segment.set.contains(Column(1)) && segment.columns[1].drive != spare.id);
}

#[tokio::test]
async fn one_on_a_drive_that_is_drained_too_is_given_up_and_freed() {
    let cluster = Cluster::new(5, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    put_all(&cluster, &file);
    client.done(release(&file, true)).await;
    let spares: Vec<FakeDrive> =
        cluster.drives.iter().filter(|drive| !drives(&file).contains(&drive.id)).cloned().collect();
    let holder = cluster.of(&file, 1).clone();
    client.ask(DrainDrive { drive: holder.name.clone(), drain: true }).await.unwrap();
    let takes = || async {
        for spare in &spares {
            if spare.begin_heal(file.stat.file).await.is_ok() {
                return Some(spare.clone());
            }
        }
        None
    };
    eventually("it has a successor", || async { takes().await.is_some() }).await;
    let first = takes().await.unwrap();
    client.ask(DrainDrive { drive: first.name.clone(), drain: true }).await.unwrap();
    let object = file.stat.segments[0].columns[1].object;
    eventually("it is given up", || async { first.object(file.stat.volume.0, object).is_none() }).await;
    eventually("another takes it", || async { takes().await.is_some_and(|second| second.id != first.id) })
        .await;
    assert_eq!(client.stat("f").await.unwrap().segments[0].set, mask(&[0, 1, 2]));
}

/// The only drive that could take a column that is lost was given a successor of another column, which cannot
/// be made without the lost one.
#[tokio::test]
async fn one_that_cannot_be_made_any_more_is_given_up_for_a_column_that_is_lost() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, holder, spare) = moving(&cluster, &mut client).await;
    let lost = cluster.of(&file, 0);
    lost.kill();
    // A drive that is drained and away is emptied like one that is lost.
    client.ask(DrainDrive { drive: lost.name.clone(), drain: true }).await.unwrap();
    eventually("it moves", || async {
        let mut client = cluster.manager.client().await;
        client.stat("f").await.unwrap().segments[0].columns[0].drive == spare.id
    })
    .await;
    let segment = client.stat("f").await.unwrap().segments.remove(0);
    assert_eq!((segment.columns[1].drive, segment.set), (holder.id, mask(&[1, 2])), "the other serves on");
}

#[tokio::test]
async fn a_removed_files_is_freed_with_it() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, _, spare) = moving(&cluster, &mut client).await;
    let object = file.stat.segments[0].columns[1].object;
    assert!(spare.object(file.stat.volume.0, object).is_some());
    client.done(Unlink { at: NamePlace::of("main", "f"), only: UnlinkOnly::Any, keep: false }).await;
    eventually("it is freed", || async { spare.object(file.stat.volume.0, object).is_none() }).await;
    assert_eq!(spare.begin_heal(file.stat.file).await.unwrap_err().reason, Reason::NotFound);
}

/// The drive that the column leaves is cut off in that moment, and its lease lapses. Readers may have
/// capabilities for its object, and others write elsewhere: it serves again once it has freed the object.
#[tokio::test]
async fn the_drive_that_was_left_serves_no_more_before_it_has_freed_what_it_had() {
    let cluster = Cluster::new(4, raid5(2)).await;
    let mut client = cluster.manager.client().await;
    let (file, holder, spare) = moving(&cluster, &mut client).await;
    let object = file.stat.segments[0].columns[1].object;
    let here = || holder.object(file.stat.volume.0, object).is_some();
    let compared = spare.begin_heal(file.stat.file).await.unwrap();
    holder.state().mute = true;
    holder.state().silent = true;
    spare.end_heal(&compared).await.unwrap();
    assert_eq!(client.stat("f").await.unwrap().segments[0].columns[1].drive, spare.id);
    assert!(here() && !holder.serves());
    // The drive is heard again, but does not answer requests yet.
    let leases = holder.state().leases;
    holder.state().admission = None;
    holder.state().silent = false;
    eventually("it is answered", || async { holder.state().admission.is_some() }).await;
    assert_eq!(holder.state().leases, leases, "it has something that is not the file's any more");
    holder.state().mute = false;
    eventually("it serves", || async { holder.serves() }).await;
    assert!(!here());
}
