//! Columns move to emptier drives until all are about equally full: after a drive was added, and whenever
//! shares have drifted apart.
//!
//! - Balancing begins when the fullest and the emptiest drive differ by more than [`BEGIN_PERMILLE`] of their
//!   capacity, and goes on to the common share: so it does not begin again soon.
//! - A column moves only from a drive above the common share to one below it, and only if neither crosses it.
//!   So no more columns move than must, and none moves back.
//! - A column moves as it does off a drained drive: by a successor. Files that are being written wait.
//! - No file gets less spread: not over hosts, not over racks.
//! - The bytes on each drive are computed from the files' records. The drives' reports lag behind the moves.
//!
//! No move begins while a drive is away or drained: that is to be dealt with first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, FileId};
use braid_meta::records::columns;
use braid_meta::records::inodes::{self, component_bytes, holds, segment_of, still_moving};
use braid_meta::records::schema::{ComponentPlace, InodeRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::fullness::{Load, Loads};
use braid_meta::rules::jobs::Progress;
use braid_wire::Refusal;
use braid_wire::control::{BalanceState, DriveState, EntryKind};
use tokio::time::Instant;

use crate::columns::moves::begin_move;
use crate::core::Core;
use crate::jobs::{Again, Job};

/// Difference of the drives' shares, in thousandths, above which columns move.
pub(crate) const BEGIN_PERMILLE: u64 = 50;
/// The word under which it is stored that balancing is off.
const OFF: &str = "balance-off";
/// Pause between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Minimum interval between two walks that add up the bytes on all drives; and the same as a multiple of the
/// duration of one.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
const LOOK_REST: u32 = 50;
/// Number of files, and of columns, looked at in one transaction.
const PAGE: usize = 512;
/// Maximum number of files that have a column which moves.
const AT_ONCE: usize = 32;

/// Keeps the drives about equally full.
#[derive(Default)]
pub(crate) struct Balancing {
    /// The drives that took part in the last round, with their capacities.
    known: Vec<(DriveId, u64)>,
    /// Time of the next walk that adds up the bytes on all drives; `None`: at once.
    next_look: Option<Instant>,
}

impl Job for Balancing {
    const NAME: &'static str = "balance";
    const ABOUT: &'static str = "Moves columns until all drives are about equally full.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let drives = capacities(core);
        let changed = drives != self.known;
        let is_due = self.next_look.is_none_or(|at| at <= Instant::now());
        if !drives.is_empty() && (changed || is_due || core.balance().active) {
            balance(core, &drives, changed || is_due, &mut self.next_look).await?;
            self.known = drives;
        }
        let progress = {
            let balance = core.balance();
            let total = if balance.active { balance.begun_bytes } else { 0 };
            Progress { done: total.saturating_sub(balance.loads.left_bytes()), total, unit: "bytes" }
        };
        Balancing::progress(core, progress);
        Ok(Again::In(ROUND))
    }
}

/// The drives that take part, with their capacities. None while one is away or drained.
fn capacities(core: &Core) -> Vec<(DriveId, u64)> {
    let now_ms = core.now_ms();
    let drives = core.drives();
    let mut all = Vec::new();
    for drive in drives.iter() {
        match drives.state(drive.record.drive, now_ms) {
            DriveState::Replaced => {}
            DriveState::Up if takes_columns_if_roomy(drive) => {
                all.push((drive.record.drive, drive.record.capacity_bytes));
            }
            _ => return Vec::new(),
        }
    }
    all
}

fn takes_columns_if_roomy(drive: &braid_meta::rules::drives::Drive) -> bool {
    !drive.draining && drive.scrub.lost == 0
}

/// Moves some columns. `looks`: adds up the bytes on all drives first.
async fn balance(
    core: &Arc<Core>,
    drives: &[(DriveId, u64)],
    looks: bool,
    next_look: &mut Option<Instant>,
) -> Result<(), Refusal> {
    if core.read(|_, tx| is_off(tx)).await? {
        core.balance().active = false;
        return Ok(());
    }
    let moving = core.balance().moving.clone();
    let moving = core.read(move |_, tx| still_moving(tx, moving)).await?;
    core.balance().moving.clone_from(&moving);
    if looks {
        let began = Instant::now();
        let loads = look(core, drives).await?;
        *next_look = Some(Instant::now() + LOOK_AGAIN.max(began.elapsed() * LOOK_REST));
        let mut balance = core.balance();
        let spread = loads.spread_permille();
        if spread > BEGIN_PERMILLE && !balance.active {
            tracing::info!(
                spread_permille = spread,
                bytes = loads.left_bytes(),
                "columns move to emptier drives"
            );
            balance.begun_bytes = loads.left_bytes();
        }
        balance.active = spread > BEGIN_PERMILLE || (balance.active && !moving.is_empty());
        (balance.loads, balance.looked) = (loads, BTreeMap::new());
    }
    if !core.balance().active {
        return Ok(());
    }
    let begun = begin_some(core).await?;
    let mut balance = core.balance();
    if begun == 0 && balance.moving.is_empty() {
        tracing::info!(
            left_bytes = balance.loads.left_bytes(),
            "the drives are as equally full as they can be"
        );
        balance.active = false;
    }
    Ok(())
}

