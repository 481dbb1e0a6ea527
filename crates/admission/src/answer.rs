//! The answer: the plan, or the scarce resource and what would be admitted instead.

use std::fmt;

use braid_layout::{DriveId, Shape};

use crate::ask::NewFiles;
use crate::demand::{Demand, Part};
use crate::ledger::Shortage;
use crate::price::{Booking, DrivePromise};

/// Decision on a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The promise can be made. It is not booked yet.
    Admitted(Box<Admitted>),
    /// It cannot be made.
    Refused(Box<Refused>),
}

/// A promise that can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Shape and drives of new files; `None` for files that exist.
    pub plan: Option<NewFiles>,
    /// Rates for the capability of each drive.
    pub promises: Vec<DrivePromise>,
    /// Demands to book.
    pub booking: Booking,
    /// The client's demand in the worst state, booked or not.
    pub client: Demand,
    /// Bytes that the client needs to keep the rate: two stripes of each stream, parity included, or what two
    /// periods bring.
    pub buffer_bytes: u64,
    /// Most time after its due time at which a request is done.
    pub lateness_ns: u64,
    /// Most time from the beginning of a stream until it goes on at its rate.
    pub start_latency_ns: u64,
    /// The way to the plan.
    pub explanation: Explanation,
}

/// A promise that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The resource that does not suffice.
    pub resource: Resource,
    /// Needed amount of it; in the units of [`Demand`] for parts, in bytes for space.
    pub needed: u64,
    /// Free amount of it.
    pub free: u64,
    /// Conditions that would be admitted, each alone.
    pub offers: Vec<Offer>,
    /// The ways that were tried.
    pub explanation: Explanation,
}

/// A resource that does not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A part of a drive.
    Drive {
        /// The drive with too little.
        drive: DriveId,
        /// The part of it.
        part: Part,
        /// The drive whose loss makes it too little, if it is one.
        lost: Option<DriveId>,
    },
    /// A part of the client.
    Client {
        /// The part with too little.
        part: Part,
    },
    /// Space on a drive.
    Space {
        /// The drive: of those that have too little, the one with the most.
        drive: DriveId,
    },
    /// Drives that serve.
    Drives,
    /// Losses that the files survive.
    Survive {
        /// A drive of the files that is out already.
        missing: Option<DriveId>,
    },
}

/// Something that would be admitted instead, all else as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// This rate, in bytes per second; the greatest, to about a percent.
    Rate(u64),
    /// The rate as asked, from this time on, in milliseconds of the manager's time: enough promises end until
    /// then. Files that are written meanwhile need space, which is not foreseen.
    From(u64),
    /// The rate as asked, with new files of this shape.
    Shape(Shape),
    /// The rate as asked, surviving only so many losses.
    Survive(u8),
}

/// The shapes that were tried, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// Each shape, and what became of it.
    pub candidates: Vec<Candidate>,
    /// Drives that were looked at.
    pub checked: u64,
}

/// A shape that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The shape with its unit.
    pub shape: Shape,
    /// Use of the busiest part of the least loaded drive by this promise alone, as parts of a million of what
    /// may be booked.
    pub busy_per_million: u64,
    /// Result of the trial.
    pub verdict: Verdict,
}

/// Result of trying a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the fewest columns that fit.
    Taken,
    /// Another unit is as good for the drives and better for the client, or starts in time.
    OtherUnit {
        /// That unit, in bytes.
        unit_bytes: u32,
    },
    /// A part does not suffice.
    Short(Shortage),
    /// No set of drives has as much space.
    Space,
    /// There are too few drives.
    Few,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Drive { drive, part, lost: None } => write!(f, "the {part} of drive {}", drive.short()),
            Resource::Drive { drive, part, lost: Some(lost) } => {
                write!(f, "the {part} of drive {} while drive {} is lost", drive.short(), lost.short())
            }
            Resource::Client { part } => write!(f, "the client's {part}"),
            Resource::Space { drive } => write!(f, "the space on drive {}", drive.short()),
            Resource::Drives => f.write_str("the number of drives in service"),
            Resource::Survive { missing: None } => f.write_str("the losses that the files survive"),
            Resource::Survive { missing: Some(drive) } => {
                write!(f, "the losses that the files survive while drive {} is out", drive.short())
            }
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.busy_per_million / 10_000;
        write!(f, "{} in units of {} KiB", self.shape, self.shape.unit_bytes() >> 10)?;
        write!(f, ", {percent} % of a drive: ")?;
        match &self.verdict {
            Verdict::Taken => f.write_str("taken"),
            Verdict::OtherUnit { unit_bytes } => write!(f, "units of {} KiB suit better", unit_bytes >> 10),
            Verdict::Short(shortage) => write!(f, "{shortage}"),
            Verdict::Space => f.write_str("too few drives have space for it"),
            Verdict::Few => f.write_str("too few drives are in service"),
        }
    }
}
