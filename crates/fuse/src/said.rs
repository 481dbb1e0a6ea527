//! Files that the manager takes to be open here: it keeps them when they lose their names, until it is told
//! that they are open no more.
//!
//! A file is open here as long as the kernel knows it: who has found a name opens what it found, also if that
//! loses its name in between. The kernel says when it forgets a file; one that changed elsewhere it may know
//! for ever, so that one counts as long only as somebody may be about to open it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_layout::FileId;

/// How long somebody may take from finding a name to opening what it found.
const LINGER: Duration = Duration::from_secs(2);

/// What was said to be open.
#[derive(Debug, Default)]
pub(crate) struct Said {
    files: Mutex<HashMap<FileId, One>>,
}

#[derive(Debug, Clone, Copy)]
struct One {
    /// When it was said, or closed last.
    at: Instant,
    /// The kernel has forgotten it since.
    is_forgotten: bool,
}

impl Said {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, One>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager takes these to be open.
    pub(crate) fn put(&self, files: impl IntoIterator<Item = FileId>, now: Instant) {
        self.lock().extend(files.into_iter().map(|file| (file, One { at: now, is_forgotten: false })));
    }

    /// The kernel has forgotten a file. Returns whether it was said to be open.
    pub(crate) fn forget(&self, file: FileId) -> bool {
        self.lock().get_mut(&file).map(|one| one.is_forgotten = true).is_some()
    }

    /// The last handle of a file is gone. Returns whether nobody can open it any more.
    pub(crate) fn left(&self, file: FileId, now: Instant) -> bool {
        self.lock().get_mut(&file).is_some_and(|one| {
            one.at = now;
            one.is_forgotten
        })
    }

    /// It is open no more. Returns whether it was said to be.
    pub(crate) fn take(&self, file: FileId) -> bool {
        self.lock().remove(&file).is_some()
    }

    pub(crate) fn all(&self) -> Vec<FileId> {
        self.lock().keys().copied().collect()
    }

    /// Those that nobody is about to open.
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
