//! Admission by mean and deviation, for the simulator to compare with.
//!
//! The demands of many independent streams of variable rate vary less together than each alone: of `n`
//! streams the mean is `n` times one stream's, the deviation the square root of `n` times. So a promise that
//! may be broken now and then, `z` deviations above the mean, admits more streams than the sum of their
//! peaks. The manager does not admit in this way: its promises hold.

/// A stream of variable rate; both in the same unit as the capacity they are compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variable {
    /// Mean of the demand over long times.
    pub mean: f64,
    /// Standard deviation of the demand, over a period.
    pub deviation: f64,
}

/// Demand of `streams` streams that is exceeded as rarely as a normal variate is above `z`.
pub fn demand(stream: Variable, streams: u32, z: f64) -> f64 {
    let streams = f64::from(streams);
    streams * stream.mean + z * streams.sqrt() * stream.deviation
}

/// The most streams whose [`demand`] is at most `capacity`.
pub fn streams_max(stream: Variable, capacity: f64, z: f64) -> u32 {
    let fits = |streams: u32| demand(stream, streams, z) <= capacity;
    let mut low = 0;
    let mut high = u32::MAX;
    if fits(high) {
        return high;
    }
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_vary_less_together_than_each_alone() {
        // 100 streams of mean 1 and deviation 0.5: 100 + 3 * 10 * 0.5 = 115.
        let stream = Variable { mean: 1.0, deviation: 0.5 };
        assert!((demand(stream, 100, 3.0) - 115.0).abs() < 1e-9);
        assert_eq!(streams_max(stream, 115.0, 3.0), 100);
        assert_eq!(streams_max(stream, 0.5, 3.0), 0);
        // Without deviation it is the deterministic sum.
        assert_eq!(streams_max(Variable { deviation: 0.0, ..stream }, 115.0, 3.0), 115);
    }
}
