//! What the committer and the cleaner's thread tell each other.
//!
//! The committer says what the foreground wrote and what is free, and calls for help when a write does not fit
//! ([`Cleaning::stall`]); it then serves the cleaner's bursts alone until it is told whether anything was gained. The
//! cleaner waits here for its turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::pace::Pacer;

/// The cleaner as others see it.
#[derive(Debug)]
pub(crate) struct Cleaning {
    state: Mutex<State>,
    called: Condvar,
    freed: AtomicU64,
}

#[derive(Debug)]
struct State {
    pacer: Pacer,
    /// The committer waits.
    stalled: bool,
    /// Rounds that were asked for, and that are over.
    asked: u64,
    done: u64,
    closing: bool,
}

/// Why the cleaner is to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has earned a burst.
    Paced,
    /// A write waits for space.
    Stalled,
    /// Somebody asked for it: the request's number.
    Asked(u64),
}

impl Cleaning {
    pub(crate) fn new(pacer: Pacer) -> Cleaning {
        let state = State { pacer, stalled: false, asked: 0, done: 0, closing: false };
        Cleaning { state: Mutex::new(state), called: Condvar::new(), freed: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The foreground wrote `bytes`; writes may take `free` more.
    pub(crate) fn on_written(&self, bytes: u64, free: u64) {
        let mut state = self.lock();
        state.pacer.on_foreground(bytes, free);
        if state.pacer.may_move() {
            self.called.notify_all();
        }
    }

    /// The cleaner wrote `bytes`. What is `urgent` is not paid for, nor what a write waits for by now.
    pub(crate) fn on_moved(&self, bytes: u64, urgent: bool) {
        let mut state = self.lock();
        if !urgent && !state.stalled {
            state.pacer.on_moved(bytes);
        }
    }

    /// A segment was freed.
    pub(crate) fn on_freed(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// A write waits for space.
    pub(crate) fn stall(&self) {
        self.lock().stalled = true;
        self.called.notify_all();
    }

    /// The write that waited is going to be told.
    pub(crate) fn end_stall(&self) {
        self.lock().stalled = false;
    }

    /// The committer has ended.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.called.notify_all();
    }

    /// Wait until it is the cleaner's turn. `None`: the store is closed.
    pub(crate) fn wait(&self) -> Option<Turn> {
        let mut state = self.lock();
        loop {
            if state.closing {
                return None;
            }
            if state.stalled {
                return Some(Turn::Stalled);
            }
            if state.done < state.asked {
                return Some(Turn::Asked(state.asked));
            }
            if state.pacer.may_move() {
                return Some(Turn::Paced);
            }
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a round that is not `urgent` is in somebody's way, or any is as the store is being closed.
    pub(crate) fn is_wanted_elsewhere(&self, urgent: bool) -> bool {
        let state = self.lock();
        state.closing || (!urgent && (state.stalled || state.done < state.asked))
    }

    /// The round that was asked for is over.
    pub(crate) fn answer(&self, asked: u64) {
        self.lock().done = asked;
        self.called.notify_all();
    }

    /// Ask for a round and wait until it is over; false: the store is closed.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.lock();
        state.asked += 1;
        let mine = state.asked;
        self.called.notify_all();
        while state.done < mine && !state.closing {
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.done >= mine
    }

    /// There is nothing to gain: not before the foreground has written some more.
    pub(crate) fn rest(&self) {
        self.lock().pacer.rest();
    }

    /// Segments freed since the store was opened.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_is_paid_for() {
        let left = |urgent, stalled| {
            let cleaning = Cleaning::new(Pacer::new(25, 8000, 0, 100));
            // 200 are earned, all that is kept.
            cleaning.on_written(400, 100);
            if stalled {
                cleaning.stall();
            }
            cleaning.on_moved(150, urgent);
            cleaning.end_stall();
            cleaning.lock().pacer.may_move()
        };
        assert!(!left(false, false));
        assert!(left(true, false) && left(false, true), "somebody waits");
    }
}
