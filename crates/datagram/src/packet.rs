//! Datagrams: those of the handshake, and the header of the others.

use std::fmt;

use crate::codec::Reader;
use crate::config::Settings;

/// The version of the format.
pub const VERSION: u8 = 1;
/// The least length of an [`Open`]: no answer to it is longer, and every path carries it.
pub const OPEN_BYTES_MIN: usize = 1200;
/// Bytes of an [`Open`] before the identity.
pub const OPEN_HEAD_BYTES: usize = 88;
/// The longest identity.
pub const IDENTITY_BYTES_MAX: usize = 1024;
/// Length of a cookie.
pub const COOKIE_BYTES: usize = 24;
/// Length of a Retry.
pub const RETRY_BYTES: usize = 8 + COOKIE_BYTES;
/// Length of an [`Accept`].
pub const ACCEPT_BYTES: usize = 68;
/// Length of a Refused.
pub const REFUSED_BYTES: usize = 8;
/// Length of a Versions.
pub const VERSIONS_BYTES: usize = 8;
/// Length of an Unknown.
pub const UNKNOWN_BYTES: usize = 8;
/// Length of the header of a Data.
pub const DATA_HEADER_BYTES: usize = 9;
/// Length of the tag at the end of a Data.
pub const TAG_BYTES: usize = 16;

/// The first byte of each kind of datagram.
pub mod kind {
    /// Asks for a connection.
    pub const OPEN: u8 = 0xb1;
    /// Asks the opener to show by a cookie that it is at its address.
    pub const RETRY: u8 = 0xb2;
    /// Accepts the connection.
    pub const ACCEPT: u8 = 0xb3;
    /// Refuses the connection.
    pub const REFUSED: u8 = 0xb4;
    /// Names the versions that the acceptor speaks.
    pub const VERSIONS: u8 = 0xb5;
    /// Says that the connection of a Data is not known.
    pub const UNKNOWN: u8 = 0xb6;
    /// Carries sealed frames.
    pub const DATA: u8 = 0xb7;
}

/// The reason that a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The acceptor has as many connections as it takes.
    Busy,
    /// The acceptor does not know the identity, or the proof is not that of its secret.
    Unproved,
}

/// A datagram, as it was parsed. Nothing of it is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Of this version.
    Open(Open<'a>),
    /// An Open of another version, by this opener.
    OpenOfOtherVersion {
        /// The opener's number of the connection.
        from: u32,
    },
    /// The acceptor's cookie.
    Retry {
        /// The opener's number of the connection.
        to: u32,
        /// That which the opener is to show.
        cookie: [u8; COOKIE_BYTES],
    },
    /// The acceptor's side of the handshake.
    Accept(Accept),
    /// The acceptor's refusal.
    Refused {
        /// The opener's number of the connection.
        to: u32,
        /// The reason that it gives.
        why: Refused,
    },
    /// The acceptor's versions.
    Versions {
        /// The opener's number of the connection.
        to: u32,
        /// The lowest of them.
        min: u8,
        /// The highest of them.
        max: u8,
    },
    /// The connection is not known where the Data came to.
    Unknown {
        /// The number that stood in the Data.
        of: u32,
    },
    /// Frames, which are sealed.
    Data {
        /// The receiver's number of the connection.
        to: u32,
        /// The lower 32 bits of the datagram's number.
        number: u32,
    },
}

/// Asks for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open<'a> {
    /// The opener's number of the connection.
    pub from: u32,
    /// That which the opener takes.
    pub settings: Settings,
    /// Drawn by the opener.
    pub nonce: [u8; 32],
    /// The cookie of the acceptor's Retry; zeros in the first Open.
    pub cookie: [u8; COOKIE_BYTES],
    /// Proof of the secret, over all that stands before it and the identity.
    pub proof: [u8; 16],
    /// The opener's identity, by which the acceptor finds the secret.
    pub identity: &'a [u8],
}

/// Accepts a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept {
    /// The opener's number of the connection.
    pub to: u32,
    /// The acceptor's number of the connection.
    pub from: u32,
    /// That which the acceptor takes.
    pub settings: Settings,
    /// Drawn by the acceptor.
    pub nonce: [u8; 32],
    /// Proof of the secret, over the whole handshake.
    pub proof: [u8; 16],
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Busy => "it has as many connections as it takes: end some, or try again later",
            Refused::Unproved => "it does not accept the proof: the capability is over or another drive's",
        })
    }
}

