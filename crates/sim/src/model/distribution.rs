//! Distributions of random times.

use serde::{Deserialize, Serialize};

use crate::number::{real, whole};
use crate::random::Stream;
use crate::units::Span;

/// A random time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// A constant time.
    Constant(Span),
    /// A uniform time between these two.
    Uniform([Span; 2]),
    /// An exponential time with this mean.
    Exponential(Span),
}

impl Distribution {
    pub const ZERO: Distribution = Distribution::Constant(Span(0));

    /// Uniform from 0, with this mean: the distribution that Swift assumes for a seek and a rotational
    /// delay (section 5.1).
    pub fn uniform_around(mean: Span) -> Distribution {
        Distribution::Uniform([Span(0), Span(2 * mean.0)])
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant(span) | Distribution::Exponential(span) => real(span.0),
            Distribution::Uniform([low, high]) => f64::midpoint(real(low.0), real(high.0)),
        }
    }

    /// The variance, in square nanoseconds.
    pub fn variance(&self) -> f64 {
        match self {
            Distribution::Constant(_) => 0.0,
            Distribution::Uniform([low, high]) => (real(high.0) - real(low.0)).powi(2) / 12.0,
            Distribution::Exponential(span) => real(span.0).powi(2),
        }
    }

    /// Draws a time, in nanoseconds.
    pub(crate) fn draw(&self, stream: &mut Stream) -> u64 {
        match self {
            Distribution::Constant(span) => span.0,
            Distribution::Uniform([low, high]) => {
                whole(real(low.0) + stream.unit() * (real(high.0) - real(low.0)))
            }
            Distribution::Exponential(mean) => whole(stream.exponential(real(mean.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Source;

    #[test]
    fn draws_have_the_mean_and_the_variance() {
        let low = Span::milliseconds(2.0);
        let high = Span::milliseconds(10.0);
        for distribution in [
            Distribution::Constant(high),
            Distribution::Uniform([low, high]),
            Distribution::Exponential(high),
        ] {
            let mut stream = Stream::new(5, Source::Disk(1));
            let draws: Vec<f64> = (0..100_000).map(|_| real(distribution.draw(&mut stream))).collect();
            let mean = draws.iter().sum::<f64>() / 1e5;
            let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 1e5;
            assert!((mean / distribution.mean() - 1.0).abs() < 0.02, "{distribution:?}: {mean}");
            assert!((variance - distribution.variance()).abs() <= 0.04 * distribution.variance());
        }
    }
}
