//! Operations that the calling thread does not wait for: awaitables of an event loop, and [`Pending`] ones.
//!
//! An operation runs as a task of the runtime, with no thread of its own. When it is done, one thread of
//! the process attaches to Python and hands over all results that are ready. So the runtime's threads never
//! wait for Python's lock, and go on moving bytes.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::calls::{Answer, wait};
use crate::errors::Failure;
use crate::gate::Gate;
use crate::process::{OfProcess, runtime};

/// An action that needs a thread attached to Python.
type Handover = Box<dyn FnOnce(Python<'_>) + Send>;

static HANDOVERS: Mutex<Option<OfProcess<Sender<Handover>>>> = Mutex::new(None);

/// Begins an operation, and returns a future of this asyncio event loop. Cancelling the future drops the
/// operation midway.
pub(crate) fn on_loop<T, F>(
    py: Python<'_>,
    event_loop: &Bound<'_, PyAny>,
    operation: F,
) -> PyResult<Py<PyAny>>
where
    T: Answer,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    if Gate::of(py).is_closed() {
        return Err(PyRuntimeError::new_err("Python is ending: nothing can be awaited any more"));
    }
    let handovers = handovers(py)?;
    let awaited = event_loop.call_method0("create_future")?;
    let event_loop = event_loop.clone().unbind();
    let settled = awaited.clone().unbind();
    let task = runtime(py)?.spawn(async move {
        let result = operation.await;
        let _ = handovers.send(Box::new(move |py| settle(py, &event_loop, settled, result)));
    });
    awaited.call_method1("add_done_callback", (AbortIfCancelled { task: task.abort_handle() },))?;
    Ok(awaited.unbind())
}

/// Has the event loop settle the future. If the loop is closed by now, nothing waits for the result.
fn settle<T: Answer>(py: Python<'_>, event_loop: &Py<PyAny>, awaited: Py<PyAny>, result: Result<T, Failure>) {
    let outcome = result.map_err(PyErr::from).and_then(|value| value.into_python(py));
    let (act, value) = match outcome {
        Ok(value) => ("set_result", value),
        Err(error) => ("set_exception", error.into_value(py).into_any()),
    };
    let _ = event_loop.call_method1(py, "call_soon_threadsafe", (Settle { act }, awaited, value));
}

/// Called by the event loop's thread: settles a future, unless it was cancelled meanwhile.
#[pyclass(frozen)]
struct Settle {
    act: &'static str,
}

#[pymethods]
impl Settle {
    fn __call__(&self, awaited: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if !awaited.call_method0("done")?.extract::<bool>()? {
            awaited.call_method1(self.act, (value,))?;
        }
        Ok(())
    }
}

/// Called when a future is done: ends the operation if the future was cancelled.
#[pyclass(frozen)]
struct AbortIfCancelled {
    task: AbortHandle,
}

#[pymethods]
impl AbortIfCancelled {
    fn __call__(&self, awaited: &Bound<'_, PyAny>) -> PyResult<()> {
        if awaited.call_method0("cancelled")?.extract::<bool>()? {
            self.task.abort();
        }
        Ok(())
    }
}

/// The channel to this process's thread that hands over results.
fn handovers(py: Python<'_>) -> Result<Sender<Handover>, Failure> {
    let mut made = HANDOVERS.lock().expect("no holder panics");
    if let Some(sender) = made.as_ref().and_then(OfProcess::here) {
        return Ok(sender.clone());
    }
    let (sender, receiver) = channel();
    let gate = Gate::of(py);
    std::thread::Builder::new()
        .name("braidfs-python".to_owned())
        .spawn(move || hand_over(&receiver, &gate))
        .map_err(|error| Failure::system("start a thread", &error))?;
    *made = Some(OfProcess::new(sender.clone()));
    Ok(sender)
}

fn hand_over(receiver: &Receiver<Handover>, gate: &Gate) {
    while let Ok(first) = receiver.recv() {
        // `None`: Python is ending, and nothing waits any more.
        let attached = gate.attach(|py| {
            first(py);
            receiver.try_iter().for_each(|next| next(py));
        });
        if attached.is_none() {
            return;
        }
    }
}

/// The result of an operation, still to be converted to a Python object by an attached thread.
type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// An operation that runs in the background. If it is dropped before it is done, the operation ends midway.
#[pyclass(frozen, module = "braidfs._native")]
pub(crate) struct Pending {
    task: OfProcess<AbortHandle>,
    /// The receiver of the result; absent once the result was taken.
    outcome: Mutex<Option<OfProcess<oneshot::Receiver<Outcome>>>>,
}

impl Pending {
    /// Begins an operation.
    pub(crate) fn begin<T, F>(py: Python<'_>, operation: F) -> PyResult<Pending>
    where
        T: Answer,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (sender, outcome) = oneshot::channel();
        let task = runtime(py)?.spawn(async move {
            let result = operation.await;
            let outcome: Outcome = Box::new(move |py| result?.into_python(py));
            // The receiver may be gone, if the result is no longer wanted.
            let _ = sender.send(outcome);
        });
        let task = OfProcess::new(task.abort_handle());
        Ok(Pending { task, outcome: Mutex::new(Some(OfProcess::new(outcome))) })
    }

    fn taken(&self) -> std::sync::MutexGuard<'_, Option<OfProcess<oneshot::Receiver<Outcome>>>> {
        self.outcome.lock().expect("no holder panics")
    }
}

#[pymethods]
impl Pending {
    /// Waits for the result and returns it. It can be asked for once.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let taken = self.taken().take();
        let mut outcome = taken
            .ok_or_else(|| PyValueError::new_err("the result was already taken: it can be awaited once"))?;
        let ended = || Failure::new(libc::ECANCELED, "the operation was ended before it was done");
        let receiver = outcome.here_mut().ok_or_else(Failure::forked)?;
        match wait(py, async { receiver.await.map_err(|_| ended()) }) {
            Ok(outcome) => outcome(py),
            // Interrupted by a signal: the operation goes on, and can be waited for again.
            Err(raised) => {
                *self.taken() = Some(outcome);
                Err(raised)
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(task) = self.task.here() {
            task.abort();
        }
    }
}
