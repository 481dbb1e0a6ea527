//! A file that several open handles write: how its lease changes kind, and who is one of its holders.
//!
//! An exclusive lease allows stripe writes, a shared one unit writes only, by any number of holders. One
//! becomes the other by the procedure, under a new generation and a new lease number: drives refuse what was
//! sent under the old one, stamps of an exclusive lease are judged, what is owed is paid. Nothing waits
//! for a holder: each finds out at the drives, and refreshes.
//!
//! - A second writer makes an exclusive lease shared, unless its holder asked to write alone.
//! - Each that joins is preceded by a fence: a process that is gone may have left writes on their way, and
//!   the one that takes its place must not see these come after its own. Those who wait for the same file
//!   are served by one fence.
//! - A holder may *take a turn*: the file is exclusively its own for [`TURN_MS`](crate::leases::TURN_MS) at
//!   least, for what unit writes cannot do. The first other holder that refreshes after that ends it. A cut
//!   that has begun is not interrupted.
//! - A holder that lapses is fenced, and the others go on.
//! - Who is left alone gets an exclusive lease again.
//!
//! `since` in the record is the exclusive lease that was shared first. While it is there, whoever is granted
//! the file next runs the procedure first, and commits only make the file larger.

use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, Generation};
use braid_wire::control::Opened;
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::files::{current, lease_lost, worn_out};
use crate::inodes;
use crate::leases::LeaseState;
use crate::names::show;
use crate::opens::opened_to_write;
use crate::operations::{Operation, Outcome, recall, remember};
use crate::procedure::{self, Cause, Change, RecordedLease, hold_lapsed};
use crate::schema::InodeRecord;

/// What a lease becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Shared,
    /// Of this holder.
    Exclusive(u64),
}

/// One more opens the file for writing, whose lease is live. `before`: its generation before the caller
/// waited for the file's lock, which it holds now.
pub async fn join(
    core: &Arc<Core>,
    operation: Operation,
    file: FileId,
    holder: u64,
    before: Generation,
) -> Result<Opened, Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if !inode.is_named() {
        return Err(Refusal::new(Reason::NotFound, format!("file {file} was removed")));
    }
    let lease = if !inode.shared {
        refuse_in_turn(core, file, &inode)?;
        change(core, file, &inode, Becomes::Shared).await?.lease
    } else if inode.g > before && !inode.unfenced {
        inode.lease
    } else {
        run(core, file, &inode, (RecordedLease::Live, None)).await?.lease
    };
    let inode = core
        .write(move |core, tx| {
            // Refuses what the client has settled.
            recall(core, tx, operation)?;
            let inode = current(tx, file, lease)?;
            remember(tx, operation, Outcome::opened(file, lease), core.now_ms())?;
            Ok(inode)
        })
        .await?;
    core.leases().join(file, holder, core.running_ms());
    opened_to_write(core, file, inode).await
}

/// Makes sure that the holder may write, with the others or alone. The caller holds the file's lock.
pub async fn take_part(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: u64,
) -> Result<InodeRecord, Refusal> {
    if inode.shared || holder == inode.client {
        return finish(core, file, inode).await;
    }
    refuse_in_turn(core, file, &inode)?;
    change(core, file, &inode, Becomes::Shared).await
}

/// Gives the holder the file for itself for a while. The caller holds the file's lock.
pub async fn take_turn(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: u64,
) -> Result<InodeRecord, Refusal> {
    let inode = if !inode.shared && inode.client == holder {
        finish(core, file, inode).await?
    } else {
        if !inode.shared {
            refuse_in_turn(core, file, &inode)?;
        }
        change(core, file, &inode, Becomes::Exclusive(holder)).await?
    };
    core.leases().begin_turn(file, core.running_ms());
    Ok(inode)
}

/// Fences holders that are gone without a clean release; others go on. The caller holds the file's lock.
pub async fn without(core: &Arc<Core>, file: FileId, gone: Vec<u64>) -> Result<(), Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if !inode.shared && gone.contains(&inode.client) {
        if inode.cut {
            // What it was cutting off is not removed: whoever opens the file next does that first.
            core.leases().give_up(file);
            return Ok(());
        }
        change(core, file, &inode, Becomes::Shared).await?;
    }
    run(core, file, &inode, (RecordedLease::Without, None)).await?;
    let now_ms = core.running_ms();
    gone.into_iter().for_each(|holder| core.leases().forget(file, holder, now_ms));
    Ok(())
}

/// Gives the only holder an exclusive lease. The caller holds the file's lock.
pub async fn alone(core: &Arc<Core>, file: FileId, holder: u64) -> Result<(), Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if inode.shared {
        change(core, file, &inode, Becomes::Exclusive(holder)).await?;
    }
    Ok(())
}

/// Whether some holder's lease is live, and may be shared.
pub async fn may_join(core: &Arc<Core>, file: FileId) -> Result<bool, Refusal> {
    let alone = core.read(move |_, tx| Ok(inodes::get(tx, file)?.alone)).await?;
    Ok(!alone && core.leases().state(file, core.now_ms()) != LeaseState::Over)
}

/// Finishes a procedure that was left undone.
async fn finish(core: &Arc<Core>, file: FileId, inode: InodeRecord) -> Result<InodeRecord, Refusal> {
    if inode.unfenced { run(core, file, &inode, (RecordedLease::Live, None)).await } else { Ok(inode) }
}

/// Refuses while the file is some holder's alone.
fn refuse_in_turn(core: &Core, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    let left_ms = core.leases().turn_ms(file, core.running_ms());
    if left_ms == 0 && !inode.cut {
        return Ok(());
    }
    let why =
        if inode.cut { "is being cut short by another writer" } else { "is another writer's for a moment" };
    Err(Refusal::new(Reason::Busy, format!("{:?} {why}: try again", show(&inode.name))))
}

async fn change(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    becomes: Becomes,
) -> Result<InodeRecord, Refusal> {
    let change: Change = Arc::new(move |_, _, file, inode| {
        if inode.since == Lease(0) {
            inode.since = inode.lease;
        }
        inode.lease = inode.lease.0.checked_add(1).map(Lease).ok_or_else(|| worn_out(file))?;
        inode.order = 0;
        match becomes {
            Becomes::Shared => inode.shared = true,
            Becomes::Exclusive(holder) => (inode.shared, inode.client) = (false, holder),
        }
        Ok(())
    });
    tracing::debug!(%file, ?becomes, "a lease changes its kind");
    run(core, file, inode, (RecordedLease::Live, Some(change))).await
}

async fn run(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    (lease, change): (RecordedLease, Option<Change>),
) -> Result<InodeRecord, Refusal> {
    let cause = Cause { lease, lost: hold_lapsed(core, inode), change };
    let done = procedure::run(core, file, cause).await;
    // Also after a failure: the change may be on record.
    if let Some(inode) = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await? {
        core.leases().changed(file, &inode);
    }
    done?.ok_or_else(|| lease_lost(file, inode.lease))
}
