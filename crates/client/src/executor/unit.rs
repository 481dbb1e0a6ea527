//! One unit write, through its data drive (PROTOCOL C4).

use braid_layout::{Column, ColumnMask, Role, Stripe};
use braid_plan::{Op, Source};
use braid_wire::data::{DriveReply, UnitWrite};
use braid_wire::{Reason, Refusal};

use super::{Asked, Executor, Failed, Writer, ask_drives};
use crate::data::unit_writes::Operation;
use crate::error::Result;
use crate::peers::drive_requests::{Failure, Item};

/// Outcome of one try of a unit write.
#[derive(Debug)]
pub(crate) enum UnitOutcome {
    /// The write is settled for good.
    Settled,
    /// The data drive has stored the write, but these parity columns have not taken its delta in time.
    Owed(ColumnMask),
    /// Failures, each of a column that did not do its part. The write may be stored all the same.
    Failed(Vec<Failed>),
}

/// End of a unit write, after all tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnitEnd {
    Settled,
    /// The handle has another lease: a fence has decided on the write.
    NewLease,
    /// The write's columns do not take it any more, and a fence or damage has decided on what they had of it.
    ColumnOut,
}

impl Executor<'_> {
    /// The column and stripe of the set's unit write; `None` if the set has stripe writes.
    pub(crate) fn unit_write(&self) -> Option<(Column, Stripe)> {
        let mut all = self.set.instructions();
        let found = all.find(|(_, instruction)| matches!(instruction.op, Op::UnitWrite { .. }));
        found.map(|(plan, instruction)| (plan.column, instruction.op.stripe()))
    }

    /// Sends the unit write, once.
    pub(crate) async fn write_unit(&self, writer: Writer, operation: &Operation<'_>) -> Result<UnitOutcome> {
        let mut all = self.set.instructions();
        let (Some((plan, instruction)), None) = (all.next(), all.next()) else {
            return Err(self.handle.plan_error(&"more than one unit write"));
        };
        let Op::UnitWrite { stripe, from, to, bytes: Source::MemoryRange(bytes), operation: number, stamp } =
            instruction.op
        else {
            return Err(self.handle.plan_error(&"this is no unit write of bytes"));
        };
        let failed = self.create_parity(stripe).await;
        if !failed.is_empty() {
            return Ok(UnitOutcome::Failed(failed));
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
            timed: false,
        };
        let mut asked = Vec::new();
        if !self.handle.is_created(self.set.segment, plan.column) {
            asked.push(self.create(plan.column, stripe));
        }
        let item = Item { request: request.into(), payload, into: &mut [] };
        asked.push(Asked { column: plan.column, id: Some(instruction.id), stripe, into: None, item });
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked, None).await;
        let mut failed = Vec::new();
        let mut owed_to = ColumnMask::EMPTY;
        for (label, outcome) in outcomes {
            if let Ok(DriveReply::Written(reply)) = &outcome {
                self.handle.receipts.heed(&reply.receipts);
            }
            let failure = match (outcome, label.id) {
                (Ok(DriveReply::Written(reply)), Some(_)) if stamp.is_none_or(|s| s == reply.version) => {
                    owed_to = reply.owed_to;
                    continue;
                }
                (Ok(DriveReply::Done(_)), None) => {
                    self.handle.set_created(self.set.segment, label.failed.column);
                    continue;
                }
                (Ok(DriveReply::Written(reply)), Some(_)) => {
                    let why = format!(
                        "it already has version {} of the unit, which is newer, and ignored the write",
                        reply.version
                    );
                    Failure::Refused { refusal: Refusal::new(Reason::Exists, why), proven: true }
                }
                (Ok(other), _) => Failure::Lost(format!("it answered a write with {}", other.name())),
                (Err(failure), _) => {
                    if failure.is(Reason::NoObject) {
                        self.handle.set_absent(self.set.segment, label.failed.column);
                    }
                    failure
                }
            };
            failed.push(Failed { failure, ..label.failed });
        }
        Ok(match (failed.is_empty(), owed_to.is_empty()) {
            (false, _) => UnitOutcome::Failed(failed),
            (true, false) => UnitOutcome::Owed(owed_to),
            (true, true) => UnitOutcome::Settled,
        })
    }

    /// Makes the stripe's parity objects in the set that may be missing: the data drive would find no object
    /// to send deltas to otherwise. Returns what failed.
    async fn create_parity(&self, stripe: Stripe) -> Vec<Failed> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let set = self.view.segments[self.set.segment].set;
        let parity = (0..segment.shape.m()).map(|index| segment.column(stripe, Role::Parity(index)));
        let is_missing = |column: &Column| !self.handle.is_created(self.set.segment, *column);
        let missing: Vec<Column> = parity.filter(|column| set.contains(*column)).filter(is_missing).collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let asked = missing.iter().map(|&column| self.create(column, stripe)).collect();
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked, None).await;
        let mut failed = Vec::new();
        for (label, outcome) in outcomes {
            match outcome {
                Ok(DriveReply::Done(_)) => self.handle.set_created(self.set.segment, label.failed.column),
                Ok(other) => {
                    let why = format!("it answered a creation with {}", other.name());
                    failed.push(Failed { failure: Failure::Lost(why), ..label.failed });
                }
                Err(failure) => failed.push(Failed { failure, ..label.failed }),
            }
        }
        failed
    }
}
