//! Files that are cut and grow again: old content must not reappear, nor make parity wrong, whether healthy,
//! degraded or rebuilt.

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::Scheme;
use braid_wire::control::{DriveRow, DriveState};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_cut_and_written_again_survives_the_loss_of_any_drive() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let options = OpenOptions::new().write(true).create(true).shape(shape);
    let file = client.open(&path, &options).await.expect("create");
    // Only the first unit is written. The cut makes a hole of the whole stripe, so that its other units get
    // versions too.
    file.write_at(b"first", 0).await.expect("write");
    file.set_len(0).await.expect("cut");
    file.write_at(b"again", 0).await.expect("write");
    file.close().await.expect("close");
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
    let row = client.stat(&path).await.expect("stat");
    let bytes = b"again".to_vec();
    let holder = row.segments[0].columns[0].drive_name.clone();
    cluster.kill(holder[1..].parse().expect("d and a number"));
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "without its drive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_away_during_a_cut_does_not_bring_the_bytes_back() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let before = pattern(8, 150_000);
    put(&client, &path, shape, &before).await;
    cluster.stop(1).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.set_len(10).await.expect("cut");
    file.close().await.expect("close");
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    assert_eq!(cluster.heal(1).await.0, 1);

    let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
    file.set_len(150_000).await.expect("grow");
    let mut model = before[..10].to_vec();
    model.resize(150_000, 0);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "grown");
    // Part of a stripe, so that the other units of the stripe are read for its parity.
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
    let path = name("f");
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    stop_and_wait(&mut cluster, &client).await;
    let options = OpenOptions::new().write(true).create(true).shape(shape);
    let file = client.open(&path, &options).await.expect("create");
    // Stripes that were written and cut off, and so are holes with versions, then one with bytes.
    let stripe = 3 * 4096;
    let before = 300;
    file.write_at(&pattern(3, before * stripe), 0).await.expect("write");
    file.set_len(0).await.expect("cut");
    let bytes = pattern(4, stripe);
    file.write_at(&bytes, u64::try_from(before * stripe).expect("small")).await.expect("write");
    file.close().await.expect("close");
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    assert_eq!(cluster.heal(1).await.0, 1);
    // Once the drive is up again, the manager knows what it holds.
    stop_and_wait(&mut cluster, &client).await;
    cluster.restart(1).await;
    cluster.all_up(&client).await;
    let rows = client.status().await.expect("status").drives;
    let live = rows.iter().find(|row| row.drive == cluster.drives[1].id).expect("its row").live_bytes;
    assert!(live >= 4096, "{live}: the unit of bytes is there");
    assert!(live < 300 * 2048, "{live} bytes for one unit of bytes and {before} of holes");
    let mut model = vec![0; before * stripe];
    model.extend_from_slice(&bytes);
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
    cluster.kill(2);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "with the rebuilt column");
}

/// Stops drive 1 and waits until the manager knows.
async fn stop_and_wait(cluster: &mut Cluster, client: &Client) {
    cluster.stop(1).await;
    let away = |row: &DriveRow| row.drive == cluster.drives[1].id && row.state == DriveState::Away;
    wait_for(|| async { client.status().await.expect("status").drives.iter().any(away) }).await;
}

/// The drives list the ranges with data: of a sparse file, with one drive missing, and never past the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_sparse_file_tells_where_its_data_is() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 3, 1, 4096);
    let stripe = 3 * 4096;
    let far = 200_000;
    let file =
        client.open(&path, &OpenOptions::new().write(true).create(true).shape(shape)).await.expect("open");
    // One unit, the second of its stripe; two stripes; and the last byte of the file, more than one request
    // away.
    file.write_at(&[1; 10], 7 * stripe + 5000).await.expect("write");
    file.write_at(&pattern(1, 2 * 3 * 4096), 20 * stripe).await.expect("write");
    file.write_at(&[2], far * stripe + 3).await.expect("write");
    file.close().await.expect("close");
    let expected = [7 * stripe..8 * stripe, 20 * stripe..22 * stripe, far * stripe..far * stripe + 4];

    for healthy in [true, false] {
        if !healthy {
            let holder = client.stat(&path).await.expect("stat").segments[0].columns[1].drive_name.clone();
            cluster.kill(holder[1..].parse().expect("d and a number"));
        }
        let file = client.open(&path, &OpenOptions::new().read(true)).await.expect("open");
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(data) = file.data_after(from).await.expect("told") {
            from = data.end;
            found.push(data);
        }
        assert_eq!(found, expected, "healthy: {healthy}");
        let within = file.data_after(20 * stripe + 100).await.expect("told");
        assert_eq!(within, Some(20 * stripe + 100..22 * stripe));
        assert_eq!(file.data_after(u64::MAX).await.expect("told"), None);
    }
    let gone = client.open(&path, &OpenOptions::new().read(true)).await.expect("open");
    client.unlink(&path).await.expect("unlinked");
    // Removed data is never reported as a hole, no matter if the file's objects are removed yet.
    let told = gone.data_after(0).await;
    assert!(told.as_ref().map_or(true, |data| data.as_ref() == Some(&expected[0])), "{told:?}");
}
