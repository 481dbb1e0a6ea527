//! A manager's lease in etcd: while it lasts, the manager counts as running, and leads if it does.
//!
//! The manager counts the lease's time itself, from before it asked for it, on the clock that also runs while
//! the machine sleeps. So it stops to answer before etcd lets another lead, also after a pause. The client
//! library's keep-alive holds on to one member; so each renewal here is a request of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_transport::host::boot_ms;
use tokio::time::sleep;

use super::error::EtcdError;
use super::link::{ATTEMPT, Link, Member, Trouble};

/// Length of the lease. A leader that dies is replaced after this time and a moment. It must outlast an
/// election of etcd's own, which takes one to two seconds, and in which no lease is renewed, together with a
/// renewal and a wait for a member that hangs: else the managers' leader would change whenever etcd's does.
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// Interval of renewals.
const RENEW: Duration = Duration::from_millis(1000);
/// Interval after a renewal that failed.
const RENEW_AGAIN: Duration = Duration::from_millis(100);
/// Maximum time that one member is waited for.
const RENEWED: Duration = Duration::from_millis(1000);
/// The manager takes its lease to be shorter than etcd does, as their clocks may not run alike.
const MARGIN: Duration = Duration::from_millis(500);

/// A lease in etcd.
pub(super) struct Lease {
    pub(super) id: i64,
    /// Moment at which it ends, in milliseconds since boot.
    until_ms: AtomicU64,
}

impl Lease {
    /// Gets a lease from etcd.
    pub(super) async fn grant(link: &Link) -> Result<Lease, EtcdError> {
        let sent_ms = boot_ms();
        let seconds = i64::try_from(LEASE.as_secs()).unwrap_or(i64::MAX);
        let ask = |mut member: Member| async move { member.lease.grant(seconds, None).await };
        let granted = link.once(ATTEMPT, ask).await.map_err(|trouble| link.error(trouble))?;
        let lease = Lease { id: granted.id(), until_ms: AtomicU64::new(0) };
        lease.renewed(sent_ms);
        Ok(lease)
    }

    /// Keeps the lease until it is lost.
    pub(super) async fn keep(&self, link: &Link) {
        let mut pause = RENEW;
        loop {
            sleep(pause).await;
            let left = self.left();
            if left.is_zero() {
                return;
            }
            let sent_ms = boot_ms();
            let ask = |mut member: Member| async move { member.lease.keep_alive(self.id).await };
            match link.once(RENEWED.min(left), ask).await {
                Ok(_) => {
                    self.renewed(sent_ms);
                    pause = RENEW;
                }
                Err(Trouble::LeaseGone) => {
                    self.until_ms.store(0, Ordering::Release);
                    return;
                }
                Err(trouble) => {
                    tracing::debug!(?trouble, "the lease in etcd is not renewed yet");
                    pause = RENEW_AGAIN;
                }
            }
        }
    }

    /// Time that is left of it; zero once it is over.
    pub(super) fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Acquire).saturating_sub(boot_ms()))
    }

    /// Gives the lease back, so that another may lead at once.
    pub(super) async fn end(&self, link: &Link) {
        self.until_ms.store(0, Ordering::Release);
        let ask = |mut member: Member| async move { member.lease.revoke(self.id).await };
        if let Err(trouble) = link.once(ATTEMPT, ask).await {
            tracing::debug!(?trouble, "the lease in etcd was not given back: it ends by itself");
        }
    }

    fn renewed(&self, sent_ms: u64) {
        let length = u64::try_from((LEASE - MARGIN).as_millis()).unwrap_or_default();
        self.until_ms.fetch_max(sent_ms + length, Ordering::AcqRel);
    }
}
