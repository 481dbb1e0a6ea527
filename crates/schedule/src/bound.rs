//! What a scheduler is set to, and how late a promised request can be then.
//!
//! # The bound
//!
//! A promised request that is given out after its due time `F` was held up by what went before it. Let `T` be
//! the time at which it is given out, and `t0` the last time before `T` at which no eligible request with a
//! due time up to `F` waited. `c` is the largest cost of a request, `D` the most device time in flight, and
//! `Q = max(D, c)`.
//!
//! 1. *In flight at `t0`*: at most `Q`.
//! 2. *Promised work given out from `t0` to `T`*. It is due by `F`, since the earliest due goes first, and it
//!    starts at `t0` or later: had it been eligible before, it would have waited at `t0`. Start and due times
//!    of a flow with rate `R` do not overlap, and a charge `q` takes `q / R` from start to due. So the flow's
//!    charges are at most `R (F - t0)`, and all flows together take at most `U (F - t0)` of the device, where
//!    `U` is the share of the device that is booked. **Bursts do not appear**: they let requests go before
//!    their start, but what is due later does not go before what is due earlier.
//! 3. *The rest's share* `r` is served as a promised flow of that rate, in device time: `r (F - t0) + c`.
//! 4. *The system's share* `s` with burst `B` goes before all: `s (T - t0) + B + c`.
//!
//! From `t0` to `T` the device is busy, as the scheduler gives out all that fits: so
//!
//! ```text
//! T - t0 <= Q + (U + r) (F - t0) + c + s (T - t0) + B + c
//! ```
//!
//! and with `U + r + s <= 1`, `T - F <= (Q + B + 2 c) / (1 - s)`. What is in flight when it is given out,
//! itself included, is at most `Q`, and then the device's latency `l` passes:
//!
//! ```text
//! L = (Q + B + 2 c) / (1 - s) + Q + l
//! ```
//!
//! The device is assumed to work off what it is given at its costs or faster, with the requests before not
//! overtaken for longer than they are in flight, and to answer up to `l` after. That it is never idle while
//! requests wait needs depth: of what is in flight, up to `l + c` is worked off and not answered yet, and up
//! to `c` may be free, as the next request does not fit; so `D >= l + 2 c`. And the number of requests in
//! flight must not be what holds a request back, as requests of the other direction pass it then: that many
//! of the smallest cost fill `D`.
//!
//! # Writes
//!
//! A write is answered with its commit, and a log makes one commit at a time. At worst a commit began just
//! before the write was given out. It ends after `Q`, like all that was in flight then. The write's own
//! commit begins only now, and what came meanwhile goes with it: at most `Q` again, and the commit's own cost
//! `k`:
//!
//! ```text
//! L_write = L + Q + k
//! ```
//!
//! # Larger operations
//!
//! The settings are for operations of up to [`OPERATION_BYTES`]. One that takes longer is a larger `c`, and
//! the bound grows with it ([`Config::kept_within_ns`]). If `D < l + 2 c`, it may also not fit beside what is
//! worked off and not answered yet: then the device idles for up to `l` before it. So such an operation is
//! booked as if it took [`idle_ns`] longer, which keeps step 2, and one more `l` passes before the one that
//! is looked at. Such operations of the rest make it exceed its share by as much, which is less than what the
//! shares leave.
//!
//! That is the bound of the larger operations themselves. Requests of the usual size beside them wait for a
//! larger `c` too, and are told so only if their own promise is for larger ones.

use crate::cost::{DeviceCost, Direction};
use crate::tags::scaled;

/// Parts of the whole in a share of a thousand.
const WHOLE: u64 = 1000;

