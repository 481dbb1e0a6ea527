//! The one procedure on a file (PROTOCOL section 6): raise the generation, fence, survey, judge, verdict.
//!
//! After a lease that ended without a clean release the file's size is settled too, from what the columns
//! hold (`settle`): after the last verdict, before another client gets the file. The same is done while
//! several write the file (`sharing`).
//!
//! The procedure runs for a lease that ended without a clean release, for columns that go out or join, and
//! for joining columns that are caught up. It is idempotent: `g + 1` is durable before the first fence, and
//! marked `unfenced` until the last verdict is stored. If the mark is found, the procedure runs again with a
//! higher `g`. No decision is stored. The caller holds the file's lock, so one procedure runs at a time on a
//! file.
//!
//! A column that does not answer its fence must go out too, once its drive's lease has surely lapsed or its
//! host says that its process is gone. A column that only the manager can reach, or that cannot store or read
//! what it must, goes out while its drive lives (`live_out`). All waits end at a deadline, with a refusal
//! that names the drives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, DriveId, FileId, HolderId, Lease, TokenId, Version};
use braid_meta::records::inodes::{self, set_stale};
use braid_meta::records::schema::{ComponentPlace, InodeRecord, StaleRecord};
use braid_meta::records::tx::Tx;
use braid_meta::rules::recovery::Stamps;
use braid_meta::tree::files::{self, worn_out};
use braid_transport::host;
use braid_transport::process::Presence;
use braid_wire::control::{DriveState, ProcessMark};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::columns::fence::{fence_all, judge_all};
use crate::columns::live_out;
use crate::columns::settle::data_end;
use crate::core::Core;

/// Time that a procedure may take in addition to the drives' lease.
const SPARE: Duration = Duration::from_secs(10);
/// Maximum wait for a drive's hello.
const PROBE_WAIT: Duration = Duration::from_millis(1500);
/// Number of rounds in which owed deltas are not taken before the columns that they are owed to go out: a
/// drive waits 3 s in each.
const UNDRAINED_MAX: u32 = 3;
/// Pause between two checks of a drive that may be dead.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A change of the file's record in the transaction that raises its generation.
pub(crate) type Change =
    Arc<dyn Fn(&Core, &mut Tx, FileId, &mut InodeRecord) -> Result<(), Refusal> + Send + Sync>;

/// The file's lease on record when a procedure begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedLease {
    /// The file has no lease.
    None,
    /// The lease is live: its pending stamps are not judged, only those of earlier leases.
    Live,
    /// The lease is live, and some of its holders are gone without a clean release.
    Without,
    /// The lease has ended without a clean release.
    Ended,
}

/// Reason for a procedure: the lease, and the changes to be made.
#[derive(Clone)]
pub(crate) struct Cause {
    /// The file's lease on record.
    pub lease: RecordedLease,
    /// Columns that are to go out.
    pub lost: Vec<Lost>,
    /// Any other change of the record, if there is one.
    pub change: Option<Change>,
}

/// A column of a segment that goes out. Its drive is held back until the procedure releases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Number of the segment.
    pub segment: u32,
    pub column: Column,
    pub drive: DriveId,
}

/// State of a drive, as far as it could be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The drive surely serves no more, and is held back until
    /// [`DriveTable::release`](braid_meta::rules::drives::DriveTable::release).
    Dead,
    /// The drive's lease holds and it answers.
    Alive,
    /// The state could not be determined in time.
    Unknown,
}

impl Cause {
    /// The cause of a procedure that finishes one that was left undone, and does nothing else.
    pub(crate) fn nothing() -> Cause {
        Cause { lease: RecordedLease::None, lost: Vec::new(), change: None }
    }
}

/// Time by which a procedure that begins now must be over.
pub(crate) fn deadline(core: &Core) -> Instant {
    let table = core.drives();
    Instant::now() + Duration::from_millis(table.lease_ms() + table.margin_ms()) + SPARE
}

/// Runs the procedure. Returns the file's record after it, or `None` if the file is gone.
pub(crate) async fn run(
    core: &Arc<Core>,
    file: FileId,
    cause: Cause,
) -> Result<Option<InodeRecord>, Refusal> {
    let leased = cause.lease != RecordedLease::None;
    let done = attempt(core, file, cause).await;
    match &done {
        // With a lease, its holder or its end runs the procedure again. Otherwise the background does.
        Err(_) if !leased => drop(core.unfinished().insert(file)),
        _ => drop(core.unfinished().remove(&file)),
    }
    done
}

