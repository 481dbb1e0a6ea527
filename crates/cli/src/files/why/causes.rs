//! The causes of a slow file, ranked. Each is a fact that was measured or that the manager told, with a
//! weight of how much it usually costs; what a weight is for is said where it is given.

use std::collections::BTreeMap;

use braid_client::analysis::{Bound, Limit, Work};
use braid_layout::{Column, DriveId};
use braid_wire::control::{DriveRow, DriveState, SegmentRow};
use braid_wire::data::ScrubPhase;
use serde::Serialize;

use super::Known;
use crate::files::stat::shape_facts;
use crate::output::report::count;
use crate::output::shell::quoted;
use crate::output::size;

/// Units up to this length make a large file's reads many small ones.
const UNIT_SMALL_BYTES: u32 = 64 << 10;
/// Size of files from which on that matters.
const LARGE_BYTES: u64 = 64 << 20;

/// One cause of slowness.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    /// The share of the time that it may explain, in percent: measured for `bound`, an estimate otherwise.
    weight: u64,
    /// A word for programs, such as `bound`, `degraded` or `slow`.
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    /// The remedy, for people.
    pub(crate) remedy: String,
}

fn cause(weight: u64, kind: &'static str, what: String, remedy: impl Into<String>) -> Cause {
    Cause { weight, kind, what, remedy: remedy.into() }
}

/// All causes, the most likely first.
pub(super) fn ranked(
    known: &Known,
    work: &Work,
    bound: &Bound,
    names: &BTreeMap<DriveId, String>,
) -> Vec<Cause> {
    let mut all = vec![measured(bound, names)];
    all.extend(cached(work));
    known.row.segments.iter().for_each(|segment| columns(segment, &mut all));
    known.drives.iter().for_each(|drive| of_drive(drive, &mut all));
    for row in &known.healing {
        let damaged = row.progress.damaged;
        if row.stale > 0 {
            // The healer takes its share of the disk on all drives of a file.
            let what = format!(
                "{} brings {} up to date, which reads from the other drives too",
                row.name,
                count(row.stale, "component")
            );
            all.push(cause(35, "healing", what, "it ends by itself: `braid heal --watch`; --rate bounds it"));
        }
        if damaged > 0 {
            let what = format!(
                "{} has {} that could not be repaired so far",
                row.name,
                count(damaged, "damaged unit")
            );
            all.push(cause(45, "damaged", what, "reads decode around them: `braid heal` says why they stay"));
        }
    }
    if known.is_laid_out {
        let what =
            "the file is being laid out anew: its bytes are read and written in the background".to_owned();
        all.push(cause(40, "relayout", what, "it ends by itself: `braid relayout --status`"));
    }
    all.extend(reserved(known));
    all.extend(layout(known));
    all.sort_by_key(|cause| std::cmp::Reverse(cause.weight));
    all
}

/// The part that bounded the reads. It is first unless something is known to be wrong.
fn measured(bound: &Bound, names: &BTreeMap<DriveId, String>) -> Cause {
    let what = bound.sentence(|drive| names.get(&drive).cloned().unwrap_or_else(|| drive.short()));
    let weight = bound.busy_us.saturating_mul(100) / bound.wall_us.max(1);
    let remedy = match bound.limit {
        Limit::Processor => "read from a machine with a faster processor, or from several",
        Limit::Disk(_) => {
            "if the others are quicker: `braid drive ls --cost` compares them; else more drives, or wider layouts"
        }
        Limit::Commit(_) => "a quicker disk for that drive's log, or larger writes",
        Limit::Queue(_) => "`braid drive ls` shows how busy it is; a reserved rate goes before others",
        Limit::Within(_) => "whole stripes are written without that wait: larger writes",
        Limit::Link => "the network gives no more: look at the links of this machine and of the drives",
        Limit::Session => "a program that keeps the client open makes no new connections",
        Limit::Nothing => "read more at a time, or ahead of need",
    };
    cause(weight.clamp(20, 90), "bound", what, remedy)
}

/// A word of caution if the disks had nothing to do.
fn cached(work: &Work) -> Option<Cause> {
    let reads = work.spans.iter().filter_map(|span| span.times).count();
    let cached = work.spans.iter().filter(|span| span.times.is_some_and(|times| times.cached)).count();
    if reads == 0 || cached * 2 < reads {
        return None;
    }
    let what =
        format!("{cached} of {reads} requests were answered from memory: this says little of the disks");
    Some(cause(5, "cached", what, "name a range that was not read lately, with --range"))
}

