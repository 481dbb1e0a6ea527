//! A fuzz target per decoder: a function of bytes that panics if a decoder does, or if it takes bytes for a
//! value that has other bytes (every value has one encoding). `fuzz_targets/` hands them to libFuzzer;
//! `bin/smoke` runs them on stable.

use braid_layout::{Column, Generation, PartitionId};
use braid_store::Base;
use braid_store::format::FORMAT_VERSION;
use braid_store::format::checkpoint::CheckpointEnd;
use braid_store::format::dedup::DedupEntry;
use braid_store::format::entry::{Entries, Entry};
use braid_store::format::page::PageHead;
use braid_store::format::ready::ReadyEntry;
use braid_store::format::snapshots::SnapshotsEntry;
use braid_store::format::unit::UnitEntry;
use braid_store::format::{body, record, segment::SegmentHeader, superblock::Superblock};
use braid_wire::authorise::{Needs, ObjectFacts, Scene, authorise, check_pieces, needs};
use braid_wire::capability::{Authority, Capability, Key};
use braid_wire::control::{ControlHead, ControlReply, ControlRequest, Grant, RequestHead};
use braid_wire::data::{ColumnMap, DriveReply, DriveRequest, Hello, PeerRole, ReplyHead};
use braid_wire::frame::{FrameHeader, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use braid_wire::seal::{Asker, split};
use braid_wire::token::Token;
use braid_wire::{Reason, Refusal, Wire, checksum};

pub mod corpus;
mod datagram;

pub use datagram::{datagram, datagram_events};

/// A target's name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("frame", frame),
    ("drive_request", drive_request),
    ("drive_reply", drive_reply),
    ("control_request", control_request),
    ("control_reply", control_reply),
    ("hello", hello),
    ("authority", authority),
    ("token", token),
    ("store_record", store_record),
    ("superblock", superblock),
    ("checkpoint", checkpoint),
    ("datagram", datagram),
    ("datagram_events", datagram_events),
];

/// A frame's header and body, as they come and with the header's checksum made right.
pub fn frame(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let check = |header: &[u8; HEADER_BYTES]| {
        if let Ok(parsed) = FrameHeader::parse(header) {
            // All but the version, which may be a later one, and the checksum over it.
            assert_eq!(parsed.emit()[..4], header[..4]);
            assert_eq!(parsed.emit()[6..28], header[6..28]);
            let _ = parsed.check_body(body);
        }
    };
    check(header);
    let mut sealed = *header;
    let crc = checksum::crc32c(&sealed[..28]);
    sealed[28..].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
}

/// Kind (u16), then a request's body: decoded, judged as it is, and judged again with its MAC made right and
/// a capability for what it asks.
pub fn drive_request(bytes: &[u8]) {
    let Some((kind, body)) = kind(bytes) else { return };
    let scene = Scene {
        drive: corpus::DRIVE,
        binding: corpus::hello().binding(),
        now_ms: Some(1_000),
        working_key: &working_key,
        key_epoch: &|partition| (partition.0 != 2).then_some(1),
        key_number: 1,
        former: None,
    };
    let header = FrameHeader::new(kind, 1, body, 0);
    let _ = authorise(&scene, &mut 0, &header, body);
    let Ok((authority, arguments)) = split(body) else { return };
    let Ok(request) = DriveRequest::from_body(kind, arguments) else { return };
    let mut again = Vec::new();
    request.put_body(&mut again);
    assert_begins(arguments, &again);
    let _ = check_pieces(&request, 4096);
    let Needs { partition, object, .. } = needs(&request);
    let capability = Capability { partition, object, ..authority.capability };
    let private = working_key(capability.partition, capability.key_epoch).private_part(&capability);
    let mut sealed = Vec::new();
    let grant = Grant { capability, private };
    // What the fields promise, so that it is not refused for that alone.
    let payload_bytes = request.target().bytes.payload_bytes().min(PAYLOAD_BYTES_MAX);
    let asked = Asker::new(&corpus::hello(), [1; 16]).seal(&grant, 1, &request, payload_bytes, &mut sealed);
    let header = FrameHeader::new(kind, 1, &sealed, payload_bytes);
    let seal = match authorise(&scene, &mut 0, &header, &sealed) {
        Ok(verified) => {
            let map = column_map(&verified.request);
            let facts = ObjectFacts { g: Generation(3), map: &map };
            let _ = verified.permit(&facts);
            verified.seal
        }
        Err(denied) => {
            assert!(denied.seal.is_proven(), "its MAC is right: {}", denied.refusal);
            denied.seal
        }
    };
    let reply = DriveReply::from(braid_wire::data::Done {});
    let body = seal.seal(Generation(3), &reply, 0);
    let opened = asked.open(&FrameHeader::new(reply.kind(), 1, &body, 0), &body);
    assert_eq!(opened.map(|(_, reply)| reply), Ok(reply));
}

