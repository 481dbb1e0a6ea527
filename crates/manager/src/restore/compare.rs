//! Compares a restored state with what the drives hold, before any client is answered.
//!
//! The state is old, the drives are current. Every object names its file and column, and has the generation,
//! set and joining columns that its file last had. So, once every drive was heard, each file is compared:
//!
//! - The objects of the highest generation say which columns are in the set. Columns that are not in it, or
//!   have a lower generation, are out; unless fewer than `k` are left, as a fence was under way
//!   (`half_fenced`). The file continues one generation above, and its size is settled from the components
//!   as after a writer that died.
//! - A column that should hold bytes by the file's size, but has no object, is out; unless it is on record
//!   that nothing was ever sent to it, as where the file has holes. If fewer than `k` columns are left, the
//!   file is *not whole*: it was removed since, or has lost bytes. Opening it reports the missing drives.
//! - If no name leads to an object's file, the file was created since, or was being removed, or had no name
//!   yet and may have got one since. The object is kept until an operator says otherwise ([`free_unnamed`]).
//! - A freeze that was begun may have ended since, and its file may have been written. So it begins anew,
//!   under other numbers (`frozen::begin_anew`). If its file has no name any more, that file itself is the
//!   frozen one from now on (`frozen::restored`).
//! - Files on the removal list were removed before the backup. File numbers are never used again, so these
//!   files continue to be freed.
//!
//! No byte is removed here. The comparison may restart at any point. Its findings are written into the
//! manager's directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::version::Lease;
use braid_layout::{ColumnMask, DriveId, FileId, Generation, PartitionId};
use braid_meta::catalogue::frame::PARTITION;
use braid_meta::records::filling_rows;
use braid_meta::records::frozen;
use braid_meta::records::inodes::{self, has_untold, set_stale};
use braid_meta::records::schema::{ComponentPlace, InodeRecord, StaleRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::Drive;
use braid_meta::rules::jobs::Progress;
use braid_meta::rules::leadership::Leadership;
use braid_meta::tree::seen::place_of_frozen;
use braid_meta::tree::volumes::path_of;
use braid_wire::control::{DriveState, EntryKind};
use braid_wire::{Reason, Refusal};

use crate::columns::listing::{self, Listed, Listing, cannot_be_asked};
use crate::core::Core;
use crate::jobs::{Again, Job};
use crate::restore::adopt;
use crate::restore::layouts::{self, OnDrives};
use crate::restore::present::present_set;

/// Pause between two checks that every drive was heard, and after a failure.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Maximum wait for drives that are away, from the manager's start, in milliseconds.
const DRIVES_WAIT_MS: u64 = 60_000;
/// Maximum number of files changed by one transaction.
const FILES_PER_BATCH: usize = 256;
/// Maximum number of names that the report lists.
const NAMES_MAX: usize = 10_000;
/// The report's name in the manager's directory.
pub const REPORT_FILE: &str = "comparison.txt";

/// Findings of a comparison.
#[derive(Debug, Default)]
struct Report {
    files: u64,
    not_whole: BTreeMap<FileId, String>,
    more: u64,
    unnamed: u64,
    /// Files that got a name in `lost+found`.
    adopted: u64,
    /// True if the state was made of what drives hold, and not restored from a backup.
    rebuilt: bool,
}

/// Compares the state with the drives, if it was restored, and then lets the manager lead.
#[derive(Default)]
pub(crate) struct Compare;

impl Job for Compare {
    const NAME: &'static str = "compare";
    const ABOUT: &'static str = "Compares a state that was restored from a backup with the drives.";
    const NEEDS_LEADING: bool = false;

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        if !matches!(*core.leadership(), Leadership::Comparing(_)) {
            return Ok(Again::Never);
        }
        match compare(core).await {
            Ok(()) => Ok(Again::Never),
            Err(refusal) => {
                Compare::failed_in_part(core, &refusal.detail);
                say(core, refusal.detail);
                Ok(Again::In(LOOK_AGAIN))
            }
        }
    }
}

/// Lets the objects be freed that a comparison kept because no name leads to them.
pub async fn free_unnamed(core: &Arc<Core>) -> Result<(), Refusal> {
    core.write(|_, tx| {
        tx.set(key::meta("unnamed"), &0u64);
        Ok(())
    })
    .await
}

fn say(core: &Core, how: String) {
    if let Leadership::Comparing(said) = &mut *core.leadership() {
        *said = how;
    }
}

