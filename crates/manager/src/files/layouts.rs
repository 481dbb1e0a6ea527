//! Requests about layouts of new files, by their own kind or as an extended attribute.
//!
//! What: the layout of a directory, of a volume, or of a file that was never written. How: a directory's is
//! one transaction. A file's is changed as if the file were opened for writing: whoever holds its lease is
//! asked to give it up, a lease that is over is ended, and the change is made while the file is locked.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::FileId;
use braid_meta::rules::operations::{Operation, OperationResult};
use braid_meta::tree::directories::{resolve, resolve_to_end};
use braid_meta::tree::layouts::{self, Change};
use braid_wire::Refusal;
use braid_wire::control::{EntryKind, LayoutOf, LayoutReply, SetLayout, SetXattr};

use crate::core::Core;
use crate::files::opens::make_free;
use crate::sessions::{callbacks, names};

/// Sets or takes away a layout.
pub(crate) async fn set(core: &Arc<Core>, operation: Operation, set: SetLayout) -> Result<(), Refusal> {
    let change = Change::from(&set);
    let found = core
        .read(move |_, tx| {
            let found = resolve_to_end(tx, &set.at)?;
            Ok((found.file, found.inode.kind))
        })
        .await?;
    change_of(core, operation, found, change).await
}

/// Sets or removes an extended attribute, one of which stands for the layout.
pub(crate) async fn set_xattr(core: &Arc<Core>, operation: Operation, set: SetXattr) -> Result<(), Refusal> {
    let Some(change) = Change::of_xattr(&set)? else { return names::set_xattr(core, operation, set).await };
    let found = core
        .read(move |_, tx| {
            let found = resolve(tx, &set.at)?;
            Ok((found.file, found.inode.kind))
        })
        .await?;
    change_of(core, operation, found, change).await
}

/// The layout of a file, or of new files in a directory.
pub(crate) async fn of(core: &Arc<Core>, of: LayoutOf) -> Result<LayoutReply, Refusal> {
    core.read(move |_, tx| layouts::of(tx, &of.at)).await
}

async fn change_of(
    core: &Arc<Core>,
    operation: Operation,
    found: (FileId, EntryKind),
    change: Change,
) -> Result<(), Refusal> {
    let file = found.0;
    if found.1 != EntryKind::File {
        return names::in_one(core, operation, move |core, tx| {
            layouts::set(tx, file, &change, core.drives_counted().1, core.now_ms())
        })
        .await;
    }
    if core.read(move |core, tx| Ok(core.recall(tx, operation)?.is_some())).await? {
        return Ok(());
    }
    callbacks::recall(core, file).await;
    let _turn = core.lock_file(file).await?;
    make_free(core, file).await?;
    let give = core.once(operation, move |core, tx| {
        let place = |seed: u64, shape: &_| core.place(seed, shape, &BTreeSet::new());
        layouts::give(tx, file, &change, &place, core.now_ms())?;
        Ok((OperationResult::DONE, ()))
    });
    give.await.map(drop)
}
