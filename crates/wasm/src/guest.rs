//! Modules and their instances: what is bounded, what a module may import, and what it must export.

use std::collections::BTreeMap;
use std::io;

use braid_methods::{End, ModuleKind};
use wasmtime::{
    Caller, Config, Engine, Error, ExternType, FuncType, InstanceAllocationStrategy, InstancePre, Linker,
    Memory, Module, PoolingAllocationConfig, Result, Store, StoreLimits, StoreLimitsBuilder, Trap, ValType,
};

use crate::talk::Asked;

/// Bytes of an instance's memory that are kept, and set to zero, for the next one.
const KEPT_BYTES: usize = 2 << 20;
/// Tables of an instance, and elements of each, at most.
const TABLES_MAX: u32 = 4;
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Characters of a module's own message at most.
const MESSAGE_BYTES_MAX: usize = 1000;

/// Bounds of one task.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Steps that a task may take, without input.
    pub steps: u64,
    /// Steps more for each byte of input.
    pub steps_per_byte: u64,
    /// Bytes of an instance's memory.
    pub memory_bytes: usize,
    /// Bytes that a task may emit.
    pub emitted_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { steps: 50_000_000, steps_per_byte: 1000, memory_bytes: 64 << 20, emitted_bytes: 4 << 20 }
    }
}

/// Where the input of a task comes from.
pub(crate) trait Source {
    /// Fills the buffer with the next bytes.
    fn take(&mut self, into: &mut [u8]) -> io::Result<()>;
}

/// The modules that this process has compiled.
pub(crate) struct Guests {
    engine: Engine,
    linker: Linker<Host>,
    bounds: Bounds,
    modules: BTreeMap<[u8; 32], Guest>,
}

struct Guest {
    pre: InstancePre<Host>,
    kind: ModuleKind,
}

/// The state that an instance's imports work on.
struct Host {
    limits: StoreLimits,
    parameters: Vec<(String, String)>,
    memory: Option<Memory>,
    emitted: Vec<u8>,
    /// Bytes that may still be emitted.
    emitted_left: usize,
    may_emit: bool,
}

/// A reason to stop a module, in words for its author.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Stop(String);

fn stop(why: impl Into<String>) -> Error {
    Error::new(Stop(why.into()))
}

impl Guests {
    pub(crate) fn new(bounds: Bounds) -> Result<Guests> {
        let mut config = Config::new();
        config.consume_fuel(true).wasm_backtrace_max_frames(None).native_unwind_info(false);
        // The child may make no file, not even one in memory.
        config.memory_init_cow(false);
        // One instance at a time, in memory that stays: the pages of a new one cost more than most tasks.
        let mut pool = PoolingAllocationConfig::default();
        pool.total_core_instances(1).total_memories(1).total_tables(TABLES_MAX);
        pool.max_memory_size(bounds.memory_bytes).table_elements(TABLE_ELEMENTS_MAX);
        pool.linear_memory_keep_resident(KEPT_BYTES);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        linker.func_wrap("braid", "emit", emit)?;
        linker.func_wrap("braid", "parameter", parameter)?;
        linker.func_wrap("braid", "fail", fail)?;
        Ok(Guests { engine, linker, bounds, modules: BTreeMap::new() })
    }

    /// Runs a module that exports `f`: what the engine makes only once is made now.
    pub(crate) fn warm(&self, nothing: &[u8]) -> Result<()> {
        let module = Module::from_binary(&self.engine, nothing)?;
        let host = Host {
            limits: StoreLimits::default(),
            parameters: Vec::new(),
            memory: None,
            emitted: Vec::new(),
            emitted_left: 0,
            may_emit: false,
        };
        let mut store = Store::new(&self.engine, host);
        store.set_fuel(1000)?;
        let instance = self.linker.instantiate(&mut store, &module)?;
        instance.get_typed_func::<(), ()>(&mut store, "f")?.call(&mut store, ())
    }

