//! Names in directories: lookup, creation, removal, renaming.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_client::{Name, NewAttributes, Node, OpenOptions, Parents};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, RenameHow, StatRow, UnlinkOnly};
use fuser::{Errno, FileAttr, FileHandle, FopenFlags, INodeNo, LockOwner};
use rustix::fs::OFlags;
use tokio::time::timeout;

use crate::errors::{Outcome, errno};
use crate::files::inodes::OpenFile;
use crate::files::version::Version;
use crate::kernel_side::unmapped::Unmapped;
use crate::kernel_side::waits::PATIENCE;
use crate::shared::Shared;
use crate::tree::attributes;
use crate::tree::kept::{Asked, Known};
use crate::tree::past;

/// Maximum number of times that the manager is asked for an answer that may be older than changes made here
/// meanwhile.
const ANEW_MAX: u32 = 4;

impl Shared {
    pub(crate) fn file(&self, number: INodeNo) -> FileId {
        if number == INodeNo::ROOT { self.context.root } else { FileId(number.0) }
    }

    pub(crate) fn name(&self, number: INodeNo) -> Name {
        self.context.name(self.file(number))
    }

    pub(crate) fn under(&self, directory: INodeNo, name: &[u8]) -> Outcome<Name> {
        self.name(directory).join(name).map_err(|error| match error {
            braid_client::NameError::ComponentLength(_) => Errno::ENAMETOOLONG,
            _ => Errno::EINVAL,
        })
    }

    async fn stat(&self, name: &Name) -> Outcome<StatRow> {
        self.context.client.stat_itself(name).await.map_err(|error| errno(&error))
    }

    /// The record of the entry with a number, as it is kept or else from the manager.
    pub(crate) async fn row(&self, file: FileId) -> Outcome<StatRow> {
        let kept = &self.context.kept;
        if let Some(row) = kept.row(file) {
            return Ok(row);
        }
        let asked = kept.ask();
        match self.stat(&self.context.name(file)).await {
            Ok(row) => {
                kept.put(asked, &row);
                self.context.found(&row);
                Ok(row)
            }
            Err(Errno::ENOENT) => self.context.former.row(file).ok_or(Errno::ESTALE),
            Err(error) => Err(error),
        }
    }

    /// The record of the entry with a name, as it is kept or else from the manager; and whether it is kept.
    pub(crate) async fn row_of(&self, directory: INodeNo, name: &[u8]) -> Outcome<(StatRow, bool)> {
        let kept = &self.context.kept;
        let at = (self.file(directory), name);
        let path = self.under(directory, name)?;
        match kept.look_up(at.0, at.1) {
            Known::Row(row) => return Ok((row, true)),
            Known::Nothing => return Err(Errno::ENOENT),
            Known::Unknown => {}
        }
        let asked = kept.ask();
        match self.stat(&path).await {
            Ok(row) => {
                let is_kept = kept.put_name(asked, at, Some(&row));
                Ok((row, is_kept))
            }
            Err(Errno::ENOENT) => {
                kept.put_name(asked, at, None);
                Err(Errno::ENOENT)
            }
            Err(error) => Err(error),
        }
    }

    /// The entry of a name for the kernel; `.` and `..` are the directory itself, if the kernel knows only
    /// its number, and the one above it.
    pub(crate) async fn look_up(&self, directory: INodeNo, name: &[u8]) -> Outcome<Entry> {
        if past::is_past(directory) {
            return self.look_up_past(directory, name).await;
        }
        if name == past::DOOR
            && let Some(door) = self.look_up_door(directory).await?
        {
            return Ok(door);
        }
        let file = self.file(directory);
        let file = match name {
            b"." => file,
            b".." if file == self.context.root => file,
            b".." => match self.row(file).await?.parent {
                FileId(0) => self.context.root,
                above => above,
            },
            _ => {
                let found = self.attributes(directory, name).await?;
                return Ok(found.named(name));
            }
        };
        // The entry's parent may change unheard.
        self.told(async || self.row(file).await.map(|row| (row, false))).await
    }

    /// The entry of a name for the kernel: the record, with what this mount knows better.
    pub(crate) async fn attributes(&self, directory: INodeNo, name: &[u8]) -> Outcome<Entry> {
        self.told(|| self.row_of(directory, name)).await
    }

