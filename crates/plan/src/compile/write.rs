//! Writes: each stripe in the way that costs least in bytes and round trips (`write/ways.rs`), with stamps,
//! columns and covers as PROTOCOL C2 requires.
//!
//! Parity bytes that change. A stripe write has one range per unit, and the ranges differ: the first unit's
//! begins where the request does, the last one's ends where it does. Parity is written over their hull, from
//! the lowest first byte to the highest last byte of any unit written. Bytes of the hull that are not written
//! keep their content. Hence
//! - *full stripe*: no live byte of the hull keeps its content. Nothing is read. "Live" is below the file's
//!   size; bytes past it are zeros everywhere, so an append that begins with a stripe, or stays within the
//!   stripe's first unit, reads nothing;
//! - *reconstruct-write*: the live bytes of the hull that are not written are read, or made from `k` others
//!   if their column is lost, and the parity is computed from all (`parity_anew.rs`);
//! - *read-modify-write*: the old bytes of the written ranges, and the old parity over the hull, are read
//!   (`parity_changed.rs`).
//!
//! - *unit write*: where a stripe write would read first, one unit is written, and all columns are there: the
//!   new bytes go to the data drive alone, which sends the parity drives what changed.
//!
//! Lost columns need no separate method. Nothing is sent to a touched column that is lost: its bytes live in
//! the parity. An old byte that only a lost column had is made from the others. A parity column that is out
//! is not computed.
//!
//! The version of a unit that is not touched comes with the bytes read. If none of its bytes is needed, one
//! byte is read for the version. A unit past the file's size that may have been written before a truncation
//! is touched with a hole, which costs no read. (Within a stripe, an append past the first unit does read:
//! its parity bytes also count the units before it, and only a writer that still has these could avoid that.)
//!
//! A joining column may lack the bytes around those it is sent, and would still count as current by its
//! version later. So it is always sent the whole unit: the hull widens to the unit, which is put together in
//! scratch.

mod parity_anew;
mod parity_changed;
mod ways;

pub use ways::{Way, ways};

use std::ops::Range;

use braid_layout::{Column, ColumnMask, OperationNumber, Role, Stripe, Version};

use super::draft::{Draft, mask};
use crate::ir::{InstructionId, MemoryRange, Op, PlanSet, Source, Strategy, VersionOf};
use crate::request::{Body, Health, PlanError, Request, Target, Write};

/// Writes `request`'s bytes, as stripe writes under an exclusive lease.
pub fn write(target: &Target<'_>, request: Write) -> Result<PlanSet, PlanError> {
    each_stripe(target, &request, |job, _| job.draft())
}

/// Writes `request`'s bytes under an exclusive lease, as stripe writes or unit writes, whichever is cheaper
/// in each stripe. The first stripe's unit write has the number `operation`; each further stripe has the
/// next.
pub fn write_cheapest(
    target: &Target<'_>,
    request: Write,
    operation: OperationNumber,
) -> Result<PlanSet, PlanError> {
    each_stripe(target, &request, |job, index| job.cheapest(operation.plus(index)))
}

/// Fills one column of a segment from which nothing is read yet, from whole stripes in the caller's buffer.
/// Nothing is read, and nothing is sent to the other columns, which are filled in the same way.
pub fn fill(target: &Target<'_>, request: Write, column: Column) -> Result<PlanSet, PlanError> {
    let own = ColumnMask::EMPTY.with(column);
    let health = Health { set: own, joining: own, away: ColumnMask::EMPTY, ..target.health };
    let target = Target { health, ..*target };
    each_stripe(&target, &request, |job, _| match job.parity_in_set().next() {
        Some(_) => parity_anew::draft(job),
        None => Ok(job.data_only()),
    })
}

