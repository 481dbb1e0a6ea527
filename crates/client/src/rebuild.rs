//! The rebuild of a drive: every file with a column on it that is out or joining has that column written anew from the
//! others, under a lease of its own, and the manager then lists the column as ready.
//!
//! Each unit is installed under the version that the other columns hold, so that a rebuild that was cut short and starts
//! again ends in the same state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_layout::{ColumnMask, FileId, Version};
use braid_plan::Target;
use braid_wire::Reason;
use braid_wire::control::{Access, BeginRebuild, ControlReply, EndRebuild, Opened, StaleFiles};

use crate::buffers::User;
use crate::client::{Client, unexpected};
use crate::error::{Error, Result};
use crate::exchange::Failure;
use crate::faults::{Learnt, Remedy, remedy};
use crate::handle::Handle;
use crate::join;
use crate::lease::{self, Keeper};
use crate::open;
use crate::read::Patience;
use crate::retry::Tries;
use crate::run::{Run, Writer};
use crate::stamps::Stamps;
use crate::write::WriteSide;

/// Files asked for at a time.
const PAGE: u32 = 256;
/// How long a file that someone writes is waited for.
const LEASED_PATIENCE: Duration = Duration::from_secs(15);

/// How far a rebuild is, and at its end what it did.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Files whose columns on the drive are ready again.
    pub files: u64,
    /// Stripes done, of all files.
    pub stripes: u64,
    /// Stripes to do, of the files begun so far.
    pub stripes_begun: u64,
    /// Bytes written to the drive.
    pub bytes: u64,
    /// Files that could not be rebuilt, with why. They stay degraded; try again.
    pub failed: Vec<(FileId, Error)>,
}

/// What the sets under way count.
#[derive(Default)]
struct Counts {
    stripes: AtomicU64,
    bytes: AtomicU64,
}

impl Client {
    /// Rebuilds every stale column on a drive, which goes by name or id. `progress` is called after every plan set. A
    /// file that cannot be rebuilt does not stop the others: see [`Rebuilt::failed`].
    pub async fn rebuild(&self, drive: &str, mut progress: impl FnMut(&Rebuilt) + Send) -> Result<Rebuilt> {
        let subject = format!("drive {drive}");
        let (mut done, mut after) = (Rebuilt::default(), FileId(0));
        loop {
            let request = StaleFiles { drive: drive.to_owned(), after, limit: PAGE };
            let files = match self.ask(&subject, request).await? {
                ControlReply::StaleFiles(page) => page.files,
                other => return Err(unexpected(&subject, &other)),
            };
            let Some(&last) = files.last() else { return Ok(done) };
            if last <= after {
                return Err(Error::Answer {
                    subject,
                    why: format!("file {last} was listed after file {after}"),
                });
            }
            for file in files {
                match self.rebuild_file(file, drive, &mut done, &mut progress).await {
                    Ok(()) => done.files += 1,
                    // It was removed meanwhile.
                    Err(Error::Refused { refusal, .. }) if refusal.reason == Reason::NotFound => {}
                    Err(error) => {
                        tracing::warn!(%file, %error, "the file was not rebuilt");
                        done.failed.push((file, error));
                    }
                }
                progress(&done);
            }
            after = last;
        }
    }

    async fn rebuild_file(
        &self,
        file: FileId,
        drive: &str,
        done: &mut Rebuilt,
        progress: &mut (impl FnMut(&Rebuilt) + Send),
    ) -> Result<()> {
        let subject = format!("file number {file}");
        let opened = self.begin_rebuild(&subject, file, drive).await?;
        let size = opened.stat.size;
        let handle = Arc::new(Handle::new(self.clone(), subject.clone(), Access::Write, opened)?);
        let view = handle.view();
        let side = Arc::new(WriteSide::new(Stamps::new(view.lease, view.g, size, false)));
        let keeper = Keeper::start(Arc::clone(&handle), Arc::clone(&side));
        let rebuilt = rebuild_segments(&handle, &side, done, progress).await;
        keeper.end();
        match rebuilt {
            Ok(()) => {
                self.ask_done(&subject, EndRebuild { file, lease: view.lease }, Some(Reason::LeaseLost)).await
            }
            Err(error) => {
                if let Err(release) = lease::release(&handle, false).await {
                    tracing::info!(%file, error = %release, "the rebuild's lease could not be given up; it ends by itself");
                }
                Err(error)
            }
        }
    }

