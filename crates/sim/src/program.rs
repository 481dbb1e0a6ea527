//! A plan set in the form in which it is timed: its instructions and steps are numbered nodes, and each
//! node knows those that wait for it.
//!
//! Nothing is decided here: the plan set says which host sends what to which. Only the form changes:
//! columns become the drives' places, ranges of units become offsets in objects, and `after` is turned
//! around into followers.

use std::ops::Range;

use braid_admission::count::operand_bytes;
use braid_layout::{Role, Segment, Stripe};
use braid_plan::{Op, PlanSet, Source};

use crate::number::{index, narrow};

/// A plan set to be timed. Offsets in objects count from the first byte of the stripe it was compiled for.
#[derive(Debug)]
pub(crate) struct Program {
    /// Nodes by instruction id.
    pub(crate) nodes: Vec<Node>,
    /// Ids of followers; each node has a range of this list.
    followers: Vec<u32>,
    /// Nodes that wait for nothing.
    pub(crate) roots: Vec<u32>,
}

/// An instruction or a step.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) act: Act,
    /// Number of nodes that this one waits for.
    pub(crate) waits: u32,
    followers: Range<usize>,
}

/// Work of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Bytes of an object are read, and as many as `sent` go to the client.
    Read { column: u8, offset: u64, bytes: u32, sent: u32 },
    /// Bytes from the client go into an object. For a hole none are sent.
    Write { column: u8, offset: u64, bytes: u32, sent: u32 },
    /// A write through the data drive, which sends the change to the columns of `parity`.
    UnitWrite { column: u8, offset: u64, bytes: u32, parity: Vec<u8> },
    /// Arithmetic on `bytes` bytes of operands; an operand counts once for each use.
    Compute { bytes: u64 },
}

impl Program {
    /// The program of plan sets that run at the same time on one segment.
    pub(crate) fn new(sets: &[PlanSet], segment: &Segment) -> Program {
        let mut program = Program { nodes: Vec::new(), followers: Vec::new(), roots: Vec::new() };
        sets.iter().for_each(|set| program.add(set, segment));
        program
    }

    fn add(&mut self, set: &PlanSet, segment: &Segment) {
        let base = self.nodes.len();
        let mut acts: Vec<Option<(Act, Vec<usize>)>> = vec![None; set.len()];
        for (plan, instruction) in set.instructions() {
            let after = instruction.after.iter().map(|id| id.index()).collect();
            acts[instruction.id.index()] = Some((act(&instruction.op, plan.column.0, segment), after));
        }
        for step in &set.arithmetic {
            let act = Act::Compute { bytes: operand_bytes(&step.step, u64::from(step.to - step.from)) };
            acts[step.id.index()] = Some((act, step.after.iter().map(|id| id.index()).collect()));
        }
        let acts: Vec<(Act, Vec<usize>)> =
            acts.into_iter().map(|act| act.expect("ids are without gaps")).collect();
        let mut following: Vec<Vec<u32>> = vec![Vec::new(); acts.len()];
        for (id, (_, after)) in acts.iter().enumerate() {
            after.iter().for_each(|&other| following[other].push(narrow(base + id)));
        }
        for (id, ((act, after), following)) in acts.into_iter().zip(following).enumerate() {
            let start = self.followers.len();
            self.followers.extend(following);
            let waits = narrow(after.len());
            if waits == 0 {
                self.roots.push(narrow(base + id));
            }
            self.nodes.push(Node { act, waits, followers: start..self.followers.len() });
        }
    }

    /// The nodes that wait for a node.
    pub(crate) fn followers(&self, node: u32) -> &[u32] {
        &self.followers[self.nodes[index(u64::from(node))].followers.clone()]
    }

    pub(crate) fn node(&self, node: u32) -> &Node {
        &self.nodes[index(u64::from(node))]
    }
}

fn act(op: &Op, column: u8, segment: &Segment) -> Act {
    let range = op.range();
    let offset = segment.object_offset(op.stripe()) + u64::from(range.start);
    let bytes = range.end - range.start;
    match op {
        Op::Read { .. } => Act::Read { column, offset, bytes, sent: bytes },
        Op::Run { answer, .. } => Act::Read { column, offset, bytes, sent: *answer },
        Op::StripeWrite { bytes: source, .. } => {
            let sent = if *source == Source::Hole { 0 } else { bytes };
            Act::Write { column, offset, bytes, sent }
        }
        Op::UnitWrite { .. } => {
            Act::UnitWrite { column, offset, bytes, parity: parity(segment, op.stripe()) }
        }
    }
}

/// The parity columns of a stripe.
fn parity(segment: &Segment, stripe: Stripe) -> Vec<u8> {
    (0..segment.shape.m()).map(|index| segment.column(stripe, Role::Parity(index)).0).collect()
}
