//! `braid stat`: size, layout and components of a name.

use std::fmt::Write;
use std::path::Path;

use braid_client::Name;
use braid_layout::{Column, Scheme};
use braid_wire::control::{DriveState, SegmentRow, ShapeSpec, StatRow};
use serde::Serialize;

use crate::files::list::{AttributeFacts, kind_shown};
use crate::files::mode;
use crate::files::names::{NameFacts, remote};
use crate::output::exit::Failure;
use crate::output::report::{Report, table};
use crate::output::{size, time};
use crate::{args, connect};

/// Facts about one name; a line of `--json`.
#[derive(Debug, Serialize)]
struct StatFacts {
    #[serde(flatten)]
    name: NameFacts,
    kind: &'static str,
    file: u64,
    size: u64,
    created_ms: u64,
    modified_ms: i64,
    #[serde(flatten)]
    attributes: AttributeFacts,
    /// Permission bits as `ls -l` shows them.
    #[serde(skip)]
    permissions: String,
    generation: u32,
    segments: Vec<Segment>,
}

#[derive(Debug, Serialize)]
struct Segment {
    start: u64,
    /// End of the segment in the file; absent for the last one, which has no end.
    end: Option<u64>,
    shape: ShapeFacts,
    columns: Vec<ColumnFacts>,
}

/// A shape (scheme, columns, unit size), in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct ShapeFacts {
    pub(crate) scheme: String,
    pub(crate) data_columns: u8,
    pub(crate) parity_columns: u8,
    pub(crate) unit_bytes: u32,
}

#[derive(Debug, Serialize)]
struct ColumnFacts {
    column: usize,
    drive: String,
    drive_id: String,
    drive_state: &'static str,
    /// The addresses of the drive, with commas between.
    address: String,
    object: u64,
    /// `ready`, `joining` (being brought up to date) or `out` (stale).
    state: &'static str,
}

/// Runs the command.
pub(crate) async fn run(stat: args::Stat, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let names = stat.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    for name in names {
        let row = client.stat_itself(&name).await?;
        report.line(&facts(&name, &row), show)?;
    }
    Ok(())
}

fn facts(name: &Name, row: &StatRow) -> StatFacts {
    StatFacts {
        name: NameFacts::new(name),
        kind: kind_shown(row.kind()),
        file: row.file.0,
        size: row.size(),
        created_ms: row.created_ms(),
        modified_ms: row.attributes.modified_ns / 1_000_000,
        attributes: AttributeFacts::of(&row.attributes, &row.target),
        permissions: mode::show(row.attributes.mode, row.kind()),
        generation: row.g.0,
        segments: row.segments.iter().map(segment).collect(),
    }
}

fn segment(row: &SegmentRow) -> Segment {
    let columns = row.columns.iter().zip((0..).map(Column)).map(|(column, index)| ColumnFacts {
        column: index.index(),
        drive: column.drive_name.clone(),
        drive_id: column.drive.to_string(),
        drive_state: show_state(column.state),
        address: column.addresses.to_string(),
        object: column.object.0,
        state: match (row.set.contains(index), row.joining.contains(index)) {
            (false, _) => "out",
            (true, true) => "joining",
            (true, false) => "ready",
        },
    });
    let end = (row.end != u64::MAX).then_some(row.end);
    Segment { start: row.start, end, shape: shape_facts(&row.shape), columns: columns.collect() }
}

/// A shape's facts; an unknown scheme is shown by its number.
pub(crate) fn shape_facts(spec: &ShapeSpec) -> ShapeFacts {
    let scheme = Scheme::from_number(spec.scheme)
        .map_or_else(|_| format!("scheme-{}", spec.scheme), |scheme| scheme.to_string());
    ShapeFacts { scheme, data_columns: spec.k, parity_columns: spec.m, unit_bytes: spec.unit_bytes }
}

/// A shape in a few words: `raid5 4+1, unit 512 KiB`.
pub(crate) fn show_shape(facts: &ShapeFacts) -> String {
    let ShapeFacts { scheme, data_columns: k, parity_columns: m, unit_bytes } = facts;
    let parity = if *m == 0 { String::new() } else { format!("+{m}") };
    format!("{scheme} {k}{parity}, unit {}", size::show(u64::from(*unit_bytes)))
}

/// State of a drive whose place another has taken.
const REPLACED: &str = "replaced";

/// A drive's state as one word.
pub(crate) fn show_state(state: DriveState) -> &'static str {
    match state {
        DriveState::Up => "up",
        DriveState::Away => "away",
        DriveState::Replaced => REPLACED,
    }
}

fn show(facts: &StatFacts) -> String {
    let mut text = format!(
        "{}: {} {} {}, {} ({} bytes), modified {}",
        facts.name.shown,
        facts.permissions,
        facts.kind,
        facts.file,
        size::show(facts.size),
        facts.size,
        time::show(u64::try_from(facts.modified_ms).unwrap_or(0))
    );
    for segment in &facts.segments {
        let end = segment.end.map_or_else(|| "end".to_owned(), |end| end.to_string());
        let _ = write!(
            text,
            "\nbytes {}..{end}: {}, generation {}\n",
            segment.start,
            show_shape(&segment.shape),
            facts.generation
        );
        let rows = segment.columns.iter().map(|column| {
            vec![
                column.column.to_string(),
                column.state.to_owned(),
                column.drive.clone(),
                column.drive_state.to_owned(),
                column.address.clone(),
                column.object.to_string(),
            ]
        });
        let header = ["column", "state", "drive", "drive is", "address", "object"];
        text.push_str(table(&header, &[0, 5], rows).trim_end());
    }
    text
}
