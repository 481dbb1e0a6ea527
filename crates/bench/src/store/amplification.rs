//! The cost of cleaning: bytes written per byte of client writes, at different degrees of filling.
//!
//! A small store is filled with units up to a given part of the space that writes may use. They are
//! overwritten until cleaning reaches a steady state; then bytes are counted. Nothing is timed, so nothing
//! is synced. The same cleaning decisions are also simulated on a log of the same shape, for comparison.

use braid_store::Options;
use braid_store::clean::reserve::Reserve;

use crate::error::Error;
use crate::load_threads::Random;
use crate::machine::MeasuredDir;
use crate::measure::{Effort, Limit, Pairs};
use crate::rates::{STREAM_DEPTH, payloads};
use crate::report::{Amplification, Load};
use crate::subject::{At, Subject};

use super::simulate::{Policy, Setup, simulate};

/// Live units as percentages of the space that writes may use.
const LIVE_PERCENT: [u32; 6] = [50, 60, 70, 80, 90, 95];
const LOADS: [Load; 2] = [Load::Uniform, Load::HotCold];
/// Percentage of the writes that go to hot units, and percentage of the units that are hot.
const HOT: (u32, u32) = (90, 10);
/// Steps of progress in total.
pub(crate) const STEPS: u64 = 12;
const _: () = assert!(LIVE_PERCENT.len() * LOADS.len() == 12, "each is one sample");

/// Segments of a store: the minimum of a full one.
const SEGMENTS: u32 = 64;
/// Bytes of a record's header: one log block holds the checksums of such a small unit.
const HEADER_BYTES: u32 = 512;
/// Bytes of a unit on a checkpoint's page, doubled for pages that are not full.
const CHECKPOINT_UNIT_BYTES: u64 = 112;

/// The amount of work of a measurement.
struct Scale {
    capacity: u64,
    unit_bytes: u32,
    /// Number of times that the capacity is overwritten before counting begins, and again while counting.
    rounds: u64,
}

impl Scale {
    fn record_bytes(&self) -> u32 {
        self.unit_bytes + HEADER_BYTES
    }

    /// Number of records that fill the capacity.
    fn records(&self) -> u64 {
        self.capacity / u64::from(self.record_bytes())
    }

    /// Number of records per segment.
    fn segment_records(&self) -> u32 {
        u32::try_from(self.records() / u64::from(SEGMENTS)).expect("a small store")
    }

    /// Number of records that take as much space as a checkpoint.
    fn checkpoint_records(&self) -> u32 {
        let bytes = self.records() * CHECKPOINT_UNIT_BYTES;
        u32::try_from(bytes.div_ceil(u64::from(self.record_bytes()))).expect("a small store")
    }

    /// Number of units that fill this percentage of the space that writes may use, beside one checkpoint
    /// and space for another.
    fn units(&self, live_percent: u32) -> u64 {
        let record = u64::from(self.record_bytes());
        let checkpoint = u64::from(self.checkpoint_records()) * record;
        let segment = self.capacity / u64::from(SEGMENTS);
        let free = Reserve::new(self.capacity, segment * 2, checkpoint).free_for_writes(checkpoint);
        free / record * u64::from(live_percent) / 100
    }
}

/// Measures the write amplification in one place.
pub(crate) fn measure(
    pairs: &mut Pairs<'_>,
    place: &MeasuredDir,
    effort: Effort,
) -> Result<Vec<Amplification>, Error> {
    if !pairs.wants("write amplification") {
        pairs.done += STEPS;
        return Ok(Vec::new());
    }
    let scale = if effort == Effort::Quick {
        Scale { capacity: 8 << 20, unit_bytes: 4096, rounds: 1 }
    } else {
        Scale { capacity: 128 << 20, unit_bytes: 16 << 10, rounds: 4 }
    };
    let mut all = Vec::new();
    for load in LOADS {
        for live_percent in LIVE_PERCENT {
            pairs.step(&format!("{}: cleaning, {live_percent} % live", place.label))?;
            all.push(one(pairs, place, &scale, load, live_percent)?);
        }
    }
    Ok(all)
}

