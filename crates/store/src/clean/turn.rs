//! What the committer and the cleaner's thread tell each other.
//!
//! The committer says what the foreground wrote and what is free, and calls for help when a write does not fit
//! ([`Cleaning::stall`]); it then serves the cleaner's bursts alone until it is told whether anything was gained. The
//! cleaner waits here for its turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::pace::Pacer;

/// A store is at rest while its foreground writes less than this between two looks: so much disturbs nobody, and a clock that
/// ticks in some file is no reason to keep what is dead.
const REST_BYTES_MAX: u64 = 1 << 20;

/// The cleaner as others see it.
#[derive(Debug)]
pub(crate) struct Cleaning {
    state: Mutex<State>,
    /// As in `Options`.
    rest: Option<Duration>,
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
    /// Bytes that the foreground wrote since the last look whether the store is at rest.
    written: u64,
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
    /// The store is at rest.
    Idle,
}

/// How hard the cleaner works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Beside the foreground, which pays for it.
    Paced,
    /// Somebody waits for it.
    Urgent,
    /// While the store is at rest: what is mostly dead, slowly.
    Idle,
}

impl Turn {
    pub(crate) fn effort(self) -> Effort {
        match self {
            Turn::Paced => Effort::Paced,
            Turn::Stalled | Turn::Asked(_) => Effort::Urgent,
            Turn::Idle => Effort::Idle,
        }
    }
}

impl Cleaning {
    pub(crate) fn new(pacer: Pacer, rest: Option<Duration>) -> Cleaning {
        let state = State { pacer, stalled: false, asked: 0, done: 0, closing: false, written: 0 };
        Cleaning { state: Mutex::new(state), rest, called: Condvar::new(), freed: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The foreground wrote `bytes`; writes may take `free` more.
    pub(crate) fn on_written(&self, bytes: u64, free: u64) {
        let mut state = self.lock();
        state.written = state.written.saturating_add(bytes);
        state.pacer.on_foreground(bytes, free);
        if state.pacer.may_move() {
            self.called.notify_all();
        }
    }

    /// The cleaner wrote `bytes`. The foreground pays only for what is paced, and not while a write waits for it.
    pub(crate) fn on_moved(&self, bytes: u64, effort: Effort) {
        let mut state = self.lock();
        if effort == Effort::Paced && !state.stalled {
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
            let Some(rest) = self.rest else {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.called.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && std::mem::take(&mut state.written) < REST_BYTES_MAX {
                return Some(Turn::Idle);
            }
        }
    }

    /// Let the disk rest for `time`, unless somebody waits for the cleaner.
    pub(crate) fn pause(&self, time: Duration) {
        let is_free = |state: &mut State| !state.closing && !state.stalled && state.done >= state.asked;
        let _rested = self.called.wait_timeout_while(self.lock(), time, is_free);
    }

    /// Whether a round that nobody waits for is in somebody's way, or any is as the store is being closed.
    pub(crate) fn is_wanted_elsewhere(&self, effort: Effort) -> bool {
        let state = self.lock();
        state.closing || (effort != Effort::Urgent && (state.stalled || state.done < state.asked))
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
        let left = |effort, stalled| {
            let cleaning = Cleaning::new(Pacer::new(25, 8000, 0, 100), None);
            // 200 are earned, all that is kept.
            cleaning.on_written(400, 100);
            if stalled {
                cleaning.stall();
            }
            cleaning.on_moved(150, effort);
            cleaning.end_stall();
            cleaning.lock().pacer.may_move()
        };
        assert!(!left(Effort::Paced, false));
        assert!(left(Effort::Urgent, false) && left(Effort::Paced, true), "somebody waits");
        assert!(left(Effort::Idle, false), "at rest there is no foreground to pay");
    }

    #[test]
    fn a_store_is_at_rest_when_little_was_written_for_a_while() {
        let cleaning = Cleaning::new(Pacer::new(25, 8000, 0, 100), Some(Duration::from_millis(20)));
        assert_eq!(cleaning.wait(), Some(Turn::Idle));
        cleaning.on_written(REST_BYTES_MAX - 1, u64::MAX);
        assert_eq!(cleaning.wait(), Some(Turn::Idle));
        cleaning.on_written(REST_BYTES_MAX, u64::MAX);
        let began = std::time::Instant::now();
        assert_eq!(cleaning.wait(), Some(Turn::Idle), "after a second look");
        assert!(began.elapsed() >= Duration::from_millis(40));
        cleaning.stall();
        assert_eq!(cleaning.wait(), Some(Turn::Stalled));
        cleaning.pause(Duration::from_secs(3600));
    }
}
