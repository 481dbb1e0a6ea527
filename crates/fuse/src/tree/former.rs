//! Directories and special files that were removed while programs had them open. The manager no longer has a
//! record of them; its last record is kept here until the kernel forgets them, and attributes that are set
//! change it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_client::AttributeChanges;
use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};

use crate::tree::kept::ROWS_MAX;

/// The last records of removed directories and special files.
#[derive(Default)]
pub(crate) struct Former {
    rows: Mutex<HashMap<FileId, StatRow>>,
}

impl Former {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, StatRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the record of an entry that may be removed now, or may have been removed by others. The manager
    /// itself keeps files.
    pub(crate) fn put(&self, row: &StatRow) {
        if row.kind() == EntryKind::File {
            return;
        }
        let mut rows = self.lock();
        if rows.len() >= ROWS_MAX {
            rows.clear();
        }
        rows.insert(row.file, row.clone());
    }

    /// Removes the record of an entry that the kernel has forgotten.
    pub(crate) fn forget(&self, file: FileId) {
        self.lock().remove(&file);
    }

    /// The record of an entry that the manager no longer has: it has no name.
    pub(crate) fn row(&self, file: FileId) -> Option<StatRow> {
        let mut row = self.lock().get(&file).cloned()?;
        row.attributes.links = 0;
        Some(row)
    }

    pub(crate) fn set(&self, file: FileId, changes: &AttributeChanges, now_ns: i64) -> Option<StatRow> {
        if let Some(row) = self.lock().get_mut(&file) {
            let &AttributeChanges { mode, uid, gid, accessed_ns, modified_ns } = changes;
            let of = &mut row.attributes;
            of.mode = mode.unwrap_or(of.mode);
            (of.uid, of.gid) = (uid.unwrap_or(of.uid), gid.unwrap_or(of.gid));
            of.accessed_ns = accessed_ns.unwrap_or(of.accessed_ns);
            of.modified_ns = modified_ns.unwrap_or(of.modified_ns);
            of.changed_ns = of.changed_ns.max(now_ns);
        }
        self.row(file)
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, VolumeId};
    use braid_wire::control::FileAttributes;

    use super::*;

    #[test]
    fn what_was_removed_is_known_without_a_name_until_the_kernel_forgets_it() {
        let of = |kind, file| StatRow {
            volume: VolumeId(1),
            file: FileId(file),
            parent: FileId(1),
            attributes: FileAttributes {
                kind,
                mode: 0o755,
                uid: 1,
                gid: 1,
                links: 2,
                size: 0,
                device: 0,
                has_xattrs: false,
                accessed_ns: 1,
                modified_ns: 1,
                changed_ns: 1,
                created_ns: 1,
                sealed: false,
            },
            target: Vec::new(),
            g: Generation(0),
            segments: Vec::new(),
            snapshot: 0,
        };
        let former = Former::default();
        former.put(&of(EntryKind::File, 4));
        former.put(&of(EntryKind::Directory, 5));
        assert!(former.row(FileId(4)).is_none(), "the manager keeps it");
        let changes = AttributeChanges { mode: Some(0o700), ..AttributeChanges::NONE };
        let set = former.set(FileId(5), &changes, 9).expect("known").attributes;
        assert_eq!((set.mode, set.links, set.changed_ns, set.modified_ns), (0o700, 0, 9, 1));
        assert_eq!(former.row(FileId(5)).expect("known").attributes.mode, 0o700);
        former.forget(FileId(5));
        assert!(former.row(FileId(5)).is_none());
    }
}
