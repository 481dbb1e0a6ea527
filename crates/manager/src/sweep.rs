//! The list of the manager's background jobs, and those of them that belong to no other part: they end lapsed
//! leases, make and remove partitions, free components, forget old operations, and keep time.

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

use crate::catalogue::keep::KeepNames;
use crate::columns::balance::Balancing;
use crate::columns::behind;
use crate::columns::calls::drive_call;
use crate::columns::free::{forget_replaced, free_components, free_left, is_absent};
use crate::columns::mislaid::Mislaid;
use crate::columns::moves::EmptyDrives;
use crate::columns::orphans::Orphans;
use crate::columns::partitions::{make_partition, tell_partitions};
use crate::columns::relayout::LayOut;
use crate::columns::returns::ReadmitDrives;
use crate::core::{Core, set_record};
use crate::drive_calls::CallError;
use crate::files::lapses::end_lease_alone;
use crate::files::receipts;
use crate::jobs::{Again, Ended, Job, NotBefore, Start, Tasks, run_all};
use crate::leading::{ROUND, pause};
use crate::own_etcd::tend::{SnapshotEtcd, TendEtcd};
use crate::rates::tend::TendRates;
use crate::restore::compare::Compare;
use crate::restore::retake::Retake;
use crate::sessions::callbacks::Bury;
use crate::sessions::locking::EndIdle;
use crate::sessions::operation_turns;
use crate::snapshots::keep::Schedules;
use crate::snapshots::names::Snapshots;

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
const PARTITIONS_PER_ROUND: usize = 256;

/// Runs all background jobs, until the future is dropped.
pub async fn sweep(core: Arc<Core>) {
    const JOBS: &[Start] = &[
        Start::of::<KeepTime>(),
        Start::of::<Compare>(),
        Start::of::<Listen>(),
        Start::of::<EndLeases>(),
        Start::of::<ReadmitDrives>(),
        Start::of::<PutOutDrives>(),
        Start::of::<EmptyDrives>(),
        Start::of::<Balancing>(),
        Start::of::<KeepLogs>(),
        Start::of::<ForgetOperations>(),
        Start::of::<Orphans>(),
        Start::of::<Mislaid>(),
        Start::of::<LayOut>(),
        Start::of::<Retake>(),
        Start::of::<Bury>(),
        Start::of::<EndIdle>(),
        Start::of::<TendDrives>(),
        Start::of::<TendRates>(),
        Start::of::<Snapshots>(),
        Start::of::<KeepNames>(),
        Start::of::<Schedules>(),
    ];
    const OF_OWN_ETCD: &[Start] = &[Start::of::<TendEtcd>(), Start::of::<SnapshotEtcd>()];
    if core.own_etcd.is_none() {
        return run_all(core, JOBS).await;
    }
    tokio::join!(run_all(Arc::clone(&core), JOBS), run_all(core, OF_OWN_ETCD));
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

/// Keeps the durable bound of time ahead of the present.
#[derive(Default)]
struct KeepTime;

impl Job for KeepTime {
    const NAME: &'static str = "time";
    const ABOUT: &'static str =
        "Stores how far time has come, so that it never goes back. Time stands still while it cannot.";
    const NEEDS_LEADING: bool = false;
    const PAUSE_MAX: Duration = ROUND;

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        extend_time(core).await?;
        Ok(Again::In(ROUND))
    }
}

/// Notes regularly that this process runs and listens.
#[derive(Default)]
struct Listen;

impl Job for Listen {
    const NAME: &'static str = "pauses";
    const ABOUT: &'static str =
        "Notices when this process did not run for a while: then no drive or lease is judged at once.";
    const NEEDS_LEADING: bool = false;

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        if let Some(paused_ms) = core.clock.pauses().listen(core.running_ms()) {
            tracing::warn!(
                paused_ms,
                "the manager did not run for a while: drives and leases are given time to speak before any is judged"
            );
        }
        Ok(Again::In(Duration::from_millis(LISTEN_MS)))
    }
}

/// Ends lapsed leases, and finishes procedures that were left undone.
#[derive(Default)]
struct EndLeases {
    tasks: Tasks<FileId, bool>,
    not_before: NotBefore<FileId>,
    /// The file whose procedure began last.
    last: FileId,
}

