//! Damage: found, named and confined, never read as data or as an older version, and never a panic.

use std::path::{Path, PathBuf};

use braid_layout::{ColumnMask, Generation, ObjectId, Version};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);

/// A store with two versions of unit 0 (the older settled), one of unit 1 and of unit 2, cleanly closed.
/// Returns the offset of each write's record in the only segment.
fn image(dir: &Path) -> (PathBuf, Vec<usize>) {
    let store = fresh(dir, options());
    store.commit(create(1)).expect("create");
    let path = segments(dir).remove(0);
    let mut starts = Vec::new();
    for (unit, n, length) in [(1, 1, 5000), (0, 2, 9000), (0, 3, 9000), (2, 4, 5000)] {
        starts.push(usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small"));
        store.commit(Mutation::Write(write(1, unit, 0, length, version(1, n)))).expect("write");
    }
    store.close().expect("close");
    (path, starts)
}

/// Open without checkpoints, so that all of the log is read.
fn open_log(dir: &Path) -> (Store, Recovery) {
    without_checkpoints(dir);
    open(dir)
}

#[test]
fn a_flipped_bit_anywhere_in_a_header_loses_its_unit_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, starts) = image(dir.path());
    let good = std::fs::read(&path).expect("read");
    // The newest version of unit 0: the older one must not replace it.
    for byte in 0..512 {
        let mut bad = good.clone();
        bad[starts[2] + byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bad).expect("write");
        let (store, recovery) = open_log(dir.path());
        assert_eq!(recovery.torn_bytes, 0, "byte {byte}");
        assert!(recovery.damaged_count >= 1, "byte {byte} was not found");
        assert_eq!(recovery.damaged[0].offset, u64::try_from(starts[2]).expect("small"), "byte {byte}");
        for want in [Want::Newest, Want::Settled, Want::Exactly(version(1, 2))] {
            let read = content(&store, 1, 0, 0, 9000, want);
            assert!(matches!(read, Err(Error::Damaged { .. })), "byte {byte}: {read:?}");
        }
        assert!(store.versions(P, O, 0..1).expect("versions")[0].lost);
        assert_eq!(content(&store, 1, 1, 0, 5000, Want::Newest).expect("before it"), pattern(1, 5000));
        assert_eq!(content(&store, 1, 2, 0, 5000, Want::Newest).expect("after it"), pattern(4, 5000));
        let refused = store.commit(Mutation::Write(write(1, 0, 0, 10, version(1, 9))));
        assert!(
            matches!(refused, Err(Error::Damaged { .. })),
            "a lost unit takes no part of itself: {refused:?}"
        );
        if byte % 100 == 0 {
            let mut install = write(1, 0, 0, 100, version(1, 8));
            install.standing = Standing::Installed;
            store.commit(Mutation::Write(install)).expect("install");
            drop(store);
            let (store, recovery) = open(dir.path());
            assert_eq!(recovery.damaged_count, 0, "a checkpoint knows it: the damage is not met again");
            assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("healed"), pattern(8, 100));
        } else if byte % 100 == 50 {
            drop(store);
            let (store, recovery) = open(dir.path());
            assert_eq!(recovery.damaged_count, 0);
            let read = content(&store, 1, 0, 0, 9000, Want::Newest);
            assert!(matches!(read, Err(Error::Damaged { .. })), "what is lost stays lost: {read:?}");
        }
        std::fs::write(&path, &good).expect("write");
    }
}

#[test]
fn a_flipped_bit_in_a_payload_never_passes_as_data() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, starts) = image(dir.path());
    let good = std::fs::read(&path).expect("read");
    for at in [0, 4095, 4096, 8191, 8192, 8999] {
        let mut bad = good.clone();
        bad[starts[2] + 512 + at] ^= 0x10;
        std::fs::write(&path, &bad).expect("write");
        let (store, recovery) = open_log(dir.path());
        assert_eq!(
            (recovery.torn_bytes, recovery.damaged_count),
            (0, 0),
            "payloads are verified by their readers"
        );
        let whole = content(&store, 1, 0, 0, 9000, Want::Newest);
        assert!(matches!(whole, Err(Error::Damaged { .. })), "what is short is verified here: {whole:?}");
        let at = u32::try_from(at).expect("small");
        let part = content(&store, 1, 0, at, at + 1, Want::Newest);
        assert!(matches!(part, Err(Error::Damaged { .. })), "a part is verified here: {part:?}");
        assert!(matches!(store.verify_unit(P, O, 0), Err(Error::Damaged { .. })));
        store.verify_unit(P, O, 1).expect("another unit is whole");
    }
}

