//! Random unit writes, deltas and related mutations, and the comparison of a store with the model (`chains`).

use braid_layout::{
    ClientId, Column, ColumnMask, Generation, Lease, ObjectId, OperationNumber, PartitionId, Version,
};
use braid_store::*;

use super::Random;
use super::chains::{K, Model, Object, Unit};
use crate::common::*;

/// The partition of these mutations. It is not compared with the second store, which may fold at other times.
pub(super) const Q: PartitionId = PartitionId(8);
/// A data column's object.
const DATA: ObjectId = ObjectId(0);
/// A parity column's object.
const PARITY: ObjectId = ObjectId(1);
/// Units of each. Few, so that each gets many steps.
const UNITS: u64 = 2;
/// Most units that one [`Mutation::Ready`] names. It may name some that are never written.
const READY_MAX: u64 = 4;
const LEASE: Lease = Lease(5);

/// Make the partition and its objects.
pub(super) fn make(store: &Store) -> Model {
    let mut model = Model::default();
    let partition = Mutation::PartitionCreate { partition: Q, quota_bytes: None, key_epoch: 1 };
    store.commit(partition).expect("make the partition");
    for object in [DATA, PARITY] {
        let attributes = attributes();
        let new = model.objects.entry(object).or_default();
        new.g = attributes.g;
        // All units are checked, also those whose writes have an unknown outcome.
        (0..UNITS).for_each(|unit| drop(new.units.insert(unit, Unit::default())));
        store.commit(Mutation::Create { partition: Q, object, attributes }).expect("create");
    }
    model
}

/// The next mutation. `n` rises with each.
pub(super) fn mutation(random: &mut Random, n: u64, model: &Model) -> Mutation {
    let unit = random.below(UNITS);
    let object = if random.once_in(2) { DATA } else { PARITY };
    let of = &model.objects[&object];
    match random.below(25) {
        0..=6 => Mutation::UnitWrite(unit_write(random, n, unit, model.objects[&DATA].g)),
        7 | 8 => {
            let owed = model.objects[&DATA].units.get(&unit).map_or(&[][..], |unit| &unit.owed);
            let some = usize::try_from(random.below(4)).expect("small");
            let up_to = owed.iter().rev().nth(some).map_or(stamp(Generation(1), n), |owed| owed.version);
            Mutation::OwedSettled { partition: Q, object: DATA, g: model.objects[&DATA].g, unit, up_to }
        }
        9..=16 => Mutation::Delta(delta(random, n, unit, &model.objects[&PARITY])),
        17 | 18 => Mutation::Write(stripe(random, n, unit, object, of)),
        19 | 20 => verdict(random, object, unit, of),
        21 => match of.units.get(&unit) {
            Some(parity) if object == PARITY && parity.pending.is_none() && !parity.tip().is_zero() => {
                install(unit, of.g, parity)
            }
            _ => Mutation::Delta(delta(random, n, unit, &model.objects[&PARITY])),
        },
        22 => {
            let units = u32::try_from(1 + random.below(READY_MAX)).expect("small");
            Mutation::Ready { partition: Q, object, g: of.g, unit, units }
        }
        23 => {
            let client = ClientId(1 + random.below(2));
            let watermark = OperationNumber(n.saturating_sub(random.below(60)));
            // A client without remembered operations has nothing to retire.
            if !of.knows(client) {
                return Mutation::UnitWrite(unit_write(random, n, unit, model.objects[&DATA].g));
            }
            Mutation::Retire {
                partition: Q,
                object,
                g: of.g,
                settled_below: Version::ZERO,
                client,
                watermark,
            }
        }
        _ => {
            // Mostly the next generation, and mostly joining, so that there is progress to keep.
            let g = Generation(of.g.0 + 1 + u32::from(random.once_in(4)));
            let own = ColumnMask::EMPTY.with(attributes().column);
            let joining = if random.once_in(3) { ColumnMask::EMPTY } else { own };
            Mutation::Fence { partition: Q, object, g, set: ColumnMask(n), joining }
        }
    }
}

fn stamp(g: Generation, n: u64) -> Version {
    Version { g, lease: LEASE, n }
}

/// A range of a unit, mostly small, and its contents.
fn change(random: &mut Random, n: u64) -> (u32, u32, Body) {
    let bound = [50, 4000, 9000][usize::try_from(random.below(3)).expect("small")];
    let from = random.below(u64::from(UNIT) / 2);
    let (from, to) = (from, from + 1 + random.below(bound));
    let from = u32::try_from(from).expect("small");
    let to = u32::try_from(to).expect("small");
    let bytes = pattern(n, usize::try_from(to - from).expect("small"));
    (from, to, if random.once_in(8) { Body::Hole } else { body(from, &bytes) })
}

