//! The run of `braid bench qualify`: files are written by several handles at once, then read.
//!
//! The files have no name. So nobody sees them, and they are gone when they are closed, or when the client
//! that made them is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_client::{Client, File};
use braid_layout::DriveId;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::output::exit::{Exit, Failure};
use crate::output::interrupt::Interrupts;
use crate::output::rate::Progress;

/// Requests in flight on each file.
const LANES: u64 = 2;
/// Least size of a request; it is of whole stripes.
const REQUEST_BYTES: u64 = 2 << 20;
/// Interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(200);
/// Part of the free space that the files take at most.
const SPACE_PART: u64 = 8;
/// Time limit for requests under way at the end of a phase.
const END_WAIT: Duration = Duration::from_secs(60);
/// Time limit for the removal of the files.
const CLOSE_WAIT: Duration = Duration::from_secs(8);

/// The action that failures name.
pub(crate) const QUALIFY: &str = "qualify the drives";

/// The run to make.
pub(crate) struct Plan {
    pub(crate) volume: String,
    pub(crate) files: usize,
    /// Seconds of each direction.
    pub(crate) seconds: u64,
    /// Bytes that are free on all drives together.
    pub(crate) free_bytes: u64,
}

/// The result of a run.
pub(crate) struct Measured {
    pub(crate) read: Phase,
    pub(crate) write: Phase,
    /// Drives that have a column of one of the files.
    pub(crate) drives: BTreeSet<DriveId>,
}

/// The result of one direction.
pub(crate) struct Phase {
    pub(crate) file_bytes_per_second: u64,
    /// Bytes that drives sent or took in, parity included.
    pub(crate) drive_bytes_per_second: u64,
    /// Part of this machine's processors that this process used, in thousandths.
    pub(crate) busy_permille: u64,
}

/// A file of the run.
struct Subject {
    file: File,
    request_bytes: u64,
    /// Bytes that are written at most; then it begins anew.
    most_bytes: u64,
    /// Bytes that were asked for in this phase.
    next: AtomicU64,
    /// Bytes that can be read.
    written: AtomicU64,
    /// Bytes that were moved since the beginning, for people.
    moved: AtomicU64,
    /// Bytes at the drives for each thousand bytes of the file that are written.
    stored_permille: u64,
}

/// Makes a run. The files are gone when it returns.
pub(crate) async fn measure(
    client: &Client,
    plan: &Plan,
    progress: &Progress,
    interrupts: &mut Interrupts,
) -> Result<Measured, Failure> {
    let mut subjects = Vec::new();
    let ended = tokio::select! {
        ended = phases(client, plan, progress, &mut subjects) => ended,
        _ = interrupts.next() => Err(Interrupts::failure()),
    };
    close(subjects).await;
    ended
}

async fn phases(
    client: &Client,
    plan: &Plan,
    progress: &Progress,
    subjects: &mut Vec<Arc<Subject>>,
) -> Result<Measured, Failure> {
    for _ in 0..plan.files {
        let file = client.create_unnamed(&plan.volume, None).await?;
        subjects.push(Arc::new(Subject::new(file, plan)?));
    }
    let time = Duration::from_secs(plan.seconds);
    let drives = subjects.iter().flat_map(|subject| subject.drives()).collect();
    progress.name("writes");
    let write = phase(subjects, time, progress, Way::Write).await?;
    progress.name("reads");
    let read = phase(subjects, time, progress, Way::Read).await?;
    Ok(Measured { read, write, drives })
}

/// Writes or reads all files at the same time.
async fn phase(
    subjects: &[Arc<Subject>],
    time: Duration,
    progress: &Progress,
    way: Way,
) -> Result<Phase, Failure> {
    let began = Instant::now();
    let cpu_began = cpu();
    let mut lanes = JoinSet::new();
    for subject in subjects {
        subject.next.store(0, Ordering::Relaxed);
        for _ in 0..LANES {
            let subject = Arc::clone(subject);
            lanes.spawn(async move { subject.go(began + time, way).await });
        }
    }
    let mut bytes = 0;
    let mut stored_bytes = 0;
    loop {
        let moved = |subject: &Arc<Subject>| subject.moved.load(Ordering::Relaxed);
        progress.reached(subjects.iter().map(moved).sum());
        let limit = (time + END_WAIT).saturating_sub(began.elapsed());
        match timeout(limit.min(LOOK), lanes.join_next()).await {
            Ok(None) => break,
            Ok(Some(ended)) => {
                let moved: Moved = ended.map_err(|error| broken(error.to_string()))??;
                bytes += moved.bytes;
                stored_bytes += moved.stored_bytes;
            }
            Err(_) if began.elapsed() >= time + END_WAIT => {
                let why = format!(
                    "requests have not ended after {} s more: see `braid status`",
                    END_WAIT.as_secs()
                );
                return Err(Failure::new(Exit::Timeout, QUALIFY, why));
            }
            Err(_) => {}
        }
    }
    let took = began.elapsed();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all_ns = took.as_nanos().saturating_mul(u128::try_from(cores).unwrap_or(1)).max(1);
    let busy = cpu().saturating_sub(cpu_began).as_nanos() * 1000 / all_ns;
    Ok(Phase {
        file_bytes_per_second: per_second(bytes, took),
        drive_bytes_per_second: per_second(if way == Way::Write { stored_bytes } else { bytes }, took),
        busy_permille: u64::try_from(busy).unwrap_or(u64::MAX),
    })
}

