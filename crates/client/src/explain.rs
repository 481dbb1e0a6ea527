//! The plan sets that a request would use: what `braid plan` prints. No capability is requested and no drive
//! is contacted. The drives' health is what the manager says, and more drives may be assumed down.

use std::ops::Range;

use braid_layout::{Column, ColumnMask, OperationNumber, Segment, Stripe, Version};
use braid_plan::{Body, Health, Op, PlanError, PlanSet, Stamped, Target, Want, Way, Write, stripes_max};
use braid_wire::control::{ColumnRow, DriveState, EntryKind, SegmentRow};

use crate::analysis::{Act, Span, Work};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::naming::name::Name;
use crate::sealed::geometry::{stored_range, stored_size};
use crate::view::layout_of;

/// The kind of request to plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A read of the newest versions.
    Read,
    /// A write under an exclusive lease.
    Write,
    /// A write under a shared lease, beside other writers.
    SharedWrite,
}

/// A plan set and its printed form.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The plan set.
    pub set: PlanSet,
    /// The segment that it is for.
    pub segment: Segment,
    /// For a write, the ways to write each stripe and their costs. The first way is the one in the plan set.
    pub ways: Vec<(Stripe, Vec<Way>)>,
    /// Text for users.
    pub text: String,
}

impl Explained {
    /// The last span of each instruction of the plan set, by the instruction's id.
    pub fn measured<'a>(&self, work: &'a Work) -> Vec<(usize, &'a Span)> {
        let found = self.set.instructions().filter_map(|(plan, instruction)| {
            let (act, from, to) = match instruction.op {
                Op::Read { from, to, .. } => (Act::Read, from, to),
                Op::StripeWrite { from, to, .. } => (Act::StripeWrite, from, to),
                Op::UnitWrite { from, to, .. } => (Act::UnitWrite, from, to),
                // A drive is asked for many of them at once.
                Op::Run { .. } => return None,
            };
            let unit = instruction.op.stripe().0;
            let is_its = |span: &&Span| {
                // A file's segments may lie on the same drives, as different objects.
                (span.drive, span.object) == (plan.drive, plan.object)
                    && span.act == act
                    && (span.unit, span.from, span.to) == (unit, from, to)
            };
            Some((instruction.id.index(), work.spans.iter().rev().find(is_its)?))
        });
        found.collect()
    }
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
        if stat.kind() != EntryKind::File {
            return Err(wrong("it is a directory: only a file has plans".to_owned()));
        }
        let layout = layout_of(&stat).map_err(wrong)?;
        let known =
            |drive: &String| stat.segments.iter().flat_map(|s| &s.columns).any(|c| is_called(c, drive));
        if let Some(unknown) = down.iter().find(|drive| !known(drive)) {
            return Err(Error::NoDrive(unknown.clone()));
        }
        let end = if asked == Asked::Read { range.end.min(stat.size()) } else { range.end };
        // Plans are for what drives hold.
        let is_sealed = stat.attributes.sealed;
        let size = if is_sealed { stored_size(stat.size()) } else { stat.size() };
        let range = if is_sealed { stored_range(&(range.start..end)) } else { range.start..end };
        let end = range.end;
        let mut at = range.start;
        let mut n = 1;
        let mut all = Vec::new();
        while at < end {
            let (index, segment) = layout.segment_at(at);
            let health = health(&stat.segments[index], stat.g, down);
            let target = Target { segment, index, health };
            let first = segment.stripe_at(at).0;
            let last = Stripe(first.saturating_add(stripes_max(&segment.shape) - 1));
            let part = at..segment.stripe_range(last).end.min(end);
            let stamp = Version { g: stat.g, lease: braid_layout::Lease(0), n };
            let planned = match asked {
                Asked::Read => braid_plan::read(&target, part.clone(), at - range.start, Want::Newest)
                    .map(|set| (set, Vec::new())),
                Asked::Write | Asked::SharedWrite => {
                    let body = Body::Buffer { offset: at - range.start };
                    let request = Write { range: part.clone(), body, size, reach: u64::MAX, stamp };
                    if asked == Asked::SharedWrite {
                        let set =
                            braid_plan::unit_write(&target, request, OperationNumber(n), Stamped::ByDrive);
                        set.map(|set| (set, Vec::new()))
                    } else {
                        braid_plan::ways(&target, &request).and_then(|ways| {
                            Ok((braid_plan::write_cheapest(&target, request, OperationNumber::FIRST)?, ways))
                        })
                    }
                }
            };
            let (set, ways) = planned.map_err(|error| match error {
                PlanError::TooFewReady { stripe, missing, .. } => {
                    let row = &stat.segments[index];
                    let drives = missing
                        .iter()
                        .map(|(column, _)| why(&row.columns[column.index()], row, *column, down));
                    Error::TooManyAway {
                        file: file.clone(),
                        segment: index,
                        bytes: segment.stripe_range(stripe),
                        stripes: stripe.0..stripe.0 + 1,
                        action: if asked == Asked::Read { "read" } else { "written" },
                        spare: segment.shape.m(),
                        drives: drives.collect(),
                    }
                }
                other => wrong(other.to_string()),
            })?;
            n += segment.stripe_at(part.end - 1).0 - first + 1;
            at = part.end;
            let text = format!("{set}{}", listed(&ways));
            all.push(Explained { set, segment: segment.clone(), ways, text });
        }
        Ok(all)
    }
}

