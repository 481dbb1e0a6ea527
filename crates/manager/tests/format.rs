//! The state's format, version 1: golden bytes, and docs/format-manager.md must agree with the code.

use braid_layout::version::Lease;
use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, Version, VolumeId};
use braid_manager::kv::KvError;
use braid_manager::schema::*;
use braid_wire::capability::Key;
use braid_wire::control::{EntryKind, ShapeSpec};

const DOCUMENT: &str = include_str!("../../../docs/format-manager.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check<R: braid_wire::Wire + PartialEq + std::fmt::Debug>(record: &R, golden: &str) {
    let golden: String = golden.split_whitespace().collect();
    let bytes = encode(record);
    assert_eq!(hex(&bytes), golden, "{record:?}");
    assert_eq!(&decode::<R>(b"k", &bytes).unwrap(), record);
    let mut longer = bytes.clone();
    longer.push(0);
    let mut other = bytes.clone();
    other[0] = 2;
    for damaged in [&bytes[..bytes.len() - 1], &longer, &other, &[]] {
        assert!(matches!(decode::<R>(b"k", damaged), Err(KvError::Damaged { .. })), "{damaged:02x?}");
    }
}

const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };

#[test]
fn keys_are_as_they_were() {
    let place = ComponentPlace { drive: DriveId(1), file: FileId(5), segment: 0, column: Column(2) };
    let cases = [
        (key::meta("term"), "6d 7465726d"),
        (key::volume(VolumeId(258)), "76 0000000000000102"),
        (key::volume_name("main"), "56 6d61696e"),
        (key::entry(FileId(2), b"f"), "64 0000000000000002 66"),
        (key::inode(FileId(5)), "69 0000000000000005"),
        (key::attention(FileId(5)), "68 0000000000000005"),
        (key::drive(DriveId(1)), "44 00000000000000000000000000000001"),
        (key::drive_count(DriveId(1)), "6e 00000000000000000000000000000001"),
        (
            key::place(table::COLUMN, place),
            "63 00000000000000000000000000000001 0000000000000005 00000000 02",
        ),
        (key::place(table::STALE, place), "73 00000000000000000000000000000001 0000000000000005 00000000 02"),
        (
            key::partition(table::PARTITION, DriveId(1), VolumeId(3)),
            "70 00000000000000000000000000000001 0000000000000003",
        ),
        (
            key::partition(table::PARTITION_REMOVAL, DriveId(1), VolumeId(3)),
            "71 00000000000000000000000000000001 0000000000000003",
        ),
        (key::removal(FileId(5)), "72 0000000000000005"),
        (
            key::remove(DriveId(1), FileId(5), ObjectId(6)),
            "52 00000000000000000000000000000001 0000000000000005 0000000000000006",
        ),
        (key::block(258), "62 0000000000000102"),
        (key::place(table::LEFT, place), "6c 00000000000000000000000000000001 0000000000000005 00000000 02"),
        (key::relayout(FileId(5)), "4c 0000000000000005"),
        (key::moving(FileId(5), 2), "4d 0000000000000005 00000002"),
        (key::drain(DriveId(1)), "65 00000000000000000000000000000001"),
        (key::term(258), "74 0000000000000102"),
        (key::operation(7, 258), "6f 0000000000000007 0000000000000102"),
    ];
    for (key, golden) in cases {
        assert_eq!(hex(&key), golden.split_whitespace().collect::<String>());
        let letter = format!("| `{}` |", char::from(key[0]));
        assert!(DOCUMENT.contains(&letter), "the document has no row for {letter}");
    }
    assert_eq!(key::place_of(&key::place(table::STALE, place)), place);
    assert_eq!(key::moving_of(&key::moving(FileId(5), 2)), (FileId(5), 2));
    assert!(DOCUMENT.contains(&format!("version {SCHEMA_VERSION}\n")));
    assert!(DOCUMENT.contains("64 0000000000000002 66") && DOCUMENT.contains("`01 01 0500000000000000`"));
    assert!(DOCUMENT.contains("73 00000000000000000000000000000001 0000000000000005 00000000 02"));
    assert!(DOCUMENT.contains("`01 00 01`"));
}

#[test]
fn small_records_are_as_they_were() {
    check(&EntryRecord { kind: EntryKind::File, file: FileId(5) }, "01 01 0500000000000000");
    check(&DriveCount { components: 7, stale: 1 }, "01 0700000000000000 0100000000000000");
    check(&StaleRecord { joining: false, told: true }, "01 00 01");
    check(&StaleRecord { joining: true, told: true }, "01 01 01");
    check(&RelayoutRecord { shape: SHAPE }, "01 05 02 01 00100000");
    check(&PartitionRecord { key_epoch: 1 }, "01 01000000");
    check(&RemovalRecord { volume: VolumeId(1), left: 5 }, "01 0100000000000000 05000000");
    check(
        &LeftRecord { volume: VolumeId(1), object: ObjectId(6), g: Generation(2) },
        "01 0100000000000000 0600000000000000 02000000",
    );
    check(&MoveRecord { column: Column(2), drive: DriveId(1) }, "01 02 01000000000000000000000000000000");
    check(&RemoveRecord { volume: VolumeId(1), g: Generation(2) }, "01 0100000000000000 02000000");
    check(
        &OperationRecord { done_ms: 9, request: 10, file: FileId(5), lease: Lease(3), number: 11 },
        "01 0900000000000000 0a000000 0500000000000000 03000000 0b00000000000000",
    );
}

