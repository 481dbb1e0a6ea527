//! The state's format, version 3: golden bytes, and docs/format-manager.md must agree with the code.

use braid_layout::version::Lease;
use braid_layout::{
    ClientId, Column, ColumnMask, DriveId, FileId, Generation, HolderId, ObjectId, OperationNumber,
    ReservationId, TokenId, Version, VolumeId,
};
use braid_meta::records::kv::KvError;
use braid_meta::records::schema::*;
use braid_wire::capability::{DataDirection, Key};
use braid_wire::control::{
    Clustering, EntryKind, KeepCounts, KeyTurn, ShapeSpec, TokenUser, VolumeKey, Xattr,
};
use braid_wire::token::TokenRole;
use proptest::prelude::*;

const DOCUMENT: &str = include_str!("../../../../docs/format-manager.md");

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
    for damaged in [&bytes[..bytes.len() - 1], &longer, &[]] {
        assert!(matches!(decode::<R>(b"k", damaged), Err(KvError::Damaged { .. })), "{damaged:02x?}");
    }
    let mut other = bytes.clone();
    other[0] = 4;
    let newer = decode::<R>(b"k", &other).unwrap_err();
    assert!(matches!(newer, KvError::Newer { found: 4, known: 3 }), "{newer}");
    other[0] = 1;
    let old = decode::<R>(b"k", &other).unwrap_err();
    assert!(matches!(old, KvError::Version { found: 1, wanted: 2 }), "{old}");
    assert!(old.to_string().contains("found the cluster anew"), "{old}");
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
        (key::more_name(FileId(5), FileId(2), b"f"), "4e 0000000000000005 0000000000000002 66"),
        (key::xattr(FileId(5), b"user.a"), "78 0000000000000005 757365722e61"),
        (key::attention(FileId(5)), "68 0000000000000005"),
        (key::drive(DriveId(1)), "44 00000000000000000000000000000001"),
        (key::drive_count(DriveId(1)), "6e 00000000000000000000000000000001"),
        (key::seat_of(DriveId(1)), "75 00000000000000000000000000000001"),
        (key::seat(258), "55 00000102"),
        (key::columns(258, chunk::of_file(FileId(0x1_0203))), "63 00000102 0000000000000102"),
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
        (key::quota(VolumeId(3), Account::Volume), "51 0000000000000003 76"),
        (key::quota(VolumeId(3), Account::Tree(FileId(5))), "51 0000000000000003 64 0000000000000005"),
        (key::quota(VolumeId(3), Account::User(7)), "51 0000000000000003 75 00000007"),
        (
            key::partition(table::PARTITION_QUOTA, DriveId(1), VolumeId(3)),
            "7a 00000000000000000000000000000001 0000000000000003",
        ),
        (key::moving(FileId(5), 2), "4d 0000000000000005 00000002"),
        (key::reservation(ReservationId(258)), "50 0000000000000102"),
        (key::drain(DriveId(1)), "65 00000000000000000000000000000001"),
        (key::pause(DriveId(1)), "67 00000000000000000000000000000001"),
        (key::parts(DriveId(1)), "79 00000000000000000000000000000001"),
        (key::drive_key(DriveId(1)), "6a 00000000000000000000000000000001"),
        (key::volume_keys(VolumeId(3)), "77 0000000000000003"),
        (key::volume_seal(VolumeId(3)), "4a 0000000000000003"),
        (key::shut_out(ClientId(7)), "58 0000000000000007"),
        (key::token(TokenId(7)), "41 0000000000000007"),
        (key::term(258), "74 0000000000000102"),
        (key::history(VolumeId(3)), "48 0000000000000003"),
        (key::snapshot(VolumeId(3), 258), "53 0000000000000003 00000102"),
        (key::snapshot_name(FileId(2), "a"), "54 0000000000000002 61"),
        (key::schedule(FileId(2)), "4b 0000000000000002"),
        (key::past_inode(FileId(5), 258), "49 0000000000000005 00000102"),
        (key::past_bytes(FileId(5), 258), "42 0000000000000005 00000102"),
        (key::past_entry(FileId(2), b"f", 258), "45 0000000000000002 66 00 00000102"),
        (key::freezing(FileId(9)), "46 0000000000000009"),
        (
            key::kept_for(VolumeId(3), 258, &key::past_bytes(FileId(5), 258)),
            "57 0000000000000003 00000102 42 0000000000000005 00000102",
        ),
        (key::operation(ClientId(7), OperationNumber(258)), "6f 0000000000000007 0000000000000102"),
    ];
    for (key, golden) in cases {
        assert_eq!(hex(&key), golden.split_whitespace().collect::<String>());
        let letter = format!("| `{}` |", char::from(key[0]));
        assert!(DOCUMENT.contains(&letter), "the document has no row for {letter}");
    }
    assert_eq!(key::place_of(&key::place(table::STALE, place)), place);
    assert_eq!(key::moving_of(&key::moving(FileId(5), 2)), (FileId(5), 2));
    assert!(DOCUMENT.contains(&format!("version {SCHEMA_VERSION}\n")));
    assert!(DOCUMENT.contains("64 0000000000000002 66") && DOCUMENT.contains("`03 01 0500000000000000`"));
    assert!(DOCUMENT.contains("73 00000000000000000000000000000001 0000000000000005 00000000 02"));
    assert!(DOCUMENT.contains("`03 00 01`"));
}

