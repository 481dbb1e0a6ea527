//! What a scheduler is given: requests, the flows they belong to, and the promises and rates of flows.

use crate::bound::OPERATION_BYTES;
use crate::cost::{DeviceCost, Direction, SECOND_NS};

/// Work that a drive does for itself or for the cluster, in no user's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Background {
    Rebuild,
    Scrub,
    Cleaning,
    Checkpoint,
    Move,
}

impl Background {
    pub const ALL: [Background; 5] = [
        Background::Rebuild,
        Background::Scrub,
        Background::Cleaning,
        Background::Checkpoint,
        Background::Move,
    ];

    /// The share of a drive's disk that this work always gets, in thousandths of its device time. Drives keep
    /// it, and admission books it. Columns that move are rebuilt at their new place.
    pub fn share_permille(self) -> u64 {
        match self {
            Background::Rebuild => 100,
            Background::Cleaning => 50,
            Background::Scrub => 20,
            Background::Checkpoint => 10,
            Background::Move => 0,
        }
    }
}

/// Promise of a reservation on this device. It comes with each request of the flow, and the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub direction: Direction,
    /// Bytes a second; 0 promises nothing.
    pub rate: u64,
    /// Bytes that the flow may run ahead of its rate.
    pub burst: u64,
    /// Size of operation that the rate was priced for. Smaller ones use up more promise than their bytes.
    pub operation_bytes: u64,
    /// Device time of such an operation, by the function that gives the requests' costs.
    pub operation_ns: u64,
    /// End of the promise, in the scheduler's nanoseconds.
    pub until_ns: u64,
}

/// The flow that a request belongs to. A tenant is a partition's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Requests of the manager. They go first, within a small share of the device.
    System,
    /// Requests under a reservation. What is beyond the promise competes in the share of the tenant.
    Reserved {
        reservation: u64,
        tenant: u64,
        promise: Promise,
    },
    Background(Background),
    BestEffort {
        tenant: u64,
        client: u64,
    },
}

/// Name of a queue of the scheduler, for its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowId {
    System,
    Background(Background),
    /// Requests in the direction of the reservation's promise.
    Reserved(u64),
    /// Requests that came with a reservation that does not cover them: the other direction, or after its end.
    Uncovered(u64),
    BestEffort {
        tenant: u64,
        client: u64,
    },
}

/// One who has a weight of its own in the shared part of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Share {
    /// All background work together, beside the tenants. Its kinds have equal parts.
    Background,
    Tenant(u64),
    /// A client, beside its tenant's other clients and the reservations' requests beyond their rates.
    Client {
        tenant: u64,
        client: u64,
    },
    Reservation(u64),
}

/// Rates of one kind of background work. Both are in bytes a second, since that is how an operator says them
/// and how an ETA is told. They count as promises do, so small operations count by their device time and a
/// kind cannot take more of the device than its rate was priced for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundRate {
    /// Bytes a second that it always gets; 0 for nothing.
    pub rate: u64,
    /// Bytes a second that it never exceeds, even if the device idles; `u64::MAX` for no limit.
    pub limit: u64,
    /// Bytes that it may run ahead of its rate and limit.
    pub burst: u64,
    /// Size of operation that the rates were priced for.
    pub operation_bytes: u64,
    /// Device time of such an operation, by the function that gives the requests' costs.
    pub operation_ns: u64,
}

impl BackgroundRate {
    /// Nothing promised and no limit: what is left, by weight.
    pub const LEFT: BackgroundRate =
        BackgroundRate { rate: 0, limit: u64::MAX, burst: 0, operation_bytes: 0, operation_ns: 0 };

    /// The rate that takes this work's share of a device, and no limit.
    pub fn of_share(kind: Background, cost: &DeviceCost) -> BackgroundRate {
        let operation_bytes = OPERATION_BYTES;
        let operation_ns = cost.time_ns(Direction::Read, operation_bytes);
        let share_ns = kind.share_permille().saturating_mul(SECOND_NS / 1000);
        // What costs nothing needs no promise.
        let rate = share_ns.saturating_mul(operation_bytes).checked_div(operation_ns).unwrap_or(0);
        BackgroundRate { rate, limit: u64::MAX, burst: operation_bytes, operation_bytes, operation_ns }
    }
}

/// A request for the device.
#[derive(Debug)]
pub struct Request<T> {
    pub flow: Flow,
    pub direction: Direction,
    pub bytes: u64,
    /// Device time in nanoseconds. The scheduler knows no costs itself: any function will do, for example
    /// [`crate::DeviceCost::time_ns`], and others for appends to a log and for what moves and syncs.
    pub cost_ns: u64,
    pub item: T,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Charge, DirectionCost};

    #[test]
    fn a_share_is_a_rate_of_large_operations() {
        let way = DirectionCost { operation_ns: 0, bytes_per_second: 200_000_000 };
        let cost = DeviceCost { charge: Charge::Larger, read: way, write: way, sync_ns: 0 };
        let rate = BackgroundRate::of_share(Background::Rebuild, &cost).rate;
        assert!((19_900_000..=20_000_000).contains(&rate), "a tenth of 200 MB/s: {rate}");
        assert_eq!(BackgroundRate::of_share(Background::Move, &cost).rate, 0);
    }
}
