//! Golden bytes: one annotated dump per message kind in `tests/golden`, every field distinct and none zero, asserted
//! exactly and decoded back. They pin wire version 1: if one of these tests fails, the format has changed, and every
//! cluster in the world with it. `BRAID_GOLDEN=write` writes the files of messages that are new.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

mod schema;

use std::fmt::Write as _;
use std::path::PathBuf;

use braid_layout::{Column, ColumnMask, DriveId, Generation, Lease, ObjectId, PartitionId, Version};
use braid_wire::capability::{Authority, Capability, Key, Protection, Rights};
use braid_wire::control::{Authenticate, ControlHead, ControlReply, ControlRequest, Grant};
use braid_wire::data::{
    Address, DriveReply, DriveRequest, Extent, HELLO, Hello, PeerRole, Read, ReadReply, ReplyHead, Want,
};
use braid_wire::seal::{Asker, split};
use braid_wire::token::{Standing, Token};
use braid_wire::{FrameHeader, Record, Refusal, Wire, checksum};
use schema::{Distinct, Fields, Line, concatenate, emit_fields};

fn golden(name: &str, content: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let writing = std::env::var_os("BRAID_GOLDEN").is_some_and(|value| value == "write");
    if writing && !path.exists() {
        std::fs::write(&path, content).expect("write the golden file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(content, expected, "{name}: the format has changed");
}

/// The bytes of a golden file, independent of how it was made.
fn bytes_of(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let text = std::fs::read_to_string(&path).expect("read the golden file");
    let digits = text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| {
        line.split_once("  ").expect("offset, bytes, field").1.split("  ").next().expect("bytes").split(' ')
    });
    digits.map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
}

fn dump(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let mut label = format!("{}: {}", line.path, line.type_name);
        for (i, chunk) in line.bytes.chunks(16).enumerate() {
            let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{:04x}  {:<47}  {label}", line.offset + i * 16, hex.join(" ")).unwrap();
            label = "...".to_owned();
        }
    }
    out
}

/// The golden file of a record made of distinct values.
fn check_record<T: std::fmt::Debug>(
    file: &str,
    title: &str,
    fields: Fields,
    decode: impl Fn(&[u8]) -> T,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let lines = emit_fields(fields, &mut Distinct::default());
    let bytes = concatenate(&lines);
    let value = decode(&bytes);
    golden(file, &format!("# {title}\n# {value:?}\n{}", dump(&lines)));
    let pinned = bytes_of(file);
    assert_eq!(pinned, bytes, "{file}: the dump is not its bytes");
    assert_eq!(encode(&decode(&pinned)), pinned, "{file}: not the same when encoded again");
}

macro_rules! check_set {
    ($set:ident, $prefix:literal) => {
        for (&(kind, name), &(_, _, fields)) in $set::KINDS.iter().zip($set::BODIES) {
            check_record(
                &format!("{}-{kind:04x}-{name}.txt", $prefix),
                &format!("{}::{name}, kind {kind:#06x}", stringify!($set)),
                fields,
                |bytes| $set::from_body(kind, bytes).expect("golden bytes decode"),
                |value| {
                    let mut out = Vec::new();
                    value.put_body(&mut out);
                    out
                },
            );
        }
    };
}

#[test]
fn drive_requests() {
    check_set!(DriveRequest, "drive-request");
}

#[test]
fn drive_replies() {
    check_set!(DriveReply, "drive-reply");
}

#[test]
fn control_requests() {
    check_set!(ControlRequest, "control-request");
}

#[test]
fn control_replies() {
    check_set!(ControlReply, "control-reply");
}

#[test]
fn heads() {
    fn check<T: Record + std::fmt::Debug>(file: &str) {
        check_record(file, T::NAME, T::FIELDS, |bytes| T::from_bytes(bytes).expect("golden bytes decode"), T::to_bytes);
    }
    check::<Hello>("head-Hello.txt");
    check::<Refusal>("head-HelloRefused.txt");
    check::<Authority>("head-Authority.txt");
    check::<Capability>("head-Capability.txt");
    check::<ReplyHead>("head-ReplyHead.txt");
    check::<ControlHead>("head-ControlHead.txt");
}

/// No file in the folder that no test looks at.
#[test]
fn every_golden_file_is_checked() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut known: Vec<String> = ["Hello", "HelloRefused", "Authority", "Capability", "ReplyHead", "ControlHead"]
        .map(|name| format!("head-{name}.txt"))
        .into_iter()
        .chain(["keys.txt", "example-drive.txt", "example-control.txt"].map(str::to_owned))
        .collect();
    for (prefix, kinds) in [
        ("drive-request", DriveRequest::KINDS),
        ("drive-reply", DriveReply::KINDS),
        ("control-request", ControlRequest::KINDS),
        ("control-reply", ControlReply::KINDS),
    ] {
        known.extend(kinds.iter().map(|(kind, name)| format!("{prefix}-{kind:04x}-{name}.txt")));
    }
    known.sort();
    let entries = std::fs::read_dir(folder).expect("list the golden files");
    let mut found: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect();
    found.sort();
    assert_eq!(found, known);
}

