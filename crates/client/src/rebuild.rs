//! The rebuild of a drive. For every file with an out or joining column on it, that column is rebuilt from
//! the others, under a lease of its own. The manager then lists the column as ready.
//!
//! A few files are rebuilt at once, so that one that waits or fails does not hold up the others; files with a
//! writer come last. In each file only stripes of which its drives hold units are visited.
//!
//! Each unit is installed under the version that the other columns hold, so an interrupted rebuild that
//! starts again ends in the same state.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_layout::{ColumnMask, FileId, Version};
use braid_plan::Target;
use braid_wire::Reason;
use braid_wire::control::{Access, BeginRebuild, ControlReply, EndRebuild, Opened, StaleFiles};
use braid_wire::data::Listing;

use crate::buffers::User;
use crate::client::{Client, unexpected};
use crate::concurrent;
use crate::drive_requests::Failure;
use crate::error::{Error, Result};
use crate::executor::{Executor, Writer};
use crate::faults::{Learnt, Remedy, write_remedy};
use crate::handle::Handle;
use crate::lease::{self, LeaseRenewer};
use crate::read::Patience;
use crate::retry::Tries;
use crate::stamps::{EarlierWrites, Stamps};
use crate::write::WriteSide;

/// Files requested at a time.
const PAGE: u32 = 256;
/// Files rebuilt at once: few enough that waiting ones leave plan sets to the others.
const FILES_AT_ONCE: usize = 4;
/// How long to wait for a file that is being written.
const LEASED_PATIENCE: Duration = Duration::from_secs(15);

/// A rebuild's progress and, at its end, its result.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Files whose columns on the drive are ready again.
    pub files: u64,
    /// Stripes rebuilt, in all files.
    pub stripes: u64,
    /// Stripes to rebuild, in the files begun so far.
    pub stripes_begun: u64,
    /// Bytes written to the drive.
    pub bytes: u64,
    /// Files that could not be rebuilt, and why. They stay degraded; try again.
    pub failed: Vec<(FileId, Error)>,
    /// At the end: files with stale columns on the drive, as the manager lists them then. Includes those that
    /// failed, and those of which a column went out meanwhile. 0 means that the drive is up to date.
    pub left: u64,
}

/// The progress that all files are counted in, and the callback.
struct Tally<F>(Mutex<(Rebuilt, F)>);

impl<F: FnMut(&Rebuilt) + Send> Tally<F> {
    fn count(&self, what: impl FnOnce(&mut Rebuilt)) {
        let mut tally = self.0.lock().expect("no holder panics");
        let (done, progress) = &mut *tally;
        what(done);
        progress(done);
    }
}

impl Client {
    /// Rebuilds every stale column on a drive, given by name or id. `progress` is called after every plan
    /// set. A file that cannot be rebuilt does not stop the others: see [`Rebuilt::failed`].
    pub async fn rebuild(&self, drive: &str, progress: impl FnMut(&Rebuilt) + Send) -> Result<Rebuilt> {
        let tally = Tally(Mutex::new((Rebuilt::default(), progress)));
        let (mut after, mut leased) = (FileId(0), Vec::new());
        loop {
            let files = self.stale_files(drive, after).await?;
            let Some(&last) = files.last() else { break };
            leased.extend(self.rebuild_some(files, drive, Duration::ZERO, &tally).await);
            after = last;
        }
        self.rebuild_some(leased, drive, LEASED_PATIENCE, &tally).await;
        let mut done = tally.0.into_inner().expect("no holder panics").0;
        // Counted again rather than taken from the failures: a file that became stale after its page was
        // passed would be missed.
        after = FileId(0);
        loop {
            let files = self.stale_files(drive, after).await?;
            let Some(&last) = files.last() else { return Ok(done) };
            done.left += u64::try_from(files.len()).unwrap_or(u64::MAX);
            after = last;
        }
    }

