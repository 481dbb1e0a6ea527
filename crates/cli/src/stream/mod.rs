//! `braid stream`: many paced streams with a deadline in each period, in one process.
//!
//! `account` has the times of a stream and what was late, `pieces` what streams of one file share, `booking`
//! the reservations, `run` what all streams of a command have in common.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{Client, DataDirection};
use braid_transport::raise_descriptors;
use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio::time::interval;

use crate::args::{Pace, Play, Record, Stream};
use crate::connect;
use crate::operate::reserve::{bytes_per_second, milliseconds};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::{GRACE, Interrupts, Of};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, complain, count};
use crate::output::size;
use crate::stream::account::Total;
use crate::stream::booking::{Booked, Terms, Wanted};
use crate::stream::pieces::Pieces;
use crate::stream::run::Run;

mod account;
mod booking;
mod pieces;
mod play;
mod record;
mod run;

/// File descriptors besides the streams' connections to drives: sources, the manager, the standard streams.
const DESCRIPTORS_BESIDES: u64 = 512;
/// Interval of what is shown on a terminal.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// The report at the end.
#[derive(Debug, Serialize)]
struct Facts {
    action: &'static str,
    /// Empty: best effort.
    reservations: Vec<u64>,
    streams: u64,
    late_streams: u64,
    bytes: u64,
    seconds: f64,
    periods: u64,
    late_periods: u64,
    worst_us: u64,
    /// Lateness from which on a period is late.
    bound_us: u64,
    /// Longest time from a stream's first request to its first data.
    start_worst_us: u64,
    /// The same, as admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_promised_us: Option<u64>,
    /// Number of pieces that a source brought late, or that the reader of the bytes had no room for in time.
    other_side_late: u64,
    /// Number of pieces that another stream had read already.
    shared_pieces: u64,
    /// Most memory that the streams take.
    memory_bytes: u64,
    interrupted: bool,
}

/// Runs the command.
pub(crate) async fn run(stream: Stream, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    // A signal ends the streams after the pieces that are under way; a second one ends the program.
    let mut interrupts = Interrupts::new(Of::Command)?;
    let client = unless_interrupted(&mut interrupts, connect::cluster(cluster)).await?;
    match stream {
        Stream::Play(asked) => play(asked, client, interrupts, report).await,
        Stream::Record(asked) => record(asked, client, interrupts, report).await,
    }
}

/// Does what comes before the streams and leaves nothing behind: a signal ends it at once.
async fn unless_interrupted<T>(
    interrupts: &mut Interrupts,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        _ = interrupts.next() => Err(Interrupts::failure()),
    }
}

async fn play(
    asked: Play,
    client: Client,
    mut interrupts: Interrupts,
    report: Report,
) -> Result<(), Failure> {
    let finding = play::Programme::find(&client, &asked.names, asked.streams);
    let programme = unless_interrupted(&mut interrupts, finding).await?;
    if asked.to.is_some() && programme.streams() != 1 {
        return Err(Failure::usage("play", "--to takes the bytes of one stream, and there are more"));
    }
    // Without an end of its own, a stream ends with its file, or when its reader has all.
    let ms = programme.largest.saturating_mul(1000) / bytes_per_second(asked.pace.rate).max(1);
    let known = asked.to.is_none().then_some(Duration::from_millis(ms));
    let terms = terms(DataDirection::Read, &asked.pace, known)?;
    let booked = reserve(&client, &asked.pace, terms, &programme.wanted, &mut interrupts).await?;
    let sink = match unless_interrupted(&mut interrupts, open(asked.to.clone())).await {
        Ok(sink) => sink,
        Err(failure) => {
            booked.end().await;
            return Err(failure);
        }
    };
    let run = Run::new(terms.rate, period(&asked.pace), asked.pace.duration.map(Duration::from_millis));
    let pieces = Arc::new(Pieces::new(asked.shared));
    let manner = play::Manner { random_start: asked.random_start, pieces: Arc::clone(&pieces) };
    let to_pipe = asked.to.as_deref().is_some_and(|to| to == "-");
    let streams = play::all(&client, &run, programme, &manner, sink);
    let interrupted = watched(&run, interrupts, report, streams).await;
    let shared = Shared { pieces: pieces.hits(), bytes: asked.shared };
    let facts = facts("played", &run, &booked, shared, interrupted);
    let ended = Ended { client, run, booked, facts, is_end: false };
    ended.tell(if to_pipe { None } else { Some(report) }).await
}

