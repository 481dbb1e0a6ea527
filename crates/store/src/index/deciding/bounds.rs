//! Bounds on a unit, and on an object apart from its units, so that a checkpoint can always be written: a
//! unit's entry must fit in one page, and so must the entries of the object itself. An object as a whole has
//! no bound here, because its units go to as many pages as they need.
//!
//! The bounds are checked before a record is made, and never for operations that settle, fold, drop or
//! retire. Replay applies every record that was admitted.

use std::ops::Range;

use braid_layout::{ClientId, ObjectId, OperationNumber, PartitionId};

use crate::error::Error;
use crate::format::COUNTED_BYTES;
use crate::format::base::BASE_BYTES;
use crate::format::dedup::{DEDUP_BYTES, OPERATION_BYTES};
use crate::format::entry::{HEAD_BYTES, OBJECT_BYTES};
use crate::format::extent::EXTENT_BYTES;
use crate::format::page::{FIXED_BYTES, PAGE_BYTES_MAX, TARGET_BYTES};
use crate::format::ready::RUN_BYTES;
use crate::format::snapshots::SNAPSHOTS_BYTES;
use crate::format::unit::{CONTENT_BYTES, KEEPING_BYTES, STEP_BYTES, UNIT_BYTES};
use crate::index::unit::{Content, Pending, Unit};
use crate::index::{Extra, Index, Object};
use crate::mutation::{OPAQUE_BYTES_MAX, STILLS_MAX};
use crate::step::{DELTAS_MAX, OWED_MAX};

/// The most bytes of a unit's entry in a checkpoint, with all its versions and all that snapshots keep: about
/// a million extents. A write that would exceed it fails with [`Error::Pieces`].
pub const UNIT_ENTRY_BYTES_MAX: usize = 16 << 20;
/// The most client operations plus clients that an object remembers; one more fails with
/// [`Error::Operations`].
pub const OPERATIONS_MAX: usize = 1 << 20;
/// The most runs of units that a joining column has caught up with; one more fails with [`Error::Runs`].
pub const READY_RUNS_MAX: usize = 1 << 20;

/// The most mutations in one commit, all of which are decided against the same state.
pub(crate) const COMMIT_LEN_MAX: usize = 1024;

/// The most bytes that one more version adds to a unit's entry: a step with a full cover, and two extents
/// because settling it may cut an extent in two.
const STEP_ROOM: usize = CONTENT_BYTES + STEP_BYTES + 64 * COUNTED_BYTES + 2 * EXTENT_BYTES;

/// Bytes left on a page for the next entry, after the fixed part and up to `TARGET_BYTES` of earlier entries.
const ROOM: usize = PAGE_BYTES_MAX - FIXED_BYTES - TARGET_BYTES;

// The factor of 2: settling may cut each layer in two. A write of the whole unit may exceed the bound.
const _: () = assert!(2 * UNIT_ENTRY_BYTES_MAX + (OWED_MAX + DELTAS_MAX + 2) * STEP_ROOM <= ROOM);
// All mutations of one commit are decided against the same state. A client's entry is smaller than an
// operation's.
const _: () = assert!(HEAD_BYTES + DEDUP_BYTES <= OPERATION_BYTES);
const _: () = assert!(
    HEAD_BYTES
        + OBJECT_BYTES
        + 2 * OPAQUE_BYTES_MAX
        + (OPERATIONS_MAX + 2 * COMMIT_LEN_MAX) * OPERATION_BYTES
        + HEAD_BYTES
        + (READY_RUNS_MAX + COMMIT_LEN_MAX) * RUN_BYTES
        + HEAD_BYTES
        + SNAPSHOTS_BYTES
        + 4 * STILLS_MAX
        + HEAD_BYTES
        + BASE_BYTES
        <= ROOM
);

/// The bounds in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) unit_entry_bytes: usize,
    pub(crate) operations: usize,
    pub(crate) ready_runs: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            unit_entry_bytes: UNIT_ENTRY_BYTES_MAX,
            operations: OPERATIONS_MAX,
            ready_runs: READY_RUNS_MAX,
        }
    }
}

