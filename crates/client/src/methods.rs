//! Runs of methods on files: the drives answer for the units that they hold, the client for the rest, and
//! puts the answers together.
//!
//! How: a file is taken in chunks of whole stripes, a few at a time. Each chunk's plan set
//! ([`braid_plan::run`]) says which pieces each drive answers for (`methods/drives.rs`). Whatever a drive
//! does not answer for is read, as any reader reads it, and judged here by the same code. The ends of pieces
//! go to [`Seams`], which gives the records that lie across them.

mod document;
mod drives;
mod modules;
mod parquet;
mod passes;

pub use document::RunDocument;
pub use passes::{METHODS_OF_RUNS, MethodOfRuns};

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_methods::{
    Answer, Arguments, ArgumentsError, Edge, MethodError, Module, Order, Program, RECORD_BYTES_MAX, Running,
    Seams, SeamsError, WASM, parse_code, run_piece,
};
use braid_plan::{MethodCost, PlanSet, RunSite, RunWays};
use braid_wire::control::StatRow;

use crate::client::Client;
use crate::concurrent;
use crate::error::{Error, Result};
use crate::file::File;
use crate::methods::drives::Drives;
use crate::naming::name::Name;
use crate::open::OpenOptions;
use crate::peers::faults::Learnt;

/// Rate of a link of which nothing is known: 10 Gbit/s.
const LINK_BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Time of a round trip to a drive, in nanoseconds, where nothing is known.
const ROUND_TRIP_NS: u64 = 200_000;
/// The least bound on records, and the step of a piece's length.
const RECORD_MAX_LEAST: u64 = 4096;
/// Bytes of the file's beginning in which a method's header must end.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Where a method runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunAt {
    /// Where it costs less time.
    #[default]
    Cheapest,
    /// At the drives. Only what they cannot answer for is read. Refused if no drive may run it.
    Drives,
    /// At the client, which reads the file.
    Client,
}

/// A method to run, and how.
#[derive(Debug, Clone)]
pub struct RunAsk {
    /// The method's name.
    pub method: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// Where it runs.
    pub at: RunAt,
    /// The longest record, in bytes.
    pub record_max: u64,
    /// The module of a user, for the method `wasm`; `None`: the argument `module` names it, and it is in the
    /// file's volume.
    pub module: Option<Arc<Module>>,
    /// Bytes of the file that are answered for so far: for those who show progress.
    pub progress: Arc<AtomicU64>,
}

/// The answer of a method, and what it took.
#[derive(Debug)]
pub struct Ran {
    /// The whole answer.
    pub answer: Answer,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that drives answered for.
    pub bytes_at_drives: u64,
    /// Bytes of the answers of drives, ends of pieces included.
    pub answer_bytes: u64,
    /// Bytes of the file that were read.
    pub read_bytes: u64,
    /// Bytes of the arguments that went to drives.
    pub asked_bytes: u64,
    /// True if the file was written meanwhile, as far as the manager was told: the answer may be of several
    /// states of it.
    pub changed: bool,
}

