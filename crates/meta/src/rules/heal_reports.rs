//! Drives' reports on their progress in bringing stale columns up to date, and the rates that follow.

use std::collections::BTreeMap;

use braid_layout::DriveId;
use braid_wire::control::HealProgress;

/// Time over which a drive's rate is measured, in milliseconds.
const RATE_WINDOW_MS: u64 = 3000;

/// The last report of each drive.
#[derive(Debug, Default)]
pub struct Healing {
    pub heard: BTreeMap<DriveId, Heard>,
}

/// Last report of one drive.
#[derive(Debug)]
pub struct Heard {
    pub progress: HealProgress,
    pub at_ms: u64,
    /// Beginning of the measurement of the rate: the time, and the bytes compared by then.
    since: (u64, u64),
    pub rate: u64,
}

impl Healing {
    /// Takes a drive's report.
    pub fn handle_report(&mut self, drive: DriveId, progress: HealProgress, now_ms: u64) {
        let bytes = progress.compared_bytes;
        let before = self.heard.get(&drive);
        let (mut since, mut rate) = before.map_or(((now_ms, bytes), 0), |heard| (heard.since, heard.rate));
        if bytes < since.1 {
            (since, rate) = ((now_ms, bytes), 0); // it has restarted
        }
        let over_ms = now_ms.saturating_sub(since.0);
        if over_ms >= RATE_WINDOW_MS {
            rate = (bytes - since.1).saturating_mul(1000) / over_ms;
            since = (now_ms, bytes);
        } else if rate == 0 && over_ms > 0 {
            rate = (bytes - since.1).saturating_mul(1000) / over_ms;
        }
        self.heard.insert(drive, Heard { progress, at_ms: now_ms, since, rate });
    }
}

pub fn none() -> HealProgress {
    HealProgress {
        files: 0,
        compared_bytes: 0,
        written_bytes: 0,
        repaired: 0,
        damaged: 0,
        error: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_seconds_and_begins_anew_with_the_process() {
        let mut healing = Healing::default();
        let drive = DriveId(1);
        let mut says = |bytes, now_ms| {
            healing.handle_report(drive, HealProgress { compared_bytes: bytes, ..none() }, now_ms);
            healing.heard[&drive].rate
        };
        assert_eq!(says(1000, 0), 0);
        assert_eq!(says(3000, 1000), 2000);
        assert_eq!(says(7000, 4000), 1500);
        assert_eq!(says(7000, 5000), 1500, "the window is not over");
        assert_eq!(says(7000, 7000), 0, "nothing was done in it");
        assert_eq!(says(10, 8000), 0);
        assert_eq!(says(1010, 9000), 1000);
    }
}
