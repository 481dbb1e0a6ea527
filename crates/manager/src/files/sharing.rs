//! Files that several open handles write: changes of the lease's kind, and of its holders.
//!
//! An exclusive lease allows stripe writes, a shared one unit writes only, by any number of holders. One
//! becomes the other by the procedure, under a new generation and a new lease number: drives refuse requests
//! under the old one, stamps of an exclusive lease are judged, owed deltas are sent. Nothing waits for a
//! holder: each finds out at the drives, and refreshes.
//!
//! - A second writer makes an exclusive lease shared, unless its holder asked to write alone.
//! - As long as each writer said which stripes it writes, and no two named the same, the file is *parted*
//!   instead: each has an exclusive lease of its own on its stripes (`parts`), and drives refuse its writes
//!   to all others. A holder that comes, goes or dies changes the table of parts, under a new generation; a
//!   holder that keeps its part keeps its lease and its writes under way. Stamps that an ended lease left are
//!   judged before its stripes are given to another. A writer that wants the whole file, or stripes of
//!   another's, makes all of them share it.
//! - A fence comes before each holder that joins: a process that is gone may have left writes on their way,
//!   and the one that takes its place must not see these arrive after its own. All that wait for the same
//!   file are served by one fence.
//! - A holder may *take a turn*: the file is exclusively its own for
//!   [`TURN_MS`](braid_meta::rules::turns::TURN_MS) at least, for work that unit writes cannot do. The next
//!   other holder that refreshes after that ends the turn ([`turns`](braid_meta::rules::turns)). A cut that
//!   has begun is not interrupted.
//! - A holder that lapses is fenced, and the others go on.
//! - A holder that is left alone gets an exclusive lease again, and holders that are left with parts get
//!   these.
//!
//! `since` in the record is the exclusive lease that was shared first, or the first of a part. While it is
//! there, the next grant of the file runs the procedure first, and commits only make the file larger.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, Generation, HolderId, TokenId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{InodeRecord, PartRecord};
use braid_meta::records::tx::Tx;
use braid_meta::rules::leases::LeaseState;
use braid_meta::rules::operations::{Operation, OperationResult, remember};
use braid_meta::rules::parts;
use braid_meta::rules::turns::AGAIN_MS_MAX;
use braid_meta::tree::files::{Part, current, lease_lost, worn_out};
use braid_meta::tree::names::show;
use braid_wire::control::Opened;
use braid_wire::{Reason, Refusal};

use crate::columns::procedure::{self, Cause, Change, Lost, RecordedLease, hold_lapsed};
use crate::core::Core;
use crate::files::opened::opened_to_write;

/// The kind that a lease is changed to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Becomes {
    Shared,
    /// Exclusive to this holder.
    Exclusive(HolderId),
    /// One exclusive lease for each of these parts.
    Parted(Vec<PartRecord>),
}

/// Adds a holder to a file whose lease is live. `before`: the file's generation before the caller waited for
/// the file's lock, which it holds now.
pub(crate) async fn join(
    core: &Arc<Core>,
    operation: Operation,
    file: FileId,
    part: Part,
    before: Generation,
) -> Result<Opened, Refusal> {
    let holder = part.holder;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if !inode.lives() {
        return Err(Refusal::new(Reason::NotFound, format!("file {file} was removed")));
    }
    let asked = part.asked(&inode)?;
    let mut holders = core.leases().holders(file);
    holders.insert(holder);
    let parts = with_part(&inode, &holders, holder, asked);
    parts::check_count(&parts)?;
    let becomes = together(&parts, &holders);
    let inode = if !inode.shared || becomes != Becomes::Shared {
        ask(core, file, &inode, holder, Asks::ToWrite)?;
        change(core, file, &inode, RecordedLease::Live, becomes, parts.clone()).await?
    } else if inode.g > before && !inode.unfenced {
        inode
    } else {
        run(core, file, &inode, RecordedLease::Live, None).await?
    };
    let lease = inode.lease_of(holder).ok_or_else(|| lease_lost(file, inode.lease))?;
    let join = move |core: &Core, tx: &mut Tx| {
        // Refuses an operation that the client has settled.
        core.recall(tx, operation)?;
        let mut inode = current(tx, file, lease)?;
        if inode.shared && inode.parts != parts {
            inode.parts = parts.clone();
            inodes::save(tx, file, &inode)?;
        }
        remember(tx, operation, OperationResult::opened(file, lease), core.now_ms())?;
        Ok(inode)
    };
    let joined = move |core: &Core, inode: &InodeRecord| {
        core.leases().join(file, holder, core.running_ms());
        core.leases().changed(file, inode);
    };
    let inode = core.write_then(join, joined).await?;
    opened_to_write(core, file, inode, holder).await
}

