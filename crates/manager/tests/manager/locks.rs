//! Advisory locks, and the leases of clients that wrote under them.

use std::time::Duration;

use braid_layout::{Column, FileId, HolderId, LockSession, OperationNumber};
use braid_wire::control::*;

use crate::fake::{Client, Cluster, no_shape, open, opened, release};

const ONE: HolderId = HolderId(7);
const OTHER: HolderId = HolderId(8);

/// A client that asks for news all the time, as one that locks must.
struct Locker {
    client: Client,
    session: LockSession,
    order: u64,
}

impl Locker {
    async fn new(cluster: &Cluster) -> Locker {
        let client = cluster.manager.client().await;
        let session = LockSession(client.1.0);
        Locker { client, session, order: 0 }
    }

    /// Connects to a manager that was started anew, and goes on.
    async fn again(&mut self, cluster: &Cluster) {
        let session = cluster.manager.client().await.0;
        self.client.0 = session;
    }

    fn head(&mut self) -> RequestHead {
        RequestHead { operation: OperationNumber::NONE, ..self.client.operation() }
    }

    /// Asks again until the answer is not [`LockState::Later`], for at most 60 s.
    async fn lock(&mut self, file: FileId, how: LockHow, kind: Option<LockKind>) -> LockState {
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            assert!(tokio::time::Instant::now() < until, "it is not answered");
            self.order += 1;
            let order = self.order;
            let head = self.head();
            let open = Vec::new();
            let closed = Vec::new();
            let client = self.client.1;
            let watch =
                Watch { client, order, seen: 0, heeded: order, written: order, open, closed, wait_ms: 0 };
            self.client.ask_as(&head, watch).await.unwrap();
            let session = self.session;
            let from = 0;
            let to = 99;
            let lock = Lock { session, order, file, owner: 1, pid: 1, how, kind, from, to };
            match self.client.ask_as(&head, lock).await {
                Ok(ControlReply::Locked(Locked { state: LockState::Later, .. })) => {}
                Ok(ControlReply::Locked(locked)) => return locked.state,
                // The client was not heard in time, or a drive does not answer.
                Err(_) => {}
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn takes(&mut self, file: FileId) {
        assert_eq!(self.lock(file, LockHow::Set, Some(LockKind::Exclusive)).await, LockState::Granted);
    }

    /// Opens a file for writing, as this holder.
    async fn opens(&mut self, path: &str, holder: HolderId) -> Opened {
        let head = self.client.operation();
        let open = Open { holder, ..open(path, Access::Write, true) };
        opened(self.client.patient_as(&head, open).await.unwrap())
    }

    async fn renews(&mut self, file: &Opened, holder: HolderId) -> bool {
        let held = HeldLease { file: file.stat.file, lease: file.lease, holder };
        let head = self.head();
        match self.client.ask_as(&head, Renew { leases: vec![held] }).await {
            Ok(ControlReply::Renewed(renewed)) => renewed.lost.is_empty(),
            other => panic!("{other:?}"),
        }
    }
}

/// A write under a lock fails, and its writer gives its lease up before it releases the lock: writes still on
/// their way are refused before the next holder has the lock.
#[tokio::test]
async fn who_gave_up_its_lease_is_fenced_before_another_has_its_lock() {
    let cluster = Cluster::new(3, no_shape()).await;
    let mut one = Locker::new(&cluster).await;
    let mut other = Locker::new(&cluster).await;
    // Both have the file open already.
    let first = one.opens("f", ONE).await;
    let file = first.stat.file;
    one.takes(file).await;
    let joined = other.opens("f", OTHER).await;
    let object = joined.stat.segments[0].columns[0].object;
    let drive = cluster.of(&joined, 0).clone();
    drive.put(&joined, Column(0), &[]);
    drive.state().mute = true;
    let given_up = Release { holder: ONE, ..release(&joined, false) };
    one.client.done(given_up).await;
    assert_eq!(one.lock(file, LockHow::Set, None).await, LockState::Granted);
    let until_answered = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drive.state().mute = false;
    };
    tokio::join!(other.takes(file), until_answered);
    let known = drive.object(joined.stat.volume.0, object).expect("it has the column");
    assert!(known.g > joined.stat.g, "fenced by the time that it is granted: {:?}", known.g);
    assert!(other.renews(&joined, OTHER).await, "who goes on keeps its lease");
}

/// A client that claims nothing after a restart may still write the files that it had locked, so its leases
/// end before others lock the same files: also after another restart.
#[tokio::test]
async fn who_claims_no_locks_is_fenced_also_after_another_restart() {
    let mut cluster = Cluster::new(3, no_shape()).await;
    let mut silent = Locker::new(&cluster).await;
    let mut other = Locker::new(&cluster).await;
    // A third client has locked a file, and holds no lock any more.
    let mut idle = Locker::new(&cluster).await;
    let free = idle.opens("c", ONE).await;
    idle.takes(free.stat.file).await;
    assert_eq!(idle.lock(free.stat.file, LockHow::Set, None).await, LockState::Granted);
    let mut files = Vec::new();
    for path in ["a", "b"] {
        let file = silent.opens(path, ONE).await;
        silent.takes(file.stat.file).await;
        files.push(file);
    }
    for (round, taken) in files.iter().enumerate() {
        cluster = cluster.restart_manager().await;
        for locker in [&mut silent, &mut other, &mut idle] {
            locker.again(&cluster).await;
        }
        assert_eq!(idle.lock(FileId(1), LockHow::Claim, None).await, LockState::Granted);
        assert!(idle.renews(&free, ONE).await, "round {round}");
        for file in &files[..round] {
            let claimed = other.lock(file.stat.file, LockHow::Claim, Some(LockKind::Exclusive)).await;
            assert_eq!(claimed, LockState::Granted, "round {round}");
        }
        assert_eq!(other.lock(FileId(1), LockHow::Claim, None).await, LockState::Granted);
        // The silent client renews its leases, and is not heard otherwise.
        for file in &files[round..] {
            assert!(silent.renews(file, ONE).await, "round {round}");
        }
        other.takes(taken.stat.file).await;
        assert!(!silent.renews(taken, ONE).await, "round {round}: it may still write what it had locked");
        other.takes(free.stat.file).await;
        assert_eq!(other.lock(free.stat.file, LockHow::Set, None).await, LockState::Granted);
        assert!(idle.renews(&free, ONE).await, "round {round}: it has said that it holds nothing");
    }
    // The silent client is told so when it comes back, and begins anew.
    let file = files[0].stat.file;
    assert_eq!(other.lock(file, LockHow::Set, None).await, LockState::Granted);
    assert_eq!(silent.lock(file, LockHow::Claim, Some(LockKind::Exclusive)).await, LockState::Lost);
    silent.session = silent.session.next();
    silent.takes(file).await;
}
