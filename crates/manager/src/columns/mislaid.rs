//! Objects that a live drive has lost as a whole: their records were damaged, or a range of keys that they
//! are in. Their columns go out, join again and are made anew (PROTOCOL R9, section 7), one file at a time,
//! so that no file loses a column that it cannot do without. So such a drive takes part again without being
//! replaced.
//!
//! A drive says in its heartbeats that it has lost objects; it may not know which. So it is asked about each
//! column that this state has on it. When all are there, all else that it has lost belongs to no file, and
//! the drive is told to count that as absent. Until then it gets no new columns ([`Core::place`]).
//!
//! Only a current state may judge. A lost column of a file that has too few other columns stays as it is, and
//! is looked at again later.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::DriveId;
use braid_meta::records::schema::{ComponentPlace, InodeRecord};
use braid_meta::records::{columns, inodes};
use braid_wire::data::{Scrub, ScrubAct};
use braid_wire::{Reason, Refusal};

use crate::columns::calls::drive_call;
use crate::columns::fence::Target;
use crate::columns::procedure::{Cause, too_many_away};
use crate::columns::{column_changes, live_out};
use crate::core::Core;
use crate::drive_calls::CallError;
use crate::jobs::{Again, Job, NotBefore};

/// Interval between two looks at a drive that has lost objects.
const AGAIN: Duration = Duration::from_secs(5);
/// Interval between two looks if the last one found columns that cannot go out before others come back.
const AGAIN_STUCK: Duration = Duration::from_secs(60);
/// Number of columns looked up at a time.
const PAGE: usize = 256;

/// Result of a look at a drive, or at one of its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// All columns that this state has on the drive are there.
    Whole,
    /// Columns are being made anew.
    Healing,
    /// Some columns are lost that their files cannot do without now.
    Stuck,
}

/// Looks at the drives that have lost objects.
#[derive(Default)]
pub(crate) struct Mislaid {
    not_before: NotBefore<DriveId>,
}

impl Job for Mislaid {
    const NAME: &'static str = "mislaid";
    const ABOUT: &'static str =
        "Takes columns out of their files' sets that a drive has lost, so that they are made anew.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let due: Vec<DriveId> = {
            let now_ms = core.now_ms();
            let table = core.drives();
            let up = table.up(now_ms).into_iter().filter_map(|drive| table.drive(drive));
            let lost = up.filter(|drive| drive.scrub.lost > 0 || drive.scrub.objects > 0);
            lost.map(|drive| drive.record.drive).collect()
        };
        for drive in due {
            if self.not_before.waits(&drive) {
                continue;
            }
            let pause = match look(core, drive).await {
                Ok(Look::Stuck) => AGAIN_STUCK,
                Ok(Look::Whole | Look::Healing) => AGAIN,
                Err(error) => {
                    let name = core.drives().name(drive);
                    tracing::info!(%name, %error, "a drive that has lost objects could not be looked at");
                    Mislaid::failed_in_part(core, &format!("{name}: {error}"));
                    AGAIN
                }
            };
            self.not_before.set(drive, pause);
        }
        Ok(Again::Woken)
    }
}

/// Asks the drive about each column on it, and takes out the columns that it has lost. If none is lost, has
/// the drive forget its other losses.
async fn look(core: &Arc<Core>, drive: DriveId) -> Result<Look, CallError> {
    let start = core.drives().drive(drive).map_or(0, |known| known.record.start);
    let mut after = None;
    let mut found = Look::Whole;
    let mut lost = Vec::new();
    while lost.len() < PAGE {
        let page = core.read(move |_, tx| Ok(columns::on_drive(tx, drive, after, PAGE)?)).await;
        let page = page.map_err(CallError::Refused)?;
        let Some(last) = page.last() else { break };
        after = Some(*last);
        for place in page {
            match one(core, place).await? {
                Some(look) => found = found.max(look),
                None => lost.push(place),
            }
        }
    }
    // All lost columns are found first: while columns go out, the drive is held back, and answers no
    // questions.
    for place in lost {
        found = found.max(put_out(core, place).await.map_err(CallError::Refused)?);
    }
    if found == Look::Whole && start != 0 {
        // For the process that was asked only: a later process of the drive may have lost more.
        let request = Scrub { act: ScrubAct::Forget, rate: start, term: core.term() };
        drive_call(core, drive, &request.into()).await?;
        let name = core.drives().name(drive);
        tracing::info!(%name, "the drive has all that it should have again: whatever else it lost belongs to no file");
    }
    Ok(found)
}

/// Looks at one column. `None`: it is lost.
async fn one(core: &Arc<Core>, place: ComponentPlace) -> Result<Option<Look>, CallError> {
    let file = place.file;
    let inode = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await.map_err(CallError::Refused)?;
    let Some(inode) = inode.filter(|inode| is_here(inode, place)) else { return Ok(Some(Look::Whole)) };
    if !is_ready(&inode, place) {
        // The drive brings the column up to date.
        return Ok(Some(Look::Healing));
    }
    let Some(target) = Target::new(core, file, &inode, place.segment, place.column) else {
        return Ok(Some(Look::Healing));
    };
    Ok(if target.has_lost(core).await? { None } else { Some(Look::Whole) })
}

/// Takes a lost column out.
async fn put_out(core: &Arc<Core>, place: ComponentPlace) -> Result<Look, Refusal> {
    match take_out(core, place).await {
        Ok(()) => Ok(Look::Healing),
        Err(refusal) if matches!(refusal.reason, Reason::TooManyAway | Reason::NotFound) => {
            let name = core.drives().name(place.drive);
            tracing::warn!(file = %place.file, %name, %refusal, "a lost column of a file cannot be made anew now");
            Ok(Look::Stuck)
        }
        Err(refusal) => Err(refusal),
    }
}

/// Takes the column out of its file's set, unless too few others are ready.
async fn take_out(core: &Arc<Core>, place: ComponentPlace) -> Result<(), Refusal> {
    let file = place.file;
    let _turn = core.lock_file(file).await?;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let Some(segment) = inode.segment(place.segment).filter(|_| is_ready(&inode, place)) else {
        return Ok(());
    };
    let left = segment.ready().without(place.column);
    if segment.filling.is_none() && left.count() < u32::from(segment.shape.k) {
        return Err(too_many_away(core, &inode, segment.all().minus(left), segment));
    }
    let lost = vec![live_out::hold(core, &inode, place.segment, place.column)];
    let lease = column_changes::lease_of(core, file, &inode);
    column_changes::run(core, file, Cause { lease, lost, change: None }).await.map(drop)
}

fn is_here(inode: &InodeRecord, place: ComponentPlace) -> bool {
    let segment = inode.segment(place.segment);
    segment.is_some_and(|segment| segment.drive(place.column) == place.drive)
}

fn is_ready(inode: &InodeRecord, place: ComponentPlace) -> bool {
    let segment = inode.segment(place.segment);
    is_here(inode, place) && segment.is_some_and(|segment| segment.ready().contains(place.column))
}
