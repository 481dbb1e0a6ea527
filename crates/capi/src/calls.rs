//! The frame of every function that C calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::Failure;

/// Runs what a function does. A failure, or a panic, becomes errno and a message, and the function returns
/// `failed`.
pub(crate) fn answer<T>(failed: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    // After a panic nothing is used that could be half changed: what failed is the client's, whose own
    // locks tell.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
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
    use super::*;

    #[test]
    fn a_panic_does_not_leave_the_library() {
        assert_eq!(answer(-1, || panic!("on purpose")), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        assert_eq!(answer(-1, || Ok(3)), 3);
    }
}
