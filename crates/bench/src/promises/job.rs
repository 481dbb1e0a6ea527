//! The work of a client process. It runs until it is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_client::{Config, File, Name, OpenOptions};
use braid_schedule::{Due, Lateness};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::connected::Connected;
use crate::content::fill;
use crate::error::{Doing, Error};

/// Length of the intervals in which bytes are counted and the worst lateness is noted.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// Time that a greedy stream waits after a request that failed.
const FAILED_WAIT: Duration = Duration::from_millis(100);

/// A job of one client process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub streams: Vec<Stream>,
}

/// A stream: it reads or writes pieces of a file, one after another, and begins again at the ring's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Full name of the file, which exists.
    pub file: String,
    pub write: bool,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Bytes of the file that are used, whole requests.
    pub ring_bytes: u64,
    /// Number of the first request's place in the ring.
    pub first: u64,
    /// Milliseconds from the job's beginning to the stream's.
    pub begins_ms: u64,
    pub pace: Pace,
}

/// The times of a stream's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// They arrive evenly at this rate, and are late by the account of a promise. If as many as `waiting` are
    /// not answered, the program's memory is full: what follows arrives later.
    Due { rate: u64, period_ms: u32, bound_us: u64, waiting: u32 },
    /// This many are always in flight.
    Greedy { depth: u32 },
}

/// Results of one job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {
    /// The streams that were due.
    pub streams: Vec<StreamDone>,
    /// Bytes of greedy streams in each interval of 100 ms.
    pub greedy: Vec<u64>,
    /// Number of requests of greedy streams that failed, and the first error.
    pub failed: u64,
    pub error: String,
}

/// The result of a stream that was due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDone {
    pub write: bool,
    pub bytes: u64,
    /// Bytes a second from the first arrival to the last end.
    pub rate: u64,
    pub bound_us: u64,
    pub periods: u64,
    pub late: u64,
    pub worst_us: u64,
    /// Number of requests that failed, and the first error. They are not in the account.
    pub failed: u64,
    pub error: String,
    /// Time from the first request until it was answered.
    pub start_us: u64,
    /// Worst lateness in microseconds, of what was due in each interval of 100 ms since the job's beginning.
    pub lateness_us: Vec<u64>,
}

/// The client of a client process.
#[derive(Debug)]
pub struct Worker {
    connected: Connected,
}

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    streams: Vec<Arc<Opened>>,
}

#[derive(Debug)]
struct Opened {
    stream: Stream,
    file: File,
    /// Bytes that are written, again and again.
    content: Vec<u8>,
    next: AtomicU64,
}

/// The time of a run's beginning, and the order to stop it.
#[derive(Debug, Clone)]
struct Clock {
    began: Instant,
    stop: watch::Receiver<bool>,
}

impl Worker {
    /// A worker for the cluster that `config` names.
    pub fn new(config: Config) -> Worker {
        Worker { connected: Connected::new(config) }
    }

    /// Opens the files of the job.
    pub async fn prepare(&mut self, job: &Job) -> Result<Prepared, Error> {
        let client = self.connected.client().await?;
        let mut streams = Vec::with_capacity(job.streams.len());
        for stream in &job.streams {
            let name = Name::parse(stream.file.as_bytes())
                .map_err(|error| Error::Content { what: format!("{}: {error}", stream.file) })?;
            let options = OpenOptions::new().read(!stream.write).write(stream.write);
            let file = client.open(&name, &options).await.doing("open a stream's file")?;
            let mut content = vec![0; if stream.write { memory(stream.request_bytes) } else { 0 }];
            fill(1, &mut content);
            let next = AtomicU64::new(stream.first);
            streams.push(Arc::new(Opened { stream: stream.clone(), file, content, next }));
        }
        Ok(Prepared { streams })
    }
}

