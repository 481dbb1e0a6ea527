//! The instructions of a plan set: a small program that says which bytes move where, but not how.
//!
//! A [`PlanSet`] carries out one request against one segment. It holds one [`Plan`] per drive that takes
//! part, the [`Arithmetic`] steps that the client does itself, and the sizes of the scratch pieces that these
//! need. Instructions and arithmetic steps share one numbering, [`InstructionId`], from 0 without gaps.
//!
//! Order. The instructions of one plan are sent in their order; replies come in that order too. An
//! instruction or step starts when every id in its `after` is done: a read when its bytes are in memory, a
//! write when the drive has answered that it is durable, a step when its result is in memory. Nothing else is
//! ordered: all plans of a set run at once, each at its own pace.
//!
//! Bytes. A [`MemoryRange`] is a range of the caller's buffer or of a scratch piece. Scratch has no content
//! before something is put there. Every byte of a memory range stands for one byte of one stripe: a step on
//! the bytes `from..to` of a unit has memory ranges of `to - from` bytes each.
//!
//! Cut. If [`Strategy::needs_cut`], all reads of the stripe must be of one consistent cut (PROTOCOL section
//! 2). The executor compares the versions returned with the covers of the parity reads. If they differ, it
//! asks again for exactly the newest versions that all can serve, before it lets a step use the bytes.
//!
//! Repeats. Any instruction may be run again with the same end state (DESIGN I6). But once one write of a set
//! was sent, the request must *not* be compiled again under the same stamp: the bytes read then might be
//! those just written. Resend from the same scratch, after [`PlanSet::retarget`].

use braid_layout::{
    Column, ColumnMask, DriveId, Generation, ObjectId, OperationNumber, Role, Stripe, Version,
};

use crate::request::Request;

/// The program that carries out one request, or a part of it, against one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanSet {
    /// Request that the set carries out.
    pub request: Request,
    /// Index of the segment in the file's layout.
    pub segment: usize,
    /// Generation that the set was compiled under; every request to a drive carries it.
    pub g: Generation,
    /// Columns that every write must reach.
    pub set: ColumnMask,
    /// Columns of the set that take writes only.
    pub joining: ColumnMask,
    /// Columns of the set that do not answer at present: not read from, still written to.
    pub away: ColumnMask,
    /// Length in bytes of each scratch piece.
    pub scratch: Vec<u32>,
    /// One plan per column that takes part, by column.
    pub plans: Vec<Plan>,
    /// Steps that the client does itself, in an order in which they can run.
    pub arithmetic: Vec<Arithmetic>,
    /// Strategy of each stripe, in stripe order.
    pub stripes: Vec<StripeNote>,
}

/// One drive's instructions, in the order in which they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Column that the plan is for.
    pub column: Column,
    /// Drive that holds the column.
    pub drive: DriveId,
    /// The column's object on that drive.
    pub object: ObjectId,
    /// Instructions in the order in which they are sent.
    pub instructions: Vec<Instruction>,
}

/// Number of an instruction or arithmetic step within its plan set; from 0 without gaps, so it may index a
/// vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstructionId(pub u32);

/// One exchange with a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Number of the instruction in the plan set.
    pub id: InstructionId,
    /// Every instruction and step whose bytes or versions this instruction uses.
    pub after: Vec<InstructionId>,
    /// Operation that the drive is asked for.
    pub op: Op,
}

/// Operation that an instruction asks of its drive. Ranges are bytes in the unit, `to` exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Read part of a unit.
    Read {
        /// The unit's stripe.
        stripe: Stripe,
        /// First byte in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// Destination of the bytes; `to - from` bytes.
        into: MemoryRange,
        /// Version to read.
        want: Want,
    },
    /// Run the request's method on part of a unit. The drive answers for it; no byte of the unit is sent.
    Run {
        /// The unit's stripe.
        stripe: Stripe,
        /// First byte in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// Bytes of the answer, as far as can be guessed.
        answer: u32,
    },
    /// A stripe write's part for one column (PROTOCOL C2).
    StripeWrite {
        /// The unit's stripe.
        stripe: Stripe,
        /// First byte in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// The new bytes.
        bytes: Source,
        /// The version of the whole stripe write. If it turns out to be [`Version::ZERO`] (rebuild of a unit
        /// that was never written) the write is not sent, as there is nothing to install.
        stamp: VersionOf,
        /// Touched data columns and all parity columns of the stripe, in the set or out. For a rebuilt unit:
        /// the unit's own column only.
        columns: ColumnMask,
        /// For a parity column, the version of each data unit that the new parity counts in, in data order.
        /// Empty for a data column.
        cover: Vec<VersionOf>,
    },
    /// A write to one unit through its data drive, which owes the parity drives the delta (PROTOCOL C4).
    UnitWrite {
        /// The unit's stripe.
        stripe: Stripe,
        /// First byte in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// The new bytes.
        bytes: Source,
        /// The client's operation number.
        operation: OperationNumber,
        /// Version of the write, given by the client under an exclusive lease. `None` under a shared lease:
        /// the drive makes the version.
        stamp: Option<Version>,
    },
}

