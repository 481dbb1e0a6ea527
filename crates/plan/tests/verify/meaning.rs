//! Rules 14 to 23, and similar cases.

use braid_layout::{Column, ColumnMask, Generation, OperationNumber, Role, Scheme, Segment, Shape, Version};
use braid_plan::{
    InstructionId, MemoryRange, Op, Operand, PlanSet, Source, Stamped, Step, Target, VersionOf, Violation,
    Want, read, unit_write, verify, write,
};

use crate::{
    FIRST, UNIT, checked, degraded_read, full_stripe, healthy_read, id, instruction, read_modify_write,
    rebuilt_data, rebuilt_parity, reconstruct_write, request, segment, spoiled, step, with,
};

#[test]
fn rule_14_every_byte_asked_for_is_produced() {
    let drop = |set: &mut PlanSet| {
        set.plans.pop();
    };
    spoiled(healthy_read(), drop, &[Violation::NotProduced { stripe: FIRST, data: 2, at: 0 }]);
    let less = |set: &mut PlanSet| {
        let Op::Read { to, into, .. } = &mut instruction(set, 1).op else { panic!() };
        *to = 1000;
        *into = into.part(0, 1000);
    };
    spoiled(healthy_read(), less, &[Violation::NotProduced { stripe: FIRST, data: 2, at: 1000 }]);
    let other = |set: &mut PlanSet| {
        let Op::Read { from, to, .. } = &mut instruction(set, 1).op else { panic!() };
        (*from, *to) = (1, 1809);
    };
    spoiled(healthy_read(), other, &[Violation::WrongBytes { stripe: FIRST, data: 2, at: 0 }]);
    // The bytes are decoded, but as another unit.
    let confused = |set: &mut PlanSet| {
        let Step::Reconstruct { have, lost } = &mut step(set, 4).step else { panic!() };
        let (Role::Data(a), Role::Data(b)) = (have[0].0, lost[0].0) else { panic!() };
        (have[0].0, lost[0].0) = (Role::Data(b), Role::Data(a));
    };
    let mut bad = with(&[1], &[], |target| {
        let rs = Segment { shape: Shape::new(Scheme::Rs, 3, 2, UNIT).unwrap(), ..segment() };
        read(&Target { segment: &rs, ..*target }, 4096..8192, 0, Want::Newest).unwrap()
    });
    let rs = Segment { shape: Shape::new(Scheme::Rs, 3, 2, UNIT).unwrap(), ..segment() };
    assert_eq!(verify(&bad, &rs), Ok(()));
    let Step::Reconstruct { have, .. } = &mut step(&mut bad, 3).step else { panic!() };
    have[2].0 = Role::Parity(1);
    assert_eq!(verify(&bad, &rs), Err(vec![Violation::WrongBytes { stripe: FIRST, data: 1, at: 0 }]));
    // XOR treats all units alike, so there this is no error.
    let mut alike = degraded_read();
    confused(&mut alike);
    assert_eq!(verify(&alike, &segment()), Ok(()));
}

#[test]
fn rule_15_every_column_is_written_once() {
    let renumber = |set: &mut PlanSet, gone: u32| {
        let down = |other: &mut InstructionId| other.0 -= u32::from(other.0 > gone);
        for plan in &mut set.plans {
            for instruction in &mut plan.instructions {
                down(&mut instruction.id);
                instruction.after.iter_mut().for_each(down);
            }
        }
        for step in &mut set.arithmetic {
            down(&mut step.id);
            step.after.iter_mut().for_each(down);
        }
    };
    let forget = |set: &mut PlanSet| {
        set.plans.remove(2);
        renumber(set, 2);
    };
    spoiled(full_stripe(), forget, &[Violation::Missing { stripe: FIRST, column: Column(2) }]);
    let twice = |set: &mut PlanSet| {
        let mut again = instruction(set, 0).clone();
        again.id = id(6);
        set.plans[0].instructions.push(again);
    };
    spoiled(full_stripe(), twice, &[Violation::Unwanted { id: id(6) }]);
    let out = |set: &mut PlanSet| set.set = set.set.without(Column(0));
    spoiled(full_stripe(), out, &[Violation::Unwanted { id: id(0) }]);
    let write = |set: &mut PlanSet| {
        let mut stray = instruction(&mut full_stripe(), 0).clone();
        stray.id = id(2);
        let Op::StripeWrite { bytes, .. } = &mut stray.op else { panic!() };
        *bytes = Source::Hole;
        stray.after = vec![id(0), id(1)];
        set.plans[0].instructions.push(stray);
    };
    spoiled(healthy_read(), write, &[Violation::Unwanted { id: id(2) }]);
}

