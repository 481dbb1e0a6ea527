//! Changes of many clients that share commits, and their fate when the disk fails or the manager dies in the
//! middle.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use braid_layout::{ClientId, OperationNumber};
use braid_manager::Config;
use braid_manager::core::Core;
use braid_manager::sessions::session_slots::SessionSlots;
use braid_manager::start::start;
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::kv::{Batch, Kv, KvError, Snapshot};
use braid_meta::records::memory::{Disk, MemoryKv};
use braid_meta::rules::operations::{Operation, OperationResult};
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::volumes;
use braid_testing::eventually;
use braid_wire::control::{NamePlace, ShapeSpec};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinHandle;

use crate::fake::NEW_FILE;

/// Limit of every wait: far more than any wait takes.
const WAIT: Duration = Duration::from_secs(120);
const CLIENTS: u64 = 64;

/// A store that waits in its commits while its gate is shut.
#[derive(Clone, Default)]
struct Gated {
    kv: MemoryKv,
    gate: Arc<(Mutex<(bool, usize)>, Condvar)>,
}

impl Gated {
    fn set(&self, is_shut: bool) {
        self.gate.0.lock().unwrap().0 = is_shut;
        self.gate.1.notify_all();
    }

    fn waiting(&self) -> usize {
        self.gate.0.lock().unwrap().1
    }
}

impl Kv for Gated {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        self.kv.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        let mut gate = self.gate.0.lock().unwrap();
        gate.1 += 1;
        let (mut gate, late) = self.gate.1.wait_timeout_while(gate, WAIT, |gate| gate.0).unwrap();
        assert!(!late.timed_out(), "the gate stays shut");
        gate.1 -= 1;
        drop(gate);
        self.kv.commit(batch)
    }
}

/// A manager over this store, without sessions or background, and with a volume.
async fn manager(kv: Arc<dyn Kv>) -> Arc<Core> {
    let core = start(kv, &Config::new("memory", ""), SessionSlots::of(4, 4)).await.unwrap();
    core.write(|_, tx| {
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
        volumes::create(tx, "main", shape, 0, 1)?;
        directories::make(tx, &NamePlace::of("main", "all"), &NEW_FILE, Parents::Required, 1).map(drop)
    })
    .await
    .unwrap();
    core
}

/// Starts all clients' operations: the first one's commit is held up, and the others are decided on top.
async fn made_in_two_groups(kv: &Gated, core: &Arc<Core>) -> Vec<JoinHandle<Result<(), Refusal>>> {
    kv.set(true);
    let mut made = vec![make(core, 0)];
    eventually("a commit is under way", || async { kv.waiting() == 1 }).await;
    made.extend((1..CLIENTS).map(|n| make(core, n)));
    let gathered = usize::try_from(CLIENTS).unwrap() - 1;
    eventually("the others are decided", || async { core.db.gathered() == gathered }).await;
    made
}

/// Starts one client's operation: it makes two directories, one in the other, and a row of its own.
fn make(core: &Arc<Core>, n: u64) -> JoinHandle<Result<(), Refusal>> {
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let operation = Operation {
            client: ClientId(n + 1),
            number: OperationNumber(1),
            settled_below: OperationNumber(1),
            request: 7,
        };
        let work = move |_: &Core, tx: &mut braid_meta::records::tx::Tx| {
            let at = NamePlace::of("main", format!("all/{n}/in"));
            directories::make(tx, &at, &NEW_FILE, Parents::Made, 1)?;
            Ok((OperationResult::DONE, ()))
        };
        core.once(operation, work).await.map(drop)
    })
}

fn is_there(db: &Db, path: &str) -> bool {
    match db.read(|tx| directories::resolve(tx, &NamePlace::of("main", path))) {
        Ok(_) => true,
        Err(refusal) => {
            assert_eq!(refusal.reason, Reason::NotFound, "{refusal}");
            false
        }
    }
}

