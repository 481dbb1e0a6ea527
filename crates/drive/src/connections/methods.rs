//! Methods that run here, on units of this drive: each piece is read in its turn at the disk, and judged in
//! its turn at the processor.
//!
//! A request has one piece in memory at a time. It ends after a second, or when its answer is as long as one
//! may be: then the asker asks for the rest. A piece that cannot be answered for, or takes too long to judge,
//! is left to the asker, who reads it, and finds out why if that fails too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_layout::{Generation, Version};
use braid_methods::{
    Argument, Arguments, Edge, Engine, Method, MethodError, Module, Order, Program, WASM, module_named,
    run_piece_in_steps,
};
use braid_schedule::{Direction, Flow};
use braid_store::DiskReads;
use braid_transport::host;
use braid_wire::capability::Rights;
use braid_wire::data::{
    RUN_ANSWER_BYTES_MAX, RUN_PIECE_BYTES_MAX, RanPiece, Read, Run, RunPiece, RunReply, Want,
};
use braid_wire::{Capability, Reason, Refusal};
use tokio::sync::oneshot;

use crate::connections::answerer::Ticket;
use crate::connections::buffers::Share;
use crate::connections::facts::StoredFacts;
use crate::connections::queries::{self, PieceRead};
use crate::connections::reply::Answer;
use crate::connections::requests::{Requests, no_object};
use crate::core::Core;
use crate::device::flows::flow_of;
use crate::device::gate::{Entry, Slot};
use crate::device::rail::by_bytes;

/// Time after which a request is answered with what has been done.
const ANSWER_AFTER: Duration = Duration::from_secs(1);
/// Time after which a piece that is being judged is left to the asker.
const JUDGED_WITHIN: Duration = Duration::from_secs(1);
/// Memory for a method that was compiled, for each byte of its arguments.
const COMPILED_BYTES: usize = 16;
const PICOSECONDS: u64 = 1000;

/// A method's request as it is carried out.
struct Running {
    core: Arc<Core>,
    flow: Flow,
    g: Generation,
    facts: StoredFacts,
    method: &'static Method,
    /// True if the capability allows modules of users.
    may_run_code: bool,
    run: Run,
    /// The memory for one piece, its answer, the answer so far, and the method.
    _share: Share,
}

/// The answer so far.
#[derive(Default)]
struct SoFar {
    pieces: Vec<RanPiece>,
    partial: Vec<u8>,
    /// Bytes of all ends.
    ends: usize,
    is_answered: bool,
}

/// The answer of a method for a piece.
struct Judged {
    edge: Edge,
    /// The partial answer for this piece and all before it.
    partial: Vec<u8>,
}

impl Requests {
    /// Runs a method in a task of its own, if there is such a method here.
    pub(crate) async fn run_method(
        &self,
        capability: &Capability,
        facts: Option<StoredFacts>,
        run: Run,
        ticket: Ticket,
    ) {
        let Some(facts) = facts else { return ticket.refuse(Generation(0), no_object()) };
        let g = facts.g;
        let Some(method) = braid_parquet::find(&run.method) else {
            let detail = format!("this drive has no method {:?}", run.method);
            return ticket.refuse(g, Refusal::new(Reason::Unsupported, detail));
        };
        if let Some(piece) = run.pieces.iter().find(|piece| piece.to > facts.map.unit_bytes) {
            let detail =
                format!("a unit has {} bytes, and byte {} is asked for", facts.map.unit_bytes, piece.to);
            return ticket.refuse(g, Refusal::new(Reason::Range, detail));
        }
        let flow = flow_of(&self.core, capability);
        let buffers = self.buffers_of(&flow, Direction::Read);
        let memory = memory_of(&run).saturating_add(method.memory_bytes);
        let Some((_share, ticket)) = self.share(buffers, memory, ticket).await else { return };
        ticket.waits();
        let core = self.core();
        let g = capability.g;
        let may_run_code = capability.rights.include(Rights::RUN_CODE);
        let running = Running { core, flow, g, facts, method, may_run_code, run, _share };
        tokio::spawn(async move { ticket.answer(running.answer().await) });
    }
}

