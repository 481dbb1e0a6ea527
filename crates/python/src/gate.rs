//! A gate that closes when Python ends: from then on no thread of the runtime attaches to Python.
//!
//! A thread that waits for the interpreter's lock when Python ends never gets it: some versions end the
//! thread there, by unwinding it, and through Rust's frames that aborts the process. A check beforehand
//! whether Python is ending does not help: Python may begin to end before the thread is attached, or while
//! Python code that the thread calls has released the lock. So a hook of `atexit`, which runs before the
//! end begins, closes the gate, and waits for the threads that are inside.
//!
//! A thread of Python's own that waits for an operation needs no gate: it was attached before, and Python
//! itself decides what happens to such threads.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use pyo3::prelude::*;

use crate::process::OfProcess;

/// Maximum time that the end of Python waits for threads inside. They hand over results, which takes
/// moments.
const LEAVING_MAX: Duration = Duration::from_secs(10);

static GATE: Mutex<Option<OfProcess<Arc<Gate>>>> = Mutex::new(None);

thread_local! {
    /// True for a thread of Python's own that waits for an operation.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// The gate that a thread passes to attach to Python.
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
    /// The gate of this process. The caller must be attached, as for every value that exists once per
    /// process.
    pub(crate) fn of(_attached: Python<'_>) -> Arc<Gate> {
        let mut made = GATE.lock().expect("no holder panics");
        if let Some(gate) = made.as_ref().and_then(OfProcess::here) {
            return Arc::clone(gate);
        }
        let gate = Arc::new(Gate::default());
        *made = Some(OfProcess::new(Arc::clone(&gate)));
        gate
    }

    /// Runs `act` attached to Python. `None`: Python is ending, and `act` did not run.
    pub(crate) fn attach<T>(&self, act: impl FnOnce(Python<'_>) -> T) -> Option<T> {
        if WAITS.get() {
            return Python::try_attach(act);
        }
        let _inside = self.enter()?;
        Python::try_attach(act)
    }

    /// Returns true if Python is ending.
    pub(crate) fn is_closed(&self) -> bool {
        self.passing().closed
    }

    /// Closes the gate to all threads, and waits until those inside have left.
    pub(crate) fn close(&self) {
        let mut passing = self.passing();
        passing.closed = true;
        // After this time the wait is given up, so that the process ends instead of hanging.
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

/// A guard for a thread that is inside.
struct Inside<'g>(&'g Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.passing().inside -= 1;
        self.0.left.notify_all();
    }
}

/// Runs the waiting part of a call, on a thread of Python's own.
pub(crate) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let before = WAITS.replace(true);
    let done = work();
    WAITS.set(before);
    done
}
