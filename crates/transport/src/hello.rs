//! The first frame of a connection: the peer's identity, and this connection's challenge.

use braid_layout::{ClusterId, DriveId};
use braid_wire::capability::Challenge;
use braid_wire::data::{HELLO, HELLO_REFUSED, Hello, PeerRole};
use braid_wire::frame::{WIRE_VERSION, WIRE_VERSION_OLDEST};
use braid_wire::{FrameError, FrameHeader, Reason, Refusal, Wire};

use crate::error::{Mismatch, Result, TransportError};
use crate::limits::Limits;
use crate::net::Socket;
use crate::receiver::Receiver;

/// A fresh random challenge or nonce.
pub fn challenge() -> Challenge {
    let mut bytes = Challenge::default();
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// The cluster to which a peer must belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The cluster with this identity.
    Cluster(ClusterId),
    /// Any: the peer's certificate is to tell.
    AnyCluster,
}

/// Receives the peer's Hello and checks that the peer is the expected one. Versions are compared first: the
/// newest that the peer speaks stands in the header of its very first frame, and the oldest in its Hello.
/// Nothing is sent to a peer that has none in common with this build.
pub(crate) async fn take(
    receiver: &mut Receiver,
    role: PeerRole,
    wanted: Wanted,
    drive: Option<DriveId>,
    limits: &Limits,
) -> Result<Hello> {
    let address = receiver.address().to_owned();
    let frame = receiver.frame_within(limits.connect, "for its Hello").await.map_err(|error| match error {
        TransportError::Frame { address, source: FrameError::Version(version) } => {
            let mismatch = Mismatch::Version { min: version, max: version };
            TransportError::WrongPeer { address, mismatch }
        }
        error => error,
    });
    let Some((header, body)) = frame? else {
        return Err(TransportError::Closed { address });
    };
    let decode = |source| TransportError::Decode { address: address.clone(), source };
    if header.kind == HELLO_REFUSED {
        let refusal = Refusal::from_bytes(&body).map_err(decode)?;
        if !matches!(refusal.reason, Reason::Busy | Reason::Closing | Reason::NotLeading) {
            let what = format!("refusal ({}) before its Hello", refusal.detail);
            return Err(TransportError::Unexpected { address, what });
        }
        return Err(TransportError::Refusal(refusal));
    }
    if header.kind != HELLO || header.payload_bytes > 0 {
        let what = format!("frame of kind {:#06x} instead of a Hello", header.kind);
        return Err(TransportError::Unexpected { address, what });
    }
    let hello = Hello::from_bytes(&body).map_err(decode)?;
    match mismatch(&hello, role, wanted, drive) {
        Some(mismatch) => Err(TransportError::WrongPeer { address, mismatch }),
        None => Ok(hello),
    }
}

fn mismatch(hello: &Hello, role: PeerRole, wanted: Wanted, drive: Option<DriveId>) -> Option<Mismatch> {
    if hello.version_min > WIRE_VERSION || hello.version_max < WIRE_VERSION_OLDEST {
        return Some(Mismatch::Version { min: hello.version_min, max: hello.version_max });
    }
    if hello.role != role {
        return Some(Mismatch::Role { expected: role, found: hello.role });
    }
    let found = hello.cluster;
    match wanted {
        Wanted::Cluster(expected) if expected != found => return Some(Mismatch::Cluster { expected, found }),
        Wanted::Cluster(_) | Wanted::AnyCluster => {}
    }
    let expected = drive.filter(|&drive| drive != hello.drive)?;
    Some(Mismatch::Drive { expected, found: hello.drive })
}

/// Tells a peer beyond the connection limit that the server is busy. The frame normally fits the new socket's
/// empty send buffer; if not, the peer only sees the close.
pub(crate) fn refuse_busy(stream: &Socket, why: &str) {
    let body = Refusal::new(Reason::Busy, why).to_bytes();
    let mut frame = FrameHeader::new(HELLO_REFUSED, 0, &body, 0).emit().to_vec();
    frame.extend_from_slice(&body);
    stream.send_last(&frame);
}
