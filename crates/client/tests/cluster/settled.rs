//! A file's size after its writer is gone: acknowledged bytes are there, bytes past the size are zeros on
//! every column, and a cut that had begun is completed.

use std::time::Duration;

use braid_client::Client;
use braid_client::HealTally;
use braid_client::Kind;
use braid_client::OpenOptions;
use braid_layout::{Lease, Scheme, Shape, Version};
use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::Reason;
use braid_wire::control::{Backing, Commit, Cut};

use crate::common::{Cluster, assert_same, name, open_when_free, pattern, put, read_all, shape, wait_for};
use crate::raw;

const UNIT: u32 = 4096;

async fn cluster(drives: usize) -> (Cluster, Client) {
    let cluster = Cluster::start(drives).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    (cluster, client)
}

fn raid5() -> Shape {
    shape(Scheme::Raid5, 4, 1, UNIT)
}

/// Asserts that the file reads as `model`, healthy and without any one of its drives, and that its check is
/// clean.
async fn is(cluster: &mut Cluster, client: &Client, path: &braid_client::Name, model: &[u8], context: &str) {
    assert_same(&read_all(client, path).await.expect("read"), model, context);
    let report = client.check(path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{context}: {report:?}");
    cluster.kill(1);
    assert_same(&read_all(client, path).await.expect("read"), model, &format!("{context}, degraded"));
}

/// The state that a killed process leaves: the manager is told nothing, and the lease lapses.
pub(crate) async fn killed_writer(cluster: &Cluster, path: braid_client::Name, writes: Vec<(u64, Vec<u8>)>) {
    killed_after(cluster, path, writes, None).await;
}

/// Like [`killed_writer`], but the writer makes a hole too before it is killed.
async fn killed_after(
    cluster: &Cluster,
    path: braid_client::Name,
    writes: Vec<(u64, Vec<u8>)>,
    hole: Option<std::ops::Range<u64>>,
) {
    let config = cluster.config();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (tell, told) = tokio::sync::oneshot::channel();
    runtime.spawn(async move {
        let client = Client::connect(config).await.expect("a client");
        let options = OpenOptions::new().write(true).create(true).shape(raid5());
        let file = client.open(&path, &options).await.expect("open");
        for (offset, bytes) in writes {
            file.write_at(&bytes, offset).await.expect("it is acknowledged");
        }
        if let Some(hole) = hole {
            file.punch(hole).await.expect("it is durable");
        }
        tell.send(()).expect("the test waits");
        // The writer stays until it is killed.
        std::future::pending::<()>().await;
    });
    told.await.expect("all is acknowledged");
    runtime.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_after_its_writer_was_killed() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let old = pattern(1, 30_000);
    let new = pattern(2, 100_000);
    put(&client, &path, raid5(), &old).await;
    killed_writer(&cluster, path.clone(), vec![(25_000, new.clone()), (190_000, b"far".to_vec())]).await;
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 190_003, "to the byte: every data column is there");
    file.set_len(200_000).await.expect("grow");
    file.close().await.expect("close");
    let mut model = old[..25_000].to_vec();
    model.extend_from_slice(&new);
    model.resize(190_000, 0);
    model.extend_from_slice(b"far");
    model.resize(200_000, 0);
    is(&mut cluster, &client, &path, &model, "grown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_a_data_columns_drive_died_with_the_writer() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let bytes = pattern(2, 100_000);
    killed_writer(&cluster, path.clone(), vec![(0, bytes.clone())]).await;
    // The last byte is in data unit 0 of stripe 6.
    let unit = u64::from(UNIT);
    let row = client.stat(&path).await.expect("stat");
    assert_eq!((99_999 / (4 * unit), 99_999 / unit % 4), (6, 0));
    let column = raid5().column(braid_layout::Stripe(6), braid_layout::Role::Data(0));
    let drive = row.segments[0].columns[column.index()].drive_name.clone();
    cluster.kill(drive[1..].parse().expect("d and a number"));
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 100_000, "to the byte: parity tells it");
    file.close().await.expect("close");
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "degraded");
}

