//! The question: a rate, for what, and through how many losses.

use braid_layout::{DriveId, Segment, Shape};
use braid_schedule::Direction;

use crate::parts::ClientParts;

/// Greatest rate that makes sense, in bytes per second: 10 TB/s.
pub const RATE_MAX: u64 = 10_000_000_000_000;
/// Most streams of one promise.
pub const STREAMS_MAX: u32 = 1 << 20;
/// Most losses that a scheme survives.
pub const SURVIVE_MAX: u8 = braid_layout::scheme::PARITY_MAX;
/// Longest period, in nanoseconds: a minute.
pub const PERIOD_NS_MAX: u64 = 60_000_000_000;
/// Shortest period, in nanoseconds: a millisecond.
pub const PERIOD_NS_MIN: u64 = 1_000_000;

/// A rate that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The rate and its conditions.
    pub terms: Terms,
    /// The files that are read or written.
    pub about: About,
    /// The client; `None`: any, and nothing is booked for it.
    pub client: Option<ClientParts>,
    /// Beginning, in milliseconds of the manager's time.
    pub now_ms: u64,
    /// Duration in milliseconds; `None`: until it is given back, and then no capacity is booked.
    pub duration_ms: Option<u64>,
}

/// A rate and its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Direction of the streams.
    pub direction: Direction,
    /// Bytes of files per second, of all streams together.
    pub bytes_per_second: u64,
    /// Streams that go on at the same time, each with the same part of the rate.
    pub streams: u32,
    /// Time over which the rate holds, in nanoseconds.
    pub period_ns: u64,
    /// Drives of the cluster that may be out at the same time while the promise holds.
    pub survive: u8,
    /// Pattern of reads and writes.
    pub access: Access,
}

/// Pattern in which files are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// From the beginning to the end. The client reads ahead and writes behind: it moves whole stripes, the
    /// units of a stripe at the same time, one stripe after another.
    Whole,
    /// Pieces of this many bytes, each beginning with some unit: reads, or writes to what is there already.
    /// Writes that leave a stripe's other bytes as they are cost deltas, or reads first.
    Pieces {
        /// Bytes of a piece. Pieces of a stripe or more are as [`Access::Whole`].
        bytes: u64,
    },
}

/// The files that a rate is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Files that exist. The rate may be asked of any of their segments, wholly.
    Segments(Vec<Segment>),
    /// New files, for which drives are chosen.
    New(Wish),
    /// New files on drives that were chosen already.
    Planned(NewFiles),
}

/// Shape and drives of new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFiles {
    /// Scheme, columns and unit.
    pub shape: Shape,
    /// The drive of each column.
    pub drives: Vec<DriveId>,
}

/// Shape of new files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Exactly this shape.
    Shape(Shape),
    /// The shape that suits the rate, with at least this many losses survived by its files.
    Free {
        /// Parity or copies beside the data, at least; `survive` if that is more.
        m: u8,
    },
}

/// Reason that a question makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nothing is asked for.
    #[error("a rate of 0 needs no promise: ask for at least a byte per second")]
    NoRate,
    /// The rate is absurd.
    #[error("{0} bytes per second is more than a promise can be: at most {RATE_MAX}")]
    Rate(u64),
    /// No stream, or too many.
    #[error("{0} streams: a promise has 1 to {STREAMS_MAX}")]
    Streams(u32),
    /// The period is absurd.
    #[error("a period of {0} ns: it is from a millisecond to a minute")]
    Period(u64),
    /// No scheme survives as much.
    #[error("no scheme survives {0} losses at the same time: at most {SURVIVE_MAX}")]
    Survive(u8),
    /// Pieces without bytes.
    #[error("pieces have at least a byte")]
    Piece,
    /// There is no segment to read or write.
    #[error("the promise is about no file")]
    NoFile,
    /// New files are given more or fewer drives than they have columns.
    #[error("{0} drives are not one for each column")]
    Drives(usize),
    /// A price is asked for without drives.
    #[error("new files have no price until their drives are chosen")]
    NotPlanned,
}

impl Ask {
    /// Checks that the question makes sense.
    pub fn check(&self) -> Result<(), AskError> {
        self.terms.check()?;
        match &self.about {
            About::Segments(segments) if segments.is_empty() => Err(AskError::NoFile),
            About::New(Wish::Free { m }) if *m > SURVIVE_MAX => Err(AskError::Survive(*m)),
            About::Planned(NewFiles { shape, drives }) if drives.len() != usize::from(shape.width()) => {
                Err(AskError::Drives(drives.len()))
            }
            About::Segments(_) | About::New(_) | About::Planned(_) => Ok(()),
        }
    }
}

impl Terms {
    fn check(&self) -> Result<(), AskError> {
        match self {
            Terms { bytes_per_second: 0, .. } => Err(AskError::NoRate),
            Terms { bytes_per_second, .. } if *bytes_per_second > RATE_MAX => {
                Err(AskError::Rate(*bytes_per_second))
            }
            Terms { streams, .. } if *streams == 0 || *streams > STREAMS_MAX => {
                Err(AskError::Streams(*streams))
            }
            Terms { period_ns, .. } if !(PERIOD_NS_MIN..=PERIOD_NS_MAX).contains(period_ns) => {
                Err(AskError::Period(*period_ns))
            }
            Terms { survive, .. } if *survive > SURVIVE_MAX => Err(AskError::Survive(*survive)),
            Terms { access: Access::Pieces { bytes: 0 }, .. } => Err(AskError::Piece),
            _ => Ok(()),
        }
    }

    /// Bytes per second of one stream, at least 1.
    pub fn stream_bytes_per_second(&self) -> u64 {
        (self.bytes_per_second / u64::from(self.streams)).max(1)
    }
}
