//! State that all requests of a mount share, and operations on files by their handles.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use braid_client::AttributeChanges;
use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};
use fuser::{Errno, FileAttr, FileHandle, FopenFlags, INodeNo};
use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::context::Context;
use crate::errors::{Outcome, errno};
use crate::files::inodes::{Inodes, OpenFile};
use crate::files::lock_table::Locks;
use crate::files::version::Version;
use crate::files::write_back::{Through, WritePlace};
use crate::kernel_side::lookups::Lookups;
use crate::kernel_side::unmapped::Unmapped;
use crate::table::Table;
use crate::tree::attributes::{self, nanoseconds};
use crate::tree::later::merged;
use crate::tree::listing::{Listed, Listing};
use crate::tree::names::{Entry, known};
use crate::tree::past::{self, Past};
use crate::tree::space::Space;

/// State shared by all requests of a mount.
pub(crate) struct Shared {
    pub(crate) context: Arc<Context>,
    pub(crate) inodes: Inodes,
    pub(crate) files: Table<OpenFile>,
    pub(crate) directories: Table<Listing>,
    pub(crate) space: Space,
    pub(crate) locks: Arc<Locks>,
    pub(crate) unmapped: Unmapped,
    pub(crate) lookups: Lookups,
    pub(crate) past: Past,
}

/// Place of a write, and the condition for its answer.
pub(crate) fn manner(offset: u64, flags: OFlags, is_from_pages: bool) -> (WritePlace, Through) {
    // The kernel writes pages of a mapping by any handle that writes; that handle's flags do not apply to
    // them.
    if is_from_pages {
        return (WritePlace::At(offset), Through::No);
    }
    let place = if flags.contains(OFlags::APPEND) { WritePlace::End } else { WritePlace::At(offset) };
    let through = if flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
        Through::Manager
    } else if flags.contains(OFlags::DIRECT) {
        Through::Drives
    } else {
        Through::No
    };
    (place, through)
}

impl Shared {
    pub(crate) fn new(context: Arc<Context>) -> Shared {
        let (inodes, files, directories, space, unmapped, lookups, past) = Default::default();
        let locks = Arc::clone(&context.locks);
        Shared { context, inodes, files, directories, space, locks, unmapped, lookups, past }
    }

    /// Number of times that bytes were dropped because they could not be written.
    pub(crate) fn lost_files(&self) -> usize {
        self.context.lossy.load(Ordering::Relaxed)
    }

    /// Notes that the kernel is about to be told of an entry: from then on it knows the entry.
    pub(crate) fn tell(&self, attributes: &FileAttr, is_unmapped: bool) {
        let number = attributes.ino;
        self.lookups.told(number, || {
            // These records may have been dropped since the entry was looked up.
            self.context.told.put(self.file(number), Some(Version::told(attributes)));
            if is_unmapped {
                self.unmapped.note(number);
            }
        });
    }

    /// Notes that the kernel is about to be told of an entry in a snapshot.
    pub(crate) fn tell_of_past(&self, entry: &Entry) {
        if let Some(row) = &entry.past {
            self.lookups.told(entry.attributes.ino, || self.past.put(StatRow::clone(row)));
        }
    }

    /// Drops the records of a file that the kernel no longer knows.
    pub(crate) fn forget(&self, number: INodeNo) {
        if past::is_past(number) {
            return self.past.forget(number);
        }
        let context = &self.context;
        let file = self.file(number);
        context.remembered.forget(file);
        context.told.forget(file);
        context.former.forget(file);
        self.unmapped.forget(number);
        if context.said.forget(file) {
            self.inodes.unless_open(file, || context.closed(file));
        }
    }

