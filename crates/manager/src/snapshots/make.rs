//! How a snapshot is made: the moment, under writers.
//!
//! Names and attributes are as of one transaction. For the bytes, all files that are open for writing below
//! the root are *held* first: their writers get new leases, and so none may write until it refreshes. When
//! all are held, or [`HOLD_MAX`] after the first was, the transaction comes: the moment. Then each held file
//! is frozen and let go. A file that could not be held in time is *late*: it is frozen some time after. From
//! the look at what is open to the moment nobody else is given a file to write.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::FileId;
use braid_meta::records::inodes;
use braid_meta::records::schema::{InodeRecord, SnapshotRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Once, Operation, OperationResult};
use braid_meta::tree::{schedules, snapshots};
use braid_wire::Refusal;
use braid_wire::control::{NamePlace, SnapshotMade, SnapshotMake};
use tokio::sync::{OwnedMutexGuard, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::core::Core;
use crate::sessions::callbacks;
use crate::snapshots::freeze;

/// Maximum time for which the first file that is held waits for the others.
const HOLD_MAX: Duration = Duration::from_millis(60);
/// Maximum time to wait for the first file to be held.
const FIRST_HOLD_MAX: Duration = Duration::from_millis(500);
/// Maximum number of files that are being held at a time.
const HOLDS: usize = 256;

/// A file whose writers wait.
struct Held {
    inode: InodeRecord,
    /// Time when its writers were fenced out, or a little before.
    since: Instant,
    _turn: OwnedMutexGuard<()>,
}

/// Makes a snapshot.
pub(crate) async fn make(
    core: &Arc<Core>,
    operation: Operation,
    request: SnapshotMake,
) -> Result<SnapshotMade, Refusal> {
    // A repeat must not hold anything again.
    let before = move |core: &Core, tx: &Tx| core.recall(tx, operation);
    if let Some(OperationResult { file, number, .. }) = core.read(before).await? {
        return core.read(move |_, tx| answer_again(tx, file, number)).await;
    }
    make_by(core, By::Request(operation), request).await
}

/// Makes a snapshot by its directory's schedule, and notes when the next one is due.
pub(crate) async fn scheduled(
    core: &Arc<Core>,
    directory: FileId,
    name: String,
    next_ms: u64,
) -> Result<(), Refusal> {
    let request = SnapshotMake { at: NamePlace::number(directory), name, sync: false };
    make_by(core, By::Schedule { next_ms }, request).await.map(drop)
}

/// The maker of a snapshot.
#[derive(Debug, Clone, Copy)]
enum By {
    Request(Operation),
    Schedule { next_ms: u64 },
}

async fn make_by(core: &Arc<Core>, by: By, request: SnapshotMake) -> Result<SnapshotMade, Refusal> {
    let SnapshotMake { at, name, sync } = request;
    let place = at.clone();
    let wanted = name.clone();
    let look = move |_: &Core, tx: &Tx| {
        let root = snapshots::new_root(tx, &place, &wanted)?;
        let open = snapshots::open_below(tx, root.volume.volume, root.file)?;
        Ok(open.into_iter().map(|(file, _)| file).collect::<Vec<FileId>>())
    };
    if sync {
        let mut recalls = JoinSet::new();
        for file in core.read(look.clone()).await? {
            let core = Arc::clone(core);
            recalls.spawn(async move { callbacks::recall(&core, file).await });
        }
        recalls.join_all().await;
    }
    let gate = core.opening.write().await;
    let open = core.read(look).await?;
    let held = hold_all(core, open).await;
    let in_time: Vec<FileId> = held.keys().copied().collect();
    let make = move |core: &Core, tx: &mut Tx| {
        let made = snapshots::make(tx, &at, &name, core.now_ms())?;
        let late = made.open.iter().filter(|file| !in_time.contains(file)).count();
        let late = u32::try_from(late).unwrap_or(u32::MAX);
        let record = snapshots::note_late(tx, &made, late)?;
        if let By::Schedule { next_ms } = by {
            schedules::made_now(tx, &made, next_ms)?;
        }
        let number = u64::from(made.number);
        Ok((OperationResult { file: made.root, number, ..OperationResult::DONE }, (made, record)))
    };
    let made = match by {
        By::Request(operation) => core.once(operation, make).await,
        By::Schedule { .. } => core.write(make).await.map(|(_, made)| Once::Now(made)),
    };
    drop(gate);
    let (made, record) = match made? {
        Once::Now(now) => now,
        Once::Before(OperationResult { file, number, .. }) => {
            return core.read(move |_, tx| answer_again(tx, file, number)).await;
        }
    };
    let pause = freeze_all(core, held).await;
    // Late files are for the job.
    core.wake.notify_waiters();
    let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    tracing::info!(
        name = record.name,
        number = made.number,
        late = record.late,
        pause_us,
        "a snapshot was made"
    );
    Ok(answer(made.number, &record, pause_us))
}

fn answer(number: u32, record: &SnapshotRecord, pause_us: u64) -> SnapshotMade {
    SnapshotMade { number, taken_ms: record.taken_ms, late: record.late, pause_us }
}

/// The answer to a repeat: the pause is not on record.
fn answer_again(tx: &Tx, root: FileId, number: u64) -> Result<SnapshotMade, Refusal> {
    let number = u32::try_from(number).unwrap_or_default();
    let volume = inodes::get(tx, root)?.volume;
    let record: Option<SnapshotRecord> = tx.record(&key::snapshot(volume, number))?;
    let record = record.ok_or_else(|| snapshots::gone(number))?;
    Ok(answer(number, &record, 0))
}

/// Holds files, as many as can be in time. What is held later is let go again: the job freezes it.
async fn hold_all(core: &Arc<Core>, open: Vec<FileId>) -> BTreeMap<FileId, Held> {
    let mut holds = JoinSet::new();
    let places = Arc::new(Semaphore::new(HOLDS));
    for file in open {
        let core = Arc::clone(core);
        let places = Arc::clone(&places);
        holds.spawn(async move {
            let _place = places.acquire_owned().await;
            (file, hold(&core, file).await)
        });
    }
    let mut held = BTreeMap::new();
    let mut until = Instant::now() + FIRST_HOLD_MAX;
    while let Ok(Some(done)) = timeout_at(until, holds.join_next()).await {
        match done {
            Ok((file, Ok(Some(one)))) => {
                if held.is_empty() {
                    until = Instant::now() + HOLD_MAX;
                }
                held.insert(file, one);
            }
            Ok((_, Ok(None))) => {}
            Ok((file, Err(refusal))) => tracing::info!(%file, %refusal, "a file is late for a snapshot"),
            Err(error) => tracing::error!(%error, "holding a file failed within the manager"),
        }
    }
    // A procedure must not be broken off.
    holds.detach_all();
    held
}

/// Holds one file. `None`: it is not open any more.
async fn hold(core: &Arc<Core>, file: FileId) -> Result<Option<Held>, Refusal> {
    let turn = core.lock_file(file).await?;
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found.filter(|inode| inode.held) else { return Ok(None) };
    let since = Instant::now();
    let held = freeze::hold(core, file, &inode).await?;
    Ok(held.filter(|inode| inode.held).map(|inode| Held { inode, since, _turn: turn }))
}

/// Freezes held files, and lets each go. Returns the longest time for which one was held.
async fn freeze_all(core: &Arc<Core>, held: BTreeMap<FileId, Held>) -> Duration {
    let mut freezes = JoinSet::new();
    for (file, one) in held {
        let core = Arc::clone(core);
        freezes.spawn(async move {
            let now = core.read(move |_, tx| Ok(inodes::find(tx, file)?.and_then(|now| now.freezing))).await;
            let done = match now {
                Ok(freezing) => {
                    freeze::take(&core, file, &InodeRecord { freezing, ..one.inode.clone() }).await
                }
                Err(refusal) => Err(refusal),
            };
            // The job tries again, and until then nobody writes the file.
            if let Err(refusal) = done {
                tracing::warn!(%file, %refusal, "the bytes of an open file are not kept for a snapshot yet");
            }
            one.since.elapsed()
        });
    }
    let mut longest = Duration::ZERO;
    while let Some(done) = freezes.join_next().await {
        longest = longest.max(done.unwrap_or_default());
    }
    longest
}
