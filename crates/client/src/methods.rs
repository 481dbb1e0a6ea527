//! Runs of methods on files: the drives answer for the units that they hold, the client for the rest, and
//! puts the answers together.
//!
//! How: a file is taken in chunks of whole stripes, a few at a time. Each chunk's plan set
//! ([`braid_plan::run`]) says which pieces each drive answers for (`methods/drives.rs`). Whatever a drive
//! does not answer for is read, as any reader reads it, and judged here by the same code. The ends of pieces
//! go to [`Seams`], which gives the records that lie across them.

mod document;
mod drives;
pub(crate) mod failure;
mod front;
mod modules;
mod parquet;
mod passes;

pub use document::RunDocument;
pub use failure::RunFailure;
pub use passes::{METHODS_OF_RUNS, MethodOfRuns};

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_layout::Lease;
use braid_methods::{
    Answer, Arguments, Edge, MethodError, Module, Order, Program, RECORD_BYTES_MAX, Running, Seams, WASM,
    parse_code, run_piece,
};
use braid_plan::{MethodCost, PlanSet, RunSite, RunWays};

use crate::client::Client;
use crate::concurrent;
use crate::error::{Error, Result};
use crate::file::File;
use crate::methods::drives::Drives;
use crate::methods::failure::{HEADER_BYTES_MAX, RECORD_MAX_LEAST};
use crate::methods::front::Front;
use crate::naming::name::Name;
use crate::open::OpenOptions;
use crate::peers::faults::Learnt;
use crate::view::FileView;

/// Rate of a link of which nothing is known: 10 Gbit/s.
const LINK_BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Time of a round trip to a drive, in nanoseconds, where nothing is known.
const ROUND_TRIP_NS: u64 = 200_000;
/// Bytes of a file that may be answered for behind the first that are not, unless more are in flight anyway.
const AHEAD_BYTES: u64 = 64 << 20;

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
    /// The method's arguments.
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
    /// Bytes that were asked about: those of the file, for each time that it was gone over, and of each file.
    pub bytes: u64,
    /// Bytes that drives answered for.
    pub bytes_at_drives: u64,
    /// Bytes of the answers of drives, ends of pieces included.
    pub answer_bytes: u64,
    /// Bytes of the file that were read.
    pub read_bytes: u64,
    /// Bytes of the arguments that went to drives.
    pub asked_bytes: u64,
    /// True if the file was written meanwhile, as far as the manager and the drives tell: the answer may be
    /// of several states of it. Whoever writes it without others, and has not committed, is not seen by all.
    pub changed: bool,
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
            return Err(failed(&subject, passes::unknown(&ask.method)));
        }
        let ask = self.with_module(name, ask).await?;
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        file.run(&ask).await
    }

    /// The plan sets of a method on a file that is open, with what either way costs.
    pub async fn plan_run(&self, name: &Name, ask: &RunAsk) -> Result<RunPlan> {
        if passes::takes_several(ask) {
            return Err(failed(&name.to_string(), RunFailure::SeveralRuns));
        }
        let ask = self.with_module(name, ask).await?;
        let file = self.open(name, &OpenOptions::new().read(true)).await?;
        let mut ranges = Vec::new();
        let mut hindrance = None;
        let cost = if ask.method == parquet::METHOD {
            ranges.extend(parquet::first_ranges(&file, &ask).await?);
            parquet::cost()
        } else {
            ranges.push(0..file.size());
            let program = file.program(&file.with_header(&ask).await?).await?;
            hindrance = program.hindrance();
            cost_of(&*program)
        };
        let handle = file.handle();
        let view = handle.view();
        let hindrance = file.hindrance(&view, &ask.method).or(hindrance);
        let is_at_drives = file.is_at_drives(hindrance, ask.at, cost)?;
        let mut sets = Vec::new();
        for chunk in ranges.into_iter().flat_map(|range| handle.chunks(Arc::clone(&view), range)) {
            let segment = chunk.segment;
            let Some(set) = file.planned(&view, &chunk.range, segment, cost)? else { continue };
            sets.push(PlannedRun { ways: ways_of(&set, cost), set });
        }
        Ok(RunPlan { sets, is_at_drives, hindrance })
    }
}

