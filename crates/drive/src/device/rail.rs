//! One direction of the drive's network path, as something to be shared. Its rate is told by the operator.
//!
//! The system takes bytes for sending at once and sends them later, in an order of its own. So a turn here
//! takes as long as the rail needs for the bytes, not as long as the system takes to accept them: the queues
//! below stay short. What is received is held back by not being read: the sender's window closes then. A
//! turn is for a piece of a payload ([`RailRate::piece_bytes`]), so that a long one holds up no other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_schedule::{Direction, Flow, Promise, RailRate};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::device::gate::{Entry, Gate, Slot};

/// Both directions of a drive's rail.
pub(crate) struct Rails {
    /// Towards the drive.
    pub(crate) inward: Arc<Rail>,
    /// Away from the drive.
    pub(crate) outward: Arc<Rail>,
}

/// One direction of a rail.
pub(crate) struct Rail {
    gate: Arc<Gate>,
    rate: RailRate,
    direction: Direction,
    /// The time until which the rail is taken, in the scheduler's nanoseconds.
    taken_ns: Mutex<u64>,
}

/// The turns of a payload's pieces, in their order. The next piece is asked for when the one before has its
/// turn: what is not taken keeps no more than one turn from others.
pub(crate) struct Turns {
    rail: Arc<Rail>,
    flow: Flow,
    /// Time at which the payload came to the rail, in the scheduler's nanoseconds.
    came_ns: u64,
    /// Bytes that were not asked for yet.
    left: u32,
    /// The piece whose turn is awaited.
    asked: Option<Asked>,
    /// The piece that has its turn.
    granted: Option<u32>,
}

struct Asked {
    bytes: u32,
    turn: oneshot::Receiver<()>,
}

/// No turn comes: the request waited too long, or the drive ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoTurn;

impl Rails {
    /// The rail of which this rate was told, in bytes a second; `None` if it is 0: not known, and nothing is
    /// held back.
    pub(crate) fn new(disk: &Gate, bytes_per_second: u64) -> Option<Rails> {
        let rate = RailRate::of_told(bytes_per_second)?;
        let rail = |direction| {
            let gate = disk.beside(rate.config());
            Arc::new(Rail { gate, rate, direction, taken_ns: Mutex::new(0) })
        };
        Some(Rails { inward: rail(Direction::Write), outward: rail(Direction::Read) })
    }

    /// Their gates: they keep time, and are closed when the drive ends.
    pub(crate) fn gates(&self) -> [&Arc<Gate>; 2] {
        [&self.inward.gate, &self.outward.gate]
    }
}

impl Rail {
    /// The turns of this many bytes of a flow.
    pub(crate) fn turns(self: &Arc<Rail>, flow: Flow, bytes: u32) -> Turns {
        let mut turns = Turns {
            rail: Arc::clone(self),
            flow: by_bytes(flow),
            came_ns: self.gate.now_ns(),
            left: bytes,
            asked: None,
            granted: None,
        };
        turns.ask(true);
        turns
    }

    /// Takes the rail for a piece. Its slot is held until the piece is through.
    fn take(&self, slot: Slot, bytes: u32) {
        let now = self.gate.now_ns();
        let until = {
            let mut taken_ns = self.taken_ns.lock().unwrap_or_else(PoisonError::into_inner);
            *taken_ns = self.rate.taken_until_ns(*taken_ns, now, u64::from(bytes));
            *taken_ns
        };
        if until > now {
            tokio::spawn(hold(slot, Duration::from_nanos(until - now)));
        }
    }
}

impl Turns {
    /// Waits until the first piece has its turn, which [`Turns::next`] then tells.
    pub(crate) async fn first(&mut self) -> Result<(), NoTurn> {
        self.granted = self.next().await?;
        Ok(())
    }

