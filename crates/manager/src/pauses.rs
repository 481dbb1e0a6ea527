//! Pauses of this process: stopped, suspended with its machine, starved. A pure machine: time is a parameter.
//!
//! Who was silent while we did not listen is not to be judged by that: not a drive whose heartbeats waited for us, and not a
//! writer whose renewals did. A loop notes every [`LISTEN_MS`] that we listen ([`Pauses::listen`]). Every look at the clock
//! compares itself with the last note ([`Pauses::look`]); if that is more than [`PAUSE_MS`] old there was a pause, which ends
//! with this look. So a pause is known before anything can be decided by the time after it.
//!
//! A shorter pause goes unnoticed. It harms nobody: heartbeats come four times a lease, so a drive's silence of `PAUSE_MS` more
//! than that is below a lease, if leases are of 2 s and more.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Between two notes that we listen.
pub const LISTEN_MS: u64 = 250;
/// A look so long after the last note ends a pause.
pub const PAUSE_MS: u64 = 1500;

/// The last pause.
#[derive(Debug)]
pub struct Pauses {
    speak_ms: u64,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    listened_ms: u64,
    last: Pause,
}

/// A pause; all zeros if there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pause {
    /// When we were last known to listen. Of pauses that follow each other so closely that not everybody could speak between
    /// them, the first one's.
    pub began_ms: u64,
    /// When it was over: who is silent is silent since then at most.
    pub ended_ms: u64,
}

impl Pauses {
    /// From `now_ms` on. Within `speak_ms` everybody speaks.
    pub fn new(speak_ms: u64, now_ms: u64) -> Pauses {
        Pauses { speak_ms, state: Mutex::new(State { listened_ms: now_ms, last: Pause::default() }) }
    }

    /// Notes that we listen. The length of the pause that this ends, if it ends one.
    pub fn listen(&self, now_ms: u64) -> Option<u64> {
        let mut state = self.state();
        let silent_ms = now_ms.saturating_sub(state.listened_ms);
        state.look(now_ms, self.speak_ms);
        state.listened_ms = state.listened_ms.max(now_ms);
        (silent_ms > PAUSE_MS).then_some(silent_ms)
    }

    /// Somebody looks at the clock, to decide something by it.
    pub fn look(&self, now_ms: u64) {
        self.state().look(now_ms, self.speak_ms);
    }

    /// The last pause.
    pub fn last(&self) -> Pause {
        self.state().last
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look(&mut self, now_ms: u64, speak_ms: u64) {
        if now_ms <= self.listened_ms + PAUSE_MS {
            return;
        }
        if self.last == Pause::default() || self.listened_ms >= self.last.ended_ms + speak_ms {
            self.last.began_ms = self.listened_ms;
        }
        self.last.ended_ms = self.last.ended_ms.max(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_all_the_time_was_never_paused() {
        let pauses = Pauses::new(1000, 5000);
        for now in (5000..90_000).step_by(usize::try_from(LISTEN_MS).unwrap()) {
            assert_eq!(pauses.listen(now), None);
            pauses.look(now + PAUSE_MS);
        }
        assert_eq!(pauses.last(), Pause::default());
    }

    #[test]
    fn the_first_look_after_a_pause_ends_it() {
        let pauses = Pauses::new(1000, 5000);
        pauses.look(12_000);
        assert_eq!(pauses.last(), Pause { began_ms: 5000, ended_ms: 12_000 });
        // Until the loop runs again we do not listen.
        pauses.look(12_100);
        assert_eq!(pauses.listen(12_200), Some(7200));
        assert_eq!(pauses.last(), Pause { began_ms: 5000, ended_ms: 12_200 });
        pauses.look(12_300);
        assert_eq!(pauses.last().ended_ms, 12_200);
        // A look that was taken earlier and comes late changes nothing.
        pauses.look(11_000);
        assert_eq!((pauses.last().ended_ms, pauses.listen(11_000)), (12_200, None));
        pauses.look(12_200 + PAUSE_MS);
        assert_eq!(pauses.last().ended_ms, 12_200);
    }

    #[test]
    fn pauses_that_left_no_time_to_speak_count_as_one() {
        let pauses = Pauses::new(1000, 0);
        pauses.listen(7000);
        pauses.listen(7900);
        pauses.listen(20_000);
        assert_eq!(pauses.last(), Pause { began_ms: 0, ended_ms: 20_000 });
        pauses.listen(21_000);
        pauses.listen(40_000);
        assert_eq!(pauses.last(), Pause { began_ms: 21_000, ended_ms: 40_000 });
    }
}
