//! The reach of writers under quotas: the bytes that they may make of a file without asking again. Without a
//! quota there is no bound, and this costs one look into the records.

use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, HolderId};
use braid_meta::records::quotas;
use braid_meta::records::schema::InodeRecord;
use braid_meta::rules::scarce::AGAIN_MS;
use braid_meta::tree::files::leased;
use braid_meta::tree::room;
use braid_wire::control::HeldLease;
use braid_wire::{Reason, Refusal};

use crate::core::Core;

/// The record with a reach for its writers, if it is under a quota. `wanted`: the bytes that the holder is to
/// reach, or to give the rest back of; `None`: it opens the file.
pub(crate) async fn with_reach(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
    wanted: Option<u64>,
) -> Result<InodeRecord, Refusal> {
    let volume = inode.volume;
    let is_asked = wanted.is_some() || inode.reach.is_none();
    if !is_asked || !core.read(move |_, tx| Ok(quotas::has(tx, volume)?)).await? {
        return Ok(inode);
    }
    let lease: Lease = inode.lease;
    let gives_back = wanted.is_some_and(|wanted| inode.reach.is_some_and(|reach| wanted < reach));
    let changed = core
        .write(move |_, tx| {
            let inode = leased(tx, file, lease)?;
            match wanted {
                Some(needed) if gives_back => room::give_back(tx, file, inode, needed),
                _ => room::extend(tx, file, inode, wanted.unwrap_or(0)),
            }
        })
        .await;
    match changed {
        Ok(inode) => {
            core.scarce().has_room(holder);
            Ok(inode)
        }
        Err(refusal) if refusal.reason == Reason::Quota => {
            let others = core.read(move |_, tx| room::held_by_others(tx, file)).await?;
            if others > 0 && core.scarce().waits(holder, volume, core.running_ms()) {
                return Err(Refusal { reason: Reason::Busy, ..refusal }.again_in(AGAIN_MS));
            }
            Err(refusal)
        }
        Err(refusal) => Err(refusal),
    }
}

/// Holders of these leases that are to give back what they do not need, as others wait for it.
pub(crate) async fn wanted_back(core: &Arc<Core>, held: &[HeldLease]) -> Result<Vec<HolderId>, Refusal> {
    if core.scarce().is_empty() {
        return Ok(Vec::new());
    }
    let held = held.to_vec();
    core.read(move |core, tx| {
        let mut wanted = Vec::new();
        for of in held {
            let Some(inode) = tx.inode(of.file)? else { continue };
            let has_more = inode.reach.is_some_and(|reach| reach > inode.size);
            let alone = !inode.shared && !inode.is_parted();
            if has_more && alone && core.scarce().is_wanted_of(of.holder, inode.volume, core.running_ms()) {
                wanted.push(of.holder);
            }
        }
        Ok(wanted)
    })
    .await
}
