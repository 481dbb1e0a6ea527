//! What a file's record says at a glance.

use braid_layout::{Column, FileId};
use braid_wire::control::EntryKind;

use super::{ComponentPlace, InodeRecord};

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

    /// Where its components are placed, drive by drive.
    pub fn places(&self, file: FileId) -> impl Iterator<Item = ComponentPlace> + '_ {
        self.segments.iter().zip(0u32..).flat_map(move |(segment, index)| {
            segment.drives.iter().zip(0u8..).map(move |(&drive, column)| ComponentPlace {
                drive,
                file,
                segment: index,
                column: Column(column),
            })
        })
    }
}
