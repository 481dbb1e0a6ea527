//! The files that snapshots show are made anew on other drives, moved and replaced as others are.

use braid_client::{Buffered, Client, Name, OpenOptions};
use braid_layout::{Scheme, Shape};
use braid_wire::control::DriveState;

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::all_healed;

const FILES: u64 = 6;

fn raid5() -> Shape {
    shape(Scheme::Raid5, 3, 1, 4096)
}

fn path(number: u64) -> String {
    format!("f{number}")
}

fn past(number: u64) -> Vec<u8> {
    pattern(number + 1, 70_000)
}

fn present(number: u64) -> Vec<u8> {
    pattern(number + 100, 50_000)
}

fn at(path: &str) -> Name {
    name(path).in_snapshot("s").expect("a good name")
}

async fn overwrite(client: &Client, path: &str, bytes: &[u8]) {
    let file = client.open(&name(path), &OpenOptions::new().read(true).write(true)).await.expect("open");
    file.write_at(bytes, 0).await.expect("write");
    file.close().await.expect("close");
}

/// A cluster whose files were written several times before a snapshot, and after it.
async fn with_snapshot(drives: usize, lost_after_ms: u64, shape: Shape) -> (Cluster, Client) {
    let cluster = Cluster::start_losing(drives, |_| None, lost_after_ms).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    for number in 0..FILES {
        put(&client, &name(&path(number)), shape, &pattern(7, 70_000)).await;
        overwrite(&client, &path(number), &past(number)).await;
    }
    client.make_snapshot(&Name::root("main").expect("good"), "s", Buffered::LeftOut).await.expect("made");
    for number in 0..FILES {
        overwrite(&client, &path(number), &present(number)).await;
    }
    (cluster, client)
}

async fn components(client: &Client, drive: &str) -> u64 {
    let rows = client.status().await.expect("status").drives;
    rows.iter().find(|row| row.name == drive).map_or(0, |row| row.components)
}

async fn all_right(client: &Client, context: &str) {
    for number in 0..FILES {
        let path = path(number);
        let found = read_all(client, &at(&path)).await.expect("read");
        assert_same(&found, &past(number), &format!("{path}@s {context}"));
        let found = read_all(client, &name(&path)).await.expect("read");
        let present = present(number);
        assert_same(&found[..present.len()], &present, &format!("{path} {context}"));
    }
}

async fn all_whole(client: &Client) {
    for number in 0..FILES {
        let report = client.check(&at(&path(number)), |_| {}).await.expect("checked");
        assert!(report.is_clean(), "{:?} {:?}", report.findings, report.unchecked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stills_of_a_lost_drive_are_made_anew_on_others() {
    let (mut cluster, client) = with_snapshot(6, 4000, raid5()).await;
    assert!(components(&client, "d2").await > 0);
    cluster.kill(2);
    wait_for(|| async { components(&client, "d2").await == 0 }).await;
    all_healed(&client).await;
    all_whole(&client).await;
    cluster.kill(0);
    all_right(&client, "without two drives").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stills_are_drained_and_made_anew_on_a_drive_that_replaces_another() {
    let (mut cluster, client) = with_snapshot(5, 0, raid5()).await;
    client.drain_drive("d3", true).await.expect("drained");
    wait_for(|| async { components(&client, "d3").await == 0 }).await;
    all_healed(&client).await;
    all_whole(&client).await;
    // Columns of the files, and of what the snapshot shows, have left the drive: it holds nothing, and takes
    // them again.
    client.drain_drive("d3", false).await.expect("no more");
    client.drain_drive("d1", true).await.expect("drained");
    wait_for(|| async { components(&client, "d1").await == 0 }).await;
    all_healed(&client).await;
    all_right(&client, "after two drains").await;

    cluster.kill(0);
    cluster.add_drive(5, None).await;
    let row_of = async |drive: &str| {
        let rows = client.status().await.expect("status").drives;
        rows.into_iter().find(|row| row.name == drive).map(|row| row.state)
    };
    wait_for(|| async { row_of("d5").await == Some(DriveState::Up) }).await;
    wait_for(|| async { client.replace_drive("d0", "d5").await.is_ok() }).await;
    all_healed(&client).await;
    all_whole(&client).await;
    cluster.kill(2);
    all_right(&client, "without another drive").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stills_without_redundancy_are_copied_off_a_drained_drive() {
    let (_cluster, client) = with_snapshot(5, 0, shape(Scheme::Raid0, 3, 0, 4096)).await;
    assert!(components(&client, "d3").await > 0);
    client.drain_drive("d3", true).await.expect("drained");
    wait_for(|| async { components(&client, "d3").await == 0 }).await;
    all_right(&client, "elsewhere").await;
    client.remove_drive("d3").await.expect("removed");
}