/// Renews the lease for the holder. If the lease is over for all because a holder is gone that was cutting
/// the file short, the refusal says so.
pub(crate) fn must_hold(
    core: &Core,
    tx: &Tx,
    file: FileId,
    lease: Lease,
    holder: HolderId,
) -> Result<(), Refusal> {
    if core.leases().renew(file, lease, holder, core.running_ms()) {
        return Ok(());
    }
    if inodes::find(tx, file)?.is_none_or(|inode| !inode.cut) {
        return Err(lease_lost(file, lease));
    }
    let detail = format!(
        "lease {lease} on file {file} is over, because another writer died while it truncated the file: open \
         the file again, which completes the truncation"
    );
    Err(Refusal::new(Reason::LeaseLost, detail))
}

/// Makes sure that the holder may write, with the others or alone. The caller holds the file's lock.
pub(crate) async fn take_part(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
) -> Result<InodeRecord, Refusal> {
    let has_all = !inode.is_parted() && holder == inode.holder;
    if inode.shared || has_all || inode.part_of(holder).is_some() {
        if let Some(turns) = core.leases().turns(file) {
            turns.has_it(holder);
        }
        return finish(core, file, inode).await;
    }
    ask(core, file, &inode, holder, Asks::ToWrite)?;
    let holders = core.leases().holders(file);
    let parts = theirs(&inode.parts, &holders);
    let becomes = together(&parts, &holders);
    change(core, file, &inode, RecordedLease::Live, becomes, parts).await
}

/// Gives the holder the file for itself for a while. `in_vain`: number of its turns that ended before the
/// write for which it wants this one was done. The caller holds the file's lock.
pub(crate) async fn take_turn(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
    in_vain: u8,
) -> Result<InodeRecord, Refusal> {
    if inode.is_parted() {
        // In its part the holder can do all that a turn is for.
        return take_part(core, file, inode, holder).await;
    }
    let inode = if !inode.shared && inode.holder == holder {
        finish(core, file, inode).await?
    } else {
        ask(core, file, &inode, holder, Asks::ForTurn)?;
        let parts = theirs(&inode.parts, &core.leases().holders(file));
        change(core, file, &inode, RecordedLease::Live, Becomes::Exclusive(holder), parts).await?
    };
    if let Some(turns) = core.leases().turns(file) {
        turns.begin(holder, in_vain, core.running_ms());
    }
    Ok(inode)
}

/// Fences out holders that are gone without a clean release; others go on. The caller holds the file's lock.
pub(crate) async fn without(core: &Arc<Core>, file: FileId, gone: Vec<HolderId>) -> Result<(), Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let had_all = !inode.shared && !inode.is_parted() && gone.contains(&inode.holder);
    if had_all && inode.cut {
        // The bytes beyond the cut are not removed yet: the next client that opens the file does that first.
        core.leases().give_up(file);
        return Ok(());
    }
    // A fence that fails is tried again, with the same holders.
    let is_new = gone.iter().any(|holder| !inode.gone.contains(holder));
    let inode = if inode.held && is_new {
        let away = gone.clone();
        core.write(move |_, tx| {
            let mut inode = inodes::get(tx, file)?;
            inode.goes_on_without(&away);
            inodes::save(tx, file, &inode)?;
            Ok(inode)
        })
        .await?
    } else {
        inode
    };
    if had_all || inode.is_parted() {
        let mut holders = core.leases().holders(file);
        holders.retain(|holder| !gone.contains(holder));
        let parts = theirs(&inode.parts, &holders);
        let becomes = together(&parts, &holders);
        change(core, file, &inode, RecordedLease::Without, becomes, parts).await?;
    } else {
        run(core, file, &inode, RecordedLease::Without, None).await?;
    }
    let now_ms = core.running_ms();
    gone.into_iter().for_each(|holder| core.leases().forget(file, holder, now_ms));
    Ok(())
}

