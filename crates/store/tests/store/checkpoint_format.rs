//! A checkpoint's bytes: exact, decoded to the values that were encoded, and with every error noticed.

use braid_layout::{
    ClientId, Column, ColumnMask, DriveId, EndBound, Generation, ObjectId, OperationNumber, PartitionId,
    Version,
};
use braid_store::Base;
use braid_store::format::checkpoint::{Appended, CheckpointEnd, FIELDS, ReplayPoint, SegmentRow, Totals};
use braid_store::format::dedup::{DedupEntry, OperationEntry};
use braid_store::format::entry::{Entries, Entry, LostRange, ObjectEntry, PartitionEntry, PlainUnit};
use braid_store::format::extent::{Extent, LogPosition};
use braid_store::format::page::{self, Key, PageHead};
use braid_store::format::ready::ReadyEntry;
use braid_store::format::record::Kind;
use braid_store::format::snapshots::SnapshotsEntry;
use braid_store::format::subject::Subject;
use braid_store::format::unit::{ContentEntry, KeepingEntry, Role, StepEntry, UnitEntry};
use proptest::prelude::*;

use crate::common::*;
use crate::golden::check;

fn end_example(totals: Option<Totals>) -> CheckpointEnd {
    let prior = Subject { kind: Some(Kind::Data), partition: PartitionId(7), object: ObjectId(8), unit: 6 };
    CheckpointEnd {
        number: 5,
        drive: DriveId(0xd1),
        salt: 0x5a17,
        replay: ReplayPoint { segment: 3, block: 19, sequence: 42, prior },
        appended: Appended { written: 250_880, moved: 20_480 },
        segments: vec![
            SegmentRow { number: 1, damaged: false, bytes: 262_656, first_sequence: 1 },
            SegmentRow { number: 3, damaged: true, bytes: 9728, first_sequence: 41 },
        ],
        totals,
    }
}

fn head_example() -> PageHead {
    PageHead {
        checkpoint: 5,
        salt: 0x5a17,
        index: 0,
        as_of: 43,
        from: Key::FIRST,
        to: Key::At(PartitionId(7), Some(ObjectId(10))),
        part: 0,
        parts: 1,
    }
}

fn place(block: u32) -> LogPosition {
    LogPosition { segment: 3, block }
}

fn plain(unit: u64) -> PlainUnit {
    PlainUnit {
        unit,
        version: version(3, 9),
        columns: ColumnMask(0x13),
        extent: extent(4000, 8200, Some(place(2))),
    }
}

fn extent(from: u32, to: u32, record: Option<LogPosition>) -> Extent {
    let LogPosition { segment, block } = record.unwrap_or_default();
    Extent { from, to, segment, block }
}

fn unit_example() -> UnitEntry {
    let settled = ContentEntry {
        role: Role::Settled,
        kind: Kind::ParityBase,
        version: version(3, 7),
        columns: ColumnMask(0x13),
        cover: vec![version(3, 7), Version::ZERO],
        ends: vec![EndBound::exactly(700), EndBound::exactly(0)],
        extents: vec![extent(0, 4096, Some(place(2))), extent(4096, 65_536, None)],
        ..ContentEntry::default()
    };
    let own = extent(100, 200, Some(place(12)));
    let pending = ContentEntry {
        role: Role::Pending,
        kind: Kind::StripeParity,
        version: version(3, 9),
        columns: ColumnMask(0x13),
        step: Some(StepEntry {
            previous: version(3, 7),
            client: ClientId::NONE,
            operation: OperationNumber::NONE,
            own,
        }),
        cover: vec![version(3, 9), Version::ZERO],
        ends: vec![EndBound::at_least(200), EndBound::NONE],
        ..ContentEntry::default()
    };
    let layer = ContentEntry {
        role: Role::Layer,
        kind: Kind::Delta,
        extents: vec![own],
        cover: vec![],
        ends: vec![],
        ..settled.clone()
    };
    let step =
        StepEntry { previous: Version::ZERO, client: ClientId(0xc11e), operation: OperationNumber(77), own };
    let delta = ContentEntry {
        role: Role::Delta,
        column: Column(3),
        data: 1,
        settled: true,
        step: Some(step),
        extents: vec![],
        ..layer.clone()
    };
    let keeping = KeepingEntry { epoch: 2, until: 6, lost: Some(place(5)) };
    let kept = ContentEntry {
        role: Role::Kept,
        version: version(3, 5),
        keeping: Some(keeping),
        extents: vec![extent(0, 4096, Some(place(2)))],
        ..settled.clone()
    };
    let contents = vec![settled, layer, kept, pending, delta];
    UnitEntry { unit: 6, lost: Some(place(4)), epoch: 6, contents }
}

fn owed_example() -> UnitEntry {
    let own = extent(100, 200, None);
    let owed = ContentEntry {
        role: Role::Owed,
        kind: Kind::Data,
        version: version(3, 9),
        step: Some(StepEntry {
            previous: Version::ZERO,
            client: ClientId(0xc11e),
            operation: OperationNumber(77),
            own,
        }),
        ..ContentEntry::default()
    };
    UnitEntry { unit: 7, lost: None, epoch: 0, contents: vec![owed] }
}

