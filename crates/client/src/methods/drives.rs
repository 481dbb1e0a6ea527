//! Asks drives to run a method on the pieces of units that they hold.
//!
//! Every request is bounded, and may be repeated. After any failure the pieces are left to the client: a read
//! finds out whether that passes. A drive that says that it does not know the method, or that it may not run
//! it, is not asked again in this run.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_layout::{Column, DriveId, Role, Stripe, Version};
use braid_methods::{Edge, Module, WASM};
use braid_plan::{Op, Plan};
use braid_wire::capability::Rights;
use braid_wire::data::{DriveReply, RUN_PIECES_MAX, RanPiece, Run as Asked, RunArgument, RunPiece, RunReply};
use braid_wire::{Reason, Refusal};

use crate::concurrent;
use crate::data::planning::SegmentChunk;
use crate::error::Result;
use crate::executor::ask_columns;
use crate::file::File;
use crate::methods::modules::give;
use crate::methods::{Run, RunAsk, RunFailure, cost_of};
use crate::peers::drive_requests::Failure;
use crate::peers::faults::{Remedy, read_remedy};
use crate::view::FileView;

/// The questions to drives, and what came of them.
pub(super) struct Drives {
    method: String,
    arguments: Vec<RunArgument>,
    module: Option<Arc<Module>>,
    size: u64,
    /// False: nothing is asked.
    is_asked: bool,
    /// Drives that do not run it.
    deaf: Mutex<BTreeSet<DriveId>>,
    answered: AtomicU64,
    answer_bytes: AtomicU64,
    asked_bytes: AtomicU64,
    /// True if pieces of one unit were of different versions.
    several_states: AtomicBool,
}

/// A piece of a file in one unit.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) stripe: Stripe,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) offset: u64,
}

/// The column of a segment that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) segment: usize,
    pub(super) column: Column,
}

/// The outcome for a part of a file that is taken in order.
pub(super) enum Part {
    /// A drive went on over this piece.
    Answered(Edge),
    /// The client must go on over this range.
    Left(Range<u64>),
}

/// Returns true if the drive of some column may run the method on the file.
pub(super) fn may_run(view: &FileView, method: &str) -> bool {
    let needed = if method == WASM { Rights::RUN.and(Rights::RUN_CODE) } else { Rights::RUN };
    let mut columns = view.segments.iter().flat_map(|segment| &segment.columns);
    columns.any(|column| column.grant.as_ref().is_some_and(|g| g.capability.rights.include(needed)))
}

impl Piece {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.to - self.from)
    }
}

impl Drives {
    pub(super) fn new(ask: &RunAsk, size: u64, is_asked: bool) -> Drives {
        let argument =
            |own: &braid_methods::Argument| RunArgument { name: own.name.clone(), value: own.value.clone() };
        Drives {
            method: ask.method.clone(),
            arguments: ask.arguments.0.iter().map(argument).collect(),
            module: ask.module.clone(),
            size,
            is_asked,
            deaf: Mutex::default(),
            answered: AtomicU64::new(0),
            answer_bytes: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            several_states: AtomicBool::new(false),
        }
    }

