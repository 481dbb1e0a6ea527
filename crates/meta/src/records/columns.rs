//! The components placed on each drive: the table `c`, in chunks of 256 file numbers ([`chunk`]).
//!
//! The table is in the order of the places: by file, segment and column within a drive. A chunk that holds
//! nothing has no row.

use braid_layout::{DriveId, FileId};

use crate::records::kv::KvError;
use crate::records::schema::chunk::{self, Spot};
use crate::records::schema::{ComponentPlace, SCHEMA_VERSION, damaged, fields, key, table};
use crate::records::tx::Tx;

/// Number of chunks read at a time.
const CHUNKS: usize = 16;

/// Returns true if the component is placed on its drive.
pub fn has(tx: &Tx, place: ComponentPlace) -> Result<bool, KvError> {
    let Some(KeyedChunk { spots, .. }) = find(tx, place.drive, place.file)? else { return Ok(false) };
    Ok(spots.binary_search(&spot(place)).is_ok())
}

/// Returns true if the drive has any component of the file.
pub fn has_any(tx: &Tx, drive: DriveId, file: FileId) -> Result<bool, KvError> {
    let Some(KeyedChunk { spots, .. }) = find(tx, drive, file)? else { return Ok(false) };
    let low = chunk::low(file);
    let at = spots.partition_point(|spot| spot.low < low);
    Ok(spots.get(at).is_some_and(|spot| spot.low == low))
}

/// Adds a component to its drive. Returns true if it was not there yet.
pub fn add(tx: &mut Tx, place: ComponentPlace) -> Result<bool, KvError> {
    let KeyedChunk { row, mut spots } = match find(tx, place.drive, place.file)? {
        Some(found) => found,
        None => {
            let row = key::columns(tx.seat(place.drive)?, chunk::of_file(place.file));
            KeyedChunk { row, spots: Vec::new() }
        }
    };
    let spot = spot(place);
    let Err(at) = spots.binary_search(&spot) else { return Ok(false) };
    spots.insert(at, spot);
    set(tx, row, &spots);
    Ok(true)
}

/// Removes a component from its drive. Returns true if it was there.
pub fn remove(tx: &mut Tx, place: ComponentPlace) -> Result<bool, KvError> {
    let Some(KeyedChunk { row, mut spots }) = find(tx, place.drive, place.file)? else { return Ok(false) };
    let Ok(at) = spots.binary_search(&spot(place)) else { return Ok(false) };
    spots.remove(at);
    set(tx, row, &spots);
    Ok(true)
}

/// The first `limit` components on the drive after `after`; `None`: from the first component.
pub fn on_drive(
    tx: &Tx,
    drive: DriveId,
    after: Option<ComponentPlace>,
    limit: usize,
) -> Result<Vec<ComponentPlace>, KvError> {
    let Some(seat) = tx.seat_of(drive)? else { return Ok(Vec::new()) };
    let (first, to) = key::columns_of(seat);
    // The chunk of `after` may hold more components behind it.
    let mut from = after.map_or(first, |place| key::columns(seat, chunk::of_file(place.file)));
    let mut places = Vec::new();
    loop {
        let rows = tx.scan(&from, &to, CHUNKS)?;
        for (row, value) in &rows {
            let number = key::number(row, 5);
            let all = decode(row, value)?.into_iter().map(|spot| place(drive, number, spot));
            places.extend(all.filter(|place| after.is_none_or(|after| *place > after)));
        }
        match rows.last() {
            Some((last, _)) if rows.len() == CHUNKS && places.len() < limit => {
                from = [last.as_slice(), &[0]].concat();
            }
            _ => break,
        }
    }
    places.truncate(limit);
    Ok(places)
}

/// All components on all drives, for checks.
pub fn all(tx: &Tx) -> Result<Vec<ComponentPlace>, KvError> {
    let (from, to) = key::all(table::COLUMN);
    let mut places = Vec::new();
    for (row, value) in tx.scan(&from, &to, usize::MAX)? {
        let drive = tx.drive_on(key::seat_in(&row))?;
        let number = key::number(&row, 5);
        let spots = decode(&row, &value)?;
        if spots.is_empty() {
            return Err(damaged(&row, "it holds nothing"));
        }
        places.extend(spots.into_iter().map(|spot| place(drive, number, spot)));
    }
    Ok(places)
}

