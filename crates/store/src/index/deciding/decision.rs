//! Decisions on changes: the records to append, or why there is none.

use std::ops::Range;

use braid_layout::{Generation, ObjectId, PartitionId};
use bytes::Bytes;

use crate::error::Error;
use crate::format::body;
use crate::format::extent::LogPosition;
use crate::format::record::{Kind, Record, flags};
use crate::index::extent::stored_bytes;
use crate::index::unit::Unit;
use crate::index::{Index, Object, Partition};
use crate::mutation::MutationOutcome;
use crate::payload::Body;

/// The decision on a mutation.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing to write: the state is already as asked, or the request needs no change.
    Answer(MutationOutcome),
    /// Answer once everything before it is durable.
    Barrier,
    /// Append this record. The committer assigns its position in the log. A new object's birth is its
    /// sequence number.
    Append(Box<Record>, Bytes),
    /// Append both records, in one commit.
    AppendBoth(Box<Record>, Box<Record>),
}

/// The refusal of any write to a still that does not install what it showed (PROTOCOL section 11, V3).
pub(crate) const NO_WRITER: Error = Error::Malformed("a still has no writers: its units are installed only");

/// The decision to append `record`, which has no payload.
pub(crate) fn to_append(record: Record) -> Result<Decision, Error> {
    Ok(Decision::Append(Box::new(record), Bytes::new()))
}

/// The partition and object of a write that was sent in generation `g` and ends at byte `to` of the unit.
pub(crate) fn written_to(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
    to: u32,
) -> Result<(&Partition, &Object), Error> {
    let owner = index.find_partition(partition)?;
    let object = index.whole_object(partition, object)?;
    fits(object, g, to)?;
    Ok((owner, object))
}

/// Checks that a write that was sent in generation `g` and ends at byte `to` of its unit fits the object.
pub(crate) fn fits(object: &Object, g: Generation, to: u32) -> Result<(), Error> {
    is_in(object, g)?;
    if to > object.attributes.unit_bytes {
        return Err(Error::Malformed("a write past the unit's end"));
    }
    Ok(())
}

/// Bytes that a write of `range` will free; none if a snapshot sees them.
pub(crate) fn overwritten(object: &Object, unit: &Unit, range: &Range<u32>) -> u64 {
    if object.keeps(unit) { 0 } else { stored_bytes(&unit.tip_extents(), range) }
}

/// Puts `body` into `record`, whose range is set already, and returns the payload.
pub(crate) fn put_body(record: &mut Record, body: &Body) -> Bytes {
    match body {
        Body::Bytes { payload, crcs } => {
            record.crcs.clone_from(crcs);
            record.payload_bytes = record.to - record.from;
            payload.clone()
        }
        Body::Hole => {
            record.flags |= flags::HOLE;
            Bytes::new()
        }
    }
}

/// A record of `kind` for an object, with the fields that all such records have.
pub(crate) fn object_record(kind: Kind, partition: PartitionId, object: ObjectId, have: &Object) -> Record {
    let mut record = Record::new(kind);
    (record.partition, record.object, record.birth) = (partition, object, have.birth);
    record.column = have.attributes.column;
    (record.g, record.set, record.joining) =
        (have.attributes.g, have.attributes.set, have.attributes.joining);
    record
}

/// A record with a partition's values.
pub(crate) fn partition_record(
    kind: Kind,
    partition: PartitionId,
    quota_bytes: Option<u64>,
    key_epoch: u32,
    birth: u64,
) -> Record {
    let mut record = Record::new(kind);
    (record.partition, record.birth) = (partition, birth);
    record.inline = body::partition_body(quota_bytes, key_epoch);
    record
}

/// The error for damage at `place`.
pub(crate) fn damaged(place: LogPosition) -> Error {
    Error::Damaged {
        segment: u64::from(place.segment),
        offset: u64::from(place.block) * crate::format::LOG_BLOCK_U64,
        what: "a record of this unit is damaged",
    }
}

pub(crate) fn is_in(have: &Object, g: Generation) -> Result<(), Error> {
    if have.attributes.g == g {
        return Ok(());
    }
    Err(Error::StaleGeneration { have: have.attributes.g, asked: g })
}