    /// Opens a directory. The flags say whether the kernel may list it from what it has cached.
    pub(crate) async fn open_directory(&self, number: INodeNo) -> Outcome<(Listing, FopenFlags)> {
        if past::is_past(number) {
            return self.open_directory_in_past(number);
        }
        let row = self.row(self.file(number)).await?;
        if row.kind() != EntryKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let is_top = row.parent == FileId(0) || row.file == self.context.root;
        let above = if is_top { self.context.root } else { row.parent };
        let above = attributes::number(above, self.context.root);
        let version = Version::of(&row);
        let mut flags = FopenFlags::FOPEN_CACHE_DIR;
        if self.context.listed.get(row.file) == Some(version) {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        self.context.listed.put(row.file, Some(version));
        let listing = Listing::new(&self.context, Listed::Live(row.file), number, above);
        Ok((listing, flags))
    }

    /// Closes a descriptor: all that was written through any descriptor is with the drives then, and the
    /// program's `fcntl` locks of the file are released.
    pub(crate) async fn flush(self: &Arc<Shared>, handle: FileHandle, owner: u64) -> Outcome<()> {
        if self.past.opened(handle).is_some() {
            return Ok(());
        }
        let open = known(self, handle)?;
        let mut flushed = Ok(());
        if open.writes {
            let is_last = self.inodes.writers(&open.inode) <= 1;
            flushed = open.inode.flush(is_last).await;
        }
        self.unlock_all(&open.inode, owner).await;
        flushed.and_then(|()| open.not_lost())
    }

    /// Syncs a file by any of its descriptors: all that was written by any of them is with the drives then.
    /// The manager is told also if only the bytes are to be synced (`fdatasync`): otherwise others who open
    /// the file would take their cached content for current.
    pub(crate) async fn sync(&self, handle: FileHandle) -> Outcome<()> {
        if self.past.opened(handle).is_some() {
            return Ok(());
        }
        let open = known(self, handle)?;
        open.inode.sync().await?;
        open.not_lost()
    }

    /// Changes the size, and then the other attributes asked for.
    pub(crate) async fn set(
        &self,
        number: INodeNo,
        handle: Option<FileHandle>,
        size: Option<u64>,
        changes: AttributeChanges,
    ) -> Outcome<FileAttr> {
        past::changeable(number)?;
        if let Some(size) = size {
            self.set_size(number, handle, size).await?;
        }
        if changes == AttributeChanges::NONE {
            return self.attributes_by_number(number).await;
        }
        let file = self.file(number);
        let inode = self.inodes.get(file);
        if let (Some(inode), Some(modified_ns)) = (&inode, changes.modified_ns) {
            // Bytes written before must not set a later time when they are committed.
            let mut state = inode.state();
            if state.uncommitted {
                state.modified = Some(modified_ns);
            }
        }
        if let Some(inode) = &inode
            && let Some(row) = inode.set_later(changes).await
        {
            return Ok(self.attributes_of(&row));
        }
        // Changes that were to be sent later are older.
        let telling = match &inode {
            Some(inode) => Some(inode.telling.lock().await),
            None => None,
        };
        let later = inode.as_ref().map_or(AttributeChanges::NONE, |inode| inode.state().take_later());
        let all = merged(later, changes);
        let set = self.context.client.set_attributes(&self.name(number), all).await;
        self.context.kept.forget(file);
        if let Some(inode) = &inode {
            match &set {
                Err(_) if later != AttributeChanges::NONE => inode.state().put_back(later),
                _ => inode.state().told_later(),
            }
        }
        drop(telling);
        let mut row = match set.map_err(|error| errno(&error)) {
            Ok(row) => row,
            Err(Errno::ENOENT) => {
                let former = self.context.former.set(file, &all, nanoseconds(SystemTime::now()));
                former.ok_or(Errno::ESTALE)?
            }
            Err(error) => return Err(error),
        };
        if let Some(inode) = inode {
            inode.tell(&mut row).await;
        }
        Ok(self.attributes_of(&row))
    }

    /// Opens a file for a user. If a user other than root truncates it, it loses its set-user-id and
    /// set-group-id bits; when a file is written or truncated later the kernel itself asks for that.
    pub(crate) async fn open_as(
        &self,
        is_root: bool,
        number: INodeNo,
        flags: OFlags,
    ) -> Outcome<(FileHandle, FopenFlags)> {
        if past::is_past(number) {
            return self.open_past(number, flags).await;
        }
        if flags.contains(OFlags::TRUNC) && !is_root {
            self.drop_set_id(number).await?;
        }
        let (handle, how) = self.open(number, flags).await?;
        Ok((handle, how | self.unmapped.flags(number)))
    }

    async fn drop_set_id(&self, number: INodeNo) -> Outcome<()> {
        let mode = u32::from(self.attributes_by_number(number).await?.perm);
        let kept = without_set_id(mode);
        if kept != mode {
            let changes = AttributeChanges { mode: Some(kept), ..AttributeChanges::NONE };
            self.set(number, None, None, changes).await?;
            self.context.expire(self.file(number));
        }
        Ok(())
    }

    async fn set_size(&self, number: INodeNo, handle: Option<FileHandle>, size: u64) -> Outcome<()> {
        if let Some(open) = handle.and_then(|handle| self.files.get(handle)).filter(|open| open.writes) {
            return open.inode.set_len(size).await;
        }
        let open = self.handle(self.file(number), true).await;
        let mut set = open.inode.set_len(size).await;
        if set.is_ok() {
            set = open.inode.flush(self.inodes.writers(&open.inode) <= 1).await;
        }
        self.end(open).await;
        set
    }

    pub(crate) async fn allocate(
        &self,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: FallocateFlags,
    ) -> Outcome<()> {
        let open = known(self, handle)?;
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        let keeps_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let what = mode.difference(FallocateFlags::KEEP_SIZE);
        if what == FallocateFlags::PUNCH_HOLE && keeps_size {
            open.inode.punch(offset..end).await?;
            return open.inode.keep_room(offset..end, false).await;
        }
        if !what.is_empty() && what != FallocateFlags::ZERO_RANGE {
            return Err(Errno::EOPNOTSUPP);
        }
        // First, as it may fail.
        open.inode.keep_room(offset..end, true).await?;
        if what == FallocateFlags::ZERO_RANGE {
            open.inode.punch(offset..end).await?;
        }
        if keeps_size { Ok(()) } else { open.inode.extend(end).await }
    }
}

/// Permissions without the bits that give a program its owner's or group's rights. The set-group-ID bit of a
/// file that its group may not run means something else, and stays.
fn without_set_id(mode: u32) -> u32 {
    let mode = Mode::from_bits_retain(mode);
    let group = if mode.contains(Mode::XGRP) { Mode::SGID } else { Mode::empty() };
    mode.difference(Mode::SUID | group).bits()
}

impl OpenFile {
    /// Takes a write, if it need not wait. Returns false if it was not taken.
    pub(crate) fn write_at_once(&self, place: WritePlace, data: &[u8]) -> bool {
        let asked = self.inode.state().order;
        self.keeps_locks().is_ok() && self.inode.write_at_once(place, data, asked)
    }

