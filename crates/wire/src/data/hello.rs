//! The first frame of every connection.

use braid_layout::{ClusterId, DriveId};
use sha2::{Digest, Sha256};

use crate::capability::Binding;
use crate::codec::Wire;
use crate::frame::REPLY_BIT;

/// The kind number of [`Hello`], the first frame of every connection, sent by the side that accepts.
pub const HELLO: u16 = 0x0001;

/// The kind number of the frame that a peer sends in place of a hello when it takes no connection now. The
/// frame's body is a [`Refusal`](crate::Refusal) with [`Reason::Busy`](crate::Reason::Busy) or
/// [`Reason::Closing`](crate::Reason::Closing).
pub const HELLO_REFUSED: u16 = HELLO | REPLY_BIT;

choice! {
    /// The role of the peer that accepts connections.
    pub enum PeerRole {
        /// A drive, which stores objects.
        Drive = 1,
        /// The manager of a cluster.
        Manager = 2,
    }
}

record! {
    /// The first frame of every connection, request number 0, no payload. Its layout and the frame header's
    /// never change, in any version, so that any two builds can find out what they have in common.
    pub struct Hello {
        /// The role of the peer that sends the hello.
        role: PeerRole,
        /// Lowest wire version that the peer speaks.
        version_min: u16,
        /// Highest wire version that the peer speaks.
        version_max: u16,
        /// The cluster that the peer belongs to.
        cluster: ClusterId,
        /// The drive's identity; zero for the manager.
        drive: DriveId,
        /// Optional abilities, one bit each: bit 0, [`Hello::TLS`]. Bits that the asker does not know are
        /// ignored.
        features: u64,
        /// The challenge of this connection: random, never used again.
        challenge: [u8; 16],
    }
}

impl Hello {
    /// The feature of a drive that answers in TLS, on a connection on which the asker begins with it.
    pub const TLS: u64 = 1;

    /// The binding of this connection, to which its MACs and proofs are tied. It covers the whole hello, so
    /// that an attacker on the way cannot alter the versions, features or role in it (a downgrade) without
    /// notice.
    pub fn binding(&self) -> Binding {
        let digest = Sha256::new().chain_update(b"braid hello\0").chain_update(self.to_bytes()).finalize();
        Binding(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// The binding of a TLS session on this connection. `exported` is the session's channel binding (RFC
    /// 9266, `tls-exporter`): the two sides of one session have the same, and those of any other have
    /// another. So a proof made for a session holds in no other, however the bytes were relayed.
    pub fn binding_in(&self, exported: &[u8; 32]) -> Binding {
        let digest = Sha256::new()
            .chain_update(b"braid hello in tls\0")
            .chain_update(self.to_bytes())
            .chain_update(exported)
            .finalize();
        Binding(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
    }
}
