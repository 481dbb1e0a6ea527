//! Decides the outcome of a mutation: a refusal, an answer without a record, or a record to append.
//!
//! Decisions are made against durable state only. The committer never puts two mutations into one commit if
//! the decision on one could depend on the other ([`Touched`](crate::index::deciding::touched::Touched)), so
//! there is no state between "written" and "durable". One case is known beforehand: a write to an object that
//! the same commit creates is decided as a write to an empty object.

use std::cmp::Ordering;

use braid_layout::{ColumnMask, EndBound, Generation, ObjectId, PartitionId, Version};
use bytes::Bytes;

use crate::error::Error;
use crate::format::body;
use crate::format::page::Key;
use crate::format::record::{Kind, Record, flags};
use crate::index::deciding::decision::{
    Decision, NO_WRITER, damaged, fits, is_in, object_record, overwritten, partition_record, put_body,
    to_append, written_to,
};
use crate::index::deciding::growth::Growth;
use crate::index::deciding::{bounds, check_step};
use crate::index::{Index, Object, snapshots};
use crate::mutation::{Change, Mutation, MutationOutcome, Standing, Write};
use crate::payload::Body;

/// Decides on `mutation`.
pub(crate) fn check(index: &Index, growth: &mut Growth, mutation: &Mutation) -> Result<Decision, Error> {
    growth.begin();
    match mutation {
        Mutation::PartitionCreate { partition, quota_bytes, key_epoch } => {
            let Some(have) = index.partitions.get(partition).filter(|have| have.known) else {
                let record = partition_record(Kind::PartitionCreate, *partition, *quota_bytes, *key_epoch, 0);
                return to_append(record);
            };
            if have.quota_bytes == *quota_bytes && have.key_epoch == *key_epoch {
                return Ok(Decision::Answer(MutationOutcome::Already));
            }
            Err(Error::PartitionExists(*partition))
        }
        Mutation::PartitionSet { partition, quota_bytes, key_epoch } => {
            let have = index.find_partition(*partition)?;
            if *key_epoch < have.key_epoch {
                return Err(Error::KeyEpoch(*partition, have.key_epoch));
            }
            if have.quota_bytes == *quota_bytes && have.key_epoch == *key_epoch {
                return Ok(Decision::Answer(MutationOutcome::Already));
            }
            to_append(partition_record(Kind::PartitionSet, *partition, *quota_bytes, *key_epoch, have.birth))
        }
        Mutation::PartitionRemove { partition } => check_partition_remove(index, *partition),
        Mutation::Create { partition, object, attributes } => {
            let Some(have) = index.find_partition(*partition)?.objects.get(object) else {
                let owner = index.find_partition(*partition)?;
                growth.reserve(*partition, owner, attributes.reserve_bytes)?;
                let mut record = Record::new(Kind::ObjectCreate);
                (record.partition, record.object) = (*partition, *object);
                body::put_attributes(&mut record, attributes);
                growth.create((*partition, *object), attributes);
                return to_append(record);
            };
            if have.known && !have.husk && have.attributes.unpacked().same_object(attributes) {
                return Ok(Decision::Answer(MutationOutcome::Already));
            }
            Err(Error::Exists(*partition, *object))
        }
        Mutation::Remove { partition, object, g } => check_remove(index, *partition, *object, *g),
        Mutation::SetAttributes { partition, object, g, change } => {
            check_attributes(index, growth, *partition, *object, *g, change)
        }
        Mutation::Write(write) => check_write(index, growth, write),
        Mutation::UnitWrite(write) => check_step::unit_write(index, growth, write),
        Mutation::Delta(delta) => check_step::delta(index, growth, delta),
        Mutation::OwedSettled { partition, object, g, unit, up_to } => {
            let have = asked_in(index, *partition, *object, *g)?;
            check_step::owed_settled(have, *partition, *object, *unit, *up_to)
        }
        Mutation::DeltasSettled { partition, object, g, unit, data, up_to } => {
            let have = asked_in(index, *partition, *object, *g)?;
            check_step::deltas_settled(have, *partition, *object, *unit, *data, *up_to)
        }
        Mutation::Retire { partition, object, g, settled_below, client, watermark } => {
            let have = asked_in(index, *partition, *object, *g)?;
            check_step::retire(have, &index.bounds, *partition, *object, *settled_below, *client, *watermark)
        }
        Mutation::Fence { partition, object, g, set, joining } => {
            check_fence(index, *partition, *object, *g, *set, *joining)
        }
        Mutation::Ready { partition, object, g, unit, units } => {
            let have = asked_in(index, *partition, *object, *g)?;
            check_step::ready(have, &index.bounds, *partition, *object, *unit, *units)
        }
        Mutation::Verdict { partition, object, g, units } => {
            check_step::verdict(asked_in(index, *partition, *object, *g)?, *partition, *object, units)
        }
        Mutation::Take { partition, object, g, still, attributes } => {
            snapshots::take(index, *partition, *object, *g, *still, attributes)
        }
        Mutation::Flush => Ok(Decision::Barrier),
    }
}

