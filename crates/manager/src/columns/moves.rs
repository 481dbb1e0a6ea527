//! Moves of columns to other drives: from a drive that is lost, and from one that is being drained.
//!
//! The place of a column is one record. A column of a lost drive moves while it is out of its file's set:
//! from then on it is a stale column of the new drive, which heals it like any other. The old drive is to
//! free what it holds of the column; a drive that is away does so before it gets a lease again, as
//! capabilities for the column may still be in force.
//!
//! - A drive is *lost* when it was silent for the set time. If it returns meanwhile, columns that have moved
//!   stay moved, and the drive keeps the rest. A file that lacks a column of the lost drive gives up the move
//!   of another column that cannot be made without that one.
//! - A drive that is *drained* serves on. Its columns get successors on others, which take their places when
//!   they hold the same (`successors`); the columns of some files at a time.
//!
//! No column moves to a drive without room, nor to a host that would then have more columns of the file than
//! one has now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId};
use braid_meta::records::inodes::{self, holds, occupy, segment_of, set_stale, still_moving, vacate};
use braid_meta::records::schema::{
    ComponentPlace, InodeRecord, LeftRecord, SegmentRecord, StaleRecord, key, table,
};
use braid_meta::records::tx::Tx;
use braid_meta::records::{columns, successor_rows};
use braid_meta::rules::drives::{Drive, DriveTable};
use braid_meta::rules::spread::Spread;
use braid_wire::control::DriveState;
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::columns::column_changes::{lease_of, run};
use crate::columns::homes::{can_be_made, candidates, choose, nowhere};
use crate::columns::needs::Needs;
use crate::columns::procedure::{self, Cause, hold_lapsed};
use crate::columns::{filling, relayout, successors};
use crate::core::Core;
use crate::jobs::{Again, Job, NotBefore};

/// Pause between two looks for drives that are to be emptied.
const ROUND: Duration = Duration::from_secs(1);
/// Pause before another attempt with a drive from which some column could not move.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Number of columns looked up at a time.
const PAGE: usize = 256;
/// Maximum number of columns of a lost drive that move at a time.
const MOVES: usize = 8;
/// Maximum number of files of a drained drive that have a successor at a time.
const DRAINED_AT_ONCE: usize = 32;

/// Reason for which a drive is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Lost,
    Drained,
}

/// Empties lost and drained drives.
#[derive(Default)]
pub(crate) struct EmptyDrives {
    /// Files of drained drives that have a successor.
    moving: BTreeMap<DriveId, BTreeSet<FileId>>,
    /// The last failure of each drive that was logged.
    said: BTreeMap<DriveId, String>,
    not_before: NotBefore<DriveId>,
}

impl Job for EmptyDrives {
    const NAME: &'static str = "empty drives";
    const ABOUT: &'static str = "Moves columns off drives that are lost or drained.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        self.not_before.forget();
        for (drive, why) in due(core) {
            if self.not_before.waits(&drive) {
                continue;
            }
            let emptied = match why {
                Why::Lost => empty_lost(core, drive).await,
                Why::Drained => drain_some(core, drive, self.moving.entry(drive).or_default()).await,
            };
            match emptied {
                Ok(()) => drop(self.said.remove(&drive)),
                Err(refusal) => self.failed(core, drive, refusal),
            }
        }
        Ok(Again::In(ROUND))
    }
}

impl EmptyDrives {
    fn failed(&mut self, core: &Core, drive: DriveId, refusal: Refusal) {
        self.not_before.set(drive, TRY_AGAIN);
        let name = core.drives().name(drive);
        EmptyDrives::failed_in_part(core, &format!("{name}: {}", refusal.detail));
        // Logged once, not at every attempt.
        if self.said.get(&drive) != Some(&refusal.detail) {
            tracing::warn!(%name, %refusal, "columns of the drive cannot move to others yet");
            self.said.insert(drive, refusal.detail);
        }
    }
}

/// The drives that are to be emptied now.
fn due(core: &Core) -> Vec<(DriveId, Why)> {
    let now_ms = core.now_ms();
    let table = core.drives();
    let why = |drive: &Drive| {
        let id = drive.record.drive;
        match table.state(id, now_ms) {
            DriveState::Replaced => None,
            DriveState::Away if is_lost(core, &table, id, now_ms) => Some((id, Why::Lost)),
            _ if drive.draining => Some((id, Why::Drained)),
            _ => None,
        }
    };
    table.iter().filter_map(why).collect()
}

fn is_lost(core: &Core, table: &DriveTable, drive: DriveId, now_ms: u64) -> bool {
    table.is_lost(drive, core.lost_after_ms, now_ms)
}

