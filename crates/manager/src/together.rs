//! Blocking work, done together: one thread takes all pieces that wait, so that many cost one hop.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pieces of work that wait for a thread.
pub(crate) struct Together<W> {
    state: Mutex<State<W>>,
}

struct State<W> {
    waiting: VecDeque<W>,
    /// True while a thread takes pieces, or is about to.
    is_taken: bool,
}

impl<W> Together<W> {
    pub(crate) fn new() -> Together<W> {
        Together { state: Mutex::new(State { waiting: VecDeque::new(), is_taken: false }) }
    }

    /// Adds a piece. Returns true if no thread takes pieces: then the caller has one call [`Together::take`]
    /// until none is left.
    #[must_use]
    pub(crate) fn add(&self, work: W) -> bool {
        let mut state = self.state();
        state.waiting.push_back(work);
        !std::mem::replace(&mut state.is_taken, true)
    }

    /// Takes the oldest pieces that wait, at most `most`. None if none waits: then the thread is to stop.
    pub(crate) fn take(&self, most: usize) -> Vec<W> {
        let mut state = self.state();
        let count = most.min(state.waiting.len());
        state.is_taken = count > 0;
        state.waiting.drain(..count).collect()
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_at_it_until_nothing_waits() {
        let together = Together::new();
        assert!(together.add(1));
        assert!(!together.add(2) && !together.add(3), "it is under way");
        assert_eq!(together.take(2), [1, 2]);
        assert!(!together.add(4));
        assert_eq!(together.take(9), [3, 4]);
        assert!(!together.add(5), "it was not told yet that nothing is left");
        assert_eq!(together.take(9), [5]);
        assert!(together.take(9).is_empty());
        assert!(together.add(6));
    }
}