/// Opens the target of a stream's bytes. A named pipe has to wait for its reader.
async fn open(to: Option<OsString>) -> Result<Option<play::Sink>, Failure> {
    let opening = spawn_blocking(move || to.as_deref().map(play::Sink::open).transpose());
    opening.await.map_err(std::io::Error::other).doing(|| "open".into())?
}

async fn record(
    asked: Record,
    client: Client,
    mut interrupts: Interrupts,
    report: Report,
) -> Result<(), Failure> {
    let session = record::Session::new(&asked.names, asked.test_data.then_some(asked.streams))?;
    let terms = terms(DataDirection::Write, &asked.pace, None)?;
    let made = unless_interrupted(&mut interrupts, session.make_directory(&client)).await?;
    let streams = u32::try_from(session.takes.len()).unwrap_or(u32::MAX);
    let wanted = [Wanted { name: session.target.clone(), streams }];
    let booked = match reserve(&client, &asked.pace, terms, &wanted, &mut interrupts).await {
        Ok(booked) => booked,
        Err(failure) => {
            for directory in &made {
                if client.unlink(directory).await.is_err() {
                    // Somebody uses it by now.
                    break;
                }
            }
            return Err(failure);
        }
    };
    let run = Run::new(terms.rate, period(&asked.pace), terms.duration);
    let streams = record::all(&client, &run, session.takes);
    let interrupted = watched(&run, interrupts, report, streams).await;
    let facts = facts("recorded", &run, &booked, Shared { pieces: 0, bytes: 0 }, interrupted);
    let is_end = asked.pace.duration.is_none();
    Ended { client, run, booked, facts, is_end }.tell(Some(report)).await
}

fn period(pace: &Pace) -> Duration {
    Duration::from_nanos(pace.period.0)
}

fn terms(direction: DataDirection, pace: &Pace, known: Option<Duration>) -> Result<Terms, Failure> {
    let period_ms = pace.period.0 / 1_000_000;
    if period_ms == 0 {
        return Err(Failure::usage("stream", "a period is at least 1ms"));
    }
    Ok(Terms {
        direction,
        rate: bytes_per_second(pace.rate).max(1),
        period_ms: u32::try_from(period_ms).unwrap_or(u32::MAX),
        survive: pace.survive,
        duration: pace.duration.map(Duration::from_millis).or(known),
    })
}

async fn reserve(
    client: &Client,
    pace: &Pace,
    terms: Terms,
    wanted: &[Wanted],
    interrupts: &mut Interrupts,
) -> Result<Booked, Failure> {
    if pace.best_effort {
        return Ok(Booked::nothing(client));
    }
    let booked = Booked::reserve(client, terms, wanted, interrupts).await?;
    raise_descriptors(booked.connections().saturating_add(DESCRIPTORS_BESIDES));
    Ok(booked)
}

/// Runs the streams, shows how they do, and has them end at a signal. Returns true if one came.
async fn watched(
    run: &Arc<Run>,
    mut interrupts: Interrupts,
    report: Report,
    streams: impl Future<Output = ()>,
) -> bool {
    let progress = Progress::begin(None, Bar::beside(report));
    let mut shown = interval(SHOWN_EVERY);
    let mut interrupted = false;
    tokio::pin!(streams);
    loop {
        tokio::select! {
            () = &mut streams => break,
            _ = interrupts.next() => {
                if interrupted {
                    complain(&Interrupts::failure().to_string());
                    std::process::exit(i32::from(Exit::Interrupted as u8));
                }
                interrupted = true;
                run.stop();
            }
            _ = shown.tick() => {
                let total = run.total();
                progress.reached(total.bytes);
                progress.name(format!("{} of {} periods late", total.late_periods, total.periods));
            }
        }
    }
    progress.end();
    interrupted
}

