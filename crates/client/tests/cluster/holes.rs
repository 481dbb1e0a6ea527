//! Files that are cut and grow again: what was there before must not show, nor upset parity, healthy, degraded or rebuilt.

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use braid_client::OpenOptions;
use braid_layout::Scheme;
use braid_wire::control::DriveState;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_cut_and_written_again_survives_the_loss_of_any_drive() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let (path, shape) = (name("f"), shape(Scheme::Raid5, 3, 1, 4096));
    let options = OpenOptions::new().write(true).create(true).shape(shape);
    let file = client.open(&path, &options).await.expect("create");
    // Only the first unit is written; the cut makes a hole of the whole stripe, which has versions in the others.
    file.write_at(b"first", 0).await.expect("write");
    file.set_len(0).await.expect("cut");
    file.write_at(b"again", 0).await.expect("write");
    file.close().await.expect("close");
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
    let (row, bytes) = (client.stat(&path).await.expect("stat"), b"again".to_vec());
    let holder = row.segments[0].columns[0].drive_name.clone();
    cluster.kill(holder[1..].parse().expect("d and a number"));
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "without its drive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_away_during_a_cut_does_not_bring_the_bytes_back() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let (path, shape) = (name("f"), shape(Scheme::Raid5, 3, 1, 4096));
    let before = pattern(8, 150_000);
    put(&client, &path, shape, &before).await;
    cluster.stop(1).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.set_len(10).await.expect("cut");
    file.close().await.expect("close");
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let rebuilt = client.rebuild("d1", |_| {}).await.expect("rebuild");
    assert!(rebuilt.failed.is_empty() && rebuilt.files == 1, "{rebuilt:?}");

    let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
    file.set_len(150_000).await.expect("grow");
    let mut model = before[..10].to_vec();
    model.resize(150_000, 0);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "grown");
    // Part of a stripe, so that the others of the stripe are read for its parity.
    let bytes = pattern(9, 3000);
    file.write_at(&bytes, 70_000).await.expect("write");
    model[70_000..73_000].copy_from_slice(&bytes);
    file.close().await.expect("close");
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
    cluster.kill(3);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "without another drive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_hole_takes_no_space() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let (path, shape) = (name("f"), shape(Scheme::Raid5, 3, 1, 4096));
    cluster.stop(1).await;
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        rows.iter().any(|row| row.drive == cluster.drives[1].id && row.state == DriveState::Away)
    })
    .await;
    let file =
        client.open(&path, &OpenOptions::new().write(true).create(true).shape(shape)).await.expect("create");
    // Some stripes of holes with one of bytes behind them.
    let (stripe, before) = (3 * 4096, 500);
    let bytes = pattern(3, stripe);
    file.write_at(&bytes, u64::try_from(before * stripe).expect("small")).await.expect("write");
    file.close().await.expect("close");
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let rebuilt = client.rebuild("d1", |_| {}).await.expect("rebuild");
    assert!(rebuilt.failed.is_empty() && rebuilt.files == 1, "{rebuilt:?}");
    let live = std::sync::atomic::AtomicU64::new(0);
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        let row = rows.iter().find(|row| row.drive == cluster.drives[1].id).expect("its row");
        live.store(row.live_bytes, std::sync::atomic::Ordering::Relaxed);
        row.live_bytes >= 4096
    })
    .await;
    let live = live.into_inner();
    assert!(live < 500 * 1024, "{live} bytes for one unit of bytes and {before} of holes");
    let mut model = vec![0; before * stripe];
    model.extend_from_slice(&bytes);
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
    cluster.kill(2);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "with the rebuilt column");
}
