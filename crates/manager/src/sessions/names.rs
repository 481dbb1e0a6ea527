//! Requests about names: volumes, directories, entries and attributes. Each change is one transaction.

use std::sync::Arc;

use braid_layout::{DriveId, FileId};
use braid_meta::records::inodes;
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Once, Operation, OperationResult};
use braid_meta::tree::directories::{self, Found, Parents};
use braid_meta::tree::{attributes, nodes, quotas, shapes, view, volumes};
use braid_wire::Refusal;
use braid_wire::codec::Added;
use braid_wire::control::{
    DirectoryReply, HardLink, Lookup, MakeDirectory, MakeNode, NamePlace, QuotaList, QuotaListReply,
    QuotaRemove, QuotaSet, ReadDirectory, Rename, SetAttributes, SetXattr, StatRow, Unlink, VolumeCreate,
    VolumeListReply, VolumeMethods, VolumeProtect, VolumeRekey, VolumeRemove, Xattrs, XattrsReply,
};

use crate::asker::asker;
use crate::columns::partitions::make_partitions_of;
use crate::core::Core;
use crate::files::opens;
use crate::sessions::callbacks;

pub(crate) async fn create_volume(
    core: &Arc<Core>,
    operation: Operation,
    create: VolumeCreate,
) -> Result<(), Refusal> {
    let made = core
        .once(operation, move |core, tx| {
            let drives = core.drives().iter().filter(|drive| drive.record.replaced_by == DriveId(0)).count();
            let shape = if create.shape.k == 0 {
                shapes::from_spec(&create.shape, &shapes::default_spec(drives)?)?
            } else {
                shapes::from_spec(&create.shape, &create.shape)?
            };
            shapes::check_width(&shape, drives)?;
            let volume = volumes::create(tx, &create.name, shape.into(), create.quota_bytes, core.now_ms())?;
            volumes::protect(tx, volume, create.protection)?;
            if let Some(wrapped) = &create.key {
                volumes::seal(tx, volume, wrapped)?;
            }
            Ok((OperationResult::DONE, volume))
        })
        .await?;
    // For a volume that was made before, the background makes missing partitions.
    if let Once::Now(volume) = made {
        make_partitions_of(core, volume).await;
    }
    Ok(())
}

pub(crate) async fn protect_volume(
    core: &Arc<Core>,
    operation: Operation,
    protect: VolumeProtect,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| {
        let volume = volumes::find(tx, &protect.name)?.volume;
        volumes::protect(tx, volume, protect.protection)
    })
    .await
}

pub(crate) async fn set_methods_of_volume(
    core: &Arc<Core>,
    operation: Operation,
    set: VolumeMethods,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| {
        let volume = volumes::find(tx, &set.name)?.volume;
        volumes::set_methods(tx, volume, set.methods);
        Ok(())
    })
    .await
}

pub(crate) async fn remove_volume(
    core: &Arc<Core>,
    operation: Operation,
    remove: VolumeRemove,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| volumes::remove(tx, &remove.name)).await
}

pub(crate) async fn rekey_volume(
    core: &Arc<Core>,
    operation: Operation,
    rekey: VolumeRekey,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| volumes::rekey(tx, &rekey)).await
}

pub(crate) async fn set_quota(core: &Arc<Core>, operation: Operation, set: QuotaSet) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| quotas::set(tx, &set)).await
}

pub(crate) async fn remove_quota(
    core: &Arc<Core>,
    operation: Operation,
    remove: QuotaRemove,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| quotas::remove(tx, &remove.at, remove.user)).await
}

pub(crate) async fn list_quotas(core: &Arc<Core>, list: QuotaList) -> Result<QuotaListReply, Refusal> {
    let quotas = core.read(move |_, tx| quotas::rows(tx, &list.volume)).await?;
    Ok(QuotaListReply { quotas })
}

pub(crate) async fn volumes(core: &Arc<Core>) -> Result<VolumeListReply, Refusal> {
    core.read(|_, tx| {
        Ok(VolumeListReply { volumes: volumes::rows(tx)?, methods: Added(volumes::methods_rows(tx)?) })
    })
    .await
}

