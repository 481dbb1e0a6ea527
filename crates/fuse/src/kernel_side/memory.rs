//! Returns unused memory to the system. The C library keeps freed memory for the process to use again: after
//! many files were open at once, that is as much as they all took.

/// Minimum number of files closed and forgotten since the last time that memory was given back.
const ENDED_MIN: usize = 256;

/// Finds out when to give memory back.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Number of files closed and forgotten: `seen` at the last look, `given` when memory was last given
    /// back.
    seen: usize,
    given: usize,
}

impl Memory {
    /// Returns true if memory is to be given back now: many files ended, and none since the last look.
    /// `ended` is the number of files ever closed, and of those that the kernel has ever forgotten.
    pub(crate) fn is_due(&mut self, ended: usize) -> bool {
        let is_quiet = std::mem::replace(&mut self.seen, ended) == ended;
        let is_due = is_quiet && ended - self.given >= ENDED_MIN;
        if is_due {
            self.given = ended;
        }
        is_due
    }
}

/// Gives free memory back to the system.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the C library's interface")]
    // SAFETY: `malloc_trim` takes a number, and touches only free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_many_files_ended_and_when_it_is_quiet() {
        let mut memory = Memory::default();
        let ended = [0, 100, 100, 300, 500, 500, 500, 600, 600, 800, 800, 800];
        let due = ended.map(|ended| memory.is_due(ended));
        let at: Vec<usize> = (0..due.len()).filter(|at| due[*at]).collect();
        assert_eq!(at, [5, 10]);
    }
}
