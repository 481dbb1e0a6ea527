//! The state that reading ahead shares among a drive's connections: the streams, and who waits for what they
//! have under way.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::readahead::areas::Areas;
use crate::readahead::streams::{Bounds, ChunkId, Streams};

/// A read that waits for a chunk; dropped if it will not come in time.
pub(super) type Waiter = Box<dyn FnOnce() + Send>;

/// The streams and areas of a drive, and who waits for them.
pub(crate) struct Readahead {
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) streams: Streams,
    pub(super) areas: Areas,
    pub(super) waiters: BTreeMap<ChunkId, Vec<Waiter>>,
}

impl Readahead {
    /// `bytes_max`: bytes ahead of all readers together; 0: nothing is read ahead.
    pub(crate) fn new(bytes_max: u64) -> Readahead {
        let streams = Streams::new(Bounds { bytes_max });
        let areas = Areas::new(bytes_max);
        Readahead { state: Mutex::new(State { streams, areas, waiters: BTreeMap::new() }) }
    }

    /// Calls `waiter` when the chunk has ended, or now.
    pub(crate) fn after(&self, chunk: ChunkId, waiter: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.streams.is_coming(chunk) || state.areas.is_coming(chunk) {
            state.waiters.entry(chunk).or_default().push(Box::new(waiter));
            return;
        }
        drop(state);
        waiter();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
