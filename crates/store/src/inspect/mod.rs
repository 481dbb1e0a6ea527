//! Inspecting a store that no process has open: [`check`], [`dump`], [`stat`]. Nothing is ever written. The
//! directory is locked for reading, so that a running drive is refused ([`Error::InUse`]) and none can start
//! meanwhile.

mod check;
mod dump;
mod log;
mod stat;

pub use check::{Finding, Report, check};
pub use dump::{Line, dump};
pub use stat::{SegmentFacts, StoreFacts, stat};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Directory, Syncing};
use crate::error::Error;
use crate::files::Files;
use crate::format::superblock::Superblock;
use crate::recover::{Recovered, recover};

/// The store in `dir`: the directory itself, or `store/` in it, as in a drive's directory.
fn store_dir(dir: &Path) -> PathBuf {
    let inner = dir.join("store");
    if !dir.join("superblock").exists() && inner.is_dir() { inner } else { dir.to_owned() }
}

/// The files of the store in `dir`, for reading.
fn disk(dir: &Path) -> Result<Arc<Directory>, Error> {
    Ok(Arc::new(Directory::read_only(&store_dir(dir))?))
}

/// The result that opening would have.
fn recovered(files: &Files, superblock: Superblock) -> Result<Recovered, Error> {
    recover(files, superblock, Syncing::Off)
}
