//! The frame of every function that C calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::Failure;
use crate::signals::NoPipeSignal;

/// Runs what a function does. A failure, or a panic, becomes errno and a message, and the function returns
/// `failed`. The calling thread gets no SIGPIPE from a connection that breaks.
pub(crate) fn answer<T>(failed: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    // After a panic nothing is used that could be half changed: what failed is the client's, whose own
    // locks tell.
    let quiet = NoPipeSignal::begin();
    let result = catch_unwind(AssertUnwindSafe(work));
    // Its own system calls set errno.
    drop(quiet);
    let failure = match result {
        Ok(Ok(done)) => return done,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            libc::EIO,
            "the library has a bug: see the message of its panic on the standard error",
        ),
    };
    failure.tell();
    failed
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_connection_that_breaks_does_not_kill_the_program() {
        // Rust's programs ignore this signal; those in C do not.
        #[expect(unsafe_code, reason = "the program under test is one that does not ignore the signal")]
        // SAFETY: the default action needs no memory.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let writes = || {
            let (gone, mut here) = std::io::pipe().expect("a pipe");
            drop(gone);
            here.write(b"x").map(|_| 0).map_err(|error| Failure::system("write", &error))
        };
        let written = std::thread::spawn(move || {
            let failed = answer(-1, writes);
            (failed, std::io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(written.join().expect("it ends"), (-1, Some(libc::EPIPE)));
        #[expect(unsafe_code, reason = "as before")]
        // SAFETY: the action is the one that was in force.
        unsafe {
            libc::signal(libc::SIGPIPE, before);
        }
    }

    #[test]
    fn a_panic_does_not_leave_the_library() {
        assert_eq!(answer(-1, || panic!("on purpose")), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        assert_eq!(answer(-1, || Ok(3)), 3);
    }
}
