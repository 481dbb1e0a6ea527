//! Streams of messages between two peers over datagrams, as a machine without I/O.
//!
//! The crate is pure: time is handed in, in nanoseconds since any moment; random bytes are a seed. Its owner
//! carries datagrams between the machine and a socket, and may as well be a test on a virtual clock. The
//! format is documented in `docs/format-datagram.md`.
//!
//! The crate guarantees:
//! - Each message arrives once, whole, unchanged, and in the order of its stream, or the connection ends with
//!   a reason ([`EndReason`]) in a bounded time.
//! - Every datagram after the handshake is sealed by AES-256-GCM under keys of this connection alone. What is
//!   forged, altered or repeated is dropped.
//! - A peer that has proved neither its address nor the secret costs no memory, and is sent at most as many
//!   bytes as it sent.
//! - Memory is bounded: by each stream's window, by what waits to be sent, by the number of connections.
//! - A stream whose receiver does not take its messages delays no other stream.
//!
//! # Use
//!
//! An [`Endpoint`] has all connections of one socket. Give it each datagram ([`Endpoint::handle_datagram`])
//! and call [`Endpoint::handle_timeout`] at [`Endpoint::next_deadline`]. After each of these, and after each
//! call that sends or receives messages, call [`Endpoint::poll_transmit`] and [`Endpoint::poll_event`] until
//! both return `None`.
//!
//! # What it refuses to know
//!
//! What messages mean, and whose secret is whose: the acceptor's owner finds the secret of an identity.

mod acks;
mod codec;
mod config;
mod connection;
mod cookie;
mod draws;
mod endpoint;
mod error;
mod event;
mod frame;
mod keys;
mod marks;
mod mtu;
mod opening;
mod pacer;
mod packet;
pub mod policy;
mod ranges;
mod recovery;
mod rtt;
mod streams;
mod transmit;

pub use config::{Config, Settings};
pub use endpoint::Endpoint;
pub use error::{EndReason, SendError, Violation};
pub use event::{ConnectionId, Event};
pub use frame::{Ack, Frame, decode_frames};
pub use keys::Secret;
pub use packet::{Accept, Open, Packet, Refused};
pub use streams::{Incoming, StreamId};
pub use transmit::{Ecn, Transmit};

/// Constants of the format.
pub mod format {
    pub use crate::frame::{REASON_BYTES_MAX, kind as frame_kind};
    pub use crate::keys::EPOCH_BITS;
    pub use crate::packet::{
        ACCEPT_BYTES, COOKIE_BYTES, DATA_HEADER_BYTES, IDENTITY_BYTES_MAX, OPEN_BYTES_MIN, OPEN_HEAD_BYTES,
        REFUSED_BYTES, RETRY_BYTES, TAG_BYTES, UNKNOWN_BYTES, VERSION, VERSIONS_BYTES, kind as packet_kind,
    };
    pub use crate::streams::{END_PREFIX, PREFIX_BYTES};
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
