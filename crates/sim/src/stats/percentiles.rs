//! Percentiles of samples.

use crate::number::{count, index, whole};

/// The samples' values at these percentages, by nearest rank; 0 if there are no samples.
pub(crate) fn percentiles<const N: usize>(samples: &[f64], percents: [f64; N]) -> [f64; N] {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    percents.map(|percent| {
        // 99.9 percent is no binary fraction: a rank that should be whole may come out above it by a hair.
        let rank = (percent / 100.0 * count(sorted.len()) - 1e-6).ceil().max(1.0);
        sorted.get(index(whole(rank)) - 1).copied().unwrap_or(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_nearest_rank() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentiles(&samples, [0.0, 50.0, 99.0, 100.0]), [1.0, 100.0, 198.0, 200.0]);
        assert_eq!(percentiles(&[], [50.0]), [0.0]);
    }
}
