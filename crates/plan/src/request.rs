//! Requests on a segment, the state of its columns, and how a large request is split into plan sets of
//! bounded size.

use std::ops::Range;

use braid_layout::{Column, ColumnMask, DriveId, Generation, Layout, Segment, Shape, Stripe, Version};

/// Maximum number of instructions and arithmetic steps in one plan set.
pub const INSTRUCTIONS_MAX: usize = 8192;
/// Maximum number of scratch bytes in one plan set, unless it covers one stripe only: a stripe is never
/// split.
pub const SCRATCH_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of instructions and steps that one column can cost in one stripe: three reads, a write, and
/// its share of the steps.
const STEPS_PER_COLUMN: usize = 8;

/// Request that a plan set was compiled for. Ranges are bytes of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads bytes into the caller's buffer.
    Read {
        /// Bytes of the file; the caller has cut them at the file's size.
        range: Range<u64>,
        /// Offset in the caller's buffer of the first byte read.
        buffer: u64,
    },
    /// Writes bytes from the caller's buffer, or zeros.
    Write(Write),
    /// Rebuilds joining columns from the others.
    Rebuild {
        /// Stripes to rebuild, by index.
        stripes: Range<u64>,
        /// Columns to rebuild, each of them joining.
        columns: ColumnMask,
    },
    /// Runs a method. The drives answer for what they hold; the rest is read into the caller's buffer.
    Run {
        /// Bytes of the file; the caller has cut them at the file's size.
        range: Range<u64>,
        /// Offset in the caller's buffer of the first byte.
        buffer: u64,
    },
    /// Reads every unit, computes the parity again and compares.
    Check {
        /// Stripes to check, by index.
        stripes: Range<u64>,
    },
}

/// Write of a range of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// New content of the range.
    pub body: Body,
    /// The file's size before the write. Bytes at or past it are zeros on every column, so they need not be
    /// read. A writer can know it only under an exclusive lease.
    pub size: u64,
    /// Units that begin at or past this byte of the file were never written: their version is zero. It is
    /// known only for a file created in this session (failed writes count as writes, and a truncation never
    /// lowers it). Otherwise it is `u64::MAX`, and units past the size are written as holes.
    pub reach: u64,
    /// Version of the first stripe's write; each further stripe has the next `n`.
    pub stamp: Version,
}

/// The bytes to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// In the caller's buffer.
    Buffer {
        /// Offset of the first byte in the buffer.
        offset: u64,
    },
    /// Zeros, kept as holes: a punch, or a truncation's tail.
    Zeros,
}

/// The state of a segment's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Generation in which this state holds.
    pub g: Generation,
    /// Columns that every write must reach, joining ones too.
    pub set: ColumnMask,
    /// Columns of the set that take writes and answer no reads.
    pub joining: ColumnMask,
    /// Columns of the set that do not answer, as far as the client knows. Reads avoid them. Writes still
    /// include them: only the manager takes a column out of the set, and until it does no write can be
    /// acknowledged.
    pub away: ColumnMask,
}

/// The segment that a request is about, and the state of its columns.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Segment of the file's layout.
    pub segment: &'a Segment,
    /// Index of the segment in the file's layout.
    pub index: usize,
    /// The state of its columns.
    pub health: Health,
}

