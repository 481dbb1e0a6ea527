//! Files that programs may not map to be shared: those by which SQLite's processes agree on a write-ahead
//! log.
//!
//! SQLite has them use one memory, of a mapped file beside the database. Two mounts cannot keep a mapping
//! one memory, and so two programs would each write the log as if alone, and commits would be lost without
//! a word. So mapping it is refused (ENODEV), and SQLite says that it cannot; its other journal modes work.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::{FopenFlags, INodeNo};

/// How such a file's name ends.
const END: &[u8] = b"-shm";

/// Those that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Unmapped {
    files: Mutex<BTreeSet<u64>>,
}

impl Unmapped {
    fn files(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a name is that of such a file.
    pub(crate) fn has(name: &[u8]) -> bool {
        name.ends_with(END)
    }

    /// The kernel is told what has the name of one.
    pub(crate) fn note(&self, number: INodeNo) {
        self.files().insert(number.0);
    }

    /// The kernel has forgotten it.
    pub(crate) fn forget(&self, number: INodeNo) {
        self.files().remove(&number.0);
    }

    /// How it is opened: what the kernel keeps no pages of it does not map to be shared.
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
