//! Small writes through their data drive (PROTOCOL C4), and their replacement where that is impossible.

use std::sync::atomic::Ordering;

use braid_client::Client;
use braid_client::File;
use braid_client::OpenOptions;
use braid_layout::Scheme;

use crate::between::Between;
use crate::common::{Cluster, Random, assert_same, name, pattern, put, read_all, shape, wait_for};
use crate::settled::killed_writer;

const UNIT: usize = 4096;

/// A write inside one unit, at a random place below `below`.
fn some_write(model: &mut [u8], random: &mut Random, below: usize) -> (u64, Vec<u8>) {
    let length = usize::try_from(1 + random.below(1500)).expect("small");
    let unit = usize::try_from(random.below(u64::try_from(below / UNIT).expect("small"))).expect("small");
    let within = usize::try_from(random.below(u64::try_from(UNIT - length).expect("small"))).expect("small");
    let from = unit * UNIT + within;
    let bytes = pattern(random.draw(), length);
    model[from..from + length].copy_from_slice(&bytes);
    (u64::try_from(from).expect("small"), bytes)
}

async fn write_some(file: &File, model: &mut [u8], random: &mut Random, below: usize) {
    let (from, bytes) = some_write(model, random, below);
    file.write_at(&bytes, from).await.expect("write");
}

async fn clean(client: &Client, path: &braid_client::Name) {
    let report = client.check(path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_writes_need_no_stripe_write_and_leave_parity_right() {
    for (scheme, k, m) in [(Scheme::Raid5, 4, 1), (Scheme::Rs, 3, 2)] {
        let mut cluster = Cluster::over_tcp(5).await;
        let client = cluster.client().await;
        client.volume_create("main", None, 0).await.expect("a volume");
        let path = name("f");
        let bytes = pattern(5, 30 * UNIT);
        put(&client, &path, shape(scheme, k, m, u32::try_from(UNIT).expect("small")), &bytes).await;
        // From now on no stripe write passes to any drive.
        let mut proxies = Vec::new();
        for index in 0..5 {
            let between = Between::start(&cluster.drives[index].address).await;
            cluster.drives[index].advertise = Some(between.address.clone());
            cluster.stop(index).await;
            cluster.restart(index).await;
            between.way.stops.store(0x0103, Ordering::SeqCst);
            proxies.push(between);
        }
        cluster.all_up(&client).await;
        let client = cluster.client().await;
        let mut model = bytes;
        let mut random = Random(31);
        let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
        for _ in 0..200 {
            write_some(&file, &mut model, &mut random, 30 * UNIT).await;
        }
        let mut found = vec![0; model.len()];
        file.read_at(&mut found, 0).await.expect("read");
        assert_same(&found, &model, "by the writer");
        file.close().await.expect("close");
        assert!(proxies.iter().all(|between| between.way.stopped.load(Ordering::SeqCst) == 0));
        clean(&client, &path).await;
        for lost in 0..usize::from(m) {
            cluster.kill(lost);
        }
        assert_same(&read_all(&client, &path).await.expect("read"), &model, "degraded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_dies_during_small_writes_loses_none_of_them() {
    for (scheme, k, m) in [(Scheme::Raid5, 4, 1), (Scheme::Rs, 3, 2)] {
        let mut cluster = Cluster::start(5).await;
        let client = cluster.client().await;
        client.volume_create("main", None, 0).await.expect("a volume");
        let path = name("f");
        let mut model = pattern(5, 30 * UNIT);
        put(&client, &path, shape(scheme, k, m, u32::try_from(UNIT).expect("small")), &model).await;
        let file = client.open(&path, &OpenOptions::new().read(true).write(true)).await.expect("open");
        let mut random = Random(77);
        for step in 0..150 {
            if step == 50 {
                cluster.kill(2);
            }
            write_some(&file, &mut model, &mut random, 30 * UNIT).await;
        }
        let mut found = vec![0; model.len()];
        file.read_at(&mut found, 0).await.expect("read");
        assert_same(&found, &model, "by the writer");
        file.close().await.expect("close");
        cluster.restart(2).await;
        cluster.all_up(&client).await;
        assert_same(&read_all(&client, &path).await.expect("read"), &model, "its old units are not read");
        assert_eq!(cluster.heal(2).await.0, 1);
        clean(&client, &path).await;
        cluster.kill(0);
        assert_same(&read_all(&client, &path).await.expect("read"), &model, "without another drive");
    }
}

/// A writer that ends without closing leaves small writes behind: the acknowledged ones are in the file, and
/// data and parity agree.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_writer_was_told_is_stored_is_there_after_drives_died_too() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let mut model = pattern(5, 30 * UNIT);
    put(&client, &path, shape(Scheme::Raid5, 4, 1, u32::try_from(UNIT).expect("small")), &model).await;
    let mut random = Random(9);
    let writes = (0..40).map(|_| some_write(&mut model, &mut random, 30 * UNIT)).collect();
    killed_writer(&cluster, path.clone(), writes).await;
    for index in 0..5 {
        cluster.kill(index);
    }
    for index in 0..5 {
        cluster.restart(index).await;
    }
    cluster.all_up(&client).await;
    let open = || async { client.open(&path, &OpenOptions::new().write(true)).await };
    wait_for(|| async { open().await.is_ok() }).await;
    // On a slow machine a drive that is just back may not send its owed deltas in time: then a column went
    // out.
    for index in 0..5 {
        wait_for(|| async { cluster.try_to_heal(index).await.is_ok() }).await;
    }
    wait_for(|| async { client.check(&path, |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "after it all");
}
