//! Segments that are missing or cut short: units that had bytes in them are damaged, and no older version is
//! read instead.

use std::path::Path;

use braid_store::format::checkpoint::CheckpointEnd;
use braid_store::format::page::PageHead;
use braid_store::format::subject::Subject;
use braid_store::*;

use crate::common::*;

#[test]
fn a_missing_segment_loses_what_was_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    for n in 1..=20 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    store.close().expect("close");
    drop(store);
    std::fs::remove_file(&segments(dir.path())[1]).expect("remove");
    for round in 0..2 {
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count, 1, "round {round}: {:?}", recovery.damaged);
        let reads = (1..=20).map(|n| (n, content(&store, 1, n, 0, 9, Want::Newest)));
        let (whole, lost): (Vec<_>, Vec<_>) = reads.partition(|(_, read)| read.is_ok());
        assert!(whole.iter().all(|(n, read)| read.as_ref().ok() == Some(&pattern(*n, 9))));
        assert!(lost.iter().all(|(_, read)| matches!(read, Err(Error::Damaged { .. }))), "{lost:?}");
        assert_eq!((whole.len(), lost.len()), (16, 4), "a segment has four units");
    }
}

/// The last segment is gone: the writes to it since the checkpoint are unknown.
#[test]
fn what_was_written_to_a_segment_that_is_gone_is_damaged_and_not_absent() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    store.checkpoint().expect("checkpoint");
    store.commit(Mutation::Write(write(1, 1, 0, 5000, version(1, 2)))).expect("write");
    let killed = tempfile::tempdir().expect("a directory");
    copy(dir.path(), killed.path());
    std::fs::remove_file(segments(killed.path()).pop().expect("a segment")).expect("remove");
    for _ in 0..2 {
        let (store, _) = open(killed.path());
        for unit in [0, 1] {
            let read = content(&store, 1, unit, 0, 5000, Want::Newest);
            assert!(matches!(read, Err(Error::Damaged { .. })), "unit {unit}: {read:?}");
        }
    }
}

#[test]
fn a_write_after_lost_segments_is_whole_when_killed_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    for n in 1..=20 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    let killed = tempfile::tempdir().expect("a directory");
    copy_log(dir.path(), killed.path());
    let paths = segments(killed.path());
    assert!(paths.len() >= 5, "{paths:?}");
    for path in &paths[2..4] {
        std::fs::remove_file(path).expect("remove");
    }
    let (store, recovery) = open(killed.path());
    assert!(recovery.damaged_count >= 1, "{:?}", recovery.damaged);
    store.commit(partition()).expect("made anew");
    store.commit(create(2)).expect("create");
    store.commit(Mutation::Write(write(2, 0, 0, 6000, version(2, 1)))).expect("write");
    let again = tempfile::tempdir().expect("a directory");
    copy(killed.path(), again.path());
    let (store, _) = open(again.path());
    assert_eq!(content(&store, 2, 0, 0, 6000, Want::Newest).expect("acknowledged"), pattern(1, 6000));
    for n in 1..=20 {
        let read = content(&store, 1, n, 0, 9, Want::Newest);
        assert!(read.as_ref().map_or(true, |read| *read == pattern(n, 9)), "unit {n}: {read:?}");
    }
}

/// A cut between two records looks like the log's end. But records that a checkpoint includes were durable;
/// and if their numbers were reused, the next opening would skip the records that have them now.
#[test]
fn a_log_cut_short_under_a_checkpoint_is_damage_and_takes_no_later_write_along() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let path = segments(dir.path()).remove(0);
    let mut starts = Vec::new();
    for (unit, n) in [(1, 1), (0, 2), (2, 3)] {
        starts.push(std::fs::metadata(&path).expect("stat").len());
        store.commit(Mutation::Write(write(1, unit, 0, 5000, version(1, n)))).expect("write");
    }
    store.close().expect("close");
    drop(store);
    let whole = std::fs::File::options().write(true).open(&path).expect("open");
    whole.set_len(starts[1]).expect("cut");
    let (store, recovery) = open(dir.path());
    assert!(recovery.damaged_count >= 1, "{recovery:?}");
    for unit in 0..3 {
        // Unit 1 is before the cut, but records after the checkpoint may have been about it too.
        let read = content(&store, 1, unit, 0, 5000, Want::Newest);
        assert!(matches!(read, Err(Error::Damaged { .. })), "unit {unit}: {read:?}");
    }
    let after = version(2, 77);
    let again = version(2, 78);
    assert!(matches!(store.commit(create(2)), Err(Error::Damaged { .. })), "the partition's values are lost");
    store.commit(partition()).expect("made anew");
    store.commit(create(2)).expect("create");
    for (unit, version) in [(0, after), (1, again)] {
        store.commit(Mutation::Write(write(2, unit, 0, 6000, version))).expect("write");
    }
    // The store is killed before the next checkpoint, and after it.
    for wait in [false, true] {
        if wait {
            store.close().expect("close");
        }
        let killed = tempfile::tempdir().expect("a directory");
        copy(dir.path(), killed.path());
        let (store, _) = open(killed.path());
        for (unit, version) in [(0, after), (1, again)] {
            let read = content(&store, 2, unit, 0, 6000, Want::Newest).expect("acknowledged");
            assert_eq!(read, pattern(version.n, 6000));
        }
    }
}

