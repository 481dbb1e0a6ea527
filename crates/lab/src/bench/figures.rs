//! The runner of benches whose rows are figures with goals: a table, and a document.

use std::path::Path;

use braid_bench::stripes::{Goal, show_figure};
use braid_bench::volumes::{LeftOut, Report as Found, Row, document};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};
use braid_draw::Chart;

pub(super) use super::ratios::Bench;
use super::run::Run as Common;
use crate::args::BenchCluster;

/// The run so far.
pub(super) struct Run {
    pub(super) common: Common,
    found: Found,
    bench: Bench,
    /// Pictures by their names, which documents show.
    pub(super) charts: Vec<(String, Chart)>,
}

/// Runs a bench, whose groups of rows `measure` takes, and reports.
pub(super) async fn run(
    bench: Bench,
    asked: BenchCluster,
    report: Report,
    measure: impl AsyncFnOnce(&mut Run) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let common = Common::begin(&asked, bench.needed)?;
    let found = Found::begin(bench.name, &common.parent, common.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut run = Run { common, found, bench, charts: Vec::new() };
    let ended = measure(&mut run).await;
    run.common.end();
    ended?;
    let Run { common, found, bench, .. } = run;
    if found.rows.is_empty() && found.left_out.is_empty() {
        return Err(common.nothing_wanted(bench.name));
    }
    report.facts(&found, text)
}

impl Run {
    /// Ends a group of rows: notes why the rest of it could not be measured, and writes what was found so
    /// far. The other groups can be measured still.
    pub(super) fn ended(&mut self, group: &str, ended: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = ended {
            self.found.left_out.push(LeftOut { name: group.to_owned(), why: failure.to_string() });
        }
        let Run { common, found, bench, charts } = self;
        found.ran.end();
        let show = |(name, chart): &(String, Chart)| format!("\n![{}]({name}.svg)\n", chart.title);
        let pictures: String = charts.iter().map(show).collect();
        let document = |command: &str, when: &str| document(found, bench.title, command, when) + &pictures;
        common.write_charts(bench.name, document, charts)
    }

    /// Returns `full` in a full run and `quick` in a quick one.
    pub(super) fn size<T>(&self, full: T, quick: T) -> T {
        self.common.size(full, quick)
    }

    /// Returns true if this row is to be measured.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.common.wants(name)
    }

    /// Adds a row, if it is wanted.
    pub(super) fn add(&mut self, name: &str, found: String, value: f64, goal: impl Into<Option<Goal>>) {
        if self.wants(name) {
            self.add_all(vec![Row::new(name, found, value, goal.into())]);
        }
    }

    /// Adds rows, which are wanted.
    pub(super) fn add_all(&mut self, rows: Vec<Row>) {
        self.found.rows.extend(rows);
    }

    pub(super) fn path(&self) -> &Path {
        self.common.path()
    }

    /// Shows the current activity beside the progress bar.
    pub(super) fn tell(&self, what: impl Into<String>) {
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
