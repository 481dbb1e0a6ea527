//! Whose turn a request takes at the disk: what its capability says of its holder.

use braid_layout::{ClientId, PartitionId, ReservationId};
use braid_schedule::{Background, DeviceCost, Direction, Flow, Promise};
use braid_wire::capability::{Capability, DataDirection, Rights};

use crate::core::Core;

/// The flow of requests under this capability.
pub(crate) fn flow_of(core: &Core, capability: &Capability) -> Flow {
    if capability.rights.include(Rights::MANAGE) || capability.rights.include(Rights::DELTA) {
        return Flow::System;
    }
    let PartitionId(tenant) = capability.partition;
    let promise = &capability.promise;
    match promise.reservation {
        ReservationId::NONE => Flow::BestEffort { tenant, client: capability.client.0 },
        ReservationId::REBUILD => Flow::Background(Background::Rebuild),
        id @ ReservationId(reservation) => {
            let direction = match promise.direction {
                DataDirection::Read => Direction::Read,
                DataDirection::Write => Direction::Write,
            };
            let operation_bytes = u64::from(promise.operation_bytes);
            let promise = Promise {
                direction,
                rate: promise.rate,
                burst: promise.burst,
                operation_bytes,
                operation_ns: operation_ns(&core.gate.cost(), direction, operation_bytes),
                until_ns: if core.gate.is_ended(id) {
                    0
                } else {
                    core.gate.at_manager_ms(promise.until_ms, core.manager_ms())
                },
            };
            Flow::Reserved { reservation, tenant, promise }
        }
    }
}

/// The flow of a delta: it is a part of a write, and belongs to the writer. Among the requests of the system
/// it would hold up fences, which all writers of a file wait for when a drive dies. A rate is priced for
/// whole stripes, which have no deltas; so these are beyond it.
pub(crate) fn flow_of_delta(capability: &Capability, writer: ClientId) -> Flow {
    let PartitionId(tenant) = capability.partition;
    Flow::BestEffort { tenant, client: writer.0 }
}

/// Returns true if requests of this flow in this direction are under a promise now: they have memory of
/// their own.
pub(crate) fn is_promised(core: &Core, flow: &Flow, direction: Direction) -> bool {
    match flow {
        Flow::Reserved { promise, .. } => {
            promise.direction == direction && promise.rate > 0 && core.gate.now_ns() < promise.until_ns
        }
        _ => false,
    }
}

/// Device time of an operation that a rate was priced for, as the gate counts it.
fn operation_ns(cost: &DeviceCost, direction: Direction, bytes: u64) -> u64 {
    match direction {
        Direction::Read => cost.time_ns(direction, bytes),
        Direction::Write => cost.append_ns(bytes).saturating_add(cost.commit_ns()),
    }
}
