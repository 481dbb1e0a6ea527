//! The facts that a drive needs to judge a request: the [`Rules`] of its kind, and the [`Target`] of the
//! one request. The rows of [`requests`](super::requests) consist of them.

use braid_layout::Version;

use super::Address;
use crate::capability::Rights;
use crate::checksum::block_count;
use crate::refusal::{Reason, Refusal};

/// The rules for every request of a kind. [`Rules::needing`] is the strictest; a row states where its rules
/// are milder.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The rights that the capability must carry, all of them.
    pub rights: Rights,
    /// The scope that the capability must have.
    pub subject: Subject,
    /// The rule for requests to a well-known object.
    pub well_known: WellKnown,
    /// The generations of the capability that fit the object's generation.
    pub generation: GenerationRule,
    /// The rule for requests to an object that does not exist.
    pub absent: Absent,
    /// The rule for a drive that was marked out while it was away: whether the request waits for a fence.
    pub fence: FenceRule,
    /// The rule for a drive without a heartbeat lease.
    pub lease: LeaseRule,
    /// Reasons for which the request may be refused, besides [`REFUSALS_OF_ALL`](super::REFUSALS_OF_ALL).
    pub refusals: &'static [Reason],
}

/// The scope that a capability must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The object that the request names.
    Object,
    /// The partition of that object, as a whole.
    Partition,
}

/// The rule for requests to a well-known object, which stands for a partition or the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WellKnown {
    /// Refused: well-known objects hold no bytes.
    Refused,
    /// Served for a partition's own object, under MANAGE of the drive; refused for the drive's own object.
    Managed,
    /// Served for all well-known objects.
    Served,
}

/// The rule for the generation of the capability, compared with the object's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationRule {
    /// The generation must be the same.
    Same,
    /// The generation must be the same or higher.
    NotBelow,
    /// Any generation fits.
    Any,
}

/// The rule for requests to an object that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// Refused with [`Reason::NoObject`].
    Refused,
    /// Served without an object.
    Served,
}

/// The rule for requests to an object that is not fenced yet, on a drive that was marked out. Until the
/// fence, the object may lack writes that were acknowledged without this drive (PROTOCOL R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceRule {
    /// Served once the object is fenced.
    Needed,
    /// Served at once, without a fence.
    NotNeeded,
}

/// The rule for requests to a drive without a heartbeat lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRule {
    /// Never served without a lease.
    Needed,
    /// Served without a lease to the manager only, under MANAGE. Before the manager gives a lease to a
    /// drive that returned, it fences the objects whose columns went out meanwhile. But the drive refuses
    /// with [`Reason::NotServing`] what would be stored before the manager has compared the end of its log
    /// with what it knows of it. Such a capability never leaves the manager, so nothing depends on its
    /// expiry.
    NotForManager,
}

impl Rules {
    /// The strictest rules under these rights, with no refusals of their own.
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

/// The target of one request: the object, bytes and version that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The object; a well-known one if the request is about a partition or the drive.
    pub at: Address,
    /// The bytes of the object.
    pub bytes: Bytes<'a>,
    /// The version that the request carries.
    pub stamp: Stamp,
    /// The manager's term, in requests that only the manager makes.
    pub term: Option<u64>,
}

/// The bytes of an object that a request is about. `from` and `to` are counted from the start of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// No bytes, or all bytes because the request's right covers them.
    Any,
    /// A part of a unit that is read.
    Read {
        /// Index of the unit.
        unit: u64,
        /// First byte to read.
        from: u32,
        /// One past the last byte.
        to: u32,
    },
    /// A part of a unit that is written. Its bytes are the payload, unless it is a hole.
    Written {
        /// Index of the unit.
        unit: u64,
        /// First byte to write.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// True for a hole, which has no payload.
        hole: bool,
        /// CRC32C of each block of the payload.
        crcs: &'a [u32],
    },
    /// Whole units, by index.
    Units(&'a [u64]),
    /// Consecutive whole units.
    Run {
        /// Index of the first unit.
        unit: u64,
        /// Number of units, at least 1.
        units: u32,
    },
}

/// The version that a request carries, by who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// No version, or one that drives made.
    None,
    /// A stamp that the asker gives, as the holder of its lease.
    Own(Version),
    /// A version that is settled on other columns, and is installed on a joining one.
    Installed(Version),
}

impl Bytes<'_> {
    /// Number of payload bytes that come with the request.
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

    /// Refuses an empty range, and a list of checksums that does not have one for each block of the
    /// payload. Returns the payload's length.
    pub(crate) fn check_payload(&self) -> Result<u32, Refusal> {
        if let Bytes::Read { from, to, .. } | Bytes::Written { from, to, .. } = *self
            && from >= to
        {
            return Err(Refusal::malformed(format!("the range {from}..{to} is empty")));
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
