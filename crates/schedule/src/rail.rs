//! One direction of a network path as a device: what of its told rate is given out, in which pieces, and how
//! late a promise can be at it.
//!
//! A path has queues of its own, in senders and switches, which serve in the order of arrival and drop what
//! does not fit. A scheduler before it decides only while these queues are short. Three things keep them
//! short:
//!
//! - *Less is given out than the path carries* (`SENT_PERMILLE` of what frames leave for payload). A queue
//!   that has formed becomes shorter then, and what no scheduler gives out has room.
//! - *What is given out is a piece*, not a request: the next piece may be another's.
//! - *A sender may have only [`RailRate::window_bytes`] in flight* towards a drive on a connection.

use crate::bound::{Config, LATENCY_NS, paced_bound};
use crate::cost::SECOND_NS;
use crate::tags::span_ns;

/// Bytes of an Ethernet frame of 1500 bytes on the wire, preamble and gap included.
const FRAME_BYTES: u64 = 1538;
/// Bytes of it that TCP carries, with timestamps.
const FRAME_PAYLOAD_BYTES: u64 = 1448;
/// Share of a path's payload rate that is given out, in thousandths. The rest is for what passes no
/// scheduler: acknowledgements of what comes the other way (a frame of 84 bytes for two full ones at most:
/// 2.7 %), messages without payload, heartbeats, and what is sent twice.
const SENT_PERMILLE: u64 = 950;
/// Smallest piece in bytes: smaller ones cost processors more than they gain.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Time of a piece on a fast path, in nanoseconds.
const PIECE_NS: u64 = 1_000_000;
/// Time in flight below a rail's scheduler, in nanoseconds: the path is not idle until the next piece is
/// given out.
const IN_FLIGHT_NS: u64 = 2_000_000;
/// Pieces in flight at most: so many small ones fill the time in flight.
const REQUESTS_MAX: usize = 1024;
/// Time that is made good after a turn that ended late, as timers and busy processors have it, in
/// nanoseconds: so much may be given out at once.
const MADE_GOOD_NS: u64 = 10_000_000;
/// Least window of a connection in bytes: with less, TCP waits for acknowledgements that are delayed.
const WINDOW_BYTES_MIN: u64 = 16 << 10;
/// Time of a connection's window on a fast path, in nanoseconds. It is longer than a round trip in a local
/// network, so that a sender does not wait.
const WINDOW_NS: u64 = 2_000_000;

/// The rate at which payload is given out to one direction of a path, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RailRate(u64);

impl RailRate {
    /// The rate for a path of which the operator told the rate, in bytes a second on the wire; `None` for 0:
    /// the rate is not known.
    pub fn of_told(bytes_per_second: u64) -> Option<RailRate> {
        let whole = FRAME_BYTES * 1000;
        let given = u128::from(bytes_per_second) * u128::from(FRAME_PAYLOAD_BYTES * SENT_PERMILLE);
        RailRate::of_payload(u64::try_from(given / u128::from(whole)).unwrap_or(u64::MAX))
    }

    /// The rate that gives out this many bytes of payload a second; `None` for 0.
    pub fn of_payload(bytes_per_second: u64) -> Option<RailRate> {
        (bytes_per_second > 0).then_some(RailRate(bytes_per_second))
    }

    /// Bytes of payload a second.
    pub fn bytes_per_second(self) -> u64 {
        self.0
    }

    /// Time of this many bytes of payload, in nanoseconds, rounded up.
    pub fn time_ns(self, bytes: u64) -> u64 {
        span_ns(bytes, self.0)
    }

    /// Bytes of the largest piece that is given out at once.
    pub fn piece_bytes(self) -> u32 {
        u32::try_from(self.bytes_in(PIECE_NS).max(PIECE_BYTES_MIN)).unwrap_or(u32::MAX)
    }

    /// Bytes that a sender may have in flight towards a drive on one connection.
    pub fn window_bytes(self) -> u64 {
        self.bytes_in(WINDOW_NS).max(WINDOW_BYTES_MIN)
    }

    /// The time until which the path is taken by this many bytes that are given out now, if it was taken
    /// until `taken_ns` before. All times are in nanoseconds of one clock.
    pub fn taken_until_ns(self, taken_ns: u64, now_ns: u64, bytes: u64) -> u64 {
        taken_ns.max(now_ns.saturating_sub(MADE_GOOD_NS)).saturating_add(self.time_ns(bytes))
    }

