//! Receipts of drives that have answered a handle's writes: the highest of each, until the manager has it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_layout::DriveId;
use braid_wire::data::Receipt;

/// The highest position in its log that each drive has named, unless the manager has it.
#[derive(Debug, Default)]
pub(crate) struct Receipts(Mutex<BTreeMap<DriveId, u64>>);

impl Receipts {
    /// Records receipts that an answer has brought.
    pub(crate) fn heed(&self, receipts: &[Receipt]) {
        let mut known = self.lock();
        for receipt in receipts {
            let log = known.entry(receipt.drive).or_default();
            *log = receipt.log.max(*log);
        }
    }

    /// All receipts that the manager does not have yet.
    pub(crate) fn all(&self) -> Vec<Receipt> {
        self.lock().iter().map(|(&drive, &log)| Receipt { drive, log }).collect()
    }

    /// Forgets receipts that the manager has now.
    pub(crate) fn told(&self, receipts: &[Receipt]) {
        let mut known = self.lock();
        for receipt in receipts {
            if known.get(&receipt.drive).is_some_and(|log| *log <= receipt.log) {
                known.remove(&receipt.drive);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DriveId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_each_is_kept_until_it_was_told() {
        let of = |drive, log| Receipt { drive: DriveId(drive), log };
        let receipts = Receipts::default();
        receipts.heed(&[of(1, 5), of(2, 7)]);
        receipts.heed(&[of(1, 4), of(2, 8)]);
        let told = receipts.all();
        assert_eq!(told, [of(1, 5), of(2, 8)]);
        receipts.heed(&[of(2, 9)]);
        receipts.told(&told);
        assert_eq!(receipts.all(), [of(2, 9)]);
    }
}
