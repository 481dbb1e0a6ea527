//! Readers and writers at a given depth: that many threads, each with one request at a time.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use crate::error::Error;
use crate::measure::{Limit, Meter, Sample};

/// A xorshift generator. Both sides of a pair use one seed and so the same offsets; the next pair uses
/// others.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }

    /// Random bytes of this length.
    pub(crate) fn bytes(&mut self, length: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < usize::try_from(length).expect("memory") {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(usize::try_from(length).expect("memory"));
        bytes
    }
}

/// The work of the threads of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// The number of threads.
    pub(crate) depth: u32,
    /// Limit of all threads together.
    pub(crate) limit: Limit,
    /// Requests between two checks of the clock.
    pub(crate) turn: u64,
    /// Bytes of a request.
    pub(crate) request_bytes: u32,
}

/// Takes one sample: `hire` makes each thread's worker, which is then called for one request after another.
pub(crate) fn run<W>(work: Work, stop: &AtomicBool, hire: impl Fn(u32) -> W + Sync) -> Result<Sample, Error>
where
    W: FnMut() -> Result<(), Error>,
{
    let share = Limit { operations: work.limit.operations.div_ceil(u64::from(work.depth)), ..work.limit };
    // The load threads, and this thread, which measures the time.
    let begin = Barrier::new(usize::try_from(work.depth).expect("a few") + 1);
    let one = |index| {
        let mut worker = hire(index);
        // At the first barrier all threads are ready; after the second the measurement has begun.
        begin.wait();
        begin.wait();
        let mut running = share.begin(stop);
        let mut done = 0;
        loop {
            let turn = running.next(work.turn)?;
            if turn == 0 {
                return Ok(done);
            }
            for _ in 0..turn {
                worker()?;
            }
            done += turn;
        }
    };
    let one = &one;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..work.depth).map(|index| scope.spawn(move || one(index))).collect();
        begin.wait();
        let meter = Meter::begin();
        begin.wait();
        let mut operations = 0;
        let mut failed = None;
        for thread in threads {
            match thread.join().expect("no worker panics") {
                Ok(done) => operations += done,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or_else(|| Ok(meter.end(operations, work.request_bytes)), Err)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn plan(depth: u32) -> Work {
        Work { depth, limit: Limit::operations(100), turn: 7, request_bytes: 512 }
    }

    #[test]
    fn the_threads_do_all_of_it_once() {
        let stop = AtomicBool::new(false);
        let calls = AtomicU64::new(0);
        let hire = |_| {
            || {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        let sample = run(plan(4), &stop, hire).expect("done");
        assert_eq!((sample.operations, sample.bytes), (100, 51_200));
        assert_eq!(calls.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn one_failure_fails_the_sample() {
        let stop = AtomicBool::new(false);
        let hire = |index| move || if index == 1 { Err(Error::Stopped) } else { Ok(()) };
        assert!(run(plan(3), &stop, hire).is_err());
    }

    #[test]
    fn places_differ_by_seed_and_are_within_bounds() {
        let places = |seed| {
            let mut random = Random::new(seed);
            (0..64).map(|_| random.below(1000)).collect::<Vec<u64>>()
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
        assert!(places(3).iter().all(|&place| place < 1000));
        assert_eq!(Random::new(1).bytes(513).len(), 513);
    }
}
