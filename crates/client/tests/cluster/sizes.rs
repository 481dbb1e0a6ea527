//! Sizes that are set or refused while several handles may write a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_client::Client;
use braid_client::File;
use tokio::task::JoinSet;

use crate::common::{Cluster, assert_same, name, pattern, put, read_all};
use crate::shared::{both, cluster, is, raid5, writers};

/// A writer that does not know yet that another has joined cuts off the other's committed bytes too.
#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_is_set_is_so_whatever_another_committed_before() {
    let (cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[]).await;
    let files = writers(&cluster, &path, 2).await;
    let one = &files[0];
    let other = &files[1];
    other.write_at(&[2; 9000], 0).await.expect("write");
    other.flush().await.expect("flush");
    one.set_len(5000).await.expect("cut");
    assert_eq!((one.size(), client.stat(&path).await.expect("stat").size()), (5000, 5000));
    for file in files {
        file.close().await.expect("close");
    }
    is(&client, &path, &[2; 5000], "in the end").await;
}

/// A writer takes back its own bytes, and nothing where others write too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_quota_refuses_is_taken_back_but_not_from_others() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(raid5()), 0).await.expect("a volume");
    let path = name("f");
    put(&client, &path, raid5(), &pattern(1, 20_000)).await;
    let one = client.open(&path, &both()).await.expect("open");
    one.write_at(&[7; 60_000], 10_000).await.expect("write");
    // The quota comes after the bytes.
    client.set_quota(&"braid://main".parse().expect("a name"), None, 50_000, 0).await.expect("set");
    let refused = one.flush().await.expect_err("it does not fit");
    assert!(refused.to_string().contains("quota"), "{refused}");
    assert!(one.withdraw().await.expect("taken back"));
    assert_eq!(one.size(), 20_000);
    one.set_len(30_000).await.expect("it fits");
    let mut model = pattern(1, 20_000);
    model[10_000..].fill(7);
    model.resize(30_000, 0);
    // From now on a write is refused before any of it is sent.
    one.write_at(&[8; 60_000], 10_000).await.expect_err("it does not fit");
    one.close().await.expect("nothing of it was written");
    is(&client, &path, &model, "after a write that was refused").await;
    // Others' bytes are left alone.
    let files = writers(&cluster, &path, 2).await;
    let one = &files[0];
    let other = &files[1];
    one.write_at(&[9; 30_000], 40_000).await.expect_err("it does not fit");
    other.write_at(&[3; 10_000], 30_000).await.expect("write");
    assert!(!one.withdraw().await.expect("asked"));
    other.flush().await.expect("it fits");
    let mut bytes = vec![0; 10_000];
    assert_eq!(other.read_at(&mut bytes, 30_000).await.expect("read"), 10_000);
    assert_same(&bytes, &[3; 10_000], "what the other was told is kept");
}

/// After a refused size the handle keeps the size that a concurrent write has made.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_size_takes_nothing_from_a_write_beside_it() {
    let cluster = Cluster::start(5).await;
    let client = cluster.client().await;
    client.volume_create("main", Some(raid5()), 50_000).await.expect("a volume");
    let path = name("f");
    put(&client, &path, raid5(), &[1; 20_000]).await;
    let file = client.open(&path, &both()).await.expect("open");
    for _ in 0..20 {
        file.set_len(20_000).await.expect("it fits");
        let is_over = AtomicBool::new(false);
        let refused = async {
            while !is_over.load(Ordering::Relaxed) {
                assert!(file.set_len(60_000).await.is_err(), "it does not fit");
            }
        };
        let written = async {
            file.write_at(&[2; 10_000], 20_000).await.expect("it fits");
            is_over.store(true, Ordering::Relaxed);
        };
        tokio::join!(refused, written);
        assert_eq!(file.size(), 30_000);
    }
    file.flush().await.expect("flush");
    is(&client, &path, &[[1; 10_000], [1; 10_000], [2; 10_000]].concat(), "in the end").await;
}

