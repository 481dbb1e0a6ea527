//! Files that are to be laid out anew: their list, and the job that works on it, some files at a time.
//!
//! The list is durable: each row is a file and its new shape. The job gives some files a segment that is to
//! be filled (`filling`); their drives do the rest, and the file leaves the list in the step in which the
//! segment takes the others' place. A file that was disturbed by a writer, or lost a drive, is tried again
//! after a pause that grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::FileId;
use braid_meta::records::inodes;
use braid_meta::records::kv::KvError;
use braid_meta::records::relayouts::{COUNT, put_on, take_off};
use braid_meta::records::schema::{InodeRecord, RelayoutRecord, SegmentRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::jobs::Progress;
use braid_meta::tree::directories::{refuse_foreign, resolve};
use braid_meta::tree::shapes::{check_width, from_spec};
use braid_meta::tree::volumes::path_of;
use braid_wire::control::{
    DriveState, Relayout, RelayoutReply, RelayoutRow, Relayouts, RelayoutsReply, ShapeSpec,
};
use braid_wire::{Reason, Refusal};
use tokio::time::Instant;

use crate::columns::filling;
use crate::core::Core;
use crate::jobs::{Again, Job};

/// Number of files that are filled at a time: enough to keep all drives busy.
const AT_ONCE: usize = 16;
/// Number of files of the list looked up at a time.
const PAGE: usize = 256;
/// Maximum number of pages looked up in a round.
const PAGES_PER_ROUND: usize = 16;
/// Maximum number of rows in one reply.
const ROWS_MAX: usize = 1024;
/// Pause before a file is begun again: the first, and the longest.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(120);

/// Puts a file on the list, or takes it off.
pub(crate) async fn ask(core: &Arc<Core>, asked: Relayout) -> Result<RelayoutReply, Refusal> {
    let is_off = asked.shape.is_none();
    let (file, reply) = core
        .write(move |core, tx| {
            let found = resolve(tx, &asked.at)?.changeable(&asked.at)?;
            refuse_foreign(tx, &found, "lay out")?;
            let file = found.file;
            let inode = found.inode;
            braid_meta::tree::files::refuse_without_bytes(inode.kind, &asked.at.path)?;
            let begun = match &asked.shape {
                Some(shape) => put(core, tx, file, &inode, shape)?,
                None => take_off(tx, file)?,
            };
            Ok((file, RelayoutReply { file, begun, size: inode.size }))
        })
        .await?;
    if is_off {
        let _turn = core.lock_file(file).await?;
        filling::give_up(core, file).await?;
    }
    core.wake.notify_waiters();
    Ok(reply)
}

fn put(
    core: &Core,
    tx: &mut Tx,
    file: FileId,
    inode: &InodeRecord,
    shape: &ShapeSpec,
) -> Result<bool, Refusal> {
    let shape = from_spec(shape, shape)?;
    let (_, drives, _) = core.drives_counted();
    check_width(&shape, drives)?;
    let shape = ShapeSpec::from(shape);
    if inode.in_force().all(|segment| segment.shape == shape) && inode.filling().is_none() {
        take_off(tx, file)?;
        return Ok(false);
    }
    put_on(tx, file, shape)?;
    Ok(true)
}

/// Puts a file without redundancy on the list, in its own shape: one of its drives is to be emptied, and the
/// column there can be made elsewhere in no other way. Returns true if the file was not on the list.
pub(crate) fn elsewhere(tx: &mut Tx, file: FileId, shape: &ShapeSpec) -> Result<bool, KvError> {
    if tx.get(&key::relayout(file))?.is_some() {
        return Ok(false);
    }
    put_on(tx, file, shape.clone())?;
    Ok(true)
}

/// Returns some rows of the list.
pub(crate) async fn list(core: &Arc<Core>, asked: Relayouts) -> Result<RelayoutsReply, Refusal> {
    let limit = match usize::try_from(asked.limit).unwrap_or(usize::MAX) {
        0 => ROWS_MAX,
        limit => limit.min(ROWS_MAX),
    };
    core.read(move |core, tx| {
        let files = tx.number(COUNT)?;
        let mut rows = Vec::new();
        let mut after = asked.after;
        // Some rows may be of files that were removed; an empty reply means that there are no more rows.
        while rows.is_empty() {
            let page = page(tx, after, limit)?;
            let Some(&(last, _)) = page.last() else { break };
            after = last;
            for (file, record) in page {
                if let Some(inode) = inodes::find(tx, file)? {
                    let why = match inode.filling() {
                        Some(filling) => waits_for(core, filling),
                        None => core.relayouts().get(&file).cloned().unwrap_or_default(),
                    };
                    rows.push(row(tx, file, &inode, record, why)?);
                }
            }
        }
        Ok(RelayoutsReply { files, rows })
    })
    .await
}

/// Message that names the drives that are to fill columns and are away; empty if none is.
fn waits_for(core: &Core, filling: &SegmentRecord) -> String {
    let now_ms = core.now_ms();
    let table = core.drives();
    let open = filling.all().minus(filling.ready());
    let of = open.iter().map(|column| filling.drive(column));
    match table.names(of.filter(|drive| table.state(*drive, now_ms) != DriveState::Up)).as_str() {
        "" => String::new(),
        names => format!("{names} must come back: braid status"),
    }
}

fn row(
    tx: &Tx,
    file: FileId,
    inode: &InodeRecord,
    record: RelayoutRecord,
    why: String,
) -> Result<RelayoutRow, Refusal> {
    let filling = inode.filling();
    let few = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
    Ok(RelayoutRow {
        file,
        path: path_of(tx, inode)?,
        size: inode.size,
        from: inode.in_force().next().map_or(ShapeSpec::DEFAULT, |segment| segment.shape.clone()),
        to: record.shape,
        columns: filling.map_or(0, |segment| few(segment.all().count())),
        filled: filling.map_or(0, |segment| few(segment.ready().count())),
        why,
    })
}

fn page(tx: &Tx, after: FileId, limit: usize) -> Result<Vec<(FileId, RelayoutRecord)>, KvError> {
    let (_, to) = key::all(table::RELAYOUT);
    let from = [key::relayout(after).as_slice(), &[0]].concat();
    let rows = tx.records::<RelayoutRecord>(&(from, to), limit)?;
    Ok(rows.into_iter().map(|(row, record)| (FileId(key::number(&row, 1)), record)).collect())
}

/// Next step for a file on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// Take the file off the list, if it is still on it: the file is gone.
    Off,
    /// Begin the relayout, in this shape.
    Begin(ShapeSpec),
    /// Give up the segment that was begun: another shape is wanted now, or none.
    GiveUp,
    /// Wait: the columns are being filled.
    Wait,
    /// Put the new segment in place: its columns are filled.
    Finish,
}