/// Version that a read asks for. (When it must ask again, the executor also asks for exactly V.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Want {
    /// The newest version, pending or not.
    #[default]
    Newest,
    /// The newest version that is settled.
    Settled,
}

/// A range of the client's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryRange {
    /// In the caller's buffer.
    User {
        /// First byte, counted from the buffer's start.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// In a scratch piece.
    Scratch {
        /// Scratch piece, as an index into [`PlanSet::scratch`].
        piece: u32,
        /// First byte in the piece.
        offset: u32,
        /// Length in bytes.
        len: u32,
    },
}

/// Source of a write's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A memory range of `to - from` bytes.
    MemoryRange(MemoryRange),
    /// The range becomes a hole: it reads as zeros and no byte is sent.
    Hole,
}

/// An input of an arithmetic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A memory range of `to - from` bytes.
    MemoryRange(MemoryRange),
    /// Zeros, which need no memory.
    Zeros,
}

/// A version that is known now or once a read has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionOf {
    /// A version that is known when the set is compiled.
    Given(Version),
    /// The version that this read returned.
    Read(InstructionId),
    /// The version of data unit `data` in the cover that this parity read returned.
    Cover {
        /// The read of a parity unit.
        read: InstructionId,
        /// The data unit, `0..k`.
        data: u8,
    },
    /// The newest of several versions.
    Newest(Vec<VersionOf>),
}

/// One step that the client does itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arithmetic {
    /// Number of the step in the plan set.
    pub id: InstructionId,
    /// Every instruction and step whose bytes this step uses.
    pub after: Vec<InstructionId>,
    /// Stripe whose units the step works on.
    pub stripe: Stripe,
    /// First byte in the units.
    pub from: u32,
    /// One past the last byte. Every memory range of the step has `to - from` bytes.
    pub to: u32,
    /// Calculation to do.
    pub step: Step,
}

/// Calculation of an arithmetic step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Copies bytes next to others: a unit that must be written whole is put together from new and old parts.
    Copy {
        /// Bytes to copy.
        from: Operand,
        /// Destination of the copy.
        into: MemoryRange,
    },
    /// Computes parity from all data units.
    Encode {
        /// The `k` data units, in order.
        data: Vec<Operand>,
        /// The parity units to make: index `0..m` and destination.
        parity: Vec<(u8, MemoryRange)>,
    },
    /// Makes lost units from `k` other units of the stripe.
    Reconstruct {
        /// Exactly `k` units of the stripe.
        have: Vec<(Role, Operand)>,
        /// The units to make.
        lost: Vec<(Role, MemoryRange)>,
    },
    /// Changes old parity into new parity, in place, by what changed in one data unit. Deltas commute:
    /// several on one memory range may run in any order, but not at the same time.
    Delta {
        /// The data unit that changes, `0..k`.
        data: u8,
        /// Bytes of the unit before the write.
        old: Operand,
        /// Bytes of the unit after the write.
        new: Operand,
        /// The parity units to change: index `0..m` and location.
        parity: Vec<(u8, MemoryRange)>,
    },
    /// Compares a parity unit as stored with the same unit as computed. If they differ, the executor reports
    /// the parity unit as a mismatch, which is no error of the plan.
    Compare {
        /// Index of the parity unit, `0..m`.
        parity: u8,
        /// The unit as it was read.
        stored: MemoryRange,
        /// The unit as it was computed from others.
        computed: MemoryRange,
    },
}

/// Strategy of one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeNote {
    /// Stripe that the note is about.
    pub stripe: Stripe,
    /// Strategy by which the stripe is read, written, rebuilt or checked.
    pub strategy: Strategy,
}

