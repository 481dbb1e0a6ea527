//! The leases of a client's open files, renewed together: one request for all, however many there are.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use braid_layout::HolderId;
use braid_wire::control::{ControlReply, HeldLease, Renew};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::handle::Handle;
use crate::view::FileView;

/// Shortest time between two renewals.
const RENEW_MIN: Duration = Duration::from_millis(200);
/// Longest time until a failed renewal is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Reason given for the loss of a lease that the manager does not renew.
const ENDED: &str = "the manager has ended it: it was not renewed in time, or another writer of the file died \
                     while it truncated the file";
/// Maximum number of leases in a request.
const LEASES_MAX: usize = 4096;

/// The leases to renew. The task of one open file renews all of them; when its file is closed, the task of
/// another goes on.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// Leases to renew, by holder.
    kept: Mutex<BTreeMap<HolderId, Kept>>,
    /// One permit: its holder renews all leases.
    turn: Semaphore,
    /// Time at which the next renewals are due.
    due: Mutex<Option<Instant>>,
}

/// One lease to renew.
#[derive(Debug)]
struct Kept {
    handle: Weak<Handle>,
    /// Receives the reason when the lease is lost.
    lost: oneshot::Sender<String>,
}

/// Ends the renewals of one holder when it is dropped.
struct Keeping<'a> {
    handle: &'a Handle,
}

/// Time between two renewals.
pub(crate) fn period(view: &FileView) -> Duration {
    (Duration::from_millis(u64::from(view.lease_ms)) / 3).max(RENEW_MIN)
}

/// Has the handle's lease renewed until it is lost. Returns the reason of the loss.
pub(crate) async fn keep(handle: &Arc<Handle>) -> String {
    let (lost, why) = oneshot::channel();
    let renewals = &handle.client.shared.renewals;
    renewals.kept().insert(handle.holder, Kept { handle: Arc::downgrade(handle), lost });
    let _keeping = Keeping { handle };
    tokio::select! {
        why = why => why.unwrap_or_else(|_| "its renewals have ended".to_owned()),
        never = renewals.run(&handle.client, period(&handle.view())) => match never {},
    }
}

impl Renewals {
    pub(crate) fn new() -> Renewals {
        Renewals { kept: Mutex::default(), turn: Semaphore::new(1), due: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<HolderId, Kept>> {
        self.kept.lock().expect("no holder panics")
    }

    fn due(&self) -> MutexGuard<'_, Option<Instant>> {
        self.due.lock().expect("no holder panics")
    }

    /// Waits for the permit to renew, and renews all leases from then on.
    async fn run(&self, client: &Client, period: Duration) -> Infallible {
        let _turn = self.turn.acquire().await.expect("it is never closed");
        loop {
            let now = Instant::now();
            // The lease of a newly opened file lasts three periods from its opening.
            let due = self.due().filter(|due| *due <= now + period).unwrap_or(now + period);
            *self.due() = Some(due);
            tokio::time::sleep_until(due).await;
            let asked = Instant::now();
            let mut pause = period;
            for leases in self.all().chunks(LEASES_MAX) {
                if let Err(error) = Box::pin(self.renew(client, leases, period)).await {
                    tracing::warn!(%error, "{} leases could not be renewed", leases.len());
                    pause = period.min(Instant::now() - asked + TRY_AGAIN);
                }
            }
            *self.due() = Some(asked + pause);
        }
    }

    async fn renew(&self, client: &Client, leases: &[HeldLease], period: Duration) -> Result<()> {
        let subject = "the leases of open files";
        let request = Renew { leases: leases.to_vec() };
        let answer = client.shared.control.renew(subject, request, period.max(TRY_AGAIN)).await?;
        let ControlReply::Renewed(renewed) = answer else { return Err(unexpected(subject, &answer)) };
        for holder in renewed.give_back {
            let handle = self.kept().get(&holder).and_then(|kept| kept.handle.upgrade());
            handle.inspect(|handle| handle.wanted_back.notify_one());
        }
        for holder in renewed.lost {
            let kept = self.kept().remove(&holder);
            if let Some(kept) = kept {
                // Fails if the file was just closed.
                let _ = kept.lost.send(ENDED.to_owned());
            }
        }
        Ok(())
    }

    fn all(&self) -> Vec<HeldLease> {
        let kept = self.kept();
        let handles = kept.values().filter_map(|kept| kept.handle.upgrade());
        let held = handles.map(|handle| {
            let view = handle.view();
            HeldLease { file: view.file, lease: view.lease, holder: handle.holder }
        });
        held.collect()
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.handle.client.shared.renewals.kept().remove(&self.handle.holder);
    }
}
