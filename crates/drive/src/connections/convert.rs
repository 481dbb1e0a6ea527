//! Conversions between the wire's types and the store's.

use braid_layout::{Generation, ObjectId, PartitionId};
use braid_store::{
    Body, Chain, ChainTip, Direction, Holes, Listing, PartitionState, Standing, ViewExtent, Write, WriteKind,
};
use braid_wire::data::{
    self, ColumnMap, Extent, PartitionAttributes, PendingState, StripeWrite, Tip, UnitState, Versions,
};
use braid_wire::{Capability, Reason, Refusal, Rights, Wire};

/// The attributes of a new object. Logical version, generation, set and joining come from the capability,
/// which the manager signed. Only the manager has space reserved: a client could take all there is.
pub(crate) fn new_object(capability: &Capability, attributes: &data::Attributes) -> braid_store::Attributes {
    let is_managed = capability.rights.include(Rights::MANAGE);
    braid_store::Attributes {
        g: capability.g,
        set: capability.set,
        joining: capability.joining,
        reserve_bytes: if is_managed { attributes.reserve_bytes } else { 0 },
        ..still(attributes)
    }
}

/// The attributes of a still, all of which the manager gives.
pub(crate) fn still(attributes: &data::Attributes) -> braid_store::Attributes {
    braid_store::Attributes {
        unit_bytes: attributes.map.unit_bytes,
        column: attributes.map.column,
        g: attributes.g,
        set: attributes.set,
        joining: attributes.joining,
        created_ms: attributes.created_ms,
        modified_ms: attributes.modified_ms,
        reserve_bytes: 0,
        cluster: attributes.cluster,
        map: attributes.map.to_bytes(),
        opaque: attributes.opaque.clone(),
        base: None,
    }
}

/// Returns true if two maps are of the same column of the same segment. Their drives may differ: one may have
/// been replaced.
pub(crate) fn same_column(a: &ColumnMap, b: &ColumnMap) -> bool {
    let identity =
        |map: &ColumnMap| (map.file, map.segment, map.scheme, map.k, map.m, map.unit_bytes, map.column);
    identity(a) == identity(b)
}

/// A stored object's attributes.
pub(crate) fn attributes(
    stored: &braid_store::Attributes,
    map: ColumnMap,
    usage: &braid_store::ObjectUsage,
) -> data::Attributes {
    let offset = |at: Option<(u64, u32)>| {
        at.map_or(0, |(unit, end)| unit * u64::from(stored.unit_bytes) + u64::from(end))
    };
    data::Attributes {
        g: stored.g,
        set: stored.set,
        joining: stored.joining,
        map,
        size: offset(usage.size),
        reach: offset(usage.end),
        stored_bytes: usage.bytes,
        created_ms: stored.created_ms,
        modified_ms: stored.modified_ms,
        reserve_bytes: stored.reserve_bytes,
        cluster: stored.cluster,
        opaque: stored.opaque.clone(),
        base: stored.base.map_or(ObjectId(0), |base| base.object),
    }
}

