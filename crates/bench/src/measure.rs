//! Samples, and pairs of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::memory;
use crate::report::{Cache, Experiment, Row, Side, title};
use crate::stats;

/// The progress of a run, shown to users.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Step that is measured now.
    pub name: String,
    /// Samples taken so far.
    pub done: u64,
    /// Total number of samples.
    pub total: u64,
}

/// The control of a run: the caller can stop it and follow its progress.
pub struct Watch<'a> {
    /// Flag that stops the run within one operation, with [`Error::Stopped`].
    pub stop: &'a AtomicBool,
    /// Called before each sample.
    pub tell: &'a dyn Fn(Progress),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// A sample being taken.
pub(crate) struct Meter {
    began: Instant,
    cpu: Duration,
}

impl Meter {
    pub(crate) fn begin() -> Meter {
        Meter { cpu: process_cpu(), began: Instant::now() }
    }

    /// Ends the sample, in which `operations` requests of `request_bytes` bytes each were done.
    pub(crate) fn end(self, operations: u64, request_bytes: u32) -> Sample {
        let wall = self.began.elapsed();
        let cpu = process_cpu().saturating_sub(self.cpu);
        Sample { operations, bytes: operations * u64::from(request_bytes), wall, cpu }
    }
}

/// User and system time of all threads of this process. It serves for both sides, which run in turn.
fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// User and system time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
    fn side(&self) -> Side {
        let seconds = self.wall.as_secs_f64().max(1e-9);
        let gib = (self.bytes as f64 / f64::from(1 << 30)).max(1e-12);
        Side {
            bytes_per_second: self.bytes as f64 / seconds,
            operations_per_second: self.operations as f64 / seconds,
            cpu_seconds_per_gib: self.cpu.as_secs_f64() / gib,
        }
    }
}

/// The amount of work of one sample, which ends at whichever limit is reached first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) time: Duration,
    pub(crate) operations: u64,
}

/// A limit whose time is running.
pub(crate) struct Running<'a> {
    stop: &'a AtomicBool,
    end: Instant,
    left: u64,
}

impl Limit {
    /// A limit of this many operations, however long they take.
    pub(crate) fn operations(operations: u64) -> Limit {
        Limit { time: Duration::from_secs(24 * 3600), operations }
    }

    /// A limit of one `times`th of the time and of the operations.
    pub(crate) fn part(self, times: u32) -> Limit {
        Limit { time: self.time / times, operations: (self.operations / u64::from(times)).max(1) }
    }

    pub(crate) fn begin(self, stop: &AtomicBool) -> Running<'_> {
        Running { stop, end: Instant::now() + self.time, left: self.operations }
    }
}

impl Running<'_> {
    /// The number of operations to do before the next check: at most `most`; zero at the end.
    pub(crate) fn next(&mut self, most: u64) -> Result<u64, Error> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let turn = if Instant::now() < self.end { self.left.min(most) } else { 0 };
        self.left -= turn;
        Ok(turn)
    }
}

/// The description of a row, before it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) experiment: Experiment,
    pub(crate) name: &'static str,
    pub(crate) against: &'static str,
    pub(crate) request_bytes: u32,
    pub(crate) depth: u32,
    pub(crate) cache: Option<Cache>,
    pub(crate) target: Option<f64>,
    /// Factor of the usual number of pairs.
    pub(crate) times: u32,
    /// About the bytes of memory that the system gives a sample; they are touched before the sample begins.
    pub(crate) memory_bytes: u64,
}

/// The amount of work of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Enough for figures that mean something.
    Full,
    /// Only enough to show that it runs.
    Quick,
}

/// Takes pairs of samples and counts the samples.
pub(crate) struct Pairs<'a> {
    pub(crate) watch: &'a Watch<'a>,
    /// Text that the titles of measured rows contain; `None`: all rows are measured.
    pub(crate) only: Option<&'a str>,
    /// Pairs that count.
    pub(crate) rounds: u32,
    /// Pairs that are taken first and discarded.
    pub(crate) warm_ups: u32,
    pub(crate) done: u64,
    pub(crate) total: u64,
}

