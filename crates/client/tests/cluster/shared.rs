//! Several handles write one file at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use braid_client::Client;
use braid_client::File;
use braid_client::Kind;
use braid_client::Name;
use braid_client::OpenOptions;
use braid_layout::{Lease, ReservationId, Scheme};
use braid_transport::{ControlSession, Limits};
use braid_wire::control::{Access, Backing, Commit, ControlReply, Cut, Refresh, Room, Turn};

use crate::common::{
    Cluster, Random, assert_same, name, open_when_free, pattern, put, read_all, shape, wait_for,
};

pub(crate) const UNIT: usize = 4096;
/// The length of a record: small, and not aligned to anything.
const RECORD: usize = 1237;

pub(crate) async fn cluster(drives: usize) -> (Cluster, Client) {
    let cluster = Cluster::start(drives).await;
    let client = cluster.client().await;
    client.volume_create("main", None, 0).await.expect("a volume");
    (cluster, client)
}

pub(crate) fn raid5() -> braid_layout::Shape {
    shape(Scheme::Raid5, 4, 1, u32::try_from(UNIT).expect("small"))
}

pub(crate) fn both() -> OpenOptions {
    OpenOptions::new().read(true).write(true)
}

pub(crate) async fn is(client: &Client, path: &Name, model: &[u8], context: &str) {
    assert_same(&read_all(client, path).await.expect("read"), model, context);
    wait_for(|| async { client.check(path, |_| {}).await.is_ok_and(|report| report.is_clean()) }).await;
}

fn at(record: usize) -> u64 {
    u64::try_from(record * RECORD).expect("small")
}

fn bytes_of(record: usize) -> Vec<u8> {
    pattern(u64::try_from(record).expect("small") + 1, RECORD)
}

fn all(records: usize) -> Vec<u8> {
    (0..records).flat_map(bytes_of).collect()
}

/// Writes the records of writer `own` of `writers`, interleaved with those of the others.
async fn write_records(file: File, own: usize, writers: usize, records: usize) -> File {
    write_and_count(file, own, writers, records, &AtomicUsize::new(0)).await
}

async fn write_and_count(
    file: File,
    own: usize,
    writers: usize,
    records: usize,
    written: &AtomicUsize,
) -> File {
    for record in (own..records).step_by(writers) {
        file.write_at(&bytes_of(record), at(record)).await.expect("write");
        written.fetch_add(1, Ordering::Relaxed);
    }
    file
}

/// Opens the file for `count` writers, each a client of its own, as on a machine of its own.
pub(crate) async fn writers(cluster: &Cluster, path: &Name, count: usize) -> Vec<File> {
    let mut files = Vec::new();
    for _ in 0..count {
        files.push(cluster.client().await.open(path, &both()).await.expect("open"));
    }
    files
}