/// Reason for which a method has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// Its arguments are wrong.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// It cannot go on.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// A record is too long, or a drive's answer does not fit.
    #[error(transparent)]
    Seams(#[from] SeamsError),
    /// It is no Parquet file that can be read.
    #[error("{0}")]
    Table(String),
    /// Rows cannot be made Arrow.
    #[error("its rows cannot be made Arrow: {0}")]
    Arrow(String),
    /// Drives may not run it on this file.
    #[error("{0}, so no drive runs methods on it: leave out --at drive")]
    NotAtDrives(&'static str),
    /// The file has no first line that could be its header.
    #[error("its first line, the header, does not end within {HEADER_BYTES_MAX} bytes")]
    Header,
    /// The bound on records is too low.
    #[error("records of {0} bytes at most are too short: the bound is at least {RECORD_MAX_LEAST}")]
    RecordMax(u64),
    /// A module that cannot be had.
    #[error("{why}")]
    Module {
        /// Reason and remedy.
        why: String,
    },
    /// A module failed at a drive.
    #[error("at drive {drive}, {why}")]
    AtDrive {
        /// The drive at which it failed.
        drive: String,
        /// The module's fault, in words.
        why: String,
    },
    /// A task of this program ended early.
    #[error("the work was given up: this program is ending")]
    Ended,
}

impl RunAsk {
    /// A method with these arguments, where it is cheapest.
    pub fn new(method: impl Into<String>, arguments: Arguments) -> RunAsk {
        RunAsk {
            method: method.into(),
            arguments,
            at: RunAt::default(),
            record_max: RECORD_BYTES_MAX,
            module: None,
            progress: Arc::default(),
        }
    }

    /// The same at another place.
    #[must_use]
    pub fn at(self, at: RunAt) -> RunAsk {
        RunAsk { at, ..self }
    }
}

impl Client {
    /// Runs a method that takes one run.
    pub(crate) async fn run_once(&self, name: &Name, ask: &RunAsk) -> Result<Ran> {
        // What cannot be right is refused before anything is opened.
        let subject = name.to_string();
        if ask.method != parquet::METHOD && braid_methods::find(&ask.method).is_none() {
            let unknown = ArgumentsError::Unknown { name: ask.method.clone() };
            return Err(failed(&subject, unknown));
        }
        let ask = self.with_module(name, ask).await?;
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        file.run(&ask).await
    }

    /// The plan sets of a method on a file that is open, with what either way costs.
    pub async fn plan_run(&self, name: &Name, ask: &RunAsk) -> Result<Vec<PlannedRun>> {
        let ask = self.with_module(name, ask).await?;
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        let mut ranges = Vec::new();
        let cost = if ask.method == parquet::METHOD {
            ranges.extend(parquet::first_ranges(&file, &ask).await?);
            parquet::cost()
        } else {
            ranges.push(0..file.size());
            cost_of(&*file.program(&file.with_header(&ask).await?).await?)
        };
        let handle = file.handle();
        let view = handle.view();
        let mut planned = Vec::new();
        for chunk in ranges.into_iter().flat_map(|range| handle.chunks(Arc::clone(&view), range)) {
            let segment = chunk.segment;
            let Some(set) = file.planned(&chunk.range, segment, cost)? else { continue };
            planned.push(PlannedRun { ways: ways_of(&set, cost), set });
        }
        Ok(planned)
    }
}

/// A plan set of a method, and what it costs.
#[derive(Debug)]
pub struct PlannedRun {
    /// The plan set.
    pub set: PlanSet,
    /// The two ways to run it.
    pub ways: RunWays,
}

/// A run as it goes on.
struct Run<'a> {
    file: &'a File,
    program: Arc<dyn Program>,
    state: Mutex<State<'a>>,
    drives: Drives,
    /// Bytes of a piece at most. No piece is longer than a record may be: so one that is too long lies across
    /// the end of a piece, wherever it is, and is found there.
    piece_max: u32,
    progress: &'a AtomicU64,
}

struct State<'a> {
    running: Box<dyn Running + 'a>,
    seams: Seams,
}

/// What was made of a range.
struct Judged {
    /// The ends of its pieces.
    edges: Vec<Edge>,
    partial: Vec<u8>,
}

impl File {
    /// Runs a method on the file. Bytes that are written meanwhile may be seen or not.
    pub async fn run(&self, ask: &RunAsk) -> Result<Ran> {
        if ask.record_max < RECORD_MAX_LEAST {
            return Err(self.failed(RunFailure::RecordMax(ask.record_max)));
        }
        if ask.method == parquet::METHOD {
            return parquet::run(self, ask).await;
        }
        let ask = &self.with_header(ask).await?.with_name();
        let program = self.program(ask).await?;
        let before = self.known();
        let size = self.size();
        let is_at_drives = self.is_at_drives(program.name(), ask.at, cost_of(&*program))?;
        let running = program.begin();
        let run = Run {
            file: self,
            program: Arc::clone(&program),
            state: Mutex::new(State { running, seams: Seams::new(ask.record_max) }),
            drives: Drives::new(ask, size, is_at_drives),
            piece_max: piece_max(ask.record_max),
            progress: &ask.progress,
        };
        match program.order() {
            Order::Any => run.all(size).await?,
            Order::Sequential => run.in_order(size).await?,
        }
        let after = self.stat().await?;
        let bytes_at_drives = run.drives.answered();
        let answer_bytes = run.drives.answer_bytes();
        let State { mut running, seams } = run.state.into_inner().expect("no holder panics");
        if let Some(record) = seams.finish(size).map_err(|error| self.failed(error))? {
            running.feed(record.from, &record.bytes).map_err(|error| self.failed(error))?;
        }
        let answer = self.in_format(ask, running.finish().map_err(|error| self.failed(error))?)?;
        let changed = differs(&before, &after);
        let read_bytes = size.saturating_sub(bytes_at_drives);
        let asked_bytes = run.drives.asked_bytes();
        Ok(Ran { answer, bytes: size, bytes_at_drives, answer_bytes, read_bytes, asked_bytes, changed })
    }

    /// The same with the file's first line as an argument, if the method needs it.
    async fn with_header(&self, ask: &RunAsk) -> Result<RunAsk> {
        let needs_header = braid_methods::find(&ask.method).is_some_and(|method| method.needs_header);
        if !needs_header || ask.arguments.get("header").is_some() {
            return Ok(ask.clone());
        }
        let arguments = ask.arguments.clone().with("header", self.header().await?);
        Ok(RunAsk { arguments, ..ask.clone() })
    }

