//! Measures a disk: curves over sizes of reads and writes at the depth that saturates it, the time of a sync,
//! and the processor time of it all. The bytes are in a file of its own.
//!
//! - Reads are of bytes that are not in the page cache, by as many threads as are to be in flight. Of several
//!   depths the fastest counts.
//! - Writes go to the medium in batches of distant pieces, each batch with one sync. The time of a sync by
//!   itself comes from batches of one small piece.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

use braid_schedule::fit::{Curves, Point};
use braid_store::disk::modelled::Time;
use braid_store::disk::{Disk, DiskFile};
use braid_wire::data::ProcessorWay;
use rustix::time::{ClockId, clock_gettime};

/// The file that is read and written.
const FILE: &str = "trial";
/// Bytes of all buffers of one depth, at most.
const BUFFERS_BYTES_MAX: u64 = 32 << 20;
/// Pieces of one batch of writes, and their bytes, at most.
const BATCH_LEN_MAX: u64 = 512;
const BATCH_BYTES_MAX: u64 = 8 << 20;
/// A batch takes at least so many times as long as one small write with its sync, so that what one sync takes
/// longer than another matters little.
const BATCH_SYNCS: u64 = 8;
/// Operations of one point, at most.
const OPERATIONS_MAX: u64 = 4096;
/// Syncs that are timed by themselves, at most.
const SYNCS_MAX: usize = 9;
const MIB: u64 = 1 << 20;

/// Length and thoroughness of a measurement.
#[derive(Debug)]
pub(crate) struct Effort {
    /// Bytes of the file; a multiple of the largest size.
    pub(crate) file_bytes: u64,
    pub(crate) sizes: &'static [u64],
    /// Numbers of reads in flight.
    pub(crate) depths: &'static [u64],
    /// Time of one point of a curve.
    point_ns: u64,
    /// No point is begun after this time.
    total_ns: u64,
}

/// The run of a first start. A drive waits for it.
pub(crate) const SHORT: Effort = Effort {
    file_bytes: 2 * MIB,
    sizes: &[4 << 10, 64 << 10, 512 << 10],
    depths: &[4],
    point_ns: 12_000_000,
    total_ns: 220_000_000,
};

/// The run that an operator asks for.
pub(crate) const WHOLE: Effort = Effort {
    file_bytes: 64 * MIB,
    sizes: &[4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB],
    depths: &[8, 32],
    point_ns: 80_000_000,
    total_ns: 20_000_000_000,
};

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) curves: Curves,
    pub(crate) read_processor: ProcessorWay,
    pub(crate) write_processor: ProcessorWay,
}

/// Measures `disk`, which is this run's alone. `done` is told of the progress, in thousandths.
pub(crate) fn measure(
    disk: &dyn Disk,
    time: &dyn Time,
    effort: &Effort,
    done: &dyn Fn(u32),
) -> io::Result<Measured> {
    if disk.space().is_some_and(|space| space.free / 4 < effort.file_bytes) {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the disk has too little room to be measured",
        ));
    }
    // One that a crash has left.
    let _ = disk.remove(FILE);
    let file = disk.create(FILE)?;
    let trial = Trial { file: &*file, time, effort, began: time.now_ns() };
    let measured = trial.run(done);
    let removed = disk.remove(FILE);
    let measured = measured?;
    removed.map(|()| measured)
}

/// Device time and processor time of one operation, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Taken {
    operation_ns: u64,
    processor_ns: u64,
}

/// A batch of writes and its sync.
#[derive(Debug, Clone, Copy)]
struct Batch {
    length: u64,
    elapsed_ns: u64,
    /// Processor time of one write.
    processor_ns: u64,
}

struct Trial<'a> {
    file: &'a dyn DiskFile,
    time: &'a dyn Time,
    effort: &'a Effort,
    began: u64,
}

