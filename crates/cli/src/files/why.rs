//! `braid why`: why one file is slow. It reads a little of the file, looks at what the manager knows of the
//! file's drives, and ranks the causes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use braid_client::Client;
use braid_layout::DriveId;
use braid_wire::control::{DriveRow, EntryKind, HealRow, ReservationRow, StatRow};
use serde::Serialize;

use crate::files::analyze::{self, AnalysisFacts};
use crate::files::names::{remote, show_remote};
use crate::files::stat::{shape_facts, show_shape};
use crate::output::exit::{Exit, Failure};
use crate::output::report::Report;
use crate::output::size;
use crate::{args, connect};

mod causes;

use causes::Cause;

/// Bytes that are read at each place.
const PLACE_BYTES: u64 = 4 << 20;
/// Places at which a file is read.
const PLACES: u64 = 4;

/// All that is known of a file and its drives.
struct Known {
    row: StatRow,
    /// The file's drives.
    drives: Vec<DriveRow>,
    /// Those of them that bring columns up to date.
    healing: Vec<HealRow>,
    /// Reservations with a plan on one of the drives.
    reservations: Vec<ReservationRow>,
    /// The file has a column that moves, or gets another layout.
    is_laid_out: bool,
}

/// The answer, in `--json`.
#[derive(Debug, Serialize)]
struct WhyFacts {
    name: String,
    size: u64,
    layout: Vec<String>,
    /// Ranges of the file that were read.
    read: Vec<Range<u64>>,
    /// Bytes a second of that.
    bytes_per_second: u64,
    /// The causes, the most likely first.
    causes: Vec<Cause>,
    analysis: AnalysisFacts,
}

/// Runs the command.
pub(crate) async fn run(asked: args::Why, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&asked.name)?;
    let client = connect::cluster(cluster).await?;
    let row = client.stat(&name).await?;
    let what = || format!("say why {} is slow", show_remote(&name));
    if row.kind() != EntryKind::File {
        return Err(Failure::new(Exit::Conflict, what(), "it is a directory: name one file"));
    }
    let ranges = places(row.size(), asked.range);
    if ranges.is_empty() {
        let why = format!("there is nothing to read there: the file has {} bytes", row.size());
        return Err(Failure::new(Exit::Conflict, what(), why));
    }
    let known = look(&client, row).await?;
    let work = analyze::read(&client, &name, &ranges, &[]).await?;
    let names: BTreeMap<DriveId, String> =
        known.drives.iter().map(|row| (row.drive, row.name.clone())).collect();
    let bound = work.bound();
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let facts = WhyFacts {
        name: show_remote(&name),
        size: known.row.size(),
        layout: known.row.segments.iter().map(|of| show_shape(&shape_facts(&of.shape))).collect(),
        bytes_per_second: bytes.saturating_mul(1_000_000).checked_div(work.wall_us).unwrap_or(0),
        read: ranges,
        causes: causes::ranked(&known, &work, &bound, &names),
        analysis: analyze::facts(&work, &bound, &names, work.spans.len()),
    };
    report.facts(&facts, show)
}

/// Ranges to be read: that asked for, or a few places spread over the file.
fn places(size: u64, asked: Option<Range<u64>>) -> Vec<Range<u64>> {
    let within = |range: Range<u64>| range.start..range.end.min(size);
    let all: Vec<Range<u64>> = match asked {
        Some(range) => std::iter::once(within(range)).collect(),
        None if size <= PLACES * PLACE_BYTES => std::iter::once(0..size).collect(),
        None => (0..PLACES)
            .map(|n| (size - PLACE_BYTES) / (PLACES - 1) * n)
            .map(|at| within(at..at + PLACE_BYTES))
            .collect(),
    };
    all.into_iter().filter(|range| !range.is_empty()).collect()
}

async fn look(client: &Client, row: StatRow) -> Result<Known, Failure> {
    let holds = |drive: DriveId| row.segments.iter().flat_map(|of| &of.columns).any(|of| of.drive == drive);
    let mut drives = connect::status_soon(client).await?.drives;
    drives.retain(|drive| holds(drive.drive));
    let mut healing = client.heal_status_for_now().await?.drives;
    healing.retain(|of| holds(of.drive) && (of.stale > 0 || of.progress.damaged > 0));
    let mut reservations = client.reservations().await?.reservations;
    reservations.retain(|of| of.plan.drives.iter().any(|promise| holds(promise.drive)));
    let after = braid_layout::FileId(row.file.0.saturating_sub(1));
    let relayouts = client.relayouts(after, 1).await?.rows;
    let is_laid_out = relayouts.iter().any(|of| of.file == row.file);
    Ok(Known { row, drives, healing, reservations, is_laid_out })
}

fn show(facts: &WhyFacts) -> String {
    let places: Vec<String> =
        facts.read.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
    let mut text = format!(
        "{}: {}, {}\nread bytes {} and dropped them: {}/s\n\n{}\n",
        facts.name,
        size::show(facts.size),
        facts.layout.join("; "),
        places.join(", "),
        size::show(facts.bytes_per_second),
        analyze::show(&facts.analysis).trim_end()
    );
    for (number, cause) in (1..).zip(&facts.causes) {
        text += &format!("\n{number}. {}\n   {}\n", cause.what, cause.remedy);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_read_at_both_ends_and_in_between() {
        let size = 1 << 30;
        let ranges = places(size, None);
        assert_eq!(ranges.len(), 4);
        assert_eq!((ranges[0].start, ranges[0].end), (0, PLACE_BYTES));
        assert!(ranges[3].end <= size && ranges[3].end > size - 4);
        let ends = |asked| places(10, asked).iter().map(|range| (range.start, range.end)).collect::<Vec<_>>();
        assert_eq!((ends(None), ends(Some(4..99))), (vec![(0, 10)], vec![(4, 10)]));
        assert!(places(0, None).is_empty() && places(10, Some(10..20)).is_empty());
    }
}
