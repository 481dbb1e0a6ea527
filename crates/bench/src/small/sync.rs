//! The rate at which a disk can sync plain files: the bound for operations that must be durable before they
//! are answered.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use super::operation::FILE_BYTES;
use super::report::{SyncRate, Synced};
use crate::error::Error;
use crate::load_threads::Work;
use crate::measure::Limit;
use crate::raw::{Scratch, Target, synced_writes};
use crate::stats;

/// Pieces of the file that is overwritten.
const PIECES: u64 = 256;
/// Most appends of a sample.
const OPERATIONS_MAX: u64 = 1 << 16;

/// Measures writes of 4 KiB by one thread, each followed by an fdatasync, in `rounds` samples of this
/// length. Writes to a manager's disk are in place, as a database's are; those to a drive's disk are
/// appended, as a log's are.
pub fn sync_rate(
    directory: &Path,
    of: Synced,
    rounds: u32,
    time: Duration,
    stop: &AtomicBool,
) -> Result<SyncRate, Error> {
    let payloads = [Bytes::from(vec![0xa5; usize::try_from(FILE_BYTES).expect("it is small")])];
    let within = PIECES * u64::from(FILE_BYTES);
    let mut rates = Vec::new();
    for round in 0..u64::from(rounds) {
        let scratch = Scratch::make(directory, "synced")?;
        let target = match of {
            Synced::Manager => {
                scratch.fill(&payloads, 0..within, stop)?;
                Target::InPlace(within)
            }
            Synced::Drive => Target::Append,
        };
        scratch.sync()?;
        let limit = Limit { time, operations: OPERATIONS_MAX };
        let work = Work { depth: 1, limit, turn: 1, request_bytes: FILE_BYTES };
        let sample = synced_writes(&scratch.file, &payloads, target, work, round, stop)?;
        let operations = u32::try_from(sample.operations).unwrap_or(u32::MAX);
        rates.push(f64::from(operations) / sample.wall.as_secs_f64().max(1e-9));
    }
    Ok(SyncRate { of, name: of.name(), per_second: stats::spread(&rates) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_measured_and_leave_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(false);
        let time = Duration::from_millis(5);
        for of in [Synced::Manager, Synced::Drive] {
            let rate = sync_rate(directory.path(), of, 2, time, &stop).expect("measured");
            assert_eq!(rate.per_second.samples, 2);
            assert!(rate.per_second.min > 0.0, "{rate:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
    }
}
