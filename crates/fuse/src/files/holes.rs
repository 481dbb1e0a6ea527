//! Data and holes of a file, for programs that skip holes (SEEK_DATA, SEEK_HOLE). A hole consists of whole
//! stripes of which no drive has bytes; so nothing need be read to find it.

use std::sync::Arc;

use braid_client::File;
use fuser::{Errno, FileHandle};

use crate::errors::{Outcome, errno};
use crate::files::inode::Inode;
use crate::shared::Shared;
use crate::tree::names::known;

/// Target of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    Data,
    /// A hole, or the end of the file.
    Hole,
}

impl Find {
    pub(crate) fn new(whence: i32) -> Outcome<Find> {
        match whence {
            libc::SEEK_DATA => Ok(Find::Data),
            libc::SEEK_HOLE => Ok(Find::Hole),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Shared {
    /// The first offset at or after `from` with data or a hole, as the kernel asks for it (`whence`).
    pub(crate) async fn find(&self, handle: FileHandle, from: i64, whence: i32) -> Outcome<i64> {
        let what = Find::new(whence)?;
        let from = u64::try_from(from).map_err(|_| Errno::ENXIO)?;
        let at = match self.past.opened(handle) {
            Some(file) => find_in(&file, what, from).await?,
            None => known(self, handle)?.inode.find(what, from).await?,
        };
        i64::try_from(at).map_err(|_| Errno::EOVERFLOW)
    }
}

impl Inode {
    /// The first offset at or after `from` with data or a hole.
    pub(crate) async fn find(self: &Arc<Inode>, what: Find, from: u64) -> Outcome<u64> {
        let is_clean = self.state().is_clean();
        if !is_clean {
            // Bytes that wait to be written are on no drive yet.
            self.drain().await?;
        }
        self.catch_up().await;
        let slot = self.reading().await.map_err(|error| errno(&error))?;
        find_in(slot.file.as_ref().expect("it is open"), what, from).await
    }
}

/// The first offset of an open file at or after `from` with data or a hole.
async fn find_in(file: &File, what: Find, from: u64) -> Outcome<u64> {
    if from >= file.size() {
        return Err(Errno::ENXIO);
    }
    let mut at = from;
    loop {
        let data = file.data_after(at).await.map_err(|error| errno(&error))?;
        match (what, data) {
            (Find::Data, data) => return data.map(|data| data.start).ok_or(Errno::ENXIO),
            // The search goes on where the last answer ended.
            (Find::Hole, Some(data)) if data.start == at && data.end > at => at = data.end,
            (Find::Hole, _) => return Ok(at.min(file.size())),
        }
    }
}
