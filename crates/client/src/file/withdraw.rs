//! What a writer takes back that it may not have: bytes beyond a size that was refused for quota.

use super::{File, Writer, is_stale};
use crate::error::Result;

impl File {
    /// Takes back what this handle wrote past the size that the manager has. `false`: nothing was taken back,
    /// as others write the file too, or did since it was opened, and what lies there may be theirs.
    pub async fn withdraw(&self) -> Result<bool> {
        self.withdraw_by(self.writing()?).await
    }

    pub(super) async fn withdraw_by(&self, writer: &Writer) -> Result<bool> {
        writer.side.check(self.subject())?;
        let _no_appends = writer.places.write().await;
        let view = self.handle.refresh(&self.handle.view()).await?;
        // What lies past the size is known of no lease but the one that it was opened with, if that is
        // exclusive.
        let may_be_others = view.shared || writer.side.stamps.live_end(view.lease) == u64::MAX;
        if may_be_others || view.range.is_some() {
            return Ok(false);
        }
        match self.set_len_alone(writer, view.stat.size()).await {
            Ok(()) => Ok(true),
            // Others have come meanwhile.
            Err(error) if is_stale(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
