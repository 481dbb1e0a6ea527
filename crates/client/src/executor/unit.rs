//! One unit write, through its data drive (PROTOCOL C4).

use braid_layout::{Column, Role, Stripe};
use braid_plan::{Op, Source};
use braid_wire::data::{DriveReply, UnitWrite};

use super::{Asked, Executor, Writer, ask_drives};
use crate::drive_requests::Item;
use crate::error::Result;
use crate::unit_writes::Operation;

impl Executor<'_> {
    /// Whether the set is one unit write.
    pub(crate) fn is_unit_write(&self) -> bool {
        self.set.instructions().any(|(_, instruction)| matches!(instruction.op, Op::UnitWrite { .. }))
    }

    /// Sends the unit write, once. False if its drive has not answered that it is settled: it may be so all
    /// the same, now or later, until the stripe is written again.
    pub(crate) async fn write_unit(&self, writer: Writer, operation: &Operation<'_>) -> Result<bool> {
        let mut all = self.set.instructions();
        let (Some((plan, instruction)), None) = (all.next(), all.next()) else {
            return Err(self.handle.plan_error(&"more than one unit write"));
        };
        let Op::UnitWrite { stripe, from, to, bytes: Source::MemoryRange(bytes), operation: number, stamp } =
            instruction.op
        else {
            return Err(self.handle.plan_error(&"this is no unit write of bytes"));
        };
        if !self.has_parity_objects(stripe).await {
            return Ok(false);
        }
        let payload = self.memory.at(bytes).map_err(|error| self.handle.plan_error(&error))?;
        let request = UnitWrite {
            at: self.view.address(self.set.segment, plan.column),
            unit: stripe.0,
            from,
            to,
            hole: false,
            client: writer.client,
            operation: number,
            stamp,
            settled_below: writer.settled_below,
            crcs: Vec::new(),
            watermark: operation.watermark(),
        };
        let mut asked = Vec::new();
        if !self.handle.is_created(self.set.segment, plan.column) {
            asked.push(self.create(plan.column, stripe));
        }
        let item = Item { request: request.into(), payload, into: &mut [] };
        asked.push(Asked { column: plan.column, id: Some(instruction.id), stripe, into: None, item });
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked).await;
        let mut is_settled = true;
        for (label, outcome) in outcomes {
            match (outcome, label.id) {
                (Ok(DriveReply::Written(reply)), Some(_)) if stamp == Some(reply.version) => {}
                (Ok(DriveReply::Done(_)), None) => {
                    self.handle.set_created(self.set.segment, label.failed.column);
                }
                (outcome, _) => {
                    tracing::debug!(file = %self.handle.subject, ?outcome, "a unit write did not settle");
                    is_settled = false;
                }
            }
        }
        Ok(is_settled)
    }

    /// Makes the stripe's parity objects that may be missing: a data drive finds no object to send deltas to
    /// otherwise. False if one cannot be made now.
    async fn has_parity_objects(&self, stripe: Stripe) -> bool {
        let segment = &self.view.layout.segments()[self.set.segment];
        let parity = (0..segment.shape.m()).map(|index| segment.column(stripe, Role::Parity(index)));
        let missing: Vec<Column> =
            parity.filter(|column| !self.handle.is_created(self.set.segment, *column)).collect();
        if missing.is_empty() {
            return true;
        }
        let asked = missing.iter().map(|&column| self.create(column, stripe)).collect();
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked).await;
        let mut all = true;
        for (label, outcome) in outcomes {
            match outcome {
                Ok(DriveReply::Done(_)) => self.handle.set_created(self.set.segment, label.failed.column),
                _ => all = false,
            }
        }
        all
    }
}
