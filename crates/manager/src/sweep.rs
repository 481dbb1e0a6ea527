//! The manager's background work: it ends lapsed leases, readmits drives, makes and removes partitions, frees
//! the components of removed files, looks for orphaned ones, forgets old operations, and moves the durable
//! bound of time.
//!
//! Each kind of work is a list in the state and a loop over it, so a restart loses nothing. Work that fails
//! is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId, PartitionId};
use braid_meta::records::schema::{DriveRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::pauses::LISTEN_MS;
use braid_meta::tree::volumes;
use braid_wire::control::DriveState;
use braid_wire::data::{Address, Remove};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::columns::fence::{drive_call, make_partition};
use crate::columns::free::{forget_replaced, free_components, free_left, is_absent};
use crate::columns::returns::readmit_drives;
use crate::columns::{balance, behind, mislaid, moves, orphans, relayout};
use crate::core::{Core, set_record};
use crate::drive_calls::CallError;
use crate::files::lapses::end_lease_alone;
use crate::files::receipts;
use crate::leading::{ROUND, pause, until_leading};
use crate::restore::{compare, retake};
use crate::sessions::{callbacks, locking, operation_turns};

/// Interval between two stores of the drives' log positions. If a drive loses less than this and the manager
/// is killed too, the loss is not detected.
const LOGS_EVERY: Duration = Duration::from_secs(1);
/// Pause between two searches for operations that may be forgotten.
const FORGET_ROUND: Duration = Duration::from_secs(60);
/// Pause between two attempts of a procedure that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of procedures that the background runs at a time.
const PROCEDURES: usize = 8;
/// Maximum number of partitions of one drive that are removed in one round.
const REMOVES_PER_ROUND: usize = 256;

/// Runs all background loops, until the task is dropped.
pub async fn sweep(core: Arc<Core>) {
    let mut loops = JoinSet::new();
    loops.spawn(keep_time(Arc::clone(&core)));
    loops.spawn(compare::run(Arc::clone(&core)));
    loops.spawn(listen(Arc::clone(&core)));
    loops.spawn(end_leases(Arc::clone(&core)));
    loops.spawn(readmit_drives(Arc::clone(&core)));
    loops.spawn(put_out_drives(Arc::clone(&core)));
    loops.spawn(moves::empty_drives(Arc::clone(&core)));
    loops.spawn(balance::run(Arc::clone(&core)));
    loops.spawn(keep_logs(Arc::clone(&core)));
    loops.spawn(forget_operations(Arc::clone(&core)));
    loops.spawn(orphans::run(Arc::clone(&core)));
    loops.spawn(mislaid::run(Arc::clone(&core)));
    loops.spawn(relayout::run(Arc::clone(&core)));
    loops.spawn(retake::run(Arc::clone(&core)));
    loops.spawn(callbacks::run(Arc::clone(&core)));
    loops.spawn(locking::run(Arc::clone(&core)));
    loops.spawn(tend_drives(core));
    while let Some(ended) = loops.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a background loop failed within the manager");
        }
    }
}

/// Stores the next bound of time, if it is due.
pub async fn extend_time(core: &Arc<Core>) -> Result<(), Refusal> {
    let Some(bound) = core.clock.extension() else { return Ok(()) };
    core.write(move |_, tx| {
        tx.set(key::meta("time"), &bound);
        Ok(())
    })
    .await?;
    core.clock.extended(bound);
    Ok(())
}

