//! Frames between two peers over TCP, and the sessions made of them.
//!
//! What it guarantees
//! - Every wait is bounded by [`Limits`]: connecting, a started frame that stalls or drips, a reply that does not come.
//! - A frame that is garbage, oversized, damaged or cut short gives its error; after it the stream is of no more use,
//!   and says so ([`TransportError::Poisoned`]) instead of going on out of step. So does one that was dropped in mid-frame.
//! - A peer that has proved nothing gets little ([`Places`], [`STRANGER_BODY_BYTES_MAX`]): a place that the next may take, seconds to
//!   live, small bodies. The server gives it another place when it has ([`Receiver::admit`]).
//! - Payloads are not copied on their way: sent by one vectored write from where they lie, received where they shall lie
//!   (but for the few hundred bytes that came along with the header).
//! - A session ([`DriveSession`], [`ControlSession`]) is with the peer it was asked for: role, cluster and drive are
//!   checked, and proofs of the secrets are exchanged, before it is handed out.
//!
//! [`process`] says which process a peer is, and whether one on this machine is gone.
//!
//! What it refuses to know: what requests mean, which of them may be sent again, and who may do what.
//!
//! [`Stream`] is the one type that knows TCP: other ways to carry frames (TLS, datagrams) take its place.

mod bodies;
mod control_peer;
mod control_session;
mod descriptors;
mod drive_session;
mod error;
mod hello;
mod limits;
mod places;
pub mod process;
mod receiver;
mod sender;
mod stream;

pub use bodies::STRANGER_BODY_BYTES_MAX;
pub use control_peer::{Asked, ControlPeer};
pub use control_session::{ControlSession, Credentials};
pub use descriptors::raise_descriptors;
pub use drive_session::{Answer, Answers, Asker, DriveSession};
pub use error::{Mismatch, Result, TransportError};
pub use hello::challenge;
pub use limits::Limits;
pub use places::{Bounds, GivesWay, Holder, Origin, Place, Places, Work};
pub use receiver::Receiver;
pub use sender::{FilePiece, Sender};
pub use stream::{Capacity, Listener, Stream};
