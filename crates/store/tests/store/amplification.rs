//! The bytes ever written and moved are counted over the store's life: exactly, whatever opening starts from.

use std::collections::BTreeMap;
use std::path::Path;

use braid_store::format::checkpoint::Appended;
use braid_store::format::record::{FIXED_BYTES, Kind};
use braid_store::inspect::stat;
use braid_store::*;

use crate::common::*;

/// The records ever seen in a log, by number: the kind and bytes of each.
#[derive(Default)]
struct CachedRef(BTreeMap<u64, (Kind, u64)>);

impl CachedRef {
    /// Read the log again, before a part of it is freed.
    fn look(&mut self, dir: &Path) {
        for path in segments(dir).iter().filter(|path| path.extension().is_some_and(|end| end == "seg")) {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let number: u32 = name.parse().expect("a number");
            let bytes = std::fs::read(path).expect("read");
            for at in (512..bytes.len().saturating_sub(FIXED_BYTES)).step_by(512) {
                let Ok(record) = decode_record(&bytes[at..]) else { continue };
                if record.segment == number {
                    self.0.insert(record.sequence, (record.kind, record.disk_bytes()));
                }
            }
        }
    }

    fn totals(&self) -> Appended {
        let numbers: Vec<u64> = self.0.keys().copied().collect();
        assert_eq!(numbers, (1..=self.0.len() as u64).collect::<Vec<_>>(), "every record was seen");
        let of = |moves: bool| {
            let some = self.0.values().filter(|(kind, _)| (*kind == Kind::Move) == moves);
            some.map(|(_, bytes)| bytes).sum()
        };
        Appended { written: of(false), moved: of(true) }
    }
}

fn counted(store: &Store) -> Appended {
    let stat = store.stat().expect("stat");
    Appended { written: stat.written, moved: stat.moved }
}

/// Overwrite some units, so that half of each segment dies.
fn overwrite(store: &Store, round: u64) {
    for unit in (0..16).filter(|unit| round == 0 || unit % 2 == round % 2) {
        let mut write = write(1, unit, 0, UNIT, version(1, 1 + round * 16 + unit));
        write.settled_below = write.stamp;
        store.commit(Mutation::Write(write)).expect("write");
    }
    store.commit(settled(1, version(1, 17 + round * 16))).expect("settle");
}

#[test]
fn totals_survive_closing_and_being_killed() {
    let live = tempfile::tempdir().expect("a directory");
    let killed = tempfile::tempdir().expect("a directory");
    let dir = live.path();
    let kept = killed.path();
    let store = fresh(dir, options());
    let mut seen = CachedRef::default();
    store.commit(create(1)).expect("create");
    for round in 0..3 {
        overwrite(&store, round);
        seen.look(dir);
        store.clean().expect("clean");
        seen.look(dir);
        assert_eq!(counted(&store), seen.totals(), "round {round}");
    }
    assert!(seen.totals().moved > 0 && seen.totals().amplification() > Some(1.0), "{:?}", seen.totals());
    // The store is killed with a tail after a checkpoint. The copy keeps its present state.
    overwrite(&store, 3);
    seen.look(dir);
    copy(dir, kept);
    let expected = seen.totals();
    let facts = stat(kept).expect("stat");
    assert!(facts.recovery.checkpoint > 0 && facts.recovery.records > 0, "{facts:?}");
    assert_eq!(facts.appended, expected, "the same from outside");
    let (after, _) = open(kept);
    assert_eq!(counted(&after), expected);
    after.close().expect("close");
    drop(after);
    let mut of_the_copy = seen;
    of_the_copy.look(kept);
    assert_eq!(stat(kept).expect("stat").appended, of_the_copy.totals(), "the mark counts too");
    let (after, recovery) = open(kept);
    assert_eq!(recovery.records, 0, "nothing was left to count anew");
    assert_eq!(counted(&after), of_the_copy.totals());
}

#[test]
fn without_a_checkpoint_the_log_is_counted_and_an_empty_one_has_no_amplification() {
    let dir = tempfile::tempdir().expect("a directory");
    Store::format(dir.path(), identity(), &options()).expect("format");
    assert_eq!(stat(dir.path()).expect("stat").appended, Appended::default());
    assert_eq!(Appended::default().amplification(), None, "nothing was written");
    let (store, _) = open(dir.path());
    assert_eq!(counted(&store), Appended::default());
    store.commit(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 }).expect("made");
    store.commit(create(1)).expect("create");
    // Long payloads, whose headers are padded to a page, checksums included.
    let payload = pattern(1, usize::try_from(UNIT).expect("small"));
    for unit in 0..4 {
        let long = Write { body: body(0, &payload), ..write(1, unit, 0, UNIT, version(1, 1)) };
        store.commit(Mutation::Write(long)).expect("write");
    }
    drop(store);
    without_checkpoints(dir.path());
    let mut seen = CachedRef::default();
    seen.look(dir.path());
    assert_eq!(stat(dir.path()).expect("stat").appended, seen.totals());
    assert_eq!(seen.totals().amplification(), Some(1.0));
}
