//! Detection of drives that are much slower than their sisters (the cluster's other drives), as a disk often
//! is for days before it fails.
//!
//! A drive is slow if the time within which 99 % of its reads, or of its commits, were done is more than
//! [`TIMES`] times the median of its sisters', and more than [`FLOOR_US`]. All drives get similar loads, as
//! files are spread over them, so a loaded cluster has high figures everywhere, and no drive is named. Only
//! drives that are up and had enough requests in the last minutes are compared, and at least [`SISTERS_MIN`]
//! sisters are needed. Pure.

use braid_wire::control::{DriveState, Latency};

use crate::rules::drives::{Drive, DriveTable};

/// Factor by which a slow drive is above the median of its sisters.
pub const TIMES: u64 = 5;
/// Time, in microseconds, up to which a drive is not slow, whatever its sisters' times are.
pub const FLOOR_US: u64 = 20_000;
/// Minimum number of sisters to compare with.
pub const SISTERS_MIN: usize = 2;
/// Minimum number of requests of a drive that is compared.
pub const REQUESTS_MIN: u64 = 100;

/// Message that the drive is slower than its sisters, by how much, and what to do; empty if it is not slow.
pub fn of(table: &DriveTable, drive: &Drive, now_ms: u64) -> String {
    let up = |drive: &&Drive| table.state(drive.record.drive, now_ms) == DriveState::Up;
    if !up(&drive) {
        return String::new();
    }
    let sisters: Vec<&Drive> =
        table.iter().filter(up).filter(|other| other.record.drive != drive.record.drive).collect();
    let kind = |name: &str, of: fn(&Drive) -> Latency| {
        let others: Vec<Latency> = sisters.iter().map(|sister| of(sister)).collect();
        let median_us = slow(of(drive), &others)?;
        let p99_us = of(drive).p99_us;
        Some(format!(
            "99 % of its {name} took up to {} (median of the other drives: {})",
            shown(p99_us),
            shown(median_us)
        ))
    };
    let kinds = [kind("reads", |drive| drive.reads), kind("commits", |drive| drive.commits)];
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    if kinds.is_empty() {
        return String::new();
    }
    format!(
        "in the last minutes {}: its disk may be failing: look at its SMART values and the kernel's log; if it stays so, \
         braid drive drain it and braid drive rm it",
        kinds.join(", and ")
    )
}

/// The sisters' median in microseconds, if the drive is slow compared with it.
fn slow(own: Latency, sisters: &[Latency]) -> Option<u64> {
    let counts = |of: &&Latency| of.count >= REQUESTS_MIN;
    let mut others: Vec<u64> = sisters.iter().filter(counts).map(|of| of.p99_us).collect();
    if own.count < REQUESTS_MIN || others.len() < SISTERS_MIN {
        return None;
    }
    others.sort_unstable();
    // For an even number the higher of the two: rather too late than too early.
    let median_us = others[others.len() / 2];
    (own.p99_us > FLOOR_US && own.p99_us > median_us.saturating_mul(TIMES)).then_some(median_us)
}

fn shown(micros: u64) -> String {
    if micros < 10_000 { format!("{micros} us") } else { format!("{} ms", micros / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u64, p99_us: u64) -> Latency {
        Latency { count, p50_us: 0, p99_us }
    }

    #[test]
    fn slow_is_far_above_the_median_of_enough_sisters() {
        let well = [of(1000, 8000), of(1000, 4000), of(1000, 2000)];
        for (own, sisters, expected) in [
            (of(1000, 20_001), &well[..], Some(4000)),
            (of(1000, 20_000), &well[..], None),
            (of(99, 900_000), &well[..], None),
            (of(1000, 900_000), &well[..1], None),
            // All drives are loaded.
            (of(1000, 900_000), &[of(1000, 400_000), of(1000, 300_000)][..], None),
            (of(1000, 900_000), &[of(1000, 9000), of(1000, 8000), of(3, 1_000_000)][..], Some(9000)),
            (of(1000, 900_000), &[of(1, 9000), of(1000, 8000)][..], None),
        ] {
            assert_eq!(slow(own, sisters), expected, "{own:?} {sisters:?}");
        }
    }
}