impl Prepared {
    /// Runs the job until it is told to stop.
    pub async fn run(&self, stop: watch::Receiver<bool>) -> Result<Done, Error> {
        let clock = Clock { began: Instant::now(), stop };
        let mut due = JoinSet::new();
        let mut greedy = JoinSet::new();
        for opened in &self.streams {
            match opened.stream.pace {
                Pace::Due { rate, period_ms, bound_us, waiting } => {
                    let period_ns = u64::from(period_ms) * 1_000_000;
                    let account = Lateness::new(rate, period_ns, bound_us * 1000);
                    let pace = (rate, bound_us, memory(u64::from(waiting)));
                    due.spawn(Arc::clone(opened).due(clock.clone(), pace, account));
                }
                Pace::Greedy { depth } => {
                    for _ in 0..depth {
                        greedy.spawn(Arc::clone(opened).greedy(clock.clone()));
                    }
                }
            }
        }
        let mut done = Done::default();
        while let Some(ended) = due.join_next().await {
            done.streams.push(joined(ended)?);
        }
        while let Some(ended) = greedy.join_next().await {
            let ended = joined(ended)?;
            add(&mut done.greedy, &ended.bytes);
            done.failed += ended.failures.count;
            if done.error.is_empty() {
                done.error = ended.failures.first;
            }
        }
        Ok(done)
    }

    /// Closes the job's files.
    pub async fn close(self) -> Result<(), Error> {
        for opened in self.streams {
            if let Some(opened) = Arc::into_inner(opened) {
                opened.file.close().await.doing("close a stream's file")?;
            }
        }
        Ok(())
    }
}

impl Opened {
    /// Carries out the next request.
    async fn request(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        let stream = &self.stream;
        let places = (stream.ring_bytes / stream.request_bytes).max(1);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % places;
        let offset = place * stream.request_bytes;
        if stream.write {
            return self.file.write_at(&self.content, offset).await.doing("write");
        }
        buffer.resize(memory(stream.request_bytes), 0);
        let read = self.file.read_at(buffer, offset).await.doing("read")?;
        if read == buffer.len() {
            return Ok(());
        }
        let what = format!("{}: {read} bytes at {offset}, which is too few", stream.file);
        Err(Error::Content { what })
    }

    /// Sends requests one after another until it is told to stop. Returns the bytes of each interval.
    async fn greedy(self: Arc<Opened>, clock: Clock) -> Result<Greedy, Error> {
        let mut greedy = Greedy::default();
        let mut buffer = Vec::new();
        sleep_until(clock.began + Duration::from_millis(self.stream.begins_ms)).await;
        while !*clock.stop.borrow() {
            match self.request(&mut buffer).await {
                Ok(()) => {
                    let bytes = self.stream.request_bytes;
                    note(&mut greedy.bytes, clock.now(), bytes, |sum, bytes| sum + bytes);
                }
                Err(error) => {
                    greedy.failures.add(&error);
                    sleep(FAILED_WAIT).await;
                }
            }
        }
        Ok(greedy)
    }

    /// Sends requests at their times until it is told to stop.
    async fn due(
        self: Arc<Opened>,
        mut clock: Clock,
        pace: (u64, u64, usize),
        mut account: Lateness,
    ) -> Result<StreamDone, Error> {
        let (rate, bound_us, waiting) = pace;
        let bytes = self.stream.request_bytes;
        let mut tasks: JoinSet<Result<Answered, Error>> = JoinSet::new();
        let mut free = Vec::new();
        let mut seen = Seen::default();
        // Requests since the program's memory was full last, or since the beginning.
        let mut since = Duration::from_millis(self.stream.begins_ms);
        let mut number = 0;
        loop {
            let mut arrives = since + arrival(number, bytes, rate);
            let mut was_full = false;
            loop {
                let is_full = tasks.len() >= waiting;
                was_full |= is_full && clock.now() > arrives;
                tokio::select! {
                    () = sleep_until(clock.began + arrives), if !is_full => break,
                    Some(ended) = tasks.join_next() => {
                        free.push(seen.answered(joined(ended)?, &mut account));
                    }
                    _ = clock.stop.changed() => break,
                }
            }
            if was_full {
                (since, number) = (clock.now(), 0);
                arrives = since;
            }
            number += 1;
            if *clock.stop.borrow() {
                break;
            }
            let due = account.arrived(nanoseconds(arrives), bytes);
            let opened = Arc::clone(&self);
            let began = clock.began;
            let mut buffer: Vec<u8> = free.pop().unwrap_or_default();
            tasks.spawn(async move {
                let error = opened.request(&mut buffer).await.err();
                Ok(Answered { arrives, due, at: began.elapsed(), buffer, error })
            });
        }
        while let Some(ended) = tasks.join_next().await {
            seen.answered(joined(ended)?, &mut account);
        }
        let delivered = account.delivered();
        Ok(StreamDone {
            write: self.stream.write,
            bytes: delivered.bytes,
            rate: delivered.rate,
            bound_us,
            periods: delivered.periods,
            late: delivered.periods_late,
            worst_us: delivered.worst_ns / 1000,
            failed: seen.failures.count,
            error: seen.failures.first,
            start_us: seen.start.map_or(0, |start| nanoseconds(start) / 1000),
            lateness_us: seen.lateness_us,
        })
    }
}