#[test]
fn a_damaged_tail_that_was_never_known_to_be_durable_is_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { sync: true, ..options() });
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    let copied = tempfile::tempdir().expect("a directory");
    copy(dir.path(), copied.path());
    let path = segments(copied.path()).remove(0);
    let good = std::fs::read(&path).expect("read");
    let start = good.len() - 512 - 5120;
    for at in [0, 100, 511, 512, 5000] {
        let mut bad = good.clone();
        bad[start + at] ^= 1;
        std::fs::write(&path, &bad).expect("write");
        let (store, recovery) = open_log(copied.path());
        assert_eq!((recovery.torn_bytes, recovery.damaged_count), (512 + 5120, 0), "byte {at}");
        assert_eq!(store.versions(P, O, 0..9).expect("versions"), []);
    }
}

#[test]
fn several_lost_records_make_everything_before_them_doubtful() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, starts) = image(dir.path());
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[starts[1]..starts[3]].fill(0);
    std::fs::write(&path, &bytes).expect("write");
    let (store, recovery) = open_log(dir.path());
    assert!(recovery.damaged_count >= 2, "{:?}", recovery.damaged);
    for unit in 0..3 {
        let read = content(&store, 1, unit, 0, 100, Want::Newest);
        assert!(matches!(read, Err(Error::Damaged { .. })), "unit {unit}: {read:?}");
    }
    assert!(matches!(store.partition(P), Err(Error::Damaged { .. })), "its values may be older ones");
    store.commit(remove(1)).expect("a doubtful object can be removed");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("and the partition made anew");
    store.commit(create(1)).expect("and the object");
    drop(store);
    let (store, _) = open(dir.path());
    assert_eq!(store.versions(P, O, 0..9).expect("versions"), []);
}

#[test]
fn damage_to_an_objects_attributes_is_no_absence() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, starts) = image(dir.path());
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[starts[0] - 512] ^= 1;
    std::fs::write(&path, &bytes).expect("write");
    let (store, recovery) = open_log(dir.path());
    assert!(recovery.damaged_count >= 1);
    assert!(matches!(store.object(P, O), Err(Error::Damaged { .. })));
    assert!(matches!(content(&store, 1, 1, 0, 9, Want::Newest), Err(Error::Damaged { .. })));
}

/// The log of a store after `steps`, closed and without a checkpoint, and the offset of each step's record.
fn logged(dir: &Path, steps: &[Mutation]) -> (PathBuf, Vec<usize>) {
    let store = fresh(dir, options());
    let path = segments(dir).remove(0);
    let mut starts = Vec::new();
    for step in steps {
        starts.push(usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small"));
        store.commit(step.clone()).expect("a step");
    }
    store.close().expect("close");
    without_checkpoints(dir);
    (path, starts)
}

fn spoil_headers(path: &Path, starts: &[usize]) {
    let mut bytes = std::fs::read(path).expect("read");
    starts.iter().for_each(|&at| bytes[at] ^= 1);
    std::fs::write(path, &bytes).expect("write");
}

#[test]
fn the_values_of_a_partition_are_not_older_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let partition = P;
    let quota_bytes = None;
    let key_epoch = 2;
    let steps = [
        create(1),
        Mutation::Write(write(1, 0, 0, 5000, version(1, 1))),
        Mutation::PartitionSet { partition, quota_bytes, key_epoch },
        Mutation::Write(write(1, 1, 0, 5000, version(1, 2))),
    ];
    let (path, starts) = logged(dir.path(), &steps);
    spoil_headers(&path, &starts[2..3]);
    for round in 0..2 {
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count > 0, round == 0, "{:?}", recovery.damaged);
        let state = store.partition(P);
        assert!(matches!(state, Err(Error::Damaged { .. })), "round {round}: {state:?}");
        assert!(matches!(content(&store, 1, 0, 0, 9, Want::Newest), Err(Error::Damaged { .. })));
    }
    let (store, _) = open(dir.path());
    store.commit(Mutation::PartitionCreate { partition, quota_bytes, key_epoch }).expect("made anew");
    assert_eq!(store.partition(P).expect("known").key_epoch, 2);
    for (unit, n) in [(0, 1), (1, 2)] {
        assert_eq!(content(&store, 1, unit, 0, 5000, Want::Newest).expect("read"), pattern(n, 5000));
    }
}

