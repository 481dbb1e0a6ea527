//! Columns that go out while their drives may live.
//!
//! Their drive is held back while the generation rises, and counts as untold after it, as any drive whose
//! columns went out: it gets no lease before it is told. But the lease that it has goes on. So no capability
//! of the new generation is given before the drive was fenced for the column, or that lease has lapsed.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId};
use braid_wire::Refusal;
use tokio::time::Instant;

use crate::core::Core;
use crate::fence;
use crate::procedure::{LOOK_AGAIN, Lost, drive_of, is_gone, not_answering};
use crate::schema::{ComponentPlace, InodeRecord, StaleRecord, key, table};

/// A column that goes out though its drive may live, which is held back.
pub fn hold(core: &Core, inode: &InodeRecord, segment: u32, column: Column) -> Lost {
    let drive = drive_of(inode, segment, column);
    core.drives().hold_live(drive);
    Lost { segment, column, drive }
}

/// Fences the columns that are out for drives that were not told of it and may still serve. Waits for the
/// lease of one that does not answer.
pub async fn tell(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    deadline: Instant,
) -> Result<(), Refusal> {
    for (segment, index) in inode.segments.iter().zip(0u32..) {
        for column in segment.all().minus(segment.set).iter() {
            let (drive, mut failures) = (segment.drive(column), BTreeMap::new());
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

/// Whether a drive may still serve a column that is out: it was not told, its lease may hold, and its process
/// is not known to be gone.
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