/// The ways to read, write, rebuild or check a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Read: each unit from its own column.
    Direct,
    /// Read: from a copy in place of the data column (raid1).
    Copy,
    /// Read: lost units are made from `k` others.
    Degraded,
    /// Write: the new parity follows from the new bytes alone; nothing is read.
    FullStripe,
    /// Write: the bytes that are not written are read, and the parity is computed from all.
    ReconstructWrite,
    /// Write: old bytes and old parity are read, and the parity is changed by what changed.
    ReadModifyWrite,
    /// Write: no parity column is in the set, or the scheme has none; only the data is written.
    DataOnly,
    /// Write: one unit write per unit; the data drives update the parity.
    UnitWrites,
    /// Run of a method: the drives answer for the units that they hold.
    AtDrives,
    /// Rebuild: `k` ready units are read, the joining ones are written.
    Rebuild,
    /// Check: every readable unit is read, the parity computed again and compared.
    Check,
}

impl Strategy {
    /// Returns true if the reads of the stripe must be of one consistent cut before their bytes are used
    /// together.
    pub fn needs_cut(self) -> bool {
        matches!(
            self,
            Strategy::Degraded
                | Strategy::ReconstructWrite
                | Strategy::ReadModifyWrite
                | Strategy::Rebuild
                | Strategy::Check
        )
    }
}

impl MemoryRange {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match *self {
            MemoryRange::User { len, .. } | MemoryRange::Scratch { len, .. } => len,
        }
    }

    /// Returns true if the range holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` bytes of this range, from its byte `skip` on.
    #[must_use]
    pub fn part(&self, skip: u32, len: u32) -> MemoryRange {
        assert!(skip <= self.len() && len <= self.len() - skip, "{skip}+{len} is past the end of {self:?}");
        match *self {
            MemoryRange::User { offset, .. } => MemoryRange::User { offset: offset + u64::from(skip), len },
            MemoryRange::Scratch { piece, offset, .. } => {
                MemoryRange::Scratch { piece, offset: offset + skip, len }
            }
        }
    }
}

impl InstructionId {
    /// The number as an index into a vector with one entry per instruction and step.
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("ids are below the bound on instructions")
    }
}

impl Op {
    /// Stripe whose unit is read or written.
    pub fn stripe(&self) -> Stripe {
        match *self {
            Op::Read { stripe, .. }
            | Op::Run { stripe, .. }
            | Op::StripeWrite { stripe, .. }
            | Op::UnitWrite { stripe, .. } => stripe,
        }
    }

    /// Bytes of the unit that are read or written.
    pub fn range(&self) -> std::ops::Range<u32> {
        match *self {
            Op::Read { from, to, .. }
            | Op::Run { from, to, .. }
            | Op::StripeWrite { from, to, .. }
            | Op::UnitWrite { from, to, .. } => from..to,
        }
    }

    /// Returns true if the operation changes what the drive holds.
    pub fn is_write(&self) -> bool {
        !matches!(self, Op::Read { .. } | Op::Run { .. })
    }
}

impl PlanSet {
    /// Number of instructions and arithmetic steps; ids are below it.
    pub fn len(&self) -> usize {
        self.plans.iter().map(|plan| plan.instructions.len()).sum::<usize>() + self.arithmetic.len()
    }

    /// Returns true if the set has no instruction and no step.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every instruction with its plan, plan by plan.
    pub fn instructions(&self) -> impl Iterator<Item = (&Plan, &Instruction)> {
        self.plans
            .iter()
            .flat_map(|plan| plan.instructions.iter().map(move |instruction| (plan, instruction)))
    }

    /// Moves the writes to a newer generation (PROTOCOL C3), once every read and step of this set is done.
    /// Stamps, columns, covers and bytes stay; columns that went out are no longer sent to. Columns that
    /// entered the set meanwhile are not added: the writer sends them whole units, made from what is written
    /// here. The finished reads are kept, as versions refer to them. Run only the writes afterwards.
    pub fn retarget(&mut self, g: Generation, set: ColumnMask, joining: ColumnMask) {
        assert!(g >= self.g, "generations rise, but {g} is below {}", self.g);
        self.g = g;
        self.set = self.set.and(set);
        self.joining = self.set.and(joining);
        self.away = self.away.and(self.set);
        for plan in &mut self.plans {
            if !set.contains(plan.column) {
                plan.instructions.retain(|instruction| !instruction.op.is_write());
            }
        }
    }
}
