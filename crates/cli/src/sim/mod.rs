//! `braid sim`: reads specs and traces, runs them on threads, shows progress, and prints or writes the
//! results.

mod promises;
mod text;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use braid_sim::model::CostModel;
use braid_sim::promises::PromisesSpec;
use braid_sim::report::{self, Ran};
use braid_sim::spec::{Point, points};
use braid_sim::sweep::{self, Watch};
use braid_sim::trace::{self, Entry};
use braid_sim::{Spec, run as simulate};

use crate::args::SimRun;
use crate::output::bar::bar;
use crate::output::documents::{prepare_out, write};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::Interrupts;
use crate::output::report::{Report, complain, print};

/// Maximum bytes of a spec or a trace.
const INPUT_BYTES_MAX: u64 = 1 << 30;

/// A spec's points with their results.
pub struct Simulated {
    pub title: String,
    pub points: Vec<Ran>,
}

/// Runs `braid sim run`.
pub(crate) async fn run(asked: SimRun, report: Report) -> Result<(), Failure> {
    if promised(&asked, report).await? {
        return Ok(());
    }
    simulated(&asked).await?.tell(&asked, report)
}

/// Simulates what a spec of promises says, and tells the results. Returns false if it is another spec.
pub async fn promised(asked: &SimRun, report: Report) -> Result<bool, Failure> {
    let text = read(&asked.spec)?;
    if PromisesSpec::is_one(&text) {
        promises::run(asked, &text, report).await?;
        return Ok(true);
    }
    Ok(false)
}

/// Simulates what a spec says.
pub async fn simulated(asked: &SimRun) -> Result<Simulated, Failure> {
    prepare_out(asked.out.as_deref())?;
    let path = &asked.spec;
    let text = read(path)?;
    let wrong = |why: String| Failure::new(Exit::Usage, format!("read {}", path.display()), why);
    let (spec, text) = match &asked.parts {
        None => (Spec::parse(&text).map_err(|error| wrong(error.to_string()))?, text),
        Some(parts) => {
            let parts = parts_of(parts)?;
            Spec::parse_with(&text, &parts).map_err(|error| wrong(error.to_string()))?
        }
    };
    let points = points(&text, &spec).map_err(|error| wrong(error.to_string()))?;
    let mut work = Vec::new();
    for point in points {
        let trace = trace_of(path, &point.spec)?;
        work.push((point, trace));
    }
    let threads = threads(asked.threads);
    let began = Instant::now();
    let simulate = |(point, trace): &(Point, Vec<Entry>)| Ran {
        values: point.values.clone(),
        outcome: simulate(&point.spec, trace),
    };
    let points = in_background(move |stop| all(&work, threads, stop, simulate)).await?;
    say_speed(points.iter().map(|one| one.outcome.events).sum(), began.elapsed().as_secs_f64());
    let title = if spec.title.is_empty() { path.display().to_string() } else { spec.title.clone() };
    Ok(Simulated { title, points })
}

impl Simulated {
    /// Writes and prints the results as asked for.
    pub fn tell(&self, asked: &SimRun, report: Report) -> Result<(), Failure> {
        if let Some(out) = &asked.out {
            write(out, &[("sim.csv", report::csv(&self.points))])?;
        }
        if asked.csv && !report.json {
            return print(&report::csv(&self.points));
        }
        report.facts(&self.points, |points| text::ran(&self.title, points))
    }
}

/// Runs all points. Returns `None` if it was stopped.
fn all<W: Sync, O: Send>(
    work: &[W],
    threads: usize,
    stop: &AtomicBool,
    simulate: impl Fn(&W) -> Ran<O> + Sync,
) -> Option<Vec<Ran<O>>> {
    let bar = bar();
    bar.set_length(u64::try_from(work.len()).unwrap_or(u64::MAX));
    bar.set_message("simulating");
    let tell = |ended: usize| bar.set_position(u64::try_from(ended).unwrap_or(u64::MAX));
    let found = sweep::run(work, threads, &Watch { stop, tell: &tell }, simulate);
    bar.finish_and_clear();
    found
}

/// Does long work on a thread. If the command ends first, the work is told to stop.
pub async fn in_background<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Option<T> + Send + 'static,
) -> Result<T, Failure> {
    struct StopOnDrop(Arc<AtomicBool>);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let _stop = StopOnDrop(Arc::clone(&stop));
    let found = tokio::task::spawn_blocking(move || work(&stop)).await;
    found.map_err(std::io::Error::other).doing(|| "simulate".into())?.ok_or_else(Interrupts::failure)
}

/// Number of runs at a time: as asked for, or one for each processor.
pub fn threads(asked: Option<u16>) -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or(all, usize::from)
}

/// Prints the speed on standard error: the results hold nothing that differs from run to run.
fn say_speed(events: u64, seconds: f64) {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let rate = events as f64 / seconds.max(1e-9) / 1e6;
    complain(&format!("{events} events in {seconds:.2} s, {rate:.2} million a second"));
}

/// Reads a file that holds only parts.
pub(crate) fn parts_of(path: &Path) -> Result<CostModel, Failure> {
    CostModel::parse(&read(path)?)
        .map_err(|error| Failure::new(Exit::Usage, format!("read {}", path.display()), error.to_string()))
}

/// Reads a text of at most [`INPUT_BYTES_MAX`] bytes.
fn read(path: &Path) -> Result<String, Failure> {
    let what = || format!("read {}", path.display());
    let length = fs::metadata(path).doing(what)?.len();
    if length > INPUT_BYTES_MAX {
        return Err(Failure::new(Exit::Usage, what(), format!("{length} bytes are more than 1 GiB")));
    }
    // Read with a bound too: a device or a pipe reports no length.
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes))
        .doing(what)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > INPUT_BYTES_MAX) {
        return Err(Failure::new(Exit::Usage, what(), "it has more than 1 GiB"));
    }
    String::from_utf8(bytes).map_err(|_| Failure::new(Exit::Usage, what(), "it is not text in UTF-8"))
}

/// The trace of a spec's load, if it has one. Its name is relative to the spec's directory.
fn trace_of(spec_path: &Path, spec: &Spec) -> Result<Vec<Entry>, Failure> {
    let Some(name) = spec.load.iter().find_map(|load| load.trace.as_ref()) else { return Ok(Vec::new()) };
    let path = spec_path.parent().unwrap_or(Path::new(".")).join(name);
    let text = read(&path)?;
    trace::parse(&text, spec)
        .map_err(|error| Failure::new(Exit::Usage, format!("read {}", path.display()), error.to_string()))
}
