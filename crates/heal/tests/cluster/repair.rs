//! Damage of a live drive's disk is repaired in place, by the drive itself.

use std::os::unix::fs::FileExt;
use std::path::Path;

use braid_client::Client;
use braid_client::OpenOptions;
use braid_layout::Scheme;

use crate::common::{Cluster, Random, assert_same, name, put, read_all, shape, wait_for};
use crate::support::{Writer, row};

const UNIT: usize = 16 << 10;

/// Random bytes, of which no 32 in a row occur elsewhere.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).take(length).collect()
}

/// Inverts a byte in a drive's log, at the first place that holds `bytes`. Returns true if there was one.
fn damage(drive: &Path, bytes: &[u8]) -> bool {
    for entry in std::fs::read_dir(drive.join("store/log")).expect("a log") {
        let path = entry.expect("read").path();
        let content = std::fs::read(&path).expect("read");
        if let Some(at) = content.windows(32).position(|window| window == &bytes[..32]) {
            let file = std::fs::File::options().write(true).open(&path).expect("opened");
            file.write_all_at(&[!bytes[0]], u64::try_from(at).expect("small")).expect("written");
            return true;
        }
    }
    false
}

/// Damages the data unit that begins at byte `at` of the file. Returns the drive that holds it.
fn damage_unit(cluster: &Cluster, model: &[u8], at: usize) -> usize {
    let hit: Vec<usize> = (0..cluster.drives.len())
        .filter(|&index| damage(&cluster.drives[index].dir, &model[at..at + 32]))
        .collect();
    let [drive] = hit[..] else { panic!("the bytes are on {} drives", hit.len()) };
    drive
}

async fn repaired(client: &Client, drive: usize, units: u64) {
    let drive = format!("d{drive}");
    wait_for(|| async {
        row(client, &drive)
            .await
            .is_some_and(|row| row.progress.repaired >= units && row.progress.damaged == 0)
    })
    .await;
}

async fn is_clean(client: &Client, path: &str) {
    let report = client.check(&name(path), |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
}

/// The file tolerates only one lost column, but each of its columns has a damaged unit, in a stripe of its
/// own.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_reader_meets_is_repaired_on_every_column_of_the_file() {
    let mut cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let model = noise(4, 20 * 4 * UNIT);
    put(&client, &name("f"), shape(Scheme::Raid5, 4, 1, 16 << 10), &model).await;
    // The first data unit of each stripe is on another column.
    let mut hit: Vec<usize> = (0..5).map(|stripe| damage_unit(&cluster, &model, stripe * 4 * UNIT)).collect();
    let all = hit.clone();
    hit.sort_unstable();
    hit.dedup();
    assert_eq!(hit.len(), 5, "they are on all drives");
    let before = client.stat(&name("f")).await.expect("stat");
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "around the damage");
    for &drive in &hit {
        let units = all.iter().filter(|&&other| other == drive).count();
        repaired(&client, drive, u64::try_from(units).expect("small")).await;
    }
    is_clean(&client, "f").await;
    let after = client.stat(&name("f")).await.expect("stat");
    assert_eq!((before.g, before.segments.len()), (after.g, after.segments.len()), "no column went out");
    // The repaired units are read: with a drive killed, no other unit can stand in for them.
    cluster.kill(1);
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "degraded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_has_it_repaired_beside_a_writer_and_nothing_newer_is_undone() {
    let cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let model = noise(5, 60 * 2 * UNIT);
    put(&client, &name("f"), shape(Scheme::Rs, 2, 2, 16 << 10), &model).await;
    let hit: Vec<usize> =
        (0..40).map(|stripe| damage_unit(&cluster, &model, (stripe * 2 + stripe % 2) * UNIT)).collect();
    let writer = Writer::begin(cluster.client().await, "f", 0..model.len(), &model);
    for drive in 0..4 {
        client.scrub(&format!("d{drive}"), Some(1 << 30)).await.expect("it scrubs");
    }
    let status = || async { client.status().await.expect("status").drives };
    wait_for(|| async {
        let rows = status().await;
        let repaired: u64 = rows.iter().map(|row| row.scrub.repaired).sum();
        // Some damaged units are overwritten before they are found.
        repaired > 10 && rows.iter().all(|row| row.scrub.passes > 0 && row.scrub.damaged == 0)
    })
    .await;
    let model = writer.end().await;
    assert!(hit.len() == 40);
    // What was found last, or met by the writer, may still be under repair.
    wait_for(|| async { client.check(&name("f"), |_| {}).await.expect("check").is_clean() }).await;
    assert_same(&read_all(&client, &name("f")).await.expect("read"), &model, "what was written last");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_repaired_is_named_and_left_as_it_is() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let model = noise(6, 12 * 2 * UNIT);
    put(&client, &name("bare"), shape(Scheme::Raid0, 2, 0, 16 << 10), &model).await;
    put(&client, &name("kept"), shape(Scheme::Raid5, 2, 1, 16 << 10), &noise(7, 12 * 2 * UNIT)).await;
    let bare = damage_unit(&cluster, &model, 3 * UNIT);
    let kept = damage_unit(&cluster, &noise(7, 12 * 2 * UNIT), 4 * UNIT);
    let other = (0..3).find(|&index| index != kept && index != bare).expect("one is left");
    cluster.stop(other).await;
    read_all(&client, &name("bare")).await.expect_err("there is nothing to read it from");
    read_all(&client, &name("kept")).await.expect_err("too few are left");
    let waits = |drive: usize, words: &'static str| {
        let client = &client;
        async move {
            wait_for(|| async {
                let row = row(client, &format!("d{drive}")).await;
                row.is_some_and(|row| row.progress.damaged > 0 && row.progress.error.contains(words))
            })
            .await;
        }
    };
    waits(bare, "no redundancy").await;
    waits(kept, if bare == kept { "no redundancy" } else { "cannot be repaired" }).await;
    // An undamaged block is read as before.
    let file = client.open(&name("bare"), &OpenOptions::new().read(true)).await.expect("open");
    let mut block = vec![0; 4096];
    let at = 3 * UNIT + 8192;
    file.read_at(&mut block, u64::try_from(at).expect("small")).await.expect("another block of the unit");
    assert_same(&block, &model[at..at + 4096], "beside the damage");
    // Once the other drive is back, the unit that can be repaired is.
    cluster.restart(other).await;
    repaired_at_least(&client, kept).await;
    is_clean(&client, "kept").await;
}

async fn repaired_at_least(client: &Client, drive: usize) {
    let drive = format!("d{drive}");
    wait_for(|| async { row(client, &drive).await.is_some_and(|row| row.progress.repaired >= 1) }).await;
}