/// An object whose creation is in lost records, and that only later ones mention: the writes in between are
/// lost.
#[test]
fn an_object_made_in_lost_records_has_no_units_that_were_never_written() {
    let write = |object, unit, n| Mutation::Write(write(object, unit, 0, 5000, version(1, n)));
    let change = Change { modified_ms: Some(7), ..Change::default() };
    let set = Mutation::SetAttributes { partition: P, object: ObjectId(2), g: Generation(1), change };
    // Several consecutive records, and two separate ones.
    let in_a_row = vec![create(1), create(2), write(2, 0, 1), write(1, 0, 2), write(2, 1, 3), set.clone()];
    let apart =
        vec![create(1), create(2), write(1, 0, 2), write(2, 0, 1), write(1, 1, 4), write(2, 1, 3), set];
    for (steps, lost) in [(in_a_row, vec![1, 2, 3]), (apart, vec![1, 3])] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, starts) = logged(dir.path(), &steps);
        spoil_headers(&path, &lost.iter().map(|&step: &usize| starts[step]).collect::<Vec<_>>());
        for _ in 0..2 {
            let (store, _) = open(dir.path());
            let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
            store.commit(make).expect("known, or made anew");
            let read = content(&store, 2, 0, 0, 100, Want::Newest);
            assert!(matches!(read, Err(Error::Damaged { .. })), "lost {lost:?}: {read:?}");
            let wrote = store.commit(write(2, 0, 9));
            assert!(matches!(wrote, Err(Error::Damaged { .. })), "lost {lost:?}: {wrote:?}");
        }
        let (store, _) = open(dir.path());
        store.commit(remove(2)).expect("remove");
        store.commit(create(2)).expect("made anew");
        assert_eq!(store.versions(P, ObjectId(2), 0..9).expect("versions"), []);
    }
}

/// An object is removed and made again. The records of both are lost, with the first write's: on one page, or
/// each separately.
#[test]
fn what_is_lost_of_an_object_that_was_made_again_stays_lost() {
    let write = |unit, n| Mutation::Write(write(1, unit, 0, 5000, version(1, n)));
    let change = Change { modified_ms: Some(7), ..Change::default() };
    let set = Mutation::SetAttributes { partition: P, object: ObjectId(1), g: Generation(1), change };
    let steps =
        [create(1), write(0, 1), create(2), create(3), remove(1), create(1), write(0, 2), write(1, 3), set];
    for lost in [vec![4, 5, 6], vec![5, 6]] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, starts) = logged(dir.path(), &steps);
        spoil_headers(&path, &lost.iter().map(|&step: &usize| starts[step]).collect::<Vec<_>>());
        for _ in 0..2 {
            let (store, _) = open(dir.path());
            let read = content(&store, 1, 0, 0, 100, Want::Newest);
            assert!(matches!(read, Err(Error::Damaged { .. })), "lost {lost:?}: {read:?}");
        }
    }
}