impl Job for EndLeases {
    const NAME: &'static str = "end leases";
    const ABOUT: &'static str = "Recovers files whose writers are gone, and removes unfinished ones.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        for Ended { key, result } in self.tasks.ended() {
            if result != Ok(true) {
                self.not_before.set(key, TRY_AGAIN);
            }
            if let Err(error) = result {
                tracing::info!(file = %key, %error, "a lease that lapsed is not recovered from yet");
                EndLeases::failed_in_part(core, &format!("file {key}: {error}"));
            }
        }
        self.not_before.forget();
        let places = PROCEDURES - self.tasks.count();
        let is_wanted = |file: &FileId| !self.tasks.is_busy(file) && !self.not_before.waits(file);
        for file in due(core, self.last, places, is_wanted) {
            self.last = file;
            let core = Arc::clone(core);
            self.tasks.begin(file, async move { end_lease(&core, file).await });
        }
        if self.tasks.count() == 0 {
            return Ok(Again::Woken);
        }
        // The next procedure begins as soon as one ends: after a restore every file may be due.
        tokio::select! {
            () = self.tasks.one_ends() => {}
            () = pause(core) => {}
        }
        Ok(Again::Now)
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
/// other is recovered. Finishes procedures that were left undone. Returns false if another procedure works on
/// the file.
async fn end_lease(core: &Arc<Core>, file: FileId) -> Result<bool, Refusal> {
    let Some(_turn) = core.try_lock_file(file) else { return Ok(false) };
    end_lease_alone(core, file).await.map(|()| true)
}

/// Forgets the results of old operations.
#[derive(Default)]
struct ForgetOperations;

impl Job for ForgetOperations {
    const NAME: &'static str = "forget operations";
    const ABOUT: &'static str = "Deletes the stored answers of requests that no client will repeat.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        operation_turns::forget_old(core).await?;
        Ok(Again::In(FORGET_ROUND))
    }
}

/// Takes out the columns of drives that returned with less than they had acknowledged.
#[derive(Default)]
struct PutOutDrives {
    not_before: NotBefore<DriveId>,
}

impl Job for PutOutDrives {
    const NAME: &'static str = "put out drives";
    const ABOUT: &'static str =
        "Takes the columns of drives that came back with an older state out of their files' sets.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let behind = core.drives().behind();
        for drive in behind {
            if self.not_before.waits(&drive) {
                continue;
            }
            if let Err(refusal) = behind::put_out(core, drive).await {
                self.not_before.set(drive, TRY_AGAIN);
                let name = core.drives().name(drive);
                tracing::error!(%name, %refusal, "the columns of a drive that is behind are not out yet");
                PutOutDrives::failed_in_part(core, &format!("{name}: {}", refusal.detail));
            }
        }
        Ok(Again::Woken)
    }
}

/// Stores the drives' log positions.
#[derive(Default)]
struct KeepLogs;

impl Job for KeepLogs {
    const NAME: &'static str = "logs";
    const ABOUT: &'static str =
        "Stores how far the drives' logs are durable, so that a drive that lost its end is found out.";
    const NEEDS_LEADING: bool = false;
    const PAUSE_MAX: Duration = LOGS_EVERY;

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let due = {
            let table = core.drives();
            core.admissions().due(table.iter().map(|drive| &drive.record))
        };
        if due.is_empty() {
            return Ok(Again::In(LOGS_EVERY));
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
        core.write_then(store, stored).await?;
        Ok(Again::In(LOGS_EVERY))
    }
}

/// Makes and removes partitions on drives, and frees components.
#[derive(Default)]
struct TendDrives {
    tasks: Tasks<DriveId>,
    /// Replaced drives whose records could not be deleted.
    not_before: NotBefore<DriveId>,
}

impl Job for TendDrives {
    const NAME: &'static str = "tend drives";
    const ABOUT: &'static str = "Makes partitions on drives, and frees the components of removed files.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        for Ended { key, result } in self.tasks.ended() {
            if let Err(error) = result {
                let name = core.drives().name(key);
                tracing::debug!(%name, %error, "not all of the drive's work is done yet");
                TendDrives::failed_in_part(core, &format!("{name}: {error}"));
            }
        }
        let now_ms = core.now_ms();
        let up = core.drives().up(now_ms);
        for drive in up {
            let core = Arc::clone(core);
            self.tasks.begin(drive, async move { tend(&core, drive).await });
        }
        let replaced = core.drives().in_state(DriveState::Replaced, now_ms);
        for drive in replaced {
            if self.not_before.waits(&drive) {
                continue;
            }
            if let Err(refusal) = forget_replaced(core, drive).await {
                self.not_before.set(drive, TRY_AGAIN);
                let name = core.drives().name(drive);
                tracing::error!(%name, %refusal, "the records of a replaced drive cannot be deleted");
                TendDrives::failed_in_part(core, &format!("{name}: {}", refusal.detail));
            }
        }
        Ok(Again::Woken)
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
    let told = tell_partitions(core, drive).await;
    if told.is_ok()
        && let Some(starts) = starts
    {
        core.drives().partitions_made(drive, starts);
    }
    free_left(core, drive).await?;
    free_components(core, drive).await?;
    remove_partitions(core, drive).await?;
    told
}

/// Removes partitions of removed volumes, once they are empty.
async fn remove_partitions(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let rows = core
        .read(move |_, tx| {
            let (from, to) = key::of_drive(table::PARTITION_REMOVAL, drive);
            Ok(tx.scan(&from, &to, PARTITIONS_PER_ROUND)?)
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