    async fn begin_rebuild(&self, subject: &str, file: FileId, drive: &str) -> Result<Opened> {
        let mut tries = Tries::new(LEASED_PATIENCE);
        loop {
            let request = BeginRebuild { file, drive: drive.to_owned(), client: self.shared.number };
            match self.ask(subject, request).await {
                Ok(ControlReply::Opened(opened)) => return Ok(opened),
                Ok(other) => return Err(unexpected(subject, &other)),
                Err(error) if error.reason() == Some(Reason::Leased) && tries.again().await => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn rebuild_segments(
    handle: &Handle,
    side: &WriteSide,
    done: &mut Rebuilt,
    progress: &mut (impl FnMut(&Rebuilt) + Send),
) -> Result<()> {
    // Past the size too: the column may have bytes there from before the others were cut, or versions that they have not.
    let end = open::reach(handle).await?;
    let view = handle.view();
    for (segment, place) in view.layout.segments().iter().enumerate() {
        // Those on the drive, and those of drives whose place it took that found another home.
        let columns = view.segments[segment].joining;
        if columns.is_empty() || place.start >= end {
            continue;
        }
        let last = place.stripe_at(end.min(place.end) - 1).0;
        let step = handle.stripes_per_set(&view, segment);
        done.stripes_begun += last + 1;
        let (stripes, bytes) = (done.stripes, done.bytes);
        let counts = Counts::default();
        let counted = std::sync::Mutex::new((&mut *done, &mut *progress));
        let starts = (0..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let sets = starts.map(|first| {
            let (own, counts, counted) = (first..(first + step).min(last + 1), &counts, &counted);
            async move {
                let _held = side.stripes.hold(segment, own.clone()).await;
                let _permit = handle.client.set_permit().await;
                side.check(&handle.subject)?;
                rebuild_set(handle, segment, own.clone(), columns, counts).await?;
                counts.stripes.fetch_add(own.end - own.start, Ordering::Relaxed);
                let mut counted = counted.lock().expect("no holder panics");
                let (done, progress) = &mut *counted;
                done.stripes = stripes + counts.stripes.load(Ordering::Relaxed);
                done.bytes = bytes + counts.bytes.load(Ordering::Relaxed);
                progress(done);
                Ok(())
            }
        });
        join::windowed(handle.client.config().sets_per_request, sets).await?;
    }
    Ok(())
}

/// Rebuilds the units of a few stripes. Anything may be repeated, so a failure begins anew.
async fn rebuild_set(
    handle: &Handle,
    segment: usize,
    stripes: std::ops::Range<u64>,
    columns: ColumnMask,
    counts: &Counts,
) -> Result<()> {
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
        let mut run = Run::new(handle, &view, set, User::Nothing)?;
        let mut failed = run.read().await?;
        if failed.is_empty() {
            run.compute(&BTreeSet::new())?;
            failed = run
                .write(Writer { client: handle.client.shared.number, settled_below: Version::ZERO })
                .await?;
            if failed.is_empty() {
                let written =
                    run.set.instructions().filter(|(_, i)| i.op.is_write()).map(|(_, i)| i.op.range());
                let bytes: u64 = written.map(|range| u64::from(range.end - range.start)).sum();
                counts.bytes.fetch_add(bytes, Ordering::Relaxed);
                return Ok(());
            }
            if let Some((one, refusal)) = failed.iter().find_map(|one| match &one.failure {
                Failure::Refused { refusal, .. } if remedy(&one.failure, true) == Remedy::NotStored => {
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
                // The drive that is rebuilt is away again: there is nothing to go on with.
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