async fn interleaved(count: usize, records: usize, kills: Option<usize>, scheme: (Scheme, u8, u8)) {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let (scheme, k, m) = scheme;
    put(&client, &path, shape(scheme, k, m, u32::try_from(UNIT).expect("small")), &[]).await;
    let files = writers(&cluster, &path, count).await;
    let written = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (files.into_iter().enumerate())
        .map(|(own, file)| {
            let written = Arc::clone(&written);
            tokio::spawn(async move { write_and_count(file, own, count, records, &written).await })
        })
        .collect();
    if let Some(drive) = kills {
        wait_for(|| async { written.load(Ordering::Relaxed) > records / 4 }).await;
        cluster.kill(drive);
    }
    for task in tasks {
        task.await.expect("it ends").close().await.expect("close");
    }
    let model = all(records);
    if let Some(drive) = kills {
        assert_same(&read_all(&client, &path).await.expect("read"), &model, "degraded");
        cluster.restart(drive).await;
        cluster.all_up(&client).await;
        assert_eq!(cluster.heal(drive).await.0, 1);
    }
    is(&client, &path, &model, "in the end").await;
    cluster.kill(0);
    assert_same(&read_all(&client, &path).await.expect("read"), &model, "without a drive");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_write_interleaved_records() {
    interleaved(2, 120, None, (Scheme::Raid5, 4, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_write_interleaved_records() {
    interleaved(8, 320, None, (Scheme::Rs, 3, 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_write_while_a_drive_dies() {
    interleaved(2, 400, Some(2), (Scheme::Raid5, 4, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_write_while_a_drive_dies() {
    interleaved(8, 800, Some(2), (Scheme::Raid5, 4, 1)).await;
}

/// A second writer opens the file while the first's stripe writes are in flight: these are made again as unit
/// writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_writer_opens_while_the_first_writes_stripes() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    let mut model = pattern(3, 40 * 4 * UNIT);
    put(&client, &path, raid5(), &[]).await;
    let first = Arc::new(client.open(&path, &both()).await.expect("open"));
    let writing = tokio::spawn({
        let first = Arc::clone(&first);
        let bytes = model.clone();
        async move {
            let chunk = 3 * 4 * UNIT + 100;
            for (index, part) in bytes.chunks(chunk).enumerate() {
                first.write_at(part, u64::try_from(index * chunk).expect("small")).await.expect("write");
            }
        }
    });
    let mut others = Vec::new();
    for round in 0..4u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let other = cluster.client().await.open(&path, &both()).await.expect("open");
        let bytes = pattern(90 + round, 500);
        let from = 170 * UNIT + 600 * usize::try_from(round).expect("small");
        other.write_at(&bytes, u64::try_from(from).expect("small")).await.expect("write");
        model.resize(model.len().max(from + 500), 0);
        model[from..from + 500].copy_from_slice(&bytes);
        others.push(other);
    }
    writing.await.expect("it ends");
    for other in others {
        other.close().await.expect("close");
    }
    Arc::into_inner(first).expect("it is the last").close().await.expect("close");
    is(&client, &path, &model, "in the end").await;
}

/// A size that one handle commits is seen at once by a handle that reads at its own end, and by one that
/// asks.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_seen_by_others_when_they_are_committed() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), b"old").await;
    let files = writers(&cluster, &path, 2).await;
    let one = &files[0];
    let other = &files[1];
    one.write_at(&[1; 9000], 0).await.expect("write");
    assert_eq!(client.stat(&path).await.expect("stat").size(), 3);
    one.flush().await.expect("flush");
    assert_eq!(client.stat(&path).await.expect("stat").size(), 9000);
    let mut buffer = vec![0; 10_000];
    assert_eq!(other.read_at(&mut buffer, 0).await.expect("read"), 9000);
    assert_same(&buffer[..9000], &[1; 9000], "what the other wrote");
    // A commit by a writer that knows a smaller size does not shrink the file.
    other.write_at(b"x", 10).await.expect("write");
    one.write_at(b"end", 20_000).await.expect("write");
    one.flush().await.expect("flush");
    other.flush().await.expect("flush");
    assert_eq!(client.stat(&path).await.expect("stat").size(), 20_003);
    for file in files {
        file.close().await.expect("close");
    }
    assert_eq!(client.stat(&path).await.expect("stat").size(), 20_003);
}

/// Records of many appenders are whole, each is in the file once, and nothing else is.
#[tokio::test(flavor = "multi_thread")]
async fn eight_append() {
    let (cluster, client) = cluster(5).await;
    let path = name("log");
    put(&client, &path, raid5(), &[]).await;
    let mut tasks = Vec::new();
    for writer in 0..8usize {
        let options = OpenOptions::new().append(true);
        let mut file = cluster.client().await.open(&path, &options).await.expect("open");
        tasks.push(tokio::spawn(async move {
            for index in 0..12 {
                let bytes = bytes_of(writer * 12 + index);
                file.write(&bytes).await.expect("append");
            }
            file.close().await.expect("close");
        }));
    }
    for task in tasks {
        task.await.expect("it ends");
    }
    let found = read_all(&client, &path).await.expect("read");
    let (mut found, mut expected): (Vec<&[u8]>, Vec<Vec<u8>>) =
        (found.chunks(RECORD).collect(), (0..96).map(bytes_of).collect());
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected, "the records are whole, and each is there once");
    let all = read_all(&client, &path).await.expect("read");
    is(&client, &path, &all, "in the end").await;
}

/// A file is cut and made longer beside a writer: what the writer wrote below stays, and what it writes later
/// is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncate_beside_a_writer() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    let old = pattern(8, 200_000);
    put(&client, &path, raid5(), &old).await;
    let files = writers(&cluster, &path, 2).await;
    let one = &files[0];
    let other = &files[1];
    let mut model = old.clone();
    let mut random = Random(5);
    for round in 0..4u64 {
        let end = 150_000 - 30_000 * usize::try_from(round).expect("small");
        let writes = async {
            for _ in 0..30 {
                let from = random.below(40_000);
                let bytes = pattern(random.draw(), 700);
                one.write_at(&bytes, from).await.expect("write");
                let from = usize::try_from(from).expect("small");
                model[from..from + 700].copy_from_slice(&bytes);
            }
        };
        let cut = async { other.set_len(u64::try_from(end).expect("small")).await.expect("cut") };
        tokio::join!(writes, cut);
        model.truncate(end);
        other.set_len(200_000).await.expect("grow");
        model.resize(200_000, 0);
    }
    one.write_at(b"after", 180_000).await.expect("write");
    model[180_000..180_005].copy_from_slice(b"after");
    other.set_len(190_000).await.expect("cut");
    model.truncate(190_000);
    one.flush().await.expect("flush");
    for file in files {
        file.close().await.expect("close");
    }
    is(&client, &path, &model, "in the end").await;
}

/// A holder that vanishes is fenced, and its acknowledged writes are kept; the other goes on, alone in the
/// end.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_dies_leaves_what_it_was_told_and_the_other_goes_on() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let file = client.open(&path, &both()).await.expect("open");
    let config = cluster.config();
    let dead = std::thread::spawn({
        let path = path.clone();
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let client = Client::connect(config).await.expect("a client");
                let file = client.open(&path, &both()).await.expect("open");
                file.write_at(&[7; 3000], 50_000).await.expect("write");
                std::mem::forget(file);
            });
            // The writer's tasks end with the runtime: nothing releases the lease.
            runtime.shutdown_background();
        }
    });
    dead.join().expect("it ends");
    file.write_at(&[1; 100], 0).await.expect("write");
    wait_for(|| async { client.stat(&path).await.expect("stat").size() == 53_000 }).await;
    file.write_at(&[2; 100], 100).await.expect("write");
    // The remaining writer has the file exclusively again: stripe writes work.
    tokio::time::sleep(Duration::from_millis(3000)).await;
    file.write_at(&[3; 40_000], 200).await.expect("write");
    file.close().await.expect("close");
    let mut model = vec![0; 53_000];
    model[..100].fill(1);
    model[100..200].fill(2);
    model[200..40_200].fill(3);
    model[50_000..].fill(7);
    is(&client, &path, &model, "in the end").await;
}

/// The first writer is mute: nothing waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_mute_first_writer_holds_up_nobody() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (told, tell) = std::sync::mpsc::channel();
    let config = cluster.config();
    let mute = std::thread::spawn({
        let path = path.clone();
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let file = runtime.block_on(async {
                let client = Client::connect(config).await.expect("a client");
                let file = client.open(&path, &both()).await.expect("open");
                file.write_at(&[7; 100_000], 0).await.expect("write");
                file
            });
            // From here on nothing of the writer runs.
            let _ = told.send(());
            let _ = stopped.recv();
            // The writer wakes up: its lease is over.
            runtime.block_on(async { file.write_at(&[9; 50_000], 0).await })
        }
    });
    tell.recv().expect("it has the file");
    let began = std::time::Instant::now();
    let file = client.open(&path, &both()).await.expect("open");
    file.write_at(&[1; 10_000], 20_000).await.expect("write");
    assert!(began.elapsed() < Duration::from_millis(2500), "less than its lease: {:?}", began.elapsed());
    wait_for(|| async {
        file.stat().await.is_ok() && client.stat(&path).await.expect("stat").size() == 100_000
    })
    .await;
    tokio::time::sleep(Duration::from_millis(4500)).await;
    drop(stop);
    let late = mute.join().expect("it ends").expect_err("its lease is over");
    assert_eq!(late.kind(), Kind::Busy, "{late}");
    file.close().await.expect("close");
    let mut model = vec![7; 100_000];
    model[20_000..30_000].fill(1);
    is(&client, &path, &model, "in the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_go_on_when_the_manager_is_restarted() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let files = writers(&cluster, &path, 3).await;
    let tasks: Vec<_> = (files.into_iter().enumerate())
        .map(|(own, file)| tokio::spawn(write_records(file, own, 3, 300)))
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    cluster.restart_manager().await;
    for task in tasks {
        let file = task.await.expect("it ends");
        file.flush().await.expect("flush");
        file.close().await.expect("close");
    }
    is(&client, &path, &all(300), "in the end").await;
}