/// A drive that loses the end of its log has lost synced bytes, also where the size has not changed: the
/// manager is told of each sync after a write.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_leaves_the_size_tells_the_manager_too() {
    let (_cluster, client) = cluster(5).await;
    let path = name("f");
    put(&client, &path, raid5(), &[1; 20_000]).await;
    let file = client.open(&path, &both()).await.expect("open");
    file.set_modified(5).expect("open for writing");
    file.write_at(&[2; 100], 300).await.expect("write");
    file.flush().await.expect("flush");
    let modified = || async { client.stat(&path).await.expect("stat").attributes.modified_ns };
    assert_eq!(modified().await, 5);
    // Nothing was written since, so there is nothing to tell.
    file.set_modified(6).expect("open for writing");
    file.flush().await.expect("flush");
    assert_eq!(modified().await, 5);
}

/// A cut of the file ends all reserved places: an append that had one gets a new place, so that there is no
/// hole before it, and no other append is given the same bytes.
async fn appends_beside_cuts(cutter: &File, file: &Arc<File>, client: &Client) {
    const RECORD: usize = 60_000;
    for round in 1..=10 {
        let append = |number: u8| {
            let file = Arc::clone(file);
            async move { file.append(&[number; RECORD]).await.expect("append") }
        };
        let mut appends: JoinSet<u64> = (1..=30).map(append).collect();
        appends.join_next().await;
        cutter.set_len(0).await.expect("cut");
        appends.join_all().await;
        file.flush().await.expect("flush");
        let found = read_all(client, &name("f")).await.expect("read");
        assert!(found.len().is_multiple_of(RECORD), "round {round}: {} bytes", found.len());
        let mut records: Vec<u8> = found.chunks(RECORD).map(|record| record[0]).collect();
        let is_whole = |record: &[u8]| record[0] > 0 && record.iter().all(|byte| *byte == record[0]);
        assert!(found.chunks(RECORD).all(is_whole), "round {round}: {records:?}");
        records.sort_unstable();
        records.dedup();
        assert_eq!(records.len(), found.len() / RECORD, "round {round}: each is there once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_beside_anothers_cut_leave_no_holes() {
    let (cluster, client) = cluster(5).await;
    put(&client, &name("f"), raid5(), &[]).await;
    let mut files = writers(&cluster, &name("f"), 2).await;
    let cutter = files.pop().expect("two");
    let file = files.pop().expect("two");
    appends_beside_cuts(&cutter, &Arc::new(file), &client).await;
}

/// The lease is the same before and after such a cut.
#[tokio::test(flavor = "multi_thread")]
async fn appends_beside_a_cut_by_the_same_handle_leave_no_holes() {
    let (_cluster, client) = cluster(5).await;
    put(&client, &name("f"), raid5(), &[]).await;
    let file = Arc::new(client.open(&name("f"), &both()).await.expect("open"));
    appends_beside_cuts(&file, &file, &client).await;
}

/// A write beyond the new size that is under way is cut off, or made after it, as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_beside_a_cut_by_the_same_handle_is_there_or_not() {
    const CUT: usize = 10_000;
    const FROM: usize = 100_000;
    let (_cluster, client) = cluster(5).await;
    put(&client, &name("f"), raid5(), &[]).await;
    let file = Arc::new(client.open(&name("f"), &both()).await.expect("open"));
    file.write_at(&[9; CUT], 0).await.expect("write");
    for round in 1..=20u8 {
        let mut writes = JoinSet::new();
        for number in 0..8u8 {
            let file = Arc::clone(&file);
            let from = FROM + usize::from(number) * 20_000;
            writes.spawn(async move {
                file.write_at(&[round; 20_000], u64::try_from(from).expect("small")).await.expect("write");
            });
        }
        tokio::task::yield_now().await;
        file.set_len(u64::try_from(CUT).expect("small")).await.expect("cut");
        writes.join_all().await;
        file.flush().await.expect("flush");
        let found = read_all(&client, &name("f")).await.expect("read");
        let tail = found.get(FROM..).unwrap_or_default();
        assert!(found.len() == CUT || !tail.is_empty(), "round {round}: {} bytes", found.len());
        let is_whole = |piece: &[u8]| piece.iter().all(|byte| *byte == piece[0] && [0, round].contains(byte));
        assert!(tail.chunks(20_000).all(is_whole), "round {round}");
        assert!(tail.is_empty() || tail[tail.len() - 1] == round, "round {round}: it ends with zeros");
        file.set_len(u64::try_from(CUT).expect("small")).await.expect("cut");
    }
}
