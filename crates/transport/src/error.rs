//! Transport errors. Each variant is a case that a caller treats differently.

use std::fmt;
use std::io;

use braid_layout::{ClusterId, DriveId};
use braid_wire::data::PeerRole;
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};
use braid_wire::token::Pin;
use braid_wire::{DecodeError, FrameError, Refusal};

use crate::authority::hex;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, TransportError>;

/// Error of an exchange with a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection: no route, or the name does not resolve.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address called.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Nothing listens there: the peer's process is not running, or is elsewhere.
    #[error("{address} refuses connections: nothing listens there")]
    Refused {
        /// The address called.
        address: String,
    },
    /// No answer by datagrams, where nothing else may be used.
    #[error(
        "{address} does not answer by UDP ({why}): datagrams are filtered or the drive does not listen on UDP: use --transport auto or tcp"
    )]
    NoDatagrams {
        /// The address called.
        address: String,
        /// The reason, as it was seen here.
        why: String,
    },
    /// The address to listen on is in use.
    #[error("cannot listen on {address}: it is in use; stop the other process or choose another port")]
    InUse { address: String },
    /// The system cannot listen on this address.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A wait reached its bound.
    #[error("timed out waiting for {address} ({what})")]
    Timeout {
        /// Event that was waited for.
        what: &'static str,
        address: String,
    },
    /// The peer closed the connection, or it broke, in the middle of an exchange.
    #[error("{address} closed the connection")]
    Closed { address: String },
    /// Any other error of the connection.
    #[error("connection with {address}: {source}")]
    Io {
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Bytes that are not a frame.
    #[error("from {address}: {source}")]
    Frame {
        address: String,
        /// Fault of the bytes.
        source: FrameError,
    },
    /// In the middle of a session with the manager: bytes that are not a frame, or the answer to another
    /// request. They were changed, lost or repeated in transit. Connect and ask again.
    #[error("damaged on the way to or from {address}: {what}")]
    Damaged {
        address: String,
        /// Fault of the exchange.
        what: String,
    },
    /// A frame that is not the message it claims to be.
    #[error("from {address}: {source}")]
    Decode {
        address: String,
        /// Fault of the message.
        source: DecodeError,
    },
    /// A message that is not valid here: an unknown or unordered reply, or a payload of the wrong length.
    #[error("from {address}: unexpected {what}")]
    Unexpected {
        address: String,
        /// Description of what was received.
        what: String,
    },
    /// The proof of a reply or of the peer is wrong: the peer does not know the secret, or bytes were changed
    /// in transit.
    #[error("{address} could not prove that it knows the secret: its {what} is forged")]
    Forged {
        address: String,
        /// Name of the message with the wrong proof.
        what: &'static str,
    },
    /// Another peer answers at this address.
    #[error("{address} is another peer: {mismatch}")]
    WrongPeer {
        address: String,
        /// Difference from the expected peer.
        mismatch: Mismatch,
    },
    /// No TLS session could be begun: the peer's certificate is not valid, or what it sent is no TLS.
    #[error("no TLS session with {address}: {what}")]
    Tls {
        address: String,
        /// The fault, and the remedy.
        what: String,
    },
    /// The peer refused the request.
    #[error("{0}")]
    Refusal(Refusal),
    /// The session cannot track more requests in flight: take answers first.
    #[error("{0} requests are in flight to {1} already")]
    TooManyAsked(usize, String),
    /// A message to send would exceed the frame limit: nothing was sent. Ask for less at a time.
    #[error(
        "a message to {address} would have {bytes} bytes; at most {} fit",
        braid_wire::frame::BODY_BYTES_MAX
    )]
    TooLong { address: String, bytes: usize },
    /// An unauthenticated peer announced more than such a peer may send.
    #[error(
        "{address} announces a body of {bytes} bytes before it has proved a token; at most {most} are accepted until then"
    )]
    TooMuch {
        address: String,
        /// Length in bytes that the peer announced.
        bytes: u32,
        /// Maximum number of bytes that the peer may send.
        most: u32,
    },
    /// An unauthenticated peer sent more than such a peer may send.
    #[error("{address} sends {what} before it has proved a token or a capability")]
    TooManyBefore {
        address: String,
        /// The bound that it came to.
        what: String,
    },
    /// The slot of this connection was needed for another connection.
    #[error(
        "{address} gave way to another connection: all places were taken, and it was idle for the longest"
    )]
    GaveWay { address: String },
    /// The stream was left in the middle of a frame, or failed before: connect again.
    #[error("the connection with {address} failed before: connect again")]
    Poisoned { address: String },
}

/// State of a connection before or after the peer's Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeted {
    Yes,
    No,
}

/// Difference of a peer from the expected one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A manager where a drive was expected, or the reverse.
    #[error("a {found:?} where a {expected:?} was expected")]
    Role {
        /// The expected role.
        expected: PeerRole,
        /// The role found.
        found: PeerRole,
    },
    /// Another drive: the expected one lost its disk or moved.
    #[error("drive {found} where {expected} was expected")]
    Drive {
        /// The expected drive.
        expected: DriveId,
        /// The drive found.
        found: DriveId,
    },
    /// A peer of another cluster.
    #[error("it belongs to cluster {found}, not {expected}")]
    Cluster {
        /// The expected cluster.
        expected: ClusterId,
        /// The cluster found.
        found: ClusterId,
    },
    /// A manager with a certificate of another certificate authority.
    #[error(
        "its certificate is of the authority {found}, and {expected} was expected: it is another cluster's manager, or \
         its authority was made anew; if it is yours, take cluster.toml or join.token from its directory again"
    )]
    Authority {
        /// The pin expected.
        expected: PinText,
        /// The pin found.
        found: PinText,
    },
    /// No wire version in common.
    #[error(
        "it speaks wire version{}, this build version{}: upgrade the older end, one release at a time",
        Versions(*min, *max), Versions(WIRE_VERSION_OLDEST, WIRE_VERSION)
    )]
    Version {
        /// Lowest version that the peer speaks.
        min: u16,
        /// Highest version that the peer speaks.
        max: u16,
    },
}

/// A pin, for messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PinText(pub Pin);

impl fmt::Display for PinText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for PinText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A range of wire versions, from the first to the second, for messages.
struct Versions(u16, u16);

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { write!(f, " {}", self.0) } else { write!(f, "s {} to {}", self.0, self.1) }
    }
}

impl TransportError {
    /// Turns an I/O error into an error of this crate; a closed connection is a variant of its own, and so
    /// are bytes that TLS found to be changed.
    pub(crate) fn io(address: &str, source: io::Error) -> TransportError {
        if let Some(changed) = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            let what = format!("TLS: {changed}");
            return TransportError::Damaged { address: address.to_owned(), what };
        }
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
        let address = address.to_owned();
        match source.kind() {
            BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof => {
                TransportError::Closed { address }
            }
            _ => TransportError::Io { address, source },
        }
    }

    /// Classifies a frame error. A wrong checksum means damage in transit. Other wrong bytes may come from a
    /// foreign program, but only before the peer's Hello (`greeted`): later they are valid frames out of
    /// step, hence damage too.
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

    /// Returns true if the peer violated the protocol, as opposed to being away or refusing.
    pub fn is_misbehaviour(&self) -> bool {
        matches!(
            self,
            TransportError::Frame { .. }
                | TransportError::Decode { .. }
                | TransportError::Unexpected { .. }
                | TransportError::Forged { .. }
                | TransportError::TooMuch { .. }
                | TransportError::Tls { .. }
                | TransportError::TooManyBefore { .. }
        )
    }
}
