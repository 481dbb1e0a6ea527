//! Where a file has data and where holes, for programs that pass over these (SEEK_DATA, SEEK_HOLE). A hole is
//! what no drive has bytes of, in whole stripes; so nothing need be read to find it.

use std::sync::Arc;

use fuser::{Errno, FileHandle};

use crate::errors::errno;
use crate::inode::Inode;
use crate::names::known;
use crate::shared::Shared;
use crate::write_back::Outcome;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    Data,
    /// The end of the file is one.
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
    /// The first offset from this one on where there is what is looked for, as the kernel has it.
    pub(crate) async fn find(&self, handle: FileHandle, from: i64, whence: i32) -> Outcome<i64> {
        let what = Find::new(whence)?;
        let from = u64::try_from(from).map_err(|_| Errno::ENXIO)?;
        let at = known(self, handle)?.inode.find(what, from).await?;
        i64::try_from(at).map_err(|_| Errno::EOVERFLOW)
    }
}

impl Inode {
    /// The first offset from this one on where there is what is looked for.
    pub(crate) async fn find(self: &Arc<Inode>, what: Find, from: u64) -> Outcome<u64> {
        let is_clean = self.state().is_clean();
        if !is_clean {
            // What waits is with no drive yet.
            self.drain().await?;
        }
        self.catch_up().await;
        let slot = self.reading().await.map_err(|error| errno(&error))?;
        let file = slot.file.as_ref().expect("it is open");
        if from >= file.size() {
            return Err(Errno::ENXIO);
        }
        let mut at = from;
        loop {
            let data = file.data_after(at).await.map_err(|error| errno(&error))?;
            match (what, data) {
                (Find::Data, data) => return data.map(|data| data.start).ok_or(Errno::ENXIO),
                // It goes on where the last answer ended.
                (Find::Hole, Some(data)) if data.start == at && data.end > at => at = data.end,
                (Find::Hole, _) => return Ok(at.min(file.size())),
            }
        }
    }
}
