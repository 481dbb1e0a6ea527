//! The store's public face.
use std::ops::Range;
use std::path::Path;

use braid_layout::{ClusterId, DriveId, ObjectId, PartitionId};

use crate::error::Error;
use crate::index::{Chain, ObjectUsage, PartitionState};
use crate::mutation::{Attributes, Mutation, Outcome};
use crate::queue::{Rejected, Reply};
use crate::recover::Recovery;
use crate::view::{View, Want};

/// Who a store is: written when it is formatted, never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The drive it is the disk of.
    pub drive: DriveId,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// A segment is sealed when it has passed this many bytes. Default 128 MiB, at most a sixteenth of the capacity.
    pub segment_bytes: u64,
    /// Bytes the store may use on its disk; `None`: what the file system has.
    pub capacity: Option<u64>,
    /// Whether a commit is synced to the medium. `false` is for tests and benches: a power cut then loses writes.
    pub sync: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: 128 << 20, capacity: None, sync: true }
    }
}

/// The store's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// Bytes the store may use: `Options::capacity`, else what it uses plus what the file system has free.
    pub capacity: u64,
    /// Bytes of all its files.
    pub used: u64,
    /// Bytes of payload that some unit still refers to.
    pub live: u64,
    /// `used - live`: headers, padding, and bytes that were overwritten or removed.
    pub dead: u64,
    /// Segments.
    pub segments: u64,
    /// Objects.
    pub objects: u64,
    /// Partitions.
    pub partitions: u64,
}

/// An open store. Clones share it; it is closed by [`Store::close`] or when the last clone is dropped.
#[derive(Clone)]
pub struct Store {}

impl Store {
    /// Make a store in `dir`, which is made too if it is missing. Refuses a directory that holds anything:
    /// [`Error::NotEmpty`].
    pub fn format(dir: &Path, identity: Identity, options: &Options) -> Result<(), Error> {
        let _ = (dir, identity, options);
        Err(Error::Closed)
    }

    /// Open the store in `dir`, replaying its log. `expect` guards against a drive directory of another cluster.
    pub fn open(dir: &Path, expect: Option<Identity>, options: Options) -> Result<(Store, Recovery), Error> {
        let _ = (dir, expect, options);
        Err(Error::Closed)
    }

    /// Who this store is.
    pub fn identity(&self) -> Identity {
        Identity { cluster: ClusterId(0), drive: DriveId(0) }
    }

    /// The store's figures.
    pub fn stat(&self) -> Result<Stat, Error> {
        Err(Error::Closed)
    }

    /// Queue `mutation`; `reply` is called from the committer's thread once it is durable, or refused. Blocks while the
    /// queue is full. `reply` must be quick and must not wait for the store. After [`Store::close`] it is called with
    /// [`Error::Closed`].
    pub fn submit(&self, mutation: Mutation, reply: Reply) {
        let _ = mutation;
        reply(Err(Error::Closed));
    }

    /// Like [`Store::submit`], but hands both back instead of blocking: for async callers.
    pub fn try_submit(&self, mutation: Mutation, reply: Reply) -> Result<(), Rejected> {
        Err(Rejected { mutation, reply })
    }

    /// Submit and wait for the answer.
    pub fn commit(&self, mutation: Mutation) -> Result<Outcome, Error> {
        let _ = mutation;
        Err(Error::Closed)
    }

    /// Look up `range` of a unit; the bytes themselves are read through the view. An object or unit that was never
    /// written reads as one hole at version zero. The range may pass the unit's end only up to its size.
    pub fn read(
        &self,
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
        range: Range<u32>,
        want: Want,
    ) -> Result<View, Error> {
        let _ = (partition, object, unit, range, want);
        Err(Error::Closed)
    }

    /// An object's attributes.
    pub fn object(&self, partition: PartitionId, object: ObjectId) -> Result<Attributes, Error> {
        let _ = (partition, object);
        Err(Error::Closed)
    }

    /// What an object holds.
    pub fn usage(&self, partition: PartitionId, object: ObjectId) -> Result<ObjectUsage, Error> {
        let _ = (partition, object);
        Err(Error::Closed)
    }

    /// Up to `limit` objects of a partition in order, those after `after`.
    pub fn objects(
        &self,
        partition: PartitionId,
        after: Option<ObjectId>,
        limit: usize,
    ) -> Result<Vec<ObjectId>, Error> {
        let _ = (partition, after, limit);
        Err(Error::Closed)
    }

    /// All partitions in order.
    pub fn partitions(&self) -> Vec<PartitionState> {
        Vec::new()
    }

    /// One partition.
    pub fn partition(&self, partition: PartitionId) -> Result<PartitionState, Error> {
        Err(Error::NoPartition(partition))
    }

    /// The version chain of each unit of `units` that was ever written (PROTOCOL section 3, Versions), in order.
    pub fn versions(
        &self,
        partition: PartitionId,
        object: ObjectId,
        units: Range<u64>,
    ) -> Result<Vec<Chain>, Error> {
        let _ = (partition, object, units);
        Err(Error::Closed)
    }

    /// The units with a pending version, in order.
    pub fn unsettled(&self, partition: PartitionId, object: ObjectId) -> Result<Vec<u64>, Error> {
        let _ = (partition, object);
        Err(Error::Closed)
    }

    /// Read all of a unit's stored bytes again and check them against their checksums.
    pub fn verify_unit(&self, partition: PartitionId, object: ObjectId, unit: u64) -> Result<(), Error> {
        let _ = (partition, object, unit);
        Err(Error::Closed)
    }

    /// Commit what is queued, mark the log as cleanly closed and stop the committer. Clones of the store can still
    /// read. Later mutations are answered [`Error::Closed`].
    pub fn close(&self) -> Result<(), Error> {
        Err(Error::Closed)
    }
}