/// Lists a directory, and has the client watch it and the listed files if it asked to.
pub(crate) async fn read_directory(core: &Arc<Core>, read: ReadDirectory) -> Result<DirectoryReply, Refusal> {
    let since = core.watchers().now();
    let client = asker();
    core.read(move |core, tx| {
        let Found { file: directory, within, .. } = directories::resolve(tx, &read.at)?;
        let (entries, more) = directories::list(tx, &read.at, &read.after, read.limit)?;
        // What is in a snapshot does not change.
        if read.watch && within.is_none() {
            let mut watchers = core.watchers();
            watchers.watch(client, directory, since);
            entries.iter().for_each(|entry| watchers.watch(client, entry.file, since));
        }
        Ok(DirectoryReply { entries, more })
    })
    .await
}

pub(crate) async fn make_directory(
    core: &Arc<Core>,
    operation: Operation,
    make: MakeDirectory,
) -> Result<StatRow, Refusal> {
    let parents = if make.parents { Parents::Made } else { Parents::Required };
    made(core, operation, move |core, tx| directories::make(tx, &make.at, &make.new, parents, core.now_ms()))
        .await
}

pub(crate) async fn rename(core: &Arc<Core>, operation: Operation, rename: Rename) -> Result<(), Refusal> {
    let by = asker();
    let Rename { from, to, how, keep } = rename;
    in_one(core, operation, move |core, tx| {
        let keeps = |file| callbacks::keeps(core, file, by, keep);
        directories::rename(tx, &from, &to, how, &keeps, core.now_ms())
    })
    .await
}

pub(crate) async fn unlink(core: &Arc<Core>, operation: Operation, unlink: Unlink) -> Result<(), Refusal> {
    let by = asker();
    let Unlink { at, only, keep } = unlink;
    in_one(core, operation, move |core, tx| {
        let keeps = |file| callbacks::keeps(core, file, by, keep);
        directories::unlink(tx, &at, only, &keeps, core.now_ms())
    })
    .await
}

pub(crate) async fn set_attributes(
    core: &Arc<Core>,
    operation: Operation,
    set: SetAttributes,
) -> Result<StatRow, Refusal> {
    made(core, operation, move |core, tx| attributes::set(tx, &set.at, &set.changes, core.now_ms())).await
}

pub(crate) async fn make_node(
    core: &Arc<Core>,
    operation: Operation,
    make: MakeNode,
) -> Result<StatRow, Refusal> {
    made(core, operation, move |core, tx| nodes::make(tx, &make, core.now_ms())).await
}

pub(crate) async fn hard_link(
    core: &Arc<Core>,
    operation: Operation,
    link: HardLink,
) -> Result<StatRow, Refusal> {
    made(core, operation, move |core, tx| nodes::link(tx, &link, core.now_ms())).await
}

pub(crate) async fn set_xattr(core: &Arc<Core>, operation: Operation, set: SetXattr) -> Result<(), Refusal> {
    in_one(core, operation, move |core, tx| attributes::set_xattr(tx, &set, core.now_ms())).await
}

pub(crate) async fn xattrs(core: &Arc<Core>, of: Xattrs) -> Result<XattrsReply, Refusal> {
    let xattrs = core.read(move |_, tx| attributes::xattrs(tx, &of.at)).await?;
    Ok(XattrsReply { xattrs })
}

/// Carries out an operation that is one transaction. The background frees what it removed.
pub(crate) async fn in_one(
    core: &Arc<Core>,
    operation: Operation,
    work: impl FnOnce(&Core, &mut Tx) -> Result<(), Refusal> + Send + 'static,
) -> Result<(), Refusal> {
    let once =
        core.once(operation, move |core, tx| work(core, tx).map(|()| (OperationResult::DONE, ()))).await;
    core.wake.notify_waiters();
    once.map(drop)
}

/// Carries out an operation that is one transaction about one file, directory or node. Returns its stat
/// afterwards; the client watches it from then on.
async fn made(
    core: &Arc<Core>,
    operation: Operation,
    work: impl FnOnce(&Core, &mut Tx) -> Result<FileId, Refusal> + Send + 'static,
) -> Result<StatRow, Refusal> {
    let since = core.watchers().now();
    let client = asker();
    let once = core.once(operation, move |core, tx| {
        let file = work(core, tx)?;
        Ok((OperationResult { file, ..OperationResult::DONE }, (file, inodes::get(tx, file)?)))
    });
    let row = match once.await? {
        Once::Now((file, inode)) => view::stat(&core.drives(), file, &inode, core.now_ms()),
        Once::Before(OperationResult { file, .. }) => {
            opens::stat(core, Lookup { at: NamePlace::number(file), follow: false, watch: false }).await?
        }
    };
    core.watchers().watch(client, row.file, since);
    Ok(row)
}
