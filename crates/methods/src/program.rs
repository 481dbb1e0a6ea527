//! Methods with their arguments, and what all methods have in common.

use std::fmt;

use crate::answer::Answer;
use crate::arguments::{Arguments, ArgumentsError};
use crate::records::Records;

/// A method, as it is listed.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Name by which it is asked for.
    pub name: &'static str,
    /// The question that it answers, in one line.
    pub about: &'static str,
    /// The arguments that it takes, for people.
    pub arguments: &'static str,
    /// Bytes of the answer for each 1,000 bytes of the file, as a guess for those who plan.
    pub answer_permille: u64,
    /// Time of a processor for each byte, in picoseconds, as a guess for those who plan.
    pub byte_ps: u64,
    /// True if it needs the names of the file's columns, as the argument `header`. If they are the file's
    /// first line, the argument `skip-first` is yes.
    pub needs_header: bool,
    /// Memory that it takes beside the piece, for each request.
    pub memory_bytes: u32,
    /// Makes a program of its arguments, for a file of so many bytes.
    pub parse: Parse,
}

/// Makes a program of arguments, for a file of so many bytes.
pub type Parse = fn(&Arguments, u64) -> Result<Box<dyn Program>, ArgumentsError>;

/// The order in which a method must see a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Any: each piece by itself, all at once, and the partial answers are merged.
    Any,
    /// From the first byte to the last: the partial answer of one piece is where the next begins.
    Sequential,
}

/// A method with its arguments, for one file.
pub trait Program: fmt::Debug + Send + Sync {
    /// The method's name.
    fn name(&self) -> &'static str;
    /// The records into which the method wants the file cut.
    fn records(&self) -> Records;
    /// The order in which it must see the file.
    fn order(&self) -> Order {
        Order::Any
    }
    /// Begins an answer that has seen nothing.
    fn begin(&self) -> Box<dyn Running + '_>;
    /// Begins an answer for one piece, which fails once its partial answer has more than about this many
    /// bytes.
    fn begin_within(&self, _bytes_max: u64) -> Box<dyn Running + '_> {
        self.begin()
    }
    /// The reason for which no drive runs it with these arguments.
    fn hindrance(&self) -> Option<&'static str> {
        None
    }
    /// Bytes that a drive judges between two looks at the clock, at most. A drive leaves out a piece with a
    /// longer record.
    fn step_bytes(&self) -> usize {
        usize::MAX
    }
}

/// A method's answer as it comes about.
pub trait Running: Send {
    /// Takes a block of whole records, which begins at byte `offset` of the file. Only the last record of a
    /// file may lack its end.
    fn feed(&mut self, offset: u64, block: &[u8]) -> Result<(), MethodError>;
    /// Carries out what was put off. Called before [`Running::partial`].
    fn settle(&mut self) -> Result<(), MethodError> {
        Ok(())
    }
    /// The answer so far, for [`Running::absorb`] of another.
    fn partial(&self) -> Vec<u8>;
    /// Adds the partial answer for another piece; for a sequential method: goes on from there.
    fn absorb(&mut self, partial: &[u8]) -> Result<(), MethodError>;
    /// The whole answer, when all of the file has been seen.
    fn finish(self: Box<Self>) -> Result<Answer, MethodError>;
}

/// Reason for which a method cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The answer is longer than its bound.
    #[error("the answer has more than {max} {of}: ask for less, or in parts")]
    TooLarge {
        /// The bound on it.
        max: u64,
        /// The unit of the bound.
        of: &'static str,
    },
    /// A partial answer is not one of this method.
    #[error("a drive's partial answer is not one of this method: is it of another release?")]
    Partial,
    /// Parts of the file were not seen.
    #[error("parts of the file are missing from the answer: run it again")]
    Incomplete,
    /// The arguments are wrong.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// A module did something wrong, or more than it may.
    #[error("the module {module} failed {at}: {why}")]
    Module {
        /// The first digits of its hash.
        module: String,
        /// The bytes of the file, or the work, on which it failed.
        at: String,
        /// The module's fault, in words.
        why: String,
    },
    /// No module can run here now.
    #[error("modules cannot run here: {0}")]
    NoEngine(String),
    /// A record that cannot be judged by itself.
    #[error(
        "the line at byte {offset} has an odd number of quotes: rows with line breaks inside quotes cannot \
         be told apart by their lines"
    )]
    Quotes {
        /// First byte of the line, in the file.
        offset: u64,
    },
}
