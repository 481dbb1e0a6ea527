//! The drives that are asked to free their components of a removed file.

use braid_layout::{Column, ColumnMask};
use braid_wire::control::*;

use crate::fake::{Client, Cluster, eventually, open, opened, raid5, release};

/// The columns that its creator says it wrote to.
const WRITTEN: ColumnMask = ColumnMask(0b1001);

fn ends(opened: &Opened, columns: ColumnMask) -> Release {
    let release = release(opened, true);
    Release { ended: Ended { columns, ..release.ended }, ..release }
}

/// Removes the file and waits until all of it is freed. Returns the columns whose drives were asked to free
/// it.
async fn asked_to_free(cluster: &Cluster, client: &mut Client, file: &Opened) -> ColumnMask {
    client.done(Unlink { at: NamePlace::of("main", "f"), only: UnlinkOnly::Any, keep: false }).await;
    let client = tokio::sync::Mutex::new(client);
    let all = || async { cluster.objects() == 0 && client.lock().await.status().await.removing == 0 };
    eventually("all is freed", all).await;
    let was_asked = |column: &Column| cluster.of(file, column.0).state().carried_out.contains(&"Remove");
    ColumnMask::all(4).iter().filter(was_asked).collect()
}

async fn written(cluster: &Cluster, client: &mut Client) -> Opened {
    let file = client.create("f").await;
    WRITTEN.iter().for_each(|column| cluster.of(&file, column.0).put(&file, column, &[]));
    client.done(ends(&file, WRITTEN)).await;
    file
}

#[tokio::test]
async fn drives_that_its_only_writer_sent_nothing_to_are_not_asked() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = written(&cluster, &mut client).await;
    assert_eq!(asked_to_free(&cluster, &mut client, &file).await, WRITTEN);
}

#[tokio::test]
async fn after_another_writer_all_are_asked() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = written(&cluster, &mut client).await;
    let next = client.opened(open("f", Access::Write, false)).await;
    assert_eq!(next.stat.g, file.stat.g, "without a fence, which asks all");
    cluster.of(&next, 1).put(&next, Column(1), &[]);
    client.done(ends(&next, ColumnMask(0b1011))).await;
    assert_eq!(asked_to_free(&cluster, &mut client, &file).await, ColumnMask::all(4));
}

#[tokio::test]
async fn after_a_writer_that_died_all_are_asked() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let file = client.create("f").await;
    WRITTEN.iter().for_each(|column| cluster.of(&file, column.0).put(&file, column, &[]));
    let unclean = ends(&file, WRITTEN);
    client.done(Release { ended: Ended { ending: Ending::Unclean, ..unclean.ended }, ..unclean }).await;
    assert_eq!(asked_to_free(&cluster, &mut client, &file).await, ColumnMask::all(4));
}

/// A drive that returns behind is fenced for the file, and then has an object of it.
#[tokio::test]
async fn a_column_that_was_out_from_the_start_is_asked_too() {
    let cluster = Cluster::new(4, raid5(3)).await;
    let mut client = cluster.manager.client().await;
    let away = cluster.drives[0].clone();
    away.kill();
    let until = |status: &StatusReply| status.drives.iter().any(|drive| drive.state == DriveState::Away);
    client.until("it is away", until).await;
    let file = opened(client.patient(open("f", Access::Write, true)).await.unwrap());
    let set = file.stat.segments[0].set;
    assert_eq!(set.count(), 3, "it begins without that drive");
    let written: ColumnMask = set.iter().take(2).collect();
    written.iter().for_each(|column| cluster.of(&file, column.0).put(&file, column, &[]));
    client.done(ends(&file, written)).await;
    away.start().await;
    client.until_up(&[&away]).await;
    let out = ColumnMask::all(4).minus(set);
    assert_eq!(asked_to_free(&cluster, &mut client, &file).await, written.or(out));
}