async fn compare(core: &Arc<Core>) -> Result<(), Refusal> {
    let (drives, away) = drives(core)?;
    let away = Arc::new(away);
    let rebuilt = core.read(|_, tx| Ok(tx.number("rebuilt")? != 0)).await?;
    let mut report = Report { rebuilt, ..Report::default() };
    let mut seen = BTreeSet::new();
    let partitions = partitions(core, &drives).await?;
    let of = partitions.len();
    for (n, partition) in (1..).zip(partitions) {
        say(core, format!("volume {n} of {of}, {} files so far", report.files));
        let total = u64::try_from(of).unwrap_or(u64::MAX);
        Compare::progress(core, Progress { done: n - 1, total, unit: "volumes" });
        let mut listing = Listing::new(drives.iter().copied());
        while let Some(files) = listing.next(core, partition).await? {
            let files: Vec<(FileId, Listed)> = files.into_iter().collect();
            for batch in files.chunks(FILES_PER_BATCH) {
                if rebuilt {
                    report.adopted += adopt::adopt(core, partition, batch).await?;
                }
                let batch = layouts::sort_out(core, partition, batch.to_vec()).await?;
                let away = Arc::clone(&away);
                let found = core.write(move |_, tx| settle_all(tx, batch, &away)).await?;
                for (file, found) in found {
                    let is_settled = !matches!(found, Found::Again);
                    report.count(file, found, !seen.contains(&file));
                    if is_settled {
                        seen.insert(file);
                    }
                }
            }
        }
    }
    let unseen = core.read(move |_, tx| files_without_objects(tx, &seen)).await?;
    for batch in unseen.chunks(FILES_PER_BATCH) {
        let batch = batch.to_vec();
        let away = Arc::clone(&away);
        let found = core
            .write(move |_, tx| {
                let nothing = || OnDrives { listed: Listed::new(), layout: None };
                settle_all(tx, batch.into_iter().map(|file| (file, nothing())).collect(), &away)
            })
            .await?;
        found.into_iter().for_each(|(file, found)| report.count(file, found, true));
    }
    let done = u64::try_from(of).unwrap_or(u64::MAX);
    Compare::progress(core, Progress { done, total: done, unit: "volumes" });
    finish(core, report).await
}

/// The partitions that any drive has, including those of volumes that this state does not know.
async fn partitions(core: &Core, drives: &[DriveId]) -> Result<BTreeSet<PartitionId>, Refusal> {
    let mut partitions = BTreeSet::new();
    for &drive in drives {
        let found = listing::partitions(core, drive).await;
        let found = found.map_err(|error| cannot_be_asked(core, drive, &error))?;
        partitions.extend(found.iter().map(|there| there.partition).filter(|there| *there != PARTITION));
    }
    Ok(partitions)
}

/// The drives that are up, and those that are away. An error while a drive that is away may still come.
fn drives(core: &Core) -> Result<(Vec<DriveId>, BTreeSet<DriveId>), Refusal> {
    let now_ms = core.now_ms();
    let table = core.drives();
    let up = table.up(now_ms);
    let away = table.in_state(DriveState::Away, now_ms);
    // One that came back in an older state is given no lease before its columns are out, which is not now.
    let waited_for = |drive: &DriveId| table.drive(*drive).is_none_or(|known| !known.record.behind);
    if !away.iter().any(waited_for) || (!up.is_empty() && core.uptime_ms() > DRIVES_WAIT_MS) {
        return Ok((up, away.into_iter().collect()));
    }
    let detail = format!(
        "waiting for {}: start them; if this manager has another address than before, with --manager HOST:PORT",
        table.names(away)
    );
    Err(Refusal::new(Reason::NotServing, detail))
}

/// The result for one file.
#[derive(Debug)]
pub(crate) enum Found {
    /// The file has enough current columns.
    Whole,
    /// The file has too few current columns; with its name.
    NotWhole(String),
    /// The file has no name, and drives hold objects of it, which are kept.
    Unnamed,
    /// Objects of a layout that is not the file's. Its layout in force is compared too, and that result
    /// counts.
    Again,
    /// Nothing is kept: it is on the removal list, or no drive has an object of it.
    Nothing,
}

