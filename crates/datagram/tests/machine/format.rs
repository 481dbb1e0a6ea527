//! The format: golden bytes, and the document that describes them.
//!
//! `BRAID_GOLDEN=anew` writes the golden bytes anew, after a change of the format that its document has.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use braid_datagram::format::*;
use braid_datagram::{
    Accept, Ack, Config, Ecn, Endpoint, Frame, Open, Packet, Refused, Secret, Settings, decode_frames,
};

const SETTINGS: Settings = Settings { streams: 4, datagram_bytes_max: 8972, window_bytes: 4 << 20 };

fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let open = Open {
        from: 0x0403_0201,
        settings: SETTINGS,
        nonce: [0x11; 32],
        cookie: [0x22; 24],
        proof: [0x33; 16],
        identity: b"identity",
    };
    let nonce = [0x44; 32];
    let accept = Accept { to: 0x0403_0201, from: 0x0807_0605, settings: SETTINGS, nonce, proof: [0x55; 16] };
    let to = 0x0403_0201;
    let all = [
        ("open", Packet::Open(open)),
        ("retry", Packet::Retry { to, cookie: [0x22; 24] }),
        ("accept", Packet::Accept(accept)),
        ("refused-busy", Packet::Refused { to, why: Refused::Busy }),
        ("refused-unproved", Packet::Refused { to, why: Refused::Unproved }),
        ("versions", Packet::Versions { to, min: 1, max: 1 }),
        ("unknown", Packet::Unknown { of: to }),
        ("data-header", Packet::Data { to, number: 0x0c0b_0a09 }),
    ];
    for (name, packet) in &all {
        let mut bytes = packet.emit();
        if *name == "data-header" {
            bytes.resize(DATA_HEADER_BYTES + TAG_BYTES, 0);
        }
        assert_eq!(Packet::parse(&bytes), Some(*packet), "{name}");
    }
    all.iter().map(|(name, packet)| (*name, packet.emit())).collect()
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let ack = Ack { delay_us: 0x0201, ranges: vec![0x100..0x110, 0xf0..0xf8, 0x10..0x20] };
    let all = [
        ("frame-ping", Frame::Ping),
        ("frame-ack", Frame::Ack(ack)),
        ("frame-stream", Frame::Stream { stream: 2, offset: 0x0807_0605_0403_0201, bytes: b"bytes" }),
        ("frame-credit", Frame::Credit { stream: 2, limit: 0x0807_0605_0403_0201 }),
        ("frame-window", Frame::Window { bytes: 0x0807_0605_0403_0201 }),
        ("frame-challenge", Frame::Challenge([0x66; 8])),
        ("frame-response", Frame::Response([0x77; 8])),
        ("frame-close", Frame::Close { code: 0x0201, reason: b"reason" }),
        ("frame-marked", Frame::Marked { total: 0x0807_0605_0403_0201 }),
    ];
    all.iter()
        .map(|(name, frame)| {
            let mut bytes = Vec::new();
            frame.put(&mut bytes);
            let found: Vec<_> = decode_frames(&bytes).collect();
            assert_eq!(found, [Some(frame.clone())], "{name}");
            (*name, bytes)
        })
        .collect()
}

/// The datagrams of a connection between two endpoints with known seeds: proofs, keys and tags are pinned.
fn conversation() -> Vec<(&'static str, Vec<u8>)> {
    let config = Config { settings: SETTINGS, policy: "credit".parse().unwrap(), ..Config::default() };
    let mut ends = [(false, [1; 32]), (true, [2; 32])]
        .map(|(accepts, seed)| Endpoint::new(config.clone(), accepts, seed));
    let addresses: [SocketAddr; 2] =
        ["10.0.0.1:1000", "10.0.0.2:7401"].map(|address| address.parse().unwrap());
    let id = ends[0].open(1, addresses[1], b"identity", Secret::new([9; 32]));
    let mut sent = Vec::new();
    for step in 0..7 {
        let from = step % 2;
        let mut out = Vec::new();
        while ends[from].poll_transmit(1, &mut out).is_some() {
            let mut bytes = std::mem::take(&mut out);
            // Probes of the path's length are long, and say nothing else.
            if bytes.len() <= OPEN_BYTES_MIN {
                sent.push(bytes.clone());
            }
            let mut secret_of = |_: &[u8]| Some(Secret::new([9; 32]));
            ends[1 - from].handle_datagram(1, addresses[from], Ecn::Unaware, &mut bytes, &mut secret_of);
        }
        if step == 3 {
            ends[0].send(id, 0, b"a message".to_vec().into()).unwrap();
        }
    }
    let names = ["said-1-open", "said-2-retry", "said-3-open", "said-4-accept", "said-5-data", "said-6-data"];
    assert!(sent.len() >= names.len(), "{}", sent.len());
    names.into_iter().zip(sent).collect()
}

