//! Unit writes, and the deltas that follow from them (PROTOCOL R2, R3 and R5).

use std::time::Duration;

use braid_layout::{Code, Generation, Role, Shape, Stripe, Version};
use braid_store::{Body, Error, Mutation, MutationOutcome, block_crcs};
use braid_transport::{Receiver, TransportError};
use braid_wire::capability::Rights;
use braid_wire::checksum::verify_blocks;
use braid_wire::data::{Address, Delta, UnitWrite, Written};
use braid_wire::{Capability, Reason, Refusal};
use bytes::Bytes;

use crate::connections::answerer::Ticket;
use crate::connections::facts::StoredFacts;
use crate::connections::reply::Answer;
use crate::connections::requests::{Requests, always};
use crate::core::{Core, Figures};
use crate::device::flows::{flow_of, flow_of_delta};
use crate::parity::forward::{self, shape_of};

impl Requests {
    /// Stores a unit write. The answer comes when the parity drives have the change.
    pub(crate) async fn unit_write(
        &mut self,
        capability: &Capability,
        facts: StoredFacts,
        write: UnitWrite,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        let g = capability.g;
        if let Err(refusal) = check_unit_write(capability, &facts, &write) {
            ticket.refuse(facts.g, refusal);
            return Ok(());
        }
        let bytes = if write.hole { 0 } else { write.to - write.from };
        let flow = flow_of(&self.core(), capability);
        let Some((body, ticket)) =
            self.body((&flow, capability.client), bytes, write.crcs, receiver, ticket).await?
        else {
            return Ok(());
        };
        let partition = write.at.partition;
        let object = write.at.object;
        let unit = (partition, object, write.unit);
        let watermark = write.watermark;
        let mutation = Mutation::UnitWrite(braid_store::UnitWrite {
            partition,
            object,
            unit: write.unit,
            from: write.from,
            to: write.to,
            client: write.client,
            operation: write.operation,
            watermark,
            g,
            lease: capability.lease,
            stamp: write.stamp,
            settled_below: write.settled_below,
            body,
        });
        let core = self.core();
        let reply = move |ticket: Ticket, result| match result {
            Ok(MutationOutcome::Owed { version, .. }) => {
                Figures::add(&core.figures.written_bytes, u64::from(bytes));
                forward::handle_owed(&core, unit, &facts.map, version, watermark, ticket, g);
            }
            // A repeated write whose first copy still waits: the repeat waits too.
            Ok(MutationOutcome::Known { version, settled: false }) => {
                forward::handle_owed(&core, unit, &facts.map, version, watermark, ticket, g);
            }
            Ok(MutationOutcome::Known { version, .. } | MutationOutcome::Older { tip: version }) => {
                ticket.answer(Answer::new(g, Written::new(version, true)));
            }
            // The writer has its answer, or has given it up.
            Ok(_) => ticket.answer(Answer::new(g, Written::new(Default::default(), true))),
            Err(error) => ticket.answer(Answer::from_store(g, Err::<(), _>(error), |()| unreachable!())),
        };
        // The payload may have taken long to arrive: if the lease was given back meanwhile, nothing may be
        // written.
        let still = self.still(capability, Rights::WRITE);
        self.hand_over(flow, ticket, mutation, bytes, still, reply).await;
        Ok(())
    }

