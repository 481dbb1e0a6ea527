//! Answers of methods as Python sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_client::{Answer, Argument, Arguments, Ran, RunAsk, RunAt};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::calls::Answer as IntoPython;

/// The place that a run has reached, for other threads.
#[pyclass(frozen, module = "braidfs._native")]
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) bytes: Arc<AtomicU64>,
}

#[pymethods]
impl Progress {
    #[new]
    fn new() -> Progress {
        Progress::default()
    }

    /// Bytes of the file that are answered for.
    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The method to run. `at` is "drive", "client" or anything else for the cheaper of them.
pub(crate) fn ask(
    method: &str,
    arguments: Vec<(String, String)>,
    at: &str,
    progress: Option<&Progress>,
) -> RunAsk {
    let arguments = arguments.into_iter().map(|(name, value)| Argument { name, value }).collect();
    let at = match at {
        "drive" => RunAt::Drives,
        "client" => RunAt::Client,
        _ => RunAt::Cheapest,
    };
    let progress = progress.map(|progress| Arc::clone(&progress.bytes)).unwrap_or_default();
    RunAsk { progress, ..RunAsk::new(method, Arguments(arguments)).at(at) }
}

/// The fields of `braidfs.Answer` but the method's name: facts, bytes of the file, bytes that drives answered
/// for, bytes of their answers, whether the file was written meanwhile.
pub(crate) struct Answered(pub(crate) Ran);

impl IntoPython for Answered {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let ran = self.0;
        let facts = facts(py, ran.answer)?;
        (facts, ran.bytes, ran.bytes_at_drives, ran.answer_bytes, ran.changed).into_py_any(py)
    }
}

fn facts(py: Python<'_>, answer: Answer) -> PyResult<Py<PyDict>> {
    let facts = PyDict::new(py);
    let hex = |digest: &[u8; 32]| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match answer {
        Answer::Count { records, bytes } => {
            facts.set_item("records", records)?;
            facts.set_item("record_bytes", bytes)?;
        }
        Answer::Records(found) => {
            let pair = |one: &braid_client::Found| (one.offset, PyBytes::new(py, &one.bytes));
            facts.set_item("records", found.iter().map(pair).collect::<Vec<_>>())?;
        }
        Answer::Histogram { bins, below, above, without } => {
            let bins: Vec<(i64, i64, u64)> = bins.iter().map(|bin| (bin.from, bin.to, bin.count)).collect();
            facts.set_item("bins", bins)?;
            facts.set_item("below", below)?;
            facts.set_item("above", above)?;
            facts.set_item("without", without)?;
        }
        Answer::Digest { algorithm, digest } => {
            facts.set_item("algorithm", algorithm)?;
            facts.set_item("digest", hex(&digest))?;
        }
        Answer::Blocks { block_bytes, digests } => {
            facts.set_item("block_bytes", block_bytes)?;
            facts.set_item("digests", digests.iter().map(hex).collect::<Vec<_>>())?;
        }
        Answer::Sets { sets, lines, bad_lines } => {
            let sets: Vec<(Vec<u32>, u64)> = sets.into_iter().map(|set| (set.items, set.count)).collect();
            facts.set_item("sets", sets)?;
            facts.set_item("lines", lines)?;
            facts.set_item("bad_lines", bad_lines)?;
        }
        Answer::Difference { first } => facts.set_item("first_difference", first)?,
        Answer::Bytes(bytes) => facts.set_item("bytes", PyBytes::new(py, &bytes))?,
        Answer::Arrow(stream) => facts.set_item("rows", PyBytes::new(py, &stream))?,
        Answer::Rows(rows) => facts.set_item("rows", PyBytes::new(py, &rows))?,
    }
    Ok(facts.unbind())
}