/// Gives all holders new leases of the same kind, so that none may write before it refreshes. `lost`: columns
/// that go out. The caller holds the file's lock.
pub(crate) async fn renew_all(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    lost: Vec<Lost>,
) -> Result<InodeRecord, Refusal> {
    let change: Change = Arc::new(|_, _, file, inode| {
        if inode.cut {
            return Err(cutting(inode));
        }
        if inode.since == Lease(0) {
            inode.since = inode.lease;
        }
        inode.order = 0;
        if !inode.is_parted() {
            return next(file, inode).map(drop);
        }
        let mut parts = std::mem::take(&mut inode.parts);
        for part in parts.iter_mut().filter(|part| part.lease != Lease(0)) {
            part.lease = next(file, inode)?;
        }
        inode.parts = parts;
        Ok(())
    });
    run_without(core, file, inode, RecordedLease::Live, lost, Some(change)).await
}

/// The next lease of a file.
fn next(file: FileId, inode: &mut InodeRecord) -> Result<Lease, Refusal> {
    inode.lease = inode.lease.0.checked_add(1).map(Lease).ok_or_else(|| worn_out(file))?;
    Ok(inode.lease)
}

/// Gives the holders of a shared lease exclusive ones: a single holder one on the whole file, several holders
/// on the parts that each asked for. The caller holds the file's lock.
pub(crate) async fn apart(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let holders = core.leases().holders(file);
    let parts = theirs(&inode.parts, &holders);
    let becomes = match (together(&parts, &holders), holders.first()) {
        (Becomes::Shared, Some(&only)) if holders.len() == 1 => Becomes::Exclusive(only),
        (becomes, _) => becomes,
    };
    if inode.shared && becomes != Becomes::Shared {
        change(core, file, &inode, RecordedLease::Live, becomes, parts).await?;
    }
    Ok(())
}

/// The kind of lease for these holders, which write the file together.
fn together(parts: &[PartRecord], holders: &BTreeSet<HolderId>) -> Becomes {
    parts::apart(parts, holders).map_or(Becomes::Shared, Becomes::Parted)
}

/// The parts that these holders asked for, granted or not, as records that are not granted.
fn theirs(parts: &[PartRecord], holders: &BTreeSet<HolderId>) -> Vec<PartRecord> {
    let theirs = parts.iter().filter(|part| holders.contains(&part.holder));
    theirs.map(|part| PartRecord::asked(part.holder, part.range())).collect()
}

/// The parts that these holders asked for, with the one that `holder` asks for now.
fn with_part(
    inode: &InodeRecord,
    holders: &BTreeSet<HolderId>,
    holder: HolderId,
    asked: Option<PartRecord>,
) -> Vec<PartRecord> {
    let mut parts = theirs(&inode.parts, holders);
    parts.retain(|part| part.holder != holder);
    parts.extend(asked);
    parts
}

/// Returns true if the file's lease is live, and may be shared.
pub(crate) async fn may_join(core: &Arc<Core>, file: FileId) -> Result<bool, Refusal> {
    let alone = core.read(move |_, tx| Ok(inodes::get(tx, file)?.alone)).await?;
    Ok(!alone && core.leases().state(file, core.now_ms()) != LeaseState::Over)
}

