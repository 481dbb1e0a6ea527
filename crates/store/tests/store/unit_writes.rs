//! Unit writes at their data column (PROTOCOL R2 to R4): versions, owed and settled; remembered operations;
//! doubt.

use braid_layout::{ClientId, ColumnMask, Generation, Lease, ObjectId, OperationNumber, Version};
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);

pub(crate) fn unit_write(unit: u64, from: u32, to: u32, operation: u64) -> UnitWrite {
    let bytes = pattern(operation, usize::try_from(to - from).expect("small"));
    UnitWrite {
        partition: P,
        object: O,
        unit,
        from,
        to,
        client: ClientId(11),
        operation: OperationNumber(operation),
        watermark: OperationNumber::NONE,
        g: Generation(1),
        lease: Lease(4),
        stamp: None,
        settled_below: Version::ZERO,
        body: body(from, &bytes),
    }
}

fn settled(unit: u64, up_to: Version) -> Mutation {
    Mutation::OwedSettled { partition: P, object: O, g: Generation(1), unit, up_to }
}

fn owed(store: &Store, unit: u64) -> Vec<Version> {
    let chains = store.versions(P, O, unit..unit + 1).expect("versions");
    chains.iter().flat_map(|chain| &chain.entries).filter(|e| e.owed).map(|e| e.version).collect()
}

fn read(store: &Store, unit: u64, want: Want) -> Result<Vec<u8>, Error> {
    content(store, 1, unit, 0, 8192, want)
}

fn overlaid(under: &[u8], from: usize, own: &[u8]) -> Vec<u8> {
    let mut out = under.to_vec();
    out[from..from + own.len()].copy_from_slice(own);
    out
}

/// The store after a close or a kill, opened again.
fn again(dir: &tempfile::TempDir, store: Store, killed: bool) -> (tempfile::TempDir, Store) {
    let next = tempfile::tempdir().expect("a directory");
    if killed {
        store.commit(Mutation::Flush).expect("flush");
        copy(dir.path(), next.path());
    }
    store.close().expect("close");
    if !killed {
        copy(dir.path(), next.path());
    }
    drop(store);
    let (store, recovery) = open(next.path());
    assert_eq!((recovery.damaged_count, recovery.torn_bytes), (0, 0), "{:?}", recovery.damaged);
    (next, store)
}

fn new() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    (dir, store)
}

#[test]
fn versions_rise_by_one_and_settle_in_order() {
    let (_dir, store) = new();
    let base = write(1, 0, 0, 8192, version(3, 7));
    store.commit(Mutation::Write(base)).expect("stripe write");
    let first = store.commit(Mutation::UnitWrite(unit_write(0, 100, 5000, 1))).expect("unit write");
    assert_eq!(first, MutationOutcome::Owed { from: version(3, 7), version: version(4, 1) });
    let second = store.commit(Mutation::UnitWrite(unit_write(0, 4000, 8000, 2))).expect("unit write");
    assert_eq!(second, MutationOutcome::Owed { from: version(4, 1), version: version(4, 2) });
    let zero = pattern(7, 8192);
    let one = overlaid(&zero, 100, &pattern(1, 4900));
    let two = overlaid(&one, 4000, &pattern(2, 4000));
    assert_eq!(owed(&store, 0), [version(4, 1), version(4, 2)]);
    assert_eq!(store.unsettled(P, O).expect("list"), [0]);
    assert_eq!(read(&store, 0, Want::Newest).expect("read"), zero, "owed versions are not shown");
    assert_eq!(read(&store, 0, Want::Exactly(version(4, 1))).expect("by name"), one);
    assert_eq!(read(&store, 0, Want::Exactly(version(4, 2))).expect("by name"), two);
    assert_eq!(store.commit(settled(0, version(4, 1))).expect("settled"), MutationOutcome::Applied);
    assert_eq!(store.commit(settled(0, version(4, 1))).expect("again"), MutationOutcome::Already);
    assert_eq!(read(&store, 0, Want::Newest).expect("read"), one);
    assert_eq!(owed(&store, 0), [version(4, 2)]);
    let beyond = store.commit(settled(0, version(4, 9)));
    assert!(matches!(beyond, Err(Error::Chain { tip }) if tip == version(4, 2)), "{beyond:?}");
    assert!(matches!(read(&store, 0, Want::Exactly(version(3, 7))), Err(Error::Gone { .. })));
    store.commit(settled(0, version(4, 2))).expect("settled");
    assert_eq!(read(&store, 0, Want::Newest).expect("read"), two);
    assert_eq!(store.unsettled(P, O).expect("list"), []);
    store.verify_unit(P, O, 0).expect("verify");
}

