//! The rates of experiment E7: whole units written and read in sequence, random 4 KiB reads, durable 4 KiB
//! writes; and the parts that other rows share with them.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Doing, Error};
use crate::load_threads::{Random, Work};
use crate::machine::MeasuredDir;
use crate::measure::{Limit, Pairs, Question};
use crate::raw::{self, Scratch, Target};
use crate::report::{Cache, Experiment, Row};
use crate::subject::{At, Object, Payload, Subject};

/// Units in flight when whole units are written.
pub(crate) const STREAM_DEPTH: u32 = 16;
/// Unit sizes for whole units, in bytes.
pub(crate) const UNITS: [u32; 2] = [1 << 20, 512 << 10];
/// Targets from the issue and EXPERIMENTS.
const SEQUENTIAL_TARGET: f64 = 0.97;
const RANDOM_TARGET: f64 = 0.95;
const GROUP_TARGET: f64 = 10.0;
/// Numbers of random reads in flight.
pub(crate) const RANDOM_DEPTHS: [u32; 3] = [1, 8, 32];
/// Factor of pairs for reads that miss the cache; each pair is a quarter as long. A disk's rate varies from
/// second to second by more than the difference sought.
pub(crate) const MISS_TIMES: u32 = 16;
/// Factor of pairs for sequential reads that miss the cache, where each sample reads another quarter of the
/// bytes.
pub(crate) const STREAM_MISS_TIMES: u32 = 12;
const MISS_PART: u32 = 4;
/// Order of the parts, in which no part follows directly on the one read before it.
const MISS_ORDER: [u64; MISS_PART as usize] = [0, 2, 1, 3];

/// Factor of pairs for writes to memory, each shorter by the same factor: a sample must end before it has
/// taken much of the memory.
pub(crate) const MEMORY_TIMES: u32 = 4;

/// The amount of work in one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Time after which a sample ends.
    pub(crate) time: Duration,
    /// Bytes of one sample of whole units.
    pub(crate) stream_bytes: u64,
    /// Bytes that reads are spread over.
    pub(crate) set_bytes: u64,
    /// Bytes of these that are kept in the page cache for reads that hit.
    pub(crate) hit_bytes: u64,
    /// Bytes written and removed before durable writes are measured.
    pub(crate) used_bytes: u64,
}

impl Scale {
    pub(crate) fn quick() -> Scale {
        let bytes = 4 << 20;
        Scale {
            time: Duration::from_millis(5),
            stream_bytes: bytes,
            set_bytes: bytes,
            hit_bytes: bytes,
            used_bytes: bytes,
        }
    }

    pub(crate) fn full(place: &MeasuredDir) -> Scale {
        Scale {
            time: Duration::from_millis(400),
            stream_bytes: 1 << 30,
            set_bytes: if place.memory { 256 << 20 } else { 1 << 30 },
            hit_bytes: 256 << 20,
            used_bytes: 1 << 30,
        }
    }

    /// A limit by time; `bytes` only bounds the space.
    pub(crate) fn limit(&self, bytes: u64, request_bytes: u32) -> Limit {
        Limit { time: self.time, operations: (bytes / u64::from(request_bytes)).max(1) }
    }
}

/// A run in one directory.
pub(crate) struct Bench<'a, 'w> {
    pub(crate) pairs: &'a mut Pairs<'w>,
    pub(crate) place: &'a MeasuredDir,
    pub(crate) scale: Scale,
    pub(crate) rows: &'a mut Vec<Row>,
}

/// A file and an object of the store with the same bytes.
pub(crate) struct ReadSet {
    pub(crate) file: Scratch,
    pub(crate) subject: Subject,
    pub(crate) object: Object,
    pub(crate) bytes: u64,
}

