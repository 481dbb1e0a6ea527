//! What the targets start from: the golden messages, and good ones of the store's formats.

use std::path::PathBuf;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, EndBound, FileId, Generation, Lease, ObjectId,
    OperationNumber, PartitionId, TokenId, Version, VolumeId,
};
use braid_store::Base;
use braid_store::format::checkpoint::{Appended, CheckpointEnd, ReplayPoint, SegmentRow, Totals};
use braid_store::format::dedup::{DedupEntry, OperationEntry};
use braid_store::format::entry::{LostRange, ObjectEntry, PartitionEntry, PlainUnit};
use braid_store::format::extent::{Extent, LogPosition};
use braid_store::format::page::{Key as PageKey, PageHead};
use braid_store::format::ready::ReadyEntry;
use braid_store::format::snapshots::SnapshotsEntry;
use braid_store::format::unit::{ContentEntry, KeepingEntry, Role, StepEntry, UnitEntry};
use braid_store::format::{body, record, segment::SegmentHeader, superblock::Superblock};
use braid_wire::capability::{Authority, Capability, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::control::{ControlReply, ControlRequest, EntryKind, FileAttributes, StatRow};
use braid_wire::data::{Address, DriveReply, DriveRequest, HELLO, Hello, PeerRole, Read, StripeWrite, Want};
use braid_wire::frame::FrameHeader;
use braid_wire::token::{Token, TokenRole};
use braid_wire::{Wire, checksum};

/// The drive that judges requests.
pub const DRIVE: DriveId = DriveId(0xd);

/// Its hello.
pub fn hello() -> Hello {
    Hello {
        role: PeerRole::Drive,
        version_min: 1,
        version_max: 1,
        cluster: ClusterId(0xc),
        drive: DRIVE,
        features: 0,
        challenge: [5; 16],
    }
}

/// Good inputs of a target.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "frame" => messages(&[], "drive-request", DriveRequest::KINDS)
            .into_iter()
            .map(|(kind, body)| [FrameHeader::new(kind, 1, &body, 0).emit().as_slice(), &body].concat())
            .chain([FrameHeader::new(HELLO, 0, &hello().to_bytes(), 0).emit().to_vec()])
            .collect(),
        "drive_request" => {
            let authority = Authority { capability: capability(), sequence: 1, nonce: [1; 16], mac: [2; 16] };
            let head = authority.to_bytes();
            let plain = plain_requests().into_iter().map(|request| {
                let mut body = head.clone();
                request.put_body(&mut body);
                (request.kind(), body)
            });
            with_kinds(
                messages(&head, "drive-request", DriveRequest::KINDS).into_iter().chain(plain).collect(),
            )
        }
        "datagram" | "datagram_events" => crate::datagram::seeds(target),
        "drive_reply" => with_kinds(messages(&[3; 20], "drive-reply", DriveReply::KINDS)),
        "control_request" => with_kinds(messages(&[3; 32], "control-request", ControlRequest::KINDS)),
        "control_reply" => {
            let mut seeds = with_kinds(messages(&[3; 16], "control-reply", ControlReply::KINDS));
            seeds.extend([1, 200_000].map(hungry_open));
            seeds
        }
        "hello" => vec![golden("head-Hello.txt"), golden("head-HelloRefused.txt")],
        "authority" => vec![golden("head-Authority.txt")],
        "token" => [(TokenRole::Client, 0), (TokenRole::Drive, 1_800_000_000)]
            .map(|(role, expires_s)| {
                let secret = Key::new([0xa5; 32]);
                Token { role, pin: [0x5a; 32], id: TokenId(9), secret, expires_s }
            })
            .map(|token| token.to_string().into_bytes())
            .to_vec(),
        "store_record" => records(),
        "superblock" => {
            let superblock = Superblock { cluster: ClusterId(0xc), drive: DRIVE, salt: 9 };
            let segment = SegmentHeader {
                number: 1,
                drive: DRIVE,
                salt: 9,
                first_sequence: 1,
                previous_end: 0,
                earlier_bytes: 8192,
            };
            vec![superblock.encode().to_vec(), segment.encode().to_vec()]
        }
        "checkpoint" => checkpoints(),
        other => panic!("no seeds for target {other}"),
    }
}

