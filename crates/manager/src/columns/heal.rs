//! The return of stale columns: the list of files that have some, letting columns join, making them ready
//! (PROTOCOL section 7). The drives do the work, each for the columns on it, and send their requests here
//! themselves.
//!
//! A drive that returned and an empty one that replaces another are handled alike. Both steps are the
//! procedure, a short fence, also beside a live lease: while the columns are brought up to date, readers and
//! writers go on. Joining columns are in the set: they take writes, answer no reads and vote on nothing. A
//! heal that was broken off is begun again, and goes on where it was, as only differences are written.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::placement::{Candidate, PlacementVersion, choose_beside};
use braid_layout::{Column, DriveId, FileId};
use braid_meta::records::inodes::{self, occupy, set_stale, vacate};
use braid_meta::records::kv::KvError;
use braid_meta::records::schema::{ComponentPlace, InodeRecord, StaleRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::records::{columns, frozen, successor_rows};
use braid_meta::rules::drives::{Drive, no_drive};
use braid_meta::rules::space::{candidate, takes_columns};
use braid_meta::tree::view::Opener;
use braid_wire::control::{BeginHeal, EndHeal, Opened, StaleFiles, StaleFilesReply};
use braid_wire::{Reason, Refusal};

use crate::columns::column_changes::{lease_of, must_be_up, nothing, olds_of, run};
use crate::columns::procedure::{self, Cause, RecordedLease, hold_lapsed};
use crate::columns::{filling, stills, successors};
use crate::core::Core;
use crate::files::opened::opened_by;

/// Maximum number of files in one reply.
const FILES_PER_PAGE_MAX: usize = 4096;

/// Files with stale columns on a drive, or on drives that it has replaced. Refused for a drive that is away:
/// the columns that it misses are known when it is back, and an empty list would be taken for "up to date".
pub(crate) async fn stale_files(core: &Arc<Core>, request: StaleFiles) -> Result<StaleFilesReply, Refusal> {
    let (target, olds) = target_of(core, &request.drive)?;
    must_be_up(core, target)?;
    let limit = match usize::try_from(request.limit).unwrap_or(usize::MAX) {
        0 => FILES_PER_PAGE_MAX,
        limit => limit.min(FILES_PER_PAGE_MAX),
    };
    core.read(move |_, tx| {
        let mut files = BTreeSet::new();
        let stale = |after: ComponentPlace| -> Result<Vec<ComponentPlace>, KvError> {
            let (_, to) = key::of_drive(table::STALE, target);
            let from = [key::place(table::STALE, after).as_slice(), &[0]].concat();
            Ok(tx.scan(&from, &to, limit)?.iter().map(|(row, _)| key::place_of(row)).collect())
        };
        files_of(target, request.after, limit, &mut files, stale)?;
        for old in olds {
            files_of(old, request.after, limit, &mut files, |after| {
                columns::on_drive(tx, old, Some(after), limit)
            })?;
        }
        let files: Vec<FileId> = files.into_iter().take(limit).collect();
        Ok(StaleFilesReply { files: frozen_last(tx, files)? })
    })
    .await
}

/// Puts frozen files after the others, so that these are healed first. The highest number comes last all the
/// same: drives ask for those above the last one next.
fn frozen_last(tx: &Tx, mut files: Vec<FileId>) -> Result<Vec<FileId>, KvError> {
    let Some(last) = files.pop() else { return Ok(files) };
    let mut live = Vec::new();
    let mut past = Vec::new();
    for file in files {
        let is_frozen = inodes::find(tx, file)?.is_some_and(|inode| inode.is_frozen());
        if is_frozen { &mut past } else { &mut live }.push(file);
    }
    live.append(&mut past);
    live.push(last);
    Ok(live)
}

/// Lets the file's stale columns on the drive join, if they are not joining already, and takes out columns
/// whose drives are surely dead. The file's lease goes on. A drive with ready columns only is answered too if
/// it does not begin a heal: it makes damaged units of its columns anew.
pub(crate) async fn begin(core: &Arc<Core>, asker: DriveId, request: BeginHeal) -> Result<Opened, Refusal> {
    let file = request.file;
    if request.filling {
        return filling::begin(core, asker, file).await;
    }
    let target = asker;
    let olds = olds_of(core, asker);
    must_be_up(core, target)?;
    let _turn = core.lock_file(file).await?;
    if request.in_vain > 0
        && let Some(turns) = core.leases().turns(file)
    {
        turns.calm(request.in_vain, core.running_ms());
    }
    let (inode, moves) =
        core.read(move |_, tx| Ok((inodes::get(tx, file)?, inodes::moves(tx, file)?))).await?;
    let gone: Vec<ComponentPlace> = moves.iter().filter(|at| olds.contains(&at.drive)).copied().collect();
    if !gone.is_empty() {
        let inode = inode.clone();
        core.write(move |_, tx| {
            Ok(gone.iter().try_for_each(|&at| successor_rows::give_up(tx, at, &inode).map(drop))?)
        })
        .await?;
    }
    if let Some(at) = moves.iter().find(|at| at.drive == target && is_in_the_way(&inode, at, &olds)) {
        // The orphaned column is made here once the successor's object was freed.
        successors::abandon(core, *at, &inode).await?;
        let detail =
            format!("another column of file {file} was moving to this drive: that move is given up first");
        return Err(Refusal::new(Reason::Busy, detail));
    }
    let columns = stale_columns(&inode, target, &olds);
    if columns.is_empty() {
        let own: Vec<ComponentPlace> = moves.into_iter().filter(|at| at.drive == target).collect();
        if !own.is_empty() {
            return successors::begin(core, request, inode, own).await;
        }
        let begins = request.comparison != 0;
        if begins || inode.in_force().all(|on| on.columns(|of| of == target).is_empty()) {
            return Err(nothing(core, file, target));
        }
    }
    let ended = lease_of(core, file, &inode);
    // For a repair no column goes out: a drive that is away while nothing is written misses nothing.
    let lost = if columns.is_empty() { Vec::new() } else { hold_lapsed(core, &inode) };
    let joining = |&(index, column): &(u32, Column)| {
        let segment = inode.segment(index);
        segment.is_some_and(|segment| segment.drive(column) == target && segment.joining.contains(column))
    };
    if columns.iter().all(joining) && lost.is_empty() && !inode.unfenced && ended != RecordedLease::Ended {
        return opened_by(core, file, inode, Opener::Healer(target)).await;
    }
    if inode.is_frozen() {
        stills::refuse_if_too_full(core, &inode, file, target, &columns).await?;
    }
    let change: procedure::Change = Arc::new(move |core, tx, file, inode| {
        columns.iter().try_for_each(|&(index, column)| join(core, tx, file, inode, index, column, target))
    });
    let cause = Cause { lease: ended, lost, change: Some(change) };
    let inode = run(core, file, cause).await?.ok_or_else(|| nothing(core, file, target))?;
    opened_by(core, file, inode, Opener::Healer(target)).await
}

/// Makes the drive's joining columns of the file ready, which were found equal to the others in generation
/// `g`. Later writes are on them too, as they are in the set.
pub(crate) async fn end(core: &Arc<Core>, asker: DriveId, request: EndHeal) -> Result<(), Refusal> {
    if request.filling {
        return filling::end(core, asker, request).await;
    }
    let EndHeal { file, g, left, .. } = request;
    must_be_up(core, asker)?;
    let _turn = core.lock_file(file).await?;
    let (inode, moves) =
        core.read(move |_, tx| Ok((inodes::get(tx, file)?, inodes::moves(tx, file)?))).await?;
    let own = |inode: &InodeRecord| {
        inode.in_force().any(|segment| segment.joining.iter().any(|c| segment.drive(c) == asker))
    };
    if inode.g != g || inode.unfenced {
        let detail = format!("file {file} is in generation {} now: compare again", inode.g);
        return Err(Refusal::new(Reason::StaleGeneration, detail));
    }
    if !own(&inode) {
        // If there are successors neither, this is a repeat.
        let own = moves.into_iter().filter(|at| at.drive == asker).collect();
        return successors::end(core, request, inode, own).await;
    }
    if left > 0 {
        if !inode.held {
            successors::settle(core, file, &inode).await?;
        }
        let detail = format!(
            "it is not clear yet which writes to {left} stripes of file {file} are settled: compare again"
        );
        return Err(Refusal::new(Reason::StaleGeneration, detail));
    }
    let ended = lease_of(core, file, &inode);
    let lost = hold_lapsed(core, &inode);
    let change: procedure::Change = Arc::new(move |_, tx, file, inode| ready(tx, file, inode, asker));
    run(core, file, Cause { lease: ended, lost, change: Some(change) }).await?;
    if let Some(turns) = core.leases().turns(file) {
        turns.end_calm(core.running_ms());
    }
    Ok(())
}

/// The drive that stands for a name now, and the drives that it has replaced.
fn target_of(core: &Core, name: &str) -> Result<(DriveId, Vec<DriveId>), Refusal> {
    let target = {
        let table = core.drives();
        let named = table.find(name).map(|drive| drive.record.drive).ok_or_else(|| no_drive(name))?;
        table.successor(named)
    };
    Ok((target, olds_of(core, target)))
}

/// Adds the first `limit` files above `after` of those that have components in the drive's list. `page`
/// returns the next components of the list after one, `limit` at a time.
fn files_of(
    drive: DriveId,
    after: FileId,
    limit: usize,
    files: &mut BTreeSet<FileId>,
    page: impl Fn(ComponentPlace) -> Result<Vec<ComponentPlace>, KvError>,
) -> Result<(), Refusal> {
    let mut last = ComponentPlace { drive, file: after, segment: u32::MAX, column: Column(u8::MAX) };
    let mut found = BTreeSet::new();
    while found.len() < limit {
        let places = page(last)?;
        found.extend(places.iter().map(|place| place.file));
        match places.last() {
            Some(place) if places.len() == limit => last = *place,
            _ => break,
        }
    }
    files.extend(found);
    Ok(())
}

/// Columns in force that are not ready: on the drive and out or joining, or on a drive that it has replaced.
fn stale_columns(inode: &InodeRecord, target: DriveId, olds: &[DriveId]) -> Vec<(u32, Column)> {
    let mut columns = Vec::new();
    for segment in inode.in_force() {
        let stale = segment.columns(|drive| drive == target).minus(segment.ready());
        let orphaned = segment.columns(|drive| olds.contains(&drive));
        columns.extend(stale.or(orphaned).iter().map(|column| (segment.number, column)));
    }
    columns
}

/// Returns true if a successor is on the drive on which another column of the segment is to be made anew, as
/// that column's drive was replaced: a drive has only one column of a segment.
fn is_in_the_way(inode: &InodeRecord, at: &ComponentPlace, olds: &[DriveId]) -> bool {
    let orphaned = inode.segment(at.segment).map(|segment| segment.columns(|drive| olds.contains(&drive)));
    orphaned.is_some_and(|orphaned| !orphaned.is_empty() && !orphaned.contains(at.column))
}

/// Lets one column join, on its drive, or on a new one if its drive was replaced.
pub(crate) fn join(
    core: &Core,
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    index: u32,
    column: Column,
    target: DriveId,
) -> Result<(), Refusal> {
    let name = inode.name.clone();
    let Some(segment) = inode.segment_mut(index) else {
        return Ok(());
    };
    let old = segment.drive(column);
    if let Some(at) =
        successor_rows::find(tx, file, index)?.filter(|at| at.drive == target && at.column == column)
        && old != target
    {
        // The column was on its way to this drive when the old one died, which this one has replaced.
        return successor_rows::take_place(tx, at, inode, true);
    }
    let new = if old == target { old } else { new_home(core, tx, file, &name, &segment.drives, target)? };
    if new != old {
        if !inodes::holds_nothing(tx, new, file)? {
            let detail =
                format!("old objects of file {file} on {} must be freed first", core.drives().name(new));
            return Err(Refusal::new(Reason::Busy, detail));
        }
        vacate(tx, ComponentPlace { drive: old, file, segment: index, column })?;
        if let Some(place) = segment.drives.get_mut(column.index()) {
            *place = new;
        }
    }
    let place = ComponentPlace { drive: new, file, segment: index, column };
    occupy(tx, place)?;
    set_stale(tx, place, Some(StaleRecord { joining: true, told: true }))?;
    segment.set = segment.set.with(column);
    segment.joining = segment.joining.with(column);
    Ok(())
}

/// The new drive for a column of a replaced one: the replacement, unless the file has a column there already,
/// or stills of one; then one that placement chooses among the drives that are up and have room. A full drive
/// would refuse the column.
fn new_home(
    core: &Core,
    tx: &Tx,
    file: FileId,
    name: &[u8],
    drives: &[DriveId],
    target: DriveId,
) -> Result<DriveId, Refusal> {
    if !drives.contains(&target) && !frozen::has_stills(tx, target, file)? {
        return Ok(target);
    }
    let now_ms = core.now_ms();
    let table = core.drives();
    let known = |ids: &[DriveId], which: fn(&Drive) -> bool| -> Vec<Candidate> {
        let those = ids.iter().filter_map(|&drive| table.drive(drive));
        those.filter(|drive| which(drive)).map(candidate).collect()
    };
    let kept = known(drives, |_| true);
    let mut free = table.up(now_ms);
    for (drive, has_stills) in free.clone().into_iter().map(|up| (up, frozen::has_stills(tx, up, file))) {
        if has_stills? {
            free.retain(|up| *up != drive);
        }
    }
    let roomy = known(&free, takes_columns);
    let chosen = choose_beside(PlacementVersion::V1, file.0, &kept, 1, &roomy);
    chosen.ok().and_then(|drives| drives.first().copied()).ok_or_else(|| {
        let detail = format!(
            "{:?} (file {file}) has a column, or what snapshots show of one, on {} already, and no drive without is up \
             and has room: add a drive",
            braid_meta::tree::names::show(name),
            table.name(target),
        );
        Refusal::new(Reason::TooFewDrives, detail)
    })
}

/// Makes the drive's joining columns ready.
fn ready(tx: &mut Tx, file: FileId, inode: &mut InodeRecord, drive: DriveId) -> Result<(), Refusal> {
    for segment in inode.segments.iter_mut().filter(|segment| segment.filling.is_none()) {
        let index = segment.number;
        let caught_up = segment.joining.and(segment.columns(|of| of == drive));
        for column in caught_up.iter() {
            set_stale(tx, ComponentPlace { drive, file, segment: index, column }, None)?;
        }
        segment.joining = segment.joining.minus(caught_up);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_layout::VolumeId;
    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::records::schema::directory_record;

    use super::*;

    #[test]
    fn what_only_snapshots_show_is_healed_last() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let listed = db.write(|tx| {
            for (file, frozen) in [(5, 1), (6, 0), (7, 1), (8, 0), (9, 1)] {
                let mut inode = directory_record(VolumeId(1), FileId(2), b"f".to_vec(), 0);
                inode.frozen = FileId(frozen);
                inodes::save(tx, FileId(file), &inode)?;
            }
            Ok(frozen_last(tx, (5..=9).map(FileId).collect())?)
        });
        assert_eq!(listed.unwrap(), [6, 8, 5, 7, 9].map(FileId), "and the highest is the last");
    }
}
