//! The cost of a plan set: bytes and instructions per column, scratch, and sequential round trips.

use braid_layout::Column;

use crate::ir::{Instruction, InstructionId, Op, PlanSet, Source};

/// Cost of a plan set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// One entry per plan, in the order of the plans.
    pub columns: Vec<ColumnTotals>,
    /// Size of all scratch pieces in bytes.
    pub scratch_bytes: u64,
    /// Exchanges with drives that must follow one another: 1 for a healthy read, 2 if a write must read
    /// first.
    pub round_trips: u32,
}

/// Cost of one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnTotals {
    /// Column that the plan is for.
    pub column: Column,
    /// Number of read instructions.
    pub reads: u32,
    /// Number of write instructions.
    pub writes: u32,
    /// Number of bytes that the reads ask for.
    pub read_bytes: u64,
    /// Number of bytes that the writes send; holes send none.
    pub written_bytes: u64,
    /// Number of bytes that a method runs on at the drive.
    pub run_bytes: u64,
    /// Number of bytes of the method's answers, as far as can be guessed.
    pub answer_bytes: u64,
}

impl Totals {
    /// Number of bytes read from all drives.
    pub fn read_bytes(&self) -> u64 {
        self.columns.iter().map(|column| column.read_bytes).sum()
    }

    /// Number of bytes written to all drives.
    pub fn written_bytes(&self) -> u64 {
        self.columns.iter().map(|column| column.written_bytes).sum()
    }
}

impl PlanSet {
    /// Computes the cost of the plan set.
    pub fn totals(&self) -> Totals {
        Totals {
            columns: self.plans.iter().map(|plan| column(plan.column, &plan.instructions)).collect(),
            scratch_bytes: self.scratch.iter().map(|&len| u64::from(len)).sum(),
            round_trips: self.round_trips(),
        }
    }

    /// Maximum number of drive exchanges on any chain of `after`. Unknown ids and cycles, which a verified
    /// set does not have, are ignored.
    fn round_trips(&self) -> u32 {
        let nodes: Vec<(InstructionId, &[InstructionId], u32)> = self
            .instructions()
            .map(|(_, i)| (i.id, i.after.as_slice(), 1))
            .chain(self.arithmetic.iter().map(|step| (step.id, step.after.as_slice(), 0)))
            .filter(|(id, ..)| id.index() < self.len())
            .collect();
        let slots = self.len();
        let mut waiters = vec![Vec::new(); slots];
        let mut waits = vec![0_u32; slots];
        let mut depth = vec![0; slots];
        for (id, after, _) in &nodes {
            for other in after.iter().filter(|other| other.index() < slots) {
                waiters[other.index()].push(id.index());
                waits[id.index()] += 1;
            }
        }
        let mut cost = vec![0; slots];
        nodes.iter().for_each(|(id, _, own)| cost[id.index()] = *own);
        let mut ready: Vec<usize> = (0..slots).filter(|&slot| waits[slot] == 0).collect();
        while let Some(slot) = ready.pop() {
            let end = depth[slot] + cost[slot];
            depth[slot] = end;
            for &waiter in &waiters[slot] {
                depth[waiter] = depth[waiter].max(end);
                waits[waiter] -= 1;
                if waits[waiter] == 0 {
                    ready.push(waiter);
                }
            }
        }
        depth.into_iter().max().unwrap_or(0)
    }
}

fn column(column: Column, instructions: &[Instruction]) -> ColumnTotals {
    let mut totals = ColumnTotals {
        column,
        reads: 0,
        writes: 0,
        read_bytes: 0,
        written_bytes: 0,
        run_bytes: 0,
        answer_bytes: 0,
    };
    for instruction in instructions {
        let range = instruction.op.range();
        let bytes = u64::from(range.end.saturating_sub(range.start));
        match instruction.op {
            Op::Read { .. } => {
                totals.reads += 1;
                totals.read_bytes += bytes;
            }
            Op::Run { answer, .. } => {
                totals.run_bytes += bytes;
                totals.answer_bytes += u64::from(answer);
            }
            Op::StripeWrite { bytes: source, .. } | Op::UnitWrite { bytes: source, .. } => {
                totals.writes += 1;
                totals.written_bytes += if source == Source::Hole { 0 } else { bytes };
            }
        }
    }
    totals
}