#[test]
fn a_delta_is_old_xor_new() {
    let (_dir, store) = new();
    store.commit(Mutation::UnitWrite(unit_write(0, 0, 6000, 1))).expect("unit write");
    store
        .commit(Mutation::UnitWrite(UnitWrite { body: Body::Hole, ..unit_write(0, 5000, 7000, 2) }))
        .expect("punch");
    let first = store.delta(P, O, 0, version(4, 1)).expect("delta");
    assert_eq!((first.from_version, first.to_version), (Version::ZERO, version(4, 1)));
    assert_eq!(
        (first.from, first.to, first.client, first.operation),
        (0, 6000, ClientId(11), OperationNumber(1))
    );
    assert_eq!(first.bytes, pattern(1, 6000), "over nothing it is what is new");
    assert_eq!(first.crcs, block_crcs(0, &first.bytes));
    let second = store.delta(P, O, 0, version(4, 2)).expect("delta");
    let disk = store.delta_disk_reads(P, O, 0, version(4, 2)).expect("it is owed");
    assert!(disk.1.reads >= 2 && disk.1.bytes > u64::from(second.to - second.from), "old and new: {disk:?}");
    assert_eq!(disk.0, second.client);
    let mut expected = pattern(1, 6000).split_off(5000);
    expected.resize(2000, 0);
    assert_eq!((second.from_version, second.bytes), (version(4, 1), expected.into()));
    store.commit(settled(0, version(4, 1))).expect("settled");
    assert!(matches!(store.delta(P, O, 0, version(4, 1)), Err(Error::Chain { .. })));
    assert_eq!(store.delta_disk_reads(P, O, 0, version(4, 1)), None);
}

#[test]
fn a_known_operation_is_answered_and_not_done_again() {
    let (dir, store) = new();
    let write = Mutation::UnitWrite(unit_write(0, 0, 100, 5));
    store.commit(write.clone()).expect("unit write");
    let known = |settled| MutationOutcome::Known { version: version(4, 1), settled };
    assert_eq!(store.commit(write.clone()).expect("again"), known(false));
    store.commit(settled(0, version(4, 1))).expect("settled");
    assert_eq!(store.commit(write.clone()).expect("again"), known(true));
    // The payload is overwritten and its segment may be freed. The operation is still remembered.
    store.commit(Mutation::UnitWrite(unit_write(0, 0, 100, 6))).expect("overwrite");
    store.commit(settled(0, version(4, 2))).expect("settled");
    let (dir, store) = again(&dir, store, true);
    assert_eq!(store.commit(write.clone()).expect("after a crash"), known(true));
    let (_dir, store) = again(&dir, store, false);
    assert_eq!(store.commit(write.clone()).expect("after a checkpoint"), known(true));
    let retire = Mutation::Retire {
        partition: P,
        object: O,
        g: Generation(1),
        settled_below: Version::ZERO,
        client: ClientId(11),
        watermark: OperationNumber(6),
    };
    assert_eq!(store.commit(retire.clone()).expect("retire"), MutationOutcome::Applied);
    assert_eq!(store.commit(retire).expect("again"), MutationOutcome::Already);
    assert_eq!(store.commit(write).expect("late"), MutationOutcome::Already, "the client has its answer");
    let next = UnitWrite { watermark: OperationNumber(7), ..unit_write(0, 0, 100, 7) };
    store.commit(Mutation::UnitWrite(next)).expect("the watermark rides on writes");
    let late = Mutation::UnitWrite(unit_write(0, 0, 100, 6));
    assert_eq!(store.commit(late).expect("late"), MutationOutcome::Already);
}

