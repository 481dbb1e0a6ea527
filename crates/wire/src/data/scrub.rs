//! Scrub: a drive verifies the checksums of all that it stores, by itself, in the background.

use braid_layout::{FileId, ObjectId, PartitionId};

use crate::refusal::Refusal;

/// Most damaged units, and most lost ranges, that one [`ScrubReply`] lists; it counts the others.
pub const SCRUB_DAMAGED_MAX: usize = 256;

choice! {
    /// What [`Scrub`] asks for.
    pub enum ScrubAct {
        /// Only the state of the scrub.
        Look = 0,
        /// A pass over everything, from the beginning. If a requested pass runs already, only its rate
        /// changes.
        Start = 1,
        /// The state; and what is lost as a whole counts as absent from now on: the manager has looked, and
        /// all that it has on the drive is there.
        Forget = 2,
    }
}

choice! {
    /// What a drive's scrub is doing.
    pub enum ScrubPhase {
        /// No pass runs.
        Idle = 0,
        /// A pass runs.
        Running = 1,
        /// A pass waits: the drive holds no heartbeat lease.
        Paused = 2,
    }
}

record! {
    /// Asks the drive's own object to start a scrub, or for the state of its scrub.
    pub struct Scrub {
        /// What is asked for.
        act: ScrubAct,
        /// To start a pass: the bytes a second that it may read, at least 1. To forget: the random number of
        /// the process that the manager has looked at. Else 0.
        rate: u64,
        /// The manager's term.
        term: u64,
    }
}

impl Scrub {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if (self.rate == 0) != (self.act == ScrubAct::Look) {
            return Err(Refusal::malformed(
                "a rate of at least 1 byte a second is given to start a scrub, and only then",
            ));
        }
        Ok(())
    }
}

record! {
    /// The state of a drive's scrub.
    pub struct ScrubState {
        /// What it is doing.
        phase: ScrubPhase,
        /// The pass was requested; else the drive began it by itself.
        asked: bool,
        /// Bytes a second that the pass may read. For a pass that the drive begins by itself, this is its
        /// setting; 0: it begins none.
        rate: u64,
        /// Bytes verified in this pass; while none runs, in the last one.
        bytes: u64,
        /// Units verified in it.
        units: u64,
        /// About how many bytes the pass has to verify in all.
        of_bytes: u64,
        /// Known damaged units: found in this pass, or in the last one and not verified again since.
        damaged: u64,
        /// Lost ranges of keys, and partitions whose values are lost, that the drive knows of now.
        lost: u64,
        /// Files in use that were missing from the drive's directory, replaced or cut short when a pass last
        /// looked.
        wrong_files: u64,
        /// Manager time of the pass's beginning, in milliseconds; 0: there was none yet.
        began_ms: u64,
        /// Manager time of the last whole pass's end, in milliseconds; 0: there was none yet.
        ended_ms: u64,
        /// Whole passes so far.
        passes: u64,
        /// Units that were damaged and were made anew from the file's other columns.
        repaired: u64,
        /// Objects that are lost as a whole, as far as a pass or a request has met them.
        objects: u64,
    }
}

record! {
    /// A unit whose stored bytes do not match their checksums, or cannot be read.
    pub struct DamagedUnit {
        /// The partition.
        partition: PartitionId,
        /// The object.
        object: ObjectId,
        /// The unit's index; absent: the object as a whole.
        unit: Option<u64>,
        /// The object's file, by its column map; 0: not known.
        file: FileId,
        /// What is wrong, for people.
        what: String,
    }
}

record! {
    /// A range of keys that the drive has lost, because the data that described them is damaged. In the order
    /// of keys, a partition's values come before its objects.
    pub struct LostKeys {
        /// The first partition.
        partition: PartitionId,
        /// Its first object that is lost; absent: its values are lost too.
        object: Option<ObjectId>,
        /// The partition in which the range ends; absent: it has no end.
        to_partition: Option<PartitionId>,
        /// The first object there that is not lost; absent: its values are not lost either.
        to_object: Option<ObjectId>,
        /// What is damaged, for people.
        what: String,
    }
}

record! {
    /// A file that the drive's store uses, but that its next start would find missing or altered.
    pub struct WrongFile {
        /// Its name in the store's directory.
        name: String,
        /// What is wrong, for people.
        what: String,
    }
}

record! {
    /// The state of a drive's scrub, and what it found.
    pub struct ScrubReply {
        /// The state.
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
