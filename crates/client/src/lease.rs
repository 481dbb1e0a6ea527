//! The task that keeps a writer's lease while its file is open: renews it, and retires what is settled when the writer
//! pauses. It ends when the file is closed; when the file is dropped without, it gives the lease up as unclean, so that
//! the manager settles what the writer left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_layout::Version;
use braid_wire::Reason;
use braid_wire::control::{Release, Renew};
use tokio::sync::oneshot;

use crate::error::Error;
use crate::handle::Handle;
use crate::retire;
use crate::write::WriteSide;

/// How often the task looks.
const TICK: Duration = Duration::from_secs(1);
/// Shortest time between two renewals.
const RENEW_MIN: Duration = Duration::from_millis(200);

/// The task's other end: dropped without [`Keeper::end`], the lease is given up.
#[derive(Debug)]
pub(crate) struct Keeper {
    end: Option<oneshot::Sender<()>>,
}

impl Keeper {
    /// Starts the task.
    pub(crate) fn start(handle: Arc<Handle>, side: Arc<WriteSide>) -> Keeper {
        let (end, ended) = oneshot::channel();
        tokio::spawn(async move {
            keep(&handle, &side, ended).await;
        });
        Keeper { end: Some(end) }
    }

    /// Ends the task; the lease is the caller's to release.
    pub(crate) fn end(mut self) {
        if let Some(end) = self.end.take() {
            // An error means that the task has ended already: the lease was lost.
            let _ = end.send(());
        }
    }
}

async fn keep(handle: &Handle, side: &WriteSide, mut ended: oneshot::Receiver<()>) {
    let mut renewed = Instant::now();
    let (mut seen, mut retired) = (None, None);
    loop {
        let period = (Duration::from_millis(u64::from(handle.view().lease_ms)) / 3).max(RENEW_MIN);
        let tick = TICK.min(period);
        tokio::select! {
            end = &mut ended => {
                if end.is_err() {
                    give_up(handle, side).await;
                }
                return;
            }
            () = tokio::time::sleep(tick) => {}
        }
        if renewed.elapsed() + tick > period {
            let asked = Instant::now();
            // A file that is closed or dropped meanwhile does not wait for the manager.
            let answer = tokio::select! {
                end = &mut ended => {
                    if end.is_err() {
                        give_up(handle, side).await;
                    }
                    return;
                }
                answer = renew(handle) => answer,
            };
            match answer {
                Ok(()) => renewed = asked,
                Err(Error::LeaseLost { why, .. }) => {
                    tracing::warn!(file = %handle.subject, why, "the write lease is lost");
                    // Only the first loss counts.
                    let _ = side.lost.set(why);
                    return;
                }
                Err(error) => {
                    tracing::warn!(file = %handle.subject, %error, "the lease could not be renewed")
                }
            }
        }
        let settled = side.stamps.all_settled().filter(|_| side.stamps.is_used());
        if settled.is_some() && settled == seen && settled != retired {
            retire_idle(handle, settled).await;
            retired = settled;
        }
        seen = settled;
    }
}

/// Renews the lease, and the capabilities with it when they would run out before the next renewals.
async fn renew(handle: &Handle) -> Result<(), Error> {
    let view = handle.view();
    let soon = handle.client.shared.control.now_ms().saturating_add(u64::from(view.lease_ms));
    if soon >= view.expires_ms {
        return handle.refresh(&view).await.map(drop);
    }
    let request = Renew { file: view.file, lease: view.lease };
    handle.client.ask_done(&handle.subject, request, None).await.map_err(|error| handle.lease_error(error))
}

/// The writer pauses: the drives need not keep what came before.
async fn retire_idle(handle: &Handle, settled: Option<Version>) {
    if let Some(settled_to) = settled
        && !retire::retire(handle, settled_to, retire::Answered::AtOnce).await
    {
        tracing::debug!(file = %handle.subject, "not every drive has retired what is settled");
    }
}

/// The file was dropped without being closed.
async fn give_up(handle: &Handle, side: &WriteSide) {
    let clean = !side.stamps.is_used();
    if let Err(error) = release(handle, clean).await {
        tracing::info!(file = %handle.subject, %error, "the lease could not be given up; it ends by itself");
    }
}

/// Ends the lease.
pub(crate) async fn release(handle: &Handle, clean: bool) -> Result<(), Error> {
    let view = handle.view();
    let request = Release { file: view.file, lease: view.lease, clean };
    let answer = handle.client.ask_done(&handle.subject, request, Some(Reason::LeaseLost)).await;
    answer.map_err(|error| handle.lease_error(error))
}
