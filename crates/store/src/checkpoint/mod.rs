//! Checkpoints: the index on disk, so that opening replays only the log's tail.
//!
//! A checkpoint is *fuzzy*: it is written page by page ([`write`]) while the log goes on, each page under a short read
//! lock; a page says which record was the last that it counts in, and replay passes over what a page has already
//! ([`load`], `recover`). It is written under another name, synced and renamed, so that a crash leaves the one before.
//! Two are kept, so that a page which turns out bad can be made good from the older and its longer tail. The log's
//! segments are freed accordingly ([`keeper`]): one without live bytes goes when it lies before the older's tail; when
//! space is short, before the newer's.

pub(crate) mod keeper;
pub(crate) mod load;
pub(crate) mod write;

use std::io;

use crate::disk::Disk;
use crate::error::Error;
use crate::format::LOG_BLOCK_U64;
use crate::format::checkpoint::ReplayPoint;

/// The checkpoints' directory.
pub(crate) const DIR: &str = "checkpoint";

/// A checkpoint that is there and whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) number: u32,
    /// Bytes of its file.
    pub(crate) bytes: u64,
    pub(crate) replay: ReplayPoint,
}

impl ReplayPoint {
    /// Where in the segment it is.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.block) * LOG_BLOCK_U64
    }
}

/// The file of checkpoint `number`.
pub(crate) fn file_name(number: u32) -> String {
    format!("{DIR}/{number:08}.ckp")
}

/// The file of one that is being written.
pub(crate) fn new_name(number: u32) -> String {
    format!("{DIR}/{number:08}.new")
}

/// The numbers of all checkpoints, in order, and the names of those that were never finished.
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
