//! The subject of a record: the key and the unit that are hit if the record is damaged. Later records repeat
//! it.

use braid_layout::{ObjectId, PartitionId};

use super::field::{fields, stored};
use super::page::Key;
use super::record::{Kind, Record};

/// Bytes of a subject.
pub const BYTES: usize = 25;
/// The most records that one bad page of 4096 bytes can destroy: each header takes at least one log block.
pub const TOGETHER_MAX: usize = 8;

fields! {
    FIELDS of Subject:
    .partition "partition" 0..8,
    .object "object" 8..16,
    .unit "unit" 16..24,
    .kind "kind" 24..25,
}

stored! {
    // No record: 0.
    Option<Kind> as u8: |kind| kind.map_or(0, Kind::number), |number| match number {
        0 => Some(None),
        _ => Kind::from_number(number).map(Some),
    };
}

/// The subject of a record: its kind, key and unit. The default: there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subject {
    /// The record's kind; `None`: there is no such record, or the next record's number does not follow it.
    pub kind: Option<Kind>,
    pub partition: PartitionId,
    pub object: ObjectId,
    pub unit: u64,
}

impl Subject {
    /// The key that the record concerns.
    pub(crate) fn key(&self) -> Key {
        match self.kind {
            Some(Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove) => {
                Key::At(self.partition, None)
            }
            _ => Key::At(self.partition, Some(self.object)),
        }
    }
}

impl Record {
    /// The subject of this record.
    pub fn subject(&self) -> Subject {
        Subject { kind: Some(self.kind), partition: self.partition, object: self.object, unit: self.unit }
    }
}
