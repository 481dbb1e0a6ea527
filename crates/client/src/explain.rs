//! The plan sets that a request would use: what `braid plan` prints. No capability is requested and no drive
//! is contacted. The drives' health is what the manager says, and more drives may be assumed down.

use std::ops::Range;

use braid_layout::{Column, ColumnMask, Stripe, Version};
use braid_plan::{Body, Health, PlanError, PlanSet, Target, Want, Write, stripes_max};
use braid_wire::control::{DriveState, EntryKind, SegmentRow};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::view::layout_of;

/// The kind of request to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A read.
    Read,
    /// A write under an exclusive lease.
    Write,
}

/// A plan set and its printed form.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The plan set.
    pub set: PlanSet,
    /// Text for users.
    pub text: String,
}

impl Client {
    /// The plan sets for reading or writing the bytes `range` of a file, if the drives `down` (names or ids,
    /// besides those that the manager lists as away) do not answer. A read is cut at the file's end.
    pub async fn plan(
        &self,
        name: &Name,
        asked: Asked,
        range: Range<u64>,
        down: &[String],
    ) -> Result<Vec<Explained>> {
        let file = name.to_string();
        let wrong = |why: String| Error::Plan { file: file.clone(), why };
        let stat = self.stat(name).await?;
        if stat.kind != EntryKind::File {
            return Err(wrong("it is a directory: only a file has plans".to_owned()));
        }
        let layout = layout_of(&stat).map_err(wrong)?;
        let known =
            |drive: &String| stat.segments.iter().flat_map(|s| &s.columns).any(|c| is_called(c, drive));
        if let Some(unknown) = down.iter().find(|drive| !known(drive)) {
            return Err(Error::NoDrive(unknown.clone()));
        }
        let end = if asked == Asked::Read { range.end.min(stat.size) } else { range.end };
        let (mut at, mut n, mut all) = (range.start, 1, Vec::new());
        while at < end {
            let (index, segment) = layout.segment_at(at);
            let health = health(&stat.segments[index], stat.g, down);
            let target = Target { segment, index, health };
            let first = segment.stripe_at(at).0;
            let last = Stripe(first.saturating_add(stripes_max(&segment.shape) - 1));
            let part = at..segment.stripe_range(last).end.min(end);
            let stamp = Version { g: stat.g, lease: braid_layout::Lease(0), n };
            let set = match asked {
                Asked::Read => braid_plan::read(&target, part.clone(), at - range.start, Want::Newest),
                Asked::Write => {
                    let body = Body::Buffer { offset: at - range.start };
                    let request =
                        Write { range: part.clone(), body, size: stat.size, reach: u64::MAX, stamp };
                    braid_plan::write_cheapest(&target, request, 1)
                }
            };
            let set = set.map_err(|error: PlanError| wrong(error.to_string()))?;
            n += segment.stripe_at(part.end - 1).0 - first + 1;
            at = part.end;
            all.push(Explained { text: set.to_string(), set });
        }
        Ok(all)
    }
}

fn health(row: &SegmentRow, g: braid_layout::Generation, down: &[String]) -> Health {
    let columns = (0..).map(Column).zip(&row.columns);
    let away =
        columns.filter(|(_, c)| c.state != DriveState::Up || down.iter().any(|drive| is_called(c, drive)));
    let away: ColumnMask = away.map(|(column, _)| column).collect();
    Health { g, set: row.set, joining: row.joining, away: away.and(row.set) }
}

fn is_called(column: &braid_wire::control::ColumnRow, drive: &str) -> bool {
    column.drive_name == drive || column.drive.to_string() == drive || column.drive.short() == drive
}
