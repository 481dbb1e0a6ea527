//! Size of a file, of which a part waits to be written.

use std::sync::{Mutex, PoisonError};

use crate::files::inode_state::InodeState;

/// Size of a file: the end of the bytes that wait, of those that the drives have and the manager does not
/// know of, or of the open file as the client knows it, whichever is highest. They are looked at in this
/// order, as bytes come to the next place before they leave the one before. The client may know less: its
/// file is another one after the first has lost its lease.
pub(crate) fn reach(state: &Mutex<InodeState>, known: impl FnOnce() -> u64) -> u64 {
    let own = {
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end().max(state.landed_end)
    };
    own.max(known())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::files::dirty::Run;
    use crate::files::inode_state::Flight;

    use super::*;

    #[test]
    fn what_the_drives_have_counts_until_the_manager_knows_of_it() {
        let state = Mutex::new(InodeState::new());
        let mark = {
            let mut state = state.lock().expect("held");
            state.wrote();
            state.landed_end = 100;
            state.mark()
        };
        assert_eq!(reach(&state, || 10), 100, "its lease is lost, and the manager knows of ten bytes");
        state.lock().expect("held").committed(mark, 100);
        assert_eq!(reach(&state, || 10), 10, "another has cut it since");
    }

    #[test]
    fn a_file_is_never_shorter_while_what_waits_gets_to_the_drives() {
        const STEP: u64 = 100;
        const STEPS: u64 = 20_000;
        let state = Mutex::new(InodeState::new());
        let stored = AtomicU64::new(0);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for step in 1..=STEPS {
                    let run = Run { bytes: vec![1; 100], order: step };
                    let flight = Arc::new(Flight { from: (step - 1) * STEP, run });
                    state.lock().expect("held").flights.push(flight);
                    taken.store(step * STEP, Ordering::SeqCst);
                    // The flight lands: first the file has its bytes, then they no longer wait.
                    stored.store(step * STEP, Ordering::SeqCst);
                    state.lock().expect("held").flights.clear();
                }
            });
            let mut told = 0;
            while told < STEPS * STEP {
                told = taken.load(Ordering::SeqCst);
                let now = reach(&state, || stored.load(Ordering::SeqCst));
                assert!(now >= told, "{now} of {told} bytes");
            }
        });
    }
}