async fn attempt(core: &Arc<Core>, file: FileId, cause: Cause) -> Result<Option<InodeRecord>, Refusal> {
    let deadline = deadline(core);
    let lease = cause.lease;
    let mut lost = cause.lost;
    let mut change = cause.change;
    loop {
        if let Err(refusal) = enough_answer(core, file, &lost).await {
            release_holds(core, lost.iter().map(|lost| lost.drive));
            return Err(refusal);
        }
        let Some(inode) = raise(core, file, std::mem::take(&mut lost), change.take()).await? else {
            return Ok(None);
        };
        tracing::debug!(%file, g = %inode.g, ?lease, "fencing");
        live_out::tell(core, file, &inode, deadline).await?;
        live_out::clear(core, file, deadline).await?;
        match fence_and_judge(core, file, &inode, lease, deadline).await? {
            Judged::Lost(found) => lost = found,
            Judged::Done { end } => return finish(core, file, inode.g, lease, end).await,
        }
    }
}

/// Checks, before columns go out, that the drives of `k` remaining ready columns answer now. A column that
/// goes out stays stale until it is healed. While the file cannot be written anyway the column must stay in,
/// as the drives that died with its drive might never return.
async fn enough_answer(core: &Arc<Core>, file: FileId, lost: &[Lost]) -> Result<(), Refusal> {
    if lost.is_empty() {
        return Ok(());
    }
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    for segment in found.iter().flat_map(InodeRecord::in_force) {
        let gone: ColumnMask =
            lost.iter().filter(|lost| lost.segment == segment.number).map(|lost| lost.column).collect();
        let mut probes = JoinSet::new();
        let mut answering = ColumnMask::EMPTY;
        if gone.is_empty() {
            continue;
        }
        for column in segment.ready().minus(gone).iter() {
            let core = Arc::clone(core);
            let drive = segment.drive(column);
            if core.drives().state(drive, core.now_ms()) != DriveState::Replaced {
                let looked = async move { (column, timeout(PROBE_WAIT, probe(&core, drive)).await) };
                probes.spawn(looked);
            }
        }
        let k = u32::from(segment.shape.k);
        while answering.count() < k {
            match probes.join_next().await {
                Some(Ok((column, Ok(Probe::Answers)))) => answering = answering.with(column),
                Some(_) => {}
                None => {
                    let inode = found.as_ref().expect("it has segments");
                    return Err(too_many_away(core, inode, segment.all().minus(answering), segment));
                }
            }
        }
    }
    Ok(())
}

/// Columns of the file's set whose drives are surely dead. The drives are held back, for a caller that is
/// about to raise the generation.
pub(crate) fn hold_lapsed(core: &Core, inode: &InodeRecord) -> Vec<Lost> {
    let now_ms = core.now_ms();
    let mut table = core.drives();
    let mut dead = Vec::new();
    for of in &inode.segments {
        let segment = of.number;
        for column in of.set.iter() {
            let drive = of.drive(column);
            if table.hold_lapsed(drive, now_ms) {
                dead.push(Lost { segment, column, drive });
            }
        }
    }
    dead
}

