//! A handle that was opened for a range of its file.

use std::ops::Range;

use super::File;
use crate::error::{Error, Result};

impl File {
    /// The range that is this handle's alone now, as of the manager's last answer: of one that was opened
    /// for a [range](crate::OpenOptions::range), while nobody else writes there.
    pub fn own_range(&self) -> Option<Range<u64>> {
        self.handle.view().range.map(|range| range.from..range.to)
    }

    /// Refuses what this handle did not ask for.
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

    /// Refuses what concerns the file as a whole, if this handle is for a range of it.
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
