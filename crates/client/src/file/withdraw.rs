//! Removal of bytes that a writer may not have: those beyond a size that was refused for quota.

use super::{File, Writer, is_stale};
use crate::error::Result;

impl File {
    /// Removes what this handle wrote past the size that the manager has. Returns false if nothing was
    /// removed, because other handles write the file too, or have since it was opened, and the bytes there
    /// may be theirs.
    pub async fn withdraw(&self) -> Result<bool> {
        self.withdraw_by(self.writing()?).await
    }

    pub(super) async fn withdraw_by(&self, writer: &Writer) -> Result<bool> {
        writer.side.check(self.subject())?;
        let _no_writes = writer.side.cuts.write().await;
        let view = self.handle.refresh(&self.handle.view()).await?;
        // The bytes past the size are known to be this handle's only under the lease that it was opened with,
        // and only if that lease is exclusive.
        let may_be_others = view.shared || writer.side.stamps.live_end(view.lease) == u64::MAX;
        if may_be_others || view.range.is_some() {
            return Ok(false);
        }
        match self.set_len_alone(writer, view.stat.size()).await {
            Ok(()) => Ok(true),
            // Other writers have opened the file meanwhile.
            Err(error) if is_stale(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
