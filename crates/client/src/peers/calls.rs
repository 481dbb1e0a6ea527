//! Calls on silent rails: whether a drive that does not answer is slow, or the way to it is cut.
//!
//! A rail on which nothing arrives for [`SILENCE`] is called once more, aside. If it gives no hello, it is
//! lost: its requests go again on another rail at once. So a link that is cut without a word costs two
//! seconds, and a slow drive nothing.
//!
//! All that wait on a rail share one call at a time, and one that was answered counts for [`SILENCE`]: a slow
//! drive with many requests is not called for each. A drive that refuses the call or ends it before its
//! hello, as one does that has too many connections, is alive.

use std::future::Future;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::{Limits, TransportError};
use braid_wire::control::Grant;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::peers::dealing::CONNECT;
use crate::peers::drives::Drives;

/// Time without any answer after which a rail is called once more, if the drive has others.
const SILENCE: Duration = Duration::from_secs(1);

/// The calls on one rail.
#[derive(Default)]
pub(super) struct Calls {
    /// The present call, of those that wait for it: true if the rail is alive.
    present: Weak<OnceCell<bool>>,
    /// Beginning of the last call that was answered.
    answered: Option<Instant>,
}

impl Drives {
    /// Waits for something on one of several rails of a drive, and gives it up if the rail is dead: if for a
    /// while `progress` did not change, and the rail gives no hello.
    pub(crate) async fn unless_silent<T>(
        &self,
        drive: DriveId,
        address: &str,
        grant: Option<&Grant>,
        progress: &AtomicU64,
        work: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let silent = async {
            let mut since = Instant::now();
            loop {
                let before = progress.load(Ordering::Relaxed);
                tokio::time::sleep_until(since + SILENCE).await;
                if progress.load(Ordering::Relaxed) != before {
                    since = Instant::now();
                    continue;
                }
                match self.answered_call(drive, address) {
                    Some(answered) if answered.elapsed() < SILENCE => since = answered,
                    _ => {
                        let is_alive = self.call_again(drive, address, grant).await;
                        if !is_alive && progress.load(Ordering::Relaxed) == before {
                            return;
                        }
                        since = Instant::now();
                    }
                }
            }
        };
        let what = "for an answer; it was called again, and said no hello";
        tokio::select! {
            biased;
            done = work => done,
            () = silent => Err(TransportError::Timeout { what, address: address.to_owned() }),
        }
    }

    /// Beginning of the last call on a rail that was answered.
    fn answered_call(&self, drive: DriveId, address: &str) -> Option<Instant> {
        self.with_calls(drive, address, |calls| calls.answered).flatten()
    }

    /// Calls the drive on a rail, or waits for the call that is under way. Returns false if the rail is dead.
    async fn call_again(&self, drive: DriveId, address: &str, grant: Option<&Grant>) -> bool {
        let join = |calls: &mut Calls| {
            calls.present.upgrade().filter(|call| !call.initialized()).unwrap_or_else(|| {
                let call = Arc::default();
                calls.present = Arc::downgrade(&call);
                call
            })
        };
        let call = self.with_calls(drive, address, join).unwrap_or_default();
        // If the one that calls is gone, another that waits calls in its place.
        let is_alive = call.get_or_init(async || {
            let began = Instant::now();
            let limits = Limits { connect: self.limits.connect.min(CONNECT), ..self.limits };
            let called = self.ways.connect(address, self.call(drive, &limits, grant)).await;
            let is_alive = called.as_ref().map_or_else(is_of_living, |_| true);
            let error = called.err();
            tracing::debug!(drive = %drive.short(), address, is_alive, ?error, "a silent rail was called");
            if is_alive {
                self.with_calls(drive, address, |calls| calls.answered = Some(began));
            }
            is_alive
        });
        *is_alive.await
    }

    /// `None` if the drive has no rail at this address now.
    fn with_calls<T>(&self, drive: DriveId, address: &str, then: impl FnOnce(&mut Calls) -> T) -> Option<T> {
        let mut entries = self.entries.lock().expect("no holder panics");
        let entry = entries.get_mut(&drive)?;
        let at = entry.rail(address)?;
        Some(then(&mut entry.links[at].calls))
    }
}

/// Returns true if a call that failed with this error reached somebody who ended it.
fn is_of_living(error: &TransportError) -> bool {
    match error {
        TransportError::Refusal(_) | TransportError::Closed { .. } => true,
        TransportError::Io { source, .. } => source.kind() == ErrorKind::ConnectionReset,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use braid_layout::ClusterId;
    use braid_wire::Addresses;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::concurrent;
    use crate::peers::drives::entry_at;

    const DRIVE: DriveId = DriveId(7);
    const WAITING: usize = 64;

    /// A drive with two rails, and a socket that listens at the first.
    async fn rail() -> (Drives, TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let drives = Drives::new(ClusterId(1), Limits::default(), 4, Duration::ZERO);
        let both = Addresses::new(&[&address, "127.0.0.1:1"]).expect("two addresses");
        entry_at(&mut drives.entries.lock().expect("no holder panics"), DRIVE, &both);
        (drives, listener, address)
    }

    #[tokio::test]
    async fn all_that_wait_on_a_silent_rail_share_a_call() {
        let (drives, listener, address) = rail().await;
        let called = AtomicUsize::new(0);
        let calls = async {
            let mut open: Vec<TcpStream> = Vec::new();
            loop {
                open.push(listener.accept().await.expect("a call").0);
                called.fetch_add(1, Ordering::SeqCst);
            }
        };
        let progress = AtomicU64::new(0);
        let wait = |_| {
            drives.unless_silent(DRIVE, &address, None, &progress, std::future::pending::<Result<(), _>>())
        };
        let all = concurrent::all((0..WAITING).map(wait));
        let ends = tokio::select! {
            ends = all => ends,
            () = calls => unreachable!("it goes on"),
        };
        assert!(ends.iter().all(|end| matches!(end, Err(TransportError::Timeout { .. }))), "{ends:?}");
        let called = called.load(Ordering::SeqCst);
        assert!((1..WAITING / 2).contains(&called), "{called} calls");
    }

    #[tokio::test]
    async fn a_rail_that_ends_a_call_is_alive() {
        let (drives, listener, address) = rail().await;
        let called = Semaphore::new(0);
        let calls = async {
            loop {
                drop(listener.accept().await.expect("a call"));
                called.add_permits(1);
            }
        };
        // The answer comes after two calls.
        let answer = async {
            called.acquire_many(2).await.expect("it is never closed").forget();
            Ok(())
        };
        let progress = AtomicU64::new(0);
        tokio::select! {
            end = drives.unless_silent(DRIVE, &address, None, &progress, answer) => end.expect("it is alive"),
            () = calls => unreachable!("it goes on"),
        }
    }
}