    /// Bytes that drives answered for.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Bytes of their answers.
    pub(super) fn answer_bytes(&self) -> u64 {
        self.answer_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the arguments that went to them.
    pub(super) fn asked_bytes(&self) -> u64 {
        self.asked_bytes.load(Ordering::Relaxed)
    }

    /// Returns true if this drive may be asked.
    pub(super) fn hears(&self, drive: DriveId) -> bool {
        self.is_asked && !self.deaf.lock().expect("no holder panics").contains(&drive)
    }

    /// Returns true if some unit was written between two looks at it.
    pub(super) fn saw_several_states(&self) -> bool {
        self.several_states.load(Ordering::Relaxed)
    }

    /// Has all drives answer for their pieces of a chunk. Returns the ranges that are left to the client.
    pub(super) async fn ask(&self, run: &Run<'_>, chunk: &SegmentChunk) -> Result<Vec<Range<u64>>> {
        let view = run.file.handle().view();
        let columns = self.columns(run, &view, chunk);
        let given = columns.iter().flat_map(|(_, pieces)| pieces).map(Piece::range).collect();
        let mut left = without(chunk.range.clone(), given);
        let asked = columns.into_iter().map(|(column, pieces)| {
            let view = &view;
            async move { self.ask_column(run, view, chunk.segment, column, pieces).await }
        });
        for unanswered in concurrent::all(asked).await {
            left.extend(unanswered?);
        }
        Ok(joined(left))
    }

    /// The pieces of a chunk, by column, that drives are asked for.
    fn columns(
        &self,
        run: &Run<'_>,
        view: &Arc<FileView>,
        chunk: &SegmentChunk,
    ) -> Vec<(Column, Vec<Piece>)> {
        // After a change of the layout the chunk may not lie in this segment any more: then it is read.
        let segment = view.layout.segments().get(chunk.segment);
        let fits = segment.is_some_and(|own| own.start <= chunk.range.start && chunk.range.end <= own.end);
        if !self.is_asked || !fits {
            return Vec::new();
        }
        let Ok(Some(set)) = run.file.planned(view, &chunk.range, chunk.segment, cost_of(&*run.program))
        else {
            return Vec::new();
        };
        debug_assert!(braid_plan::verify(&set, &view.layout.segments()[chunk.segment]).is_ok());
        let deaf = self.deaf.lock().expect("no holder panics");
        let runs = set.plans.iter().filter(|plan| !deaf.contains(&plan.drive));
        let pieces = |plan: &Plan| (plan.column, pieces_of(view, chunk.segment, plan, run.piece_max));
        runs.map(pieces).filter(|(_, pieces)| !pieces.is_empty()).collect()
    }

    /// Has one column's drive answer for pieces. Returns the ranges for which it does not.
    async fn ask_column(
        &self,
        run: &Run<'_>,
        view: &FileView,
        segment: usize,
        column: Column,
        pieces: Vec<Piece>,
    ) -> Result<Vec<Range<u64>>> {
        let mut left = Vec::new();
        let mut last = None;
        let mut rest = pieces.as_slice();
        while !rest.is_empty() {
            let now = &rest[..rest.len().min(RUN_PIECES_MAX)];
            let Some(reply) = self.own(run, view, segment, column, now, Vec::new()).await? else {
                left.extend(rest.iter().map(Piece::range));
                break;
            };
            for (piece, ran) in now.iter().zip(&reply.pieces).filter(|(_, ran)| ran.answered) {
                if is_other_version(&mut last, piece.stripe, ran.version) {
                    self.several_states.store(true, Ordering::Relaxed);
                }
            }
            let mut is_any = false;
            for (piece, edge) in now.iter().zip(edges_of(now, &reply)) {
                match edge {
                    Some(edge) => {
                        is_any = true;
                        run.take_edge(edge)?;
                        self.note(run, piece);
                    }
                    None => left.push(piece.range()),
                }
            }
            if is_any {
                run.take(&reply.partial)?;
            }
            rest = &rest[reply.pieces.len().min(now.len())..];
        }
        Ok(left)
    }

    /// Goes over a chunk in the file's order, from this state on, until something is left to the client.
    /// Returns what became of the parts of the chunk, in order. All that follows a part that is left is left
    /// too, as only the client knows the state then.
    pub(super) async fn ask_in_order(
        &self,
        run: &Run<'_>,
        chunk: &SegmentChunk,
        state: &mut Vec<u8>,
    ) -> Result<Vec<Part>> {
        let view = run.file.handle().view();
        let columns = self.columns(run, &view, chunk);
        let mut all: Vec<(Column, Piece)> = columns
            .into_iter()
            .flat_map(|(column, pieces)| pieces.into_iter().map(move |piece| (column, piece)))
            .collect();
        all.sort_by_key(|(_, piece)| piece.offset);
        let mut parts = Vec::new();
        let mut at = chunk.range.start;
        // Pieces that follow each other on one drive go together.
        for group in all.chunk_by(|a, b| a.0 == b.0 && a.1.range().end == b.1.offset) {
            let pieces: Vec<Piece> = group.iter().map(|(_, piece)| piece.clone()).collect();
            let mut rest = pieces.as_slice();
            while rest.first().is_some_and(|next| next.offset == at) {
                let now = &rest[..rest.len().min(RUN_PIECES_MAX)];
                let column = group[0].0;
                let sent = state.clone();
                let Some(reply) = self.own(run, &view, chunk.segment, column, now, sent).await? else {
                    break;
                };
                // A drive goes on as long as it can: behind a piece that it leaves out there is none.
                let edges: Vec<Edge> = edges_of(now, &reply).into_iter().map_while(|edge| edge).collect();
                if edges.is_empty() {
                    break;
                }
                now[..edges.len()].iter().for_each(|piece| self.note(run, piece));
                at = now[edges.len() - 1].range().end;
                rest = &rest[edges.len()..];
                parts.extend(edges.into_iter().map(Part::Answered));
                *state = reply.partial;
            }
        }
        if at < chunk.range.end {
            parts.push(Part::Left(at..chunk.range.end));
        }
        Ok(parts)
    }

    /// Sends one request of this run; `None` if it is not answered. A drive that lacks the module gets it. If
    /// the module fails there, the run has failed.
    async fn own(
        &self,
        run: &Run<'_>,
        view: &FileView,
        segment: usize,
        column: Column,
        pieces: &[Piece],
        state: Vec<u8>,
    ) -> Result<Option<RunReply>> {
        let place = At { segment, column };
        self.request(run.file, view, place, pieces, state, self.arguments.clone()).await
    }

    /// Sends one request; `None` if it is not answered.
    pub(super) async fn request(
        &self,
        file: &File,
        view: &FileView,
        At { segment, column }: At,
        pieces: &[Piece],
        state: Vec<u8>,
        arguments: Vec<RunArgument>,
    ) -> Result<Option<RunReply>> {
        let handle = file.handle();
        let asked: usize = arguments.iter().map(|own| own.name.len() + own.value.len()).sum();
        self.asked_bytes.fetch_add(u64::try_from(asked).unwrap_or(u64::MAX), Ordering::Relaxed);
        let of_wire = |piece: &Piece| RunPiece { from: piece.from, to: piece.to, offset: piece.offset };
        let request = Asked {
            at: view.address(segment, column),
            units: pieces.iter().map(|piece| piece.stripe.0).collect(),
            pieces: pieces.iter().map(of_wire).collect(),
            method: self.method.clone(),
            arguments,
            size: self.size,
            state,
        };
        let ask = || ask_columns(handle, view, segment, vec![(column, request.clone().into())]);
        let mut asked = ask().await;
        if let (Some((_, Err(failure))), Some(module)) = (asked.first(), &self.module)
            && reason_of(failure) == Some(Reason::NoModule)
            && give(file, view, segment, column, module).await
        {
            asked = ask().await;
        }
        let Some((_, outcome)) = asked.into_iter().next() else { return Ok(None) };
        let failure = match outcome {
            Ok(DriveReply::Run(reply)) if !reply.pieces.is_empty() => {
                let ends =
                    reply.pieces.iter().map(|piece| piece.head.len() + piece.tail.len()).sum::<usize>();
                let bytes = u64::try_from(ends + reply.partial.len()).unwrap_or(u64::MAX);
                self.answer_bytes.fetch_add(bytes, Ordering::Relaxed);
                return Ok(Some(reply));
            }
            Ok(other) => Failure::Lost(format!("it answered a method with {}", other.name())),
            Err(failure) => failure,
        };
        let drive = view.segments[segment].columns[column.index()].drive;
        tracing::debug!(drive = %drive.short(), %failure, "a drive does not answer: its pieces are read");
        if let Failure::Refused { refusal: Refusal { reason: Reason::ModuleFailed, detail, .. }, .. } =
            &failure
        {
            let at_drive = RunFailure::AtDrive { drive: drive.short(), why: detail.clone() };
            return Err(file.failed(at_drive));
        }
        if matches!(reason_of(&failure), Some(Reason::Unsupported | Reason::Rights | Reason::Malformed)) {
            self.deaf.lock().expect("no holder panics").insert(drive);
        }
        if read_remedy(&failure) == Remedy::Refresh {
            // A read that follows finds out if that fails.
            let _ = handle.refresh(&handle.view()).await;
        }
        Ok(None)
    }

    fn note(&self, run: &Run<'_>, piece: &Piece) {
        let range = piece.range();
        self.answered.fetch_add(range.end - range.start, Ordering::Relaxed);
        run.note(&range);
    }
}

fn reason_of(failure: &Failure) -> Option<Reason> {
    if let Failure::Refused { refusal, .. } = failure { Some(refusal.reason) } else { None }
}

/// The ends of each piece of a reply; `None` for one that is not answered for. If an end does not fit its
/// piece, nothing of the reply counts: its partial answer is for all pieces together.
fn edges_of(pieces: &[Piece], reply: &RunReply) -> Vec<Option<Edge>> {
    let edge = |(piece, ran): (&Piece, &RanPiece)| {
        let Range { start: from, end: to } = piece.range();
        let edge = Edge { from, to, head: ran.head.clone(), tail: ran.tail.clone(), closed: ran.closed };
        ran.answered.then_some(edge)
    };
    let edges: Vec<Option<Edge>> = pieces.iter().zip(&reply.pieces).map(edge).collect();
    if edges.iter().flatten().all(|edge| edge.check().is_ok()) {
        return edges;
    }
    vec![None; edges.len()]
}

/// Returns true if the piece before was of this unit, and of another version.
fn is_other_version(last: &mut Option<(Stripe, Version)>, stripe: Stripe, version: Version) -> bool {
    let before = last.replace((stripe, version));
    before.is_some_and(|before| before.0 == stripe && before.1 != version)
}

/// The pieces on which a plan has a method run, each of at most `piece_max` bytes.
pub(super) fn pieces_of(view: &FileView, segment: usize, plan: &Plan, piece_max: u32) -> Vec<Piece> {
    let layout = &view.layout.segments()[segment];
    let mut pieces = Vec::new();
    for instruction in &plan.instructions {
        let Op::Run { stripe, from, to, .. } = instruction.op else { continue };
        let Role::Data(data) = layout.role(stripe, plan.column) else { continue };
        let start = layout.unit_range(stripe, data).start;
        let mut at = from;
        while at < to {
            // Cut at the same places, wherever a run begins.
            let end = (at / piece_max + 1).saturating_mul(piece_max).min(to);
            pieces.push(Piece { stripe, from: at, to: end, offset: start + u64::from(at) });
            at = end;
        }
    }
    pieces
}

/// The parts of `whole` that are in none of the ranges.
fn without(whole: Range<u64>, mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut at = whole.start;
    let mut left = Vec::new();
    for range in ranges {
        if at < range.start {
            left.push(at..range.start);
        }
        at = at.max(range.end);
    }
    if at < whole.end {
        left.push(at..whole.end);
    }
    left
}

/// The ranges in order; those that meet are one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_was_written_between_two_of_its_pieces_is_noticed() {
        let newer = Version { n: 1, ..Version::ZERO };
        let mut last = None;
        assert!(!is_other_version(&mut last, Stripe(1), Version::ZERO));
        assert!(!is_other_version(&mut last, Stripe(2), newer), "another unit");
        assert!(!is_other_version(&mut last, Stripe(2), newer));
        assert!(is_other_version(&mut last, Stripe(2), Version::ZERO));
    }

    #[test]
    fn what_no_drive_answers_for_is_left_once_in_order_and_joined() {
        assert_eq!(without(5..20, vec![12..15, 5..7]), [7..12, 15..20]);
        assert_eq!(without(5..20, vec![5..12, 12..20]), []);
        assert_eq!(joined(vec![9..12, 0..4, 4..9, 20..21]), [0..12, 20..21]);
    }
}
