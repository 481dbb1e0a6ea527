//! Small writes in order by one handle: those in one stripe join, and need not read what was just written.

use std::sync::Arc;

use braid_client::Client;
use braid_client::File;
use braid_client::OpenOptions;
use braid_client::Sequential;
use braid_layout::Scheme;
use tokio::task::JoinSet;

use crate::common::{Cluster, Random, name, pattern, read_all, shape};

const UNIT: u32 = 16 << 10;

async fn with_file(scheme: Scheme, m: u8) -> (Cluster, Client, File) {
    let cluster = Cluster::start(usize::from(4 + m)).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(shape(scheme, 4, m, UNIT)), 0).await.expect("a volume");
    let file =
        client.open(&name("f"), &OpenOptions::new().read(true).write(true).create(true)).await.expect("open");
    (cluster, client, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_in_order_reads_nothing_that_it_has_just_written() {
    let (_cluster, client, file) = with_file(Scheme::Rs, 2).await;
    let bytes = pattern(1, 256 << 10);
    // Every column's object exists.
    file.write_at(&bytes, 0).await.expect("write");
    let start = bytes.len();
    let records: Vec<u8> = pattern(2, 128 << 10);
    for (index, record) in records.chunks(2000).enumerate() {
        let offset = u64::try_from(start + 2000 * index).expect("small");
        let before = client.sent_requests().drives;
        file.write_at(record, offset).await.expect("write");
        let asked = client.sent_requests().drives - before;
        // One or two data units in one or two stripes, each stripe with both parity units.
        let unit = u64::from(UNIT);
        let units = (offset + 1999) / unit - offset / unit + 1;
        let stripes = (offset + 1999) / (4 * unit) - offset / (4 * unit) + 1;
        assert!(asked <= units + 2 * stripes, "{asked} requests for the record at {offset}");
    }
    file.close().await.expect("close");
    assert_eq!(read_all(&client, &name("f")).await.expect("read"), [bytes, records].concat());
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_flight_together_share_rounds() {
    let (_cluster, client, file) = with_file(Scheme::Raid5, 1).await;
    let bytes = pattern(3, 64 * 700);
    let file = Arc::new(file);
    let before = client.sent_requests().drives;
    let mut writes = JoinSet::new();
    for (index, record) in bytes.chunks(700).enumerate() {
        let file = Arc::clone(&file);
        let record = record.to_vec();
        writes.spawn(async move { file.write_at(&record, 700 * u64::try_from(index).expect("small")).await });
    }
    while let Some(written) = writes.join_next().await {
        written.expect("it ends").expect("write");
    }
    let asked = client.sent_requests().drives - before;
    assert!(asked < 100, "{asked} requests for 64 records in one stripe");
    Arc::into_inner(file).expect("all have ended").close().await.expect("close");
    assert_eq!(read_all(&client, &name("f")).await.expect("read"), bytes);
    assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean());
}

fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(u64::try_from(end).expect("small"))).expect("small")
}

/// Writes in order, jumps, holes, cuts, and several in flight, against a plain copy of the file.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_writer_mixes_the_parity_fits() {
    for (scheme, m, seed) in [(Scheme::Raid5, 1, 11), (Scheme::Rs, 2, 12), (Scheme::Raid4, 1, 13)] {
        let (_cluster, client, file) = with_file(scheme, m).await;
        let file = Arc::new(file);
        let mut random = Random(seed);
        let mut model: Vec<u8> = Vec::new();
        let mut at = 0;
        for round in 0..120 {
            match below(&mut random, 12) {
                0 => at = below(&mut random, 300_000),
                1 => {
                    let size = below(&mut random, model.len() + 1);
                    file.set_len(u64::try_from(size).expect("small")).await.expect("cut");
                    model.truncate(size);
                }
                2 if !model.is_empty() => {
                    let from = below(&mut random, model.len());
                    let to = (from + 1 + below(&mut random, 30_000)).min(model.len());
                    let range = u64::try_from(from).expect("small")..u64::try_from(to).expect("small");
                    file.punch(range).await.expect("punch");
                    model[from..to].fill(0);
                }
                _ => {}
            }
            // Some records one after another, all in flight.
            let mut writes = JoinSet::new();
            for record in 0..1 + below(&mut random, 8) {
                let bytes =
                    pattern(u64::try_from(round * 8 + record).expect("small"), 1 + below(&mut random, 9_000));
                let end = at + bytes.len();
                model.resize(model.len().max(end), 0);
                model[at..end].copy_from_slice(&bytes);
                let file = Arc::clone(&file);
                let offset = u64::try_from(at).expect("small");
                writes.spawn(async move { file.write_at(&bytes, offset).await });
                at = end;
            }
            while let Some(written) = writes.join_next().await {
                written.expect("it ends").expect("write");
            }
        }
        Arc::into_inner(file).expect("all have ended").close().await.expect("close");
        let found = read_all(&client, &name("f")).await.expect("read");
        assert!(found == model, "{scheme:?}: {} bytes differ or are missing", model.len());
        assert!(client.check(&name("f"), |_| {}).await.expect("check").is_clean(), "{scheme:?}");
    }
}

/// A stream through `Sequential`: small writes, small reads, a jump back over what was written.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_and_read_in_order_in_small_pieces_is_whole() {
    let (_cluster, client, file) = with_file(Scheme::Raid5, 1).await;
    let mut model = pattern(5, 5_000_000);
    let mut file = Sequential::new(file);
    let before = client.sent_requests().drives;
    for piece in model.chunks(10_007) {
        file.write(piece).await.expect("write");
    }
    file.flush().await.expect("flush");
    let asked = client.sent_requests().drives - before;
    assert!(asked < 500, "{asked} requests for 500 pieces");
    file.seek(1_000_000);
    file.write(&[7; 3000]).await.expect("write");
    model[1_000_000..1_003_000].fill(7);
    file.seek(0);
    let mut found = Vec::new();
    let mut buffer = vec![0; 9_999];
    loop {
        let count = file.read(&mut buffer).await.expect("read");
        found.extend_from_slice(&buffer[..count]);
        if count == 0 {
            break;
        }
    }
    assert!(found == model);
    file.close().await.expect("close");
    assert_eq!(read_all(&client, &name("f")).await.expect("read"), model);
}
