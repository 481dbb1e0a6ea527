//! Reads: every byte straight into the caller's buffer.
//!
//! A piece whose column can be read goes to its final place. Other pieces are made from `k` units of the
//! stripe: first those that are requested anyway, which are in the caller's buffer already; then those with
//! the fewest additional bytes to read. The additional bytes go into scratch, and only as far as the lost
//! pieces need them. On a mirror a copy is read instead, into the caller's buffer. A reader cannot know that
//! bytes past the file's size are zeros, so they are read: a drive that has none answers with a hole, which
//! costs nothing.

use std::ops::Range;

use braid_layout::{Piece, Role, Stripe};

use super::draft::Draft;
use super::gather::Gather;
use crate::ir::{MemoryRange, PlanSet, Strategy, Want};
use crate::request::{PlanError, Request, Target};

/// Reads the bytes `range` of the file into the caller's buffer, from its byte `buffer` on. The caller has
/// cut `range` at the file's size.
pub fn read(target: &Target<'_>, range: Range<u64>, buffer: u64, want: Want) -> Result<PlanSet, PlanError> {
    let stripes = target.check_range(&range)?;
    let mut pieces = target.segment.pieces(range.clone()).peekable();
    let drafts = stripes.map(Stripe).map(|stripe| {
        let mut own = Vec::new();
        while let Some(piece) = pieces.next_if(|piece| piece.stripe == stripe) {
            let offset = buffer + (piece.file_offset - range.start);
            own.push((piece, MemoryRange::User { offset, len: piece.len() }));
        }
        draft(target, stripe, &own, want)
    });
    target.finish(Request::Read { range: range.clone(), buffer }, drafts)
}

pub(super) fn draft(
    target: &Target<'_>,
    stripe: Stripe,
    pieces: &[(Piece, MemoryRange)],
    want: Want,
) -> Result<Draft, PlanError> {
    let mut draft = Draft::new(stripe, Strategy::Direct);
    let mut gather = Gather::default();
    let mut lost = Vec::new();
    for (piece, location) in pieces {
        let role = Role::Data(piece.data);
        let range = piece.from..piece.to;
        if target.readable(stripe, role) {
            gather.read(target, &mut draft, role, &range, *location, want);
        } else {
            lost.push((role, range, *location));
        }
    }
    if lost.is_empty() {
        return Ok(draft);
    }
    if target.segment.shape.scheme().is_mirror() {
        draft.strategy = Strategy::Copy;
        let copy = target.parity().find(|&role| target.readable(stripe, role));
        let copy = copy.ok_or_else(|| target.too_few(stripe, target.health.readable()))?;
        for (_, range, location) in &lost {
            gather.read(target, &mut draft, copy, range, *location, want);
        }
        return Ok(draft);
    }
    draft.strategy = Strategy::Degraded;
    gather.reconstruct(target, &mut draft, &lost, want)?;
    Ok(draft)
}
