//! The table of advisory locks, with the mutex that guards the beginnings and ends of sessions.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use braid_layout::{ClientId, LockSession};
use braid_meta::rules::locks::Locks;
use braid_meta::rules::pauses::Pauses;

/// The manager's state of locks in memory.
#[derive(Debug)]
pub(crate) struct Locking {
    locks: Mutex<Locks>,
    /// Held while sessions begin or end, in memory and in the state.
    pub(crate) alone: tokio::sync::Mutex<()>,
    /// Time when a client first watched since the start.
    first_watched_ms: OnceLock<u64>,
    pauses: Arc<Pauses>,
}

impl Locking {
    /// A table at a start. `sessions`: those that may claim their locks, each with its client.
    pub(crate) fn new(sessions: Vec<(LockSession, ClientId)>, pauses: Arc<Pauses>) -> Locking {
        let mut locks = Locks::default();
        locks.begin(sessions);
        let (alone, first_watched_ms) = Default::default();
        Locking { locks: Mutex::new(locks), alone, first_watched_ms, pauses }
    }

    pub(crate) fn watched(&self, now_ms: u64) {
        self.first_watched_ms.get_or_init(|| now_ms);
    }

    /// Time, in milliseconds, since a client first watched. It begins anew after a pause of the manager.
    pub(crate) fn watched_for(&self, now_ms: u64) -> u64 {
        let listening_ms = self.pauses.last().ended_ms;
        self.first_watched_ms.get().map_or(0, |first| now_ms.saturating_sub(listening_ms.max(*first)))
    }

    pub(crate) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
