//! Keys, MACs and the document's worked examples, in real bytes. The values were checked against an
//! independent program.

use std::fmt::Write as _;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, TokenId,
    Version, version::Lease,
};
use braid_wire::authorise::{Scene, authorise};
use braid_wire::capability::{Capability, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::control::{
    Authenticate, ControlHead, ControlReply, ControlRequest, Grant, RequestHead, Welcome,
};
use braid_wire::data::{
    Address, DriveReply, DriveRequest, Extent, HELLO, Hello, PeerRole, Read, ReadReply, Want,
};
use braid_wire::frame::WIRE_VERSION;
use braid_wire::seal::{Asker, split};
use braid_wire::token::{Standing, Token};
use braid_wire::{FrameHeader, Wire, checksum};

use crate::golden::{dump, golden};
use crate::schema::Line;

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
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        cluster: ClusterId(0xc1c2_c3c4_c5c6_c7c8_c9ca_cbcc_cdce_cfd0),
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
        rights: Rights::READ,
        expires_ms: 60_000,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: 1,
        g: Generation(3),
        set: ColumnMask(0b1_1111),
        joining: ColumnMask(0),
        lease: Lease(0),
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

/// Derives keys, one line per key. Any HMAC-SHA256 gives the same values by the document's text alone.
#[test]
fn keys() {
    let master = Key::new(secret(0xa0));
    let drive = master.drive_key(DRIVE);
    let partition = drive.partition_key(PartitionId(7));
    let working = partition.working_key(1);
    let private = working.private_part(&capability());
    let token = Key::new(secret(0x60));
    let binding = drive_hello().binding();
    let nonce = half(0x50);
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
        ("binding in TLS", hex(&drive_hello().binding_in(&secret(0x30)).0)),
        ("token's secret", hex(token.secret())),
        (
            "asker's proof, client",
            hex(&Token::asker_proof(&token, &binding, &nonce, Standing::Client, DriveId(0))),
        ),
        ("asker's proof, join", hex(&Token::asker_proof(&token, &binding, &nonce, Standing::Join, DRIVE))),
        ("manager's proof", hex(&Token::manager_proof(&token, &binding, &nonce))),
        ("master of a joined drive", hex(Token::master_key(&token, &binding, &nonce, DRIVE).secret())),
    ];
    golden(
        "keys.txt",
        &lines.iter().fold(String::new(), |out, (name, value)| out + name + ": " + value + "\n"),
    );
}

/// Dumps a frame: its header, the named parts of its body, its payload.
fn dump_frame(
    title: &str,
    kind: u16,
    request: u64,
    body: &[u8],
    parts: &[(&str, usize)],
    payload: &[u8],
) -> String {
    let header = FrameHeader::new(kind, request, body, u32::try_from(payload.len()).unwrap()).emit();
    let header_parts = [
        ("magic", 4),
        ("version", 2),
        ("kind", 2),
        ("request", 8),
        ("body_bytes", 4),
        ("payload_bytes", 4),
        ("body_crc", 4),
        ("header_crc", 4),
    ];
    let bytes = [&header, body, payload].concat();
    let named = header_parts.iter().chain(parts).chain((!payload.is_empty()).then_some(&("payload", 8)));
    let mut lines = Vec::new();
    let mut offset = 0;
    for &(name, length) in named {
        let bytes = bytes[offset..offset + length].to_vec();
        lines.push(Line { offset, bytes, path: name.to_owned(), type_name: String::new() });
        offset += length;
    }
    assert_eq!(offset, bytes.len(), "{title}: every byte has a name");
    format!("# {title}\n{}", dump(&lines))
}

const HELLO_PARTS: [(&str, usize); 7] = [
    ("role", 1),
    ("version_min", 2),
    ("version_max", 2),
    ("cluster", 16),
    ("drive", 16),
    ("features", 8),
    ("challenge", 16),
];

