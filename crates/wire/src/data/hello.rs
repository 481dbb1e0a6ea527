//! The first frame of every connection.

use braid_layout::{ClusterId, DriveId};
use sha2::{Digest, Sha256};

use crate::capability::Binding;
use crate::codec::Wire;
use crate::frame::REPLY_BIT;

/// The kind number of [`Hello`], the first frame of every connection, sent by the side that accepts.
pub const HELLO: u16 = 0x0001;

/// The kind number of the frame that comes in place of a hello when the peer takes no connection now; its
/// body is a [`Refusal`](crate::Refusal) with [`Reason::Busy`](crate::Reason::Busy) or
/// [`Reason::Closing`](crate::Reason::Closing).
pub const HELLO_REFUSED: u16 = HELLO | REPLY_BIT;

choice! {
    /// Who accepts connections here.
    pub enum PeerRole {
        /// A drive.
        Drive = 1,
        /// The manager.
        Manager = 2,
    }
}

record! {
    /// The first frame of every connection, request number 0, no payload. Its layout and the frame header's
    /// never change, in any version, so that any two builds can find out what they have in common.
    pub struct Hello {
        /// Who is here.
        role: PeerRole,
        /// Lowest wire version spoken.
        version_min: u16,
        /// Highest wire version spoken.
        version_max: u16,
        /// The cluster.
        cluster: ClusterId,
        /// The drive; zero for the manager.
        drive: DriveId,
        /// Optional abilities, one bit each; none is defined yet. Bits that the asker does not know are
        /// ignored.
        features: u64,
        /// This connection's challenge: random, never used again.
        challenge: [u8; 16],
    }
}

impl Hello {
    /// What the MACs and proofs of this connection are bound to. It covers the whole hello, so that nobody on
    /// the way can alter the versions, features or role in it (a downgrade) without notice.
    pub fn binding(&self) -> Binding {
        let digest = Sha256::new().chain_update(b"braid hello\0").chain_update(self.to_bytes()).finalize();
        Binding(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
    }
}
