//! Methods: questions about the records of a file, answered in parts where the data lies, and merged.
//!
//! What: [`Program`] is a method with its arguments. A drive runs it on pieces of the units that it holds,
//! the client on pieces that no drive answers for; whoever runs it, the answer is the same. The partial
//! answers are merged by the client, in any order.
//!
//! How: [`Records::split`] cuts a piece into the whole records in it and what is left at its two ends. The
//! ends go to the client, which joins them with those of the neighbours ([`Seams`]) and feeds these records
//! itself. So every record is counted once, wherever the units end.
//!
//! The crate knows no drive, layout, message, file or clock.

#![warn(missing_docs)]

mod answer;
mod apriori;
mod arguments;
mod checksum;
mod code;
mod codec;
mod condition;
mod count;
mod csv;
mod frequent_sets;
mod grep;
mod histogram;
mod list;
mod modules;
mod piece;
mod program;
mod records;
mod sample;
mod seams;
mod tree;

pub use answer::{Answer, Bin, Found, ItemSet};
pub use apriori::{SET_ITEMS_MAX, candidates};
pub use arguments::{Argument, Arguments, ArgumentsError};
pub use code::{WASM, module_named, parse_code};
pub use condition::{Comparison, Operator};
pub use list::{METHODS, find, parse, unknown};
pub use modules::{
    Block, End, Engine, EngineError, Kind as ModuleKind, MODULE_BYTES_MAX, Module, Task, hash_of, name_of,
};
pub use piece::{run_piece, run_piece_in_steps};
pub use program::{Method, MethodError, Order, Parse, Program, Running};
pub use records::{RECORD_BYTES_MAX, Records, Split};
pub use seams::{Edge, Record, Seams, SeamsError};
pub use tree::CHUNK_BYTES;
