//! `braid-lab demo`: `braid demo` with bounds, which are measured in the same run.

mod bound;
pub(crate) mod peer;

use std::fs;
use std::path::Path;

use braid_cli::Demo;
use braid_cli::demo::{self, Bounds, WIDTH};
use braid_cli::machine::temporary_dir::{OnDrop, TemporaryDir};
use braid_cli::output::exit::{Doing, Failure};
use braid_cli::output::report::Report;

use bound::{BYTES_MAX, Bound};

/// Runs the command.
pub(crate) async fn run(asked: Demo, report: Report) -> Result<(), Failure> {
    let parent = asked.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bound = {
        let place = TemporaryDir::make(&parent, "bound", BYTES_MAX * 2, OnDrop::Remove)?;
        measured(asked.files.iter().map(|file| size(file)).sum(), place.path()).await?
    };
    report.say(format!("bound: {WIDTH} processes with a file each; {}", bound.show()))?;
    demo::run(asked, report, Some(bounds(&bound))).await
}

/// Bytes of a file; 0 of one that is not there, which the demo refuses.
fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Measures the bound for so many bytes. For the demo's own choice of files, which is no argument, it is
/// measured with as many as make sense.
async fn measured(asked_bytes: u64, place: &Path) -> Result<Bound, Failure> {
    let bytes = if asked_bytes == 0 { BYTES_MAX } else { asked_bytes };
    let peers = place.join("peers");
    let measure = move || bound::measure(u64::from(WIDTH - 1), 1, bytes, &peers);
    let measured = tokio::task::spawn_blocking(measure).await;
    measured.map_err(std::io::Error::other).doing(|| "measure the bound".into())?
}

/// The bounds of the demo's steps. For each unit that it rebuilds, a client reads `k` units and sends one, so
/// the times add up.
fn bounds(bound: &Bound) -> Bounds {
    let k = f64::from(WIDTH - 1);
    let sent = bound.write * f64::from(WIDTH) / k;
    let rebuilt = 1.0 / (k / bound.read() + 1.0 / sent);
    Bounds { written: bound.write, read: bound.read(), rebuilt }
}
