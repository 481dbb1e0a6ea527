//! One stripe's part of a plan set, and how the parts are assembled.
//!
//! A draft numbers its instructions, steps and scratch pieces from 0. The assembly puts each drive's
//! instructions of all stripes in one list: reads first, then the writes that wait for nothing, then the
//! others, so that no drive idles behind a write that waits. Then it renumbers: plan by plan, then the
//! arithmetic.

use std::ops::Range;

use braid_layout::{Column, ColumnMask, Stripe};

use crate::ir::{
    Arithmetic, Instruction, InstructionId, MemoryRange, Op, Operand, Plan, PlanSet, Source, Step, Strategy,
    StripeNote, VersionOf, Want,
};
use crate::request::{Request, Target};

/// One stripe's instructions and steps.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) stripe: Stripe,
    pub(super) strategy: Strategy,
    next: u32,
    scratch: Vec<u32>,
    instructions: Vec<(Column, Instruction)>,
    arithmetic: Vec<Arithmetic>,
}

impl Draft {
    pub(super) fn new(stripe: Stripe, strategy: Strategy) -> Draft {
        Draft {
            stripe,
            strategy,
            next: 0,
            scratch: Vec::new(),
            instructions: Vec::new(),
            arithmetic: Vec::new(),
        }
    }

    fn id(&mut self) -> InstructionId {
        self.next += 1;
        InstructionId(self.next - 1)
    }

    /// A new scratch piece for `range` of a unit.
    pub(super) fn scratch(&mut self, range: &Range<u32>) -> MemoryRange {
        let piece = narrow(self.scratch.len());
        let len = range.end - range.start;
        self.scratch.push(len);
        MemoryRange::Scratch { piece, offset: 0, len }
    }

    pub(super) fn read(
        &mut self,
        column: Column,
        range: &Range<u32>,
        into: MemoryRange,
        want: Want,
    ) -> InstructionId {
        let op = Op::Read { stripe: self.stripe, from: range.start, to: range.end, into, want };
        self.instruction(column, Vec::new(), op)
    }

    pub(super) fn instruction(&mut self, column: Column, after: Vec<InstructionId>, op: Op) -> InstructionId {
        let id = self.id();
        self.instructions.push((column, Instruction { id, after: tidy(after), op }));
        id
    }

    pub(super) fn step(
        &mut self,
        range: &Range<u32>,
        after: Vec<InstructionId>,
        step: Step,
    ) -> InstructionId {
        let id = self.id();
        self.arithmetic.push(Arithmetic {
            id,
            after: tidy(after),
            stripe: self.stripe,
            from: range.start,
            to: range.end,
            step,
        });
        id
    }

    /// The ids of all reads so far.
    pub(super) fn reads(&self) -> Vec<InstructionId> {
        self.instructions.iter().filter(|(_, i)| !i.op.is_write()).map(|(_, i)| i.id).collect()
    }

    /// Number of bytes to and from drives.
    pub(super) fn bytes_moved(&self) -> u64 {
        let moved = |op: &Op| match op {
            Op::StripeWrite { bytes: Source::Hole, .. } | Op::UnitWrite { bytes: Source::Hole, .. } => 0,
            Op::Run { answer, .. } => u64::from(*answer),
            op => u64::from(op.range().end - op.range().start),
        };
        self.instructions.iter().map(|(_, instruction)| moved(&instruction.op)).sum()
    }
}