/// The way in which a method would run.
#[derive(Debug)]
pub struct RunPlan {
    /// Its plan sets.
    pub sets: Vec<PlannedRun>,
    /// True if drives would be asked.
    pub is_at_drives: bool,
    /// The reason for which no drive runs it, if there is one.
    pub hindrance: Option<&'static str>,
}

/// A plan set of a method, and what it costs.
#[derive(Debug)]
pub struct PlannedRun {
    /// The plan set.
    pub set: PlanSet,
    /// The two ways to run it.
    pub ways: RunWays,
}

/// The facts about a file's content, as the manager knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    size: u64,
    modified_ns: i64,
    changed_ns: i64,
    cut_at: Lease,
    /// True if several clients may write it at once, which the manager hears of later.
    has_writers: bool,
}

/// A run as it goes on.
struct Run<'a> {
    file: &'a File,
    program: Arc<dyn Program>,
    state: Mutex<State<'a>>,
    drives: Drives,
    /// The byte up to which its pieces have been put together.
    front: Front,
    /// Bytes of a piece at most. No piece is longer than a record may be: so one that is too long lies across
    /// the end of a piece, wherever it is, and is found there.
    piece_max: u32,
    progress: &'a AtomicU64,
}

struct State<'a> {
    running: Box<dyn Running + 'a>,
    seams: Seams,
}

/// The answer for a range.
struct Judged {
    /// The ends of its pieces.
    edges: Vec<Edge>,
    partial: Vec<u8>,
}

impl File {
    /// Runs a method on the file. Bytes that are written meanwhile may be seen or not.
    pub async fn run(&self, ask: &RunAsk) -> Result<Ran> {
        let before = self.state();
        let ran = self.pass(ask).await?;
        Ok(Ran { changed: ran.changed | self.has_changed(before).await?, ..ran })
    }

    /// The last that the manager said of the file's content.
    fn state(&self) -> FileState {
        let known = self.known();
        let view = self.handle().view();
        FileState {
            size: known.size(),
            modified_ns: known.attributes.modified_ns,
            changed_ns: known.attributes.changed_ns,
            cut_at: view.cut_at,
            has_writers: view.has_others(),
        }
    }

    /// Asks the manager whether the file has been written since, or may be written by several clients now.
    async fn has_changed(&self, before: FileState) -> Result<bool> {
        self.stat().await?;
        Ok(self.state() != before || before.has_writers)
    }

    /// Goes over the file once. Whether it changes meanwhile is asked by the caller.
    async fn pass(&self, ask: &RunAsk) -> Result<Ran> {
        self.check_reads()?;
        if ask.record_max < RECORD_MAX_LEAST {
            return Err(self.failed(RunFailure::RecordMax(ask.record_max)));
        }
        if ask.method == parquet::METHOD {
            return parquet::run(self, ask).await;
        }
        let ask = &self.with_header(ask).await?.with_name();
        let program = self.program(ask).await?;
        let size = self.size();
        let view = self.handle().view();
        let hindrance = self.hindrance(&view, program.name()).or_else(|| program.hindrance());
        let is_at_drives = self.is_at_drives(hindrance, ask.at, cost_of(&*program))?;
        let running = program.begin();
        let run = Run {
            file: self,
            program: Arc::clone(&program),
            state: Mutex::new(State { running, seams: Seams::new(ask.record_max) }),
            drives: Drives::new(ask, size, is_at_drives),
            front: Front::new(self.ahead_max()),
            piece_max: piece_max(ask.record_max),
            progress: &ask.progress,
        };
        match program.order() {
            Order::Any => run.all(size).await?,
            Order::Sequential => run.in_order(size).await?,
        }
        let bytes_at_drives = run.drives.answered();
        let answer_bytes = run.drives.answer_bytes();
        let changed = run.drives.saw_several_states();
        let State { mut running, seams } = run.state.into_inner().expect("no holder panics");
        if let Some(record) = seams.finish(size).map_err(|error| self.failed(error))? {
            running.feed(record.from, &record.bytes).map_err(|error| self.failed(error))?;
        }
        let answer = self.in_format(ask, running.finish().map_err(|error| self.failed(error))?)?;
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
        let header = self.header().await?;
        let arguments = ask.arguments.clone().with("header", header).with("skip-first", "yes");
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
                let header = String::from_utf8(line.to_vec());
                return header.map_err(|_| self.failed(RunFailure::HeaderText));
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

    /// The reason for which no drive runs a method of this name on the file.
    fn hindrance(&self, view: &FileView, method: &str) -> Option<&'static str> {
        if self.is_sealed() {
            Some("its volume is encrypted, and drives have no key")
        } else if !drives::may_run(view, method) && method == WASM {
            Some(
                "its volume's drives may not run modules (`braid volume set --methods wasm` lets them), or are of an \
                 older release, or the manager has not heard of them yet",
            )
        } else if !drives::may_run(view, method) {
            Some(
                "its volume's methods are off, or its drives are of an older release, or the manager has not \
                 heard of them yet",
            )
        } else {
            None
        }
    }

