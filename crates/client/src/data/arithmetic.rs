//! The client's own steps of a plan set: parity, reconstruction and comparison, in range on slices of the
//! memory.

use braid_layout::code::Code;
use braid_layout::{Role, Shape, Stripe};
use braid_plan::{Arithmetic, MemoryRange, Operand, Step};

use crate::data::buffers::{BadRange, Memory};

/// A parity unit that differs from what its data units give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unequal {
    pub(crate) stripe: Stripe,
    pub(crate) parity: u8,
    /// First differing byte, in the unit.
    pub(crate) at: u32,
}

/// Reason for which a step cannot be run: the plan is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    #[error(transparent)]
    MemoryRange(#[from] BadRange),
    #[error(transparent)]
    Code(#[from] braid_layout::code::CodeError),
}

/// Runs one step. Returns what a comparison found.
pub(crate) fn run(
    shape: Shape,
    step: &Arithmetic,
    memory: &mut Memory<'_>,
) -> Result<Option<Unequal>, StepError> {
    let code = Code::new(shape);
    match &step.step {
        Step::Copy { from, into } => {
            let (zeros, split_inputs) = operands([from]);
            let split = memory.split(&split_inputs, &[*into])?;
            for output in split.outputs {
                match (zeros[0], split.inputs.first()) {
                    (false, Some(input)) => output.copy_from_slice(input),
                    _ => output.fill(0),
                }
            }
        }
        Step::Encode { data, parity } => {
            let have: Vec<(Role, Operand)> = (0..).map(Role::Data).zip(data.iter().copied()).collect();
            let lost: Vec<(Role, MemoryRange)> =
                parity.iter().map(|&(index, range)| (Role::Parity(index), range)).collect();
            reconstruct(&code, &have, &lost, memory)?;
        }
        Step::Reconstruct { have, lost } => reconstruct(&code, have, lost, memory)?,
        Step::Delta { data, old, new, parity } => {
            for &(index, range) in parity {
                let (_, inputs) = operands([old, new]);
                let split = memory.split(&inputs, &[range])?;
                for output in split.outputs {
                    // Addition is xor: it removes the old bytes and adds the new ones. Zeros change nothing.
                    split.inputs.iter().for_each(|input| code.add(*data, input, index, output));
                }
            }
        }
        Step::Compare { parity, stored, computed } => {
            let stored = memory.at(*stored)?;
            let computed = memory.at(*computed)?;
            let differs = stored.iter().zip(computed).position(|(a, b)| a != b);
            return Ok(differs.map(|at| Unequal {
                stripe: step.stripe,
                parity: *parity,
                at: step.from + u32::try_from(at).expect("a unit is at most 64 MiB"),
            }));
        }
    }
    Ok(None)
}

/// Computes units from other units; parity from data is a special case. A unit of zeros is passed as an empty
/// slice: missing bytes count as zeros.
fn reconstruct(
    code: &Code,
    have: &[(Role, Operand)],
    lost: &[(Role, MemoryRange)],
    memory: &mut Memory<'_>,
) -> Result<(), StepError> {
    let (zeros, inputs) = operands(have.iter().map(|(_, operand)| operand));
    let outputs: Vec<MemoryRange> = lost.iter().map(|&(_, range)| range).collect();
    let split = memory.split(&inputs, &outputs)?;
    let mut bytes = split.inputs.into_iter();
    let units: Vec<(Role, &[u8])> = have
        .iter()
        .zip(zeros)
        .map(|(&(role, _), zero)| (role, if zero { &[] } else { bytes.next().unwrap_or_default() }))
        .collect();
    let mut made: Vec<(Role, &mut [u8])> = lost.iter().map(|&(role, _)| role).zip(split.outputs).collect();
    Ok(code.reconstruct(&units, &mut made)?)
}

/// For each operand, true if it is zeros; and the memory ranges of the others.
fn operands<'a>(operands: impl IntoIterator<Item = &'a Operand>) -> (Vec<bool>, Vec<MemoryRange>) {
    let mut zeros = Vec::new();
    let mut ranges = Vec::new();
    for operand in operands {
        match *operand {
            Operand::MemoryRange(range) => ranges.push(range),
            Operand::Zeros => {}
        }
        zeros.push(matches!(operand, Operand::Zeros));
    }
    (zeros, ranges)
}

#[cfg(test)]
mod tests {
    use braid_layout::Scheme;
    use braid_plan::InstructionId;

    use super::*;
    use crate::data::buffers::User;
    use crate::data::scratch::Scratch;

    fn step(step: Step) -> Arithmetic {
        Arithmetic { id: InstructionId(0), after: Vec::new(), stripe: Stripe(3), from: 100, to: 104, step }
    }

    fn scratch(piece: u32) -> MemoryRange {
        MemoryRange::Scratch { piece, offset: 0, len: 4 }
    }

    #[test]
    fn encode_delta_reconstruct_and_compare_agree() {
        let shape = Shape::new(Scheme::Rs, 3, 2, 4096).expect("a good shape");
        let (data, pool): (Vec<u8>, _) = ((1..=12).collect(), Scratch::default());
        let mut memory = Memory::new(User::From(&data), &[4; 8], &pool);
        let user = |index: u64| Operand::MemoryRange(MemoryRange::User { offset: index * 4, len: 4 });
        let mut run = |one: Step| run(shape, &step(one), &mut memory).expect("a good step");
        // Parity of (d0, 0, d2), updated with d1, is the parity of all three.
        let parity = |a, b| vec![(0, scratch(a)), (1, scratch(b))];
        run(Step::Encode { data: vec![user(0), Operand::Zeros, user(2)], parity: parity(0, 1) });
        run(Step::Delta { data: 1, old: Operand::Zeros, new: user(1), parity: parity(0, 1) });
        run(Step::Encode { data: vec![user(0), user(1), user(2)], parity: parity(2, 3) });
        for (stored, computed, index) in [(0, 2, 0), (1, 3, 1)] {
            let step = Step::Compare { parity: index, stored: scratch(stored), computed: scratch(computed) };
            assert_eq!(run(step), None);
        }
        run(Step::Encode { data: vec![user(0), user(1), user(2)], parity: vec![(1, scratch(7))] });
        assert_eq!(run(Step::Compare { parity: 1, stored: scratch(7), computed: scratch(3) }), None);
        let have = vec![
            (Role::Parity(0), Operand::MemoryRange(scratch(0))),
            (Role::Data(2), user(2)),
            (Role::Parity(1), Operand::MemoryRange(scratch(1))),
        ];
        run(Step::Reconstruct { have, lost: vec![(Role::Data(1), scratch(4)), (Role::Data(0), scratch(5))] });
        run(Step::Copy { from: user(1), into: scratch(6) });
        assert_eq!(run(Step::Compare { parity: 0, stored: scratch(4), computed: scratch(6) }), None);
        assert_eq!(
            run(Step::Compare { parity: 0, stored: scratch(4), computed: scratch(5) }),
            Some(Unequal { stripe: Stripe(3), parity: 0, at: 100 })
        );
    }
}