/// Nothing is pending when a still is taken. If the record that settled a write is lost, the write is pending
/// again, and the settled content is not the still's.
#[test]
fn a_still_whose_settling_is_lost_shows_nothing_older() {
    let write = |unit, n| Mutation::Write(write(1, unit, 0, 5000, version(1, n)));
    let take = take(1, 9);
    let settle = |n| settled(1, version(1, n));
    let steps = [create(1), write(0, 1), write(1, 2), settle(3), write(0, 3), settle(4), take, write(1, 4)];
    for again in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut steps = steps.to_vec();
        if again {
            steps.push(settle(5));
        }
        let (path, starts) = logged(dir.path(), &steps);
        spoil_headers(&path, &[starts[5]]);
        for _ in 0..2 {
            let (store, _) = open(dir.path());
            let shown = |unit| store.read(P, ObjectId(9), unit, 0..5000, Want::Newest);
            assert!(matches!(shown(0), Err(Error::Damaged { .. })), "{again}: {:?}", shown(0));
            let other = shown(1).and_then(|view| read_stored(&view)).expect("settled by another record");
            assert!(other == pattern(2, 5000), "{again}");
        }
    }
}

/// A header is unreadable once, and its object is removed meanwhile: rereading the header does not bring the
/// object back.
#[test]
fn a_removed_object_stays_removed_if_the_record_of_its_making_is_read_again() {
    for anew in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let later = tempfile::tempdir().expect("a directory");
        let mut steps = vec![create(1), create(2)];
        if anew {
            steps.extend([remove(1), create(1)]);
        }
        let (path, starts) = logged(dir.path(), &steps);
        let good = std::fs::read(&path).expect("read");
        spoil_headers(&path, if anew { &starts[2..4] } else { &starts[..1] });
        let (store, _) = open(dir.path());
        store.commit(remove(1)).expect("remove");
        // The store is killed before there is a checkpoint.
        copy_log(dir.path(), later.path());
        drop(store);
        let path = segments(later.path()).remove(0);
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[..good.len()].copy_from_slice(&good);
        std::fs::write(&path, bytes).expect("write");
        let (store, _) = open(later.path());
        let found = store.object(P, ObjectId(1));
        assert!(matches!(found, Err(Error::NoObject(..))), "made anew: {anew}: {found:?}");
        store.object(P, ObjectId(2)).expect("another");
    }
}

#[test]
fn a_sealed_segment_cut_short_is_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    for n in 1..=8 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    drop(store);
    let paths = segments(dir.path());
    assert!(paths.len() >= 2, "the log has more than one segment");
    let file = std::fs::OpenOptions::new().write(true).open(&paths[0]).expect("open");
    let length = file.metadata().expect("stat").len();
    let last = (1..=8).rev().find(|&n| length > 512 * 4 + u64::from(UNIT + 512) * (n - 1)).expect("one");
    for cut in [length - 600, length - u64::from(UNIT) - 100] {
        file.set_len(cut).expect("cut");
        let (store, recovery) = open_log(dir.path());
        assert!(recovery.damaged_count >= 1, "{recovery:?}");
        assert_eq!(recovery.torn_bytes, 0);
        assert!(matches!(content(&store, 1, last, 0, UNIT, Want::Newest), Err(Error::Damaged { .. })));
        assert_eq!(content(&store, 1, 1, 0, 9, Want::Newest).expect("read"), pattern(1, 9));
        assert_eq!(content(&store, 1, 8, 0, 9, Want::Newest).expect("read"), pattern(8, 9));
    }
}

