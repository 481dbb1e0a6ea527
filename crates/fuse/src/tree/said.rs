//! Files that the manager takes to be open here: it keeps them when they lose their names, until it is told
//! that they are no longer open.
//!
//! A file is open here as long as the kernel knows it: a program that has found a name opens the file that it
//! found, even if the file loses that name in between. The kernel reports when it forgets a file; but a file
//! that changed elsewhere the kernel may know for ever, so such a file counts as open only as long as a
//! program may be about to open it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_layout::FileId;

/// Time that a program may take from finding a name to opening the file that it found.
const LINGER: Duration = Duration::from_secs(2);

/// Files that the manager was told are open.
#[derive(Debug, Default)]
pub(crate) struct Said {
    files: Mutex<HashMap<FileId, One>>,
}

#[derive(Debug, Clone, Copy)]
struct One {
    /// Time when the manager was told, or the last handle was closed.
    at: Instant,
    /// True if the kernel has forgotten the file since.
    is_forgotten: bool,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, One>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds files that the manager takes to be open.
    pub(crate) fn put(&self, files: impl IntoIterator<Item = FileId>, now: Instant) {
        self.lock().extend(files.into_iter().map(|file| (file, One { at: now, is_forgotten: false })));
    }

    /// Notes that the kernel has forgotten a file. Returns true if the file was said to be open.
    pub(crate) fn forget(&self, file: FileId) -> bool {
        self.lock().get_mut(&file).map(|one| one.is_forgotten = true).is_some()
    }

    /// Notes that the last handle of a file is gone. Returns true if no program can open the file any more.
    pub(crate) fn left(&self, file: FileId, now: Instant) -> bool {
        self.lock().get_mut(&file).is_some_and(|one| {
            one.at = now;
            one.is_forgotten
        })
    }

    /// Removes a file that is no longer open. Returns true if it was said to be open.
    pub(crate) fn take(&self, file: FileId) -> bool {
        self.lock().remove(&file).is_some()
    }

    pub(crate) fn all(&self) -> Vec<FileId> {
        self.lock().keys().copied().collect()
    }

    /// Files that no program is about to open.
    pub(crate) fn old(&self, now: Instant) -> Vec<FileId> {
        let files = self.lock();
        let old = files.iter().filter(|(_, one)| now.saturating_duration_since(one.at) > LINGER);
        old.map(|(file, _)| *file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_until_the_kernel_forgets_it_or_for_a_while() {
        let said = Said::default();
        let now = Instant::now();
        let file = FileId(5);
        assert!(!said.forget(file) && !said.left(file, now), "nobody said so");
        said.put([file], now);
        assert!(!said.left(file, now), "the kernel knows it");
        assert!(said.forget(file) && said.left(file, now));
        said.put([file], now);
        assert!(!said.left(file, now), "it was found again");
        assert!(said.old(now + LINGER).is_empty());
        assert_eq!(said.old(now + 2 * LINGER), [file]);
        assert!(said.take(file) && !said.take(file) && said.all().is_empty());
    }
}
