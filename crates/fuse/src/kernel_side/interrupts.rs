//! Signals of programs that wait: a program that has a signal is not to wait any longer.
//!
//! The kernel reports a signal in a message that `fuser` does not pass on, and lets the program wait until
//! its request is answered. So signals are read from `/proc`.

use std::fs;

/// A thread that waits.
pub(crate) struct Waiter {
    thread: u32,
    /// True if the process had a signal at the last look, which any of its threads may take.
    had: bool,
}

impl Waiter {
    /// A thread by its id; 0 for a thread that cannot be seen from here.
    pub(crate) fn new(thread: u32) -> Waiter {
        Waiter { thread, had: false }
    }

    /// Returns true if the thread can be seen from here.
    pub(crate) fn is_known(&self) -> bool {
        self.thread != 0
    }

    /// Returns true if the thread has a signal that it does not block, or is gone. A signal for its process
    /// counts if it is still there at the next look: otherwise another thread has taken it.
    pub(crate) fn has_signal(&mut self) -> bool {
        if !self.is_known() {
            return false;
        }
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.thread)) else { return true };
        let (own, shared) = pending(&status);
        let has = own || (shared && self.had);
        self.had = shared;
        has
    }
}

/// From the text of `/proc/PID/status`: whether a signal that is not blocked is pending for the thread, and
/// whether one is for its process.
fn pending(status: &str) -> (bool, bool) {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let open = !mask("SigBlk:");
    (mask("SigPnd:") & open != 0, mask("ShdPnd:") & open != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_held_off_do_not_count() {
        let status = |own: u64, shared: u64, held_off: u64| {
            format!("Name:\ta\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{held_off:016x}\n")
        };
        assert_eq!(pending(&status(0, 0, 0)), (false, false));
        assert_eq!(pending(&status(1 << 8, 0, 0)), (true, false));
        assert_eq!(pending(&status(1 << 8, 1 << 14, 1 << 8)), (false, true));
        assert_eq!(pending(&status(0, 1 << 14, 1 << 14)), (false, false));
    }

    #[test]
    fn who_is_gone_waits_no_more() {
        assert!(Waiter::new(u32::MAX).has_signal());
        assert!(!Waiter::new(std::process::id()).has_signal());
        assert!(!Waiter::new(0).has_signal());
    }
}
