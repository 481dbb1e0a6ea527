//! Progress while a copy runs, and its rate at the end.
//!
//! A bar with the rate on a terminal; nothing until the end otherwise. Progress goes to standard error, so that it never
//! mixes with results.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bytes moved and the time they took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rate {
    /// Bytes of the user's data.
    pub(crate) bytes: u64,
    /// The time they took.
    pub(crate) time: Duration,
}

impl Rate {
    /// Bytes in a second; zero if no time was measured.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub(crate) fn bytes_per_second(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.bytes as f64 / self.time.as_secs_f64() }
    }

    /// The rate for people.
    pub(crate) fn show(&self) -> String {
        show(self.bytes_per_second())
    }
}

impl std::ops::AddAssign for Rate {
    fn add_assign(&mut self, other: Rate) {
        self.bytes += other.bytes;
        self.time += other.time;
    }
}

/// Bytes per second for people, in decimal units as networks are rated.
pub(crate) fn show(bytes_per_second: f64) -> String {
    match bytes_per_second {
        rate if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.0} MB/s", rate / 1e6),
        rate => format!("{:.0} kB/s", rate / 1e3),
    }
}

/// A running count of bytes.
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    /// A bar for `bytes` (unknown for a pipe), if standard error is a terminal and `shown`.
    pub(crate) fn begin(bytes: Option<u64>, shown: bool) -> Progress {
        let bar = if shown && stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr_with_hz(5));
            let template = match bytes {
                Some(_) => {
                    "{msg:30!} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
                }
                None => "{msg:30!} {spinner} {binary_bytes} {binary_bytes_per_sec}",
            };
            bar.with_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        } else {
            ProgressBar::hidden()
        };
        Progress { bar, began: Instant::now() }
    }

    /// What is being copied now.
    pub(crate) fn name(&self, name: impl Into<String>) {
        self.bar.set_message(name.into());
    }

    /// `bytes` more have arrived.
    pub(crate) fn add(&self, bytes: usize) {
        self.bar.inc(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// `bytes` have arrived in all.
    pub(crate) fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Takes the bar away; the time since the beginning.
    pub(crate) fn end(&self) -> Duration {
        self.bar.finish_and_clear();
        self.began.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let rate = Rate { bytes: 3_000_000_000, time: Duration::from_secs(2) };
        assert_eq!(rate.show(), "1.50 GB/s");
        assert_eq!(Rate::default().show(), "0 kB/s");
        assert_eq!(show(12_345_678.0), "12 MB/s");
    }
}
