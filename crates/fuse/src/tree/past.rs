//! Snapshots in a mount: below `.snapshots` in each directory that has any.
//!
//! `.snapshots` is a *door*: no listing shows it, and its names are those of the snapshots. The kernel gets
//! numbers of their own for all that is in a snapshot, with the highest bit set, which no live file has: so
//! nothing of the live files' records, delayed writes, watches and locks is concerned. What is in a snapshot
//! does not change, so the kernel may keep it; only doors are looked at each time. Nothing can be written.
//!
//! The number is made of the file's and the snapshot's, the same in each mount and at any time. As these
//! cannot be found from it, a record is kept of each as long as the kernel knows it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_client::{File, Name, OpenOptions};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, LAYOUT_XATTR, LockKind, StatRow};
use fuser::{Errno, FileAttr, FileHandle, FopenFlags, INodeNo};
use rustix::fs::OFlags;

use crate::errors::{Outcome, errno};
use crate::files::buffers::Filled;
use crate::files::inode::fill;
use crate::shared::Shared;
use crate::table::Table;
use crate::tree::attributes;
use crate::tree::listing::{Listed, Listing};
use crate::tree::names::{Entry, stale};

/// The name of a directory's door.
pub(crate) const DOOR: &[u8] = b".snapshots";
/// Bit of a number that stands for something in a snapshot. Handles of files there have it too.
const BIT: u64 = 1 << 63;
/// Time for which the kernel may rely on what is in a snapshot.
const TRUST: Duration = Duration::from_secs(3600);

/// The files and directories in snapshots that the kernel knows.
pub(crate) struct Past {
    nodes: Mutex<HashMap<u64, Arc<StatRow>>>,
    open: Table<File>,
}

impl Default for Past {
    fn default() -> Past {
        Past { nodes: Mutex::default(), open: Table::from(BIT) }
    }
}

/// Returns true if the number stands for something in a snapshot, or for a door.
pub(crate) fn is_past(number: INodeNo) -> bool {
    number.0 & BIT != 0
}

/// Refuses to change what is in a snapshot.
pub(crate) fn changeable(number: INodeNo) -> Outcome<()> {
    if is_past(number) { Err(Errno::EROFS) } else { Ok(()) }
}

/// The number by which the kernel knows a file in a snapshot. Doors have theirs from the manager, and are in
/// no snapshot.
pub(crate) fn number(file: FileId, snapshot: u32) -> INodeNo {
    if snapshot == 0 {
        return INodeNo(file.0);
    }
    // The finalizer of SplitMix64: each bit of both numbers concerns each of the result.
    let mut mixed = file.0 ^ u64::from(snapshot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    INodeNo((mixed ^ (mixed >> 31)) | BIT)
}

impl Past {
    fn nodes(&self) -> MutexGuard<'_, HashMap<u64, Arc<StatRow>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, number: INodeNo) -> Outcome<Arc<StatRow>> {
        self.nodes().get(&number.0).cloned().ok_or(Errno::ESTALE)
    }

    /// Puts down what the kernel is told of.
    pub(crate) fn put(&self, row: StatRow) {
        self.nodes().insert(number(row.file, row.snapshot).0, Arc::new(row));
    }

    pub(crate) fn forget(&self, number: INodeNo) {
        self.nodes().remove(&number.0);
    }

    pub(crate) fn opened(&self, handle: FileHandle) -> Option<Arc<File>> {
        if handle.0 & BIT == 0 { None } else { self.open.get(handle) }
    }
}

impl Entry {
    /// Times for which the kernel may rely on the attributes and the name of an entry in a snapshot.
    pub(crate) fn trust_in_past(&self) -> Duration {
        if self.is_kept { TRUST } else { Duration::ZERO }
    }
}

impl Shared {
    fn past_name(&self, row: &StatRow) -> Name {
        let root = Name::root(&self.context.volume).expect("the volume's name was checked");
        root.beneath(row, Vec::new())
    }

    /// The entry of a name in a snapshot or door. Another number may have come together with this one's by
    /// chance: it is not mistaken for this one.
    pub(crate) async fn look_up_past(&self, directory: INodeNo, name: &[u8]) -> Outcome<Entry> {
        let above = self.past.node(directory)?;
        let path = match name {
            b"." => return self.past_entry(&above, above.snapshot != 0),
            b".." => {
                let up = StatRow { file: above.parent, ..StatRow::clone(&above) };
                self.past_name(if above.snapshot == 0 || above.parent == FileId(0) { &above } else { &up })
            }
            _ => self.past_name(&above).join(name).map_err(|error| match error {
                braid_client::NameError::ComponentLength(_) => Errno::ENAMETOOLONG,
                _ => Errno::EINVAL,
            })?,
        };
        let row = self.context.client.stat_itself(&path).await.map_err(|error| errno(&error))?;
        self.past_entry(&row, above.snapshot != 0)
    }

    /// The door of a live directory; `None` if an entry has its name, as it is older.
    pub(crate) async fn look_up_door(&self, directory: INodeNo) -> Outcome<Option<Entry>> {
        let path = self.under(directory, DOOR)?;
        let row = self.context.client.stat_itself(&path).await.map_err(|error| errno(&error))?;
        if is_past(INodeNo(row.file.0)) { self.past_entry(&row, false).map(Some) } else { Ok(None) }
    }

