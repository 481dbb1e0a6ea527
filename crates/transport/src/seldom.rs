//! Rate limit for log lines that anybody who reaches the port can cause.
//!
//! A log is on the disk of the machine that it is about, so it must not grow without bound. About one source
//! (an address) at most one line is written in a time, usually [`EACH`], and at most [`LINES_MAX`] about all
//! sources together; each line says how many were left out before it. A source whose last line is older than
//! that is forgotten.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::slots::Holder;

/// Minimum interval between two lines about one source, if no other is named.
const EACH: Duration = Duration::from_secs(10);
/// Maximum number of lines about all sources within that interval.
const LINES_MAX: usize = 20;

/// Rate limit for log lines about peers.
#[derive(Debug)]
pub struct Seldom {
    /// Minimum interval between two lines about one source.
    each: Duration,
    state: Mutex<State>,
}

impl Default for Seldom {
    fn default() -> Seldom {
        Seldom::each(EACH)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Time of the last line about each source.
    written: BTreeMap<Holder, Instant>,
    left_out: u64,
}

impl Seldom {
    /// At most one line about a source in this time.
    pub fn each(each: Duration) -> Seldom {
        Seldom { each, state: Mutex::default() }
    }

    /// Decides whether a line about this source is to be written now: `None` if not, else the number of
    /// lines, about any source, that were left out before.
    pub fn due(&self, source: Holder) -> Option<u64> {
        self.due_at(source, Instant::now())
    }

    fn due_at(&self, source: Holder, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.written.retain(|_, at| now.saturating_duration_since(*at) < self.each);
        if state.written.contains_key(&source) || state.written.len() >= LINES_MAX {
            state.left_out += 1;
            return None;
        }
        state.written.insert(source, now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> Holder {
        Holder::at([10, 0, 0, last].into())
    }

    #[test]
    fn one_source_has_one_line_in_a_while_and_all_together_some() {
        let seldom = Seldom::default();
        let begin = Instant::now();
        assert_eq!(seldom.due_at(at(1), begin), Some(0));
        for ms in 0..5000 {
            assert_eq!(seldom.due_at(at(1), begin + Duration::from_millis(ms)), None);
        }
        assert_eq!(seldom.due_at(at(2), begin + EACH / 2), Some(5000), "another has its own");
        assert_eq!(seldom.due_at(at(1), begin + EACH), Some(0));
        // Many sources, as of an IPv6 network or a botnet.
        let later = begin + EACH * 3;
        let written = (0..=u8::MAX).filter(|last| seldom.due_at(at(*last), later).is_some()).count();
        assert_eq!(written, LINES_MAX);
        assert_eq!(seldom.due_at(at(1), later + EACH), Some(u64::from(u8::MAX) + 1 - 20));
        assert_eq!(seldom.state.lock().unwrap().written.len(), 1, "the others are forgotten");
    }
}
