//! A handle that was opened for a range of its file.

use std::ops::Range;

use super::File;
use crate::error::{Error, Result};

impl File {
    /// The range that only this handle may write now, as of the manager's last answer. `None` unless the
    /// handle was opened for a [range](crate::OpenOptions::range) and no other handle writes there.
    pub fn own_range(&self) -> Option<Range<u64>> {
        self.handle.view().range.map(|range| range.from..range.to)
    }

    /// Refuses bytes outside the range that this handle was opened for.
    pub(super) fn within(&self, offset: u64, end: u64) -> Result<()> {
        match &self.mode.range {
            Some(range) if offset < range.start || end > range.end => Err(Error::OutOfRange {
                file: self.subject().to_owned(),
                what: format!("bytes {offset}..{end} cannot be written"),
                range: range.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses an operation on the whole file, if this handle is for a range of it.
    pub(super) fn has_all(&self, what: &str) -> Result<()> {
        match &self.mode.range {
            Some(range) => Err(Error::OutOfRange {
                file: self.subject().to_owned(),
                what: what.to_owned(),
                range: range.clone(),
            }),
            None => Ok(()),
        }
    }
}
