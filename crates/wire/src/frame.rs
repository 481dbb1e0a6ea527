//! The frame: a 32-byte header, a body (the message's fields) and a payload (a unit's bytes, at most one
//! unit).
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | magic | `42 52 49 44` ("BRID") |
//! | 4 | 2 | version | the newest of the whole wire format that the sender speaks; 4 |
//! | 6 | 2 | kind | the message's number; replies have bit 15 set |
//! | 8 | 8 | request | chosen by the asker, echoed by the reply |
//! | 16 | 4 | body_bytes | at most 1 MiB |
//! | 20 | 4 | payload_bytes | at most 64 MiB, the largest unit |
//! | 24 | 4 | body_crc | CRC32C of the body |
//! | 28 | 4 | header_crc | CRC32C of bytes 0 to 27 |
//!
//! All little-endian. The payload's checksums (one CRC32C per 4 KiB block) are fields of the body.

use crate::checksum::crc32c;

/// The bytes "BRID", in this order, with which every frame begins.
pub const MAGIC: [u8; 4] = *b"BRID";
/// Version of the whole wire format.
pub const WIRE_VERSION: u16 = 4;
/// Oldest version that this build speaks with others: the last release's. Both ends take the older of their
/// newest versions.
pub const WIRE_VERSION_OLDEST: u16 = 3;
/// Length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 32;
/// Maximum length of a body, in bytes.
pub const BODY_BYTES_MAX: u32 = 1 << 20;
/// Maximum length of a payload, in bytes: the largest unit.
pub const PAYLOAD_BYTES_MAX: u32 = braid_layout::scheme::UNIT_BYTES_MAX;
/// The bit that is set in the kind of every reply.
pub const REPLY_BIT: u16 = 0x8000;

/// A frame's header. The module's table gives the meaning of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Newest version of the whole wire format that the sender speaks.
    pub version: u16,
    /// The message's kind number.
    pub kind: u16,
    /// Request number, which pairs a reply with its request.
    pub request: u64,
    /// Length of the body, in bytes.
    pub body_bytes: u32,
    /// Length of the payload, in bytes.
    pub payload_bytes: u32,
    /// CRC32C of the body.
    pub body_crc: u32,
}

/// The reason why bytes are not a valid frame. After any of these errors it is unknown where the next frame
/// begins, so the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first four bytes are not the magic, so the peer does not speak Braid's protocol.
    #[error("not a Braid frame (magic {0:02x?}); is this the right port?")]
    Magic([u8; 4]),
    /// The peer's newest version is older than this build's oldest.
    #[error("peer speaks wire version {0}; this build speaks {WIRE_VERSION_OLDEST} to {WIRE_VERSION}")]
    Version(u16),
    /// The header does not match its checksum.
    #[error("frame header is damaged: checksum {found:#010x}, computed {computed:#010x}")]
    HeaderChecksum {
        /// Checksum stored in the header.
        found: u32,
        /// Checksum computed over the header.
        computed: u32,
    },
    /// The body or payload is longer than allowed.
    #[error(
        "frame of {body_bytes} + {payload_bytes} bytes is over the bound of {BODY_BYTES_MAX} + {PAYLOAD_BYTES_MAX}"
    )]
    Oversized {
        /// Claimed length of the body, in bytes.
        body_bytes: u32,
        /// Claimed length of the payload, in bytes.
        payload_bytes: u32,
    },
    /// The body does not match its checksum.
    #[error("frame body is damaged: checksum does not match")]
    BodyChecksum,
}

impl FrameHeader {
    /// Creates the header of a frame with this body.
    pub fn new(kind: u16, request: u64, body: &[u8], payload_bytes: u32) -> FrameHeader {
        let body_bytes = u32::try_from(body.len()).expect("bodies are at most 1 MiB");
        assert!(body_bytes <= BODY_BYTES_MAX, "a body of {body_bytes} bytes is over the bound");
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "a payload of {payload_bytes} bytes is over the bound");
        FrameHeader {
            version: WIRE_VERSION,
            kind,
            request,
            body_bytes,
            payload_bytes,
            body_crc: crc32c(body),
        }
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&self.version.to_le_bytes());
        out[6..8].copy_from_slice(&self.kind.to_le_bytes());
        out[8..16].copy_from_slice(&self.request.to_le_bytes());
        out[16..20].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[20..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[24..28].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c(&out[..28]);
        out[28..32].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header. Checks magic, checksum, version and bounds, in this order: the version counts only
    /// in a header that is not damaged. If the magic is wrong but the rest fits the checksum, the header
    /// was a valid one and has been damaged.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let mut whole = *bytes;
        whole[..4].copy_from_slice(&MAGIC);
        let found = u32_at(&mut &bytes[28..]);
        if bytes[..4] != MAGIC && crc32c(&whole[..28]) != found {
            return Err(FrameError::Magic([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        let computed = crc32c(&bytes[..28]);
        if found != computed {
            return Err(FrameError::HeaderChecksum { found, computed });
        }
        let mut rest = &bytes[4..];
        let version = u16_at(&mut rest);
        if version < WIRE_VERSION_OLDEST {
            return Err(FrameError::Version(version));
        }
        let kind = u16_at(&mut rest);
        let request = u64::from(u32_at(&mut rest)) | u64::from(u32_at(&mut rest)) << 32;
        let body_bytes = u32_at(&mut rest);
        let payload_bytes = u32_at(&mut rest);
        let body_crc = u32_at(&mut rest);
        if body_bytes > BODY_BYTES_MAX || payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Oversized { body_bytes, payload_bytes });
        }
        Ok(FrameHeader { version, kind, request, body_bytes, payload_bytes, body_crc })
    }

    /// Checks `body` against the header's checksum.
    pub fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        if crc32c(body) == self.body_crc { Ok(()) } else { Err(FrameError::BodyChecksum) }
    }
}

fn u16_at(rest: &mut &[u8]) -> u16 {
    let (head, tail) = rest.split_first_chunk::<2>().expect("the header is 32 bytes");
    *rest = tail;
    u16::from_le_bytes(*head)
}

fn u32_at(rest: &mut &[u8]) -> u32 {
    let (head, tail) = rest.split_first_chunk::<4>().expect("the header is 32 bytes");
    *rest = tail;
    u32::from_le_bytes(*head)
}
