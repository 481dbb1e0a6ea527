//! Advisory locks of programs, `fcntl` and `flock`: the manager holds them, so that they hold between mounts.
//!
//! Before a lock is released, all written bytes are with the drives and the manager has the file's size; and
//! when a lock is granted, nothing older is kept of the file. So programs that lock see each other's bytes.
//!
//! The mount remembers its locks, to claim them when the manager has forgotten them or did not hear from the
//! mount. If it cannot claim them, all are lost: the handles by which they were taken give errors from then
//! on, as their programs rely on locks that no longer exist. Bytes written by then that are not with the
//! drives are dropped: the manager ended the file's lease here before it gave the lock to another program,
//! and they must not come after the bytes that that program writes.
//!
//! `fuser` does not say which locks are `flock`'s. They are locks of the whole file, as over NFS.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use braid_layout::{FileId, Ranges, Span};
use braid_wire::control::{Lock, LockHow, LockKind, LockState, Locked};
use fuser::Errno;
use tokio::sync::{Notify, OwnedMutexGuard, RwLock};
use tokio::time::{Instant, sleep, timeout};

use crate::context::Context;
use crate::errors::errno;
use crate::files::inode::Inode;
use crate::files::inodes::OpenFile;
use crate::files::write_back::Outcome;
use crate::kernel_side::interrupts::Waiter;
use crate::shared::Shared;

/// Retry interval for a lock that others hold: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Timeout of a request, of claims, and of a wait of a program whose signals cannot be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The locks of a mount.
pub(crate) struct Locks {
    state: Mutex<State>,
    /// Notified when a lock was released here.
    released: Notify,
    /// Held exclusively while locks are claimed.
    claiming: RwLock<()>,
}

struct State {
    session: u64,
    order: u64,
    held: BTreeMap<(FileId, u64), Held>,
}

/// Locks of a program on a file.
#[derive(Default)]
struct Held {
    pid: u32,
    ranges: Ranges<LockKind>,
    by: Vec<Weak<OpenFile>>,
}

/// A lock that a program asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) owner: u64,
    pub(crate) pid: u32,
    pub(crate) span: Span,
    pub(crate) kind: Option<LockKind>,
}