/// Finishes a procedure that was left undone.
async fn finish(core: &Arc<Core>, file: FileId, inode: InodeRecord) -> Result<InodeRecord, Refusal> {
    if inode.unfenced { run(core, file, &inode, RecordedLease::Live, None).await } else { Ok(inode) }
}

/// Use of the file that a holder asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// To write the file, with others or alone.
    ToWrite,
    /// To have the file for itself for a while.
    ForTurn,
}

/// Refuses while another holder has the file for itself, or is to have it first, and says when to ask again.
fn ask(core: &Core, file: FileId, inode: &InodeRecord, holder: HolderId, what: Asks) -> Result<(), Refusal> {
    if inode.cut {
        return Err(cutting(inode));
    }
    let now_ms = core.running_ms();
    let asked = core.leases().turns(file).map_or(Ok(()), |it| it.ask(holder, what == Asks::ForTurn, now_ms));
    asked.map_err(|again_ms| {
        let detail = format!("another writer has a short turn at {:?}: try again", show(&inode.name));
        Refusal::new(Reason::Busy, detail).again_in(again_ms)
    })
}

/// The refusal while a cut is under way. Its duration is not known, and few cuts are long.
fn cutting(inode: &InodeRecord) -> Refusal {
    let detail = format!("{:?} is being truncated by another writer: try again", show(&inode.name));
    Refusal::new(Reason::Busy, detail).again_in(AGAIN_MS_MAX)
}

/// Changes the lease's kind. `parts`: the ranges that its holders asked for.
async fn change(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    lease: RecordedLease,
    becomes: Becomes,
    parts: Vec<PartRecord>,
) -> Result<InodeRecord, Refusal> {
    tracing::debug!(%file, ?becomes, "a lease changes its kind");
    let change: Change = Arc::new(move |_, _, file, inode| turn_into(file, inode, &becomes, &parts));
    run(core, file, inode, lease, Some(change)).await
}

/// Changes the record. A holder that had the same part before keeps the lease on it, and with it all writes
/// under way: no other could write these stripes since. All others get new leases, which drives do not know.
fn turn_into(
    file: FileId,
    inode: &mut InodeRecord,
    becomes: &Becomes,
    parts: &[PartRecord],
) -> Result<(), Refusal> {
    if inode.cut {
        // The cut was begun since the caller looked: commits do not wait for the file's lock.
        return Err(cutting(inode));
    }
    if inode.since == Lease(0) {
        inode.since = inode.lease;
    }
    inode.order = 0;
    let before = std::mem::take(&mut inode.parts);
    match becomes {
        Becomes::Shared => {
            (inode.shared, inode.parts) = (true, parts.to_vec());
            next(file, inode)?;
        }
        Becomes::Exclusive(holder) => {
            if inode.holder != *holder {
                inode.token = TokenId::NONE;
            }
            (inode.shared, inode.holder) = (false, *holder);
            inode.parts = parts.to_vec();
            next(file, inode)?;
        }
        Becomes::Parted(parts) => {
            inode.shared = false;
            for part in parts {
                let same = before.iter().find(|known| {
                    known.lease != Lease(0) && known.holder == part.holder && known.range() == part.range()
                });
                let lease = match same {
                    Some(known) => known.lease,
                    None => next(file, inode)?,
                };
                inode.parts.push(PartRecord { lease, ..part.clone() });
            }
        }
    }
    Ok(())
}

async fn run(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    lease: RecordedLease,
    change: Option<Change>,
) -> Result<InodeRecord, Refusal> {
    run_without(core, file, inode, lease, hold_lapsed(core, inode), change).await
}

async fn run_without(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    lease: RecordedLease,
    lost: Vec<Lost>,
    change: Option<Change>,
) -> Result<InodeRecord, Refusal> {
    let cause = Cause { lease, lost, change };
    let done = procedure::run(core, file, cause).await;
    // Also after a failure: the change may be on record.
    if let Some(inode) = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await? {
        core.leases().changed(file, &inode);
    }
    done?.ok_or_else(|| lease_lost(file, inode.lease))
}
