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
    /// True until the rate has been measured over a whole window since something was done.
    is_new: bool,
    pub rate: u64,
}

impl Healing {
    /// Takes a drive's report.
    pub fn handle_report(&mut self, drive: DriveId, progress: HealProgress, now_ms: u64) {
        let bytes = progress.compared_bytes;
        let before = self.heard.get(&drive);
        let mut now = Heard { progress, at_ms: now_ms, since: (now_ms, bytes), is_new: true, rate: 0 };
        // A process that has restarted begins anew, and so does one that had nothing to do: the time in which
        // it was idle says nothing about its rate.
        if let Some(before) =
            before.filter(|before| bytes > before.since.1 || before.rate > 0 && bytes == before.since.1)
        {
            let over_ms = now_ms.saturating_sub(before.since.0);
            let measured = (bytes - before.since.1).saturating_mul(1000).checked_div(over_ms);
            let is_whole = over_ms >= RATE_WINDOW_MS;
            now.rate = measured.filter(|_| is_whole || before.is_new).unwrap_or(before.rate);
            now.is_new = before.is_new && !is_whole;
            if !is_whole {
                now.since = before.since;
            }
        }
        self.heard.insert(drive, now);
    }
}

pub fn none() -> HealProgress {
    HealProgress {
        files: 0,
        compared_bytes: 0,
        under_way_bytes: 0,
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
        // The first window is measured as far as it is over.
        assert_eq!(says(4010, 10_000), 2000);
        assert_eq!(says(7010, 11_000), 7000 / 3);
        assert_eq!(says(9010, 12_000), 7000 / 3);
    }

    #[test]
    fn idle_time_before_a_heal_does_not_count() {
        let mut healing = Healing::default();
        let drive = DriveId(1);
        let mut says = |bytes, now_ms| {
            healing.handle_report(drive, HealProgress { compared_bytes: bytes, ..none() }, now_ms);
            healing.heard[&drive].rate
        };
        let idle: Vec<u64> = (0..9).map(|i| says(0, i * 500)).collect();
        assert_eq!(idle, [0; 9]);
        let busy: Vec<u64> = (1..9).map(|i| says(i * 1000, 4000 + i * 500)).collect();
        assert_eq!(busy, [2000; 8]);
    }
}