impl Locks {
    /// Locks of a new mount. `session` is a random number, the first session's.
    pub(crate) fn new(session: u64) -> Locks {
        let state = State { session, order: 0, held: BTreeMap::new() };
        Locks { state: Mutex::new(state), released: Notify::new(), claiming: RwLock::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds_any(&self, file: FileId, owner: u64, span: Span) -> bool {
        self.lock().held.get(&(file, owner)).is_some_and(|held| held.ranges.meeting(span).next().is_some())
    }

    /// Returns true if an exclusive lock lets the owner write there.
    fn holds_exclusive(&self, file: FileId, owner: u64, span: Span) -> bool {
        let state = self.lock();
        let mut held = state.held.get(&(file, owner)).into_iter().flat_map(|held| held.ranges.meeting(span));
        held.any(|(_, kind)| kind == LockKind::Exclusive)
    }

    /// Returns true if any program here has locks of a file.
    pub(crate) fn are_any(&self, file: FileId) -> bool {
        self.lock().held.range((file, 0)..=(file, u64::MAX)).next().is_some()
    }

    /// Loses all locks of a session. Later locks are taken in a new one.
    fn lose(&self, session: u64) {
        let held = {
            let mut state = self.lock();
            if state.session != session {
                return; // it was lost before
            }
            state.session = state.session.wrapping_add(1).max(1);
            std::mem::take(&mut state.held)
        };
        for ((file, _), held) in held {
            tracing::error!(%file, pid = held.pid, "its locks are lost: others may have been given them");
            for open in held.by.iter().filter_map(Weak::upgrade) {
                open.lost_locks.store(true, Ordering::Release);
                open.inode.forfeit();
            }
        }
    }
}

impl State {
    fn request(&mut self, file: FileId, how: LockHow, wanted: Wanted) -> Lock {
        self.order += 1;
        let Wanted { owner, pid, span, kind } = wanted;
        Lock {
            session: self.session,
            order: self.order,
            file,
            owner,
            pid,
            how,
            kind,
            from: span.from,
            to: span.to,
        }
    }

    fn set(&mut self, file: FileId, wanted: Wanted, by: Option<&Arc<OpenFile>>) {
        let held = self.held.entry((file, wanted.owner)).or_default();
        if wanted.kind.is_some() {
            held.pid = wanted.pid;
        }
        held.ranges.set(wanted.span, wanted.kind);
        held.by.retain(|one| one.strong_count() > 0);
        if let Some(by) = by
            && !held.by.iter().any(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(by)))
        {
            held.by.push(Arc::downgrade(by));
        }
        if held.ranges.is_empty() {
            self.held.remove(&(file, wanted.owner));
        }
    }

    /// The locks to claim; the last claim says that these are all, even if there are none. It is made for any
    /// file: otherwise the manager would take this mount for one that is not heard, and end its leases for
    /// the locks of others.
    fn claims(&self, any: FileId) -> Vec<(FileId, Wanted)> {
        let is_all = Wanted { owner: 0, pid: 0, span: Span::ALL, kind: None };
        self.held_in(..).chain([(any, is_all)]).collect()
    }

    fn held_in(&self, within: impl RangeBounds<(FileId, u64)>) -> impl Iterator<Item = (FileId, Wanted)> {
        self.held.range(within).flat_map(|(&(file, owner), held)| {
            let wanted = move |(span, kind)| Wanted { owner, pid: held.pid, span, kind: Some(kind) };
            held.ranges.iter().map(move |range| (file, wanted(range)))
        })
    }

    /// The parts of a span that are locked, and those that are not.
    fn pieces(&self, file: FileId, wanted: Wanted) -> Vec<Wanted> {
        let mut pieces = Ranges::default();
        pieces.set(wanted.span, Some(None));
        let held = self.held.get(&(file, wanted.owner));
        for (at, kind) in held.into_iter().flat_map(|held| held.ranges.meeting(wanted.span)) {
            let within = Span { from: at.from.max(wanted.span.from), to: at.to.min(wanted.span.to) };
            pieces.set(within, Some(Some(kind)));
        }
        pieces.iter().map(|(span, kind)| Wanted { span, kind, ..wanted }).collect()
    }
}

impl Shared {
    /// The lock that conflicts with `wanted`, if any: its range, its kind, and the process id if that is of
    /// this mount (otherwise 0).
    pub(crate) async fn lock_in_the_way(
        &self,
        open: &OpenFile,
        wanted: Wanted,
    ) -> Outcome<Option<(Span, LockKind, u32)>> {
        let _no_claims = self.locks.claiming.read().await;
        let request = self.locks.lock().request(open.inode.file, LockHow::Test, wanted);
        let session = request.session;
        let locked = self.ask_lock(request).await?;
        Ok(locked.held.map(|held| {
            let pid = if held.session == session { held.pid } else { 0 };
            (Span { from: held.from, to: held.to }, held.kind, pid)
        }))
    }

    /// Locks, or releases. With `wait`, waits until no other program holds the lock, or the waiter has a
    /// signal.
    pub(crate) async fn lock(
        self: &Arc<Shared>,
        open: &Arc<OpenFile>,
        wanted: Wanted,
        wait: Option<Waiter>,
    ) -> Outcome<()> {
        if wanted.kind.is_none() {
            let written = self.write_out(&open.inode, wanted).await;
            self.unlock(&open.inode, wanted).await?;
            return written.and_then(|()| open.not_lost());
        }
        open.keeps_locks()?;
        if self.locks.holds_any(open.inode.file, wanted.owner, wanted.span) {
            // The lock may be shared from now on, with programs that are to see the written bytes.
            open.inode.sync().await?;
        }
        let until = Instant::now() + PATIENCE;
        let mut waiter = wait;
        let mut again = AGAIN.0;
        loop {
            let released = self.locks.released.notified();
            let mut released = std::pin::pin!(released);
            released.as_mut().enable();
            match self.try_lock(open, wanted).await? {
                LockState::Granted => break,
                LockState::Held => match &mut waiter {
                    None => return Err(Errno::EAGAIN),
                    Some(waiter) if waiter.is_known() => {}
                    Some(_) if Instant::now() < until => {}
                    Some(_) => return Err(Errno::ENOLCK),
                },
                LockState::Later if Instant::now() < until => {}
                LockState::Later => return Err(Errno::ENOLCK),
                LockState::Lost | LockState::Overtaken => continue,
            }
            if waiter.as_mut().is_some_and(Waiter::has_signal) {
                return Err(Errno::EINTR);
            }
            let _ = timeout(again, released).await;
            again = (again * 2).min(AGAIN.1);
        }
        let refreshed = open.inode.refresh().await;
        if refreshed.is_err() {
            self.unlock(&open.inode, Wanted { kind: None, ..wanted }).await?;
        }
        // The lock may have been lost meanwhile.
        refreshed.and_then(|()| open.keeps_locks())
    }

