//! A segment's record, and the questions that it answers alone.

use braid_layout::{Column, ColumnMask, DriveId, ObjectId, Version};
use braid_wire::control::ShapeSpec;

/// A segment of a file's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRecord {
    /// Number of the segment, which no other segment of the file has now. The segment's objects bear it.
    pub number: u32,
    /// First byte of the file in this segment.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Scheme, `k`, `m` and unit size.
    pub shape: ShapeSpec,
    /// The object that holds each column, on its drive.
    pub object: ObjectId,
    /// The drive of each column.
    pub drives: Vec<DriveId>,
    /// Columns that every write of `g` must reach.
    pub set: ColumnMask,
    /// Columns of the set that are joining.
    pub joining: ColumnMask,
    /// Present if the segment is not in force: it is being filled with the file's bytes, all under this
    /// version, to take the place of the others.
    pub filling: Option<Version>,
}

impl SegmentRecord {
    /// Columns that can be read: in the set and not joining.
    pub fn ready(&self) -> ColumnMask {
        self.set.minus(self.joining)
    }

    /// The drive of a column.
    pub fn drive(&self, column: Column) -> DriveId {
        self.drives.get(column.index()).copied().unwrap_or_default()
    }

    pub fn all(&self) -> ColumnMask {
        ColumnMask::all(self.shape.k + self.shape.m)
    }

    /// The columns for whose drives `which` returns true.
    pub fn columns(&self, which: impl Fn(DriveId) -> bool) -> ColumnMask {
        (0u8..).map(Column).zip(&self.drives).filter(|(_, drive)| which(**drive)).map(|(c, _)| c).collect()
    }
}
