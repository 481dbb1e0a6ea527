//! Experiment E8: reads and writes of an object by request size, one at a time, compared with a file.

use crate::error::Error;
use crate::load_threads::{Random, Work};
use crate::measure::Question;
use crate::rates::{Bench, ReadSet, payloads};
use crate::raw::{self, Scratch, Target};
use crate::report::Experiment;
use crate::subject::{At, Subject};

/// Request sizes, in bytes.
const SIZES: [u32; 6] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Unit size of the objects, in bytes.
const UNIT: u32 = 1 << 20;
/// Target: "At least equal everywhere."
const TARGET: f64 = 1.0;
/// Most bytes that one sample of writes may write.
const SAMPLE_BYTES: u64 = 32 << 20;
/// Factor of pairs for writes, each shorter by the same factor: a sync takes longer now and then.
const WRITE_TIMES: u32 = 4;

/// Factor of pairs for reads that miss the cache, each a quarter as long.
const MISS_TIMES: u32 = 12;

/// Extra pairs of all rows together, as a multiple of the usual number per row.
pub(crate) const MORE_PAIRS: u64 = SIZES.len() as u64 * (WRITE_TIMES - 1 + MISS_TIMES - 1) as u64;

fn question(name: &'static str, against: &'static str, request_bytes: u32) -> Question {
    let target = Some(TARGET);
    let experiment = Experiment::E8;
    let depth = 1;
    let cache = None;
    let times = 1;
    Question { experiment, name, against, request_bytes, depth, cache, target, times, memory_bytes: 0 }
}

/// Measures reads at random offsets.
pub(crate) fn reads(bench: &mut Bench<'_, '_>, set: &ReadSet) -> Result<(), Error> {
    SIZES.iter().try_for_each(|&size| {
        let asked = Question { times: MISS_TIMES, ..question("read", "pread of a file", size) };
        bench.random_reads(set, &asked)
    })
}

/// Measures durable overwrites at random offsets. The file's blocks are allocated and its pages cached, so
/// that writing a part of a page reads nothing.
pub(crate) fn writes(bench: &mut Bench<'_, '_>) -> Result<(), Error> {
    let directory = &bench.place.directory;
    let stop = bench.pairs.watch.stop;
    let bytes = bench.scale.hit_bytes;
    let units = bytes / u64::from(UNIT);
    let (unit_payloads, unit_plain) = payloads(UNIT);
    for size in SIZES {
        let name = "durable write";
        let against = "pwrite in place and fdatasync";
        let asked = Question { times: WRITE_TIMES, ..question(name, against, size) };
        if bench.pairs.leaves_out(&asked) {
            continue;
        }
        let (payloads, plain) = payloads(size);
        let limit = bench.scale.limit(SAMPLE_BYTES, size).part(WRITE_TIMES);
        // The file is created anew for each size, so that no size is affected by the one before.
        let file = Scratch::make(directory, "file")?;
        file.fill(&unit_plain, 0..bytes, stop)?;
        file.sync()?;
        let mut subject = Subject::used(directory, bench.scale.used_bytes, stop)?;
        let object = subject.filled(&unit_payloads, units, 16, stop)?;
        let slots = u64::from(UNIT / size);
        let braid = |round| {
            let mut random = Random::new(round * 1000);
            let place = || {
                let slot = random.below(units * slots);
                At { unit: slot / slots, from: u32::try_from(slot % slots).expect("below a unit") * size }
            };
            subject.writes(object, &payloads, 1, limit, stop, place)
        };
        let raw = |round| {
            let plan = Work { depth: 1, limit, turn: 1, request_bytes: size };
            raw::synced_writes(&file.file, &plain, Target::InPlace(bytes), plan, round, stop)
        };
        let row = bench.pairs.row(&bench.place.label, asked, braid, raw)?;
        bench.rows.push(row);
    }
    Ok(())
}
