//! Columns move to other drives: from a drive that is lost, and from one that is being drained.
//!
//! Where a column lies is one record. It moves while it is out of its file's set: from then on it is a stale
//! column of the new drive, which heals it like any other. The old drive is to free what it holds of it; one
//! that is away does so before it gets a lease again, as capabilities for it may still be in force.
//!
//! - A drive is *lost* when it was silent for the set time. If it returns meanwhile, what has moved stays
//!   moved, and the drive keeps the rest.
//! - A drive that is *drained* serves until a column of it moves. The column goes out first: a live drive is
//!   fenced for it before anybody writes without it. So a file has one column less than it should while it
//!   moves; a few files of a drive move at a time, and only those that lack no other column.
//!
//! No column moves to where there is no room, nor to a host that would then have more columns of the file
//! than one has now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::placement::{Candidate, PlacementVersion, choose_beside};
use braid_layout::{DriveId, FileId};
use braid_wire::control::DriveState;
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::core::Core;
use crate::drives::{Drive, DriveTable};
use crate::heal::{lease_of, run};
use crate::inodes::{self, occupy, set_stale, vacate};
use crate::kv::Tx;
use crate::procedure::{self, Cause, hold_lapsed};
use crate::schema::{ComponentPlace, InodeRecord, LeftRecord, SegmentRecord, StaleRecord, key, table};
use crate::space::{candidate, has_room};
use crate::sweep::until_leading;

/// Pause between two looks at which drives are to be emptied.
const ROUND: Duration = Duration::from_secs(1);
/// Pause before a drive is tried again of which some column could not move.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Columns looked up at a time.
const PAGE: usize = 256;
/// Columns of a lost drive that move at a time.
const MOVES: usize = 8;
/// Files of a drained drive that lack a column at a time.
const DRAINED_AT_ONCE: usize = 4;
/// Of the room on other drives, the part that may be filled: the rest is for what is written meanwhile.
const ROOM_PERCENT: u64 = 90;

/// Why a drive is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Lost,
    Drained,
}

/// Empties lost and drained drives, for ever.
pub async fn empty_drives(core: Arc<Core>) {
    let mut moving: BTreeMap<DriveId, BTreeSet<FileId>> = BTreeMap::new();
    let mut said: BTreeMap<DriveId, String> = BTreeMap::new();
    let mut not_before: BTreeMap<DriveId, Instant> = BTreeMap::new();
    loop {
        until_leading(&core).await;
        not_before.retain(|_, at| *at > Instant::now());
        for (drive, why) in due(&core) {
            if not_before.contains_key(&drive) {
                continue;
            }
            let emptied = match why {
                Why::Lost => empty_lost(&core, drive).await,
                Why::Drained => drain_some(&core, drive, moving.entry(drive).or_default()).await,
            };
            match emptied {
                Ok(()) => drop(said.remove(&drive)),
                Err(refusal) => {
                    not_before.insert(drive, Instant::now() + TRY_AGAIN);
                    // Once, not every time.
                    if said.get(&drive) != Some(&refusal.detail) {
                        let name = core.drives().name(drive);
                        tracing::warn!(%name, %refusal, "columns of the drive cannot move to others yet");
                        said.insert(drive, refusal.detail);
                    }
                }
            }
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// The drives that are to be emptied now.
fn due(core: &Core) -> Vec<(DriveId, Why)> {
    let (now_ms, table) = (core.now_ms(), core.drives());
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
    core.lost_after_ms > 0
        && table.state(drive, now_ms) == DriveState::Away
        && table.silent_for(drive, now_ms) >= core.lost_after_ms
}

async fn empty_lost(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    let needs = core.read(move |core, tx| room_for(core, tx, drive)).await?;
    if needs.components == 0 {
        return Ok(());
    }
    needs.check(core)?;
    let name = core.drives().name(drive);
    tracing::info!(%name, components = needs.components, "the drive is lost: its columns move to others");
    let (mut after, mut failed) = (None, Ok(()));
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
            moves.spawn(async move { move_lost(&core, place).await });
        }
        while let Some(moved) = moves.join_next().await {
            if let Ok(Err(refusal)) = moved {
                failed = Err(refusal);
            }
        }
    }
}

/// Moves one column of a drive that is surely dead.
async fn move_lost(core: &Arc<Core>, place: ComponentPlace) -> Result<(), Refusal> {
    let file = place.file;
    let _turn = core.lock_file(file).await?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found.filter(|inode| holds(inode, place)) else { return Ok(()) };
    if !segment_of(&inode, place).is_some_and(|segment| segment.set.contains(place.column)) {
        return core.write(move |core, tx| move_out(core, tx, place)).await;
    }
    let lost = hold_lapsed(core, &inode);
    if !lost.iter().any(|lost| lost.drive == place.drive) {
        procedure::release_holds(core, lost.iter().map(|lost| lost.drive));
        return Ok(()); // it may be back
    }
    let change: procedure::Change =
        Arc::new(move |core, tx, _, inode| move_column(core, tx, place, inode).map(drop));
    run(core, file, Cause { lease: lease_of(core, file, &inode), lost, change: Some(change) }).await.map(drop)
}

/// Moves the next columns of a drive that is drained, as far as they may move now.
async fn drain_some(core: &Arc<Core>, drive: DriveId, moving: &mut BTreeSet<FileId>) -> Result<(), Refusal> {
    for file in std::mem::take(moving) {
        let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
        if found.is_some_and(|inode| !inode.segments.iter().all(is_whole)) {
            moving.insert(file);
        }
    }
    let (mut after, mut failed) = (None, Ok(()));
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
                Ok(false) if moving.is_empty() && failed.is_ok() => {
                    let detail =
                        format!("file {} lacks other columns: first these are made anew", place.file);
                    failed = Err(Refusal::new(Reason::Busy, detail));
                }
                Ok(false) => {}
                Err(refusal) => failed = Err(refusal),
            }
        }
    }
    if moving.is_empty() { failed } else { Ok(()) }
}

