//! Changes to segments between the moment in which the cleaner chooses them and the one in which it reads
//! them. The store is a real one, on a disk in memory; the cleaner under test is a second one beside the
//! store's own, which has no turn.

use braid_layout::{
    ClientId, ClusterId, ColumnMask, DriveId, Generation, Lease, ObjectId, OperationNumber, PartitionId,
    Version,
};

use super::*;
use crate::crc::block_crcs;
use crate::disk::Syncing;
use crate::disk::memory::Memory;
use crate::index::query::Want;
use crate::mutation::{Attributes, Mutation, MutationOutcome, Standing, Write, WriteKind};
use crate::options::Options;
use crate::payload::Body;
use crate::store::{Identity, Store};

const P: PartitionId = PartitionId(7);
const SEGMENT: u64 = 64 << 10;

fn store() -> Store {
    let options = Options { segment_bytes: SEGMENT, ..Options::default() };
    let disk = Arc::new(Memory::new(1));
    let identity = Identity { cluster: ClusterId(1), drive: DriveId(2) };
    Store::format_on(&*disk, identity, &options).expect("format");
    let (store, _) = Store::open_on(disk, None, options).expect("open");
    commit(&store, Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 });
    for object in 1..3 {
        let attributes = Attributes { unit_bytes: 64 << 10, g: Generation(1), ..Attributes::default() };
        commit(&store, Mutation::Create { partition: P, object: ObjectId(object), attributes });
    }
    store
}

fn commit(store: &Store, mutation: Mutation) {
    assert_eq!(store.commit(mutation).expect("commit"), MutationOutcome::Applied);
}

fn write(store: &Store, object: u64, unit: u64, range: Range<u32>, n: u64, standing: Standing) {
    let bytes = vec![u8::try_from(n).expect("small"); range.len()];
    commit(
        store,
        Mutation::Write(Write {
            partition: P,
            object: ObjectId(object),
            unit,
            from: range.start,
            to: range.end,
            kind: WriteKind::Data,
            standing,
            stamp: version(n),
            columns: ColumnMask::all(1),
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId(1),
            operation: OperationNumber(n),
            g: Generation(1),
            settled_below: Version::ZERO,
            body: Body::Bytes { crcs: block_crcs(range.start, &bytes), payload: bytes.into() },
        }),
    );
}

fn version(n: u64) -> Version {
    Version { g: Generation(1), lease: Lease(1), n }
}

/// Unit 0 of object 1 in two pieces, the larger in segment 1 and the other in segment 2; and the run that
/// moves both.
fn two_pieces() -> (Store, Cleaner, MoveRun) {
    let store = store();
    write(&store, 1, 0, 0..20_000, 1, Standing::Installed);
    write(&store, 2, 0, 0..50_000, 2, Standing::Installed);
    write(&store, 1, 0, 20_000..24_000, 3, Standing::Pending);
    let run = MoveRun { pieces: gathered(&store, Others::Join).remove(0).pieces, owner: owner(&store) };
    let segments: Vec<u32> = run.pieces.iter().map(|piece| piece.segment).collect();
    assert_eq!(segments, [1, 2], "a small neighbour comes along");
    let alone = MoveRun { pieces: run.pieces[..1].to_vec(), owner: run.owner };
    assert_eq!(gathered(&store, Others::Stay), [alone], "unless it is to stay");
    let cleaner = Cleaner::new(Arc::clone(store.shared()));
    (store, cleaner, run)
}

fn owner(store: &Store) -> Owner {
    let birth = store.index().find_object(P, ObjectId(1)).expect("object 1").birth;
    Owner { partition: P, object: ObjectId(1), birth, unit: 0 }
}

fn gathered(store: &Store, others: Others) -> Vec<MoveRun> {
    runs(&store.shared().index, owner(store), &BTreeSet::from([1]), others)
}

/// The first step of freeing: from then on the file may not be looked up, as it may go at any moment.
fn free(store: &Store, segment: u32) {
    let mut index = store.shared().index.write();
    index.segments.remove(segment).expect("a segment");
}

#[test]
fn a_run_of_which_a_segment_was_freed_meanwhile_stays_where_it_is() {
    let (store, mut cleaner, run) = two_pieces();
    assert_eq!(cleaner.stored(&run).expect("there").expect("files").len(), 2);
    free(&store, 2);
    let stored = cleaner.stored(&run).expect("a piece is there");
    assert!(matches!(stored, Err(Error::Io { .. })), "no file of a freed segment is opened");
    assert!(cleaner.read(&run).is_none());
    assert_eq!(cleaner.aside, BTreeSet::from([1, 2]), "not tried again and again");
    let view = store.read(P, ObjectId(1), 0, 0..20_000, Want::Settled).expect("nothing is lost by that");
    assert_eq!(view.version, version(1));
    // Gathered now, the run is without it.
    assert_eq!(
        gathered(&store, Others::Join),
        [MoveRun { pieces: run.pieces[..1].to_vec(), owner: run.owner }]
    );
}

