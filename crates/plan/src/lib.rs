//! Plans: from a request, a layout and the health of its columns to a plan set.
//!
//! A *plan* is one drive's list of instructions. A *plan set* is all plans for one request, with the
//! arithmetic that the client does in between ([`ir`]). Nothing else decides which bytes go from where to
//! where: the client's executor runs plan sets, `braid plan` prints them, the simulator times them. A plan
//! set is a program, and is treated as one:
//!
//! - [`compile`] makes plan sets: pure functions for reads, writes, rebuilds, checks and runs of methods.
//! - [`mod@verify`] judges them, independently of the compilers and by other means.
//! - [`template`] keeps the plan sets of short reads, which are alike.
//! - [`mod@print`] shows them, and [`totals`] counts their bytes and instructions.
//!
//! The crate knows no socket, clock, file, thread or message.

#![warn(missing_docs)]

pub mod compile;
pub mod ir;
pub mod print;
pub mod request;
pub mod template;
pub mod totals;
pub mod verify;

pub use compile::{
    MethodCost, RunCost, RunSite, RunWays, Stamped, Way, check, fill, read, rebuild, run, run_ways,
    unit_write, ways, write, write_cheapest,
};
pub use ir::{
    Arithmetic, Instruction, InstructionId, MemoryRange, Op, Operand, Plan, PlanSet, Source, Step, Strategy,
    StripeNote, VersionOf, Want,
};
pub use request::{Body, Health, Part, PlanError, Request, Target, Write, parts, stripes_max};
pub use template::{Class, Placed, Template, TemplateError, UnitRead};
pub use totals::{ColumnTotals, Totals};
pub use verify::{Violation, verify};
