//! What a segment's record says at a glance.

use braid_layout::{Column, ColumnMask, DriveId};

use super::SegmentRecord;

impl SegmentRecord {
    /// Columns that can be read: in the set and not joining.
    pub fn ready(&self) -> ColumnMask {
        self.set.minus(self.joining)
    }

    /// The drive of a column.
    pub fn drive(&self, column: Column) -> DriveId {
        self.drives.get(column.index()).copied().unwrap_or_default()
    }

    /// All columns.
    pub fn all(&self) -> ColumnMask {
        ColumnMask::all(self.shape.k + self.shape.m)
    }

    /// The columns whose drives are chosen by `which`.
    pub fn columns(&self, which: impl Fn(DriveId) -> bool) -> ColumnMask {
        (0u8..).map(Column).zip(&self.drives).filter(|(_, drive)| which(**drive)).map(|(c, _)| c).collect()
    }
}