fn each_stripe(
    target: &Target<'_>,
    request: &Write,
    draft: impl Fn(&Job<'_>, u64) -> Result<Draft, PlanError>,
) -> Result<PlanSet, PlanError> {
    let drafts = each_job(target, request)?.map(|(job, index)| draft(&job, index));
    target.finish(Request::Write(request.clone()), drafts)
}

/// The stripes of a write, numbered from 0.
fn each_job<'a>(
    target: &'a Target<'a>,
    request: &'a Write,
) -> Result<impl Iterator<Item = (Job<'a>, u64)>, PlanError> {
    let stripes = target.check_range(&request.range)?;
    let first = stripes.start;
    Ok(stripes.map(move |stripe| {
        let index = stripe - first;
        let stamp = Version { n: request.stamp.n + index, ..request.stamp };
        (Job::new(target, request, Stripe(stripe), stamp), index)
    }))
}

/// Writes `request`'s bytes as one unit write per unit, through the data drives. Operations are numbered from
/// `operation`. If `stamped` by the client (exclusive lease), each stripe has the next stamp of the request.
pub fn unit_write(
    target: &Target<'_>,
    request: Write,
    operation: OperationNumber,
    stamped: Stamped,
) -> Result<PlanSet, PlanError> {
    let stripes = target.check_range(&request.range)?;
    let first = stripes.start;
    let mut next = operation;
    let drafts = stripes.map(|stripe| {
        let stamp = Version { n: request.stamp.n + (stripe - first), ..request.stamp };
        let job = Job::new(target, &request, Stripe(stripe), stamp);
        let mut draft = Draft::new(job.stripe, Strategy::UnitWrites);
        for (data, written) in job.written() {
            let column = target.column(job.stripe, Role::Data(data));
            if !target.health.set.contains(column) {
                return Err(PlanError::ColumnOut { column });
            }
            // A joining column takes whole units only, and parity that is not caught up takes no deltas.
            let all = std::iter::once(Role::Data(data)).chain(target.parity());
            let mut joining = all.filter(|&role| target.joining(job.stripe, role));
            if let Some(role) = joining.next() {
                return Err(PlanError::ColumnOut { column: target.column(job.stripe, role) });
            }
            let stamp = (stamped == Stamped::ByClient).then_some(stamp);
            job.unit_write(&mut draft, data, written, next, stamp);
            next = next.next();
        }
        Ok(draft)
    });
    target.finish(Request::Write(request.clone()), drafts)
}

/// Source of the versions of unit writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamped {
    /// The client, under an exclusive lease.
    ByClient,
    /// The data drive, under a shared one.
    ByDrive,
}

/// One stripe of a write, and the known state of its units.
struct Job<'a> {
    target: &'a Target<'a>,
    stripe: Stripe,
    stamp: Version,
    /// The `k` data units.
    units: Vec<Unit>,
    /// The bytes of the parity units that change.
    hull: Range<u32>,
}

/// One data unit of the stripe.
struct Unit {
    /// Range of the unit that the request writes, with its source; `None` if it writes none.
    written: Option<Written>,
    /// End of the bytes that may be nonzero: all bytes at or past it are zero.
    live: u32,
    /// True if the unit was never written.
    fresh: bool,
}

#[derive(Clone)]
struct Written {
    range: Range<u32>,
    source: Source,
}

/// A data unit's part of the stripe write.
struct Touched {
    data: u8,
    written: Written,
    after: Vec<InstructionId>,
}

/// A parity unit's part of the stripe write.
struct Parity {
    index: u8,
    written: Written,
    after: Vec<InstructionId>,
    cover: Vec<VersionOf>,
}

