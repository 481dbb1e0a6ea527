//! A drive that returned with less than it had acknowledged: every column on it goes out of its file's set
//! (PROTOCOL R9, section 7). Then the drive is told so, object by object, gets its lease, and is caught up
//! like any drive that was away.
//!
//! The drive has no lease meanwhile, so it serves nothing. Columns that are out stay out over a restart, and
//! the drive's record says that there are more to take out.
//!
//! The files' records are changed without their locks, in batches. A procedure in progress on one of them
//! sees at its end that the generation is not the one that it fenced, and leaves the file marked as unfenced.
//! If fewer than `k` ready columns are left, the file has lost bytes: its columns go out all the same, and
//! opening it reports the missing drives.

use std::sync::Arc;

use braid_layout::{DriveId, FileId};
use braid_meta::records::inodes::{self, set_stale};
use braid_meta::records::schema::{ComponentPlace, DriveRecord, StaleRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::records::{columns, successor_rows};
use braid_wire::Refusal;

use crate::core::Core;

/// Maximum number of columns put out by one transaction.
const COLUMNS_PER_BATCH: usize = 512;

/// Takes every column on the drive out of its file's set. Then the drive is no longer behind, but stale.
pub(crate) async fn put_out(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    let mut after = None;
    let mut count = 0;
    loop {
        let unfinished = |core: &Core, (_, changed): &(_, Changed)| {
            core.unfinished().extend(changed.iter().filter(|(_, held)| !held).map(|(file, _)| *file));
        };
        let put_out = move |_: &Core, tx: &mut Tx| put_out_some(tx, drive, after);
        let (last, changed) = core.write_then(put_out, unfinished).await?;
        count += changed.len();
        match last {
            Some(_) => after = last,
            None => break,
        }
    }
    let end = move |_: &Core, tx: &mut Tx| {
        let Some(mut record) = tx.record::<DriveRecord>(&key::drive(drive))? else { return Ok(None) };
        (record.behind, record.log) = (false, 0);
        tx.set(key::drive(drive), &record);
        tx.delete(key::receipt(drive));
        Ok(Some(record))
    };
    let ended = move |core: &Core, record: &Option<DriveRecord>| {
        let Some(record) = record else { return };
        let mut table = core.drives();
        table.set_record(record.clone());
        table.set_untold(drive);
        drop(table);
        core.admissions().handle_caught(drive);
    };
    let record = core.write_then(end, ended).await?;
    if let Some(record) = record {
        tracing::warn!(
            name = %record.name, columns = count,
            "the drive returned with less than it had acknowledged: all of its columns are stale until they are rebuilt"
        );
    }
    core.wake.notify_waiters();
    Ok(())
}

/// Files whose records were changed, each with true if the file has a lease.
type Changed = Vec<(FileId, bool)>;

/// Takes some columns out. Returns the last, after which to continue, or `None` if there are no more.
fn put_out_some(
    tx: &mut Tx,
    drive: DriveId,
    after: Option<ComponentPlace>,
) -> Result<(Option<ComponentPlace>, Changed), Refusal> {
    let places = columns::on_drive(tx, drive, after, COLUMNS_PER_BATCH)?;
    let mut changed = Vec::new();
    for &place in &places {
        if let Some(held) = put_out_one(tx, place)? {
            changed.push((place.file, held));
        }
    }
    let last = places.last().copied().filter(|_| places.len() == COLUMNS_PER_BATCH);
    Ok((last, changed))
}

/// Takes one column out. `Some` if its file's generation rises, with true if the file has a lease.
fn put_out_one(tx: &mut Tx, place: ComponentPlace) -> Result<Option<bool>, Refusal> {
    let Some(mut inode) = inodes::find(tx, place.file)? else { return Ok(None) };
    let Some(segment) = inode.segment_mut(place.segment) else { return Ok(None) };
    if segment.drive(place.column) != place.drive {
        // A successor: its drive frees what it holds of it before it serves.
        successor_rows::give_up(tx, place, &inode)?;
        inode.g = inode.g.next().ok_or_else(|| braid_meta::tree::files::worn_out(place.file))?;
        inode.unfenced = true;
        let held = inode.held;
        inodes::save(tx, place.file, &inode)?;
        return Ok(Some(held));
    }
    // The drive may have forgotten the fences that it was told before.
    set_stale(tx, place, Some(StaleRecord { joining: false, told: false }))?;
    if !segment.set.contains(place.column) {
        return Ok(None);
    }
    segment.set = segment.set.without(place.column);
    segment.joining = segment.joining.without(place.column);
    let enough = segment.filling.is_some() || segment.ready().count() >= u32::from(segment.shape.k);
    inode.g = inode.g.next().ok_or_else(|| braid_meta::tree::files::worn_out(place.file))?;
    // Without enough columns nothing can be fenced: the file waits for the missing ones.
    inode.unfenced |= enough;
    let held = inode.held;
    inodes::save(tx, place.file, &inode)?;
    Ok(Some(held))
}
