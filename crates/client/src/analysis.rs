//! Analysis: where the time of requests goes.
//!
//! A client that was made by [`Client::analysed`](crate::Client::analysed) has a [`Recorder`]. Each of its
//! requests to a drive leaves a [`Span`] there: when it was handed over, sent, answered and in place, and
//! what the drive tells of its own time. Any other client has no recorder, which costs a branch for each
//! request. [`Work::bound`] makes one sentence of the spans.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_layout::{DriveId, ObjectId};
use braid_wire::data::{DriveReply, DriveRequest, Times};
use rustix::time::{ClockId, clock_gettime};

mod bound;

pub use bound::{Bound, DriveTime, Limit, SpanParts};

/// Spans kept at most: of a longer run the rest is counted only.
const SPANS_MAX: usize = 1 << 18;

/// The act of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It reads part of a unit.
    Read,
    /// It writes a column's part of a stripe write.
    StripeWrite,
    /// It writes to a unit through its data drive.
    UnitWrite,
    /// It does anything else.
    Other,
}

/// One request to a drive. Times are microseconds since the recorder began.
#[derive(Debug, Clone)]
pub struct Span {
    /// The drive that was asked.
    pub drive: DriveId,
    /// The act asked for.
    pub act: Act,
    /// The object that was asked for.
    pub object: ObjectId,
    /// Index of the unit.
    pub unit: u64,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte.
    pub to: u32,
    /// The request was handed over.
    pub asked_us: u64,
    /// There was a session for it.
    pub connected_us: u64,
    /// The bound of what is in flight had room for it.
    pub admitted_us: u64,
    /// The receiver's credit gave it its turn.
    pub granted_us: u64,
    /// It was given to the connection, with its payload.
    pub sent_us: u64,
    /// The head of its answer had come.
    pub answered_us: u64,
    /// Its bytes were in place and checked.
    pub landed_us: u64,
    /// Nanoseconds of checksums at the client.
    pub crc_ns: u64,
    /// Times that the drive tells; `None`: it was not answered, or the answer does not tell.
    pub times: Option<Times>,
    /// True if it was carried out.
    pub is_done: bool,
}

/// All that was recorded of a run.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The run's length, in microseconds.
    pub wall_us: u64,
    /// Processor time of all threads of this process in the run, in microseconds.
    pub cpu_us: u64,
    /// The same of the thread that took most; 0 if the system does not tell.
    pub busiest_us: u64,
    /// Number of processors that the process may use; 0 counts as one.
    pub processors: u64,
    /// Processor time of parity and reconstruction, in microseconds.
    pub computed_us: u64,
    /// The requests, in the order of their ends.
    pub spans: Vec<Span>,
    /// Requests that were not kept, as there were too many.
    pub left_out: u64,
}

/// Takes the spans of a client's requests.
#[derive(Debug)]
pub struct Recorder(Mutex<State>);

#[derive(Debug)]
struct State {
    began: Instant,
    cpu: Duration,
    /// Nanoseconds that each thread had taken, by its number.
    threads: BTreeMap<u64, u64>,
    work: Work,
}

impl State {
    fn begin() -> State {
        let cpu = processor_time();
        State { began: Instant::now(), cpu, threads: thread_times(), work: Work::default() }
    }
}

impl Recorder {
    /// A recorder that begins now.
    pub(crate) fn new() -> Arc<Recorder> {
        Arc::new(Recorder(Mutex::new(State::begin())))
    }

    /// Begins anew. Nothing may be in flight.
    pub fn begin(&self) {
        *self.state() = State::begin();
    }

