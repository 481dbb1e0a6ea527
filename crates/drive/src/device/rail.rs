//! One direction of the drive's network path, as something to be shared. Its rate is told by the operator.
//!
//! The system takes bytes for sending at once and sends them later, in an order of its own. So a turn here
//! takes as long as the rail needs for the bytes, not as long as the system takes to accept them: the queues
//! below stay short. What is received is held back by not being read: the sender's window closes then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_schedule::{Charge, DeviceCost, Direction, DirectionCost, Flow, Promise};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::device::gate::{Gate, Slot};

/// Requests at a rail at most.
const REQUESTS_MAX: usize = 1024;

/// Both directions of a drive's rail.
pub(crate) struct Rails {
    /// Towards the drive.
    pub(crate) inward: Rail,
    /// Away from the drive.
    pub(crate) outward: Rail,
}

/// One direction of a rail.
pub(crate) struct Rail {
    gate: Arc<Gate>,
    bytes_per_second: u64,
    direction: Direction,
    /// The time until which the rail is taken.
    busy: Arc<Mutex<Instant>>,
}

impl Rails {
    /// The rail of this many bytes a second; `None` if the rate is 0: not known, and nothing is held back.
    pub(crate) fn new(disk: &Gate, bytes_per_second: u64) -> Option<Rails> {
        (bytes_per_second > 0).then(|| Rails {
            inward: Rail::new(disk, bytes_per_second, Direction::Write),
            outward: Rail::new(disk, bytes_per_second, Direction::Read),
        })
    }

    /// Their gates, which are closed when the drive ends.
    pub(crate) fn gates(&self) -> [&Arc<Gate>; 2] {
        [&self.inward.gate, &self.outward.gate]
    }
}

impl Rail {
    fn new(disk: &Gate, bytes_per_second: u64, direction: Direction) -> Rail {
        let way = DirectionCost { operation_ns: 0, bytes_per_second };
        let cost = DeviceCost { charge: Charge::Larger, read: way, write: way, sync_ns: 0 };
        let gate = disk.beside(cost, REQUESTS_MAX);
        Rail { gate, bytes_per_second, direction, busy: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Has `begin` called when it is the turn of bytes of this flow. `begin` must not block.
    pub(crate) fn enter(&self, flow: Flow, bytes: u32, begin: impl FnOnce() + Send + 'static) {
        let busy = Arc::clone(&self.busy);
        let bytes = u64::from(bytes);
        let flow = by_bytes(flow);
        let takes = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second.max(1));
        self.gate.enter(flow, self.direction, bytes, move |slot| {
            begin();
            let end = {
                let mut busy = busy.lock().unwrap_or_else(PoisonError::into_inner);
                *busy = (*busy).max(Instant::now()) + takes;
                *busy
            };
            tokio::spawn(hold(slot, end));
        });
    }

    /// Waits for the turn of bytes of this flow. `Err`: the drive ends.
    pub(crate) async fn turn(&self, flow: Flow, bytes: u32) -> Result<(), oneshot::error::RecvError> {
        let (told, turn) = oneshot::channel();
        self.enter(flow, bytes, move || {
            let _ = told.send(());
        });
        turn.await
    }
}

/// The flow with a promise that is used up by bytes alone: what operations cost the disk is nothing to the
/// rail.
fn by_bytes(flow: Flow) -> Flow {
    match flow {
        Flow::Reserved { reservation, tenant, promise } => {
            let promise = Promise { operation_bytes: 0, operation_ns: 0, ..promise };
            Flow::Reserved { reservation, tenant, promise }
        }
        other => other,
    }
}

async fn hold(slot: Slot, end: Instant) {
    sleep_until(end).await;
    drop(slot);
}