/// The drafts of all stripes, assembled.
pub(super) struct Assembly<'a> {
    target: &'a Target<'a>,
    next: u32,
    scratch: Vec<u32>,
    columns: Vec<Vec<Instruction>>,
    arithmetic: Vec<Arithmetic>,
    stripes: Vec<StripeNote>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(target: &'a Target<'a>) -> Assembly<'a> {
        Assembly {
            target,
            next: 0,
            scratch: Vec::new(),
            columns: vec![Vec::new(); usize::from(target.segment.shape.width())],
            arithmetic: Vec::new(),
            stripes: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, draft: Draft) {
        let ids = self.next;
        let pieces = narrow(self.scratch.len());
        let id = |id: InstructionId| InstructionId(id.0 + ids);
        let location = |location: MemoryRange| match location {
            MemoryRange::Scratch { piece, offset, len } => {
                MemoryRange::Scratch { piece: piece + pieces, offset, len }
            }
            user @ MemoryRange::User { .. } => user,
        };
        for (column, mut instruction) in draft.instructions {
            relabel(&mut instruction, &id, &location);
            self.columns[column.index()].push(instruction);
        }
        for mut step in draft.arithmetic {
            relabel_step(&mut step, &id, &location);
            self.arithmetic.push(step);
        }
        self.next += draft.next;
        self.scratch.extend(draft.scratch);
        self.stripes.push(StripeNote { stripe: draft.stripe, strategy: draft.strategy });
    }

    pub(super) fn finish(mut self, request: Request) -> PlanSet {
        let mut names = vec![InstructionId(0); self.next.try_into().expect("ids are below the bound")];
        for instructions in &mut self.columns {
            instructions
                .sort_by_key(|instruction| (instruction.op.is_write(), !instruction.after.is_empty()));
        }
        let ids = self.columns.iter().flatten().map(|i| i.id).chain(self.arithmetic.iter().map(|a| a.id));
        for (new, old) in ids.enumerate() {
            names[old.index()] = InstructionId(narrow(new));
        }
        let id = |id: InstructionId| names[id.index()];
        let location = |location: MemoryRange| location;
        self.columns.iter_mut().flatten().for_each(|instruction| relabel(instruction, &id, &location));
        self.arithmetic.iter_mut().for_each(|step| relabel_step(step, &id, &location));

        let Target { segment, index, health } = *self.target;
        let plan = |(column, instructions): (usize, Vec<Instruction>)| Plan {
            column: Column(u8::try_from(column).expect("at most 64 columns")),
            drive: segment.components[column].drive,
            object: segment.components[column].object,
            instructions,
        };
        PlanSet {
            request,
            segment: index,
            g: health.g,
            set: health.set,
            joining: health.joining,
            away: health.away,
            scratch: self.scratch,
            plans: self.columns.into_iter().enumerate().filter(|(_, i)| !i.is_empty()).map(plan).collect(),
            arithmetic: self.arithmetic,
            stripes: self.stripes,
        }
    }
}

/// The columns of these roles in a stripe, as a mask.
pub(super) fn mask(
    target: &Target<'_>,
    stripe: Stripe,
    roles: impl Iterator<Item = braid_layout::Role>,
) -> ColumnMask {
    roles.map(|role| target.column(stripe, role)).collect()
}

fn relabel(
    instruction: &mut Instruction,
    id: &impl Fn(InstructionId) -> InstructionId,
    location: &impl Fn(MemoryRange) -> MemoryRange,
) {
    instruction.id = id(instruction.id);
    relabel_after(&mut instruction.after, id);
    match &mut instruction.op {
        Op::Read { into, .. } => *into = location(*into),
        Op::Run { .. } => {}
        Op::StripeWrite { bytes, stamp, cover, .. } => {
            relabel_source(bytes, location);
            relabel_version(stamp, id);
            cover.iter_mut().for_each(|version| relabel_version(version, id));
        }
        Op::UnitWrite { bytes, .. } => relabel_source(bytes, location),
    }
}

fn relabel_step(
    arithmetic: &mut Arithmetic,
    id: &impl Fn(InstructionId) -> InstructionId,
    location: &impl Fn(MemoryRange) -> MemoryRange,
) {
    arithmetic.id = id(arithmetic.id);
    relabel_after(&mut arithmetic.after, id);
    let operand = |operand: &mut Operand| {
        if let Operand::MemoryRange(p) = operand {
            *p = location(*p);
        }
    };
    match &mut arithmetic.step {
        Step::Copy { from, into } => {
            operand(from);
            *into = location(*into);
        }
        Step::Encode { data, parity } => {
            data.iter_mut().for_each(operand);
            parity.iter_mut().for_each(|(_, p)| *p = location(*p));
        }
        Step::Reconstruct { have, lost } => {
            have.iter_mut().for_each(|(_, o)| operand(o));
            lost.iter_mut().for_each(|(_, p)| *p = location(*p));
        }
        Step::Delta { old, new, parity, .. } => {
            operand(old);
            operand(new);
            parity.iter_mut().for_each(|(_, p)| *p = location(*p));
        }
        Step::Compare { stored, computed, .. } => {
            *stored = location(*stored);
            *computed = location(*computed);
        }
    }
}

fn relabel_after(after: &mut [InstructionId], id: &impl Fn(InstructionId) -> InstructionId) {
    after.iter_mut().for_each(|other| *other = id(*other));
    after.sort_unstable();
}

fn relabel_source(source: &mut Source, location: &impl Fn(MemoryRange) -> MemoryRange) {
    if let Source::MemoryRange(p) = source {
        *p = location(*p);
    }
}

fn relabel_version(version: &mut VersionOf, id: &impl Fn(InstructionId) -> InstructionId) {
    match version {
        VersionOf::Given(_) => {}
        VersionOf::Read(read) | VersionOf::Cover { read, .. } => *read = id(*read),
        VersionOf::Newest(versions) => versions.iter_mut().for_each(|version| relabel_version(version, id)),
    }
}

fn tidy(mut after: Vec<InstructionId>) -> Vec<InstructionId> {
    after.sort_unstable();
    after.dedup();
    after
}

/// A count of instructions or pieces.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("a plan set is bounded")
}
