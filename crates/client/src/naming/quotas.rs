//! Quotas of volumes, directories and users.

use braid_wire::control::{ControlReply, QuotaList, QuotaRemove, QuotaRow, QuotaSet};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

impl Client {
    /// Sets a quota: of a volume, if `name` is its root; of a directory, with all below it; or, with `user`
    /// and a volume's root, of a user's files in the volume. `bytes` and `files` bound what there may be; 0:
    /// any. What is there already counts. Files that are open for writing keep to it within two minutes, when
    /// their capabilities are renewed.
    pub async fn set_quota(&self, name: &Name, user: Option<u32>, bytes: u64, files: u64) -> Result<()> {
        let at = self.place(name).await?;
        self.ask_done(&name.to_string(), QuotaSet { at, user, bytes, files }).await
    }

    /// Ends a quota.
    pub async fn remove_quota(&self, name: &Name, user: Option<u32>) -> Result<()> {
        let at = self.place(name).await?;
        self.ask_done(&name.to_string(), QuotaRemove { at, user }).await
    }

    /// The quotas of a volume, or of all volumes.
    pub async fn quotas(&self, volume: Option<&str>) -> Result<Vec<QuotaRow>> {
        let subject = volume.map_or_else(|| "the cluster".to_owned(), |volume| format!("volume {volume}"));
        let request = QuotaList { volume: volume.unwrap_or_default().to_owned() };
        match self.ask_manager(&subject, request).await? {
            ControlReply::Quotas(reply) => Ok(reply.quotas),
            other => Err(unexpected(&subject, &other)),
        }
    }
}
