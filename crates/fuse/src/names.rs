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

    /// What the kernel is told of a name: what the manager says, and what this mount knows better.
    pub(crate) async fn attributes(&self, name: &Name) -> Outcome<FileAttr> {
        let mut tries = 0;
        loop {
            let then = self.context.ends.now();
            let mut row = self.stat(name).await?;
            if let Some(inode) = self.inodes.get(row.file) {
                inode.heed(&row).await;
                inode.tell(&mut row).await;
            }
            tries += 1;
            if tries >= ANEW_MAX || !self.context.ends.any_since(then, row.file) {
                self.context.told.put(row.file, Some(Version::of(&row)));
                return Ok(self.attributes_of(&row));
            }
        }
    }

    /// The same of what has a number.
    pub(crate) async fn attributes_by_number(&self, number: INodeNo) -> Outcome<FileAttr> {
        self.attributes(&self.name(number)).await.map_err(stale)
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
        let name = self.under(parent, name)?;
        let made = self.context.client.mkdir_with(&name, Parents::MustExist, new).await;
        self.made(made)
    }

    /// Makes a link or special file, or an empty file.
    pub(crate) async fn make_node(
        &self,
        parent: INodeNo,
        name: &[u8],
        node: Option<Node<'_>>,
        new: NewAttributes,
    ) -> Outcome<FileAttr> {
        let name = self.under(parent, name)?;
        if let Some(node) = node {
            let made = self.context.client.make_node(&name, node, new).await;
            return self.made(made);
        }
        let options = OpenOptions::new().write(true).create_new(true).new_attributes(new);
        let file = self.context.client.open(&name, &options).await.map_err(|error| errno(&error))?;
        let row = file.known();
        file.close().await.map_err(|error| errno(&error))?;
        Ok(self.attributes_of(&row))
    }

    pub(crate) async fn link(&self, of: INodeNo, parent: INodeNo, name: &[u8]) -> Outcome<FileAttr> {
        let name = self.under(parent, name)?;
        let mut row = match self.context.client.hard_link(&self.name(of), &name).await {
            Ok(row) => row,
            // Also of a file that lost its last name meanwhile.
            Err(error) => return Err(errno(&error)),
        };
        if let Some(inode) = self.inodes.get(row.file) {
            inode.tell(&mut row).await;
        }
        Ok(self.attributes_of(&row))
    }

    fn made(&self, made: braid_client::Result<StatRow>) -> Outcome<FileAttr> {
        made.map(|row| self.attributes_of(&row)).map_err(|error| errno(&error))
    }

    /// Where a symbolic link leads.
    pub(crate) async fn target(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        let row = self.stat(&self.name(number)).await.map_err(stale)?;
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
        let name = self.under(parent, name)?;
        let is_new = flags.contains(OFlags::EXCL);
        let options = OpenOptions::new().read(true).write(true).create(!is_new).create_new(is_new);
        let options = options.new_attributes(new);
        let file = self.context.client.open(&name, &options).await.map_err(|error| errno(&error))?;
        let row = file.known();
        let open = self.inodes.open(&self.context, row.file, true);
        let mut begun = open.inode.adopt(file).await;
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
        let open = self.inodes.open(&self.context, self.file(number), writes);
        let begun = if writes && flags.contains(OFlags::TRUNC) {
            open.inode.set_len(0).await.map(|()| false)
        } else if flags.contains(OFlags::WRONLY) {
            // Where it ends is asked for when it is needed.
            self.context.expire(open.inode.file);
            Ok(false)
        } else {
            open.inode.look().await
        };
        match begun {
            Ok(true) => Ok((self.files.put(open), FopenFlags::FOPEN_KEEP_CACHE)),
            Ok(false) => Ok((self.files.put(open), FopenFlags::empty())),
            Err(error) => {
                self.end(open).await;
                Err(stale(error))
            }
        }
    }

    /// A handle is closed for good.
    pub(crate) async fn end(&self, open: impl AsRef<OpenFile>) {
        let open = open.as_ref();
        if open.writes && self.inodes.writer_left(&open.inode) {
            open.inode.finish().await;
        }
        self.inodes.left(&open.inode);
    }

    /// Removes a name of this kind.
    pub(crate) async fn remove(&self, parent: INodeNo, name: &[u8], only: UnlinkOnly) -> Outcome<()> {
        let (client, name) = (&self.context.client, self.under(parent, name)?);
        // Nothing is open here that it could be about, as a rule.
        let is_open =
            only == UnlinkOnly::NotDirectory && !self.inodes.is_empty() && self.keep_open(&name).await?;
        let removed =
            if is_open { client.unlink_open(&name).await } else { client.unlink_only(&name, only).await };
        removed.map_err(|error| errno(&error))
    }

    /// A name is about to be lost, perhaps the last one. Whether what has it is open here: it then lives on until
    /// it is closed. One that is open for writing gets its lease now, and keeps that.
    async fn keep_open(&self, name: &Name) -> Outcome<bool> {
        let row = match self.stat(name).await {
            Ok(row) => row,
            Err(Errno::ENOENT) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(inode) = self.inodes.get(row.file) else { return Ok(false) };
        inode.nameless.store(true, Ordering::Release);
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
        let is_open = how == RenameHow::Replace && !self.inodes.is_empty() && self.keep_open(&to).await?;
        let renamed = match is_open {
            true => client.rename_over_open(&from, &to).await,
            false => client.rename_how(&from, &to, how).await,
        };
        renamed.map_err(|error| errno(&error))
    }
}

impl AsRef<OpenFile> for OpenFile {
    fn as_ref(&self) -> &OpenFile {
        self
    }
}

/// A number that is none any more: the kernel then looks the name up anew, which may have gone to another file.
pub(crate) fn stale(error: Errno) -> Errno {
    if error == Errno::ENOENT { Errno::ESTALE } else { error }
}

/// A file by its handle.
pub(crate) fn known(shared: &Shared, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
    shared.files.get(handle).ok_or(Errno::EBADF)
}
