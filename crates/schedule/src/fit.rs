//! The cost of a device, fitted to a curve that was measured over sizes of operations.
//!
//! A measured point is the device time of one operation: a second over the operations of a second, at a depth
//! at which more in flight bring no more. The fit takes the line of least *relative* error, so that small
//! operations count as much as large ones, and takes absolute values of errors, so that a few points that are
//! far off do not matter. [`Charge`] is the one that fits both directions better.

use crate::cost::{Charge, DeviceCost, Direction, DirectionCost, SECOND_NS};

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Size of the operation.
    pub bytes: u64,
    /// Device time of one operation of this size.
    pub operation_ns: u64,
}

/// Measurements of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Curves {
    pub read: Vec<Point>,
    pub write: Vec<Point>,
    /// Time of a sync that has nothing to write.
    pub sync_ns: u64,
}

/// Reason why measurements give no cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFit {
    /// Fewer than [`SIZES_MIN`] sizes were measured in this direction.
    TooFew(Direction),
    /// The points in this direction are those of no device: most are far from any line.
    NoLine(Direction),
    /// A number in this direction is that of no device.
    OutOfBounds(Direction),
    /// A sync takes longer than on any device.
    Sync,
}

/// The fewest sizes from which a cost is fitted.
pub const SIZES_MIN: usize = 3;
/// The greatest mean error, as a natural logarithm: a factor of two.
const ERROR_MAX: f64 = 0.7;
/// Charges whose mean errors differ by less are told apart by what the system says of the device.
const ERROR_SAME: f64 = 0.02;
/// Bounds of sense: time of an operation, of a sync, and bytes a second.
const OPERATION_NS_MAX: u64 = SECOND_NS;
const SYNC_NS_MAX: u64 = 2 * SECOND_NS;
const RATE_MIN: u64 = 10_000;
const RATE_MAX: u64 = 1 << 40;
/// Results of one device differ by at most this factor.
const FACTOR_MAX: u64 = 4;
/// A sync below this is too short to be compared.
const SYNC_NS_COMPARED: u64 = 1_000_000;
/// Sizes at which results are compared.
const COMPARED_BYTES: [u64; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Fits a cost to curves. `hint` is what the system says of the device, if it does: it decides where both
/// charges fit alike; without it that is [`Charge::Larger`].
pub fn fit(curves: &Curves, hint: Option<Charge>) -> Result<DeviceCost, NoFit> {
    let sum = Lines::of(curves, Charge::Sum)?;
    let larger = Lines::of(curves, Charge::Larger)?;
    let differ = (sum.error() - larger.error()).abs() >= ERROR_SAME;
    let charge = match hint {
        Some(hint) if !differ => hint,
        _ if differ && sum.error() < larger.error() => Charge::Sum,
        _ => Charge::Larger,
    };
    let lines = if charge == Charge::Sum { sum } else { larger };
    let cost = DeviceCost {
        charge,
        read: lines.read.cost(Direction::Read)?,
        write: lines.write.cost(Direction::Write)?,
        sync_ns: curves.sync_ns,
    };
    if cost.sync_ns > SYNC_NS_MAX { Err(NoFit::Sync) } else { Ok(cost) }
}

/// An operation whose times in two results of one device are too far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarOff {
    /// The direction and size of the operation; `None`: a sync.
    pub operation: Option<(Direction, u64)>,
    /// Time by the earlier result.
    pub before_ns: u64,
    pub now_ns: u64,
}

/// Compares a result with an earlier one of the same device. The first operation that differs too much, if
/// any, in either direction.
pub fn far_off(before: &DeviceCost, now: &DeviceCost) -> Option<FarOff> {
    let far = |a: u64, b: u64| a.max(b) > a.min(b).max(1).saturating_mul(FACTOR_MAX);
    for direction in [Direction::Read, Direction::Write] {
        for bytes in COMPARED_BYTES {
            let before_ns = before.time_ns(direction, bytes);
            let now_ns = now.time_ns(direction, bytes);
            if far(before_ns, now_ns) {
                return Some(FarOff { operation: Some((direction, bytes)), before_ns, now_ns });
            }
        }
    }
    let is_off = before.sync_ns.max(now.sync_ns) > SYNC_NS_COMPARED && far(before.sync_ns, now.sync_ns);
    is_off.then_some(FarOff { operation: None, before_ns: before.sync_ns, now_ns: now.sync_ns })
}

/// The lines of both directions under one charge.
struct Lines {
    read: Line,
    write: Line,
}

impl Lines {
    fn of(curves: &Curves, charge: Charge) -> Result<Lines, NoFit> {
        let line = |points: &[Point], direction| {
            let mut sizes: Vec<u64> = points.iter().map(|point| point.bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            if sizes.len() < SIZES_MIN { Err(NoFit::TooFew(direction)) } else { Ok(best(points, charge)) }
        };
        Ok(Lines {
            read: line(&curves.read, Direction::Read)?,
            write: line(&curves.write, Direction::Write)?,
        })
    }

    fn error(&self) -> f64 {
        (self.read.error + self.write.error) / 2.0
    }
}

/// A fixed time and a time for each byte, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Line {
    operation: f64,
    byte: f64,
    /// Mean absolute error of the points' logarithms.
    error: f64,
}

