//! Scrub: a drive verifies the checksums of all that it stores, by itself, in the background.

use braid_layout::{FileId, ObjectId, PartitionId};

use crate::refusal::Refusal;

/// Most damaged units, and most lost ranges, that one [`ScrubReply`] lists; it counts the others.
pub const SCRUB_DAMAGED_MAX: usize = 256;

choice! {
    /// What [`Scrub`] asks for.
    pub enum ScrubAct {
        /// Only how it stands.
        Look = 0,
        /// A pass over everything, from the beginning. If one that was asked for runs, only its rate changes.
        Start = 1,
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
    /// Asks the drive's own object for a scrub, or how it stands.
    pub struct Scrub {
        /// What is asked for.
        act: ScrubAct,
        /// Bytes a second that the pass may read, at least 1, to start one; else 0.
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
    /// How a drive's scrub stands.
    pub struct ScrubState {
        /// What it is doing.
        phase: ScrubPhase,
        /// The pass was asked for; else it is the drive's own.
        asked: bool,
        /// Bytes a second that the pass may read; of the drive's own: its setting, 0 if it makes none.
        rate: u64,
        /// Bytes verified in this pass; while none runs, in the last one.
        bytes: u64,
        /// Units verified in it.
        units: u64,
        /// About how many bytes the pass has to verify in all.
        of_bytes: u64,
        /// Damaged units that are known of: found in this pass, or in the last and not verified again since.
        damaged: u64,
        /// Lost ranges of keys, and partitions whose values are lost, that the drive knows of now.
        lost: u64,
        /// Files in use that are missing from the drive's directory, were replaced or cut short, when a pass
        /// last looked.
        wrong_files: u64,
        /// Manager time of the pass's beginning, in milliseconds; 0: there was none yet.
        began_ms: u64,
        /// Manager time of the last whole pass's end, in milliseconds; 0: there was none yet.
        ended_ms: u64,
        /// Whole passes so far.
        passes: u64,
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
    /// A range of keys of which the drive knows nothing any more, as what told of them is damaged. A
    /// partition's values come before its objects.
    pub struct LostKeys {
        /// The first partition.
        partition: PartitionId,
        /// Its first object that is lost; absent: its values are too.
        object: Option<ObjectId>,
        /// The partition in which the range ends; absent: it has no end.
        to_partition: Option<PartitionId>,
        /// The first object there that is not lost; absent: not even its values are.
        to_object: Option<ObjectId>,
        /// What is damaged, for people.
        what: String,
    }
}

record! {
    /// A file in use of the drive's store that its next start would not find as it should be.
    pub struct WrongFile {
        /// Its name in the store's directory.
        name: String,
        /// What is wrong, for people.
        what: String,
    }
}

record! {
    /// How a drive's scrub stands, and what it found.
    pub struct ScrubReply {
        /// How it stands.
        state: ScrubState,
        /// The first damaged units, at most [`SCRUB_DAMAGED_MAX`], by partition, object and unit.
        damaged: Vec<DamagedUnit>,
        /// The first that is lost as a whole, at most [`SCRUB_DAMAGED_MAX`]: partitions' values, then ranges.
        lost: Vec<LostKeys>,
        /// The first files that are not as they should be, at most [`SCRUB_DAMAGED_MAX`].
        files: Vec<WrongFile>,
    }
}

impl Default for ScrubState {
    /// Of a drive that was not heard of.
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
        }
    }
}