/// Works on the list.
#[derive(Default)]
pub(crate) struct LayOut {
    /// Files that are filled now.
    active: BTreeSet<FileId>,
    /// Files that were disturbed, each with the time before which it is not tried again, and the last pause.
    later: BTreeMap<FileId, (Instant, Duration)>,
    /// Position of the walk over the list.
    at: FileId,
    /// Largest number of files on the list since it was last empty.
    left_before: u64,
}

impl Job for LayOut {
    const NAME: &'static str = "relayout";
    const ABOUT: &'static str = "Lays files out anew, in the shape that was asked for.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        self.work(core).await?;
        let left = core.read(|_, tx| Ok(tx.number(COUNT)?)).await?;
        self.left_before = if left == 0 { 0 } else { self.left_before.max(left) };
        let done = self.left_before - left;
        LayOut::progress(core, Progress { done, total: self.left_before, unit: "files" });
        Ok(Again::Woken)
    }
}

impl LayOut {
    async fn work(&mut self, core: &Arc<Core>) -> Result<(), Refusal> {
        self.forget(core, Instant::now());
        for file in self.active.clone() {
            if !self.step(core, file).await? {
                self.active.remove(&file);
            }
        }
        let mut is_second = false;
        for _ in 0..PAGES_PER_ROUND {
            let after = self.at;
            let rows = core.read(move |_, tx| Ok(page(tx, after, PAGE)?)).await?;
            if rows.is_empty() {
                if std::mem::replace(&mut is_second, true) || after == FileId(0) {
                    return Ok(());
                }
                self.at = FileId(0);
            }
            for (file, _) in rows {
                if self.active.len() >= AT_ONCE {
                    return Ok(());
                }
                self.at = file;
                let waits = self.later.get(&file).is_some_and(|(at, _)| *at > Instant::now());
                if !waits && !self.active.contains(&file) && self.step(core, file).await? {
                    self.active.insert(file);
                }
            }
        }
        Ok(())
    }

