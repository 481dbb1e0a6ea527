//! Columns that go out while their drives may be alive.
//!
//! Such a drive is held back while the generation rises, and counts as untold after it, as any drive whose
//! columns went out: it gets no lease before it is told. But the lease that it has goes on. So no capability
//! of the new generation is given before the drive was fenced for the column, or that lease has lapsed.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId};
use braid_meta::records::schema::{ComponentPlace, InodeRecord, LeftRecord, StaleRecord, key, table};
use braid_wire::{Reason, Refusal};
use tokio::time::Instant;

use crate::columns::fence;
use crate::columns::free::free_object;
use crate::columns::procedure::{LOOK_AGAIN, Lost, drive_of, hold_gone, is_gone, not_answering};
use crate::core::Core;

/// Holds back the drive of a column that goes out though the drive may be alive.
pub(crate) fn hold(core: &Core, inode: &InodeRecord, segment: u32, column: Column) -> Lost {
    let drive = drive_of(inode, segment, column);
    core.drives().hold_live(drive);
    Lost { segment, column, drive }
}

/// Fences the columns that are out on drives that were not told so and may still serve. If a drive does not
/// answer, waits until its lease has lapsed.
pub(crate) async fn tell(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    deadline: Instant,
) -> Result<(), Refusal> {
    for segment in &inode.segments {
        let index = segment.number;
        for column in segment.all().minus(segment.set).iter() {
            let drive = segment.drive(column);
            let mut failures = BTreeMap::new();
            while may_serve(core, file, index, column, drive).await? {
                match fence::tell(core, file, inode, index, column).await {
                    Ok(()) => break,
                    Err(error) => drop(failures.insert((index, column), error.to_string())),
                }
                if Instant::now() >= deadline {
                    return Err(not_answering(core, inode, &failures));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
    Ok(())
}

/// Returns true if a drive may still serve a column that is out: it was not told, its lease may hold, and its
/// process is not known to be gone.
async fn may_serve(
    core: &Arc<Core>,
    file: FileId,
    segment: u32,
    column: Column,
    drive: DriveId,
) -> Result<bool, Refusal> {
    if core.drives().lapsed(drive, core.now_ms()) {
        return Ok(false);
    }
    let place = ComponentPlace { drive, file, segment, column };
    let stale = core.read(move |_, tx| Ok(tx.record(&key::place(table::STALE, place))?)).await?;
    Ok(stale.is_some_and(|stale: StaleRecord| !stale.told) && !is_gone(core, drive))
}

/// Has drives free what they hold of columns of the file that are on other drives now, as they may still
/// serve it to readers that do not know. A drive that does not answer keeps it until its lease has lapsed,
/// and frees it before it gets another lease.
pub(crate) async fn clear(core: &Arc<Core>, file: FileId, deadline: Instant) -> Result<(), Refusal> {
    let drives: Vec<DriveId> = core.drives().iter().map(|drive| drive.record.drive).collect();
    let left = core
        .read(move |_, tx| {
            let mut left = Vec::new();
            for drive in drives {
                let (from, to) = key::of_file(table::LEFT, drive, file);
                left.extend(tx.records::<LeftRecord>(&(from, to), usize::MAX)?);
            }
            Ok(left)
        })
        .await?;
    for (row, record) in left {
        let drive = key::drive_of(&row);
        while !is_held_back(core, drive) {
            match free_object(core, drive, record.volume, file, record.object, record.g).await {
                Ok(()) => {
                    core.write(move |_, tx| {
                        tx.delete(row);
                        Ok(())
                    })
                    .await?;
                    break;
                }
                // A drive serves nothing of an object whose record is damaged.
                Err(error) if fence::is_lost(&error) => break,
                Err(error) if Instant::now() >= deadline => {
                    let name = core.drives().name(drive);
                    let detail = format!("{name} does not free its old objects of file {file}: {error}");
                    return Err(Refusal::new(Reason::Busy, detail));
                }
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }
    Ok(())
}

/// Returns true if a drive surely serves no more. Then it gets no lease before it has freed what is listed:
/// it may come back before it is noticed that it was away.
fn is_held_back(core: &Core, drive: DriveId) -> bool {
    if core.drives().set_untold_if_lapsed(drive, core.now_ms()) {
        return true;
    }
    let gone = hold_gone(core, drive);
    if gone {
        core.drives().release_out(drive);
    }
    gone
}