// --- keys, MACs and the document's worked examples ------------------------------------------------------------------

fn secret(first: u8) -> [u8; 32] {
    std::array::from_fn(|i| first + u8::try_from(i).unwrap())
}

fn half(first: u8) -> [u8; 16] {
    *secret(first).first_chunk().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

const DRIVE: DriveId = DriveId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

fn drive_hello() -> Hello {
    Hello {
        role: PeerRole::Drive,
        version_min: 1,
        version_max: 1,
        cluster: braid_layout::ClusterId(0xc1c2_c3c4_c5c6_c7c8_c9ca_cbcc_cdce_cfd0),
        drive: DRIVE,
        features: 0,
        challenge: half(0x40),
    }
}

fn capability() -> Capability {
    Capability {
        drive: DRIVE,
        partition: PartitionId(7),
        object: ObjectId(42),
        object_version: 1,
        rights: Rights::READ,
        from: 0,
        to: 1 << 20,
        expires_ms: 60_000,
        reservation: 0,
        key_epoch: 1,
        g: Generation(3),
        set: ColumnMask(0b1_1111),
        joining: ColumnMask(0),
        lease: Lease(0),
        rate: 0,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
    }
}

/// Key derivation, one line per key. The same values come out of any HMAC-SHA256 by the document's text alone.
#[test]
fn keys() {
    let master = Key::new(secret(0xa0));
    let drive = master.drive_key(DRIVE);
    let partition = drive.partition_key(PartitionId(7));
    let working = partition.working_key(1);
    let private = working.private_part(&capability());
    let token = Key::new(secret(0x60));
    let (binding, nonce) = (drive_hello().binding(), half(0x50));
    let lines = [
        ("master", hex(master.secret())),
        ("drive", hex(drive.secret())),
        ("partition 7", hex(partition.secret())),
        ("working, epoch 1", hex(working.secret())),
        ("capability, public part", hex(&capability().to_bytes())),
        ("capability, private part", hex(private.secret())),
        ("drive's session secret", hex(Token::drive_secret(&master).secret())),
        ("hello", hex(&drive_hello().to_bytes())),
        ("binding", hex(&binding.0)),
        ("token's secret", hex(token.secret())),
        ("asker's proof, client", hex(&Token::asker_proof(&token, &binding, &nonce, Standing::Client, DriveId(0)))),
        ("asker's proof, join", hex(&Token::asker_proof(&token, &binding, &nonce, Standing::Join, DRIVE))),
        ("manager's proof", hex(&Token::manager_proof(&token, &binding, &nonce))),
        ("master of a joined drive", hex(Token::master_key(&token, &binding, &nonce, DRIVE).secret())),
    ];
    golden("keys.txt", &lines.iter().fold(String::new(), |out, (name, value)| out + name + ": " + value + "\n"));
}

fn frame_lines(out: &mut String, title: &str, kind: u16, request: u64, body: &[u8], parts: &[(&str, usize)], payload: &[u8]) {
    let header = FrameHeader::new(kind, request, body, u32::try_from(payload.len()).unwrap());
    let bytes = header.emit();
    writeln!(out, "# {title}").unwrap();
    let mut lines: Vec<Line> = Vec::new();
    let mut push = |name: &str, bytes: &[u8]| {
        let offset = lines.last().map_or(0, |last| last.offset + last.bytes.len());
        let (path, type_name) = name.split_once(": ").unwrap_or((name, ""));
        lines.push(Line { offset, bytes: bytes.to_vec(), path: path.to_owned(), type_name: type_name.to_owned() });
    };
    for (name, range) in [
        ("magic", 0..4), ("version", 4..6), ("kind", 6..8), ("request", 8..16), ("body_bytes", 16..20),
        ("payload_bytes", 20..24), ("body_crc", 24..28), ("header_crc", 28..32),
    ] {
        push(name, &bytes[range]);
    }
    let mut rest = body;
    for &(name, length) in parts {
        let (part, tail) = rest.split_at(length);
        push(name, part);
        rest = tail;
    }
    assert!(rest.is_empty(), "{title}: {} bytes of the body are not named", rest.len());
    if !payload.is_empty() {
        push("payload", payload);
    }
    out.push_str(&dump(&lines));
}

/// The document's example: a drive's hello, a read of 8 bytes, the answer.
#[test]
fn example_drive() {
    let hello = drive_hello();
    let mut out = String::new();
    let hello_parts = [
        ("role", 1), ("version_min", 2), ("version_max", 2), ("cluster", 16), ("drive", 16), ("features", 8), ("challenge", 16),
    ];
    frame_lines(&mut out, "drive: Hello", HELLO, 0, &hello.to_bytes(), &hello_parts, &[]);
    let working = Key::new(secret(0xa0)).drive_key(DRIVE).partition_key(PartitionId(7)).working_key(1);
    let grant = Grant { private: working.private_part(&capability()), capability: capability() };
    let read = DriveRequest::Read(Read {
        at: Address { partition: PartitionId(7), object: ObjectId(42) },
        unit: 2,
        from: 0,
        to: 8,
        want: Want::Newest,
        exactly: Vec::new(),
    });
    let mut body = Vec::new();
    let asked = Asker::new(&hello, half(0x50)).seal(&grant, 1, &read, 0, &mut body);
    let arguments = split(&body).unwrap().1.len();
    let parts = [
        ("capability", Capability::BYTES_MIN), ("sequence", 8), ("nonce", 16), ("mac", 16), ("at", 16), ("unit", 8),
        ("from", 4), ("to", 4), ("want", 1), ("exactly (entries)", 4),
    ];
    assert_eq!(arguments, 16 + 8 + 4 + 4 + 1 + 4);
    frame_lines(&mut out, "asker: Read, 8 bytes of unit 2", read.kind(), 1, &body, &parts, &[]);

    let scene = braid_wire::authorise::Scene {
        drive: DRIVE,
        binding: hello.binding(),
        now_ms: Some(1_000),
        working_key: &|partition, epoch| {
            Key::new(secret(0xa0)).drive_key(DRIVE).partition_key(partition).working_key(epoch)
        },
        key_epoch: &|_| Some(1),
    };
    let header = FrameHeader::new(read.kind(), 1, &body, 0);
    let verified = braid_wire::authorise::authorise(&scene, &mut 0, &header, &body).expect("the example is good");
    assert_eq!(verified.request, read);
    let bytes = b"braided\n";
    let reply = DriveReply::Read(ReadReply {
        version: Version { g: Generation(2), lease: Lease(5), n: 9 },
        pending: false,
        columns: ColumnMask::from_iter([Column(0), Column(4)]),
        cover: Vec::new(),
        extents: vec![Extent { from: 0, to: 8, hole: false }],
        crcs: vec![checksum::crc32c(bytes)],
    });
    let body = verified.seal.seal(Generation(3), &reply, 8);
    let parts = [
        ("g", 4), ("mac", 16), ("version", 16), ("pending", 1), ("columns", 8), ("cover (entries)", 4),
        ("extents (entries)", 4), ("extents[0]", 9), ("crcs (entries)", 4), ("crcs[0]", 4),
    ];
    frame_lines(&mut out, "drive: the answer", reply.kind(), 1, &body, &parts, bytes);
    let header = FrameHeader::new(reply.kind(), 1, &body, 8);
    assert_eq!(asked.open(&header, &body).expect("the example's reply is good").1, reply);
    golden("example-drive.txt", &out);
}

/// The document's example: the manager's hello, a client's proof, the welcome.
#[test]
fn example_control() {
    let hello = Hello { role: PeerRole::Manager, drive: DriveId(0), ..drive_hello() };
    let mut out = String::new();
    let hello_parts = [
        ("role", 1), ("version_min", 2), ("version_max", 2), ("cluster", 16), ("drive", 16), ("features", 8), ("challenge", 16),
    ];
    frame_lines(&mut out, "manager: Hello", HELLO, 0, &hello.to_bytes(), &hello_parts, &[]);
    let (token, nonce) = (Key::new(secret(0x60)), half(0x50));
    let proof = Token::asker_proof(&token, &hello.binding(), &nonce, Standing::Client, DriveId(0));
    let request = Authenticate { standing: Standing::Client, drive: DriveId(0), nonce, proof };
    let kind = ControlRequest::from(request.clone()).kind();
    let parts = [("standing", 1), ("drive", 16), ("nonce", 16), ("proof", 32)];
    frame_lines(&mut out, "asker: Authenticate", kind, 1, &request.to_bytes(), &parts, &[]);
    let proof = Token::manager_proof(&token, &hello.binding(), &nonce);
    let reply = ControlReply::from(braid_wire::control::Welcome { cluster: hello.cluster, proof });
    let mut body = ControlHead { term: 4, now_ms: 1_000 }.to_bytes();
    reply.put_body(&mut body);
    let parts = [("term", 8), ("now_ms", 8), ("cluster", 16), ("proof", 32)];
    frame_lines(&mut out, "manager: Welcome", reply.kind(), 1, &body, &parts, &[]);
    golden("example-control.txt", &out);
}
