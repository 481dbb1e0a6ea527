//! The calls by which the committer has the folder's thread look for units to fold.

use crate::mutex::{Condvar, Mutex};

/// The calls of the committer to the folder's thread.
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
    pub(super) fn has_ended(&self) {
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

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().is_closing
    }

    /// Waits for a call; false: the store is closed.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_called && !state.is_closing {
            state = self.called.wait(state);
        }
        state.is_called = false;
        !state.is_closing
    }
}