    /// Bytes of the file that may be answered for behind the first that are not.
    fn ahead_max(&self) -> u64 {
        let config = self.handle().client.config();
        let flights = u64::try_from(config.sets_per_request).unwrap_or(u64::MAX);
        config.set_bytes.saturating_mul(flights).saturating_mul(2).max(AHEAD_BYTES)
    }

    /// Returns true if drives are asked, unless there is a hindrance.
    fn is_at_drives(&self, hindrance: Option<&'static str>, at: RunAt, cost: MethodCost) -> Result<bool> {
        let view = self.handle().view();
        match (at, hindrance) {
            (RunAt::Drives, Some(why)) => Err(self.failed(RunFailure::NotAtDrives(why))),
            (RunAt::Client, _) | (_, Some(_)) => Ok(false),
            (RunAt::Drives, None) => Ok(true),
            (RunAt::Cheapest, None) => {
                let first = self.handle().chunks(Arc::clone(&view), 0..self.size()).next();
                let Some(first) = first else { return Ok(false) };
                let set = self.planned(&view, &first.range, first.segment, cost)?;
                Ok(set.is_some_and(|set| ways_of(&set, cost).is_at_drives()))
            }
        }
    }

    /// The plan set of a method for a chunk of the file; `None` if too few columns can be used.
    fn planned(
        &self,
        view: &Arc<FileView>,
        range: &Range<u64>,
        segment: usize,
        cost: MethodCost,
    ) -> Result<Option<PlanSet>> {
        let permille = cost.answer_permille;
        let compile = |target: &braid_plan::Target<'_>| braid_plan::run(target, range.clone(), 0, permille);
        self.handle().compile(view, segment, &Learnt::default(), compile)
    }

    fn failed(&self, why: impl Into<RunFailure>) -> Error {
        failed(self.subject(), why)
    }
}

fn failed(file: &str, why: impl Into<RunFailure>) -> Error {
    Error::Run { file: file.to_owned(), why: Box::new(why.into()) }
}

/// Bytes of a piece at most, if a record has at most so many: whole blocks of 4 KiB.
fn piece_max(record_max: u64) -> u32 {
    let bytes = record_max.min(u64::from(braid_wire::data::RUN_PIECE_BYTES_MAX));
    u32::try_from(bytes / RECORD_MAX_LEAST * RECORD_MAX_LEAST).expect("a piece is small")
}

/// The cost of a method, as it says itself.
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
            self.front.near(chunk.range.start).await;
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
        let _permit = self.file.handle().client.judging_permit().await;
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("a chunk fits memory")];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = range.start + u64::try_from(filled).expect("a chunk fits memory");
            match self.file.read_at(&mut bytes[filled..], at).await? {
                0 => return Err(self.file.failed(RunFailure::Cut)),
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
        self.front.reach(state.seams.reached());
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
