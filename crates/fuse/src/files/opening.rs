//! Opening of the client's file of an inode, and giving it up.

use std::sync::atomic::{AtomicBool, Ordering};

use braid_client::{File, OpenOptions, Result};
use braid_wire::Reason;
use fuser::Errno;

use crate::files::inode::{CHUNK_BYTES_MAX, Inode, Slot};
use crate::files::inode_state::CHUNK_BYTES;
use crate::files::version::Version;

impl Inode {
    /// Opens the file for reading. If the manager does not yet know all that was written here, the file is
    /// opened for writing: only so the size is settled first, and bytes that the drives have are not taken
    /// for a hole.
    pub(crate) async fn open_again(&self, slot: &mut Slot) -> Result<()> {
        let is_known = {
            let state = self.state();
            !state.uncommitted && state.is_clean()
        };
        if is_known {
            slot.file = Some(self.open_to_read().await?);
            return Ok(());
        }
        self.open_to_write(slot).await
    }

    /// Opens the file for reading: takes the idle open file, if it is unchanged.
    async fn open_to_read(&self) -> Result<File> {
        if let Some(row) = self.context.kept.row(self.file)
            && let Some(file) = self.context.idle.take(self.file, Version::of(&row))
        {
            return Ok(file);
        }
        let asked = self.context.kept.ask();
        let file =
            self.context.client.open(&self.context.name(self.file), &OpenOptions::new().read(true)).await?;
        self.context.kept.refine(asked, &file.known());
        self.context.found(&file.known());
        Ok(file)
    }

    /// Opens the file for writing, in place of the one that is open.
    pub(crate) async fn open_to_write(&self, slot: &mut Slot) -> Result<()> {
        if slot.is_lost() {
            drop(self.context.invalidate(self.file));
        }
        self.close_broken(slot).await;
        let options = OpenOptions::new().read(true).write(true);
        let file = self.context.client.open(&self.context.name(self.file), &options).await?;
        self.context.found(&file.known());
        self.install(slot, file);
        // Bytes that wait, or are about to be written, are of programs that may have locked under a lease
        // that is over. If the locks are lost, that may be the reason: others have been given them then, and
        // none of these bytes may be written. The locks are claimed under the new lease, which would end with
        // the locks.
        if self.context.locks.are_any(self.file) {
            self.context.claim_one_of(self.file).await;
        }
        Ok(())
    }

    /// Closes the open file, if any, which can no longer be used. Its lease is given up before another is
    /// asked for: otherwise the two would share the file.
    pub(crate) async fn close_broken(&self, slot: &mut Slot) {
        self.state().writes = false;
        let wrote = std::mem::take(&mut slot.writes);
        slot.lost = AtomicBool::new(false);
        if let Some(old) = slot.file.take()
            && wrote
            && let Err(error) = old.close().await
        {
            tracing::info!(file = %self.file, %error, "the file could not be closed after writing");
            if error.reason() == Some(Reason::Quota) {
                // The close has taken back what did not fit.
                let mut state = self.state();
                state.lost = (state.lost.0 + 1, Some(Errno::EDQUOT));
                self.context.lossy.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives up the file's lease, if a write failed.
    pub(crate) async fn give_up_broken(&self) {
        let mut slot = self.slot.write().await;
        if slot.is_broken() {
            self.close_broken(&mut slot).await;
        }
    }

    /// Installs a file that is open for writing.
    pub(crate) fn install(&self, slot: &mut Slot, file: File) {
        let stripe = file.stripe_bytes().max(1);
        let chunk = (CHUNK_BYTES / stripe).max(1) * stripe;
        let chunk = if chunk > CHUNK_BYTES_MAX { CHUNK_BYTES } else { chunk };
        (slot.file, slot.writes) = (Some(file), true);
        (slot.broken, slot.lost) = Default::default();
        // From here on the kernel's pages are of no content that the manager knows.
        *self.seen() = None;
        let mut state = self.state();
        state.extents.set_chunk(chunk);
        state.writes = true;
    }
}
