//! The files that are open in this mount, by number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid_layout::FileId;

use crate::context::Context;
use crate::files::inode::Inode;

/// An open handle.
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    /// True if the handle was opened for writing.
    pub(crate) writes: bool,
    /// Number of losses of the file that the handle was told of.
    pub(crate) told: AtomicU64,
    /// True if locks taken by the handle are lost: it serves no more.
    pub(crate) lost_locks: AtomicBool,
}

/// Records of open files. A file has a record as long as it has a handle.
#[derive(Default)]
pub(crate) struct Inodes {
    open: Mutex<BTreeMap<u64, Entry>>,
    /// Number of records that have ended.
    closed: AtomicUsize,
}

struct Entry {
    inode: Arc<Inode>,
    handles: usize,
    writers: usize,
}

impl Inodes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a handle.
    pub(crate) fn open(&self, context: &Arc<Context>, file: FileId, writes: bool) -> OpenFile {
        let mut open = self.lock();
        let entry = open.entry(file.0).or_insert_with(|| {
            let inode = Inode::new(file, Arc::clone(context));
            *inode.seen() = context.remembered.get(file);
            Entry { inode: Arc::new(inode), handles: 0, writers: 0 }
        });
        entry.handles += 1;
        entry.writers += usize::from(writes);
        let told = AtomicU64::new(entry.inode.state().lost.0);
        OpenFile { inode: Arc::clone(&entry.inode), writes, told, lost_locks: AtomicBool::new(false) }
    }

    /// Number of handles that write the file.
    pub(crate) fn writers(&self, inode: &Inode) -> usize {
        self.lock().get(&inode.file.0).map_or(0, |entry| entry.writers)
    }

    /// Removes a handle that writes. Returns true if it was the last.
    pub(crate) fn writer_left(&self, inode: &Inode) -> bool {
        let mut open = self.lock();
        let Some(entry) = open.get_mut(&inode.file.0) else { return true };
        entry.writers -= 1;
        entry.writers == 0
    }

    /// Removes a handle, after all that its end required was done.
    pub(crate) fn left(&self, inode: &Inode) {
        let mut open = self.lock();
        if let Some(entry) = open.get_mut(&inode.file.0) {
            entry.handles -= 1;
            if entry.handles == 0 {
                let record = open.remove(&inode.file.0);
                self.closed.fetch_add(1, Ordering::Relaxed);
                inode.context.remembered.put(inode.file, *inode.seen());
                if inode.context.said.left(inode.file, Instant::now()) {
                    inode.context.closed(inode.file);
                }
                drop(open);
                if let Some(file) = record.and_then(|entry| entry.inode.take_reader()) {
                    inode.context.idle.put(inode.file, file);
                }
            }
        }
    }

    /// Calls `then` if the file has no handle. None is opened meanwhile.
    pub(crate) fn unless_open(&self, file: FileId, then: impl FnOnce()) {
        let open = self.lock();
        if !open.contains_key(&file.0) {
            then();
        }
    }

    /// The record of a file that is open.
    pub(crate) fn get(&self, file: FileId) -> Option<Arc<Inode>> {
        self.lock().get(&file.0).map(|entry| Arc::clone(&entry.inode))
    }

    /// The records of all open files.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.lock().values().map(|entry| Arc::clone(&entry.inode)).collect()
    }

    /// The records of files with a handle that writes.
    pub(crate) fn all_written(&self) -> Vec<Arc<Inode>> {
        let open = self.lock();
        open.values().filter(|entry| entry.writers > 0).map(|entry| Arc::clone(&entry.inode)).collect()
    }

    /// Number of files ever closed by all that had them open.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns true if no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}
