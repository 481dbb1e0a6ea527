//! Values that a process has once, such as the runtime, and that must not be used, nor even dropped, in
//! another process.
//!
//! A fork copies memory, but not threads. In the child the parent's runtime stands still, and its
//! connections and its epoll are still the parent's. Closing one of them in the child would take it out of
//! the epoll that the parent waits on. So all values that came over a fork are left alone and never dropped
//! ([`OfProcess`]), and the child makes its own.
//!
//! The lock in this module is taken only by threads that are attached to Python, and they stay attached
//! while they hold it. `os.fork` needs to be attached too. So no lock is ever held by a thread that the
//! child lacks.

use std::mem;
use std::sync::Mutex;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::errors::Failure;

/// Maximum number of threads that carry requests on. The caller's own thread does the work on its bytes.
const WORKERS_MAX: usize = 8;
/// Stack of a worker thread: the steps of a long operation have room in it, also in a build for tests.
const STACK_BYTES: usize = 8 << 20;

static RUNTIME: Mutex<Option<OfProcess<&'static Runtime>>> = Mutex::new(None);

/// A value that only the process that made it can use.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// Wraps a value of the present process.
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { process: std::process::id(), value: Some(value) }
    }

    /// The value; `None` in another process.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// The value, to be changed; `None` in another process.
    pub(crate) fn here_mut(&mut self) -> Option<&mut T> {
        if self.is_here() { self.value.as_mut() } else { None }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            mem::forget(self.value.take());
        }
    }
}

/// The runtime of this process. It lives as long as the process.
pub(crate) fn runtime(_attached: Python<'_>) -> Result<&'static Runtime, Failure> {
    let mut made = RUNTIME.lock().expect("no holder panics");
    if let Some(runtime) = made.as_ref().and_then(OfProcess::here) {
        return Ok(runtime);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.min(WORKERS_MAX))
        .thread_name("braidfs")
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| Failure::system("start threads", &error))?;
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    *made = Some(OfProcess::new(runtime));
    Ok(runtime)
}