/// Zeros at the end are bytes that were written: a column that is made anew has exactly them.
#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_a_column_is_made_anew_while_a_writer_that_dies_has_the_file() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let mut bytes = pattern(3, 9000);
    bytes[8500..].fill(0);
    put(&client, &path, raid5(), b"").await;
    // The last byte is in data unit 2 of stripe 0.
    let row = client.stat(&path).await.expect("stat");
    let column = raid5().column(braid_layout::Stripe(0), braid_layout::Role::Data(2));
    let drive = row.segments[0].columns[column.index()].drive_name.clone();
    let index = drive[1..].parse().expect("d and a number");
    cluster.stop(index).await;
    killed_writer(&cluster, path.clone(), vec![(0, bytes.clone())]).await;
    cluster.restart(index).await;
    cluster.all_up(&client).await;
    assert_eq!(cluster.heal(index).await.0, 1);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 9000);
    file.close().await.expect("close");
    is(&mut cluster, &client, &path, &bytes, "made anew").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_at_the_end_makes_no_file_shorter_whose_writer_is_killed() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    let mut bytes = pattern(2, 8192);
    killed_after(&cluster, path.clone(), vec![(0, bytes.clone())], Some(4096..8192)).await;
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 8192, "the size stays");
    file.close().await.expect("close");
    bytes[4096..].fill(0);
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "with its hole");
}

/// A joining column is sent whole units, as it may lack the bytes around a part. The units end where their
/// bytes end.
#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_a_joining_column_was_sent_the_whole_unit() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), b"").await;
    // The column has data unit 3 of stripe 0, and data unit 0 of stripe 2.
    let column = raid5().column(braid_layout::Stripe(2), braid_layout::Role::Data(0));
    let first = 3 * u64::from(UNIT);
    let last = 8 * u64::from(UNIT);
    assert_eq!(raid5().column(braid_layout::Stripe(0), braid_layout::Role::Data(3)), column);
    let row = client.stat(&path).await.expect("stat");
    let index = row.segments[0].columns[column.index()].drive_name[1..].parse().expect("d and a number");
    cluster.stop(index).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"without it", first).await.expect("write");
    file.write_at(b"without it", last).await.expect("write");
    file.close().await.expect("close");
    cluster.restart(index).await;
    cluster.all_up(&client).await;
    // One of the two units is made anew. The other has to wait.
    let healer = cluster.healer(index).await.expect("a client");
    let tally = HealTally::default();
    tally.set_rate(1);
    let heal = tokio::spawn(async move { healer.heal_file(row.file, &tally).await });
    wait_for(|| async { client.stat(&path).await.expect("stat").segments[0].joining.contains(column) }).await;
    // The second write tells the column that the first is settled.
    let writes = vec![(last + 5, pattern(4, 100)), (first, b"again".to_vec())];
    killed_writer(&cluster, path.clone(), writes).await;
    heal.abort();
    assert_eq!(cluster.heal(index).await.0, 1);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), last + 105);
    file.close().await.expect("close");
    let mut model = vec![0; usize::try_from(last + 5).expect("small")];
    let first = usize::try_from(first).expect("small");
    model[first..first + 10].copy_from_slice(b"againut it");
    let last = model.len() - 5;
    model[last..].copy_from_slice(b"witho");
    model.extend(pattern(4, 100));
    is(&mut cluster, &client, &path, &model, "made anew").await;
}