/// Largest usual operation, in bytes.
pub const OPERATION_BYTES: u64 = 1 << 20;
/// The least device time in flight, in nanoseconds.
const IN_FLIGHT_NS_MIN: u64 = 20_000_000;
/// Greatest share of a device that is booked, in thousandths: promises, and the rates of background work.
pub const BOOKED_PERMILLE: u32 = 800;
/// Time from when a device has done an operation until the drive knows of it, beside a sync, in nanoseconds.
pub(crate) const LATENCY_NS: u64 = 5_000_000;
/// Requests have at least this part of the device time in flight, as far as the bound is concerned.
const SMALLEST_PART: u64 = 32;
/// Bound where the formula tells none, in times of the device time in flight.
const UNKNOWN_BOUND: u64 = 6;

/// Settings of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Reads at most that are given out and not done: each takes a thread.
    pub reads_in_flight: usize,
    /// Writes at most that are given out and not done: they wait for a commit together.
    pub writes_in_flight: usize,
    /// Device time at most of all that is given out and not done. A single request may have more.
    pub time_in_flight_ns: u64,
    /// Requests of one flow that may wait.
    pub waiting_max: usize,
    /// Lateness up to which promised reads are kept, by [`lateness_bound`]. Beyond it a request counts as
    /// late, and the device as overbooked.
    pub lateness_ns: u64,
    /// The same for writes, which wait for a commit.
    pub write_lateness_ns: u64,
    /// Share of the device that the system may use before all others, in thousandths.
    pub system_permille: u64,
    /// Device time by which the system may exceed its share at once.
    pub system_burst_ns: u64,
    /// Share of the device that all without a promise have together even if promises ask for all, in
    /// thousandths.
    pub rest_permille: u64,
    /// Device time of the largest operations that the bounds on lateness are for, without their commit;
    /// `u64::MAX`: they are for all.
    pub largest_ns: u64,
    /// Device time of a commit, which is part of what a write takes.
    pub commit_ns: u64,
    /// Time from when the device has done an operation until the drive knows.
    pub latency_ns: u64,
}

impl Config {
    /// The usual shares and depths for a device: enough device time in flight that it is never idle, with
    /// operations of [`OPERATION_BYTES`] as the largest usual ones.
    pub fn for_device(cost: &DeviceCost) -> Config {
        let largest_ns = largest_ns(cost);
        let latency_ns = latency_ns(cost);
        let config = Config::new(depth_ns(cost));
        let load = Load {
            booked_permille: u64::from(BOOKED_PERMILLE),
            smallest_ns: config.time_in_flight_ns / SMALLEST_PART,
            largest_ns,
            latency_ns,
        };
        let unknown = config.time_in_flight_ns.saturating_mul(UNKNOWN_BOUND);
        let lateness_ns = lateness_bound(&config, &load).unwrap_or(unknown);
        let commit_ns = config.time_in_flight_ns.max(largest_ns).saturating_add(cost.commit_ns());
        Config {
            lateness_ns,
            write_lateness_ns: lateness_ns.saturating_add(commit_ns),
            largest_ns,
            commit_ns: cost.commit_ns(),
            latency_ns,
            ..config
        }
    }

    /// Lateness up to which promises in this direction are kept, for operations of this device time, in
    /// nanoseconds; that of a write with its commit.
    pub fn kept_within_ns(&self, direction: Direction, operation_ns: u64) -> u64 {
        let (usual, alone_ns, waits) = match direction {
            Direction::Read => (self.lateness_ns, operation_ns, 1),
            Direction::Write => (self.write_lateness_ns, operation_ns.saturating_sub(self.commit_ns), 2),
        };
        if alone_ns <= self.largest_ns {
            return usual;
        }
        let depth_ns = self.time_in_flight_ns.max(self.largest_ns);
        let in_flight = alone_ns.max(depth_ns) - depth_ns;
        let idle = idle_beside(self.time_in_flight_ns, self.latency_ns, self.largest_ns, alone_ns);
        let others = in_flight.saturating_add((alone_ns - self.largest_ns).saturating_mul(2));
        let others = share_ns(others.saturating_add(idle), WHOLE.saturating_sub(self.system_permille));
        usual.saturating_add(others).saturating_add(in_flight.saturating_mul(waits))
    }

