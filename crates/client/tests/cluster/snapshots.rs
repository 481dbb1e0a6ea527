//! Snapshots: bytes that stay while files are written in place, and the moment under writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use braid_client::{Buffered, Client, File, Kind, Name, OpenOptions};

use crate::common::{assert_same, name, pattern, put, read_all, wait_for};
use crate::shared::{both, cluster, is, raid5, writers};

/// Length of a record: small, and not aligned to anything.
const RECORD: usize = 1237;
/// Records in each of the files that are written under snapshots.
const RECORDS: usize = 400;

/// Bytes of whole stripes that hold all records of a file.
const PART: u64 = 31 * 4 * 4096;

async fn make(client: &Client, snapshot: &str) -> braid_wire::control::SnapshotMade {
    client.make_snapshot(&root(), snapshot, Buffered::LeftOut).await.expect("made")
}

fn root() -> Name {
    Name::root("main").expect("good")
}

async fn at(client: &Client, path: &str, snapshot: &str) -> Vec<u8> {
    let inside = name(path).in_snapshot(snapshot).expect("good");
    read_all(client, &inside).await.expect("read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_stay_while_a_file_is_written_in_place() {
    let (mut cluster, client) = cluster(5).await;
    let path = name("f");
    let mut now = pattern(1, 200_000);
    put(&client, &path, raid5(), &now).await;
    let mut models = Vec::new();
    let mut readers: Vec<File> = Vec::new();
    let reading = OpenOptions::new().read(true);
    for round in 0..4u64 {
        let snapshot = format!("s{round}");
        assert_eq!(make(&client, &snapshot).await.late, 0, "nothing is open");
        models.push((snapshot.clone(), now.clone()));
        // Opened before the file is written again: from then on its bytes are elsewhere.
        readers.push(client.open(&path.in_snapshot(&snapshot).expect("good"), &reading).await.expect("open"));
        let file = client.open(&path, &both()).await.expect("open");
        for (write, bytes) in [(1u64, 3000), (2, 40_000), (3, 1)] {
            let from = usize::try_from(round * 31_000 + write * 9000).expect("small");
            let new = pattern(round * 10 + write + 100, bytes);
            file.write_at(&new, u64::try_from(from).expect("small")).await.expect("write");
            let end = from + bytes;
            now.resize(now.len().max(end), 0);
            now[from..end].copy_from_slice(&new);
        }
        file.close().await.expect("close");
        for ((snapshot, model), reader) in models.iter().zip(&readers) {
            assert_same(&at(&client, "f", snapshot).await, model, snapshot);
            let mut read = vec![0; model.len()];
            reader.read_at(&mut read, 0).await.expect("a reader goes on");
            assert_same(&read, model, "its open reader");
        }
        is(&client, &path, &now, "the present").await;
    }
    // The stills have their own parity.
    cluster.drives[1].node.take().expect("it runs").kill();
    for (snapshot, model) in &models {
        assert_same(&at(&client, "f", snapshot).await, model, "without a drive");
    }
    // Removed out of order, the others stay.
    for gone in ["s1", "s3", "s0"] {
        client.remove_snapshot(&root(), gone).await.expect("removed");
        models.retain(|(snapshot, _)| snapshot != gone);
        for (snapshot, model) in &models {
            assert_same(&at(&client, "f", snapshot).await, model, gone);
        }
    }
    let inside = path.in_snapshot("s1").expect("good");
    assert_eq!(client.stat(&inside).await.expect_err("gone").kind(), Kind::NotFound);
    let inside = path.in_snapshot("s2").expect("good");
    assert_eq!(client.open(&inside, &both()).await.expect_err("read-only").kind(), Kind::Permission);
}

/// Writes record after record, each into the next of these files, and counts before and after.
async fn write_in_turn(
    files: Vec<File>,
    begun: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    for record in 0..RECORDS * files.len() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let file = &files[record % files.len()];
        let at = record / files.len() * RECORD;
        begun.store(record + 1, Ordering::Release);
        file.write_at(&bytes_of(record), u64::try_from(at).expect("small")).await.expect("write");
        done.store(record + 1, Ordering::Release);
    }
    for file in files {
        file.close().await.expect("close");
    }
}