/// A unit write of a new operation, or of one that may exist. The operation's number determines its contents.
fn unit_write(random: &mut Random, n: u64, unit: u64, g: Generation) -> UnitWrite {
    let operation = if random.once_in(5) { n - random.below(20).min(n) } else { n };
    let (from, to, body) = change(&mut Random::new(operation), operation);
    UnitWrite {
        partition: Q,
        object: DATA,
        unit,
        from,
        to,
        client: ClientId(1 + random.below(2)),
        operation: OperationNumber(operation),
        watermark: if random.once_in(8) {
            OperationNumber(n.saturating_sub(random.below(50)))
        } else {
            OperationNumber::NONE
        },
        g,
        lease: LEASE,
        stamp: random.once_in(3).then(|| stamp(g, n)),
        settled_below: Version::ZERO,
        body,
    }
}

fn delta(random: &mut Random, n: u64, unit: u64, object: &Object) -> Delta {
    let data = u8::try_from(random.below(3)).expect("small");
    let (from, to, body) = change(random, n);
    let tip = object.units.get(&unit).map_or(Version::ZERO, |unit| unit.chain_tip(data));
    let new = stamp(object.g, n);
    let versions = match random.below(12) {
        // The newest delta of the chain again; one that skips some versions.
        0 if !tip.is_zero() => (Version::ZERO, tip),
        1 => (version(LEASE.0, n - 1), new),
        _ => (tip, new),
    };
    Delta {
        partition: Q,
        object: PARITY,
        unit,
        from,
        to,
        column: Column(data),
        data,
        from_version: versions.0,
        to_version: versions.1,
        end: end_of(versions.1),
        client: ClientId(1 + random.below(2)),
        operation: OperationNumber(n),
        watermark: if random.once_in(8) {
            OperationNumber(n.saturating_sub(random.below(50)))
        } else {
            OperationNumber::NONE
        },
        g: object.g,
        settled_to: [versions.1, versions.0, Version::ZERO, versions.1]
            [usize::try_from(random.below(4)).expect("small")],
        body,
    }
}

fn stripe(random: &mut Random, n: u64, unit: u64, id: ObjectId, object: &Object) -> Write {
    let (from, to, body) = change(random, n);
    let version = stamp(object.g, n);
    let mut write = Write { partition: Q, body, g: object.g, ..write(id.0, unit, from, to, version) };
    if id == PARITY {
        let touched = 1 + random.below(7);
        let tip = |data: u8| object.units.get(&unit).map_or(Version::ZERO, |unit| unit.chain_tip(data));
        let cover = (0..3_u8).map(|data| if touched >> data & 1 == 1 { version } else { tip(data) });
        write.columns = ColumnMask(touched);
        write = counting(write, WriteKind::StripeParity, cover.collect());
    } else if random.once_in(4) {
        write.standing = Standing::Whole;
    }
    write
}

/// The base that a rebuild would install, named like a cut.
fn install(unit: u64, g: Generation, parity: &Unit) -> Mutation {
    let (cover, bytes) = parity.cut(false);
    let version = cover.into_iter().fold(parity.version, Version::max);
    let standing = Standing::Installed;
    let written = Write { body: body(0, &bytes), ..write(PARITY.0, unit, 0, UNIT, version) };
    let written = Write { partition: Q, standing, g, ..written };
    Mutation::Write(counting(written, WriteKind::ParityBase, cover.to_vec()))
}

fn verdict(random: &mut Random, id: ObjectId, number: u64, object: &Object) -> Mutation {
    let mut verdict =
        UnitVerdict { unit: number, forward: Vec::new(), back: Vec::new(), cut_offs: Vec::new() };
    if let Some(unit) = object.units.get(&number) {
        let some = usize::try_from(random.below(4)).expect("small");
        let stamp = unit.pending.as_ref().map(|pending| pending.version);
        let stamp = stamp.or(unit.owed.iter().rev().nth(some).map(|owed| owed.version));
        let decided = if random.once_in(2) { &mut verdict.forward } else { &mut verdict.back };
        decided.extend(stamp);
        if id == PARITY && stamp.is_none() {
            let data = random.below(3);
            let settled = unit.cut(false).0[usize::try_from(data).expect("small")];
            verdict.cut_offs.push((Column(u8::try_from(data).expect("small")), settled));
        }
    }
    Mutation::Verdict { partition: Q, object: id, g: object.g, units: vec![verdict] }
}

