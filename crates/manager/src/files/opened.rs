//! The answer to a client that opens a file: the record as clients see it, and capabilities for its columns.

use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, HolderId};
use braid_meta::records::schema::{InodeRecord, ReservationRecord};
use braid_meta::tree::files::lease_lost;
use braid_meta::tree::names::show;
use braid_meta::tree::view::{self, Asker, ColumnKeys, Opener};
use braid_wire::control::{DriveState, Opened};
use braid_wire::{Reason, Refusal};

use crate::asker::{asker, asker_token, asker_version};
use crate::columns::partitions::make_partition;
use crate::core::Core;
use crate::files::reach::{Need, with_reach};
use crate::rates::under;
use crate::sessions::token_rights;

/// The answer to a client that opens a file for writing.
pub(crate) async fn opened_to_write(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
) -> Result<Opened, Refusal> {
    opened_with_room(core, file, inode, holder, Need::NONE).await
}

/// The answer to a client that writes a file, and has this need for room under a quota.
pub(crate) async fn opened_with_room(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    holder: HolderId,
    need: Need,
) -> Result<Opened, Refusal> {
    if inode.lease_of(holder).is_none() {
        return Err(lease_lost(file, inode.lease));
    }
    if inode.freezing.is_some() {
        let detail = format!("the bytes of {:?} are being kept for a snapshot: try again", show(&inode.name));
        return Err(Refusal::new(Reason::Busy, detail));
    }
    let inode = with_reach(core, file, inode, holder, need).await?;
    core.watchers().writes(file, holder, asker());
    core.leases().is_of(file, holder, asker());
    opened_by(core, file, inode, Opener::Writer(holder)).await
}

/// The answer to an open, with the capabilities for the role in which the file is opened.
pub(crate) async fn opened_by(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    opener: Opener,
) -> Result<Opened, Refusal> {
    let reserved = under::over(core, file, &inode, opener).await?;
    opened_under(core, file, inode, opener, reserved).await
}

/// The answer to a client that opens a file of a snapshot. `data`: the file that has its bytes.
pub(crate) async fn opened_in_snapshot(
    core: &Arc<Core>,
    data: FileId,
    inode: InodeRecord,
) -> Result<Opened, Refusal> {
    opened_under(core, data, inode, Opener::Reader, None).await
}

async fn opened_under(
    core: &Arc<Core>,
    file: FileId,
    inode: InodeRecord,
    opener: Opener,
    reserved: Option<ReservationRecord>,
) -> Result<Opened, Refusal> {
    let mut inode = inode;
    let is_filler = matches!(opener, Opener::Filler(_));
    inode.segments.retain(|segment| segment.filling.is_some() == is_filler);
    let (mut inode, mut keys) = with_keys(core, inode).await?;
    if opener != Opener::Reader && make_partitions(core, &inode, &keys.epochs).await {
        (inode, keys) = with_keys(core, inode).await?;
    }
    // It may have been shut out since it asked, and the keys were turned for that.
    core.clients().check(asker())?;
    let now_ms = core.now_ms();
    let until_ms = token_rights::until_ms(core, asker_token())?;
    let by = Asker { client: asker(), version: asker_version(), until_ms };
    let lease_ms = core.client_lease_ms;
    let reserved = reserved.as_ref();
    let drives = core.drives();
    Ok(view::opened(&drives, file, &inode, &keys, opener, by, reserved, lease_ms, now_ms))
}

async fn with_keys(core: &Arc<Core>, inode: InodeRecord) -> Result<(InodeRecord, ColumnKeys), Refusal> {
    core.read(move |_, tx| {
        let keys = view::column_keys(tx, &inode)?;
        Ok((inode, keys))
    })
    .await
}

/// Makes missing partitions on drives that are up. Returns true if any was made.
async fn make_partitions(core: &Arc<Core>, inode: &InodeRecord, epochs: &[Vec<Option<u32>>]) -> bool {
    let mut calls = tokio::task::JoinSet::new();
    for (segment, epochs) in inode.segments.iter().zip(epochs) {
        for (&drive, _) in segment.drives.iter().zip(epochs).filter(|(_, epoch)| epoch.is_none()) {
            if core.drives().state(drive, core.now_ms()) == DriveState::Up {
                let core = Arc::clone(core);
                let volume = inode.volume;
                calls.spawn(async move { make_partition(&core, drive, volume).await });
            }
        }
    }
    let mut made = false;
    while let Some(done) = calls.join_next().await {
        match done {
            Ok(Ok(())) => made = true,
            // The client will find the drive unusable and report it.
            Ok(Err(error)) => tracing::info!(%error, "a partition could not be made yet"),
            Err(error) => tracing::error!(%error, "making a partition failed within the manager"),
        }
    }
    made
}

pub(crate) fn renew_lease(core: &Core, file: FileId, lease: Lease, holder: HolderId) -> Result<(), Refusal> {
    let renewed = core.leases().renew(file, lease, holder, core.running_ms());
    // After a restart the holder's client is not known yet.
    core.leases().is_of(file, holder, asker());
    if renewed { Ok(()) } else { Err(lease_lost(file, lease)) }
}
