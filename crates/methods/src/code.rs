//! `wasm`: code of users on the records of a file.
//!
//! The records of a piece are one task of the engine. Short blocks, as of the records across the ends of
//! pieces, and partial answers wait until some are together: so a task costs little beside its work.

use std::sync::Arc;

use crate::answer::{Answer, Found};
use crate::arguments::{Arguments, ArgumentsError, wrong};
use crate::codec::{Input, Output};
use crate::count::records_of;
use crate::grep::{ANSWER_BYTES_MAX, Kept};
use crate::modules::{Block, End, Engine, EngineError, Kind, Module, Task, hash_of};
use crate::program::{MethodError, Program, Running};
use crate::records::{Records, wide};

/// The method's name.
pub const WASM: &str = "wasm";
/// Arguments that are for the method, and not for the module.
const OWN: [&str; 2] = ["module", "records"];
/// Blocks of at least so many bytes do not wait.
const LARGE_BYTES: usize = 64 << 10;
/// Bytes, and number, of what waits at most.
const WAITING_BYTES: usize = 256 << 10;
const WAITING_MAX: usize = 1000;

/// A module with its parameters.
#[derive(Debug)]
struct Code {
    engine: Arc<dyn Engine>,
    module: Arc<Module>,
    kind: Kind,
    records: Records,
    parameters: Arguments,
}

struct Judging<'a> {
    of: &'a Code,
    /// The answers of a filter, by blocks.
    kept: Kept,
    /// The state of a fold.
    state: Vec<u8>,
    partials: Vec<Vec<u8>>,
    blocks: Vec<(u64, Vec<u8>)>,
    waiting_bytes: usize,
}

/// The module that the arguments name.
pub fn module_named(arguments: &Arguments) -> Result<[u8; 32], ArgumentsError> {
    let name = arguments.need(WASM, "module")?;
    let why = "give the BLAKE3 hash of the module, as 64 hexadecimal digits";
    hash_of(name).ok_or_else(|| wrong("module", name, why))
}

/// The method for a module that is at hand. It is compiled, and what it exports is looked at.
pub fn parse_code(
    arguments: &Arguments,
    module: Arc<Module>,
    engine: Arc<dyn Engine>,
) -> Result<Box<dyn Program>, MethodError> {
    arguments.check_form()?;
    let records = records_of(arguments)?;
    let kind = module.kind(&*engine).map_err(|error| failure(&module, "before it ran", error))?;
    let parameters = arguments.0.iter().filter(|own| !OWN.contains(&own.name.as_str())).cloned();
    let parameters = Arguments(parameters.collect());
    Ok(Box::new(Code { engine, module, kind, records, parameters }))
}

/// The method without an engine, and so without an answer.
pub(crate) fn parse(arguments: &Arguments, _size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
    module_named(arguments)?;
    Err(wrong("module", arguments.get("module").unwrap_or_default(), "this program runs no modules"))
}

fn failure(module: &Module, at: impl Into<String>, error: EngineError) -> MethodError {
    match error {
        EngineError::Failed(why) => MethodError::Module { module: module.short(), at: at.into(), why },
        EngineError::Unavailable(why) => MethodError::NoEngine(why),
    }
}

impl Program for Code {
    fn name(&self) -> &'static str {
        WASM
    }

    fn records(&self) -> Records {
        self.records
    }

    fn begin(&self) -> Box<dyn Running + '_> {
        Box::new(Judging {
            of: self,
            kept: Kept::within(ANSWER_BYTES_MAX),
            state: Vec::new(),
            partials: Vec::new(),
            blocks: Vec::new(),
            waiting_bytes: 0,
        })
    }
}

impl Code {
    fn run(
        &self,
        partials: Vec<&[u8]>,
        blocks: Vec<Block<'_>>,
        end: End,
    ) -> Result<Vec<Vec<u8>>, MethodError> {
        let first = blocks.iter().map(|block| block.offset).min();
        let last = blocks.iter().map(|block| block.offset + wide(block.bytes.len())).max();
        let at = match (first, last) {
            (Some(from), Some(to)) => format!("on bytes {from}..{to}"),
            _ => "on partial answers".to_owned(),
        };
        let answers = if matches!(self.kind, Kind::Filter) { blocks.len() } else { 1 };
        let task = Task { parameters: &self.parameters, partials, blocks, end };
        let emitted =
            self.engine.run(&self.module, &task).map_err(|error| failure(&self.module, at, error))?;
        if emitted.len() == answers { Ok(emitted) } else { Err(MethodError::Partial) }
    }
}

