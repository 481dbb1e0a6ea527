//! `braid snapshot keep`: schedules of snapshots.

use braid_client::{Client, Name};
use braid_wire::control::{KeepCounts, ScheduleRow};
use serde::Serialize;

use crate::output::exit::Failure;
use crate::output::report::{Report, table};
use crate::output::time;

/// A schedule in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    /// The volume or directory.
    place: String,
    /// The counts that are kept, as they are typed.
    keep: String,
    hours: u32,
    days: u32,
    weeks: u32,
    /// Snapshots of the schedule that are there.
    there: u32,
    /// Time of the next one, in milliseconds since 1970.
    next_ms: u64,
    /// The reason why the last one could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Shows the schedules of a volume, of a directory, or all.
pub(crate) async fn show(client: &Client, of: Option<&Name>, report: Report) -> Result<(), Failure> {
    let mut rows = client.snapshot_schedules(of.map(Name::volume)).await?;
    if let Some(directory) = of.filter(|name| !name.is_root()) {
        rows.retain(|row| row.place == directory.to_string());
    }
    let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
    report.facts(&rows, |rows| {
        if rows.is_empty() {
            return "no schedules\n".to_owned();
        }
        let cells = rows.iter().map(|row| {
            let next = if row.next_ms == 0 { "now".to_owned() } else { time::show(row.next_ms) };
            let problem = row.problem.clone().unwrap_or_default();
            vec![row.place.clone(), row.keep.clone(), row.there.to_string(), next, problem]
        });
        table(&["place", "keeps", "there", "next", "problem"], &[2], cells)
    })
}

impl From<ScheduleRow> for Row {
    fn from(row: ScheduleRow) -> Row {
        let ScheduleRow { place, keep, there, next_ms, problem } = row;
        let KeepCounts { hours, days, weeks } = keep;
        let problem = Some(problem).filter(|problem| !problem.is_empty());
        Row { place, keep: text(keep), hours, days, weeks, there, next_ms, problem }
    }
}

/// Counts as they are typed.
fn text(keep: KeepCounts) -> String {
    let parts = [(keep.hours, 'h'), (keep.days, 'd'), (keep.weeks, 'w')];
    let there = parts.iter().filter(|(count, _)| *count > 0);
    there.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().join(",")
}

/// Reads counts such as `24h,7d,4w`; `none` keeps nothing.
pub(crate) fn parse(text: &str) -> Result<KeepCounts, String> {
    let mut keep = KeepCounts { hours: 0, days: 0, weeks: 0 };
    if text == "none" {
        return Ok(keep);
    }
    let form = "write counts of hours, days and weeks such as 24h,7d,4w, or none";
    for part in text.split(',') {
        let of = match part.chars().last() {
            Some('h') => &mut keep.hours,
            Some('d') => &mut keep.days,
            Some('w') => &mut keep.weeks,
            _ => return Err(form.to_owned()),
        };
        let count: u32 = part[..part.len() - 1].parse().map_err(|_| form.to_owned())?;
        if count == 0 || *of != 0 {
            return Err(format!("{form}, each once and at least 1"));
        }
        *of = count;
    }
    Ok(keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_shown() {
        for text in ["24h,7d,4w", "1h", "30d", "2h,52w"] {
            assert_eq!(super::text(parse(text).expect("good")), text);
        }
        assert_eq!(parse("4w,24h").map(text), Ok("24h,4w".to_owned()));
        assert_eq!(parse("none"), Ok(KeepCounts { hours: 0, days: 0, weeks: 0 }));
        for bad in ["", "24", "h", "0h", "1h,1h", "24h,", "1y", "-1d", "5000000000h", "1h none", "ä"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