/// A request of a due stream that was answered.
struct Answered {
    arrives: Duration,
    due: Due,
    /// Time of the answer, since the job's beginning.
    at: Duration,
    buffer: Vec<u8>,
    error: Option<Error>,
}

/// The result of a greedy stream's requests.
#[derive(Debug, Default)]
struct Greedy {
    bytes: Vec<u64>,
    failures: Failures,
}

/// Requests that failed.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    first: String,
}

impl Failures {
    fn add(&mut self, error: &Error) {
        self.count += 1;
        if self.first.is_empty() {
            self.first = error.to_string();
        }
    }
}

/// Observations of a due stream beside its account.
#[derive(Debug, Default)]
struct Seen {
    start: Option<Duration>,
    lateness_us: Vec<u64>,
    failures: Failures,
}

impl Seen {
    /// Enters an answer. Returns its buffer.
    fn answered(&mut self, answered: Answered, account: &mut Lateness) -> Vec<u8> {
        let Answered { arrives, due, at, buffer, error } = answered;
        if let Some(error) = error {
            self.failures.add(&error);
            return buffer;
        }
        let _late = account.done(nanoseconds(at), due);
        self.start.get_or_insert(at.saturating_sub(arrives));
        let was_due = Duration::from_nanos(due.due_ns);
        let late_us = nanoseconds(at.saturating_sub(was_due)) / 1000;
        note(&mut self.lateness_us, was_due, late_us, u64::max);
        buffer
    }
}

impl Clock {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Time from a stream's beginning to the arrival of a request.
fn arrival(number: u64, bytes: u64, rate: u64) -> Duration {
    let ns = u128::from(number) * u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Combines a value with that of the interval that `at` is in.
fn note(values: &mut Vec<u64>, at: Duration, value: u64, combine: impl Fn(u64, u64) -> u64) {
    let index = usize::try_from(at.as_millis() / INTERVAL.as_millis()).unwrap_or(usize::MAX);
    if values.len() <= index {
        values.resize(index + 1, 0);
    }
    values[index] = combine(values[index], value);
}

/// Adds to each value its counterpart.
pub(super) fn add(sums: &mut Vec<u64>, values: &[u64]) {
    sums.resize(sums.len().max(values.len()), 0);
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn joined<T>(ended: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    ended.map_err(std::io::Error::other).doing("run a stream")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_evenly_at_the_rate() {
        let at = |number| arrival(number, 500_000, 10_000_000).as_millis();
        assert_eq!([at(0), at(1), at(2), at(1000)], [0, 50, 100, 50_000]);
    }

    #[test]
    fn values_are_noted_by_intervals() {
        let mut values = Vec::new();
        for (at, value) in [(30, 5), (99, 7), (100, 1), (350, 2), (10, 6)] {
            note(&mut values, Duration::from_millis(at), value, u64::max);
        }
        assert_eq!(values, [7, 1, 0, 2]);
        add(&mut values, &[1, 1, 1, 1, 1]);
        assert_eq!(values, [8, 2, 1, 3, 1]);
    }

    #[test]
    fn an_answer_is_late_by_the_account() {
        let mut account = Lateness::new(10_000_000, 100_000_000, 20_000_000);
        let mut seen = Seen::default();
        for (arrives, at) in [(0, 60), (50, 130)] {
            let arrives = Duration::from_millis(arrives);
            let due = account.arrived(nanoseconds(arrives), 500_000);
            let at = Duration::from_millis(at);
            seen.answered(Answered { arrives, due, at, buffer: Vec::new(), error: None }, &mut account);
        }
        assert_eq!(account.delivered().periods_late, 1);
        assert_eq!((seen.start, seen.lateness_us), (Some(Duration::from_millis(60)), vec![10_000, 30_000]));
    }
}
