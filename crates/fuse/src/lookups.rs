//! How often the kernel was told of each file: it says how many of these it has forgotten, and knows the file
//! until that is all of them. It may be told once more while it is about to forget the others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fuser::INodeNo;

/// The files that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    files: Mutex<HashMap<u64, u64>>,
}

impl Lookups {
    /// The kernel is about to be told of a file.
    pub(crate) fn told(&self, number: INodeNo) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        *files.entry(number.0).or_default() += 1;
    }

    /// It has forgotten so many. Returns whether it knows the file no more.
    pub(crate) fn forget(&self, number: INodeNo, times: u64) -> bool {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = files.get_mut(&number.0) else { return true };
        *known = known.saturating_sub(times);
        let is_forgotten = *known == 0;
        if is_forgotten {
            files.remove(&number.0);
        }
        is_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_until_all_lookups_are_forgotten() {
        let (lookups, file) = (Lookups::default(), INodeNo(7));
        (0..3).for_each(|_| lookups.told(file));
        lookups.told(INodeNo(8));
        assert!(!lookups.forget(file, 2), "one was told meanwhile");
        assert!(lookups.forget(file, 1) && lookups.forget(INodeNo(8), 1));
        lookups.told(file);
        assert!(lookups.forget(file, 1), "it was found again");
    }
}
