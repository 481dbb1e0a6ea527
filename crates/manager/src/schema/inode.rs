//! What a file's record says at a glance.

use braid_layout::{Column, FileId};
use braid_wire::control::EntryKind;

use super::{ComponentPlace, InodeRecord, SegmentRecord};

impl InodeRecord {
    /// Whether it has a name in a directory, or is a volume's root.
    pub fn is_named(&self) -> bool {
        self.kind == EntryKind::Directory || self.parent != FileId(0)
    }

    /// Whether the manager must not forget it: it has a lease, an open procedure, or no name.
    pub fn needs_attention(&self) -> bool {
        self.held || self.unfenced || !self.is_named()
    }

    /// Whether its lease has no holder and must still be ended. Until then its size is not known. A restore
    /// leaves files in this state.
    pub fn is_left(&self) -> bool {
        self.held && self.client == 0
    }

    /// The segment of this number.
    pub fn segment(&self, number: u32) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.number == number)
    }

    /// The same, to change it.
    pub fn segment_mut(&mut self, number: u32) -> Option<&mut SegmentRecord> {
        self.segments.iter_mut().find(|segment| segment.number == number)
    }

    /// The segments that hold its bytes.
    pub fn in_force(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.segments.iter().filter(|segment| segment.filling.is_none())
    }

    /// The segment that is being filled to take the place of the others.
    pub fn filling(&self) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.filling.is_some())
    }

    /// Where its components are placed, drive by drive.
    pub fn places(&self, file: FileId) -> impl Iterator<Item = ComponentPlace> + '_ {
        self.segments.iter().flat_map(move |segment| {
            segment.drives.iter().zip(0u8..).map(move |(&drive, column)| ComponentPlace {
                drive,
                file,
                segment: segment.number,
                column: Column(column),
            })
        })
    }
}
