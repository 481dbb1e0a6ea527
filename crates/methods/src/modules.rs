//! Modules: code of users, compiled to WebAssembly, and what must be known of an engine that runs them.

use std::fmt;
use std::sync::OnceLock;

use crate::arguments::Arguments;

/// Bytes of a module at most.
pub const MODULE_BYTES_MAX: usize = 4 << 20;
/// Digits of a module's hash by which it is named to people.
const SHORT: usize = 12;

/// A module, which may be none: nobody has looked at its bytes yet.
#[derive(Debug)]
pub struct Module {
    hash: [u8; 32],
    bytes: Vec<u8>,
    kind: OnceLock<Kind>,
}

/// The two kinds of modules, by what they export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Each block has an answer of its own: the bytes emitted for it. They follow each other in the file's
    /// order.
    Filter,
    /// It has a state, which it emits as a partial answer, and it merges the partial answers of others.
    Fold {
        /// True if it makes another answer of the state, for who asked.
        answers: bool,
    },
}

/// Work for a module. Each task is done by a new instance of it.
#[derive(Debug)]
pub struct Task<'a> {
    /// The parameters that the module may ask for.
    pub parameters: &'a Arguments,
    /// Partial answers to begin with; for a [`Kind::Fold`] only.
    pub partials: Vec<&'a [u8]>,
    /// Blocks of whole records.
    pub blocks: Vec<Block<'a>>,
    /// The answer that is asked for.
    pub end: End,
}

/// A block of whole records.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// First byte, in the file.
    pub offset: u64,
    /// The records, each with its end mark.
    pub bytes: &'a [u8],
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The partial answer, or what was emitted for each block.
    Partial,
    /// The answer for who asked; for a [`Kind::Fold`] only.
    Answer,
}

/// Reason for which a module did not do its task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The module did something wrong, or more than it may.
    #[error("{0}")]
    Failed(String),
    /// The engine cannot run any module now.
    #[error("{0}")]
    Unavailable(String),
}

/// Runs modules. It must bound the time, the memory and the answer of each task.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Compiles the module and looks at what it exports and imports.
    fn look(&self, module: &Module) -> Result<Kind, EngineError>;
    /// Does a task. Returns what was emitted for each block, or, for a [`Kind::Fold`], one answer.
    fn run(&self, module: &Module, task: &Task<'_>) -> Result<Vec<Vec<u8>>, EngineError>;
}

impl Module {
    /// A module of these bytes; `None` if they are more than [`MODULE_BYTES_MAX`].
    pub fn new(bytes: Vec<u8>) -> Option<Module> {
        let hash = *blake3::hash(&bytes).as_bytes();
        (bytes.len() <= MODULE_BYTES_MAX).then_some(Module { hash, bytes, kind: OnceLock::new() })
    }

    /// The BLAKE3 hash of its bytes, by which it is named.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// The bytes that it is made of.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash in hexadecimal digits.
    pub fn name(&self) -> String {
        name_of(&self.hash)
    }

    /// The first digits of its name.
    pub(crate) fn short(&self) -> String {
        self.name()[..SHORT].to_owned()
    }

    /// Its kind, if an engine was asked for it.
    pub fn known_kind(&self) -> Option<Kind> {
        self.kind.get().copied()
    }

    /// Its kind, which the engine is asked for once.
    pub fn kind(&self, engine: &dyn Engine) -> Result<Kind, EngineError> {
        if let Some(&kind) = self.kind.get() {
            return Ok(kind);
        }
        let kind = engine.look(self)?;
        Ok(*self.kind.get_or_init(|| kind))
    }
}

/// The name of the module of this hash: 64 hexadecimal digits.
pub fn name_of(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of the module of this name; `None` if it is no such name.
pub fn hash_of(name: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> =
        name.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(hash)
}
