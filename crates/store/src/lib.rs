//! One drive's store: objects in partitions, kept in an append-only log of checked records on one disk.
//!
//! The store guarantees:
//! - A [`Mutation`] is answered only when its record is durable; many share one `fdatasync` (group commit). A
//!   refused mutation changed nothing.
//! - Mutations take effect in the order in which they were submitted; a reader sees only durable state.
//! - After a crash at any point [`Store::open`] restores everything that was acknowledged. A torn tail is cut
//!   off. Damage before the tail is reported and confined: the units it may have hit read as
//!   [`Error::Damaged`], never as an older version (PROTOCOL R9).
//! - Bytes carry the CRC32C of each 4 KiB block from the writer to the reader. A block read in part is
//!   verified here, a whole block by its receiver.
//! - An object's generation is checked inside the commit, in order: a write of another generation changes
//!   nothing.
//!
//! The store does not know sockets, capabilities, clocks, other drives, files, or the meaning of the bytes.
//! Times and the component map are the caller's and are returned unchanged.
//!
//! The format is documented in `docs/format-store.md`; `format` is its code. One thread per store (the
//! committer) writes; any number of threads read.

mod ahead;
#[cfg(any(test, feature = "bench"))]
pub mod bench;
mod checkpoint;
pub mod clean;
mod commit_delay;
mod crc;
pub mod disk;
mod disk_reads;
mod error;
mod files;
mod fold;
mod folded;
pub mod format;
mod header_cache;
mod index;
pub mod inspect;
mod mutation;
mod mutex;
mod opened;
mod options;
mod payload;
mod present;
mod queue;
mod read;
mod recover;
mod segments;
mod step;
mod store;
mod stored_extent;
mod threads;
mod turns;
mod view;

pub use ahead::{Area, Stretch, Wanted};
pub use commit_delay::CommitTotals;
pub use crc::{BLOCK_BYTES, block_count, block_crcs, crc32c};
pub use disk_reads::DiskReads;
pub use error::Error;
pub use format::record::decode_record;
pub use index::attributes::ObjectState;
pub use index::deciding::bounds::{OPERATIONS_MAX, READY_RUNS_MAX, UNIT_ENTRY_BYTES_MAX};
pub use index::list::{Direction, Holes, Listed, Listing};
pub use index::lost::LostKeys;
pub use index::query::Want;
pub use index::{Chain, ChainEntry, ChainTip, ClientOperations, ObjectUsage, PartitionState};
pub use mutation::{
    Attributes, Base, Change, CheckedMutation, Mutation, MutationOutcome, OPAQUE_BYTES_MAX,
    RESERVE_BYTES_MAX, STILLS_MAX, Standing, UnitVerdict, VERDICT_STAMPS_MAX, Write, WriteKind,
};
pub use options::Options;
pub use payload::Body;
pub use present::WrongFile;
pub use queue::{QUEUE_BYTES_MAX, QUEUE_LEN_MAX, Rejected, Reply};
pub use read::OwedDelta;
pub use recover::{Damage, Recovery};
pub use step::{DELTAS_MAX, Delta, OWED_MAX, UnitWrite};
pub use store::{Identity, Stat, Store};
pub use stored_extent::{Piece, ViewExtent};
pub use turns::{OwnWork, Turns};
pub use view::View;
