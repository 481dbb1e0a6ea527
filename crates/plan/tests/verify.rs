//! One broken plan set per rule of the verifier: a good one with one thing wrong, and exactly that found.

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Lease, ObjectId, Role, Scheme, Segment, Shape,
    Stripe, Version,
};
use braid_plan::{
    Arithmetic, Body, Health, Instruction, InstructionId, Op, Operand, Place, PlanSet, Source, Stamped, Step,
    Strategy, StripeNote, Target, VersionOf, Violation, Want, Write, check, read, rebuild, unit_write,
    verify, write,
};
use proptest::prelude::{ProptestConfig, any, proptest};

const UNIT: u32 = 4096;

fn segment() -> Segment {
    let shape = Shape::new(Scheme::Raid5, 4, 1, UNIT).unwrap();
    let component =
        |column: u8| Component { drive: DriveId(u128::from(column)), object: ObjectId(u64::from(column)) };
    Segment { start: 0, end: u64::MAX, shape, components: (0..5).map(component).collect() }
}

fn with<T>(out: &[u8], joining: &[u8], compile: impl Fn(&Target<'_>) -> T) -> T {
    let segment = segment();
    let mask = |columns: &[u8]| columns.iter().copied().map(Column).collect::<ColumnMask>();
    let mut health = Health::whole(&segment.shape, Generation(2));
    health.set = health.set.minus(mask(out));
    health.joining = mask(joining);
    compile(&Target { segment: &segment, index: 0, health })
}

fn request(range: std::ops::Range<u64>, size: u64) -> Write {
    let stamp = Version { g: Generation(2), lease: Lease(1), n: 9 };
    Write { range, body: Body::Buffer { offset: 0 }, size, reach: u64::MAX, stamp }
}

/// Two units of one stripe, column 1 and half of column 2, healthy. Reads 0 and 1.
fn healthy_read() -> PlanSet {
    with(&[], &[], |target| read(target, 4096..10000, 0, Want::Newest).unwrap())
}

/// Column 1 from the others.
fn degraded_read() -> PlanSet {
    with(&[1], &[], |target| read(target, 4096..8192, 0, Want::Newest).unwrap())
}

/// All of stripe 0, nothing read: writes 0 to 4, the last of them parity; encode 5.
fn full_stripe() -> PlanSet {
    with(&[], &[], |target| write(target, request(0..16384, 0)).unwrap())
}

/// Three units of stripe 0: writes 0, 1, 2; read 3 of column 3; parity write 4; encode 5.
fn reconstruct_write() -> PlanSet {
    with(&[], &[], |target| write(target, request(0..12288, 16384)).unwrap())
}

/// A hundred bytes of column 1: read 0, write 1, parity read 2, parity write 3, delta 4.
fn read_modify_write() -> PlanSet {
    with(&[], &[], |target| write(target, request(4100..4200, 16384)).unwrap())
}

/// Column 0 of stripe 0: write 0; reads 1, 2, 3 and 4 (parity); reconstruct 5.
fn rebuilt_data() -> PlanSet {
    with(&[], &[0], |target| rebuild(target, 0..1, ColumnMask::EMPTY.with(Column(0))).unwrap())
}

/// Column 4, parity of stripe 0: reads 0 to 3, write 4, encode 5.
fn rebuilt_parity() -> PlanSet {
    with(&[], &[4], |target| rebuild(target, 0..1, ColumnMask::EMPTY.with(Column(4))).unwrap())
}

/// Stripe 0: reads 0 to 4, encode 5, compare 6.
fn checked() -> PlanSet {
    with(&[], &[], |target| check(target, 0..1).unwrap())
}

fn instruction(set: &mut PlanSet, id: u32) -> &mut Instruction {
    set.plans
        .iter_mut()
        .flat_map(|plan| &mut plan.instructions)
        .find(|instruction| instruction.id == InstructionId(id))
        .unwrap()
}

fn step(set: &mut PlanSet, id: u32) -> &mut Arithmetic {
    set.arithmetic.iter_mut().find(|step| step.id == InstructionId(id)).unwrap()
}

/// `good` is good, and after `spoil` has `expected` wrong and nothing else.
fn spoiled(good: PlanSet, spoil: impl Fn(&mut PlanSet), expected: &[Violation]) {
    assert_eq!(verify(&good, &segment()), Ok(()), "{good}");
    let mut bad = good.clone();
    spoil(&mut bad);
    assert_ne!(good, bad, "nothing was spoiled");
    assert_eq!(verify(&bad, &segment()), Err(expected.to_vec()), "{bad}");
}

fn id(id: u32) -> InstructionId {
    InstructionId(id)
}

const FIRST: Stripe = Stripe(0);

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
    let place = |place: Place| {
        move |set: &mut PlanSet| {
            let Op::Read { into, .. } = &mut instruction(set, 0).op else { panic!() };
            *into = place;
        }
    };
    let wrong = [Violation::Place { id: id(0) }];
    spoiled(healthy_read(), place(Place::User { offset: 0, len: 4095 }), &wrong);
    spoiled(healthy_read(), place(Place::User { offset: 1809, len: 4096 }), &wrong);
    spoiled(healthy_read(), place(Place::Scratch { piece: 0, offset: 0, len: 4096 }), &wrong);
    spoiled(read_modify_write(), place(Place::User { offset: 0, len: 100 }), &wrong);
    let shorter = |set: &mut PlanSet| set.scratch[0] -= 1;
    let uses =
        [Violation::Place { id: id(2) }, Violation::Place { id: id(3) }, Violation::Place { id: id(4) }];
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
    // The write waits for a step that waits for a read that is sent after the write.
    let order = |set: &mut PlanSet| set.plans[1].instructions.swap(0, 1);
    spoiled(read_modify_write(), order, &[Violation::Cycle { id: id(2) }]);
}

