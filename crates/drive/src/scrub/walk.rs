//! Finds the units of a pass in order and verifies them, a bounded number at a time.

use braid_layout::{FileId, ObjectId, PartitionId};
use braid_store::format::page::Key;
use braid_store::{Error, Store};
use braid_wire::Wire;
use braid_wire::data::{ColumnMap, DamagedUnit, LostKeys, SCRUB_DAMAGED_MAX, WrongFile};

use super::Position;

/// Number of bytes after which a step ends: small units are verified together.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// The most units of one step.
const STEP_UNITS: usize = 256;
/// The most objects of one step: most objects may have nothing to verify.
const STEP_OBJECTS: usize = 256;
/// The most bytes of the text that describes a damaged unit.
const WHAT_BYTES_MAX: usize = 200;

/// Result of one step of verification.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    /// Units, damaged ones included.
    pub(crate) units: u64,
    /// Units that do not match their checksums, or cannot be read.
    pub(crate) damaged: Vec<DamagedUnit>,
    /// Wrong files in use: those that are listed, and how many there are. `None`: this step did not check
    /// files.
    pub(crate) files: Option<(Vec<WrongFile>, u64)>,
    /// Position at which the next step begins; `None`: this was the last one.
    pub(crate) next: Option<Position>,
}

/// Verifies units from `from` on until a step is full. The first and the last step of a pass also check all
/// files in use. An error ends the scrub: the store no longer serves.
pub(crate) fn step(store: &Store, from: Position) -> Result<Step, Error> {
    let mut step = units(store, from)?;
    if from == Position::default() || step.next.is_none() {
        let (files, count) = store.wrong_files(SCRUB_DAMAGED_MAX);
        let files = files.into_iter().map(|file| WrongFile { name: file.name, what: file.what }).collect();
        step.files = Some((files, count));
    }
    Ok(step)
}

fn units(store: &Store, from: Position) -> Result<Step, Error> {
    let mut step = Step::default();
    let mut at = from;
    for _ in 0..STEP_OBJECTS {
        let Some((partition, object)) = object_from(store, at) else { return Ok(step) };
        if (partition, object) != (at.partition, at.object) {
            at = Position { partition, object, unit: 0 };
        }
        if let Some(unit) = verify_object(store, at, &mut step)? {
            step.next = Some(Position { unit, ..at });
            return Ok(step);
        }
        // Object numbers stay below the highest, so no object is skipped.
        at = Position { object: ObjectId(object.0.saturating_add(1)), unit: 0, ..at };
    }
    step.next = Some(at);
    Ok(step)
}

/// Ranges of keys that the store has lost as a whole, as far as they are listed.
pub(crate) fn lost(store: &Store) -> Vec<LostKeys> {
    let told = |keys: braid_store::LostKeys| {
        let from = key(keys.from);
        let to = key(keys.to);
        LostKeys {
            partition: from.0.unwrap_or(PartitionId(u64::MAX)),
            object: from.1,
            to_partition: to.0,
            to_object: to.1,
            what: keys.what,
        }
    };
    store.lost(SCRUB_DAMAGED_MAX).into_iter().map(told).collect()
}

/// A key's partition (`None`: the key is the end of all), and its object, if it names one.
fn key(key: Key) -> (Option<PartitionId>, Option<ObjectId>) {
    match key {
        Key::At(partition, object) => (Some(partition), object),
        Key::End => (None, None),
    }
}

/// The first object at or after a position.
fn object_from(store: &Store, at: Position) -> Option<(PartitionId, ObjectId)> {
    let partitions = store.partitions();
    let partitions = partitions.iter().map(|state| state.partition).filter(|&known| known >= at.partition);
    for partition in partitions {
        let after = match at.object.0.checked_sub(1) {
            Some(before) if partition == at.partition => Some(ObjectId(before)),
            _ => None,
        };
        // A partition that was removed meanwhile has none.
        if let Some(&object) = store.objects(partition, after, 1).unwrap_or_default().first() {
            return Some((partition, object));
        }
    }
    None
}

/// Verifies an object's units from `at.unit` on. Returns the first unit left for the next step.
fn verify_object(store: &Store, at: Position, step: &mut Step) -> Result<Option<u64>, Error> {
    let partition = at.partition;
    let object = at.object;
    let room = STEP_UNITS.saturating_sub(usize::try_from(step.units).unwrap_or(STEP_UNITS)).max(1);
    let units = match store.units(partition, object, at.unit, room + 1) {
        Ok(units) => units,
        Err(error) => {
            if at.unit == 0 {
                step.units += u64::from(is_damage(&error)?);
                step.damaged.extend(told(store, (partition, object, None), &error)?);
            }
            return Ok(None);
        }
    };
    for (index, &unit) in units.iter().enumerate() {
        if index == room || step.bytes >= STEP_BYTES {
            return Ok(Some(unit));
        }
        step.units += 1;
        match store.verify_unit(partition, object, unit) {
            Ok(bytes) => step.bytes = step.bytes.saturating_add(bytes),
            Err(error) => {
                // The number of bytes that were read is not known: count the whole unit.
                let unit_bytes = store.object(partition, object).map_or(0, |object| object.unit_bytes);
                step.bytes = step.bytes.saturating_add(u64::from(unit_bytes));
                step.damaged.extend(told(store, (partition, object, Some(unit)), &error)?);
            }
        }
    }
    Ok(None)
}

/// Returns true if the error means damage, false if the data was removed meanwhile.
fn is_damage(error: &Error) -> Result<bool, Error> {
    match error {
        Error::NoObject(..) | Error::NoPartition(_) => Ok(false),
        Error::Closed => Err(error.clone()),
        _ => Ok(true),
    }
}

fn told(
    store: &Store,
    (partition, object, unit): super::DamageKey,
    error: &Error,
) -> Result<Option<DamagedUnit>, Error> {
    if !is_damage(error)? {
        return Ok(None);
    }
    let map = store.object(partition, object).ok().and_then(|object| ColumnMap::from_bytes(&object.map).ok());
    let mut what = error.to_string();
    what.truncate(what.floor_char_boundary(WHAT_BYTES_MAX));
    Ok(Some(DamagedUnit { partition, object, unit, file: map.map_or(FileId(0), |map| map.file), what }))
}
