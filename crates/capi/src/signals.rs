//! Signals of the calling program, which are not the library's to take.
//!
//! A write to a connection whose other end is gone gives the writing thread SIGPIPE, which kills a program
//! that does not ignore it. While a call lasts the signal is held back, and one that came of it is taken. The
//! library's own threads take no signals at all.

use std::mem::MaybeUninit;
use std::ptr;

/// A set of signals.
struct Set(libc::sigset_t);

impl Set {
    fn all() -> Set {
        let mut set = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no library wraps sets of signals")]
        // SAFETY: the call fills the set, whose memory is valid.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Set(set.assume_init())
        }
    }

    fn pipe() -> Set {
        let mut set = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no library wraps sets of signals")]
        // SAFETY: the first call fills the set, whose memory is valid, and the second changes it.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
            Set(set.assume_init())
        }
    }

    /// Returns true if a SIGPIPE waits for the calling thread.
    fn is_pipe_pending() -> bool {
        let mut set = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no library wraps sets of signals")]
        // SAFETY: the first call fills the set, whose memory is valid, and the second reads it.
        unsafe {
            libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1
        }
    }
}

/// The calling thread's signals that were held back before.
pub(crate) struct Held(libc::sigset_t);

impl Held {
    /// Holds all signals back in the calling thread, and in those that it starts, until this is dropped.
    pub(crate) fn all() -> Held {
        Held::set(&Set::all())
    }

    /// Holds all signals back in the calling thread for good.
    pub(crate) fn all_for_good() {
        let all = Set::all();
        #[expect(unsafe_code, reason = "no library wraps a thread's signal mask")]
        // SAFETY: the set is valid memory; with these arguments the call cannot fail.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all.0, ptr::null_mut());
        }
    }

    fn set(signals: &Set) -> Held {
        let mut before = MaybeUninit::uninit();
        #[expect(unsafe_code, reason = "no library wraps a thread's signal mask")]
        // SAFETY: both sets are valid memory; with these arguments the call cannot fail, and fills `before`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals.0, before.as_mut_ptr());
            Held(before.assume_init())
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "no library wraps a thread's signal mask")]
        // SAFETY: the set is the one that the same call gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut());
        }
    }
}

/// SIGPIPE is held back in the calling thread, and one that comes is taken when this is dropped.
pub(crate) struct NoPipeSignal {
    was_pending: bool,
    // Dropped after the signal was taken.
    _held: Held,
}

impl NoPipeSignal {
    pub(crate) fn begin() -> NoPipeSignal {
        let held = Held::set(&Set::pipe());
        NoPipeSignal { was_pending: Set::is_pipe_pending(), _held: held }
    }
}

impl Drop for NoPipeSignal {
    fn drop(&mut self) {
        if self.was_pending || !Set::is_pipe_pending() {
            return;
        }
        let signals = Set::pipe();
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        #[expect(unsafe_code, reason = "no library wraps a wait for a signal")]
        // SAFETY: the set and the time are valid memory, and nothing is asked about the signal.
        unsafe {
            libc::sigtimedwait(&raw const signals.0, ptr::null_mut(), &raw const at_once);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raise() {
        #[expect(unsafe_code, reason = "the signal is for this thread alone")]
        // SAFETY: the calling thread exists.
        unsafe {
            libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
        }
    }

    #[test]
    fn a_signal_that_was_waiting_before_is_left_and_another_is_taken() {
        let work = || {
            let outer = Held::set(&Set::pipe());
            let quiet = NoPipeSignal::begin();
            raise();
            drop(quiet);
            assert!(!Set::is_pipe_pending(), "it came of the call");
            raise();
            drop(NoPipeSignal::begin());
            assert!(Set::is_pipe_pending(), "it is the program's own");
            drop(NoPipeSignal { was_pending: false, _held: Held::set(&Set::pipe()) });
            drop(outer);
        };
        std::thread::spawn(work).join().expect("it ends");
    }

    #[test]
    fn threads_that_are_started_meanwhile_take_no_signals() {
        let held = Held::all();
        let work = || {
            raise();
            Set::is_pipe_pending()
        };
        assert!(std::thread::spawn(work).join().expect("it ends"), "it waits, as nobody takes it");
        drop(held);
    }
}
