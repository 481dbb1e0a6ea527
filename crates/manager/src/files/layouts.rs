//! Requests about layouts of new files, by their own kind or as an extended attribute.
//!
//! It is the layout of a directory, of a volume, or of a file that was never written. A directory's is
//! changed in one transaction. A file's is changed as if the file were opened for writing: whoever holds its
//! lease is asked to give it up, a lease that is over is ended, and the change is made while the file is
//! locked.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::FileId;
use braid_meta::records::tx::Tx;
use braid_meta::rules::operations::{Operation, OperationResult};
use braid_meta::tree::directories::{Found, refuse_foreign, resolve, resolve_to_end};
use braid_meta::tree::layouts::{self, Change};
use braid_wire::Refusal;
use braid_wire::control::{EntryKind, LayoutOf, LayoutReply, SetClustering, SetLayout, SetXattr};

use crate::core::Core;
use crate::files::opens::make_free;
use crate::sessions::{callbacks, names};

/// Sets or takes away a layout.
pub(crate) async fn set(core: &Arc<Core>, operation: Operation, set: SetLayout) -> Result<(), Refusal> {
    let change = Change::from(&set);
    let target =
        core.read(move |_, tx| Target::of(tx, resolve_to_end(tx, &set.at)?.changeable(&set.at)?)).await?;
    target.change(core, operation, change).await
}

/// Sets or removes an extended attribute, one of which stands for the layout.
pub(crate) async fn set_xattr(core: &Arc<Core>, operation: Operation, set: SetXattr) -> Result<(), Refusal> {
    let Some(change) = Change::of_xattr(&set)? else { return names::set_xattr(core, operation, set).await };
    let target = core.read(move |_, tx| Target::of(tx, resolve(tx, &set.at)?.changeable(&set.at)?)).await?;
    target.change(core, operation, change).await
}

/// Sets which small files are placed near each other.
pub(crate) async fn set_clustering(
    core: &Arc<Core>,
    operation: Operation,
    set: SetClustering,
) -> Result<(), Refusal> {
    let act = move |core: &Core, tx: &mut Tx| {
        let found = resolve_to_end(tx, &set.at)?.changeable(&set.at)?;
        refuse_foreign(tx, &found, "place the files of")?;
        layouts::set_clustering(tx, found.file, set.clustering, core.now_ms())
    };
    names::in_one(core, operation, act).await
}

/// The layout of a file, or of new files in a directory.
pub(crate) async fn of(core: &Arc<Core>, of: LayoutOf) -> Result<LayoutReply, Refusal> {
    core.read(move |_, tx| layouts::of(tx, &of.at)).await
}

/// The directory or file whose layout is to be changed.
struct Target {
    file: FileId,
    kind: EntryKind,
}

impl Target {
    fn of(tx: &Tx, found: Found) -> Result<Target, Refusal> {
        refuse_foreign(tx, &found, "set the layout of")?;
        Ok(Target { file: found.file, kind: found.inode.kind })
    }

    async fn change(self, core: &Arc<Core>, operation: Operation, change: Change) -> Result<(), Refusal> {
        let file = self.file;
        if self.kind != EntryKind::File {
            let set = move |core: &Core, tx: &mut Tx| {
                layouts::set(tx, file, &change, core.drives_counted().1, core.now_ms())
            };
            return names::in_one(core, operation, set).await;
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
}
