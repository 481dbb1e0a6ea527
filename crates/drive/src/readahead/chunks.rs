//! Chunks: each read of a client is noted, and what is due then is read when it is its turn.

use std::sync::Arc;

use braid_layout::{Role, Stripe};
use braid_schedule::cost::SECOND_NS;
use braid_schedule::{DeviceCost, Direction, Flow, OPERATION_BYTES};
use braid_store::{DiskReads, Stretch, Wanted};
use braid_transport::host;
use braid_wire::data::{Read, Want};
use braid_wire::{Capability, data::ColumnMap};

use crate::core::{Core, Figures};
use crate::device::gate::{Slot, reads_ns};
use crate::parity::forward::shape_of;
use crate::readahead::streams::{ChunkId, Due, Facts, Place, Queue, Seen, Step};

/// Largest window of a disk that was not calibrated.
const WINDOW_BYTES_UNKNOWN: u64 = 4 << 20;
/// Bounds of the largest window of other disks.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
const WINDOW_BYTES_LEAST: u64 = 1 << 20;
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
pub(crate) fn handle_read(
    core: &Arc<Core>,
    flow: &Flow,
    capability: &Capability,
    map: &ColumnMap,
    read: &Read,
) -> Route {
    if read.want == Want::Exactly || !matches!(flow, Flow::BestEffort { .. } | Flow::Reserved { .. }) {
        return Route::Disk;
    }
    let ahead = Flow::BestEffort { tenant: capability.partition.0, client: capability.client.0 };
    let queue = if *flow == ahead { Queue::Same } else { Queue::Other };
    let seen = seen(map, read, queue);
    let now_ns = core.gate.now_ns();
    let step = core.readahead.state().streams.handle_read(now_ns, &seen, || facts(core, map, read));
    let Step { place, due } = step;
    if let Some(due) = due {
        start(core, ahead, due);
    }
    match place {
        Place::Disk => Route::Disk,
        Place::Memory => Route::Memory,
        Place::Coming(chunk) => Route::After(chunk),
    }
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

/// Has a chunk read when it is its turn.
fn start(core: &Arc<Core>, flow: Flow, due: Due) {
    let bytes = due.range.end - due.range.start;
    let coming = Coming { core: Arc::clone(core), due, outcome: Outcome::Dropped };
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

/// A chunk that is due. Drop tells the stream, and those who wait.
struct Coming {
    core: Arc<Core>,
    due: Due,
    outcome: Outcome,
}

impl Coming {
    fn read(mut self, slot: Slot) {
        self.outcome = Outcome::Ended;
        let Some(range) = self.core.readahead.state().streams.begin(self.due.id) else {
            return slot.did_nothing();
        };
        let cost = self.core.gate.cost();
        let (partition, object) = self.due.object;
        let wanted = if self.due.with_parity { Wanted::All } else { Wanted::Data };
        let most_ns = cost.time_ns(Direction::Read, range.end - range.start).saturating_mul(SCATTERED);
        let found = self.core.store.ahead(partition, object, range, wanted, passing_bytes(&cost));
        let stretches = match found {
            Ok(stretches) if !stretches.is_empty() => stretches,
            // The object ends here, or is gone.
            _ => {
                self.outcome = Outcome::Failed;
                return slot.did_nothing();
            }
        };
        let read = read_most(&stretches, |disk| reads_ns(&cost, disk) <= most_ns);
        Figures::add(&self.core.figures.ahead_bytes, read.bytes);
        slot.did_reads(read);
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
        let id = self.due.id;
        let mut state = self.core.readahead.state();
        match self.outcome {
            Outcome::Ended => state.streams.handle_end(id),
            Outcome::Failed | Outcome::Dropped => state.streams.handle_failed(id),
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