fn bytes_of(record: usize) -> Vec<u8> {
    pattern(u64::try_from(record).expect("small") + 1, RECORD)
}

/// Number of records that a snapshot has, written in turn to these files. All before the last that is there
/// must be there, and of all after it at most the next may be there in part.
async fn records_at(client: &Client, paths: &[String], snapshot: &str) -> usize {
    let mut files = Vec::new();
    for path in paths {
        files.push(at(client, path, snapshot).await);
    }
    let part = |record: usize| {
        let at = record / paths.len() * RECORD;
        &files[record % paths.len()][at..at + RECORD]
    };
    let all = RECORDS * paths.len();
    let there = (0..all).take_while(|&record| part(record) == bytes_of(record)).count();
    for record in there + 1..all {
        assert!(part(record).iter().all(|byte| *byte == 0), "{snapshot}: record {record}, and not {there}");
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_writers_a_snapshot_has_what_was_written_before_and_nothing_after() {
    let (cluster, client) = cluster(5).await;
    let paths: Vec<String> = (0..4).map(|n| format!("f{n}")).collect();
    let zeros = vec![0; RECORDS * RECORD];
    for path in paths.iter().map(String::as_str).chain(["shared", "parted"]) {
        put(&client, &name(path), raid5(), &zeros).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    let begun: [Arc<AtomicUsize>; 3] = Default::default();
    let done: [Arc<AtomicUsize>; 3] = Default::default();
    let mut files = Vec::new();
    for path in &paths {
        files.push(client.open(&name(path), &both()).await.expect("open"));
    }
    let spawn = |files, of: usize, tasks: &mut tokio::task::JoinSet<()>| {
        let counts = (Arc::clone(&begun[of]), Arc::clone(&done[of]));
        tasks.spawn(write_in_turn(files, counts.0, counts.1, Arc::clone(&stop)));
    };
    spawn(files, 0, &mut tasks);
    // Two handles that share a file, one of which writes.
    let mut two = writers(&cluster, &name("shared"), 2).await;
    spawn(vec![two.remove(0)], 1, &mut tasks);
    // Two handles that each said which stripes they write.
    let range = |range| both().range(range);
    let parted = name("parted");
    let first = cluster.client().await.open(&parted, &range(0..PART)).await.expect("open");
    let second = cluster.client().await.open(&parted, &range(PART..u64::MAX)).await.expect("open");
    spawn(vec![first], 2, &mut tasks);
    let beside = [paths.clone(), vec!["shared".to_owned()], vec!["parted".to_owned()]];
    for round in 0..6 {
        let before = done[0].load(Ordering::Acquire);
        wait_for(|| async {
            done[0].load(Ordering::Acquire) > before || begun[0].load(Ordering::Acquire) == RECORDS * 4
        })
        .await;
        let snapshot = format!("s{round}");
        let before: Vec<usize> = done.iter().map(|done| done.load(Ordering::Acquire)).collect();
        let made = make(&client, &snapshot).await;
        let after: Vec<usize> = begun.iter().map(|begun| begun.load(Ordering::Acquire)).collect();
        for (of, paths) in beside.iter().enumerate() {
            // The bytes of late files are of some time after.
            if made.late == 0 {
                let there = records_at(&client, paths, &snapshot).await;
                let from = before[of];
                let to = after[of];
                assert!((from..=to).contains(&there), "{snapshot}: {there} records, and not {from} to {to}");
            }
        }
    }
    stop.store(true, Ordering::Release);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("it writes on");
    }
    drop((two, second));
    for path in paths.iter().map(String::as_str).chain(["shared", "parted"]) {
        let live = read_all(&client, &name(path)).await.expect("read");
        wait_for(|| async { client.check(&name(path), |_| {}).await.is_ok_and(|found| found.is_clean()) })
            .await;
        assert_eq!(live.len(), zeros.len());
    }
    let once = at(&client, "f0", "s0").await;
    assert_same(&at(&client, "f0", "s0").await, &once, "what it shows does not change");
}
