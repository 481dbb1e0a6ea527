//! The trace of a run: a hash of everything, to compare two runs, and the last events as text, for people.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::random::mix;

/// Number of events that are kept.
const KEPT: usize = 400;

/// The trace, shared by all parts of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    now_ms: u64,
    hash: u64,
    last: VecDeque<String>,
    counts: BTreeMap<&'static str, u64>,
    printed: bool,
}

impl Trace {
    /// A trace that prints each event as it happens, if `printed`.
    pub(crate) fn printing(printed: bool) -> Trace {
        Trace(Arc::new(Mutex::new(State { printed, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_now_ms(&self, now_ms: u64) {
        self.lock().now_ms = now_ms;
    }

    /// Adds bytes that passed at some place to the hash.
    pub(crate) fn bytes(&self, place: u64, bytes: &[u8]) {
        let mut state = self.lock();
        let mut hash = mix(state.hash ^ place ^ (state.now_ms << 20));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
        state.hash = hash;
    }

    /// Notes an event, as text.
    pub(crate) fn event(&self, text: String) {
        self.bytes(u64::MAX, text.as_bytes());
        let mut state = self.lock();
        let line = format!("{:>9.3} s  {text}", std::time::Duration::from_millis(state.now_ms).as_secs_f64());
        if state.printed {
            eprintln!("{line}");
        }
        if state.last.len() == KEPT {
            state.last.pop_front();
        }
        state.last.push_back(line);
    }

    /// Counts a fault or an operation of a kind.
    pub(crate) fn count(&self, kind: &'static str) {
        *self.lock().counts.entry(kind).or_default() += 1;
    }

    pub(crate) fn hash(&self) -> u64 {
        self.lock().hash
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }

    pub(crate) fn last(&self) -> Vec<String> {
        self.lock().last.iter().cloned().collect()
    }
}
