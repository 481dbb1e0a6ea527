//! `braid store`: inspects the store of a drive that is not running. Nothing is written.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::Duration;

use braid_store::inspect::{self, Finding, StoreFacts};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::Store;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::{Report, table};
use crate::output::size;

/// Maximum number of segments listed in the text form; those with the most dead bytes come first.
const SEGMENTS_SHOWN: usize = 20;

/// Runs the command.
pub(crate) async fn run(store: Store, report: Report) -> Result<(), Failure> {
    // On a thread that may block on the disk, so that Ctrl-C is still handled.
    let work = tokio::task::spawn_blocking(move || match store {
        Store::Check(asked) => check(&asked.dir, report),
        Store::Dump(asked) => dump(&asked.dir, report),
        Store::Stat(asked) => stat(&asked.dir, report),
    });
    work.await.unwrap_or_else(|error| Err(Failure::new(Exit::Failed, "read the store", error.to_string())))
}

#[derive(Debug, Serialize)]
struct Checked {
    whole: bool,
    damaged: u64,
    findings: Vec<Found>,
    segments: u64,
    records: u64,
    payload_bytes: u64,
    checkpoints: u64,
    extents: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    file: String,
    offset: u64,
    what: String,
    harmless: bool,
}

impl From<Finding> for Found {
    fn from(Finding { file, offset, what, harmless }: Finding) -> Found {
        Found { file, offset, what, harmless }
    }
}

fn check(dir: &Path, report: Report) -> Result<(), Failure> {
    let found = waiting("reading all of the store", || inspect::check(dir))
        .doing(|| format!("check {}", dir.display()))?;
    let damaged = found.damaged;
    let facts = Checked {
        whole: damaged == 0,
        damaged,
        findings: found.findings.into_iter().map(Found::from).collect(),
        segments: found.segments,
        records: found.records,
        payload_bytes: found.payload_bytes,
        checkpoints: found.checkpoints,
        extents: found.extents,
    };
    report.facts(&facts, checked)?;
    if damaged == 0 {
        return Ok(());
    }
    let places = if damaged == 1 { "place is" } else { "places are" };
    let what = format!("check {}", dir.display());
    Err(Failure::new(Exit::Mismatch, what, format!("{damaged} {places} damaged")).remedy(
        "serve the drive; `braid check` then names the files; to make its units anew from the others, replace it (`braid drive \
         replace`) and rebuild the new one (`braid rebuild`)",
    ))
}

fn checked(facts: &Checked) -> String {
    let mut text = String::new();
    for found in &facts.findings {
        let harmless = if found.harmless { " (harmless: the next opening takes it away)" } else { "" };
        text.push_str(&format!("{} at {}: {}{harmless}\n", found.file, found.offset, found.what));
    }
    text.push_str(&format!(
        "segments: {}, records: {}, payload: {}, checkpoints: {}, extents: {}; {}\n",
        facts.segments,
        facts.records,
        size::show(facts.payload_bytes),
        facts.checkpoints,
        facts.extents,
        if facts.whole { "whole".to_owned() } else { format!("{} damaged", facts.damaged) }
    ));
    text
}

#[derive(Debug, Serialize)]
struct Line {
    file: String,
    offset: u64,
    kind: &'static str,
    text: String,
}

fn dump(dir: &Path, report: Report) -> Result<(), Failure> {
    let mut printed = Ok(());
    let each = |line: inspect::Line| {
        let inspect::Line { file, offset, kind, text } = line;
        let line = Line { file, offset, kind, text };
        printed =
            report.line(&line, |line| format!("{} {} {} {}", line.file, line.offset, line.kind, line.text));
        printed.is_ok()
    };
    inspect::dump(dir, each).doing(|| format!("dump {}", dir.display()))?;
    printed
}

#[derive(Debug, Serialize)]
struct Figures {
    cluster: String,
    drive: String,
    used_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    utilisation: f64,
    written_bytes: u64,
    moved_bytes: u64,
    amplification: Option<f64>,
    checkpoint_bytes: u64,
    tail_bytes: u64,
    partitions: u64,
    objects: u64,
    units: u64,
    extents: u64,
    index_bytes: u64,
    index_bytes_per_extent: f64,
    opened_in_seconds: f64,
    replayed_records: u64,
    torn_bytes: u64,
    damaged: u64,
    segments: Vec<Segment>,
}

#[derive(Debug, Serialize)]
struct Segment {
    number: u32,
    bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    damaged: bool,
}

