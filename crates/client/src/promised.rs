//! The account of a handle with a reserved rate: its sends are spread over the period, and late data is
//! counted.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::DriveId;
use braid_schedule::{Delivered, Due, Late, Lateness, Pacer};
use braid_wire::control::{self, HandlePromise, LatenessReport};
use tokio::time::{Instant, sleep_until};

/// The promise of one handle.
pub(crate) struct Promised {
    promise: HandlePromise,
    /// The beginning of the times of `state`.
    began: Instant,
    state: Mutex<State>,
    /// Random: distinguishes this handle's reports from those of others.
    number: u64,
}

struct State {
    pacer: Pacer,
    account: Lateness,
    /// Drives whose losses were met: each excuses one pause.
    lost: BTreeSet<DriveId>,
    /// The last report that needs no repeat.
    told: control::Lateness,
}

/// Data that is due. If it is dropped and not [`Turn::done`], its transfer has failed or was given up.
#[must_use]
pub(crate) struct Turn<'a> {
    promised: &'a Promised,
    due: Option<Due>,
}

impl Promised {
    /// Begins a handle's account. The random number stands for the handle.
    pub(crate) fn begin(promise: HandlePromise, number: u64) -> Promised {
        let period_ns = u64::from(promise.period_ms) * 1_000_000;
        let bound_ns = promise.lateness_us.saturating_mul(1000);
        let failover_ns = promise.failover_us.saturating_mul(1000);
        // Each stream has its part of the rate.
        let rate = (promise.rate / u64::from(promise.streams.max(1))).max(1);
        let burst = rate.saturating_mul(u64::from(promise.period_ms)) / 1000;
        let state = State {
            pacer: Pacer::new(rate, burst, period_ns),
            account: Lateness::with_failover(rate, period_ns, bound_ns, failover_ns),
            lost: BTreeSet::new(),
            told: control::Lateness::NONE,
        };
        Promised { promise, began: Instant::now(), state: Mutex::new(state), number }
    }

    /// The promise that the account is of.
    pub(crate) fn promise(&self) -> &HandlePromise {
        &self.promise
    }

    /// The most bytes that go at once: those of a period, in whole stripes of this many bytes.
    pub(crate) fn piece_bytes(&self, stripe_bytes: u64) -> u64 {
        let of_all = self.promise.rate.saturating_mul(u64::from(self.promise.period_ms)) / 1000;
        let of_period = of_all / u64::from(self.promise.streams.max(1));
        (of_period / stripe_bytes.max(1)).max(1).saturating_mul(stripe_bytes.max(1))
    }

    /// Waits for the time at which this many bytes may go. They are due from now on.
    pub(crate) async fn turn(&self, bytes: u64) -> Turn<'_> {
        let now = self.now();
        let (turn, at) = {
            let mut state = self.state();
            let due = state.account.arrived(now, bytes);
            (Turn { promised: self, due: Some(due) }, state.pacer.when(now, bytes))
        };
        if at > now {
            sleep_until(self.began + Duration::from_nanos(at)).await;
        }
        turn
    }

    /// The handle has met the loss of a drive. One that was lost before excuses nothing more.
    pub(crate) fn lost(&self, drive: DriveId) {
        let now = self.now();
        let mut state = self.state();
        if state.lost.insert(drive) {
            state.account.lost(now);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The account since the beginning.
    pub(crate) fn delivered(&self) -> Delivered {
        self.state().account.delivered()
    }

    /// The same, as the manager is told.
    fn total(&self) -> control::Lateness {
        let delivered = self.delivered();
        control::Lateness {
            bytes: delivered.bytes,
            active_ms: (delivered.bytes.saturating_mul(1000)).checked_div(delivered.rate).unwrap_or(0),
            periods: delivered.periods,
            late_periods: delivered.periods_late,
            worst_us: delivered.worst_ns / 1000,
            paused_periods: delivered.periods_paused,
            paused_us: delivered.paused_worst_ns / 1000,
            ..control::Lateness::NONE
        }
    }

    /// The report for the manager, if there is something new.
    pub(crate) fn news(&self) -> Option<LatenessReport> {
        let total = self.total();
        if total == self.state().told {
            return None;
        }
        Some(LatenessReport { reservation: self.promise.reservation, handle: self.number, total })
    }

    /// Records that this report needs no repeat.
    pub(crate) fn told(&self, report: &LatenessReport) {
        self.state().told = report.total;
    }

    fn note(&self, late: Option<Late>) {
        if let Some(late) = late {
            tracing::debug!(
                reservation = %self.promise.reservation,
                period = late.period,
                late_us = late.lateness_ns / 1000,
                "late under a reservation"
            );
        }
    }
}

impl Turn<'_> {
    /// The bytes are there.
    pub(crate) fn done(mut self) {
        if let Some(due) = self.due.take() {
            let now = self.promised.now();
            let late = {
                let mut state = self.promised.state();
                state.pacer.ended(now);
                state.account.done(now, due)
            };
            self.promised.note(late);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(due) = self.due.take() {
            let now = self.promised.now();
            let late = {
                let mut state = self.promised.state();
                state.pacer.ended(now);
                state.account.given_up(now, due)
            };
            self.promised.note(late);
        }
    }
}
