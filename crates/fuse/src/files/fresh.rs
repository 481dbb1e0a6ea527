//! Versions of the kernel's cached pages of a file, and whether they are still its content: close-to-open.
//!
//! A program that opens a file sees all that was written before the file was closed elsewhere: pages are kept
//! over an open only if the file is unchanged at the manager since they were read, and so are attributes,
//! which the kernel may have been told up to a second before. While the file stays open, changes made
//! elsewhere are seen when the kernel next asks for its attributes, which it does every second at most. Only
//! this file decides whether attributes and pages that the kernel holds are current.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use braid_client::{File, Result};
use braid_wire::control::StatRow;
use tokio::time::timeout;

use crate::errors::{Outcome, errno};
use crate::files::inode::Inode;
use crate::files::version::Version;

/// Interval between two looks whether news are heard yet.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
impl Inode {
    /// Prepares the open of a handle that reads. Returns true if the kernel may keep the pages that it has.
    pub(crate) async fn look(self: &Arc<Inode>) -> Outcome<bool> {
        self.catch_up().await;
        if self.slot.read().await.is_lost() {
            drop(self.reading().await.map_err(|error| errno(&error))?);
        }
        let row = {
            let slot = self.slot.read().await;
            match &slot.file {
                Some(file) if slot.writes => {
                    // All changes are made through this mount, while no other mount writes the file.
                    return Ok(!file.is_shared() && !self.is_behind());
                }
                Some(file) => match self.context.kept.row(self.file) {
                    Some(row) if Version::of(&row) == Version::of(&file.known()) => Some(row),
                    _ => Some(self.ask(file).await.map_err(|error| errno(&error))?),
                },
                // If the kernel has exactly the manager's version, the file need not be opened.
                None => self.context.kept.row(self.file).filter(|row| *self.seen() == Some(Version::of(row))),
            }
        };
        let row = match row {
            Some(row) => row,
            None => {
                let mut slot = self.slot.write().await;
                if slot.file.is_none() {
                    self.open_again(&mut slot).await.map_err(|error| errno(&error))?;
                }
                slot.file.as_ref().expect("it is open").known()
            }
        };
        if self.context.told.get(self.file) != Some(Version::of(&row)) {
            self.context.expire(self.file);
        }
        Ok(self.is_seen(&row))
    }

    /// Asks the manager for the record of an open file, and watches it.
    async fn ask(&self, file: &File) -> Result<StatRow> {
        let asked = self.context.kept.ask();
        let row = self.context.client.stat_itself(&self.context.name(self.file)).await?;
        self.context.kept.put(asked, &row);
        self.context.found(&row);
        if Version::of(&row) != Version::of(&file.known()) {
            file.stat().await?;
        }
        Ok(row)
    }

    /// Brings the open file up to date after others have changed it. If the manager cannot be asked, as news
    /// are not heard, the file stays as it was. A caller that comes while another asks waits for the answer
    /// too.
    pub(crate) async fn catch_up(&self) {
        if !self.may_catch_up() {
            return;
        }
        let _catching = self.catching.lock().await;
        if !self.may_catch_up() {
            return;
        }
        let heard = self.heard.load(Ordering::Acquire);
        let slot = self.slot.read().await;
        let Some(file) = &slot.file else { return self.caught.store(heard, Ordering::Release) };
        let lease = file.lease();
        let was_shared = file.is_shared();
        let ask = async {
            match self.ask(file).await {
                // The open file's own size has to be asked for too.
                Ok(row) if slot.writes => file.stat().await.map(|_| row),
                asked => asked,
            }
        };
        let Some(asked) = self.while_heard(ask).await else { return };
        match asked {
            // The kernel has dropped its pages, and those that it reads from now on are of this content or
            // later.
            Ok(row) if !slot.writes => {
                self.is_seen(&row);
            }
            // The kernel has dropped no page of a file that is written here alone: others may have come, and
            // left again.
            Ok(_) if was_shared || file.is_shared() || file.lease() != lease => {
                drop(self.context.invalidate(self.file));
            }
            Ok(_) => {}
            // The next read opens the file again.
            Err(error) if slot.loses(&error) => {}
            Err(error) => {
                tracing::debug!(file = %self.file, %error, "whether the file has changed is not known: it is read as it was");
                return;
            }
        }
        self.caught.store(heard, Ordering::Release);
    }

