//! `braid-lab bench`: runs an experiment, shows its progress, and prints the results. The bench of the store
//! runs on a thread of its own.

pub(crate) mod array;
pub(crate) mod bound;
pub(crate) mod cache;
pub(crate) mod client;
mod cluster;
pub(crate) mod cost;
mod figures;
mod helper;
mod hosts;
pub(crate) mod local;
pub(crate) mod methods;
pub(crate) mod mine;
mod mounted;
pub(crate) mod net;
pub(crate) mod peers;
mod plain;
pub(crate) mod predict;
pub(crate) mod privacy;
pub(crate) mod promises;
mod ratios;
mod run;
pub(crate) mod small;
pub(crate) mod stripes;
pub(crate) mod transport;
pub(crate) mod trust;
pub(crate) mod volumes;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use braid_bench::store::Settings;
use braid_bench::{
    Amplification, Conditions, Effort, Error, Experiment, Machine, Report as Found, Row, Timing, Watch,
    markdown, plot,
};
use braid_cli::machine::temporary_dir::{OnDrop, TemporaryDir};
use braid_cli::output::bar::bar;
use braid_cli::output::documents::{prepare_out, write};
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_cli::output::interrupt::Interrupts;
use braid_cli::output::rate;
use braid_cli::output::report::{Report, table};
use braid_cli::output::size;
use braid_cli::output::time;
use tokio::sync::oneshot;

use crate::args::BenchStore;

/// Runs `braid-lab bench store`.
pub(crate) async fn store(asked: BenchStore, report: Report) -> Result<(), Failure> {
    prepare_out(asked.out.as_deref())?;
    let parents = if asked.dir.is_empty() { usual() } else { asked.dir.clone() };
    let effort = if asked.quick { Effort::Quick } else { Effort::Full };
    let needed = braid_bench::store::needed_bytes(effort);
    let places = parents
        .iter()
        .map(|parent| TemporaryDir::make(parent, "bench", needed, OnDrop::Remove))
        .collect::<Result<Vec<TemporaryDir>, Failure>>()?;
    let directories = places.iter().map(|place| place.path().to_owned()).collect();
    let settings = Settings { directories, effort, only: asked.only.clone() };
    let mut found = measure_store(settings, places).await?;
    if found.rows.is_empty() && found.times.is_empty() && found.amplification.is_empty() {
        return Err(run::nothing_wanted(&asked.only.unwrap_or_default(), "store", "title"));
    }
    // Reports the directories asked for, not the temporary ones made in them.
    for (place, parent) in found.places.iter_mut().zip(parents) {
        place.directory = parent;
    }
    if let Some(out) = &asked.out {
        let (command, when) = said();
        let documents = [
            ("store.md", markdown::document(&found, &command, &when, "store.svg")),
            ("store.svg", plot::svg(&found)),
        ];
        write(out, &documents)?;
    }
    report.facts(&found, text)
}

/// Default directories to measure in.
fn usual() -> Vec<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    [std::env::temp_dir()].into_iter().chain(memory.is_dir().then_some(memory)).collect()
}

/// Measures on a thread of its own, and removes the places at the end.
async fn measure_store(settings: Settings, places: Vec<TemporaryDir>) -> Result<Found, Failure> {
    let work = move |stop: &AtomicBool| {
        let bar = bar();
        let watch = Watch {
            stop,
            tell: &|progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.done);
                bar.set_message(progress.name);
            },
        };
        let found = braid_bench::store::run(&settings, &watch);
        bar.finish_and_clear();
        drop(places);
        found
    };
    OnThread::begin(work)?.end().await
}

/// Work on a thread of its own. Drop stops it and waits until it has ended, and so has removed its files.
struct OnThread<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: oneshot::Receiver<Result<T, Error>>,
}

impl<T: Send + 'static> OnThread<T> {
    /// Begins the work. It should end soon after the flag that it is given is set.
    fn begin(
        work: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send + 'static,
    ) -> Result<OnThread<T>, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, found) = oneshot::channel();
        let asked = Arc::clone(&stop);
        let work = move || {
            let _ = tell.send(work(&asked));
        };
        let thread = std::thread::Builder::new().name("bench".into()).spawn(work);
        Ok(OnThread { stop, thread: Some(thread.doing(|| "start a thread".into())?), found })
    }

    async fn end(mut self) -> Result<T, Failure> {
        let found = (&mut self.found).await.map_err(std::io::Error::other).doing(|| "measure".into())?;
        found.map_err(failure)
    }
}

fn failure(error: Error) -> Failure {
    let exit = if error.is_full() { Exit::NoSpace } else { Exit::Failed };
    match error {
        Error::Stopped => Interrupts::failure(),
        _ => Failure::new(exit, "measure", error.to_string()),
    }
}

