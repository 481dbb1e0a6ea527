//! The table of a mount's advisory locks.

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use braid_layout::{ClientId, FileId, LockSession, Ranges, Span};
use braid_wire::control::{Lock, LockHow, LockKind};
use tokio::sync::{Notify, RwLock};

use crate::files::inodes::OpenFile;

/// The locks of a mount.
pub(crate) struct Locks {
    pub(crate) state: Mutex<SessionLocks>,
    /// Notified when a lock was released here.
    pub(crate) released: Notify,
    /// Held exclusively while locks are claimed.
    pub(crate) claiming: RwLock<()>,
}

pub(crate) struct SessionLocks {
    pub(crate) session: LockSession,
    pub(crate) order: u64,
    pub(crate) held: BTreeMap<(FileId, u64), ProgramLocks>,
}

/// Locks of a program on a file.
#[derive(Default)]
pub(crate) struct ProgramLocks {
    pub(crate) pid: u32,
    pub(crate) ranges: Ranges<LockKind>,
    pub(crate) by: Vec<Weak<OpenFile>>,
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
    /// Locks of a new mount. The first session has the number of the mount's client, which is random.
    pub(crate) fn new(client: ClientId) -> Locks {
        let state = SessionLocks { session: LockSession(client.0), order: 0, held: BTreeMap::new() };
        Locks { state: Mutex::new(state), released: Notify::new(), claiming: RwLock::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SessionLocks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds_any(&self, file: FileId, owner: u64, span: Span) -> bool {
        self.lock().held.get(&(file, owner)).is_some_and(|held| held.ranges.meeting(span).next().is_some())
    }

    /// Returns true if an exclusive lock lets the owner write there.
    pub(crate) fn holds_exclusive(&self, file: FileId, owner: u64, span: Span) -> bool {
        let state = self.lock();
        let mut held = state.held.get(&(file, owner)).into_iter().flat_map(|held| held.ranges.meeting(span));
        held.any(|(_, kind)| kind == LockKind::Exclusive)
    }

    /// Returns true if any program here has locks of a file.
    pub(crate) fn are_any(&self, file: FileId) -> bool {
        self.lock().held.range((file, 0)..=(file, u64::MAX)).next().is_some()
    }

    /// Loses all locks of a session. Later locks are taken in a new one.
    pub(crate) fn lose(&self, session: LockSession) {
        let held = {
            let mut state = self.lock();
            if state.session != session {
                return; // it was lost before
            }
            state.session = state.session.next();
            std::mem::take(&mut state.held)
        };
        for ((file, _), held) in held {
            tracing::error!(%file, pid = held.pid, "locks on the file are lost: another program may hold them now");
            for open in held.by.iter().filter_map(Weak::upgrade) {
                open.lost_locks.store(true, Ordering::Release);
                open.inode.forfeit();
            }
        }
    }
}

impl SessionLocks {
    pub(crate) fn request(&mut self, file: FileId, how: LockHow, wanted: Wanted) -> Lock {
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

    pub(crate) fn set(&mut self, file: FileId, wanted: Wanted, by: Option<&Arc<OpenFile>>) {
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
    pub(crate) fn claims(&self, any: FileId) -> Vec<(FileId, Wanted)> {
        let is_all = Wanted { owner: 0, pid: 0, span: Span::ALL, kind: None };
        self.held_in(..).chain([(any, is_all)]).collect()
    }

    pub(crate) fn held_in(
        &self,
        within: impl RangeBounds<(FileId, u64)>,
    ) -> impl Iterator<Item = (FileId, Wanted)> {
        self.held.range(within).flat_map(|(&(file, owner), held)| {
            let wanted = move |(span, kind)| Wanted { owner, pid: held.pid, span, kind: Some(kind) };
            held.ranges.iter().map(move |range| (file, wanted(range)))
        })
    }

    /// The parts of a span that are locked, and those that are not.
    pub(crate) fn pieces(&self, file: FileId, wanted: Wanted) -> Vec<Wanted> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_claimed_and_that_it_is_all_is_said_at_last() {
        let root = FileId(1);
        let file = FileId(7);
        let mut state = SessionLocks { session: LockSession(5), order: 0, held: BTreeMap::new() };
        let kinds = |state: &SessionLocks| -> Vec<(FileId, Option<LockKind>)> {
            state.claims(root).into_iter().map(|(file, wanted)| (file, wanted.kind)).collect()
        };
        assert_eq!(kinds(&state), [(root, None)]);
        let wanted = Wanted { owner: 2, pid: 3, span: Span::ALL, kind: Some(LockKind::Shared) };
        state.set(file, wanted, None);
        assert_eq!(kinds(&state), [(file, wanted.kind), (root, None)]);
    }
}