    /// Asks for a lock once.
    async fn try_lock(self: &Arc<Shared>, open: &Arc<OpenFile>, wanted: Wanted) -> Outcome<LockState> {
        let inode = &open.inode;
        let turn = turn(inode).await?;
        let no_claims = self.locks.claiming.read().await;
        let request = self.locks.lock().request(inode.file, LockHow::Set, wanted);
        let session = request.session;
        match self.ask_lock(request).await.map(|locked| locked.state) {
            Ok(LockState::Granted) => {
                let mut state = self.locks.lock();
                if state.session != session {
                    return Ok(LockState::Lost); // meanwhile
                }
                state.set(inode.file, wanted, Some(open));
                Ok(LockState::Granted)
            }
            Ok(LockState::Lost) => {
                self.locks.lose(session);
                Ok(LockState::Lost)
            }
            Ok(state) => Ok(state),
            Err(error) => {
                // The lock may have been set.
                drop(no_claims);
                self.settle(inode, wanted, turn);
                Err(error)
            }
        }
    }

    /// Writes all bytes before a lock is released: the next holder is to see them. Bytes that cannot be
    /// written are dropped if they may have been written under the lock: they must not come after the next
    /// holder's. Nor may failed writes that are still on their way: the manager fences a mount that gave its
    /// lease up so, before it grants the next lock.
    async fn write_out(&self, inode: &Arc<Inode>, wanted: Wanted) -> Outcome<()> {
        if !self.locks.holds_any(inode.file, wanted.owner, wanted.span) {
            return Ok(());
        }
        let written = inode.sync().await;
        if written.is_err() && self.locks.holds_exclusive(inode.file, wanted.owner, wanted.span) {
            inode.forfeit();
            inode.give_up_broken().await;
        }
        written
    }

    async fn unlock(self: &Arc<Shared>, inode: &Arc<Inode>, wanted: Wanted) -> Outcome<()> {
        if !self.locks.holds_any(inode.file, wanted.owner, wanted.span) {
            return Ok(());
        }
        let turn = turn(inode).await?;
        let no_claims = self.locks.claiming.read().await;
        let request = {
            let mut state = self.locks.lock();
            state.set(inode.file, wanted, None);
            state.request(inode.file, LockHow::Set, wanted)
        };
        let session = request.session;
        let asked = self.ask_lock(request).await;
        drop(no_claims);
        match asked {
            Ok(Locked { state: LockState::Overtaken, .. }) | Err(_) => self.settle(inode, wanted, turn),
            Ok(Locked { state: LockState::Lost, .. }) => self.locks.lose(session),
            Ok(_) => {}
        }
        self.locks.released.notify_waiters();
        Ok(())
    }

    /// Releases the locks that were taken by a handle that is closed for good, and by no other open handle.
    pub(crate) async fn unlock_by(self: &Arc<Shared>, open: &Arc<OpenFile>) {
        let file = open.inode.file;
        let owners: Vec<u64> = {
            let state = self.locks.lock();
            let of_file = state.held.range((file, 0)..=(file, u64::MAX));
            let is_last = |held: &Held| {
                let others = held.by.iter().filter(|one| !std::ptr::eq(one.as_ptr(), Arc::as_ptr(open)));
                others.filter(|one| one.strong_count() > 0).count() == 0
            };
            of_file.filter(|(_, held)| is_last(held)).map(|((_, owner), _)| *owner).collect()
        };
        for owner in owners {
            self.unlock_all(&open.inode, owner).await;
        }
    }

    /// Releases all locks of a program on a file.
    pub(crate) async fn unlock_all(self: &Arc<Shared>, inode: &Arc<Inode>, owner: u64) {
        let wanted = Wanted { owner, pid: 0, span: Span::ALL, kind: None };
        if let Err(error) = self.write_out(inode, wanted).await {
            // The next fsync or close tells it.
            tracing::warn!(file = %inode.file, errno = i32::from(error), "released before it was written");
        }
        if let Err(error) = self.unlock(inode, wanted).await {
            tracing::warn!(file = %inode.file, errno = i32::from(error), "its locks are released later");
            let shared = Arc::clone(self);
            let inode = Arc::clone(inode);
            self.context.runtime.spawn(async move {
                let turn = Arc::clone(&inode.locking).lock_owned().await;
                shared.locks.lock().set(inode.file, wanted, None);
                shared.settle(&inode, wanted, turn);
            });
        }
    }