impl Bounds {
    /// Checks that a client's next operation can be remembered, once those below its watermark are forgotten.
    pub(crate) fn operation(
        &self,
        have: &Object,
        client: ClientId,
        watermark: OperationNumber,
    ) -> Result<(), Error> {
        let Some(Extra { dedup, .. }) = have.extra.as_deref() else { return Ok(()) };
        if dedup.len() < self.operations || dedup.len_after(client, watermark) < self.operations {
            return Ok(());
        }
        Err(Error::Operations(dedup.len()))
    }

    /// Returns true if the watermark of `client` can be remembered. For a known client that takes no more
    /// space.
    pub(crate) fn remembers(&self, have: &Object, client: ClientId) -> bool {
        let dedup = have.extra.as_deref().map(|extra| &extra.dedup);
        dedup.is_some_and(|dedup| dedup.knows(client) || dedup.len() < self.operations)
    }

    /// Checks that one more run of units that a joining column has caught up with can be noted.
    pub(crate) fn ready(&self, have: &Object, units: (u64, u64)) -> Result<(), Error> {
        let (first, last) = units;
        let Some(extra) = &have.extra else { return Ok(()) };
        if extra.ready.len() < self.ready_runs || extra.ready.touches(first, last) {
            return Ok(());
        }
        Err(Error::Runs(extra.ready.len()))
    }
}

/// Checks that one more version of `range` of a unit can be written. A delta rewrites nothing and passes an
/// empty range. Rewriting the whole unit makes its entry shorter, unless snapshots keep the old content.
pub(crate) fn one_more(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    have: &Object,
    number: u64,
    unit: &Unit,
    range: &Range<u32>,
) -> Result<(), Error> {
    let keeps = have.keeps(unit);
    let whole = 0..have.attributes.unit_bytes;
    // Of a lost unit, snapshots keep only the fact that it was lost.
    if (!keeps || unit.lost.is_some()) && *range == whole {
        return Ok(());
    }
    let copy = unit.settled.as_ref().filter(|_| keeps).map_or(0, |content| KEEPING_BYTES + bytes_of(content));
    let has_room = |unit: &Unit| unit.entry_bytes() + copy + STEP_ROOM <= index.bounds.unit_entry_bytes;
    if has_room(unit) {
        return Ok(());
    }
    // The next write settles the pending version (C1). If that one covers the whole unit, it replaces all the
    // pieces.
    let rewrites = |pending: &Pending| pending.whole || (pending.own.from..pending.own.to) == whole;
    if !keeps && !range.is_empty() && unit.pending.as_deref().is_some_and(rewrites) {
        let mut settled = unit.clone();
        settled.settle(whole.end);
        if has_room(&settled) {
            return Ok(());
        }
    }
    Err(Error::Pieces { partition, object, unit: number })
}

fn bytes_of(content: &Content) -> usize {
    let Content { cover, extents, layers, .. } = content;
    CONTENT_BYTES
        + COUNTED_BYTES * cover.len()
        + EXTENT_BYTES * extents.len()
        + (CONTENT_BYTES + EXTENT_BYTES) * layers.len()
}

impl Unit {
    /// Bytes of the unit's entry in a checkpoint, if it is not a plain unit.
    pub(crate) fn entry_bytes(&self) -> usize {
        let pending = self.pending.iter().map(|pending| COUNTED_BYTES * pending.cover.len());
        let steps = pending.clone().count() + self.owed.len() + self.deltas.len();
        let kept = self
            .kept
            .iter()
            .map(|kept| KEEPING_BYTES + kept.content.as_ref().map_or(CONTENT_BYTES, bytes_of));
        HEAD_BYTES
            + UNIT_BYTES
            + self.settled.as_ref().map_or(0, bytes_of)
            + kept.sum::<usize>()
            + pending.sum::<usize>()
            + (CONTENT_BYTES + STEP_BYTES) * steps
    }
}

#[cfg(test)]
mod tests;
