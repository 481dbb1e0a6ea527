//! Chunks: each read of a client is noted, and what is due then is read when it is its turn.

use std::ops::Range;
use std::sync::Arc;

use braid_layout::{Role, Stripe};
use braid_schedule::cost::SECOND_NS;
use braid_schedule::{DeviceCost, Direction, Flow, OPERATION_BYTES};
use braid_store::{Area, DiskReads, Stretch, Wanted};
use braid_transport::host;
use braid_wire::data::{Read, Want};
use braid_wire::{Capability, data::ColumnMap};

use crate::connections::facts::StoredFacts;
use crate::core::{Core, Figures};
use crate::device::gate::{Slot, reads_ns};
use crate::parity::forward::shape_of;
use crate::readahead::streams::{ChunkId, Due, Facts, Place, Queue, Seen};

/// Largest window of a disk that was not calibrated.
const WINDOW_BYTES_UNKNOWN: u64 = 4 << 20;
/// Bounds of the largest window of other disks.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
const WINDOW_BYTES_LEAST: u64 = 1 << 20;
/// Bytes of an area on a disk that was not calibrated, and bounds of those on others.
const AREA_BYTES_UNKNOWN: u64 = 256 << 10;
const AREA_BYTES_LEAST: u64 = 64 << 10;
const AREA_BYTES_MAX: u64 = 1 << 20;
/// A window's bytes take so many times as long as going to them: a sixteenth of the time is lost then.
const AMORTISED: u64 = 16;
/// Device time of a chunk, in times of that of its bytes in one piece, beyond which the rest is left to its
/// reader: the object lies in many places.
const SCATTERED: u64 = 2;

/// Way of a read to its bytes.
pub(crate) enum Route {
    /// To the disk, in its turn.
    Disk,
    /// To memory, where its bytes should be.
    Memory,
    /// The same, after this chunk.
    After(ChunkId),
}

/// Notes a read, and starts what is to be read ahead for it. Returns where its own bytes should be.
pub(crate) fn route(
    core: &Arc<Core>,
    flow: &Flow,
    capability: &Capability,
    facts: &StoredFacts,
    read: &Read,
) -> Route {
    let place = match handle_read(core, flow, capability, &facts.map, read) {
        Place::Disk if facts.is_clustered => sweep(core, flow, capability, read),
        place => place,
    };
    match place {
        Place::Disk => Route::Disk,
        Place::Memory => Route::Memory,
        Place::Coming(chunk) => Route::After(chunk),
    }
}

/// Notes a read, and starts what is to be read ahead for its stream. Returns where its own bytes should be by
/// that.
pub(crate) fn handle_read(
    core: &Arc<Core>,
    flow: &Flow,
    capability: &Capability,
    map: &ColumnMap,
    read: &Read,
) -> Place {
    let Some((ahead, queue)) = best_effort(flow, capability, read) else { return Place::Disk };
    let seen = seen(map, read, queue);
    let now_ns = core.gate.now_ns();
    let step = core.readahead.state().streams.handle_read(now_ns, &seen, || facts(core, map, read));
    if let Some(due) = step.due {
        let bytes = due.range.end - due.range.start;
        start(core, ahead, due.id, bytes, What::Object(due));
    }
    step.place
}

/// Notes a read of an object that has a cluster. If it is small, and another of its neighbours was read
/// lately, they are all read together.
fn sweep(core: &Arc<Core>, flow: &Flow, capability: &Capability, read: &Read) -> Place {
    let Some((ahead, queue)) = best_effort(flow, capability, read) else { return Place::Disk };
    let bytes = area_bytes(&core.gate.cost(), core.gate.keeps_promises());
    let Some(area) = core.store.area_of(read.at.partition, read.at.object, bytes) else { return Place::Disk };
    let (place, sweep) = core.readahead.state().areas.handle_read(core.gate.now_ns(), area, queue);
    if let Some(chunk) = sweep {
        start(core, ahead, chunk, bytes, What::Area(area));
    }
    place
}