    /// The next files after `after` with stale columns on the drive, in order; empty at the end.
    async fn stale_files(&self, drive: &str, after: FileId) -> Result<Vec<FileId>> {
        let subject = format!("drive {drive}");
        let request = StaleFiles { drive: drive.to_owned(), after, limit: PAGE };
        let files = match self.ask_manager(&subject, request).await? {
            ControlReply::StaleFiles(page) => page.files,
            other => return Err(unexpected(&subject, &other)),
        };
        match files.last() {
            Some(&last) if last <= after => {
                Err(Error::Answer { subject, why: format!("file {last} was listed after file {after}") })
            }
            _ => Ok(files),
        }
    }

    /// Rebuilds these files. Waits up to `patience` for those with a writer; with no patience, returns them.
    async fn rebuild_some<F: FnMut(&Rebuilt) + Send>(
        &self,
        files: Vec<FileId>,
        drive: &str,
        patience: Duration,
        tally: &Tally<F>,
    ) -> Vec<FileId> {
        let leased = Mutex::new(Vec::new());
        let rebuilds = files.into_iter().map(|file| {
            let leased = &leased;
            async move {
                match self.rebuild_file(file, drive, patience, tally).await {
                    Ok(()) => tally.count(|done| done.files += 1),
                    // The file was removed meanwhile.
                    Err(error) if error.reason() == Some(Reason::NotFound) => {}
                    Err(error) if error.reason() == Some(Reason::Leased) && patience.is_zero() => {
                        leased.lock().expect("no holder panics").push(file);
                    }
                    Err(error) => {
                        tracing::warn!(%file, %error, "the file was not rebuilt");
                        tally.count(|done| done.failed.push((file, error)));
                    }
                }
                Ok::<(), Infallible>(())
            }
        });
        let Ok(()) = concurrent::windowed(FILES_AT_ONCE, rebuilds).await;
        leased.into_inner().expect("no holder panics")
    }

    async fn rebuild_file<F: FnMut(&Rebuilt) + Send>(
        &self,
        file: FileId,
        drive: &str,
        patience: Duration,
        tally: &Tally<F>,
    ) -> Result<()> {
        let subject = format!("file number {file}");
        let opened = self.begin_rebuild(&subject, file, drive, patience).await?;
        let size = opened.stat.size;
        let handle = Arc::new(Handle::new(self.clone(), subject.clone(), Access::Write, opened)?);
        let view = handle.view();
        let side = Arc::new(WriteSide::new(Stamps::new(view.lease, view.g, size, EarlierWrites::Unknown)));
        let keeper = LeaseRenewer::start(Arc::clone(&handle), Arc::clone(&side));
        let rebuilt = rebuild_segments(&handle, &side, tally).await;
        keeper.end();
        match rebuilt {
            Ok(()) => {
                let ended = self.ask_done(&subject, EndRebuild { file, lease: view.lease }).await;
                ended.map_err(|error| handle.lease_error(error))
            }
            Err(error) => {
                if let Err(release) = lease::release(&handle, lease::Ending::Unclean, size).await {
                    tracing::info!(%file, error = %release, "the rebuild's lease could not be given up; it ends by itself");
                }
                Err(error)
            }
        }
    }

