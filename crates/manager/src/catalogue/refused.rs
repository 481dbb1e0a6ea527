//! Drives that did not take a picture of the names: for a while another is not begun on them, or it would be
//! begun without end. Pure.

use std::collections::BTreeMap;

use braid_layout::DriveId;

/// Time for which a drive that refused is left out, and one that only did not answer, in milliseconds.
const REFUSED_MS: u64 = 600_000;
const SILENT_MS: u64 = 60_000;

/// Drives that are left out, each until a time.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    until_ms: BTreeMap<DriveId, u64>,
}

impl Refused {
    /// Notes that the drive did not take a picture; `for_good`: it would not take it later either.
    pub(crate) fn note(&mut self, drive: DriveId, for_good: bool, now_ms: u64) {
        let out_ms = if for_good { REFUSED_MS } else { SILENT_MS };
        self.until_ms.insert(drive, now_ms.saturating_add(out_ms));
    }

    /// Returns true if the drive is left out.
    pub(crate) fn is_out(&self, drive: DriveId, now_ms: u64) -> bool {
        self.until_ms.get(&drive).is_some_and(|until_ms| now_ms < *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_refused_is_left_out_for_a_while() {
        let mut refused = Refused::default();
        refused.note(DriveId(1), true, 1000);
        refused.note(DriveId(2), false, 1000);
        let out = |now_ms| [1, 2, 3].map(|drive| refused.is_out(DriveId(drive), now_ms));
        assert_eq!(out(1000), [true, true, false]);
        assert_eq!(out(1000 + SILENT_MS), [true, false, false]);
        assert_eq!(out(1000 + REFUSED_MS), [false, false, false]);
    }
}