    /// Compiles a module and looks at its exports and imports.
    pub(crate) fn load(&mut self, hash: [u8; 32], bytes: &[u8]) -> Result<ModuleKind, String> {
        if let Some(guest) = self.modules.get(&hash) {
            return Ok(guest.kind);
        }
        let module = Module::from_binary(&self.engine, bytes).map_err(|error| why(&error, self.bounds))?;
        let kind = self.kind_of(&module).map_err(|error| why(&error, self.bounds))?;
        let pre = self.linker.instantiate_pre(&module).map_err(|error| why(&error, self.bounds))?;
        self.modules.insert(hash, Guest { pre, kind });
        Ok(kind)
    }

    fn kind_of(&self, module: &Module) -> Result<ModuleKind> {
        use ValType::{I32, I64};
        match module.get_export("memory") {
            Some(ExternType::Memory(memory)) if !memory.is_64() && !memory.is_shared() => {}
            _ => return Err(stop("it exports no memory of the name \"memory\"")),
        }
        let has = |name: &str, takes: &[ValType], gives: &[ValType]| {
            let expected = FuncType::new(&self.engine, takes.iter().cloned(), gives.iter().cloned());
            match module.get_export(name) {
                None => Ok(false),
                Some(ExternType::Func(found)) if FuncType::eq(&found, &expected) => Ok(true),
                Some(_) => Err(stop(format!("its export {name:?} is not a function {expected}"))),
            }
        };
        let need = |name: &str, takes: &[ValType], gives: &[ValType]| match has(name, takes, gives) {
            Ok(false) => Err(stop(format!("it exports no function {name:?}"))),
            other => other,
        };
        need("braid_abi_1", &[], &[])?;
        need("alloc", &[I32], &[I32])?;
        need("block", &[I32, I32, I64], &[])?;
        if !has("merge", &[I32, I32], &[])? {
            return Ok(ModuleKind::Filter);
        }
        need("finish", &[], &[])?;
        Ok(ModuleKind::Fold { answers: has("answer", &[], &[])? })
    }

    /// Does a task in a new instance. The module must be loaded.
    pub(crate) fn run(&self, asked: &Asked, source: &mut dyn Source) -> Result<Vec<Vec<u8>>, String> {
        let guest = self.modules.get(&asked.module).ok_or("the module is not loaded")?;
        self.run_in(guest, asked, source).map_err(|error| why(&error, self.bounds))
    }

    fn run_in(&self, guest: &Guest, asked: &Asked, source: &mut dyn Source) -> Result<Vec<Vec<u8>>> {
        let bounds = self.bounds;
        let limits = StoreLimitsBuilder::new()
            .memory_size(bounds.memory_bytes)
            .table_elements(TABLE_ELEMENTS_MAX)
            .trap_on_grow_failure(true)
            .build();
        let is_filter = guest.kind == ModuleKind::Filter;
        let host = Host {
            limits,
            parameters: asked.parameters.clone(),
            memory: None,
            emitted: Vec::new(),
            emitted_left: bounds.emitted_bytes,
            may_emit: is_filter,
        };
        let mut store = Store::new(&self.engine, host);
        store.limiter(|host| &mut host.limits);
        let input = u64::try_from(asked.input_bytes()).unwrap_or(u64::MAX);
        store.set_fuel(bounds.steps.saturating_add(bounds.steps_per_byte.saturating_mul(input)))?;
        let instance = guest.pre.instantiate(&mut store)?;
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| stop("it has no memory"))?;
        store.data_mut().memory = Some(memory);
        let alloc = instance.get_typed_func::<u32, u32>(&mut store, "alloc")?;
        let mut put = |store: &mut Store<Host>, length: u32| -> Result<u32> {
            let at = alloc.call(&mut *store, length)?;
            let place = range(at, length)
                .and_then(|range| memory.data_mut(&mut *store).get_mut(range))
                .ok_or_else(|| stop(format!("alloc({length}) returned {at}, which is outside its memory")))?;
            source.take(place)?;
            Ok(at)
        };
        if !asked.partials.is_empty() {
            let merge = instance.get_typed_func::<(u32, u32), ()>(&mut store, "merge")?;
            for &length in &asked.partials {
                let at = put(&mut store, length)?;
                merge.call(&mut store, (at, length))?;
            }
        }
        let mut answers = Vec::new();
        if !asked.blocks.is_empty() {
            let block = instance.get_typed_func::<(u32, u32, u64), ()>(&mut store, "block")?;
            for &(offset, length) in &asked.blocks {
                let at = put(&mut store, length)?;
                block.call(&mut store, (at, length, offset))?;
                if is_filter {
                    answers.push(std::mem::take(&mut store.data_mut().emitted));
                }
            }
        }
        if !is_filter {
            store.data_mut().may_emit = true;
            let last = if asked.end == End::Answer { "answer" } else { "finish" };
            instance.get_typed_func::<(), ()>(&mut store, last)?.call(&mut store, ())?;
            answers.push(std::mem::take(&mut store.data_mut().emitted));
        }
        Ok(answers)
    }
}

