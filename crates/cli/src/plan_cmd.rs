//! `braid plan`: the plan sets of a request, as the client would run them.

use std::collections::BTreeMap;
use std::path::Path;

use braid_client::{Asked, Client, Explained};
use braid_layout::DriveId;
use braid_wire::control::{DriveRow, StatRow};
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::exit::Failure;
use crate::names::remote;
use crate::report::Report;

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
    drive: String,
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
    let names = drive_names(&client.stat(&name).await?);
    let down = on_file(&client, &names, plan.down).await?;
    let explained = client.plan(&name, asked, plan.range, &down).await?;
    let sets: Vec<Facts> = explained.iter().map(|set| facts(set, &names)).collect();
    report.facts(&sets, |sets| {
        if sets.is_empty() {
            return "nothing to do: the range is past the end of the file\n".into();
        }
        sets.iter().map(show).collect::<Vec<_>>().join("\n")
    })
}

/// Without the drives that are there but hold no column of the file: that they are away changes nothing.
async fn on_file(
    client: &Client,
    names: &BTreeMap<DriveId, String>,
    down: Vec<String>,
) -> Result<Vec<String>, Failure> {
    if down.is_empty() {
        return Ok(down);
    }
    let drives = client.status().await?.drives;
    let called = |row: &DriveRow, name: &str| {
        row.name == name || row.drive.to_string() == name || row.drive.short() == name
    };
    let elsewhere =
        |name: &String| drives.iter().any(|row| called(row, name) && !names.contains_key(&row.drive));
    Ok(down.into_iter().filter(|name| !elsewhere(name)).collect())
}

/// What people call the drives of a file.
fn drive_names(row: &StatRow) -> BTreeMap<DriveId, String> {
    let columns = row.segments.iter().flat_map(|segment| &segment.columns);
    columns.map(|column| (column.drive, column.drive_name.clone())).collect()
}

fn facts(explained: &Explained, names: &BTreeMap<DriveId, String>) -> Facts {
    let (set, totals) = (&explained.set, explained.set.totals());
    let columns = set.plans.iter().zip(&totals.columns).map(|(plan, column)| Column {
        column: column.column.index(),
        drive: names.get(&plan.drive).cloned().unwrap_or_default(),
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

/// The printed form, which has the totals, and the names of the drives that it calls by their identities.
fn show(facts: &Facts) -> String {
    let drive = |column: &Column| format!("{} is {:.8}", column.drive, column.drive_id);
    let drives: Vec<String> = facts.columns.iter().map(drive).collect();
    format!("{}\n{}\n", facts.text.trim_end(), drives.join(", "))
}
