//! The drive's debts to parity drives, and the lanes that pay them, shared by all connections.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_layout::{Column, ColumnMask, DriveId, Generation};
use braid_wire::{Reason, Refusal};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connections::answerer::Ticket;
use crate::parity::debts::{Debts, UnitRef};
use crate::parity::receipts::SisterReceipts;
use crate::parity::sisters::Sisters;

/// A writer that waits until its version is settled.
pub(crate) struct Waiter {
    pub(crate) ticket: Ticket,
    pub(crate) g: Generation,
    /// The data column on this drive, to which the write went.
    pub(crate) own: ColumnMask,
    /// The drives of the stripe's parity columns.
    pub(crate) parity: Vec<DriveId>,
    pub(crate) since: Instant,
}

/// The drive's debts and the lanes that pay them.
pub(crate) struct Forwarder {
    pub(crate) debts: Mutex<Debts<Waiter>>,
    pub(crate) sisters: Sisters,
    pub(crate) lanes: Mutex<Lanes>,
    /// Notified when something was acknowledged or dropped.
    pub(crate) progress: Notify,
    pub(crate) receipts: SisterReceipts,
    /// Runtime of the lanes. The store's thread, which reports owed versions, is not part of it.
    pub(crate) runtime: Handle,
}

#[derive(Default)]
pub(crate) struct Lanes {
    pub(crate) senders: HashMap<DriveId, mpsc::UnboundedSender<Job>>,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) is_stopped: bool,
}

/// A unit's deltas for one parity column.
pub(crate) type Job = (UnitRef, Column);

impl Forwarder {
    /// Creates the forwarder. To be called in the runtime in which its lanes are to run.
    pub(crate) fn new(sisters: Sisters) -> Forwarder {
        let (debts, lanes, progress, receipts) = Default::default();
        Forwarder { debts, sisters, lanes, progress, receipts, runtime: Handle::current() }
    }

    pub(crate) fn debts(&self) -> MutexGuard<'_, Debts<Waiter>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all lanes, and the task that [`start`] began. Waiting writers are refused, and no lane begins
    /// again.
    pub(crate) fn stop(&self) {
        let lanes = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *lanes, Lanes { is_stopped: true, ..Lanes::default() })
        };
        drop(lanes);
        // The waiters hold the drive's state, and the state holds the waiters: the cycle is broken here.
        let mut debts = std::mem::take(&mut *self.debts());
        for (_, _, Waiter { ticket, g, .. }) in debts.take_late(|_| true) {
            ticket.refuse(g, Refusal::new(Reason::Closing, "the drive is shutting down"));
        }
        self.progress.notify_waiters();
    }
}