/// Two handles of one client are two holders.
#[tokio::test(flavor = "multi_thread")]
async fn one_client_may_open_a_file_twice() {
    let (_cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let one = client.open(&path, &both()).await.expect("open");
    let other = client.open(&path, &both()).await.expect("open");
    let (one, other) = tokio::join!(write_records(one, 0, 2, 100), write_records(other, 1, 2, 100));
    one.close().await.expect("close");
    other.write_at(&bytes_of(100), at(100)).await.expect("write");
    other.close().await.expect("close");
    is(&client, &path, &all(101), "in the end").await;
}

/// While a drive is away, the end of its column's bytes cannot be known exactly. The size is the one that the
/// writers commit all the same.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_exact_while_a_drive_is_away() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let files = writers(&cluster, &path, 2).await;
    files[0].write_at(&[1; 4 * UNIT], 0).await.expect("write");
    files[1].write_at(&[2; UNIT + 100], u64::try_from(4 * UNIT).expect("small")).await.expect("write");
    cluster.kill(0);
    for round in 0..2u8 {
        for (writer, file) in files.iter().enumerate() {
            for unit in 0..4 {
                let at = u64::try_from(unit * UNIT + 50 * writer).expect("small");
                file.write_at(&[round; 50], at).await.expect("write");
            }
        }
    }
    for file in files {
        file.close().await.expect("close");
    }
    let size = u64::try_from(5 * UNIT + 100).expect("small");
    assert_eq!(client.stat(&path).await.expect("stat").size(), size);
    let file = client.open(&path, &both()).await.expect("open");
    assert_eq!(file.size(), size);
    file.close().await.expect("close");
}

