//! Extended attributes. Attributes of the system itself (access control lists) have rules that Braid does not
//! keep, and so are refused. One attribute stands for the layout of a file, or of new files in a directory:
//! it can be read of all, and is listed where a directory has one of its own.

use braid_client::Error;
use braid_wire::Reason;
use braid_wire::control::{EntryKind, LAYOUT_XATTR, XattrHow};
use fuser::{Errno, INodeNo};
use rustix::fs::XattrFlags;

use crate::errors::{Outcome, errno};
use crate::shared::Shared;
use crate::tree::names::stale;
use crate::tree::past;

/// Prefix of names that are refused.
const SYSTEM: &[u8] = b"system.";

impl Shared {
    pub(crate) async fn set_xattr(
        &self,
        number: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Outcome<()> {
        past::changeable(number)?;
        refuse_system(name)?;
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let how = match (flags.contains(XattrFlags::CREATE), flags.contains(XattrFlags::REPLACE)) {
            (false, false) => XattrHow::Any,
            (true, false) => XattrHow::Create,
            (false, true) => XattrHow::Replace,
            (true, true) => return Err(Errno::EINVAL),
        };
        if name == LAYOUT_XATTR {
            return self.set_layout(number, value, how).await;
        }
        let set = self.context.client.set_xattr(&self.name(number), name, value, how).await;
        self.context.kept.forget(self.file(number));
        set.map_err(|error| stale(errno(&error)))
    }

    pub(crate) async fn remove_xattr(&self, number: INodeNo, name: &[u8]) -> Outcome<()> {
        past::changeable(number)?;
        refuse_system(name)?;
        if name == LAYOUT_XATTR {
            return self.set_layout(number, b"", XattrHow::Remove).await;
        }
        let removed = self.context.client.remove_xattr(&self.name(number), name).await;
        self.context.kept.forget(self.file(number));
        removed.map_err(|error| stale(errno(&error)))
    }

    pub(crate) async fn xattr(&self, number: INodeNo, name: &[u8]) -> Outcome<Vec<u8>> {
        refuse_system(name)?;
        if past::is_past(number) {
            return self.xattr_in_past(number, name).await;
        }
        if name == LAYOUT_XATTR {
            return self.layout(number).await;
        }
        // The kernel asks before each write whether the file has capabilities.
        if !self.row(self.file(number)).await?.attributes.has_xattrs {
            return Err(Errno::ENODATA);
        }
        let all = self.context.client.xattrs(&self.name(number)).await;
        let all = all.map_err(|error| stale(errno(&error)))?;
        let found = all.into_iter().find(|xattr| xattr.name == name);
        found.map(|xattr| xattr.value).ok_or(Errno::ENODATA)
    }

    /// All names, each followed by a NUL.
    pub(crate) async fn xattr_names(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        if past::is_past(number) {
            return self.xattr_names_in_past(number).await;
        }
        if !self.row(self.file(number)).await?.attributes.has_xattrs {
            return Ok(Vec::new());
        }
        let all = self.context.client.xattrs(&self.name(number)).await;
        let all = all.map_err(|error| stale(errno(&error)))?;
        Ok(all.iter().flat_map(|xattr| xattr.name.iter().copied().chain([0])).collect())
    }
}

impl Shared {
    /// Changes the layout of a directory, or of a file to which nothing was written.
    async fn set_layout(&self, number: INodeNo, value: &[u8], how: XattrHow) -> Outcome<()> {
        let file = self.file(number);
        if let Some(inode) = self.inodes.get(file) {
            inode.step_aside().await?;
        }
        let set = self.context.client.set_xattr(&self.name(number), LAYOUT_XATTR, value, how).await;
        self.context.kept.forget(file);
        set.map_err(|error| layout_errno(&error))
    }

    /// The layout of a file, or of new files in a directory, as text.
    async fn layout(&self, number: INodeNo) -> Outcome<Vec<u8>> {
        let kind = self.row(self.file(number)).await?.kind();
        if !matches!(kind, EntryKind::File | EntryKind::Directory) {
            return Err(Errno::ENODATA);
        }
        let name = self.name(number);
        let layout = self.context.client.layout(&name).await.map_err(|error| stale(errno(&error)))?;
        let shape = layout.shape.shape().map_err(|_| Errno::EIO)?;
        Ok(shape.text().into_bytes())
    }
}

/// The error number for a layout that is refused.
fn layout_errno(error: &Error) -> Errno {
    match error.reason() {
        Some(Reason::Written) => Errno::EBUSY,
        Some(Reason::TooFewDrives | Reason::NotDirectory) => Errno::EINVAL,
        _ => stale(errno(error)),
    }
}

fn refuse_system(name: &[u8]) -> Outcome<()> {
    if name.starts_with(SYSTEM) { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}