impl Running {
    async fn answer(self) -> Answer {
        let began = Instant::now();
        let program = match self.program().await {
            Ok(program) => program,
            Err(refused) => return refused,
        };
        let mut so_far = SoFar { partial: self.run.state.clone(), ..SoFar::default() };
        for (&unit, piece) in self.run.units.iter().zip(&self.run.pieces) {
            match self.piece(&program, unit, piece, &so_far.partial).await {
                Ok(Some((version, judged))) if so_far.has_room_for(&judged) => so_far.add(version, judged),
                // The next request has more room.
                Ok(Some(_)) if so_far.is_answered => break,
                Ok(_) => so_far.pieces.push(left_out()),
                Err(refused) if so_far.pieces.is_empty() => return refused,
                Err(_) => break,
            }
            if began.elapsed() > ANSWER_AFTER {
                break;
            }
        }
        let partial = if so_far.is_answered { so_far.partial } else { Vec::new() };
        Answer::new(self.g, RunReply { pieces: so_far.pieces, partial })
    }

    /// The method with its arguments, which are looked at in their turn, as they may be many, or code of a
    /// user.
    async fn program(&self) -> Result<Arc<dyn Program>, Answer> {
        let own = self.run.arguments.iter();
        let argument = own.map(|own| Argument { name: own.name.clone(), value: own.value.clone() });
        let arguments = Arguments(argument.collect());
        let code = match self.run.method == WASM {
            true => Some(self.code(&arguments).map_err(|refusal| self.refused(refusal))?),
            false => None,
        };
        let slot = self.turn_to_judge(wide(argument_bytes(&self.run))).await?;
        let parse = self.method.parse;
        let size = self.run.size;
        let parsing = host::spawn_blocking(move || {
            let parsed = match code {
                Some((module, engine)) => braid_methods::parse_code(&arguments, module, engine),
                None => parse(&arguments, size).map_err(MethodError::from),
            };
            drop(slot);
            parsed
        });
        let unsupported = |why: String| self.refused(Refusal::new(Reason::Unsupported, why));
        match parsing.await.map_err(|_| self.refused(ends()))? {
            Ok(program) => match program.hindrance() {
                Some(why) => Err(unsupported(why.to_owned())),
                None => Ok(Arc::from(program)),
            },
            Err(error @ MethodError::Module { .. }) => {
                Err(self.refused(Refusal::new(Reason::ModuleFailed, error.to_string())))
            }
            Err(error) => Err(unsupported(error.to_string())),
        }
    }

    /// The module that the arguments name, and what runs it.
    fn code(&self, arguments: &Arguments) -> Result<(Arc<Module>, Arc<dyn Engine>), Refusal> {
        if !self.may_run_code {
            let detail =
                "the capability is not one to run modules: `braid volume set --methods wasm` gives it";
            return Err(Refusal::new(Reason::Rights, detail));
        }
        let Some(engine) = self.core.settings.engine.clone() else {
            return Err(Refusal::new(Reason::Unsupported, "this drive runs no modules"));
        };
        let named = module_named(arguments);
        let hash = named.map_err(|error| Refusal::new(Reason::Unsupported, error.to_string()))?;
        let Some(module) = self.core.modules.get(hash) else {
            let detail = format!("this drive does not have the module {}", braid_methods::name_of(&hash));
            return Err(Refusal::new(Reason::NoModule, detail));
        };
        Ok((module, engine))
    }

    /// Reads a piece and has the method judge it; `None` if it is left to the asker.
    async fn piece(
        &self,
        program: &Arc<dyn Program>,
        unit: u64,
        piece: &RunPiece,
        so_far: &[u8],
    ) -> Result<Option<(Version, Judged)>, Answer> {
        let at = self.run.at;
        let exactly = Vec::new();
        let read =
            Read { at, unit, from: piece.from, to: piece.to, want: Want::Newest, exactly, timed: false };
        if queries::not_caught_up(&self.core, Some(&self.facts), &read).is_some() {
            return Ok(None);
        }
        let Some(PieceRead { version, bytes }) = self.read(read).await? else { return Ok(None) };
        let length = wide(bytes.len());
        let slot = self.turn_to_judge(length).await?;
        let program = Arc::clone(program);
        let so_far = so_far.to_vec();
        let offset = piece.offset;
        let judging = host::spawn_blocking(move || {
            let began = Instant::now();
            let mut goes_on = || began.elapsed() < JUDGED_WITHIN;
            let judged = judge(&*program, &so_far, offset, &bytes, &mut goes_on);
            slot.took(length, began.elapsed());
            judged
        });
        match judging.await {
            Ok(Ok(Some(judged))) => Ok(Some((version, judged))),
            // It would fail at the client as well, and is not to be run there unseen.
            Ok(Err(error @ MethodError::Module { .. })) => {
                Err(self.refused(Refusal::new(Reason::ModuleFailed, error.to_string())))
            }
            Ok(Ok(None) | Err(_)) => Ok(None),
            Err(error) if error.is_panic() => {
                tracing::error!(method = %self.run.method, offset, "a method failed within the drive");
                Ok(None)
            }
            Err(_) => Err(self.refused(ends())),
        }
    }