/// A change to a log's bytes.
#[derive(Debug, Clone)]
enum Spoil {
    Flip { at: usize, bit: u8 },
    Zero { at: usize, length: usize },
    Move { from: usize, to: usize, length: usize },
    Cut { at: usize },
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let at = 0..40_000_usize;
    prop_oneof![
        (at.clone(), 0..8_u8).prop_map(|(at, bit)| Spoil::Flip { at, bit }),
        (at.clone(), 1..3000_usize).prop_map(|(at, length)| Spoil::Zero { at, length }),
        (at.clone(), at.clone(), 1..20_usize).prop_map(|(from, to, blocks)| Spoil::Move {
            from: from / 512 * 512,
            to: to / 512 * 512,
            length: blocks * 512,
        }),
        at.prop_map(|at| Spoil::Cut { at }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_open_without_panic_and_nothing_wrong_is_read(spoils in prop::collection::vec(spoil(), 1..4)) {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, _) = image(dir.path());
        let mut bytes = std::fs::read(&path).expect("read");
        for spoil in spoils {
            let length = bytes.len();
            match spoil {
                Spoil::Flip { at, bit } => bytes[at % length] ^= 1 << bit,
                Spoil::Zero { at, length: n } => bytes[at % length..].iter_mut().take(n).for_each(|b| *b = 0),
                Spoil::Move { from, to, length: n } => {
                    let piece: Vec<u8> = bytes[from % length..].iter().copied().take(n).collect();
                    bytes[to % length..].iter_mut().zip(piece).for_each(|(b, p)| *b = p);
                }
                Spoil::Cut { at } => bytes.truncate((at % length).max(1)),
            }
        }
        std::fs::write(&path, &bytes).expect("write");
        without_checkpoints(dir.path());
        let Ok((store, _)) = Store::open(dir.path(), None, options()) else { return Ok(()) };
        for (unit, n) in [(1, 1), (0, 3), (2, 4)] {
            let Ok(view) = store.read(P, O, unit, 0..5000, Want::Newest) else { continue };
            if let Ok(read) = content(&store, 1, unit, 0, 5000, Want::Newest)
                && view.version != Version::ZERO
            {
                let n = if view.version == version(1, 2) { 2 } else { n };
                prop_assert!(read == pattern(n, 5000), "unit {unit} reads as something that was never written");
            }
        }
    }

    #[test]
    fn records_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 12 {
            bytes[..4].copy_from_slice(b"BRec");
            bytes[10] = 0;
            bytes[11] = 0;
        }
        let _ = decode_record(&bytes);
    }
}

/// Unit 0 read from the log alone, after `steps` and then another step, with the record of step `lost`
/// damaged.
fn read_without(steps: &[Mutation], lost: usize) -> Result<Vec<u8>, Error> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let path = segments(dir.path()).remove(0);
    let mut at = 0;
    for (i, step) in steps.iter().enumerate() {
        if i == lost {
            at = usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
        }
        store.commit(step.clone()).expect("a step");
    }
    store.commit(Mutation::Write(write(1, 1, 0, 10, version(2, 99)))).expect("write");
    store.close().expect("close");
    drop(store);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[at + 40] ^= 4;
    std::fs::write(&path, &bytes).expect("write");
    let (store, recovery) = open_log(dir.path());
    assert!(recovery.damaged_count > 0);
    content(&store, 1, 0, 0, UNIT, Want::Newest)
}

#[test]
fn what_is_settled_later_does_not_stand_in_for_a_newer_write_that_is_lost() {
    let whole = |n| write(1, 0, 0, UNIT, version(1, n));
    let settled = |below| settled(1, version(1, below));
    let installed = |n| Mutation::Write(Write { standing: Standing::Installed, ..whole(n) });
    let written = |n| Mutation::Write(whole(n));
    for (what, steps, lost) in [
        ("written before it, settled after it", vec![written(1), written(2), settled(9)], 1),
        ("installed below it", vec![written(1), written(3), installed(2)], 1),
    ] {
        let read = read_without(&steps, lost);
        assert!(matches!(read, Err(Error::Damaged { .. })), "{what}: {:?}", read.map(|bytes| bytes[0]));
    }
    let expected = pattern(3, usize::try_from(UNIT).expect("small"));
    for (what, steps, lost) in [
        ("written after it", vec![written(1), written(2), written(3), settled(9)], 1),
        ("installed in its place", vec![written(1), written(2), installed(3)], 1),
    ] {
        assert!(read_without(&steps, lost).expect(what) == expected, "{what}");
    }
}

