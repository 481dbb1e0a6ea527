//! What can go wrong between two peers. Each variant is a case that a caller treats differently.

use std::io;

use braid_layout::{ClusterId, DriveId};
use braid_wire::data::PeerRole;
use braid_wire::{DecodeError, FrameError, Refusal};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, TransportError>;

/// Why bytes did not get across.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection: no route, no such name.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody listens there: the peer's process is surely not running (or not there).
    #[error("{address} refuses connections: nothing listens there")]
    Refused {
        /// Where to.
        address: String,
    },
    /// The address to listen on is taken.
    #[error("cannot listen on {address}: it is in use; stop the other process or choose another port")]
    InUse {
        /// The address.
        address: String,
    },
    /// The address to listen on is not possible.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// A wait reached its bound.
    #[error("timed out waiting for {address} ({what})")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// The peer.
        address: String,
    },
    /// The peer closed the connection, or it broke, in the middle of an exchange.
    #[error("{address} closed the connection")]
    Closed {
        /// The peer.
        address: String,
    },
    /// Any other error of the connection.
    #[error("connection with {address}: {source}")]
    Io {
        /// The peer.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that are no frame.
    #[error("from {address}: {source}")]
    Frame {
        /// The peer.
        address: String,
        /// What is wrong.
        source: FrameError,
    },
    /// In the middle of a session with the manager, bytes that are no frame, or the answer to another request: they were changed,
    /// lost or repeated on their way. Connect and ask again.
    #[error("damaged on the way to or from {address}: {what}")]
    Damaged {
        /// The peer.
        address: String,
        /// What is wrong.
        what: String,
    },
    /// A frame that is not the message it claims to be.
    #[error("from {address}: {source}")]
    Decode {
        /// The peer.
        address: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// A message that has no place here: an unknown reply, one out of order, a payload of the wrong length.
    #[error("from {address}: unexpected {what}")]
    Unexpected {
        /// The peer.
        address: String,
        /// What came.
        what: String,
    },
    /// A reply's or the peer's proof is wrong: it does not know the secret, or the bytes were changed on their way.
    #[error("{address} could not prove that it knows the secret: its {what} is forged")]
    Forged {
        /// The peer.
        address: String,
        /// What was to be proved.
        what: &'static str,
    },
    /// Another peer lives at this address.
    #[error("{address} is another peer: {mismatch}")]
    WrongPeer {
        /// Where.
        address: String,
        /// In what it differs.
        mismatch: Mismatch,
    },
    /// The peer said no.
    #[error("{0}")]
    Refusal(Refusal),
    /// More requests are in flight than the session keeps track of: take answers first.
    #[error("{0} requests are in flight to {1} already")]
    TooManyAsked(usize, String),
    /// A message of ours that is longer than a frame may be: nothing was sent. Ask for less at a time.
    #[error(
        "a message to {address} would have {bytes} bytes; at most {} fit",
        braid_wire::frame::BODY_BYTES_MAX
    )]
    TooLong {
        /// The peer.
        address: String,
        /// How long it would be.
        bytes: usize,
    },
    /// A peer that has proved nothing announced more than such a peer may send.
    #[error(
        "{address} has proved nothing and announces a body of {bytes} bytes; at most {most} are taken until it has"
    )]
    TooMuch {
        /// The peer.
        address: String,
        /// What it announced.
        bytes: u32,
        /// What it may send.
        most: u32,
    },
    /// Its place was needed for another connection.
    #[error(
        "{address} gave way to another connection: all places were taken, and it was idle for the longest"
    )]
    GaveWay {
        /// The peer.
        address: String,
    },
    /// The stream was left in the middle of a frame, or failed before: connect again.
    #[error("the connection with {address} failed before: connect again")]
    Poisoned {
        /// The peer.
        address: String,
    },
}

/// Whether a peer has said Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeted {
    Yes,
    No,
}

/// In what a peer differs from the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A manager where a drive was expected, or the reverse.
    #[error("a {found:?} where a {expected:?} was expected")]
    Role {
        /// Asked for.
        expected: PeerRole,
        /// There.
        found: PeerRole,
    },
    /// Another drive: the one that was here lost its disk or moved.
    #[error("drive {found} where {expected} was expected")]
    Drive {
        /// Asked for.
        expected: DriveId,
        /// There.
        found: DriveId,
    },
    /// A peer of another cluster.
    #[error("it belongs to cluster {found}, not {expected}")]
    Cluster {
        /// Asked for.
        expected: ClusterId,
        /// There.
        found: ClusterId,
    },
    /// No wire version in common.
    #[error("it speaks wire versions {min} to {max}, this build {}", braid_wire::frame::WIRE_VERSION)]
    Version {
        /// Lowest spoken there.
        min: u16,
        /// Highest spoken there.
        max: u16,
    },
}

impl TransportError {
    /// An error of the connection, with a peer that went away as its own case.
    pub(crate) fn io(address: &str, source: io::Error) -> TransportError {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
        let address = address.to_owned();
        match source.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof => {
                TransportError::Closed { address }
            }
            _ => TransportError::Io { address, source },
        }
    }

    /// A frame of ours that does not match its checksum was damaged on its way. Other bytes in a frame's place may be another
    /// program's, until the peer has said Hello (`greeted`): after that they too are frames of ours, out of step.
    pub(crate) fn or_damaged(self, greeted: Greeted) -> TransportError {
        use FrameError::{BodyChecksum, HeaderChecksum};
        match self {
            TransportError::Frame { address, source }
                if greeted == Greeted::Yes || matches!(source, BodyChecksum | HeaderChecksum { .. }) =>
            {
                TransportError::Damaged { address, what: source.to_string() }
            }
            other => other,
        }
    }

    /// Whether the peer broke the format, as opposed to being away or saying no.
    pub fn is_misbehaviour(&self) -> bool {
        matches!(
            self,
            TransportError::Frame { .. }
                | TransportError::Decode { .. }
                | TransportError::Unexpected { .. }
                | TransportError::Forged { .. }
                | TransportError::TooMuch { .. }
        )
    }
}
