//! The end of a run's warm-up: MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state
//! truncation heuristics for simulation", Winter Simulation Conference 2000).
//!
//! The samples are averaged by fives. The best place to cut is the one after which the mean has the least
//! standard error: if too little is cut, the warm-up's bias remains; if too much is cut, few samples
//! remain. A best place in the second half means that the run is too short to tell.

use crate::number::{count, real};

const GROUP: usize = 5;

/// Number of samples to cut; `None` if the run is too short to tell.
pub(crate) fn cut(samples: &[f64]) -> Option<usize> {
    let means: Vec<f64> =
        samples.chunks_exact(GROUP).map(|group| group.iter().sum::<f64>() / count(GROUP)).collect();
    let mut best: Option<(f64, usize)> = None;
    // From the end: sums over the samples that remain after a cut.
    let mut sum = 0.0;
    let mut squares = 0.0;
    let mut left = 0_u64;
    for (at, mean) in means.iter().enumerate().rev() {
        sum += mean;
        squares += mean * mean;
        left += 1;
        let n = real(left);
        let deviation = (squares - sum * sum / n).max(0.0);
        let error = deviation / (n * n);
        // The last few groups may differ little by chance.
        if left >= 10 && best.is_none_or(|(least, _)| error <= least) {
            best = Some((error, at));
        }
    }
    best.map(|(_, at)| at).filter(|&at| at <= means.len() / 2).map(|at| at * GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Source, Stream};

    #[test]
    fn a_beginning_that_differs_is_cut() {
        let mut stream = Stream::new(2, Source::Arrivals(1));
        let mut samples: Vec<f64> = (0..200).map(|at| 10.0 * (-f64::from(at) / 40.0).exp()).collect();
        samples.extend((0..2000).map(|_| 0.0));
        samples.iter_mut().for_each(|sample| *sample += stream.unit());
        let cut = cut(&samples).expect("the run is long");
        assert!((80..=400).contains(&cut), "{cut}");
    }

    #[test]
    fn a_run_that_only_rises_is_too_short() {
        let samples: Vec<f64> = (0..1000).map(f64::from).collect();
        assert_eq!(cut(&samples), None);
        assert_eq!(cut(&samples[..20]), None);
    }

    #[test]
    fn a_steady_run_loses_little() {
        let mut stream = Stream::new(4, Source::Arrivals(1));
        let samples: Vec<f64> = (0..2000).map(|_| stream.exponential(1.0)).collect();
        assert!(cut(&samples).expect("the run is long") < 1000);
    }
}