/// Returns true if the operation's two directories are there. Both must be, or none.
fn is_whole(db: &Db, n: u64) -> bool {
    let [outer, inner] = [format!("all/{n}"), format!("all/{n}/in")].map(|path| is_there(db, &path));
    assert_eq!(outer, inner, "half of {n}");
    inner
}

fn is_sound(db: &Db) {
    let violations = check(db).unwrap();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_change_something_at_once_share_a_commit() {
    let kv = Gated::default();
    let core = manager(Arc::new(kv.clone())).await;
    let before = (kv.kv.commits(), core.mark().changes);
    let made = made_in_two_groups(&kv, &core).await;
    assert!(made.iter().all(|one| !one.is_finished()), "nobody is answered");
    // A reader does not wait for the disk, and sees nothing that could be lost.
    assert!(!core.read(|core, _| Ok(is_there(&core.db, "all/0"))).await.unwrap());
    assert_eq!(core.mark().changes, before.1, "nor are drives told of it");
    kv.set(false);
    for (n, one) in (0..).zip(made) {
        one.await.unwrap().unwrap();
        assert!(is_whole(&core.db, n), "who was answered sees what it did");
    }
    assert_eq!(kv.kv.commits() - before.0, 2);
    assert_eq!(core.mark().changes - before.1, CLIENTS);
    is_sound(&core.db);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_disk_fails_in_the_middle_all_is_whole_and_goes_on_when_there_is_room() {
    for disk in [Disk::Full, Disk::Unsure] {
        let kv = Gated::default();
        let core = manager(Arc::new(kv.clone())).await;
        let before = core.mark().changes;
        let made = made_in_two_groups(&kv, &core).await;
        kv.kv.set_disk(disk);
        kv.set(false);
        for (n, one) in (0..).zip(made) {
            let refusal = one.await.unwrap().unwrap_err();
            let told = if disk == Disk::Full { "no room" } else { "not known" };
            let reason = if disk == Disk::Full { Reason::ManagerFull } else { Reason::Medium };
            assert!(refusal.reason == reason && refusal.detail.contains(told), "{refusal}");
            assert_eq!(refusal.detail.contains("nothing was changed"), n > 0, "{refusal}");
            // Operations in the failed commit may be there or not; those on top of it are not there.
            assert_eq!(is_whole(&core.db, n), n == 0 && disk == Disk::Unsure);
        }
        assert_eq!((core.mark().changes, core.db.failures()), (before, 1));
        is_sound(&core.db);
        kv.kv.set_disk(Disk::Sound);
        // The clients ask again, under the same numbers: each operation is carried out once.
        for n in 0..CLIENTS {
            make(&core, n).await.unwrap().unwrap();
            assert!(is_whole(&core.db, n));
        }
        is_sound(&core.db);
        // Operations that were stored all the same count as changes.
        assert_eq!(core.mark().changes - before, CLIENTS);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_may_die_in_the_middle_of_a_group() {
    // Before the first commit, between two, after the last.
    for commits in 0..=2 {
        let kv = Gated::default();
        let core = manager(Arc::new(kv.clone())).await;
        let made = made_in_two_groups(&kv, &core).await;
        kv.kv.die_after(commits);
        kv.set(false);
        let mut answered = Vec::new();
        for one in made {
            answered.push(one.await.unwrap().is_ok());
        }
        assert_eq!(
            answered.iter().filter(|done| **done).count(),
            [0, 1, 64][usize::try_from(commits).unwrap()]
        );
        drop(core);
        let config = Config::new("memory", "");
        let next = start(Arc::new(kv.kv.restarted()), &config, SessionSlots::of(4, 4)).await.unwrap();
        for (n, was_answered) in (0..).zip(answered) {
            assert_eq!(is_whole(&next.db, n), was_answered, "{n} after {commits} commits");
        }
        is_sound(&next.db);
    }
}
