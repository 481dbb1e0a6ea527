//! The speed of a disk, measured with plain files: rates of sequential reads and writes, and the time of a
//! small read.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Doing, Error};
use crate::load_threads::Random;
use crate::raw::Scratch;
use crate::stats;

/// Bytes of a large request.
const REQUEST_BYTES: usize = 8 << 20;
/// Bytes of a small read.
const SMALL_BYTES: usize = 4096;
/// Small reads of a sample.
const SMALL_READS: u64 = 64;

/// Speed of a disk; medians of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DiskRates {
    /// Bytes a second of sequential reads from a file's beginning, none of it cached.
    pub read_rate: f64,
    /// Bytes a second of sequential writes from a file's beginning, synced once.
    pub write_rate: f64,
    /// Seconds of a read of 4 KiB at a random offset, with nothing of the file cached.
    pub small_read_seconds: f64,
}

/// Measures the disk that `directory` is on, with a file of this many bytes, which is removed afterwards.
///
/// # Errors
/// The file cannot be written or read.
pub fn disk_rates(directory: &Path, bytes: u64, rounds: u32, stop: &AtomicBool) -> Result<DiskRates, Error> {
    let payloads = [Bytes::from(vec![0x5a; REQUEST_BYTES])];
    let mut read = Vec::new();
    let mut write = Vec::new();
    let mut small = Vec::new();
    for round in 0..rounds {
        let scratch = Scratch::make(directory, "disk")?;
        let began = Instant::now();
        scratch.fill(&payloads, 0..bytes, stop)?;
        scratch.sync()?;
        write.push(per_second(bytes, began.elapsed()));
        scratch.forget()?;
        let mut buffer = vec![0; REQUEST_BYTES];
        let began = Instant::now();
        let mut at = 0;
        while at < bytes {
            let got = scratch.file.read_at(&mut buffer, at).doing("read a file")?;
            at += u64::try_from(got.max(1)).expect("memory");
        }
        read.push(per_second(bytes, began.elapsed()));
        scratch.forget()?;
        let mut random = Random::new(u64::from(round));
        let pieces = (bytes / u64::try_from(SMALL_BYTES).expect("it is small")).max(1);
        let began = Instant::now();
        for _ in 0..SMALL_READS {
            let at = random.below(pieces) * u64::try_from(SMALL_BYTES).expect("it is small");
            scratch.file.read_at(&mut buffer[..SMALL_BYTES], at).doing("read a file")?;
        }
        small.push(began.elapsed().as_secs_f64() / f64::from(u32::try_from(SMALL_READS).expect("few")));
    }
    Ok(DiskRates {
        read_rate: stats::median(&read),
        write_rate: stats::median(&write),
        small_read_seconds: stats::median(&small),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
fn per_second(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_rates_and_keeps_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let rates = disk_rates(directory.path(), 16 << 20, 1, &AtomicBool::new(false)).expect("measured");
        assert!(rates.read_rate > 0.0 && rates.write_rate > 0.0 && rates.small_read_seconds > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
    }
}