    /// The usual shares and numbers of requests, with this much device time in flight.
    pub fn new(time_in_flight_ns: u64) -> Config {
        Config {
            reads_in_flight: 64,
            writes_in_flight: 256,
            time_in_flight_ns,
            waiting_max: 65_536,
            lateness_ns: time_in_flight_ns.saturating_mul(4),
            write_lateness_ns: time_in_flight_ns.saturating_mul(5),
            system_permille: 50,
            system_burst_ns: time_in_flight_ns / 4,
            rest_permille: 50,
            largest_ns: u64::MAX,
            commit_ns: 0,
            latency_ns: 0,
        }
    }
}

/// Requests that a device gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Share of the device that is booked by promises, background rates included, in thousandths, rounded up.
    /// See [`booked_permille`].
    pub booked_permille: u64,
    /// Device time of the smallest request.
    pub smallest_ns: u64,
    /// Device time of the largest request.
    pub largest_ns: u64,
    /// Time from a request's being worked off until the drive knows that it is done.
    pub latency_ns: u64,
}

/// Device time of the largest usual operation, in nanoseconds.
fn largest_ns(cost: &DeviceCost) -> u64 {
    cost.time_ns(Direction::Read, OPERATION_BYTES).max(cost.append_ns(OPERATION_BYTES))
}

/// Device time in flight that keeps a device from idling, in nanoseconds.
fn depth_ns(cost: &DeviceCost) -> u64 {
    largest_ns(cost).saturating_mul(3).saturating_add(cost.commit_ns()).max(IN_FLIGHT_NS_MIN)
}

fn latency_ns(cost: &DeviceCost) -> u64 {
    cost.sync_ns.saturating_add(LATENCY_NS)
}

/// Time in nanoseconds for which a device may idle before an operation of this device time, as it does not
/// fit beside what is worked off and not answered yet. 0 up to the largest usual operation.
pub fn idle_ns(cost: &DeviceCost, operation_ns: u64) -> u64 {
    idle_beside(depth_ns(cost), latency_ns(cost), largest_ns(cost), operation_ns)
}

fn idle_beside(depth_ns: u64, latency_ns: u64, largest_ns: u64, operation_ns: u64) -> u64 {
    let fits_ns = depth_ns.saturating_sub(latency_ns) / 2;
    if operation_ns <= largest_ns.max(fits_ns) { 0 } else { latency_ns }
}

/// Time that a cost takes if it is worked off by this share of the device; for no share, for ever.
pub(crate) fn share_ns(cost_ns: u64, permille: u64) -> u64 {
    match permille {
        0 => u64::MAX,
        share => scaled(cost_ns, WHOLE, share),
    }
}

/// Share of the device that a rate takes, priced for operations of this size and device time, in thousandths,
/// rounded up.
pub fn booked_permille(rate: u64, operation_bytes: u64, operation_ns: u64) -> u64 {
    scaled(rate, operation_ns, operation_bytes.max(1)).div_ceil(1_000_000)
}

/// Time after its due time by which a promised request that keeps to its promise is done at the latest. None
/// if nothing can be told: more is booked than the device has, or the depth is too small to keep it busy.
pub fn lateness_bound(config: &Config, load: &Load) -> Option<u64> {
    let Load { booked_permille, smallest_ns, largest_ns, latency_ns } = *load;
    let free = WHOLE.checked_sub(config.system_permille)?;
    let booked = booked_permille.checked_add(config.rest_permille)?;
    let requests = config.reads_in_flight.min(config.writes_in_flight);
    let requests = u64::try_from(requests).unwrap_or(u64::MAX);
    let is_deep = config.time_in_flight_ns >= latency_ns.checked_add(largest_ns.checked_mul(2)?)?
        && smallest_ns.saturating_mul(requests) >= config.time_in_flight_ns;
    if free == 0 || booked > free || !is_deep {
        return None;
    }
    paced_bound(config, largest_ns).checked_add(latency_ns)
}