const OBJECTS: u64 = 20;
/// Objects that are written while a checkpoint is being made.
const MEANWHILE: u64 = 5;

/// A store as a killed process leaves it, with writes made during its checkpoint: the pages include records
/// after the point where replay begins. Returns these records' numbers.
fn written_meanwhile(dir: &Path) -> std::ops::RangeInclusive<u64> {
    let live = tempfile::tempdir().expect("a directory");
    let store = fresh(live.path(), options());
    let write_all = |objects: std::ops::Range<u64>, round| {
        for object in objects {
            let version = version(1, round * OBJECTS + object);
            store.commit(Mutation::Write(write(object, 0, 0, 3000, version))).expect("write");
        }
    };
    (0..OBJECTS)
        .for_each(|object| assert_eq!(store.commit(create(object)).ok(), Some(MutationOutcome::Applied)));
    write_all(0..OBJECTS, 1);
    let path = segments(live.path()).remove(0);
    let begin = std::fs::metadata(&path).expect("stat").len();
    write_all(0..MEANWHILE, 2);
    store.checkpoint().expect("checkpoint");
    write_all(MEANWHILE..OBJECTS, 2);
    copy(live.path(), dir);
    // As if the checkpoint had been started earlier.
    let path = checkpoints(dir).pop().expect("a checkpoint");
    let mut bytes = std::fs::read(&path).expect("read");
    let page = (0..bytes.len()).step_by(512).find(|&at| PageHead::decode(&bytes[at..]).is_ok());
    let length = page.expect("a page");
    let mut header = CheckpointEnd::decode(&bytes[..length]).expect("a header");
    let last = header.replay.sequence - 1;
    header.replay.sequence -= MEANWHILE;
    header.replay.block = u32::try_from(begin / 512).expect("small");
    header.replay.prior = Subject::default();
    bytes[..length].copy_from_slice(&header.encode());
    let end = bytes.len() - length;
    let trailer = CheckpointEnd::decode(&bytes[end..]).expect("a trailer");
    bytes[end..].copy_from_slice(&CheckpointEnd { totals: trailer.totals, ..header.clone() }.encode());
    std::fs::write(&path, bytes).expect("write");
    header.replay.sequence..=last
}

/// Kind of damage to a log at a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Before,
    InThePayload,
    /// The segment is zeroed from the record on; its length is unchanged.
    Zeros,
}

fn cut_log(dir: &Path, sequence: u64, cut: Cut) {
    let mut paths = segments(dir).into_iter();
    for path in paths.by_ref() {
        let mut bytes = std::fs::read(&path).expect("read");
        let at = (0..bytes.len())
            .step_by(512)
            .find(|&at| decode_record(&bytes[at..]).is_ok_and(|record| record.sequence == sequence));
        if let Some(at) = at {
            match cut {
                Cut::Before => bytes.truncate(at),
                Cut::InThePayload => bytes.truncate(at + 2000),
                Cut::Zeros => bytes[at..].fill(0),
            }
            std::fs::write(&path, &bytes).expect("cut");
            break;
        }
    }
    paths.for_each(|path| std::fs::remove_file(path).expect("remove"));
}

#[test]
fn a_cut_log_is_not_made_good_by_pages_that_count_in_what_is_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let meanwhile = written_meanwhile(dir.path());
    let (store, recovery) = open(dir.path());
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    assert_eq!(
        content(&store, OBJECTS - 1, 0, 0, 9, Want::Newest).expect("read"),
        pattern(3 * OBJECTS - 1, 9)
    );
    drop(store);
    let cuts = [Cut::Before, Cut::InThePayload, Cut::Zeros];
    for (sequence, how) in meanwhile.flat_map(|sequence| cuts.map(|cut| (sequence, cut))) {
        let cut = tempfile::tempdir().expect("a directory");
        written_meanwhile(cut.path());
        cut_log(cut.path(), sequence, how);
        let (store, recovery) = open(cut.path());
        assert!(recovery.damaged_count >= 1, "{:?}", recovery.damaged);
        // So that more than the partition can be queried.
        let _ = store.commit(partition());
        for object in 0..OBJECTS {
            match content(&store, object, 0, 0, 3000, Want::Newest) {
                Ok(read) => assert_eq!(
                    read,
                    pattern(2 * OBJECTS + object, 3000),
                    "object {object} is old: {how:?} at {sequence}"
                ),
                Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{error:?}"),
            }
        }
    }
}
