//! Plan sets with random field values: the verifier returns a result for any set, however broken.

use braid_layout::{Column, ColumnMask};
use braid_plan::{MemoryRange, Op, PlanSet, VersionOf, verify};
use proptest::prelude::{ProptestConfig, any, proptest};

use crate::{
    checked, degraded_read, full_stripe, healthy_read, id, read_modify_write, rebuilt_data, rebuilt_parity,
    reconstruct_write, segment,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The verifier returns a result for any set, however broken: it neither panics nor hangs.
    #[test]
    fn any_set_gets_an_answer(which in 0..8_usize, at in any::<u32>(), field in 0..12_u8, value in any::<u32>(), small in 0..6_u32) {
        let makers = [
            healthy_read, degraded_read, full_stripe, reconstruct_write, read_modify_write, rebuilt_data,
            rebuilt_parity, checked,
        ];
        let mut set = makers[which]();
        let value = if value % 2 == 0 { small } else { value };
        spoil(&mut set, at, field, value);
        let _ = verify(&set, &segment());
        let _ = set.to_string();
    }
}

/// Sets some field to `value`.
fn spoil(set: &mut PlanSet, at: u32, field: u8, value: u32) {
    let pick = |count: usize| usize::try_from(at).unwrap() % count.max(1);
    let plan = pick(set.plans.len());
    let many = set.plans[plan].instructions.len();
    let chosen = &mut set.plans[plan].instructions[pick(many)];
    match field {
        0 => chosen.id = id(value),
        1 => chosen.after.push(id(value)),
        2 => set.plans[plan].column = Column(value.to_le_bytes()[0]),
        3 => set.joining = ColumnMask(u64::from(value)),
        4 => set.set = ColumnMask(u64::from(value)),
        5 => drop(set.stripes.pop()),
        6 => set.scratch.truncate(pick(set.scratch.len())),
        7 | 8 => match &mut chosen.op {
            Op::Read { from, into, .. } if field == 7 => (*from, *into) = (value, into.part(0, 0)),
            Op::Read { into, .. } => {
                *into = MemoryRange::Scratch { piece: value, offset: value, len: into.len() }
            }
            Op::StripeWrite { to, .. } if field == 7 => *to = value,
            Op::StripeWrite { cover, .. } => cover.push(VersionOf::Read(id(value))),
            Op::UnitWrite { from, .. } | Op::Run { from, .. } => *from = value,
        },
        9 => set.arithmetic.truncate(pick(set.arithmetic.len())),
        _ => {
            let many = set.arithmetic.len();
            if let Some(step) = set.arithmetic.get_mut(pick(many)) {
                match field {
                    10 => step.from = value,
                    _ => step.after.clear(),
                }
            }
        }
    }
}