fn stat(dir: &Path, report: Report) -> Result<(), Failure> {
    let facts = waiting("reading the store's index", || inspect::stat(dir))
        .doing(|| format!("stat {}", dir.display()))?;
    report.facts(&figures(&facts), shown)
}

fn figures(facts: &StoreFacts) -> Figures {
    let segments = facts.segments.iter().map(|segment| Segment {
        number: segment.number,
        bytes: segment.bytes,
        live_bytes: segment.live,
        dead_bytes: segment.bytes.saturating_sub(segment.live),
        damaged: segment.damaged,
    });
    Figures {
        cluster: facts.identity.cluster.to_string(),
        drive: facts.identity.drive.to_string(),
        used_bytes: facts.used(),
        live_bytes: facts.live(),
        dead_bytes: facts.used().saturating_sub(facts.live()),
        utilisation: ratio(facts.live(), facts.used()),
        written_bytes: facts.appended.written,
        moved_bytes: facts.appended.moved,
        amplification: facts.appended.amplification(),
        checkpoint_bytes: facts.checkpoint_bytes,
        tail_bytes: facts.tail_bytes,
        partitions: facts.partitions,
        objects: facts.objects,
        units: facts.units,
        extents: facts.extents,
        index_bytes: facts.index_bytes(),
        index_bytes_per_extent: ratio(facts.index_bytes(), facts.extents),
        opened_in_seconds: facts.recovery.took.as_secs_f64(),
        replayed_records: facts.recovery.records,
        torn_bytes: facts.recovery.torn_bytes,
        damaged: facts.recovery.damaged_count,
        segments: segments.collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no sixteen digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / (whole.max(1)) as f64
}

fn shown(facts: &Figures) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("cluster", facts.cluster.clone()),
        row("drive", facts.drive.clone()),
        row("used", size::show(facts.used_bytes)),
        row("live", format!("{} ({:.0} %)", size::show(facts.live_bytes), 100.0 * facts.utilisation)),
        row("dead", format!("{}: overwritten, removed, headers, checkpoints", size::show(facts.dead_bytes))),
        row("written", format!("{} of records over the store's life", size::show(facts.written_bytes))),
        row("moved", format!("{} besides, by cleaning", size::show(facts.moved_bytes))),
        row("amplification", facts.amplification.map_or("-".to_owned(), |factor| format!("{factor:.2}"))),
        row("checkpoints", size::show(facts.checkpoint_bytes)),
        row("partitions", facts.partitions.to_string()),
        row("objects", facts.objects.to_string()),
        row("units", facts.units.to_string()),
        row("extents", facts.extents.to_string()),
        row(
            "index",
            format!(
                "about {} of memory, {:.0} bytes an extent",
                size::show(facts.index_bytes),
                facts.index_bytes_per_extent
            ),
        ),
        row(
            "opening",
            format!(
                "{:.2} s: {} of log to replay, {} records",
                facts.opened_in_seconds,
                size::show(facts.tail_bytes),
                facts.replayed_records
            ),
        ),
        row("segments", facts.segments.len().to_string()),
    ];
    if facts.torn_bytes > 0 {
        rows.push(row(
            "torn",
            format!("{}: left by a crash, and never acknowledged", size::show(facts.torn_bytes)),
        ));
    }
    if facts.damaged > 0 {
        rows.push(row("damaged", format!("{} places: `braid store check` names them", facts.damaged)));
    }
    let mut text = table(&["", ""], &[], rows);
    let mut segments: Vec<&Segment> = facts.segments.iter().collect();
    segments.sort_by_key(|segment| (std::cmp::Reverse(segment.dead_bytes), segment.number));
    let cells = segments.iter().take(SEGMENTS_SHOWN).map(|segment| {
        vec![
            segment.number.to_string(),
            size::show(segment.bytes),
            size::show(segment.live_bytes),
            size::show(segment.dead_bytes),
            if segment.damaged { "damaged".to_owned() } else { String::new() },
        ]
    });
    text.push_str(&format!("\n{}", table(&["segment", "bytes", "live", "dead", ""], &[0, 1, 2, 3], cells)));
    if segments.len() > SEGMENTS_SHOWN {
        text.push_str(&format!(
            "and {} more, with fewer dead bytes (all: --json)\n",
            segments.len() - SEGMENTS_SHOWN
        ));
    }
    text
}

/// Shows a spinner on a terminal while `act` runs.
fn waiting<T>(what: &'static str, act: impl FnOnce() -> T) -> T {
    if !stderr().is_terminal() {
        return act();
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    let done = act();
    bar.finish_and_clear();
    done
}
