//! Verifying a unit: few reads, and damage is located to the block.

use std::sync::Arc;

use braid_layout::ObjectId;
use braid_store::disk::memory::{Memory, On};
use braid_store::*;

use crate::common::*;

const FROM: u32 = 100;
const TO: u32 = 2_600_000;
const SEGMENT: &str = "log/00000001.seg";

/// A store with a unit that is mostly stored, and the offset of its payload in the segment.
fn stored() -> (Memory, Store, usize) {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let (store, _) = Store::open_on(Arc::new(disk.clone()), None, options()).expect("open");
    let attributes = Attributes { unit_bytes: 4 << 20, ..attributes() };
    let partition = P;
    let object = ObjectId(1);
    for mutation in [
        Mutation::PartitionCreate { partition, quota_bytes: None, key_epoch: 1 },
        Mutation::Create { partition, object, attributes },
        Mutation::Write(write(1, 0, FROM, TO, version(1, 1))),
    ] {
        store.commit(mutation).expect("commit");
    }
    let bytes = disk.content(SEGMENT).expect("the segment");
    let payload = bytes.windows(64).position(|window| window == &pattern(1, 64)[..]).expect("the payload");
    (disk, store, payload)
}

/// The offset in the file of the block of a unit's byte.
fn block_of(payload: usize, at: u32) -> u64 {
    let begin = (at / BLOCK_BYTES * BLOCK_BYTES).max(FROM);
    u64::try_from(payload).expect("small") + u64::from(begin - FROM)
}

fn verify(store: &Store) -> Result<u64, Error> {
    store.verify_unit(P, ObjectId(1), 0)
}

#[test]
fn a_unit_is_read_by_several_blocks_at_once() {
    let (disk, store, _) = stored();
    let before = disk.operations(On::Read);
    assert_eq!(verify(&store).expect("whole"), u64::from(TO - FROM));
    let reads = disk.operations(On::Read) - before;
    assert!(reads <= u64::from(TO / BLOCK_BYTES / 7), "{reads} reads");
}

#[test]
fn a_wrong_byte_is_told_by_its_block() {
    let (disk, store, payload) = stored();
    for at in [FROM, 4095, 4096, (32 << 10) - 1, 32 << 10, 2_000_000, TO - 1] {
        let bit = 8 * (u64::try_from(payload).expect("small") + u64::from(at - FROM));
        assert!(disk.flip(SEGMENT, bit));
        let found = verify(&store);
        assert!(
            matches!(found, Err(Error::Damaged { segment: 1, offset, .. }) if offset == block_of(payload, at)),
            "byte {at}: {found:?}"
        );
        assert!(disk.flip(SEGMENT, bit));
        verify(&store).expect("whole again");
    }
}

#[test]
fn a_segment_that_ends_early_is_told_by_the_block_that_is_not_there() {
    let (disk, store, payload) = stored();
    let whole = disk.content(SEGMENT).expect("the segment");
    for at in [FROM + 50, 5000, 1_500_000, TO - 1] {
        let length = payload + usize::try_from(at - FROM).expect("small");
        disk.plant(SEGMENT, &whole[..length]);
        let found = verify(&store);
        assert!(
            matches!(found, Err(Error::Damaged { segment: 1, offset, .. }) if offset == block_of(payload, at)),
            "cut at {at}: {found:?}"
        );
    }
}

#[test]
fn damage_is_repaired_under_its_own_version_and_nothing_newer_is_undone() {
    let (disk, store, payload) = stored();
    store.commit(settled(1, version(1, 2))).expect("settle");
    let installed = |standing, stamp| {
        let whole = write(1, 0, FROM, TO, stamp);
        store.commit(Mutation::Write(Write { standing, ..whole })).expect("commit")
    };
    let bit = 8 * u64::try_from(payload).expect("small");
    assert!(disk.flip(SEGMENT, bit));
    // The unit's record is whole, so a caller that does not know of the damage has nothing to install.
    assert_eq!(installed(Standing::Installed, version(1, 1)), MutationOutcome::Already);
    verify(&store).expect_err("damaged");
    assert_eq!(installed(Standing::Repaired, version(1, 1)), MutationOutcome::Applied);
    verify(&store).expect("whole");
    verify(&store).expect("whole");

    store.commit(Mutation::Write(write(1, 0, FROM, TO, version(1, 3)))).expect("a newer one");
    store.commit(settled(1, version(1, 4))).expect("settle");
    let older = installed(Standing::Repaired, version(1, 1));
    assert_eq!(older, MutationOutcome::Older { tip: version(1, 3) });

    drop(store);
    let (store, recovery) = Store::open_on(Arc::new(disk), None, options()).expect("open");
    assert!(recovery.damaged.is_empty(), "{recovery:?}");
    verify(&store).expect("whole after a replay, too");
    assert_eq!(store.versions(P, ObjectId(1), 0..1).expect("known")[0].entries[0].version, version(1, 3));
}

#[test]
fn what_only_a_still_shows_is_verified_for_it_and_made_anew_in_it() {
    let (disk, store, payload) = stored();
    store.commit(settled(1, version(1, 2))).expect("settle");
    let still = ObjectId(9);
    let base = store.object(P, ObjectId(1)).expect("attributes");
    store
        .commit(Mutation::Take { partition: P, object: ObjectId(1), g: base.g, still, attributes: base })
        .expect("take");
    assert_eq!(store.units(P, still, 0, 10).expect("list"), [], "to verify the base is enough");
    store.commit(Mutation::Write(write(1, 0, FROM, TO, version(1, 3)))).expect("a newer one");
    store.commit(settled(1, version(1, 4))).expect("settle");
    assert_eq!(store.units(P, still, 0, 10).expect("list"), [0]);
    assert!(disk.flip(SEGMENT, 8 * u64::try_from(payload).expect("small")));
    verify(&store).expect("the object's own are not damaged");
    store.verify_unit(P, still, 0).expect_err("the still's bytes are");
    let repaired = Write { standing: Standing::Repaired, ..write(9, 0, FROM, TO, version(1, 1)) };
    assert_eq!(store.commit(Mutation::Write(repaired)).expect("repaired"), MutationOutcome::Applied);
    store.verify_unit(P, still, 0).expect("whole");
    assert!(content(&store, 9, 0, FROM, TO, Want::Newest).expect("read").len() > 1);
    let written = Write { standing: Standing::Pending, ..write(9, 0, FROM, TO, version(1, 9)) };
    assert!(matches!(store.commit(Mutation::Write(written)), Err(Error::Malformed(_))), "it has no writers");
}