    /// The bytes of a piece, read in its turn; `None` if it has none, or none that are good.
    async fn read(&self, read: Read) -> Result<Option<PieceRead>, Answer> {
        let core = Arc::clone(&self.core);
        let g = self.g;
        let bytes = u64::from(read.to - read.from);
        let range = read.from..read.to;
        let newest = core.store.disk_reads(read.at.partition, read.at.object, read.unit, &range);
        let disk = newest.unwrap_or(DiskReads { reads: 1, bytes });
        let (told, came) = oneshot::channel();
        self.core.gate.enter_reads(self.flow, bytes, disk, move |mut slot| {
            slot.count();
            host::spawn_blocking(move || {
                let (result, was_cached) = queries::piece(&core, g, &read);
                if was_cached {
                    slot.did_nothing();
                } else {
                    drop(slot);
                }
                // If nobody waits for it, the drive ends.
                let _ = told.send(result);
            });
        });
        match came.await {
            Ok(result) => result,
            Err(_) => Err(self.busy()),
        }
    }

    async fn turn_to_judge(&self, bytes: u64) -> Result<Slot, Answer> {
        let cost_ns = (bytes.saturating_mul(self.method.byte_ps) / PICOSECONDS).max(1);
        let flow = by_bytes(self.flow);
        let (told, slot) = oneshot::channel();
        let entry = Entry { flow, direction: Direction::Read, bytes, cost_ns, goes_on: None };
        self.core.processors.enter_at(entry, move |slot| drop(told.send(slot)));
        slot.await.map_err(|_| self.busy())
    }

    fn refused(&self, refusal: Refusal) -> Answer {
        Answer::refused(self.g, refusal)
    }

    fn busy(&self) -> Answer {
        let detail = "the drive has too much to do, and the method waited too long: try again";
        Answer::refused(self.g, Refusal::new(Reason::Busy, detail))
    }
}

impl SoFar {
    fn has_room_for(&self, judged: &Judged) -> bool {
        self.ends + judged.edge.bytes() + judged.partial.len() <= RUN_ANSWER_BYTES_MAX
    }

    fn add(&mut self, version: Version, judged: Judged) {
        let edge = judged.edge;
        self.ends += edge.bytes();
        self.partial = judged.partial;
        self.is_answered = true;
        let closed = edge.closed;
        self.pieces.push(RanPiece { answered: true, version, closed, head: edge.head, tail: edge.tail });
    }
}

