//! What the manager does by itself: ends lapsed leases, readmits drives, makes and removes partitions, frees the components of
//! removed files, moves the durable bound of time.
//!
//! Each is a list in the state and a loop over it, so a restart loses nothing; what does not work for now is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId, ObjectId, PartitionId, VolumeId};
use braid_wire::control::DriveState;
use braid_wire::data::{Address, Remove};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::core::Core;
use crate::fence::{drive_call, make_partition, tell};
use crate::grants::{self, CAPABILITY_MS, KEY_EPOCH_FIRST};
use crate::inodes::{self, set_stale};
use crate::members::has_untold;
use crate::procedure::{self, Cause, hold_lapsed};
use crate::reach::ReachError;
use crate::schema::{RemoveRecord, StaleRecord, key, table};
use crate::volumes;

/// Between two rounds when nothing wakes a loop.
const ROUND: Duration = Duration::from_millis(500);
/// Between two tries of a procedure that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Most procedures at a time that are nobody's request.
const PROCEDURES: usize = 8;
/// Most components freed on one drive between two transactions.
const REMOVES_PER_ROUND: usize = 256;
/// Most calls at a time in one round on one drive.
const CALLS: usize = 4;
/// How long making a volume waits for its partitions; the rest are made later.
const PARTITIONS_WAIT: Duration = Duration::from_secs(5);