#[test]
fn rule_16_data_holds_what_was_asked() {
    let swapped = |set: &mut PlanSet| {
        let Op::StripeWrite { bytes, .. } = &mut instruction(set, 0).op else { panic!() };
        *bytes = Source::MemoryRange(MemoryRange::User { offset: 4096, len: UNIT });
    };
    spoiled(full_stripe(), swapped, &[Violation::WrongBytes { stripe: FIRST, data: 0, at: 0 }]);
    let hole = |set: &mut PlanSet| {
        let Op::StripeWrite { bytes, .. } = &mut instruction(set, 1).op else { panic!() };
        *bytes = Source::Hole;
    };
    spoiled(full_stripe(), hole, &[Violation::WrongBytes { stripe: FIRST, data: 1, at: 0 }]);
    let rebuilt = |set: &mut PlanSet| {
        let Op::StripeWrite { bytes, .. } = &mut instruction(set, 0).op else { panic!() };
        *bytes = Source::Hole;
    };
    spoiled(rebuilt_data(), rebuilt, &[Violation::WrongBytes { stripe: FIRST, data: 0, at: 0 }]);
}

#[test]
fn rule_17_parity_matches_the_data() {
    let lost = |set: &mut PlanSet| {
        let Step::Encode { data, .. } = &mut step(set, 5).step else { panic!() };
        data[1] = Operand::Zeros;
    };
    spoiled(full_stripe(), lost, &[Violation::Parity { stripe: FIRST, parity: 0, at: 0 }]);
    let old = |set: &mut PlanSet| {
        let Step::Delta { old, .. } = &mut step(set, 4).step else { panic!() };
        *old = Operand::Zeros;
    };
    spoiled(read_modify_write(), old, &[Violation::Parity { stripe: FIRST, parity: 0, at: 4 }]);
    // The delta covers half of what was written.
    let half = |set: &mut PlanSet| {
        let arithmetic = step(set, 4);
        arithmetic.to = 54;
        let Step::Delta { old, new, parity, .. } = &mut arithmetic.step else { panic!() };
        *old = Operand::MemoryRange(MemoryRange::Scratch { piece: 1, offset: 0, len: 50 });
        *new = Operand::MemoryRange(MemoryRange::User { offset: 0, len: 50 });
        parity[0].1 = parity[0].1.part(0, 50);
    };
    spoiled(read_modify_write(), half, &[Violation::Parity { stripe: FIRST, parity: 0, at: 54 }]);
}

#[test]
fn rule_18_stamps_are_the_requests() {
    let stamp = |at: u32, to: VersionOf| {
        move |set: &mut PlanSet| {
            let Op::StripeWrite { stamp, .. } = &mut instruction(set, at).op else { panic!() };
            *stamp = to.clone();
        }
    };
    let wrong = [Violation::Stamp { id: id(0) }];
    spoiled(full_stripe(), stamp(0, VersionOf::Given(Version::ZERO)), &wrong);
    spoiled(rebuilt_data(), stamp(0, VersionOf::Cover { read: id(4), data: 1 }), &wrong);
    spoiled(rebuilt_data(), stamp(0, VersionOf::Read(id(1))), &wrong);
    spoiled(rebuilt_parity(), stamp(4, VersionOf::Read(id(0))), &[Violation::Stamp { id: id(4) }]);
}

#[test]
fn rule_19_columns_are_the_touched_and_all_parity() {
    let columns = |at: u32, to: u64| {
        move |set: &mut PlanSet| {
            let Op::StripeWrite { columns, .. } = &mut instruction(set, at).op else { panic!() };
            *columns = ColumnMask(to);
        }
    };
    spoiled(full_stripe(), columns(3, 0b01111), &[Violation::Columns { id: id(3) }]);
    spoiled(reconstruct_write(), columns(0, 0b11111), &[Violation::Columns { id: id(0) }]);
    spoiled(rebuilt_data(), columns(0, 0b10001), &[Violation::Columns { id: id(0) }]);
}