    async fn told<F>(&self, ask: impl Fn() -> F) -> Outcome<Entry>
    where
        F: Future<Output = Outcome<(StatRow, bool)>>,
    {
        let mut tries = 0;
        loop {
            let then = self.context.ends.now();
            let (mut row, mut is_kept) = ask().await?;
            let inode = self.inodes.get(row.file);
            if let Some(inode) = &inode {
                inode.catch_up().await;
                if self.inodes.writers(inode) == 0 {
                    inode.heed(&row).await;
                }
                inode.tell(&mut row).await;
            }
            tries += 1;
            let mut may_be_older = self.context.ends.any_since(then, row.file);
            if let Some(inode) = inode.filter(|_| may_be_older && tries >= ANEW_MAX) {
                // The file is closed and opened all the time, but not while `slot` is held.
                let slot = inode.slot.read().await;
                (row, is_kept) = ask().await?;
                inode.tell_of(&slot, &mut row);
                may_be_older = false;
            }
            if tries >= ANEW_MAX || !may_be_older {
                return Ok(self.entry(&row, is_kept));
            }
        }
    }

    /// The attributes of the entry with a number, for the kernel.
    pub(crate) async fn attributes_by_number(&self, number: INodeNo) -> Outcome<FileAttr> {
        if past::is_past(number) {
            return self.attributes_in_past(number);
        }
        let row = async || self.row(self.file(number)).await.map(|row| (row, true));
        Ok(self.told(row).await?.attributes)
    }

    /// Makes the entry of a record for the kernel, and notes that the kernel is told it.
    pub(crate) fn entry(&self, row: &StatRow, is_kept: bool) -> Entry {
        self.context.told.put(row.file, Some(Version::of(row)));
        Entry { attributes: self.attributes_of(row), is_kept, is_unmapped: false, past: None }
    }

    pub(crate) fn attributes_of(&self, row: &StatRow) -> FileAttr {
        attributes::of(row.file, &row.attributes, self.context.root)
    }

    pub(crate) async fn make_directory(
        &self,
        parent: INodeNo,
        name: &[u8],
        new: NewAttributes,
    ) -> Outcome<Entry> {
        past::changeable(parent)?;
        let asked = self.context.kept.ask();
        let made = self.context.client.mkdir_with(&self.under(parent, name)?, Parents::MustExist, new).await;
        if let Ok(row) = &made
            // The answer to a repeated request may come when others have put entries there.
            && row.attributes.changed_ns == row.attributes.created_ns
        {
            self.context.kept.put_empty(asked, row.file);
        }
        self.made(asked, parent, name, made)
    }

    /// Makes a link or special file, or an empty file.
    pub(crate) async fn make_node(
        &self,
        parent: INodeNo,
        name: &[u8],
        node: Option<Node<'_>>,
        new: NewAttributes,
    ) -> Outcome<Entry> {
        past::changeable(parent)?;
        let asked = self.context.kept.ask();
        let path = self.under(parent, name)?;
        if let Some(node) = node {
            let made = self.context.client.make_node(&path, node, new).await;
            return self.made(asked, parent, name, made);
        }
        let options = OpenOptions::new().write(true).create_new(true).new_attributes(new);
        let at = (self.file(parent), name);
        let file = match self.context.client.open(&path, &options).await {
            Ok(file) => file,
            Err(error) => {
                // It may have been made: the answer may be lost.
                self.context.kept.forget_name(at.0, at.1);
                return Err(errno(&error));
            }
        };
        let row = file.known();
        let is_kept = self.context.kept.give_name(asked, at, &row);
        file.close().await.map_err(|error| errno(&error))?;
        Ok(self.entry(&row, is_kept).named(name))
    }

    pub(crate) async fn link(&self, of: INodeNo, parent: INodeNo, name: &[u8]) -> Outcome<Entry> {
        past::changeable(of)?;
        past::changeable(parent)?;
        let asked = self.context.kept.ask();
        let linked = self.context.client.hard_link(&self.name(of), &self.under(parent, name)?).await;
        if linked.is_err() {
            self.context.kept.forget(self.file(of));
        }
        let entry = self.made(asked, parent, name, linked)?.named(name);
        // The answer does not include the bytes of the file that wait to be written.
        let Some(inode) = self.inodes.get(self.file(of)) else { return Ok(entry) };
        let mut row = self.row(inode.file).await?;
        inode.tell(&mut row).await;
        Ok(Entry { attributes: self.attributes_of(&row), ..entry })
    }

