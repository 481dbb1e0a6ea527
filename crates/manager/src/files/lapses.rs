//! The end of a lease that has lapsed: the procedure on its file.

use std::sync::Arc;

use braid_layout::FileId;
use braid_meta::records::inodes;
use braid_meta::rules::leases::Step;
use braid_wire::Refusal;

use crate::columns::procedure::{self, Cause, RecordedLease, hold_lapsed};
use crate::core::Core;
use crate::files::sharing;

/// Does the next step for a file's lease: ends it, or changes its holders or kind. Finishes procedures that
/// were left undone. The caller holds the file's lock.
pub(crate) async fn end_lease_alone(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    let step = core.leases().step(file, core.now_ms());
    if step != Step::End {
        // The file is leased again: the end of that lease does what was left undone. If the file stayed
        // listed, it would be due again at once.
        core.unfinished().remove(&file);
    }
    match step {
        Step::End => {}
        Step::Nothing => return Ok(()),
        Step::Without(gone) => return sharing::without(core, file, gone).await,
        Step::Apart => return sharing::apart(core, file).await,
    }
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    if let Some(inode) = found.filter(|inode| inode.held || inode.unfenced) {
        if inode.lives() {
            let lease = if inode.held { RecordedLease::Ended } else { RecordedLease::None };
            let lost = hold_lapsed(core, &inode);
            procedure::run(core, file, Cause { lease, lost, ..Cause::nothing() }).await?;
        } else {
            core.write(move |_, tx| {
                // The file may have got its name since.
                match inodes::find(tx, file)? {
                    Some(inode) if !inode.lives() => inodes::bury(tx, file, &inode),
                    _ => Ok(()),
                }
            })
            .await?;
        }
    }
    core.leases().end(file);
    core.unfinished().remove(&file);
    Ok(())
}
