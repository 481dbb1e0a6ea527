//! The client's errors as Python's: an `OSError` with errno and filename. Python chooses the subclass, such
//! as `FileNotFoundError`, by the errno.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

use braid_client::Error;
use braid_client::Name;
use braid_client::NameError;
use braid_client::NotAdmitted;
use braid_client::cluster::{ClusterFileError, NoManager};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::rates::offers;

/// The reason why an operation failed. Unlike Python's errors, it can be sent between threads.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
    /// The name or path that the failure is about, if any.
    subject: Option<OsString>,
    /// The refusal of a data rate.
    refused: Option<Box<NotAdmitted>>,
}

impl Failure {
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into(), subject: None, refused: None }
    }

    /// The failure of a system call made to do `action`.
    pub(crate) fn system(action: &str, error: &io::Error) -> Failure {
        Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{action}: {error}"))
    }

    /// The client's error about this name.
    pub(crate) fn about(name: &Name, error: &Error) -> Failure {
        Failure::from(error).of(name)
    }

    /// The failure for bytes that are not a valid name.
    pub(crate) fn no_name(text: &[u8], error: &NameError) -> Failure {
        Failure::new(libc::EINVAL, error.to_string()).at(OsString::from_vec(text.to_vec()))
    }

    /// The failure for a file that was closed.
    pub(crate) fn closed() -> Failure {
        Failure::new(libc::EBADF, "the file is closed")
    }

    /// The failure for a file that the parent process opened before a fork.
    pub(crate) fn forked() -> Failure {
        Failure::new(libc::EBADF, "it was opened before a fork, by the parent process: open it again here")
    }

    pub(crate) fn of(self, name: &Name) -> Failure {
        let text = [braid_client::PREFIX.as_bytes(), name.label().as_bytes(), b"/", name.path()].concat();
        self.at(OsString::from_vec(text))
    }

    /// Adds the name or path that the failure is about, and removes it from the message.
    pub(crate) fn at(mut self, subject: OsString) -> Failure {
        let repeated = format!("{}: ", subject.to_string_lossy());
        if let Some(rest) = self.message.strip_prefix(&repeated) {
            self.message = rest.to_owned();
        }
        self.subject = Some(subject);
        self
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.errno == libc::ENOENT
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let failure = Failure::new(error.errno(), error.to_string());
        match error {
            Error::NotAdmitted { refused, .. } => Failure { refused: Some(refused.clone()), ..failure },
            _ => failure,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::from(&error)
    }
}

impl From<ClusterFileError> for Failure {
    fn from(error: ClusterFileError) -> Failure {
        let errno = match &error {
            ClusterFileError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            ClusterFileError::NoHome => libc::ENOENT,
            ClusterFileError::Content { .. } => libc::EINVAL,
        };
        Failure::new(errno, error.to_string())
    }
}

impl Failure {
    /// The failure to connect, because no manager takes connections at this address.
    pub(crate) fn no_manager(address: &str, error: &NoManager) -> Failure {
        let errno = match error {
            NoManager::NobodyListens => libc::ECONNREFUSED,
            NoManager::Io(error) => error.raw_os_error().unwrap_or(libc::EHOSTUNREACH),
            NoManager::Silent => libc::ETIMEDOUT,
        };
        let remedy = "start it with `braid up --detach`, or see that `braid manager serve` runs on its host";
        Failure::new(errno, format!("connect to the manager at {address}: {error}; {remedy}"))
    }
}

/// The package's exception for a data rate that was refused.
fn not_admitted(
    py: Python<'_>,
    errno: i32,
    message: &str,
    subject: Option<OsString>,
    refused: &NotAdmitted,
) -> PyResult<PyErr> {
    let kind = py.import("braidfs._rates")?.getattr("NotAdmitted")?;
    let made = kind.call_method1("_of", (errno, message, subject, &refused.resource, offers(refused)))?;
    Ok(PyErr::from_value(made))
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        let Failure { errno, message, subject, refused } = failure;
        if let Some(refused) = refused {
            return Python::attach(|py| not_admitted(py, errno, &message, subject, &refused))
                .unwrap_or_else(|raised| raised);
        }
        match subject {
            Some(subject) => PyOSError::new_err((errno, message, subject)),
            None => PyOSError::new_err((errno, message)),
        }
    }
}

impl<'py> IntoPyObject<'py> for Failure {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    /// Makes the exception a value, for lists in which some requests failed.
    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyErr::from(self).into_value(py).into_bound(py).into_any())
    }
}
