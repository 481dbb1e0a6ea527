//! Streams of messages: bytes in order, cut into messages by lengths.
//!
//! A stream is a sequence of bytes: before each message stands its length (u32), and in place of a length the
//! stream's end may be marked. The receiver raises its window as its owner takes messages. As a message has
//! at most half of the window, and credit is given for each quarter, one that fits is always completed:
//! nothing waits for credit that cannot come.

mod incoming;
mod outgoing;
mod whole;

pub(crate) use incoming::Inbound;
pub use incoming::Incoming;
pub(crate) use outgoing::Outbound;

/// Number of a stream of a connection.
pub type StreamId = u16;

/// Bytes of the length before a message.
pub const PREFIX_BYTES: usize = 4;
/// Stands in place of a length at the end of a stream.
pub const END_PREFIX: u32 = u32::MAX;

/// The longest message that a receiver with this window takes.
pub(crate) fn message_bytes_max(window_bytes: u32) -> usize {
    usize::try_from(window_bytes / 2).expect("half of 32 bits") - PREFIX_BYTES
}