/// The partial answer with that for a piece, which begins at byte `offset` of the file; `None` if it is given
/// up on the way.
fn judge(
    program: &dyn Program,
    so_far: &[u8],
    offset: u64,
    bytes: &[u8],
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Judged>, MethodError> {
    let mut running = program.begin_within(wide(RUN_ANSWER_BYTES_MAX));
    // A module merges as it goes: each of its tasks costs a round trip to its process.
    let takes_all = program.order() == Order::Sequential || program.name() == WASM;
    if takes_all && !so_far.is_empty() {
        running.absorb(so_far)?;
    }
    let Some(edge) = run_piece_in_steps(program, &mut *running, offset, bytes, goes_on)? else {
        return Ok(None);
    };
    running.settle()?;
    let partial = running.partial();
    if takes_all || so_far.is_empty() {
        return Ok(Some(Judged { edge, partial }));
    }
    let mut whole = program.begin();
    whole.absorb(so_far)?;
    whole.absorb(&partial)?;
    Ok(Some(Judged { edge, partial: whole.partial() }))
}

/// Bytes of memory that a request may need at most.
fn memory_of(run: &Run) -> u32 {
    // Of a partial answer there are that of the piece, that of all before it, and both together.
    let answers = 3 * RUN_ANSWER_BYTES_MAX;
    let method = COMPILED_BYTES.saturating_mul(argument_bytes(run));
    let bytes = answers.saturating_add(method).saturating_add(run.state.len());
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(RUN_PIECE_BYTES_MAX)
}

fn argument_bytes(run: &Run) -> usize {
    run.arguments.iter().map(|argument| argument.name.len() + argument.value.len()).sum()
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn left_out() -> RanPiece {
    RanPiece { answered: false, version: Version::ZERO, closed: false, head: Vec::new(), tail: Vec::new() }
}

fn ends() -> Refusal {
    Refusal::new(Reason::Closing, "the drive is shutting down")
}

#[cfg(test)]
mod tests {
    use braid_layout::{ObjectId, PartitionId};
    use braid_wire::data::{Address, RunArgument};

    use super::*;

    fn judge(program: &dyn Program, so_far: &[u8], offset: u64, bytes: &[u8]) -> Result<Judged, MethodError> {
        let judged = super::judge(program, so_far, offset, bytes, &mut || true)?;
        Ok(judged.expect("there is time"))
    }

    /// Of lines of 11 bytes, with `bytes` bytes in a piece.
    fn all_lines(bytes: usize) -> Vec<u8> {
        b"0123456789\n".iter().copied().cycle().take(bytes).collect()
    }

    #[test]
    fn partial_answers_of_one_request_are_merged_while_they_fit() {
        let arguments = Arguments::default().with("pattern", ".");
        let program = braid_methods::parse("grep", &arguments, 1 << 30).expect("good arguments");
        let mut so_far = SoFar::default();
        let piece = all_lines(256 << 10);
        let mut at = 0;
        loop {
            let judged = judge(&*program, &so_far.partial, at, &piece).expect("it can be judged");
            if !so_far.has_room_for(&judged) {
                break;
            }
            so_far.add(Version::ZERO, judged);
            at += 256 << 10;
        }
        assert_eq!(so_far.pieces.len(), 2, "the third is for the next request");
        let mut whole = program.begin();
        whole.absorb(&so_far.partial).expect("its own");
        let braid_methods::Answer::Records(found) = whole.finish().expect("an answer") else {
            panic!("records")
        };
        let lines = 2 * (piece.len() / 11 - 1);
        assert!((lines - 2..=lines + 2).contains(&found.len()), "{} of {lines}", found.len());
    }

    #[test]
    fn a_method_in_order_goes_on_from_its_state() {
        let arguments = Arguments::default().with("algorithm", "sha256");
        let program = braid_methods::parse("checksum", &arguments, 1024).expect("good arguments");
        let first = judge(&*program, &[], 0, &[7; 512]).expect("it can be judged");
        assert!(judge(&*program, &[], 512, &[7; 512]).is_err(), "it is not the beginning");
        let second = judge(&*program, &first.partial, 512, &[7; 512]).expect("it goes on");
        let whole = judge(&*program, &[], 0, &[7; 1024]).expect("it can be judged");
        assert_eq!(second.partial, whole.partial);
    }

    #[test]
    fn a_piece_is_given_up_when_its_time_is_over_or_its_answer_is_long() {
        let arguments = Arguments::default().with("pattern", "5");
        let program = braid_methods::parse("grep", &arguments, 1 << 30).expect("good arguments");
        let piece = all_lines(512 << 10);
        let mut looks = 0;
        let mut goes_on = || {
            looks += 1;
            looks < 3
        };
        let given_up = super::judge(&*program, &[], 0, &piece, &mut goes_on).expect("it can be judged");
        assert!(given_up.is_none() && looks == 3, "{looks} looks at the clock");
        let too_long = judge(&*program, &[], 0, &b"5\n".repeat(256 << 10));
        assert!(matches!(too_long, Err(MethodError::TooLarge { .. })), "it is no more than one that fits");
    }

    #[test]
    fn the_memory_of_a_request_counts_its_arguments_and_its_state() {
        let at = Address { partition: PartitionId(1), object: ObjectId(1) };
        let run = |value: usize, state: usize| Run {
            at,
            units: vec![0],
            pieces: vec![RunPiece { from: 0, to: 1, offset: 0 }],
            method: "count".to_owned(),
            arguments: vec![RunArgument { name: String::new(), value: "x".repeat(value) }],
            size: 1,
            state: vec![0; state],
        };
        let least = memory_of(&run(0, 0));
        assert_eq!(memory_of(&run(1000, 7)) - least, 16_007);
        assert!(usize::try_from(least).is_ok_and(|least| least > 2 * RUN_ANSWER_BYTES_MAX));
    }
}
