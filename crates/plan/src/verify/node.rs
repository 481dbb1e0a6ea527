//! Instructions and arithmetic steps as one type: the bytes that they use, make and change.

use std::ops::Range;

use braid_layout::{Column, Segment, Stripe};

use crate::ir::{InstructionId, MemoryRange, Op, Operand, PlanSet, Source, Step, VersionOf};
use crate::request::Request;

/// An instruction or a step.
pub(super) struct Node<'a> {
    pub(super) id: InstructionId,
    pub(super) after: &'a [InstructionId],
    pub(super) stripe: Stripe,
    pub(super) range: Range<u32>,
    pub(super) act: Act<'a>,
    /// The instruction before this one in its plan.
    pub(super) previous: Option<InstructionId>,
}

/// Action of a node.
pub(super) enum Act<'a> {
    Drive(Column, &'a Op),
    Client(&'a Step),
}

/// All instructions and steps of a set.
pub(super) fn nodes(set: &PlanSet) -> Vec<Node<'_>> {
    let mut nodes = Vec::new();
    for plan in &set.plans {
        let mut previous = None;
        for instruction in &plan.instructions {
            nodes.push(Node {
                id: instruction.id,
                after: &instruction.after,
                stripe: instruction.op.stripe(),
                range: instruction.op.range(),
                act: Act::Drive(plan.column, &instruction.op),
                previous,
            });
            previous = Some(instruction.id);
        }
    }
    nodes.extend(set.arithmetic.iter().map(|step| Node {
        id: step.id,
        after: &step.after,
        stripe: step.stripe,
        range: step.from..step.to,
        act: Act::Client(&step.step),
        previous: None,
    }));
    nodes
}

/// The indices of the stripes that the request is about.
pub(super) fn stripes(request: &Request, segment: &Segment) -> Range<u64> {
    let of = |range: &Range<u64>| segment.stripe_at(range.start).0..segment.stripe_at(range.end - 1).0 + 1;
    match request {
        Request::Read { range, .. } | Request::Run { range, .. } => of(range),
        Request::Write(write) => of(&write.range),
        Request::Rebuild { stripes, .. } | Request::Check { stripes } => stripes.clone(),
    }
}

/// The nodes of each stripe of the request.
pub(super) fn by_stripe<'n, 'a>(
    set: &PlanSet,
    segment: &Segment,
    nodes: &'n [Node<'a>],
) -> Vec<(Stripe, Vec<&'n Node<'a>>)> {
    let range = stripes(&set.request, segment);
    let first = range.start;
    let mut stripes: Vec<(Stripe, Vec<&Node<'_>>)> = range.map(|s| (Stripe(s), Vec::new())).collect();
    for node in nodes {
        let slot = usize::try_from(node.stripe.0 - first).expect("the form was found good");
        stripes[slot].1.push(node);
    }
    stripes
}

impl<'a> Node<'a> {
    /// The column read and the destination, if the node is a read.
    pub(super) fn read(&self) -> Option<(Column, MemoryRange)> {
        match self.act {
            Act::Drive(column, Op::Read { into, .. }) => Some((column, *into)),
            _ => None,
        }
    }

    /// The column on which a method runs, if the node is that.
    pub(super) fn run(&self) -> Option<Column> {
        match self.act {
            Act::Drive(column, Op::Run { .. }) => Some(column),
            _ => None,
        }
    }

    /// The column and the operation, if the node is a write.
    pub(super) fn write(&self) -> Option<(Column, &'a Op)> {
        match self.act {
            Act::Drive(column, op) if op.is_write() => Some((column, op)),
            _ => None,
        }
    }

    /// The memory ranges whose bytes the node uses and does not change.
    pub(super) fn uses(&self) -> Vec<MemoryRange> {
        let of = |operand: &Operand| match operand {
            Operand::MemoryRange(location) => Some(*location),
            Operand::Zeros => None,
        };
        match self.act {
            Act::Drive(_, Op::Read { .. } | Op::Run { .. }) => Vec::new(),
            Act::Drive(_, Op::StripeWrite { bytes, .. } | Op::UnitWrite { bytes, .. }) => match bytes {
                Source::MemoryRange(location) => vec![*location],
                Source::Hole => Vec::new(),
            },
            Act::Client(Step::Copy { from, .. }) => of(from).into_iter().collect(),
            Act::Client(Step::Encode { data, .. }) => data.iter().filter_map(of).collect(),
            Act::Client(Step::Reconstruct { have, .. }) => have.iter().filter_map(|(_, o)| of(o)).collect(),
            Act::Client(Step::Delta { old, new, .. }) => [old, new].into_iter().filter_map(of).collect(),
            Act::Client(Step::Compare { stored, computed, .. }) => vec![*stored, *computed],
        }
    }

    /// The memory ranges that the node fills.
    pub(super) fn makes(&self) -> Vec<MemoryRange> {
        match self.act {
            Act::Drive(_, Op::Read { into, .. }) | Act::Client(Step::Copy { into, .. }) => vec![*into],
            Act::Client(Step::Encode { parity, .. }) => {
                parity.iter().map(|(_, location)| *location).collect()
            }
            Act::Client(Step::Reconstruct { lost, .. }) => {
                lost.iter().map(|(_, location)| *location).collect()
            }
            Act::Drive(..) | Act::Client(Step::Delta { .. } | Step::Compare { .. }) => Vec::new(),
        }
    }

    /// The memory ranges that the node changes.
    pub(super) fn changes(&self) -> Vec<MemoryRange> {
        match self.act {
            Act::Client(Step::Delta { parity, .. }) => parity.iter().map(|(_, location)| *location).collect(),
            _ => Vec::new(),
        }
    }

    /// The reads whose versions the node uses.
    pub(super) fn versions(&self) -> Vec<InstructionId> {
        fn reads(version: &VersionOf) -> Vec<InstructionId> {
            match version {
                VersionOf::Given(_) => Vec::new(),
                VersionOf::Read(read) | VersionOf::Cover { read, .. } => vec![*read],
                VersionOf::Newest(versions) => versions.iter().flat_map(reads).collect(),
            }
        }
        match self.act {
            Act::Drive(_, Op::StripeWrite { stamp, cover, .. }) => {
                std::iter::once(stamp).chain(cover).flat_map(reads).collect()
            }
            _ => Vec::new(),
        }
    }
}
