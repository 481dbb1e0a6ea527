//! The bytes on disk, exactly. Each golden file is the annotated hex of one structure: a line per field, zero
//! fields left out, lists and bodies as they follow. `BRAID_GOLDEN=write` regenerates them: only for a new
//! format version.

use std::fmt::Write as _;
use std::path::PathBuf;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, EndBound, Generation, ObjectId, OperationNumber,
    PartitionId, Version,
};
use braid_store::block_crcs;
use braid_store::decode_record;
use braid_store::format::extent::Extent;
use braid_store::format::record::{FIELDS, FIXED_BYTES, Kind, Record, flags};
use braid_store::format::segment::SegmentHeader;
use braid_store::format::subject::Subject;
use braid_store::format::superblock::Superblock;
use braid_store::format::{Field, body, padded, segment, superblock};
use braid_store::{Attributes, Base, UnitVerdict};

use crate::common::*;

pub(crate) fn superblock_example() -> Superblock {
    Superblock { cluster: ClusterId(0xc1), drive: DriveId(0xd1), salt: 0x5a17 }
}

fn segment_example() -> SegmentHeader {
    SegmentHeader {
        number: 3,
        drive: DriveId(0xd1),
        salt: 0x5a17,
        first_sequence: 41,
        previous_end: 9216,
        earlier_bytes: 0,
    }
}

/// A record of `kind` with every field set that the kind uses.
pub(crate) fn record_example(kind: Kind) -> Record {
    let mut record = Record::new(kind);
    (record.sequence, record.salt, record.segment, record.block) = (42, 0x5a17, 3, 2);
    (record.synced_to, record.commit_first, record.commit_left) = (40, 41, 1);
    (record.partition, record.object, record.birth) = (PartitionId(7), ObjectId(9), 12);
    (record.g, record.set, record.joining) = (Generation(5), ColumnMask(0x1f), ColumnMask(0x10));
    record.column = Column(2);
    record.prior =
        Subject { kind: Some(Kind::Data), partition: PartitionId(7), object: ObjectId(8), unit: 6 };
    if kind.writes() {
        (record.unit, record.units, record.from, record.to) = (4, 1, 4000, 8200);
        (record.version, record.previous, record.settled_below) =
            (version(3, 9), version(3, 7), version(3, 8));
        record.columns = ColumnMask(0x13);
        (record.client, record.operation) = (ClientId(0xc11e), OperationNumber(77));
        let payload = pattern(1, 4200);
        record.crcs = block_crcs(4000, &payload);
        record.payload_bytes = 4200;
    }
    match kind {
        Kind::ParityBase | Kind::StripeParity => {
            record.cover = vec![version(3, 9), Version::ZERO, version(2, 6), version(3, 9)];
            let bytes = EndBound::at_least(8200);
            let hole = EndBound::at_most(4000);
            record.ends = vec![bytes, EndBound::exactly(0), EndBound::NONE, hole];
            if kind == Kind::ParityBase {
                record.ends = [8200, 0, 600, 4000].map(EndBound::exactly).to_vec();
            }
        }
        Kind::Verdict => {
            record.units = 1;
            let verdict = UnitVerdict {
                unit: 4,
                forward: vec![version(3, 9)],
                back: vec![version(4, 1)],
                cut_offs: vec![(Column(3), version(2, 5))],
            };
            record.inline = body::verdict_body(&[verdict]);
        }
        Kind::SettledTo => {
            (record.settled_below, record.version) = (version(3, 8), version(3, 9));
            (record.unit, record.units, record.client, record.watermark) =
                (4, 1, ClientId(0xc11e), OperationNumber(70));
            let of = |kind, object| Subject { kind: Some(kind), object: ObjectId(object), ..record.prior };
            record.before = vec![of(Kind::ObjectCreate, 10), of(Kind::Verdict, 8)];
        }
        Kind::Delta => (record.data, record.watermark, record.end) = (1, OperationNumber(70), 8200),
        Kind::ObjectCreate => body::put_attributes(&mut record, &attributes()),
        // Of a still.
        Kind::ObjectAttributes => {
            let base = Some(Base { object: ObjectId(8), birth: 3, number: 6 });
            body::put_attributes(&mut record, &Attributes { base, ..attributes() });
        }
        Kind::PartitionCreate | Kind::PartitionSet => record.inline = body::partition_body(Some(1 << 30), 2),
        Kind::Move => {
            (record.unit, record.units, record.from, record.to) = (4, 1, 4000, 8200);
            record.crcs = block_crcs(4000, &pattern(1, 4200));
            record.payload_bytes = 4200;
            let piece = |segment, block, from, to| Extent { from, to, segment, block };
            record.inline = body::move_body(&[piece(1, 3, 4000, 5000), piece(2, 19, 5000, 8200)]);
        }
        Kind::Snapshot | Kind::SnapshotDrop => record.inline = body::snapshot_body(6),
        Kind::Ready => (record.unit, record.units) = (4, 1),
        _ => {}
    }
    record
}

