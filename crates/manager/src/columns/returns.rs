//! Drives that return: each is fenced for every column of it that went out, and only then gets its lease.
//!
//! A column's row is marked *told* once its drive was fenced for it, so that the work goes on after a
//! restart. The mark relies on the file's generation only: a fence for a generation in which the column is
//! out refuses everything older. If the file's generation has risen before the row is stored, the column may
//! have been in and gone out again, so its drive is told again.
//!
//! The drive also frees what it holds of columns that have moved to other drives, before it gets its lease.
//!
//! The work comes to an end, because many columns are told at a time, their rows are stored together, and no
//! others go out meanwhile (see [`DriveTable::returning`](braid_meta::rules::drives::DriveTable::returning)).
//! A file for which the drive cannot be fenced does not delay the others.

use std::sync::Arc;

use braid_layout::{DriveId, Generation};
use braid_meta::records::inodes::{self, has_untold, set_stale};
use braid_meta::records::schema::{ComponentPlace, StaleRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_wire::Refusal;
use tokio::task::JoinSet;

use crate::columns::fence::tell;
use crate::columns::free::free_left;
use crate::core::Core;
use crate::drive_calls::{CALLS_PER_DRIVE, CallError};
use crate::jobs::{Again, Ended, Job, Tasks};

/// Maximum number of columns told to a drive at a time. Some calls are left for other procedures.
const TELLS: usize = CALLS_PER_DRIVE - CALLS_PER_DRIVE / 4;
/// Number of rows read in one transaction.
const ROWS_PER_ROUND: usize = 512;

/// Readmits drives that return.
#[derive(Default)]
pub(crate) struct ReadmitDrives {
    tasks: Tasks<DriveId>,
}

impl Job for ReadmitDrives {
    const NAME: &'static str = "readmit drives";
    const ABOUT: &'static str =
        "Tells drives that return which of their columns are out of date, and readmits them.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        for Ended { key, failure } in self.tasks.ended() {
            if let Some(error) = failure {
                let name = core.drives().name(key);
                tracing::info!(%name, %error, "a drive that returned cannot be readmitted yet");
                ReadmitDrives::failed_in_part(core, &format!("{name}: {error}"));
            }
        }
        for drive in core.drives().to_readmit(core.now_ms()) {
            let core = Arc::clone(core);
            self.tasks.begin(drive, async move { readmit(&core, drive).await });
        }
        Ok(Again::Woken)
    }
}

/// Makes one pass over the drive's columns that are out. The drive is readmitted if it was told of all, and
/// was not held meanwhile; else the next pass tells it the rest.
pub(crate) async fn readmit(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let outs = core.drives().outs(drive);
    let (mut from, to) = key::of_drive(table::STALE, drive);
    let mut left = None;
    loop {
        let page = (from.clone(), to.clone());
        let rows = core
            .read(move |_, tx| Ok(tx.records::<StaleRecord>(&page, ROWS_PER_ROUND)?))
            .await
            .map_err(CallError::Refused)?;
        let Some((last, _)) = rows.last() else { break };
        from = [last.as_slice(), &[0]].concat();
        let untold =
            rows.iter().filter(|(_, stale)| !stale.told).map(|(key, _)| key::place_of(key)).collect();
        match tell_some(core, drive, untold).await? {
            Some(CallError::Unreachable(why)) => return Err(CallError::Unreachable(why)),
            refused => left = refused.or(left),
        }
    }
    match left {
        Some(error) => Err(error),
        None => {
            free_left(core, drive).await?;
            let any = core.read(move |_, tx| has_untold(tx, drive)).await.map_err(CallError::Refused)?;
            if !any {
                core.drives().readmit(drive, outs);
            }
            Ok(())
        }
    }
}

/// Tells the drive of these columns, and stores that it was told. Returns an error if some are left.
async fn tell_some(
    core: &Arc<Core>,
    drive: DriveId,
    places: Vec<ComponentPlace>,
) -> Result<Option<CallError>, CallError> {
    let mut calls = JoinSet::new();
    let mut told = Vec::new();
    let mut failed = None;
    let mut places = places.into_iter();
    loop {
        // A drive that does not answer at all is not asked again and again.
        while calls.len() < TELLS && !matches!(failed, Some(CallError::Unreachable(_))) {
            let Some(place) = places.next() else { break };
            let core = Arc::clone(core);
            calls.spawn(async move { (place, tell_one(&core, place).await) });
        }
        match calls.join_next().await {
            Some(Ok((place, Ok(g)))) => told.push((place, g)),
            Some(Ok((_, Err(error)))) => {
                if !matches!(failed, Some(CallError::Unreachable(_))) {
                    failed = Some(error);
                }
            }
            Some(Err(error)) => tracing::error!(%error, "telling a drive failed within the manager"),
            None => break,
        }
    }
    if !told.is_empty() {
        core.write(move |_, tx| told.iter().try_for_each(|&(place, g)| store_told(tx, place, g)))
            .await
            .map_err(CallError::Refused)?;
        core.drives().told_some(drive, core.running_ms());
    }
    Ok(failed)
}

/// Fences the drive for one column. Returns the generation, or `None` if the file is gone.
async fn tell_one(core: &Arc<Core>, place: ComponentPlace) -> Result<Option<Generation>, CallError> {
    let file = place.file;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await.map_err(CallError::Refused)?;
    let Some(inode) = found else { return Ok(None) };
    tell(core, file, &inode, place.segment, place.column).await?;
    Ok(Some(inode.g))
}

/// Stores that the column's drive was fenced for generation `g`, if that still is the file's.
fn store_told(tx: &mut Tx, place: ComponentPlace, g: Option<Generation>) -> Result<(), Refusal> {
    let stale: Option<StaleRecord> = tx.record(&key::place(table::STALE, place))?;
    let now = inodes::find(tx, place.file)?.map(|inode| inode.g);
    match stale {
        Some(stale) if now == g => Ok(set_stale(tx, place, Some(StaleRecord { told: true, ..stale }))?),
        _ => Ok(()),
    }
}
