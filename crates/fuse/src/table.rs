//! Open files and directories, by the handles that the kernel was given.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::FileHandle;

/// Open handles of one kind. A number is never used twice.
#[derive(Debug)]
pub(crate) struct Table<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { next: AtomicU64::new(1), open: Mutex::default() }
    }
}

impl<T> Table<T> {
    /// A table whose handles begin above a number.
    pub(crate) fn from(above: u64) -> Table<T> {
        Table { next: AtomicU64::new(above + 1), open: Mutex::default() }
    }

    /// Adds a value and returns its new handle.
    pub(crate) fn put(&self, value: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(value));
        FileHandle(number)
    }

    /// The value with this handle.
    pub(crate) fn get(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.lock().get(&handle.0).cloned()
    }

    /// Removes a handle that is given back, and returns its value.
    pub(crate) fn take(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.lock().remove(&handle.0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
