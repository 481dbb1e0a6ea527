//! Experiments E7 and E8: one drive's store against raw files with the same sizes, depth and sync policy.
//!
//! E7 is in `rates`, E8 in `sizes`. The store is used as a drive uses it. A write comes with checksums (the
//! client makes them), which are verified on arrival; a read returns bytes and checksums, which the client
//! verifies. Besides the rates, the run measures the time to open a large store (`open`), the cost of
//! cleaning (`amplification`), and the cost of sending a read's bytes (`sending`).

mod amplification;
mod open;
mod sending;
mod simulate;
mod sizes;

use std::path::PathBuf;
use std::time::Instant;

use crate::error::Error;
use crate::machine::{self, Machine, MeasuredDir};
use crate::measure::{Effort, Pairs, Watch};
use crate::rates::{Bench, MEMORY_TIMES, MISS_TIMES, RANDOM_DEPTHS, STREAM_MISS_TIMES, Scale, UNITS};
use crate::report::Report;

/// The measurements to make, and their directories.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories for this run only, each on a file system to measure; the caller removes them.
    pub directories: Vec<PathBuf>,
    /// Amount of work.
    pub effort: Effort,
    /// Text that the titles of measured rows contain; `None`: all rows are measured.
    pub only: Option<String>,
}

/// Free bytes that each directory must have.
pub fn needed_bytes(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 96 << 20,
        Effort::Full => 4 << 30,
    }
}

/// Runs the experiments. Their files are removed when the function returns, also after an error.
pub fn run(settings: &Settings, watch: &Watch<'_>) -> Result<Report, Error> {
    let began = Instant::now();
    let quick = settings.effort == Effort::Quick;
    let mut machine = Machine::here();
    let places = MeasuredDir::all(&settings.directories)?;
    let rows = |place: &MeasuredDir| if place.memory { 13 } else { 34 } + sending::ROWS;
    let rows_in_all: u64 = places.iter().map(rows).sum();
    let more: u64 = places.iter().map(more_pairs).sum();
    let (rounds, warm_ups) = if quick { (2, 0) } else { (9, 1) };
    let samples = rows_in_all * Pairs::samples(rounds, warm_ups) + more * Pairs::samples(rounds, 0);
    let total = samples + open::STEPS + amplification::STEPS;
    let mut pairs = Pairs { watch, only: settings.only.as_deref(), rounds, warm_ups, done: 0, total };
    let mut rows = Vec::new();
    for place in &places {
        let scale = if quick { Scale::quick() } else { Scale::full(place) };
        let mut bench = Bench { pairs: &mut pairs, place, scale, rows: &mut rows };
        bench.streams()?;
        let set = bench.reads()?;
        sizes::reads(&mut bench, &set)?;
        drop(set);
        // In memory nothing is made durable, so there is nothing to compare.
        if !place.memory {
            bench.durable()?;
            sizes::writes(&mut bench)?;
        }
        sending::measure(&mut bench)?;
    }
    // Opening depends on the disk, and amplification is only counted: one place each is enough.
    let disk = places.iter().find(|place| !place.memory).or(places.first());
    let memory = places.iter().find(|place| place.memory).or(places.first());
    let times = disk.map(|place| open::measure(&mut pairs, place, settings.effort)).transpose()?;
    let amplification =
        memory.map(|place| amplification::measure(&mut pairs, place, settings.effort)).transpose()?;
    debug_assert!(places.is_empty() || pairs.done == total, "progress ends at its end");
    machine.load_after = machine::load();
    Ok(Report {
        experiment: "store",
        version: env!("CARGO_PKG_VERSION"),
        quick,
        machine,
        places,
        rows,
        times: times.unwrap_or_default(),
        amplification: amplification.unwrap_or_default(),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Extra pairs of all rows together, as a multiple of the usual number per row.
fn more_pairs(place: &MeasuredDir) -> u64 {
    let more: u32 = if place.memory {
        UNITS.map(|_| MEMORY_TIMES - 1).iter().sum()
    } else {
        RANDOM_DEPTHS.map(|_| MISS_TIMES - 1).into_iter().chain(UNITS.map(|_| STREAM_MISS_TIMES - 1)).sum()
    };
    u64::from(more) + if place.memory { 0 } else { sizes::MORE_PAIRS }
}
