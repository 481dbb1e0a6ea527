//! The states of keys that turn, and clients that were shut out.

use braid_wire::control::KeyTurn;
use braid_wire::record;

record! {
    /// The working keys of a volume.
    pub struct VolumeKeysRecord {
        /// Epoch that the keys of its partitions are to have on all drives.
        epoch: u32,
        /// Manager time of the last turn.
        turned_ms: u64,
    }
}
record! {
    /// The master key of a drive. The key itself is in the drive's own record.
    pub struct DriveKeyRecord {
        /// The key's number, its next turn, and whether capabilities under the key before it have ended.
        turn: KeyTurn,
        /// Manager time of the last turn; 0: there was none.
        turned_ms: u64,
        /// True if the drive may join anew, once.
        may_rejoin: bool,
    }
}
record! {
    /// A client that was shut out.
    pub struct ShutOutRecord {
        /// Manager time when it was.
        since_ms: u64,
    }
}

impl DriveKeyRecord {
    /// The state of a drive whose key was never turned; it is not stored.
    pub const FIRST: DriveKeyRecord =
        DriveKeyRecord { turn: KeyTurn::FIRST, turned_ms: 0, may_rejoin: false };
}