/// Processor time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn broken(why: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, QUALIFY, why)
}

/// Closes the files, which removes them. Those that a request still has are removed when the manager misses
/// this client.
async fn close(subjects: Vec<Arc<Subject>>) {
    // Requests that an interrupt ended let go of their files soon.
    let limit = Instant::now() + CLOSE_WAIT / 4;
    while Instant::now() < limit && subjects.iter().any(|subject| Arc::strong_count(subject) > 1) {
        sleep(LOOK / 10).await;
    }
    let mut closing = JoinSet::new();
    for subject in subjects.into_iter().filter_map(Arc::into_inner) {
        closing.spawn(subject.file.close());
    }
    // What went wrong was said by the run.
    drop(timeout(CLOSE_WAIT, closing.join_all()).await);
}

/// Bytes that a lane has moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    /// Bytes of files.
    bytes: u64,
    /// The same at drives, if they are written.
    stored_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

impl Subject {
    fn new(file: File, plan: &Plan) -> Result<Subject, Failure> {
        let layout = file.layout();
        let shape = layout.segments().first().map(|segment| segment.shape);
        let Some(shape) = shape else {
            return Err(broken("a new file has no layout"));
        };
        let stripe = shape.stripe_bytes();
        let request_bytes = REQUEST_BYTES.div_ceil(stripe) * stripe;
        let stored_permille = u64::from(shape.width()) * 1000 / u64::from(shape.k());
        let files = u64::try_from(plan.files).unwrap_or(u64::MAX);
        let room = plan.free_bytes / SPACE_PART / files * 1000 / stored_permille;
        let most_bytes = room / request_bytes * request_bytes;
        if most_bytes == 0 {
            let why =
                format!("{files} files of {request_bytes} bytes are more than an eighth of the free space");
            return Err(
                Failure::new(Exit::NoSpace, QUALIFY, why).remedy("see `braid df`, or take fewer --files")
            );
        }
        let next = AtomicU64::new(0);
        let written = AtomicU64::new(0);
        let moved = AtomicU64::new(0);
        Ok(Subject { file, request_bytes, most_bytes, next, written, moved, stored_permille })
    }

    fn drives(&self) -> Vec<DriveId> {
        let layout = self.file.layout();
        let of = |segment: &braid_layout::Segment| {
            segment.components.iter().map(|component| component.drive).collect::<Vec<_>>()
        };
        layout.segments().iter().flat_map(of).collect()
    }

    /// Writes or reads whole requests, one after another, until this time; at least one, so that each file
    /// has bytes to read.
    async fn go(&self, until: Instant, way: Way) -> Result<Moved, Failure> {
        let mut buffer = content(self.request_bytes);
        let mut bytes = 0;
        loop {
            let from = self.next.fetch_add(self.request_bytes, Ordering::Relaxed);
            match way {
                Way::Write => {
                    let at = from % self.most_bytes;
                    self.file.write_at(&buffer, at).await?;
                    self.written.fetch_max(at + self.request_bytes, Ordering::Relaxed);
                }
                Way::Read => {
                    let at = from % self.written.load(Ordering::Relaxed).max(self.request_bytes);
                    self.read(&mut buffer, at).await?;
                }
            }
            bytes += self.request_bytes;
            self.moved.fetch_add(self.request_bytes, Ordering::Relaxed);
            if Instant::now() >= until {
                break;
            }
        }
        Ok(Moved { bytes, stored_bytes: bytes / 1000 * self.stored_permille })
    }

    async fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), Failure> {
        let mut done = 0;
        while done < buffer.len() {
            let more = self.file.read_at(&mut buffer[done..], at + done as u64).await?;
            if more == 0 {
                return Err(broken("a file is shorter than what was written to it"));
            }
            done += more;
        }
        Ok(())
    }
}

/// Bytes that no layer can leave out.
fn content(bytes: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(usize::try_from(bytes).unwrap_or(usize::MAX)).collect()
}
