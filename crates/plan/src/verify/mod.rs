//! Judges plan sets, independently of the compilers and by other means. The verifier knows the request, the
//! layout and the code, and runs the set over a few symbolic bytes. It does not know strategies, and shares
//! no code with [`compile`].
//!
//! The rules are in three groups. A group is judged only if those before it hold, as it relies on them. Each
//! rule is one [`Violation`].
//!
//! *Form*
//! 1. The request lies in the segment, and set, joining and away fit it. There is one note per stripe, in
//!    order. A stripe whose reads are combined is noted with a strategy that needs a cut.
//!    ([`Violation::Request`], [`Violation::Note`])
//! 2. There are at most [`INSTRUCTIONS_MAX`] instructions and steps. ([`Violation::TooMany`])
//! 3. There is one plan per column, none empty, with the segment's drive and object. ([`Violation::Plan`])
//! 4. Ids are 0, 1, 2, ... without gaps; every id in an `after` exists. ([`Violation::Id`])
//! 5. Ranges are not empty, lie in their unit, and belong to a stripe of the request. ([`Violation::Range`])
//! 6. Memory ranges have the range's length. They lie in their scratch piece, or in the request's part of the
//!    buffer, which a write does not change. ([`Violation::MemoryRange`])
//! 7. Arithmetic has the operands that its code requires. ([`Violation::Operands`])
//! 8. No column is read that is out, joining or away. ([`Violation::NotReadable`])
//! 9. No instruction waits for itself, directly or through others; each also waits for those before it in its
//!    plan. ([`Violation::Cycle`])
//!
//! *Flow*
//!
//! 10. No two instructions or steps produce the same byte. ([`Violation::MadeTwice`])
//! 11. Bytes that are used were produced, for the same bytes of the same stripe. ([`Violation::Undefined`])
//! 12. An instruction or step that uses bytes or a version has in its `after` those that make or change it.
//!     ([`Violation::Unordered`])
//! 13. A write waits for every read of its stripe. ([`Violation::Early`])
//!
//! *Meaning*
//!
//! 14. A read puts every requested byte in its place. ([`Violation::NotProduced`], [`Violation::WrongBytes`])
//! 15. A write is sent once to every column of the set that it touches or that is parity, and to no other; a
//!     rebuild once to each of its columns. A read and a check write nothing. ([`Violation::Missing`],
//!     [`Violation::Unwanted`])
//! 16. Data units then hold the requested bytes, and elsewhere what they held. ([`Violation::WrongBytes`])
//! 17. Parity units then match the data. ([`Violation::Parity`])
//! 18. Stamps are the request's; those of rebuilt units are the cut's. ([`Violation::Stamp`])
//! 19. `columns` are the touched ones and all parity; for rebuilt units, their own. ([`Violation::Columns`])
//! 20. Covers name the stamp for touched units, and the version read for the rest. ([`Violation::Cover`])
//! 21. A joining column is sent whole units. ([`Violation::Joining`])
//! 22. A stripe has stripe writes or unit writes, not both. ([`Violation::Mixed`])
//! 23. A check reads every readable unit. If there are more than `k`, damage to any one of them shows in a
//!     comparison. ([`Violation::NotChecked`])
//! 24. A method runs once on each byte: at the drive of its data column, or at the client, which has the byte
//!     then. ([`Violation::RunTwice`], [`Violation::Stray`], [`Violation::NotProduced`])
//!
//! [`compile`]: crate::compile

mod flow;
mod form;
mod meaning;
mod node;
mod run;
mod writes;

use braid_layout::{Column, Segment, Stripe};

use crate::ir::{InstructionId, PlanSet};
use crate::request::INSTRUCTIONS_MAX;

