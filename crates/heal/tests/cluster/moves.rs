//! Columns of lost and of drained drives move to others.

use std::time::Duration;

use braid_client::Client;
use braid_layout::Scheme;
use braid_wire::Reason;
use braid_wire::control::{DriveRow, DriveState};

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::{Writer, all_healed};

const FILES: usize = 12;

/// A cluster with twelve files of raid5 3+1 or rs 3+2.
async fn with_files(drives: usize, m: u8, lost_after_ms: u64) -> (Cluster, Client, Vec<Vec<u8>>) {
    let cluster = Cluster::start_losing(drives, |_| None, lost_after_ms).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let scheme = if m == 1 { Scheme::Raid5 } else { Scheme::Rs };
    let bytes: Vec<Vec<u8>> =
        (0..FILES).map(|seed| pattern(u64::try_from(seed).expect("small"), 90_000)).collect();
    for (index, bytes) in bytes.iter().enumerate() {
        put(&client, &name(&format!("f{index}")), shape(scheme, 3, m, 4096), bytes).await;
    }
    (cluster, client, bytes)
}

async fn components(client: &Client, drive: &str) -> u64 {
    let rows = client.status().await.expect("status").drives;
    rows.iter().find(|row| row.name == drive).map_or(0, |row| row.components)
}

async fn row_of(client: &Client, drive: &str) -> DriveRow {
    let rows = client.status().await.expect("status").drives;
    rows.into_iter().find(|row| row.name == drive).expect("the drive is known")
}

