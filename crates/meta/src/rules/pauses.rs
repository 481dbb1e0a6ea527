//! Pauses of this process: stopped, suspended with its machine, starved. A pure machine: time is a parameter.
//!
//! Silence while the manager did not listen proves nothing: a drive's heartbeats or a writer's renewals may
//! have waited for it. A loop notes every [`LISTEN_MS`] that the manager listens ([`Pauses::listen`]). Every
//! read of the clock is compared with the last note ([`Pauses::look`]). If that is more than [`PAUSE_MS`] old
//! there was a pause, which ends with this read. So a pause is known before anything can be decided by the
//! time after it.
//!
//! A shorter pause goes unnoticed and does no harm. Heartbeats come four times per lease: if leases are 2 s
//! or longer, a drive's silence stays below a lease even with `PAUSE_MS` added.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Interval between two notes that the manager listens.
pub const LISTEN_MS: u64 = 250;
/// Minimum length of a pause: a clock read more than this after the last note ends one.
pub const PAUSE_MS: u64 = 1500;

/// Record of the last pause of this process.
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
    /// Time of the last note before the pause. Pauses too close together for every peer to be heard between
    /// them count as one, which began with the first.
    pub began_ms: u64,
    /// End of the pause: a peer's silence counts from here.
    pub ended_ms: u64,
}

impl Pauses {
    /// A record without pauses that begins at `now_ms`. Every live peer is heard within `speak_ms`.
    pub fn new(speak_ms: u64, now_ms: u64) -> Pauses {
        Pauses { speak_ms, state: Mutex::new(State { listened_ms: now_ms, last: Pause::default() }) }
    }

    /// Notes that the manager listens. Returns the length of the pause that this ends, if any.
    pub fn listen(&self, now_ms: u64) -> Option<u64> {
        let mut state = self.state();
        let silent_ms = now_ms.saturating_sub(state.listened_ms);
        state.look(now_ms, self.speak_ms);
        state.listened_ms = state.listened_ms.max(now_ms);
        (silent_ms > PAUSE_MS).then_some(silent_ms)
    }

    /// Takes a reading of the clock by which something is to be decided.
    pub fn look(&self, now_ms: u64) {
        self.state().look(now_ms, self.speak_ms);
    }

    /// The last pause; all zeros if there was none.
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
        // The manager does not listen until the loop runs again.
        pauses.look(12_100);
        assert_eq!(pauses.listen(12_200), Some(7200));
        assert_eq!(pauses.last(), Pause { began_ms: 5000, ended_ms: 12_200 });
        pauses.look(12_300);
        assert_eq!(pauses.last().ended_ms, 12_200);
        // An earlier clock read that is reported late changes nothing.
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
