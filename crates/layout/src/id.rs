//! Identifiers as newtypes, so that a file's number and an object's cannot be swapped.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty, $format:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

id!(
    /// A cluster's identity: random, chosen when its manager's state is created.
    ClusterId, u128, "{:032x}"
);
id!(
    /// A drive's identity: random, chosen when its store is formatted. A wiped disk gets a new one (PROTOCOL
    /// R9), so a drive with this identity never holds less than it once did.
    DriveId, u128, "{:032x}"
);
id!(
    /// A volume's number, assigned once by the manager and never used again.
    VolumeId, u64, "{}"
);
id!(
    /// A partition on a drive. A volume has the partition of its own number on each of its drives.
    PartitionId, u64, "{}"
);
id!(
    /// A file's number in its cluster, assigned once by the manager and never used again.
    FileId, u64, "{}"
);
id!(
    /// An object in a partition of one drive. All components of one segment of a file have the same object
    /// number, each on a different drive.
    ObjectId, u64, "{}"
);
id!(
    /// A client: a random number that it draws when it begins, the same for its whole life.
    ClientId, u64, "{}"
);
id!(
    /// A holder of a file's lease: a random number that stands for one open handle.
    HolderId, u64, "{}"
);
id!(
    /// A session of advisory locks: a random number that its client draws.
    LockSession, u64, "{}"
);

id!(
    /// A token's number: random, drawn by the client that asks for the token.
    TokenId, u64, "{:016x}"
);

id!(
    /// The number of a reservation of a data rate, assigned once by the manager and never used again.
    ReservationId, u64, "{}"
);

id!(
    /// The number of a client's operation, from 1, rising: one for requests to the manager, another for unit
    /// writes. As a mark it stands for all operations below it.
    OperationNumber, u64, "{}"
);

impl ClientId {
    /// No client, or one that is not known. No client draws this number.
    pub const NONE: ClientId = ClientId(0);
}

impl TokenId {
    /// No token: that of a drive's session, which its key proves. No token has this number.
    pub const NONE: TokenId = TokenId(0);
}

impl HolderId {
    /// No holder, or one that is not known. No handle draws this number.
    pub const NONE: HolderId = HolderId(0);
}

impl ReservationId {
    /// No reservation: best effort.
    pub const NONE: ReservationId = ReservationId(0);
    /// The rate of work that brings drives up to date, which is reserved like any other. No reservation of a
    /// user has this number.
    pub const REBUILD: ReservationId = ReservationId(u64::MAX);
}

impl OperationNumber {
    /// No operation; as a mark: nothing is below it.
    pub const NONE: OperationNumber = OperationNumber(0);
    /// The first operation of a client.
    pub const FIRST: OperationNumber = OperationNumber(1);
    /// As a mark: all operations are below it, as the client is gone.
    pub const ALL: OperationNumber = OperationNumber(u64::MAX);

    /// The number of the next operation.
    #[must_use]
    pub fn next(self) -> OperationNumber {
        self.plus(1)
    }

    /// The number of the operation that comes this many after this one.
    #[must_use]
    pub fn plus(self, count: u64) -> OperationNumber {
        OperationNumber(self.0 + count)
    }
}

impl LockSession {
    /// No session. No client draws this number.
    pub const NONE: LockSession = LockSession(0);

    /// The session that a client begins after this one.
    pub fn next(self) -> LockSession {
        LockSession(self.0.wrapping_add(1).max(1))
    }
}

impl From<VolumeId> for PartitionId {
    fn from(volume: VolumeId) -> Self {
        PartitionId(volume.0)
    }
}

impl DriveId {
    /// The first eight hex digits: enough for users to tell drives apart.
    pub fn short(self) -> String {
        format!("{self}")[..8].to_owned()
    }
}
