//! Settings of an endpoint.

use crate::policy::Kind;
use crate::{MILLISECOND, SECOND};

/// That which one side tells the other in the handshake of what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number of streams, from 0 on, that this side takes messages on. A connection has as many as both
    /// sides take.
    pub streams: u16,
    /// The longest datagram that this side takes, in bytes of UDP's payload; at least 1200.
    pub datagram_bytes_max: u16,
    /// Bytes of one stream that may be sent before this side's owner takes its messages. A message has at
    /// most half of it. Memory that a connection may need is the product of this and `streams`.
    pub window_bytes: u32,
}

/// Settings of an endpoint. The defaults suit a local network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// That which this side takes.
    pub settings: Settings,
    /// The amount that may be in flight, and how losses are repaired.
    pub policy: Kind,
    /// The rate that was admitted for what this side sends, in bytes per second: datagrams are paced by it.
    /// `None`: the policy paces.
    pub rate: Option<u64>,
    /// Bytes of one stream that wait to be sent or acknowledged, beyond which a message is refused
    /// ([`SendError::Full`](crate::SendError::Full)). One message always fits.
    pub unacked_bytes_max: u64,
    /// Bytes of one stream that wait to be sent the first time, from which on a message is refused: one more
    /// than comes to it is taken. What is in flight does not count. Default: as many as `unacked_bytes_max`.
    pub unsent_bytes_max: u64,
    /// Time for the handshake, which takes two round trips. Default 10 s.
    pub open_ns: u64,
    /// Silence after which the peer is asked for a sign of life. Default 2 s.
    pub keep_alive_ns: u64,
    /// Silence, or time without progress of what was sent, after which the connection ends. Default 10 s.
    pub silence_ns: u64,
    /// Maximum number of connections.
    pub connections: usize,
    /// True if a refusal, which nothing proves, ends a handshake at once. Default false: an Accept may yet
    /// show that it was forged. True is for who opens a connection only to see whether somebody answers.
    pub believes_refusals: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { streams: 4, datagram_bytes_max: 8972, window_bytes: 4 << 20 }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            settings: Settings::default(),
            policy: Kind::Cubic,
            rate: None,
            unacked_bytes_max: 4 << 20,
            unsent_bytes_max: 4 << 20,
            open_ns: 10 * SECOND,
            keep_alive_ns: 2 * SECOND,
            silence_ns: 10 * SECOND,
            connections: 1024,
            believes_refusals: false,
        }
    }
}

impl Settings {
    /// Returns true if a peer may have these.
    pub(crate) fn are_valid(&self) -> bool {
        self.streams > 0 && self.datagram_bytes_max >= 1200 && self.window_bytes >= 4096
    }
}

/// The longest time for which an acknowledgement waits for company.
pub(crate) const ACK_DELAY_NS: u64 = 2 * MILLISECOND;
