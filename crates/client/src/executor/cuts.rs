//! Reads of given cuts, for a heal, which installs only settled content.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Role, Stripe, Version};
use braid_plan::Op;

use super::{Executor, Failed};
use crate::data::cut::Seen;
use crate::error::Result;
use crate::peers::drive_requests::Failure;

impl Executor<'_> {
    /// Runs the reads, each of exactly the versions that its stripe's cut names, one per data unit. Returns
    /// what failed; stripes named there must not be computed with.
    pub(crate) async fn read_cuts(&mut self, cuts: &BTreeMap<u64, Vec<Version>>) -> Result<Vec<Failed>> {
        let mut asked = Vec::new();
        for (plan, instruction) in self.set.instructions() {
            let Op::Read { stripe, into, .. } = instruction.op else { continue };
            let Some(cut) = cuts.get(&stripe.0) else {
                return Err(self.handle.plan_error(&format!("stripe {} has no cut", stripe.0)));
            };
            let role = self.view.layout.segments()[self.set.segment].role(stripe, plan.column);
            let exactly = match role {
                Role::Data(data) => cut.get(usize::from(data)).copied().into_iter().collect(),
                Role::Parity(_) => cut.clone(),
            };
            asked.push((plan.column, stripe, into, instruction.id, role, exactly));
        }
        let reads = asked.iter().map(|(_, _, _, id, _, exactly)| (*id, Some(exactly.clone()))).collect();
        let mut failed = self.ask_reads(reads).await?;
        // An object that does not exist reads as zeros, which may not be what the cut names.
        for (column, stripe, into, id, role, _) in asked {
            let (cut, Some(arrived)) = (&cuts[&stripe.0], &self.arrived[id.index()]) else { continue };
            let seen = Seen { role, version: arrived.version, cover: &arrived.cover };
            if !seen.fits(cut) {
                let (has, named) = seen.older(cut).unwrap_or_default();
                let failure = Failure::Behind { has: has.to_string(), named: named.to_string() };
                failed.push(Failed { column, stripe, into: Some(into), failure });
            }
        }
        Ok(failed)
    }

    /// Leaves these stripes out of the set's writes.
    pub(crate) fn leave_out(&mut self, stripes: &BTreeSet<Stripe>) {
        for (_, instruction) in self.set.instructions().filter(|(_, i)| i.op.is_write()) {
            self.written[instruction.id.index()] |= stripes.contains(&instruction.op.stripe());
        }
    }
}
