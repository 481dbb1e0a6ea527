//! Scrub: a drive verifies by itself, in the background, the checksums of all the data that it stores.

use braid_layout::{FileId, ObjectId, PartitionId};

use crate::refusal::Refusal;

/// Maximum number of damaged units, and of lost ranges, that one [`ScrubReply`] lists; the others are only
/// counted.
pub const SCRUB_DAMAGED_MAX: usize = 256;

choice! {
    /// The action that a [`Scrub`] asks for.
    pub enum ScrubAct {
        /// Only report the state of the scrub.
        Look = 0,
        /// Start a pass over all data, from the beginning. If a requested pass runs already, only its rate
        /// changes.
        Start = 1,
        /// Report the state, and from now on count objects that are lost as a whole as absent: the manager
        /// has looked, and all objects that it has on the drive exist.
        Forget = 2,
    }
}

choice! {
    /// The phase of a drive's scrub.
    pub enum ScrubPhase {
        /// No pass runs.
        Idle = 0,
        /// A pass runs.
        Running = 1,
        /// A pass waits, because the drive holds no heartbeat lease.
        Paused = 2,
    }
}

record! {
    /// Asks the drive's own object to start a scrub, or for the state of its scrub.
    pub struct Scrub {
        /// The action asked for.
        act: ScrubAct,
        /// To start a pass: the bytes a second that it may read, at least 1. To forget: the random number
        /// of the process that the manager has looked at. Else 0.
        rate: u64,
        /// The manager's term.
        term: u64,
    }
}

impl Scrub {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if (self.rate == 0) != (self.act == ScrubAct::Look) {
            return Err(Refusal::malformed(
                "a request to start a scrub needs a rate of at least 1 byte a second, and any other must have none",
            ));
        }
        Ok(())
    }
}

record! {
    /// The state of a drive's scrub.
    pub struct ScrubState {
        /// The phase of the scrub.
        phase: ScrubPhase,
        /// True if the pass was requested; false if the drive began it by itself.
        asked: bool,
        /// Bytes a second that the pass may read. For a pass that the drive begins by itself, this is the
        /// drive's own setting; 0: the drive begins no passes by itself.
        rate: u64,
        /// Bytes verified in this pass; while no pass runs, in the last one.
        bytes: u64,
        /// Units verified in the same pass.
        units: u64,
        /// Approximate number of bytes that the pass has to verify in all.
        of_bytes: u64,
        /// Number of known damaged units: found in this pass, or in the last one and not verified again
        /// since.
        damaged: u64,
        /// Number of lost ranges of keys, and of partitions whose values are lost, that the drive knows of
        /// now.
        lost: u64,
        /// Number of files in use that were missing from the drive's directory, replaced or cut short when
        /// a pass last looked.
        wrong_files: u64,
        /// Manager time when the pass began, in milliseconds; 0: there was no pass yet.
        began_ms: u64,
        /// Manager time when the last whole pass ended, in milliseconds; 0: there was none yet.
        ended_ms: u64,
        /// Number of whole passes so far.
        passes: u64,
        /// Number of units that were damaged and were rebuilt from the file's other columns.
        repaired: u64,
        /// Number of objects that are lost as a whole, as far as a pass or a request has met them.
        objects: u64,
    }
}

record! {
    /// A unit whose stored bytes do not match their checksums, or cannot be read.
    pub struct DamagedUnit {
        /// The partition of the damaged unit.
        partition: PartitionId,
        /// The object that has the unit.
        object: ObjectId,
        /// Index of the unit; absent: the object as a whole is damaged.
        unit: Option<u64>,
        /// The file that the object belongs to, by its column map; 0: not known.
        file: FileId,
        /// A description of the damage, for people.
        what: String,
    }
}

record! {
    /// A range of keys that the drive has lost, because the data that described them is damaged. In the order
    /// of keys, a partition's values come before its objects.
    pub struct LostKeys {
        /// The first partition in the range.
        partition: PartitionId,
        /// The first lost object in that partition; absent: the partition's values are lost too.
        object: Option<ObjectId>,
        /// The partition in which the range ends; absent: the range has no end.
        to_partition: Option<PartitionId>,
        /// The first object in that partition that is not lost; absent: the partition's values are not lost
        /// either.
        to_object: Option<ObjectId>,
        /// A description of the damage, for people.
        what: String,
    }
}

record! {
    /// A file that the drive's store uses, but that its next start would find missing or altered.
    pub struct WrongFile {
        /// The file's name in the store's directory.
        name: String,
        /// A description of the fault, for people.
        what: String,
    }
}

record! {
    /// The state of a drive's scrub, and what it found.
    pub struct ScrubReply {
        /// The state of the scrub.
        state: ScrubState,
        /// The first damaged units, at most [`SCRUB_DAMAGED_MAX`], by partition, object and unit.
        damaged: Vec<DamagedUnit>,
        /// The first keys that are lost, at most [`SCRUB_DAMAGED_MAX`]: partitions' values, then ranges.
        lost: Vec<LostKeys>,
        /// The first files that are missing or altered, at most [`SCRUB_DAMAGED_MAX`].
        files: Vec<WrongFile>,
    }
}

impl Default for ScrubState {
    /// The state of a drive that has not reported yet.
    fn default() -> ScrubState {
        ScrubState {
            phase: ScrubPhase::Idle,
            asked: false,
            rate: 0,
            bytes: 0,
            units: 0,
            of_bytes: 0,
            damaged: 0,
            lost: 0,
            wrong_files: 0,
            began_ms: 0,
            ended_ms: 0,
            passes: 0,
            repaired: 0,
            objects: 0,
        }
    }
}
