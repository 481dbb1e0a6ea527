//! Random mutations, mostly sensible.

use braid_layout::{ClientId, ColumnMask, Generation, Lease, ObjectId, OperationNumber, Version};
use braid_store::*;

use super::Random;
use crate::common::*;

/// Objects of a life.
pub(super) const OBJECTS: u64 = 3;
/// Numbers of stills of these objects.
pub(super) const STILLS: std::ops::Range<u64> = 50..55;
/// The object with long units: commits of some of its writes are started before their sync.
const LONG: ObjectId = ObjectId(2);
/// Units of an object.
pub(super) const UNITS: u64 = 6;

/// Bytes of a unit of an object.
pub(super) fn unit_bytes(object: ObjectId) -> u32 {
    if object == LONG { 4 * UNIT } else { UNIT }
}

/// The next mutation. `n` rises with each. `store` supplies pending versions and generations.
pub(super) fn mutation(random: &mut Random, n: u64, store: &Store) -> Mutation {
    let object = ObjectId(random.below(OBJECTS));
    let g = generation(store, object);
    match random.below(32) {
        0 | 1 => {
            let attributes = Attributes { unit_bytes: unit_bytes(object), ..attributes() };
            Mutation::Create { partition: P, object, attributes }
        }
        2 => Mutation::Remove { partition: P, object, g },
        11 => {
            let attributes = Attributes { unit_bytes: unit_bytes(object), ..attributes() };
            Mutation::Take { partition: P, object, g, still: a_still(random), attributes }
        }
        12 => {
            let still = a_still(random);
            Mutation::Remove { partition: P, object: still, g: generation(store, still) }
        }
        13 => Mutation::Write(a_repair(random, store)),
        3 => {
            let settled_below = version(1 + u32::try_from(random.below(2)).expect("small"), n);
            Mutation::Retire {
                partition: P,
                object,
                g,
                settled_below,
                client: ClientId::NONE,
                watermark: OperationNumber::NONE,
            }
        }
        4 | 5 => verdict(random, object, store),
        6 => {
            let g = Generation(g.0 + 1);
            Mutation::Fence { partition: P, object, g, set: ColumnMask(n), joining: ColumnMask::EMPTY }
        }
        7 => {
            let length = usize::try_from(random.below(2000)).expect("small");
            let change =
                Change { modified_ms: Some(n), opaque: Some(pattern(n, length)), ..Change::default() };
            Mutation::SetAttributes { partition: P, object, g, change }
        }
        8 => {
            let key_epoch = u32::try_from(n.saturating_sub(random.below(20))).expect("small");
            Mutation::PartitionSet { partition: P, quota_bytes: None, key_epoch }
        }
        9 | 10 => verdict_on_all(object, store),
        _ => Mutation::Write(a_write(random, n, object, store)),
    }
}

/// A number of a still.
fn a_still(random: &mut Random) -> ObjectId {
    ObjectId(STILLS.start + random.below(STILLS.end - STILLS.start))
}

/// Installs a unit of a still anew, as it is.
fn a_repair(random: &mut Random, store: &Store) -> Write {
    let object = a_still(random);
    let unit = random.below(UNITS);
    let shown = store.read(P, object, unit, 0..1, Want::Newest).ok();
    let stamp = shown.as_ref().map_or(Version::ZERO, |shown| shown.version);
    let mut write = write(object.0, unit, 0, UNIT, stamp);
    if stamp.is_zero() {
        write.body = Body::Hole;
    }
    if let Some(shown) = shown.filter(|shown| !shown.cover.is_empty()) {
        write = counting(write, WriteKind::ParityBase, shown.cover);
    }
    (write.standing, write.g) = (Standing::Repaired, generation(store, object));
    write
}

fn generation(store: &Store, object: ObjectId) -> Generation {
    store.object(P, object).map_or(Generation(1), |found| found.g)
}

fn a_write(random: &mut Random, n: u64, object: ObjectId, store: &Store) -> Write {
    let bounds = [1, 200, 5000, 20_000, u64::from(UNIT)];
    let bound = bounds[usize::try_from(random.below(5)).expect("small")];
    let from = random.below(u64::from(UNIT));
    let to = (from + 1 + random.below(bound)).min(u64::from(UNIT));
    let (from, to) = match random.below(8) {
        0 => (0, UNIT),
        1 => (0, u32::try_from(to).expect("small")),
        2 | 3 if object == LONG => {
            let length = 2 * UNIT + u32::try_from(random.below(u64::from(UNIT))).expect("small");
            (u32::try_from(from).expect("small"), u32::try_from(from).expect("small") + length)
        }
        _ => (u32::try_from(from).expect("small"), u32::try_from(to).expect("small")),
    };
    // Units below 4 are data, the others parity.
    let unit = random.below(UNITS);
    let lease = Lease(1 + u32::try_from(random.below(2)).expect("small"));
    let stamp = Version { g: Generation(1), lease, n };
    let mut write = write(object.0, unit, from, to, stamp);
    write.g = generation(store, object);
    if random.once_in(6) {
        write.body = Body::Hole;
    }
    if random.once_in(6) {
        write.standing = Standing::Installed;
    }
    if random.once_in(4) {
        write.settled_below = stamp;
    }
    if unit >= 4 {
        let kind = if random.once_in(3) { WriteKind::ParityBase } else { WriteKind::StripeParity };
        write = counting(write, kind, vec![stamp, Version::ZERO, stamp]);
    }
    write
}

/// A verdict that settles everything, so that a still can be taken.
fn verdict_on_all(object: ObjectId, store: &Store) -> Mutation {
    let chains = store.versions(P, object, 0..UNITS).unwrap_or_default();
    let units = chains.iter().filter_map(|chain| {
        let tip = chain.entries.last().filter(|entry| !entry.settled)?;
        Some(UnitVerdict { unit: chain.unit, forward: vec![tip.version], back: vec![], cut_offs: vec![] })
    });
    Mutation::Verdict { partition: P, object, g: generation(store, object), units: units.collect() }
}

fn verdict(random: &mut Random, object: ObjectId, store: &Store) -> Mutation {
    let chains = store.versions(P, object, 0..UNITS).unwrap_or_default();
    let pending = chains.iter().filter_map(|chain| {
        let tip = chain.entries.last().filter(|entry| !entry.settled)?;
        Some((chain.unit, tip.version))
    });
    let units = pending.filter(|_| random.once_in(2)).collect::<Vec<_>>();
    let units = units.into_iter().map(|(unit, stamp)| {
        let (forward, back) = if random.once_in(2) { (vec![stamp], vec![]) } else { (vec![], vec![stamp]) };
        UnitVerdict { unit, forward, back, cut_offs: Vec::new() }
    });
    Mutation::Verdict { partition: P, object, g: generation(store, object), units: units.collect() }
}