#[test]
fn small_records_are_as_they_were() {
    check(&XattrRecord { value: b"v".to_vec() }, "03 01000000 76");
    check(&EntryRecord::of(EntryKind::File, FileId(5)), "03 01 0500000000000000");
    check(&DriveCount { components: 7, stale: 1 }, "03 0700000000000000 0100000000000000");
    check(
        &AuthorityRecord { key: Key::new([7; 32]), certificate: vec![0x30, 0x82] },
        &format!("03 {} 02000000 3082", "07".repeat(32)),
    );
    check(&StaleRecord { joining: false, told: true }, "03 00 01");
    check(&StaleRecord { joining: true, told: true }, "03 01 01");
    check(&LockSessionRecord { client: ClientId(5) }, "03 0500000000000000");
    check(&RelayoutRecord { shape: SHAPE }, "03 05 02 01 00100000");
    check(&PartitionRecord { key_epoch: 1 }, "03 01000000");
    check(&VolumeKeysRecord { epoch: 2, turned_ms: 3 }, "03 02000000 0300000000000000");
    let sealed = VolumeKey { id: "k".into(), wrapped: vec![9], check: [7; 16] };
    check(&sealed, &format!("03 01000000 6b 01000000 09 {}", "07".repeat(16)));
    check(&ShutOutRecord { since_ms: 3 }, "03 0300000000000000");
    let token = TokenRecord {
        name: "film".into(),
        role: TokenRole::Client,
        secret: Key::new([0x33; 32]),
        volumes: Some(vec![VolumeId(3)]),
        below: vec![FileId(5)],
        user: Some(TokenUser { uid: 1000, gids: vec![100] }),
        read_only: true,
        single_use: false,
        used_by: DriveId(0),
        made_ms: 3,
        expires_s: 4,
        revoked_ms: 5,
    };
    check(
        &token,
        "03 04000000 66696c6d 02 3333333333333333333333333333333333333333333333333333333333333333 \
         01 01000000 0300000000000000 01000000 0500000000000000 01 e8030000 01000000 64000000 01 00 00000000000000000000000000000000 \
         0300000000000000 0400000000000000 0500000000000000",
    );
    check(&DriveKeyRecord::FIRST, "03 01000000 00 00 0000000000000000 00");
    let turn = KeyTurn { number: 2, next: Some([7; 32]), at_once: true };
    check(
        &DriveKeyRecord { turn, turned_ms: 3, may_rejoin: true },
        &format!("03 02000000 01 {} 01 0300000000000000 01", "07".repeat(32)),
    );
    check(
        &QuotaRecord { limit_bytes: 1, limit_files: 2, bytes: 3, files: 4, trees: 5 },
        "03 0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000",
    );
    check(&RemovalRecord { volume: VolumeId(1), left: 5 }, "03 0100000000000000 05000000");
    check(
        &LeftRecord { volume: VolumeId(1), object: ObjectId(6), g: Generation(2) },
        "03 0100000000000000 0600000000000000 02000000",
    );
    check(&MoveRecord { column: Column(2), drive: DriveId(1) }, "03 02 01000000000000000000000000000000");
    check(&RemoveRecord { volume: VolumeId(1), g: Generation(2) }, "03 0100000000000000 02000000");
    check(
        &OperationRecord { done_ms: 9, request: 10, file: FileId(5), lease: Lease(3), number: 11 },
        "03 0900000000000000 0a000000 0500000000000000 03000000 0b00000000000000",
    );
}