    /// Settings of the scheduler before it.
    pub fn config(self) -> Config {
        let lateness_ns = self.lateness_ns();
        Config {
            reads_in_flight: REQUESTS_MAX,
            writes_in_flight: REQUESTS_MAX,
            lateness_ns,
            write_lateness_ns: lateness_ns,
            ..Config::new(IN_FLIGHT_NS)
        }
    }

    /// Time after its due time by which a promised request has crossed the path at the latest, in
    /// nanoseconds. Its own request, or its answer, passes without a turn: it may find what is in flight
    /// towards the drive before it, or what was given out on the way back.
    pub fn lateness_ns(self) -> u64 {
        let piece_ns = self.time_ns(u64::from(self.piece_bytes()));
        let way_back_ns = IN_FLIGHT_NS.max(piece_ns);
        paced_bound(&Config::new(IN_FLIGHT_NS), piece_ns)
            .saturating_add(MADE_GOOD_NS)
            .saturating_add(LATENCY_NS)
            .saturating_add(way_back_ns)
    }

    fn bytes_in(self, time_ns: u64) -> u64 {
        let bytes = u128::from(self.0) * u128::from(time_ns) / u128::from(SECOND_NS);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Bound on the lateness of operations of this many bytes, promised at `rate` bytes a second, that pass two
/// schedulers, one after another. `first` and `second` are the bounds of each. All times are in nanoseconds.
///
/// To the second an operation is due the time of its bytes at the rate after it came, or after the one before
/// was due; and it came late by `first` at most. So, by induction over the operations of a flow, it is due at
/// the second by no more than `first` and that time after its due time at the first.
pub fn in_series(first: u64, second: u64, operation_bytes: u64, rate: u64) -> u64 {
    first.saturating_add(span_ns(operation_bytes, rate)).saturating_add(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn told(bits: u64) -> RailRate {
        RailRate::of_told(bits / 8).expect("it is not 0")
    }

    #[test]
    fn less_is_given_out_than_the_path_carries() {
        // 25 MB/s carry 23.5 MB/s of payload: 95 % of that.
        assert_eq!(told(200_000_000).bytes_per_second(), 22_360_208);
        assert_eq!(RailRate::of_told(0), None);
        assert_eq!(RailRate::of_told(u64::MAX).map(|rate| rate.0 > u64::MAX / 2), Some(true));
        // Acknowledgements of a full path, a frame for two, fit beside it.
        let carried = 25_000_000;
        let sent = told(200_000_000).bytes_per_second() * FRAME_BYTES / FRAME_PAYLOAD_BYTES;
        let acknowledgements = sent / FRAME_BYTES / 2 * 84;
        assert!(sent + acknowledgements < carried, "{sent} and {acknowledgements} of {carried}");
    }

    #[test]
    fn a_slow_path_is_not_held_for_longer_than_a_small_piece_takes() {
        assert_eq!(told(200_000_000).piece_bytes(), 64 << 10);
        assert_eq!(told(10_000_000_000).piece_bytes(), 1_118_010);
        let windows = [100_000_000, 200_000_000, 10_000_000_000].map(|bits| told(bits).window_bytes());
        assert_eq!(windows, [22_360, 44_720, 2_236_020]);
    }

    #[test]
    fn a_turn_that_ends_late_is_made_good_and_idle_time_is_not() {
        let rate = told(200_000_000);
        let piece = u64::from(rate.piece_bytes());
        let takes = rate.time_ns(piece);
        let second = 1000 * MS;
        // On time, 4 ms late, and after a second without anything.
        assert_eq!(rate.taken_until_ns(second, second, piece), second + takes);
        assert_eq!(rate.taken_until_ns(second, second + 4 * MS, piece), second + takes);
        assert_eq!(rate.taken_until_ns(second, 2 * second, piece), 2 * second - MADE_GOOD_NS + takes);
    }

    #[test]
    fn the_bound_is_that_of_its_pieces() {
        // (2.94 + 0.5 + 2 * 2.94) / 0.95 + 2.94, and 5 + 10 + 2.94 beside.
        let bound = told(200_000_000).lateness_ns();
        assert!((30 * MS..31 * MS).contains(&bound), "{bound}");
        // A fast one: (2 + 0.5 + 2) / 0.95 + 2, and 5 + 10 + 2.
        let bound = told(10_000_000_000).lateness_ns();
        assert!((23 * MS..24 * MS).contains(&bound), "{bound}");
        assert_eq!(in_series(70 * MS, 30 * MS, 500_000, 5_000_000), 200 * MS);
    }
}
