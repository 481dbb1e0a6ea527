//! Everything that a store reports, each item under its own key, to tell exactly what damage changes. Bytes
//! are reported as their CRC32C, by another implementation than the store's.

use std::collections::BTreeMap;

use braid_layout::{ObjectId, PartitionId, Version};
use braid_store::*;

use crate::common::*;

/// A store's report. The keys are `PARTITION`, `PARTITION/OBJECT` or `PARTITION/OBJECT/UNIT`, and the kind of
/// item.
pub(super) type Told = BTreeMap<String, String>;

const PARTITIONS: [u64; 3] = [7, 8, 9];
/// The objects that are queried in the tests' partition, whether they exist or not.
const OBJECTS: std::ops::RangeInclusive<u64> = 1..=7;
/// The units that are queried.
const UNITS: std::ops::Range<u64> = 0..10;

pub(super) fn told(store: &Store) -> Told {
    let mut told = Told::new();
    let stat = store.stat().expect("figures");
    told.insert("store".to_owned(), format!("{} objects, {} live bytes", stat.objects, stat.live));
    for partition in PARTITIONS.map(PartitionId) {
        let key = partition.0.to_string();
        let Some(state) = put(&mut told, &key, store.partition(partition), |state| {
            let quota = state.quota_bytes.map_or("none".to_owned(), |quota| quota.to_string());
            let epoch = state.key_epoch;
            let used = state.used;
            let reserved = state.reserved;
            format!(
                "quota {quota}, key epoch {epoch}, used {used}, reserved {reserved}, {} objects",
                state.objects
            )
        }) else {
            continue;
        };
        assert_eq!(state.partition, partition);
        for object in OBJECTS.map(ObjectId).filter(|_| partition == P) {
            tell_object(&mut told, store, partition, object);
        }
    }
    told
}

/// Record an answer; returns its value unless it was refused.
fn put<T>(
    told: &mut Told,
    key: &str,
    answer: Result<T, Error>,
    text: impl FnOnce(&T) -> String,
) -> Option<T> {
    let line = answer.as_ref().map_or_else(|error| format!("refused: {error}"), text);
    assert_eq!(told.insert(key.to_owned(), line), None, "{key} is told twice");
    answer.ok()
}

fn tell_object(told: &mut Told, store: &Store, partition: PartitionId, object: ObjectId) {
    let key = format!("{partition}/{object}");
    let attributes = put(told, &key, store.object(partition, object), |attributes| {
        let Attributes { unit_bytes, column, g, set, joining, .. } = attributes;
        let Attributes { created_ms, modified_ms, reserve_bytes, cluster, map, opaque, .. } = attributes;
        format!(
            "unit {unit_bytes}, column {}, g {g}, set {:x}, joining {:x}, made {created_ms}, \
             changed {modified_ms}, reserve {reserve_bytes}, cluster {cluster}, map {}, opaque {}",
            column.0,
            set.0,
            joining.0,
            String::from_utf8_lossy(map),
            String::from_utf8_lossy(opaque)
        )
    });
    if attributes.is_none() {
        return;
    }
    put(told, &format!("{key} holds"), store.usage(partition, object), |usage| {
        format!("{} bytes, {} units, end {:?}", usage.bytes, usage.units, usage.end)
    });
    put(told, &format!("{key} unsettled"), store.unsettled(partition, object), |units| format!("{units:?}"));
    let ready: Vec<u64> =
        UNITS.filter(|&unit| store.is_ready(partition, object, unit).is_ok_and(|ready| ready)).collect();
    told.insert(format!("{key} ready"), format!("{ready:?}"));
    for chain in store.versions(partition, object, UNITS).unwrap_or_default() {
        let key = format!("{key}/{}", chain.unit);
        told.insert(format!("{key} chain"), chain_text(&chain));
        put(told, &format!("{key} verified"), store.verify_unit(partition, object, chain.unit), |bytes| {
            format!("{bytes} bytes")
        });
        let named =
            chain.entries.iter().map(|entry| (entry.version.to_string(), Want::Exactly(entry.version)));
        let wants = [("newest".to_owned(), Want::Newest), ("settled".to_owned(), Want::Settled)];
        for (name, want) in wants.into_iter().chain(named) {
            let view = store.read(partition, object, chain.unit, 0..UNIT, want);
            put(told, &format!("{key} {name}"), view.and_then(view_text), Clone::clone);
        }
        for entry in chain.entries.iter().filter(|entry| entry.owed) {
            let delta = store.delta(partition, object, chain.unit, entry.version);
            put(told, &format!("{key} {} delta", entry.version), delta, |delta| {
                format!("from {}, {}..{}, {}", delta.from_version, delta.from, delta.to, sum(&delta.bytes))
            });
        }
    }
}

fn sum(bytes: &[u8]) -> String {
    format!("bytes {:08x}", crc32c::crc32c(bytes))
}

/// The result of a read, every block verified.
fn view_text(view: View) -> Result<String, Error> {
    let bytes = bytes_of(&view, UNIT)?;
    let stored: Vec<String> = view
        .extents()
        .iter()
        .filter_map(|extent| match extent {
            ViewExtent::Stored { from, to } => Some(format!("{from}..{to}")),
            ViewExtent::Hole { .. } => None,
        })
        .collect();
    let pending = if view.pending { " pending" } else { "" };
    Ok(format!(
        "{}{pending} {}{}, stored [{}]",
        view.version,
        sum(&bytes),
        cover_text(&view.cover, &view.ends),
        stored.join(" ")
    ))
}

fn cover_text(cover: &[Version], ends: &[u32]) -> String {
    let ends = if ends.is_empty() { String::new() } else { format!(", ends {ends:?}") };
    let versions: Vec<String> = cover.iter().map(Version::to_string).collect();
    if cover.is_empty() { ends } else { format!(", cover [{}]{ends}", versions.join(" ")) }
}

fn chain_text(chain: &Chain) -> String {
    let entries = chain.entries.iter().map(|entry| {
        let standing = if entry.owed {
            "owed"
        } else if entry.settled {
            "settled"
        } else {
            "pending"
        };
        let kind = entry.kind;
        let columns = entry.columns.0;
        let cover = cover_text(&entry.cover, &entry.ends);
        format!("{} {standing} {kind:?} columns {columns:x}{cover}", entry.version)
    });
    let tips =
        chain.tips.iter().map(|tip| format!("column {} to {}, end {}", tip.column.0, tip.version, tip.end));
    let doubt = chain.in_doubt.then(|| "in doubt".to_owned());
    let lost = chain.lost.then(|| "lost".to_owned());
    entries.chain(tips).chain(doubt).chain(lost).collect::<Vec<_>>().join("; ")
}

/// One line per item.
pub(super) fn text(told: &Told) -> String {
    told.iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
}

/// The items in `found` that differ from `healthy`. A missing item is listed only if no item above it
/// explains why.
pub(super) fn differences(healthy: &Told, found: &Told) -> String {
    let other = found.iter().filter(|(key, value)| healthy.get(*key) != Some(*value));
    let other: BTreeMap<&String, String> =
        other.map(|(key, value)| (key, format!("{key}: {value}\n"))).collect();
    let explained = |key: &str| {
        let above =
            |told: &&String| key.starts_with(&format!("{told}/")) || key.starts_with(&format!("{told} "));
        other.keys().any(above)
    };
    let silent = healthy.keys().filter(|key| !found.contains_key(*key) && !explained(key));
    let mut lines: BTreeMap<&String, String> =
        silent.map(|key| (key, format!("{key}: not told\n"))).collect();
    lines.extend(other);
    lines.into_values().collect()
}
