//! `braid-lab bench promises`: experiment E14, promised rates. A manager, drives with modelled disks, and
//! clients are processes of their own; each group of rows is a module, and brings up the cluster it needs.

mod limits;
mod links;
mod mixed;
mod rebuild;
mod setup;
mod streams;

use std::path::Path;

use braid_bench::promises::{Goal, LeftOut, Plot, Report as Found, Row, document, lateness_chart};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};

use super::run::Run as Common;
use crate::args::BenchCluster;
use setup::{DISKS, MANY};
pub(super) use setup::{Disks, FLASH, SPINDLE, calibrate, show};

/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (8 << 30, 2 << 30);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let common = Common::begin(&asked, NEEDED_BYTES)?;
    let mut found = Found::begin(&common.parent, common.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    found.disks = DISKS.iter().map(|disks| (disks.name, disks.model)).collect();
    let mut run = Run { common, found };
    let ended = run.all().await;
    run.common.end();
    ended?;
    let Run { common, found } = run;
    if found.rows.is_empty() && found.left_out.is_empty() {
        return Err(common.nothing_wanted("promises"));
    }
    report.facts(&found, text)
}

/// The run so far.
struct Run {
    common: Common,
    found: Found,
}

impl Run {
    async fn all(&mut self) -> Result<(), Failure> {
        let ended = mixed::measure(self, &FLASH).await;
        self.ended(mixed::GROUP, &FLASH, ended)?;
        let ended = limits::measure(self, &FLASH).await;
        self.ended(limits::GROUP, &FLASH, ended)?;
        let ended = streams::measure(self, &MANY).await;
        self.ended(streams::GROUP, &MANY, ended)?;
        let ended = links::measure(self, &MANY).await;
        self.ended(links::GROUP, &MANY, ended)?;
        let ended = mixed::measure(self, &SPINDLE).await;
        self.ended(mixed::GROUP, &SPINDLE, ended)
    }

    /// Ends a group of rows: notes why the rest of it could not be measured, and writes what was found so
    /// far. The other groups can be measured still.
    fn ended(&mut self, group: &str, disks: &Disks, ended: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = ended {
            self.leave_out(group, disks.name, failure.to_string());
        }
        let Run { common, found } = self;
        found.ran.end();
        let charts: Vec<_> =
            found.plots.iter().map(|plot| (plot.name.clone(), lateness_chart(plot))).collect();
        common.write_charts("promises", |command, when| document(found, command, when), &charts)
    }

    /// Returns `full` in a full run and `quick` in a quick one.
    fn size<T>(&self, full: T, quick: T) -> T {
        self.common.size(full, quick)
    }

    /// Returns true if any of these rows is to be measured.
    fn wants(&self, names: &[&str], disks: &str) -> bool {
        names.iter().any(|name| self.common.wants(&format!("{name}, {disks}")))
    }

    /// Adds a row, if it is wanted.
    fn add(&mut self, name: &str, disks: &'static str, found: String, value: f64, goal: Option<Goal>) {
        if self.wants(&[name], disks) {
            self.found.rows.push(Row::new(name, disks, found, value, goal));
        }
    }

    fn leave_out(&mut self, name: &str, disks: &str, why: impl Into<String>) {
        self.found.left_out.push(LeftOut { name: format!("{name}, {disks}"), why: why.into() });
    }

    fn plot(&mut self, plot: Plot) {
        self.found.plots.push(plot);
    }

    fn path(&self) -> &Path {
        self.common.path()
    }

    /// Shows the current activity beside the progress bar.
    fn tell(&self, what: impl Into<String>) {
        self.common.tell(what);
    }
}

/// Formats the results as text.
fn text(found: &Found) -> String {
    let mut text = format!("{}\n\n", super::head(&found.ran));
    for (name, model) in &found.disks {
        text.push_str(&format!("{name}: {model}\n"));
    }
    let rows = found
        .rows
        .iter()
        .map(|row| vec![row.name.clone(), row.disks.to_owned(), row.found.clone(), row.show_goal()]);
    text.push_str(&format!("\n{}", table(&["", "DISKS", "FOUND", "GOAL"], &[], rows)));
    for LeftOut { name, why } in &found.left_out {
        text.push_str(&format!("not measured: {name}: {why}\n"));
    }
    if found.ran.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}
