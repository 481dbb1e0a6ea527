//! Creation of files.

use std::time::Duration;

use braid_client::{NewAttributes, OpenOptions};
use braid_wire::control::{EntryKind, FileAttributes};
use fuser::{Errno, FileAttr, FileHandle, INodeNo};
use rustix::fs::OFlags;

use crate::errors::{Outcome, errno};
use crate::shared::Shared;
use crate::tree::attributes;
use crate::tree::names::{Entry, known, stale};
use crate::tree::past;

impl Shared {
    /// Creates a file. If another program has made it meanwhile, it is opened if the asker may; otherwise the
    /// kernel looks at it, and whether it may be opened, as at a file that was there before.
    pub(crate) async fn create(
        &self,
        at: (INodeNo, &[u8]),
        flags: OFlags,
        new: NewAttributes,
    ) -> Outcome<(FileAttr, Duration, FileHandle)> {
        past::changeable(at.0)?;
        let path = self.under(at.0, at.1)?;
        let options = OpenOptions::new().read(true).write(true).create_new(true).new_attributes(new);
        let asked = self.context.kept.ask();
        let file = match self.context.client.open(&path, &options).await {
            Ok(file) => file,
            Err(error) => {
                self.context.kept.forget_name(self.file(at.0), at.1);
                return match errno(&error) {
                    Errno::EEXIST if !flags.contains(OFlags::EXCL) => {
                        self.open_made(at, flags, new.uid).await
                    }
                    error => Err(error),
                };
            }
        };
        let mut row = file.known();
        let is_kept = self.context.kept.give_name(asked, (self.file(at.0), at.1), &row);
        let open = self.handle(row.file, true).await;
        if let Err(error) = open.inode.adopt(file).await {
            self.end(open).await;
            return Err(error);
        }
        // The answer to a repeated request may come when others have written the file.
        open.inode.state().is_new = row.attributes.changed_ns == row.attributes.created_ns;
        open.inode.tell(&mut row).await;
        let Entry { attributes, .. } = self.entry(&row, is_kept);
        let trust = if is_kept { self.context.trust() } else { Duration::ZERO };
        Ok((attributes, trust, self.files.put(open)))
    }

    /// Opens a file that another program has made while it was to be created.
    async fn open_made(
        &self,
        at: (INodeNo, &[u8]),
        flags: OFlags,
        asker: u32,
    ) -> Outcome<(FileAttr, Duration, FileHandle)> {
        let (row, _) = self.row_of(at.0, at.1).await.map_err(stale)?;
        if row.kind() != EntryKind::File || !may_open(&row.attributes, asker, flags) {
            return Err(Errno::ESTALE);
        }
        let (handle, _) = self.open(attributes::number(row.file, self.context.root), flags).await?;
        let row = match self.row(row.file).await {
            Ok(mut row) => {
                known(self, handle)?.inode.tell(&mut row).await;
                row
            }
            Err(error) => {
                if let Some(open) = self.files.take(handle) {
                    self.end(open).await;
                }
                return Err(error);
            }
        };
        Ok((self.entry(&row, true).attributes, Duration::ZERO, handle))
    }
}

/// Returns true if a user who tried to create the file may surely open it with these flags.
fn may_open(of: &FileAttributes, uid: u32, flags: OFlags) -> bool {
    let wanted = match flags & OFlags::RWMODE {
        OFlags::RDWR => 0o600,
        OFlags::WRONLY => 0o200,
        _ => 0o400,
    };
    uid == 0 || (uid == of.uid && of.mode & wanted == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_has_made_is_opened_for_its_owner_only() {
        let of = |mode| FileAttributes {
            kind: EntryKind::File,
            mode,
            uid: 5,
            gid: 5,
            links: 1,
            size: 0,
            device: 0,
            has_xattrs: false,
            accessed_ns: 1,
            modified_ns: 1,
            changed_ns: 1,
            created_ns: 1,
            sealed: false,
        };
        assert!(may_open(&of(0o600), 5, OFlags::RDWR) && may_open(&of(0), 0, OFlags::RDWR));
        assert!(!may_open(&of(0o666), 6, OFlags::RDWR), "the kernel looks at what others may");
        assert!(!may_open(&of(0o400), 5, OFlags::WRONLY) && may_open(&of(0o400), 5, OFlags::empty()));
        assert!(!may_open(&of(0o200), 5, OFlags::RDWR) && may_open(&of(0o200), 5, OFlags::WRONLY));
    }
}
