//! Why a message is not sent, and why a connection ends.

/// The reason that a message cannot be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Too much of the stream waits: send again after the event that it is writable.
    #[error("{waiting} bytes of the stream wait already: send again when it is writable")]
    Full {
        /// Bytes that are not acknowledged yet.
        waiting: u64,
    },
    /// The message is longer than the peer takes: send it in parts.
    #[error("a message of {bytes} bytes: the peer takes at most {most}")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// The longest that the peer takes.
        most: usize,
    },
    /// The connection has no such stream.
    #[error("stream {stream}: the connection has {streams}")]
    NoStream {
        /// The stream asked for.
        stream: u16,
        /// Number of streams that both sides take.
        streams: u16,
    },
    /// This side has finished the stream, or the connection is not open.
    #[error("the stream is at its end: connect again")]
    Ended,
}

/// The reason that a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// This side closed it, and all that was sent has arrived.
    #[error("closed here")]
    Closed,
    /// This side closed it, and some of what was sent may not have arrived: it was ended at once, or the peer
    /// took too long.
    #[error("closed here before all that was sent had arrived")]
    Unfinished,
    /// The peer closed it. All that it had sent has arrived if each stream's end has
    /// ([`Incoming::End`](crate::Incoming::End)).
    #[error("the peer closed the connection (code {code}: {reason})")]
    ClosedByPeer {
        /// The peer's code; 0: no fault.
        code: u16,
        /// The peer's words.
        reason: String,
    },
    /// No answer to the handshake came in time.
    #[error("no answer to the handshake: nothing listens there, or datagrams are filtered on the way")]
    NotOpened,
    /// The acceptor refused the handshake.
    #[error("the peer refuses the connection: {0}")]
    Refused(crate::packet::Refused),
    /// The acceptor speaks other versions of the format.
    #[error("the peer speaks datagram versions {min} to {max}, this build {}", crate::packet::VERSION)]
    Version {
        /// Lowest version that the peer speaks.
        min: u8,
        /// Highest version that the peer speaks.
        max: u8,
    },
    /// Nothing was heard of the peer for too long: it is gone, or the network is.
    #[error("the peer is silent: nothing was heard for {0} ms")]
    Silent(u64),
    /// Nothing of what was sent was acknowledged for too long, though the peer is heard.
    #[error("nothing that was sent arrives: no progress for {0} ms")]
    Stuck(u64),
    /// The peer does not keep to the format.
    #[error("the peer does not keep to the protocol: {0}")]
    Violated(Violation),
}

/// That which a proven peer may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The content of a datagram is no sequence of frames.
    #[error("a frame that cannot be read")]
    Malformed,
    /// An acknowledgement of a number that was not sent.
    #[error("it acknowledges what was not sent")]
    NotSent,
    /// A stream that the connection does not have.
    #[error("a stream beyond the number agreed on")]
    NoStream,
    /// Bytes beyond the stream's window.
    #[error("bytes beyond the window")]
    BeyondWindow,
    /// A message that is longer than this side takes.
    #[error("a message that is longer than half the window")]
    MessageTooLong,
    /// Bytes after the end of a stream.
    #[error("bytes after the end of a stream")]
    AfterEnd,
}

/// The code of a Close without fault of which not all that was sent had arrived.
pub(crate) const UNFINISHED_CODE: u16 = 7;

impl Violation {
    /// The code that a connection is closed with.
    pub(crate) fn code(self) -> u16 {
        match self {
            Violation::Malformed => 1,
            Violation::NotSent => 2,
            Violation::NoStream => 3,
            Violation::BeyondWindow => 4,
            Violation::MessageTooLong => 5,
            Violation::AfterEnd => 6,
        }
    }
}