#[test]
fn snapshots_and_past_rows_are_as_they_were() {
    check(
        &EntryRecord { since: 2, ..EntryRecord::of(EntryKind::File, FileId(5)) },
        "03 01 0500000000000000 02000000",
    );
    check(
        &HistoryRecord { newest: 3, snapshots: 2, past_files: 4, past_bytes: 5 },
        "03 03000000 02000000 0400000000000000 0500000000000000",
    );
    let snapshot = SnapshotRecord {
        root: FileId(2),
        name: "a".into(),
        taken_ms: 7,
        going: false,
        late: 1,
        scheduled: true,
    };
    check(&snapshot, "03 0200000000000000 01000000 61 0700000000000000 00 01000000 01");
    let keep = KeepCounts { hours: 24, days: 7, weeks: 4 };
    let schedule = ScheduleRecord { keep, next_ms: 9, problem: "x".into() };
    check(&schedule, "03 18000000 07000000 04000000 0900000000000000 01000000 78");
    let xattrs = vec![Xattr { name: b"n".to_vec(), value: b"v".to_vec() }];
    check(
        &PastInode { epoch: 1, roots: vec![FileId(2)], row: vec![3, 0], xattrs },
        "03 01000000 01000000 0200000000000000 02000000 0300 01000000 01000000 6e 01000000 76",
    );
    check(
        &PastBytes { epoch: 1, roots: vec![FileId(0), FileId(2)], data: FileId(9) },
        "03 01000000 02000000 0000000000000000 0200000000000000 0900000000000000",
    );
    check(
        &PastEntry { kind: EntryKind::File, file: FileId(5), since: 1, roots: vec![] },
        "03 01 0500000000000000 01000000 00000000",
    );
    // An entry that says what its absence would say is damage.
    decode::<EntryRecord>(b"k", b"\x03\x01\x05\0\0\0\0\0\0\0\0\0\0\0").unwrap_err();
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
    check(&cluster, &format!("03 01000000000000000000000000000000 {secrets} 0300000000000000"));
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
        "03 0100000000000000 04000000 6d61696e 05 02 01 00100000 0900000000000000 0200000000000000 0300000000000000
         0400000000000000 0200000000000000",
    );
}

#[test]
fn a_reservation_is_as_it_was() {
    let reservation = ReservationRecord {
        reservation: ReservationId(1),
        volume: VolumeId(2),
        file: FileId(3),
        parent: FileId(4),
        name: b"f".to_vec(),
        path: b"d/f".to_vec(),
        direction: DataDirection::Write,
        rate: 5,
        streams: 6,
        period_ms: 7,
        survive: 8,
        rail: 9,
        client: ClientId(0x77),
        begun_ms: 10,
        ends_ms: 11,
        claim_until_ms: 12,
        shape: SHAPE,
        drives: vec![DriveId(1), DriveId(2)],
        booked: vec![DriveShare { drive: DriveId(3), rate: 13, burst: 14 }],
        operation_bytes: 15,
        buffer_bytes: 16,
        lateness_us: 17,
        failover_us: 18,
        start_us: 19,
    };
    let one = "01000000000000000000000000000000";
    let two = "02000000000000000000000000000000";
    let three = "03000000000000000000000000000000";
    check(
        &reservation,
        &format!(
            "03 0100000000000000 0200000000000000 0300000000000000 0400000000000000 01000000 66
             03000000 642f66 02 0500000000000000 06000000 07000000 08 0900000000000000 7700000000000000
             0a00000000000000 0b00000000000000 0c00000000000000 05 02 01 00100000
             02000000 {one} {two} 01000000 {three} 0d00000000000000 0e00000000000000 0f000000
             1000000000000000 1100000000000000 1200000000000000
             1300000000000000"
        ),
    );
    let row = DOCUMENT.lines().find(|line| line.starts_with("| ReservationRecord |")).expect("its row");
    let mut rest = row;
    for (field, _) in <ReservationRecord as braid_wire::Record>::FIELDS {
        let at = rest.find(field).unwrap_or_else(|| panic!("{field} is not named, or not in its place"));
        rest = &rest[at + field.len()..];
    }
}

