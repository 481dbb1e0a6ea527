//! The end of Python: from then on no thread of the runtime attaches to it.
//!
//! A thread that waits for the interpreter's lock when Python ends never gets it: some versions end the
//! thread there, by unwinding it, and through Rust's frames that aborts the process. Asking first whether
//! Python is ending does not help, as it may begin to end before the thread is attached, or while Python code
//! that it calls has let go of the lock. So a hook of `atexit`, which runs before the end begins, closes the
//! gate, and waits for those who are inside.
//!
//! A thread of Python's own that waits for an operation needs no gate: it was attached before, and Python
//! itself sees to what becomes of such threads.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::prelude::*;

use crate::process::OfProcess;

/// How long the end waits for those inside at most. They hand over results, which takes moments.
const LEAVING_MAX: Duration = Duration::from_secs(10);

static GATE: Mutex<Option<OfProcess<Arc<Gate>>>> = Mutex::new(None);

thread_local! {
    /// Whether this is a thread of Python's own, which waits for an operation.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// What threads pass that attach to Python.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    passing: Mutex<Passing>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Passing {
    closed: bool,
    inside: usize,
}

impl Gate {
    /// This process's. Asked for attached, as all that a process has once.
    pub(crate) fn of(_attached: Python<'_>) -> Arc<Gate> {
        let mut made = GATE.lock().expect("no holder panics");
        if let Some(gate) = made.as_ref().and_then(OfProcess::here) {
            return Arc::clone(gate);
        }
        let gate = Arc::new(Gate::default());
        *made = Some(OfProcess::new(Arc::clone(&gate)));
        gate
    }

    /// Does something attached to Python; `None`: Python is ending.
    pub(crate) fn attach<T>(&self, act: impl FnOnce(Python<'_>) -> T) -> Option<T> {
        if WAITS.get() {
            return Python::try_attach(act);
        }
        let _inside = self.enter()?;
        Python::try_attach(act)
    }

    /// Whether Python is ending.
    pub(crate) fn is_closed(&self) -> bool {
        self.passing().closed
    }

    /// Lets nobody in any more, and waits until all are out.
    pub(crate) fn close(&self) {
        let mut passing = self.passing();
        passing.closed = true;
        // After that long the process would hang instead of ending.
        let _ = self.left.wait_timeout_while(passing, LEAVING_MAX, |passing| passing.inside > 0);
    }

    fn enter(&self) -> Option<Inside<'_>> {
        let mut passing = self.passing();
        if passing.closed {
            return None;
        }
        passing.inside += 1;
        Some(Inside(self))
    }

    fn passing(&self) -> MutexGuard<'_, Passing> {
        self.passing.lock().expect("no holder panics")
    }
}

/// A thread that is inside.
struct Inside<'g>(&'g Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.passing().inside -= 1;
        self.0.left.notify_all();
    }
}

/// Does the work of a call that waits, on a thread of Python's own.
pub(crate) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let before = WAITS.replace(true);
    let done = work();
    WAITS.set(before);
    done
}
