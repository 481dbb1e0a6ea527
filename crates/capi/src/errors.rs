//! Failures as C has them: `errno`, and a message for people, both of the calling thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;

use braid_client::cluster::{ClusterFileError, NoManager};
use braid_client::{Error, NameError};

thread_local! {
    /// The message of this thread's last call that failed.
    static LAST: RefCell<CString> = RefCell::default();
}

/// The reason why a call failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    errno: i32,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: i32, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }

    /// An argument that cannot be.
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }

    /// A pointer that is null where something is needed.
    pub(crate) fn null(what: &str) -> Failure {
        Failure::new(libc::EFAULT, format!("{what} is NULL"))
    }

    /// The failure of a system call made to do `action`.
    pub(crate) fn system(action: &str, error: &io::Error) -> Failure {
        Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{action}: {error}"))
    }

    /// The failure for bytes that are not a valid name.
    pub(crate) fn no_name(text: &[u8], error: NameError) -> Failure {
        Failure::invalid(format!("{}: {error}", String::from_utf8_lossy(text)))
    }

    /// The failure for what the parent process made before a fork.
    pub(crate) fn forked() -> Failure {
        let remedy = "it was made before a fork, by the parent process: connect and open anew in this one";
        Failure::new(libc::ECHILD, remedy)
    }

    /// The failure for a file that is being closed by another thread.
    pub(crate) fn closed() -> Failure {
        Failure::new(libc::EBADF, "the file is closed")
    }

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

    #[cfg(test)]
    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }

    /// Makes this the last failure of the calling thread.
    pub(crate) fn tell(self) {
        let bytes = self.message.replace('\0', " ");
        let message = CString::new(bytes).unwrap_or_default();
        // While a thread ends, as in a destructor of what is its own, there is no message any more.
        let _ = LAST.try_with(|last| *last.borrow_mut() = message);
        set_errno(self.errno);
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
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

/// The message of this thread's last failure: a string that stays until the thread's next one.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn set_errno(errno: i32) {
    #[expect(unsafe_code, reason = "errno is a place in the C library's memory")]
    // SAFETY: the C library gives the address of this thread's own errno, which is always valid.
    unsafe {
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct AtEnd;

    impl Drop for AtEnd {
        fn drop(&mut self) {
            Failure::new(libc::EIO, "too late").tell();
            assert!(!last().is_null());
        }
    }

    thread_local! {
        static AT_END: AtEnd = const { AtEnd };
    }

    #[test]
    fn a_thread_that_ends_may_still_fail() {
        let work = || {
            // Made before the message, so dropped after it.
            AT_END.with(|_| ());
            Failure::new(libc::EIO, "before").tell();
        };
        std::thread::spawn(work).join().expect("it ends");
    }

    #[test]
    fn a_failure_sets_errno_and_the_message_of_its_thread_alone() {
        Failure::new(libc::ENOENT, "a\0b").tell();
        std::thread::spawn(|| Failure::new(libc::EIO, "another").tell()).join().expect("it ends");
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
        LAST.with(|last| assert_eq!(last.borrow().as_bytes(), b"a b"));
    }
}
