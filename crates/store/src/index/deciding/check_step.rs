//! Decisions on unit writes, deltas and verdicts (PROTOCOL R2, R3, R5 and section 6); see
//! [`crate::index::deciding::check`].

use braid_layout::{ClientId, Column, ObjectId, OperationNumber, PartitionId, Version};

use crate::error::Error;
use crate::format::body;
use crate::format::record::{Kind, flags};
use crate::index::deciding::bounds::{self, Bounds};
use crate::index::deciding::decision::{
    Decision, NO_WRITER, damaged, object_record, overwritten, put_body, to_append, written_to,
};
use crate::index::deciding::growth::Growth;
use crate::index::parity::Link;
use crate::index::{Index, Object};
use crate::mutation::{MutationOutcome, UnitVerdict};
use crate::step::{DELTAS_MAX, Delta, OWED_MAX, UnitWrite};

/// Decides on a unit write (R2).
pub(crate) fn unit_write(index: &Index, growth: &mut Growth, write: &UnitWrite) -> Result<Decision, Error> {
    let (owner, object) = written_to(index, write.partition, write.object, write.g, write.to)?;
    if object.attributes.base().is_some() {
        return Err(NO_WRITER);
    }
    let unit = object.unit(write.unit);
    if let Some(extra) = &object.extra {
        if let Some(version) = extra.dedup.find(write.client, (write.operation, write.unit, 0)) {
            let settled = !unit.owed.iter().any(|owed| owed.version == version);
            return Ok(Decision::Answer(MutationOutcome::Known { version, settled }));
        }
        if extra.dedup.is_retired(write.client, write.operation) {
            return Ok(Decision::Answer(MutationOutcome::Already));
        }
    }
    if let Some(place) = unit.lost {
        return Err(damaged(place));
    }
    if unit.is_parity() {
        return Err(Error::Malformed("a unit write to parity"));
    }
    let tip = unit.tip_version();
    let version = write.stamp.unwrap_or_else(|| next(tip, write));
    if version <= tip {
        return Ok(Decision::Answer(MutationOutcome::Older { tip }));
    }
    if unit.owed.len() >= OWED_MAX {
        return Err(Error::Backlog(unit.owed.len()));
    }
    index.bounds.operation(object, write.client, write.watermark)?;
    bounds::one_more(index, write.partition, write.object, object, write.unit, &unit, &write.range())?;
    let overwritten = overwritten(object, &unit, &write.range());
    let asked = write.body.payload_bytes().saturating_sub(overwritten);
    growth.write(write.partition, owner, write.object, object, asked)?;
    let mut record = object_record(Kind::Data, write.partition, write.object, object);
    record.flags = flags::OWED;
    (record.unit, record.units, record.from, record.to) = (write.unit, 1, write.from, write.to);
    (record.version, record.previous, record.settled_below) = (version, tip, write.settled_below);
    (record.client, record.operation, record.watermark) = (write.client, write.operation, write.watermark);
    record.columns = record.columns.with(object.attributes.column);
    let payload = put_body(&mut record, &write.body);
    Ok(Decision::Append(Box::new(record), payload))
}

/// The version that the drive assigns to a write that has no stamp.
fn next(tip: Version, write: &UnitWrite) -> Version {
    let same = (tip.g, tip.lease) == (write.g, write.lease);
    Version { g: write.g, lease: write.lease, n: if same { tip.n.saturating_add(1) } else { 1 } }
}

/// Decides on a delta (R5).
pub(crate) fn delta(index: &Index, growth: &mut Growth, delta: &Delta) -> Result<Decision, Error> {
    let (owner, object) = written_to(index, delta.partition, delta.object, delta.g, delta.to)?;
    if object.attributes.base().is_some() {
        return Err(NO_WRITER);
    }
    let unit = object.unit(delta.unit);
    if let Some(place) = unit.lost {
        return Err(damaged(place));
    }
    if delta.end > object.attributes.unit_bytes {
        return Err(Error::Malformed("a data unit that ends past itself"));
    }
    if !unit.is_parity() && !unit.tip_version().is_zero() {
        return Err(Error::Malformed("a delta to a data unit"));
    }
    let tip = unit.chain_tip(delta.data);
    match unit.link(delta.data, delta.from_version, delta.to_version) {
        Link::Known => return Ok(Decision::Answer(MutationOutcome::Counted { tip })),
        Link::Broken => return Err(Error::Chain { tip }),
        Link::Next => {}
    }
    if unit.deltas.len() >= DELTAS_MAX {
        return Err(Error::Backlog(unit.deltas.len()));
    }
    index.bounds.operation(object, delta.client, delta.watermark)?;
    // A delta rewrites nothing, whatever its range.
    bounds::one_more(index, delta.partition, delta.object, object, delta.unit, &unit, &(0..0))?;
    growth.write(delta.partition, owner, delta.object, object, delta.body.payload_bytes())?;
    let mut record = object_record(Kind::Delta, delta.partition, delta.object, object);
    (record.unit, record.units, record.from, record.to) = (delta.unit, 1, delta.from, delta.to);
    (record.column, record.data, record.end) = (delta.column, delta.data, delta.end);
    (record.version, record.previous, record.settled_below) =
        (delta.to_version, delta.from_version, delta.settled_to);
    (record.client, record.operation, record.watermark) = (delta.client, delta.operation, delta.watermark);
    let payload = put_body(&mut record, &delta.body);
    Ok(Decision::Append(Box::new(record), payload))
}