/// The ends of a checkpoint, and a page with an entry of each kind and by itself.
fn checkpoints() -> Vec<Vec<u8>> {
    let place = LogPosition { segment: 1, block: 9 };
    let version = Version { g: Generation(3), lease: Lease(4), n: 5 };
    let partition = PartitionId(1);
    let mut entries = Vec::new();
    PartitionEntry { partition, birth: 1, quota_bytes: None, key_epoch: 1 }.put(&mut entries);
    let object = ObjectEntry {
        partition,
        object: ObjectId(42),
        birth: 2,
        set: ColumnMask(7),
        joining: ColumnMask(0),
        created_ms: 1,
        modified_ms: 2,
        reserve_bytes: 1 << 20,
        cluster: 3,
        unit_bytes: 4096,
        g: Generation(3),
        column: Column(0),
        known: true,
        lost: None,
        husk: false,
        map: b"map",
        opaque: b"",
    };
    object.put(&mut entries);
    Base { object: ObjectId(41), birth: 1, number: 3 }.put(&mut entries);
    let operation = OperationEntry { operation: OperationNumber(4), unit: 1, version, data: 0 };
    DedupEntry { client: ClientId(3), watermark: OperationNumber(2), operations: vec![operation] }
        .put(&mut entries);
    ReadyEntry { runs: vec![(0, 3), (5, 5)] }.put(&mut entries);
    SnapshotsEntry { highest: 4, live: vec![1, 3] }.put(&mut entries);
    let own = Extent { from: 0, to: 512, segment: 1, block: 9 };
    PlainUnit { unit: 0, version, columns: ColumnMask(7), extent: Extent { to: 4096, ..own } }
        .put(&mut entries, None);
    let content = |role, step, extents| ContentEntry {
        role,
        kind: record::Kind::ParityBase,
        version,
        columns: ColumnMask(7),
        column: Column(1),
        step,
        cover: vec![version; 2],
        ends: vec![EndBound::exactly(4096); 2],
        extents,
        ..ContentEntry::default()
    };
    let step = StepEntry { previous: version, client: ClientId(1), operation: OperationNumber(2), own };
    let settled =
        content(Role::Settled, None, vec![own, Extent { from: 512, to: 4096, segment: 0, block: 0 }]);
    let layer = ContentEntry { cover: Vec::new(), ends: Vec::new(), ..content(Role::Layer, None, vec![own]) };
    let pending = content(Role::Pending, Some(step), Vec::new());
    let delta = ContentEntry {
        kind: record::Kind::Delta,
        settled: true,
        end: 4096,
        ..content(Role::Delta, Some(step), Vec::new())
    };
    let keeping = Some(KeepingEntry { epoch: 0, until: 3, lost: None });
    let kept = ContentEntry { keeping, ..content(Role::Kept, None, vec![own]) };
    UnitEntry { unit: 1, lost: Some(place), epoch: 3, contents: vec![settled, layer, kept, pending, delta] }
        .put(&mut entries);
    let to = PageKey::At(partition, Some(ObjectId(50)));
    LostRange { from: PageKey::FIRST, to, checkpoint: 1, segment: 0, offset: 512 }.put(&mut entries);
    let head =
        PageHead { checkpoint: 2, salt: 9, index: 0, as_of: 7, from: PageKey::FIRST, to, part: 0, parts: 1 };
    let row = SegmentRow { number: 1, damaged: false, bytes: 4096, first_sequence: 1 };
    let end = |totals| CheckpointEnd {
        number: 2,
        drive: DRIVE,
        salt: 9,
        replay: ReplayPoint::default(),
        appended: Appended { written: 3 << 20, moved: 1 << 20 },
        segments: vec![row],
        totals,
    };
    let trailer = end(Some(Totals { pages: 1, durable_to: 7 }));
    vec![head.encode(&entries), entries, end(None).encode(), trailer.encode()]
}

/// A page, a header and a trailer with their checksums made right, as far as the bytes can be any.
pub fn reseal_checkpoint(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    if let Ok(length) = PageHead::length(bytes)
        && let Some(page) = bytes.get(..length)
    {
        let mut page = page.to_vec();
        let sum = checksum::crc32c(&[&page[..92], &page[96..]].concat());
        page[92..96].copy_from_slice(&sum.to_le_bytes());
        out.push(page);
    }
    let table_crc = |block: &mut [u8], table: &[u8]| {
        block[84..88].copy_from_slice(&checksum::crc32c(table).to_le_bytes());
        let sum = checksum::crc32c(&block[..508]);
        block[508..].copy_from_slice(&sum.to_le_bytes());
    };
    if bytes.len() >= 512 {
        let mut header = bytes.to_vec();
        let (block, table) = header.split_at_mut(512);
        table_crc(block, table);
        out.push(header);
        let mut trailer = bytes.to_vec();
        let (table, block) = trailer.split_at_mut(bytes.len() - 512);
        table_crc(block, table);
        out.push(trailer);
    }
    out
}

