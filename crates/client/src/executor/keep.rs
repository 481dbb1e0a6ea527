//! The content that a write leaves in its stripes, for the writer's next one.

use braid_layout::{ColumnMask, EndBound, Stripe};
use braid_plan::{Op, Request, Source, VersionOf};

use super::Executor;
use crate::data::recent::{At, Facts, Recent, Written};
use crate::error::Result;

impl Executor<'_> {
    /// Keeps what this write, which all columns have, has left in its stripes; `follows`: the next one is
    /// likely to be in the last of them. What is not kept is forgotten.
    pub(crate) fn keep(&self, recent: &Recent, follows: bool) {
        let segment = self.set.segment;
        for note in &self.set.stripes {
            let at = self.view.at(segment, note.stripe);
            let may_be_kept = follows && self.may_be_kept(note.stripe);
            match may_be_kept.then(|| self.facts(recent, &at)) {
                Some(Ok(Some(facts))) => recent.keep(&at, facts, self.sent(note.stripe)),
                _ => recent.forget(segment, &(note.stripe.0..note.stripe.0 + 1)),
            }
        }
    }

    /// Returns true if the stripe has all columns, with parity, and gets bytes (no hole), but not to its end.
    fn may_be_kept(&self, stripe: Stripe) -> bool {
        let layout = &self.view.layout.segments()[self.set.segment];
        let shape = layout.shape;
        let Request::Write(write) = &self.set.request else { return false };
        let is_hole = |op: &Op| matches!(op, Op::StripeWrite { bytes: Source::Hole, .. });
        let mut own = self.set.instructions().filter(|(_, i)| i.op.stripe() == stripe);
        shape.m() > 0
            && !own.any(|(_, instruction)| is_hole(&instruction.op))
            && !shape.scheme().is_mirror()
            && self.filling.is_none()
            && self.set.set == ColumnMask::all(shape.width())
            && self.set.joining.is_empty()
            && write.range.end < layout.stripe_range(stripe).end
    }

    /// The versions of the stripe's data units and the ends of their bytes; `None` if an end is not known.
    fn facts(&self, recent: &Recent, at: &At<'_>) -> Result<Option<Facts>> {
        let Request::Write(write) = &self.set.request else { return Ok(None) };
        let before = recent.facts(at);
        let stripe = at.stripe;
        let Some((stamp, cover)) = self.parity_write(stripe) else { return Ok(None) };
        let mut facts = Facts { stamp: self.version(stamp)?, versions: Vec::new(), ends: Vec::new() };
        for (data, version) in (0u8..).zip(cover) {
            facts.versions.push(self.version(version)?);
            let end = match version {
                VersionOf::Given(version) if version.is_zero() => 0,
                VersionOf::Given(_) => {
                    let is_fresh = at.layout.unit_range(stripe, data).start >= write.reach;
                    let known = before.as_ref().map(|before| before.ends[usize::from(data)]);
                    let known = known
                        .or(is_fresh.then_some(0))
                        .map_or_else(|| self.end_before(stripe, data), |end| Ok(Some(end)))?;
                    let Some(end) = known else { return Ok(None) };
                    EndBound::at_least(self.in_unit(stripe, data, write.range.end)).after(end)
                }
                read => self.end_of(read)?,
            };
            facts.ends.push(end);
        }
        Ok(Some(facts))
    }

    /// Stamp and cover of the stripe's parity.
    fn parity_write(&self, stripe: Stripe) -> Option<(&VersionOf, &[VersionOf])> {
        self.set.instructions().find_map(|(_, instruction)| match &instruction.op {
            Op::StripeWrite { stripe: own, stamp, cover, .. } if *own == stripe && !cover.is_empty() => {
                Some((stamp, cover.as_slice()))
            }
            _ => None,
        })
    }

    /// The bytes that were sent to the stripe's columns.
    fn sent(&self, stripe: Stripe) -> impl Iterator<Item = Written<'_>> {
        self.set.instructions().filter_map(move |(plan, instruction)| {
            let Op::StripeWrite { stripe: own, from, to, bytes, .. } = &instruction.op else { return None };
            let Source::MemoryRange(range) = bytes else { return None };
            let bytes = self.memory.at(*range).ok().filter(|_| *own == stripe)?;
            Some(Written { column: plan.column, range: *from..*to, bytes })
        })
    }
}