async fn check_all(client: &Client, bytes: &[Vec<u8>], context: &str) {
    for (index, bytes) in bytes.iter().enumerate() {
        let found = read_all(client, &name(&format!("f{index}"))).await.expect("read");
        assert_same(&found, bytes, &format!("f{index} {context}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_drives_columns_are_made_anew_by_all_others_and_stay_there_if_it_returns() {
    let (mut cluster, client, bytes) = with_files(6, 1, 4000).await;
    let before = components(&client, "d2").await;
    assert!(before >= 4, "{before} components");
    cluster.kill(2);
    wait_for(|| async { components(&client, "d2").await == 0 }).await;
    all_healed(&client).await;
    let healers = client.heal_status(None).await.expect("the heals").drives;
    assert!(
        healers.iter().filter(|row| row.progress.written_bytes > 0).count() >= 3,
        "declustered: {healers:?}"
    );
    for index in 0..FILES {
        assert!(client.check(&name(&format!("f{index}")), |_| {}).await.expect("check").is_clean());
    }
    cluster.kill(0);
    check_all(&client, &bytes, "without another drive").await;
    // The lost drive comes back: it frees its components, and is a drive like any other.
    cluster.restart(0).await;
    cluster.restart(2).await;
    cluster.all_up(&client).await;
    assert_eq!(components(&client, "d2").await, 0);
    put(&client, &name("later"), shape(Scheme::Raid5, 5, 1, 4096), &bytes[0]).await;
    assert_eq!(components(&client, "d2").await, 1, "it takes new files");
    all_healed(&client).await;
    check_all(&client, &bytes, "after its return").await;
}

/// Columns placed by hash alone would come to equal shares only for many more columns.
#[tokio::test(flavor = "multi_thread")]
async fn the_columns_of_a_lost_drive_are_dealt_out_evenly() {
    const COLUMNS: u64 = 240;
    let mut cluster = Cluster::start_losing(6, |_| None, 4000).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    for index in 0..COLUMNS / 2 {
        let mirrored = shape(Scheme::Raid1, 1, 1, 4096);
        put(&client, &name(&format!("f{index}")), mirrored, &pattern(index, 4096)).await;
    }
    let drives = ["d0", "d1", "d3", "d4", "d5"];
    let mut held = Vec::new();
    for drive in drives {
        held.push(components(&client, drive).await);
    }
    cluster.kill(2);
    wait_for(|| async { components(&client, "d2").await == 0 }).await;
    let mut given = Vec::new();
    for (drive, held) in drives.into_iter().zip(held) {
        given.push(components(&client, drive).await - held);
    }
    let least = given.iter().min().copied();
    let most = given.iter().max().copied();
    assert!(given.iter().sum::<u64>() >= 20, "{given:?}");
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 2), "{given:?}");
}

/// Each file has one spare drive, on which its column's successor is.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_under_way_may_be_asked_for_again_taken_back_and_begun_anew() {
    let (_cluster, client, bytes) = with_files(6, 2, 0).await;
    // At this rate a column takes six seconds.
    client.heal_status(Some(5_000)).await.expect("a low rate");
    assert!(!client.drain_drive("d4", true).await.expect("drained").was);
    wait_for(|| async {
        client.heal_status(None).await.expect("heals").drives.iter().any(|row| row.stale > 0)
    })
    .await;
    let reply = client.drain_drive("d4", true).await.expect("drained");
    assert!(reply.was && reply.components > 0, "{reply:?}");
    let error = client.remove_drive("d4").await.expect_err("it is in use");
    assert!(error.to_string().contains("braid drive drain d4 --wait"), "{error}");
    let rows = client.status().await.expect("status").drives;
    assert!(rows.iter().all(|row| row.draining == (row.name == "d4")), "{rows:?}");
    assert!(rows.iter().all(|row| row.stale == 0), "no file lacks a column: {rows:?}");
    assert!(client.drain_drive("d4", false).await.expect("taken back").was);
    assert!(!client.drain_drive("d4", false).await.expect("again").was);
    assert!(!client.drain_drive("d4", true).await.expect("anew, with columns still on their way").was);
    client.heal_status(Some(0)).await.expect("no limit");
    wait_for(|| async { components(&client, "d4").await == 0 }).await;
    all_healed(&client).await;
    client.remove_drive("d4").await.expect("removed");
    check_all(&client, &bytes, "without it").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_cannot_take_the_columns_of_another_does_not_take_its_place() {
    let (mut cluster, client, bytes) = with_files(5, 2, 0).await;
    cluster.kill(1);
    wait_for(|| async { row_of(&client, "d1").await.state == DriveState::Away }).await;
    // All five drives have a column of each file.
    let refused =
        || async { client.replace_drive("d1", "d2").await.expect_err("it has columns of all files") };
    // Until the drive's lease has surely lapsed that is the reason.
    wait_for(|| async { refused().await.reason() == Some(Reason::TooFewDrives) }).await;
    let error = refused().await;
    let text = error.to_string();
    assert!(text.contains("12 files: ") && text.contains("name an empty drive"), "{text}");
    assert_eq!(row_of(&client, "d1").await.state, DriveState::Away, "nothing is done");
    cluster.add_drive(5, None).await;
    wait_for(|| async { row_of(&client, "d5").await.state == DriveState::Up }).await;
    // The drive's lease may not have lapsed yet.
    wait_for(|| async { client.replace_drive("d1", "d5").await.is_ok() }).await;
    all_healed(&client).await;
    cluster.kill(0);
    cluster.kill(2);
    check_all(&client, &bytes, "without two more").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_is_back_in_time_keeps_its_columns() {
    let (mut cluster, client, bytes) = with_files(6, 1, 8000).await;
    let before = components(&client, "d1").await;
    cluster.kill(1);
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(components(&client, "d1").await, before);
    check_all(&client, &bytes, "as before").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_where_there_are_too_few_drives() {
    let (mut cluster, client, bytes) = with_files(4, 1, 3000).await;
    cluster.kill(3);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(components(&client, "d3").await, u64::try_from(FILES).expect("small"));
    check_all(&client, &bytes, "degraded").await;
    // One more drive makes room for the columns.
    cluster.add_drive(4, None).await;
    wait_for(|| async { components(&client, "d3").await == 0 }).await;
    all_healed(&client).await;
    cluster.kill(0);
    check_all(&client, &bytes, "without another drive").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_drive_is_empty_in_the_end_and_can_be_removed() {
    let (mut cluster, client, bytes) = with_files(6, 2, 0).await;
    let error = client.remove_drive("d4").await.expect_err("it is in use");
    assert!(error.to_string().contains("drain it first"), "{error}");
    let writer = Writer::begin(cluster.client().await, "f0", 0..bytes[0].len(), &bytes[0]);
    let reply = client.drain_drive("d4", true).await.expect("it is drained");
    assert!(reply.components >= 4 && reply.room_bytes > reply.bytes, "{reply:?}");
    wait_for(|| async { components(&client, "d4").await == 0 }).await;
    all_healed(&client).await;
    let mut bytes = bytes;
    bytes[0] = writer.end().await;
    client.remove_drive("d4").await.expect("removed");
    assert!(client.status().await.expect("status").drives.iter().all(|row| row.name != "d4"));
    cluster.stop(4).await;
    check_all(&client, &bytes, "without it").await;
    for index in 0..FILES {
        assert!(client.check(&name(&format!("f{index}")), |_| {}).await.expect("check").is_clean());
    }
    cluster.kill(0);
    cluster.kill(1);
    check_all(&client, &bytes, "without two more").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_is_added_gets_its_share_and_nothing_moves_that_need_not() {
    const CAPACITY: u64 = 64 << 20;
    const FILE: usize = 2 << 20;
    let mut cluster = Cluster::start_losing(5, |_| Some(CAPACITY), 0).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    // Otherwise the balancing may begin while the files are written, and its figures are of that time.
    client.set_balance(false).await.expect("it is off");
    let bytes: Vec<Vec<u8>> =
        (0..24).map(|seed| pattern(u64::try_from(seed).expect("small"), FILE)).collect();
    for (index, bytes) in bytes.iter().enumerate() {
        put(&client, &name(&format!("f{index}")), shape(Scheme::Raid5, 2, 1, 65536), bytes).await;
    }
    cluster.add_drive(5, Some(CAPACITY)).await;
    cluster.all_up(&client).await;
    assert_eq!(components(&client, "d5").await, 0);
    let status = client.set_balance(true).await.expect("it is on");
    assert!(status.balance.on);
    let total = 24 * u64::try_from(FILE).expect("small") * 3 / 2;
    wait_for(|| async {
        let balance = client.heal_status(None).await.expect("the heals").balance;
        balance.begun_bytes > 0 && !balance.active && balance.files == 0
    })
    .await;
    all_healed(&client).await;
    let status = client.heal_status(None).await.expect("the heals");
    let moved: u64 = status.drives.iter().map(|row| row.progress.written_bytes).sum();
    // The new drive's share is a sixth; the initial differences between the other drives come on top.
    assert!(status.balance.begun_bytes >= total / 6, "{:?}", status.balance);
    assert!(moved * 10 <= status.balance.begun_bytes * 11, "{moved}: {:?}", status.balance);
    assert!(status.balance.spread_permille <= 50, "{:?}", status.balance);
    assert!(moved * 10 >= status.balance.begun_bytes * 7, "{moved}: {:?}", status.balance);
    check_all(&client, &bytes, "balanced").await;
    for index in 0..bytes.len() {
        assert!(client.check(&name(&format!("f{index}")), |_| {}).await.expect("check").is_clean());
    }
    // The balance stays: nothing moves back.
    let before = components(&client, "d5").await;
    cluster.restart_manager().await;
    cluster.all_up(&client).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(components(&client, "d5").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_lacks_no_column_while_its_drive_is_drained_and_readers_and_writers_go_on() {
    let (cluster, client, bytes) = with_files(6, 2, 0).await;
    client.heal_status(Some(100_000)).await.expect("a low rate");
    client.drain_drive("d2", true).await.expect("it is drained");
    let mut most = 0;
    let mut looks = 0;
    let began = std::time::Instant::now();
    while looks < 40 || most == 0 && began.elapsed() < Duration::from_secs(60) {
        looks += 1;
        for index in 0..FILES {
            let stat = client.stat(&name(&format!("f{index}"))).await.expect("stat");
            let segment = &stat.segments[0];
            assert_eq!((segment.set.count(), segment.joining.count()), (5, 0), "f{index} lacks a column");
        }
        most = most.max(client.heal_status(None).await.expect("the heals").drives.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(most > 0, "nothing moves");
    check_all(&client, &bytes, "while they move").await;
    // The drain is ended: columns on the move arrive, and then nothing moves.
    client.drain_drive("d2", false).await.expect("it is not drained any more");
    client.heal_status(Some(0)).await.expect("no limit");
    all_healed(&client).await;
    let left = components(&client, "d2").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(components(&client, "d2").await, left);
    let error = client.remove_drive("d2").await.expect_err("it is up and in use");
    assert!(error.to_string().contains("drain it first"), "{error}");
    client.drain_drive("d2", true).await.expect("it is drained again");
    wait_for(|| async { components(&client, "d2").await == 0 }).await;
    check_all(&client, &bytes, "without it").await;
    drop(cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_refused_if_some_column_may_go_nowhere() {
    let (mut cluster, client, _) = with_files(6, 1, 0).await;
    put(&client, &name("wide"), shape(Scheme::Raid5, 5, 1, 4096), &pattern(1, 50_000)).await;
    let error = client.drain_drive("d1", true).await.expect_err("wide is on every drive").to_string();
    assert!(error.contains("1 files: braid://main/wide") && error.contains("5 other drives"), "{error}");
    cluster.add_drive(6, None).await;
    cluster.all_up(&client).await;
    put(&client, &name("bare"), shape(Scheme::Raid0, 7, 0, 4096), &pattern(1, 50_000)).await;
    let error = client.drain_drive("d1", true).await.expect_err("bare is on every drive").to_string();
    assert!(error.contains("raid0") && error.contains("braid://main/bare"), "{error}");
    client.unlink(&name("bare")).await.expect("removed");
    client.drain_drive("d1", true).await.expect("there is a place for each");
    wait_for(|| async { components(&client, "d1").await == 0 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_column_has_moved_meanwhile_takes_nothing_for_a_hole() {
    let (_cluster, client, bytes) = with_files(6, 1, 0).await;
    let mut files = Vec::new();
    for index in 0..FILES {
        let options = braid_client::OpenOptions::new().read(true);
        files.push(client.open(&name(&format!("f{index}")), &options).await.expect("open"));
    }
    let drained = client.stat(&name("f0")).await.expect("stat").segments[0].columns[0].drive_name.clone();
    client.drain_drive(&drained, true).await.expect("it is drained");
    wait_for(|| async { components(&client, &drained).await == 0 }).await;
    for (file, bytes) in files.iter().zip(&bytes) {
        let mut found = vec![0xee; bytes.len()];
        file.read_at(&mut found, 0).await.expect("read");
        assert_same(&found, bytes, "opened before it moved");
    }
}
