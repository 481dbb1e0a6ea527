//! Orphaned objects, whose files or layouts are gone: found by listing what a drive holds, and listed to be
//! freed.
//!
//! A drive holds such an object if it did not see the file's removal: its disk was put back to an older
//! state, or this manager's state was restored and an operator has let unnamed files be freed. So a drive is
//! searched after it or this manager has started, and once a day.
//!
//! Only a current state may judge, and only in this order: first list an object, then look up its file. A
//! file's record is stored before any drive can have an object of it, and numbers are never used again, so a
//! file that is not found is gone, unless it is a frozen file that is being made; and so is an object that no
//! segment of its file names. Objects that do not tell their file (a damaged record) are kept. So are all
//! while a restored state's unnamed files are kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId, PartitionId, VolumeId};
use braid_meta::catalogue::frame::PARTITION;
use braid_meta::records::kv::KvError;
use braid_meta::records::schema::{ComponentPlace, LeftRecord, RemoveRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::records::{columns, frozen, inodes};
use braid_meta::rules::jobs::Progress;
use braid_wire::Refusal;
use braid_wire::data::ListedObject;
use tokio::time::{Instant, sleep};

use crate::columns::listing;
use crate::core::Core;
use crate::drive_calls::CallError;
use crate::jobs::{Again, Job};

/// Interval between two searches of a drive that did not start in between.
const AGAIN: Duration = Duration::from_secs(24 * 3600);
/// Pause after a search that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Pause after each page, as a multiple of the time it took: it leaves the drive and the manager to other
/// work.
const REST: u32 = 9;

/// The last search of a drive.
struct Looked {
    /// Number of the drive's starts that were known then.
    starts: u64,
    /// Time of the next search if the drive does not start before.
    next: Instant,
}

/// Searches the drives that are up, one after the other.
#[derive(Default)]
pub(crate) struct Orphans {
    looked: BTreeMap<DriveId, Looked>,
}

impl Job for Orphans {
    const NAME: &'static str = "orphans";
    const ABOUT: &'static str = "Searches drives for objects of files that are gone, and frees them.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        if !core.read(vouched_for).await? {
            return Ok(Again::Woken);
        }
        let Some((drive, starts)) = self.due(core) else { return Ok(Again::Woken) };
        let name = core.drives().name(drive);
        let next = match look_through(core, drive).await {
            Ok(Some(found)) => {
                if found > 0 {
                    tracing::info!(%name, found, "objects of files that are gone are on a drive: they are freed");
                    core.wake.notify_waiters();
                }
                AGAIN
            }
            Ok(None) => AFTER_FAILURE,
            Err(error) => {
                tracing::info!(%name, %error, "a drive could not be looked through for objects of files that are gone");
                Orphans::failed_in_part(core, &format!("{name}: {error}"));
                AFTER_FAILURE
            }
        };
        self.looked.insert(drive, Looked { starts, next: Instant::now() + next });
        Ok(Again::Now)
    }
}

impl Orphans {
    /// A drive that is to be searched, with the number of its starts.
    fn due(&self, core: &Core) -> Option<(DriveId, u64)> {
        let now_ms = core.now_ms();
        let table = core.drives();
        let mut up = table.up(now_ms).into_iter().map(|drive| (drive, table.starts(drive)));
        up.find(|(drive, starts)| {
            let looked = self.looked.get(drive);
            looked.is_none_or(|looked| looked.next <= Instant::now() || looked.starts != *starts)
        })
    }
}

/// Searches a drive. Returns the number of objects that were listed to be freed; `None` while this state may
/// not judge.
async fn look_through(core: &Arc<Core>, drive: DriveId) -> Result<Option<u64>, CallError> {
    let mut found = 0;
    let mut objects = 0;
    for there in listing::partitions(core, drive).await? {
        let partition = there.partition;
        if partition == PARTITION {
            continue;
        }
        let mut after = 0;
        loop {
            let began = Instant::now();
            let page = listing::objects(core, drive, partition, after).await?;
            let Some(last) = page.last() else { break };
            after = last.object.0;
            let looked_at = u64::try_from(page.len()).unwrap_or(u64::MAX);
            let Some(freed) = free(core, drive, partition, page).await.map_err(CallError::Refused)? else {
                return Ok(None);
            };
            found += freed;
            objects += looked_at;
            Orphans::progress(core, Progress { done: objects, total: 0, unit: "objects" });
            sleep(began.elapsed() * REST).await;
        }
        forget_partition(core, drive, partition).await.map_err(CallError::Refused)?;
    }
    Ok(Some(found))
}