fn range(at: u32, length: u32) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(at).ok()?;
    Some(from..from.checked_add(usize::try_from(length).ok()?)?)
}

/// Bytes of the memory that an import was given.
fn told<'a>(caller: &'a Caller<'_, Host>, at: u32, length: u32) -> Result<&'a [u8]> {
    let memory = caller.data().memory.ok_or_else(|| stop("it calls an import before it has started"))?;
    range(at, length)
        .and_then(|range| memory.data(caller).get(range))
        .ok_or_else(|| stop(format!("it gives {length} bytes at {at}, which are outside its memory")))
}

/// The import `braid.emit(address, length)`.
fn emit(mut caller: Caller<'_, Host>, at: u32, length: u32) -> Result<()> {
    let host = caller.data();
    if !host.may_emit {
        return Err(stop("it emits in block or merge: a module that merges emits in finish and answer only"));
    }
    let emitted = usize::try_from(length)?;
    let Some(left) = host.emitted_left.checked_sub(emitted) else {
        return Err(stop("it emits more than one task may"));
    };
    let memory = host.memory.ok_or_else(|| stop("it calls an import before it has started"))?;
    let (memory, host) = memory.data_and_store_mut(&mut caller);
    let bytes = range(at, length).and_then(|range| memory.get(range));
    let bytes = bytes.ok_or_else(|| stop(format!("it emits {length} bytes at {at}, outside its memory")))?;
    host.emitted.extend_from_slice(bytes);
    host.emitted_left = left;
    Ok(())
}

/// The import `braid.parameter(name, its length, address, room) -> length, or -1`.
fn parameter(
    mut caller: Caller<'_, Host>,
    name_at: u32,
    name_length: u32,
    at: u32,
    room: u32,
) -> Result<i32> {
    let name = told(&caller, name_at, name_length)?;
    let found = caller.data().parameters.iter().find(|(known, _)| known.as_bytes() == name);
    let Some((_, value)) = found else { return Ok(-1) };
    let value = value.clone();
    let copied = value.len().min(usize::try_from(room)?);
    told(&caller, at, u32::try_from(copied)?)?;
    if let Some(memory) = caller.data().memory {
        memory.write(&mut caller, usize::try_from(at)?, &value.as_bytes()[..copied])?;
    }
    Ok(i32::try_from(value.len())?)
}

/// The import `braid.fail(address, length)`: it does not return.
fn fail(caller: Caller<'_, Host>, at: u32, length: u32) -> Result<()> {
    let message = told(&caller, at, length)?;
    let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
    Err(stop(format!("it says: {}", String::from_utf8_lossy(message))))
}

/// The reason why a module stopped, in words.
fn why(error: &Error, bounds: Bounds) -> String {
    if let Some(Stop(why)) = error.downcast_ref() {
        return why.clone();
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!(
            "it took more than {} steps, and {} for each byte of input",
            bounds.steps, bounds.steps_per_byte
        ),
        Some(trap) => format!("it trapped: {trap}"),
        None => format!("{error:#}").replace("forcing trap when growing memory", "it grows its memory"),
    }
}