/// A joining parity column holds its content from before it went out, which says nothing about the present
/// ends of units.
#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_where_a_joining_parity_column_holds_what_was_cut_off() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let stripe = 4 * u64::from(UNIT);
    let last = 5 * stripe;
    let mut model = pattern(5, 86_016);
    put(&client, &path, raid5(), &model).await;
    // Parity of stripes 0 and 5, and the column that has the last bytes.
    let [parity, data] = [braid_layout::Role::Parity(0), braid_layout::Role::Data(0)]
        .map(|role| raid5().column(braid_layout::Stripe(5), role));
    assert_eq!(raid5().column(braid_layout::Stripe(0), braid_layout::Role::Parity(0)), parity);
    let row = client.stat(&path).await.expect("stat");
    let [parity_drive, data_drive] = [parity, data].map(|column| {
        row.segments[0].columns[column.index()].drive_name[1..].parse::<usize>().expect("d and a number")
    });
    cluster.stop(parity_drive).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"without it", 0).await.expect("write");
    file.set_len(last).await.expect("cut");
    file.close().await.expect("close");
    cluster.restart(parity_drive).await;
    cluster.all_up(&client).await;
    let healer = cluster.healer(parity_drive).await.expect("a client");
    let tally = HealTally::default();
    tally.set_rate(1);
    let heal = tokio::spawn(async move { healer.heal_file(row.file, &tally).await });
    wait_for(|| async { client.stat(&path).await.expect("stat").segments[0].joining.contains(parity) }).await;
    let writes = vec![(last, pattern(4, 200)), (0, b"again".to_vec())];
    killed_writer(&cluster, path.clone(), writes).await;
    heal.abort();
    assert_eq!(cluster.heal(parity_drive).await.0, 1);
    cluster.kill(data_drive);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), last + 200);
    file.close().await.expect("close");
    model.truncate(usize::try_from(last).expect("small"));
    model[..10].copy_from_slice(b"againut it");
    model.extend(pattern(4, 200));
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "degraded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_column_says_to_the_byte_where_its_bytes_end() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let bytes = pattern(2, 100);
    put(&client, &path, raid5(), &bytes).await;
    let holder = client.stat(&path).await.expect("stat").segments[0].columns[0].drive_name.clone();
    let index: usize = holder[1..].parse().expect("d and a number");
    cluster.stop(index).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    file.write_at(b"anew", 0).await.expect("write");
    file.close().await.expect("close");
    cluster.restart(index).await;
    cluster.all_up(&client).await;
    assert_eq!(cluster.heal(index).await.0, 1);
    killed_writer(&cluster, path.clone(), vec![(0, b"once".to_vec())]).await;
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 100);
}

/// The commit is refused for a quota that came after the bytes were written: they are taken back, and none of
/// them shows when the file grows.
#[tokio::test(flavor = "multi_thread")]
async fn a_close_whose_commit_is_refused_leaves_no_bytes_that_are_taken_for_zeros() {
    let (mut cluster, client) = cluster(5).await;
    client.volume_create("small", None, 0).await.expect("a volume");
    let path: braid_client::Name = "braid://small/f".parse().expect("a name");
    let bytes = pattern(5, 30_000);
    let options = OpenOptions::new().write(true).create(true).shape(raid5());
    let file = client.open(&path, &options).await.expect("create");
    file.write_at(&bytes, 0).await.expect("write");
    client.set_quota(&"braid://small".parse().expect("a name"), None, 20_000, 0).await.expect("set");
    assert_eq!(file.close().await.expect_err("over the quota").kind(), Kind::NoSpace);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 0, "what was refused is not there later");
    // Parity is computed from the bytes that are there, and a cut removes them.
    file.write_at(b"in the middle", 10_000).await.expect("write");
    file.set_len(15_000).await.expect("cut");
    file.set_len(19_000).await.expect("grow");
    file.close().await.expect("close");
    let mut model = vec![0; 19_000];
    model[10_000..10_013].copy_from_slice(b"in the middle");
    is(&mut cluster, &client, &path, &model, "cut and grown").await;
}

/// Some of a write's chunks are on the drives when the write is dropped, but the size does not include them.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_given_up_leaves_no_bytes_that_are_taken_for_zeros() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let old = pattern(5, 1000);
    let bytes = pattern(6, 300_000);
    for stop_after in [0, 1, 2, 4, 8, 16] {
        put(&client, &path, raid5(), &old).await;
        let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
        {
            let mut write = std::pin::pin!(file.write_at(&bytes, 2000));
            // After a few polls, chunks are being read, being sent, or done.
            for _ in 0..stop_after {
                if tokio::time::timeout(Duration::from_micros(300), &mut write).await.is_ok() {
                    break;
                }
            }
        }
        let _ = file.close().await;
        let file = open_when_free(&client, &path).await;
        let size = usize::try_from(file.size()).expect("small");
        file.set_len(400_000).await.expect("grow");
        let mut found = vec![0xee; 400_000];
        assert_eq!(file.read_at(&mut found, 0).await.expect("read"), 400_000);
        assert_same(&found[..1000], &old, "what was there");
        assert!(found[size..].iter().all(|byte| *byte == 0), "{stop_after}: bytes past the size {size}");
        file.write_at(&pattern(7, 100), 350_000).await.expect("write");
        file.close().await.expect("close");
        let report = client.check(&path, |_| {}).await.expect("check");
        assert!(report.findings.is_empty(), "{stop_after}: {report:?}");
    }
    let model = read_all(&client, &path).await.expect("read");
    is(&mut cluster, &client, &path, &model, "at the end").await;
}