/// A file of a shared directory that is not being written.
fn small_file() -> InodeRecord {
    let segment = SegmentRecord {
        number: 0,
        start: 0,
        end: u64::MAX,
        shape: SHAPE,
        object: ObjectId(6),
        drives: vec![DriveId(1), DriveId(2), DriveId(3)],
        set: ColumnMask::all(3),
        joining: ColumnMask::EMPTY,
        filling: None,
    };
    InodeRecord {
        volume: VolumeId(1),
        kind: EntryKind::File,
        parent: FileId(2),
        name: b"f".to_vec(),
        size: 100,
        reach: None,
        allocated: 0,
        reserved: 0,
        created_ms: 700,
        times: Times::at(701),
        mode: 0o644,
        uid: 0,
        gid: 0,
        more_links: 0,
        device: 0,
        target: Vec::new(),
        xattr_bytes: 0,
        g: Generation(1),
        lease: Lease(1),
        held: false,
        holder: HolderId(5),
        alone: false,
        shared: false,
        since: Lease(0),
        parts: Vec::new(),
        gone: Vec::new(),
        cut_at: Lease(0),
        touched: None,
        cut: false,
        within: Version::ZERO,
        order: 1,
        kept: false,
        unfenced: false,
        layout: None,
        clustering: None,
        cluster: 0,
        token: TokenId::NONE,
        sealed: false,
        epoch: 0,
        bytes_epoch: 0,
        moved: 0,
        frozen: FileId(0),
        freezing: None,
        segments: vec![segment],
    }
}

/// A file with all fields that a file may have.
fn rare_file() -> InodeRecord {
    let small = small_file();
    let segment = SegmentRecord {
        number: 1,
        start: 4096,
        end: 8192,
        set: ColumnMask(0b101),
        joining: ColumnMask(0b100),
        filling: Some(Version { g: Generation(2), lease: Lease(3), n: 1 }),
        ..small.segments[0].clone()
    };
    InodeRecord {
        reserved: 500,
        reach: Some(600),
        allocated: 700,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        more_links: 2,
        xattr_bytes: 300,
        times: Times { accessed_ns: 701_000_005, modified_ns: 701_000_007, changed_ns: 702_000_000 },
        g: Generation(3),
        lease: Lease(4),
        held: true,
        alone: true,
        shared: true,
        since: Lease(2),
        parts: vec![PartRecord { holder: HolderId(5), lease: Lease(4), from: 8192, to: u64::MAX }],
        cut_at: Lease(3),
        touched: Some(ColumnMask(0b101)),
        cut: true,
        within: Version { g: Generation(3), lease: Lease(4), n: 7 },
        gone: vec![HolderId(7), HolderId(8)],
        order: 9,
        kept: true,
        unfenced: true,
        epoch: 3,
        bytes_epoch: 2,
        moved: 1,
        frozen: FileId(8),
        freezing: Some(Freezing { data: FileId(9), g: Generation(3), objects: vec![ObjectId(10)] }),
        cluster: 11,
        token: TokenId(12),
        sealed: true,
        segments: vec![segment],
        ..small
    }
}

fn directory() -> InodeRecord {
    InodeRecord {
        kind: EntryKind::Directory,
        mode: 0o755,
        g: Generation(0),
        lease: Lease(0),
        holder: HolderId::NONE,
        order: 0,
        segments: Vec::new(),
        ..small_file()
    }
}

/// A directory with a layout of its own.
fn directory_with_layout() -> InodeRecord {
    InodeRecord { layout: Some(SHAPE), clustering: Some(Clustering::Tree), ..directory() }
}

fn link() -> InodeRecord {
    InodeRecord { kind: EntryKind::Symlink, mode: 0o777, size: 4, target: b"../a".to_vec(), ..directory() }
}

fn device() -> InodeRecord {
    InodeRecord { kind: EntryKind::CharDevice, mode: 0o600, size: 0, device: 259, ..directory() }
}