#[test]
fn rule_20_covers_name_what_parity_counts() {
    let cover = |at: u32, change: fn(&mut Vec<VersionOf>)| {
        move |set: &mut PlanSet| {
            let Op::StripeWrite { cover, .. } = &mut instruction(set, at).op else { panic!() };
            change(cover);
        }
    };
    let parity = [Violation::Cover { id: id(4) }];
    spoiled(full_stripe(), cover(4, |cover| cover.truncate(3)), &parity);
    spoiled(full_stripe(), cover(4, |cover| cover[0] = VersionOf::Given(Version::ZERO)), &parity);
    spoiled(reconstruct_write(), cover(4, |cover| cover[3] = cover[0].clone()), &parity);
    spoiled(
        read_modify_write(),
        cover(3, |cover| cover[0] = VersionOf::Cover { read: InstructionId(2), data: 2 }),
        &[Violation::Cover { id: id(3) }],
    );
    let data = |cover: &mut Vec<VersionOf>| cover.push(VersionOf::Given(Version::ZERO));
    spoiled(full_stripe(), cover(0, data), &[Violation::Cover { id: id(0) }]);
}

#[test]
fn rule_21_joining_columns_get_whole_units() {
    let joins = |set: &mut PlanSet| set.joining = ColumnMask::EMPTY.with(Column(1));
    let set = || with(&[], &[], |target| write(target, request(4096..8100, 0)).unwrap());
    spoiled(set(), joins, &[Violation::Joining { id: id(1) }]);
}

#[test]
fn rule_22_one_kind_of_write_in_a_stripe() {
    let mixed = |set: &mut PlanSet| {
        let Op::StripeWrite { stripe, from, to, bytes, .. } = instruction(set, 0).op.clone() else {
            panic!()
        };
        instruction(set, 0).op =
            Op::UnitWrite { stripe, from, to, bytes, operation: OperationNumber::FIRST, stamp: None };
    };
    spoiled(full_stripe(), mixed, &[Violation::Mixed { stripe: FIRST }]);
}

#[test]
fn rule_23_damage_shows() {
    let all = |missing: &[u8]| -> Vec<Violation> {
        missing
            .iter()
            .map(|&column| Violation::NotChecked { stripe: FIRST, column: Column(column) })
            .collect()
    };
    let nothing = |set: &mut PlanSet| {
        set.arithmetic.pop();
    };
    spoiled(checked(), nothing, &all(&[0, 1, 2, 3, 4]));
    let itself = |set: &mut PlanSet| {
        let Step::Compare { stored, computed, .. } = &mut step(set, 6).step else { panic!() };
        *computed = *stored;
    };
    spoiled(checked(), itself, &all(&[0, 1, 2, 3, 4]));
}

#[test]
fn unit_writes_verify_and_are_judged() {
    let set = || {
        with(&[], &[], |target| {
            unit_write(target, request(3000..5000, 0), OperationNumber::FIRST, Stamped::ByClient).unwrap()
        })
    };
    let stamp = |set: &mut PlanSet| {
        let Op::UnitWrite { stamp, .. } = &mut instruction(set, 0).op else { panic!() };
        *stamp = Some(Version::ZERO);
    };
    spoiled(set(), stamp, &[Violation::Stamp { id: id(0) }]);
    let gone = |set: &mut PlanSet| {
        set.plans.pop();
    };
    spoiled(set(), gone, &[Violation::Missing { stripe: FIRST, column: Column(1) }]);
}

#[test]
fn a_set_sent_again_leaves_out_columns_that_went() {
    let mut set = full_stripe();
    let left = set.set.without(Column(0));
    set.retarget(Generation(3), left, ColumnMask::EMPTY);
    assert_eq!((set.g, set.set), (Generation(3), left));
    let writes: Vec<u8> = set.instructions().map(|(plan, _)| plan.column.0).collect();
    assert_eq!(writes, [1, 2, 3, 4]);
}
