#![expect(clippy::disallowed_methods, reason = "tests decide on several threads, for a bounded time")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, mpsc};
use std::time::Duration;

use super::*;
use crate::records::kv::{KvError, Snapshot};
use crate::records::memory::MemoryKv;

/// Limit of every wait: far more than any wait takes.
const WAIT: Duration = Duration::from_secs(120);

/// A store whose commits wait until they are let through.
#[derive(Clone, Default)]
struct Gated {
    inner: MemoryKv,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    is_shut: bool,
    waiting: usize,
}

impl Gated {
    fn shut(&self) {
        self.gate.0.lock().unwrap().is_shut = true;
    }

    fn open(&self) {
        self.gate.0.lock().unwrap().is_shut = false;
        self.gate.1.notify_all();
    }

    /// Waits until a commit is held at the gate.
    fn reached(&self) {
        let gate = self.gate.0.lock().unwrap();
        let (_gate, late) = self.gate.1.wait_timeout_while(gate, WAIT, |gate| gate.waiting == 0).unwrap();
        assert!(!late.timed_out(), "no commit came");
    }
}

impl Kv for Gated {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.inner.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut gate = self.gate.0.lock().unwrap();
        gate.waiting += 1;
        self.gate.1.notify_all();
        let (mut gate, late) = self.gate.1.wait_timeout_while(gate, WAIT, |gate| gate.is_shut).unwrap();
        assert!(!late.timed_out(), "the gate stays shut");
        gate.waiting -= 1;
        drop(gate);
        self.inner.commit(batch)
    }
}

/// Results of the transactions, in the order of their answers.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<Told>>>);

type Told = (u8, Result<(), Refusal>);

impl Answers {
    /// Decides a transaction that sets its key to its number, and notes its answer.
    fn set(&self, db: &Db, n: u8) -> Storer {
        self.decide(db, n, move |tx| {
            tx.put(vec![n], vec![n]);
            Ok(())
        })
    }

    fn decide(&self, db: &Db, n: u8, work: impl FnOnce(&mut Tx) -> Result<(), Refusal>) -> Storer {
        let all = Arc::clone(&self.0);
        db.decide(work, move |result| all.lock().unwrap().push((n, result)))
    }

    /// The transactions that were answered, each with true if it was carried out.
    fn told(&self) -> Vec<(u8, bool)> {
        self.0.lock().unwrap().iter().map(|(n, result)| (*n, result.is_ok())).collect()
    }

    fn why(&self, n: u8) -> String {
        let all = self.0.lock().unwrap();
        let (_, result) = all.iter().find(|(one, _)| *one == n).expect("it was answered");
        result.as_ref().expect_err("it was refused").to_string()
    }
}

fn over(kv: &MemoryKv) -> Db {
    Db::new(Arc::new(kv.clone()))
}

fn has(db: &Db, n: u8) -> bool {
    db.read(|tx| Ok(tx.get(&[n])?.is_some())).unwrap()
}

fn store(db: &Db) {
    while db.store_step() {}
}

#[test]
fn many_become_durable_in_one_commit_and_are_answered_in_their_order() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    assert_eq!(answers.set(&db, 1), Storer::Caller);
    for n in 2..=100 {
        assert_eq!(answers.set(&db, n), Storer::Other, "one stores");
    }
    assert!(answers.told().is_empty() && kv.commits() == 0);
    assert!(db.store_step());
    assert_eq!(kv.commits(), 1);
    assert!(answers.told().is_empty(), "stored, and nobody knows it yet");
    store(&db);
    assert_eq!(answers.told(), (1..=100).map(|n| (n, true)).collect::<Vec<_>>());
    assert_eq!(kv.commits(), 1);
    assert!((1..=100).all(|n| has(&db, n)));
    // The storer has ended: the next caller stores itself.
    assert_eq!(answers.set(&db, 101), Storer::Caller);
    store(&db);
    assert_eq!(kv.commits(), 2);
}