    /// Forgets pauses that are long over, and the reasons that went with them. For files that were taken off
    /// the list this is the only place that does so.
    fn forget(&mut self, core: &Core, now: Instant) {
        self.later.retain(|_, (at, _)| now < *at + AGAIN_MAX);
        core.relayouts().retain(|file, _| self.later.contains_key(file));
    }

    /// Does the next step for a file. Returns true if the file is being filled.
    async fn step(&mut self, core: &Arc<Core>, file: FileId) -> Result<bool, Refusal> {
        let next = core.read(move |_, tx| Ok(next(tx, file)?)).await?;
        let was_begun = self.active.contains(&file);
        let done = match next {
            Next::Off => {
                self.later.remove(&file);
                core.write(move |_, tx| Ok(take_off(tx, file).map(drop)?)).await?;
                core.relayouts().remove(&file);
                return Ok(false);
            }
            Next::Wait => return Ok(true),
            Next::Begin(_) if was_begun => Err(Refusal::new(
                Reason::Busy,
                "the file was written, or lost a drive: its relayout soon begins anew",
            )),
            Next::Begin(shape) => match core.try_lock_file(file) {
                Some(_turn) => filling::make(core, file, shape).await,
                None => Err(Refusal::new(Reason::Busy, "the file is busy")),
            },
            Next::GiveUp => match core.try_lock_file(file) {
                Some(_turn) => filling::give_up(core, file).await,
                None => Ok(()),
            },
            Next::Finish => match core.try_lock_file(file) {
                Some(_turn) => filling::finish(core, file).await.map(drop),
                None => Ok(()),
            },
        };
        match done {
            Ok(()) => {
                core.relayouts().remove(&file);
                Ok(true)
            }
            Err(refusal) => {
                let pause = self.later.get(&file).map_or(AGAIN_MIN, |(_, pause)| (*pause * 2).min(AGAIN_MAX));
                tracing::debug!(%file, %refusal, ?pause, "the file is not laid out anew yet");
                self.later.insert(file, (Instant::now() + pause, pause));
                core.relayouts().insert(file, refusal.detail);
                Ok(false)
            }
        }
    }
}

fn next(tx: &Tx, file: FileId) -> Result<Next, KvError> {
    let is_kept = |inode: &InodeRecord| inode.is_named() || inode.is_frozen();
    let Some(inode) = inodes::find(tx, file)?.filter(is_kept) else { return Ok(Next::Off) };
    let Some(RelayoutRecord { shape }) = tx.record(&key::relayout(file))? else {
        // The relayout may have been begun in the moment in which the file was taken off the list.
        return Ok(if inode.filling().is_some() { Next::GiveUp } else { Next::Off });
    };
    let Some(segment) = inode.filling() else { return Ok(Next::Begin(shape)) };
    if segment.shape != shape {
        return Ok(Next::GiveUp);
    }
    Ok(if segment.ready() == segment.all() { Next::Finish } else { Next::Wait })
}

#[cfg(test)]
mod tests {
    use braid_layout::version::{Lease, Version};
    use braid_layout::{ColumnMask, DriveId, Generation, ObjectId, VolumeId};

    use super::*;
    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::records::schema::directory_record;

    const FILE: FileId = FileId(8);
    const MIRROR: ShapeSpec = ShapeSpec { scheme: 1, k: 1, m: 1, unit_bytes: 4096 };
    const WIDE: ShapeSpec = ShapeSpec { scheme: 1, k: 1, m: 2, unit_bytes: 4096 };

