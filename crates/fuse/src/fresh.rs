//! What the kernel's cached pages of a file are from, and whether they are still its content: close-to-open.
//!
//! Whoever opens a file sees all that was written before it was closed elsewhere: pages are kept over an open
//! only if the file is unchanged at the manager since they were read, and so are attributes, which the kernel
//! may have been told up to a second before. While it stays open, changes made
//! elsewhere are seen when the kernel next asks for its attributes, which it does every second at most.
//! Attributes and pages that the kernel holds are questioned in this file only.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_client::{File, Result};
use braid_layout::FileId;
use braid_wire::control::StatRow;
use fuser::FileAttr;
use tokio::time::timeout;

use crate::attributes::nanoseconds;
use crate::errors::errno;
use crate::inode::Inode;
use crate::kept::ROWS_MAX;
use crate::write_back::Outcome;

/// How long the kernel may rely on what it was told.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Files that are remembered: as many as records are kept.
const REMEMBERED_MAX: usize = ROWS_MAX;
/// How often it is looked whether news are heard yet.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Ends of writing that are remembered.
const ENDS_MAX: usize = 1024;

/// A content of a file, as far as the manager can tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    size: u64,
    changed_ns: i64,
}

/// The versions that the kernel may know, by file. Bounded: what is forgotten is only asked for anew.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    versions: Mutex<HashMap<u64, Version>>,
}

/// When writers ended or cut their files, by a count of such events. An answer of the manager that was asked
/// for before such an end may be older than what was known here.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    count: AtomicU64,
    last: Mutex<VecDeque<(u64, FileId)>>,
}

impl Version {
    pub(crate) fn of(row: &StatRow) -> Version {
        Version { size: row.size(), changed_ns: row.attributes.changed_ns }
    }

    /// The same, as the kernel is told.
    pub(crate) fn told(attributes: &FileAttr) -> Version {
        Version { size: attributes.size, changed_ns: nanoseconds(attributes.ctime) }
    }
}

impl Remembered {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Version>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel has forgotten the file.
    pub(crate) fn forget(&self, file: FileId) {
        self.lock().remove(&file.0);
    }

    /// The kernel knows this version.
    pub(crate) fn put(&self, file: FileId, version: Option<Version>) {
        let mut versions = self.lock();
        versions.remove(&file.0);
        if versions.len() >= REMEMBERED_MAX {
            versions.clear();
        }
        if let Some(version) = version {
            versions.insert(file.0, version);
        }
    }

    /// What the kernel knows, if it is remembered.
    pub(crate) fn get(&self, file: FileId) -> Option<Version> {
        self.lock().get(&file.0).copied()
    }
}

impl Ends {
    /// The count so far.
    pub(crate) fn now(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A writer of the file ended, or cut it.
    pub(crate) fn mark(&self, file: FileId) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        last.push_back((count, file));
        if last.len() > ENDS_MAX {
            last.pop_front();
        }
    }

    /// Whether there was one of this file since the count was `then`, or so many that it is not known.
    pub(crate) fn any_since(&self, then: u64, file: FileId) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = last.front().is_none_or(|(first, _)| *first <= then + 1);
        !is_known || last.iter().rev().take_while(|(count, _)| *count > then).any(|(_, of)| *of == file)
    }
}

impl Inode {
    /// A handle that reads is opened. Returns whether the kernel may keep the pages that it has.
    pub(crate) async fn look(self: &Arc<Inode>) -> Outcome<bool> {
        self.catch_up().await;
        if self.slot.read().await.is_lost() {
            drop(self.reading().await.map_err(|error| errno(&error))?);
        }
        let row = {
            let slot = self.slot.read().await;
            match &slot.file {
                Some(file) if slot.writes => {
                    // All changes are made through this mount, while no other writes the file.
                    return Ok(!file.is_shared() && !self.is_behind());
                }
                Some(file) => match self.context.kept.row(self.file) {
                    Some(row) if Version::of(&row) == Version::of(&file.known()) => Some(row),
                    _ => Some(self.ask(file).await.map_err(|error| errno(&error))?),
                },
                // If the kernel has just what the manager says that there is, nothing need be opened.
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

    /// Asks the manager for the facts of an open file, and watches it.
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

    /// Others have changed it since it was opened. If that cannot be asked for, as nobody is heard, it is as
    /// it was. Who comes while it is asked for waits for the answer too.
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
                // Its own size is another.
                Ok(row) if slot.writes => file.stat().await.map(|_| row),
                asked => asked,
            }
        };
        let Some(asked) = self.while_heard(ask).await else { return };
        match asked {
            // The kernel has dropped what it had, and what it reads from now on is of this content or later.
            Ok(row) if !slot.writes => {
                self.is_seen(&row);
            }
            // Of what is written here alone it has dropped nothing: others may have come, and left again.
            Ok(_) if was_shared || file.is_shared() || file.lease() != lease => {
                drop(self.context.invalidate(self.file));
            }
            Ok(_) => {}
            // Whoever reads next opens it anew.
            Err(error) if slot.loses(&error) => {}
            Err(error) => {
                tracing::debug!(file = %self.file, %error, "it is read as it was");
                return;
            }
        }
        self.caught.store(heard, Ordering::Release);
    }

    fn may_catch_up(&self) -> bool {
        self.is_behind() && self.context.kept.is_live()
    }

    /// What is asked for, as long as news are heard: when they are again, all may have changed once more.
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

    /// This process stood still, or the machine slept: whether the lease of what is open for writing has
    /// outlived that. If nobody can be asked, its renewals find out.
    pub(crate) async fn ask_for_lease(&self) {
        let is_lost = {
            let slot = self.slot.read().await;
            match slot.file.as_ref().filter(|_| slot.writes) {
                Some(file) => file.stat().await.is_err_and(|error| slot.loses(&error)),
                None => false,
            }
        };
        if is_lost && let Err(error) = self.reading().await {
            tracing::debug!(file = %self.file, %error, "it is not opened anew yet");
        }
    }

    /// A lock was granted: nothing older than its grant is kept of the file.
    pub(crate) async fn refresh(self: &Arc<Inode>) -> Outcome<()> {
        self.context.expire(self.file);
        {
            // Whether others write it too, and where it ends by now.
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

    /// The manager says this of the file. Returns whether the kernel's pages are from just this content; if
    /// they are not, they will be, as they are dropped.
    fn is_seen(&self, row: &StatRow) -> bool {
        // While the kernel drops pages it has some of before, and what is opened has it drop them itself.
        let is_dropping = self.dropping.load(Ordering::Acquire) > 0;
        let version = Some(Version::of(row)).filter(|_| !is_dropping);
        std::mem::replace(&mut *self.seen(), version) == version && !is_dropping
    }

    /// The manager says this of a file that is open here. Pages of other content are dropped.
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

    /// Others have changed it: what the kernel has is of no content that is known. Returns whether it is
    /// written here, and by nobody else as far as is known. Waits for nothing: whoever opens it may wait for
    /// this news to be heeded.
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