/// The flow in which is read ahead for a read, and how it stands to the read's own; `None`: nothing is.
fn best_effort(flow: &Flow, capability: &Capability, read: &Read) -> Option<(Flow, Queue)> {
    if read.want == Want::Exactly || !matches!(flow, Flow::BestEffort { .. } | Flow::Reserved { .. }) {
        return None;
    }
    let ahead = Flow::BestEffort { tenant: capability.partition.0, client: capability.client.0 };
    let queue = if *flow == ahead { Queue::Same } else { Queue::Other };
    Some((ahead, queue))
}

fn seen(map: &ColumnMap, read: &Read, queue: Queue) -> Seen {
    let unit_bytes = u64::from(map.unit_bytes);
    let begin = read.unit.saturating_mul(unit_bytes);
    let at = |offset: u32| begin.saturating_add(u64::from(offset));
    Seen {
        object: (read.at.partition, read.at.object),
        range: at(read.from)..at(read.to),
        queue,
        unit_bytes,
        passed_over: u64::from(map.m) * unit_bytes,
    }
}

fn facts(core: &Core, map: &ColumnMap, read: &Read) -> Facts {
    let is_parity = shape_of(map)
        .is_some_and(|shape| matches!(shape.role(Stripe(read.unit), map.column), Role::Parity(_)));
    let window_bytes_max = window_bytes_max(&core.gate.cost(), core.gate.keeps_promises());
    Facts { is_parity, window_bytes_max }
}

/// Largest window that pays on a disk with this cost.
fn window_bytes_max(cost: &DeviceCost, keeps_promises: bool) -> u64 {
    if keeps_promises {
        return OPERATION_BYTES;
    }
    if *cost == DeviceCost::FREE {
        return WINDOW_BYTES_UNKNOWN;
    }
    passing_bytes(cost).saturating_mul(AMORTISED).clamp(WINDOW_BYTES_LEAST, WINDOW_BYTES_MAX)
}

/// Bytes that the disk reads in the time in which it goes to another place.
fn passing_bytes(cost: &DeviceCost) -> u64 {
    let way = cost.way(Direction::Read);
    let bytes = u128::from(way.operation_ns) * u128::from(way.bytes_per_second) / u128::from(SECOND_NS);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bytes of an area that is read in one sweep: to read them takes about as long as to go there.
fn area_bytes(cost: &DeviceCost, keeps_promises: bool) -> u64 {
    let bytes = if *cost == DeviceCost::FREE { AREA_BYTES_UNKNOWN } else { passing_bytes(cost) };
    let bytes = bytes.clamp(AREA_BYTES_LEAST, AREA_BYTES_MAX).next_power_of_two();
    if keeps_promises { bytes.min(OPERATION_BYTES) } else { bytes }
}

/// Has a chunk read when it is its turn.
fn start(core: &Arc<Core>, flow: Flow, id: ChunkId, bytes: u64, what: What) {
    let coming = Coming { core: Arc::clone(core), id, what, outcome: Outcome::Dropped };
    core.gate.enter(flow, Direction::Read, bytes, move |slot| {
        drop(host::spawn_blocking(move || coming.read(slot)));
    });
}

/// End of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Its turn has not come: the drive ends, or the disk has too much to do.
    Dropped,
    Failed,
    Ended,
}

/// The bytes that a chunk reads.
enum What {
    /// Bytes of an object, for a stream.
    Object(Due),
    /// A part of the log.
    Area(Area),
}

/// A chunk that is due. Drop tells the stream, and those who wait.
struct Coming {
    core: Arc<Core>,
    id: ChunkId,
    what: What,
    outcome: Outcome,
}

