//! Answers that are lost, members that die or hang, and an etcd without space.

use std::sync::Mutex;

use braid_meta::records::kv::{Batch, Kv, KvError, Snapshot};
use braid_processes::etcd::Etcd;

use super::proxy::{Fate, Proxy};
use super::*;
use tokio::runtime::Handle;

use crate::disk::conformance::{check_failing, rows, set};
use crate::etcd::link::Member;

/// A manager that reaches etcd through a proxy only.
async fn behind(etcd: &Etcd, dir: &Path) -> (Proxy, Node) {
    let proxy = Proxy::before(&etcd.endpoints()[0]).await;
    let node = Node::new(&format!("etcd://{}", proxy.endpoint), dir).await;
    (proxy, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_for_a_moment_is_stored_once() {
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().expect("a directory");
    let (proxy, node) = behind(&etcd, dir.path()).await;
    let leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
    for n in 0..3u8 {
        proxy.set(Fate::LoseAnswers);
        let committing = leading.with(move |kv| kv.commit(&set(&["a"], &[n])));
        let restoring = async {
            // Until etcd has it, though the leader does not know.
            let index = node.cache.place().index + 1;
            let key = node.link.names.record(index);
            eventually("it is in etcd", async || !etcd.ctl(&["get", &key, "--keys-only"]).trim().is_empty())
                .await;
            proxy.set(Fate::Pass);
        };
        let (committed, ()) = tokio::join!(committing, restoring);
        committed.expect("it is found out that it is stored");
    }
    assert_eq!(node.cache.place().index, 4, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_etcd_stores_each_change_once_and_in_order() {
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().expect("a directory");
    let (proxy, node) = behind(&etcd, dir.path()).await;
    let mut leading = node.lead().await;
    proxy.set(Fate::Late);
    for n in 0..5u8 {
        let stored = answer("it is stored", async || {
            // If the machine is so slow, too, that the lease ends meanwhile, it is elected again.
            if leading.kv.serving().is_err() {
                leading = node.lead().await;
            }
            let before = node.cache.place().index;
            let stored = leading.with(move |kv| kv.commit(&set(&["a"], &[n]))).await;
            stored.ok().map(|()| node.cache.place().index - before)
        });
        assert_eq!(stored.await, 1, "change {n} is one record");
        let found = node.cache.snapshot().expect("a snapshot").get(b"a").expect("read");
        assert_eq!(found, Some(vec![n]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_find_out_leads_no_more_and_the_next_one_knows() {
    let etcd = Etcd::start(1);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    for (fate, is_stored) in [(Fate::LoseAnswers, true), (Fate::LoseAll, false)] {
        let (proxy, node) = behind(&etcd, dirs[0].path()).await;
        let leading = node.lead().await;
        leading.with(|kv| kv.commit(&set(&["a", "b"], b"1"))).await.expect("stored");
        proxy.set(fate);
        let error = leading.with(|kv| kv.commit(&set(&["a", "b"], b"2"))).await.expect_err("it is cut off");
        assert!(matches!(error, KvError::Deposed { .. }), "{error}");
        assert!(leading.kv.serving().is_err());
        let next = Node::new(&etcd.state(), dirs[1].path()).await;
        let leading = next.lead().await;
        let found = rows(next.cache.as_ref());
        let expected = if is_stored { b"2" } else { b"1" };
        assert!(found.iter().all(|(_, value)| value == expected) && found.len() == 2, "{fate:?}: {found:?}");
        leading.resign().await;
    }
}

/// The store of whoever leads: after a failure the same manager is elected again.
struct Again {
    leading: Mutex<Option<Leading>>,
}

impl Again {
    fn kv(&self) -> Arc<EtcdKv> {
        Arc::clone(&self.leading.lock().expect("no holder panics").as_ref().expect("it leads").kv)
    }
}

impl Kv for Again {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.kv().snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.kv().commit(batch)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_cut_off_now_and_then_conforms() {
    let etcd = Etcd::start(1);
    let dir = tempfile::tempdir().expect("a directory");
    let (proxy, node) = behind(&etcd, dir.path()).await;
    let again = Again { leading: Mutex::new(Some(node.lead().await)) };
    let runtime = Handle::current();
    let work = move || {
        check_failing(&again, |fails| {
            proxy.set(if fails { Fate::LoseAll } else { Fate::Pass });
            if !fails {
                let former = again.leading.lock().expect("no holder panics").take();
                let leading = runtime.block_on(async {
                    former.expect("it led").resign().await;
                    node.lead().await
                });
                *again.leading.lock().expect("no holder panics") = Some(leading);
            }
        });
    };
    tokio::task::spawn_blocking(work).await.expect("it conforms");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_of_three_may_die_or_hang() {
    let mut etcd = Etcd::start(3);
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::new(&etcd.state(), dir.path()).await;
    let mut leading = node.lead().await;
    for number in 0..3 {
        if number == 1 {
            etcd.stop(number);
        } else {
            etcd.kill(number);
        }
        // If the machine is so slow that the lease ends meanwhile, it is elected again.
        let stored = answer("it is stored", async || {
            if leading.kv.serving().is_err() {
                leading = node.lead().await;
            }
            leading.with(move |kv| kv.commit(&set(&["a"], &[u8::try_from(number).unwrap()]))).await.ok()
        });
        stored.await;
        if number == 1 {
            etcd.resume(number);
        } else {
            etcd.run(number);
        }
    }
    assert_eq!(node.cache.snapshot().unwrap().get(b"a").unwrap(), Some(vec![2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_a_commit_fails_in_time_and_all_is_there_when_members_are_back() {
    let mut etcd = Etcd::start(3);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let node = Node::new(&etcd.state(), dirs[0].path()).await;
    let leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a", "b"], b"1"))).await.expect("stored");
    etcd.kill(0);
    etcd.kill(1);
    let error = leading.with(|kv| kv.commit(&set(&["a", "b"], b"2"))).await.expect_err("there is no quorum");
    assert!(matches!(error, KvError::Deposed { .. }), "{error}");
    let silent = super::super::reader::look(&node.link, 0, Duration::from_millis(500)).await;
    let silent = silent.err().expect("there is no quorum").to_string();
    assert!(silent.contains("does not answer") && silent.contains("most of etcd's members run"), "{silent}");
    etcd.kill(2);
    (0..3).for_each(|number| etcd.run(number));
    let next = Node::new(&etcd.state(), dirs[1].path()).await;
    let leading = next.lead().await;
    let found = rows(next.cache.as_ref());
    assert!(found.len() == 2 && found[0].1 == found[1].1, "all or nothing: {found:?}");
    leading.with(|kv| kv.commit(&set(&["a", "b"], b"3"))).await.expect("stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_space_a_change_is_refused_with_the_remedy_which_helps() {
    let etcd = Etcd::start_with(1, &["--quota-backend-bytes", "8000000"]);
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::new(&etcd.state(), dir.path()).await;
    let mut leading = node.lead().await;
    leading.with(|kv| kv.commit(&set(&["a"], b"1"))).await.expect("stored");
    // Somebody else's key, again and again: it is the history of it that takes the space.
    let put = |mut member: Member| async move { member.kv.put("/other", vec![7; 900_000], None).await };
    let mut puts = 0;
    while node.link.once(WAIT, put).await.is_ok() {
        puts += 1;
        assert!(puts < 100, "it is never full");
    }
    let error = leading.with(|kv| kv.commit(&set(&["a"], b"2"))).await.expect_err("it is full");
    let said = error.to_string();
    assert!(matches!(error, KvError::Full { .. }), "{said}");
    for words in ["NOSPACE", "compact", "defrag", "alarm disarm"] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
    let there = leading.with(|kv| kv.snapshot().unwrap().get(b"a").unwrap()).await;
    assert_eq!(there, Some(b"1".to_vec()), "what is there is read");
    let status = etcd.ctl(&["get", "/other", "--keys-only", "-w", "json"]);
    let revision = status.split("\"revision\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    etcd.ctl(&["compact", revision.expect("a revision")]);
    etcd.ctl(&["defrag"]);
    etcd.ctl(&["alarm", "disarm"]);
    let stored = answer("it is stored", async || {
        if leading.kv.serving().is_err() {
            leading = node.lead().await;
        }
        leading.with(|kv| kv.commit(&set(&["a"], b"3"))).await.ok()
    });
    stored.await;
}