fn dedup_example() -> DedupEntry {
    let operation =
        OperationEntry { operation: OperationNumber(77), unit: 7, version: version(3, 9), data: 1 };
    DedupEntry { client: ClientId(0xc11e), watermark: OperationNumber(70), operations: vec![operation] }
}

fn ready_example() -> ReadyEntry {
    ReadyEntry { runs: vec![(0, 3), (5, 5)] }
}

fn snapshots_example() -> SnapshotsEntry {
    SnapshotsEntry { highest: 7, live: vec![3, 6] }
}

fn still_example() -> Base {
    Base { object: ObjectId(8), birth: 3, number: 6 }
}

fn object_example() -> ObjectEntry<'static> {
    ObjectEntry {
        partition: PartitionId(7),
        object: ObjectId(9),
        birth: 12,
        set: ColumnMask(0x1f),
        joining: ColumnMask(0x10),
        created_ms: 1000,
        modified_ms: 2000,
        reserve_bytes: 1 << 20,
        cluster: 3,
        unit_bytes: UNIT,
        g: Generation(5),
        column: Column(2),
        known: true,
        lost: Some(place(3)),
        husk: true,
        map: b"map",
        opaque: b"opaque",
    }
}

/// A page with one entry of each kind.
fn page_example() -> Vec<u8> {
    let partition = PartitionId(7);
    let mut entries = Vec::new();
    PartitionEntry { partition, birth: 1, quota_bytes: Some(1 << 30), key_epoch: 2 }.put(&mut entries);
    object_example().put(&mut entries);
    still_example().put(&mut entries);
    dedup_example().put(&mut entries);
    ready_example().put(&mut entries);
    snapshots_example().put(&mut entries);
    let run = plain(4).put(&mut entries, None);
    plain(5).put(&mut entries, Some(run));
    unit_example().put(&mut entries);
    owed_example().put(&mut entries);
    let from = Key::FIRST;
    LostRange { from, to: Key::At(partition, None), checkpoint: 4, segment: 0, offset: 1024 }
        .put(&mut entries);
    head_example().encode(&entries)
}

#[test]
fn both_ends() {
    let totals = Totals { pages: 17, durable_to: 44 };
    for (name, totals) in [("checkpoint_header", None), ("checkpoint_trailer", Some(totals))] {
        let end = end_example(totals);
        let bytes = end.encode();
        // The trailer ends with the block.
        let fields = if totals.is_none() { FIELDS } else { &[] };
        check(name, fields, &bytes);
        assert_eq!(CheckpointEnd::decode(&bytes), Ok(end), "{name}");
        for byte in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[byte] ^= 4;
            assert!(CheckpointEnd::decode(&bad).is_err(), "{name}: byte {byte}");
            assert!(CheckpointEnd::decode(&bytes[..byte]).is_err(), "{name}: {byte} bytes");
        }
    }
}

#[test]
fn a_page_with_every_kind_of_entry() {
    let bytes = page_example();
    check("checkpoint_page", page::FIELDS, &bytes);
    let (head, entries) = PageHead::decode(&bytes).expect("a page");
    assert_eq!(head, head_example());
    let mut found = Entries::new(entries);
    let mut next = || found.next().expect("one more").expect("a good one");
    assert!(matches!(next(), Entry::Partition(partition) if partition.key_epoch == 2));
    assert_eq!(next(), Entry::Object(object_example()));
    let Entry::Still(body) = next() else { panic!("a still") };
    assert_eq!(Base::decode(body), Ok(still_example()));
    assert!(Base::decode(&[0; 24]).is_err(), "of no snapshot");
    let Entry::Dedup(body) = next() else { panic!("a client's operations") };
    assert_eq!(DedupEntry::decode(body), Ok(dedup_example()));
    let Entry::Ready(body) = next() else { panic!("ready units") };
    assert_eq!(ReadyEntry::decode(body), Ok(ready_example()));
    for runs in [vec![], vec![(3, 2)], vec![(0, 3), (4, 5)], vec![(5, 5), (0, 3)]] {
        let mut entry = Vec::new();
        ReadyEntry { runs: runs.clone() }.put(&mut entry);
        assert!(ReadyEntry::decode(&entry[8..]).is_err(), "{runs:?}");
    }
    let Entry::Snapshots(body) = next() else { panic!("snapshots") };
    assert_eq!(SnapshotsEntry::decode(body), Ok(snapshots_example()));
    let Entry::PlainUnits(units) = next() else { panic!("plain units") };
    assert_eq!(units.iter().collect::<Vec<_>>(), [plain(4), plain(5)]);
    let Entry::Unit(body) = next() else { panic!("a unit") };
    assert_eq!(UnitEntry::decode(body), Ok(unit_example()));
    let Entry::Unit(body) = next() else { panic!("a unit") };
    assert_eq!(UnitEntry::decode(body), Ok(owed_example()));
    assert!(matches!(next(), Entry::Lost(range) if range.offset == 1024));
    assert_eq!(found.next(), None);
    for byte in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[byte] ^= 0x20;
        assert!(PageHead::decode(&bad).is_err(), "byte {byte}");
        assert!(PageHead::decode(&bytes[..byte]).is_err(), "{byte} bytes");
    }
}

