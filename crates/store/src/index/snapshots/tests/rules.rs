//! The rules of stills, one by one: what is refused, husks, and what damage does.

use super::*;

fn decide(run: &Driver, mutation: &Mutation) -> Result<Option<MutationOutcome>, Error> {
    match check(&run.index, &mut Growth::default(), mutation)? {
        Decision::Answer(outcome) => Ok(Some(outcome)),
        _ => Ok(None),
    }
}

#[test]
fn a_take_is_the_same_when_it_is_repeated_and_refused_where_it_would_be_another() {
    let mut run = Driver::new();
    let still = ObjectId(9);
    assert!(run.ask(&take(still)));
    assert_eq!(decide(&run, &take(still)).expect("the same again"), Some(MutationOutcome::Already));
    let of = |object, still| Mutation::Take {
        partition: P,
        object,
        g: Generation(1),
        still,
        attributes: attributes(),
    };
    assert!(matches!(decide(&run, &of(still, ObjectId(10))), Err(Error::Malformed(_))), "a still of a still");
    assert!(run.ask(&Mutation::Create { partition: P, object: ObjectId(3), attributes: attributes() }));
    for exists in [of(ObjectId(3), still), of(O, ObjectId(3))] {
        assert!(matches!(decide(&run, &exists), Err(Error::Exists(..))), "{exists:?}");
    }
    let other = Attributes { unit_bytes: 2 * UNIT, ..attributes() };
    let other =
        Mutation::Take { partition: P, object: O, g: Generation(1), still: ObjectId(4), attributes: other };
    assert!(matches!(decide(&run, &other), Err(Error::Malformed(_))));
    let fence = |joining| Mutation::Fence {
        partition: P,
        object: O,
        g: Generation(2),
        set: ColumnMask::all(3),
        joining,
    };
    assert!(run.ask(&fence(ColumnMask(1))));
    let joining = Mutation::Take {
        partition: P,
        object: O,
        g: Generation(2),
        still: ObjectId(4),
        attributes: attributes(),
    };
    assert!(matches!(decide(&run, &joining), Err(Error::Unsettled { unit: 0, .. })), "the column is joining");
}

#[test]
fn a_husk_is_gone_for_all_but_its_stills_and_goes_with_the_last() {
    let mut run = Driver::new();
    run.step(&Step::Write { unit: 0, from: 0, length: UNIT, hole: false, install: true });
    run.step(&Step::Take);
    run.step(&Step::Write { unit: 0, from: 0, length: 8, hole: false, install: true });
    run.step(&Step::Write { unit: 1, from: 0, length: 8, hole: false, install: true });
    run.step(&Step::Take);
    run.step(&Step::Write { unit: 1, from: 0, length: 8, hole: false, install: true });
    run.delta(0, 0..8, false);
    let remove = |object| Mutation::Remove { partition: P, object, g: Generation(1) };
    assert!(run.ask(&remove(O)));
    let check = |run: &Driver| {
        for (&still, units) in &run.taken {
            for (unit, expected) in (0..).zip(units) {
                assert_eq!(&run.shown(still, unit), expected, "still {still}, unit {unit}");
            }
        }
        assert!(matches!(run.index.find_object(P, O), Err(Error::NoObject(..))));
        let create = Mutation::Create { partition: P, object: O, attributes: attributes() };
        assert!(matches!(decide(run, &create), Err(Error::Exists(..))));
        assert_eq!(decide(run, &remove(O)).expect("gone"), Some(MutationOutcome::Already));
        let unsettled = &run.index.partitions[&P].objects[&O];
        assert!(unsettled.unsettled().is_empty() && unsettled.units.get(PARITY).is_none());
    };
    check(&run);
    let image = run.index.image(Key::FIRST).expect("it is not big");
    let mut loaded = Loaded::default();
    loaded.page(Key::FIRST, image.to, &image.parts[0]).expect("a page");
    let head = run.index.head;
    run.index = loaded.into_index();
    (run.index.head, run.index.serving) = (head, true);
    check(&run);
    let stills: Vec<ObjectId> = run.taken.keys().copied().collect();
    assert!(run.ask(&remove(stills[0])));
    run.taken.remove(&stills[0]);
    check(&run);
    assert!(run.ask(&remove(stills[1])));
    assert!(run.index.partitions[&P].objects.is_empty(), "the husk goes with its last still");
    assert_eq!((run.index.partitions[&P].used, run.index.segments.live()), (0, 0));
    assert!(run.ask(&Mutation::Create { partition: P, object: O, attributes: attributes() }));
}

#[test]
fn what_no_still_names_goes_at_the_opening() {
    let mut run = Driver::new();
    run.step(&Step::Write { unit: 0, from: 0, length: UNIT, hole: false, install: true });
    run.step(&Step::Take);
    run.step(&Step::Write { unit: 0, from: 0, length: UNIT, hole: false, install: true });
    let still = *run.taken.keys().next().expect("taken");
    run.index.drop_unnamed_snapshots();
    assert!(run.index.find_object(P, O).expect("the object").newest_snapshot() > 0, "its still is there");
    // Damage has hit the still.
    run.index.drop_object(P, still);
    run.taken.clear();
    run.index.drop_unnamed_snapshots();
    assert_eq!(run.index.find_object(P, O).expect("the object").newest_snapshot(), 0);
    run.check();
}

#[test]
fn a_still_whose_base_is_lost_or_another_is_damaged() {
    let taken = || {
        let mut run = Driver::new();
        run.step(&Step::Write { unit: 0, from: 0, length: UNIT, hole: false, install: true });
        run.step(&Step::Take);
        let still = *run.taken.keys().next().expect("taken");
        (run, still)
    };
    let is_damaged = |run: &Driver, still| matches!(run.index.shown(P, still), Err(Error::Damaged { .. }));
    let (mut run, still) = taken();
    assert!(!is_damaged(&run, still));
    run.index.mark_lost(P, O, None, LogPosition { segment: 1, block: 1 });
    assert!(is_damaged(&run, still));
    // The lost base is removed whatever it was, and another of its number has a snapshot of the same number.
    assert!(run.ask(&Mutation::Remove { partition: P, object: O, g: Generation(1) }));
    assert!(run.ask(&Mutation::Create { partition: P, object: O, attributes: attributes() }));
    assert!(run.ask(&take(ObjectId(9))));
    assert!(is_damaged(&run, still));
    assert!(!is_damaged(&run, ObjectId(9)));
    assert!(run.ask(&Mutation::Remove { partition: P, object: still, g: Generation(1) }));
    assert!(!is_damaged(&run, ObjectId(9)), "the removal of the lost still drops nothing of the other");
}