#[test]
fn the_cluster_and_a_volume_are_as_they_were() {
    let cluster = ClusterRecord {
        cluster: braid_layout::ClusterId(1),
        client_secret: Key::new([0x11; 32]),
        join_secret: Key::new([0x22; 32]),
        created_ms: 3,
    };
    let secrets = format!("{}{}", "11".repeat(32), "22".repeat(32));
    check(&cluster, &format!("01 01000000000000000000000000000000 {secrets} 0300000000000000"));
    let volume = VolumeRecord {
        volume: VolumeId(1),
        name: "main".into(),
        shape: SHAPE,
        quota_bytes: 9,
        files: 2,
        file_bytes: 3,
        created_ms: 4,
        root: FileId(2),
    };
    check(
        &volume,
        "01 0100000000000000 04000000 6d61696e 05 02 01 00100000 0900000000000000 0200000000000000 0300000000000000
         0400000000000000 0200000000000000",
    );
}

#[test]
fn a_file_is_as_it_was() {
    let segment = SegmentRecord {
        number: 1,
        start: 0,
        end: u64::MAX,
        shape: SHAPE,
        object: ObjectId(6),
        drives: vec![DriveId(1), DriveId(2), DriveId(3)],
        set: ColumnMask(0b101),
        joining: ColumnMask(0b100),
        filling: Some(Version { g: Generation(2), lease: Lease(3), n: 1 }),
    };
    let inode = InodeRecord {
        volume: VolumeId(1),
        kind: EntryKind::File,
        parent: FileId(2),
        name: b"f".to_vec(),
        size: 100,
        created_ms: 7,
        modified_ms: 8,
        mode: Some(0o640),
        g: Generation(3),
        lease: Lease(4),
        held: true,
        client: 5,
        alone: false,
        shared: true,
        since: Lease(2),
        parts: vec![PartRecord { holder: 5, lease: Lease(4), from: 8192, to: u64::MAX }],
        cut_at: Lease(3),
        cut: true,
        order: 9,
        unfenced: false,
        segments: vec![segment],
    };
    check(
        &inode,
        "01 0100000000000000 01 0200000000000000 01000000 66 6400000000000000 0700000000000000 0800000000000000
         01 a0010000 03000000 04000000 01 0500000000000000 00 01 02000000
         01000000 0500000000000000 04000000 0020000000000000 ffffffffffffffff
         03000000 01 0900000000000000 00
         01000000
         01000000 0000000000000000 ffffffffffffffff 05 02 01 00100000 0600000000000000 03000000
         01000000000000000000000000000000 02000000000000000000000000000000 03000000000000000000000000000000
         0500000000000000 0400000000000000 01 02000000 03000000 0100000000000000",
    );
}

#[test]
fn a_drive_is_as_it_was() {
    let drive = DriveRecord {
        drive: DriveId(1),
        name: "d".into(),
        master: Key::new([0x33; 32]),
        confirmed: true,
        replaced_by: DriveId(0),
        address: "a:1".into(),
        host: "h".into(),
        rack: "".into(),
        directory: "/d".into(),
        capacity_bytes: 1,
        joined_ms: 2,
        instance: 3,
        stored: 2,
        start: 4,
        log: 5,
        behind: true,
    };
    let golden = format!(
        "01 01000000000000000000000000000000 01000000 64 {} 01 {} 03000000 613a31 01000000 68 00000000 02000000 2f64
         0100000000000000 0200000000000000 0300000000000000 0200000000000000 0400000000000000 0500000000000000 01",
        "33".repeat(32),
        "00".repeat(16),
    );
    check(&drive, &golden);
}

#[test]
fn the_document_lists_every_record_with_its_fields() {
    let source = include_str!("../src/schema.rs");
    let mut records = 0;
    for part in source.split("pub struct ").skip(1).filter(|part| part.starts_with(char::is_uppercase)) {
        let name = part.split([' ', '{']).next().unwrap();
        let Some(row) = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {name} |"))) else {
            assert_eq!(name, "ComponentPlace", "no row for {name}");
            continue;
        };
        let body = part.split_once('{').unwrap().1.split_once('}').unwrap().0;
        let fields = body.lines().map(str::trim).filter(|line| !line.starts_with("//") && line.contains(':'));
        let mut rest = row.split_once("| ").unwrap().1.split_once('|').unwrap().1;
        for field in fields.map(|line| line.split(':').next().unwrap()) {
            let at =
                rest.find(&format!("{field} ")).unwrap_or_else(|| panic!("{name}: {field} is not in {row}"));
            rest = &rest[at + field.len()..];
        }
        records += 1;
    }
    assert_eq!(records, 16);
}
