//! The end of a lease, together with the writer's last word: the file's size, or its name and its size.
//!
//! Both are one transaction, so that a small file costs its writer one request at the beginning and one at
//! the end.

use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, HolderId};
use braid_meta::records::inodes;
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Operation, OperationResult};
use braid_meta::tree::files::{self, leased};
use braid_wire::Refusal;
use braid_wire::control::{Commit, Cut, Ended, Ending, Link, Release, Sized};

use crate::asker::asker;
use crate::core::Core;
use crate::files::opened::renew_lease;
use crate::files::{receipts, sharing};
use crate::sessions::callbacks;

/// End of a holder's part in a lease.
#[derive(Debug, Clone, Copy)]
struct End {
    /// True if all writes are settled, and lie below the size.
    clean: bool,
    /// True if no other holder has the lease.
    is_last: bool,
}

/// Names a file, and ends the lease on it if asked to.
pub(crate) async fn link(core: &Arc<Core>, operation: Operation, request: Link) -> Result<(), Refusal> {
    let file = request.file;
    let lease = request.lease;
    let holder = request.holder;
    let _turn = match request.ends {
        Some(_) => Some(core.lock_file(file).await?),
        None => None,
    };
    let link = move |core: &Core, tx: &mut Tx| {
        sharing::must_hold(core, tx, file, lease, holder)?;
        let by = asker();
        files::link(tx, &request, &|file| callbacks::keeps(core, file, by, false), core.now_ms())?;
        receipts::keep(core, tx, file, &request.backing.receipts)?;
        let end = match &request.ends {
            Some(ended) => Some(end(core, tx, file, lease, holder, ended)?),
            None => None,
        };
        Ok((OperationResult::DONE, end))
    };
    let ended = move |core: &Core, end: &Option<End>| {
        if let Some(end) = end {
            forget(core, file, holder, *end);
        }
    };
    core.once_then(operation, link, ended).await?;
    core.wake.notify_waiters(); // what it replaced is to be removed
    Ok(())
}

/// Ends a lease, or the part that the holder has in it, after the commit of a size. An unclean end is
/// recovered from in the background or by the next open. An end is clean only if everything written lies
/// below the size, whatever the writer says: the next writer takes all beyond the size for zeros.
pub(crate) async fn release(core: &Arc<Core>, operation: Operation, request: Release) -> Result<(), Refusal> {
    let Release { file, lease, holder, ended, commit, backing } = request;
    let _turn = core.lock_file(file).await?;
    let release = move |core: &Core, tx: &mut Tx| {
        if let Some(Sized { size, order, modified_ns }) = commit {
            sharing::must_hold(core, tx, file, lease, holder)?;
            let cut = Cut::No;
            let backing = backing.clone();
            let commit = Commit { file, lease, holder, size, order, cut, modified_ns, backing };
            files::commit(tx, &commit, core.now_ms())?;
        }
        receipts::keep(core, tx, file, &backing.receipts)?;
        Ok((OperationResult::DONE, end(core, tx, file, lease, holder, &ended)?))
    };
    let forget = move |core: &Core, end: &End| forget(core, file, holder, *end);
    core.once_then(operation, release, forget).await?;
    core.wake.notify_waiters();
    Ok(())
}

fn end(
    core: &Core,
    tx: &mut Tx,
    file: FileId,
    lease: Lease,
    holder: HolderId,
    ended: &Ended,
) -> Result<End, Refusal> {
    // Checked also for an unclean end: a late request would end the lease of the next writer.
    let mut inode = leased(tx, file, lease)?;
    let within = ended.end <= inode.size;
    let clean = ended.ending != Ending::Unclean && within;
    if !core.leases().holds(file, lease, holder) {
        // After a restart the holder may not have renewed yet: then this makes it known.
        renew_lease(core, file, lease, holder)?;
    }
    let is_last = !core.leases().has_others(file, holder);
    if clean {
        renew_lease(core, file, lease, holder)?;
        if is_last {
            files::release(tx, file, lease, ended)?;
        }
    } else if within && is_last && inode.lease == lease && inode.has_file_alone() {
        // All writes lie within the size, so the recovery need not settle it.
        inode.within = inode.whole_lease();
        inodes::save(tx, file, &inode)?;
    }
    Ok(End { clean, is_last })
}

/// Updates the table of leases after an end.
fn forget(core: &Core, file: FileId, holder: HolderId, end: End) {
    core.watchers().wrote(file, holder);
    match (end.clean, end.is_last) {
        (true, true) => core.leases().end(file),
        (true, false) => core.leases().forget(file, holder, core.running_ms()),
        (false, true) => core.leases().give_up(file),
        (false, false) => core.leases().give_up_one(file, holder),
    }
}
