//! The confidence interval of a mean of samples that depend on each other, by batch means (Law, Simulation
//! Modeling and Analysis, section 9.5.3): the samples are cut into batches of equal length, whose means
//! hardly depend on each other if the batches are long.

use crate::number::count;

/// Number of batches. It is fixed, so longer runs have longer batches.
const BATCHES: usize = 25;
/// Two-sided points of Student's t for 24 degrees of freedom, at 90, 95 and 99 percent.
const STUDENT_24: [(u8, f64); 3] = [(90, 1.711), (95, 2.064), (99, 2.797)];
/// Greatest correlation of successive batches' means; above it the batches are too short.
const CORRELATION_MAX: f64 = 0.4;

/// A mean with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    /// Half of the interval's width.
    pub(crate) half: f64,
    /// True if the batches are long enough for the interval to mean something.
    pub(crate) sound: bool,
}

/// The interval of the samples' mean. It is infinite if there are fewer samples than batches.
pub(crate) fn interval(samples: &[f64], confidence: u8) -> Interval {
    let mean_of =
        |samples: &[f64]| samples.iter().fold(0.0, |sum, one| sum + one) / count(samples.len().max(1));
    let mean = mean_of(samples);
    if samples.len() < BATCHES {
        return Interval { mean, half: f64::INFINITY, sound: false };
    }
    // Samples that would be left over make some batches longer by one.
    let cut = |batch: usize| samples.len() * batch / BATCHES;
    let means: Vec<f64> = (0..BATCHES).map(|batch| mean_of(&samples[cut(batch)..cut(batch + 1)])).collect();
    let batches = count(BATCHES);
    let squares: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
    let neighbours: f64 = means.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let correlation = if squares > 0.0 { neighbours / squares } else { 0.0 };
    let student = STUDENT_24.iter().find(|(percent, _)| *percent == confidence).map_or(2.064, |(_, t)| *t);
    let half = student * (squares / (batches - 1.0) / batches).sqrt();
    Interval { mean, half, sound: correlation < CORRELATION_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Source, Stream};

    #[test]
    fn intervals_hold_the_mean_as_often_as_they_say() {
        let mut stream = Stream::new(11, Source::Arrivals(0));
        let runs = 1000;
        let mut held = 0;
        for _ in 0..runs {
            let samples: Vec<f64> = (0..500).map(|_| stream.exponential(2.0)).collect();
            let found = interval(&samples, 90);
            held += u32::from((found.mean - 2.0).abs() <= found.half);
        }
        // Three standard errors of a share of 0.9 in 1000, and a little for the skew of short batches.
        assert!((860..=930).contains(&held), "{held} of {runs}");
    }

    #[test]
    fn batches_that_follow_each_other_are_not_sound() {
        let drifting: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(!interval(&drifting, 95).sound);
        assert_eq!(interval(&[1.0; 10], 95).half, f64::INFINITY);
        // All samples count, even those that do not fill a batch.
        let all: Vec<f64> = [700.0; 24].into_iter().chain([7.0; 25]).collect();
        assert!((interval(&all, 95).mean - (24.0 * 700.0 + 25.0 * 7.0) / 49.0).abs() < 1e-9);
        assert!(interval(&[], 95).mean.is_sign_positive());
        assert_eq!(interval(&[3.0; 100], 95), Interval { mean: 3.0, half: 0.0, sound: true });
    }
}
