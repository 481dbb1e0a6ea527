//! Answers: what a request came to, and how the store's errors are told.

use braid_layout::Generation;
use braid_store::{Error, Piece};
use braid_wire::data::{Done, DriveReply};
use braid_wire::{Reason, Refusal};

use crate::buffers::{Buffer, Share};

/// What a request came to.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The object's generation; zero where there is no object.
    pub(crate) g: Generation,
    /// The reply, refusals included.
    pub(crate) reply: DriveReply,
    /// A read's bytes.
    pub(crate) payload: Payload,
}

/// A read's bytes: what an answer carries besides its body.
#[derive(Debug)]
pub(crate) enum Payload {
    /// None.
    Empty,
    /// Read into memory.
    Memory(Buffer),
    /// In the page cache, to be sent from there.
    Files { pieces: Vec<Piece>, _share: Share },
}

impl Payload {
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Payload::Empty => 0,
            Payload::Memory(buffer) => {
                u32::try_from(buffer.payload().len()).expect("a payload is at most 64 MiB")
            }
            Payload::Files { pieces, .. } => pieces.iter().map(|piece| piece.length).sum(),
        }
    }
}

impl Answer {
    /// A reply without bytes.
    pub(crate) fn new(g: Generation, reply: impl Into<DriveReply>) -> Answer {
        Answer { g, reply: reply.into(), payload: Payload::Empty }
    }

    /// Done.
    pub(crate) fn done(g: Generation) -> Answer {
        Answer::new(g, Done {})
    }

    /// A refusal.
    pub(crate) fn refused(g: Generation, refusal: Refusal) -> Answer {
        Answer::new(g, refusal)
    }

    /// The answer, or the refusal that tells the store's error.
    pub(crate) fn from_store<T>(
        g: Generation,
        result: Result<T, Error>,
        reply: impl FnOnce(T) -> DriveReply,
    ) -> Answer {
        match result {
            Ok(value) => Answer::new(g, reply(value)),
            Err(Error::StaleGeneration { have, asked }) => {
                Answer::refused(have, refusal(&Error::StaleGeneration { have, asked }))
            }
            Err(error) => Answer::refused(g, refusal(&error)),
        }
    }
}

/// How a store's error is told.
pub(crate) fn refusal(error: &Error) -> Refusal {
    let reason = match error {
        Error::NoPartition(_) => Reason::NoPartition,
        Error::PartitionExists(_) | Error::Exists(..) => Reason::Exists,
        Error::PartitionNotEmpty(..) => Reason::PartitionNotEmpty,
        Error::NoObject(..) => Reason::NoObject,
        Error::StaleGeneration { .. } | Error::Withdrawn => Reason::StaleGeneration,
        Error::Gone { .. } | Error::Chain { .. } => Reason::Gone,
        Error::InDoubt { .. } | Error::Backlog(_) | Error::Operations(_) | Error::Runs(_) => Reason::Busy,
        Error::Unsettled { .. } => Reason::Unsettled,
        Error::NoSnapshot { .. } => Reason::NoSnapshot,
        Error::SnapshotUsed { .. } => Reason::SnapshotUsed,
        Error::Snapshots(_) => Reason::TooManySnapshots,
        Error::Malformed(_) => Reason::Malformed,
        Error::Checksum { .. } => Reason::PayloadChecksum,
        Error::Quota { .. } | Error::Pieces { .. } => Reason::Quota,
        Error::Full { .. } => Reason::Full,
        Error::Damaged { .. } => Reason::Damaged,
        Error::ReadOnly => Reason::ReadOnly,
        Error::Closed => Reason::Closing,
        _ => Reason::Medium,
    };
    Refusal::new(reason, error.to_string())
}
