//! Files that programs may not map as shared memory: those by which SQLite's processes agree on a write-ahead
//! log.
//!
//! SQLite's processes share one memory, that of a mapped file beside the database. Two mounts cannot keep a
//! mapping one memory, so two programs would each write the log as if alone, and commits would be lost
//! without an error. So mapping the file is refused (ENODEV), and SQLite reports that it cannot use this log;
//! its other journal modes work.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::{FopenFlags, INodeNo};

/// End of such a file's name.
const END: &[u8] = b"-shm";

/// The files of this kind that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Unmapped {
    files: Mutex<BTreeSet<u64>>,
}

impl Unmapped {
    fn files(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a name is that of such a file.
    pub(crate) fn has(name: &[u8]) -> bool {
        name.ends_with(END)
    }

    /// Notes a file with such a name of which the kernel is told.
    pub(crate) fn note(&self, number: INodeNo) {
        self.files().insert(number.0);
    }

    /// Removes a file that the kernel has forgotten.
    pub(crate) fn forget(&self, number: INodeNo) {
        self.files().remove(&number.0);
    }

    /// Flags to open a file with: the kernel does not map a file as shared memory if it keeps no pages of it.
    pub(crate) fn flags(&self, number: INodeNo) -> FopenFlags {
        let is_one = self.files().contains(&number.0);
        if is_one { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_such_names_are_opened_so_until_they_are_forgotten() {
        assert!(Unmapped::has(b"data.db-shm") && !Unmapped::has(b"data.db"));
        let unmapped = Unmapped::default();
        unmapped.note(INodeNo(3));
        assert_eq!(unmapped.flags(INodeNo(2)), FopenFlags::empty());
        assert_eq!(unmapped.flags(INodeNo(3)), FopenFlags::FOPEN_DIRECT_IO);
        unmapped.forget(INodeNo(3));
        assert_eq!(unmapped.flags(INodeNo(3)), FopenFlags::empty());
    }
}
