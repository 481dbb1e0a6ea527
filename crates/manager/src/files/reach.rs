//! The reach of writers under quotas: the bytes that they may make of a file without asking again. Without a
//! quota there is no bound, and this costs one look into the records.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{FileId, HolderId};
use braid_meta::records::quotas;
use braid_meta::records::schema::InodeRecord;
use braid_meta::rules::scarce::AGAIN_MS;
use braid_meta::tree::files::leased;
use braid_meta::tree::room;
use braid_wire::control::{HeldLease, Room};
use braid_wire::{Reason, Refusal};
use tokio::time::timeout;

use crate::core::Core;

/// Maximum time for which renewals wait to hear whose room is wanted back.
const LOOK: Duration = Duration::from_millis(500);

/// The need of a writer for room under a quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// One past the last byte that it needs room for.
    pub(crate) reach: u64,
    pub(crate) room: Room,
}

impl Need {
    /// The need of a writer that opens a file.
    pub(crate) const NONE: Need = Need { reach: 0, room: Room::Keep };
}

/// The record with a reach for its writers, if it is under a quota.
pub(crate) async fn with_reach(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
    need: Need,
) -> Result<InodeRecord, Refusal> {
    let volume = inode.volume;
    let has_quota = core.read(move |_, tx| Ok(quotas::has(tx, volume)?)).await?;
    let is_enough = match inode.reach {
        None => !has_quota,
        Some(reach) => has_quota && need.reach <= reach && need.room != Room::GiveBack,
    };
    if is_enough {
        return Ok(inode);
    }
    let lease = inode.lease;
    let Need { reach, room } = need;
    let changed = core.write(move |_, tx| {
        let inode = leased(tx, file, lease)?;
        if room == Room::GiveBack {
            let inode = room::extend(tx, file, inode, 0, false)?;
            return room::give_back(tx, file, inode, reach);
        }
        room::extend(tx, file, inode, reach, room == Room::Need)
    });
    or_wait(core, file, holder, reach, changed.await).await
}

/// The result of a request that needs room under a quota for the file to grow to `wanted` bytes. If there is
/// none, and others may give some back, the writer waits: it is told to ask again.
pub(crate) async fn or_wait<T>(
    core: &Arc<Core>,
    file: FileId,
    holder: HolderId,
    wanted: u64,
    result: Result<T, Refusal>,
) -> Result<T, Refusal> {
    match result {
        Ok(done) => {
            core.scarce().has_room(holder);
            Ok(done)
        }
        Err(refusal) if refusal.reason == Reason::Quota => {
            let (volume, others) = core
                .read(move |_, tx| {
                    let volume = tx.inode(file)?.map(|inode| inode.volume).unwrap_or_default();
                    Ok((volume, room::others_have_room(tx, file, wanted)?))
                })
                .await?;
            if others && core.scarce().waits(holder, volume, core.running_ms()) {
                return Err(Refusal { reason: Reason::Busy, ..refusal }.again_in(AGAIN_MS));
            }
            Err(refusal)
        }
        Err(refusal) => Err(refusal),
    }
}

/// Holders of these leases that are to give back what they do not need, as others wait for it. Renewals do
/// not wait for long to hear it: the next one tells it too.
pub(crate) async fn wanted_back(core: &Arc<Core>, held: &[HeldLease]) -> Vec<HolderId> {
    if core.scarce().is_empty() {
        return Vec::new();
    }
    let held = held.to_vec();
    let look = core.read(move |core, tx| {
        let mut wanted = Vec::new();
        for of in held {
            let Some(inode) = tx.inode(of.file)? else { continue };
            let is_wanted = || core.scarce().is_wanted_of(of.holder, inode.volume, core.running_ms());
            if room::may_give_back(&inode) && is_wanted() {
                wanted.push(of.holder);
            }
        }
        Ok(wanted)
    });
    match timeout(LOOK, look).await {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(refusal)) => {
            tracing::debug!(%refusal, "it is not known whose room under a quota is wanted back");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
