//! Rules 1 to 9.

use braid_layout::{Column, ColumnMask, DriveId, ObjectId, Stripe};
use braid_plan::{MemoryRange, Op, PlanSet, Step, Strategy, StripeNote, Violation};

use crate::{
    FIRST, UNIT, degraded_read, full_stripe, healthy_read, id, instruction, read_modify_write, spoiled, step,
};

#[test]
fn rule_1_the_request_fits_the_segment() {
    spoiled(full_stripe(), |set| set.set = set.set.with(Column(5)), &[Violation::Request]);
    spoiled(full_stripe(), |set| set.joining = ColumnMask::EMPTY.with(Column(7)), &[Violation::Request]);
    let note = Violation::Note { stripe: FIRST };
    spoiled(full_stripe(), |set| set.stripes.clear(), std::slice::from_ref(&note));
    let twice = |set: &mut PlanSet| {
        set.stripes.push(StripeNote { stripe: FIRST, strategy: Strategy::FullStripe });
    };
    spoiled(full_stripe(), twice, std::slice::from_ref(&note));
    spoiled(degraded_read(), |set| set.stripes[0].strategy = Strategy::Direct, std::slice::from_ref(&note));
    spoiled(read_modify_write(), |set| set.stripes[0].strategy = Strategy::FullStripe, &[note]);
}

#[test]
fn rule_2_the_set_is_bounded() {
    let many = |set: &mut PlanSet| {
        let one = set.plans[0].instructions[0].clone();
        set.plans[0].instructions.resize(9000, one);
    };
    spoiled(healthy_read(), many, &[Violation::TooMany { count: 9001 }]);
}

#[test]
fn rule_3_one_plan_per_column() {
    let first = Violation::Plan { column: Column(1) };
    spoiled(healthy_read(), |set| set.plans[0].drive = DriveId(77), std::slice::from_ref(&first));
    spoiled(healthy_read(), |set| set.plans[0].object = ObjectId(77), &[first]);
    let empty = |set: &mut PlanSet| {
        let mut plan = set.plans[0].clone();
        plan.column = Column(0);
        plan.drive = DriveId(0);
        plan.object = ObjectId(0);
        plan.instructions.clear();
        set.plans.push(plan);
    };
    spoiled(healthy_read(), empty, &[Violation::Plan { column: Column(0) }]);
    let split = |set: &mut PlanSet| {
        let mut plan = set.plans[0].clone();
        plan.instructions.remove(0);
        set.plans[0].instructions.truncate(1);
        set.plans.push(plan);
    };
    spoiled(read_modify_write(), split, &[Violation::Plan { column: Column(1) }]);
}

#[test]
fn rule_4_ids_are_there_once() {
    spoiled(healthy_read(), |set| instruction(set, 1).id = id(0), &[Violation::Id { id: id(0) }]);
    spoiled(healthy_read(), |set| instruction(set, 1).id = id(2), &[Violation::Id { id: id(2) }]);
    let waits = |set: &mut PlanSet| instruction(set, 1).after.push(id(9));
    spoiled(healthy_read(), waits, &[Violation::Id { id: id(9) }]);
}

#[test]
fn rule_5_ranges_are_in_their_unit() {
    let range = |from: u32, to: u32, stripe: u64| {
        move |set: &mut PlanSet| {
            let Op::Read { from: f, to: t, stripe: s, .. } = &mut instruction(set, 0).op else { panic!() };
            (*f, *t, *s) = (from, to, Stripe(stripe));
        }
    };
    let wrong = [Violation::Range { id: id(0) }];
    spoiled(healthy_read(), range(5, 5, 0), &wrong);
    spoiled(healthy_read(), range(6, 5, 0), &wrong);
    spoiled(healthy_read(), range(1, UNIT + 1, 0), &wrong);
    spoiled(healthy_read(), range(0, UNIT, 1), &wrong);
}

#[test]
fn rule_6_places_are_where_they_may_be() {
    let location = |location: MemoryRange| {
        move |set: &mut PlanSet| {
            let Op::Read { into, .. } = &mut instruction(set, 0).op else { panic!() };
            *into = location;
        }
    };
    let wrong = [Violation::MemoryRange { id: id(0) }];
    spoiled(healthy_read(), location(MemoryRange::User { offset: 0, len: 4095 }), &wrong);
    spoiled(healthy_read(), location(MemoryRange::User { offset: 1809, len: 4096 }), &wrong);
    spoiled(healthy_read(), location(MemoryRange::Scratch { piece: 0, offset: 0, len: 4096 }), &wrong);
    spoiled(read_modify_write(), location(MemoryRange::User { offset: 0, len: 100 }), &wrong);
    let shorter = |set: &mut PlanSet| set.scratch[0] -= 1;
    let uses = [
        Violation::MemoryRange { id: id(2) },
        Violation::MemoryRange { id: id(3) },
        Violation::MemoryRange { id: id(4) },
    ];
    spoiled(read_modify_write(), shorter, &uses);
}

#[test]
fn rule_7_operands_are_what_the_code_asks_for() {
    let wrong = [Violation::Operands { id: id(5) }];
    let fewer = |set: &mut PlanSet| {
        let Step::Encode { data, .. } = &mut step(set, 5).step else { panic!() };
        data.pop();
    };
    spoiled(full_stripe(), fewer, &wrong);
    let parity = |set: &mut PlanSet| {
        let Step::Encode { parity, .. } = &mut step(set, 5).step else { panic!() };
        parity[0].0 = 1;
    };
    spoiled(full_stripe(), parity, &wrong);
    let twice = |set: &mut PlanSet| {
        let Step::Reconstruct { have, .. } = &mut step(set, 4).step else { panic!() };
        have[0].0 = have[1].0;
    };
    spoiled(degraded_read(), twice, &[Violation::Operands { id: id(4) }]);
    let data = |set: &mut PlanSet| {
        let Step::Delta { data, .. } = &mut step(set, 4).step else { panic!() };
        *data = 4;
    };
    spoiled(read_modify_write(), data, &[Violation::Operands { id: id(4) }]);
}

#[test]
fn rule_8_only_readable_columns_are_read() {
    let away = |set: &mut PlanSet| set.away = ColumnMask::EMPTY.with(Column(2));
    spoiled(healthy_read(), away, &[Violation::NotReadable { id: id(1), column: Column(2) }]);
    let joining = |set: &mut PlanSet| set.joining = ColumnMask::EMPTY.with(Column(2));
    spoiled(healthy_read(), joining, &[Violation::NotReadable { id: id(1), column: Column(2) }]);
}

#[test]
fn rule_9_nothing_waits_for_itself() {
    let circle = |set: &mut PlanSet| step(set, 5).after.push(id(4));
    spoiled(full_stripe(), circle, &[Violation::Cycle { id: id(4) }]);
    // The write waits for a step, which waits for a read that is sent after the write.
    let order = |set: &mut PlanSet| set.plans[1].instructions.swap(0, 1);
    spoiled(read_modify_write(), order, &[Violation::Cycle { id: id(2) }]);
}