impl Report {
    /// Counts the result for a file. `is_first`: the file was not counted before. The last result counts.
    fn count(&mut self, file: FileId, found: Found, is_first: bool) {
        match found {
            Found::Whole => {
                self.files += u64::from(is_first);
                self.not_whole.remove(&file);
            }
            Found::Unnamed => self.unnamed += u64::from(is_first),
            Found::Nothing | Found::Again => {}
            Found::NotWhole(name) => {
                self.files += u64::from(is_first);
                if self.not_whole.contains_key(&file) || self.not_whole.len() < NAMES_MAX {
                    self.not_whole.insert(file, name);
                } else {
                    self.more += u64::from(is_first);
                }
            }
        }
    }

    fn text(&self) -> String {
        let missing = u64::try_from(self.not_whole.len()).unwrap_or(u64::MAX) + self.more;
        let how = if self.rebuilt { "rebuilt from drives" } else { "restored" };
        let before = if self.rebuilt { "made in the last seconds" } else { "made after the backup" };
        let mut text = format!(
            "The manager's state was {how}, and compared with what the drives hold.\n\n{} files have a name; {} of them \
             are whole, {missing} are not.\n{} files on the drives have no name: they were {before}, or were being made or \
             removed. Their\nbytes are kept until `braid manager free-unnamed`.\n",
            self.files,
            self.files - missing,
            self.unnamed,
        );
        if self.rebuilt {
            let _ = writeln!(
                text,
                "{} files whose names are lost are in {} of their volumes, by their numbers.",
                self.adopted,
                adopt::DIRECTORY
            );
        }
        if missing > 0 {
            text.push_str("\nNot whole (removed after the backup, or lost with a drive); remove them, or copy them here anew:\n");
            for name in self.not_whole.values() {
                let _ = writeln!(text, "  {name}");
            }
        }
        if self.more > 0 {
            let _ = writeln!(text, "  and {} more", self.more);
        }
        text
    }
}

pub(crate) fn settle_all(
    tx: &mut Tx,
    batch: Vec<(FileId, OnDrives)>,
    away: &BTreeSet<DriveId>,
) -> Result<Vec<(FileId, Found)>, Refusal> {
    batch.into_iter().map(|(file, found)| Ok((file, settle(tx, file, found, away)?))).collect()
}

/// Changes one file's record to agree with what the drives hold.
fn settle(tx: &mut Tx, file: FileId, found: OnDrives, away: &BTreeSet<DriveId>) -> Result<Found, Refusal> {
    let listed = &found.listed;
    let mut inode = match inodes::find(tx, file)? {
        Some(inode) if inode.is_reached() => inode,
        found => return unnamed(tx, file, found.as_ref(), listed),
    };
    if !inode.is_named() {
        frozen::restored(tx, file, &mut inode)?;
    }
    let mut whole = true;
    let touched = inode.all_touched();
    let newest = listed.values().map(|(_, object)| object.g).max().unwrap_or_default();
    let is_adopted = found.layout.as_ref().map(|layout| layouts::is_in_force(&inode, layout, listed, away));
    let g = inode.g.max(newest);
    // Raised first, so that objects of the present generation may be freed.
    inode.g = g.next().ok_or_else(|| braid_meta::tree::files::worn_out(file))?;
    match found.layout {
        Some(layout) if is_adopted == Some(true) => filling_rows::adopt(tx, file, &mut inode, layout)?,
        // The layout's objects are freed, if that can be done in the generation on record, or as orphans.
        Some(layout) => {
            if let Some(below) = newest.0.checked_sub(1).map(Generation) {
                filling_rows::keep(tx, file, layout.object, below)?;
            }
            return Ok(Found::Again);
        }
        None => filling_rows::drop_segment(tx, file, &mut inode)?,
    }
    let segments = std::mem::take(&mut inode.segments);
    for mut segment in segments {
        let index = segment.number;
        let set = present_set(&segment, touched, inode.size, listed, away);
        for column in segment.all().iter() {
            let place = ComponentPlace { drive: segment.drive(column), file, segment: index, column };
            let stale = (!set.contains(column)).then_some(StaleRecord { joining: false, told: false });
            set_stale(tx, place, stale)?;
        }
        (segment.set, segment.joining) = (set, ColumnMask::EMPTY);
        whole &= set.count() >= u32::from(segment.shape.k);
        if set.count() < u32::from(segment.shape.k) {
            tracing::warn!(?file, ?set, ?segment, ?listed, ?away, "too few of its columns are current");
        }
        inode.segments.push(segment);
    }
    // As after a writer that died, bytes beyond the size on record count, if they were written since. If the
    // file is not whole, its size cannot be settled.
    inode.restored(whole);
    inodes::save(tx, file, &inode)?;
    let name = |tx: &Tx| match inode.is_frozen() {
        true => place_of_frozen(tx, file, &inode),
        false => path_of(tx, &inode),
    };
    Ok(if whole { Found::Whole } else { Found::NotWhole(name(tx)?) })
}