#[test]
fn a_unit_write_settles_a_pending_tip_and_a_stripe_write_settles_owed_ones() {
    let (_dir, store) = new();
    store.commit(Mutation::Write(write(1, 0, 0, 8192, version(4, 1)))).expect("stripe write");
    let exclusive = UnitWrite { stamp: Some(version(4, 5)), ..unit_write(0, 10, 20, 1) };
    let answer = store.commit(Mutation::UnitWrite(exclusive)).expect("unit write");
    assert_eq!(answer, MutationOutcome::Owed { from: version(4, 1), version: version(4, 5) });
    assert_eq!(read(&store, 0, Want::Settled).expect("read"), pattern(1, 8192));
    let older = UnitWrite { stamp: Some(version(4, 2)), ..unit_write(0, 10, 20, 2) };
    let answer = store.commit(Mutation::UnitWrite(older)).expect("older");
    assert_eq!(answer, MutationOutcome::Older { tip: version(4, 5) });
    store.commit(Mutation::Write(write(1, 0, 15, 30, version(5, 1)))).expect("stripe write");
    let below = overlaid(&pattern(1, 8192), 10, &pattern(1, 10));
    assert_eq!(read(&store, 0, Want::Settled).expect("read"), below);
    assert_eq!(read(&store, 0, Want::Newest).expect("read"), overlaid(&below, 15, &pattern(1, 15)));
    assert_eq!(owed(&store, 0), []);
}

#[test]
fn owed_versions_are_in_doubt_after_a_restart() {
    for killed in [true, false] {
        let (dir, store) = new();
        store.commit(Mutation::Write(write(1, 0, 0, 8192, version(3, 7)))).expect("stripe write");
        store.commit(Mutation::UnitWrite(unit_write(0, 0, 4096, 1))).expect("unit write");
        store.commit(Mutation::UnitWrite(unit_write(0, 100, 200, 2))).expect("unit write");
        let (_dir, store) = again(&dir, store, killed);
        assert_eq!(owed(&store, 0), [version(4, 1), version(4, 2)]);
        assert!(store.versions(P, O, 0..1).expect("versions")[0].in_doubt);
        for want in [Want::Newest, Want::Settled] {
            assert!(matches!(read(&store, 0, want), Err(Error::InDoubt { tip }) if tip == version(4, 2)));
        }
        assert_eq!(store.unsettled(P, O).expect("list"), [0]);
        let delta = store.delta(P, O, 0, version(4, 2)).expect("they are sent again");
        assert_eq!(
            (delta.from_version, delta.client, delta.operation),
            (version(4, 1), ClientId(11), OperationNumber(2))
        );
        let known = MutationOutcome::Known { version: version(4, 2), settled: false };
        assert_eq!(store.commit(Mutation::UnitWrite(unit_write(0, 100, 200, 2))).expect("again"), known);
        store.commit(settled(0, version(4, 2))).expect("settled");
        let base = overlaid(&pattern(7, 8192), 0, &pattern(1, 4096));
        assert_eq!(read(&store, 0, Want::Newest).expect("read"), overlaid(&base, 100, &pattern(2, 100)));
    }
}

#[test]
fn a_verdict_takes_owed_versions_back_and_their_operations_can_be_done_again() {
    let (dir, store) = new();
    for operation in 1..=3 {
        store.commit(Mutation::UnitWrite(unit_write(0, 0, 100, operation))).expect("unit write");
    }
    let verdict = |forward: &[Version], back: &[Version]| {
        let forward = forward.to_vec();
        let back = back.to_vec();
        let units = vec![UnitVerdict { unit: 0, forward, back, cut_offs: Vec::new() }];
        Mutation::Verdict { partition: P, object: O, g: Generation(1), units }
    };
    let mutation = verdict(&[version(4, 1)], &[version(4, 2)]);
    assert_eq!(store.commit(mutation.clone()).expect("verdict"), MutationOutcome::Applied);
    assert_eq!(store.commit(mutation).expect("again"), MutationOutcome::Already);
    let (_dir, store) = again(&dir, store, true);
    assert_eq!(owed(&store, 0), []);
    assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("read"), pattern(1, 100));
    let again = store.commit(Mutation::UnitWrite(unit_write(0, 0, 100, 3))).expect("done again");
    assert_eq!(again, MutationOutcome::Owed { from: version(4, 1), version: version(4, 2) });
}

