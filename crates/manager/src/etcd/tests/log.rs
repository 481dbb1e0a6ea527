//! Leaders that die at each point of a commit or a checkpoint, and managers that come late.

use braid_meta::records::kv::{Batch, Kv};
use braid_meta::records::log::{HeadRecord, cut, encode};
use braid_processes::etcd::Etcd;
use etcd_client::TxnOp;

use super::*;
use crate::disk::conformance::{rows, set};
use crate::etcd::checkpoint;
use crate::etcd::kv::write_parts;
use crate::etcd::reader::catch_up;

/// Points of a commit at which a leader dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    InTheParts,
    AfterThem,
    AfterTheRecord,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_within_a_commit_leaves_all_of_it_or_nothing() {
    let etcd = Etcd::start(1);
    for dies in [Dies::InTheParts, Dies::AfterThem, Dies::AfterTheRecord] {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let dying = Node::new(&etcd.state(), dirs[0].path()).await;
        let leading = dying.lead().await;
        leading.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
        let batch = Batch::from([(b"b".to_vec(), Some(vec![dies as u8; 3000]))]);
        let record = cut(dying.cache.place(), leading.pen.tenure.number(), &batch, 1000);
        assert!(record.parts.len() > 2);
        let mut some = record.clone();
        if dies == Dies::InTheParts {
            some.parts.truncate(1);
        }
        write_parts(&leading.pen, &some).await.expect("written");
        if dies == Dies::AfterTheRecord {
            let key = leading.pen.link.names.record(record.after.index);
            leading.pen.make(&key, &record.last).await.expect("written");
        }
        leading.crash(&etcd).await;

        let next = Node::new(&etcd.state(), dirs[1].path()).await;
        let leading = next.lead().await;
        let there = leading.with(|kv| kv.snapshot().unwrap().get(b"b").unwrap()).await;
        let is_whole = there.is_some_and(|value| value == vec![dies as u8; 3000]);
        assert_eq!(is_whole, dies == Dies::AfterTheRecord, "{dies:?}");
        leading.with(|kv| kv.commit(&set(&["c"], b"1"))).await.expect("stored");
        let parts = etcd.ctl(&["get", "/braid/part/", "--prefix", "--keys-only"]);
        let left = parts.split_whitespace().count();
        assert_eq!(left, if is_whole { record.parts.len() } else { 0 }, "{dies:?}: {parts}");
        // The one that died comes back with the copy that it had.
        catch_up(&dying.link, &dying.cache, WAIT).await.expect("it follows");
        assert_eq!(rows(dying.cache.as_ref()), rows(next.cache.as_ref()));
        leading.with(|kv| kv.commit(&Batch::from([(b"b".to_vec(), None)]))).await.expect("stored");
        leading.resign().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_late_reads_the_checkpoint_and_then_the_log() {
    let etcd = Etcd::start(1);
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let first = Node::new(&etcd.state(), dirs[0].path()).await;
    let late = Node::new(&etcd.state(), dirs[1].path()).await;
    let leading = first.lead().await;
    let fill = |kv: &EtcdKv| {
        for n in 0..40u8 {
            kv.commit(&Batch::from([(vec![b'i', n], Some(vec![n; 90_000]))])).expect("stored");
        }
    };
    leading.with(|kv| kv.commit(&set(&["gone"], b"1"))).await.expect("stored");
    follow_to(&late, 1).await;
    leading.with(|kv| kv.commit(&Batch::from([(b"gone".to_vec(), None)]))).await.expect("stored");
    leading.with(fill).await;
    let head = checkpoint::write(&leading.pen, &first.cache).await.expect("a checkpoint");
    assert!(head.chunks > 2 && head.index == first.cache.place().index, "{head:?}");
    assert_eq!(etcd.ctl(&["get", "/braid/log/", "--prefix", "--keys-only"]).trim(), "");
    leading.with(|kv| kv.commit(&set(&["after"], b"1"))).await.expect("stored");

    // One that was behind, and one that is new.
    let fresh = Node::new(&etcd.state(), dirs[2].path()).await;
    for node in [&late, &fresh] {
        catch_up(&node.link, &node.cache, WAIT).await.expect("it follows");
        assert_eq!(rows(node.cache.as_ref()), rows(first.cache.as_ref()));
        assert_eq!(node.cache.place(), first.cache.place());
    }
    assert_eq!(late.cache.snapshot().unwrap().get(b"gone").unwrap(), None);
    // The next checkpoint takes its place.
    let second = checkpoint::write(&leading.pen, &first.cache).await.expect("a checkpoint");
    let chunks = etcd.ctl(&["get", "/braid/checkpoint/", "--prefix", "--keys-only"]);
    assert_eq!(chunks.split_whitespace().count(), usize::try_from(second.chunks).unwrap(), "{chunks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_within_a_checkpoint_harms_nothing() {
    let etcd = Etcd::start(1);
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let node = Node::new(&etcd.state(), dirs[0].path()).await;
    let leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a", "b"], b"1"))).await.expect("stored");
    let place = node.cache.place();
    let names = &node.link.names;
    let number = leading.pen.tenure.number();
    let chunk = braid_meta::records::log::encode_chunk(0, &rows(node.cache.as_ref()));
    let put = TxnOp::put(names.chunk(place.index, number, 0), chunk, None);
    leading.pen.again(vec![put.clone()]).await.expect("written");
    let pen = leading.pen.clone();
    leading.crash(&etcd).await;

    let next = Node::new(&etcd.state(), dirs[1].path()).await;
    let leading = next.lead().await;
    assert_eq!(etcd.ctl(&["get", "/braid/checkpoint/", "--prefix", "--keys-only"]).trim(), "", "it is swept");
    // What the former leader still does, does nothing.
    pen.again(vec![put]).await.expect_err("it is deposed");
    let head = HeadRecord { index: place.index, sum: place.sum, writer: number, chunks: 1, bytes: 1 };
    let flip = TxnOp::put(names.head(), encode(&head), None);
    pen.again(vec![flip]).await.expect_err("it is deposed");
    assert_eq!(rows(next.cache.as_ref()), rows(node.cache.as_ref()));

    // It dies after the head was set, before the log was deleted.
    leading.with(|kv| kv.commit(&set(&["c"], b"1"))).await.expect("stored");
    let place = next.cache.place();
    let number = leading.pen.tenure.number();
    let chunk = braid_meta::records::log::encode_chunk(0, &rows(next.cache.as_ref()));
    let head = HeadRecord { index: place.index, sum: place.sum, writer: number, chunks: 1, bytes: 1 };
    let last = vec![
        TxnOp::put(names.chunk(place.index, number, 0), chunk, None),
        TxnOp::put(names.head(), encode(&head), None),
    ];
    leading.pen.again(last).await.expect("written");
    leading.crash(&etcd).await;
    let fresh = Node::new(&etcd.state(), dirs[2].path()).await;
    let leading = fresh.lead().await;
    assert_eq!(rows(fresh.cache.as_ref()), rows(next.cache.as_ref()));
    assert_eq!(etcd.ctl(&["get", "/braid/log/", "--prefix", "--keys-only"]).trim(), "", "it is swept");
    leading.with(|kv| kv.commit(&set(&["d"], b"1"))).await.expect("stored");
}