    /// Takes a write, after waits where they are needed. `offset` and the flags are as the program asks.
    pub(crate) async fn write(
        &self,
        offset: u64,
        flags: OFlags,
        data: &[u8],
        place: WritePlace,
        through: Through,
    ) -> Outcome<()> {
        let asked = self.inode.state().order;
        self.keeps_locks()?;
        self.inode.write(place, data, through, asked).await?;
        if through != Through::No {
            // Bytes that were to be durable may have been dropped during the wait, with the locks.
            self.not_lost()?;
        }
        if flags.contains(OFlags::DIRECT) {
            self.inode.context.wrote_past_pages(self.inode.file, offset, data.len()).await;
        }
        Ok(())
    }

    /// Checks that the handle's program may rely on its locks.
    pub(crate) fn keeps_locks(&self) -> Outcome<()> {
        if self.lost_locks.load(Ordering::Acquire) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Checks that no written bytes were lost of which this handle was not told yet.
    pub(crate) fn not_lost(&self) -> Outcome<()> {
        self.keeps_locks()?;
        let (times, why) = self.inode.state().lost;
        match why {
            Some(why) if self.told.swap(times, Ordering::AcqRel) < times => Err(why),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_go_and_a_lock_of_old_stays() {
        for (mode, kept) in
            [(0o6777, 0o777), (0o4711, 0o711), (0o2744, 0o2744), (0o2755, 0o755), (0o1644, 0o1644)]
        {
            assert_eq!(without_set_id(mode), kept, "{mode:o}");
        }
    }

    #[test]
    fn flags_say_where_a_write_goes_and_what_it_waits_for() {
        let check = |flags, is_from_pages, expected| {
            assert_eq!(manner(7, flags, is_from_pages), expected, "{flags:?}");
        };
        check(OFlags::RDWR, false, (WritePlace::At(7), Through::No));
        check(OFlags::APPEND, false, (WritePlace::End, Through::No));
        check(OFlags::APPEND | OFlags::SYNC, true, (WritePlace::At(7), Through::No));
        check(OFlags::DSYNC, false, (WritePlace::At(7), Through::Manager));
        check(OFlags::SYNC | OFlags::APPEND, false, (WritePlace::End, Through::Manager));
        check(OFlags::DIRECT, false, (WritePlace::At(7), Through::Drives));
    }
}
