//! Fence, survey, verdict, and joining (PROTOCOL sections 6 and 7).

use braid_layout::{Column, ColumnMask, DriveId, Version};

use super::object::Address;
use crate::refusal::Refusal;

/// Maximum number of units that one [`Versions`] may ask for.
pub const VERSIONS_UNITS_MAX: usize = 4096;

/// Maximum number of units that a drive looks at for one [`Versions`] that lists units. The asker goes on
/// from where the drive stopped.
pub const VERSIONS_LOOKED_AT_MAX: usize = 65_536;

/// Maximum number of units that one [`FenceReply`] lists.
pub const FENCE_UNITS_MAX: usize = 65_536;

record! {
    /// The state of a unit, version by version (PROTOCOL section 2).
    pub struct UnitState {
        /// Index of the unit.
        unit: u64,
        /// The settled version; zero: the unit was never written.
        settled: Version,
        /// The settled version's cover, one per data column, if the column is parity in this stripe; else
        /// empty.
        cover: Vec<Version>,
        /// For each version in `cover`: one past the last byte of that data unit that is not in a hole.
        ends: Vec<u32>,
        /// The pending stamp, if any.
        pending: Option<PendingState>,
        /// Versions whose deltas are owed, oldest first.
        owed: Vec<Version>,
        /// The column and tip of each delta chain.
        tips: Vec<Tip>,
        /// True if the unit's record is damaged: the drive has lost the unit, which is more than being out
        /// of date (PROTOCOL R9).
        damaged: bool,
        /// One past the last byte of the unit that is not in a hole, in the settled content or in newer
        /// versions, whichever is further; for parity, also the furthest of its data units' ends; 0: the
        /// unit has only holes. The value cannot be relied on if the unit is damaged.
        end: u32,
    }
}

impl PendingState {
    /// A pending stripe write with this stamp that touches no column.
    pub fn of(stamp: Version) -> PendingState {
        PendingState { stamp, columns: ColumnMask::EMPTY, cover: Vec::new(), ends: Vec::new() }
    }
}

impl UnitState {
    /// The state of a unit that was never written.
    pub fn unwritten(unit: u64) -> UnitState {
        UnitState {
            unit,
            settled: Version::ZERO,
            cover: Vec::new(),
            ends: Vec::new(),
            pending: None,
            owed: Vec::new(),
            tips: Vec::new(),
            damaged: false,
            end: 0,
        }
    }
}

choice! {
    /// The units that a [`Versions`] is about.
    pub enum Listing {
        /// The units named in the request.
        Named = 0,
        /// Units that have a version, even if they are all hole, and damaged units: from `from` up.
        Written = 1,
        /// Units that hold bytes, and damaged units: from `from` up.
        Bytes = 2,
        /// Units that hold bytes, and damaged units: from `from` down.
        BytesDown = 3,
        /// The units named in the request, of which the asker was sent bytes that do not match their
        /// checksums. The drive soon verifies what it stores of these units, and has damaged ones repaired.
        Doubted = 4,
    }
}

record! {
    /// A pending stripe write.
    pub struct PendingState {
        /// Stamp of the write.
        stamp: Version,
        /// The columns that the write touches.
        columns: ColumnMask,
        /// The cover of the write, for parity columns only; else empty.
        cover: Vec<Version>,
        /// For each version in `cover`: one past the last byte of that data unit that is not in a hole.
        ends: Vec<u32>,
    }
}

record! {
    /// The tip of a delta chain in a parity unit.
    pub struct Tip {
        /// The data column that the deltas come from.
        column: Column,
        /// The newest version that the chain includes.
        version: Version,
        /// One past the last byte of the data unit in that version that is not in a hole.
        end: u32,
    }
}

record! {
    /// The point at which the chain of a lost data column is cut off.
    pub struct CutOff {
        /// The data column that is lost.
        column: Column,
        /// The newest version that is kept.
        version: Version,
    }
}

record! {
    /// The decision about the stamps of one stripe: roll forward or roll back. Stamps that are not pending
    /// on the column are ignored, so that a repeated or late verdict touches nothing newer.
    pub struct UnitVerdict {
        /// Index of the unit.
        unit: u64,
        /// Stamps to roll forward.
        forward: Vec<Version>,
        /// Stamps to roll back.
        back: Vec<Version>,
        /// The cut-off of each lost data column: versions above it are cut off.
        cutoff: Vec<CutOff>,
    }
}

