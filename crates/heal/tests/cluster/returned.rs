//! Drives that were away, and drives that take the place of others, catch up by themselves.

use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::Scheme;
use braid_wire::Reason;

use crate::common::{Cluster, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::support::{Writer, all_healed, row, written};

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_was_away_for_one_percent_of_the_data_gets_that_percent() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let unit = 16 << 10;
    let stripe = 4 * usize::try_from(unit).expect("small");
    let path = name("f");
    let shape = shape(Scheme::Raid5, 4, 1, unit);
    let mut model = pattern(4, 400 * stripe);
    put(&client, &path, shape, &model).await;
    // Units that the drive does not know to be settled when it goes away are rebuilt.
    client.finish().await;
    cluster.stop(2).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let bytes = pattern(77, 4 * stripe);
    file.write_at(&bytes, u64::try_from(100 * stripe).expect("small")).await.expect("write");
    model[100 * stripe..104 * stripe].copy_from_slice(&bytes);
    file.close().await.expect("close");
    cluster.restart(2).await;
    wait_for(|| async { row(&client, "d2").await.is_some_and(|row| row.progress.files == 1) }).await;
    all_healed(&client).await;
    let progress = row(&client, "d2").await.expect("its row").progress;
    let column = 400 * u64::from(unit);
    println!("compared {}, written {} of {column} bytes", progress.compared_bytes, progress.written_bytes);
    assert!(progress.written_bytes * 1000 <= column * 12, "{progress:?}: more than 1.2 %");
    assert_eq!(progress.compared_bytes, column);
    assert!(client.check(&path, |_| {}).await.expect("check").is_clean());
    cluster.kill(0);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "from the column that was away");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_and_readers_go_on_while_a_column_catches_up() {
    beside_writers(1).await;
}

/// With several writers, stripes that touch the column are written in turns, each in a generation of its own.
#[tokio::test(flavor = "multi_thread")]
async fn several_writers_of_one_file_go_on_while_a_column_catches_up() {
    beside_writers(3).await;
}

async fn beside_writers(count: usize) {
    const BYTES: usize = 4_000_000;
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let shape = shape(Scheme::Raid5, 4, 1, 4096);
    let before = pattern(6, BYTES);
    put(&client, &name("f"), shape, &before).await;
    let mut writers = Vec::new();
    for index in 0..count {
        let part = BYTES * index / count..BYTES * (index + 1) / count;
        writers.push(Writer::begin(cluster.client().await, "f", part, &before));
    }
    cluster.kill(1);
    // The writer has the drive's column taken out.
    wait_for(|| async { row(&client, "d1").await.is_some_and(|row| row.stale == 1) }).await;
    // At this rate the heal takes minutes, until it is told otherwise: a loaded machine is not slower.
    client.heal_status(Some(10_000)).await.expect("the rate is set");
    cluster.restart(1).await;
    written(&client, "d1", 1).await;
    assert_eq!(read_all(&client, &name("f")).await.expect("read beside it").len(), BYTES);
    let healing = row(&client, "d1").await.expect("its row");
    assert_eq!(healing.stale, 1, "the heal is under way: {healing:?}");
    for writer in &writers {
        writer.gets_on().await;
    }
    client.heal_status(Some(0)).await.expect("the rate is set");
    all_healed(&client).await;
    let mut model = Vec::new();
    for writer in writers {
        model.extend(writer.end().await);
    }
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "healthy");
    cluster.kill(3);
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "from the healed column");
}

/// Two healers run at once, as two processes of a drive would, of which one was thought to be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_several_processes_heal_at_once_beside_a_writer_is_whole() {
    const BYTES: usize = 3_000_000;
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let before = pattern(8, BYTES);
    put(&client, &name("f"), shape(Scheme::Raid5, 4, 1, 4096), &before).await;
    let writer = Writer::begin(cluster.client().await, "f", 0..BYTES, &before);
    cluster.kill(1);
    wait_for(|| async { row(&client, "d1").await.is_some_and(|row| row.stale == 1) }).await;
    // The drive's own process is slow; the two others have no limit.
    client.heal_status(Some(50_000)).await.expect("the rate is set");
    cluster.restart(1).await;
    written(&client, "d1", 1).await;
    let (one, other) = tokio::join!(cluster.try_to_heal(1), cluster.try_to_heal(1));
    for outcome in [&one, &other] {
        // A healer that comes when another has ended the heal is told so.
        if let Err(error) = outcome {
            assert_eq!(error.reason(), Some(Reason::NotFound), "{error}");
            assert!(error.to_string().contains("no stale column on d1"), "{error}");
        }
    }
    assert!(one.is_ok() || other.is_ok(), "{one:?} {other:?}");
    client.heal_status(Some(0)).await.expect("the rate is set");
    all_healed(&client).await;
    let model = writer.end().await;
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
    cluster.kill(3);
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "from the healed column");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_takes_the_place_of_another_is_filled() {
    let mut cluster = Cluster::start(6).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let shape = shape(Scheme::Rs, 3, 2, 4096);
    let bytes: Vec<Vec<u8>> = (0..8).map(|seed| pattern(seed, 60_000)).collect();
    for (index, bytes) in bytes.iter().enumerate() {
        put(&client, &name(&format!("f{index}")), shape, bytes).await;
    }
    cluster.kill(1);
    cluster.restart_anew(1).await;
    cluster.all_up(&client).await;
    wait_for(|| async { client.replace_drive("d1", "d1-new").await.is_ok() }).await;
    all_healed(&client).await;
    let status = client.status().await.expect("status");
    let old = status.drives.iter().find(|row| row.name == "d1").expect("its row");
    assert_eq!((old.components, old.stale), (0, 0));
    cluster.kill(2);
    cluster.kill(4);
    for (index, bytes) in bytes.iter().enumerate() {
        let found = read_all(&client, &name(&format!("f{index}"))).await.expect("read");
        assert_same(&found, bytes, &format!("f{index}"));
    }
}

/// Only the parity still knows how far the writer had got: the zeros at the end were acknowledged too.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_zeros_at_the_end_are_there_after_their_unit_was_made_anew_and_the_writer_died() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    put(&client, &name("f"), shape(Scheme::Raid4, 2, 1, 4096), b"start").await;
    let columns = client.stat(&name("f")).await.expect("stat").segments[0].columns.clone();
    let first = columns[0].drive_name.trim_start_matches('d').parse().expect("a number");
    cluster.stop(first).await;
    let mut bytes = pattern(5, 3000);
    bytes[2000..].fill(0);
    let config = cluster.config();
    let written = bytes.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (tell, told) = tokio::sync::oneshot::channel();
    runtime.spawn(async move {
        let client = Client::connect(config).await.expect("a client");
        let file = client.open(&name("f"), &OpenOptions::new().write(true)).await.expect("open");
        file.write_at(&written, 0).await.expect("it is acknowledged");
        tell.send(()).expect("the test waits");
        // The writer stays until it is killed.
        std::future::pending::<()>().await;
    });
    told.await.expect("it wrote");
    cluster.restart(first).await;
    wait_for(|| async {
        row(&client, &format!("d{first}")).await.is_some_and(|row| row.progress.files == 1)
    })
    .await;
    all_healed(&client).await;
    assert_eq!(client.stat(&name("f")).await.expect("stat").size(), 5, "nothing was committed");
    runtime.shutdown_background();
    let open = || async { client.open(&name("f"), &OpenOptions::new().write(true)).await };
    wait_for(|| async { open().await.is_ok() }).await;
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &bytes, "all that was acknowledged");
}
