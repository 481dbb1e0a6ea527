//! Conversions between whole and real numbers, each with what it does at its limits.

/// Nanoseconds in a second.
pub(crate) const SECOND: f64 = 1e9;

/// A real number of nanoseconds or bytes, rounded; 0 if it is negative or not a number, and at most 10^18,
/// so that sums of several fit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
pub(crate) fn whole(value: f64) -> u64 {
    if value.is_nan() { 0 } else { value.round().clamp(0.0, 1e18) as u64 }
}

/// A whole number as a real number; above 2^53 the nearest one.
#[expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}

/// A count as a real number.
pub(crate) fn count(value: usize) -> f64 {
    real(u64::try_from(value).unwrap_or(u64::MAX))
}

/// A count or an index that is known to be below 2^32.
pub(crate) fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("counts of a simulation are below 2^32")
}

pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("indexes fit the address space")
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: u64) -> f64 {
    real(ns) / SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_numbers_are_rounded_and_clamped() {
        assert_eq!([whole(1.5), whole(-3.0), whole(f64::NAN)], [2, 0, 0]);
        assert_eq!(whole(f64::INFINITY), 1_000_000_000_000_000_000);
        assert_eq!(seconds(1_500_000_000), 1.5);
    }
}
