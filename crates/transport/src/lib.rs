//! Frames between two peers over TCP, and the sessions built from them.
//!
//! The crate guarantees:
//! - Every wait is bounded by [`Limits`]: for a connection, for the rest of a frame (stalled or trickling),
//!   for a reply.
//! - A frame that is garbage, oversized, damaged or truncated gives an error. The stream is then unusable and
//!   says so ([`TransportError::Poisoned`]), rather than continue out of step. So does a stream whose call
//!   was dropped in mid-frame.
//! - An unauthenticated peer gets little ([`ConnectionSlots`], [`STRANGER_BODY_BYTES_MAX`]): a slot that the
//!   next such peer may take, a few seconds, small bodies. The server gives the peer another slot once it has
//!   proved its identity ([`Receiver::admit`]).
//! - Payloads are not copied: one vectored write sends them from where they lie, and they are received in
//!   their final place (except for what came in the same read as the header).
//! - A session ([`DriveSession`], [`ControlSession`]) is returned only after the peer's role, cluster and
//!   drive were checked and both sides' proofs exchanged.
//!
//! [`process`] identifies a peer's process, and tells whether one on this machine is gone.
//!
//! The crate refuses to know what requests mean, which of them may be sent again, and which rights a peer
//! has.
//!
//! [`Stream`] is over TCP or over datagrams, and nothing above it knows which. A session
//! with the manager is in TLS ([`Secured`]), whose certificates [`Authority`] makes.

mod allowance;
mod authority;
mod bodies;
mod control_peer;
mod control_session;
mod credit;
mod datagrams;
mod descriptors;
mod drive_session;
mod error;
mod hello;
pub mod host;
mod limits;
mod losses;
mod managers;
mod net;
pub mod process;
mod receiver;
mod seldom;
mod sender;
mod shared_session;
mod slots;
mod stream;
mod tls;

pub use authority::{
    Authority, BadAuthority, CERTIFICATE_S, ETCD_CERTIFICATE_S, ETCD_PEER_NAME, EtcdUse, PemPair,
};
pub use bodies::STRANGER_BODY_BYTES_MAX;
pub use braid_datagram::policy::{Kind as Policy, UnknownPolicy};
pub use control_peer::{Asked, ControlPeer};
pub use control_session::{ControlSession, Credentials, KnownCluster};
pub use credit::{Credit, Credits, Turn};
pub use datagrams::{SecretOf, capability_secret, session_config};
pub use descriptors::raise_descriptors;
pub use drive_session::ways::{self, BadTransport, Transport, Way, Ways};
pub use drive_session::{Answer, Answers, Asker, Connecting, DriveSession, Home, NEXT_RAIL, paced};
pub use error::{Mismatch, PinText, Result, TransportError};
pub use hello::challenge;
pub use limits::Limits;
pub use managers::{BadManagers, MANAGERS_MAX, Managers};
pub use receiver::Receiver;
pub use seldom::Seldom;
pub use sender::{FilePiece, Sender};
pub use shared_session::{Asking, SHARED_PAYLOAD_BYTES_MAX, SharedSession, SmallAnswer, SmallPayload};
pub use slots::{Bounds, ConnectionSlot, ConnectionSlots, GivesWay, Holder, Origin, Work};
pub use stream::{Capacity, Draining, LinkBounds, Listener, Stream};
pub use tls::{OwnKey, Secured, ServerIdentity};