#[test]
fn what_was_overwritten_while_it_was_gathered_is_passed_over() {
    let (store, mut cleaner, run) = two_pieces();
    write(&store, 1, 0, 0..24_000, 9, Standing::Installed);
    free(&store, 2);
    assert!(cleaner.stored(&run).is_none(), "its files are not even looked for");
    assert!(cleaner.read(&run).is_none());
    assert_eq!(cleaner.aside, BTreeSet::new(), "nothing is wrong with its segments");
}

#[test]
fn a_victim_that_is_gone_when_it_is_looked_at_is_set_aside_and_the_next_one_emptied() {
    let store = store();
    for n in 0..9 {
        write(&store, 1 + n % 2, n / 2, 0..20_000, 1 + n, Standing::Installed);
    }
    commit(&store, Mutation::Remove { partition: P, object: ObjectId(2), g: Generation(1) });
    let mut cleaner = Cleaner::new(Arc::clone(store.shared()));
    let first = cleaner.victim(&BTreeSet::new(), Effort::Urgent).expect("a victim").number;
    store.files().remove(first, Syncing::On).expect("remove");
    let live = |number| store.index().segments.all[&number].payload;
    let others: Vec<u32> = [1, 2].into_iter().filter(|&number| number != first && live(number) > 0).collect();
    assert_eq!(others.len(), 1);
    cleaner.round(Effort::Urgent);
    assert_eq!(cleaner.aside, BTreeSet::from([first]));
    assert_eq!(others.iter().map(|&number| live(number)).sum::<u64>(), 0, "it was emptied");
    assert!(live(first) > 0);
}

#[test]
fn small_objects_of_a_cluster_are_brought_together_once() {
    const SMALL: u32 = 4096;
    let options = Options { segment_bytes: 1 << 20, ..Options::default() };
    let disk = Arc::new(Memory::new(1));
    let identity = Identity { cluster: ClusterId(1), drive: DriveId(2) };
    Store::format_on(&*disk, identity, &options).expect("format");
    let open = || Store::open_on(Arc::clone(&disk) as _, None, options.clone()).expect("open").0;
    let store = open();
    commit(&store, Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 });
    // Objects of two clusters by turns, each with a large one of the first cluster between them.
    for object in 1..=96 {
        let cluster = if object % 3 == 0 { 1 } else { object % 3 };
        let attributes =
            Attributes { unit_bytes: 256 << 10, g: Generation(1), cluster, ..Attributes::default() };
        commit(&store, Mutation::Create { partition: P, object: ObjectId(object), attributes });
        let length = if object % 3 == 0 { 140 << 10 } else { SMALL };
        write(&store, object, 0, 0..length, object, Standing::Installed);
    }
    let is_small = |object: &u64| !object.is_multiple_of(3);
    let extent = |store: &Store, object| {
        let index = store.index();
        let found = index.find_object(P, ObjectId(object)).expect("object");
        let slot = found.units.get(0).expect("a unit");
        crate::clean::gather::extents(&slot.unit())[0]
    };
    let places = |store: &Store| (1..=96).map(|object| extent(store, object)).collect::<Vec<_>>();
    let before = places(&store);
    let mut cleaner = Cleaner::new(Arc::clone(store.shared()));
    cleaner.gather();
    let after = places(&store);
    for object in 1..=96 {
        let at = usize::try_from(object - 1).unwrap();
        assert_eq!(before[at] != after[at], is_small(&object), "object {object}");
    }
    // Of each cluster one lies behind the other: a record is its header and the bytes.
    for cluster in [1, 2] {
        let blocks: Vec<u64> = (1..=96)
            .filter(|object| is_small(object) && object % 3 == cluster)
            .map(|object| u64::from(extent(&store, object).block) * LOG_BLOCK_U64)
            .collect();
        assert!(blocks.windows(2).all(|pair| pair[0] < pair[1]), "{blocks:?}");
        assert!(blocks.last().unwrap() - blocks[0] <= 32 * 2 * u64::from(SMALL), "{blocks:?}");
    }
    Cleaner::new(Arc::clone(store.shared())).gather();
    assert_eq!(places(&store), after, "what was gathered stays");
    let records = store.index().head.sequence;
    cleaner.gather();
    assert_eq!(store.index().head.sequence, records, "nothing was written since");
    drop(store);
    let store = open();
    for object in (1..=96).filter(is_small) {
        let view = store.read(P, ObjectId(object), 0, 0..SMALL, Want::Settled).expect("read");
        assert_eq!(view.version, version(object));
        assert_eq!(extent(&store, object), after[usize::try_from(object - 1).unwrap()]);
    }
}

#[test]
fn tiny_objects_of_a_cluster_are_not_moved_again_and_again() {
    let store = store();
    // A header is longer than their bytes.
    for object in 100..1400 {
        let attributes =
            Attributes { unit_bytes: 64 << 10, g: Generation(1), cluster: 7, ..Attributes::default() };
        commit(&store, Mutation::Create { partition: P, object: ObjectId(object), attributes });
        write(&store, object, 0, 0..100, object % 200 + 1, Standing::Installed);
    }
    for _ in 0..2 {
        Cleaner::new(Arc::clone(store.shared())).gather();
    }
    let records = store.index().head.sequence;
    Cleaner::new(Arc::clone(store.shared())).gather();
    assert_eq!(store.index().head.sequence, records, "all lie well");
}