impl Coming {
    fn read(mut self, slot: Slot) {
        let cost = self.core.gate.cost();
        self.outcome = Outcome::Ended;
        let found = match &self.what {
            What::Object(due) => {
                let Some(range) = self.core.readahead.state().streams.begin(self.id) else {
                    return slot.did_nothing();
                };
                self.places(due, range, &cost)
            }
            What::Area(area) => self.core.store.area(*area).ok().map(|area| (vec![area], u64::MAX)),
        };
        let Some((stretches, most_ns)) = found else {
            // The object ends here, or is gone.
            self.outcome = Outcome::Failed;
            return slot.did_nothing();
        };
        let read = read_most(&stretches, |disk| reads_ns(&cost, disk) <= most_ns);
        Figures::add(&self.core.figures.ahead_bytes, read.bytes);
        slot.did_reads(read);
    }

    /// The places of an object's bytes that are due, and the longest time that reading them may take. `None`:
    /// there are none.
    fn places(&self, due: &Due, range: Range<u64>, cost: &DeviceCost) -> Option<(Vec<Stretch>, u64)> {
        let (partition, object) = due.object;
        let wanted = if due.with_parity { Wanted::All } else { Wanted::Data };
        let most_ns = cost.time_ns(Direction::Read, range.end - range.start).saturating_mul(SCATTERED);
        let found = self.core.store.ahead(partition, object, range, wanted, passing_bytes(cost)).ok()?;
        (!found.is_empty()).then_some((found, most_ns))
    }
}

/// Reads stretches that are not in memory, the first of them as long as `goes_on` with all: they are begun
/// together. What cannot be read is left to the reader, who learns why.
fn read_most(stretches: &[Stretch], goes_on: impl Fn(DiskReads) -> bool) -> DiskReads {
    let mut begun = Vec::new();
    let mut read = DiskReads::default();
    for stretch in stretches.iter().filter(|stretch| !stretch.is_cached()) {
        let next = DiskReads { reads: read.reads + 1, bytes: read.bytes + stretch.bytes() };
        if read.reads > 0 && !goes_on(next) {
            break;
        }
        stretch.begin();
        begun.push(stretch);
        read = next;
    }
    for stretch in begun {
        let _ = stretch.read();
    }
    read
}

impl Drop for Coming {
    fn drop(&mut self) {
        let id = self.id;
        let mut state = self.core.readahead.state();
        match (&self.what, self.outcome) {
            (What::Object(_), Outcome::Ended) => state.streams.handle_end(id),
            (What::Object(_), _) => state.streams.handle_failed(id),
            (What::Area(_), Outcome::Ended) => state.areas.handle_end(id),
            (What::Area(_), _) => state.areas.handle_failed(id),
        }
        let waiters = state.waiters.remove(&id).unwrap_or_default();
        drop(state);
        // Those who waited as long as a chunk that had no turn are refused, as they would be for themselves.
        if self.outcome != Outcome::Dropped {
            waiters.into_iter().for_each(|waiter| waiter());
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_schedule::{Charge, DirectionCost};

    use super::*;

    fn cost(charge: Charge, operation_ns: u64, bytes_per_second: u64) -> DeviceCost {
        let way = DirectionCost { operation_ns, bytes_per_second };
        DeviceCost { charge, read: way, write: way, sync_ns: 0 }
    }

    #[test]
    fn a_window_makes_little_of_the_way_to_it() {
        let spindle = cost(Charge::Sum, 8_000_000, 60_000_000);
        let flash = cost(Charge::Larger, 50_000, 1_000_000_000);
        let slow = cost(Charge::Sum, 12_000_000, 250_000_000);
        let of = |cost| window_bytes_max(cost, false);
        assert_eq!(
            [&spindle, &flash, &slow, &DeviceCost::FREE].map(of),
            [7_680_000, 1 << 20, 8 << 20, 4 << 20]
        );
        assert_eq!(window_bytes_max(&spindle, true), OPERATION_BYTES);
        let alone = spindle.time_ns(Direction::Read, 7_680_000);
        assert!(spindle.read.bytes_ns(7_680_000) * 100 >= alone * 94);
    }
}
