//! Fullness of the drives relative to each other, and the columns that may move to level it.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{DriveId, FileId};

use crate::records::schema::ComponentPlace;

/// Fullness of one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Bytes of the components placed on the drive.
    pub bytes: u64,
    pub capacity_bytes: u64,
}

/// Fullness of the drives, once all moves under way have ended. Pure.
#[derive(Debug, Clone, Default)]
pub struct Loads(pub BTreeMap<DriveId, Load>);

impl Loads {
    /// The bytes that a drive would hold if all were equally full.
    pub fn fair(&self, load: &Load) -> u64 {
        let sum = |of: fn(&Load) -> u64| self.0.values().map(|load| u128::from(of(load))).sum::<u128>();
        let fair = sum(|load| load.bytes) * u128::from(load.capacity_bytes);
        u64::try_from(fair / sum(|load| load.capacity_bytes).max(1)).unwrap_or(u64::MAX)
    }

    /// Difference between the fullest and the emptiest drive, in thousandths of their capacity.
    pub fn spread_permille(&self) -> u64 {
        let share = |load: &Load| u128::from(load.bytes) * 1000 / u128::from(load.capacity_bytes.max(1));
        let min = self.0.values().map(share).min();
        let max = self.0.values().map(share).max();
        u64::try_from(max.unwrap_or(0) - min.unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Bytes that the drive has above the common share; 0 if it is not above.
    pub fn surplus(&self, drive: DriveId) -> u64 {
        self.0.get(&drive).map_or(0, |load| load.bytes.saturating_sub(self.fair(load)))
    }

    /// Bytes that have still to move until all are equally full.
    pub fn left_bytes(&self) -> u64 {
        self.0.keys().map(|drive| self.surplus(*drive)).fold(0, u64::saturating_add)
    }

    /// The drives that are above the common share, the fullest first.
    pub fn givers(&self) -> Vec<DriveId> {
        let mut givers: Vec<(u64, DriveId)> =
            self.0.keys().map(|&drive| (self.surplus(drive), drive)).collect();
        givers.retain(|(surplus, _)| *surplus > 0);
        givers.sort_unstable_by(|one, other| other.cmp(one));
        givers.into_iter().map(|(_, drive)| drive).collect()
    }

    /// The drives that may take `bytes` bytes from the drive `from`, the emptiest first.
    pub fn takers(&self, from: DriveId, bytes: u64) -> Vec<DriveId> {
        if bytes == 0 || bytes > self.surplus(from) {
            return Vec::new();
        }
        let lack = |load: &Load| self.fair(load).saturating_sub(load.bytes);
        let mut takers: Vec<(u64, DriveId)> =
            self.0.iter().map(|(&drive, load)| (lack(load), drive)).collect();
        takers.retain(|(lack, _)| *lack >= bytes);
        takers.sort_unstable_by(|one, other| other.cmp(one));
        takers.into_iter().map(|(_, drive)| drive).collect()
    }

    pub fn shift(&mut self, from: DriveId, to: DriveId, bytes: u64) {
        if let Some(load) = self.0.get_mut(&from) {
            load.bytes = load.bytes.saturating_sub(bytes);
        }
        if let Some(load) = self.0.get_mut(&to) {
            load.bytes = load.bytes.saturating_add(bytes);
        }
    }
}

/// State of the balancing of drives.
#[derive(Debug, Default)]
pub struct Balance {
    pub loads: Loads,
    /// True from when balancing begins until all drives are at the common share.
    pub active: bool,
    pub moving: BTreeSet<FileId>,
    /// Last column of each drive that was looked at.
    pub looked: BTreeMap<DriveId, ComponentPlace>,
    pub begun_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[(u64, u64)]) -> Loads {
        let load = |(&(bytes, capacity_bytes), drive)| (DriveId(drive), Load { bytes, capacity_bytes });
        Loads(of.iter().zip(1u128..).map(load).collect())
    }

    #[test]
    fn drives_of_any_size_are_filled_to_the_same_share() {
        let balance = loads(&[(60, 100), (60, 100), (0, 100), (60, 300)]);
        assert_eq!(balance.spread_permille(), 600);
        assert_eq!(balance.givers(), [DriveId(2), DriveId(1)]);
        assert_eq!(balance.left_bytes(), 60, "a share of 30 in 100");
        assert_eq!(balance.takers(DriveId(1), 10), [DriveId(4), DriveId(3)]);
        assert_eq!(balance.takers(DriveId(1), 31), [], "it would have less than its share");
        assert_eq!(balance.takers(DriveId(3), 10), []);
        assert_eq!(loads(&[]).spread_permille(), 0);
        assert_eq!(loads(&[(5, 0)]).left_bytes(), 5);
    }

    #[test]
    fn nothing_moves_twice_and_no_more_than_must() {
        let mut balance = loads(&[(1000, 2000), (1000, 2000), (1000, 2000), (0, 2000)]);
        let least = balance.left_bytes();
        let mut moved = 0;
        for bytes in (1..40).cycle().take(10_000) {
            let Some(from) = balance.givers().first().copied() else { break };
            let Some(to) = balance.takers(from, bytes).first().copied() else { continue };
            balance.shift(from, to, bytes);
            moved += bytes;
        }
        assert_eq!(least, 750);
        assert!(moved <= least && balance.spread_permille() < 5, "{moved}: {balance:?}");
    }
}