/// Finds out whether a drive lives. If [`Life::Dead`], it is held back.
pub(crate) async fn life(core: &Core, drive: DriveId, deadline: Instant) -> Life {
    loop {
        if core.drives().hold_lapsed(drive, core.now_ms()) || hold_gone(core, drive) {
            return Life::Dead;
        }
        if probe(core, drive).await == Probe::Answers
            && core.drives().state(drive, core.now_ms()) == DriveState::Up
        {
            return Life::Alive;
        }
        if Instant::now() >= deadline {
            return Life::Unknown;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Holds back a drive whose process is gone, as the kernel of this same machine says.
pub(crate) fn hold_gone(core: &Core, drive: DriveId) -> bool {
    let processes = core.drives().processes(drive);
    all_gone(&processes) && core.drives().hold_gone(drive, &processes)
}

/// Returns true if the kernel of this same machine says that the drive's process is gone.
pub(crate) fn is_gone(core: &Core, drive: DriveId) -> bool {
    let processes = core.drives().processes(drive);
    !processes.is_empty() && all_gone(&processes)
}

fn all_gone(processes: &[ProcessMark]) -> bool {
    processes.iter().all(|process| host::presence(process) == Presence::Gone)
}

/// Ends holds under which nothing went out.
pub(crate) fn release_holds(core: &Core, drives: impl IntoIterator<Item = DriveId>) {
    let mut table = core.drives();
    drives.into_iter().for_each(|drive| table.release(drive));
}

/// The result of contacting a drive at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The drive says hello.
    Answers,
    /// The drive says no hello. A refused connection proves no more than that: something on the way may
    /// refuse for a drive that lives.
    Silent,
}

/// Contacts a drive at its addresses: a second at most to connect to each, and another for its hello.
pub(crate) async fn probe(core: &Core, drive: DriveId) -> Probe {
    let addresses = core.drives().drive(drive).map(|known| known.record.addresses.clone());
    let Some(addresses) = addresses else { return Probe::Silent };
    match core.drive_calls.probe(drive, &addresses).await {
        Ok(()) => Probe::Answers,
        Err(_) => Probe::Silent,
    }
}

/// Step 1: stores `g + 1`, and the changes that come with it. Ends the holds on the drives of `lost`.
async fn raise(
    core: &Arc<Core>,
    file: FileId,
    lost: Vec<Lost>,
    change: Option<Change>,
) -> Result<Option<InodeRecord>, Refusal> {
    let held: Vec<DriveId> = lost.iter().map(|lost| lost.drive).collect();
    let raised = core
        .write(move |core, tx| {
            let Some(mut inode) = inodes::find(tx, file)? else { return Ok(None) };
            for &Lost { segment, column, .. } in &lost {
                take_out(tx, file, &mut inode, segment, column)?;
            }
            if let Some(change) = change {
                change(core, tx, file, &mut inode)?;
            }
            refuse_too_many(core, &inode)?;
            inode.g = inode.g.next().ok_or_else(|| worn_out(file))?;
            inode.unfenced = true;
            inodes::save(tx, file, &inode)?;
            Ok(Some(inode))
        })
        .await;
    // A transaction that failed in the state may be durable all the same: then its drives are to be told.
    let may_be_out = match &raised {
        Ok(raised) => raised.is_some(),
        Err(refusal) => refusal.reason.leaves_unknown(),
    };
    let mut table = core.drives();
    for drive in held {
        if may_be_out {
            table.release_out(drive);
        } else {
            table.release(drive);
        }
    }
    raised
}

/// Result of steps 2 to 5.
enum Judged {
    /// Columns must go out first, on drives that are held back.
    Lost(Vec<Lost>),
    /// Every column of the set has stored the verdict.
    Done {
        /// One past the last byte of the file's data; 0 if it was not determined.
        end: u64,
    },
}

/// Does steps 2 to 5. After an ended lease, also determines the end of the file's data.
async fn fence_and_judge(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    lease: RecordedLease,
    deadline: Instant,
) -> Result<Judged, Refusal> {
    let is_live = matches!(lease, RecordedLease::Live | RecordedLease::Without);
    let judged = if is_live { Stamps::NotOf(inode.current_leases()) } else { Stamps::All };
    // The holders commit sizes themselves. But if the end of the data can be told exactly, others see the
    // new size sooner.
    let is_exact = !inode.is_parted() && inode.in_force().all(|segment| segment.ready() == segment.all());
    let sizes = matches!(lease, RecordedLease::Ended | RecordedLease::Without)
        || lease == RecordedLease::Live && inode.since != Lease(0) && is_exact;
    let mut from = 0;
    let mut undrained = 0;
    loop {
        let mut end = 0;
        let fenced = fence_all(core, file, inode, from).await;
        let mut failures = fenced.failures;
        if failures.is_empty() {
            failures = judge_all(core, file, inode, &fenced.unsettled, &judged).await;
            if let Some(next) = fenced.next.filter(|_| failures.is_empty()) {
                from = next;
                continue;
            }
        }
        // A file that does not live is removed, and one whose cut was begun keeps its size: no end is needed.
        if failures.is_empty() && sizes && inode.lives() && !inode.cut {
            match data_end(core, file, inode).await {
                Ok(reached) => end = reached,
                Err(columns) => failures = columns,
            }
        }
        if failures.is_empty() {
            return Ok(Judged::Done { end });
        }
        undrained += u32::from(!fenced.owed_to.is_empty());
        let mut lost = dead_of(core, inode, failures.keys().chain(&fenced.owed_to), deadline).await;
        if lost.is_empty() && undrained >= UNDRAINED_MAX {
            // The drives live, and deltas owed to them do not arrive: the file goes on without them.
            lost = fenced
                .owed_to
                .iter()
                .map(|&(segment, column)| live_out::hold(core, inode, segment, column))
                .collect();
        }
        if !lost.is_empty() {
            return Ok(Judged::Lost(lost));
        }
        if Instant::now() >= deadline {
            return Err(not_answering(core, inode, &failures));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The columns of `columns` whose drives are surely dead. The drives are held back.
async fn dead_of(
    core: &Core,
    inode: &InodeRecord,
    columns: impl Iterator<Item = &(u32, Column)>,
    deadline: Instant,
) -> Vec<Lost> {
    let mut dead = Vec::new();
    for &(segment, column) in columns.collect::<BTreeSet<_>>() {
        let drive = drive_of(inode, segment, column);
        if life(core, drive, deadline).await == Life::Dead {
            dead.push(Lost { segment, column, drive });
        }
    }
    dead
}

/// Does the last step, once the generation is on every column of the set: stores that the file is fenced.
async fn finish(
    core: &Arc<Core>,
    file: FileId,
    g: braid_layout::Generation,
    lease: RecordedLease,
    end: u64,
) -> Result<Option<InodeRecord>, Refusal> {
    core.write(move |core, tx| {
        let Some(mut inode) = inodes::find(tx, file)? else { return Ok(None) };
        // If `g` rose meanwhile (the columns of a drive that is behind went out), the file must be fenced
        // again.
        inode.unfenced = inode.g != g;
        if lease == RecordedLease::Ended {
            (inode.held, inode.holder, inode.shared, inode.since) = (false, HolderId::NONE, false, Lease(0));
            inode.token = TokenId::NONE;
            inode.within = Version::ZERO;
            inode.reach = None;
            inode.parts.clear();
            inode.gone.clear();
            if !inode.lives() {
                inodes::bury(tx, file, &inode)?;
                return Ok(None);
            }
        } else if !inode.held {
            // No capability of an earlier lease has this generation.
            inode.since = Lease(0);
        }
        files::settle_size(tx, &mut inode, end, core.now_ms())?;
        inodes::save(tx, file, &inode)?;
        Ok(Some(inode))
    })
    .await
}

fn take_out(
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    index: u32,
    column: Column,
) -> Result<(), Refusal> {
    let Some(segment) = inode.segment_mut(index) else {
        return Ok(());
    };
    if segment.set.contains(column) {
        segment.set = segment.set.without(column);
        segment.joining = segment.joining.without(column);
        let place = ComponentPlace { drive: segment.drive(column), file, segment: index, column };
        set_stale(tx, place, Some(StaleRecord { joining: false, told: false }))?;
    }
    Ok(())
}

/// Refuses if a segment has fewer than `k` ready columns: the file waits.
pub(crate) fn refuse_too_many(core: &Core, inode: &InodeRecord) -> Result<(), Refusal> {
    for segment in inode.in_force() {
        if segment.ready().count() < u32::from(segment.shape.k) {
            return Err(too_many_away(core, inode, segment.all().minus(segment.ready()), segment));
        }
    }
    Ok(())
}

/// The refusal if fewer than `k` columns are left, with the drives' names.
pub(crate) fn too_many_away(
    core: &Core,
    inode: &InodeRecord,
    missing: ColumnMask,
    segment: &braid_meta::records::schema::SegmentRecord,
) -> Refusal {
    let names = core.drives().names(missing.iter().map(|column| segment.drive(column)));
    let detail = format!(
        "{:?} can do without {} of its drives, and {} are away or stale: {names}",
        braid_meta::tree::names::show_file(inode),
        segment.shape.m,
        missing.count(),
    );
    Refusal::new(Reason::TooManyAway, detail)
}

/// The refusal if drives could not be fenced, with their names and the reasons.
pub(crate) fn not_answering(
    core: &Core,
    inode: &InodeRecord,
    failures: &BTreeMap<(u32, Column), String>,
) -> Refusal {
    let table = core.drives();
    let each = failures
        .iter()
        .map(|(&(index, column), why)| format!("{}: {why}", table.name(drive_of(inode, index, column))));
    let detail = format!("drives that must be fenced do not do it ({})", each.collect::<Vec<_>>().join("; "));
    Refusal::new(Reason::Busy, detail)
}

/// The drive of a column of a segment.
pub(crate) fn drive_of(inode: &InodeRecord, index: u32, column: Column) -> DriveId {
    let segment = inode.segment(index);
    segment.map(|segment| segment.drive(column)).unwrap_or_default()
}
