//! Snapshots of volumes and directories.

use braid_wire::control::{ControlReply, SnapshotMade, SnapshotMake, SnapshotRemove, SnapshotRow, Snapshots};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

/// Bytes that programs have written in mounts, and that the mounts still hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffered {
    /// The snapshot lacks them, unless they were synced.
    LeftOut,
    /// The mounts are asked to write them out first.
    WrittenOut,
}

impl Client {
    /// Makes a snapshot of a directory with all below it, as it is at one moment. What it shows is read under
    /// [`Name::in_snapshot`].
    pub async fn make_snapshot(
        &self,
        directory: &Name,
        name: &str,
        buffered: Buffered,
    ) -> Result<SnapshotMade> {
        let subject = directory.to_string();
        let sync = buffered == Buffered::WrittenOut;
        let request = SnapshotMake { at: self.place(directory).await?, name: name.to_owned(), sync };
        match self.ask_manager(&subject, request).await? {
            ControlReply::SnapshotMade(made) => Ok(made),
            other => Err(unexpected(&subject, &other)),
        }
    }

    /// Removes a snapshot. Readers of its files get errors from then on.
    pub async fn remove_snapshot(&self, directory: &Name, name: &str) -> Result<()> {
        let at = self.place(directory).await?;
        self.ask_done(&directory.to_string(), SnapshotRemove { at, name: name.to_owned() }).await
    }

    /// The snapshots of a directory, or of all directories of a volume if it is the root, the oldest first.
    pub async fn snapshots(&self, directory: &Name) -> Result<Vec<SnapshotRow>> {
        let subject = directory.to_string();
        let at = self.place(directory).await?;
        let mut all: Vec<SnapshotRow> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.number);
            match self.ask_manager(&subject, Snapshots { at: at.clone(), after }).await? {
                ControlReply::Snapshots(page) => {
                    let more = page.more && !page.snapshots.is_empty();
                    all.extend(page.snapshots);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(unexpected(&subject, &other)),
            }
        }
    }
}