impl Line {
    fn new(points: &[Point], charge: Charge, operation: f64, byte: f64) -> Line {
        let operation = operation.max(0.0);
        let error = points.iter().map(|point| {
            let bytes = real(point.bytes) * byte;
            let time = if charge == Charge::Sum { operation + bytes } else { operation.max(bytes) };
            (time.max(1.0) / real(point.operation_ns.max(1))).ln().abs()
        });
        let count = real(u64::try_from(points.len()).unwrap_or(u64::MAX)).max(1.0);
        Line { operation, byte, error: error.sum::<f64>() / count }
    }

    fn cost(&self, direction: Direction) -> Result<DirectionCost, NoFit> {
        if self.error > ERROR_MAX {
            return Err(NoFit::NoLine(direction));
        }
        let operation_ns = whole(self.operation);
        let bytes_per_second = whole(real(SECOND_NS) / self.byte);
        let is_sense = operation_ns <= OPERATION_NS_MAX && (RATE_MIN..=RATE_MAX).contains(&bytes_per_second);
        let cost = DirectionCost { operation_ns, bytes_per_second };
        if is_sense { Ok(cost) } else { Err(NoFit::OutOfBounds(direction)) }
    }
}

/// The line of least error: the best of those through two points, then moved in small steps while that makes
/// the error less.
fn best(points: &[Point], charge: Charge) -> Line {
    let mut best: Option<Line> = None;
    for (i, a) in points.iter().enumerate() {
        for b in &points[i + 1..] {
            let candidate = match (charge, a.bytes == b.bytes) {
                (_, true) => continue,
                (Charge::Sum, _) => {
                    let byte =
                        (real(b.operation_ns) - real(a.operation_ns)) / (real(b.bytes) - real(a.bytes));
                    (real(a.operation_ns) - byte * real(a.bytes), byte)
                }
                (Charge::Larger, _) => {
                    let (small, large) = if a.bytes < b.bytes { (a, b) } else { (b, a) };
                    (real(small.operation_ns), real(large.operation_ns) / real(large.bytes.max(1)))
                }
            };
            if candidate.1 <= 0.0 {
                continue;
            }
            let line = Line::new(points, charge, candidate.0, candidate.1);
            if best.is_none_or(|best| line.error < best.error) {
                best = Some(line);
            }
        }
    }
    // All points on a falling line: that of no device.
    let mut line = best.unwrap_or(Line { operation: 0.0, byte: f64::INFINITY, error: f64::INFINITY });
    for step in [1.05, 1.01, 1.002] {
        for _ in 0..STEPS_MAX {
            let moves = [(step, 1.0), (1.0 / step, 1.0), (1.0, step), (1.0, 1.0 / step)];
            let moved = moves.map(|by| Line::new(points, charge, line.operation * by.0, line.byte * by.1));
            match moved.into_iter().min_by(|a, b| a.error.total_cmp(&b.error)) {
                Some(better) if better.error < line.error => line = better,
                _ => break,
            }
        }
    }
    line
}

/// Steps of one length at most.
const STEPS_MAX: usize = 64;