/// Kind (u16), then a reply's body.
pub fn drive_reply(bytes: &[u8]) {
    let Some((kind, mut arguments)) = kind(bytes) else { return };
    if ReplyHead::take(&mut arguments).is_err() {
        return;
    }
    if let Ok(reply) = DriveReply::from_body(kind, arguments) {
        let mut again = Vec::new();
        reply.put_body(&mut again);
        match reply {
            DriveReply::Refused(_) => assert_refusal_begins(arguments, &again),
            _ => assert_begins(arguments, &again),
        }
    }
}

/// Kind (u16), then a request's body.
pub fn control_request(bytes: &[u8]) {
    let Some((kind, mut arguments)) = kind(bytes) else { return };
    if RequestHead::take(&mut arguments).is_err() {
        return;
    }
    if let Ok(request) = ControlRequest::from_body(kind, arguments) {
        let mut again = Vec::new();
        request.put_body(&mut again);
        assert_begins(arguments, &again);
    }
}

/// Kind (u16), then a reply's body.
pub fn control_reply(bytes: &[u8]) {
    let Some((kind, mut arguments)) = kind(bytes) else { return };
    if ControlHead::take(&mut arguments).is_err() {
        return;
    }
    if let Ok(reply) = ControlReply::from_body(kind, arguments) {
        let mut again = Vec::new();
        reply.put_body(&mut again);
        match reply {
            ControlReply::Refused(_) => assert_refusal_begins(arguments, &again),
            _ => assert_begins(arguments, &again),
        }
    }
}

/// Checks that the part of a message that was understood is its beginning: the rest is a later version's.
fn assert_begins(bytes: &[u8], understood: &[u8]) {
    // Understood are fewer of a later version, and more of an older one that leaves a field away.
    let fits = bytes.starts_with(understood) || understood.starts_with(bytes);
    assert!(fits, "{understood:02x?} of {bytes:02x?}");
}

/// As [`assert_begins`], of a refusal, whose reason may be a later version's too.
fn assert_refusal_begins(bytes: &[u8], understood: &[u8]) {
    if understood.first() == Some(&Reason::Newer.number()) {
        assert_begins(&bytes[1..], &understood[1..]);
    } else {
        assert_begins(bytes, understood);
    }
}

/// A hello, and what comes in its place.
pub fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::from_bytes(bytes) {
        assert_eq!(hello.to_bytes(), bytes);
        let _ = hello.binding();
        assert!(matches!(hello.role, PeerRole::Drive | PeerRole::Manager));
    }
    if let Ok(refusal) = Refusal::from_bytes(bytes) {
        assert_refusal_begins(bytes, &refusal.to_bytes());
    }
}

/// A request's authority by itself.
pub fn authority(bytes: &[u8]) {
    if let Ok(authority) = Authority::from_bytes(bytes) {
        assert_eq!(authority.to_bytes(), bytes);
    }
}

/// A token's text.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = text.parse::<Token>() {
        let written = token.to_string();
        assert_eq!(written, text.trim());
        assert_eq!(written.parse(), Ok(token));
    }
}

/// Offset of the format version in a record's header and a page.
const IN_RECORD: usize = 4;
/// Offset of the format version in a block that stands alone.
const IN_BLOCK: usize = 8;

/// Returns true if the bytes are of an older version that is read too: it is written anew in the present one.
fn is_older(bytes: &[u8], at: usize) -> bool {
    bytes.get(at..at + 2).is_some_and(|found| u16::from_le_bytes([found[0], found[1]]) < FORMAT_VERSION)
}

/// A log record's header, as it comes and with its checksum made right; and the bodies of records.
pub fn store_record(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(found) = braid_store::decode_record(bytes) {
            let encoded = found.encode();
            assert!(encoded == bytes[..found.header_padded()] || is_older(bytes, IN_RECORD));
            let _ = (body::attributes(&found), body::partition(&found), body::verdict(&found));
            let _ = (found.subject(), found.disk_bytes());
        }
    };
    check(bytes);
    if let Some(sealed) = corpus::reseal_record(bytes) {
        check(&sealed);
    }
    for &(kind, _, _) in record::Kind::ALL {
        let mut record = record::Record::new(kind);
        record.inline = bytes.to_vec();
        let _ = (body::attributes(&record), body::partition(&record), body::verdict(&record));
    }
}