record! {
    /// Asks for the state of units. The request names the units, or has the drive list those in its index.
    pub struct Versions {
        /// The object that has the units.
        at: Address,
        /// The units that the request is about.
        list: Listing,
        /// Indices of the named units, ascending, at most [`VERSIONS_UNITS_MAX`]; empty for a listing.
        units: Vec<u64>,
        /// The first unit of a listing; else 0.
        from: u64,
        /// Maximum number of units of a listing, at least 1; else 0. The drive may list fewer, even none:
        /// `next` says whether there are more.
        limit: u32,
    }
}

impl Versions {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.units.len() > VERSIONS_UNITS_MAX {
            let asked = self.units.len();
            return Err(Refusal::malformed(format!(
                "{asked} units are too many for one request: at most {VERSIONS_UNITS_MAX} are allowed"
            )));
        }
        let is_limited = match self.list {
            Listing::Named | Listing::Doubted => (self.from, self.limit) == (0, 0),
            Listing::Written | Listing::Bytes | Listing::BytesDown => self.limit != 0,
        };
        if !is_limited {
            return Err(Refusal::malformed(
                "a listing needs a limit of at least 1, and any other request must have none",
            ));
        }
        if !matches!(self.list, Listing::Named | Listing::Doubted) && !self.units.is_empty() {
            return Err(Refusal::malformed("units are named or listed, not both"));
        }
        Ok(())
    }
}

record! {
    /// The answer to [`Versions`]. It may have only the first of the units named (at least one, if any was)
    /// or listed. The asker asks again for the rest.
    pub struct VersionsReply {
        /// The state of each unit, in the order asked.
        units: Vec<UnitState>,
        /// For a listing: the unit from which to go on; absent: there are no more.
        next: Option<u64>,
    }
}

record! {
    /// Stores the capability's g, set and joining; from now on the drive refuses everything older. Answered
    /// when durable and drained (PROTOCOL R7). A fence repeated with the same g changes nothing and lists
    /// again.
    pub struct Fence {
        /// The object to fence.
        at: Address,
        /// The manager's term.
        term: u64,
        /// Index from which unsettled units are listed: 0 first, then one past the last one listed while
        /// there are more.
        units_from: u64,
        /// The present drives of the columns, by column: one may have been replaced. Empty: unchanged. If
        /// the drive is at another column than the object is, the request is refused with Damaged.
        drives: Vec<DriveId>,
        /// Bytes that the drive keeps free for the object until they are written: the object's new reserve.
        /// It is raised only as far as there is room.
        reserve_bytes: u64,
    }
}

record! {
    /// The answer to [`Fence`].
    pub struct FenceReply {
        /// Indices of the units with unsettled versions, ascending, at most [`FENCE_UNITS_MAX`].
        unsettled: Vec<u64>,
        /// True if there are more such units above the last.
        more: bool,
        /// Ready parity columns that have not taken in time what this column owes them. If this column
        /// itself is among them, its owed deltas cannot be read. Empty: drained. Otherwise nothing is
        /// listed: fence again, or take these columns out.
        owed_to: ColumnMask,
    }
}

record! {
    /// Rolls pending stamps forward and back. Answered when durable.
    pub struct Verdict {
        /// The object that has the units.
        at: Address,
        /// The manager's term.
        term: u64,
        /// The decisions, one per unit; a long verdict is sent in several messages.
        units: Vec<UnitVerdict>,
    }
}

record! {
    /// Reports that these units of a joining column hold all that the ready columns hold, in the
    /// capability's g. Until the next fence the drive lets them be read. Answered when durable.
    pub struct Ready {
        /// The object of the joining column.
        at: Address,
        /// Index of the first unit.
        unit: u64,
        /// Number of consecutive units, at least 1.
        units: u32,
    }
}

impl Ready {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        let more = self.units.checked_sub(1).map(u64::from);
        match more.and_then(|more| self.unit.checked_add(more)) {
            Some(_) => Ok(()),
            None => Err(Refusal::malformed(format!(
                "a range of {} units from unit {} on is empty or too long",
                self.units, self.unit
            ))),
        }
    }
}
