//! What a drive must know of a request to judge it: the [`Rules`] of its kind, and the [`Target`] of the one
//! request. The rows of [`requests`](super::requests) are made of them.

use braid_layout::Version;

use super::Address;
use crate::capability::Rights;
use crate::checksum::block_count;
use crate::refusal::{Reason, Refusal};

/// What holds for every request of a kind. [`Rules::needing`] is the strictest: a row says where it is
/// milder.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The rights that the capability must carry, all of them.
    pub rights: Rights,
    /// What the capability must be for.
    pub subject: Subject,
    /// Whether it may be asked of a well-known object.
    pub well_known: WellKnown,
    /// Which generations of the capability fit the object's.
    pub generation: GenerationRule,
    /// Whether it may be asked of an object that is not there.
    pub absent: Absent,
    /// Whether it waits for a fence, on a drive that was marked out while it was away.
    pub fence: FenceRule,
    /// Whether it waits for the drive's heartbeat lease.
    pub lease: LeaseRule,
    /// What it may be refused with, besides [`REFUSALS_OF_ALL`](super::REFUSALS_OF_ALL).
    pub refusals: &'static [Reason],
}

/// What a capability must be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The object that the request names.
    Object,
    /// The partition of that object, as a whole.
    Partition,
}

/// Whether a request may be asked of a well-known object: of a partition's own, or the drive's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WellKnown {
    /// No: they hold no bytes.
    Refused,
    /// Of a partition's own object, under MANAGE of the drive; not of the drive's own object.
    Managed,
    /// Yes.
    Served,
}

/// Which generations of the capability fit the object's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationRule {
    /// The same only.
    Same,
    /// The same or a higher one.
    NotBelow,
    /// Any.
    Any,
}

/// Whether a request may be asked of an object that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// No: [`Reason::NoObject`].
    Refused,
    /// Yes.
    Served,
}

/// Whether a request waits for a fence of its object, on a drive that was marked out. Until the fence, the
/// object may lack what was acknowledged without this drive (PROTOCOL R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceRule {
    /// Served once the object is fenced.
    Needed,
    /// Served at once.
    NotNeeded,
}

/// Whether a request is served by a drive without a heartbeat lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRule {
    /// Never.
    Needed,
    /// Only to the manager, under MANAGE. Before it gives a lease to a drive that returned, it fences the
    /// objects whose columns went out meanwhile. Such a capability never leaves the manager, so nothing
    /// depends on its expiry.
    NotForManager,
}

impl Rules {
    /// The strictest rules under these rights, with no refusals of its own.
    pub const fn needing(rights: Rights) -> Rules {
        Rules {
            rights,
            subject: Subject::Object,
            well_known: WellKnown::Refused,
            generation: GenerationRule::Same,
            absent: Absent::Refused,
            fence: FenceRule::Needed,
            lease: LeaseRule::Needed,
            refusals: &[],
        }
    }
}

/// What one request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The object; a well-known one if it is about a partition or the drive.
    pub at: Address,
    /// Its bytes.
    pub bytes: Bytes<'a>,
    /// Whose version it brings.
    pub stamp: Stamp,
    /// The manager's term, in requests that only the manager makes.
    pub term: Option<u64>,
}

/// The bytes of an object that a request is about; `from` and `to` are bytes in the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// No bytes, or all of them by right.
    Any,
    /// Part of a unit, to be read.
    Read {
        /// The unit.
        unit: u64,
        /// First byte.
        from: u32,
        /// One past the last byte.
        to: u32,
    },
    /// Part of a unit; its bytes are the payload, unless it is a hole.
    Written {
        /// The unit.
        unit: u64,
        /// First byte.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// There is no payload.
        hole: bool,
        /// CRC32C of each block of the payload.
        crcs: &'a [u32],
    },
    /// Whole units.
    Units(&'a [u64]),
    /// Whole units that follow each other.
    Run {
        /// The first.
        unit: u64,
        /// How many: at least 1.
        units: u32,
    },
}

/// Whose version a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// It brings none, or one that drives made.
    None,
    /// One that the asker gives, as the holder of its lease.
    Own(Version),
    /// One that is settled on other columns, and is installed on a joining one.
    Installed(Version),
}

impl Bytes<'_> {
    /// How many bytes of payload come with the request.
    pub fn payload_bytes(&self) -> u32 {
        match *self {
            Bytes::Written { from, to, hole: false, .. } => to.saturating_sub(from),
            Bytes::Written { hole: true, .. }
            | Bytes::Any
            | Bytes::Read { .. }
            | Bytes::Units(_)
            | Bytes::Run { .. } => 0,
        }
    }

    /// Refuses an empty range, and a list of checksums that is not one for each block of the payload. Returns
    /// the payload's length.
    pub(crate) fn check_payload(&self) -> Result<u32, Refusal> {
        if let Bytes::Read { from, to, .. } | Bytes::Written { from, to, .. } = *self
            && from >= to
        {
            return Err(Refusal::malformed(format!("bytes {from}..{to} are none")));
        }
        if let Bytes::Written { from, to, hole, crcs, .. } = *self {
            let blocks = if hole { 0 } else { block_count(from, to) };
            if crcs.len() != blocks {
                return Err(Refusal::malformed(format!("{} checksums for {blocks} blocks", crcs.len())));
            }
        }
        Ok(self.payload_bytes())
    }
}