#[test]
fn rule_10_no_byte_is_made_twice() {
    let overlap = |set: &mut PlanSet| {
        let Op::Read { into, .. } = &mut instruction(set, 1).op else { panic!() };
        *into = Place::User { offset: 4000, len: 1808 };
    };
    spoiled(healthy_read(), overlap, &[Violation::MadeTwice { id: id(1), other: id(0) }]);
}

#[test]
fn rule_11_what_is_used_was_made() {
    let unmade = |set: &mut PlanSet| {
        set.scratch.push(UNIT);
        let Step::Reconstruct { have, .. } = &mut step(set, 4).step else { panic!() };
        have[0].1 = Operand::Place(Place::Scratch { piece: 4, offset: 0, len: UNIT });
    };
    spoiled(degraded_read(), unmade, &[Violation::Undefined { id: id(4) }]);
    // Made, but for other bytes of the unit.
    let shifted = |set: &mut PlanSet| {
        set.scratch[1] = 101;
        let Step::Delta { old, .. } = &mut step(set, 4).step else { panic!() };
        *old = Operand::Place(Place::Scratch { piece: 1, offset: 1, len: 100 });
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
    // Decoded, but as another unit.
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
    // XOR treats all units alike: there this is no error.
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
        *bytes = Source::Place(Place::User { offset: 4096, len: UNIT });
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
    // The delta for half of what was written.
    let half = |set: &mut PlanSet| {
        let arithmetic = step(set, 4);
        arithmetic.to = 54;
        let Step::Delta { old, new, parity, .. } = &mut arithmetic.step else { panic!() };
        *old = Operand::Place(Place::Scratch { piece: 1, offset: 0, len: 50 });
        *new = Operand::Place(Place::User { offset: 0, len: 50 });
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
        instruction(set, 0).op = Op::UnitWrite { stripe, from, to, bytes, operation: 1, stamp: None };
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
    let set =
        || with(&[], &[], |target| unit_write(target, request(3000..5000, 0), 1, Stamped::ByClient).unwrap());
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is wrong with a set, the verifier answers: it neither panics nor hangs.
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

/// Puts `value` somewhere.
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
            Op::Read { into, .. } => *into = Place::Scratch { piece: value, offset: value, len: into.len() },
            Op::StripeWrite { to, .. } if field == 7 => *to = value,
            Op::StripeWrite { cover, .. } => cover.push(VersionOf::Read(id(value))),
            Op::UnitWrite { from, .. } => *from = value,
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
