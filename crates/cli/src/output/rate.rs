//! Progress during a copy, and its rate at the end.
//!
//! On a terminal, a bar with the rate is shown; elsewhere nothing. Progress goes to standard error, so that
//! it never mixes with results.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::report::{Report, count};
use crate::output::size;

/// Bytes moved and the time they took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    /// Bytes of the user's data.
    pub bytes: u64,
    /// Time that those bytes took.
    pub time: Duration,
}

impl Rate {
    /// Bytes per second; zero if no time was measured.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub fn bytes_per_second(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.bytes as f64 / self.time.as_secs_f64() }
    }

    /// The rate as shown to users.
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

/// Bytes per second as shown to users, in the same binary units as sizes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is shown with three digits"
)]
pub fn show(bytes_per_second: f64) -> String {
    format!("{}/s", size::show(bytes_per_second as u64))
}

/// A running count of bytes, and of files if there are several.
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Instant,
    files: Option<Files>,
}

/// Visibility of the progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Shown if standard error is a terminal.
    Shown,
    Hidden,
}

impl Bar {
    /// The choice for a command that shows a bar beside text, and none beside JSON.
    pub(crate) fn beside(report: Report) -> Bar {
        if report.json { Bar::Hidden } else { Bar::Shown }
    }
}

struct Files {
    done: AtomicU64,
    /// Total number of files, if known.
    of: Option<u64>,
}

impl Files {
    /// The text before the bar; empty for a single file.
    fn show(&self) -> String {
        match (self.done.load(Ordering::Relaxed), self.of) {
            (_, Some(0 | 1)) => String::new(),
            (done, Some(of)) => format!("{done} of {of} files  "),
            (done, None) => format!("{}  ", count(done, "file")),
        }
    }
}

impl Progress {
    /// Begins a count up to `bytes`, if that is known.
    pub(crate) fn begin(bytes: Option<u64>, bar: Bar) -> Progress {
        let bar = if bar == Bar::Shown && stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr_with_hz(5));
            let template = match bytes {
                Some(_) => {
                    "{prefix}{msg:30!} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
                }
                None => "{prefix}{msg:30!} {spinner} {binary_bytes} {binary_bytes_per_sec}",
            };
            bar.with_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        } else {
            ProgressBar::hidden()
        };
        Progress { bar, began: Instant::now(), files: None }
    }

    /// Counts files too. `of` is their total, if known.
    pub(crate) fn count_files(mut self, of: Option<u64>) -> Progress {
        let files = Files { done: AtomicU64::new(0), of };
        self.bar.set_prefix(files.show());
        self.files = Some(files);
        self
    }

    /// Counts one more finished file.
    pub(crate) fn file_done(&self) {
        if let Some(files) = &self.files {
            files.done.fetch_add(1, Ordering::Relaxed);
            self.bar.set_prefix(files.show());
        }
    }

    /// Shows the name of the file that is being copied.
    pub(crate) fn name(&self, name: impl Into<String>) {
        self.bar.set_message(name.into());
    }

    /// Counts `bytes` more.
    pub(crate) fn add(&self, bytes: usize) {
        self.bar.inc(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Subtracts `bytes` that will be transferred again.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.bar.set_position(self.bar.position().saturating_sub(bytes));
    }

    /// Sets the count to `bytes` in total.
    pub(crate) fn reached(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Removes the bar. Returns the time since the beginning.
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
        assert_eq!(rate.show(), "1.40 GiB/s");
        assert_eq!(Rate::default().show(), "0 B/s");
        assert_eq!(show(12_345_678.0), "11.8 MiB/s");
    }

    #[test]
    fn files_and_bytes_are_counted() {
        let prefix = |progress: &Progress| progress.bar.prefix();
        let progress = Progress::begin(Some(10), Bar::Hidden).count_files(Some(3));
        assert_eq!(prefix(&progress), "0 of 3 files  ");
        progress.file_done();
        progress.add(4);
        assert_eq!((prefix(&progress).as_str(), progress.bar.position()), ("1 of 3 files  ", 4));
        let unknown = Progress::begin(None, Bar::Hidden).count_files(None);
        unknown.file_done();
        assert_eq!(prefix(&unknown), "1 file  ");
        let one = Progress::begin(Some(10), Bar::Hidden).count_files(Some(1));
        one.file_done();
        assert_eq!(prefix(&one), "");
    }
}
