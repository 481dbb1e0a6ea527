//! The place, time and machine of a cluster's benchmark.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::error::Error;
use crate::machine::{self, Machine, MeasuredDir};

/// The place, time and machine of a benchmark: the head of its report.
#[derive(Debug, Clone, Serialize)]
pub struct Conditions {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Release that was measured.
    pub version: &'static str,
    /// True if the run did too little work to say anything about speed: it only tests that the benchmark
    /// runs.
    pub quick: bool,
    pub machine: Machine,
    /// Directory that the drives were in.
    pub place: MeasuredDir,
    /// Duration of the run in seconds.
    pub seconds: f64,
    #[serde(skip)]
    began: Instant,
}

impl Conditions {
    /// The conditions of a run in `directory` that begins now.
    pub(crate) fn begin(
        experiment: &'static str,
        directory: &Path,
        quick: bool,
    ) -> Result<Conditions, Error> {
        let place = MeasuredDir::all(&[directory.to_owned()])?.remove(0);
        Ok(Conditions {
            experiment,
            version: env!("CARGO_PKG_VERSION"),
            quick,
            machine: Machine::here(),
            place,
            seconds: 0.0,
            began: Instant::now(),
        })
    }

    /// Ends the run: notes its duration and the load of the machine.
    pub fn end(&mut self) {
        self.machine.load_after = machine::load();
        self.seconds = self.began.elapsed().as_secs_f64();
    }

    /// The head of a document in Markdown: its title, the command line, the date, the machine, and the plot
    /// if there is one, as a description and the name of its file.
    pub(crate) fn head(&self, title: &str, command: &str, when: &str, plot: Option<(&str, &str)>) -> String {
        let machine = &self.machine;
        let place = &self.place;
        let plot = plot.map_or(String::new(), |(shows, plot)| format!("![{shows}]({plot})\n\n"));
        let mut text = format!(
            "# {title}\n\n\
             `{command}`, braid {}, {when}, {:.0} s. What each row does: docs/bench.md.\n\n\
             {plot}\
             | machine | |\n|---|---|\n| processor | {} ({} of them) |\n| memory | {} GiB |\n\
             | kernel | {} {} |\n| load, before and after | {}; {} |\n| drives in | {} ({}) |\n",
            self.version,
            self.seconds,
            machine.cpu,
            machine.cpus,
            machine.memory_bytes >> 30,
            machine.kernel,
            machine.architecture,
            machine.load_before,
            machine.load_after,
            place.directory.display(),
            place.file_system,
        );
        if self.quick {
            text.push_str("\n**A quick run: it says that the measurement works, nothing about speed.**\n");
        }
        text
    }
}
