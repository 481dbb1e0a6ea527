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

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{FileId, Span};
use braid_wire::control::{Lock, LockHow, LockKind, LockState, Locked};
use fuser::Errno;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};

use crate::context::Context;
use crate::errors::{Outcome, errno};
use crate::files::inode::Inode;
use crate::files::inodes::OpenFile;
use crate::files::lock_table::{ProgramLocks, Wanted};
use crate::kernel_side::interrupts::Waiter;
use crate::shared::Shared;

/// Retry interval for a lock that others hold: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// Timeout of a request, of claims, and of a wait of a program whose signals cannot be seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(500);

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
            let is_last = |held: &ProgramLocks| {
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
            tracing::warn!(file = %inode.file, errno = i32::from(error), "a lock is released, though bytes written under it could not be stored");
        }
        if let Err(error) = self.unlock(inode, wanted).await {
            tracing::warn!(file = %inode.file, errno = i32::from(error), "locks on the file could not be released: trying again later");
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
            tracing::warn!(%error, "the manager could not be asked for a lock");
            errno(&error)
        })
    }
}

/// Waits for the turn to ask for locks of the file.
async fn turn(inode: &Inode) -> Outcome<OwnedMutexGuard<()>> {
    timeout(PATIENCE, Arc::clone(&inode.locking).lock_owned()).await.map_err(|_| Errno::ENOLCK)
}