/// Lists the objects of a page to be freed whose files or layouts are gone, and counts them.
async fn free(
    core: &Arc<Core>,
    drive: DriveId,
    partition: PartitionId,
    page: Vec<ListedObject>,
) -> Result<Option<u64>, Refusal> {
    let volume = VolumeId(partition.0);
    let looked = core
        .read(move |core, tx| {
            if !vouched_for(core, tx)? {
                return Ok(None);
            }
            let mut gone = Vec::new();
            for object in page {
                if is_gone(tx, drive, &object)? {
                    gone.push(object);
                }
            }
            Ok(Some(gone))
        })
        .await?;
    match looked {
        Some(gone) if !gone.is_empty() => {
            core.write(move |core, tx| {
                if !vouched_for(core, tx)? {
                    return Ok(None);
                }
                let mut freed = 0;
                for object in &gone {
                    // The object may have been removed, or listed already, since it was looked up.
                    if is_gone(tx, drive, object)? && list(tx, volume, drive, object)? {
                        freed += 1;
                    }
                }
                Ok(Some(freed))
            })
            .await
        }
        Some(_) => Ok(Some(0)),
        None => Ok(None),
    }
}

/// Lists an object to be freed. Returns true if it is listed.
fn list(tx: &mut Tx, volume: VolumeId, drive: DriveId, listed: &ListedObject) -> Result<bool, KvError> {
    let &ListedObject { file, segment, column, object, g, .. } = listed;
    if tx.get(&key::inode(file))?.is_none() {
        inodes::remove_later(tx, file, &[(drive, object)], &RemoveRecord { volume, g })?;
        return Ok(true);
    }
    let place = ComponentPlace { drive, file, segment, column };
    // The place may be that of a column of the present layout: then the object waits for the next search.
    let is_free = !columns::has(tx, place)?;
    if is_free {
        tx.set(key::place(table::LEFT, place), &LeftRecord { volume, object, g });
    }
    Ok(is_free)
}

/// Returns true if this state may judge which files are gone.
fn vouched_for(core: &Core, tx: &Tx) -> Result<bool, Refusal> {
    Ok(core.leadership().serving().is_ok() && tx.number("unnamed")? == 0)
}

fn is_gone(tx: &Tx, drive: DriveId, object: &ListedObject) -> Result<bool, KvError> {
    if object.file == FileId(0) || tx.get(&key::remove(drive, object.file, object.object))?.is_some() {
        return Ok(false);
    }
    Ok(match inodes::find(tx, object.file)? {
        None => !frozen::is_begun(tx, object.file)?,
        // The object is of a layout that the file has no more. Listed ones are freed soon.
        Some(inode) => {
            let (from, to) = key::of_file(table::LEFT, drive, object.file);
            let is_current = inode.segments.iter().any(|segment| segment.object == object.object);
            !is_current && tx.scan(&from, &to, 1)?.is_empty()
        }
    })
}

/// Lists a partition of no volume to be removed, once it is empty.
async fn forget_partition(core: &Arc<Core>, drive: DriveId, partition: PartitionId) -> Result<(), Refusal> {
    let volume = VolumeId(partition.0);
    let known = move |core: &Core, tx: &Tx| -> Result<bool, Refusal> {
        Ok(!vouched_for(core, tx)? || tx.get(&key::volume(volume))?.is_some())
    };
    if core.read(move |core, tx| known(core, tx)).await? {
        return Ok(());
    }
    core.write(move |core, tx| {
        if !known(core, tx)? {
            tx.mark(key::partition(table::PARTITION_REMOVAL, drive, volume));
        }
        Ok(())
    })
    .await
}
