//! Files are laid out anew, beside readers and failures of their drives.

use std::time::{Duration, Instant};

use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::{FileId, Scheme, Shape};

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::all_healed;

async fn list(client: &Client) -> Vec<braid_wire::control::RelayoutRow> {
    client.relayouts(FileId(0), 0).await.expect("the list").rows
}

async fn has_shape(client: &Client, path: &str, shape: Shape) -> bool {
    let row = client.stat(&name(path)).await.expect("stat");
    row.segments.len() == 1 && row.segments[0].shape.shape().expect("a shape") == shape
}

/// Waits until the file has this shape and nothing is left to do.
async fn relaid(client: &Client, path: &str, shape: Shape) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !(has_shape(client, path, shape).await && list(client).await.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    if waited.await.is_err() {
        let heals = client.heal_status(None).await.expect("the heals").drives;
        panic!("it does not get {shape}: {:?}; {heals:?}", list(client).await);
    }
    all_healed(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_gets_each_other_scheme_and_keeps_its_bytes() {
    let mut cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    // The file does not end with a whole stripe, and has zeros within: whole units of them, and the end of
    // one.
    let mut model = pattern(5, 700_001);
    model[100_000..300_000].fill(0);
    let first = shape(Scheme::Raid5, 4, 1, 16 << 10);
    put(&client, &name("f"), first, &model).await;
    let shapes = [
        shape(Scheme::Rs, 3, 2, 4096),
        shape(Scheme::Raid0, 6, 0, 8192),
        shape(Scheme::Raid1, 1, 2, 4096),
        shape(Scheme::Raid4, 3, 1, 64 << 10),
        shape(Scheme::Raid5, 5, 1, 4096),
        first,
    ];
    for shape in shapes {
        assert!(client.relayout(&name("f"), Some(shape)).await.expect("asked").begun);
        relaid(&client, "f", shape).await;
        assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, &shape.to_string());
        assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean(), "{shape}");
        assert!(!client.relayout(&name("f"), Some(shape)).await.expect("asked").begun, "it has it");
        // The file is written like any other.
        let file = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
        let bytes = pattern(u64::from(shape.unit_bytes()), 30_000);
        file.write_at(&bytes, 280_000).await.expect("write");
        model[280_000..310_000].copy_from_slice(&bytes);
        file.close().await.expect("close");
    }
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    cluster.kill(0);
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "without a drive");
    // The components of the old layouts are freed: only those of the present layout are left.
    let rows = client.status().await.expect("status").drives;
    assert_eq!(rows.iter().map(|row| row.components).sum::<u64>(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_and_a_writer_comes_first() {
    let cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let mut model = pattern(8, 2_000_000);
    let old = shape(Scheme::Raid5, 4, 1, 4096);
    let new = shape(Scheme::Rs, 3, 2, 16 << 10);
    put(&client, &name("f"), old, &model).await;
    let reader = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
    let writer = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
    assert!(client.relayout(&name("f"), Some(new)).await.expect("asked").begun);
    wait_for(|| async {
        list(&client).await.first().is_some_and(|row| row.why.contains("open for writing"))
    })
    .await;
    let bytes = pattern(9, 50_000);
    writer.write_at(&bytes, 777_777).await.expect("write");
    model[777_777..827_777].copy_from_slice(&bytes);
    writer.close().await.expect("close");
    // The relayout begins, slowly, and is disturbed by a writer.
    client.heal_status(Some(300_000)).await.expect("a low rate");
    wait_for(|| async { list(&client).await.first().is_some_and(|row| row.columns == 5) }).await;
    let writer = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("it is not refused");
    writer.write_at(&bytes, 0).await.expect("write");
    model[..50_000].copy_from_slice(&bytes);
    writer.close().await.expect("close");
    client.heal_status(Some(0)).await.expect("no limit");
    let mut found = vec![0; model.len()];
    let began = Instant::now();
    while !has_shape(&client, "f", new).await && began.elapsed() < Duration::from_secs(60) {
        reader.read_at(&mut found, 0).await.expect("read");
        assert_same(&found, &model, "meanwhile");
    }
    relaid(&client, "f", new).await;
    reader.read_at(&mut found, 0).await.expect("read");
    assert_same(&found, &model, "through the handle from before");
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_file_is_laid_out_anew_no_drive_counts_as_behind_and_one_that_is_away_is_named() {
    let mut cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let old = shape(Scheme::Raid1, 1, 2, 4096);
    let new = shape(Scheme::Rs, 4, 2, 16 << 10);
    let model = pattern(8, 600_000);
    put(&client, &name("f"), old, &model).await;
    client.heal_status(Some(20_000)).await.expect("a low rate");
    assert!(client.relayout(&name("f"), Some(new)).await.expect("asked").begun);
    wait_for(|| async { list(&client).await.first().is_some_and(|row| row.columns == 6) }).await;
    let heals = client.heal_status(None).await.expect("the heals").drives;
    assert!(heals.iter().any(|row| row.stale > 0), "they have something to do: {heals:?}");
    let rows = client.status().await.expect("status").drives;
    assert!(rows.iter().all(|row| row.stale == 0), "and nothing is at risk: {rows:?}");
    assert_eq!(list(&client).await[0].why, "");
    cluster.kill(3);
    wait_for(|| async {
        list(&client).await.first().is_some_and(|row| row.why.starts_with("d3 must come back"))
    })
    .await;
    cluster.restart(3).await;
    client.heal_status(Some(0)).await.expect("no limit");
    relaid(&client, "f", new).await;
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "in the end");
}

/// The reader reads more at a time than one plan set of the new layout may have.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_from_before_reads_a_layout_of_many_small_stripes() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let model = pattern(8, 3_000_000);
    let old = shape(Scheme::Raid5, 4, 1, 1 << 20);
    let new = shape(Scheme::Raid1, 1, 1, 4096);
    put(&client, &name("f"), old, &model).await;
    let reader = client.open(&name("f"), &OpenOptions::new().read(true)).await.expect("open");
    assert!(client.relayout(&name("f"), Some(new)).await.expect("asked").begun);
    relaid(&client, "f", new).await;
    let mut found = vec![0; model.len()];
    reader.read_at(&mut found, 0).await.expect("read");
    assert_same(&found, &model, "through the handle from before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_dies_on_the_way_is_waited_for_and_a_lost_one_is_not() {
    let mut cluster = Cluster::start_losing(7, |_| None, 4000).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let model = pattern(8, 3_000_000);
    let old = shape(Scheme::Rs, 3, 2, 4096);
    let new = shape(Scheme::Raid5, 5, 1, 16 << 10);
    put(&client, &name("f"), old, &model).await;
    for again in [true, false] {
        let wanted = if again { new } else { old };
        client.heal_status(Some(200_000)).await.expect("a low rate");
        assert!(client.relayout(&name("f"), Some(wanted)).await.expect("asked").begun);
        let width = wanted.width();
        wait_for(|| async { list(&client).await.first().is_some_and(|row| row.columns == width) }).await;
        let drive = if again { 1 } else { 2 };
        cluster.kill(drive);
        if again {
            cluster.restart(drive).await;
        }
        client.heal_status(Some(0)).await.expect("no limit");
        relaid(&client, "f", wanted).await;
        assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "after a drive's death");
        assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_and_what_was_asked_for_is_taken_back() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let old = shape(Scheme::Raid5, 4, 1, 4096);
    let new = shape(Scheme::Raid1, 1, 1, 4096);
    let model = pattern(8, 1_000_000);
    put(&client, &name("f"), old, &model).await;
    let wide = client.relayout(&name("f"), Some(shape(Scheme::Rs, 4, 2, 4096))).await.expect_err("too wide");
    assert!(wide.to_string().contains("needs 6 drives, and there are 5"), "{wide}");
    client.relayout(&name("nothing"), Some(new)).await.expect_err("there is none");
    client.mkdir(&name("d"), braid_client::Parents::MustExist).await.expect("a directory");
    let directory = client.relayout(&name("d"), Some(new)).await.expect_err("a directory");
    assert!(directory.to_string().contains("is a directory"), "{directory}");
    client.heal_status(Some(10_000)).await.expect("a low rate");
    assert!(client.relayout(&name("f"), Some(new)).await.expect("asked").begun);
    wait_for(|| async { list(&client).await.first().is_some_and(|row| row.columns == 2) }).await;
    assert!(has_shape(&client, "f", old).await, "what is being filled is not the file's");
    assert!(client.relayout(&name("f"), None).await.expect("taken back").begun);
    assert!(list(&client).await.is_empty() && has_shape(&client, "f", old).await);
    wait_for(|| async {
        client.status().await.expect("status").drives.iter().map(|row| row.components).sum::<u64>() == 5
    })
    .await;
    assert!(client.relayout(&name("f"), Some(new)).await.expect("asked").begun);
    client.unlink(&name("f")).await.expect("removed");
    wait_for(|| async { list(&client).await.is_empty() }).await;
}

/// Without redundancy a column cannot be made from the others: the file is copied elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_drive_with_a_column_without_redundancy_is_drained() {
    let cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let bare = shape(Scheme::Raid0, 3, 0, 4096);
    let model = pattern(8, 300_000);
    put(&client, &name("f"), bare, &model).await;
    let drained = client.stat(&name("f")).await.expect("stat").segments[0].columns[0].drive_name.clone();
    client.drain_drive(&drained, true).await.expect("three others take it");
    wait_for(|| async {
        let rows = client.status().await.expect("status").drives;
        rows.iter().all(|row| row.name != drained || row.components == 0)
    })
    .await;
    relaid(&client, "f", bare).await;
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "elsewhere");
    client.remove_drive(&drained).await.expect("it is empty");
}
