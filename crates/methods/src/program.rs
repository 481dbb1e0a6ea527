//! Methods with their arguments, and what all methods have in common.

use std::fmt;

use crate::answer::Answer;
use crate::arguments::{Arguments, ArgumentsError};
use crate::checksum::Checksum;
use crate::count::Count;
use crate::csv::Csv;
use crate::frequent_sets::FrequentSets;
use crate::grep::Grep;
use crate::histogram::Histogram;
use crate::records::Records;
use crate::sample::Sample;
use crate::tree::Tree;

/// Makes a method of its arguments, for a file of so many bytes.
type Parse = fn(&Arguments, u64) -> Result<Box<dyn Program>, ArgumentsError>;

/// A method, as it is listed.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Name by which it is asked for.
    pub name: &'static str,
    /// What it answers, in one line.
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
    parse: Parse,
}

/// Every method that there is, by name.
pub const METHODS: &[Method] = &[
    Method {
        name: "checksum",
        about: "the file's BLAKE3 or SHA-256",
        arguments: "algorithm=blake3|sha256",
        answer_permille: 0,
        byte_ps: 700,
        needs_header: false,
        parse: Checksum::parse,
    },
    Method {
        name: "count",
        about: "how many records there are, and how many bytes",
        arguments: "records=lines|BYTES",
        answer_permille: 0,
        byte_ps: 150,
        needs_header: false,
        parse: Count::parse,
    },
    Method {
        name: "csv",
        about: "columns of the rows for which a condition holds, as CSV",
        arguments: "columns=NAME,... where='NAME<VALUE' delimiter=CHARACTER header=LINE skip-first=yes|no",
        answer_permille: 50,
        byte_ps: 2_500,
        needs_header: true,
        parse: Csv::parse,
    },
    Method {
        name: "frequent-sets",
        about: "how many lines hold each set of items: one pass of the apriori algorithm",
        arguments: "candidates='1 2;1 3' limit=NUMBER",
        answer_permille: 5,
        byte_ps: 8_000,
        needs_header: false,
        parse: FrequentSets::parse,
    },
    Method {
        name: "grep",
        about: "the lines that a regular expression matches, with their offsets",
        arguments: "pattern=REGEX ignore-case=yes|no invert=yes|no count=yes|no",
        answer_permille: 20,
        byte_ps: 500,
        needs_header: false,
        parse: Grep::parse,
    },
    Method {
        name: "histogram",
        about: "how the lengths of records, or the numbers in a field of lines, are spread",
        arguments: "of=length|field field=NUMBER delimiter=CHARACTER from=NUMBER to=NUMBER bins=NUMBER",
        answer_permille: 1,
        byte_ps: 1_500,
        needs_header: false,
        parse: Histogram::parse,
    },
    Method {
        name: "sample",
        about: "some records, drawn by a seed: the same ones, however the file is laid out",
        arguments: "count=NUMBER seed=NUMBER records=lines|BYTES",
        answer_permille: 1,
        byte_ps: 400,
        needs_header: false,
        parse: Sample::parse,
    },
    Method {
        name: "tree",
        about: "hashes of the file's blocks, by which two files are compared",
        arguments: "blocks=NUMBER",
        answer_permille: 1,
        byte_ps: 700,
        needs_header: false,
        parse: Tree::parse,
    },
];

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
    /// How the method wants the file cut.
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
        /// The bound.
        max: u64,
        /// What it counts.
        of: &'static str,
    },
    /// A partial answer is not one of this method.
    #[error("a drive's partial answer is not one of this method: is it of another release?")]
    Partial,
    /// Parts of the file were not seen.
    #[error("parts of the file are missing from the answer: run it again")]
    Incomplete,
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

/// The method of this name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// The method of this name with its arguments, for a file of `size` bytes.
pub fn parse(name: &str, arguments: &Arguments, size: u64) -> Result<Box<dyn Program>, ArgumentsError> {
    let method = find(name).ok_or_else(|| ArgumentsError::Unknown { name: name.to_owned() })?;
    (method.parse)(arguments, size)
}

/// The names of all methods, for people.
pub(crate) fn names() -> String {
    METHODS.iter().map(|method| method.name).collect::<Vec<_>>().join(", ")
}