/// A chunk with its key.
struct KeyedChunk {
    row: Vec<u8>,
    spots: Vec<Spot>,
}

/// The chunk of the file on the drive; `None` if the drive has no seat.
fn find(tx: &Tx, drive: DriveId, file: FileId) -> Result<Option<KeyedChunk>, KvError> {
    let Some(seat) = tx.seat_of(drive)? else { return Ok(None) };
    let row = key::columns(seat, chunk::of_file(file));
    let spots = tx.get(&row)?.map(|value| decode(&row, &value)).transpose()?;
    Ok(Some(KeyedChunk { row, spots: spots.unwrap_or_default() }))
}

fn set(tx: &mut Tx, row: Vec<u8>, spots: &[Spot]) {
    if spots.is_empty() {
        tx.delete(row);
        return;
    }
    let mut value = vec![SCHEMA_VERSION];
    value.append(&mut chunk::encode(spots));
    tx.put(row, value);
}

fn decode(row: &[u8], value: &[u8]) -> Result<Vec<Spot>, KvError> {
    chunk::decode(fields(row, value)?).map_err(|error| damaged(row, error))
}

fn spot(place: ComponentPlace) -> Spot {
    Spot { low: chunk::low(place.file), segment: place.segment, column: place.column }
}

fn place(drive: DriveId, number: u64, spot: Spot) -> ComponentPlace {
    let Spot { low, segment, column } = spot;
    ComponentPlace { drive, file: chunk::file(number, low), segment, column }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use braid_layout::Column;
    use proptest::prelude::*;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;

    fn places() -> impl Strategy<Value = ComponentPlace> {
        let number = prop_oneof![0u64..600, (1u64 << 40)..(1 << 40) + 600, Just(u64::MAX)];
        (1u128..4, number, 0u32..3, 0u8..4).prop_map(|(drive, file, segment, column)| ComponentPlace {
            drive: DriveId(drive),
            file: FileId(file),
            segment,
            column: Column(column),
        })
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_added_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), places()), 1..120),
            limit in 1usize..40,
        ) {
            let db = Db::new(Arc::new(MemoryKv::new()));
            let mut model = BTreeSet::new();
            for some in steps.chunks(7) {
                let some = some.to_vec();
                let mut expected = model.clone();
                model = db.write(move |tx| {
                    for (is_added, place) in some {
                        if is_added {
                            assert_eq!(add(tx, place)?, expected.insert(place));
                        } else {
                            assert_eq!(remove(tx, place)?, expected.remove(&place));
                        }
                        assert_eq!(has(tx, place)?, expected.contains(&place));
                    }
                    Ok(expected)
                }).unwrap();
            }
            db.read(|tx| {
                assert_eq!(all(tx)?.into_iter().collect::<BTreeSet<_>>(), model);
                for drive in (1..4).map(DriveId) {
                    let of_drive: Vec<_> = model.iter().filter(|p| p.drive == drive).copied().collect();
                    let mut found = Vec::new();
                    let mut after = None;
                    loop {
                        let page = on_drive(tx, drive, after, limit)?;
                        assert!(page.len() <= limit);
                        let Some(last) = page.last() else { break };
                        after = Some(*last);
                        found.extend(page);
                    }
                    assert_eq!(found, of_drive);
                    for place in &of_drive {
                        assert!(has_any(tx, drive, place.file)?);
                    }
                }
                Ok(())
            }).unwrap();
        }
    }

    #[test]
    fn an_empty_chunk_has_no_row() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let place = ComponentPlace { drive: DriveId(1), file: FileId(5), segment: 0, column: Column(1) };
        let rows = db
            .write(move |tx| {
                add(tx, place)?;
                remove(tx, place)?;
                let (from, to) = key::all(table::COLUMN);
                assert!(!has_any(tx, place.drive, place.file)?);
                Ok(tx.scan(&from, &to, 1)?.len())
            })
            .unwrap();
        assert_eq!(rows, 0);
    }
}