/// Adds up the bytes that every drive will hold, in one walk over all files.
async fn look(core: &Arc<Core>, drives: &[(DriveId, u64)]) -> Result<Loads, Refusal> {
    let load = |&(drive, capacity_bytes): &(DriveId, u64)| (drive, Load { bytes: 0, capacity_bytes });
    let mut loads = Loads(drives.iter().map(load).collect());
    let mut after = None;
    loop {
        let (last, found) = core
            .read(move |_, tx| {
                let rows = tx.inodes(after, PAGE)?;
                let last = rows.last().map(|(file, _)| *file).filter(|_| rows.len() == PAGE);
                let mut found: Vec<(DriveId, u64)> = Vec::new();
                for (file, inode) in rows {
                    found.extend(bytes_of(tx, file, &inode)?);
                }
                Ok((last, found))
            })
            .await?;
        for (drive, bytes) in found {
            if let Some(load) = loads.0.get_mut(&drive) {
                load.bytes = load.bytes.saturating_add(bytes);
            }
        }
        match last {
            Some(last) => after = Some(last),
            None => return Ok(loads),
        }
    }
}

/// The bytes of a file's components on each drive, once they have moved.
fn bytes_of(tx: &Tx, file: FileId, inode: &InodeRecord) -> Result<Vec<(DriveId, u64)>, Refusal> {
    if inode.kind != EntryKind::File {
        return Ok(Vec::new());
    }
    let moves = inodes::moves(tx, file)?;
    let mut bytes = Vec::new();
    for place in inode.places(file) {
        let moved = moves.iter().find(|at| (at.segment, at.column) == (place.segment, place.column));
        bytes.push((moved.map_or(place.drive, |at| at.drive), component_bytes(tx, file, place.segment)?));
    }
    Ok(bytes)
}

/// Gives columns of the fullest drives successors on the emptiest. Returns their number.
async fn begin_some(core: &Arc<Core>) -> Result<usize, Refusal> {
    let mut begun = 0;
    let givers = core.balance().loads.givers();
    for giver in givers {
        loop {
            let places = AT_ONCE.saturating_sub(core.balance().moving.len());
            if places == 0 || core.balance().loads.surplus(giver) == 0 {
                break;
            }
            let (after, loads) = {
                let balance = core.balance();
                (balance.looked.get(&giver).copied(), balance.loads.clone())
            };
            let page = core.write(move |core, tx| begin_page(core, tx, giver, after, loads, places)).await?;
            let mut balance = core.balance();
            begun += page.files.len();
            balance.moving.extend(page.files);
            balance.loads = page.loads;
            match page.last {
                Some(last) => drop(balance.looked.insert(giver, last)),
                None => break,
            }
        }
    }
    Ok(begun)
}

/// Result of a look at a few columns of one drive: the files that move, and the loads after that.
struct Page {
    files: Vec<FileId>,
    loads: Loads,
    /// The last column that was looked at; `None`: there are no more.
    last: Option<ComponentPlace>,
}

fn begin_page(
    core: &Core,
    tx: &mut Tx,
    giver: DriveId,
    after: Option<ComponentPlace>,
    mut loads: Loads,
    most: usize,
) -> Result<Page, Refusal> {
    let mut files = Vec::new();
    let mut last = None;
    for place in columns::on_drive(tx, giver, after, PAGE)? {
        if files.len() >= most || loads.surplus(giver) == 0 {
            break;
        }
        last = Some(place);
        let Some(inode) = inodes::find(tx, place.file)?.filter(|inode| may_move(inode, place)) else {
            continue;
        };
        let bytes = component_bytes(tx, place.file, place.segment)?;
        for taker in loads.takers(giver, bytes) {
            if spreads_less(core, &inode, place, taker) {
                continue;
            }
            // If it is refused, this drive cannot take the column, and the next may.
            if begin_move(core, tx, place, Some(taker)).unwrap_or(false) {
                loads.shift(giver, taker, bytes);
                files.push(place.file);
                break;
            }
        }
    }
    Ok(Page { files, loads, last })
}

/// Returns true if the column may move for no better reason than balance. A still would share no bytes with
/// its file any more.
fn may_move(inode: &InodeRecord, place: ComponentPlace) -> bool {
    let whole = |segment: &braid_meta::records::schema::SegmentRecord| {
        segment.all().minus(segment.ready()).is_empty()
    };
    let settled = !inode.held && !inode.unfenced && inode.filling().is_none();
    settled && !inode.is_frozen() && holds(inode, place) && segment_of(inode, place).is_some_and(whole)
}

/// Returns true if the move would leave the file's columns on fewer hosts or racks.
fn spreads_less(core: &Core, inode: &InodeRecord, place: ComponentPlace, taker: DriveId) -> bool {
    let table = core.drives();
    let domain = |drive: DriveId| {
        table.drive(drive).map(|known| (known.record.rack.clone(), known.record.host.clone()))
    };
    let drives = segment_of(inode, place).map_or(&[][..], |segment| &segment.drives);
    let others: Vec<_> =
        drives.iter().filter(|drive| **drive != place.drive).filter_map(|d| domain(*d)).collect();
    let (Some(old), Some(new)) = (domain(place.drive), domain(taker)) else { return true };
    let on_host = |of: &(String, String)| others.iter().filter(|other| *other == of).count();
    let on_rack = |of: &(String, String)| others.iter().filter(|other| other.0 == of.0).count();
    on_host(&new) > on_host(&old) || on_rack(&new) > on_rack(&old)
}

fn is_off(tx: &Tx) -> Result<bool, Refusal> {
    Ok(tx.number(OFF)? != 0)
}

/// Switches the balancing of drives on or off.
pub(crate) fn set(tx: &mut Tx, on: bool) {
    tx.set(key::meta(OFF), &u64::from(!on));
}

pub(crate) fn state(core: &Core, tx: &Tx) -> Result<BalanceState, Refusal> {
    let balance = core.balance();
    Ok(BalanceState {
        on: !is_off(tx)?,
        active: balance.active,
        spread_permille: balance.loads.spread_permille(),
        files: u64::try_from(balance.moving.len()).unwrap_or(u64::MAX),
        left_bytes: if balance.active { balance.loads.left_bytes() } else { 0 },
        begun_bytes: balance.begun_bytes,
    })
}
