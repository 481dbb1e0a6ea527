//! The differences between two snapshots, or a snapshot and the present.

use std::sync::Arc;

use braid_meta::tree::diff;
use braid_wire::Refusal;
use braid_wire::control::{SnapshotDiff, SnapshotDiffReply};

use crate::core::Core;

/// A page of differences.
pub(crate) async fn page(core: &Arc<Core>, asked: SnapshotDiff) -> Result<SnapshotDiffReply, Refusal> {
    let page = core.read(move |_, tx| diff::page(tx, &asked)).await?;
    let more = page.after.is_some();
    Ok(SnapshotDiffReply { changes: page.changes, after: page.after.unwrap_or_default(), more })
}