#[test]
fn a_fence_drops_what_is_not_settled_where_the_column_joins() {
    for killed in [false, true] {
        let (dir, store) = new();
        for operation in 1..=3 {
            store.commit(Mutation::UnitWrite(unit_write(0, 0, 100, operation))).expect("unit write");
        }
        store.commit(settled(0, version(4, 1))).expect("settled");
        store.commit(Mutation::Write(write(1, 1, 0, 100, version(4, 9)))).expect("a stripe write");
        let own = ColumnMask::EMPTY.with(attributes().column);
        let fence = |g, joining| {
            let g = Generation(g);
            let set = ColumnMask::all(5);
            store.commit(Mutation::Fence { partition: P, object: O, g, set, joining }).expect("fence")
        };
        fence(2, ColumnMask::all(5).minus(own));
        assert_eq!(owed(&store, 0), [version(4, 2), version(4, 3)], "others join");
        assert_eq!(store.unsettled(P, O).expect("known"), [0, 1]);
        fence(3, own);
        assert_eq!(store.unsettled(P, O).expect("known"), []);
        assert_eq!(fence(3, own), MutationOutcome::Already);
        let (_dir, store) = again(&dir, store, killed);
        assert_eq!(store.unsettled(P, O).expect("known"), []);
        assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("read"), pattern(1, 100));
        assert!(store.versions(P, O, 1..2).expect("versions").iter().all(|chain| chain.entries.is_empty()));
        let anew = UnitWrite { g: Generation(3), ..unit_write(0, 0, 100, 3) };
        let anew = store.commit(Mutation::UnitWrite(anew)).expect("done again");
        let made = Version { g: Generation(3), lease: Lease(4), n: 1 };
        assert_eq!(anew, MutationOutcome::Owed { from: version(4, 1), version: made });
    }
}

#[test]
fn refusals() {
    let (_dir, store) = new();
    let check = |write: UnitWrite| store.commit(Mutation::UnitWrite(write));
    let stale = check(UnitWrite { g: Generation(2), ..unit_write(0, 0, 10, 1) });
    assert!(matches!(stale, Err(Error::StaleGeneration { .. })), "{stale:?}");
    let long = check(UnitWrite { body: Body::Hole, ..unit_write(0, 0, UNIT + 1, 1) });
    assert!(matches!(long, Err(Error::Malformed(_))), "{long:?}");
    let zero = check(UnitWrite { stamp: Some(Version::ZERO), ..unit_write(0, 0, 10, 1) });
    assert!(matches!(zero, Err(Error::Malformed(_))), "{zero:?}");
    let parity = Write { columns: ColumnMask::all(4), ..write(1, 7, 0, 100, version(2, 1)) };
    let parity = counting(parity, WriteKind::StripeParity, vec![version(2, 1)]);
    store.commit(Mutation::Write(parity)).expect("parity");
    assert!(matches!(check(unit_write(7, 0, 10, 1)), Err(Error::Malformed(_))));
    for operation in 0..u64::try_from(OWED_MAX).expect("small") {
        check(unit_write(3, 0, 10, operation)).expect("within the bound");
    }
    assert!(matches!(check(unit_write(3, 0, 10, 99)), Err(Error::Backlog(OWED_MAX))));
    let quota = Mutation::PartitionSet { partition: P, quota_bytes: Some(1000), key_epoch: 1 };
    store.commit(quota).expect("quota");
    assert!(matches!(check(unit_write(4, 0, 900, 1)), Err(Error::Quota { .. })));
}
