//! Manager time: milliseconds that never go back, even across restarts.
//!
//! A durable bound is always ahead of every time that was handed out. A new manager starts at the bound, or
//! at the wall clock if that is later, so that times in listings mean something to users. From there it
//! counts on a clock that also runs while the machine sleeps: a wall clock that jumps has no effect. If the
//! wall clock is wrong at a start, time leaps ahead once; leases and capabilities then end early and are
//! requested again. Safety does not depend on it.
//!
//! [`ManagerClock::now_ms`] is for times that are sent or stored; it never passes the bound. Leases are
//! granted by [`ManagerClock::running_ms`], which has no bound: if the bound were moved late, a lease granted
//! meanwhile would seem older than it is, and a drive that still serves would seem dead. Both detect a pause
//! of this process before they return a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_meta::rules::pauses::Pauses;
use braid_transport::host::{boot_ms, wall_ms};

/// Distance of the durable bound ahead of time, in milliseconds: a crash makes time leap ahead by at most
/// this. A clean stop stores the last time handed out ([`ManagerClock::stop`]), so that leaps do not add up
/// over restarts.
pub(crate) const AHEAD_MS: u64 = 30_000;

/// Latest time that a clock begins at or is raised to, whatever a peer or a state says.
const LATEST_MS: u64 = u64::MAX / 2;

/// The clock of manager time.
pub struct ManagerClock {
    begin_ms: AtomicU64,
    boot_begin_ms: u64,
    bound_ms: AtomicU64,
    pauses: Arc<Pauses>,
}

impl ManagerClock {
    /// Begins at the durable bound (0 at the very first start). Call [`ManagerClock::extension`] and store
    /// its result before any use. `speak_ms`: time after a pause within which every live peer is heard.
    pub fn begin(bound_ms: u64, speak_ms: u64) -> ManagerClock {
        ManagerClock::begin_later(bound_ms, 0, speak_ms)
    }

    /// Begins `later_ms` after the bound and the wall clock: for a restored state, which does not know the
    /// times that were handed out since its backup.
    pub fn begin_later(bound_ms: u64, later_ms: u64, speak_ms: u64) -> ManagerClock {
        let begin_ms = bound_ms.max(wall_ms()).min(LATEST_MS) + later_ms;
        ManagerClock {
            begin_ms: AtomicU64::new(begin_ms),
            boot_begin_ms: boot_ms(),
            bound_ms: AtomicU64::new(begin_ms),
            pauses: Arc::new(Pauses::new(speak_ms, begin_ms)),
        }
    }

    /// Present time. Never past the durable bound: if that was not moved in time, time stands still at it.
    pub fn now_ms(&self) -> u64 {
        self.running_ms().min(self.bound_ms.load(Ordering::Acquire))
    }

    /// The bound to store next, if less than half of [`AHEAD_MS`] is left.
    pub fn extension(&self) -> Option<u64> {
        let wanted = self.running_ms() + AHEAD_MS;
        (self.bound_ms.load(Ordering::Acquire) < wanted - AHEAD_MS / 2).then_some(wanted)
    }

    /// Records that this bound is durable.
    pub fn extended(&self, bound_ms: u64) {
        self.bound_ms.fetch_max(bound_ms, Ordering::AcqRel);
    }

    /// Stops time from now on. Returns the bound to store: no time past it was handed out.
    pub fn stop(&self) -> u64 {
        let bound_ms = self.now_ms();
        self.bound_ms.store(bound_ms, Ordering::Release);
        bound_ms
    }

    /// Present time for grants that are never stored: not limited by the bound. Never behind
    /// [`ManagerClock::now_ms`].
    pub fn running_ms(&self) -> u64 {
        let now_ms = self.begin_ms.load(Ordering::Acquire) + self.passed_ms();
        self.pauses.look(now_ms);
        now_ms
    }

    /// Leaps ahead to `now_ms` if that is later than now. The leap counts as a pause of this process.
    pub fn raise(&self, now_ms: u64) {
        let begin_ms = now_ms.min(LATEST_MS).saturating_sub(self.passed_ms());
        self.begin_ms.fetch_max(begin_ms, Ordering::AcqRel);
    }

    fn passed_ms(&self) -> u64 {
        boot_ms().saturating_sub(self.boot_begin_ms)
    }

    /// The pauses of this process.
    pub fn pauses(&self) -> Arc<Pauses> {
        Arc::clone(&self.pauses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_no_clock_reaches_leaves_time_to_go_on() {
        let clock = ManagerClock::begin_later(u64::MAX, 1000, 1000);
        assert!(clock.extension().is_some_and(|bound_ms| bound_ms > LATEST_MS));
    }

    #[test]
    fn time_begins_at_the_bound_and_stops_at_it() {
        let far = u64::MAX / 4;
        let clock = ManagerClock::begin(far, 1000);
        assert_eq!(clock.now_ms(), far, "nothing past the bound before it is durable");
        let bound = clock.extension().unwrap();
        assert!(bound >= far + AHEAD_MS);
        clock.extended(bound);
        assert!(clock.now_ms() >= far && clock.now_ms() < bound);
        assert_eq!(clock.extension(), None);
        clock.raise(far + 600_000);
        clock.raise(far);
        assert!(clock.now_ms() <= bound, "the bound holds until it is moved");
        clock.extended(clock.extension().unwrap());
        assert!(clock.now_ms() >= far + 600_000);
        // A successor that knows only the bound is never behind.
        assert!(ManagerClock::begin(bound, 1000).now_ms() >= bound);
        let stopped = clock.stop();
        assert!((far + 600_000..far + 600_000 + AHEAD_MS).contains(&stopped), "{stopped}");
        clock.raise(far + 700_000);
        assert_eq!(clock.now_ms(), stopped, "whatever still runs is told no later time");
    }
}
