//! Median, mean, deviation and confidence interval of a few samples.

use crate::report::Spread;

/// Two-sided 90 % points of Student's t for 1 to 30 degrees of freedom (any table); above 30, that of 30.
const STUDENT_90: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
];

/// The middle value, or the mean of the two in the middle; zero if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// All statistics of some samples.
pub fn spread(values: &[f64]) -> Spread {
    let samples = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let count = f64::from(samples.max(1));
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
    let student = match values.len() {
        0 | 1 => 0.0,
        length => STUDENT_90[(length - 2).min(STUDENT_90.len() - 1)],
    };
    let half = student * deviation / count.sqrt();
    Spread {
        samples,
        median: median(values),
        mean,
        deviation,
        min: values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0),
        max: values.iter().copied().max_by(f64::total_cmp).unwrap_or(0.0),
        confidence_90: [mean - half, mean + half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_spread_of_four() {
        let spread = spread(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!((spread.samples, spread.median, spread.mean), (4, 2.5, 2.5));
        assert_eq!((spread.min, spread.max), (1.0, 4.0));
        assert!((spread.deviation - 1.290_99).abs() < 1e-5, "{}", spread.deviation);
        // 2.353 * 1.290_99 / 2
        assert!((spread.confidence_90[0] - 0.981_15).abs() < 1e-4, "{:?}", spread.confidence_90);
        assert!((spread.confidence_90[1] - 4.018_85).abs() < 1e-4, "{:?}", spread.confidence_90);
    }

    #[test]
    fn one_sample_has_no_spread() {
        let spread = spread(&[2.0]);
        assert_eq!((spread.deviation, spread.confidence_90), (0.0, [2.0, 2.0]));
    }
}
