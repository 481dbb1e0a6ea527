//! The folder's thread: it makes the bases of parity units that are to be folded, and hands them to the
//! committer ([`crate::fold`]). Only a store that shares its disk has it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crate::fold::next;
use crate::mutex::{Condvar, Mutex};
use crate::threads::OnEnd;
use crate::threads::shared::Shared;

/// What the folder waits for.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    has_thread: bool,
    /// The committer has seen a unit that is to be folded.
    is_called: bool,
    is_closing: bool,
}

impl Folding {
    /// A thread folds from now on.
    pub(crate) fn has_begun(&self) {
        self.state.lock().has_thread = true;
    }

    /// The thread has ended.
    fn has_ended(&self) {
        self.state.lock().has_thread = false;
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.state.lock().has_thread
    }

    /// Has the thread look for units to fold.
    pub(crate) fn call(&self) {
        self.state.lock().is_called = true;
        self.called.notify_all();
    }

    /// The committer has ended.
    pub(crate) fn close(&self) {
        self.state.lock().is_closing = true;
        self.called.notify_all();
    }

    fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// Waits for a call; false: the store is closed.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_called && !state.is_closing {
            state = self.called.wait(state);
        }
        state.is_called = false;
        !state.is_closing
    }
}

/// Folds until the store is closed.
pub(crate) fn run(shared: &Arc<Shared>) {
    // Without this thread, also after a panic, the committer folds.
    let _ending = OnEnd(|| shared.folding.has_ended());
    while shared.folding.wait() {
        let is_closing = || shared.folding.is_closing();
        loop {
            let (told, is_written) = sync_channel(1);
            let Some(folded) = next(shared, told, &is_closing) else { break };
            shared.queue.push_fold(folded);
            // If it was not written, its unit has changed, or the log takes nothing now. A commit calls again.
            if is_closing() || is_written.recv() != Ok(true) {
                break;
            }
        }
    }
}
