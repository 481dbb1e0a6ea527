//! Names: looked up, made, removed, moved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_client::{Name, NewAttributes, Node, OpenOptions, Parents};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, RenameHow, StatRow, UnlinkOnly};
use fuser::{Errno, FileAttr, FileHandle, FopenFlags, INodeNo};
use rustix::fs::OFlags;

use crate::attributes;
use crate::errors::errno;
use crate::fresh::Version;
use crate::inodes::OpenFile;
use crate::kept::Known;
use crate::shared::Shared;
use crate::write_back::Outcome;

/// How often an answer is asked for anew that may be older than what happened here meanwhile.
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

    /// What has a number, as it is kept or else as the manager says.
    pub(crate) async fn row(&self, file: FileId) -> Outcome<StatRow> {
        let kept = &self.context.kept;
        if let Some(row) = kept.row(file) {
            return Ok(row);
        }
        let asked = kept.ask();
        let row = self.stat(&self.context.name(file)).await.map_err(stale)?;
        kept.put(asked, &row);
        Ok(row)
    }

    /// What has a name, as it is kept or else as the manager says.
    pub(crate) async fn row_of(&self, directory: INodeNo, name: &[u8]) -> Outcome<StatRow> {
        let (kept, at) = (&self.context.kept, (self.file(directory), name));
        let path = self.under(directory, name)?;
        match kept.look_up(at.0, at.1) {
            Known::Row(row) => return Ok(row),
            Known::Nothing => return Err(Errno::ENOENT),
            Known::Unknown => {}
        }
        let asked = kept.ask();
        match self.stat(&path).await {
            Ok(row) => {
                kept.put_name(asked, at, Some(&row));
                Ok(row)
            }
            Err(Errno::ENOENT) => {
                kept.put_name(asked, at, None);
                Err(Errno::ENOENT)
            }
            Err(error) => Err(error),
        }
    }

    /// What the kernel is told of a name, or of a directory that it knows by its number only, or of that
    /// above.
    pub(crate) async fn look_up(&self, directory: INodeNo, name: &[u8]) -> Outcome<FileAttr> {
        match name {
            b"." => self.attributes_by_number(directory).await,
            b".." => {
                let above = self.row(self.file(directory)).await?.parent;
                let above = if above == FileId(0) { self.context.root } else { above };
                self.told(|| self.row(above)).await
            }
            _ => {
                let found = self.attributes(directory, name).await?;
                self.unmapped.note(name, found.ino);
                Ok(found)
            }
        }
    }

    /// What the kernel is told of a name: what is known of it, and what this mount knows better.
    pub(crate) async fn attributes(&self, directory: INodeNo, name: &[u8]) -> Outcome<FileAttr> {
        self.told(|| self.row_of(directory, name)).await
    }

    async fn told<F>(&self, ask: impl Fn() -> F) -> Outcome<FileAttr>
    where
        F: Future<Output = Outcome<StatRow>>,
    {
        let mut tries = 0;
        loop {
            let then = self.context.ends.now();
            let mut row = ask().await?;
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
                // It is closed and opened all the time, but not while this is held.
                let slot = inode.slot.read().await;
                row = ask().await?;
                inode.tell_of(&slot, &mut row);
                may_be_older = false;
            }
            if tries >= ANEW_MAX || !may_be_older {
                self.context.told.put(row.file, Some(Version::of(&row)));
                return Ok(self.attributes_of(&row));
            }
        }
    }

    /// The same of what has a number.
    pub(crate) async fn attributes_by_number(&self, number: INodeNo) -> Outcome<FileAttr> {
        self.told(|| self.row(self.file(number))).await
    }

    pub(crate) fn attributes_of(&self, row: &StatRow) -> FileAttr {
        attributes::of(row.file, &row.attributes, self.context.root)
    }

    pub(crate) async fn make_directory(
        &self,
        parent: INodeNo,
        name: &[u8],
        new: NewAttributes,
    ) -> Outcome<FileAttr> {
        let at = (parent, name);
        let asked = self.context.kept.ask();
        let made = self.context.client.mkdir_with(&self.under(parent, name)?, Parents::MustExist, new).await;
        if let Ok(row) = &made
            // The answer to a repeat may come when others have put something there.
            && row.attributes.changed_ns == row.attributes.created_ns
        {
            self.context.kept.put_empty(asked, row.file);
        }
        self.made(at, made)
    }

    /// Makes a link or special file, or an empty file.
    pub(crate) async fn make_node(
        &self,
        parent: INodeNo,
        name: &[u8],
        node: Option<Node<'_>>,
        new: NewAttributes,
    ) -> Outcome<FileAttr> {
        let at = (parent, name);
        let name = self.under(parent, name)?;
        if let Some(node) = node {
            let made = self.context.client.make_node(&name, node, new).await;
            return self.made(at, made);
        }
        let options = OpenOptions::new().write(true).create_new(true).new_attributes(new);
        let file = self.context.client.open(&name, &options).await.map_err(|error| errno(&error))?;
        let row = file.known();
        self.context.kept.forget_name(self.file(at.0), at.1);
        file.close().await.map_err(|error| errno(&error))?;
        Ok(self.attributes_of(&row))
    }

    pub(crate) async fn link(&self, of: INodeNo, parent: INodeNo, name: &[u8]) -> Outcome<FileAttr> {
        let linked = self.context.client.hard_link(&self.name(of), &self.under(parent, name)?).await;
        self.context.kept.forget(self.file(of));
        self.context.kept.forget_name(self.file(parent), name);
        let mut row = linked.map_err(|error| errno(&error))?;
        if let Some(inode) = self.inodes.get(row.file) {
            inode.tell(&mut row).await;
        }
        Ok(self.attributes_of(&row))
    }

    fn made(
        &self,
        (parent, name): (INodeNo, &[u8]),
        made: braid_client::Result<StatRow>,
    ) -> Outcome<FileAttr> {
        self.context.kept.forget_name(self.file(parent), name);
        made.map(|row| self.attributes_of(&row)).map_err(|error| errno(&error))
    }

    /// Where a symbolic link leads.
    pub(crate) async fn target(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        let row = self.row(self.file(number)).await?;
        if row.kind() == EntryKind::Symlink { Ok(row.target) } else { Err(Errno::EINVAL) }
    }

    /// Creates a file, or opens the one that another has just created.
    pub(crate) async fn create(
        &self,
        parent: INodeNo,
        name: &[u8],
        flags: OFlags,
        new: NewAttributes,
    ) -> Outcome<(FileAttr, FileHandle)> {
        let at = (self.file(parent), name);
        let name = self.under(parent, name)?;
        let is_new = flags.contains(OFlags::EXCL);
        let options = OpenOptions::new().read(true).write(true).create(!is_new).create_new(is_new);
        let options = options.new_attributes(new);
        let opened = self.context.client.open(&name, &options).await;
        self.context.kept.forget_name(at.0, at.1);
        let file = opened.map_err(|error| errno(&error))?;
        let row = file.known();
        let open = self.handle(row.file, true).await;
        let mut begun = open.inode.adopt(file).await;
        if row.attributes.changed_ns == row.attributes.created_ns {
            open.inode.state().is_new = true;
        }
        if begun.is_ok() && flags.contains(OFlags::TRUNC) && row.size() > 0 {
            begun = open.inode.set_len(0).await;
        }
        if let Err(error) = begun {
            self.end(open).await;
            return Err(error);
        }
        let mut row = row;
        if flags.contains(OFlags::TRUNC) {
            row.attributes.size = 0;
        }
        open.inode.tell(&mut row).await;
        Ok((self.attributes_of(&row), self.files.put(open)))
    }

    /// Opens a file. The flags say whether the kernel may keep what it has cached of it.
    pub(crate) async fn open(&self, number: INodeNo, flags: OFlags) -> Outcome<(FileHandle, FopenFlags)> {
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let open = self.handle(self.file(number), writes).await;
        let begun = if writes && flags.contains(OFlags::TRUNC) {
            open.inode.set_len(0).await.map(|()| false)
        } else if flags.contains(OFlags::WRONLY) {
            // Where it ends is asked for when it is needed.
            self.context.expire(open.inode.file);
            // While others write here the kernel must not drop pages: what it reads anew may miss a write
            // that is on its way, and it does not put that into pages that came later.
            Ok(self.inodes.writers(&open.inode) > 1)
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

    /// Whether other handles of this mount, and nobody elsewhere, write the file.
    fn is_written_beside(&self, open: &OpenFile) -> bool {
        let is_shared =
            open.inode.slot.try_read().is_ok_and(|slot| {
                slot.writes && slot.file.as_ref().is_some_and(braid_client::File::is_shared)
            });
        !is_shared && self.inodes.writers(&open.inode) > usize::from(open.writes)
    }

    /// A handle more.
    pub(crate) async fn handle(&self, file: FileId, writes: bool) -> OpenFile {
        let open = self.inodes.open(&self.context, file, writes);
        if writes {
            drop(open.inode.ending.lock().await);
            // What was lost before is not this one's loss.
            open.told.store(open.inode.state().lost.0, Ordering::Release);
        }
        open
    }

    /// A handle is closed for good.
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

    /// Removes a name of this kind.
    pub(crate) async fn remove(&self, parent: INodeNo, name: &[u8], only: UnlinkOnly) -> Outcome<()> {
        let (client, at) = (&self.context.client, (self.file(parent), name));
        let name = self.under(parent, name)?;
        // Nothing is open here that it could be about, as a rule.
        let is_open = only == UnlinkOnly::NotDirectory
            && !self.inodes.is_empty()
            && self.keep_open((parent, at.1)).await?;
        let removed = match is_open {
            true => client.unlink_open(&name).await,
            false => client.unlink_only(&name, only).await,
        };
        self.context.kept.forget_name(at.0, at.1);
        removed.map_err(|error| errno(&error))
    }

    /// A name is about to be lost, perhaps the last one. Whether what has it is open here: it then lives on
    /// until it is closed. One that is open for writing gets its lease now, and keeps that.
    async fn keep_open(&self, (directory, name): (INodeNo, &[u8])) -> Outcome<bool> {
        let row = match self.row_of(directory, name).await {
            Ok(row) => row,
            Err(Errno::ENOENT) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(inode) = self.inodes.get(row.file) else { return Ok(false) };
        inode.nameless.store(true, Ordering::Release);
        // It says so with the request.
        self.context.said_open(&[row.file]);
        if self.inodes.writers(&inode) > 0 {
            drop(inode.writing().await.map_err(|error| errno(&error))?);
        }
        Ok(true)
    }

    pub(crate) async fn rename(
        &self,
        (parent, name): (INodeNo, &[u8]),
        (new_parent, new_name): (INodeNo, &[u8]),
        how: RenameHow,
    ) -> Outcome<()> {
        let (from, to) = (self.under(parent, name)?, self.under(new_parent, new_name)?);
        let client = &self.context.client;
        let is_open = how == RenameHow::Replace
            && !self.inodes.is_empty()
            && self.keep_open((new_parent, new_name)).await?;
        let renamed = match is_open {
            true => client.rename_over_open(&from, &to).await,
            false => client.rename_how(&from, &to, how).await,
        };
        // What is moved says another parent from now on.
        for (directory, name) in [(parent, name), (new_parent, new_name)] {
            self.context.kept.forget_name(self.file(directory), name);
        }
        renamed.map_err(|error| errno(&error))
    }
}

impl AsRef<OpenFile> for OpenFile {
    fn as_ref(&self) -> &OpenFile {
        self
    }
}

/// A number that is none any more: the kernel then looks the name up anew, which may have gone to another
/// file.
pub(crate) fn stale(error: Errno) -> Errno {
    if error == Errno::ENOENT { Errno::ESTALE } else { error }
}

/// A file by its handle.
pub(crate) fn known(shared: &Shared, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
    shared.files.get(handle).ok_or(Errno::EBADF)
}
