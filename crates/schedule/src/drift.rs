//! Drift: how fast a device is beside its calibrated cost, as seen in the operations that really went to it.
//!
//! The machine keeps a mean of modelled and of measured device time that forgets in [`MEMORY_MS`]. If the
//! device needs more than a quarter longer than modelled for [`LONG_MS`], it is *derated*: admission counts
//! on that part of it only. It is trusted again when it was nearly as fast as modelled for as long. It never
//! counts as faster than calibrated: for that it must be calibrated again.

use crate::cost::Charge;

/// Time in which a measurement loses most of its weight.
pub const MEMORY_MS: u64 = 20_000;
/// Time for which a device must be slow, or fast again, before that counts.
pub const LONG_MS: u64 = 30_000;
/// Below this part of the modelled speed a device is slow, and above that one it is as fast as it should be.
const SLOW: f64 = 0.8;
const FAST: f64 = 0.9;
/// Device time below which nothing is judged.
const EVIDENCE_NS: f64 = 200e6;
/// Steps of a derate, so that it is not told anew for every small change, in thousandths.
const STEP: u32 = 50;
/// Operations in flight that saturate a device which does several at a time.
const SATURATED: u64 = 8;

/// Work that went to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Device time by the calibrated cost.
    pub modelled_ns: u64,
    /// Time that it took.
    pub measured_ns: u64,
}

/// Operations that were given to a device and are not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    pub operations: u64,
    /// Device time of all.
    pub cost_ns: u64,
}

/// Speed of a device beside its calibrated cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    modelled_ns: f64,
    measured_ns: f64,
    last_ms: u64,
    /// Time since which the speed asks for another state than the present one.
    other_since_ms: Option<u64>,
    derate: u32,
}

impl Default for Drift {
    fn default() -> Drift {
        Drift { modelled_ns: 0.0, measured_ns: 0.0, last_ms: 0, other_since_ms: None, derate: 1000 }
    }
}

impl Drift {
    /// The part of the device's calibrated capacity that can be counted on, in thousandths; at most 1000.
    pub fn derate(&self) -> u32 {
        self.derate
    }

    /// Takes one of several operations in flight: with it, those before it are done. Their sizes may differ,
    /// so what counts is the device time of all (`in_flight`). Of a device that does several at a time it
    /// says something only if enough are in flight: else the time is the operation's latency, which is not
    /// what it costs.
    pub fn handle_parallel(&mut self, now_ms: u64, charge: Charge, measured_ns: u64, in_flight: InFlight) {
        if charge == Charge::Sum || in_flight.operations >= SATURATED {
            self.handle(now_ms, Sample { modelled_ns: in_flight.cost_ns, measured_ns });
        }
    }

    /// Takes operations that were done one after another, as calibration does syncs, or a sample that
    /// saturates the device.
    pub fn handle(&mut self, now_ms: u64, sample: Sample) {
        let kept = (-real(now_ms.saturating_sub(self.last_ms)) / real(MEMORY_MS)).exp();
        self.last_ms = self.last_ms.max(now_ms);
        self.modelled_ns = self.modelled_ns * kept + real(sample.modelled_ns);
        self.measured_ns = self.measured_ns * kept + real(sample.measured_ns);
        if self.measured_ns >= EVIDENCE_NS {
            self.judge(now_ms, self.modelled_ns / self.measured_ns);
        }
    }

    fn judge(&mut self, now_ms: u64, speed: f64) {
        let is_derated = self.derate < 1000;
        let wants_other = if is_derated { speed > FAST } else { speed < SLOW };
        if !wants_other {
            self.other_since_ms = None;
            if is_derated && speed.mul_add(1000.0, -f64::from(self.derate)).abs() >= f64::from(STEP) {
                self.derate = stepped(speed);
            }
            return;
        }
        let since = *self.other_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since) >= LONG_MS {
            self.derate = if is_derated { 1000 } else { stepped(speed) };
            self.other_since_ms = None;
        }
    }
}

/// A speed in whole steps, rounded down; never 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn stepped(speed: f64) -> u32 {
    let permille = (speed * 1000.0).clamp(0.0, 1000.0) as u32;
    (permille / STEP * STEP).max(STEP)
}

#[expect(clippy::cast_precision_loss, reason = "times are known with fewer digits")]
fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A second of operations for each of so many seconds, so many percent as long as modelled.
    fn run(drift: &mut Drift, now_ms: &mut u64, seconds: u64, percent: u64) {
        for _ in 0..seconds {
            *now_ms += 1000;
            let sample = Sample { modelled_ns: 500 * MS, measured_ns: 5 * MS * percent };
            drift.handle(*now_ms, sample);
        }
    }

    #[test]
    fn a_device_that_is_slow_for_long_is_derated_and_trusted_again_when_it_is_fast_for_long() {
        let mut drift = Drift::default();
        let mut now_ms = 0;
        run(&mut drift, &mut now_ms, 60, 120);
        assert_eq!(drift.derate(), 1000, "a fifth longer is near enough");
        run(&mut drift, &mut now_ms, 20, 200);
        assert_eq!(drift.derate(), 1000, "not for long");
        run(&mut drift, &mut now_ms, 200, 200);
        assert_eq!(drift.derate(), 500);
        run(&mut drift, &mut now_ms, 200, 125);
        assert!((750..=800).contains(&drift.derate()), "it follows, and is not let go");
        run(&mut drift, &mut now_ms, 20, 100);
        assert!(drift.derate() < 1000);
        run(&mut drift, &mut now_ms, 100, 100);
        assert_eq!(drift.derate(), 1000);
        run(&mut drift, &mut now_ms, 100, 20);
        assert_eq!(drift.derate(), 1000, "never above");
    }

    #[test]
    fn a_moment_between_begins_the_wait_anew() {
        let mut drift = Drift::default();
        let mut now_ms = 0;
        for _ in 0..10 {
            run(&mut drift, &mut now_ms, 15, 180);
            run(&mut drift, &mut now_ms, 60, 90);
        }
        assert_eq!(drift.derate(), 1000);
    }

    #[test]
    fn what_is_in_flight_shares_the_device() {
        let derate = |charge, operations, each_ns| {
            let in_flight = InFlight { operations, cost_ns: operations * each_ns };
            let mut drift = Drift::default();
            for i in 0..10_000 {
                drift.handle_parallel(i * 10, charge, 80 * MS, in_flight);
            }
            drift.derate()
        };
        assert_eq!(derate(Charge::Sum, 8, 10 * MS), 1000, "each waits for seven others");
        assert!((100..=150).contains(&derate(Charge::Sum, 1, 10 * MS)));
        assert_eq!(derate(Charge::Larger, 1, 10 * MS), 1000, "a latency says nothing of the capacity");
        assert_eq!(derate(Charge::Larger, 8, 10 * MS), 1000);
        assert_eq!(derate(Charge::Larger, 16, 10 * MS), 1000, "faster than modelled");
    }

    #[test]
    fn little_evidence_says_nothing() {
        let mut drift = Drift::default();
        for i in 0..1000 {
            drift.handle(i * 1000, Sample { modelled_ns: MS, measured_ns: 5 * MS });
        }
        assert_eq!(drift.derate(), 1000);
    }
}
