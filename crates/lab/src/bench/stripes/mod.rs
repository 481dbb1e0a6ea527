//! `braid-lab bench stripes`: experiments E15, E16, E18 and E19. A manager, drives and clients are processes
//! of their own; each experiment is a module, and brings up the cluster it needs.

mod catch_up;
mod degraded;
mod easy_hard;
mod files;
mod rebuild;
mod updates;

use std::path::Path;

use braid_bench::stripes::{LeftOut, Question, Report as Found, Row, document, show_figure, show_value, svg};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};

pub(super) use files::{filled as fill, healthy_and_hit, job, read, write};

use super::hosts::Hosts;
use super::run::{Run as Common, Which, alternate};
use crate::args::BenchCluster;

/// Number of pairs that count.
const PAIRS: u32 = 9;
/// Number of pairs before them that do not count.
const WARM_UPS: u32 = 1;
/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (12 << 30, 1 << 30);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let common = Common::begin(&asked, NEEDED_BYTES)?;
    let found = Found::begin(&common.parent, common.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut run = Run { common, found };
    let ended = run.all().await;
    run.common.end();
    ended?;
    let Run { common, mut found } = run;
    found.ran.end();
    if found.rows.is_empty() && found.left_out.is_empty() {
        return Err(common.nothing_wanted("stripes"));
    }
    let documents = |command: &str, when: &str, plot: &str| document(&found, command, when, plot);
    common.write("stripes", documents, || svg(&found))?;
    report.facts(&found, text)
}

/// The run so far.
struct Run {
    common: Common,
    found: Found,
}

impl Run {
    async fn all(&mut self) -> Result<(), Failure> {
        easy_hard::measure(self).await?;
        catch_up::measure(self).await?;
        degraded::measure(self).await?;
        updates::measure(self).await?;
        rebuild::measure(self).await
    }

    /// Returns `full` in a full run and `quick` in a quick one.
    fn size<T>(&self, full: T, quick: T) -> T {
        self.common.size(full, quick)
    }

    /// Number of pairs of a row that count, and of warm-ups before them.
    fn rounds(&self) -> (u32, u32) {
        self.size((PAIRS, WARM_UPS), (1, 0))
    }

    fn wants(&self, question: &Question) -> bool {
        self.common.wants(&format!("{} {}", question.experiment, question.name))
    }

    /// Returns true if links can be limited for this row. If not, the row is left out, with the reason noted.
    fn may_limit(&mut self, question: &Question) -> bool {
        let why =
            if self.common.quick { Some("a quick run limits no links".to_owned()) } else { Hosts::lacking() };
        let Some(why) = why else { return true };
        let name = format!("{} {}", question.experiment, question.name);
        self.found.left_out.push(LeftOut { name, why });
        false
    }

    /// Adds a row whose samples were taken elsewhere.
    fn add(&mut self, question: &Question, pairs: &[(f64, f64)]) {
        if self.wants(question) {
            self.found.rows.push(Row::of(question, pairs));
        }
    }

    fn path(&self) -> &Path {
        self.common.path()
    }

    /// Shows the current activity beside the progress bar.
    fn tell(&self, what: impl Into<String>) {
        self.common.tell(what);
    }

    /// Measures a question by pairs of samples, whose order alternates.
    async fn pairs(
        &mut self,
        question: &Question,
        sample: impl AsyncFnMut(Which) -> Result<f64, Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(question) {
            return Ok(());
        }
        let (rounds, warm_ups) = self.rounds();
        self.tell(format!("{} {}", question.experiment, question.name));
        let pairs = alternate(&self.common, rounds, warm_ups, sample).await?;
        self.found.rows.push(Row::of(question, &pairs));
        Ok(())
    }
}

/// Formats the results as text.
fn text(found: &Found) -> String {
    let mut text = format!("{}\n", super::head(&found.ran));
    let header = ["", "", "RATIO", "MIN", "MAX", "90 %", "PAIRS", "GOAL", "FIRST", "", "SECOND", ""];
    text.push_str(&table(&header, &[2, 3, 4, 5, 6, 8, 10], found.rows.iter().map(cells)));
    for LeftOut { name, why } in &found.left_out {
        text.push_str(&format!("not measured: {name}: {why}\n"));
    }
    if found.ran.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let ratio = &row.ratio;
    let [low, high] = ratio.confidence_90.map(show_figure);
    vec![
        row.experiment.to_owned(),
        row.name.clone(),
        show_figure(ratio.median),
        show_figure(ratio.min),
        show_figure(ratio.max),
        format!("{low} .. {high}"),
        ratio.samples.to_string(),
        row.show_goal(),
        show_value(row.first.median, row.unit),
        row.first.name.to_owned(),
        show_value(row.second.median, row.unit),
        row.second.name.to_owned(),
    ]
}