#[test]
fn each_is_decided_on_all_before_it_and_readers_see_what_is_durable() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    let add = |n| {
        answers.decide(&db, n, |tx| {
            let sum = tx.get(b"sum")?.map_or(0, |value| value[0]);
            tx.put(b"sum".to_vec(), vec![sum + 1]);
            Ok(())
        })
    };
    let sum = || db.read(|tx| Ok(tx.get(b"sum")?.map_or(0, |value| value[0]))).unwrap();
    let _ = (add(1), add(2));
    assert_eq!(sum(), 0);
    assert!(db.store_step());
    // These transactions lie over the stored state and over each other.
    let _ = (add(3), add(4));
    assert_eq!(sum(), 2);
    store(&db);
    assert_eq!((sum(), kv.commits()), (4, 2));
    assert_eq!(answers.told(), [(1, true), (2, true), (3, true), (4, true)]);
}

#[test]
fn layers_hold_one_over_the_other_in_ranges_too() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    db.write(|tx| {
        (1..=6).for_each(|n| tx.put(vec![n], vec![0]));
        Ok(())
    })
    .unwrap();
    let _ = answers.decide(&db, 1, |tx| {
        tx.delete(vec![1]);
        tx.put(vec![2], vec![1]);
        tx.delete(vec![3]);
        Ok(())
    });
    assert!(db.store_step());
    let _ = answers.decide(&db, 2, |tx| {
        tx.put(vec![3], vec![2]);
        tx.delete(vec![4]);
        tx.put(vec![9], vec![2]);
        Ok(())
    });
    let _ = answers.decide(&db, 3, |tx| {
        tx.delete(vec![2]);
        tx.put(vec![2], vec![3]);
        tx.delete(vec![6]);
        let rows = |from: u8, to: u8, limit| -> Vec<(u8, u8)> {
            let rows = tx.scan(&[from], &[to], limit).unwrap();
            rows.into_iter().map(|(key, value)| (key[0], value[0])).collect()
        };
        assert_eq!(rows(0, 255, 9), [(2, 3), (3, 2), (5, 0), (9, 2)]);
        assert_eq!(rows(0, 255, 2), [(2, 3), (3, 2)]);
        assert_eq!(rows(3, 9, 9), [(3, 2), (5, 0)]);
        assert_eq!((rows(5, 5, 9), rows(9, 1, 9)), (vec![], vec![]));
        assert_eq!([tx.get(&[1])?, tx.get(&[4])?, tx.get(&[6])?], [None, None, None]);
        Ok(())
    });
    store(&db);
    assert!(answers.told().iter().all(|(_, done)| *done) && answers.told().len() == 3);
}

#[test]
fn who_changed_nothing_or_was_refused_waits_for_what_it_has_seen() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    let look = |n| answers.decide(&db, n, |_| Ok(()));
    let refuse = |n| {
        answers.decide(&db, n, |tx| {
            tx.put(b"never".to_vec(), vec![]);
            Err(Refusal::new(Reason::Exists, "it exists"))
        })
    };
    assert_eq!((look(1), refuse(2)), (Storer::Other, Storer::Other), "nothing is on its way");
    assert_eq!(answers.told(), [(1, true), (2, false)]);
    let _ = answers.set(&db, 3);
    assert_eq!((look(4), refuse(5)), (Storer::Other, Storer::Other));
    assert!(db.store_step());
    assert_eq!((look(6), refuse(7)), (Storer::Other, Storer::Other), "its commit is not known to be over");
    assert_eq!(answers.told().len(), 2);
    store(&db);
    assert_eq!(answers.told()[2..], [(3, true), (4, true), (5, false), (6, true), (7, false)]);
    assert!(answers.why(7).contains("it exists"));
    assert!(!db.read(|tx| Ok(tx.get(b"never")?.is_some())).unwrap());
    assert_eq!(kv.commits(), 1);
    // The changes that they have read are lost, so their answers are refused too.
    kv.fail_once_after(0);
    let _ = (answers.set(&db, 8), look(9), refuse(10));
    store(&db);
    assert_eq!(answers.told()[7..], [(8, false), (9, false), (10, false)]);
    assert!(answers.why(10).contains("told to fail"), "{}", answers.why(10));
}

