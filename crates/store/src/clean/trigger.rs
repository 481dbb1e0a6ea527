//! Communication between the committer and the cleaner's thread.
//!
//! The committer reports the bytes that the foreground wrote and those that are free, and calls for help when
//! a write does not fit ([`Cleaning::stall`]). It then serves only the cleaner's batches until it is told
//! whether anything was freed. The cleaner waits here for a trigger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::pace::Pacer;
use crate::mutex::{Condvar, Mutex};

/// A store is idle while its foreground writes less than this between two checks. Cleaning does not disturb
/// so few writes, and a file that is touched periodically should not prevent it.
const REST_BYTES_MAX: u64 = 1 << 20;

/// The cleaner's state, shared with the other threads.
#[derive(Debug)]
pub(crate) struct Cleaning {
    state: Mutex<State>,
    /// The idle time after which space is given back: `Options::give_back`.
    rest: Option<Duration>,
    called: Condvar,
    freed: AtomicU64,
}

#[derive(Debug)]
struct State {
    pacer: Pacer,
    /// The committer waits for space.
    stalled: bool,
    /// Rounds that were requested, and the last one that is complete.
    asked: u64,
    done: u64,
    closing: bool,
    /// Bytes that the foreground wrote since the last check whether the store is idle.
    written: u64,
}

/// Reason for the cleaner to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleanTrigger {
    /// The cleaner's credit is enough for a batch of moves.
    Paced,
    /// A write waits for space.
    Stalled,
    /// A requested round, with the request's number.
    Asked(u64),
    /// The store is idle.
    Idle,
}

/// Urgency of the cleaner's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Beside the foreground, which earns the cleaner's credit.
    Paced,
    /// A thread waits for the result.
    Urgent,
    /// While the store is idle: slowly, and only segments that are mostly dead.
    Idle,
}

impl CleanTrigger {
    pub(crate) fn effort(self) -> Effort {
        match self {
            CleanTrigger::Paced => Effort::Paced,
            CleanTrigger::Stalled | CleanTrigger::Asked(_) => Effort::Urgent,
            CleanTrigger::Idle => Effort::Idle,
        }
    }
}

impl Cleaning {
    pub(crate) fn new(pacer: Pacer, rest: Option<Duration>) -> Cleaning {
        let state = State { pacer, stalled: false, asked: 0, done: 0, closing: false, written: 0 };
        Cleaning { state: Mutex::new(state), rest, called: Condvar::default(), freed: AtomicU64::new(0) }
    }

    /// The foreground wrote `bytes`; writes may take `free` more.
    pub(crate) fn on_written(&self, bytes: u64, free: u64) {
        let mut state = self.state.lock();
        state.written = state.written.saturating_add(bytes);
        state.pacer.on_foreground(bytes, free);
        if state.pacer.may_move() {
            self.called.notify_all();
        }
    }

    /// The cleaner wrote `bytes`. Only paced moves cost credit, and not while a write waits for them.
    pub(crate) fn on_moved(&self, bytes: u64, effort: Effort) {
        let mut state = self.state.lock();
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
        self.state.lock().stalled = true;
        self.called.notify_all();
    }

    /// The write that waited is about to be answered.
    pub(crate) fn end_stall(&self) {
        self.state.lock().stalled = false;
    }

    /// The committer has ended.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.called.notify_all();
    }

    /// Wait for a trigger. `None`: the store is closed.
    pub(crate) fn wait(&self) -> Option<CleanTrigger> {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return None;
            }
            if state.stalled {
                return Some(CleanTrigger::Stalled);
            }
            if state.done < state.asked {
                return Some(CleanTrigger::Asked(state.asked));
            }
            if state.pacer.may_move() {
                return Some(CleanTrigger::Paced);
            }
            let Some(rest) = self.rest else {
                state = self.called.wait(state);
                continue;
            };
            let timed_out;
            (state, timed_out) = self.called.wait_for(state, rest);
            if timed_out && std::mem::take(&mut state.written) < REST_BYTES_MAX {
                return Some(CleanTrigger::Idle);
            }
        }
    }

    /// Leave the disk alone for `time`, unless a thread waits for the cleaner.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.closing && !state.stalled && state.done >= state.asked && Instant::now() < until {
            state = self.called.wait_for(state, until.saturating_duration_since(Instant::now())).0;
        }
    }

    /// Returns true if the round should stop: the store is closing, or a thread waits for another, urgent
    /// round.
    pub(crate) fn is_wanted_elsewhere(&self, effort: Effort) -> bool {
        let state = self.state.lock();
        state.closing || (effort != Effort::Urgent && (state.stalled || state.done < state.asked))
    }

    /// The requested round is complete.
    pub(crate) fn answer(&self, asked: u64) {
        self.state.lock().done = asked;
        self.called.notify_all();
    }

    /// Request a round and wait until it is complete; false: the store is closed.
    pub(crate) fn run_round(&self) -> bool {
        let mut state = self.state.lock();
        state.asked += 1;
        let mine = state.asked;
        self.called.notify_all();
        while state.done < mine && !state.closing {
            state = self.called.wait(state);
        }
        state.done >= mine
    }

    /// Drop the pacer's credit: there is nothing to gain until the foreground has written some more.
    pub(crate) fn rest(&self) {
        self.state.lock().pacer.rest();
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
            // 200 are earned, the most that is kept.
            cleaning.on_written(400, 100);
            if stalled {
                cleaning.stall();
            }
            cleaning.on_moved(150, effort);
            cleaning.end_stall();
            cleaning.state.lock().pacer.may_move()
        };
        assert!(!left(Effort::Paced, false));
        assert!(left(Effort::Urgent, false) && left(Effort::Paced, true), "somebody waits");
        assert!(left(Effort::Idle, false), "at rest there is no foreground to pay");
    }

    #[test]
    fn a_store_is_at_rest_when_little_was_written_for_a_while() {
        let cleaning = Cleaning::new(Pacer::new(25, 8000, 0, 100), Some(Duration::from_millis(20)));
        assert_eq!(cleaning.wait(), Some(CleanTrigger::Idle));
        cleaning.on_written(REST_BYTES_MAX - 1, u64::MAX);
        assert_eq!(cleaning.wait(), Some(CleanTrigger::Idle));
        cleaning.on_written(REST_BYTES_MAX, u64::MAX);
        let began = Instant::now();
        assert_eq!(cleaning.wait(), Some(CleanTrigger::Idle), "after a second look");
        assert!(began.elapsed() >= Duration::from_millis(40));
        cleaning.stall();
        assert_eq!(cleaning.wait(), Some(CleanTrigger::Stalled));
        cleaning.pause(Duration::from_secs(3600));
    }
}