    /// The method with its arguments. If it is a module, that is compiled.
    async fn program(&self, ask: &RunAsk) -> Result<Arc<dyn Program>> {
        if let (WASM, Some(module)) = (ask.method.as_str(), ask.module.clone()) {
            let Some(engine) = self.handle().client.config().engine.clone() else {
                return Err(self.failed(MethodError::NoEngine("this program has no engine for them".into())));
            };
            let arguments = ask.arguments.clone();
            let parsing = tokio::task::spawn_blocking(move || parse_code(&arguments, module, engine));
            let parsed = parsing.await.map_err(|_| self.failed(RunFailure::Ended))?;
            return Ok(Arc::from(parsed.map_err(|error| self.failed(error))?));
        }
        let program = braid_methods::parse(&ask.method, &ask.arguments, self.size());
        Ok(Arc::from(program.map_err(|error| self.failed(error))?))
    }

    async fn header(&self) -> Result<String> {
        let mut read: u64 = 4096;
        loop {
            let bytes = read.min(self.size());
            let mut head = vec![0; usize::try_from(bytes).expect("it is small")];
            let filled = self.read_at(&mut head, 0).await?;
            let line = head[..filled].split(|&byte| byte == b'\n').next().unwrap_or_default();
            if line.len() < filled || bytes == self.size() {
                return Ok(String::from_utf8_lossy(line).into_owned());
            }
            if read >= HEADER_BYTES_MAX {
                return Err(self.failed(RunFailure::Header));
            }
            read *= 4;
        }
    }

    /// The answer as Arrow, if that is asked for.
    fn in_format(&self, ask: &RunAsk, answer: Answer) -> Result<Answer> {
        match answer {
            Answer::Rows(rows) if ask.arguments.get("format") == Some("arrow") => {
                let delimiter = ask.arguments.get("delimiter").and_then(|text| text.bytes().next());
                let arrow = braid_parquet::from_csv(&rows, delimiter.unwrap_or(b','));
                arrow.map(Answer::Arrow).map_err(|why| self.failed(RunFailure::Arrow(why.to_string())))
            }
            other => Ok(other),
        }
    }

    /// Returns true if drives are asked.
    fn is_at_drives(&self, method: &str, at: RunAt, cost: MethodCost) -> Result<bool> {
        let view = self.handle().view();
        let hindrance = if self.is_sealed() {
            Some("its volume is encrypted, and drives have no key")
        } else if !drives::may_run(&view, method) && method == WASM {
            Some("its volume's drives may not run modules (`braid volume set --methods wasm` lets them)")
        } else if !drives::may_run(&view, method) {
            Some("its volume's methods are off, or its drives may not run them")
        } else {
            None
        };
        match (at, hindrance) {
            (RunAt::Drives, Some(why)) => Err(self.failed(RunFailure::NotAtDrives(why))),
            (RunAt::Client, _) | (_, Some(_)) => Ok(false),
            (RunAt::Drives, None) => Ok(true),
            (RunAt::Cheapest, None) => {
                let Some(first) = self.handle().chunks(view, 0..self.size()).next() else { return Ok(false) };
                let set = self.planned(&first.range, first.segment, cost)?;
                Ok(set.is_some_and(|set| ways_of(&set, cost).is_at_drives()))
            }
        }
    }

    /// The plan set of a method for a chunk of the file; `None` if too few columns can be used.
    fn planned(&self, range: &Range<u64>, segment: usize, cost: MethodCost) -> Result<Option<PlanSet>> {
        let permille = cost.answer_permille;
        let compile = |target: &braid_plan::Target<'_>| braid_plan::run(target, range.clone(), 0, permille);
        let handle = self.handle();
        handle.compile(&handle.view(), segment, &Learnt::default(), compile)
    }

    fn failed(&self, why: impl Into<RunFailure>) -> Error {
        failed(self.subject(), why)
    }
}

/// Returns true if a file was written between two looks at it, as far as the manager was told.
fn differs(before: &StatRow, after: &StatRow) -> bool {
    after.attributes.modified_ns != before.attributes.modified_ns || after.size() != before.size()
}

fn failed(file: &str, why: impl Into<RunFailure>) -> Error {
    Error::Run { file: file.to_owned(), why: Box::new(why.into()) }
}

/// Bytes of a piece at most, if a record has at most so many: whole blocks of 4 KiB.
fn piece_max(record_max: u64) -> u32 {
    let bytes = record_max.min(u64::from(braid_wire::data::RUN_PIECE_BYTES_MAX));
    u32::try_from(bytes / RECORD_MAX_LEAST * RECORD_MAX_LEAST).expect("a piece is small")
}

