//! The rate of a stream over time: constant, or drawn anew for each period.

use crate::number::{SECOND, real, whole};
use crate::random::Stream as Numbers;
use crate::units::Rate;

use super::spec::Class;

/// Least rate of a stream of variable rate, as a part of its mean.
const LEAST: f64 = 0.25;

/// Distribution of a period's rate: `least + (peak - least) u^a` with uniform `u`, where `a` follows from
/// the mean. With the peak at the mean it is constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    least: f64,
    span: f64,
    power: f64,
}

/// A stream's source or sink of data.
#[derive(Debug, Clone)]
pub(super) struct Source {
    rates: Rates,
    period_ns: f64,
    /// The rate now, in bytes per nanosecond, and the time up to which it holds.
    rate: f64,
    until: f64,
    /// Time up to which data were used.
    at: f64,
}

impl Rates {
    pub(super) fn of(class: &Class) -> Rates {
        let Rate(mean) = class.rate;
        if class.peak() <= mean {
            return Rates { least: mean, span: 0.0, power: 0.0 };
        }
        let least = LEAST * mean;
        let span = class.peak() - least;
        Rates { least, span, power: span / (mean - least) - 1.0 }
    }

    /// Standard deviation of a period's rate.
    pub(super) fn deviation(&self) -> f64 {
        let mean = 1.0 / (self.power + 1.0);
        let square = 1.0 / (2.0 * self.power + 1.0);
        self.span * (square - mean * mean).max(0.0).sqrt()
    }

    fn draw(&self, numbers: &mut Numbers) -> f64 {
        if self.span == 0.0 { self.least } else { self.least + self.span * numbers.unit().powf(self.power) }
    }
}

impl Source {
    /// A source that begins then.
    pub(super) fn new(class: &Class, begins: u64, numbers: &mut Numbers) -> Source {
        let rates = Rates::of(class);
        let begins = real(begins);
        let rate = rates.draw(numbers) / SECOND;
        let period_ns = real(class.period.0);
        // Periods of different streams do not begin together.
        let until = begins + period_ns * numbers.unit();
        Source { rates, period_ns, rate, until, at: begins }
    }

    /// Uses this many bytes. Returns the time at which the next are asked for.
    pub(super) fn take(&mut self, bytes: u64, numbers: &mut Numbers) -> u64 {
        let mut left = real(bytes);
        loop {
            let end = self.at + left / self.rate;
            if end <= self.until || self.rates.span == 0.0 {
                self.at = end;
                return whole(end);
            }
            left -= (self.until - self.at) * self.rate;
            self.at = self.until;
            self.until += self.period_ns;
            self.rate = self.rates.draw(numbers) / SECOND;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Source as From;

    fn class(text: &str) -> Class {
        toml::from_str(&format!("count = 1\n{text}")).expect("a class")
    }

    #[test]
    fn a_variable_rate_has_its_mean_its_deviation_and_its_peak() {
        let class = class("rate = \"1MB/s\"\npeak = \"3MB/s\"\nperiod = \"1s\"");
        let rates = Rates::of(&class);
        let mut numbers = Numbers::new(4, From::Disk(0));
        let draws: Vec<f64> = (0..100_000).map(|_| rates.draw(&mut numbers)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / rates.deviation() - 1.0).abs() < 0.02);
        assert!(draws.iter().all(|&draw| (0.25e6..=3e6).contains(&draw)));
        let mut source = Source::new(&class, 0, &mut numbers);
        let end = (0..20_000).map(|_| source.take(100_000, &mut numbers)).last().expect("there are some");
        assert!((real(end) / 2e12 - 1.0).abs() < 0.02, "2 GB at 1 MB/s took {end} ns");
    }

    #[test]
    fn a_constant_rate_is_constant() {
        let class = class("rate = \"1MB/s\"");
        let mut numbers = Numbers::new(4, From::Disk(0));
        assert!(Rates::of(&class).deviation().abs() < 1e-9);
        let mut source = Source::new(&class, 5, &mut numbers);
        assert_eq!([0; 2].map(|_| source.take(1_000_000, &mut numbers)), [1_000_000_005, 2_000_000_005]);
    }
}