async fn empty_lost(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    let needs = core.read(move |core, tx| Needs::of(core, tx, drive)).await?;
    if needs.components == 0 {
        return Ok(());
    }
    needs.must_fit(core)?;
    let name = core.drives().name(drive);
    tracing::info!(%name, components = needs.components, "the drive is lost: its columns move to others");
    let mut after = None;
    let mut failed = Ok(());
    let spread = Arc::new(Spread::default());
    loop {
        let places = page(core, drive, after).await?;
        let Some(&last) = places.last() else { return failed };
        after = Some(last);
        let mut moves = JoinSet::new();
        for place in places {
            if !due(core).contains(&(drive, Why::Lost)) {
                return failed; // it is back
            }
            if moves.len() >= MOVES
                && let Some(Ok(Err(refusal))) = moves.join_next().await
            {
                failed = Err(refusal);
            }
            let core = Arc::clone(core);
            let spread = Arc::clone(&spread);
            moves.spawn(async move { move_lost(&core, place, spread).await });
        }
        while let Some(moved) = moves.join_next().await {
            if let Ok(Err(refusal)) = moved {
                failed = Err(refusal);
            }
        }
    }
}

/// Moves one column of a drive that is surely dead.
async fn move_lost(core: &Arc<Core>, place: ComponentPlace, spread: Arc<Spread>) -> Result<(), Refusal> {
    let file = place.file;
    let _turn = core.lock_file(file).await?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found else { return Ok(()) };
    if !holds(&inode, place) {
        return successors::abandon(core, place, &inode).await.map(drop);
    }
    if segment_of(&inode, place).is_some_and(|segment| segment.filling.is_some()) {
        return filling::give_up(core, file).await; // it begins anew, on other drives
    }
    if let Some(at) = hindered(core, place, &inode).await? {
        return successors::abandon(core, at, &inode).await.map(drop); // then there is room for this one
    }
    if !segment_of(&inode, place).is_some_and(|segment| segment.set.contains(place.column)) {
        return core.write(move |core, tx| move_out(core, tx, place, &spread)).await;
    }
    let lost = hold_lapsed(core, &inode);
    if !lost.iter().any(|lost| lost.drive == place.drive) {
        procedure::release_holds(core, lost.iter().map(|lost| lost.drive));
        return Ok(()); // it may be back
    }
    let change: procedure::Change =
        Arc::new(move |core, tx, _, inode| move_column(core, tx, place, inode, &spread).map(drop));
    run(core, file, Cause { lease: lease_of(core, file, &inode), lost, change: Some(change) }).await.map(drop)
}

/// The successor of another column of the segment that cannot be made as long as this column is lost. The
/// successor may be on the only drive that could take this column, and each would wait for the other.
async fn hindered(
    core: &Arc<Core>,
    place: ComponentPlace,
    inode: &InodeRecord,
) -> Result<Option<ComponentPlace>, Refusal> {
    let found = core.read(move |_, tx| Ok(successor_rows::find(tx, place.file, place.segment)?)).await?;
    let is_in_vain = |at: &ComponentPlace| {
        segment_of(inode, place).is_some_and(|segment| !can_be_made(segment, at.column, Some(place.column)))
    };
    Ok(found.filter(|at| at.column != place.column && is_in_vain(at)))
}

/// Gives successors to the next columns of a drive that is drained, as far as they may move now.
async fn drain_some(core: &Arc<Core>, drive: DriveId, moving: &mut BTreeSet<FileId>) -> Result<(), Refusal> {
    let before = std::mem::take(moving);
    *moving = core.read(move |_, tx| still_moving(tx, before)).await?;
    let mut after = None;
    let mut failed = Ok(());
    while moving.len() < DRAINED_AT_ONCE {
        let places = page(core, drive, after).await?;
        let Some(&last) = places.last() else { break };
        after = Some(last);
        for place in places {
            if moving.len() >= DRAINED_AT_ONCE {
                break;
            }
            match move_drained(core, place).await {
                Ok(true) => drop(moving.insert(place.file)),
                Ok(false) => {}
                Err(refusal) => failed = Err(refusal),
            }
        }
    }
    if moving.is_empty() { failed } else { Ok(()) }
}