/// Checks a stripe write's fields, beyond the checks that apply to every request.
pub(crate) fn check_write(k: u8, write: &StripeWrite) -> Result<(), Refusal> {
    // A lost unit that was never written is made anew under version zero.
    if write.stamp.n == 0 && !(write.install && write.hole && write.stamp.is_zero()) {
        return Err(Refusal::new(Reason::Malformed, "stamps are numbered from 1"));
    }
    if !write.cover.is_empty() && write.cover.len() != usize::from(k) {
        let detail =
            format!("the cover has {} versions, and there are {} data columns", write.cover.len(), k);
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    if write.whole && (write.install || !write.cover.is_empty()) {
        return Err(Refusal::new(
            Reason::Malformed,
            "a write of a whole unit of data has no cover, and installs nothing",
        ));
    }
    if write.ends.len() != write.cover.len() {
        let detail = format!(
            "the write has {} ends, and its cover has {} versions",
            write.ends.len(),
            write.cover.len()
        );
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    Ok(())
}

/// A stripe write in the store's form, under the capability's `g` and with the bytes that came with it.
///
/// Only here do the two forms meet: a field that is new in either does not compile until it is handled here.
pub(crate) fn stripe_write(write: StripeWrite, g: Generation, body: Body) -> Write {
    let StripeWrite {
        at,
        unit,
        from,
        to,
        install,
        whole,
        stamp,
        columns,
        cover,
        ends,
        settled_below,
        client,
        operation,
        // `body` states both.
        hole: _,
        crcs: _,
        timed: _,
    } = write;
    let standing = match (install, whole) {
        (true, _) => Standing::Installed,
        (false, true) => Standing::Whole,
        (false, false) => Standing::Pending,
    };
    Write {
        partition: at.partition,
        object: at.object,
        unit,
        from,
        to,
        // A stripe write has a cover on a parity column only.
        kind: if cover.is_empty() { WriteKind::Data } else { WriteKind::StripeParity },
        standing,
        stamp,
        columns,
        cover,
        ends,
        client,
        operation,
        g,
        settled_below,
        body,
    }
}

/// A partition's attributes.
pub(crate) fn partition(state: &PartitionState) -> PartitionAttributes {
    PartitionAttributes {
        partition: state.partition,
        quota_bytes: state.quota_bytes.unwrap_or(0),
        used_bytes: state.used,
        objects: state.objects,
        key_epoch: state.key_epoch,
    }
}

/// Quota from its form on the wire, where 0 means none.
pub(crate) fn quota(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

/// An extent of a read's reply.
pub(crate) fn extent(extent: &ViewExtent) -> Extent {
    match *extent {
        ViewExtent::Hole { from, to } => Extent { from, to, hole: true },
        ViewExtent::Stored { from, to } => Extent { from, to, hole: false },
    }
}

/// A unit's chain in the wire's form.
pub(crate) fn unit_state(chain: &Chain) -> UnitState {
    let mut state = UnitState::unwritten(chain.unit);
    (state.damaged, state.end) = (chain.lost, chain.end);
    for entry in &chain.entries {
        if entry.settled {
            state.settled = entry.version;
            state.cover.clone_from(&entry.cover);
            state.ends.clone_from(&entry.ends);
        } else if entry.owed {
            state.owed.push(entry.version);
        } else {
            state.pending = Some(PendingState {
                stamp: entry.version,
                columns: entry.columns,
                cover: entry.cover.clone(),
                ends: entry.ends.clone(),
            });
        }
    }
    let tip = |&ChainTip { column, version, end }: &ChainTip| Tip { column, version, end };
    state.tips = chain.tips.iter().map(tip).collect();
    state
}

/// Listing of an object's units that a request asks for; `None`: the request names the units.
pub(crate) fn listing(asked: &Versions) -> Option<Listing> {
    let which = |direction, holes| Listing { from: asked.from, direction, holes };
    match asked.list {
        data::Listing::Named | data::Listing::Doubted => None,
        data::Listing::Written => Some(which(Direction::Up, Holes::Listed)),
        data::Listing::Bytes => Some(which(Direction::Up, Holes::PassedOver)),
        data::Listing::BytesDown => Some(which(Direction::Down, Holes::PassedOver)),
    }
}

/// Units as runs of consecutive numbers, in the order given.
pub(crate) fn runs(units: &[u64]) -> Vec<std::ops::Range<u64>> {
    let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
    for &unit in units {
        match runs.last_mut() {
            Some(run) if run.end == unit && unit < u64::MAX => run.end = unit + 1,
            _ => runs.push(unit..unit.saturating_add(1)),
        }
    }
    runs
}

/// A partition and an object in it.
pub(crate) type ObjectRef = (PartitionId, ObjectId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_runs() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[3, 4, 5, 9, 11, 12]), [3..6, 9..10, 11..13]);
        assert_eq!(runs(&[5, 4]), [5..6, 4..5]);
    }
}