#[test]
fn a_file_of_version_2_is_read() {
    let of = |golden: &str| {
        let golden: String = golden.split_whitespace().collect();
        (0..golden.len()).step_by(2).map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap()).collect()
    };
    let read = |golden: &str| {
        let bytes: Vec<u8> = of(golden);
        let (mut inode, seats) = stored::decode(FileId(5), 2, &bytes).unwrap();
        assert_eq!(seats.concat(), [1, 2, 300]);
        inode.segments[0].drives = vec![DriveId(1), DriveId(2), DriveId(3)];
        inode
    };
    let without_mode = "8000 0100000000000000 0200000000000000 01 66 64 bc05 02 01 01 0500000000000000 01
         01 00 00 05 02 01 8020 02 03 01 02 ac02";
    assert_eq!(read(without_mode), small_file());
    let usual_mode = "c000 0100000000000000 0200000000000000 01 66 64 bc05 02 a403 01 01 0500000000000000 01
         01 00 00 05 02 01 8020 02 03 01 02 ac02";
    assert_eq!(read(usual_mode), InodeRecord { mode: 0o644, ..small_file() });
    let bytes: Vec<u8> = of(usual_mode);
    assert!(stored::decode(FileId(5), SCHEMA_VERSION, &bytes).is_err(), "version 3 leaves it out");
}

#[test]
fn a_file_is_as_it_was() {
    let seats = [1, 2, 300];
    for (inode, golden) in [
        (
            small_file(),
            "8001 0100000000000000 0200000000000000 01 66 64 bc05 02 01 01 0500000000000000 01
             01 00 00 05 02 01 8020 02 03 01 02 ac02",
        ),
        (
            rare_file(),
            "feffbedf03 0100000000000000 0200000000000000 01 66 64 f403 d804 bc05 bc05 02 07 03 f2887a a003 e807 64 02 ac02
             03 04 0500000000000000 09
             02 01 0500000000000000 04 8040 00 03 05 03 04 07 02 0700000000000000 0800000000000000
             03 02 01 0800000000000000 0900000000000000 03 01 0a00000000000000 0b00000000000000
             0c00000000000000 01 0f 01 8020 828001 05 02 01 8020 02 03 01 02 ac02 05 04 02 03 01",
        ),
        (link(), "808001 0100000000000000 0200000000000000 01 66 04 bc05 02 03 00 04 2e2e2f61 00 00 00 00"),
        (device(), "c08001 0100000000000000 0200000000000000 01 66 00 bc05 02 06 8302 00 8003 00 00 00 00"),
        (
            directory_with_layout(),
            "8180c020 0100000000000000 0200000000000000 01 66 64 bc05 02 00 00 00 05 02 01 8020 02 00",
        ),
        (directory(), "01 0100000000000000 0200000000000000 01 66 64 bc05 02 00 00 00 00"),
    ] {
        let seats = if inode.segments.is_empty() { &[][..] } else { &seats };
        let bytes = stored::encode(FileId(5), &inode, seats);
        assert_eq!(hex(&bytes), golden.split_whitespace().collect::<String>(), "{inode:?}");
        check_file(&inode, seats, &bytes);
    }
    let component = [chunk::Spot { low: chunk::low(FileId(5)), segment: 0, column: Column(2) }];
    assert_eq!(hex(&chunk::encode(&component)), "0502");
    assert!(DOCUMENT.contains("key `63 0000012c 0000000000000000`, value `03 05 02`"));
    assert_eq!(hex(&key::columns(300, chunk::of_file(FileId(5)))), "630000012c0000000000000000");
    let document: String = DOCUMENT.split_whitespace().collect();
    let shown = stored::encode(FileId(5), &small_file(), &seats);
    assert!(document.contains(&format!("03{}", hex(&shown))), "the worked example");
}