/// Reason that a request cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too few columns can be read (or, for a write, are ready). Bring one of the drives back, then try
    /// again.
    #[error("stripe {} needs {needed} readable columns and has {ready}; missing: {}", stripe.0, list(missing))]
    TooFewReady {
        /// The first stripe that cannot be done.
        stripe: Stripe,
        /// Number of columns that the stripe needs.
        needed: u8,
        /// Number of columns that are available.
        ready: u8,
        /// Columns that are not available, with their drives.
        missing: Vec<(Column, DriveId)>,
    },
    /// The range is empty, ends before it starts, or is not in the segment: the caller splits with [`parts`].
    #[error("bytes {}..{} are not in the segment's {}..{}", range.start, range.end, segment.start, segment.end)]
    Range {
        /// Bytes of the file that were asked for.
        range: Range<u64>,
        /// Bytes of the file that the segment holds.
        segment: Range<u64>,
    },
    /// No stripes, or stripes past the segment's last.
    #[error("stripes {}..{} are not in the segment's 0..{count}", stripes.start, stripes.end)]
    Stripes {
        /// Stripes that were asked for.
        stripes: Range<u64>,
        /// Number of stripes of the segment.
        count: u64,
    },
    /// More stripes than one set may hold: the caller splits with [`parts`] or [`stripes_max`].
    #[error("{stripes} stripes are too many for one plan set: at most {max}")]
    TooLarge {
        /// Number of stripes asked for.
        stripes: u64,
        /// Maximum number of stripes of one set.
        max: u64,
    },
    /// A column to rebuild is not a joining column of the set.
    #[error("column {column} is not joining: only a joining column is rebuilt")]
    NotJoining {
        /// Column that was to be rebuilt.
        column: Column,
    },
    /// The column of a unit write is out of the set: the stripe needs an exclusive lease and a stripe write.
    #[error(
        "column {column} is out: its unit can only be written with the whole stripe, under an exclusive lease"
    )]
    ColumnOut {
        /// Column that cannot take a unit write: the written one or, for a joining column, the written or a
        /// parity one.
        column: Column,
    },
    /// The state names columns that the segment does not have, or joining or away columns outside the set.
    #[error("set {set}, joining {joining} and away {away} do not fit a segment of {width} columns")]
    Health {
        /// Columns that are named as the set.
        set: ColumnMask,
        /// Columns that are named as joining.
        joining: ColumnMask,
        /// Columns that are named as away.
        away: ColumnMask,
        /// Number of columns of the segment.
        width: u8,
    },
}

/// A part of a request that one plan set carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Index of the part's segment in the layout.
    pub segment: usize,
    /// Bytes of the file that the part covers.
    pub range: Range<u64>,
    /// Distance in bytes from the beginning of the whole range: add this to the caller's offset in the
    /// buffer.
    pub skip: u64,
    /// Number of stripes that the part covers, and so of the stamps that a write of it takes.
    pub stripes: u64,
}

impl Health {
    /// State in which all columns of `shape` are ready.
    pub fn whole(shape: &Shape, g: Generation) -> Health {
        Health { g, set: ColumnMask::all(shape.width()), joining: ColumnMask::EMPTY, away: ColumnMask::EMPTY }
    }

    /// Columns that may be read: of the set, not joining, not away.
    pub fn readable(&self) -> ColumnMask {
        self.ready().minus(self.away)
    }

    /// Columns of the set that are not joining.
    pub fn ready(&self) -> ColumnMask {
        self.set.minus(self.joining)
    }
}

/// Maximum number of stripes that one plan set may cover.
pub fn stripes_max(shape: &Shape) -> u64 {
    let width = u64::from(shape.width());
    let steps = u64::try_from(INSTRUCTIONS_MAX / STEPS_PER_COLUMN).expect("the bound is small") / width;
    // The most that any strategy needs: `k` old units, and for each parity unit the unit itself, one lost
    // unit that is made, and one joining unit that is put together.
    let pieces = u64::from(shape.k()) + 3 * u64::from(shape.m());
    let scratch = SCRATCH_BYTES_MAX / (pieces * u64::from(shape.unit_bytes()));
    steps.min(scratch).max(1)
}

/// Splits bytes of a file into parts of one segment and at most [`stripes_max`] whole stripes each, in file
/// order.
pub fn parts(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = Part> + '_ {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let (index, segment) = layout.segment_at(at);
        let first = segment.stripe_at(at);
        let last = Stripe(first.0.saturating_add(stripes_max(&segment.shape) - 1));
        let end = segment.stripe_range(last).end.min(range.end);
        let stripes = segment.stripe_at(end - 1).0 - first.0 + 1;
        let part = Part { segment: index, range: at..end, skip: at - range.start, stripes };
        at = end;
        Some(part)
    })
}

fn list(missing: &[(Column, DriveId)]) -> String {
    let names: Vec<String> =
        missing.iter().map(|(column, drive)| format!("column {column} on drive {}", drive.short())).collect();
    names.join(", ")
}
