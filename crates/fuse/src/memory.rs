//! Memory that is not used any more goes back to the system. The C library keeps what was freed, for the
//! process to use again: after many files were open at once, that is as much as they all took.

/// So many files must have been closed since the last time.
const CLOSED_MIN: usize = 256;

/// Finds out when to give memory back.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Files closed when it was looked last, and when memory was given back.
    seen: usize,
    given: usize,
}

impl Memory {
    /// Whether to give memory back now: many files were closed, and none of late. `closed`: so many were,
    /// ever.
    pub(crate) fn is_due(&mut self, closed: usize) -> bool {
        let is_quiet = std::mem::replace(&mut self.seen, closed) == closed;
        let is_due = is_quiet && closed - self.given >= CLOSED_MIN;
        if is_due {
            self.given = closed;
        }
        is_due
    }
}

/// Gives back what is free.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the C library's interface")]
    // SAFETY: it takes a number, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_many_files_were_closed_and_when_it_is_quiet() {
        let mut memory = Memory::default();
        let closed = [0, 100, 100, 300, 500, 500, 500, 600, 600, 800, 800, 800];
        let due = closed.map(|closed| memory.is_due(closed));
        let at: Vec<usize> = (0..due.len()).filter(|at| due[*at]).collect();
        assert_eq!(at, [5, 10]);
    }
}
