//! Everything that is visible of a store from outside, as text, so that two stores can be compared.

use braid_layout::{ObjectId, PartitionId};
use braid_store::*;

use crate::common::read_stored;

/// The units that are observed.
const UNITS: u64 = 64;

/// The visible contents of a store, one line per item.
pub(crate) fn observe(store: &Store) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for partition in store.partitions() {
        lines.extend(observe_partition(store, partition.partition)?);
    }
    lines.push(format!("live {}", store.stat()?.live));
    Ok(lines)
}

/// The visible contents of one partition, one line per item.
pub(crate) fn observe_partition(store: &Store, partition: PartitionId) -> Result<Vec<String>, Error> {
    let mut lines = vec![format!("{:?}", store.partition(partition)?)];
    for object in store.objects(partition, None, 1000)? {
        observe_object(store, partition, object, &mut lines)?;
    }
    Ok(lines)
}

fn observe_object(
    store: &Store,
    partition: PartitionId,
    object: ObjectId,
    lines: &mut Vec<String>,
) -> Result<(), Error> {
    let mut attributes = store.object(partition, object)?;
    // It depends on how many records came before.
    attributes.base.iter_mut().for_each(|base| base.birth = 0);
    let usage = store.usage(partition, object)?;
    let unsettled = store.unsettled(partition, object)?;
    lines.push(format!("object {object}: {attributes:?} {usage:?} unsettled {unsettled:?}"));
    for client in store.operations(partition, object)? {
        lines.push(format!("object {object}: done {client:?}"));
    }
    if attributes.joining.contains(attributes.column) {
        let ready: Vec<u64> = (0..UNITS)
            .filter(|&unit| store.is_ready(partition, object, unit).is_ok_and(|ready| ready))
            .collect();
        lines.push(format!("object {object}: ready {ready:?}"));
    }
    for mut chain in store.versions(partition, object, 0..UNITS)? {
        let unit = chain.unit;
        // Owed versions are in doubt after every opening. Such a unit is read by version.
        chain.in_doubt = false;
        let named = chain.entries.iter().map(|entry| Want::Exactly(entry.version));
        let wants: Vec<Want> = if chain.entries.iter().any(|entry| entry.owed) {
            named.collect()
        } else {
            vec![Want::Newest, Want::Settled]
        };
        lines.push(format!("object {object}: {chain:?}"));
        for owed in chain.entries.iter().filter(|entry| entry.owed) {
            let OwedDelta { from_version, from, to, client, operation, crcs, bytes, .. } =
                store.delta(partition, object, unit, owed.version)?;
            let version = owed.version;
            let crc = crc32c(&bytes);
            lines.push(format!(
                "object {object}: unit {unit} owes {version} from {from_version}: {from}..{to} {client} {operation} {crcs:?} {crc:x}"
            ));
        }
        store.verify_unit(partition, object, unit)?;
        for want in wants {
            let view = store.read(partition, object, unit, 0..attributes.unit_bytes, want)?;
            let bytes = read_stored(&view)?;
            let extents = view.extents();
            let cover = &view.cover;
            let crc = crc32c(&bytes);
            lines.push(format!("object {object}: unit {unit} {want:?} {extents:?} {cover:?} {crc:x}"));
        }
    }
    Ok(())
}

/// The differences between two stores; empty if there are none.
pub(crate) fn differences(expected: &[String], found: &[String]) -> String {
    let missing = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("- {line}\n"));
    let new = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("+ {line}\n"));
    missing.chain(new).collect()
}
