//! Answers to requests, and the conversion of the store's errors to refusals.

use braid_layout::Generation;
use braid_store::{Error, Piece};
use braid_wire::data::{Done, DriveReply};
use braid_wire::{Reason, Refusal};

use crate::connections::buffers::{Buffer, Share};
use crate::device::rail::Turns;

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The object's generation; zero where there is no object.
    pub(crate) g: Generation,
    /// The reply, refusals included.
    pub(crate) reply: DriveReply,
    /// The bytes of a read.
    pub(crate) payload: Payload,
    /// The turns of the payload's pieces at the rail, of which the first has come; `None`: it needs none.
    pub(crate) turns: Option<Turns>,
}

/// The bytes that an answer carries besides its body.
#[derive(Debug)]
pub(crate) enum Payload {
    Empty,
    /// Bytes that were read into memory.
    Memory(Buffer),
    /// Bytes in the page cache, to be sent from there.
    Files {
        pieces: Vec<Piece>,
        _share: Share,
    },
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
        Answer { g, reply: reply.into(), payload: Payload::Empty, turns: None }
    }

    pub(crate) fn done(g: Generation) -> Answer {
        Answer::new(g, Done {})
    }

    pub(crate) fn refused(g: Generation, refusal: Refusal) -> Answer {
        Answer::new(g, refusal)
    }

    /// The reply, or the store's error as a refusal.
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

/// The refusal for a store's error.
pub(crate) fn refusal(error: &Error) -> Refusal {
    let reason = match error {
        Error::NoPartition(_) => Reason::NoPartition,
        Error::KeyEpoch(..) => Reason::StaleKey,
        Error::PartitionExists(_) | Error::Exists(..) => Reason::Exists,
        Error::PartitionNotEmpty(..) => Reason::PartitionNotEmpty,
        Error::NoObject(..) => Reason::NoObject,
        Error::StaleGeneration { .. } | Error::Withdrawn => Reason::StaleGeneration,
        Error::Gone { .. } | Error::Chain { .. } => Reason::Gone,
        Error::InDoubt { .. } | Error::Backlog(_) | Error::Operations(_) | Error::Runs(_) => Reason::Busy,
        Error::Unsettled { .. } => Reason::Unsettled,
        Error::Stills(_) => Reason::TooManySnapshots,
        Error::Malformed(_) => Reason::Malformed,
        Error::Checksum { .. } => Reason::PayloadChecksum,
        Error::Quota { .. } | Error::Pieces { .. } => Reason::Quota,
        Error::Full { .. } => Reason::Full,
        Error::Damaged { .. } => Reason::Damaged,
        Error::ReadOnly => Reason::ReadOnly,
        Error::Held => Reason::NotServing,
        Error::Closed => Reason::Closing,
        _ => Reason::Medium,
    };
    Refusal::new(reason, error.to_string())
}
