//! Torn stripes, whose reads are not of one cut: how to recognize them, what to read again, and which columns
//! are behind if reading again does not help.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Role, Stripe, Version};
use braid_plan::{InstructionId, Op};

use super::{Executor, Failed};
use crate::data::cut::{self, Arrived, Cut, Seen};
use crate::peers::drive_requests::Failure;

/// Number of equal looks in a row, none with a pending version, that prove that a stripe stays torn. A write
/// in flight leaves its stamp pending until every column has it, so two would suffice; the third is for
/// safety.
const UNCHANGED: u32 = 3;

/// The last complete look at each torn stripe, and how often it was the same in a row.
#[derive(Default)]
pub(super) struct Looks(BTreeMap<Stripe, (Look, u32)>);

/// The reads of one stripe: version and cover of each.
type Look = Vec<(InstructionId, Version, Vec<Version>)>;

impl Looks {
    /// The torn stripes that nobody writes and that do not change.
    pub(super) fn unchanged(
        &mut self,
        executor: &Executor<'_>,
        torn: &BTreeMap<Stripe, Vec<Version>>,
    ) -> Vec<Stripe> {
        let mut unchanged = Vec::new();
        for &stripe in torn.keys() {
            let Some(now) = executor.settled_look(stripe) else { continue };
            let (last, times) = self.0.entry(stripe).or_default();
            *times = if *last == now { *times + 1 } else { 1 };
            *last = now;
            if *times >= UNCHANGED {
                unchanged.push(stripe);
            }
        }
        unchanged
    }
}

impl Executor<'_> {
    /// Stripes that need one cut and have all their reads, but not of one cut; with the cut to request.
    pub(super) fn torn(&self, failed: &[Failed]) -> BTreeMap<Stripe, Vec<Version>> {
        let failed: BTreeSet<Stripe> = failed.iter().map(|one| one.stripe).collect();
        let segment = &self.view.layout.segments()[self.set.segment];
        let needs: BTreeSet<Stripe> = self
            .set
            .stripes
            .iter()
            .filter(|note| note.strategy.needs_cut() && !failed.contains(&note.stripe))
            .map(|note| note.stripe)
            .collect();
        let mut seen: BTreeMap<Stripe, Vec<Seen<'_>>> = BTreeMap::new();
        let mut torn: BTreeMap<Stripe, Vec<Version>> = BTreeMap::new();
        for (plan, instruction) in self.set.instructions() {
            let stripe = instruction.op.stripe();
            if instruction.op.is_write() || !needs.contains(&stripe) {
                continue;
            }
            let role = segment.role(stripe, plan.column);
            match &self.arrived[instruction.id.index()] {
                Some(Arrived { version, cover, .. }) => {
                    seen.entry(stripe).or_default().push(Seen { role, version: *version, cover });
                }
                // The requested version was retired meanwhile: the whole stripe is read again.
                None => drop(torn.insert(stripe, Vec::new())),
            }
        }
        for (stripe, seen) in seen {
            if let Cut::Torn(cut) = cut::judge(segment.shape.k(), &seen) {
                torn.entry(stripe).or_insert(cut);
            }
        }
        torn
    }

    /// The reads of torn stripes to repeat. In odd rounds all reads of a stripe are repeated without a cut,
    /// since the writer goes on; otherwise those outside the cut request it explicitly.
    pub(super) fn ask_again(
        &self,
        torn: &BTreeMap<Stripe, Vec<Version>>,
        round: u32,
    ) -> Vec<(InstructionId, Option<Vec<Version>>)> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let mut again = Vec::new();
        for (plan, instruction) in self.set.instructions().filter(|(_, i)| !i.op.is_write()) {
            let stripe = instruction.op.stripe();
            let Some(cut) = torn.get(&stripe) else { continue };
            let role = segment.role(stripe, plan.column);
            let arrived = self.arrived[instruction.id.index()].as_ref();
            let fits = arrived.is_some_and(|a| Seen { role, version: a.version, cover: &a.cover }.fits(cut));
            if round % 2 == 1 || cut.is_empty() {
                again.push((instruction.id, None));
            } else if !fits {
                let exactly = match role {
                    Role::Data(data) => vec![cut[usize::from(data)]],
                    Role::Parity(_) => cut.clone(),
                };
                again.push((instruction.id, Some(exactly)));
            }
        }
        again
    }

    /// Versions and covers that the stripe's reads returned; `None` if a read is missing, or its version may
    /// still be in flight.
    fn settled_look(&self, stripe: Stripe) -> Option<Look> {
        let reads = self.set.instructions().filter(|(_, i)| !i.op.is_write() && i.op.stripe() == stripe);
        reads
            .map(|(_, instruction)| {
                let arrived = self.arrived[instruction.id.index()].as_ref().filter(|a| !a.pending)?;
                Some((instruction.id, arrived.version, arrived.cover.clone()))
            })
            .collect()
    }

    /// The reads of a torn stripe with older versions than the newest that any of them mentions.
    pub(super) fn behind(&self, stripe: Stripe) -> Vec<Failed> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let mut reads = Vec::new();
        for (plan, instruction) in self.set.instructions() {
            let Op::Read { stripe: own, into, .. } = instruction.op else { continue };
            if let (true, Some(arrived)) = (own == stripe, &self.arrived[instruction.id.index()]) {
                let role = segment.role(stripe, plan.column);
                reads.push((
                    plan.column,
                    into,
                    Seen { role, version: arrived.version, cover: &arrived.cover },
                ));
            }
        }
        let seen: Vec<Seen<'_>> = reads.iter().map(|(.., seen)| *seen).collect();
        let newest = cut::newest(segment.shape.k(), &seen);
        let failed = |(column, into, seen): &(_, _, Seen<'_>)| {
            let (has, named) = seen.older(&newest)?;
            let failure = Failure::Behind { has: has.to_string(), named: named.to_string() };
            Some(Failed { column: *column, stripe, into: Some(*into), failure })
        };
        reads.iter().filter_map(failed).collect()
    }
}