/// A rule that a plan set breaks. The rules are at the top of this module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Rule 1: the request or the state of the columns does not fit the segment.
    #[error("the request or the state of the columns does not fit the segment")]
    Request,
    /// Rule 1: a stripe's note is missing, out of order, or hides that a cut is needed.
    #[error("stripe {}: its note is missing, out of order, or hides that a cut is needed", stripe.0)]
    Note {
        /// Stripe of the note.
        stripe: Stripe,
    },
    /// Rule 2: too many instructions and steps.
    #[error("{count} instructions and steps are more than {INSTRUCTIONS_MAX}")]
    TooMany {
        /// Number of instructions and steps.
        count: usize,
    },
    /// Rule 3: a plan is a second one of its column, is empty, or names another drive or object.
    #[error(
        "the plan of column {column} is not the column's only plan, is empty, or names another drive or object"
    )]
    Plan {
        /// Column of the plan.
        column: Column,
    },
    /// Rule 4: an id is used twice, is too large, or is waited for and does not exist.
    #[error("id {id} occurs twice, is past the end, or is waited for though it does not occur")]
    Id {
        /// The id in question.
        id: InstructionId,
    },
    /// Rule 5: a range is empty or not in a unit of a stripe of the request.
    #[error("{id}: its range is empty or not in a unit of a stripe of the request")]
    Range {
        /// The instruction or step.
        id: InstructionId,
    },
    /// Rule 6: a memory range has the wrong length or lies where it may not.
    #[error("{id}: a memory range has the wrong length or lies where it may not")]
    MemoryRange {
        /// The instruction or step.
        id: InstructionId,
    },
    /// Rule 7: a step's operands are not those that the code requires.
    #[error("{id}: its operands are not what the code asks for")]
    Operands {
        /// Step with the wrong operands.
        id: InstructionId,
    },
    /// Rule 8: a column is read that is out, joining or away.
    #[error("{id}: column {column} cannot be read")]
    NotReadable {
        /// Read of the column.
        id: InstructionId,
        /// Column that may not be read.
        column: Column,
    },
    /// Rule 9: an instruction or step waits for itself.
    #[error("{id} waits for itself")]
    Cycle {
        /// Lowest id of the cycle.
        id: InstructionId,
    },
    /// Rule 10: two instructions or steps produce the same byte.
    #[error("{id} makes bytes that {other} makes too")]
    MadeTwice {
        /// One of the two instructions or steps.
        id: InstructionId,
        /// The other instruction or step.
        other: InstructionId,
    },
    /// Rule 11: bytes are used that nothing produces.
    #[error("{id} uses bytes that nothing makes")]
    Undefined {
        /// Instruction or step that uses the bytes.
        id: InstructionId,
    },
    /// Rule 12: bytes or a version are used without waiting for them.
    #[error("{id} uses what {on} makes and does not wait for it")]
    Unordered {
        /// Instruction or step that uses the bytes or version.
        id: InstructionId,
        /// Instruction or step that makes or changes them.
        on: InstructionId,
    },
    /// Rule 13: a write does not wait for a read of its stripe.
    #[error("{id} writes to the stripe that {read} reads and does not wait for it")]
    Early {
        /// Write that comes too early.
        id: InstructionId,
        /// Read that the write must wait for.
        read: InstructionId,
    },
    /// Rule 14: a requested byte is put nowhere.
    #[error("stripe {}, data {data}: byte {at} of the unit was asked for and nothing puts it in its place", stripe.0)]
    NotProduced {
        /// Stripe of the unit.
        stripe: Stripe,
        /// Index of the data unit in the stripe.
        data: u8,
        /// The first such byte.
        at: u32,
    },
    /// Rules 14 and 16: a byte read, or a byte of a data unit after the request, has the wrong content.
    #[error("stripe {}, data {data}: byte {at} of the unit is not what it should be", stripe.0)]
    WrongBytes {
        /// Stripe of the unit.
        stripe: Stripe,
        /// Index of the data unit in the stripe.
        data: u8,
        /// The first such byte.
        at: u32,
    },
    /// Rule 15: a column must be written and is not.
    #[error("stripe {}: column {column} must be written and is not", stripe.0)]
    Missing {
        /// Stripe that is written.
        stripe: Stripe,
        /// Column without a write.
        column: Column,
    },
    /// Rule 15: a write is sent where none belongs.
    #[error("{id}: this write must not be in the plan")]
    Unwanted {
        /// Write that must not be there.
        id: InstructionId,
    },
    /// Rule 17: a parity unit does not match the data afterwards.
    #[error("stripe {}: byte {at} of parity {parity} does not match the data", stripe.0)]
    Parity {
        /// Stripe of the unit.
        stripe: Stripe,
        /// Index of the parity unit in the stripe.
        parity: u8,
        /// The first such byte.
        at: u32,
    },
    /// Rule 18: a write has the wrong stamp.
    #[error("{id}: it has the wrong stamp")]
    Stamp {
        /// Write with the wrong stamp.
        id: InstructionId,
    },
    /// Rule 19: a write's `columns` are not the touched ones and all parity (for a rebuilt unit: its own).
    #[error("{id}: its columns are not the touched ones and the parity")]
    Columns {
        /// Write with the wrong columns.
        id: InstructionId,
    },
    /// Rule 20: a write's cover is not the version that each data unit has in the new parity.
    #[error("{id}: its cover is not the version that each data unit has in the new parity")]
    Cover {
        /// Write with the wrong cover.
        id: InstructionId,
    },
    /// Rule 21: a joining column is sent less than the whole unit.
    #[error("{id}: a joining column must be sent the whole unit")]
    Joining {
        /// Write of less than a unit.
        id: InstructionId,
    },
    /// Rule 22: a stripe has stripe writes and unit writes.
    #[error("stripe {}: stripe writes and unit writes in one stripe", stripe.0)]
    Mixed {
        /// Stripe with both kinds of write.
        stripe: Stripe,
    },
    /// Rule 23: a check does not read a readable unit, would not find damage to it, or finds damage where
    /// there is none.
    #[error("stripe {}: the plan would not find damage to column {column}", stripe.0)]
    NotChecked {
        /// Stripe that is checked.
        stripe: Stripe,
        /// Column whose damage would not show.
        column: Column,
    },
    /// Rule 24: a method runs more than once on a byte.
    #[error("stripe {}, data {data}: a method runs on byte {at} of the unit more than once", stripe.0)]
    RunTwice {
        /// Stripe of the unit.
        stripe: Stripe,
        /// Index of the data unit in the stripe.
        data: u8,
        /// The first such byte.
        at: u32,
    },
    /// Rule 24: a method runs on parity, or on bytes that were not asked for.
    #[error("{id}: the method must not run on these bytes")]
    Stray {
        /// The instruction that it is about.
        id: InstructionId,
    },
}

/// Verifies that `set` does exactly what its request asks, on `segment`. Otherwise returns the rules that it
/// breaks.
pub fn verify(set: &PlanSet, segment: &Segment) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    let nodes = node::nodes(set);
    form::check(set, segment, &nodes, &mut found);
    if found.is_empty() {
        flow::check_made_twice(&nodes, &mut found);
    }
    if !found.is_empty() {
        return Err(found);
    }
    let stripes = node::by_stripe(set, segment, &nodes);
    for (stripe, nodes) in &stripes {
        flow::check(set, segment, *stripe, nodes, &mut found);
    }
    if found.is_empty() {
        for (stripe, nodes) in &stripes {
            meaning::check(set, segment, *stripe, nodes, &mut found);
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}
