//! Receipts: how far this drive's log is durable, and those of its sisters, as they have told it.
//!
//! Every answer to a write carries them, so that the writer can bring them to the manager: of a unit write
//! also those of the parity drives, which the writer has not asked itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_layout::DriveId;
use braid_wire::data::Receipt;

/// How far the logs of sisters were durable.
#[derive(Debug, Default)]
pub(crate) struct SisterReceipts(Mutex<HashMap<DriveId, u64>>);

impl SisterReceipts {
    /// A sister has answered a delta with these. Its newest word counts, also if it is less than one before:
    /// its log was put back then, which the manager has found out, and it goes on from there.
    pub(crate) fn heed(&self, receipts: &[Receipt]) {
        self.lock().extend(receipts.iter().map(|receipt| (receipt.drive, receipt.log)));
    }

    /// The newest of these drives.
    pub(crate) fn of(&self, drives: &[DriveId]) -> Vec<Receipt> {
        let known = self.lock();
        let of = |&drive: &DriveId| known.get(&drive).map(|&log| Receipt { drive, log });
        drives.iter().filter_map(of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DriveId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