/// A lost unit is written whole: it is readable at once, also after a restart, is lost again if the write is
/// taken back, and is intact once the write is settled.
#[test]
fn a_write_of_a_whole_unit_replaces_a_lost_one() {
    let verdict = |forward: Vec<Version>, back: Vec<Version>| {
        let units = vec![UnitVerdict { unit: 0, forward, back, cut_offs: Vec::new() }];
        Mutation::Verdict { partition: P, object: O, g: Generation(1), units }
    };
    let whole = Mutation::Write(write(1, 0, 0, UNIT, version(1, 9)));
    let expected = pattern(9, usize::try_from(UNIT).expect("small"));
    for goes_back in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, starts) = image(dir.path());
        spoil_headers(&path, &starts[2..3]);
        let (store, recovery) = open_log(dir.path());
        assert!(recovery.damaged_count > 0);
        let mut hole = write(1, 0, 0, UNIT, version(1, 8));
        hole.body = Body::Hole;
        for part in [write(1, 0, 0, UNIT - 1, version(1, 8)), write(1, 0, 1, UNIT, version(1, 8)), hole] {
            let refused = store.commit(Mutation::Write(part));
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        }
        store.commit(whole.clone()).expect("it replaces the unit");
        assert_eq!(store.commit(whole.clone()).expect("again"), MutationOutcome::Already);
        let read = |store: &Store, want| content(store, 1, 0, 0, UNIT, want);
        assert!(read(&store, Want::Newest).expect("it is there") == expected);
        assert!(matches!(read(&store, Want::Settled), Err(Error::Damaged { .. })), "nothing below it is");
        assert!(!store.versions(P, O, 0..1).expect("versions")[0].lost, "it has a vote");
        drop(store);
        let (store, _) = open(dir.path());
        assert!(read(&store, Want::Newest).expect("after a restart") == expected);
        if goes_back {
            store.commit(verdict(vec![], vec![version(1, 9)])).expect("back");
            assert!(matches!(read(&store, Want::Newest), Err(Error::Damaged { .. })), "lost as before");
        } else {
            store.commit(verdict(vec![version(1, 9)], vec![])).expect("forward");
            assert!(read(&store, Want::Settled).expect("whole") == expected);
            store.commit(Mutation::Write(write(1, 0, 0, 10, version(1, 10)))).expect("parts of it again");
        }
    }
}

/// A store in which `writes` was settled by `settles` alone, before the column joined and was ready again.
/// Returns what unit 0 reads as once a bit of the settling record has flipped.
fn joined_after(writes: Mutation, settles: Mutation) -> Result<Vec<u8>, Error> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(writes).expect("writes");
    let path = segments(dir.path()).remove(0);
    let at = usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
    store.commit(settles).expect("settles");
    let set = ColumnMask::all(5);
    let own = ColumnMask::EMPTY.with(attributes().column);
    for (g, joining) in [(Generation(2), own), (Generation(3), ColumnMask::EMPTY)] {
        store.commit(Mutation::Fence { partition: P, object: O, g, set, joining }).expect("fence");
    }
    let later = Write { g: Generation(3), ..write(1, 9, 0, 100, version(4, 99)) };
    store.commit(Mutation::Write(later)).expect("later");
    assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("it is settled"), pattern(1, 100));
    store.close().expect("close");
    drop(store);
    let mut bad = std::fs::read(&path).expect("read");
    bad[at + 120] ^= 1;
    std::fs::write(&path, &bad).expect("write");
    let (store, recovery) = open_log(dir.path());
    assert!(recovery.damaged_count > 0, "the record is lost");
    content(&store, 1, 0, 0, 100, Want::Newest)
}

#[test]
fn what_a_fence_drops_is_damaged_if_the_record_that_settled_it_may_be_lost() {
    let write = |unit, stamp| write(1, unit, 0, 100, stamp);
    let settles_others = Write { settled_below: version(1, 2), ..write(5, version(1, 2)) };
    let owed = crate::unit_writes::unit_write(0, 0, 100, 1);
    let up_to = version(4, 1);
    let owed_settled = Mutation::OwedSettled { partition: P, object: O, g: Generation(1), unit: 0, up_to };
    let pending = || Mutation::Write(write(0, version(1, 1)));
    for (writes, settles) in [
        (pending(), settled(1, version(1, 5))),
        (pending(), Mutation::Write(settles_others)),
        (Mutation::UnitWrite(owed), owed_settled),
    ] {
        let what = format!("{settles:?}");
        let read = joined_after(writes, settles);
        assert!(matches!(read, Err(Error::Damaged { .. })), "{what}: {read:?}");
    }
}