    /// Refuses to remove or replace a door.
    pub(crate) async fn not_a_door(&self, directory: INodeNo, name: &[u8]) -> Outcome<()> {
        if name != DOOR {
            return Ok(());
        }
        match self.look_up_door(directory).await {
            Ok(Some(_)) => Err(Errno::EROFS),
            Ok(None) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn past_entry(&self, row: &StatRow, is_kept: bool) -> Outcome<Entry> {
        let row = StatRow { segments: Vec::new(), ..row.clone() };
        if let Ok(known) = self.past.node(number(row.file, row.snapshot))
            && (known.file, known.snapshot) != (row.file, row.snapshot)
        {
            return Err(Errno::EIO);
        }
        let attributes = past_attributes(&row);
        Ok(Entry { attributes, is_kept, is_unmapped: false, past: Some(Box::new(row)) })
    }

    pub(crate) fn attributes_in_past(&self, number: INodeNo) -> Outcome<FileAttr> {
        Ok(past_attributes(&*self.past.node(number)?))
    }

    pub(crate) fn target_in_past(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        let row = self.past.node(number)?;
        if row.kind() == EntryKind::Symlink { Ok(row.target.clone()) } else { Err(Errno::EINVAL) }
    }

    pub(crate) async fn xattr_in_past(&self, number: INodeNo, name: &[u8]) -> Outcome<Vec<u8>> {
        let row = self.past.node(number)?;
        if name == LAYOUT_XATTR && row.kind() == EntryKind::File {
            let layout = self.context.client.layout(&self.past_name(&row)).await;
            let shape = layout.map_err(|error| stale(errno(&error)))?.shape;
            return Ok(shape.shape().map_err(|_| Errno::EIO)?.text().into_bytes());
        }
        let all = self.xattrs_in_past(&row).await?;
        all.into_iter().find(|(of, _)| of == name).map(|(_, value)| value).ok_or(Errno::ENODATA)
    }

    pub(crate) async fn xattr_names_in_past(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        let all = self.xattrs_in_past(&*self.past.node(number)?).await?;
        Ok(all.into_iter().flat_map(|(name, _)| name.into_iter().chain([0])).collect())
    }

    async fn xattrs_in_past(&self, row: &StatRow) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
        if !row.attributes.has_xattrs {
            return Ok(Vec::new());
        }
        let all = self.context.client.xattrs(&self.past_name(row)).await;
        let all = all.map_err(|error| stale(errno(&error)))?;
        Ok(all.into_iter().map(|xattr| (xattr.name, xattr.value)).collect())
    }

    /// Opens a file of a snapshot.
    pub(crate) async fn open_past(
        &self,
        number: INodeNo,
        flags: OFlags,
    ) -> Outcome<(FileHandle, FopenFlags)> {
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            return Err(Errno::EROFS);
        }
        let row = self.past.node(number)?;
        let opened = self.context.client.open(&self.past_name(&row), &OpenOptions::new().read(true)).await;
        let file = opened.map_err(|error| stale(errno(&error)))?;
        Ok((self.past.open.put(file), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH))
    }

    pub(crate) async fn read_past(&self, file: &File, offset: u64, size: u32) -> Outcome<Filled> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut buffer = self.context.buffers.take(size);
        let read = fill(file, &mut buffer[..size], offset).await;
        let bytes = read.map_err(|error| stale(errno(&error)))?;
        Ok(Filled { buffer, bytes })
    }

    /// Closes a file of a snapshot. Returns false if the handle is not of one.
    pub(crate) async fn release_past(&self, handle: FileHandle) -> bool {
        if handle.0 & BIT == 0 {
            return false;
        }
        if let Some(Ok(file)) = self.past.open.take(handle).map(Arc::try_unwrap) {
            // Nothing was written.
            let _ = file.close().await;
        }
        true
    }

    /// Opens a directory in a snapshot, or a door. The flags say whether the kernel may list it from what it
    /// has cached.
    pub(crate) fn open_directory_in_past(&self, at: INodeNo) -> Outcome<(Listing, FopenFlags)> {
        let row = self.past.node(at)?;
        if row.kind() != EntryKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let is_door = row.snapshot == 0;
        let above = match row.parent {
            FileId(0) => at,
            above if is_door => attributes::number(above, self.context.root),
            above => number(above, row.snapshot),
        };
        let flags = match is_door {
            true => FopenFlags::empty(),
            false => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
        };
        let listed = Listed::Past { name: self.past_name(&row), snapshot: row.snapshot };
        Ok((Listing::new(&self.context, listed, at, above), flags))
    }
}

/// Grants a lock of a file in a snapshot, or not: nobody writes it, so readers need not ask.
pub(crate) fn lock(kind: Option<LockKind>) -> Outcome<()> {
    if kind == Some(LockKind::Exclusive) { Err(Errno::EROFS) } else { Ok(()) }
}

fn past_attributes(row: &StatRow) -> FileAttr {
    // Its number is no live file's, so that it is not the volume's root either.
    let of = attributes::of(row.file, &row.attributes, FileId(0));
    FileAttr { ino: number(row.file, row.snapshot), ..of }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_a_snapshot_has_a_number_that_no_live_file_has_and_that_stays() {
        let file = FileId((7 << 24) + 5);
        assert_eq!(number(file, 3), number(file, 3));
        let mut numbers = std::collections::BTreeSet::new();
        for count in 0..200 {
            for snapshot in 1..50 {
                let number = number(FileId(file.0 + count), snapshot);
                assert!(is_past(number) && changeable(number) == Err(Errno::EROFS));
                assert!(numbers.insert(number.0), "two have one number");
            }
        }
        assert!(!is_past(INodeNo(file.0)) && !is_past(INodeNo::ROOT));
        let door = FileId(file.0 | BIT);
        assert_eq!(number(door, 0), INodeNo(door.0), "a door's is the manager's");
    }
}
