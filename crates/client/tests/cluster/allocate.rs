//! Room that drives keep free for a file.

use braid_client::{Client, Kind, OpenOptions};
use braid_layout::{Scheme, Shape};
use braid_wire::Reason;
use braid_wire::control::DriveState;

use crate::common::{Cluster, name, pattern, put, read_all, shape, wait_for};
use crate::shared::both;

const MIB: u64 = 1 << 20;
/// Bytes of each drive.
const CAPACITY: u64 = 256 * MIB;

fn raid5() -> Shape {
    shape(Scheme::Raid5, 2, 1, 64 << 10)
}

async fn cluster(quota: u64) -> (Cluster, Client) {
    let cluster = Cluster::start_with(3, |_| Some(CAPACITY)).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(raid5()), quota).await.expect("a volume");
    (cluster, client)
}

/// Waits until the free bytes of each drive are as `wanted` says.
async fn free_is(client: &Client, wanted: impl Fn(u64) -> bool) {
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        let mut serving = rows.iter().filter(|row| row.state != DriveState::Replaced);
        serving.all(|row| row.state == DriveState::Up && wanted(row.free_bytes))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_is_kept_is_there_when_all_else_is_full_and_is_given_back() {
    let (mut cluster, client) = cluster(0).await;
    free_is(&client, |free| free > 200 * MIB).await;
    let file = client.open(&name("kept"), &both().create(true)).await.expect("created");
    let too_much = file.reserve_space(0..100 << 40).await.expect_err("no drive has that");
    assert_eq!(too_much.kind(), Kind::NoSpace, "{too_much}");
    free_is(&client, |free| free > 200 * MIB).await;
    // 200 MiB of a file of two data columns: 100 MiB on each of three drives.
    file.reserve_space(0..200 * MIB).await.expect("there is room");
    file.reserve_space(0..10 * MIB).await.expect("it is kept already");
    assert_eq!(file.size(), 0);
    free_is(&client, |free| free < 150 * MIB).await;
    // It is there after all parts have started again.
    file.close().await.expect("closed");
    for drive in 0..3 {
        cluster.stop(drive).await;
        cluster.restart(drive).await;
    }
    cluster.restart_manager().await;
    cluster.all_up(&client).await;
    free_is(&client, |free| free < 150 * MIB).await;
    // Others take all that is left.
    let data = vec![7; 4 << 20];
    let other = client.open(&name("other"), &both().create(true)).await.expect("created");
    let mut written = 0;
    let full = loop {
        match other.write_at(&data, written).await {
            Ok(()) => written += 4 * MIB,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), Kind::NoSpace, "{full}");
    let _ = other.close().await;
    // And the file has its room.
    let file = client.open(&name("kept"), &both()).await.expect("opened");
    for at in (0..200 * MIB).step_by(4 << 20) {
        file.write_at(&data, at).await.unwrap_or_else(|error| panic!("it has its room at {at}: {error}"));
    }
    // What is left of it goes back with what is cut off.
    file.set_len(0).await.expect("truncated");
    file.close().await.expect("closed");
    client.unlink(&name("other")).await.expect("removed");
    free_is(&client, |free| free > 200 * MIB).await;
}

/// Waits until the drive's column of the file is up to date.
async fn heals(cluster: &Cluster, client: &Client, drive: usize) {
    wait_for(|| async {
        let _ = cluster.try_to_heal(drive).await; // it may not be up yet
        client.check(&name("a"), |_| {}).await.is_ok_and(|report| report.is_clean())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_was_away_or_is_made_anew_keeps_its_room() {
    let (mut cluster, client) = cluster(0).await;
    let data = pattern(1, 3 << 20);
    put(&client, &name("a"), raid5(), &data).await;
    let file = client.open(&name("a"), &OpenOptions::new().write(true)).await.expect("opened");
    file.reserve_space(0..100 * MIB).await.expect("there is room");
    free_is(&client, |free| free < 195 * MIB).await;
    // The column goes out while its drive is away, and less is kept meanwhile.
    cluster.kill(0);
    file.give_space_back(40 * MIB..100 * MIB).await.expect("the others are told");
    file.close().await.expect("closed");
    cluster.restart(0).await;
    cluster.all_up(&client).await;
    heals(&cluster, &client, 0).await;
    free_is(&client, |free| (200 * MIB..225 * MIB).contains(&free)).await;
    // A drive that starts with nothing makes its column anew, with its room.
    cluster.stop(1).await;
    let old = cluster.drives[1].name.clone();
    cluster.restart_anew_with(1, Some(CAPACITY)).await;
    let new = cluster.drives[1].name.clone();
    cluster.all_up(&client).await;
    client.replace_drive(&old, &new).await.expect("replaced");
    heals(&cluster, &client, 1).await;
    free_is(&client, |free| (200 * MIB..225 * MIB).contains(&free)).await;
    assert!(read_all(&client, &name("a")).await.expect("read")[..3 << 20] == data[..]);
    client.unlink(&name("a")).await.expect("removed");
    free_is(&client, |free| free > 225 * MIB).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn room_that_is_kept_counts_under_a_quota() {
    let (_cluster, client) = cluster(50 * MIB).await;
    let file = client.open(&name("a"), &both().create(true)).await.expect("created");
    let refused = file.reserve_space(0..60 * MIB).await.expect_err("more than the quota");
    assert_eq!(refused.reason(), Some(Reason::Quota), "{refused}");
    file.reserve_space(0..40 * MIB).await.expect("less");
    file.close().await.expect("closed");
    let used = || async { client.quotas(None).await.expect("quotas")[0].bytes };
    assert_eq!(used().await, 40 * MIB);
    let file = client.open(&name("a"), &both()).await.expect("opened");
    file.give_space_back(10 * MIB..40 * MIB).await.expect("given back");
    file.give_space_back(0..5 * MIB).await.expect("room past it is kept");
    file.close().await.expect("closed");
    assert_eq!(used().await, 10 * MIB);
    client.unlink(&name("a")).await.expect("removed");
    assert_eq!(used().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_is_gone_keeps_nobody_from_the_room_on_the_others() {
    let (mut cluster, client) = cluster(0).await;
    let file = client.open(&name("a"), &both().create(true)).await.expect("created");
    file.write_at(&[7; 1000], 0).await.expect("written");
    cluster.kill(0);
    file.reserve_space(0..100 * MIB).await.expect("the others have it");
    file.write_at(&vec![8; 1 << 20], 0).await.expect("written");
    file.close().await.expect("closed");
    // The column is fenced when its drive is back, and has its room then too.
    cluster.restart(0).await;
    cluster.all_up(&client).await;
    heals(&cluster, &client, 0).await;
    free_is(&client, |free| free < 195 * MIB).await;
}