impl Pairs<'_> {
    /// The number of samples that one row takes.
    pub(crate) fn samples(rounds: u32, warm_ups: u32) -> u64 {
        2 * (u64::from(rounds) + u64::from(warm_ups))
    }

    /// Returns true if a row with this title is measured.
    pub(crate) fn wants(&self, title: &str) -> bool {
        self.only.is_none_or(|only| title.contains(only))
    }

    /// Returns true if `question` is skipped; its samples then count as taken.
    pub(crate) fn leaves_out(&mut self, question: &Question) -> bool {
        let is_wanted =
            self.wants(&title(question.name, question.request_bytes, question.depth, question.cache));
        if !is_wanted {
            self.done += Pairs::samples(self.rounds * question.times, self.warm_ups);
        }
        !is_wanted
    }

    /// Measures `question` in `place`; `braid` and `raw` each take their sample of the given round.
    pub(crate) fn row(
        &mut self,
        place: &str,
        question: Question,
        mut braid: impl FnMut(u64) -> Result<Sample, Error>,
        mut raw: impl FnMut(u64) -> Result<Sample, Error>,
    ) -> Result<Row, Error> {
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let mut row = Row {
            experiment: question.experiment,
            place: place.to_owned(),
            name: question.name,
            against: question.against,
            request_bytes: question.request_bytes,
            depth: question.depth,
            cache: question.cache,
            braid: Side { bytes_per_second: 0.0, operations_per_second: 0.0, cpu_seconds_per_gib: 0.0 },
            raw: Side { bytes_per_second: 0.0, operations_per_second: 0.0, cpu_seconds_per_gib: 0.0 },
            ratio: stats::spread(&[]),
            target: question.target,
        };
        let title = format!("{place}: {}", row.title());
        let memory = question.memory_bytes;
        for round in 0..u64::from(self.rounds * question.times) + u64::from(self.warm_ups) {
            // The order alternates: the second side finds the disk as the first left it.
            let (our, their) = if round % 2 == 0 {
                let our = self.sample(&title, memory, || braid(round))?;
                (our, self.sample(&title, memory, || raw(round))?)
            } else {
                let their = self.sample(&title, memory, || raw(round))?;
                (self.sample(&title, memory, || braid(round))?, their)
            };
            if round >= u64::from(self.warm_ups) {
                ours.push(our.side());
                theirs.push(their.side());
            }
        }
        let ratios: Vec<f64> = ours
            .iter()
            .zip(&theirs)
            .map(|(our, their)| our.bytes_per_second / their.bytes_per_second.max(1e-9))
            .collect();
        (row.braid, row.raw, row.ratio) = (middle(&ours), middle(&theirs), stats::spread(&ratios));
        Ok(row)
    }

    fn sample(
        &mut self,
        title: &str,
        memory_bytes: u64,
        take: impl FnOnce() -> Result<Sample, Error>,
    ) -> Result<Sample, Error> {
        self.step(title)?;
        memory::touch(memory_bytes);
        take()
    }

    /// Reports the start of a step that counts as one sample.
    pub(crate) fn step(&mut self, title: &str) -> Result<(), Error> {
        if self.watch.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        (self.watch.tell)(Progress { name: title.to_owned(), done: self.done, total: self.total });
        self.done += 1;
        Ok(())
    }
}

fn middle(sides: &[Side]) -> Side {
    let of = |value: fn(&Side) -> f64| stats::median(&sides.iter().map(value).collect::<Vec<f64>>());
    Side {
        bytes_per_second: of(|side| side.bytes_per_second),
        operations_per_second: of(|side| side.operations_per_second),
        cpu_seconds_per_gib: of(|side| side.cpu_seconds_per_gib),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn question() -> Question {
        Question {
            experiment: Experiment::E7,
            name: "write",
            against: "write",
            request_bytes: 4096,
            depth: 1,
            cache: None,
            target: Some(0.5),
            times: 1,
            memory_bytes: 1 << 20,
        }
    }

    fn sample(milliseconds: u64) -> Sample {
        let time = Duration::from_millis(milliseconds);
        Sample { operations: 1, bytes: 4096, wall: time, cpu: time }
    }

    #[test]
    fn pairs_alternate_and_the_warm_one_does_not_count() {
        let stop = AtomicBool::new(false);
        let watch = Watch { stop: &stop, tell: &|_| {} };
        let mut pairs = Pairs { watch: &watch, only: None, rounds: 3, warm_ups: 1, done: 0, total: 8 };
        let order = RefCell::new(String::new());
        let braid = |round| {
            order.borrow_mut().push('b');
            Ok(sample(if round == 0 { 1000 } else { 2 }))
        };
        let raw = |_| {
            order.borrow_mut().push('r');
            Ok(sample(1))
        };
        let row = pairs.row("ext4", question(), braid, raw).expect("measured");
        assert_eq!(*order.borrow(), "brrbbrrb");
        assert_eq!((pairs.done, Pairs::samples(3, 1)), (8, 8));
        assert_eq!((row.ratio.samples, row.ratio.min, row.ratio.max), (3, 0.5, 0.5));
        assert_eq!(row.is_met(), Some(true));
        assert_eq!(row.title(), "write 4 KiB, depth 1");
    }

    #[test]
    fn what_is_left_out_counts_as_taken() {
        let stop = AtomicBool::new(false);
        let watch = Watch { stop: &stop, tell: &|_| {} };
        let mut pairs =
            Pairs { watch: &watch, only: Some("4 KiB"), rounds: 3, warm_ups: 1, done: 0, total: 0 };
        assert!(!pairs.leaves_out(&question()) && pairs.wants("write 4 KiB, depth 8") && pairs.done == 0);
        pairs.only = Some("read");
        assert!(pairs.leaves_out(&Question { times: 4, ..question() }) && !pairs.wants("write 4 KiB"));
        assert_eq!(pairs.done, 2 * (3 * 4 + 1));
    }

    #[test]
    fn a_stop_is_heard_before_a_sample_and_within_one() {
        let stop = AtomicBool::new(true);
        let watch = Watch { stop: &stop, tell: &|_| {} };
        let mut pairs = Pairs { watch: &watch, only: None, rounds: 3, warm_ups: 0, done: 0, total: 6 };
        let never = |_| -> Result<Sample, Error> { panic!("taken") };
        assert!(matches!(pairs.row("ext4", question(), never, never), Err(Error::Stopped)));
        let limit = Limit::operations(9);
        assert!(matches!(limit.begin(&stop).next(1), Err(Error::Stopped)));
    }

    #[test]
    fn a_limit_ends_by_number() {
        let stop = AtomicBool::new(false);
        let mut running = Limit::operations(5).begin(&stop);
        let turns: Vec<u64> = (0..4).map(|_| running.next(2).expect("not stopped")).collect();
        assert_eq!(turns, [2, 2, 1, 0]);
    }
}
