//! Where, when and on what a bench of a cluster ran.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::error::Error;
use crate::machine::{self, Machine, MeasuredDir};

/// Where, when and on what a bench ran: the head of its report.
#[derive(Debug, Clone, Serialize)]
pub struct Conditions {
    /// What was measured.
    pub experiment: &'static str,
    /// The release that was measured.
    pub version: &'static str,
    /// The run did too little work to say anything about speed: it only tests that it runs.
    pub quick: bool,
    pub machine: Machine,
    /// The directory that the drives were in.
    pub place: MeasuredDir,
    /// Duration of the run in seconds.
    pub seconds: f64,
    #[serde(skip)]
    began: Instant,
}

impl Conditions {
    /// A run in `directory` that begins now.
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

    /// The run has ended.
    pub fn end(&mut self) {
        self.machine.load_after = machine::load();
        self.seconds = self.began.elapsed().as_secs_f64();
    }

    /// The head of a document in Markdown: its title, the command line, the date, the plot's file, if there
    /// is one, with what it shows, and the machine.
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
