//! Versions of a file that a mount remembers, to tell whether the kernel's pages are still its content.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::FileId;
use braid_wire::control::StatRow;
use fuser::FileAttr;

use crate::tree::attributes::nanoseconds;
use crate::tree::kept::ROWS_MAX;

/// Maximum time for which the kernel may rely on what it was told.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Maximum number of files that are remembered: as many as records are kept.
const REMEMBERED_MAX: usize = ROWS_MAX;
/// Number of ends of writing that are remembered.
const ENDS_MAX: usize = 1024;

/// Version of a file's content, as far as the manager can tell contents apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    size: u64,
    changed_ns: i64,
}

impl Version {
    pub(crate) fn of(row: &StatRow) -> Version {
        Version { size: row.size(), changed_ns: row.attributes.changed_ns }
    }

    /// The version that the kernel is told with these attributes.
    pub(crate) fn told(attributes: &FileAttr) -> Version {
        Version { size: attributes.size, changed_ns: nanoseconds(attributes.ctime) }
    }
}

/// The versions that the kernel may know, by file. Bounded: a version that is forgotten is only asked for
/// again.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    versions: Mutex<HashMap<u64, Version>>,
}

impl Remembered {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Version>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a file that the kernel has forgotten.
    pub(crate) fn forget(&self, file: FileId) {
        self.lock().remove(&file.0);
    }

    /// Sets the version that the kernel knows; `None` if it knows none.
    pub(crate) fn put(&self, file: FileId, version: Option<Version>) {
        let mut versions = self.lock();
        versions.remove(&file.0);
        if versions.len() >= REMEMBERED_MAX {
            versions.clear();
        }
        if let Some(version) = version {
            versions.insert(file.0, version);
        }
    }

    /// The version that the kernel knows, if it is remembered.
    pub(crate) fn get(&self, file: FileId) -> Option<Version> {
        self.lock().get(&file.0).copied()
    }
}

/// Events at which writers closed or truncated their files, numbered by a count. An answer of the manager
/// that was asked for before such an event may be older than what was known here.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    count: AtomicU64,
    last: Mutex<VecDeque<(u64, FileId)>>,
}

impl Ends {
    /// The count so far.
    pub(crate) fn now(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Notes that a writer of the file ended, or truncated it.
    pub(crate) fn mark(&self, file: FileId) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        last.push_back((count, file));
        if last.len() > ENDS_MAX {
            last.pop_front();
        }
    }

    /// Returns true if there was an event of this file since the count was `then`, or if there were so many
    /// events that this is not known.
    pub(crate) fn any_since(&self, then: u64, file: FileId) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = last.front().is_none_or(|(first, _)| *first <= then + 1);
        !is_known || last.iter().rev().take_while(|(count, _)| *count > then).any(|(_, of)| *of == file)
    }
}