fn any_version() -> impl Strategy<Value = Version> {
    (any::<u32>(), any::<u64>()).prop_map(|(lease, n)| version(lease, n))
}

fn any_place() -> impl Strategy<Value = LogPosition> {
    (1..u32::MAX, 1..u32::MAX).prop_map(|(segment, block)| LogPosition { segment, block })
}

/// Extents in order, from lengths and gaps.
fn any_extents(count: usize) -> impl Strategy<Value = Vec<Extent>> {
    prop::collection::vec((0..9_u32, 1..9000_u32, prop::option::of(any_place())), 0..count).prop_map(
        |parts| {
            let mut at = 0;
            let next = |(gap, length, record)| {
                let from = at + gap;
                at = from + length;
                extent(from, at, record)
            };
            parts.into_iter().map(next).collect()
        },
    )
}

fn any_content() -> impl Strategy<Value = ContentEntry> {
    let lists = (prop::collection::vec(any_version(), 0..64), any_extents(9));
    let own = (0..100_u32, 1..100_u32, prop::option::of(any_place()));
    let step = (any_version(), any::<u64>(), any::<u64>(), own);
    let keeping = prop::option::of((0..9_u32, 10..20_u32, prop::option::of(any_place())));
    (1..5_u8, any_version(), any::<u64>(), (prop::option::of(step), keeping), lists).prop_map(
        |(kind, version, columns, (step, keeping), (cover, extents))| {
            let step = step.map(|(previous, client, operation, (from, length, record))| StepEntry {
                previous,
                client: ClientId(client),
                operation: OperationNumber(operation),
                own: extent(from, from + length, record),
            });
            let roles = if step.is_some() {
                [Role::Pending, Role::Owed, Role::Delta]
            } else {
                [Role::Settled, Role::Layer, Role::Kept]
            };
            let role = roles[usize::from(kind) % 3];
            let keeping = keeping.filter(|_| role == Role::Kept);
            let role = if role == Role::Kept && keeping.is_none() { Role::Settled } else { role };
            let keeping = keeping.map(|(epoch, until, lost)| KeepingEntry { epoch, until, lost });
            let column = Column(kind);
            let data = 63 - kind;
            let settled = kind % 2 == 1;
            let kind = Kind::ALL[usize::from(kind) - 1].0;
            let end = if role == Role::Pending { EndBound::at_least } else { EndBound::exactly };
            ContentEntry {
                role,
                kind,
                version,
                columns: ColumnMask(columns),
                column,
                data,
                settled,
                whole: role == Role::Pending && settled,
                end: u32::from(role == Role::Delta),
                step,
                keeping,
                ends: cover.iter().map(|version| end(version.g.0)).collect(),
                cover,
                extents,
            }
        },
    )
}

proptest! {
    #[test]
    fn units_come_back_as_they_went(
        unit in any::<u64>(),
        (lost, epoch) in (prop::option::of(any_place()), any::<u32>()),
        contents in prop::collection::vec(any_content(), 0..4),
        flip in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let entry = UnitEntry { unit, lost, epoch, contents };
        let mut bytes = Vec::new();
        entry.put(&mut bytes);
        let found = Entries::new(&bytes).collect::<Result<Vec<_>, _>>().expect("entries");
        let [Entry::Unit(body)] = found[..] else { panic!("one unit") };
        prop_assert_eq!(UnitEntry::decode(body), Ok(entry));
        // Without a page's checksum a flipped bit may change the meaning, but only to something that encodes
        // to the same bytes.
        let mut bad = bytes;
        let at = flip.index(bad.len());
        bad[at] ^= 1 << bit;
        for found in Entries::new(&bad) {
            if let Ok(Entry::Unit(body)) = found
                && let Ok(entry) = UnitEntry::decode(body)
            {
                let mut again = Vec::new();
                entry.put(&mut again);
                prop_assert_eq!(again, &bad[..8 + body.len()]);
            }
        }
    }

    #[test]
    fn ends_come_back_as_they_went(
        rows in prop::collection::btree_map(1..u32::MAX, (any::<bool>(), any::<u64>(), any::<u64>()), 0..60),
        totals in prop::option::of((any::<u64>(), any::<u64>())),
        (written, moved) in (any::<u64>(), any::<u64>()),
    ) {
        let row = |(number, (damaged, bytes, first_sequence))| SegmentRow { number, damaged, bytes, first_sequence };
        let segments = rows.into_iter().map(row).collect();
        let totals = totals.map(|(pages, durable_to)| Totals { pages, durable_to });
        let appended = Appended { written, moved };
        let end = CheckpointEnd { segments, appended, ..end_example(totals) };
        prop_assert_eq!(CheckpointEnd::decode(&end.encode()), Ok(end));
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        let _ = CheckpointEnd::decode(&bytes);
        let _ = PageHead::decode(&bytes);
        for entry in Entries::new(&bytes).flatten() {
            if let Entry::Unit(body) = entry {
                let _ = UnitEntry::decode(body);
            }
        }
    }
}