/// The ways of each stripe that has more than one, alike stripes together.
fn listed(ways: &[(Stripe, Vec<Way>)]) -> String {
    let mut text = String::new();
    for alike in ways.chunk_by(|a, b| a.1 == b.1 && a.0.0 + 1 == b.0.0) {
        let first = alike[0].0.0;
        let last = alike[alike.len() - 1].0.0;
        let ways = &alike[0].1;
        let stripes =
            if first == last { format!("stripe {first}") } else { format!("stripes {first}..{}", last + 1) };
        for (way, number) in ways.iter().zip(0..).filter(|_| ways.len() > 1) {
            let note = if number == 0 { ", taken" } else { "" };
            text += &format!("way for {stripes}: {way}{note}\n");
        }
    }
    text
}

fn health(row: &SegmentRow, g: braid_layout::Generation, down: &[String]) -> Health {
    let columns = (0..).map(Column).zip(&row.columns);
    let away =
        columns.filter(|(_, c)| c.state != DriveState::Up || down.iter().any(|drive| is_called(c, drive)));
    let away: ColumnMask = away.map(|(column, _)| column).collect();
    Health { g, set: row.set, joining: row.joining, away: away.and(row.set) }
}

/// The drive's name and the reason for which the plan cannot use its column.
fn why(of: &ColumnRow, row: &SegmentRow, column: Column, down: &[String]) -> String {
    let why = match of.state {
        DriveState::Away => "away",
        DriveState::Replaced => "replaced",
        DriveState::Up if down.iter().any(|drive| is_called(of, drive)) => "as if away",
        DriveState::Up if row.joining.contains(column) => "being brought up to date",
        DriveState::Up => "stale",
    };
    format!("{}: {why}", of.drive_name)
}

fn is_called(column: &ColumnRow, drive: &str) -> bool {
    column.drive_name == drive || column.drive.to_string() == drive || column.drive.short() == drive
}

#[cfg(test)]
mod tests {
    use braid_layout::{Component, DriveId, Generation, ObjectId, Scheme, Shape};

    use super::*;

    /// The plan set of a read of the first unit of a segment whose objects begin with this number.
    fn read(first_object: u64) -> Explained {
        let shape = Shape::new(Scheme::Raid0, 2, 0, 64 << 10).expect("a shape");
        let component = |(drive, object)| Component { drive: DriveId(drive), object: ObjectId(object) };
        let components = (1..).zip([first_object, first_object + 1]).map(component).collect();
        let segment = Segment { start: 0, end: u64::MAX, shape, components };
        let set: ColumnMask = [Column(0), Column(1)].into_iter().collect();
        let none = ColumnMask::default();
        let health = Health { g: Generation(1), set, joining: none, away: none };
        let target = Target { segment: &segment, index: 0, health };
        let set = braid_plan::read(&target, 0..64 << 10, 0, Want::Newest).expect("a plan set");
        Explained { set, segment, ways: Vec::new(), text: String::new() }
    }

    #[test]
    fn segments_on_the_same_drives_have_spans_of_their_own() {
        let [one, other] = [read(10), read(20)];
        let plan = &one.set.plans[0];
        let span = |object, landed_us| Span {
            drive: plan.drive,
            act: Act::Read,
            object,
            unit: 0,
            from: 0,
            to: 64 << 10,
            asked_us: 0,
            connected_us: 0,
            admitted_us: 0,
            granted_us: 1,
            sent_us: 1,
            answered_us: 2,
            landed_us,
            crc_ns: 0,
            times: None,
            is_done: true,
        };
        let spans = vec![span(plan.object, 5), span(other.set.plans[0].object, 9)];
        let work = Work { spans, ..Work::default() };
        let ends =
            |of: &Explained| of.measured(&work).iter().map(|(_, span)| span.landed_us).collect::<Vec<_>>();
        assert_eq!((ends(&one), ends(&other)), (vec![5], vec![9]));
    }
}