fn one(
    pairs: &Pairs<'_>,
    place: &MeasuredDir,
    scale: &Scale,
    load: Load,
    live_percent: u32,
) -> Result<Amplification, Error> {
    let options = Options { capacity: Some(scale.capacity), sync: false, ..Options::default() };
    let (payloads, _) = payloads(scale.unit_bytes);
    let units = scale.units(live_percent);
    let stop = pairs.watch.stop;
    let mut subject = Subject::with(&place.directory, "cleaned", options)?;
    let object = subject.filled(&payloads, units, STREAM_DEPTH, stop)?;
    subject.checkpoint()?;
    let mut random = Random::new(u64::from(live_percent));
    let limit = Limit::operations(scale.records() * scale.rounds);
    let mut overwrite = |subject: &mut Subject| {
        let place = || At { unit: next(&mut random, units, load), from: 0 };
        subject.writes(object, &payloads, STREAM_DEPTH, limit, stop, place)
    };
    overwrite(&mut subject)?;
    let before = subject.stat()?;
    overwrite(&mut subject)?;
    let after = subject.stat()?;
    let written_bytes = after.written - before.written;
    let moved_bytes = after.moved - before.moved;
    let kib = |bytes: u64| f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX));
    Ok(Amplification {
        place: place.label.clone(),
        load,
        live_percent,
        measured: 1.0 + kib(moved_bytes) / kib(written_bytes).max(1.0),
        simulated: simulated(scale, load, live_percent, &Options::default()),
        written_bytes,
        moved_bytes,
    })
}

/// The next unit to overwrite.
fn next(random: &mut Random, units: u64, load: Load) -> u64 {
    let writes = u64::from(HOT.0);
    let part = u64::from(HOT.1);
    let hot = units * part / 100;
    match load {
        Load::Uniform => random.below(units),
        Load::HotCold if random.below(100) < writes => random.below(hot),
        Load::HotCold => hot + random.below(units - hot),
    }
}

fn simulated(scale: &Scale, load: Load, live_percent: u32, options: &Options) -> f64 {
    let setup = Setup {
        segments: SEGMENTS,
        segment_blocks: scale.segment_records(),
        checkpoint_blocks: scale.checkpoint_records(),
        live_percent,
        hot: (load == Load::HotCold).then_some(HOT),
        policy: Policy::CostBenefit,
        share_percent: options.clean_share_percent,
        seed: 1,
    };
    simulate(&setup).amplification()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::measure::Watch;

    #[test]
    fn hot_units_are_a_tenth_and_get_nine_tenths() {
        let mut random = Random::new(1);
        let hot = (0..10_000).filter(|_| next(&mut random, 1000, Load::HotCold) < 100).count();
        assert!((8800..9200).contains(&hot), "{hot}");
        assert!((0..1000).all(|_| next(&mut random, 70, Load::Uniform) < 70));
    }

    #[test]
    fn every_utilisation_is_measured() {
        let dir = tempfile::tempdir().expect("a directory");
        let stop = AtomicBool::new(false);
        let last = RefCell::new(String::new());
        let watch = Watch { stop: &stop, tell: &|progress| *last.borrow_mut() = progress.name };
        let mut pairs = Pairs { watch: &watch, only: None, rounds: 1, warm_ups: 0, done: 0, total: STEPS };
        let places = MeasuredDir::all(&[dir.path().to_owned()]).expect("there");
        let points = measure(&mut pairs, &places[0], Effort::Quick);
        let points = points.unwrap_or_else(|error| panic!("{}: {error}", last.borrow()));
        assert_eq!((points.len(), pairs.done), (12, STEPS));
        assert!(
            points.iter().all(|point| point.written_bytes > 4 << 20 && point.measured > 1.0),
            "{points:?}"
        );
    }

    #[test]
    fn live_units_leave_room_for_reserve_and_checkpoint() {
        let scale = Scale { capacity: 128 << 20, unit_bytes: 16 << 10, rounds: 1 };
        assert_eq!((scale.segment_records(), scale.checkpoint_records()), (124, 53));
        let record = u64::from(scale.record_bytes());
        assert!(scale.units(100) * record < scale.capacity * 15 / 16);
        assert_eq!(scale.units(50), scale.units(100) / 2);
    }
}