    /// The next step for a file of which this shape is wanted, and of which this shape is being filled, whole
    /// (true) or not.
    fn next_of(wanted: Option<ShapeSpec>, filling: Option<(ShapeSpec, bool)>) -> Next {
        let of = |number, shape: ShapeSpec, is_whole, filling| SegmentRecord {
            number,
            start: 0,
            end: u64::MAX,
            drives: (1..=u128::from(shape.k + shape.m)).map(DriveId).collect(),
            set: ColumnMask::all(shape.k + shape.m),
            joining: if is_whole { ColumnMask::EMPTY } else { ColumnMask(1) },
            shape,
            object: ObjectId(u64::from(number) + 10),
            filling,
        };
        let db = Db::new(Arc::new(MemoryKv::new()));
        let next = db.write(|tx| {
            let mut inode = directory_record(VolumeId(1), FileId(2), b"f".to_vec(), 0);
            let version = Version { g: Generation(1), lease: Lease(0), n: 1 };
            inode.segments = vec![of(0, MIRROR, true, None)];
            inode.segments.extend(filling.map(|(shape, whole)| of(1, shape, whole, Some(version))));
            inodes::save(tx, FILE, &inode)?;
            if let Some(shape) = wanted {
                put_on(tx, FILE, shape)?;
            }
            Ok(next(tx, FILE)?)
        });
        next.unwrap()
    }

    #[test]
    fn what_is_next_follows_from_what_is_wanted_and_what_is_there() {
        assert_eq!(next_of(None, None), Next::Off);
        assert_eq!(next_of(None, Some((WIDE, true))), Next::GiveUp, "it was taken off as it was begun");
        assert_eq!(next_of(Some(WIDE), None), Next::Begin(WIDE));
        assert_eq!(next_of(Some(MIRROR), Some((WIDE, true))), Next::GiveUp);
        assert_eq!(next_of(Some(WIDE), Some((WIDE, false))), Next::Wait);
        assert_eq!(next_of(Some(WIDE), Some((WIDE, true))), Next::Finish);
    }

    #[tokio::test]
    async fn a_removed_file_is_passed_over_and_does_not_end_the_list() {
        let config = crate::start::Config::new("memory", "");
        let slots = crate::sessions::session_slots::SessionSlots::of(4, 4);
        let core = crate::start::start(Arc::new(MemoryKv::new()), &config, slots).await.unwrap();
        let there = FileId(1000);
        let listed = core.write(move |_, tx| {
            let volume = braid_meta::tree::volumes::create(tx, "v", WIDE, 0, 1)?;
            let root = braid_meta::tree::volumes::by_number(tx, volume)?.root;
            inodes::save(tx, there, &directory_record(volume, root, b"f".to_vec(), 0))?;
            for file in [FileId(998), FileId(999), there] {
                put_on(tx, file, MIRROR)?;
            }
            Ok(())
        });
        listed.await.unwrap();
        let ask = |after| list(&core, Relayouts { after, limit: 1 });
        let reply = ask(FileId(0)).await.unwrap();
        assert_eq!((reply.files, reply.rows[0].file, reply.rows.len()), (3, there, 1));
        assert_eq!(reply.rows[0].path, "braid://v/f");
        assert!(ask(there).await.unwrap().rows.is_empty());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_files_that_were_taken_off_the_list() {
        let config = crate::start::Config::new("memory", "");
        let slots = crate::sessions::session_slots::SessionSlots::of(4, 4);
        let core = crate::start::start(Arc::new(MemoryKv::new()), &config, slots).await.unwrap();
        let mut turns = LayOut::default();
        let now = Instant::now();
        turns.later.insert(FILE, (now + AGAIN_MIN, AGAIN_MIN));
        core.relayouts().insert(FILE, "the file is busy".to_owned());
        turns.forget(&core, now + AGAIN_MAX);
        assert!(turns.later.contains_key(&FILE) && core.relayouts().contains_key(&FILE));
        turns.forget(&core, now + AGAIN_MIN + AGAIN_MAX);
        assert!(turns.later.is_empty() && core.relayouts().is_empty());
    }
}