    /// Makes the manager's locks match those held here, after a request whose outcome is not known. Other
    /// requests for locks of this file wait for it.
    fn settle(self: &Arc<Shared>, inode: &Arc<Inode>, wanted: Wanted, turn: OwnedMutexGuard<()>) {
        let shared = Arc::downgrade(self);
        let inode = Arc::clone(inode);
        self.context.runtime.spawn(async move {
            let _turn = turn;
            while let Some(shared) = shared.upgrade() {
                let no_claims = shared.locks.claiming.read().await;
                let mut is_done = true;
                let pieces = shared.locks.lock().pieces(inode.file, wanted);
                for piece in pieces {
                    let request = shared.locks.lock().request(inode.file, LockHow::Set, piece);
                    let session = request.session;
                    match shared.ask_lock(request).await.map(|locked| locked.state) {
                        Ok(LockState::Granted) => {}
                        Ok(LockState::Held | LockState::Lost) => shared.locks.lose(session),
                        Ok(LockState::Later | LockState::Overtaken) | Err(_) => is_done = false,
                    }
                }
                drop(no_claims);
                if is_done {
                    shared.locks.released.notify_waiters();
                    return;
                }
                sleep(PAUSE).await;
            }
        });
    }

    async fn ask_lock(&self, request: Lock) -> Outcome<Locked> {
        self.context.ask_lock(request).await
    }
}

impl Context {
    /// Claims all locks, as the manager may have forgotten them, or given them to others.
    pub(crate) async fn claim_locks(&self) {
        let _claims = self.locks.claiming.write().await;
        let claims = self.locks.lock().claims(self.root);
        self.claim(claims).await;
    }

    /// Finds out whether the locks on this file are still held: a session loses all of its locks or none, so
    /// one is claimed.
    pub(crate) async fn claim_one_of(&self, file: FileId) {
        let _claims = self.locks.claiming.write().await;
        let one = self.locks.lock().held_in((file, 0)..=(file, u64::MAX)).next();
        self.claim(one.into_iter().collect()).await;
    }

    async fn claim(&self, claims: Vec<(FileId, Wanted)>) {
        let until = Instant::now() + PATIENCE;
        for (file, wanted) in claims {
            loop {
                let request = self.locks.lock().request(file, LockHow::Claim, wanted);
                let session = request.session;
                match self.ask_lock(request).await.map(|locked| locked.state) {
                    Ok(LockState::Granted) => break,
                    Ok(LockState::Held | LockState::Lost) => return self.locks.lose(session),
                    _ if Instant::now() >= until => return self.locks.lose(session),
                    Ok(LockState::Later | LockState::Overtaken) | Err(_) => sleep(PAUSE).await,
                }
            }
        }
    }

    async fn ask_lock(&self, request: Lock) -> Outcome<Locked> {
        self.client.lock(request).await.map_err(|error| {
            tracing::warn!(%error, "a lock could not be asked for");
            errno(&error)
        })
    }
}

/// Waits for the turn to ask for locks of the file.
async fn turn(inode: &Inode) -> Outcome<OwnedMutexGuard<()>> {
    timeout(PATIENCE, Arc::clone(&inode.locking).lock_owned()).await.map_err(|_| Errno::ENOLCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_claimed_and_that_it_is_all_is_said_at_last() {
        let root = FileId(1);
        let file = FileId(7);
        let mut state = State { session: 5, order: 0, held: BTreeMap::new() };
        let kinds = |state: &State| -> Vec<(FileId, Option<LockKind>)> {
            state.claims(root).into_iter().map(|(file, wanted)| (file, wanted.kind)).collect()
        };
        assert_eq!(kinds(&state), [(root, None)]);
        let wanted = Wanted { owner: 2, pid: 3, span: Span::ALL, kind: Some(LockKind::Shared) };
        state.set(file, wanted, None);
        assert_eq!(kinds(&state), [(file, wanted.kind), (root, None)]);
    }
}