    fn made(
        &self,
        asked: Asked,
        parent: INodeNo,
        name: &[u8],
        made: braid_client::Result<StatRow>,
    ) -> Outcome<Entry> {
        let at = (self.file(parent), name);
        match made {
            Ok(row) => {
                let is_kept = self.context.kept.give_name(asked, at, &row);
                Ok(self.entry(&row, is_kept))
            }
            Err(error) => {
                self.context.kept.forget_name(at.0, at.1);
                Err(errno(&error))
            }
        }
    }

    /// The target of a symbolic link.
    pub(crate) async fn target(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        if past::is_past(number) {
            return self.target_in_past(number);
        }
        let row = self.row(self.file(number)).await?;
        if row.kind() == EntryKind::Symlink { Ok(row.target) } else { Err(Errno::EINVAL) }
    }

    /// Opens a file. The flags say whether the kernel may keep the pages that it has cached of the file.
    pub(crate) async fn open(&self, number: INodeNo, flags: OFlags) -> Outcome<(FileHandle, FopenFlags)> {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let open = self.handle(self.file(number), writes).await;
        let begun = if writes && flags.contains(OFlags::TRUNC) {
            open.inode.set_len(0).await.map(|()| false)
        } else if flags.contains(OFlags::WRONLY) {
            // The size is asked for when it is needed.
            self.context.expire(open.inode.file);
            // While other handles write here the kernel must not drop pages: a page that it reads again may
            // miss a write that is on its way, and the kernel does not put that write into pages that came
            // later.
            let is_written = self.inodes.writers(&open.inode) > 1;
            // A mount that watches the file has it open for the manager; that the file exists is not known
            // before.
            self.row(open.inode.file).await.map(|_| is_written)
        } else {
            let keeps = open.inode.look().await;
            keeps.map(|keeps| keeps || self.is_written_beside(&open))
        };
        match begun {
            Ok(keeps) => {
                let mut how = FopenFlags::empty();
                how.set(FopenFlags::FOPEN_KEEP_CACHE, keeps);
                // A close has nothing to write and nothing to release, but for locks that come later: these
                // are released with the handle (docs/posix.md).
                how.set(FopenFlags::FOPEN_NOFLUSH, !writes && !self.locks.are_any(open.inode.file));
                Ok((self.files.put(open), how))
            }
            Err(error) => {
                self.end(open).await;
                Err(stale(error))
            }
        }
    }

    /// Returns true if other handles of this mount, and no other mount, write the file.
    fn is_written_beside(&self, open: &OpenFile) -> bool {
        let is_shared =
            open.inode.slot.try_read().is_ok_and(|slot| {
                slot.writes && slot.file.as_ref().is_some_and(braid_client::File::is_shared)
            });
        !is_shared && self.inodes.writers(&open.inode) > usize::from(open.writes)
    }

    /// Opens a handle of a file.
    pub(crate) async fn handle(&self, file: FileId, writes: bool) -> OpenFile {
        let open = self.inodes.open(&self.context, file, writes);
        if let Some(watching) = self.context.kept.watching() {
            // That the file was closed must not be heard after what is asked of it now. As long as that
            // cannot be said, nothing else can be asked either.
            let _ = timeout(PATIENCE, watching.until_said(file)).await;
        }
        if writes {
            drop(open.inode.ending.lock().await);
            // Bytes that were lost before are not this handle's loss.
            open.told.store(open.inode.state().lost.0, Ordering::Release);
        }
        open
    }

    /// Closes a handle for good.
    pub(crate) async fn end(&self, open: impl AsRef<OpenFile>) {
        let open = open.as_ref();
        if open.writes {
            let _ending = open.inode.ending.lock().await;
            if self.inodes.writer_left(&open.inode) {
                open.inode.finish().await;
            }
        }
        self.inodes.left(&open.inode);
    }

    /// Releases a handle that the kernel gives back.
    pub(crate) async fn release(self: &Arc<Shared>, handle: FileHandle, owner: Option<LockOwner>) {
        if self.release_past(handle).await {
            return;
        }
        if let Some(open) = self.files.take(handle) {
            if let Some(LockOwner(owner)) = owner {
                self.unlock_all(&open.inode, owner).await;
            }
            self.unlock_by(&open).await;
            self.end(open).await;
        }
    }

