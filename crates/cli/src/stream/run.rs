//! State that the streams of one command share: the clock, the end, the accounts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_client::File;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::copy::stripe_bytes;
use crate::output::exit::{Doing, Failure};
use crate::stream::account::{Account, Plan, Total};

/// State that all streams share.
pub(super) struct Run {
    began: Instant,
    /// Bytes a second of each stream.
    rate: u64,
    period: Duration,
    /// Time for which each stream runs; `None`: until its file or source ends.
    pub(super) duration: Option<Duration>,
    stop: watch::Sender<bool>,
    accounts: Mutex<Vec<Arc<Stream>>>,
    failed: Mutex<Option<Failure>>,
}

/// The account of one stream.
pub(super) struct Stream {
    pub(super) plan: Plan,
    /// Number of pieces that may wait for their reader.
    queued: u64,
    account: Mutex<Account>,
    /// Permits for pieces that are under way.
    pub(super) ahead: Arc<Semaphore>,
    began: Instant,
}

impl Run {
    pub(super) fn new(rate: u64, period: Duration, duration: Option<Duration>) -> Arc<Run> {
        Arc::new(Run {
            began: Instant::now(),
            rate,
            period,
            duration,
            stop: watch::Sender::new(false),
            accounts: Mutex::default(),
            failed: Mutex::default(),
        })
    }

    /// The times and sizes of a stream of this file: late is what is later than its promise says.
    pub(super) fn plan(&self, file: &File) -> Plan {
        let period_ns = ns(self.period);
        let bound_ns = file.promise().map_or(period_ns, |promise| promise.lateness_us.saturating_mul(1000));
        Plan::new(self.rate, period_ns, bound_ns, stripe_bytes(file))
    }

    /// Begins a stream's account, now. This many pieces may wait for their reader.
    pub(super) fn begin(&self, plan: Plan, queued: u64) -> Arc<Stream> {
        let ahead = usize::try_from(plan.ahead()).unwrap_or(Semaphore::MAX_PERMITS);
        let stream = Arc::new(Stream {
            plan,
            queued,
            account: Mutex::new(Account::new(plan, 0)),
            ahead: Arc::new(Semaphore::new(ahead)),
            began: Instant::now(),
        });
        lock(&self.accounts).push(Arc::clone(&stream));
        stream
    }

    /// Waits for the time at which the stream's next piece begins. Returns false if the stream is over.
    pub(super) async fn next(&self, stream: &Stream) -> bool {
        let next = Duration::from_nanos(stream.account().next_ns());
        if self.duration.is_some_and(|duration| next >= duration) {
            return false;
        }
        tokio::select! {
            biased;
            () = self.stopped() => false,
            () = sleep_until(stream.began + next) => true,
        }
    }

    /// Waits until the run is to end.
    pub(super) async fn stopped(&self) {
        // The sender is part of the run, and so is there.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Returns true if the run is to end.
    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends all streams after the pieces that are under way.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A stream has failed: the run ends. The first failure is the run's.
    pub(super) fn fail(&self, failure: Failure) {
        lock(&self.failed).get_or_insert(failure);
        self.stop();
    }

    /// The first failure.
    pub(super) fn failure(&self) -> Option<Failure> {
        lock(&self.failed).clone()
    }

    /// Sum of all accounts.
    pub(super) fn total(&self) -> Total {
        lock(&self.accounts).iter().map(|stream| stream.account().total()).fold(Total::default(), Total::and)
    }

    /// Most memory that the streams' pieces take.
    pub(super) fn memory_bytes(&self) -> u64 {
        let of = |stream: &Arc<Stream>| {
            (stream.plan.ahead() + stream.queued).saturating_mul(stream.plan.piece_bytes)
        };
        lock(&self.accounts).iter().map(of).fold(0, u64::saturating_add)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Stream {
    pub(super) fn account(&self) -> MutexGuard<'_, Account> {
        lock(&self.account)
    }

    /// Time since the stream began, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        ns(self.began.elapsed())
    }
}

/// Waits for all transfers that are under way, also after a failure: then nothing uses their file any more.
/// Returns the first failure.
pub(super) async fn drained<E: Into<Failure> + 'static>(
    transfers: &mut JoinSet<Result<(), E>>,
) -> Result<(), Failure> {
    let mut all = Ok(());
    while let Some(transfer) = transfers.join_next().await {
        all = all.and(finished(transfer));
    }
    all
}

/// Returns the failure of a transfer that is over.
pub(super) fn finished<E: Into<Failure>>(transfer: Result<Result<(), E>, JoinError>) -> Result<(), Failure> {
    transfer.map_err(std::io::Error::other).doing(|| "move data".into())?.map_err(Into::into)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