/// What a method costs, as it says itself.
fn cost_of(program: &dyn Program) -> MethodCost {
    let is_sequential = program.order() == Order::Sequential;
    let known = braid_methods::find(program.name());
    let answer_permille = known.map_or(0, |method| method.answer_permille);
    MethodCost { answer_permille, byte_ps: known.map_or(0, |method| method.byte_ps), is_sequential }
}

fn ways_of(set: &PlanSet, cost: MethodCost) -> RunWays {
    let site = RunSite {
        link_bytes_per_second: LINK_BYTES_PER_SECOND,
        round_trip_ns: ROUND_TRIP_NS,
        piece_bytes: u64::from(braid_wire::data::RUN_PIECE_BYTES_MAX),
    };
    braid_plan::run_ways(set, cost, &site)
}

impl Run<'_> {
    /// Takes the file in chunks, some at a time.
    async fn all(&self, size: u64) -> Result<()> {
        let handle = self.file.handle();
        let flights = handle.client.config().sets_per_request;
        let chunks = handle.chunks(handle.view(), 0..size).map(|chunk| async move {
            let left = self.drives.ask(self, &chunk).await?;
            for range in left {
                self.here(range).await?;
            }
            Ok(())
        });
        concurrent::windowed(flights, chunks).await
    }

    /// Takes the file from its first byte to its last: each piece goes on from where the one before ended.
    async fn in_order(&self, size: u64) -> Result<()> {
        let handle = self.file.handle();
        let mut state = Vec::new();
        for chunk in handle.chunks(handle.view(), 0..size) {
            for range in self.drives.ask_in_order(self, &chunk, &mut state).await? {
                match range {
                    drives::Part::Answered(edge) => self.take_edge(edge)?,
                    drives::Part::Left(range) => {
                        let judged = self.read_and_judge(&range, std::mem::take(&mut state)).await?;
                        state = judged.partial;
                        judged.edges.into_iter().try_for_each(|edge| self.take_edge(edge))?;
                        self.note(&range);
                    }
                }
            }
        }
        let mut own = self.state.lock().expect("no holder panics");
        if size > 0 { own.running.absorb(&state).map_err(|error| self.file.failed(error)) } else { Ok(()) }
    }

    /// Answers for a range of the file here.
    async fn here(&self, range: Range<u64>) -> Result<()> {
        let judged = self.read_and_judge(&range, Vec::new()).await?;
        self.take(&judged.partial)?;
        judged.edges.into_iter().try_for_each(|edge| self.take_edge(edge))?;
        self.note(&range);
        Ok(())
    }

    /// Reads a range of the file, and has the method judge it, from a state on if there is one.
    async fn read_and_judge(&self, range: &Range<u64>, state: Vec<u8>) -> Result<Judged> {
        let client = &self.file.handle().client;
        let _permit = client.set_permit_for(range.end - range.start).await;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("a chunk fits memory")];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = range.start + u64::try_from(filled).expect("a chunk fits memory");
            match self.file.read_at(&mut bytes[filled..], at).await? {
                // The file was cut meanwhile: what is gone reads as zeros.
                0 => break,
                more => filled += more,
            }
        }
        let program = Arc::clone(&self.program);
        let mut from = range.start;
        let piece_max = usize::try_from(self.piece_max).expect("a piece is small");
        let judging = tokio::task::spawn_blocking(move || {
            let mut running = program.begin();
            if !state.is_empty() {
                running.absorb(&state)?;
            }
            let mut edges = Vec::new();
            for piece in bytes.chunks(piece_max) {
                let edge = run_piece(&*program, &mut *running, from, piece)?;
                from = edge.to;
                edges.push(edge);
            }
            running.settle()?;
            Ok::<Judged, MethodError>(Judged { edges, partial: running.partial() })
        });
        let judged = judging.await.map_err(|_| self.file.failed(RunFailure::Ended))?;
        judged.map_err(|error| self.file.failed(error))
    }

    /// Adds a partial answer.
    fn take(&self, partial: &[u8]) -> Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        state.running.absorb(partial).map_err(|error| self.file.failed(error))
    }

    /// Adds the ends of a piece, and answers for the records that they make whole.
    fn take_edge(&self, edge: Edge) -> Result<()> {
        let mut state = self.state.lock().expect("no holder panics");
        let records = state.seams.add(edge).map_err(|error| self.file.failed(error))?;
        for record in records {
            if self.program.order() == Order::Sequential {
                return Err(self.file.failed(MethodError::Incomplete));
            }
            state.running.feed(record.from, &record.bytes).map_err(|error| self.file.failed(error))?;
        }
        Ok(())
    }

    fn note(&self, range: &Range<u64>) {
        self.progress.fetch_add(range.end - range.start, Ordering::Relaxed);
    }
}