    async fn begin_rebuild(
        &self,
        subject: &str,
        file: FileId,
        drive: &str,
        patience: Duration,
    ) -> Result<Opened> {
        let mut tries = Tries::new(patience);
        loop {
            let request = BeginRebuild { file, drive: drive.to_owned(), client: self.shared.number };
            match self.ask_manager(subject, request).await {
                Ok(ControlReply::Opened(opened)) => return Ok(opened),
                Ok(other) => return Err(unexpected(subject, &other)),
                Err(error) if error.reason() == Some(Reason::Leased) && tries.again().await => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn rebuild_segments<F: FnMut(&Rebuilt) + Send>(
    handle: &Handle,
    side: &WriteSide,
    tally: &Tally<F>,
) -> Result<()> {
    let view = handle.view();
    for segment in 0..view.layout.segments().len() {
        // The columns on the drive, and those of drives it replaced that were placed elsewhere.
        let columns = view.segments[segment].joining;
        if columns.is_empty() {
            continue;
        }
        // Past the size too: the column may hold bytes there from before a truncation, or versions that the
        // other columns do not have.
        let mut held = handle.held(segment, Listing::Written, 0..u64::MAX);
        loop {
            let runs = held.next().await?;
            if runs.is_empty() {
                break;
            }
            tally.count(|done| done.stripes_begun += runs.iter().map(|run| run.end - run.start).sum::<u64>());
            let sets = runs.into_iter().map(|own| async move {
                let _held = side.stripes.hold(segment, own.clone()).await;
                let _permit = handle.client.set_permit().await;
                side.check(&handle.subject)?;
                let bytes = rebuild_set(handle, segment, own.clone(), columns).await?;
                tally.count(|done| {
                    done.stripes += own.end - own.start;
                    done.bytes += bytes;
                });
                Ok(())
            });
            concurrent::windowed(handle.client.config().sets_per_request, sets).await?;
        }
    }
    Ok(())
}

/// Rebuilds the units of a few stripes. Every step can be repeated, so after a failure all of it starts
/// again. Returns the bytes written.
async fn rebuild_set(
    handle: &Handle,
    segment: usize,
    stripes: std::ops::Range<u64>,
    columns: ColumnMask,
) -> Result<u64> {
    let mut patience = Patience::new(handle);
    let mut learnt = Learnt::default();
    loop {
        let view = handle.view();
        let compile = |target: &Target<'_>| braid_plan::rebuild(target, stripes.clone(), columns);
        let Some(set) = handle.compile(&view, segment, &learnt, compile)? else {
            handle
                .wait_for_columns(&view, segment, stripes.clone(), "read", &mut learnt, &mut patience)
                .await?;
            continue;
        };
        let mut executor = Executor::new(handle, &view, set, User::Nothing)?;
        let mut failed = executor.read().await?;
        if failed.is_empty() {
            executor.compute(&BTreeSet::new())?;
            failed = executor
                .write(Writer { client: handle.client.shared.number, settled_below: Version::ZERO })
                .await?;
            if failed.is_empty() {
                let written =
                    executor.set.instructions().filter(|(_, i)| i.op.is_write()).map(|(_, i)| i.op.range());
                return Ok(written.map(|range| u64::from(range.end - range.start)).sum());
            }
            if let Some((one, refusal)) = failed.iter().find_map(|one| match &one.failure {
                Failure::Refused { refusal, .. } if write_remedy(&one.failure) == Remedy::NotStored => {
                    Some((one, refusal))
                }
                _ => None,
            }) {
                let drive = view.segments[segment].columns[one.column.index()].name.clone();
                return Err(Error::NotStored {
                    file: handle.subject.clone(),
                    drive,
                    refusal: refusal.clone(),
                });
            }
            if let Some(one) = failed.iter().find(|one| matches!(one.failure, Failure::Lost(_))) {
                // The drive that is being rebuilt is away again: nothing can go on.
                let why = format!(
                    "{} is away: {}",
                    view.segments[segment].columns[one.column.index()].name,
                    one.failure
                );
                return Err(handle.timed_out(&patience, &why));
            }
            handle.mend(&view, Remedy::Refresh, &mut patience).await?;
            continue;
        }
        let mut remedy = Remedy::Without;
        for one in &failed {
            match learnt.note(one) {
                Remedy::Refresh => remedy = Remedy::Refresh,
                Remedy::Again if remedy != Remedy::Refresh => remedy = Remedy::Again,
                _ => {}
            }
        }
        handle.mend(&view, remedy, &mut patience).await?;
    }
}
