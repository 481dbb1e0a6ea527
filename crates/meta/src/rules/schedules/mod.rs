//! Schedules of snapshots: when one is due, its name, and which go. Pure.
//!
//! Time is cut into hours, days and weeks of UTC; weeks begin on Mondays. A schedule makes one snapshot in
//! each of the shortest of these that it keeps any of. Its snapshots stay as long as one of its classes keeps
//! them: the newest in each of the last so many hours, days or weeks *that have any*. So the present time
//! decides on none, and a clock that is wrong for a while removes nothing.
//!
//! One is made for the time that has begun, never one for each that was missed: not after the manager was
//! down for hours, and not after its clock was set forward. If the clock is set back, the next is made at the
//! next full hour, day or week by the new time. A name is of its hour, and so is not made twice.

use std::collections::BTreeSet;

use braid_wire::control::KeepCounts;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const WEEK_MS: u64 = 7 * DAY_MS;
/// 1970 began on a Thursday, three days after a Monday.
const MONDAY_MS: u64 = 3 * DAY_MS;

/// Maximum number of snapshots that a schedule keeps.
pub const KEPT_MAX: u32 = 500;

/// Names of a schedule's snapshots begin so.
pub const PREFIX: &str = "auto-";

/// A number of hours, days or weeks, and which of them a time is in.
type Class = (u32, fn(u64) -> u64);

/// A snapshot that a schedule made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The snapshot's number: a higher one is newer, whatever the clock said.
    pub number: u32,
    pub taken_ms: u64,
}

/// The act that a schedule needs at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this time.
    Wait { next_ms: u64 },
    /// Make a snapshot of this name, unless there is one; then nothing before the time.
    Make { name: String, next_ms: u64 },
}

/// The act that is due at a time, if the next snapshot was to be made at `next_ms`.
pub fn due(keep: KeepCounts, next_ms: u64, now_ms: u64) -> Due {
    let after = next_after(keep, now_ms);
    if now_ms >= next_ms {
        return Due::Make { name: name(now_ms), next_ms: after };
    }
    // The clock was set back if the next one is further away than that.
    Due::Wait { next_ms: next_ms.min(after) }
}

/// The beginning of the next hour, day or week of which the schedule makes a snapshot.
fn next_after(keep: KeepCounts, now_ms: u64) -> u64 {
    let (start, period_ms) = if keep.hours > 0 {
        (hour(now_ms) * HOUR_MS, HOUR_MS)
    } else if keep.days > 0 {
        (day(now_ms) * DAY_MS, DAY_MS)
    } else {
        ((week(now_ms) * WEEK_MS).saturating_sub(MONDAY_MS), WEEK_MS)
    };
    start.saturating_add(period_ms)
}

fn hour(ms: u64) -> u64 {
    ms / HOUR_MS
}

fn day(ms: u64) -> u64 {
    ms / DAY_MS
}

fn week(ms: u64) -> u64 {
    ms.saturating_add(MONDAY_MS) / WEEK_MS
}

/// The snapshots that no class of the schedule keeps. The newest one is kept in any case.
pub fn unkept(keep: KeepCounts, made: &[Made]) -> BTreeSet<u32> {
    let mut newest_first = made.to_vec();
    newest_first.sort_by_key(|one| std::cmp::Reverse(one.number));
    let mut kept = BTreeSet::new();
    kept.extend(newest_first.first().map(|one| one.number));
    let classes: [Class; 3] = [(keep.hours, hour), (keep.days, day), (keep.weeks, week)];
    for (count, of) in classes {
        let mut met = BTreeSet::new();
        for one in &newest_first {
            if met.len() < usize::try_from(count).unwrap_or(usize::MAX) && met.insert(of(one.taken_ms)) {
                kept.insert(one.number);
            }
        }
    }
    newest_first.iter().map(|one| one.number).filter(|number| !kept.contains(number)).collect()
}

/// The name of the snapshot of a time: that of its hour in UTC.
pub fn name(ms: u64) -> String {
    let (year, month, date) = calendar(day(ms));
    format!("{PREFIX}{year:04}-{month:02}-{date:02}T{:02}", hour(ms) % 24)
}

/// Year, month and day of the Gregorian calendar from days since 1970. Works in 400-year eras of 146,097 days
/// and in years that begin in March, so that the leap day comes last (Hinnant, "chrono-compatible low-level
/// date algorithms").
fn calendar(days: u64) -> (u64, u64, u64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests;