/// Pieces that were shared, and the memory for them.
struct Shared {
    pieces: u64,
    bytes: u64,
}

fn facts(action: &'static str, run: &Run, booked: &Booked, shared: Shared, interrupted: bool) -> Facts {
    let total: Total = run.total();
    Facts {
        action,
        reservations: booked.numbers(),
        streams: total.streams,
        late_streams: total.late_streams,
        bytes: total.bytes,
        seconds: run.elapsed().as_secs_f64(),
        periods: total.periods,
        late_periods: total.late_periods,
        worst_us: total.worst_ns / 1000,
        bound_us: total.bound_ns / 1000,
        start_worst_us: total.start_ns / 1000,
        start_promised_us: booked.start_us(),
        other_side_late: total.others_late,
        shared_pieces: shared.pieces,
        memory_bytes: run.memory_bytes().saturating_add(shared.bytes),
        interrupted,
    }
}

/// A run whose streams are over.
struct Ended {
    client: Client,
    run: Arc<Run>,
    booked: Booked,
    facts: Facts,
    /// True if a signal is the way to end it.
    is_end: bool,
}

impl Ended {
    /// Ends the reservations and prints the report, unless the bytes went to standard output.
    async fn tell(self, report: Option<Report>) -> Result<(), Failure> {
        // From here on a signal means that the manager is not to be waited for.
        if let Err(failure) = Interrupts::end_after(GRACE) {
            tracing::warn!(%failure, "signals are not heeded while reservations end");
        }
        self.booked.end().await;
        self.client.finish().await;
        let failure = self.run.failure();
        match report {
            // It failed before anything went.
            _ if failure.is_some() && self.facts.streams == 0 => {}
            Some(report) => report.facts(&self.facts, show)?,
            None => show(&self.facts).lines().for_each(complain),
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let Facts { late_periods, periods, worst_us, .. } = self.facts;
        if late_periods > 0 {
            let why = format!(
                "{late_periods} of {periods} periods were late, by {} at worst",
                milliseconds(worst_us)
            );
            return Err(Failure::new(Exit::Late, "stream", why));
        }
        if self.facts.interrupted && !self.is_end { Err(Interrupts::failure()) } else { Ok(()) }
    }
}

fn show(facts: &Facts) -> String {
    let reserved = match facts.reservations.as_slice() {
        [] => "best effort".to_owned(),
        [one] => format!("reservation {one}"),
        more => format!("{} reservations", more.len()),
    };
    let promised = match facts.start_promised_us {
        Some(us) => format!(" (promised: {})", milliseconds(us)),
        None => String::new(),
    };
    let mut text = format!(
        "{} {} in {:.1} s, {}, {reserved}\nlate: {} of {} periods, in {}; at worst {} after it was due \
         (bound: {})\nfirst data after {} at most{promised}\n",
        facts.action,
        size::show(facts.bytes),
        facts.seconds,
        count(facts.streams, "stream"),
        facts.late_periods,
        facts.periods,
        count(facts.late_streams, "stream"),
        milliseconds(facts.worst_us),
        milliseconds(facts.bound_us),
        milliseconds(facts.start_worst_us),
    );
    if facts.other_side_late > 0 {
        let who = if facts.action == "played" { "the reader of the bytes" } else { "the source" };
        text.push_str(&format!(
            "{who} was late {} times: that counts for no stream\n",
            facts.other_side_late
        ));
    }
    if facts.shared_pieces > 0 {
        text.push_str(&format!("{} were read for several streams\n", count(facts.shared_pieces, "piece")));
    }
    text.push_str(&format!("memory: at most {}\n", size::show(facts.memory_bytes)));
    text
}