/// Runs until the task is dropped.
pub async fn sweep(core: Arc<Core>) {
    let mut loops = JoinSet::new();
    loops.spawn(keep_time(Arc::clone(&core)));
    loops.spawn(end_leases(Arc::clone(&core)));
    loops.spawn(readmit_drives(Arc::clone(&core)));
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

/// Makes a new volume's partitions on the drives that are up, as far as they answer soon.
pub async fn make_partitions_of(core: &Arc<Core>, volume: VolumeId) {
    let mut calls = JoinSet::new();
    for drive in core.drives().up(core.now_ms()) {
        let core = Arc::clone(core);
        calls.spawn(async move { make_partition(&core, drive, volume).await });
    }
    let all = async { while calls.join_next().await.is_some() {} };
    if timeout(PARTITIONS_WAIT, all).await.is_err() {
        tracing::info!(%volume, "some drives do not have the volume's partition yet");
    }
}

async fn pause(core: &Core) {
    let _ = timeout(ROUND, core.wake.notified()).await;
}

async fn keep_time(core: Arc<Core>) {
    loop {
        if let Err(error) = extend_time(&core).await {
            tracing::error!(%error, "time stands still: its bound cannot be stored");
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn end_leases(core: Arc<Core>) {
    let mut running = JoinSet::new();
    let mut busy = BTreeSet::new();
    let mut not_before: BTreeMap<FileId, Instant> = BTreeMap::new();
    loop {
        while let Some(ended) = running.try_join_next() {
            if let Ok((file, ok)) = ended {
                busy.remove(&file);
                if ok {
                    not_before.remove(&file)
                } else {
                    not_before.insert(file, Instant::now() + TRY_AGAIN)
                };
            }
        }
        not_before.retain(|_, at| *at > Instant::now());
        let mut files = core.leases().lapsed(core.now_ms(), 1024);
        files.extend(core.unfinished().iter().take(1024));
        for file in files {
            if running.len() < PROCEDURES && !not_before.contains_key(&file) && busy.insert(file) {
                let core = Arc::clone(&core);
                running.spawn(async move { (file, end_lease(&core, file).await) });
            }
        }
        pause(&core).await;
    }
}

/// Ends a lapsed lease: a file without a name goes, another is recovered. Finishes what was left undone. Whether it is done.
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

async fn end_lease_alone(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    if !core.leases().begin_end(file, core.now_ms(), false) {
        return Ok(());
    }
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    if let Some(inode) = found.filter(|inode| inode.held || inode.unfenced) {
        if inode.is_named() {
            let (ended, lost) = (inode.held, hold_lapsed(core, &inode));
            procedure::run(core, file, Cause { ended, lost, ..Cause::nothing() }).await?;
        } else {
            core.write(move |core, tx| {
                // It may have got its name just now.
                match inodes::find(tx, file)? {
                    Some(inode) if !inode.is_named() => {
                        inodes::bury(tx, file, &inode, core.now_ms() + CAPABILITY_MS)
                    }
                    _ => Ok(()),
                }
            })
            .await?;
        }
    }
    core.leases().end(file);
    core.unfinished().remove(&file);
    Ok(())
}

async fn readmit_drives(core: Arc<Core>) {
    loop {
        let waiting = core.drives().to_readmit(core.now_ms());
        let mut calls = JoinSet::new();
        for drive in waiting {
            let core = Arc::clone(&core);
            calls.spawn(async move {
                if let Err(error) = readmit(&core, drive).await {
                    let name = core.drives().name(drive);
                    tracing::info!(%name, %error, "a drive that returned cannot be readmitted yet");
                }
            });
        }
        while calls.join_next().await.is_some() {}
        pause(&core).await;
    }
}

/// Fences a drive that returned for every column on it that went out, so that no older capability moves a byte there.
async fn readmit(core: &Arc<Core>, drive: DriveId) -> Result<(), ReachError> {
    let outs = core.drives().outs(drive);
    while let Some(rows) = untold(core, drive).await? {
        let mut calls = JoinSet::new();
        for row in rows {
            while calls.len() >= CALLS {
                finish_one(&mut calls).await?;
            }
            let core = Arc::clone(core);
            calls.spawn(async move { tell_one(&core, row).await });
        }
        while !calls.is_empty() {
            finish_one(&mut calls).await?;
        }
    }
    core.drives().readmit(drive, outs);
    Ok(())
}

async fn finish_one(calls: &mut JoinSet<Result<(), ReachError>>) -> Result<(), ReachError> {
    match calls.join_next().await {
        Some(Ok(result)) => result,
        _ => Ok(()),
    }
}

async fn untold(core: &Arc<Core>, drive: DriveId) -> Result<Option<Vec<crate::schema::Place>>, ReachError> {
    core.read(move |_, tx| {
        if !has_untold(tx, drive)? {
            return Ok(None);
        }
        let rows = tx.records::<StaleRecord>(&key::of_drive(table::STALE, drive), usize::MAX)?;
        let untold = rows.into_iter().filter(|(_, stale)| !stale.told).take(REMOVES_PER_ROUND);
        Ok(Some(untold.map(|(key, _)| key::place_of(&key)).collect()))
    })
    .await
    .map_err(ReachError::Refused)
}

async fn tell_one(core: &Arc<Core>, place: crate::schema::Place) -> Result<(), ReachError> {
    let file = place.file;
    let _turn = core.lock_file(file).await.map_err(ReachError::Refused)?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await.map_err(ReachError::Refused)?;
    if let Some(inode) = &found {
        tell(core, file, inode, place.segment, place.column).await?;
    }
    let told = core.write(move |_, tx| {
        let stale: Option<StaleRecord> = tx.record(&key::place(table::STALE, place))?;
        if let Some(stale) = stale {
            set_stale(tx, place, Some(StaleRecord { told: true, ..stale }))?;
        }
        Ok(())
    });
    told.await.map_err(ReachError::Refused)
}

async fn tend_drives(core: Arc<Core>) {
    let mut running = JoinSet::new();
    let mut busy = BTreeSet::new();
    loop {
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
            let (now_ms, table) = (core.now_ms(), core.drives());
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

/// Does what is due on one drive.
async fn tend(core: &Arc<Core>, drive: DriveId) -> Result<(), ReachError> {
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
        .map_err(ReachError::Refused)?;
    for volume in missing {
        make_partition(core, drive, volume).await?;
    }
    if let Some(starts) = starts {
        core.drives().partitions_made(drive, starts);
    }
    while free_components(core, drive).await? {}
    remove_partitions(core, drive).await
}

/// Frees some components. Whether there may be more to free now.
async fn free_components(core: &Arc<Core>, drive: DriveId) -> Result<bool, ReachError> {
    let rows = core
        .read(move |core, tx| {
            let rows = tx.records::<RemoveRecord>(&key::of_drive(table::REMOVE, drive), usize::MAX)?;
            let (now_ms, first) =
                (core.now_ms(), |record: &RemoveRecord| record.until_ms.checked_sub(CAPABILITY_MS));
            // Those that an old writer could make anew are removed as soon as may be, and again when it no longer can.
            let due = |record: &RemoveRecord| {
                record.until_ms <= now_ms || first(record).is_some_and(|at| now_ms < at + 5_000)
            };
            Ok(rows.into_iter().filter(|(_, record)| due(record)).take(REMOVES_PER_ROUND).collect::<Vec<_>>())
        })
        .await
        .map_err(ReachError::Refused)?;
    let full = rows.len() == REMOVES_PER_ROUND;
    let mut calls = JoinSet::new();
    let (mut freed, mut failed) = (Vec::new(), None);
    for (row, record) in rows {
        if calls.len() >= CALLS {
            settle(calls.join_next().await, &mut freed, &mut failed);
        }
        if failed.is_some() {
            break;
        }
        let core = Arc::clone(core);
        calls.spawn(async move {
            let done = free_one(&core, drive, &row, &record).await;
            done.map(|()| (record.until_ms <= core.now_ms()).then_some(row))
        });
    }
    while !calls.is_empty() {
        settle(calls.join_next().await, &mut freed, &mut failed);
    }
    let any = !freed.is_empty();
    let stored = core.write(move |_, tx| Ok(freed.iter().try_for_each(|row| inodes::removed(tx, row))?));
    stored.await.map_err(ReachError::Refused)?;
    match failed {
        Some(error) => Err(error),
        None => Ok(full && any),
    }
}

type Freed = Result<Option<Vec<u8>>, ReachError>;

fn settle(
    ended: Option<Result<Freed, tokio::task::JoinError>>,
    freed: &mut Vec<Vec<u8>>,
    failed: &mut Option<ReachError>,
) {
    match ended {
        Some(Ok(Ok(row))) => freed.extend(row),
        Some(Ok(Err(error))) => *failed = Some(error),
        _ => {}
    }
}

async fn free_one(core: &Core, drive: DriveId, row: &[u8], record: &RemoveRecord) -> Result<(), ReachError> {
    let object = ObjectId(key::number(row, 25));
    let partition = PartitionId::from(record.volume);
    let (address, grant) = {
        let (now_ms, table) = (core.now_ms(), core.drives());
        let Some(known) = table.drive(drive) else { return Ok(()) };
        let state = (record.g, Default::default(), Default::default());
        let place = (drive, partition, object);
        let expires_ms = now_ms + CAPABILITY_MS;
        let grant =
            grants::for_object(&known.record.master, KEY_EPOCH_FIRST, place, state, [0; 16], expires_ms);
        (known.record.address.clone(), grant)
    };
    let request = Remove { at: Address { partition, object }, term: core.term };
    match core.reach.call(drive, &address, &grant, &request.into()).await {
        Ok(_) => Ok(()),
        Err(ReachError::Refused(refusal)) if is_absent(&refusal) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What is not there is removed.
fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NoObject | Reason::NoPartition)
}

/// Removes partitions of removed volumes, once nothing is left in them.
async fn remove_partitions(core: &Arc<Core>, drive: DriveId) -> Result<(), ReachError> {
    let rows = core
        .read(move |_, tx| {
            let (from, to) = key::of_drive(table::PARTITION_REMOVAL, drive);
            Ok(tx.scan(&from, &to, REMOVES_PER_ROUND)?)
        })
        .await
        .map_err(ReachError::Refused)?;
    for (row, _) in rows {
        let at = Address::of_partition(PartitionId(key::number(&row, 17)));
        let request = Remove { at, term: core.term };
        match drive_call(core, drive, &request.into()).await {
            Ok(_) => {}
            Err(ReachError::Refused(refusal)) if is_absent(&refusal) => {}
            // Its last components go first.
            Err(ReachError::Refused(refusal)) if refusal.reason == Reason::PartitionNotEmpty => continue,
            Err(error) => return Err(error),
        }
        let delete = core.write(move |_, tx| {
            tx.delete(row);
            Ok(())
        });
        delete.await.map_err(ReachError::Refused)?;
    }
    Ok(())
}

/// Nothing on a replaced drive is to be freed any more.
async fn forget_replaced(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    loop {
        let rows = core
            .read(move |_, tx| {
                let (from, to) = key::of_drive(table::REMOVE, drive);
                Ok(tx.scan(&from, &to, REMOVES_PER_ROUND)?)
            })
            .await?;
        if rows.is_empty() {
            return Ok(());
        }
        core.write(move |_, tx| Ok(rows.iter().try_for_each(|(row, _)| inodes::removed(tx, row))?)).await?;
    }
}
