//! Names: looked up, made, removed, moved.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_client::{Name, OpenOptions, Parents};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};
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
        self.context.client.stat(name).await.map_err(|error| errno(&error))
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
        attributes::of(row, self.context.root, self.owner)
    }

    pub(crate) async fn make_directory(&self, parent: INodeNo, name: &[u8]) -> Outcome<FileAttr> {
        let name = self.under(parent, name)?;
        let made = self.context.client.mkdir(&name, Parents::MustExist).await;
        made.map_err(|error| errno(&error))?;
        Ok(self.attributes_of(&self.stat(&name).await?))
    }

    /// Creates a file, or opens the one that another has just created.
    pub(crate) async fn create(
        &self,
        parent: INodeNo,
        name: &[u8],
        flags: OFlags,
    ) -> Outcome<(FileAttr, FileHandle)> {
        let name = self.under(parent, name)?;
        let is_new = flags.contains(OFlags::EXCL);
        let options = OpenOptions::new().read(true).write(true).create(!is_new).create_new(is_new);
        let file = self.context.client.open(&name, &options).await.map_err(|error| errno(&error))?;
        let row = file.known();
        let open = self.inodes.open(&self.context, row.file, true);
        let mut begun = open.inode.adopt(file).await;
        if begun.is_ok() && flags.contains(OFlags::TRUNC) && row.size > 0 {
            begun = open.inode.set_len(0).await;
        }
        if let Err(error) = begun {
            self.end(open).await;
            return Err(error);
        }
        let mut row = row;
        if flags.contains(OFlags::TRUNC) {
            row.size = 0;
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
    pub(crate) async fn remove(&self, parent: INodeNo, name: &[u8], kind: EntryKind) -> Outcome<()> {
        let name = self.under(parent, name)?;
        let row = self.stat(&name).await?;
        match (kind, row.kind) {
            (EntryKind::File, EntryKind::Directory) => return Err(Errno::EISDIR),
            (EntryKind::Directory, EntryKind::File) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.keep_open(row.file).await?;
        self.context.client.unlink(&name).await.map_err(|error| errno(&error))
    }

    /// A name is about to be removed, and with the last one a file lives as long as its lease: a file that is
    /// open for writing here gets one, and keeps it until it is closed.
    async fn keep_open(&self, file: FileId) -> Outcome<()> {
        let Some(inode) = self.inodes.get(file) else { return Ok(()) };
        if self.inodes.writers(&inode) > 0 {
            inode.nameless.store(true, Ordering::Release);
            drop(inode.writing().await.map_err(|error| errno(&error))?);
        }
        Ok(())
    }

    pub(crate) async fn rename(
        &self,
        (parent, name): (INodeNo, &[u8]),
        (new_parent, new_name): (INodeNo, &[u8]),
    ) -> Outcome<()> {
        let (from, to) = (self.under(parent, name)?, self.under(new_parent, new_name)?);
        if !self.inodes.all_written().is_empty() {
            match self.context.client.stat(&to).await {
                Ok(row) => self.keep_open(row.file).await?,
                Err(error) if errno(&error) == Errno::ENOENT => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        self.context.client.rename(&from, &to).await.map_err(|error| errno(&error))
    }
}

impl AsRef<OpenFile> for OpenFile {
    fn as_ref(&self) -> &OpenFile {
        self
    }
}

/// A number that is none any more: the kernel then looks the name up anew, which may have gone to another
/// file.
fn stale(error: Errno) -> Errno {
    if error == Errno::ENOENT { Errno::ESTALE } else { error }
}

/// A file by its handle.
pub(crate) fn known(shared: &Shared, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
    shared.files.get(handle).ok_or(Errno::EBADF)
}
