//! CUBIC (RFC 9438), which shares a link with TCP fairly, and leaves slow start when the round-trip time
//! grows (HyStart++, RFC 9406).

use crate::codec::{real, whole};
use crate::policy::{Acked, Policy, initial_window, least_window};
use crate::{MICROSECOND, MILLISECOND, SECOND};

/// Scale of the growth, in datagrams per second cubed.
const C: f64 = 0.4;
/// Part of the window that is left after a loss.
const BETA: f64 = 0.7;
/// Samples of a round before its round-trip time counts.
const SAMPLES: u32 = 8;
/// Growth of a round's least time that ends slow start: an eighth, between these bounds. RFC 9406 has 4 ms as
/// the lower one, for long paths.
const GROWTH_NS_MIN: u64 = 200 * MICROSECOND;
const GROWTH_NS_MAX: u64 = 16 * MILLISECOND;
/// In conservative slow start the window grows by this part of what is acknowledged, for so many rounds.
const CONSERVATIVE_PART: u64 = 4;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The window of CUBIC.
#[derive(Debug)]
pub(crate) struct Cubic {
    window: u64,
    threshold: u64,
    datagram_bytes: u64,
    halved_ns: Option<u64>,
    /// The window before the last loss.
    most: f64,
    growth: Option<Growth>,
    start: SlowStart,
}

/// The growth since a loss.
#[derive(Debug)]
struct Growth {
    begun_ns: u64,
    /// Seconds until the window is what it was.
    k: f64,
    /// The window that Reno would have, with the same share of the link.
    reno: f64,
}

/// The rounds of slow start.
#[derive(Debug, Default)]
struct SlowStart {
    /// The round ends with this number's acknowledgement.
    ends: u64,
    samples: u32,
    least: Option<u64>,
    least_before: Option<u64>,
    /// Rounds since the round-trip time has grown, and what it was before; `None`: it has not.
    conservative: Option<(u32, u64)>,
}

impl Cubic {
    pub(crate) fn new(datagram_bytes: u64) -> Cubic {
        Cubic {
            window: initial_window(datagram_bytes),
            threshold: u64::MAX,
            datagram_bytes,
            halved_ns: None,
            most: 0.0,
            growth: None,
            start: SlowStart::default(),
        }
    }

    fn grow_slowly(&mut self, acked: &Acked<'_>) {
        let step =
            if self.start.conservative.is_some() { acked.bytes / CONSERVATIVE_PART } else { acked.bytes };
        self.window += step;
        if self.start.is_over(acked) {
            self.threshold = self.window;
        }
    }

    fn grow(&mut self, acked: &Acked<'_>) {
        let unit = real(self.datagram_bytes);
        let window = real(self.window);
        let most = self.most.max(window);
        let growth = self.growth.get_or_insert_with(|| Growth {
            begun_ns: acked.now_ns,
            k: ((most - window) / unit / C).cbrt(),
            reno: window,
        });
        let t = real(acked.now_ns - growth.begun_ns + acked.rtt.smoothed()) / real(SECOND);
        let target = (C * (t - growth.k).powi(3)).mul_add(unit, most).clamp(window, 1.5 * window);
        // RFC 9438, section 4.3: the region in which Reno would be faster.
        let alpha = if growth.reno < self.most { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        growth.reno += alpha * unit * real(acked.bytes) / window;
        let cubic = window + (target - window) * real(acked.bytes) / window;
        self.window = whole(cubic.max(growth.reno));
    }
}

impl Policy for Cubic {
    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn on_acked(&mut self, acked: &Acked<'_>) {
        if self.halved_ns.is_some_and(|halved| acked.sent_ns <= halved) {
            return;
        }
        match (acked.is_bound, self.window < self.threshold) {
            // Time in which the owner had nothing to send is not time in which the window grows.
            (false, _) => self.growth = None,
            (true, true) => self.grow_slowly(acked),
            (true, false) => self.grow(acked),
        }
    }

    fn on_lost(&mut self, now_ns: u64, sent_ns: u64) {
        if self.halved_ns.is_some_and(|halved| sent_ns <= halved) {
            return;
        }
        let window = real(self.window);
        self.halved_ns = Some(now_ns);
        // Fast convergence: a flow that has less than before makes room for others.
        self.most = if window < self.most { window * (1.0 + BETA) / 2.0 } else { window };
        self.window = whole(window * BETA).max(least_window(self.datagram_bytes));
        (self.threshold, self.growth) = (self.window, None);
    }

    fn heeds_marks(&self) -> bool {
        true
    }

    fn on_silence(&mut self) {
        self.threshold = whole(real(self.window) * BETA).max(least_window(self.datagram_bytes));
        self.window = least_window(self.datagram_bytes);
        (self.growth, self.start) = (None, SlowStart::default());
    }

    fn on_datagram_bytes(&mut self, bytes: u64) {
        self.window = self.window.max(initial_window(bytes));
        self.datagram_bytes = bytes;
    }

    fn is_paced(&self) -> bool {
        true
    }
}

impl SlowStart {
    /// Returns true if slow start is over.
    fn is_over(&mut self, acked: &Acked<'_>) -> bool {
        let sample = acked.rtt.latest();
        self.samples += 1;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        let grown = |before: u64| {
            let bound = before + (before / 8).clamp(GROWTH_NS_MIN, GROWTH_NS_MAX);
            self.samples >= SAMPLES && self.least.is_some_and(|least| least >= bound)
        };
        match (self.conservative, self.least_before) {
            (None, Some(before)) if grown(before) => self.conservative = Some((0, before)),
            // It was noise: the round-trip time is what it was.
            (Some((_, before)), _) if self.samples >= SAMPLES && !grown(before) => self.conservative = None,
            _ => {}
        }
        if acked.number < self.ends {
            return false;
        }
        (self.ends, self.least_before) = (acked.next_number, self.least.or(self.least_before));
        (self.samples, self.least) = (0, None);
        if let Some((rounds, _)) = &mut self.conservative {
            *rounds += 1;
        }
        self.conservative.is_some_and(|(rounds, _)| rounds >= CONSERVATIVE_ROUNDS)
    }
}
