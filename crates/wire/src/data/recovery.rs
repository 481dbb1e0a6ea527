//! Fence, survey, verdict, and joining (PROTOCOL sections 6 and 7).

use braid_layout::{Column, ColumnMask, DriveId, Version};

use super::object::Address;
use crate::refusal::Refusal;

/// Most units that one [`Versions`] may ask for.
pub const VERSIONS_UNITS_MAX: usize = 4096;

/// Most units that a drive looks at for one [`Versions`] that lists; the asker goes on from where it stopped.
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
        /// The pending stamp, if any.
        pending: Option<PendingState>,
        /// Owed versions, oldest first.
        owed: Vec<Version>,
        /// Per delta chain: its column and tip.
        tips: Vec<Tip>,
        /// The unit's record is damaged: it is lost here, not old (PROTOCOL R9).
        damaged: bool,
        /// One past its last byte that is no hole, in the settled content or in what stands above it,
        /// whichever is more; 0: it has only holes. Of a damaged unit it is not to be relied on.
        end: u32,
    }
}

choice! {
    /// Which units a [`Versions`] is about.
    pub enum Listing {
        /// Those that it names.
        Named = 0,
        /// All that have a version, were they holes only, or are damaged: from `from` up.
        Written = 1,
        /// Those that hold bytes or are damaged: from `from` up.
        Bytes = 2,
        /// Those that hold bytes or are damaged: from `from` down.
        BytesDown = 3,
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
    }
}

record! {
    /// The tip of a delta chain.
    pub struct Tip {
        /// The data column.
        column: Column,
        /// The newest version counted.
        version: Version,
    }
}

record! {
    /// A stripe's stamps, by name, to roll forward and back. Stamps that the column does not have pending are
    /// ignored, so that a repeated or late verdict touches nothing newer.
    pub struct UnitVerdict {
        /// The unit's index.
        unit: u64,
        /// Stamps that stay.
        forward: Vec<Version>,
        /// Stamps that go.
        back: Vec<Version>,
        /// Per lost data column: versions above this are cut off.
        cutoff: Vec<Tip>,
    }
}

record! {
    /// Asks what units hold: units that it names, or those that there are, which the drive lists from its
    /// index.
    pub struct Versions {
        /// The object.
        at: Address,
        /// Which units.
        list: Listing,
        /// Their indices, ascending, at most [`VERSIONS_UNITS_MAX`]; none if they are listed.
        units: Vec<u64>,
        /// The first unit of a listing; else 0.
        from: u64,
        /// At most this many are listed, from 1; else 0. The drive may list fewer, and none: `next` says
        /// whether there are more.
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
            Listing::Named => (self.from, self.limit) == (0, 0),
            Listing::Written | Listing::Bytes | Listing::BytesDown => self.limit != 0,
        };
        if !is_limited {
            return Err(Refusal::malformed(
                "a listing has a limit of at least 1, and only a listing has one",
            ));
        }
        if self.list != Listing::Named && !self.units.is_empty() {
            return Err(Refusal::malformed("units are named or listed, not both"));
        }
        Ok(())
    }
}

record! {
    /// Answer of [`Versions`]: the first so many of the units named, at least one if any was; or of those
    /// that there are. The asker asks again for the rest.
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
    }
}

record! {
    /// Answer of [`Fence`].
    pub struct FenceReply {
        /// Units with unsettled versions, ascending, at most [`FENCE_UNITS_MAX`].
        unsettled: Vec<u64>,
        /// There are others above the last.
        more: bool,
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
    /// The manager lists a caught-up column as ready, from the capability's g on.
    pub struct Ready {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
    }
}