impl<'a> Packet<'a> {
    /// Parses a datagram; `None` if it is none of this format.
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let mut input = Reader(bytes);
        match input.u8()? {
            kind::OPEN => parse_open(bytes),
            kind::RETRY if bytes.len() == RETRY_BYTES => {
                let to = head(&mut input)?;
                Some(Packet::Retry { to, cookie: input.array()? })
            }
            kind::ACCEPT if bytes.len() == ACCEPT_BYTES => {
                let to = head(&mut input)?;
                let from = input.u32()?;
                let settings = take_settings(&mut input)?;
                Some(Packet::Accept(Accept {
                    to,
                    from,
                    settings,
                    nonce: input.array()?,
                    proof: input.array()?,
                }))
            }
            kind::REFUSED if bytes.len() == REFUSED_BYTES => {
                let why = match input.u8()? {
                    1 => Refused::Busy,
                    2 => Refused::Unproved,
                    _ => return None,
                };
                zeros(&mut input, 2)?;
                Some(Packet::Refused { to: input.u32()?, why })
            }
            kind::VERSIONS if bytes.len() == VERSIONS_BYTES => {
                let min = input.u8()?;
                let max = input.u8()?;
                zeros(&mut input, 1)?;
                Some(Packet::Versions { to: input.u32()?, min, max })
            }
            kind::UNKNOWN if bytes.len() == UNKNOWN_BYTES => {
                zeros(&mut input, 3)?;
                Some(Packet::Unknown { of: input.u32()? })
            }
            kind::DATA if bytes.len() >= DATA_HEADER_BYTES + TAG_BYTES => {
                Some(Packet::Data { to: input.u32()?, number: input.u32()? })
            }
            _ => None,
        }
    }

    /// Emits the datagram. Of a Data this is the header, and of an Open of another version nothing.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ACCEPT_BYTES);
        match *self {
            Packet::Open(ref open) => open.emit(&mut out),
            Packet::OpenOfOtherVersion { .. } => {}
            Packet::Retry { to, cookie } => {
                out.extend_from_slice(&[kind::RETRY, VERSION, 0, 0]);
                out.extend_from_slice(&to.to_le_bytes());
                out.extend_from_slice(&cookie);
            }
            Packet::Accept(ref accept) => {
                out.extend_from_slice(&accept.head());
                out.extend_from_slice(&accept.proof);
            }
            Packet::Refused { to, why } => {
                let why = match why {
                    Refused::Busy => 1,
                    Refused::Unproved => 2,
                };
                out.extend_from_slice(&[kind::REFUSED, why, 0, 0]);
                out.extend_from_slice(&to.to_le_bytes());
            }
            Packet::Versions { to, min, max } => {
                out.extend_from_slice(&[kind::VERSIONS, min, max, 0]);
                out.extend_from_slice(&to.to_le_bytes());
            }
            Packet::Unknown { of } => {
                out.extend_from_slice(&[kind::UNKNOWN, 0, 0, 0]);
                out.extend_from_slice(&of.to_le_bytes());
            }
            Packet::Data { to, number } => emit_data_header(to, number, &mut out),
        }
        out
    }
}

/// Appends the header of a Data.
pub(crate) fn emit_data_header(to: u32, number: u32, out: &mut Vec<u8>) {
    out.push(kind::DATA);
    out.extend_from_slice(&to.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
}

impl Open<'_> {
    /// All that stands before the proof.
    pub(crate) fn head(&self) -> [u8; OPEN_HEAD_BYTES - 16] {
        let identity_bytes = u16::try_from(self.identity.len()).expect("an identity has at most 1024 bytes");
        let mut out = Vec::with_capacity(OPEN_HEAD_BYTES);
        out.extend_from_slice(&[kind::OPEN, VERSION]);
        out.extend_from_slice(&identity_bytes.to_le_bytes());
        out.extend_from_slice(&self.from.to_le_bytes());
        put_settings(&self.settings, &mut out);
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.cookie);
        out.try_into().expect("the fields have these lengths")
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head());
        out.extend_from_slice(&self.proof);
        out.extend_from_slice(self.identity);
        out.resize(out.len().max(OPEN_BYTES_MIN), 0);
    }
}

impl Accept {
    /// All that stands before the proof.
    pub(crate) fn head(&self) -> [u8; ACCEPT_BYTES - 16] {
        let mut out = Vec::with_capacity(ACCEPT_BYTES);
        out.extend_from_slice(&[kind::ACCEPT, VERSION, 0, 0]);
        out.extend_from_slice(&self.to.to_le_bytes());
        out.extend_from_slice(&self.from.to_le_bytes());
        put_settings(&self.settings, &mut out);
        out.extend_from_slice(&self.nonce);
        out.try_into().expect("the fields have these lengths")
    }
}

fn parse_open(bytes: &[u8]) -> Option<Packet<'_>> {
    if bytes.len() < OPEN_BYTES_MIN {
        return None;
    }
    let mut input = Reader(&bytes[1..]);
    let version = input.u8()?;
    let identity_bytes = usize::from(input.u16()?);
    let from = input.u32()?;
    if version != VERSION {
        return Some(Packet::OpenOfOtherVersion { from });
    }
    let settings = take_settings(&mut input)?;
    let nonce = input.array()?;
    let cookie = input.array()?;
    let proof = input.array()?;
    if identity_bytes > IDENTITY_BYTES_MAX {
        return None;
    }
    let identity = input.bytes(identity_bytes)?;
    let padding = input.0.len();
    if bytes.len() != OPEN_BYTES_MIN.max(OPEN_HEAD_BYTES + identity_bytes) {
        return None;
    }
    zeros(&mut input, padding)?;
    Some(Packet::Open(Open { from, settings, nonce, cookie, proof, identity }))
}

/// The version, two zeros, and the number of a connection.
fn head(input: &mut Reader<'_>) -> Option<u32> {
    if input.u8()? != VERSION {
        return None;
    }
    zeros(input, 2)?;
    input.u32()
}

fn zeros(input: &mut Reader<'_>, count: usize) -> Option<()> {
    input.bytes(count)?.iter().all(|&byte| byte == 0).then_some(())
}

fn put_settings(settings: &Settings, out: &mut Vec<u8>) {
    out.extend_from_slice(&settings.streams.to_le_bytes());
    out.extend_from_slice(&settings.datagram_bytes_max.to_le_bytes());
    out.extend_from_slice(&settings.window_bytes.to_le_bytes());
}

fn take_settings(input: &mut Reader<'_>) -> Option<Settings> {
    let settings =
        Settings { streams: input.u16()?, datagram_bytes_max: input.u16()?, window_bytes: input.u32()? };
    settings.are_valid().then_some(settings)
}
