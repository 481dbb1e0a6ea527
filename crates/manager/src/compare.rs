//! Compares a restored state with what the drives hold, before any client is answered.
//!
//! The state is old, the drives are current. Every object names its file and column, and has the generation,
//! set and joining columns that its file last had. So, once every drive was heard, each file is compared:
//!
//! - The objects of the highest generation say which columns are in the set. Those that are not in it, or
//!   have a lower generation, are out; unless fewer than `k` are left, as a fence was under way
//!   (`half_fenced`). The file continues one generation above, and its size is settled from the components
//!   as after a writer that died.
//! - A column that should hold bytes by the file's size, but has no object, is out. If fewer than `k` columns
//!   are left, the file is *not whole*: it was removed since, or has lost bytes. Opening it reports the
//!   missing drives.
//! - If no name leads to an object's file, the file was created since, or was being removed, or had no name
//!   yet and may have got one since. The object is kept until an operator says otherwise ([`free_unnamed`]).
//! - Files on the removal list were removed before the backup. File numbers are never used again, so they
//!   continue to be freed.
//!
//! No byte is removed here. The comparison may restart at any point. Its findings are written into the
//! manager's directory.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, FileId, PartitionId, Role, Stripe};
use braid_wire::control::{DriveState, EntryKind};
use braid_wire::data::ListedObject;
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::drives::Drive;
use crate::filling;
use crate::half_fenced;
use crate::inodes::{self, set_stale};
use crate::kv::Tx;
use crate::leadership::Leadership;
use crate::listing::{self, Listed, Listing, cannot_be_asked};
use crate::members::has_untold;
use crate::names::show;
use crate::schema::{ComponentPlace, InodeRecord, SegmentRecord, StaleRecord, key, table};
use crate::volumes;

/// Pause between two checks whether every drive was heard, and after a failure.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long drives that are away are waited for, from the manager's start.
const DRIVES_WAIT_MS: u64 = 60_000;
/// Files changed by one transaction.
const FILES_PER_BATCH: usize = 256;
/// Most names that the report lists.
const NAMES_MAX: usize = 10_000;
/// The report's name in the manager's directory.
pub const REPORT_FILE: &str = "comparison.txt";

/// What a comparison found.
#[derive(Debug, Default)]
struct Report {
    files: u64,
    not_whole: Vec<String>,
    more: u64,
    unnamed: u64,
}