/// The same without the latency, for a device that is never idle while requests wait, whatever is in flight:
/// one that is given its next request by time and not by answers.
pub(crate) fn paced_bound(config: &Config, largest_ns: u64) -> u64 {
    // A single request may have more than is set.
    let in_flight = config.time_in_flight_ns.max(largest_ns);
    let others =
        in_flight.saturating_add(config.system_burst_ns).saturating_add(largest_ns.saturating_mul(2));
    share_ns(others, WHOLE.saturating_sub(config.system_permille)).saturating_add(in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Charge, DirectionCost};

    #[test]
    fn the_bound_is_the_formula() {
        let config = Config {
            system_permille: 100,
            system_burst_ns: 10_000_000,
            rest_permille: 100,
            ..Config::new(30_000_000)
        };
        let load = Load {
            booked_permille: 800,
            smallest_ns: 5_000_000,
            largest_ns: 10_000_000,
            latency_ns: 3_000_000,
        };
        // (30 + 10 + 2 * 10) / 0.9 + 30 + 3
        assert_eq!(lateness_bound(&config, &load), Some(66_666_667 + 33_000_000));
        assert_eq!(lateness_bound(&config, &Load { booked_permille: 801, ..load }), None);
        assert_eq!(lateness_bound(&config, &Load { latency_ns: 10_000_001, ..load }), None);
        for shallow in [Config { reads_in_flight: 5, ..config }, Config { writes_in_flight: 5, ..config }] {
            assert_eq!(lateness_bound(&shallow, &load), None);
        }
        assert_eq!(lateness_bound(&config, &Load { largest_ns: u64::MAX, ..load }), None);
    }

    #[test]
    fn the_bound_grows_with_operations_beyond_the_usual_size() {
        let way = DirectionCost { operation_ns: 0, bytes_per_second: OPERATION_BYTES * 100 };
        let cost = DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 1_000_000 };
        let config = Config::for_device(&cost);
        let read = |operation_ns| config.kept_within_ns(Direction::Read, operation_ns);
        // Some more than the 10 ms of reads, for what a log takes beside a record.
        let largest = cost.append_ns(OPERATION_BYTES);
        assert_eq!([0, largest].map(read), [config.lateness_ns; 2]);
        // 31 ms are in flight, and 5 ms of latency beside a sync: 12 ms and a half fit twice.
        let depth = config.time_in_flight_ns;
        let fits = (depth - 6_000_000) / 2;
        let of = |operation_ns: u64, idle: u64, in_flight: u64| {
            let others = scaled(2 * (operation_ns - largest) + idle + in_flight, 1000, 950);
            config.lateness_ns + others + in_flight
        };
        assert_eq!(read(fits), of(fits, 0, 0));
        assert_eq!(read(fits + 1), of(fits + 1, 6_000_000, 0));
        assert_eq!(read(depth * 2), of(depth * 2, 6_000_000, depth));
        let write = config.kept_within_ns(Direction::Write, depth * 2 + cost.commit_ns());
        assert_eq!(write - config.write_lateness_ns, read(depth * 2) - config.lateness_ns + depth);
        assert_eq!([fits, fits + 1].map(|time| idle_ns(&cost, time)), [0, 6_000_000]);
        assert_eq!(Config::new(depth).kept_within_ns(Direction::Read, u64::MAX), depth * 4);
    }

    #[test]
    fn a_rate_books_what_its_operations_take() {
        // 20 MB/s in operations of 1 MB: 20 of 10 ms.
        assert_eq!(booked_permille(20_000_000, 1_000_000, 10_000_000), 200);
        assert_eq!(booked_permille(20_000_001, 1_000_000, 10_000_000), 201);
        assert_eq!(booked_permille(0, 0, 0), 0);
        assert_eq!(booked_permille(1 << 40, 1 << 20, 0), 0);
    }
}
