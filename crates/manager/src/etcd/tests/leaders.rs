//! Two leaders for a moment, a leader that cannot renew its lease, and states that do not belong together.

use braid_meta::records::kv::{Kv, KvError};
use braid_processes::etcd::Etcd;

use super::*;
use crate::disk::conformance::{rows, set};
use crate::etcd::error::EtcdError;
use crate::etcd::import;
use braid_meta::records::memory::MemoryKv;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_leaders_the_former_changes_nothing_and_answers_nothing() {
    let etcd = Etcd::start(1);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let former = Node::new(&etcd.state(), dirs[0].path()).await;
    let next = Node::new(&etcd.state(), dirs[1].path()).await;
    let mut deposed = former.lead().await;
    deposed.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
    // It does not learn that its lease is gone: as if it had been stopped just before it stores a change.
    deposed.keeping.shutdown().await;
    etcd.ctl(&["lease", "revoke", &format!("{:x}", deposed.lease.id)]);
    let leading = next.lead().await;
    assert!(deposed.pen.tenure.left().is_ok(), "it takes itself for the leader");
    let error = deposed.with(|kv| kv.commit(&set(&["a", "b"], b"2"))).await.expect_err("it is refused");
    assert!(matches!(error, KvError::Deposed { .. }), "{error}");
    let refused = deposed.with(|kv| (kv.serving().is_err(), kv.snapshot().is_err())).await;
    assert_eq!(refused, (true, true), "it answers nothing more");
    assert_eq!(leading.with(|kv| kv.snapshot().unwrap().get(b"a").unwrap()).await, Some(b"1".to_vec()));
    leading.with(|kv| kv.commit(&set(&["a"], b"3"))).await.expect("stored");
    follow_to(&former, next.cache.place().index).await;
    assert_eq!(rows(former.cache.as_ref()), rows(next.cache.as_ref()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_was_not_renewed_answers_nothing_though_no_other_leads() {
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::new(&etcd.state(), dir.path()).await;
    let mut leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
    leading.keeping.shutdown().await;
    eventually("it stops to answer", async || leading.kv.serving().is_err()).await;
    // A renewal that comes late revives nothing.
    let ask = |mut member: crate::etcd::link::Member| {
        let id = leading.lease.id;
        async move { member.lease.keep_alive(id).await }
    };
    let _ = node.link.once(WAIT, ask).await;
    assert!(leading.with(|kv| kv.commit(&set(&["a"], b"2"))).await.is_err());
    leading.resign().await;
    let leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a"], b"2"))).await.expect("stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_state_is_refused_and_so_is_an_etcd_that_has_lost_records() {
    let etcd = Etcd::start(1);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let node = Node::new(&etcd.state(), dirs[0].path()).await;
    let leading = node.lead().await;
    for value in [b"1", b"2"] {
        leading.with(|kv| kv.commit(&set(&["a"], value))).await.expect("stored");
    }
    leading.resign().await;
    let find = async |state: &str| {
        let link = Link::new(&EtcdConfig::of_state(state).unwrap(), None).await.unwrap();
        identify(&link, &node.cache, WAIT).await
    };
    let state = etcd.state();
    find(&state).await.expect("it is the same");
    let nothing = find(&format!("{state}/empty")).await.expect_err("there is no state");
    assert!(nothing.to_string().contains("/empty/ has no state, or an older one"), "{nothing}");
    let _other = Node::new(&format!("{state}/other"), dirs[1].path()).await;
    let other = find(&format!("{state}/other")).await.expect_err("it is another state");
    assert!(other.to_string().contains("another cluster's state"), "{other}");
    etcd.ctl(&["del", "/braid/log/0000000000000002"]);
    let older = find(&state).await.expect_err("a record is gone");
    assert!(matches!(older, EtcdError::Older { copy: 2, there: 1, .. }), "{older}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_goes_into_etcd_once() {
    let etcd = Etcd::start(1);
    let kv = MemoryKv::new();
    for n in 0..30u8 {
        kv.commit(&[(vec![b'i', n], Some(vec![n; 100_000]))].into()).expect("stored");
    }
    let config = EtcdConfig::of_state(&etcd.state()).unwrap();
    let dir = tempfile::tempdir().expect("a directory");
    import(&config, Arc::new(kv.clone())).await.expect("imported");
    let taken = import(&config, Arc::new(MemoryKv::new())).await.expect_err("there is one");
    assert!(taken.to_string().contains("holds a state already"), "{taken}");
    let node = Node::new(&etcd.state(), dir.path()).await;
    let leading = node.lead().await;
    assert_eq!(leading.with(|kv| rows(kv)).await, rows(&kv));
    leading.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
}