    /// All that was recorded since the beginning, which is now anew.
    pub fn take(&self) -> Work {
        let State { began, cpu, threads, work } = std::mem::replace(&mut *self.state(), State::begin());
        let wall_us = micros(began.elapsed());
        let cpu_us = micros(processor_time().saturating_sub(cpu));
        let busiest_us = busiest_ns(&threads, &thread_times()) / 1000;
        let processors =
            std::thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1));
        Work { wall_us, cpu_us, busiest_us, processors, ..work }
    }

    fn now_us(&self) -> u64 {
        micros(self.state().began.elapsed())
    }

    /// Runs a step of arithmetic, and counts its time.
    pub(crate) fn compute<T>(&self, step: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = step();
        self.state().work.computed_us += micros(began.elapsed());
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The spans of requests that are made together; nothing, if they are not recorded.
pub(crate) struct Spans(Option<Active>);

struct Active {
    recorder: Arc<Recorder>,
    spans: Mutex<Vec<Span>>,
}

impl Spans {
    /// The spans of these requests to a drive, each of which then asks for the drive's times.
    pub(crate) fn of<'a>(
        recorder: Option<&Arc<Recorder>>,
        drive: DriveId,
        requests: impl Iterator<Item = &'a mut DriveRequest>,
    ) -> Spans {
        let Some(recorder) = recorder else { return Spans(None) };
        let now = recorder.now_us();
        let spans = requests.map(|request| {
            request.ask_times();
            span(drive, request, now)
        });
        Spans(Some(Active { recorder: Arc::clone(recorder), spans: Mutex::new(spans.collect()) }))
    }

    /// The span of one request.
    pub(crate) fn nth(&self, index: usize) -> SpanOf<'_> {
        SpanOf { spans: self, index }
    }

    /// Notes the present time for all requests.
    pub(crate) fn all(&self, note: impl Fn(&mut Span, u64)) {
        let Some(active) = &self.0 else { return };
        let now = active.recorder.now_us();
        active.spans().iter_mut().for_each(|span| note(span, now));
    }
}

/// The span of one of the requests.
#[derive(Clone, Copy)]
pub(crate) struct SpanOf<'a> {
    spans: &'a Spans,
    index: usize,
}

impl SpanOf<'_> {
    /// Notes the present time.
    pub(crate) fn at(self, note: impl FnOnce(&mut Span, u64)) {
        let Some(active) = &self.spans.0 else { return };
        let now = active.recorder.now_us();
        if let Some(span) = active.spans().get_mut(self.index) {
            note(span, now);
        }
    }

    /// Runs a checksum of the request's bytes, and counts its time.
    pub(crate) fn crc<T>(self, checksum: impl FnOnce() -> T) -> T {
        if self.spans.0.is_none() {
            return checksum();
        }
        let began = Instant::now();
        let result = checksum();
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.at(|span, _| span.crc_ns += took_ns);
        result
    }

    /// The request has ended so.
    pub(crate) fn landed<E>(self, outcome: &Result<DriveReply, E>) {
        self.at(|span, now| {
            span.landed_us = now;
            span.is_done = outcome.is_ok();
            span.times = outcome.as_ref().ok().and_then(DriveReply::times);
        });
    }
}

impl Active {
    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let spans = std::mem::take(self.spans.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut state = self.recorder.state();
        // What never went was sent again by another call, or not at all.
        for span in spans.into_iter().filter(|span| span.granted_us > 0) {
            if state.work.spans.len() < SPANS_MAX {
                state.work.spans.push(span);
            } else {
                state.work.left_out += 1;
            }
        }
    }
}

fn span(drive: DriveId, request: &DriveRequest, now: u64) -> Span {
    let (act, unit, from, to) = match request {
        DriveRequest::Read(read) => (Act::Read, read.unit, read.from, read.to),
        DriveRequest::StripeWrite(write) => (Act::StripeWrite, write.unit, write.from, write.to),
        DriveRequest::UnitWrite(write) => (Act::UnitWrite, write.unit, write.from, write.to),
        _ => (Act::Other, 0, 0, 0),
    };
    Span {
        drive,
        act,
        object: request.target().at.object,
        unit,
        from,
        to,
        asked_us: now,
        connected_us: now,
        admitted_us: 0,
        granted_us: 0,
        sent_us: 0,
        answered_us: 0,
        landed_us: 0,
        crc_ns: 0,
        times: None,
        is_done: false,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Processor time of each thread of this process so far, in nanoseconds, by the thread's number.
fn thread_times() -> BTreeMap<u64, u64> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let number = thread.file_name().to_str()?.parse().ok()?;
        let taken = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((number, taken.split_whitespace().next()?.parse().ok()?))
    });
    times.collect()
}

/// The most that one thread took between two looks.
fn busiest_ns(before: &BTreeMap<u64, u64>, after: &BTreeMap<u64, u64>) -> u64 {
    let taken = |(thread, now): (&u64, &u64)| now.saturating_sub(before.get(thread).copied().unwrap_or(0));
    after.iter().map(taken).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_is_that_which_took_most_since() {
        let before = BTreeMap::from([(1, 900), (2, 10)]);
        let after = BTreeMap::from([(1, 950), (2, 70), (3, 30)]);
        assert_eq!(busiest_ns(&before, &after), 60);
        assert!(!thread_times().is_empty(), "this thread is one");
    }
}