/// The writer's process ends between the two halves of a cut.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_that_was_begun_is_ended_by_who_opens_the_file_next() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let bytes = pattern(6, 300_000);
    put(&client, &path, raid5(), &bytes).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let number = file.stat().await.expect("stat").file;
    let token = &cluster.ready.client_token;
    let limits = Limits::default();
    let mut session = ControlSession::connect(&cluster.ready.address, token, &limits).await.expect("connect");
    let lease = Lease(2);
    let holder = file.holder();
    let size = 70_000;
    let order = 1;
    let cut = Cut::Begins;
    let backing = Backing::NONE;
    let cut = Commit { file: number, lease, holder, size, order, cut, modified_ns: None, backing };
    session.call(&cut.into()).await.expect("the first half");
    drop(file);
    wait_for(|| async { client.stat(&path).await.expect("stat").size() == 70_000 }).await;
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 70_000, "the size stands");
    // From now on its size is settled again: an acknowledged byte is there.
    file.write_at(b"x", 250_000).await.expect("write");
    drop(file);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), 250_001);
    file.close().await.expect("close");
    let mut model = bytes[..70_000].to_vec();
    model.resize(250_000, 0);
    model.push(b'x');
    is(&mut cluster, &client, &path, &model, "cut").await;
}

/// A cut that is dropped midway, for example by a timeout, leaves its mark at the manager: bytes written past
/// it would be acknowledged and then discarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_whose_cut_was_dropped_acknowledges_nothing_more() {
    let (mut cluster, _) = cluster(3).await;
    let mut config = cluster.config();
    // The silent drive is waited for longer than the test takes.
    (config.limits.connect, config.drive_reply) = (Duration::from_secs(60), Duration::from_secs(60));
    let (client, other) = (Client::connect(config).await.expect("a client"), cluster.client().await);
    let path = name("f");
    let bytes = pattern(6, 1000);
    put(&client, &path, shape(Scheme::Raid5, 2, 1, UNIT), &bytes).await;
    let file = client.open(&path, &OpenOptions::new().write(true)).await.expect("open");
    let mute = cluster.make_mute(0).await;
    tokio::select! {
        _ = file.set_len(50) => panic!("a drive is mute"),
        () = wait_for(|| async { other.stat(&path).await.expect("stat").size() == 50 }) => {}
    }
    let write = tokio::time::timeout(Duration::from_secs(10), file.write_at(&[1; 100], 2000)).await;
    assert_eq!(write.expect("it is refused at once").expect_err("refused").kind(), Kind::Busy);
    drop(mute);
    cluster.restart(0).await;
    cluster.all_up(&other).await;
    assert_eq!(file.close().await.expect_err("it says so").kind(), Kind::Busy);
    let file = open_when_free(&other, &path).await;
    assert_eq!(file.size(), 50);
    file.set_len(1000).await.expect("grow");
    file.close().await.expect("close");
    let mut model = bytes[..50].to_vec();
    model.resize(1000, 0);
    // Not checked column by column: the drive that was silent may be out.
    let found = read_all(&other, &path).await.expect("read");
    assert!(found == model, "cut and grown");
}