fn columns(segment: &SegmentRow, all: &mut Vec<Cause>) {
    let rows = (0..).map(Column).zip(&segment.columns);
    for (column, row) in rows {
        let name = &row.drive_name;
        let (weight, what) = if row.state != DriveState::Up {
            // A read of its units reads all others of the stripe.
            (80, format!("{name} is away: what it holds is computed from the other drives' units"))
        } else if !segment.set.contains(column) {
            (
                75,
                format!(
                    "the column on {name} is stale: what it holds is computed from the other drives' units"
                ),
            )
        } else if segment.joining.contains(column) {
            (60, format!("the column on {name} is being brought up to date, and is not read until it is"))
        } else {
            continue;
        };
        let remedy = "`braid status` says what mends it";
        all.push(cause(weight, "degraded", what, remedy));
    }
}

fn of_drive(row: &DriveRow, all: &mut Vec<Cause>) {
    let name = &row.name;
    if row.stalled_ms > 0 {
        let what = format!("{name}'s disk hangs, for {} s now", row.stalled_ms / 1000);
        all.push(cause(95, "hangs", what, format!("look at the kernel's log on {}", row.host)));
    }
    if !row.slow.is_empty() {
        all.push(cause(70, "slow", row.slow.clone(), "`braid drive ls` shows its times beside the others'"));
    }
    if let Some(parts) = row.parts.as_ref().filter(|parts| parts.derate < 1000) {
        let what = format!(
            "{name} is derated to {} % of its calibrated capacity: {}",
            parts.derate / 10,
            parts.derate_cause
        );
        let remedy = format!("look for what else uses its disk on {}", row.host);
        all.push(cause(65, "derated", what, remedy));
    }
    if row.scrub.phase == ScrubPhase::Running {
        let what = format!("{name} is being scrubbed, at {}/s at most", size::show(row.scrub.rate));
        let remedy = format!("it ends by itself: `braid scrub {} --status`", quoted(name.as_ref()));
        all.push(cause(25, "scrub", what, remedy));
    }
    if row.scrub.damaged > 0 {
        let what =
            format!("{name} has {}, which readers decode around", count(row.scrub.damaged, "damaged unit"));
        all.push(cause(45, "damaged", what, "they are rebuilt in place: `braid heal --watch`"));
    }
    if row.draining {
        let what = format!("{name} is being drained: its columns move to other drives");
        all.push(cause(30, "drained", what, format!("it ends by itself; `braid drive drain {name} --stop`")));
    }
}

/// Rates that go before this file's requests.
fn reserved(known: &Known) -> Option<Cause> {
    let others: Vec<String> = known
        .reservations
        .iter()
        .filter(|row| row.file != known.row.file)
        .map(|row| format!("{}/s on {}", size::show(row.rate), String::from_utf8_lossy(&row.path)))
        .collect();
    let one = others.first()?;
    let what = format!(
        "{} of others on its drives before it: {one}",
        if others.len() == 1 {
            "a reserved rate goes".to_owned()
        } else {
            format!("{} reserved rates go", others.len())
        }
    );
    Some(cause(30, "reserved", what, "reserve a rate for this file too, or see `braid reserve ls`"))
}

/// Units that do not suit the file.
fn layout(known: &Known) -> Vec<Cause> {
    let size_bytes = known.row.size();
    let mut found = Vec::new();
    for segment in &known.row.segments {
        let shape = shape_facts(&segment.shape);
        let unit = shape.unit_bytes;
        if size_bytes > 0 && size_bytes <= u64::from(unit) && shape.data_columns > 1 {
            let what = format!(
                "the file of {} fits one unit of {}: one drive serves all of it",
                size::show(size_bytes),
                size::show(u64::from(unit))
            );
            found.push(cause(
                30,
                "unit",
                what,
                "smaller units would use more drives: `braid relayout --scheme S --unit 64K`",
            ));
        } else if unit <= UNIT_SMALL_BYTES && size_bytes >= LARGE_BYTES {
            let what =
                format!("units of {} make many small requests of a large file", size::show(u64::from(unit)));
            found.push(cause(
                25,
                "unit",
                what,
                "`braid relayout --scheme S --unit 512K` makes fewer of them",
            ));
        }
    }
    if known.row.segments.len() > 1 {
        let what = format!("the file has {} layouts, one after another", known.row.segments.len());
        found.push(cause(10, "layouts", what, "`braid relayout` makes one of them"));
    }
    found
}