/// Hex in lines of 16 bytes, with zeros at the end as a count.
fn dump(bytes: &[u8]) -> String {
    let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let (said, zeros) = if zeros > 64 { (&bytes[..bytes.len() - zeros], zeros) } else { (bytes, 0) };
    let mut text = String::new();
    for line in said.chunks(16) {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&hex.join(" "));
        text.push('\n');
    }
    if zeros > 0 {
        text.push_str(&format!("and {zeros} zeros\n"));
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "golden bytes are files; only this test writes them")]
fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_bytes_are_the_golden_ones() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, bytes) in packets().into_iter().chain(frames()).chain(conversation()) {
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("BRAID_GOLDEN").is_some_and(|how| how == "anew") {
            std::fs::create_dir_all(&folder).unwrap();
            write(&path, &dump(&bytes));
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(dump(&bytes), golden, "{name}: the format has changed; its document and version, too?");
    }
}

#[test]
fn the_document_has_the_numbers_and_the_example() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-datagram.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows = [
        ("Open", format!("0x{:02x}", packet_kind::OPEN)),
        ("Retry", format!("0x{:02x}", packet_kind::RETRY)),
        ("Accept", format!("0x{:02x}", packet_kind::ACCEPT)),
        ("Refused", format!("0x{:02x}", packet_kind::REFUSED)),
        ("Versions", format!("0x{:02x}", packet_kind::VERSIONS)),
        ("Unknown", format!("0x{:02x}", packet_kind::UNKNOWN)),
        ("Data", format!("0x{:02x}", packet_kind::DATA)),
        ("Padding", frame_kind::PADDING.to_string()),
        ("Ping", frame_kind::PING.to_string()),
        ("Ack", frame_kind::ACK.to_string()),
        ("Stream", frame_kind::STREAM.to_string()),
        ("Credit", frame_kind::CREDIT.to_string()),
        ("Window", frame_kind::WINDOW.to_string()),
        ("Challenge", frame_kind::CHALLENGE.to_string()),
        ("Response", frame_kind::RESPONSE.to_string()),
        ("Close", frame_kind::CLOSE.to_string()),
        ("Marked", frame_kind::MARKED.to_string()),
        ("VERSION", VERSION.to_string()),
        ("OPEN_BYTES_MIN", OPEN_BYTES_MIN.to_string()),
        ("OPEN_HEAD_BYTES", OPEN_HEAD_BYTES.to_string()),
        ("IDENTITY_BYTES_MAX", IDENTITY_BYTES_MAX.to_string()),
        ("COOKIE_BYTES", COOKIE_BYTES.to_string()),
        ("RETRY_BYTES", RETRY_BYTES.to_string()),
        ("ACCEPT_BYTES", ACCEPT_BYTES.to_string()),
        ("REFUSED_BYTES", REFUSED_BYTES.to_string()),
        ("VERSIONS_BYTES", VERSIONS_BYTES.to_string()),
        ("UNKNOWN_BYTES", UNKNOWN_BYTES.to_string()),
        ("DATA_HEADER_BYTES", DATA_HEADER_BYTES.to_string()),
        ("TAG_BYTES", TAG_BYTES.to_string()),
        ("EPOCH_BITS", EPOCH_BITS.to_string()),
        ("REASON_BYTES_MAX", REASON_BYTES_MAX.to_string()),
        ("PREFIX_BYTES", PREFIX_BYTES.to_string()),
        ("END_PREFIX", END_PREFIX.to_string()),
    ];
    for (name, number) in rows {
        let row = format!("| {name} | {number} |");
        assert!(document.contains(&row), "docs/format-datagram.md lacks \"{row}\"");
    }
    for name in ["frame-ack", "refused-busy"] {
        let all = packets().into_iter().chain(frames());
        let (_, bytes) = all.into_iter().find(|(of, _)| *of == name).unwrap();
        for line in dump(&bytes).lines() {
            assert!(
                document.contains(line),
                "docs/format-datagram.md: the example of {name} lacks \"{line}\""
            );
        }
    }
}