/// Handles a file that no name leads to. Its record, if any, is deleted, but its objects stay: it was leased
/// when the backup was made, and may have been written, named and acknowledged since.
fn unnamed(
    tx: &mut Tx,
    file: FileId,
    inode: Option<&InodeRecord>,
    listed: &Listed,
) -> Result<Found, Refusal> {
    if let Some(inode) = inode {
        inodes::forget(tx, file, inode)?;
    }
    let freed = tx.get(&key::removal(file))?.is_some();
    Ok(if freed || listed.is_empty() { Found::Nothing } else { Found::Unnamed })
}

/// Files on record of which no drive has listed an object.
fn files_without_objects(tx: &Tx, seen: &BTreeSet<FileId>) -> Result<Vec<FileId>, Refusal> {
    let mut after = None;
    let mut files = Vec::new();
    loop {
        let rows = tx.inodes(after, 4096)?;
        let Some((last, _)) = rows.last() else { return Ok(files) };
        after = Some(*last);
        let unseen =
            rows.iter().filter(|(file, inode)| inode.kind == EntryKind::File && !seen.contains(file));
        files.extend(unseen.map(|(file, _)| *file));
    }
}

async fn finish(core: &Arc<Core>, report: Report) -> Result<(), Refusal> {
    let path = PathBuf::from(&core.directory).join(REPORT_FILE);
    let written = std::fs::write(&path, report.text());
    written.map_err(|error| {
        Refusal::new(Reason::Medium, format!("{} cannot be written: {error}", path.display()))
    })?;
    let compared = |_: &Core, tx: &mut Tx| {
        tx.set(key::meta("restored"), &0u64);
        tx.set(key::meta("rebuilt"), &0u64);
        frozen::begin_anew(tx)?;
        let mut leased = Vec::new();
        let (from, to) = key::all(table::ATTENTION);
        for (attention, _) in tx.scan(&from, &to, usize::MAX)? {
            let file = FileId(key::number(&attention, 1));
            let inode = inodes::find(tx, file)?.filter(|inode| inode.held);
            leased.extend(inode.map(|inode| (file, inode.lease)));
        }
        Ok(leased)
    };
    // All leases are over, even those still renewed. Their ends settle what the writers left.
    let over = |core: &Core, leased: &Vec<(FileId, Lease)>| {
        leased.iter().for_each(|&(file, lease)| core.leases().leave(file, lease));
    };
    core.write_then(compared, over).await?;
    tracing::warn!(
        files = report.files, not_whole = report.not_whole.len(), unnamed = report.unnamed, report = %path.display(),
        "the restored state was compared with what the drives hold"
    );
    // Drives that are away are included: they are told when they return.
    let kept = |drive: &&Drive| drive.record.replaced_by == DriveId(0);
    let drives: Vec<DriveId> = core.drives().iter().filter(kept).map(|drive| drive.record.drive).collect();
    for drive in drives {
        if core.read(move |_, tx| has_untold(tx, drive)).await? {
            core.drives().set_untold(drive);
        }
    }
    *core.leadership() = Leadership::Leading;
    core.wake.notify_waiters();
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_layout::Column;

    use super::*;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::rules::drives::examples::{beat, record};

    #[tokio::test]
    async fn a_drive_that_was_away_during_the_comparison_is_told_what_went_out_before_it_gets_a_lease() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new(dir.path(), "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        for drive in [1, 2] {
            core.drives().insert(record(drive, "d"));
        }
        core.write(|_, tx| {
            let place = ComponentPlace { drive: DriveId(1), file: FileId(5), segment: 0, column: Column(0) };
            Ok(set_stale(tx, place, Some(StaleRecord { joining: false, told: false }))?)
        })
        .await
        .unwrap();
        finish(&core, Report::default()).await.unwrap();
        let now_ms = core.now_ms();
        let came = |drive| core.drives().heartbeat(DriveId(drive), &beat("a:1"), now_ms).unwrap();
        let one = came(1);
        let two = came(2);
        assert!(one.readmit && one.lease_ms == 0, "{one:?}");
        assert!(!two.readmit && two.lease_ms > 0, "{two:?}");
    }
}
