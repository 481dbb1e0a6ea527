//! Common parts of the benches of a cluster: where they run, which rows are wanted, and their progress.

use std::path::{Path, PathBuf};

use braid_cli::machine::temporary_dir::{OnDrop, TemporaryDir};
use braid_cli::output::bar::bar;
use braid_cli::output::documents::{prepare_out, write};
use braid_cli::output::exit::{Exit, Failure};
use braid_draw::Chart;
use indicatif::ProgressBar;

use crate::args::BenchCluster;

/// A run of a bench: its temporary directory, removed with it, and what was asked for.
pub(super) struct Run {
    dir: TemporaryDir,
    /// The directory that the temporary one is in.
    pub(super) parent: PathBuf,
    /// True for a run that does too little to say anything about speed.
    pub(super) quick: bool,
    only: Option<String>,
    out: Option<PathBuf>,
    bar: ProgressBar,
}

impl Run {
    /// Makes the directory for the results, and a temporary one that needs `full` free bytes, or `quick` in a
    /// quick run.
    pub(super) fn begin(asked: &BenchCluster, sizes: (u64, u64)) -> Result<Run, Failure> {
        let (full, quick) = sizes;
        prepare_out(asked.out.as_deref())?;
        let needed = if asked.quick { quick } else { full };
        let parent = asked.dir.clone().unwrap_or_else(|| usual(needed));
        let dir = TemporaryDir::make(&parent, "bench", needed, OnDrop::Remove)?;
        let only = asked.only.clone();
        let out = asked.out.clone();
        Ok(Run { dir, parent, quick: asked.quick, only, out, bar: bar() })
    }

    /// Returns `full` in a full run and `quick` in a quick one.
    pub(super) fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Returns true if the row of this name is to be measured.
    pub(super) fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|only| title.contains(only))
    }

    /// The error for `--only` that matches no row.
    pub(super) fn nothing_wanted(&self, bench: &str) -> Failure {
        nothing_wanted(self.only.as_deref().unwrap_or_default(), bench, "name")
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Shows the current activity beside the progress bar.
    pub(super) fn tell(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Restarts the progress bar for `count` steps.
    pub(super) fn steps(&self, count: u64) {
        self.bar.set_length(count);
        self.bar.set_position(0);
    }

    /// Counts one step as done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// Removes the progress bar.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes `NAME.md` and `NAME.svg`, if they were asked for. `document` is given the command line, the
    /// time and the plot's file.
    pub(super) fn write(
        &self,
        name: &str,
        document: impl FnOnce(&str, &str, &str) -> String,
        plot: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(out) = &self.out else { return Ok(()) };
        let (command, when) = super::said();
        let [text, svg] = ["md", "svg"].map(|kind| format!("{name}.{kind}"));
        let documents = [(text.as_str(), document(&command, &when, &svg)), (svg.as_str(), plot())];
        write(out, &documents)
    }

    /// Writes `NAME.md` and charts by their names, as SVG and PNG, if they were asked for. `document` is
    /// given the command line and the time.
    pub(super) fn write_charts(
        &self,
        name: &str,
        document: impl FnOnce(&str, &str) -> String,
        charts: &[(String, Chart)],
    ) -> Result<(), Failure> {
        let Some(out) = &self.out else { return Ok(()) };
        let (command, when) = super::said();
        let mut documents = vec![(format!("{name}.md"), document(&command, &when).into_bytes())];
        for (name, chart) in charts {
            let (svg, png) = chart.pictures();
            documents.push((format!("{name}.svg"), svg.into_bytes()));
            documents.push((format!("{name}.png"), png));
        }
        write(out, &documents)
    }
}

/// A side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    First,
    Second,
}

/// Takes pairs of samples, whose order alternates. The first `warm_ups` do not count.
pub(super) async fn alternate<T>(
    run: &Run,
    rounds: u32,
    warm_ups: u32,
    mut sample: impl AsyncFnMut(Which) -> Result<T, Failure>,
) -> Result<Vec<(T, T)>, Failure> {
    run.steps(u64::from(2 * (rounds + warm_ups)));
    let mut pairs = Vec::new();
    for round in 0..rounds + warm_ups {
        let mut take = async |which| {
            let value = sample(which).await?;
            run.step();
            Ok::<T, Failure>(value)
        };
        let pair = if round % 2 == 0 {
            let first = take(Which::First).await?;
            (first, take(Which::Second).await?)
        } else {
            let second = take(Which::Second).await?;
            (take(Which::First).await?, second)
        };
        if round >= warm_ups {
            pairs.push(pair);
        }
    }
    Ok(pairs)
}

/// The error for an `--only` that no row has in its `part`.
pub(super) fn nothing_wanted(only: &str, bench: &str, part: &str) -> Failure {
    let why = format!(
        "none of them has {only:?} in its {part} (braid-lab bench {bench} --quick shows the {part}s)"
    );
    Failure::new(Exit::Usage, "find what to measure", why)
}

/// Default directory: in memory if so much is free there, which in containers it often is not.
fn usual(needed: u64) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let free = rustix::fs::statvfs(&memory).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    if free >= needed { memory } else { std::env::temp_dir() }
}
