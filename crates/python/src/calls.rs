//! Runs operations: waited for in the calling thread, as an awaitable of an event loop, or in the
//! background.

use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tokio::time::timeout;

use crate::errors::Failure;
use crate::gate;
use crate::later::{self, Pending};
use crate::process::runtime;

/// Interval at which a waiting thread lets Python's signal handlers run: Ctrl-C is noticed within this
/// time.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The result of an operation, which is converted to a Python object by a thread that is attached.
pub(crate) trait Answer: Send + 'static {
    /// Converts the result to a Python object.
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl<T> Answer for T
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.into_py_any(py)
    }
}

/// Python's `None`: the result of an operation that only succeeds or fails.
pub(crate) struct PythonNone;

impl<'py> IntoPyObject<'py> for PythonNone {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(py.None().into_bound(py))
    }
}

/// The way in which the caller wants an operation to run, from the argument `how`.
pub(crate) enum How<'py> {
    /// `None`: wait for it, and return the result.
    Wait,
    /// An asyncio event loop: return one of its futures.
    Loop(Bound<'py, PyAny>),
    /// `True`: begin, and return a [`Pending`]. Any `bool` is taken as `True`: the package's Python part,
    /// which is the only caller, passes no `False`.
    Background,
}

impl<'py> FromPyObject<'_, 'py> for How<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<How<'py>> {
        Ok(if object.is_none() {
            How::Wait
        } else if object.is_instance_of::<pyo3::types::PyBool>() {
            How::Background
        } else {
            How::Loop(object.to_owned())
        })
    }
}

/// Runs an operation in the way that the caller wants.
pub(crate) fn run<T, F>(py: Python<'_>, how: How<'_>, operation: F) -> PyResult<Py<PyAny>>
where
    T: Answer,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    match how {
        How::Wait => wait(py, operation)?.into_python(py),
        How::Loop(event_loop) => later::on_loop(py, &event_loop, operation),
        How::Background => Ok(Pending::begin(py, operation)?.into_py_any(py)?),
    }
}

/// Waits for an operation, detached from Python. If a signal handler raises an exception, the operation is
/// dropped midway.
pub(crate) fn wait<T, F>(py: Python<'_>, operation: F) -> PyResult<T>
where
    T: Send,
    F: Future<Output = Result<T, Failure>> + Send,
{
    let runtime = runtime(py)?;
    let mut operation = Box::pin(operation);
    loop {
        let slice = async { timeout(SIGNALS_EVERY, operation.as_mut()).await };
        let slice = py.detach(|| gate::waiting(|| runtime.block_on(slice)));
        if let Ok(done) = slice {
            return Ok(done?);
        }
        if let Err(raised) = py.check_signals() {
            // Values dropped with the operation may have to notify peers, by tasks of the runtime.
            let _context = runtime.enter();
            drop(operation);
            return Err(raised);
        }
    }
}