    /// Removes a name of this kind.
    pub(crate) async fn remove(&self, parent: INodeNo, name: &[u8], only: UnlinkOnly) -> Outcome<()> {
        past::changeable(parent)?;
        self.not_a_door(parent, name).await?;
        let client = &self.context.client;
        let at = (self.file(parent), name);
        let name = self.under(parent, name)?;
        let lost = self.about_to_lose(parent, at.1).await?;
        let removed = match lost {
            Some(_) if only == UnlinkOnly::NotDirectory => client.unlink_open(&name).await,
            _ => client.unlink_only(&name, only).await,
        };
        if removed.is_ok() && only == UnlinkOnly::Directory {
            self.context.kept.remove_directory(at.0, at.1);
        } else {
            self.context.kept.forget_name(at.0, at.1);
        }
        lost.iter().for_each(|file| self.context.kept.forget(*file));
        removed.map_err(|error| errno(&error))
    }

    /// Prepares the loss of a name, perhaps the last one: a program that has found it and not opened the file
    /// yet, or has the file open, goes on. So a file lives on until the kernel has forgotten it, which is
    /// reported then. A file that is open for writing gets its lease now, and keeps it. Returns the number of
    /// the file, if the name is that of a file.
    async fn about_to_lose(&self, directory: INodeNo, name: &[u8]) -> Outcome<Option<FileId>> {
        let (row, _) = match self.row_of(directory, name).await {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        if row.kind() != EntryKind::File {
            self.context.former.put(&row);
            return Ok(None);
        }
        // The request tells the manager so.
        self.context.said_open([row.file]);
        if let Some(inode) = self.inodes.get(row.file) {
            inode.nameless.store(true, Ordering::Release);
            if self.inodes.writers(&inode) > 0 {
                drop(inode.writing().await.map_err(|error| errno(&error))?);
            }
        }
        Ok(Some(row.file))
    }

    pub(crate) async fn rename(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        how: RenameHow,
    ) -> Outcome<()> {
        for (parent, name) in [from, to] {
            past::changeable(parent)?;
            self.not_a_door(parent, name).await?;
        }
        let source = self.under(from.0, from.1)?;
        let target = self.under(to.0, to.1)?;
        let client = &self.context.client;
        let lost = if how == RenameHow::Replace { self.about_to_lose(to.0, to.1).await? } else { None };
        // The kernel does not look the file up by its new name.
        for (name, (directory, former)) in [(to.1, from), (from.1, to)] {
            let is_moved = name == to.1 || how == RenameHow::Exchange;
            if is_moved && Unmapped::has(name) {
                let (row, _) = self.row_of(directory, former).await?;
                self.unmapped.note(attributes::number(row.file, self.context.root));
            }
        }
        let asked = self.context.kept.ask();
        let renamed = match lost {
            Some(_) => client.rename_over_open(&source, &target).await,
            None => client.rename_how(&source, &target, how).await,
        };
        // The record of a moved entry has another parent from now on.
        let at = |(directory, name)| (self.file(directory), name);
        let is_kept = self.context.kept.move_name(asked, at(from), at(to), renamed.is_ok());
        lost.iter().for_each(|file| self.context.kept.forget(*file));
        renamed.map_err(|error| errno(&error))?;
        if !is_kept || how == RenameHow::Exchange {
            // The kernel knows the new names, and would not hear of their changes.
            for (directory, name) in [from, to] {
                let context = Arc::clone(&self.context);
                let file = self.file(directory);
                let name = name.to_vec();
                self.context.teller.tell(directory, move || context.expire_name(file, &name));
            }
        }
        Ok(())
    }
}

/// An entry for the kernel.
pub(crate) struct Entry {
    pub(crate) attributes: FileAttr,
    /// True if the name is kept: its changes are heard of.
    pub(crate) is_kept: bool,
    /// True if the file may not be mapped ([`Unmapped`]).
    pub(crate) is_unmapped: bool,
    /// The record of an entry in a snapshot: it is put down when the kernel is told.
    pub(crate) past: Option<Box<StatRow>>,
}

impl Entry {
    /// The entry under this name.
    fn named(self, name: &[u8]) -> Entry {
        Entry { is_unmapped: Unmapped::has(name), ..self }
    }
}

impl AsRef<OpenFile> for OpenFile {
    fn as_ref(&self) -> &OpenFile {
        self
    }
}

/// The error for a number that no longer exists: the kernel then looks the name up again, which may have gone
/// to another file.
pub(crate) fn stale(error: Errno) -> Errno {
    if error == Errno::ENOENT { Errno::ESTALE } else { error }
}

/// The open file with a handle.
pub(crate) fn known(shared: &Shared, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
    shared.files.get(handle).ok_or(Errno::EBADF)
}