/// Moves one column of a drive that is drained. Returns whether it did.
async fn move_drained(core: &Arc<Core>, place: ComponentPlace) -> Result<bool, Refusal> {
    let (file, drive) = (place.file, place.drive);
    if core.drives().state(drive, core.now_ms()) != DriveState::Up {
        let before = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
        move_lost(core, place).await?;
        let after = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
        return Ok(before != after);
    }
    let _turn = core.lock_file(file).await?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found.filter(|inode| holds(inode, place)) else { return Ok(false) };
    let Some(segment) = segment_of(&inode, place) else { return Ok(false) };
    let others = segment.all().without(place.column);
    if !others.minus(segment.ready()).is_empty() {
        return Ok(false); // first what it lacks already
    }
    // Before anything changes: is there a place for it?
    let inode = core.read(move |core, tx| choose(core, tx, place, &inode).map(|_| inode)).await?;
    if segment_of(&inode, place).is_some_and(|segment| segment.set.contains(place.column)) {
        let change: procedure::Change = Arc::new(move |_, tx, _, inode| take_out(tx, place, inode));
        let cause = Cause { lease: lease_of(core, file, &inode), lost: Vec::new(), change: Some(change) };
        run(core, file, cause).await?;
    }
    core.write(move |core, tx| move_out(core, tx, place)).await?;
    Ok(true)
}

/// The column goes out. Its drive may live: the procedure fences it before anybody writes without it.
fn take_out(tx: &mut Tx, place: ComponentPlace, inode: &mut InodeRecord) -> Result<(), Refusal> {
    if let Some(segment) = segment_mut(inode, place) {
        segment.set = segment.set.without(place.column);
        segment.joining = segment.joining.without(place.column);
        set_stale(tx, place, Some(StaleRecord { joining: false, told: false }))?;
    }
    Ok(())
}

/// Moves a column that is out. The file's generation stays: nobody reads or writes the column.
fn move_out(core: &Core, tx: &mut Tx, place: ComponentPlace) -> Result<(), Refusal> {
    let Some(mut inode) = inodes::find(tx, place.file)?.filter(|inode| holds(inode, place)) else {
        return Ok(());
    };
    move_column(core, tx, place, &mut inode)?;
    inodes::save(tx, place.file, &inode);
    Ok(())
}