/// A superblock and a segment's header, as they come and with their checksums made right.
pub fn superblock(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(found) = Superblock::decode(bytes) {
            assert!(found.encode()[..] == bytes[..512] || is_older(bytes, IN_BLOCK));
        }
        if let Ok(found) = SegmentHeader::decode(bytes) {
            assert!(found.encode()[..] == bytes[..512] || is_older(bytes, IN_BLOCK));
        }
    };
    check(bytes);
    if let Some(block) = bytes.first_chunk::<512>() {
        let mut sealed = *block;
        let crc = checksum::crc32c(&sealed[..508]);
        sealed[508..].copy_from_slice(&crc.to_le_bytes());
        check(&sealed);
    }
}

/// A checkpoint's ends and pages, as they come and with their checksums made right; and the entries of pages.
pub fn checkpoint(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        if let Ok(end) = CheckpointEnd::decode(bytes) {
            // The block that describes a trailer is its last one.
            let last = (bytes.len() - 512) + IN_BLOCK;
            assert!(end.encode() == bytes || is_older(bytes, IN_BLOCK) || is_older(bytes, last));
        }
        if let Ok((head, found)) = PageHead::decode(bytes) {
            let page = head.encode(found);
            assert!(page == bytes[..page.len()] || is_older(bytes, IN_RECORD));
            entries(found);
        }
    };
    check(bytes);
    for sealed in corpus::reseal_checkpoint(bytes) {
        check(&sealed);
    }
    entries(bytes);
}

/// A page's entries: each that is good has these bytes and no others.
fn entries(bytes: &[u8]) {
    let mut again = Vec::new();
    for entry in Entries::new(bytes) {
        match entry {
            Ok(Entry::Partition(partition)) => partition.put(&mut again),
            Ok(Entry::Object(object)) => {
                let begin = again.len();
                object.put(&mut again);
                // Earlier builds wrote something here; it says nothing.
                let not_used = begin + 8 + 60..begin + 8 + 64;
                again[not_used.clone()].copy_from_slice(&bytes[not_used]);
            }
            Ok(Entry::PlainUnits(units)) => {
                let mut run = None;
                units.iter().for_each(|unit| run = Some(unit.put(&mut again, run)));
            }
            Ok(Entry::Lost(range)) => range.put(&mut again),
            Ok(Entry::Unit(body)) => match UnitEntry::decode(body) {
                Ok(unit) => unit.put(&mut again),
                Err(_) => return,
            },
            Ok(Entry::Dedup(body)) => match DedupEntry::decode(body) {
                Ok(dedup) => dedup.put(&mut again),
                Err(_) => return,
            },
            Ok(Entry::Ready(body)) => match ReadyEntry::decode(body) {
                Ok(ready) => ready.put(&mut again),
                Err(_) => return,
            },
            Ok(Entry::Snapshots(body)) => match SnapshotsEntry::decode(body) {
                Ok(snapshots) => snapshots.put(&mut again),
                Err(_) => return,
            },
            Ok(Entry::Still(body)) => match Base::decode(body) {
                Ok(base) => base.put(&mut again),
                Err(_) => return,
            },
            Err(_) => return,
        }
        assert_eq!(again, bytes[..again.len()]);
    }
}

fn kind(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (kind, body) = bytes.split_first_chunk::<2>()?;
    let body = body.get(..body.len().min(usize::try_from(braid_wire::frame::BODY_BYTES_MAX).ok()?))?;
    Some((u16::from_le_bytes(*kind), body))
}

fn working_key(partition: PartitionId, epoch: u32) -> Key {
    Key::new([7; 32]).drive_key(corpus::DRIVE).partition_key(partition).working_key(epoch)
}

fn column_map(request: &DriveRequest) -> ColumnMap {
    match request {
        DriveRequest::Create(create) => create.attributes.map.clone(),
        _ => ColumnMap {
            file: braid_layout::FileId(1),
            segment: 0,
            scheme: 5,
            k: 2,
            m: 1,
            unit_bytes: 4096,
            column: Column(0),
            drives: vec![corpus::DRIVE; 3],
            objects: vec![braid_layout::ObjectId(42); 3],
        },
    }
}