/// Bytes that a writer has not committed are cut off too, and do not make the file longer later.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncate_cuts_off_what_others_have_not_committed() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), b"old").await;
    let files = writers(&cluster, &path, 2).await;
    files[0].write_at(&[1; 500], 30_000).await.expect("write");
    files[1].set_len(10_000).await.expect("cut");
    files[0].flush().await.expect("flush");
    assert_eq!(client.stat(&path).await.expect("stat").size(), 10_000);
    files[0].write_at(b"new", 9_999).await.expect("write");
    for file in files {
        file.close().await.expect("close");
    }
    let mut model = b"old".to_vec();
    model.resize(9_999, 0);
    model.extend_from_slice(b"new");
    is(&client, &path, &model, "in the end").await;
}

/// The bytes past a cut can be removed only by a client that computes parity and has the file for itself: the
/// next one that opens it. So the other writers' lease ends and they are told, and lose nothing that was
/// acknowledged to them.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_gone_in_the_middle_of_a_truncation_ends_the_others_lease_and_they_are_told() {
    const CUT: u64 = 70_000;
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    let mut model = pattern(3, 300_000);
    put(&client, &path, raid5(), &model).await;
    let mut files = writers(&cluster, &path, 3).await;
    let cutter = files.remove(0);
    let idle = files.remove(0);
    let file = files.remove(0);
    file.write_at(b"kept", 69_990).await.expect("it is acknowledged");
    file.write_at(b"cut off", 200_000).await.expect("it is acknowledged");
    // The first half of a truncation, as the client sends it.
    let number = file.stat().await.expect("stat").file;
    let holder = cutter.holder();
    let token = &cluster.ready.client_token;
    let limits = Limits::default();
    let mut session = ControlSession::connect(&cluster.ready.address, token, &limits).await.expect("connect");
    let access = Access::Write;
    let turn = Turn::Take;
    let take = Refresh {
        file: number,
        access,
        lease: Lease(3),
        holder,
        turn,
        in_vain: 0,
        reservation: ReservationId::NONE,
        reach: 0,
        room: Room::Keep,
        snapshot: 0,
    };
    let ControlReply::Opened(own) = session.call(&take.into()).await.expect("its turn") else {
        panic!("no turn")
    };
    let lease = own.lease;
    let order = 1;
    let cut = Cut::Begins;
    let backing = Backing::NONE;
    let begins = Commit { file: number, lease, holder, size: CUT, order, cut, modified_ns: None, backing };
    session.call(&begins.into()).await.expect("begun");
    drop(cutter);
    for (what, told) in [
        ("a write", file.write_at(b"late", 500).await),
        ("a close", file.close().await),
        ("an append", idle.append(b"late").await.map(drop)),
    ] {
        let error = told.expect_err(what);
        assert_eq!(error.kind(), Kind::Busy, "{what}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("truncated the file") && text.contains("Open the file again"),
            "{what}: {text}"
        );
    }
    drop(idle);
    let file = open_when_free(&client, &path).await;
    assert_eq!(file.size(), CUT, "the truncation is ended, and no more than that is cut off");
    file.set_len(250_000).await.expect("grow");
    file.write_at(b"new", 249_000).await.expect("write");
    file.close().await.expect("close");
    model[69_990..69_994].copy_from_slice(b"kept");
    model.truncate(usize::try_from(CUT).expect("small"));
    model.resize(250_000, 0);
    model[249_000..249_003].copy_from_slice(b"new");
    // The refused write is in the file as a whole or not at all.
    let found = read_all(&client, &path).await.expect("read");
    if &found[500..504] == b"late" {
        model[500..504].copy_from_slice(b"late");
    }
    is(&client, &path, &model, "in the end").await;
}
