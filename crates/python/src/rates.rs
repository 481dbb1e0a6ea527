//! Reserved data rates as Python sees them.

use std::time::Duration;

use braid_client::{DataDirection, Delivered, RateAsk};
use braid_wire::control::{CounterOffer, NotAdmitted, ReservationRow};
use pyo3::prelude::*;

/// The attributes of `braidfs.Rate`.
#[derive(Debug, Clone, Copy, FromPyObject)]
pub(crate) struct Asked {
    rate: u64,
    seconds: f64,
    streams: u32,
    period_ms: u32,
    survive: u8,
}

/// The rate to ask for. Times that are no times become the longest, which is refused.
pub(crate) fn ask(asked: Asked, writes: bool) -> RateAsk {
    let Asked { rate, seconds, streams, period_ms, survive } = asked;
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let ask = if writes { RateAsk::write(rate, duration) } else { RateAsk::read(rate, duration) };
    RateAsk { streams, period_ms, survive, ..ask }
}

/// An offer, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Offered {
    rate: u64,
    survive: u8,
    detail: String,
    /// Seconds since 1970; 0: at once.
    begins: f64,
    /// `None`: as asked.
    shape: Option<String>,
    unit_bytes: Option<u32>,
}

pub(crate) fn offers(refused: &NotAdmitted) -> Vec<Offered> {
    let offered = |offer: &CounterOffer| {
        let shape = offer.shape.shape().ok();
        Offered {
            rate: offer.rate,
            survive: offer.survive,
            detail: offer.detail.clone(),
            begins: Duration::from_millis(offer.begins_ms).as_secs_f64(),
            shape: shape.map(|shape| shape.to_string()),
            unit_bytes: shape.map(|shape| shape.unit_bytes()),
        }
    };
    refused.offers.iter().map(offered).collect()
}

/// An open file's account of its promise, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Account {
    bytes: u64,
    periods: u64,
    late_periods: u64,
    /// Most lateness but for pauses, in seconds.
    worst: f64,
    /// Periods that were late by a drive's death, within the stated pause; not among the late ones.
    paused_periods: u64,
    /// Most lateness in these, in seconds.
    worst_pause: f64,
}

impl From<Delivered> for Account {
    fn from(of: Delivered) -> Account {
        Account {
            bytes: of.bytes,
            periods: of.periods,
            late_periods: of.periods_late,
            worst: seconds(of.worst_ns / 1000),
            paused_periods: of.periods_paused,
            worst_pause: seconds(of.paused_worst_ns / 1000),
        }
    }
}

/// A reservation, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Reservation {
    /// 0: nothing was booked.
    number: u64,
    volume: String,
    path: Vec<u8>,
    direction: &'static str,
    rate: u64,
    streams: u32,
    survive: u8,
    /// Names of the drives on which something is booked.
    drives: Vec<String>,
    /// Bytes of memory that the client needs.
    buffer_bytes: u64,
    /// Bound on lateness, and on the time to the first data, in seconds.
    lateness_bound: f64,
    start: f64,
    /// The reason why the rate may not be kept at present; `None`: it will be.
    risk: Option<String>,
    periods: u64,
    late_periods: u64,
    worst_lateness: f64,
    /// Periods that were late by a drive's death, within the stated pause; not among the late ones.
    paused_periods: u64,
    /// Most lateness in these, in seconds.
    worst_pause: f64,
}

impl From<ReservationRow> for Reservation {
    fn from(row: ReservationRow) -> Reservation {
        Reservation {
            number: row.reservation.0,
            volume: row.volume,
            path: row.path,
            direction: match row.direction {
                DataDirection::Read => "read",
                DataDirection::Write => "write",
            },
            rate: row.rate,
            streams: row.streams,
            survive: row.survive,
            drives: row.plan.drives.into_iter().map(|drive| drive.name).collect(),
            buffer_bytes: row.plan.buffer_bytes,
            lateness_bound: seconds(row.plan.lateness_us),
            start: seconds(row.plan.start_us),
            risk: Some(row.risk).filter(|risk| !risk.is_empty()),
            periods: row.lateness.periods,
            late_periods: row.lateness.late_periods,
            worst_lateness: seconds(row.lateness.worst_us),
            paused_periods: row.lateness.paused_periods,
            worst_pause: seconds(row.lateness.paused_us),
        }
    }
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}