/// A unit write.
fn owed_example() -> Record {
    let mut record = record_example(Kind::Data);
    (record.flags, record.watermark) = (flags::OWED, OperationNumber(70));
    record
}

/// A base that a fold made.
fn folded_example() -> Record {
    let mut record = record_example(Kind::ParityBase);
    record.flags = flags::FOLDED;
    record
}

fn hole_example() -> Record {
    let mut record = record_example(Kind::Data);
    record.flags = flags::HOLE | flags::INSTALLED;
    record.crcs.clear();
    record.payload_bytes = 0;
    record
}

/// One line per nonzero field, then what follows the fields, 32 bytes a line.
pub(crate) fn annotate(fields: &[Field], bytes: &[u8]) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string");
            text
        })
    };
    let mut out = String::new();
    let mut end = 0;
    for field in fields {
        let value = &bytes[field.bytes.clone()];
        end = field.bytes.end;
        if value.iter().any(|&byte| byte != 0) {
            writeln!(out, "{:5} {:18} {}", field.bytes.start, field.name, hex(value)).expect("a string");
        }
    }
    for (i, line) in bytes[end..].chunks(32).enumerate() {
        if line.iter().any(|&byte| byte != 0) {
            writeln!(out, "{:5} {:18} {}", end + 32 * i, "", hex(line)).expect("a string");
        }
    }
    writeln!(out, "{:5} end", bytes.len()).expect("a string");
    out
}

/// The bytes of an annotated text.
pub(crate) fn parse(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let offset: usize = line[..5].trim().parse().expect("an offset");
        bytes.resize(offset, 0);
        let hex = line.get(25..).unwrap_or_default().trim();
        bytes
            .extend((0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex")));
    }
    bytes
}

pub(crate) fn check(name: &str, fields: &[Field], bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let text = annotate(fields, bytes);
    if std::env::var_os("BRAID_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("make the directory");
        std::fs::write(&path, &text).expect("write the golden file");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file");
    assert_eq!(text, golden, "{name}: these bytes are on people's disks");
    assert_eq!(parse(&golden), bytes, "{name}: the golden file stands for the whole structure");
}

#[test]
fn superblock_and_segment_header() {
    let bytes = superblock_example().encode();
    check("superblock", superblock::FIELDS, &bytes);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock_example()));
    let header = segment_example().encode();
    check("segment", segment::FIELDS, &header);
    assert_eq!(SegmentHeader::decode(&header), Ok(segment_example()));
    for i in 0..superblock::BYTES {
        let mut bytes = bytes;
        let mut header = header;
        bytes[i] ^= 4;
        header[i] ^= 4;
        assert!(Superblock::decode(&bytes).is_err() && SegmentHeader::decode(&header).is_err(), "byte {i}");
        assert!(Superblock::decode(&bytes[..i]).is_err() && SegmentHeader::decode(&header[..i]).is_err());
    }
}

#[test]
fn a_record_of_each_kind() {
    for &(kind, _, name) in Kind::ALL {
        let record = record_example(kind);
        check(&name.replace(' ', "_"), FIELDS, &record.encode());
        assert_eq!(decode_record(&record.encode()), Ok(record), "{name}");
    }
    for (name, record) in [("hole", hole_example()), ("owed", owed_example()), ("folded", folded_example())] {
        check(name, FIELDS, &record.encode());
        assert_eq!(decode_record(&record.encode()), Ok(record), "{name}");
    }
}

#[test]
fn every_bit_of_a_header_is_checked() {
    let bytes = record_example(Kind::StripeParity).encode();
    assert_eq!(bytes.len(), padded(FIXED_BYTES + 4 * 16 + 3 * 4));
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_record(&bad).is_err(), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(decode_record(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn flags_are_of_their_kinds_only() {
    for &(kind, _, name) in Kind::ALL {
        let data = [(flags::OWED, Kind::Data), (flags::WHOLE, Kind::Data)];
        let others = [(flags::FOLDED, Kind::ParityBase), (flags::DROPPED, Kind::Fence)];
        for (flag, of) in data.into_iter().chain(others) {
            let mut record = record_example(kind);
            record.flags |= flag;
            let decoded = decode_record(&record.encode());
            assert_eq!(decoded.is_ok(), kind == of, "{name} with flag {flag}");
        }
    }
    let mut below = record_example(Kind::Data);
    below.flags = flags::BELOW;
    assert!(decode_record(&below.encode()).is_err(), "only what is installed is below something");
    below.flags |= flags::INSTALLED;
    assert!(decode_record(&below.encode()).is_ok());
    let mut back = record_example(Kind::Delta);
    back.previous = back.version;
    assert!(decode_record(&back.encode()).is_err(), "a delta must lead to a newer version");
}