impl<'a> Job<'a> {
    fn new(target: &'a Target<'a>, request: &Write, stripe: Stripe, stamp: Version) -> Job<'a> {
        let segment = target.segment;
        let unit = u64::from(target.unit());
        let begin = segment.stripe_range(stripe);
        let size = request.size.min(segment.end);
        let mut units: Vec<Unit> = (0..u64::from(segment.shape.k()))
            .map(|data| {
                let start = begin.start.saturating_add(data * unit);
                let live =
                    u32::try_from(size.saturating_sub(start).min(unit)).expect("units are below 4 GiB");
                Unit { written: None, live, fresh: start >= request.reach }
            })
            .collect();
        let own = begin.start.max(request.range.start)..begin.end.min(request.range.end);
        for piece in segment.pieces(own) {
            let source = match request.body {
                Body::Zeros => Source::Hole,
                Body::Buffer { offset } => Source::MemoryRange(MemoryRange::User {
                    offset: offset + (piece.file_offset - request.range.start),
                    len: piece.len(),
                }),
            };
            let written = Written { range: piece.from..piece.to, source };
            units[usize::from(piece.data)].written = Some(written);
        }
        let ranges = || units.iter().filter_map(|unit| unit.written.as_ref()).map(|written| &written.range);
        let from = ranges().map(|range| range.start).min().expect("the stripe is in the request");
        let to = ranges().map(|range| range.end).max().expect("the stripe is in the request");
        Job { target, stripe, stamp, units, hull: from..to }
    }

    fn unit_write(
        &self,
        draft: &mut Draft,
        data: u8,
        written: &Written,
        operation: OperationNumber,
        stamp: Option<Version>,
    ) {
        let op = Op::UnitWrite {
            stripe: self.stripe,
            from: written.range.start,
            to: written.range.end,
            bytes: written.source,
            operation,
            stamp,
        };
        draft.instruction(self.target.column(self.stripe, Role::Data(data)), Vec::new(), op);
    }

    /// Checks that the stripe can be read after this write: `k` columns are ready or, without parity, those
    /// touched.
    fn check_ready(&self) -> Result<(), PlanError> {
        let (target, ready) = (self.target, self.target.health.ready());
        let enough = if target.segment.shape.m() == 0 {
            let touched = mask(target, self.stripe, self.written().map(|(data, _)| Role::Data(data)));
            touched.minus(ready).is_empty()
        } else {
            ready.count() >= u32::from(target.segment.shape.k())
        };
        if enough { Ok(()) } else { Err(target.too_few(self.stripe, ready)) }
    }

    /// The data units that the request writes.
    fn written(&self) -> impl Iterator<Item = (u8, &Written)> {
        (0..).zip(&self.units).filter_map(|(data, unit)| Some((data, unit.written.as_ref()?)))
    }

    /// The parity units that are written.
    fn parity_in_set(&self) -> impl Iterator<Item = u8> {
        (0..self.target.segment.shape.m())
            .filter(|&index| self.target.in_set(self.stripe, Role::Parity(index)))
    }

    /// Drafts a stripe without parity to maintain: only the data is written.
    fn data_only(&self) -> Draft {
        let mut draft = Draft::new(self.stripe, Strategy::DataOnly);
        let touched =
            self.written().map(|(data, w)| Touched { data, written: w.clone(), after: Vec::new() }).collect();
        self.send(&mut draft, touched, Vec::new());
        draft
    }

    /// Adds the writes to every column of the set that is touched or parity. Each waits for every read of the
    /// stripe, not only its own drive's. Until the first write is sent, a stripe whose reads fail may be
    /// compiled again under the same stamp. After that it can only be finished with what was read.
    fn send(&self, draft: &mut Draft, touched: Vec<Touched>, parity: Vec<Parity>) {
        let all_parity = self.target.parity();
        let roles = touched.iter().map(|touched| Role::Data(touched.data)).chain(all_parity);
        let columns = mask(self.target, self.stripe, roles);
        for Touched { data, written, after } in touched {
            self.send_one(draft, Role::Data(data), written, after, columns, Vec::new());
        }
        for Parity { index, written, after, cover } in parity {
            self.send_one(draft, Role::Parity(index), written, after, columns, cover);
        }
    }

    fn send_one(
        &self,
        draft: &mut Draft,
        role: Role,
        written: Written,
        mut after: Vec<InstructionId>,
        columns: ColumnMask,
        cover: Vec<VersionOf>,
    ) {
        if !self.target.in_set(self.stripe, role) {
            return;
        }
        after.extend(draft.reads());
        let op = Op::StripeWrite {
            stripe: self.stripe,
            from: written.range.start,
            to: written.range.end,
            bytes: written.source,
            stamp: VersionOf::Given(self.stamp),
            columns,
            cover,
        };
        draft.instruction(self.target.column(self.stripe, role), after, op);
    }
}
