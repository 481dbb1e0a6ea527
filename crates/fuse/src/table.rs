//! What is open, by the handles that the kernel was given.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::FileHandle;

/// Handles of one kind. A number is never used twice.
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
    /// A handle for it.
    pub(crate) fn put(&self, value: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(value));
        FileHandle(number)
    }

    /// What has this handle.
    pub(crate) fn get(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.lock().get(&handle.0).cloned()
    }

    /// The handle is given back.
    pub(crate) fn take(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.lock().remove(&handle.0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
