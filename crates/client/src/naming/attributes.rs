//! Attributes, links, and special files without bytes: requests that the manager answers by itself.

use braid_wire::control::{
    AttributeChanges, ControlReply, ControlRequest, EntryKind, HardLink, MakeDirectory, MakeNode,
    NewAttributes, Rename, RenameHow, SetAttributes, SetXattr, StatRow, Unlink, UnlinkOnly, Xattr, XattrHow,
    Xattrs,
};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;
use crate::naming::names::{Parents, refuse_other_volume};
use crate::sealed;

/// Permission bits of a file whose creator gave none.
const FILE_MODE: u32 = 0o644;
/// Permission bits of a directory whose creator gave none.
const DIRECTORY_MODE: u32 = 0o755;

/// A special file: it has a name, but no bytes on drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node<'t> {
    /// A symbolic link to this path: 1 to 4095 bytes without NUL, as they are given.
    Symlink(&'t [u8]),
    /// A named pipe.
    Fifo,
    /// The name of a UNIX socket.
    Socket,
    /// A character device's node, with its number as Linux encodes it.
    CharDevice(u32),
    /// A block device's node.
    BlockDevice(u32),
}

/// A file of this process's user and group, which its creator may write and all may read.
pub(crate) fn usual_file() -> NewAttributes {
    of_this_process(FILE_MODE)
}

/// A directory of this process's user and group, which its creator may write and all may read and search.
pub(crate) fn usual_directory() -> NewAttributes {
    of_this_process(DIRECTORY_MODE)
}

fn of_this_process(mode: u32) -> NewAttributes {
    let uid = rustix::process::geteuid();
    let gid = rustix::process::getegid();
    NewAttributes { mode, uid: uid.as_raw(), gid: gid.as_raw() }
}

impl Client {
    /// Makes a directory with these attributes; those above it, if they are made too, have them as well.
    pub async fn mkdir_with(&self, name: &Name, parents: Parents, new: NewAttributes) -> Result<StatRow> {
        let parents = parents == Parents::Make;
        self.ask_stat(name, MakeDirectory { at: self.place(name).await?, new, parents }).await
    }

    /// Makes a special file.
    pub async fn make_node(&self, name: &Name, node: Node<'_>, new: NewAttributes) -> Result<StatRow> {
        let (kind, device, target) = match node {
            Node::Symlink(target) => (EntryKind::Symlink, 0, target),
            Node::Fifo => (EntryKind::Fifo, 0, &[][..]),
            Node::Socket => (EntryKind::Socket, 0, &[][..]),
            Node::CharDevice(device) => (EntryKind::CharDevice, device, &[][..]),
            Node::BlockDevice(device) => (EntryKind::BlockDevice, device, &[][..]),
        };
        let target = target.to_vec();
        self.ask_stat(name, MakeNode { at: self.place(name).await?, kind, new, device, target }).await
    }

    /// Makes a symbolic link of this process's user.
    pub async fn symlink(&self, target: &[u8], name: &Name) -> Result<StatRow> {
        self.make_node(name, Node::Symlink(target), of_this_process(0o777)).await
    }

    /// Gives a file, or anything else but a directory, another name in its volume.
    pub async fn hard_link(&self, from: &Name, to: &Name) -> Result<StatRow> {
        refuse_other_volume(from, to)?;
        self.ask_stat(to, HardLink { from: self.place(from).await?, to: self.place(to).await? }).await
    }

    /// Renames within a volume, atomically.
    pub async fn rename_how(&self, from: &Name, to: &Name, how: RenameHow) -> Result<()> {
        refuse_other_volume(from, to)?;
        self.ask_rename(from, to, how, false).await
    }

    /// Renames over a file that is open here: it lives until it is closed ([`Client::watch`]).
    pub async fn rename_over_open(&self, from: &Name, to: &Name) -> Result<()> {
        refuse_other_volume(from, to)?;
        self.ask_rename(from, to, RenameHow::Replace, true).await
    }

    /// Removes the name of a file that is open here: it lives until it is closed ([`Client::watch`]).
    pub async fn unlink_open(&self, name: &Name) -> Result<()> {
        let only = UnlinkOnly::NotDirectory;
        self.ask_done(&name.to_string(), Unlink { at: self.place(name).await?, only, keep: true }).await
    }

    /// Removes a name or an empty directory, if it is of the right kind.
    pub async fn unlink_only(&self, name: &Name, only: UnlinkOnly) -> Result<()> {
        self.ask_done(&name.to_string(), Unlink { at: self.place(name).await?, only, keep: false }).await
    }

    /// Changes permissions, owner or times; for a symbolic link, those of the link itself.
    pub async fn set_attributes(&self, name: &Name, changes: AttributeChanges) -> Result<StatRow> {
        self.ask_stat(name, SetAttributes { at: self.place(name).await?, changes }).await
    }

    /// All extended attributes, by name.
    pub async fn xattrs(&self, name: &Name) -> Result<Vec<Xattr>> {
        let subject = name.to_string();
        match self.ask_manager(&subject, Xattrs { at: self.place(name).await? }).await? {
            ControlReply::Xattrs(reply) => Ok(reply.xattrs),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(&self, of: &Name, name: &[u8], value: &[u8], how: XattrHow) -> Result<()> {
        let request = SetXattr { at: self.place(of).await?, name: name.to_vec(), value: value.to_vec(), how };
        self.ask_done(&of.to_string(), request).await
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, of: &Name, name: &[u8]) -> Result<()> {
        self.set_xattr(of, name, b"", XattrHow::Remove).await
    }

    async fn ask_rename(&self, from: &Name, to: &Name, how: RenameHow, keep: bool) -> Result<()> {
        let subject = from.to_string();
        let from = self.place(from).await?;
        let to = self.place(to).await?;
        self.ask_done(&subject, Rename { from, to, how, keep }).await
    }

    async fn ask_stat(&self, name: &Name, request: impl Into<ControlRequest>) -> Result<StatRow> {
        let subject = name.to_string();
        match self.ask_manager(&subject, request).await? {
            ControlReply::Stat(mut row) => {
                sealed::shown(&mut row.attributes);
                Ok(row)
            }
            other => Err(unexpected(&subject, &other)),
        }
    }
}