#[expect(clippy::cast_precision_loss, reason = "measurements have fewer digits")]
fn real(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(value: f64) -> u64 {
    if value.is_nan() { 0 } else { value.round().clamp(0.0, 1e18) as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

    fn way(operation_ns: u64, bytes_per_second: u64) -> DirectionCost {
        DirectionCost { operation_ns, bytes_per_second }
    }

    fn flash() -> DeviceCost {
        // Both costs of a read are equal at 48 KB.
        let read = way(100_000, 480_000_000);
        DeviceCost { charge: Charge::Larger, read, write: way(150_000, 300_000_000), sync_ns: 500_000 }
    }

    fn spindle() -> DeviceCost {
        let read = way(8_000_000, 200_000_000);
        DeviceCost { charge: Charge::Sum, read, write: way(9_000_000, 180_000_000), sync_ns: 9_000_000 }
    }

    fn measured(cost: &DeviceCost, sizes: &[u64]) -> Curves {
        let curve = |direction| {
            let point = |&bytes| Point { bytes, operation_ns: cost.time_ns(direction, bytes) };
            sizes.iter().map(point).collect()
        };
        Curves { read: curve(Direction::Read), write: curve(Direction::Write), sync_ns: cost.sync_ns }
    }

    fn near(found: &DeviceCost, cost: &DeviceCost, percent: u64) {
        assert_eq!(found.charge, cost.charge);
        for direction in [Direction::Read, Direction::Write] {
            for bytes in SIZES.into_iter().chain([48_000]) {
                let is = found.time_ns(direction, bytes);
                let should = cost.time_ns(direction, bytes);
                assert!(
                    is.abs_diff(should) <= should * percent / 100,
                    "{direction:?} {bytes}: {is} {should}"
                );
            }
        }
    }

    #[test]
    fn each_device_is_told_by_its_curve() {
        for cost in [flash(), spindle()] {
            for hint in [None, Some(Charge::Sum), Some(Charge::Larger)] {
                near(&fit(&measured(&cost, &SIZES), hint).expect("a cost"), &cost, 1);
            }
        }
    }

    #[test]
    fn where_both_costs_are_equal_flash_is_not_charged_twice() {
        let mut sizes = SIZES.to_vec();
        sizes.push(48_000);
        let found = fit(&measured(&flash(), &sizes), None).expect("a cost");
        let at = found.time_ns(Direction::Read, 48_000);
        assert!((99_000..=101_000).contains(&at), "{at}");
    }

    #[test]
    fn two_points_that_are_far_off_do_not_matter() {
        for cost in [flash(), spindle()] {
            let sizes: Vec<u64> = (12..23).map(|power| 1 << power).collect();
            let mut curves = measured(&cost, &sizes);
            for curve in [&mut curves.read, &mut curves.write] {
                curve[2].operation_ns *= 10;
                curve[8].operation_ns /= 5;
            }
            near(&fit(&curves, None).expect("a cost"), &cost, 3);
        }
    }

    proptest! {
        #[test]
        fn noise_is_passed_on_and_not_more(noise in proptest::collection::vec(95..=105_u64, 12)) {
            for cost in [flash(), spindle()] {
                let mut curves = measured(&cost, &SIZES);
                for (point, percent) in curves.read.iter_mut().chain(&mut curves.write).zip(&noise) {
                    point.operation_ns = point.operation_ns * percent / 100;
                }
                near(&fit(&curves, Some(cost.charge)).expect("a cost"), &cost, 8);
            }
        }
    }

    #[test]
    fn a_hint_decides_where_both_fit() {
        // Without a fixed time both charges are the same.
        let way = way(0, 100_000_000);
        let cost = DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 0 };
        for (hint, charge) in
            [(None, Charge::Larger), (Some(Charge::Sum), Charge::Sum), (Some(Charge::Larger), Charge::Larger)]
        {
            assert_eq!(fit(&measured(&cost, &SIZES), hint).expect("a cost").charge, charge);
        }
    }

    #[test]
    fn what_no_device_does_is_refused() {
        let good = measured(&flash(), &SIZES);
        let with = |read: Vec<Point>| fit(&Curves { read, ..good.clone() }, None);
        let points = |times: [u64; 6]| {
            SIZES.iter().zip(times).map(|(&bytes, operation_ns)| Point { bytes, operation_ns }).collect()
        };
        let read = Direction::Read;
        assert_eq!(with(Vec::new()), Err(NoFit::TooFew(read)));
        assert_eq!(with(vec![good.read[0]; 9]), Err(NoFit::TooFew(read)), "of one size");
        assert_eq!(with(points([0; 6])), Err(NoFit::NoLine(read)), "bytes take no time");
        let fast = points([1, 1, 1, 1, 1, 2]);
        assert_eq!(with(fast), Err(NoFit::OutOfBounds(read)), "faster than anything");
        let slow = points([90_000_000_000; 6]);
        assert_eq!(with(slow), Err(NoFit::OutOfBounds(read)), "slower than anything");
        let falling = points([1 << 36, 1 << 32, 1 << 28, 1 << 24, 1 << 20, 1 << 16]);
        assert_eq!(with(falling), Err(NoFit::NoLine(read)), "the larger, the faster");
        let curves = Curves { sync_ns: 3 * SECOND_NS, ..good.clone() };
        assert_eq!(fit(&curves, None), Err(NoFit::Sync));
    }

    #[test]
    fn results_that_are_far_from_the_last_are_told_in_either_direction() {
        let before = flash();
        let times = |factor: u64| {
            let write = way(before.write.operation_ns * factor, before.write.bytes_per_second / factor);
            DeviceCost { write, ..before }
        };
        assert_eq!(far_off(&before, &times(3)), None);
        let off = far_off(&before, &times(5)).expect("it is far off");
        assert_eq!(off.operation, Some((Direction::Write, 4 << 10)));
        assert_eq!((off.before_ns, off.now_ns), (150_000, 750_000));
        assert!(far_off(&times(5), &before).is_some(), "too good is as suspicious");
        let sync = |sync_ns| DeviceCost { sync_ns, ..before };
        assert_eq!(far_off(&sync(0), &sync(900_000)), None, "too short to be compared");
        assert_eq!(far_off(&sync(100), &sync(9_000_000)).expect("far off").operation, None);
    }
}