impl Bench<'_, '_> {
    /// Measures appends of whole units.
    pub(crate) fn streams(&mut self) -> Result<(), Error> {
        for unit_bytes in UNITS {
            let (payloads, plain) = payloads(unit_bytes);
            // Long enough for any fast disk: the sample ends by bytes, not by time.
            let time = self.scale.time * 10;
            let times = if self.place.memory { MEMORY_TIMES } else { 1 };
            let bytes = self.scale.stream_bytes / u64::from(times);
            let limit = Limit { time, operations: bytes / u64::from(unit_bytes) };
            let question = Question {
                experiment: Experiment::E7,
                name: "write whole units",
                against: "appends by one thread, an fdatasync for all that waits",
                request_bytes: unit_bytes,
                depth: STREAM_DEPTH,
                cache: None,
                target: Some(SEQUENTIAL_TARGET),
                times,
                memory_bytes: bytes,
            };
            if self.pairs.leaves_out(&question) {
                continue;
            }
            let directory = &self.place.directory;
            let stop = self.pairs.watch.stop;
            let braid = |_| {
                let mut subject = Subject::make(directory, "store")?;
                let object = subject.object(unit_bytes)?;
                let mut units = 0..;
                let place = || At { unit: units.next().unwrap_or(0), from: 0 };
                subject.writes(object, &payloads, STREAM_DEPTH, limit, stop, place)
            };
            let raw = |_| {
                let scratch = Scratch::make(directory, "file")?;
                raw::grouped_appends(&scratch.file, &plain, STREAM_DEPTH, limit, stop)
            };
            let row = self.pairs.row(&self.place.label, question, braid, raw)?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Measures reads of whole units and of random parts of them. Returns the set that was read from, for
    /// more reads.
    pub(crate) fn reads(&mut self) -> Result<ReadSet, Error> {
        let small = self.read_set(UNITS[1], self.scale.set_bytes)?;
        self.sequential_reads(&small)?;
        drop(small);
        let set = self.read_set(UNITS[0], self.scale.set_bytes)?;
        self.sequential_reads(&set)?;
        for depth in RANDOM_DEPTHS {
            let question = Question {
                experiment: Experiment::E7,
                name: "random read",
                against: "pread by as many threads",
                request_bytes: 4096,
                depth,
                cache: None,
                target: Some(RANDOM_TARGET),
                times: MISS_TIMES,
                memory_bytes: 0,
            };
            self.random_reads(&set, &question)?;
        }
        Ok(set)
    }

    fn read_set(&self, unit_bytes: u32, bytes: u64) -> Result<ReadSet, Error> {
        let (payloads, plain) = payloads(unit_bytes);
        let directory = &self.place.directory;
        let stop = self.pairs.watch.stop;
        let file = Scratch::make(directory, "file")?;
        let mut subject = Subject::make(directory, "store")?;
        let object = subject.object(unit_bytes)?;
        for units in turns(bytes / u64::from(unit_bytes)) {
            let plain_range = units.start * u64::from(unit_bytes)..units.end * u64::from(unit_bytes);
            file.fill(&plain, plain_range, stop)?;
            subject.fill(object, &payloads, units, STREAM_DEPTH, stop)?;
        }
        file.sync()?;
        Ok(ReadSet { file, subject, object, bytes })
    }

    /// Cache states that can be measured here.
    fn caches(&self) -> &'static [Cache] {
        if self.place.memory { &[Cache::Hit] } else { &[Cache::Miss, Cache::Hit] }
    }

    fn sequential_reads(&mut self, set: &ReadSet) -> Result<(), Error> {
        let unit_bytes = set.object.unit_bytes;
        for &cache in self.caches() {
            let bytes = if cache == Cache::Hit { self.scale.hit_bytes.min(set.bytes) } else { set.bytes };
            let (times, parts) =
                if cache == Cache::Miss { (STREAM_MISS_TIMES, u64::from(MISS_PART)) } else { (1, 1) };
            let units = bytes / u64::from(unit_bytes) / parts;
            let limit = Limit { time: self.scale.time * 10, operations: units };
            let plan = Work { depth: 1, limit, turn: 1, request_bytes: unit_bytes };
            // Both sides read each part in turn. Read-ahead of the previous part may still be arriving in
            // the cache and cannot be dropped, but it belongs to none of the next parts.
            let first = |round| MISS_ORDER[usize::try_from(round / 2 % parts).expect("small")] * units;
            let question = Question {
                experiment: Experiment::E7,
                name: "read whole units",
                against: "pread of a file",
                request_bytes: unit_bytes,
                depth: 1,
                cache: Some(cache),
                target: of_misses(SEQUENTIAL_TARGET, cache),
                times,
                memory_bytes: if cache == Cache::Miss { units * u64::from(unit_bytes) } else { 0 },
            };
            if self.pairs.leaves_out(&question) {
                continue;
            }
            let stop = self.pairs.watch.stop;
            self.prepare(set, cache)?;
            let braid = |round| {
                pause(cache);
                before(cache, || set.subject.forget())?;
                set.subject.sequential_reads(set.object, first(round), plan, stop)
            };
            let raw = |round| {
                pause(cache);
                before(cache, || set.file.forget())?;
                raw::sequential_reads(&set.file.file, first(round), plan, stop)
            };
            let row = self.pairs.row(&self.place.label, question, braid, raw)?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Measures `question` for each cache state, at its depth and request size.
    pub(crate) fn random_reads(&mut self, set: &ReadSet, question: &Question) -> Result<(), Error> {
        for &cache in self.caches() {
            let bytes = if cache == Cache::Hit { self.scale.hit_bytes.min(set.bytes) } else { set.bytes };
            let times = if cache == Cache::Miss { question.times } else { 1 };
            let parts = if times > 1 { MISS_PART } else { 1 };
            let time = self.scale.time / parts;
            // About the bytes that a fast disk delivers in that time.
            let memory_bytes = if cache == Cache::Miss { set.bytes / 4 / u64::from(parts) } else { 0 };
            let limit = Limit { time, operations: self.operations(question.request_bytes) };
            let turn = u64::from((64 << 10) / question.request_bytes.max(4096)).max(1);
            let plan = Work { depth: question.depth, limit, turn, request_bytes: question.request_bytes };
            let target = question.target.and_then(|target| of_misses(target, cache));
            let question = Question { cache: Some(cache), target, times, memory_bytes, ..question.clone() };
            if self.pairs.leaves_out(&question) {
                continue;
            }
            let stop = self.pairs.watch.stop;
            let units = bytes / u64::from(set.object.unit_bytes);
            self.prepare(set, cache)?;
            let braid = |round| {
                before(cache, || set.subject.forget())?;
                set.subject.random_reads(set.object, units, plan, round, stop)
            };
            let raw = |round| {
                before(cache, || set.file.forget())?;
                raw::random_reads(&set.file.file, bytes, plan, round, stop)
            };
            let row = self.pairs.row(&self.place.label, question, braid, raw)?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// The most reads of one sample: the time ends it, unless the run is only a test.
    pub(crate) fn operations(&self, request_bytes: u32) -> u64 {
        if self.scale.set_bytes < 1 << 28 {
            self.scale.set_bytes / u64::from(request_bytes)
        } else {
            u64::MAX >> 8
        }
    }

    /// Brings the bytes for hits into the cache by a read from the beginning. Otherwise the misses before
    /// would leave different bytes on each side, in small pages.
    fn prepare(&self, set: &ReadSet, cache: Cache) -> Result<(), Error> {
        if cache == Cache::Miss {
            return Ok(());
        }
        set.subject.forget()?;
        set.file.forget()?;
        let unit_bytes = set.object.unit_bytes;
        let mut buffer = vec![0; usize::try_from(unit_bytes).expect("memory")];
        for units in turns(self.scale.hit_bytes.min(set.bytes) / u64::from(unit_bytes)) {
            if self.pairs.watch.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            for unit in units.clone() {
                set.subject.read(set.object, unit, 0, &mut buffer)?;
            }
            for unit in units {
                set.file
                    .file
                    .read_exact_at(&mut buffer, unit * u64::from(unit_bytes))
                    .doing("read a file")?;
            }
        }
        Ok(())
    }

    /// Measures 4 KiB writes, each durable before it is answered, to random units of a sparse object. The
    /// last row is the limit of group commit: all requests in flight by one write and one sync, with no
    /// request to decode and no thread to wake.
    pub(crate) fn durable(&mut self) -> Result<(), Error> {
        const REQUEST: u32 = 4096;
        const FLIGHT: u32 = 16 * REQUEST;
        const ALONE: &str = "one append and fdatasync at a time";
        const CROWD: &str = "16 threads that append and fdatasync";
        const BOUND: &str = "one append and fdatasync of all 16 at a time";
        let ((payloads, plain), (_, flights)) = (payloads(REQUEST), payloads(FLIGHT));
        let limit = self.scale.limit(64 << 20, REQUEST);
        for (name, depth, (raw_depth, raw_plain, raw_request), against, target) in [
            ("durable write", 1, (1, &plain, REQUEST), ALONE, None),
            ("durable write", 16, (1, &plain, REQUEST), ALONE, Some(GROUP_TARGET)),
            ("durable write, raw too", 16, (16, &plain, REQUEST), CROWD, None),
            ("durable write, the bound", 16, (1, &flights, FLIGHT), BOUND, None),
        ] {
            let question = Question {
                experiment: Experiment::E7,
                name,
                against,
                request_bytes: REQUEST,
                depth,
                cache: None,
                target,
                times: 1,
                memory_bytes: 0,
            };
            if self.pairs.leaves_out(&question) {
                continue;
            }
            let directory = &self.place.directory;
            let stop = self.pairs.watch.stop;
            let mut subject = Subject::used(directory, self.scale.used_bytes, stop)?;
            let object = subject.object(64 << 10)?;
            let braid = |round| {
                let mut random = Random::new(round);
                let place = || At { unit: random.below(1 << 16), from: 0 };
                subject.writes(object, &payloads, depth, limit, stop, place)
            };
            let raw = |round| {
                let scratch = Scratch::make(directory, "file")?;
                let limit = self.scale.limit(64 << 20, raw_request);
                let plan = Work { depth: raw_depth, limit, turn: 1, request_bytes: raw_request };
                raw::synced_writes(&scratch.file, raw_plain, Target::Append, plan, round, stop)
            };
            let row = self.pairs.row(&self.place.label, question, braid, raw)?;
            self.rows.push(row);
        }
        Ok(())
    }
}

/// Ranges of a few numbers each, together `0..units`. Both sides of a pair get their memory alternately,
/// this many units at a time: if two sets are made one after the other, the first gets contiguous pages and
/// the second the remaining ones, which reads up to a sixth slower.
fn turns(units: u64) -> impl Iterator<Item = Range<u64>> {
    const TURN: u64 = 16;
    (0..units.div_ceil(TURN)).map(move |turn| turn * TURN..units.min((turn + 1) * TURN))
}

/// The target of reads in this cache state. Hits have none: a client across a socket cannot see their cost,
/// so they are judged there.
fn of_misses(target: f64, cache: Cache) -> Option<f64> {
    (cache == Cache::Miss).then_some(target)
}

/// Waits until read-ahead of an earlier stream is done: it could not be dropped, and would slow the next
/// sample.
fn pause(cache: Cache) {
    const TIME: Duration = Duration::from_millis(50);
    if cache == Cache::Miss {
        std::thread::sleep(TIME);
    }
}

/// Drops the cache before a sample that must miss it.
pub(crate) fn before(cache: Cache, forget: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    if cache == Cache::Miss { forget() } else { Ok(()) }
}

/// Different requests for both sides: 16 MiB of them or 64, whichever is less.
pub(crate) fn payloads(request_bytes: u32) -> (Vec<Payload>, Vec<Bytes>) {
    let count = ((16 << 20) / request_bytes).clamp(1, 64);
    let mut random = Random::new(u64::from(request_bytes));
    let plain: Vec<Bytes> = (0..count).map(|_| Bytes::from(random.bytes(request_bytes))).collect();
    (plain.iter().cloned().map(Payload::new).collect(), plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_all_units_once() {
        assert_eq!(turns(35).collect::<Vec<_>>(), [0..16, 16..32, 32..35]);
        assert_eq!(turns(32).last(), Some(16..32));
        assert_eq!(turns(0).next(), None);
    }
}
