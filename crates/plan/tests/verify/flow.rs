//! Rules 10 to 13.

use braid_plan::{MemoryRange, Op, Operand, PlanSet, Step, Violation};

use crate::{
    UNIT, degraded_read, healthy_read, id, instruction, read_modify_write, reconstruct_write, spoiled, step,
};

#[test]
fn rule_10_no_byte_is_made_twice() {
    let overlap = |set: &mut PlanSet| {
        let Op::Read { into, .. } = &mut instruction(set, 1).op else { panic!() };
        *into = MemoryRange::User { offset: 4000, len: 1808 };
    };
    spoiled(healthy_read(), overlap, &[Violation::MadeTwice { id: id(1), other: id(0) }]);
}

#[test]
fn rule_11_what_is_used_was_made() {
    let unmade = |set: &mut PlanSet| {
        set.scratch.push(UNIT);
        let Step::Reconstruct { have, .. } = &mut step(set, 4).step else { panic!() };
        have[0].1 = Operand::MemoryRange(MemoryRange::Scratch { piece: 4, offset: 0, len: UNIT });
    };
    spoiled(degraded_read(), unmade, &[Violation::Undefined { id: id(4) }]);
    // The bytes are made, but for other bytes of the unit.
    let shifted = |set: &mut PlanSet| {
        set.scratch[1] = 101;
        let Step::Delta { old, .. } = &mut step(set, 4).step else { panic!() };
        *old = Operand::MemoryRange(MemoryRange::Scratch { piece: 1, offset: 1, len: 100 });
    };
    spoiled(read_modify_write(), shifted, &[Violation::Undefined { id: id(4) }]);
}

#[test]
fn rule_12_what_is_used_is_waited_for() {
    let forget =
        |at: u32, on: u32| move |set: &mut PlanSet| step(set, at).after.retain(|other| *other != id(on));
    spoiled(degraded_read(), forget(4, 2), &[Violation::Unordered { id: id(4), on: id(2) }]);
    let delta = |set: &mut PlanSet| instruction(set, 3).after.retain(|other| *other != id(4));
    spoiled(read_modify_write(), delta, &[Violation::Unordered { id: id(3), on: id(4) }]);
    let version = |set: &mut PlanSet| instruction(set, 4).after.retain(|other| *other != id(3));
    spoiled(reconstruct_write(), version, &[Violation::Unordered { id: id(4), on: id(3) }]);
}

#[test]
fn rule_13_writes_wait_for_the_reads_of_their_stripe() {
    let forget = |set: &mut PlanSet| instruction(set, 0).after.clear();
    spoiled(reconstruct_write(), forget, &[Violation::Early { id: id(0), read: id(3) }]);
}