/// Gives a column that is out a new drive, and has the old one free what it holds of it.
fn move_column(
    core: &Core,
    tx: &mut Tx,
    place: ComponentPlace,
    inode: &mut InodeRecord,
) -> Result<DriveId, Refusal> {
    let new = choose(core, tx, place, inode)?;
    let (volume, g) = (inode.volume, inode.g);
    let Some(segment) = segment_mut(inode, place).filter(|segment| !segment.set.contains(place.column))
    else {
        return Err(Refusal::new(Reason::Busy, format!("a column of file {} is in its set", place.file)));
    };
    let object = segment.object;
    if let Some(drive) = segment.drives.get_mut(place.column.index()) {
        *drive = new;
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

/// The drive that takes a column: one that is up, has room, holds nothing of the file, and whose host does
/// not get more columns of the file than one has now.
fn choose(core: &Core, tx: &Tx, place: ComponentPlace, inode: &InodeRecord) -> Result<DriveId, Refusal> {
    let file = place.file;
    let Some(segment) = segment_of(inode, place) else {
        return Err(Refusal::new(Reason::NotFound, format!("file {file} has no such segment")));
    };
    let mut candidates: Vec<Candidate> = {
        let (now_ms, table) = (core.now_ms(), core.drives());
        let up = table.up(now_ms);
        let takes = |drive: &&Drive| takes_columns(drive) && !segment.drives.contains(&drive.record.drive);
        up.into_iter().filter_map(|drive| table.drive(drive)).filter(takes).map(candidate).collect()
    };
    let mut clean = Vec::with_capacity(candidates.len());
    for candidate in candidates.drain(..) {
        // What it still has of the file from before would be freed under the column.
        let at = ComponentPlace { drive: candidate.drive, ..place };
        let left = tx.get(&key::place(table::LEFT, at))?.is_some();
        if !left && tx.get(&key::remove(candidate.drive, file, segment.object))?.is_none() {
            clean.push(candidate);
        }
    }
    let (kept, old): (Vec<Candidate>, Option<Candidate>) = {
        let table = core.drives();
        let known = |drive: DriveId| table.drive(drive).map(candidate);
        let kept =
            segment.drives.iter().filter(|drive| **drive != place.drive).filter_map(|drive| known(*drive));
        (kept.collect(), known(place.drive))
    };
    let on_host = |of: &Candidate| kept.iter().filter(|kept| kept.domain == of.domain).count();
    let most_now = kept
        .iter()
        .chain(&old)
        .map(|of| on_host(of) + usize::from(old.as_ref().is_some_and(|old| old.domain == of.domain)));
    let most_now = most_now.max().unwrap_or(1).max(1);
    clean.retain(|candidate| on_host(candidate) < most_now);
    let chosen = choose_beside(PlacementVersion::V1, file.0, &kept, 1, &clean);
    chosen.ok().and_then(|drives| drives.first().copied()).ok_or_else(|| {
        let detail = format!(
            "a column of {:?} (file {file}) on {} can move nowhere: no other drive is up, has room, holds no other \
             column of it, and is on a host that has fewer: add a drive",
            crate::names::show(&inode.name),
            core.drives().name(place.drive),
        );
        Refusal::new(Reason::TooFewDrives, detail)
    })
}

/// Whether columns may move to a drive.
fn takes_columns(drive: &Drive) -> bool {
    has_room(drive) && !drive.draining && drive.scrub.lost == 0
}

/// What the columns on a drive need elsewhere.
pub struct Needs {
    drive: DriveId,
    /// Components on it.
    pub components: u64,
    /// About how many bytes they have.
    pub bytes: u64,
    /// The room on the drives that may take them.
    pub room_bytes: u64,
}

impl Needs {
    /// Refuses if there is too little room.
    pub fn check(&self, core: &Core) -> Result<(), Refusal> {
        if self.bytes <= self.room_bytes {
            return Ok(());
        }
        let detail = format!(
            "{} has {} components of about {} bytes, and the other drives have room for {}: add drives first",
            core.drives().name(self.drive),
            self.components,
            self.bytes,
            self.room_bytes
        );
        Err(Refusal::new(Reason::Full, detail))
    }
}

/// What the columns on the drive need, and what there is.
pub fn room_for(core: &Core, tx: &Tx, drive: DriveId) -> Result<Needs, Refusal> {
    let components = inodes::counts(tx, drive)?.components;
    let bytes = crate::healing::bytes_of(tx, key::of_drive(table::COLUMN, drive), components)?;
    let (now_ms, table) = (core.now_ms(), core.drives());
    let others = table.up(now_ms).into_iter().filter(|other| *other != drive);
    let takers = others.filter_map(|other| table.drive(other)).filter(|other| takes_columns(other));
    let room: u64 = takers.map(|other| other.free_bytes).sum();
    Ok(Needs { drive, components, bytes, room_bytes: room / 100 * ROOM_PERCENT })
}

async fn page(
    core: &Arc<Core>,
    drive: DriveId,
    after: Option<ComponentPlace>,
) -> Result<Vec<ComponentPlace>, Refusal> {
    core.read(move |_, tx| {
        let (first, to) = key::of_drive(table::COLUMN, drive);
        let from = after.map_or(first, |place| [key::place(table::COLUMN, place).as_slice(), &[0]].concat());
        Ok(tx.scan(&from, &to, PAGE)?.iter().map(|(key, _)| key::place_of(key)).collect())
    })
    .await
}

fn segment_of(inode: &InodeRecord, place: ComponentPlace) -> Option<&SegmentRecord> {
    inode.segments.get(usize::try_from(place.segment).ok()?)
}

fn segment_mut(inode: &mut InodeRecord, place: ComponentPlace) -> Option<&mut SegmentRecord> {
    inode.segments.get_mut(usize::try_from(place.segment).ok()?)
}

fn holds(inode: &InodeRecord, place: ComponentPlace) -> bool {
    segment_of(inode, place).is_some_and(|segment| segment.drive(place.column) == place.drive)
}

fn is_whole(segment: &SegmentRecord) -> bool {
    segment.all().minus(segment.ready()).is_empty()
}
