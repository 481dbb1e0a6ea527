//! Spreads the columns of a drive over others, to each a share by its weight.
//!
//! All drives that get columns make them anew at the same time, so the last one to end decides the length of
//! a rebuild. Draws by hash give equal shares only for many columns: of 84 columns over 7 drives, the drive
//! with the most gets 17 on average, where 12 are its share.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use braid_layout::DriveId;
use braid_layout::placement::Candidate;

/// Bytes of the columns of a drive that is emptied, by the drive that they were given to.
#[derive(Debug, Default)]
pub struct Spread {
    given: Mutex<BTreeMap<DriveId, u64>>,
}

impl Spread {
    /// Gives `bytes` bytes to the candidate whose given bytes will be the least for its weight, and returns
    /// it; of several equal ones the first. `None`: there are no candidates.
    pub fn give(&self, candidates: &[&Candidate], bytes: u64) -> Option<DriveId> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        // A column without bytes costs its messages all the same.
        let bytes = bytes.max(1);
        let then =
            |of: &Candidate| u128::from(given.get(&of.drive).copied().unwrap_or(0).saturating_add(bytes));
        let weight = |of: &Candidate| u128::from(of.weight.max(1));
        let least = candidates
            .iter()
            .min_by(|a, b| (then(a) * weight(b)).cmp(&(then(b) * weight(a))))
            .map(|candidate| candidate.drive)?;
        let sum = given.entry(least).or_default();
        *sum = sum.saturating_add(bytes);
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(drive: u8, weight: u32) -> Candidate {
        Candidate { drive: DriveId(drive.into()), weight, domain: Vec::new() }
    }

    #[test]
    fn each_gets_its_share() {
        let drives = [candidate(1, 1), candidate(2, 2), candidate(3, 1)];
        let all: Vec<&Candidate> = drives.iter().collect();
        let spread = Spread::default();
        for _ in 0..40 {
            spread.give(&all, 1000);
        }
        let given = spread.given.lock().unwrap();
        assert_eq!(given.values().copied().collect::<Vec<_>>(), [10_000, 20_000, 10_000]);
    }

    #[test]
    fn whoever_may_not_have_some_gets_others() {
        let drives = [candidate(1, 1), candidate(2, 1)];
        let spread = Spread::default();
        assert_eq!(spread.give(&[&drives[1]], 0), Some(drives[1].drive));
        assert_eq!(spread.give(&[&drives[1], &drives[0]], 0), Some(drives[0].drive));
        assert_eq!(spread.give(&[], 5), None);
    }
}
