//! The client for Python: the module `braidfs._native`, below the package `braidfs` (in `../python`).
//!
//! Guarantees:
//!
//! - Data moves between the drives and Python's own buffers without a copy in between, except out of memory
//!   that may change meanwhile; other Python threads run.
//! - A call that waits checks for signals: Ctrl-C ends the call.
//! - No thread touches Python once Python has begun to end (`gate`).
//! - After a fork the child touches nothing of the parent's: neither threads nor connections. A client
//!   connects anew.
//!
//! Every operation is one future of the client. It is either waited for, or becomes an awaitable if an event
//! loop is given (`calls`). The interface for Python users, with its defaults and its documentation, is
//! written in Python; here names are bytes, and rows are tuples.

mod attributes;
mod buffer;
mod calls;
mod client;
mod errors;
mod file;
mod gate;
mod later;
mod layouts;
mod many;
mod methods;
mod process;
mod rates;
mod rows;

use pyo3::prelude::*;

/// The native part of the package `braidfs`; not for use by other programs.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::later::Pending;
    #[pymodule_export]
    use crate::methods::Progress;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let atexit = module.py().import("atexit")?;
        atexit.call_method1("register", (wrap_pyfunction!(end, module)?,))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    /// Closes the gate before Python ends: see `gate`.
    #[pyfunction]
    fn end(py: Python<'_>) {
        let gate = crate::gate::Gate::of(py);
        py.detach(|| gate.close());
    }
}
