//! Checkpoints: the index on disk, so that opening the store replays only the tail of the log.
//!
//! A checkpoint is *fuzzy*: it is written page by page ([`write`]) while the log goes on, each page under a
//! short read lock. Each page names the last record that it counts in, and replay skips the records that a
//! page has already ([`load`], `recover`). The file is written under a temporary name, synced and renamed, so
//! that a crash leaves the previous one. Two are kept: if a page of the newer is bad, the older one is loaded
//! and its longer tail replayed. Segments without live bytes are freed accordingly ([`checkpointer`]): those
//! before the older's tail; when space is short, those before the newer's.

pub(crate) mod load;
pub(crate) mod write;

use std::io;

use crate::disk::Disk;
use crate::error::Error;
pub(crate) use crate::format::CHECKPOINT_DIR as DIR;
use crate::format::LOG_BLOCK_U64;
use crate::format::checkpoint::ReplayPoint;

/// A usable checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptCheckpoint {
    pub(crate) number: u32,
    /// Length of its file.
    pub(crate) bytes: u64,
    pub(crate) replay: ReplayPoint,
}

impl ReplayPoint {
    /// Byte offset of the replay point in its segment.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.block) * LOG_BLOCK_U64
    }
}

/// The file name of checkpoint `number`.
pub(crate) fn file_name(number: u32) -> String {
    format!("{DIR}/{number:08}.ckp")
}

/// The file name of a checkpoint that is being written.
pub(crate) fn new_name(number: u32) -> String {
    format!("{DIR}/{number:08}.new")
}

/// The numbers of all checkpoints, in order, and the file names of unfinished ones.
pub(crate) fn list(disk: &dyn Disk) -> Result<(Vec<u32>, Vec<String>), Error> {
    let names = match disk.list(DIR) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("list the checkpoints", error)),
    };
    let mut numbers: Vec<u32> =
        names.iter().filter_map(|name| name.strip_suffix(".ckp")?.parse().ok()).collect();
    numbers.sort_unstable();
    let unfinished = names.iter().filter(|name| name.ends_with(".new"));
    Ok((numbers, unfinished.map(|name| format!("{DIR}/{name}")).collect()))
}