impl<T> Drop for OnThread<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The command line and the time, for documents.
fn said() -> (String, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let when = time::show(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    (format!("braid-lab {}", arguments.join(" ")), when)
}

/// Describes the machine and how long the run took.
fn ran_on(machine: &Machine, seconds: f64) -> String {
    format!(
        "{}, {} processors, {}, kernel {}; load {} before, {} after; {seconds:.0} s",
        machine.cpu,
        machine.cpus,
        size::show(machine.memory_bytes),
        machine.kernel,
        machine.load_before,
        machine.load_after,
    )
}

/// Head of the text of a cluster's bench: the machine, and where the drives are.
fn head(ran: &Conditions) -> String {
    let place = &ran.place;
    let machine = ran_on(&ran.machine, ran.seconds);
    format!("{machine}\n\ndrives in {} ({})", place.directory.display(), place.file_system)
}

/// Formats the results as text: a table for each place.
fn text(found: &Found) -> String {
    let mut text = format!("{}\n", ran_on(&found.machine, found.seconds));
    for place in &found.places {
        text.push_str(&format!(
            "\n{} on {}, {} free\n",
            place.label,
            place.directory.display(),
            size::show(place.free_bytes)
        ));
        let (sending, rows): (Vec<&Row>, Vec<&Row>) = found
            .rows
            .iter()
            .filter(|row| row.place == place.label)
            .partition(|row| row.experiment == Experiment::Sending);
        if !rows.is_empty() {
            let header = ["", "RATIO", "MIN", "MAX", "TARGET", "BRAID", "RAW", "CPU s/GiB", "RAW", "AGAINST"];
            text.push_str(&table(&header, &[1, 2, 3, 4, 5, 6, 7, 8], rows.into_iter().map(cells)));
        }
        if !sending.is_empty() {
            let header =
                ["", "RATIO", "MIN", "MAX", "TARGET", "FIRST", "SECOND", "CPU s/GiB", "SECOND", "AGAINST"];
            text.push_str("\nsending, by sendfile and by a copy\n");
            text.push_str(&table(&header, &[1, 2, 3, 4, 5, 6, 7, 8], sending.into_iter().map(cells)));
        }
    }
    if !found.times.is_empty() {
        text.push_str("\nopening as after kill -9\n");
        let header = [
            "",
            "PLACE",
            "OBJECTS",
            "LOG",
            "CHECKPOINT",
            "RECORDS",
            "SECONDS",
            "MIN",
            "MAX",
            "TARGET",
            "CPU s",
        ];
        text.push_str(&table(&header, &[2, 3, 4, 5, 6, 7, 8, 9, 10], found.times.iter().map(time_cells)));
    }
    if !found.amplification.is_empty() {
        text.push_str("\nbytes written for one of the foreground, by how much is live\n");
        let header = ["OVERWRITES", "PLACE", "LIVE", "MEASURED", "SIMULATED", "WRITTEN", "MOVED"];
        let points = found.amplification.iter().map(amplification_cells);
        text.push_str(&table(&header, &[2, 3, 4, 5, 6], points));
    }
    if found.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}

fn time_cells(time: &Timing) -> Vec<String> {
    let missed = if time.is_met() { "" } else { " missed" };
    vec![
        time.title(),
        time.place.clone(),
        time.objects.to_string(),
        size::show(time.log_bytes),
        size::show(time.checkpoint_bytes),
        time.records.to_string(),
        format!("{:.2}", time.seconds.median),
        format!("{:.2}", time.seconds.min),
        format!("{:.2}", time.seconds.max),
        format!("{}{missed}", time.target_seconds),
        format!("{:.2}", time.cpu_seconds),
    ]
}

fn amplification_cells(point: &Amplification) -> Vec<String> {
    vec![
        point.load.name().to_owned(),
        point.place.clone(),
        format!("{} %", point.live_percent),
        format!("{:.2}", point.measured),
        format!("{:.2}", point.simulated),
        size::show(point.written_bytes),
        size::show(point.moved_bytes),
    ]
}

fn cells(row: &Row) -> Vec<String> {
    let ratio = &row.ratio;
    let target = row.target.map_or(String::new(), |target| {
        format!("{target}{}", if row.is_met() == Some(true) { "" } else { " missed" })
    });
    vec![
        row.title(),
        format!("{:.2}", ratio.median),
        format!("{:.2}", ratio.min),
        format!("{:.2}", ratio.max),
        target,
        rate::show(row.braid.bytes_per_second),
        rate::show(row.raw.bytes_per_second),
        format!("{:.2}", row.braid.cpu_seconds_per_gib),
        format!("{:.2}", row.raw.cpu_seconds_per_gib),
        row.against.to_owned(),
    ]
}
