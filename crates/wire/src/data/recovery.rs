//! Fence, survey, verdict, and joining (PROTOCOL sections 6 and 7).

use braid_layout::{Column, ColumnMask, DriveId, Version};

use super::object::Address;
use crate::refusal::Refusal;

/// Most units that one [`Versions`] may ask for.
pub const VERSIONS_UNITS_MAX: usize = 4096;

/// Most units that a drive looks at for one [`Versions`] that lists units. The asker goes on from where the
/// drive stopped.
pub const VERSIONS_LOOKED_AT_MAX: usize = 65_536;

/// Most units that one [`FenceReply`] lists.
pub const FENCE_UNITS_MAX: usize = 65_536;

record! {
    /// What a unit holds, version by version (PROTOCOL section 2).
    pub struct UnitState {
        /// The unit's index.
        unit: u64,
        /// The settled version; zero: never written.
        settled: Version,
        /// The settled version's cover, one per data column, if the column is parity in this stripe; else
        /// empty.
        cover: Vec<Version>,
        /// For each of these: one past the last byte of that data unit that is not in a hole.
        ends: Vec<u32>,
        /// The pending stamp, if any.
        pending: Option<PendingState>,
        /// Owed versions, oldest first.
        owed: Vec<Version>,
        /// Per delta chain: its column and tip.
        tips: Vec<Tip>,
        /// The unit's record is damaged: the drive has lost the unit, it is not merely out of date (PROTOCOL
        /// R9).
        damaged: bool,
        /// One past its last byte that is not in a hole, in the settled content or in newer versions,
        /// whichever is further; of parity, also the furthest of its data units' ends; 0: it has only holes.
        /// It cannot be relied on if the unit is damaged.
        end: u32,
    }
}

impl PendingState {
    /// A stripe write that touches nothing.
    pub fn of(stamp: Version) -> PendingState {
        PendingState { stamp, columns: ColumnMask::EMPTY, cover: Vec::new(), ends: Vec::new() }
    }
}

impl UnitState {
    /// Of a unit that was never written.
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
    /// Which units a [`Versions`] is about.
    pub enum Listing {
        /// The units that it names.
        Named = 0,
        /// Units that have a version, even if they are all hole, and damaged units: from `from` up.
        Written = 1,
        /// Units that hold bytes, and damaged units: from `from` up.
        Bytes = 2,
        /// Units that hold bytes, and damaged units: from `from` down.
        BytesDown = 3,
        /// The units that it names, of which the asker was sent bytes that do not match their checksums. The
        /// drive verifies soon what it stores of them, and has what is damaged repaired.
        Doubted = 4,
    }
}

record! {
    /// A pending stripe write.
    pub struct PendingState {
        /// Its stamp.
        stamp: Version,
        /// Columns it touches.
        columns: ColumnMask,
        /// Its cover, parity columns only; else empty.
        cover: Vec<Version>,
        /// For each of these: one past the last byte of that data unit that is not in a hole.
        ends: Vec<u32>,
    }
}

record! {
    /// The tip of a delta chain.
    pub struct Tip {
        /// The data column.
        column: Column,
        /// The newest version counted.
        version: Version,
        /// One past the last byte of the data unit in that version that is not in a hole.
        end: u32,
    }
}

record! {
    /// Where the chain of a lost data column is cut off.
    pub struct CutOff {
        /// The data column.
        column: Column,
        /// The newest version that stays.
        version: Version,
    }
}

record! {
    /// Names the stamps of a stripe that are to be rolled forward or back. Stamps that are not pending on the
    /// column are ignored, so that a repeated or late verdict touches nothing newer.
    pub struct UnitVerdict {
        /// The unit's index.
        unit: u64,
        /// Stamps to roll forward.
        forward: Vec<Version>,
        /// Stamps to roll back.
        back: Vec<Version>,
        /// Per lost data column: versions above this are cut off.
        cutoff: Vec<CutOff>,
    }
}

record! {
    /// Asks what units hold. The request names the units, or has the drive list those in its index.
    pub struct Versions {
        /// The object.
        at: Address,
        /// Which units.
        list: Listing,
        /// Their indices, ascending, at most [`VERSIONS_UNITS_MAX`]; none if they are listed.
        units: Vec<u64>,
        /// The first unit of a listing; else 0.
        from: u64,
        /// Of a listing: at most this many units, at least 1; else 0. The drive may list fewer, even none:
        /// `next` says whether there are more.
        limit: u32,
    }
}

impl Versions {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.units.len() > VERSIONS_UNITS_MAX {
            let asked = self.units.len();
            return Err(Refusal::malformed(format!("{asked} units asked for; at most {VERSIONS_UNITS_MAX}")));
        }
        let is_limited = match self.list {
            Listing::Named | Listing::Doubted => (self.from, self.limit) == (0, 0),
            Listing::Written | Listing::Bytes | Listing::BytesDown => self.limit != 0,
        };
        if !is_limited {
            return Err(Refusal::malformed(
                "a listing has a limit of at least 1, and only a listing has one",
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
        /// One per unit, in the order asked.
        units: Vec<UnitState>,
        /// Of a listing: go on from here; absent: there are no more.
        next: Option<u64>,
    }
}

record! {
    /// Stores the capability's g, set and joining; from now on everything older is refused. Answered when
    /// durable and drained (PROTOCOL R7). Repeated with the same g it changes nothing and lists again.
    pub struct Fence {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// List unsettled units from this index on; 0 first, then one past the last listed while there are
        /// more.
        units_from: u64,
        /// The columns' drives now, by column: one may have been replaced. Empty: as before. If the drive
        /// is at another column than the object is, the answer is Damaged.
        drives: Vec<DriveId>,
    }
}

record! {
    /// The answer to [`Fence`].
    pub struct FenceReply {
        /// Units with unsettled versions, ascending, at most [`FENCE_UNITS_MAX`].
        unsettled: Vec<u64>,
        /// There are more above the last.
        more: bool,
        /// Ready parity columns that have not taken in time what this column owes them; its own: what it owes
        /// cannot be read. Empty: drained. Otherwise nothing is listed: fence again, or take these out.
        owed_to: ColumnMask,
    }
}

record! {
    /// Rolls stamps forward and back. Answered when durable.
    pub struct Verdict {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// One per unit; a long verdict is sent in several messages.
        units: Vec<UnitVerdict>,
    }
}

record! {
    /// A column joins: it takes writes and is brought up to date from the sources.
    pub struct Join {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// Drives of ready columns to read a cut from.
        sources: Vec<DriveId>,
    }
}

record! {
    /// These units of a joining column hold all that the ready columns hold, in the capability's g. Until the
    /// next fence the drive lets them be read. Answered when durable.
    pub struct Ready {
        /// The object.
        at: Address,
        /// The first of them.
        unit: u64,
        /// How many follow each other: at least 1.
        units: u32,
    }
}

impl Ready {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        let more = self.units.checked_sub(1).map(u64::from);
        match more.and_then(|more| self.unit.checked_add(more)) {
            Some(_) => Ok(()),
            None => Err(Refusal::malformed(format!("{} units from {} on", self.units, self.unit))),
        }
    }
}