/// The differences between the store and the model, empty if there are none, and the number of units with
/// folds.
pub(super) fn differences(store: &Store, model: &Model) -> Result<(String, u64), Error> {
    let mut out = String::new();
    let mut folded = 0;
    for (&id, object) in &model.objects {
        let unsettled: Vec<u64> =
            object.units.iter().filter(|(_, unit)| unit.is_unsettled()).map(|(&unit, _)| unit).collect();
        let found = store.unsettled(Q, id)?;
        let g = store.object(Q, id)?.g;
        if g != object.g {
            out += &format!("object {id}: generation {g}, not {}\n", object.g);
        }
        for unit in 0..UNITS + READY_MAX {
            if store.is_ready(Q, id, unit)? != object.is_ready(unit) {
                out += &format!("object {id}: unit {unit} is ready, or not\n");
            }
        }
        if found != unsettled {
            out += &format!("object {id}: unsettled {found:?}, not {unsettled:?}\n");
        }
        for (&number, unit) in &object.units {
            let different = if id == DATA {
                data_differs(store, number, unit)?
            } else {
                let chains = store.versions(Q, PARITY, number..number + 1)?;
                folded += u64::from(chains.iter().any(|chain| chain.tips.len() < unit.chains()));
                parity_differs(store, number, unit)?
            };
            if let Some(what) = different {
                out += &format!("object {id}, unit {number}: {what}\n");
            }
        }
    }
    Ok((out, folded))
}

fn data_differs(store: &Store, number: u64, unit: &Unit) -> Result<Option<String>, Error> {
    let chains = store.versions(Q, DATA, number..number + 1)?;
    let entries = chains.first().map_or(&[][..], |chain| &chain.entries);
    let found: Vec<_> = entries.iter().map(|e| (e.version, e.settled, e.owed)).collect();
    let versions = unit.versions();
    let owed = unit.owed.len();
    let expected: Vec<_> = versions.iter().map(|&(version, settled, _)| (version, settled)).collect();
    let expected: Vec<_> = expected.into_iter().map(|(v, s)| (v, s, !s && owed > 0)).collect();
    let doubt = chains.first().is_some_and(|chain| chain.in_doubt);
    if found != expected || doubt != unit.is_in_doubt() {
        return Ok(Some(format!("{found:?}, doubt {doubt}, not {expected:?}")));
    }
    for (version, _, bytes) in &versions {
        let view = store.read(Q, DATA, number, 0..UNIT, Want::Exactly(*version))?;
        if bytes_of(&view, UNIT)? != *bytes {
            return Ok(Some(format!("the bytes of {version}")));
        }
    }
    for want in [Want::Newest, Want::Settled] {
        let shown = unit.shown(want);
        let read = store.read(Q, DATA, number, 0..UNIT, want);
        match read {
            Err(Error::InDoubt { .. }) if doubt => {}
            read => {
                if doubt || bytes_of(&read?, UNIT)? != shown {
                    return Ok(Some(format!("{want:?}")));
                }
            }
        }
    }
    Ok(None)
}

fn parity_differs(store: &Store, number: u64, unit: &Unit) -> Result<Option<String>, Error> {
    for (want, newest) in [(Want::Newest, true), (Want::Settled, false)] {
        let view = store.read(Q, PARITY, number, 0..UNIT, want)?;
        let (cover, bytes) = unit.cut(newest);
        let mut found = view.cover.clone();
        found.resize(K, Version::ZERO);
        if found != cover || view.pending != (newest && unit.pending.is_some()) {
            return Ok(Some(format!("{want:?}: cover {found:?}, not {cover:?}")));
        }
        if !view.ends.iter().eq(view.cover.iter().map(|&version| end_of(version)).collect::<Vec<_>>().iter())
        {
            return Ok(Some(format!("{want:?}: ends {:?} of {:?}", view.ends, view.cover)));
        }
        if bytes_of(&view, UNIT)? != bytes {
            return Ok(Some(format!("{want:?}: the bytes for {cover:?}")));
        }
        // Read exactly these versions by name. While a stripe write is pending a cut may be on either side of
        // it.
        if newest && bytes_of(&store.read_cover(Q, PARITY, number, 0..UNIT, &cover)?, UNIT)? != bytes {
            return Ok(Some(format!("the bytes for exactly {cover:?}")));
        }
    }
    store.verify_unit(Q, PARITY, number)?;
    Ok(None)
}

/// Checks that every unit reads as it should, as damaged, or in doubt; returns the number of damaged ones.
pub(super) fn compare_damaged(store: &Store, model: &Model) -> u64 {
    let mut damaged = 0;
    for (&id, object) in &model.objects {
        for (&number, unit) in &object.units {
            let read =
                store.read(Q, id, number, 0..UNIT, Want::Newest).and_then(|view| bytes_of(&view, UNIT));
            let expected = if id == DATA { unit.shown(Want::Newest) } else { unit.cut(true).1 };
            match read {
                Err(Error::Damaged { .. } | Error::Checksum { .. }) => damaged += 1,
                // If the settlement of owed versions is lost, these are in doubt again.
                Err(Error::InDoubt { .. }) if id == DATA => {}
                Ok(found) => assert!(found == expected, "object {id}, unit {number}"),
                Err(error) => panic!("object {id}, unit {number}: {error}"),
            }
        }
    }
    damaged
}