/// A refusal which proves that nothing was done leaves the handle unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_that_the_quota_forbids_did_not_begin() {
    let (_cluster, client) = cluster(3).await;
    client.volume_create("small", None, 0).await.expect("a volume");
    let path: braid_client::Name = "braid://small/f".parse().expect("a name");
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid5, 2, 1, UNIT));
    let file = client.open(&path, &options).await.expect("create");
    let bytes = pattern(5, 30_000);
    file.write_at(&bytes, 0).await.expect("write");
    client.set_quota(&"braid://small".parse().expect("a name"), None, 20_000, 0).await.expect("set");
    assert_eq!(file.set_len(25_000).await.expect_err("over the quota").kind(), Kind::NoSpace);
    assert_eq!(file.size(), 30_000);
    file.write_at(b"more", 100).await.expect("write");
    file.set_len(15_000).await.expect("cut");
    file.close().await.expect("close");
    assert_eq!(read_all(&client, &path).await.expect("read")[15_000 - 8..], bytes[15_000 - 8..15_000]);
}

/// One drive is full: the last stripes are on the others only, and are rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn a_stripe_that_was_taken_back_does_not_count() {
    let cluster = Cluster::start_with(5, |index| (index == 3).then_some(1 << 20)).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    let path = name("f");
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid5, 4, 1, 65536));
    let file = client.open(&path, &options).await.expect("open");
    let bytes = pattern(3, 10 << 20);
    let mut acknowledged = 0;
    for part in bytes.chunks(1 << 18) {
        let offset = u64::try_from(acknowledged).expect("small");
        if file.write_at(part, offset).await.is_err() {
            break;
        }
        acknowledged += part.len();
    }
    assert!(acknowledged > 0 && acknowledged < bytes.len(), "the drive is full in the end");
    drop(file);
    let file = open_when_free(&client, &path).await;
    let size = usize::try_from(file.size()).expect("small");
    assert!(size >= acknowledged, "{size} of {acknowledged}");
    let mut found = vec![0xee; size];
    file.read_at(&mut found, 0).await.expect("read");
    assert_same(&found[..acknowledged], &bytes[..acknowledged], "what was acknowledged");
    assert_same(&found[size - 64..], &bytes[size - 64..size], "it ends with bytes that are there");
}

/// Capabilities outlive the lease that they were given for. A close ends the lease at every column of the
/// set, also where nothing was written. For a new file it does so soon after the close, at the columns that
/// were written.
#[tokio::test(flavor = "multi_thread")]
async fn a_capability_of_a_closed_file_writes_no_more() {
    let (cluster, client) = cluster(3).await;
    let path = name("f");
    let bytes = pattern(1, 100);
    let options = OpenOptions::new().write(true).create(true).shape(shape(Scheme::Raid5, 2, 1, UNIT));
    for lease in [1, 2] {
        let file = client.open(&path, &options).await.expect("create");
        file.write_at(&bytes, 0).await.expect("write");
        let number = file.stat().await.expect("stat").file;
        let held = raw::grants(&cluster, number, Lease(lease), file.holder()).await;
        file.close().await.expect("close");
        client.finish().await;
        let late = pattern(2, usize::try_from(UNIT).expect("small"));
        let stamp = Version { g: held.stat.g, lease: held.lease, n: 1000 };
        // In stripe 0: data unit 0, data unit 1, which has no object, and the parity.
        for (column, cover) in [(0, &[][..]), (1, &[]), (2, &[true, true])] {
            let part = raw::Part { stripe: 0, column, bytes: &late, cover };
            let error =
                raw::write_one(&cluster, &held, stamp, Version::ZERO, &part).await.expect_err("it is over");
            let TransportError::Refusal(refusal) = &error else { panic!("column {column}: {error}") };
            if (lease, column) == (1, 1) {
                assert_eq!(refusal.reason, Reason::NoObject, "{refusal}");
                continue;
            }
            assert_eq!(refusal.reason, Reason::StaleGeneration, "column {column}: {refusal}");
            assert!(refusal.detail.contains(&format!("lease {lease} was given back")), "{column}: {refusal}");
        }
    }
    assert_same(&read_all(&client, &path).await.expect("read"), &bytes, "as it was closed");
    let report = client.check(&path, |_| {}).await.expect("check");
    assert!(report.is_clean(), "{report:?}");
}
