//! `braid plan`: the plan sets of a request, as the client would run them.

use std::path::Path;

use braid_client::{Asked, Explained};
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::exit::Failure;
use crate::names::remote;
use crate::report::{Report, table};
use crate::size;

/// A plan set in `--json`.
#[derive(Debug, Serialize)]
struct Facts {
    segment: usize,
    generation: u32,
    stripes: usize,
    /// Exchanges with drives that must follow one another.
    round_trips: u32,
    read_bytes: u64,
    written_bytes: u64,
    scratch_bytes: u64,
    columns: Vec<Column>,
    /// The printed form.
    text: String,
}

/// What one drive does in it.
#[derive(Debug, Serialize)]
struct Column {
    column: usize,
    drive_id: String,
    reads: u32,
    writes: u32,
    read_bytes: u64,
    written_bytes: u64,
}

/// Runs the command.
pub(crate) async fn run(plan: args::Plan, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&plan.name)?;
    let client = connect::cluster(cluster).await?;
    let asked = match plan.direction {
        args::Direction::Read => Asked::Read,
        args::Direction::Write => Asked::Write,
    };
    let sets: Vec<Facts> =
        client.plan(&name, asked, plan.range, &plan.down).await?.iter().map(facts).collect();
    report.facts(&sets, |sets| {
        if sets.is_empty() {
            return "nothing to do: the range is past the end of the file\n".into();
        }
        sets.iter().map(show).collect::<Vec<_>>().join("\n")
    })
}

fn facts(explained: &Explained) -> Facts {
    let (set, totals) = (&explained.set, explained.set.totals());
    let columns = set.plans.iter().zip(&totals.columns).map(|(plan, column)| Column {
        column: column.column.index(),
        drive_id: plan.drive.to_string(),
        reads: column.reads,
        writes: column.writes,
        read_bytes: column.read_bytes,
        written_bytes: column.written_bytes,
    });
    Facts {
        segment: set.segment,
        generation: set.g.0,
        stripes: set.stripes.len(),
        round_trips: totals.round_trips,
        read_bytes: totals.read_bytes(),
        written_bytes: totals.written_bytes(),
        scratch_bytes: totals.scratch_bytes,
        columns: columns.collect(),
        text: explained.text.clone(),
    }
}

fn show(facts: &Facts) -> String {
    let rows = facts.columns.iter().map(|column| {
        vec![
            column.column.to_string(),
            column.drive_id.chars().take(8).collect(),
            column.reads.to_string(),
            size::show(column.read_bytes),
            column.writes.to_string(),
            size::show(column.written_bytes),
        ]
    });
    let totals = table(&["column", "drive", "reads", "bytes", "writes", "bytes"], &[0, 2, 3, 4, 5], rows);
    format!(
        "{}\n{totals}{} stripes, {} round trips, {} read, {} written, {} of scratch\n",
        facts.text.trim_end(),
        facts.stripes,
        facts.round_trips,
        size::show(facts.read_bytes),
        size::show(facts.written_bytes),
        size::show(facts.scratch_bytes)
    )
}
