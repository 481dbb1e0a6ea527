//! Keys that turn, and rights that end before they expire.

use braid_layout::ClientId;

use super::NamePlace;

choice! {
    /// The action of a [`KeyRotate`].
    pub enum KeyTurning {
        /// Turn the working keys of a volume's partitions on all drives.
        Volume = 1,
        /// Turn a drive's master key, and with it the keys of its partitions and their working keys.
        Drive = 2,
        /// Let a drive join anew with a join token, once: its key is not the one on record.
        Rejoin = 3,
        /// End a drive's key, as the drive was stolen, and turn the working keys of all volumes at once: it
        /// has no part in the cluster until it joins anew.
        Revoke = 4,
    }
}

record! {
    /// Turns keys. A turn goes on by itself until all drives have heard of it; [`Keys`] tells which have not.
    pub struct KeyRotate {
        /// The keys that are turned.
        of: KeyTurning,
        /// The name of the volume, or the name or identity of the drive.
        name: String,
        /// True if capabilities under the keys before end now; else they last until they expire, and a
        /// volume's keys that were turned less than that long ago are not turned again
        /// ([`NotAllowed`](crate::Reason::NotAllowed)).
        at_once: bool,
    }
}

record! {
    /// The turn of a drive's master key.
    pub struct KeyTurn {
        /// Number of the master key on record; from 1.
        number: u32,
        /// Random number from which the key of the next number follows
        /// ([`Key::turned`](crate::capability::Key::turned)); absent: the key stays.
        next: Option<[u8; 32]>,
        /// True if capabilities under the key before that on record are no longer valid.
        at_once: bool,
    }
}

impl KeyTurn {
    /// The state of a drive whose key was never turned.
    pub const FIRST: KeyTurn = KeyTurn { number: 1, next: None, at_once: false };
}

record! {
    /// Lists the states of keys, and the clients.
    pub struct Keys {}
}

record! {
    /// The keys of a volume.
    pub struct VolumeKeysRow {
        /// The volume's name.
        name: String,
        /// Epoch of its newer working keys.
        epoch: u32,
        /// Manager time of the last turn, in milliseconds; 0: there was none.
        turned_ms: u64,
        /// Names of the drives that have not heard of the turn.
        behind: Vec<String>,
    }
}

record! {
    /// The key of a drive.
    pub struct DriveKeyRow {
        /// The drive's name.
        name: String,
        /// Number of the master key on record.
        number: u32,
        /// Manager time of the last turn, in milliseconds; 0: there was none.
        turned_ms: u64,
        /// True if the drive has not heard yet that its key is to be turned.
        is_turning: bool,
        /// True if the drive may join anew.
        may_rejoin: bool,
    }
}

record! {
    /// A client that was heard lately.
    pub struct ClientRow {
        /// The client's number.
        client: ClientId,
        /// Network address that it was last heard from.
        address: String,
        /// Milliseconds since it was last heard.
        silent_ms: u64,
        /// Number of files that it has open for writing.
        writes: u64,
    }
}

record! {
    /// The answer to [`Keys`].
    pub struct KeysReply {
        /// The volumes, in the order of their names.
        volumes: Vec<VolumeKeysRow>,
        /// The drives that were not replaced.
        drives: Vec<DriveKeyRow>,
        /// The clients, at most [`CLIENTS_TOLD_MAX`].
        clients: Vec<ClientRow>,
    }
}

/// Maximum number of clients in a [`KeysReply`].
pub const CLIENTS_TOLD_MAX: usize = 1000;

record! {
    /// Ends all capabilities for a file now, and the leases on it. Who still may opens it again.
    pub struct RevokeFile {
        /// The file whose capabilities end.
        at: NamePlace,
    }
}

record! {
    /// Ends a client's session now: its leases, its locks, and its capabilities at all drives. Its later
    /// requests are refused with [`NotAllowed`](crate::Reason::NotAllowed).
    pub struct RevokeClient {
        /// The client that is shut out.
        client: ClientId,
    }
}