#[test]
fn a_commit_that_fails_takes_with_it_all_that_was_decided_on_top() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    db.write(|tx| {
        tx.put(vec![0], vec![0]);
        Ok(())
    })
    .unwrap();
    kv.fail_once_after(0);
    let _ = (answers.set(&db, 1), answers.set(&db, 2));
    assert!(db.store_step());
    let _ = answers.decide(&db, 3, |tx| {
        assert!(tx.get(&[1])?.is_some(), "it is decided on top");
        tx.put(vec![3], vec![]);
        Ok(())
    });
    assert!(answers.told().is_empty());
    store(&db);
    assert_eq!(answers.told(), [(1, false), (2, false), (3, false)]);
    assert!(answers.why(1).contains("told to fail"), "{}", answers.why(1));
    assert!(answers.why(3).contains("nothing was changed") && answers.why(3).contains("told to fail"));
    assert_eq!((0..4).map(|n| has(&db, n)).collect::<Vec<_>>(), [true, false, false, false]);
    // There is room again.
    let storer = answers.decide(&db, 4, |tx| {
        assert!(tx.get(&[1])?.is_none() && tx.get(&[3])?.is_none(), "nothing of it is left");
        tx.put(vec![4], vec![]);
        Ok(())
    });
    assert_eq!(storer, Storer::Caller);
    store(&db);
    assert!(has(&db, 4) && answers.told()[3] == (4, true));
}

#[test]
fn while_a_commit_waits_for_the_disk_others_are_decided_and_nobody_is_answered() {
    let kv = Gated::default();
    let db = Db::new(Arc::new(kv.clone()));
    kv.shut();
    let (tell, told) = mpsc::channel();
    let set = |n: u8| {
        let db = db.clone();
        let tell = tell.clone();
        std::thread::spawn(move || {
            let done = db.write(|tx| {
                tx.put(vec![n], vec![]);
                Ok(())
            });
            tell.send(done.is_ok()).unwrap();
        })
    };
    let mut threads = vec![set(0)];
    kv.reached();
    threads.extend((1..50).map(set));
    let until = std::time::Instant::now() + WAIT;
    while db.gathered() < 49 {
        assert!(std::time::Instant::now() < until, "they are not decided");
        std::thread::yield_now();
    }
    assert!(!has(&db, 0) && !has(&db, 49), "a reader does not wait, and sees nothing of it");
    assert!(told.try_recv().is_err(), "nobody was answered");
    kv.open();
    for _ in 0..50 {
        assert!(told.recv_timeout(WAIT).expect("answered"));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(kv.inner.commits(), 2, "fifty in two");
    assert!((0..50).all(|n| has(&db, n)));
}

#[test]
fn more_than_the_bound_is_refused_at_once() {
    let kv = MemoryKv::new();
    let answers = Answers::default();
    let db = over(&kv);
    for _ in 0..WAITING_MAX {
        let _ = answers.set(&db, 1);
    }
    assert_eq!(answers.set(&db, 2), Storer::Other);
    assert_eq!(answers.told(), [(2, false)]);
    assert!(answers.why(2).contains("nothing was changed"));
    store(&db);
    assert_eq!((kv.commits(), has(&db, 2)), (1, false));
}

#[test]
fn a_storer_that_panics_leaves_nobody_waiting() {
    let kv = MemoryKv::new();
    let db = over(&kv);
    let was_refused = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&was_refused);
    let put = |n: u8| {
        move |tx: &mut Tx| {
            tx.put(vec![n], vec![]);
            Ok(())
        }
    };
    let _ = db.decide(put(1), |_| panic!("as told"));
    assert!(db.store_step());
    let _ = db.decide(put(2), move |result| note.store(result.is_err(), Ordering::Release));
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.store_step()));
    assert!(broken.is_err() && was_refused.load(Ordering::Acquire));
    assert!(has(&db, 1) && !has(&db, 2));
    db.write(put(3)).unwrap();
    assert!(has(&db, 3) && !has(&db, 2));
}
