//! Receipts: how far this drive's log is durable, and the logs of its sisters, as far as they have told it.
//!
//! Every answer to a write carries receipts, so that the writer can bring them to the manager. The answer to
//! a unit write also carries those of the parity drives, which the writer has not asked itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_layout::DriveId;
use braid_wire::data::Receipt;

/// Last durable log record of each sister, as it was last reported.
#[derive(Debug, Default)]
pub(crate) struct SisterReceipts(Mutex<HashMap<DriveId, u64>>);

impl SisterReceipts {
    /// A sister has answered a delta with these receipts. Its newest receipt counts, even if it is lower than
    /// an earlier one: then the sister's log was put back, which the manager has found out, and the log goes
    /// on from there.
    pub(crate) fn heed(&self, receipts: &[Receipt]) {
        self.lock().extend(receipts.iter().map(|receipt| (receipt.drive, receipt.log)));
    }

    /// The newest receipts of these drives.
    pub(crate) fn of(&self, drives: &[DriveId]) -> Vec<Receipt> {
        let known = self.lock();
        let of = |&drive: &DriveId| known.get(&drive).map(|&log| Receipt { drive, log });
        drives.iter().filter_map(of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DriveId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