/// A record's header with its checksum made right; `None` if there is no whole header.
pub fn reseal_record(bytes: &[u8]) -> Option<Vec<u8>> {
    let field =
        |name| record::FIELDS.iter().find(|field| field.name == name).map(|field| field.bytes.clone());
    let (length, crc) = (field("header bytes")?, field("header crc")?);
    let header_bytes = u32::from_le_bytes(bytes.get(length)?.try_into().ok()?);
    let padded = usize::try_from(header_bytes).ok()?.checked_next_multiple_of(512)?;
    let mut header = bytes.get(..padded)?.to_vec();
    let covered = [header.get(..crc.start)?, header.get(crc.end..)?].concat();
    let sum = checksum::crc32c(&covered);
    header[crc].copy_from_slice(&sum.to_le_bytes());
    Some(header)
}

fn capability() -> Capability {
    Capability {
        drive: DRIVE,
        partition: PartitionId(1),
        object: ObjectId(42),
        rights: Rights::ALL,
        expires_ms: u64::MAX,
        promise: Promise::NONE,
        client: ClientId(5),
        key_epoch: 1,
        g: Generation(3),
        set: ColumnMask(7),
        joining: ColumnMask(1),
        lease: Lease(4),
        kind: LeaseKind::Exclusive,
        first_stripe: 0,
        end_stripe: u64::MAX,
        reach: u64::MAX,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
        file: FileId(42),
    }
}

/// Requests that are good in every respect, unlike the golden ones.
fn plain_requests() -> [DriveRequest; 2] {
    let at = || Address { partition: PartitionId(1), object: ObjectId(42) };
    let version = |n| Version { g: Generation(3), lease: Lease(4), n };
    let read =
        Read { at: at(), unit: 1, from: 0, to: 4096, want: Want::Newest, exactly: Vec::new(), timed: false };
    let write = StripeWrite {
        at: at(),
        unit: 1,
        from: 0,
        to: 4096,
        hole: false,
        install: false,
        whole: false,
        stamp: version(2),
        columns: ColumnMask(7),
        cover: vec![version(2); 2],
        ends: vec![EndBound::at_least(4096); 2],
        settled_below: version(1),
        client: ClientId(1),
        operation: OperationNumber(1),
        crcs: vec![0],
        timed: false,
    };
    [read.into(), write.into()]
}

/// An open file's reply of a megabyte that claims as many grants as it has bytes, in this many lists: each
/// would take two hundred bytes of memory.
fn hungry_open(lists: u32) -> Vec<u8> {
    let attributes = FileAttributes {
        kind: EntryKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        links: 1,
        size: 0,
        device: 0,
        has_xattrs: false,
        accessed_ns: 0,
        modified_ns: 0,
        changed_ns: 0,
        created_ns: 0,
        sealed: false,
    };
    let stat = StatRow {
        snapshot: 0,
        volume: VolumeId(1),
        file: FileId(1),
        parent: FileId(2),
        attributes,
        target: Vec::new(),
        g: Generation(1),
        segments: Vec::new(),
    };
    let mut bytes =
        [0x8222_u16.to_le_bytes().as_slice(), &[3; 16], &stat.to_bytes(), &lists.to_le_bytes()].concat();
    let in_all: u32 = 1_000_000;
    for _ in 0..lists {
        let entries = in_all / lists;
        bytes.extend_from_slice(&entries.to_le_bytes());
        bytes.extend(std::iter::repeat_n(0, usize::try_from(entries).expect("a million")));
    }
    bytes
}

fn messages(head: &[u8], prefix: &str, kinds: &[(u16, &str)]) -> Vec<(u16, Vec<u8>)> {
    let body = |kind, name| [head, &golden(&format!("{prefix}-{kind:04x}-{name}.txt"))].concat();
    kinds.iter().map(|&(kind, name)| (kind, body(kind, name))).collect()
}

fn with_kinds(messages: Vec<(u16, Vec<u8>)>) -> Vec<Vec<u8>> {
    messages.into_iter().map(|(kind, body)| [kind.to_le_bytes().as_slice(), &body].concat()).collect()
}

/// The bytes of a golden dump of the wire crate.
fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/wire/tests/golden").join(name);
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    let bytes = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.get(6..53));
    bytes
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).expect("a golden dump holds hex digits"))
        .collect()
}

/// One of each kind.
fn records() -> Vec<Vec<u8>> {
    let mut records: Vec<Vec<u8>> = Vec::new();
    for &(kind, _, _) in record::Kind::ALL {
        let mut bare = record::Record::new(kind);
        bare.sequence = 7;
        bare.salt = 9;
        bare.partition = PartitionId(1);
        bare.object = ObjectId(42);
        records.push(bare.encode());
        bare.inline = body::partition_body(Some(1 << 30), 2);
        records.push(bare.encode());
        bare.cover = vec![Version::ZERO; 4];
        bare.ends = vec![EndBound::NONE; 4];
        bare.crcs = vec![1, 2, 3];
        records.push(bare.encode());
    }
    records
}