fn check_attributes(
    index: &Index,
    growth: &mut Growth,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
    change: &Change,
) -> Result<Decision, Error> {
    let have = index.whole_object(partition, object)?;
    let old = have.attributes.unpacked();
    // The manager may already be in a later generation, whose fence has not arrived here yet.
    if old.g > g {
        return Err(Error::StaleGeneration { have: old.g, asked: g });
    }
    let new = old.changed(change);
    if new == old {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let more = new.reserve_bytes.max(have.bytes).saturating_sub(old.reserve_bytes.max(have.bytes));
    growth.reserve(partition, index.find_partition(partition)?, more)?;
    let mut record = object_record(Kind::ObjectAttributes, partition, object, have);
    body::put_attributes(&mut record, &new);
    to_append(record)
}

fn check_fence(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
    set: ColumnMask,
    joining: ColumnMask,
) -> Result<Decision, Error> {
    let have = index.whole_object(partition, object)?;
    let attributes = &have.attributes;
    if attributes.g == g && attributes.set == set && attributes.joining == joining {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    if attributes.g >= g {
        return Err(Error::StaleGeneration { have: attributes.g, asked: g });
    }
    let mut record = object_record(Kind::Fence, partition, object, have);
    (record.g, record.set, record.joining) = (g, set, joining);
    if joining.contains(attributes.column) {
        record.flags |= flags::DROPPED;
    }
    to_append(record)
}

fn check_partition_remove(index: &Index, partition: PartitionId) -> Result<Decision, Error> {
    let mut record = Record::new(Kind::PartitionRemove);
    record.partition = partition;
    let Some(have) = index.partitions.get(&partition) else {
        // The partition's state is lost, so it is removed whatever it was.
        record.birth = u64::MAX;
        let lost = index.lost.find(Key::At(partition, None)).is_some();
        return if lost { to_append(record) } else { Ok(Decision::Answer(MutationOutcome::Already)) };
    };
    if !have.objects.is_empty() {
        let objects = u64::try_from(have.objects.len()).unwrap_or(u64::MAX);
        return Err(Error::PartitionNotEmpty(partition, objects));
    }
    // If damage hid its creation, the log may show it again later: remove any birth.
    record.birth = if have.known { have.birth } else { u64::MAX };
    to_append(record)
}

fn check_remove(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
) -> Result<Decision, Error> {
    let found = index.partitions.get(&partition).and_then(|owner| owner.objects.get(&object));
    if let Some(have) = found.filter(|have| !have.husk) {
        // As with attributes, the manager may be in a later generation.
        if have.attributes.g > g {
            return Err(Error::StaleGeneration { have: have.attributes.g, asked: g });
        }
        let mut record = object_record(Kind::ObjectRemove, partition, object, have);
        if have.lost.is_some() || !have.known {
            // Its birth may be that of an older object. If only a read failed, the log may show the latest
            // object again later, so any birth is removed.
            record.birth = u64::MAX;
        }
        let drop = have.attributes.base().and_then(|base| snapshots::release(index, partition, &base));
        return match drop {
            Some(drop) => Ok(Decision::AppendBoth(Box::new(record), drop)),
            None => to_append(record),
        };
    }
    if index.lost.find(Key::At(partition, Some(object))).is_none() {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    // The object's state is lost, so it is removed whatever it was.
    let mut record = Record::new(Kind::ObjectRemove);
    (record.partition, record.object, record.birth) = (partition, object, u64::MAX);
    to_append(record)
}

/// The object of a request that was sent in generation `g`, which must be the object's generation now: a
/// fence may have come between the request's arrival and its commit.
fn asked_in(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
) -> Result<&Object, Error> {
    let have = index.whole_object(partition, object)?;
    is_in(have, g)?;
    Ok(have)
}

fn check_write(index: &Index, growth: &mut Growth, write: &Write) -> Result<Decision, Error> {
    let created = growth.created((write.partition, write.object));
    let (owner, object) = match &created {
        Some(object) => {
            fits(object, write.g, write.to)?;
            (index.find_partition(write.partition)?, &**object)
        }
        None => written_to(index, write.partition, write.object, write.g, write.to)?,
    };
    let unit = match &created {
        Some(_) => object.unit(write.unit),
        None => index.shown(write.partition, write.object)?.unit(write.unit),
    };
    if object.attributes.base().is_some() && !write.standing.is_settled() {
        return Err(NO_WRITER);
    }
    let lost = unit.lost;
    let settled = unit.settled_version();
    let tip = unit.tip_version();
    let unit_bytes = object.attributes.unit_bytes;
    if write.ends.iter().any(|end| end.least > unit_bytes) {
        return Err(Error::Malformed("a data unit that ends past itself"));
    }
    match write.standing {
        Standing::Pending | Standing::Whole => {
            let mended = unit.mended(unit_bytes).is_some_and(|pending| pending.version == write.stamp);
            // A write to a lost unit must bring all of its bytes, because the rest is unknown.
            let all = write.range() == (0..unit_bytes) || write.standing == Standing::Whole;
            let whole = matches!(write.body, Body::Bytes { .. }) && all;
            if let Some(place) = lost
                && !mended
                && !(whole && write.stamp > tip)
            {
                return Err(damaged(place));
            }
            if write.stamp == tip || write.stamp == settled {
                return Ok(Decision::Answer(MutationOutcome::Already));
            }
            if write.stamp < tip {
                return Ok(Decision::Answer(MutationOutcome::Older { tip }));
            }
        }
        Standing::Repaired if !unit.owed.is_empty() => return Err(Error::InDoubt { tip }),
        installed => match unit.installs(write.kind, write.stamp, &write.cover) {
            Ordering::Equal if lost.is_none() && installed == Standing::Installed => {
                return Ok(Decision::Answer(MutationOutcome::Already));
            }
            Ordering::Less => return Ok(Decision::Answer(MutationOutcome::Older { tip })),
            _ => {}
        },
    }
    let replaced = match write.standing {
        Standing::Installed | Standing::Repaired => 0..unit_bytes,
        // Contents that snapshots keep of a lost unit are freed when the write is settled, not before.
        _ if lost.is_some() && object.keeps(&unit) => 0..0,
        Standing::Whole => 0..unit_bytes,
        Standing::Pending => write.range(),
    };
    bounds::one_more(index, write.partition, write.object, object, write.unit, &unit, &replaced)?;
    // What a still shows of its base is not freed by an install.
    let is_own = object.attributes.base().is_none() || object.units.get(write.unit).is_some();
    let overwritten = if is_own { overwritten(object, &unit, &write.range()) } else { 0 };
    let asked = write.payload_bytes().saturating_sub(overwritten);
    growth.write(write.partition, owner, write.object, object, asked)?;
    let (mut record, payload) = write_record(write, object, tip);
    if record.is(flags::INSTALLED) && lost.is_none() && unit.has_newer(write.stamp, &write.cover) {
        record.flags |= flags::BELOW;
    }
    Ok(Decision::Append(Box::new(record), payload))
}

impl Standing {
    /// Returns true if a version of this standing is settled from the beginning.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Standing::Installed | Standing::Repaired)
    }

    /// Returns true if a write of this standing may give the bound `end`. A write that is settled from the
    /// beginning must know the end exactly.
    pub(crate) fn allows(self, end: EndBound) -> bool {
        end.is_possible() && (!self.is_settled() || end.is_exact())
    }
}

fn write_record(write: &Write, object: &Object, tip: Version) -> (Record, Bytes) {
    let mut record = object_record(write.kind.into(), write.partition, write.object, object);
    match write.standing {
        Standing::Pending => {}
        Standing::Whole => record.flags |= flags::WHOLE,
        Standing::Installed | Standing::Repaired => record.flags |= flags::INSTALLED,
    }
    (record.unit, record.units) = (write.unit, 1);
    (record.from, record.to) = (write.from, write.to);
    (record.version, record.previous, record.settled_below) = (write.stamp, tip, write.settled_below);
    (record.client, record.operation) = (write.client, write.operation);
    record.columns = write.columns;
    record.cover.clone_from(&write.cover);
    record.ends.clone_from(&write.ends);
    let payload = put_body(&mut record, &write.body);
    (record, payload)
}