impl Trial<'_> {
    fn run(&self, done: &dyn Fn(u32)) -> io::Result<Measured> {
        self.fill()?;
        let sizes = self.effort.sizes;
        let steps = u32::try_from(2 * sizes.len()).unwrap_or(u32::MAX).max(1);
        let progress = |step: usize| done(1000 * u32::try_from(step).unwrap_or(0) / steps);
        let mut reads = Vec::new();
        for (step, &bytes) in sizes.iter().enumerate() {
            progress(step);
            let mut best = self.reads(bytes, self.effort.depths[0])?;
            for &depth in &self.effort.depths[1..] {
                let other = self.reads(bytes, depth)?;
                best = if other.operation_ns < best.operation_ns { other } else { best };
            }
            reads.push(best);
        }
        let small = sizes[0];
        let one_ns = self.small_write(small)?;
        let mut sync_ns = 0;
        let mut writes = Vec::new();
        for (step, &bytes) in sizes.iter().enumerate() {
            progress(sizes.len() + step);
            let batch = self.writes(bytes, one_ns)?;
            if bytes == small {
                // One write and a sync, beside many writes and a sync.
                let each = batch.elapsed_ns.saturating_sub(one_ns) / (batch.length - 1).max(1);
                sync_ns = one_ns.saturating_sub(each);
            }
            // Less than a part of the whole is due to syncs that differ.
            let alone_ns = batch.elapsed_ns.saturating_sub(sync_ns).max(batch.elapsed_ns / BATCH_SYNCS);
            writes.push(Taken { operation_ns: alone_ns / batch.length, processor_ns: batch.processor_ns });
        }
        let curve = |taken: &[Taken]| {
            let point = |(&bytes, taken): (&u64, &Taken)| Point { bytes, operation_ns: taken.operation_ns };
            sizes.iter().zip(taken).map(point).collect()
        };
        Ok(Measured {
            curves: Curves { read: curve(&reads), write: curve(&writes), sync_ns },
            read_processor: processor(sizes, &reads),
            write_processor: processor(sizes, &writes),
        })
    }

    fn fill(&self) -> io::Result<()> {
        let part_bytes = self.effort.file_bytes.min(8 * MIB);
        let bytes = noise(part_bytes);
        for part in 0..self.effort.file_bytes / part_bytes {
            write_at(self.file, &bytes, part * part_bytes)?;
            self.file.start_writing(part * part_bytes..(part + 1) * part_bytes)?;
        }
        self.file.sync_all()
    }

    /// An error once the time of the whole run is over.
    fn in_time(&self) -> io::Result<()> {
        if self.time.now_ns().saturating_sub(self.began) <= self.effort.total_ns {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the disk is too slow for a run of this length"))
    }

    /// Reads of this size, so many in flight.
    fn reads(&self, bytes: u64, depth: u64) -> io::Result<Taken> {
        self.in_time()?;
        let depth = depth.min(BUFFERS_BYTES_MAX / bytes).max(1);
        let places = Places::new(self.effort.file_bytes, bytes);
        let end = self.time.now_ns().saturating_add(self.effort.point_ns);
        let processor = AtomicU64::new(0);
        let mut operations = 0;
        let mut elapsed = 0;
        while operations == 0 || operations < OPERATIONS_MAX && self.time.now_ns() < end {
            self.file.drop_cache(0..self.effort.file_bytes);
            let next = AtomicU64::new(0);
            let began = self.time.now_ns();
            let reader = || -> io::Result<u64> {
                let processor_began = processor_ns();
                let mut buffer = vec![0; usize::try_from(bytes).unwrap_or_default()];
                let mut count = 0;
                // Each place once, or it would come from the cache.
                while let Some(place) = places.at(next.fetch_add(1, Ordering::Relaxed)) {
                    self.file.read_at(&mut buffer, place)?;
                    count += 1;
                    if self.time.now_ns() >= end {
                        break;
                    }
                }
                processor.fetch_add(processor_ns().saturating_sub(processor_began), Ordering::Relaxed);
                Ok(count)
            };
            operations += std::thread::scope(|scope| {
                let readers: Vec<_> = (0..depth).map(|_| scope.spawn(reader)).collect();
                let counts = readers.into_iter().map(|reader| match reader.join() {
                    Ok(count) => count,
                    Err(_) => Err(io::Error::other("a reader panicked")),
                });
                counts.sum::<io::Result<u64>>()
            })?;
            elapsed += self.time.now_ns().saturating_sub(began);
        }
        Ok(Taken { operation_ns: elapsed / operations, processor_ns: processor.into_inner() / operations })
    }

    /// The median time of one small write with its sync.
    fn small_write(&self, bytes: u64) -> io::Result<u64> {
        self.in_time()?;
        let end = self.time.now_ns().saturating_add(self.effort.point_ns);
        let places = Places::new(self.effort.file_bytes, bytes);
        let piece = noise(bytes);
        let mut times = Vec::new();
        for place in (0..).map_while(|i| places.at(i)) {
            let began = self.time.now_ns();
            write_at(self.file, &piece, place)?;
            self.file.start_writing(place..place + bytes)?;
            self.file.sync_data()?;
            let now = self.time.now_ns();
            times.push(now.saturating_sub(began));
            if times.len() >= SYNCS_MAX || now >= end {
                break;
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Batches of writes of this size, each with one sync. `one_ns` is the time of a small write with its
    /// sync.
    fn writes(&self, bytes: u64, one_ns: u64) -> io::Result<Batch> {
        self.in_time()?;
        let places = Places::new(self.effort.file_bytes, bytes);
        let piece = noise(bytes);
        let length_max = (BATCH_BYTES_MAX / bytes).clamp(1, BATCH_LEN_MAX).min(places.count);
        let enough_ns = one_ns.saturating_mul(BATCH_SYNCS).min(self.effort.point_ns);
        let began = self.time.now_ns();
        let mut length = length_max.min(2);
        let mut times = Vec::new();
        let mut processor = 0;
        let mut i = 0;
        loop {
            let batch_began = self.time.now_ns();
            let processor_began = processor_ns();
            for _ in 0..length {
                let place = places.at(i % places.count).unwrap_or_default();
                write_at(self.file, &piece, place)?;
                self.file.start_writing(place..place + bytes)?;
                i += 1;
            }
            self.file.sync_data()?;
            let now = self.time.now_ns();
            let elapsed_ns = now.saturating_sub(batch_began);
            if elapsed_ns < enough_ns && length < length_max {
                length = (2 * length).min(length_max);
                continue;
            }
            processor += processor_ns().saturating_sub(processor_began);
            times.push(elapsed_ns);
            if now.saturating_sub(began) >= self.effort.point_ns || i >= OPERATIONS_MAX {
                break;
            }
        }
        times.sort_unstable();
        let operations = length * u64::try_from(times.len()).unwrap_or(1);
        let elapsed_ns = times[times.len() / 2];
        Ok(Batch { length, elapsed_ns, processor_ns: processor / operations })
    }
}

/// Places of a file in an order in which none is next to the one before it.
struct Places {
    bytes: u64,
    count: u64,
    stride: u64,
}

impl Places {
    fn new(file_bytes: u64, bytes: u64) -> Places {
        let count = (file_bytes / bytes).max(1);
        let mut stride = (count * 5 / 8) | 1;
        while greatest_common_divisor(stride, count) > 1 {
            stride += 2;
        }
        Places { bytes, count, stride }
    }

    /// The `i`th place; `None` after the last.
    fn at(&self, i: u64) -> Option<u64> {
        (i < self.count).then(|| i.wrapping_mul(self.stride) % self.count * self.bytes)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The line through the processor times of the smallest and the largest size.
fn processor(sizes: &[u64], taken: &[Taken]) -> ProcessorWay {
    let small = sizes[0];
    let large = sizes[sizes.len() - 1].max(small + 1);
    let small_ns = taken[0].processor_ns;
    let more_ns = taken[taken.len() - 1].processor_ns.saturating_sub(small_ns);
    let byte_ps = more_ns.saturating_mul(1000) / (large - small);
    ProcessorWay { request_ns: small_ns.saturating_sub(small * byte_ps / 1000), byte_ps }
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Bytes that no device compresses.
fn noise(bytes: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut words = Vec::new();
    for _ in 0..bytes / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend_from_slice(&state.to_le_bytes());
    }
    words
}

fn write_at(file: &dyn DiskFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = file.write_at(&[IoSlice::new(bytes)], offset)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += u64::try_from(written).unwrap_or_default();
    }
    Ok(())
}
