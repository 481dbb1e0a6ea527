//! What the benches of a cluster have in common: where they run, which rows are wanted, and their progress.

use std::fs;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::BenchCluster;
use crate::machine::temporary_dir::{OnDrop, TemporaryDir};
use crate::output::exit::{Doing, Exit, Failure};

/// A run of a bench: a temporary directory that goes with it, and what was asked for.
pub(super) struct Run {
    dir: TemporaryDir,
    /// The directory that the temporary one is in.
    pub(super) parent: PathBuf,
    /// A run that does too little to say anything about speed.
    pub(super) quick: bool,
    only: Option<String>,
    out: Option<PathBuf>,
    bar: ProgressBar,
}

impl Run {
    /// Checks where to write the results and makes a directory with so many bytes free, in a full run and in
    /// a quick one.
    pub(super) fn begin(asked: &BenchCluster, (full, quick): (u64, u64)) -> Result<Run, Failure> {
        prepare_out(asked.out.as_deref())?;
        let needed = if asked.quick { quick } else { full };
        let parent = asked.dir.clone().unwrap_or_else(|| usual(needed));
        let dir = TemporaryDir::make(&parent, "bench", needed, OnDrop::Remove)?;
        let only = asked.only.clone();
        let out = asked.out.clone();
        Ok(Run { dir, parent, quick: asked.quick, only, out, bar: super::bar() })
    }

    /// The first of two in a full run, the second in a quick one.
    pub(super) fn size<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether the row of this name is to be measured.
    pub(super) fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|only| title.contains(only))
    }

    /// The error when nothing was asked for that exists.
    pub(super) fn nothing_wanted(&self, bench: &str) -> Failure {
        nothing_wanted(self.only.as_deref().unwrap_or_default(), bench, "name")
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Says what goes on.
    pub(super) fn tell(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// So many steps follow.
    pub(super) fn steps(&self, count: u64) {
        self.bar.set_length(count);
        self.bar.set_position(0);
    }

    /// One of them is done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// Nothing more is shown.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Writes `NAME.md`, `NAME.json` and `NAME.svg`, if they were asked for. `document` is given the command
    /// line, the time and the plot's file.
    pub(super) fn write<T: Serialize>(
        &self,
        name: &str,
        found: &T,
        document: impl FnOnce(&str, &str, &str) -> String,
        plot: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(out) = &self.out else { return Ok(()) };
        let (command, when) = super::said();
        let [text, json, svg] = ["md", "json", "svg"].map(|kind| format!("{name}.{kind}"));
        let documents = [
            (text.as_str(), document(&command, &when, &svg)),
            (json.as_str(), super::json(found)?),
            (svg.as_str(), plot()),
        ];
        super::write(out, &documents)
    }
}

/// Makes the directory for the results: checked before minutes of work, not after.
pub(crate) fn prepare_out(out: Option<&Path>) -> Result<(), Failure> {
    out.map_or(Ok(()), |out| fs::create_dir_all(out).doing(|| format!("make {}", out.display())))
}

/// The error when no row has what `--only` asks for in its `part`.
pub(super) fn nothing_wanted(only: &str, bench: &str, part: &str) -> Failure {
    let why =
        format!("none of them has {only:?} in its {part} (braid bench {bench} --quick shows the {part}s)");
    Failure::new(Exit::Usage, "find what to measure", why)
}

/// Memory, if there is so much: containers often have little of it.
fn usual(needed: u64) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let free = rustix::fs::statvfs(&memory).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    if free >= needed { memory } else { std::env::temp_dir() }
}
