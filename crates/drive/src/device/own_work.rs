//! The drive's own work at the disk: that of its store, and what the drive verifies. It has its turns like
//! any other.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use braid_schedule::{Background, Direction, Flow};
use braid_store::{OwnWork, Turns};
use tokio::sync::oneshot;

use crate::device::gate::{Gate, Slot};

/// Interval between two looks whether a wait is to be given up.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait. Reservations leave a part of the disk to the drive's own work: if that does not suffice, the
/// log would fill up.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Turns for a drive's store.
pub(crate) struct StoreTurns(pub(crate) Arc<Gate>);

impl fmt::Debug for StoreTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreTurns")
    }
}

impl Turns for StoreTurns {
    fn wait(&self, work: OwnWork, read: u64, written: u64, gives_up: &dyn Fn() -> bool) -> Box<dyn Send> {
        let flow = Flow::Background(match work {
            OwnWork::Cleaning | OwnWork::Folding => Background::Cleaning,
            OwnWork::Checkpoint => Background::Checkpoint,
        });
        if gives_up() {
            return Box::new(());
        }
        let (told, slot) = mpsc::channel();
        // A wait that is given up drops its slot when it comes.
        self.0.enter_both(flow, read, written, move |slot| {
            let _ = told.send(slot);
        });
        let until = Instant::now() + WAIT_MAX;
        while !gives_up() && Instant::now() < until {
            match slot.recv_timeout(LOOK_EVERY) {
                Ok(slot) => return Box::new(slot),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        Box::new(())
    }
}

/// Waits for the turn of a read that the drive makes for itself; `None` if the drive ends.
pub(crate) async fn turn_to_verify(gate: &Arc<Gate>, bytes: u64) -> Option<Slot> {
    let (told, slot) = oneshot::channel();
    let flow = Flow::Background(Background::Scrub);
    gate.enter(flow, Direction::Read, bytes, move |slot| drop(told.send(slot)));
    slot.await.ok()
}
