//! The heart: a request, a layout and the health of its columns in, a plan set out.
//!
//! A *plan* is one drive's list of instructions; a *plan set* is all of them for one request, with the arithmetic that
//! the client does in between ([`ir`]). Nothing else decides who sends what where: the client's executor runs plan
//! sets, `braid plan` prints them, the simulator times them. A plan set is a program, and is treated as one:
//!
//! - [`compile`] makes it: pure functions for reads, writes, rebuilds and checks.
//! - [`mod@verify`] judges it, apart from the compilers and by other means.
//! - [`mod@print`] shows it, and [`totals`] counts it.
//! - [`model`] runs it on columns in memory, for tests and simulations.
//!
//! It knows no socket, clock, file or thread, and nothing of messages.

pub mod compile;
pub mod ir;
pub mod model;
pub mod print;
pub mod request;
pub mod totals;
pub mod verify;

pub use compile::{Stamped, check, read, rebuild, unit_write, write};
pub use ir::{
    Arithmetic, Instruction, InstructionId, Op, Operand, Place, Plan, PlanSet, Source, Step, Strategy,
    StripeNote, VersionOf, Want,
};
pub use request::{Body, Health, Part, PlanError, Request, Target, Write, parts, stripes_max};
pub use totals::{ColumnTotals, Totals};
pub use verify::{Violation, verify};
