//! Progress of work in steps, as a bar on standard error.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar, hidden unless on a terminal.
pub fn bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:46!} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5))
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