/// Checks that the bytes are those of this record, and do not decode if one is missing or too many.
fn check_file(inode: &InodeRecord, seats: &[u32], bytes: &[u8]) {
    let (mut decoded, found) = stored::decode(FileId(5), SCHEMA_VERSION, bytes).unwrap();
    assert_eq!(found.concat(), seats);
    for (segment, of) in decoded.segments.iter_mut().zip(&inode.segments) {
        segment.drives.clone_from(&of.drives);
    }
    assert_eq!(&decoded, inode);
    for end in 0..bytes.len() {
        assert!(stored::decode(FileId(5), SCHEMA_VERSION, &bytes[..end]).is_err(), "{end} bytes");
    }
    assert!(stored::decode(FileId(5), SCHEMA_VERSION, &[bytes, &[0]].concat()).is_err());
    let unknown_bit = [&[0x80, 0x80, 0x80, 0x20][..], &bytes[1..]].concat();
    assert!(stored::decode(FileId(5), SCHEMA_VERSION, &unknown_bit).is_err());
}

proptest! {
    #[test]
    fn any_bytes_of_a_file_are_refused_or_have_one_meaning(
        at in any::<prop::sample::Index>(),
        byte: u8,
        which in 0..5u8,
    ) {
        let inode = [small_file(), rare_file(), link(), device(), directory_with_layout()][usize::from(which)].clone();
        let seats = if inode.segments.is_empty() { &[][..] } else { &[1, 2, 300] };
        let mut bytes = stored::encode(FileId(5), &inode, seats);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok((mut found, seats)) = stored::decode(FileId(5), SCHEMA_VERSION, &bytes) {
            for (segment, seats) in found.segments.iter_mut().zip(&seats) {
                segment.drives = seats.iter().map(|&seat| DriveId(u128::from(seat))).collect();
            }
            prop_assert_eq!(stored::encode(FileId(5), &found, &seats.concat()), bytes);
        }
    }
}

#[test]
fn a_drive_is_as_it_was() {
    let drive = DriveRecord {
        drive: DriveId(1),
        name: "d".into(),
        master: Key::new([0x33; 32]),
        confirmed: true,
        replaced_by: DriveId(0),
        addresses: "a:1,b:2".into(),
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
        "03 01000000000000000000000000000000 01000000 64 {} 01 {} 07000000 613a312c623a32 01000000 68 00000000 02000000 2f64
         0100000000000000 0200000000000000 0300000000000000 0200000000000000 0400000000000000 0500000000000000 01",
        "33".repeat(32),
        "00".repeat(16),
    );
    check(&drive, &golden);
}

#[test]
fn the_document_lists_every_record_with_its_fields() {
    let source = [
        include_str!("../../src/records/schema.rs"),
        include_str!("../../src/records/schema/inode.rs"),
        include_str!("../../src/records/schema/past.rs"),
        include_str!("../../src/records/schema/segment.rs"),
    ]
    .concat();
    let mut records = 0;
    for part in source.split("pub struct ").skip(1).filter(|part| part.starts_with(char::is_uppercase)) {
        let name = part.split([' ', '{']).next().unwrap();
        let Some(row) = DOCUMENT.lines().find(|line| line.starts_with(&format!("| {name} |"))) else {
            assert_eq!(name, "ComponentPlace", "no row for {name}");
            continue;
        };
        let body = part.split_once('{').unwrap().1.split_once('}').unwrap().0;
        let fields = body.lines().map(str::trim).filter(|line| !line.starts_with("//") && line.contains(':'));
        let fields = fields.map(|line| line.trim_start_matches("pub "));
        if ["InodeRecord", "Times", "PartRecord", "SegmentRecord", "Freezing"].contains(&name) {
            // In any order, as bits stand for some of the fields.
            let (_, section) = DOCUMENT.split_once("## A file's row").unwrap();
            let (section, _) = section.split_once("\n## ").unwrap();
            for field in fields.map(|line| line.split(':').next().unwrap()) {
                let words = section.split(|c: char| !c.is_alphanumeric() && c != '_');
                assert!(words.into_iter().any(|word| word == field), "{name}: {field} is not in {section}");
            }
            records += 1;
            continue;
        }
        let mut rest = row.split_once("| ").unwrap().1.split_once('|').unwrap().1;
        for field in fields.map(|line| line.split(':').next().unwrap()) {
            let at =
                rest.find(&format!("{field} ")).unwrap_or_else(|| panic!("{name}: {field} is not in {row}"));
            rest = &rest[at + field.len()..];
        }
        records += 1;
    }
    assert_eq!(records, 27);
}
