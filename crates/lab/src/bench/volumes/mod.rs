//! `braid-lab bench volumes`: what volumes and drives do beside moving bytes. Each group of rows is a module
//! with a `measure`, and brings up the clusters that it needs.

mod clustered;
mod keys;
mod load;
mod names;
mod quotas;
mod reading;
mod snapshots;
mod tasks;

use std::path::Path;

use braid_bench::stripes::{Goal, show_figure};
use braid_bench::volumes::{LeftOut, Report as Found, Row, document};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};

use super::run::Run as Common;
use crate::args::BenchCluster;

/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (3 << 30, 1 << 30);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let common = Common::begin(&asked, NEEDED_BYTES)?;
    let found = Found::begin("volumes", &common.parent, common.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut run = Run { common, found };
    let ended = run.all().await;
    run.common.end();
    ended?;
    let Run { common, found } = run;
    if found.rows.is_empty() && found.left_out.is_empty() {
        return Err(common.nothing_wanted("volumes"));
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
        let ended = quotas::measure(self).await;
        self.ended(quotas::GROUP, ended)?;
        let ended = snapshots::measure(self).await;
        self.ended(snapshots::GROUP, ended)?;
        let ended = keys::measure(self).await;
        self.ended(keys::GROUP, ended)?;
        let ended = names::measure(self).await;
        self.ended(names::GROUP, ended)?;
        let ended = clustered::measure(self).await;
        self.ended(clustered::GROUP, ended)?;
        let ended = reading::measure(self).await;
        self.ended(reading::GROUP, ended)
    }

    /// Ends a group of rows: notes why the rest of it could not be measured, and writes what was found so
    /// far. The other groups can be measured still.
    fn ended(&mut self, group: &str, ended: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = ended {
            self.found.left_out.push(LeftOut { name: group.to_owned(), why: failure.to_string() });
        }
        let Run { common, found } = self;
        found.ran.end();
        common.write_charts(
            "volumes",
            |command, when| document(found, "Volumes and their drives", command, when),
            &[],
        )
    }

    /// Returns `full` in a full run and `quick` in a quick one.
    fn size<T>(&self, full: T, quick: T) -> T {
        self.common.size(full, quick)
    }

    /// Returns true if this row is to be measured.
    fn wants(&self, name: &str) -> bool {
        self.common.wants(name)
    }

    /// Adds a row, if it is wanted.
    fn add(&mut self, name: &str, found: String, value: f64, goal: Option<Goal>) {
        if self.wants(name) {
            self.found.rows.push(Row::new(name, found, value, goal));
        }
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
    let rows = found
        .rows
        .iter()
        .map(|row| vec![row.name.clone(), show_figure(row.value), row.show_goal(), row.found.clone()]);
    let mut text = format!("{}\n\n", super::head(&found.ran));
    text.push_str(&table(&["", "FIGURE", "GOAL", "FOUND"], &[1], rows));
    for LeftOut { name, why } in &found.left_out {
        text.push_str(&format!("not measured: {name}: {why}\n"));
    }
    if found.ran.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}
