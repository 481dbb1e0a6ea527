//! Checks: every readable unit is read, and every parity unit beyond what the data needs is computed again
//! and compared with what is stored.
//!
//! If all data units are readable, every readable parity unit is checked. If some are lost, as many parity
//! units stand in for them, and the rest are checked. With only `k` units there is nothing to compare. The
//! units are read all the same, as damage shows in a unit's checksums.

use std::ops::Range;

use braid_layout::{Role, Stripe};

use super::draft::Draft;
use super::gather::Gather;
use crate::ir::{Operand, PlanSet, Step, Strategy, Want};
use crate::request::{PlanError, Request, Target};

/// Checks the units of `stripes`.
pub fn check(target: &Target<'_>, stripes: Range<u64>) -> Result<PlanSet, PlanError> {
    target.check_stripes(&stripes)?;
    let drafts = stripes.clone().map(Stripe).map(|stripe| draft(target, stripe));
    target.finish(Request::Check { stripes }, drafts)
}

fn draft(target: &Target<'_>, stripe: Stripe) -> Result<Draft, PlanError> {
    let mut draft = Draft::new(stripe, Strategy::Check);
    let mut gather = Gather::default();
    let whole = 0..target.unit();
    let there: Vec<Role> =
        target.data().chain(target.parity()).filter(|&role| target.readable(stripe, role)).collect();
    let k = usize::from(target.segment.shape.k());
    if there.len() < k {
        return Err(target.too_few(stripe, target.health.readable()));
    }
    for &role in &there {
        gather.read_scratch(target, &mut draft, role, &whole, Want::Newest);
    }
    let (have, spare) = there.split_at(k);
    let spare: Vec<u8> = spare
        .iter()
        .filter_map(|role| match role {
            Role::Parity(index) => Some(*index),
            Role::Data(_) => None,
        })
        .collect();
    if spare.is_empty() {
        return Ok(draft);
    }
    let operands: Vec<_> = have
        .iter()
        .map(|&role| (role, gather.find(role, &whole).expect("every unit was read above")))
        .collect();
    let mut after: Vec<_> = operands.iter().map(|(_, (_, id))| *id).collect();
    let mut made = Vec::new();
    if target.segment.shape.scheme().is_mirror() {
        made.extend(spare.iter().map(|&parity| (parity, operands[0].1.0)));
    } else {
        made.extend(spare.iter().map(|&parity| (parity, draft.scratch(&whole))));
        let step = if have.iter().all(|role| matches!(role, Role::Data(_))) {
            Step::Encode {
                data: operands.iter().map(|(_, (location, _))| Operand::MemoryRange(*location)).collect(),
                parity: made.clone(),
            }
        } else {
            Step::Reconstruct {
                have: operands
                    .iter()
                    .map(|(role, (location, _))| (*role, Operand::MemoryRange(*location)))
                    .collect(),
                lost: made.iter().map(|(parity, location)| (Role::Parity(*parity), *location)).collect(),
            }
        };
        after = vec![draft.step(&whole, after, step)];
    }
    for (parity, computed) in made {
        let (stored, read) = gather.find(Role::Parity(parity), &whole).expect("every unit was read above");
        let mut after = after.clone();
        after.push(read);
        draft.step(&whole, after, Step::Compare { parity, stored, computed });
    }
    Ok(draft)
}