async fn keep_time(core: Arc<Core>) {
    loop {
        if let Err(error) = extend_time(&core).await {
            tracing::error!(%error, "time stands still: its bound cannot be stored");
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Notes regularly that this process runs and listens. A loop of its own, so that nothing delays it.
async fn listen(core: Arc<Core>) {
    let pauses = core.clock.pauses();
    loop {
        if let Some(paused_ms) = pauses.listen(core.running_ms()) {
            tracing::warn!(
                paused_ms,
                "the manager did not run for a while: drives and leases are given time to speak before any is judged"
            );
        }
        tokio::time::sleep(Duration::from_millis(LISTEN_MS)).await;
    }
}

async fn end_leases(core: Arc<Core>) {
    let mut running: JoinSet<(FileId, bool)> = JoinSet::new();
    let mut busy = BTreeSet::new();
    let mut last = FileId(0);
    let mut not_before: BTreeMap<FileId, Instant> = BTreeMap::new();
    loop {
        until_leading(&core).await;
        not_before.retain(|_, at| *at > Instant::now());
        let places = PROCEDURES - running.len();
        let wanted = |file: &FileId| !busy.contains(file) && !not_before.contains_key(file);
        for file in due(&core, last, places, wanted) {
            (last, _) = (file, busy.insert(file));
            let core = Arc::clone(&core);
            running.spawn(async move { (file, end_lease(&core, file).await) });
        }
        // The next procedure begins as soon as one ends: after a restore every file may be due.
        tokio::select! {
            Some(Ok((file, ok))) = running.join_next() => {
                busy.remove(&file);
                if !ok {
                    not_before.insert(file, Instant::now() + TRY_AGAIN);
                }
            }
            () = pause(&core) => {}
        }
    }
}

/// The next wanted files whose leases need a step or whose procedures were left undone. The search starts
/// after `last` and wraps around, so that files that cannot be done for now, however many, do not starve
/// others.
fn due(core: &Core, last: FileId, limit: usize, wanted: impl Fn(&FileId) -> bool) -> Vec<FileId> {
    let mut due: Vec<FileId> = core.leases().due(core.now_ms(), last).filter(&wanted).take(limit).collect();
    {
        let unfinished = core.unfinished();
        let above = unfinished.range((Bound::Excluded(last), Bound::Unbounded));
        due.extend(above.chain(unfinished.range(..=last)).copied().filter(&wanted).take(limit));
    }
    due.sort_unstable_by_key(|file| (*file <= last, *file));
    due.dedup();
    due.truncate(limit);
    due
}

/// Does what is due for a file's lease. A lease that lapsed is ended: a file without a name is removed, any
/// other is recovered. Finishes procedures that were left undone. Returns true if nothing is left to do.
async fn end_lease(core: &Arc<Core>, file: FileId) -> bool {
    let Some(_turn) = core.try_lock_file(file) else { return false };
    match end_lease_alone(core, file).await {
        Ok(()) => true,
        Err(refusal) => {
            tracing::info!(%file, %refusal, "a lease that lapsed is not recovered from yet");
            false
        }
    }
}

async fn forget_operations(core: Arc<Core>) {
    loop {
        until_leading(&core).await;
        if let Err(error) = operation_turns::forget_old(&core).await {
            tracing::error!(%error, "old operations cannot be forgotten");
        }
        tokio::time::sleep(FORGET_ROUND).await;
    }
}

/// Takes out the columns of drives that returned with less than they had acknowledged.
async fn put_out_drives(core: Arc<Core>) {
    loop {
        until_leading(&core).await;
        let behind = core.drives().behind();
        for drive in behind {
            if let Err(refusal) = behind::put_out(&core, drive).await {
                let name = core.drives().name(drive);
                tracing::error!(%name, %refusal, "the columns of a drive that is behind are not out yet");
            }
        }
        pause(&core).await;
    }
}

/// Stores the drives' log positions.
async fn keep_logs(core: Arc<Core>) {
    loop {
        tokio::time::sleep(LOGS_EVERY).await;
        let due = {
            let table = core.drives();
            core.admissions().due(table.iter().map(|drive| &drive.record))
        };
        if due.is_empty() {
            continue;
        }
        let store = move |core: &Core, tx: &mut Tx| {
            let mut records = Vec::new();
            for (drive, log) in due {
                receipts::tidy(tx, drive, log, core.admissions().receipt(drive))?;
                let Some(mut record) = tx.record::<DriveRecord>(&key::drive(drive))? else { continue };
                if !record.behind {
                    record.log = log;
                    tx.set(key::drive(drive), &record);
                    records.push(record);
                }
            }
            Ok(records)
        };
        let stored = |core: &Core, records: &Vec<DriveRecord>| {
            records.iter().for_each(|record| set_record(core, record));
        };
        if let Err(error) = core.write_then(store, stored).await {
            tracing::error!(%error, "how far the drives' logs have come cannot be stored");
        }
    }
}

async fn tend_drives(core: Arc<Core>) {
    let mut running = JoinSet::new();
    let mut busy = BTreeSet::new();
    loop {
        until_leading(&core).await;
        while let Some(ended) = running.try_join_next() {
            if let Ok((drive, result)) = ended {
                busy.remove(&drive);
                if let Err(error) = result {
                    let name = core.drives().name(drive);
                    tracing::debug!(%name, %error, "not all of the drive's work is done yet");
                }
            }
        }
        let (up, replaced) = {
            let now_ms = core.now_ms();
            let table = core.drives();
            (table.up(now_ms), table.in_state(DriveState::Replaced, now_ms))
        };
        for drive in up {
            if busy.insert(drive) {
                let core = Arc::clone(&core);
                running.spawn(async move { (drive, tend(&core, drive).await) });
            }
        }
        for drive in replaced {
            if let Err(error) = forget_replaced(&core, drive).await {
                tracing::error!(%error, "a replaced drive's rows cannot be deleted");
            }
        }
        pause(&core).await;
    }
}

/// Does what is due on one drive: makes partitions, frees components, removes partitions.
async fn tend(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let starts = core.drives().partitions_due(drive);
    let missing = core
        .read(move |_, tx| {
            let volumes = volumes::all(tx)?.into_iter().map(|volume| volume.volume);
            let mut missing = Vec::new();
            for volume in volumes {
                if starts.is_some() || tx.get(&key::partition(table::PARTITION, drive, volume))?.is_none() {
                    missing.push(volume);
                }
            }
            Ok(missing)
        })
        .await
        .map_err(CallError::Refused)?;
    for volume in missing {
        make_partition(core, drive, volume).await?;
    }
    if let Some(starts) = starts {
        core.drives().partitions_made(drive, starts);
    }
    free_left(core, drive).await?;
    free_components(core, drive).await?;
    remove_partitions(core, drive).await
}

/// Removes partitions of removed volumes, once they are empty.
async fn remove_partitions(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let rows = core
        .read(move |_, tx| {
            let (from, to) = key::of_drive(table::PARTITION_REMOVAL, drive);
            Ok(tx.scan(&from, &to, REMOVES_PER_ROUND)?)
        })
        .await
        .map_err(CallError::Refused)?;
    for (row, _) in rows {
        let at = Address::of_partition(PartitionId(key::number(&row, 17)));
        let request = Remove { at, term: core.term() };
        match drive_call(core, drive, &request.into()).await {
            Ok(_) => {}
            Err(CallError::Refused(refusal)) if is_absent(&refusal) => {}
            // The last components of the partition must be removed first.
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::PartitionNotEmpty => continue,
            Err(error) => return Err(error),
        }
        let delete = core.write(move |_, tx| {
            tx.delete(row);
            Ok(())
        });
        delete.await.map_err(CallError::Refused)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_layout::version::Lease;

    use super::*;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::memory::MemoryKv;

    #[tokio::test]
    async fn files_that_cannot_be_done_keep_no_others_from_their_turn() {
        let config = Config::new("memory", "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        (1..=3000).step_by(2).for_each(|file| core.leases().leave(FileId(file), Lease(1)));
        core.unfinished().extend((2..=3000).step_by(2).map(FileId));
        let numbers = |last, wanted: fn(&FileId) -> bool| -> Vec<u64> {
            due(&core, FileId(last), 4, wanted).iter().map(|file| file.0).collect()
        };
        assert_eq!(numbers(0, |file| file.0 > 2900), [2901, 2902, 2903, 2904]);
        assert_eq!(
            numbers(1500, |_| true),
            [1501, 1502, 1503, 1504],
            "these follow, whatever became of others"
        );
        assert_eq!(numbers(2998, |_| true), [2999, 3000, 1, 2]);
    }
}