/// Compares, if the state was restored, and then lets the manager lead.
pub async fn run(core: Arc<Core>) {
    while matches!(*core.leadership(), Leadership::Comparing(_)) {
        match compare(&core).await {
            Ok(()) => return,
            Err(refusal) => {
                say(&core, refusal.detail);
                tokio::time::sleep(LOOK_AGAIN).await;
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
    let (mut report, mut seen) = (Report::default(), BTreeSet::new());
    let partitions = partitions(core, &drives).await?;
    let of = partitions.len();
    for (n, partition) in (1..).zip(partitions) {
        say(core, format!("volume {n} of {of}, {} files so far", report.files));
        let mut listing = Listing::new(drives.iter().copied());
        while let Some(files) = listing.next(core, partition).await? {
            let files: Vec<(FileId, Listed)> = files.into_iter().collect();
            for batch in files.chunks(FILES_PER_BATCH) {
                seen.extend(batch.iter().map(|(file, _)| *file));
                let batch = with_layouts(core, partition, batch.to_vec()).await?;
                let away = Arc::clone(&away);
                let found = core
                    .write(move |_, tx| {
                        let each = batch.into_iter().map(|(file, found)| settle(tx, file, found, &away));
                        each.collect::<Result<Vec<_>, _>>()
                    })
                    .await?;
                found.into_iter().for_each(|found| report.count(found));
            }
        }
    }
    let unseen = core.read(move |_, tx| files_without_objects(tx, &seen)).await?;
    for batch in unseen.chunks(FILES_PER_BATCH) {
        let (batch, away) = (batch.to_vec(), Arc::clone(&away));
        let found = core
            .write(move |_, tx| {
                let nothing = || OnDrives { listed: Listed::new(), layout: None };
                let each = batch.iter().map(|file| settle(tx, *file, nothing(), &away));
                each.collect::<Result<Vec<_>, _>>()
            })
            .await?;
        found.into_iter().for_each(|found| report.count(found));
    }
    finish(core, report).await
}

/// The partitions that any drive has: also those of volumes that this state does not know.
async fn partitions(core: &Core, drives: &[DriveId]) -> Result<BTreeSet<PartitionId>, Refusal> {
    let mut partitions = BTreeSet::new();
    for &drive in drives {
        let found = listing::partitions(core, drive).await;
        partitions.extend(found.map_err(|error| cannot_be_asked(core, drive, &error))?);
    }
    Ok(partitions)
}

/// The drives that are up, and those that are away. An error while one that is away may still come.
fn drives(core: &Core) -> Result<(Vec<DriveId>, BTreeSet<DriveId>), Refusal> {
    let (now_ms, table) = (core.now_ms(), core.drives());
    let (up, away) = (table.up(now_ms), table.in_state(DriveState::Away, now_ms));
    if away.is_empty() || (!up.is_empty() && core.uptime_ms() > DRIVES_WAIT_MS) {
        return Ok((up, away.into_iter().collect()));
    }
    let detail = format!("waiting for {}: start them", table.names(away));
    Err(Refusal::new(Reason::NotServing, detail))
}

/// The result for one file.
enum Found {
    Whole,
    NotWhole(String),
    /// Drives hold objects of it, which are kept.
    Unnamed,
    /// The file was counted before.
    Again,
    /// Nothing is kept: it is on the removal list, or no drive has an object of it.
    Nothing,
}

impl Report {
    fn count(&mut self, found: Found) {
        match found {
            Found::Whole => self.files += 1,
            Found::Unnamed => self.unnamed += 1,
            Found::Nothing | Found::Again => {}
            Found::NotWhole(name) => {
                self.files += 1;
                if self.not_whole.len() < NAMES_MAX { self.not_whole.push(name) } else { self.more += 1 }
            }
        }
    }

    fn text(&self) -> String {
        let missing = u64::try_from(self.not_whole.len()).unwrap_or(u64::MAX) + self.more;
        let mut text = format!(
            "The manager's state was restored, and compared with what the drives hold.\n\n{} files have a name; {} of them \
             are whole, {missing} are not.\n{} files on the drives have no name: they were made after the backup, or were being made or \
             removed. Their\nbytes are kept until `braid manager free-unnamed`.\n",
            self.files,
            self.files - missing,
            self.unnamed,
        );
        if missing > 0 {
            text.push_str("\nNot whole (removed after the backup, or lost with a drive); remove them, or copy them here anew:\n");
            for name in &self.not_whole {
                let _ = writeln!(text, "  {name}");
            }
        }
        if self.more > 0 {
            let _ = writeln!(text, "  and {} more", self.more);
        }
        text
    }
}

/// What drives hold of a file: objects of a layout on record, or of one that is not.
struct OnDrives {
    listed: Listed,
    /// A layout that is not on record, and whose columns are all ready, as they were told.
    layout: Option<SegmentRecord>,
}

/// Finds out what layouts they are that this state does not know: files were laid out anew since the backup.
async fn with_layouts(
    core: &Arc<Core>,
    partition: PartitionId,
    batch: Vec<(FileId, Listed)>,
) -> Result<Vec<(FileId, OnDrives)>, Refusal> {
    let files: Vec<FileId> = batch.iter().map(|(file, _)| *file).collect();
    let known = core
        .read(move |_, tx| {
            Ok(files.iter().map(|file| inodes::find(tx, *file)).collect::<Result<Vec<_>, _>>()?)
        })
        .await?;
    let mut all = Vec::with_capacity(batch.len());
    for ((file, listed), inode) in batch.into_iter().zip(known) {
        let is_known = |object: &ListedObject| {
            inode.as_ref().is_none_or(|inode| inode.in_force().any(|segment| segment.object == object.object))
        };
        let (listed, others): (Listed, Listed) =
            listed.into_iter().partition(|(_, (_, object))| is_known(object));
        let newest = others.values().max_by_key(|(_, object)| object.g);
        if let Some((drive, object)) = newest.filter(|(_, object)| object.joining.is_empty()) {
            let layout = listing::layout(core, *drive, partition, object).await?;
            all.push((file, OnDrives { listed: others, layout: layout.filter(|of| of.set == of.all()) }));
        }
        if !listed.is_empty() {
            all.push((file, OnDrives { listed, layout: None }));
        }
    }
    // What is on record is compared first.
    all.sort_by_key(|(file, found)| (*file, found.layout.is_some()));
    Ok(all)
}

/// Brings one file's record up to what the drives hold.
fn settle(tx: &mut Tx, file: FileId, found: OnDrives, away: &BTreeSet<DriveId>) -> Result<Found, Refusal> {
    let listed = &found.listed;
    let mut inode = match inodes::find(tx, file)? {
        Some(inode) if inode.is_named() => inode,
        found => return unnamed(tx, file, found.as_ref(), listed),
    };
    let mut whole = true;
    let newest = listed.values().map(|(_, object)| object.g).max().unwrap_or_default();
    match found.layout {
        // It took the others' place since, or they were being freed to make place for it.
        Some(layout) if newest >= inode.g || !is_whole(&inode) => {
            filling::adopt(tx, file, &mut inode, layout)?;
        }
        // It was being filled. What there is of it is freed as an orphan.
        Some(_) => return Ok(Found::Again),
        None => filling::drop_segment(tx, file, &mut inode)?,
    }
    let segments = std::mem::take(&mut inode.segments);
    for mut segment in segments {
        let index = segment.number;
        let set = present_set(&segment, index, inode.size, listed, away);
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
    inode.g = inode.g.max(newest).next().ok_or_else(|| crate::files::worn_out(file))?;
    // As after a writer that died: bytes beyond the size on record count. If the file is not whole, nothing
    // more can be found out.
    (inode.held, inode.client, inode.unfenced) = (whole, 0, whole);
    // A cut that was under way when the backup was made has ended since, and bytes may have been written
    // beyond it: to end it again would remove them.
    inode.cut = false;
    inodes::save(tx, file, &inode);
    Ok(if whole { Found::Whole } else { Found::NotWhole(path_of(tx, &inode)?) })
}

fn is_whole(inode: &InodeRecord) -> bool {
    inode.in_force().all(|segment| segment.ready().count() >= u32::from(segment.shape.k))
}

/// A file that no name leads to. Its record, if any, is deleted, but its objects stay: it was leased when the
/// backup was made, and what was written under that lease may have been named and acknowledged since.
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

/// The columns of a segment that are current. None if `m` or fewer of their drives answer: only `m + 1`
/// columns are sure to have one in common with every set that the file ever had.
///
/// A drive that is away may have been replaced since the backup, and hold the file's old content. Its column
/// is out as long as `k` others remain. If it was current, catching up copies nothing.
fn present_set(
    segment: &SegmentRecord,
    index: u32,
    size: u64,
    listed: &Listed,
    away: &BTreeSet<DriveId>,
) -> ColumnMask {
    let absent = segment.columns(|drive| away.contains(&drive));
    if !absent.is_empty() && segment.all().minus(absent).count() <= u32::from(segment.shape.m) {
        return ColumnMask::EMPTY;
    }
    let object = |column: Column| {
        let (drive, object) = listed.get(&(index, column))?;
        (*drive == segment.drive(column) && object.object == segment.object).then_some(object)
    };
    let newest: Option<&ListedObject> = segment.all().iter().filter_map(object).max_by_key(|object| object.g);
    let Some(newest) = newest else {
        let unwritten = size <= segment.start;
        return if unwritten { segment.set.minus(segment.joining) } else { ColumnMask::EMPTY };
    };
    let written = written_columns(segment, size);
    let named = newest.set.minus(newest.joining).and(segment.all());
    let is_empty = |column: Column| object(column).is_none() && !written.contains(column);
    let holds = |column: &Column| match object(*column) {
        Some(object) => object.g == newest.g,
        None => is_empty(*column) || absent.contains(*column),
    };
    let set: ColumnMask = named.iter().filter(holds).collect();
    let k = u32::from(segment.shape.k);
    if set.count() < k && absent.is_empty() {
        let objects: Vec<&ListedObject> = segment.all().iter().filter_map(object).collect();
        let empty: ColumnMask = named.iter().filter(|&column| is_empty(column)).collect();
        if let Some(set) = half_fenced::current(named, empty, k, &objects) {
            return set;
        }
    }
    let heard = set.minus(absent);
    if heard.count() >= k { heard } else { set }
}

/// The columns that hold bytes of a file of this size, if it has no holes. The first `k + m` stripes are
/// enough, as they reach every column.
fn written_columns(segment: &SegmentRecord, size: u64) -> ColumnMask {
    let Ok(shape) = crate::shapes::from_spec(&segment.shape, &segment.shape) else { return segment.all() };
    let bytes = size.min(segment.end).saturating_sub(segment.start);
    let stripes = bytes.div_ceil(shape.stripe_bytes()).min(u64::from(shape.width()));
    let mut columns = ColumnMask::EMPTY;
    for stripe in (0..stripes).map(Stripe) {
        let left = bytes - stripe.0 * shape.stripe_bytes();
        let data = left.div_ceil(u64::from(shape.unit_bytes())).min(u64::from(shape.k()));
        let data = (0..shape.k()).take(usize::try_from(data).unwrap_or(usize::MAX)).map(Role::Data);
        let parity = (0..shape.m()).map(Role::Parity);
        data.chain(parity).for_each(|role| columns = columns.with(shape.column(stripe, role)));
    }
    columns
}

/// Files of which no drive has an object.
fn files_without_objects(tx: &Tx, seen: &BTreeSet<FileId>) -> Result<Vec<FileId>, Refusal> {
    let (mut from, to) = key::all(table::INODE);
    let mut files = Vec::new();
    loop {
        let rows = tx.records::<InodeRecord>(&(from.clone(), to.clone()), 4096)?;
        for (key, inode) in &rows {
            let file = FileId(key::number(key, 1));
            if inode.kind == EntryKind::File && !seen.contains(&file) {
                files.push(file);
            }
        }
        match rows.last() {
            Some((last, _)) if rows.len() == 4096 => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(files),
        }
    }
}

/// A file's volume and path, shown to users.
pub fn path_of(tx: &Tx, inode: &InodeRecord) -> Result<String, Refusal> {
    let volume = volumes::by_number(tx, inode.volume)?.name;
    let (mut path, mut parent) = (show(&inode.name), inode.parent);
    while let Some(directory) = inodes::find(tx, parent)?.filter(|directory| directory.parent != FileId(0)) {
        path = format!("{}/{path}", show(&directory.name));
        parent = directory.parent;
    }
    Ok(format!("braid://{volume}/{path}"))
}

async fn finish(core: &Arc<Core>, report: Report) -> Result<(), Refusal> {
    let path = PathBuf::from(&core.directory).join(REPORT_FILE);
    let written = std::fs::write(&path, report.text());
    written.map_err(|error| {
        Refusal::new(Reason::Medium, format!("{} cannot be written: {error}", path.display()))
    })?;
    core.write(|core, tx| {
        tx.set(key::meta("restored"), &0u64);
        // All leases are over, even those still renewed. Ending them settles what their writers left.
        let (from, to) = key::all(table::ATTENTION);
        for (attention, _) in tx.scan(&from, &to, usize::MAX)? {
            let file = FileId(key::number(&attention, 1));
            if let Some(inode) = inodes::find(tx, file)?.filter(|inode| inode.held) {
                core.leases().leave(file, inode.lease);
            }
        }
        Ok(())
    })
    .await?;
    tracing::warn!(
        files = report.files, not_whole = report.not_whole.len(), unnamed = report.unnamed, report = %path.display(),
        "the restored state was compared with what the drives hold"
    );
    // Drives that are away too: they are told when they return.
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
    use braid_layout::{Generation, ObjectId};
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::drives::tests::{beat, record};
    use crate::memory::MemoryKv;
    use crate::session_slots::SessionSlots;
    use crate::start::{Config, start};

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
        let (one, two) = (came(1), came(2));
        assert!(one.readmit && one.lease_ms == 0, "{one:?}");
        assert!(!two.readmit && two.lease_ms > 0, "{two:?}");
    }

    fn segment() -> SegmentRecord {
        SegmentRecord {
            number: 0,
            start: 0,
            end: u64::MAX,
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            object: ObjectId(9),
            drives: vec![DriveId(1), DriveId(2), DriveId(3)],
            set: ColumnMask::all(3),
            joining: ColumnMask::EMPTY,
            filling: None,
        }
    }

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// Objects as `(column, g, set)`.
    fn listed(objects: &[(u8, u32, &[u8])]) -> Listed {
        let object = |&(column, g, set): &(u8, u32, &[u8])| {
            let column = Column(column);
            let object = ListedObject {
                object: ObjectId(9),
                file: FileId(8),
                segment: 0,
                column,
                g: Generation(g),
                set: mask(set),
                joining: ColumnMask::EMPTY,
            };
            ((0, column), (DriveId(u128::from(column.0) + 1), object))
        };
        objects.iter().map(object).collect()
    }

    #[track_caller]
    fn check(size: u64, objects: &[(u8, u32, &[u8])], expected: &[u8]) {
        assert_eq!(present_set(&segment(), 0, size, &listed(objects), &BTreeSet::new()), mask(expected));
    }

    #[test]
    fn what_drives_hold_says_which_columns_count() {
        let all: &[u8] = &[0, 1, 2];
        check(1 << 20, &[(0, 1, all), (1, 1, all), (2, 1, all)], &[0, 1, 2]);
        // Column 1 went out after the backup.
        check(1 << 20, &[(0, 4, &[0, 2]), (1, 3, all), (2, 4, &[0, 2])], &[0, 2]);
        // Removed on two drives of three, the third was away.
        check(1 << 20, &[(2, 1, all)], &[2]);
        check(1 << 20, &[], &[]);
        check(0, &[], &[0, 1, 2]);
    }

    #[test]
    fn a_drive_that_is_away_has_its_column_only_where_the_others_do_not_suffice() {
        let away = |ids: &[u128]| ids.iter().copied().map(DriveId).collect::<BTreeSet<_>>();
        let all: &[u8] = &[0, 1, 2];
        let two = listed(&[(0, 3, all), (2, 3, all)]);
        assert_eq!(present_set(&segment(), 0, 1 << 20, &two, &away(&[2])), mask(&[0, 2]));
        let behind = listed(&[(0, 3, all), (2, 2, all)]);
        assert_eq!(present_set(&segment(), 0, 1 << 20, &behind, &away(&[2])), mask(&[0, 1]));
        assert_eq!(present_set(&segment(), 0, 1 << 20, &two, &away(&[])), mask(&[0, 2]));
        let one = listed(&[(0, 3, all)]);
        assert_eq!(present_set(&segment(), 0, 1 << 20, &one, &away(&[2, 3])), ColumnMask::EMPTY);
    }

    #[test]
    fn a_small_file_has_no_object_where_it_has_no_bytes() {
        // One unit: data column 0 and parity column 2 of stripe 0.
        assert_eq!(written_columns(&segment(), 100), mask(&[0, 2]));
        assert_eq!(written_columns(&segment(), 5000), mask(&[0, 1, 2]));
        let all: &[u8] = &[0, 1, 2];
        check(100, &[(0, 1, all), (2, 1, all)], &[0, 1, 2]);
        check(100, &[(2, 1, all)], &[1, 2]);
    }
}