/// The document's example: a drive's hello, a read of 8 bytes, the answer.
#[test]
fn example_drive() {
    let hello = drive_hello();
    let mut out = String::new();
    out += &dump_frame("drive: Hello", HELLO, 0, &hello.to_bytes(), &HELLO_PARTS, &[]);
    let working = Key::new(secret(0xa0)).drive_key(DRIVE).partition_key(PartitionId(7)).working_key(1);
    let grant = Grant { private: working.private_part(&capability()), capability: capability() };
    let read = DriveRequest::Read(Read {
        at: Address { partition: PartitionId(7), object: ObjectId(42) },
        unit: 2,
        from: 0,
        to: 8,
        want: Want::Newest,
        exactly: Vec::new(),
        timed: false,
    });
    let mut body = Vec::new();
    let asked = Asker::new(&hello, half(0x50)).seal(&grant, 1, &read, 0, &mut body);
    let arguments = split(&body).unwrap().1.len();
    let parts = [
        ("capability", Capability::BYTES_MIN),
        ("sequence", 8),
        ("nonce", 16),
        ("mac", 16),
        ("at", 16),
        ("unit", 8),
        ("from", 4),
        ("to", 4),
        ("want", 1),
        ("exactly (entries)", 4),
        ("timed", 1),
    ];
    assert_eq!(arguments, 16 + 8 + 4 + 4 + 1 + 4 + 1);
    out += &dump_frame("asker: Read, 8 bytes of unit 2", read.kind(), 1, &body, &parts, &[]);

    let scene = Scene {
        drive: DRIVE,
        binding: hello.binding(),
        now_ms: Some(1_000),
        working_key: &|partition, epoch| {
            Key::new(secret(0xa0)).drive_key(DRIVE).partition_key(partition).working_key(epoch)
        },
        key_epoch: &|_| Some(1),
        key_number: 1,
        former: None,
    };
    let header = FrameHeader::new(read.kind(), 1, &body, 0);
    let verified = authorise(&scene, &mut 0, &header, &body).expect("the example is good");
    assert_eq!(verified.request, read);
    let bytes = b"braided\n";
    let reply = DriveReply::Read(ReadReply {
        version: Version { g: Generation(2), lease: Lease(5), n: 9 },
        pending: false,
        columns: ColumnMask::from_iter([Column(0), Column(4)]),
        cover: Vec::new(),
        ends: vec![8],
        extents: vec![Extent { from: 0, to: 8, hole: false }],
        crcs: vec![checksum::crc32c(bytes)],
        times: None,
    });
    let body = verified.seal.seal(Generation(3), &reply, 8);
    let parts = [
        ("g", 4),
        ("mac", 16),
        ("version", 16),
        ("pending", 1),
        ("columns", 8),
        ("cover (entries)", 4),
        ("ends (entries)", 4),
        ("ends[0]", 4),
        ("extents (entries)", 4),
        ("extents[0]", 9),
        ("crcs (entries)", 4),
        ("crcs[0]", 4),
        ("times (present)", 1),
    ];
    out += &dump_frame("drive: the answer", reply.kind(), 1, &body, &parts, bytes);
    let header = FrameHeader::new(reply.kind(), 1, &body, 8);
    assert_eq!(asked.open(&header, &body).expect("the example's reply is good").1, reply);
    golden("example-drive.txt", &out);
}

/// The document's example: the manager's hello, a client's proof, the welcome.
#[test]
fn example_control() {
    let hello = Hello { role: PeerRole::Manager, drive: DriveId(0), ..drive_hello() };
    let mut out = String::new();
    out += &dump_frame("manager: Hello", HELLO, 0, &hello.to_bytes(), &HELLO_PARTS, &[]);
    let token = Key::new(secret(0x60));
    let nonce = half(0x50);
    let proof = Token::asker_proof(&token, &hello.binding(), &nonce, Standing::Client, DriveId(0));
    let token_id = TokenId(0xd1);
    let request =
        Authenticate { standing: Standing::Client, drive: DriveId(0), key: 0, token: token_id, nonce, proof };
    let kind = ControlRequest::from(request.clone()).kind();
    let parts = [
        ("client", 8),
        ("operation", 8),
        ("settled_below", 8),
        ("begun_ms", 8),
        ("standing", 1),
        ("drive", 16),
        ("key", 4),
        ("token", 8),
        ("nonce", 16),
        ("proof", 32),
    ];
    let body = [RequestHead::NONE.to_bytes(), request.to_bytes()].concat();
    out += &dump_frame("asker: Authenticate", kind, 1, &body, &parts, &[]);
    let proof = Token::manager_proof(&token, &hello.binding(), &nonce);
    let reply = ControlReply::from(Welcome { cluster: hello.cluster, proof, managers: Vec::new() });
    let mut body = ControlHead { term: 4, now_ms: 1_000, managers: 0 }.to_bytes();
    reply.put_body(&mut body);
    let parts = [("term", 8), ("now_ms", 8), ("managers", 4), ("cluster", 16), ("proof", 32), ("count", 4)];
    out += &dump_frame("manager: Welcome", reply.kind(), 1, &body, &parts, &[]);
    golden("example-control.txt", &out);
}