    fn may_catch_up(&self) -> bool {
        self.is_behind() && self.context.kept.is_live()
    }

    /// Waits for an answer as long as news are heard; `None` once they are not: when they are heard again,
    /// all may have changed once more.
    async fn while_heard<T>(&self, asking: impl Future<Output = T>) -> Option<T> {
        let mut asking = std::pin::pin!(asking);
        loop {
            match timeout(LOOK_AGAIN, &mut asking).await {
                Ok(asked) => return Some(asked),
                Err(_) if !self.context.kept.is_live() => return None,
                Err(_) => {}
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.heard.load(Ordering::Acquire) != self.caught.load(Ordering::Acquire)
    }

    /// Asks whether the lease of a file that is open for writing has outlived a pause of this process or of
    /// the machine. If the manager cannot be asked, the lease's renewals find out.
    pub(crate) async fn ask_for_lease(&self) {
        let is_lost = {
            let slot = self.slot.read().await;
            match slot.file.as_ref().filter(|_| slot.writes) {
                Some(file) => file.stat().await.is_err_and(|error| slot.loses(&error)),
                None => false,
            }
        };
        if is_lost && let Err(error) = self.reading().await {
            tracing::debug!(file = %self.file, %error, "the file cannot be opened again yet");
        }
    }

    /// Makes the file current after a lock was granted: no cached state older than the grant is kept.
    pub(crate) async fn refresh(self: &Arc<Inode>) -> Outcome<()> {
        self.context.expire(self.file);
        {
            // The manager is asked whether others write the file too, and for its present size.
            let slot = self.slot.read().await;
            if let Some(file) = slot.file.as_ref().filter(|_| slot.writes)
                && let Err(error) = file.stat().await
                && !slot.loses(&error)
            {
                return Err(errno(&error));
            }
        }
        if !self.look().await? {
            self.context.invalidate(self.file).await;
        }
        Ok(())
    }

    /// Notes the manager's record of the file. Returns true if the kernel's pages are from exactly this
    /// content; if they are not, they will be, as they are dropped.
    fn is_seen(&self, row: &StatRow) -> bool {
        // While the kernel drops pages it may have some old ones, and a file that is opened then has it drop
        // them.
        let is_dropping = self.dropping.load(Ordering::Acquire) > 0;
        let version = Some(Version::of(row)).filter(|_| !is_dropping);
        std::mem::replace(&mut *self.seen(), version) == version && !is_dropping
    }

    /// Notes the manager's record of a file that is open here. Pages of other content are dropped.
    pub(crate) async fn heed(&self, row: &StatRow) {
        {
            let slot = self.slot.read().await;
            let is_own = slot.file.as_ref().is_some_and(|file| slot.writes && !file.is_shared());
            if is_own {
                return;
            }
        }
        if !self.is_seen(row) {
            drop(self.context.invalidate(self.file));
        }
    }

    /// Notes that others have changed the file: the kernel's pages are of no known content. Returns true if
    /// the file is written here, and by no other mount as far as is known. Never waits: an open of the file
    /// may wait for this news to be heeded.
    pub(crate) fn forget_seen(&self) -> bool {
        self.heard.fetch_add(1, Ordering::AcqRel);
        *self.seen() = None;
        let Ok(slot) = self.slot.try_read() else { return false };
        slot.file.as_ref().is_some_and(|file| slot.writes && !file.is_shared())
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Option<Version>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