    /// Waits for the next piece's turn. Returns the piece's bytes; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<u32>, NoTurn> {
        if let Some(bytes) = self.granted.take() {
            return Ok(Some(bytes));
        }
        let Some(Asked { bytes, turn }) = self.asked.take() else { return Ok(None) };
        turn.await.map_err(|_| NoTurn)?;
        self.ask(false);
        Ok(Some(bytes))
    }

    /// Asks for the next piece, if one is left.
    fn ask(&mut self, is_first: bool) {
        let bytes = self.left.min(self.rail.rate.piece_bytes());
        if bytes == 0 {
            return;
        }
        self.left -= bytes;
        let rail = Arc::clone(&self.rail);
        let entry = Entry {
            flow: self.flow,
            direction: rail.direction,
            bytes: u64::from(bytes),
            cost_ns: rail.rate.time_ns(u64::from(bytes)),
            goes_on: (!is_first).then_some(self.came_ns),
        };
        let (told, turn) = oneshot::channel();
        self.asked = Some(Asked { bytes, turn });
        Arc::clone(&rail.gate).enter_at(entry, move |slot| {
            // Nobody waits for it any more: it takes nothing.
            if told.send(()).is_ok() {
                rail.take(slot, bytes);
            } else {
                slot.did_nothing();
            }
        });
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").field("left", &self.left).finish_non_exhaustive()
    }
}

/// The flow with a promise that is used up by bytes alone: what operations cost the disk is nothing to the
/// rail.
pub(crate) fn by_bytes(flow: Flow) -> Flow {
    match flow {
        Flow::Reserved { reservation, tenant, promise } => {
            let promise = Promise { operation_bytes: 0, operation_ns: 0, ..promise };
            Flow::Reserved { reservation, tenant, promise }
        }
        other => other,
    }
}

async fn hold(slot: Slot, time: Duration) {
    sleep(time).await;
    drop(slot);
}

#[cfg(test)]
mod tests {
    use braid_schedule::DeviceCost;

    use super::*;

    /// A rail of 200 Mbit/s: 2.9 ms for a piece of 64 KiB.
    const TOLD: u64 = 25_000_000;
    const PIECE: u32 = 64 << 10;

    fn rails() -> Rails {
        Rails::new(&Gate::new(DeviceCost::FREE, 1), TOLD).expect("its rate is told")
    }

    fn best_effort(client: u64) -> Flow {
        Flow::BestEffort { tenant: 1, client }
    }

    fn reserved() -> Flow {
        let promise = Promise {
            direction: Direction::Write,
            rate: 5_000_000,
            burst: 1 << 20,
            operation_bytes: 1 << 20,
            operation_ns: 1,
            until_ns: u64::MAX,
        };
        Flow::Reserved { reservation: 1, tenant: 1, promise }
    }

    /// Takes all turns. Returns the pieces.
    async fn all(mut turns: Turns) -> Vec<u32> {
        let mut pieces = Vec::new();
        while let Some(bytes) = turns.next().await.expect("its turn comes") {
            pieces.push(bytes);
        }
        pieces
    }

    #[tokio::test]
    async fn a_payload_goes_in_pieces() {
        let rails = rails();
        for _ in 0..3 {
            let pieces = all(rails.outward.turns(best_effort(1), 2 * PIECE + 5)).await;
            assert_eq!(pieces, [PIECE, PIECE, 5]);
        }
        assert_eq!(all(rails.outward.turns(best_effort(1), 0)).await, []);
        let mut turns = rails.outward.turns(best_effort(1), PIECE);
        assert_eq!(turns.first().await, Ok(()));
        assert_eq!((turns.next().await, turns.next().await), (Ok(Some(PIECE)), Ok(None)));
    }

    #[tokio::test]
    async fn a_promise_does_not_wait_for_the_rest_of_a_long_payload() {
        let rails = rails();
        // It takes three minutes.
        let long = tokio::spawn(all(rails.inward.turns(best_effort(1), u32::MAX)));
        assert_eq!(all(rails.inward.turns(reserved(), 4 * PIECE)).await, [PIECE; 4]);
        assert!(!long.is_finished());
        long.abort();
    }

    #[tokio::test]
    async fn what_nobody_waits_for_takes_nothing() {
        let rails = rails();
        let inward = &rails.inward;
        let given_up: Vec<Turns> = (0..1000).map(|client| inward.turns(best_effort(client), PIECE)).collect();
        drop(given_up);
        assert_eq!(all(inward.turns(best_effort(1), PIECE)).await, [PIECE]);
        let piece_ns = inward.rate.time_ns(u64::from(PIECE));
        let taken_ns = *inward.taken_ns.lock().expect("nobody has panicked");
        assert!(taken_ns < inward.gate.now_ns() + 10 * piece_ns, "{taken_ns} ns: not by a thousand pieces");
    }
}
