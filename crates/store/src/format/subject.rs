//! What a record is about: what is hit if it is damaged. Later records repeat it.
//!
//! | offset | size | name |
//! |---:|---:|---|
//! | 0 | 8 | partition |
//! | 8 | 8 | object |
//! | 16 | 8 | unit |
//! | 24 | 1 | kind; 0: there was no record |

use braid_layout::{ObjectId, PartitionId};

use super::page::Key;
use super::record::{Kind, Record};
use super::{DecodeError, FieldReader, put};

/// Bytes of a subject.
pub const BYTES: usize = 25;
/// The most records that one bad page of 4096 bytes can destroy: each header takes at least one log block.
pub const TOGETHER_MAX: usize = 8;

/// What a record is about. The default: there is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subject {
    /// Its kind; `None`: there is no such record, or the next record's number does not follow it.
    pub kind: Option<Kind>,
    /// Its partition.
    pub partition: PartitionId,
    /// Its object.
    pub object: ObjectId,
    /// Its unit.
    pub unit: u64,
}

impl Subject {
    /// The key that it concerns.
    pub(crate) fn key(&self) -> Key {
        match self.kind {
            Some(Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove) => {
                Key::At(self.partition, None)
            }
            _ => Key::At(self.partition, Some(self.object)),
        }
    }

    pub(super) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        put(&mut bytes, 0..8, self.partition.0.to_le_bytes());
        put(&mut bytes, 8..16, self.object.0.to_le_bytes());
        put(&mut bytes, 16..24, self.unit.to_le_bytes());
        put(&mut bytes, 24..25, [self.kind.map_or(0, Kind::number)]);
        bytes
    }

    /// Decodes the subject at the start of `bytes`.
    pub(super) fn at(bytes: &[u8]) -> Result<Subject, DecodeError> {
        let view = FieldReader(bytes);
        Ok(Subject {
            kind: match view.u8(24..25) {
                0 => None,
                kind => Some(Kind::from_number(kind).ok_or(DecodeError::Malformed("unknown prior kind"))?),
            },
            partition: PartitionId(view.u64(0..8)),
            object: ObjectId(view.u64(8..16)),
            unit: view.u64(16..24),
        })
    }
}

impl Record {
    /// The subject of this record.
    pub fn subject(&self) -> Subject {
        Subject { kind: Some(self.kind), partition: self.partition, object: self.object, unit: self.unit }
    }
}