/// Decides on an acknowledgement by the parity columns (R3).
pub(crate) fn owed_settled(
    have: &Object,
    partition: PartitionId,
    object: ObjectId,
    number: u64,
    up_to: Version,
) -> Result<Decision, Error> {
    let unit = have.unit(number);
    if !unit.owed.iter().any(|owed| owed.version == up_to) {
        if up_to <= unit.settled_version() {
            return Ok(Decision::Answer(MutationOutcome::Already));
        }
        return Err(Error::Chain { tip: unit.tip_version() });
    }
    let mut record = object_record(Kind::SettledTo, partition, object, have);
    (record.unit, record.units, record.version) = (number, 1, up_to);
    to_append(record)
}

/// Decides on a data column's report that its deltas are settled.
pub(crate) fn deltas_settled(
    have: &Object,
    partition: PartitionId,
    object: ObjectId,
    number: u64,
    data: u8,
    up_to: Version,
) -> Result<Decision, Error> {
    if !have.unit(number).has_unsettled(data, up_to) {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let mut record = object_record(Kind::SettledTo, partition, object, have);
    (record.unit, record.units, record.data, record.version) = (number, 1, data, up_to);
    to_append(record)
}

/// Decides on units that a joining column has caught up with. A damaged unit among them is still not ready,
/// until it is made anew. No decision depends on the contents of these runs, so a commit may have two runs
/// that overlap: both are noted.
pub(crate) fn ready(
    have: &Object,
    bounds: &Bounds,
    partition: PartitionId,
    object: ObjectId,
    unit: u64,
    units: u32,
) -> Result<Decision, Error> {
    let more = units.checked_sub(1).ok_or(Error::Malformed("no unit is ready"))?;
    let last = unit.checked_add(u64::from(more)).ok_or(Error::Malformed("units past the last"))?;
    if have.are_ready(unit, last) {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    bounds.ready(have, (unit, last))?;
    let mut record = object_record(Kind::Ready, partition, object, have);
    (record.unit, record.units) = (unit, units);
    to_append(record)
}

/// Decides on a retirement: the operations of a client to forget, and the versions of a lease to settle.
pub(crate) fn retire(
    have: &Object,
    bounds: &Bounds,
    partition: PartitionId,
    object: ObjectId,
    settled_below: Version,
    client: ClientId,
    watermark: OperationNumber,
) -> Result<Decision, Error> {
    // Versions that a lease no longer needs are settled in any case. If there is no space for one more
    // client, its watermark is not stored.
    let watermark = if bounds.remembers(have, client) { watermark } else { OperationNumber::NONE };
    let news = have.extra.as_ref().is_some_and(|extra| extra.dedup.is_news(client, watermark));
    if have.pending_below(settled_below).is_empty() && have.deltas_below(settled_below).is_empty() && !news {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let mut record = object_record(Kind::SettledTo, partition, object, have);
    (record.settled_below, record.client, record.watermark) = (settled_below, client, watermark);
    to_append(record)
}

/// Decides on a verdict.
pub(crate) fn verdict(
    have: &Object,
    partition: PartitionId,
    object: ObjectId,
    units: &[UnitVerdict],
) -> Result<Decision, Error> {
    let units = effective(have, units);
    if units.is_empty() {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let mut record = object_record(Kind::Verdict, partition, object, have);
    record.units = u32::try_from(units.len()).expect("bounded");
    record.inline = body::verdict_body(&units);
    to_append(record)
}

/// The parts of a verdict that change something.
fn effective(object: &Object, units: &[UnitVerdict]) -> Vec<UnitVerdict> {
    let mut out = Vec::new();
    for verdict in units {
        let unit = object.unit(verdict.unit);
        let stamp = unit.pending.as_ref().map(|pending| pending.version);
        let named = |version: &Version| {
            stamp == Some(*version) || unit.owed.iter().any(|owed| owed.version == *version)
        };
        let only = |stamps: &[Version]| stamps.iter().copied().filter(named).collect::<Vec<_>>();
        let cuts = |cut: &(Column, Version)| unit.has_above(cut.0, cut.1);
        let forward = only(&verdict.forward);
        let back = only(&verdict.back);
        let cut_offs: Vec<_> = verdict.cut_offs.iter().copied().filter(cuts).collect();
        if !forward.is_empty() || !back.is_empty() || !cut_offs.is_empty() {
            out.push(UnitVerdict { unit: verdict.unit, forward, back, cut_offs });
        }
    }
    out
}