/// Lets one column of a drive that is drained move. Returns true if it moves.
async fn move_drained(core: &Arc<Core>, place: ComponentPlace) -> Result<bool, Refusal> {
    let file = place.file;
    let drive = place.drive;
    let turn = core.lock_file(file).await?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found else { return Ok(false) };
    if !holds(&inode, place) {
        // This is a successor that was to come here, or has been here since before the drain began.
        return successors::abandon(core, place, &inode).await;
    }
    if segment_of(&inode, place).is_some_and(|segment| segment.filling.is_some()) {
        return filling::give_up(core, file).await.map(|()| true);
    }
    let ready = segment_of(&inode, place).is_some_and(|segment| segment.ready().contains(place.column));
    if core.drives().state(drive, core.now_ms()) != DriveState::Up {
        drop(turn);
        return move_away(core, place, &inode).await;
    }
    if !ready {
        return Ok(false); // first it is brought up to date, where it is
    }
    core.write(move |core, tx| begin_move(core, tx, place, None)).await
}

/// Moves a column of a drained drive that is away.
async fn move_away(core: &Arc<Core>, place: ComponentPlace, before: &InodeRecord) -> Result<bool, Refusal> {
    let file = place.file;
    move_lost(core, place, Arc::default()).await?;
    let after = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    Ok(after.as_ref() != Some(before))
}

/// Gives a column that is ready a successor: on `to`, if it may go there, or on a drive that is chosen.
/// Returns true if the column has got a successor now.
pub(crate) fn begin_move(
    core: &Core,
    tx: &mut Tx,
    place: ComponentPlace,
    to: Option<DriveId>,
) -> Result<bool, Refusal> {
    let Some(inode) = inodes::find(tx, place.file)?.filter(|inode| holds(inode, place)) else {
        return Ok(false);
    };
    if !(inode.is_named() || inode.is_frozen()) || successor_rows::moves(tx, place.file, place.segment)? {
        return Ok(false);
    }
    let Some(segment) = segment_of(&inode, place).filter(|segment| segment.filling.is_none()) else {
        return Ok(false);
    };
    if segment.shape.m == 0 {
        // Without redundancy a column cannot be made from the others: the file is copied.
        return Ok(to.is_none() && relayout::elsewhere(tx, place.file, &segment.shape)?);
    }
    if !can_be_made(segment, place.column, None) {
        return Ok(false); // first the file gets back what it lacks
    }
    let drive = match to {
        Some(to) if candidates(core, tx, place, &inode)?.iter().any(|one| one.drive == to) => to,
        Some(_) => return Err(nowhere(core, place, &inode)),
        None => choose(core, tx, place, &inode, &Spread::default())?,
    };
    successor_rows::plan(tx, place, drive)?;
    Ok(true)
}

/// Moves a column that is out. The file's generation stays: no client reads or writes the column.
fn move_out(core: &Core, tx: &mut Tx, place: ComponentPlace, spread: &Spread) -> Result<(), Refusal> {
    let Some(mut inode) = inodes::find(tx, place.file)?.filter(|inode| holds(inode, place)) else {
        return Ok(());
    };
    move_column(core, tx, place, &mut inode, spread)?;
    inodes::save(tx, place.file, &inode)?;
    Ok(())
}

/// Gives a column that is out a new drive, and lists it on the old one to be freed.
fn move_column(
    core: &Core,
    tx: &mut Tx,
    place: ComponentPlace,
    inode: &mut InodeRecord,
    spread: &Spread,
) -> Result<DriveId, Refusal> {
    // A successor of the column keeps what it has got so far.
    let successor =
        successor_rows::find(tx, place.file, place.segment)?.filter(|at| at.column == place.column);
    let new = match successor {
        Some(at) => at.drive,
        None => choose(core, tx, place, inode, spread)?,
    };
    let volume = inode.volume;
    let g = inode.g;
    let Some(segment) = segment_mut(inode, place).filter(|segment| !segment.set.contains(place.column))
    else {
        return Err(Refusal::new(
            Reason::Busy,
            format!("a column of file {} is in use again, and does not move", place.file),
        ));
    };
    let object = segment.object;
    if let Some(drive) = segment.drives.get_mut(place.column.index()) {
        *drive = new;
    }
    if successor.is_some() {
        tx.delete(key::moving(place.file, place.segment));
    }
    vacate(tx, place)?;
    if !inodes::is_replaced(tx, place.drive)? {
        tx.set(key::place(table::LEFT, place), &LeftRecord { volume, object, g });
    }
    let to = ComponentPlace { drive: new, ..place };
    occupy(tx, to)?;
    set_stale(tx, to, Some(StaleRecord { joining: false, told: true }))?;
    Ok(new)
}

async fn page(
    core: &Arc<Core>,
    drive: DriveId,
    after: Option<ComponentPlace>,
) -> Result<Vec<ComponentPlace>, Refusal> {
    core.read(move |_, tx| Ok(columns::on_drive(tx, drive, after, PAGE)?)).await
}

fn segment_mut(inode: &mut InodeRecord, place: ComponentPlace) -> Option<&mut SegmentRecord> {
    inode.segment_mut(place.segment)
}
