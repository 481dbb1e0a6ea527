//! Checks that the files that an open store uses are the ones in its directory.
//!
//! A file that is deleted or replaced under a running store can still be read through its open handle, with
//! correct checksums, but the next opening finds it gone. So the check looks files up by name and compares
//! them with those in use.

use std::io;

use crate::checkpoint::{KeptCheckpoint, file_name};
use crate::error::Error;
use crate::files::{SUPERBLOCK, segment_name};
use crate::format::superblock;
use crate::store::Store;

const MISSING: &str =
    "the file in use is not there any more: it was deleted or moved away under the running drive";
const REPLACED: &str = "another file has the name of the one in use: it was replaced under the running drive";
const SHORT: &str = "the file was cut short under the running drive";

/// A file of a running store that its next opening would find missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongFile {
    /// The file's name in the store's directory.
    pub name: String,
    /// Description of the fault.
    pub what: String,
}

impl Store {
    /// The files in use that are missing from the store's directory, were replaced or are too short: the
    /// first `limit` of them, and the total number.
    pub fn wrong_files(&self, limit: usize) -> (Vec<WrongFile>, u64) {
        let mut found = Vec::new();
        let mut count = 0;
        let mut tell = |name: String, wrong: Option<String>| {
            let Some(what) = wrong else { return };
            count += 1;
            if found.len() < limit {
                found.push(WrongFile { name, what });
            }
        };
        let bytes = u64::try_from(superblock::BYTES).expect("small");
        tell(SUPERBLOCK.to_owned(), self.by_name(SUPERBLOCK, bytes).err());
        for kept in self.checkpoints() {
            let name = file_name(kept.number);
            // A checkpoint removed meanwhile is not in the list any more.
            let wrong = self.by_name(&name, kept.bytes).err();
            let is_kept = || self.checkpoints().iter().any(|other| other.number == kept.number);
            tell(name, wrong.filter(|_| is_kept()));
        }
        let segments: Vec<(u32, u64)> = {
            let index = self.index();
            index.segments.all.iter().map(|(&number, segment)| (number, segment.bytes)).collect()
        };
        for (number, bytes) in segments {
            tell(segment_name(number), self.wrong_segment(number, bytes));
        }
        (found, count)
    }

    /// An error if a segment's name does not lead to the file in use.
    pub(crate) fn present(&self, number: u32) -> Result<(), Error> {
        let Some(what) = self.wrong_segment(number, 0) else { return Ok(()) };
        tracing::error!(segment = number, %what, "a segment in use is not in the store's directory");
        let what = [MISSING, REPLACED, SHORT].into_iter().find(|known| *known == what);
        let what = what.unwrap_or("its file cannot be looked up by name");
        Err(Error::Damaged { segment: u64::from(number), offset: 0, what })
    }

    /// Describes the fault of a segment's file, which should have at least `bytes`. `None`: there is none.
    fn wrong_segment(&self, number: u32, bytes: u64) -> Option<String> {
        let name = segment_name(number);
        let wrong = match self.by_name(&name, bytes) {
            Err(what) => Some(what),
            Ok(identity) => {
                let open = self.files().open_now(number).and_then(|open| open.identity().ok());
                open.is_some_and(|open| open != identity).then(|| REPLACED.to_owned())
            }
        };
        // A segment freed meanwhile is no error: it leaves the index before its file is removed.
        wrong.filter(|_| self.index().segments.all.get(&number).is_some_and(|segment| segment.bytes > 0))
    }

    /// The identity of the file with this name, which should have at least `bytes`; or the description of its
    /// fault.
    fn by_name(&self, name: &str, bytes: u64) -> Result<crate::disk::FileIdentity, String> {
        match self.files().disk().named(name) {
            Ok(found) if found.bytes < bytes => Err(SHORT.to_owned()),
            Ok(found) => Ok(found.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MISSING.to_owned()),
            Err(error) => Err(format!("it cannot be looked up: {error}")),
        }
    }

    fn checkpoints(&self) -> Vec<KeptCheckpoint> {
        self.shared().checkpointer.all()
    }
}