    /// Counts a data column's change into the parity.
    pub(crate) async fn delta(
        &mut self,
        capability: &Capability,
        facts: &StoredFacts,
        delta: Delta,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        let roles = match roles_of(facts, &delta) {
            Ok(roles) => roles,
            Err(refusal) => {
                ticket.refuse(facts.g, refusal);
                return Ok(());
            }
        };
        if !facts.ready.contains(delta.column) {
            let detail = format!("the delta comes from column {}, which is out or joining", delta.column);
            ticket.refuse(facts.g, Refusal::new(Reason::StaleGeneration, detail));
            return Ok(());
        }
        let from = delta.from;
        let to = delta.to;
        let flow = flow_of_delta(capability, delta.client);
        let Some((body, ticket)) =
            self.body((&flow, capability.client), to - from, delta.crcs, receiver, ticket).await?
        else {
            return Ok(());
        };
        let body = match scaled(roles, from, body) {
            Ok(body) => body,
            Err(refusal) => {
                ticket.refuse(facts.g, refusal);
                return Ok(());
            }
        };
        // With one parity column, a version that is durable here is settled.
        let settled_to = if roles.shape.m() == 1 { delta.to_version } else { delta.settled_to };
        let g = delta.g;
        let mutation = Mutation::Delta(braid_store::Delta {
            partition: delta.at.partition,
            object: delta.at.object,
            unit: delta.unit,
            from,
            to,
            column: delta.column,
            data: roles.data,
            from_version: delta.from_version,
            to_version: delta.to_version,
            end: delta.end,
            client: delta.client,
            operation: delta.operation,
            watermark: delta.watermark,
            g,
            settled_to,
            body,
        });
        let core = self.core();
        let at = delta.at;
        let unit = delta.unit;
        let data = roles.data;
        let reply = move |ticket: Ticket, result| {
            if matches!(result, Err(Error::Backlog(_))) {
                settle_some(&core, g, at, unit, data, settled_to);
            }
            ticket.answer(Answer::from_store(g, result, |outcome| match outcome {
                MutationOutcome::Counted { tip } => Written::new(tip, false).into(),
                other => Refusal::new(Reason::Medium, format!("internal: a delta gave {other:?}")).into(),
            }));
        };
        self.hand_over(flow, ticket, mutation, to - from, always(), reply).await;
        Ok(())
    }
}

/// Notes the settled deltas of a unit that has its maximum of deltas, so that they are folded in before the
/// refused delta comes again.
fn settle_some(core: &Core, g: Generation, at: Address, unit: u64, data: u8, up_to: Version) {
    let partition = at.partition;
    let object = at.object;
    let mutation = Mutation::DeltasSettled { partition, object, g, unit, data, up_to };
    // If the queue is full, the next try does this: it may be the store's own thread that runs here, which
    // cannot wait.
    let _ = core.store.submit_within(mutation, Box::new(|_| {}), Some(Duration::ZERO), &|| true);
}

/// The two units that a delta is about.
#[derive(Debug, Clone, Copy)]
struct DeltaRoles {
    shape: Shape,
    /// Number of this drive's unit among the stripe's parity units.
    parity: u8,
    /// Number of the sender's unit among the stripe's data units.
    data: u8,
}

fn roles_of(facts: &StoredFacts, delta: &Delta) -> Result<DeltaRoles, Refusal> {
    let shape = shape_of(&facts.map)
        .ok_or_else(|| Refusal::new(Reason::Damaged, "the object's column map states no shape"))?;
    let role = |column| shape.role(Stripe(delta.unit), column);
    match (role(facts.map.column), role(delta.column)) {
        (Role::Parity(parity), Role::Data(data)) => Ok(DeltaRoles { shape, parity, data }),
        (own, other) => {
            let detail = format!("a delta cannot go from {other:?} to {own:?} in stripe {}", delta.unit);
            Err(Refusal::new(Reason::Malformed, detail))
        }
    }
}

/// The change of parity that follows from a change of data: the change times the data unit's coefficient.
fn scaled(roles: DeltaRoles, from: u32, body: Body) -> Result<Body, Refusal> {
    let code = Code::new(roles.shape);
    let Body::Bytes { payload, crcs } = body else { return Ok(body) };
    if code.coefficient(roles.parity, roles.data) == 1 {
        return Ok(Body::Bytes { payload, crcs });
    }
    // The product gets new checksums, so the sender's are verified here.
    if let Err(at) = verify_blocks(from, &payload, &crcs) {
        let detail = format!("bytes from {at} of the unit do not match their checksum");
        return Err(Refusal::new(Reason::PayloadChecksum, detail));
    }
    let mut product = vec![0; payload.len()];
    code.add(roles.data, &payload, roles.parity, &mut product);
    let crcs = block_crcs(from, &product);
    Ok(Body::Bytes { payload: Bytes::from(product), crcs })
}

/// Checks a unit write's fields, beyond the checks that apply to every request.
fn check_unit_write(capability: &Capability, facts: &StoredFacts, write: &UnitWrite) -> Result<(), Refusal> {
    let own = facts.map.column;
    let shape = shape_of(&facts.map)
        .ok_or_else(|| Refusal::new(Reason::Damaged, "the object's column map states no shape"))?;
    if !matches!(shape.role(Stripe(write.unit), own), Role::Data(_)) {
        let detail = format!("column {own} has no data in stripe {}", write.unit);
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    if capability.joining.contains(own) {
        let detail = format!("column {own} is joining: it accepts whole stripes only");
        return Err(Refusal::new(Reason::Busy, detail));
    }
    Ok(())
}