impl Judging<'_> {
    /// Has the module judge all that waits, and these blocks.
    fn carry_out(&mut self, more: Option<Block<'_>>) -> Result<(), MethodError> {
        let waiting = std::mem::take(&mut self.blocks);
        let partials = std::mem::take(&mut self.partials);
        self.waiting_bytes = 0;
        let waits = waiting.iter().map(|(offset, bytes)| Block { offset: *offset, bytes });
        let blocks: Vec<Block<'_>> = waits.chain(more).collect();
        if blocks.is_empty() && partials.is_empty() {
            return Ok(());
        }
        if self.of.kind == Kind::Filter {
            let offsets: Vec<u64> = blocks.iter().map(|block| block.offset).collect();
            for (offset, bytes) in offsets.into_iter().zip(self.of.run(Vec::new(), blocks, End::Partial)?) {
                if !bytes.is_empty() {
                    self.kept.push(Found { offset, bytes })?;
                }
            }
            return Ok(());
        }
        if let (true, true, [only]) = (blocks.is_empty(), self.state.is_empty(), &*partials) {
            // There is nothing to merge it with.
            self.state.clone_from(only);
            return Ok(());
        }
        let state = Some(self.state.as_slice()).filter(|state| !state.is_empty());
        let all = state.into_iter().chain(partials.iter().map(Vec::as_slice)).collect();
        let emitted = self.of.run(all, blocks, End::Partial)?;
        self.state = emitted.into_iter().next().unwrap_or_default();
        Ok(())
    }

    fn wait(&mut self, bytes: usize) -> Result<(), MethodError> {
        self.waiting_bytes += bytes;
        let waiting = self.blocks.len() + self.partials.len();
        if self.waiting_bytes > WAITING_BYTES || waiting > WAITING_MAX {
            self.carry_out(None)
        } else {
            Ok(())
        }
    }
}

impl Running for Judging<'_> {
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError> {
        if block.len() >= LARGE_BYTES {
            return self.carry_out(Some(Block { offset, bytes: block }));
        }
        self.blocks.push((offset, block.to_vec()));
        self.wait(block.len())
    }

    fn settle(&mut self) -> Result<(), MethodError> {
        self.carry_out(None)
    }

    fn partial(&self) -> Vec<u8> {
        if self.of.kind != Kind::Filter {
            return self.state.clone();
        }
        let mut out = Output::default();
        for found in &self.kept.found {
            out.number(found.offset);
            out.bytes(&found.bytes);
        }
        out.0
    }

    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError> {
        if self.of.kind != Kind::Filter {
            // That of nothing.
            if partial.is_empty() {
                return Ok(());
            }
            self.partials.push(partial.to_vec());
            return self.wait(partial.len());
        }
        let mut input = Input(partial);
        while !input.is_empty() {
            let offset = input.number()?;
            self.kept.push(Found { offset, bytes: input.bytes()?.to_vec() })?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Answer, MethodError> {
        self.settle()?;
        match self.of.kind {
            Kind::Filter => {
                let mut found = self.kept.found;
                found.sort_unstable();
                let all: Vec<Vec<u8>> = found.into_iter().map(|found| found.bytes).collect();
                Ok(Answer::Bytes(all.concat()))
            }
            Kind::Fold { answers } => {
                if !self.state.is_empty() && !answers {
                    return Ok(Answer::Bytes(self.state));
                }
                let end = if answers { End::Answer } else { End::Partial };
                let state = Some(self.state.as_slice()).filter(|state| !state.is_empty());
                let emitted = self.of.run(state.into_iter().collect(), Vec::new(), end)?;
                Ok(Answer::Bytes(emitted.into_iter().next().unwrap_or_default()))
            }
        }
    }
}
