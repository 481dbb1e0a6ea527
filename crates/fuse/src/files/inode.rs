//! A file that is open in this mount: all its handles share one record of it.
//!
//! The record has one open file of the client, for reading or for writing. It is opened at the first need; a
//! file open for writing serves reads too, so that readers of the same mount see the writer's bytes and size.
//! While it is open for writing, the file has a lease at the manager.
//!
//! Lock order: `ending`, then `placing`, then `slot`, then `telling`, then `state`. Writes and reads hold
//! `slot` shared; open, close and truncation hold it exclusively.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use braid_client::{Error, File, Result};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::StatRow;
use fuser::Errno;
use tokio::sync::{Mutex as AsyncMutex, Notify, RwLock, RwLockReadGuard};

use crate::context::Context;
use crate::errors::{Outcome, errno};
use crate::files::buffers::Filled;
use crate::files::dirty::{length, overlay};
use crate::files::inode_state::InodeState;
use crate::files::reach::reach;
use crate::files::version::Version;

/// Maximum number of tries of an operation that a lost lease interrupts; each has a new lease.
pub(crate) const TRIES: u32 = 3;
/// Maximum size of a chunk in bytes, for files whose stripes are longer.
pub(crate) const CHUNK_BYTES_MAX: u64 = 32 << 20;
/// Size of the kernel's pages: it reads whole ones, also at a file's end.
const PAGE_BYTES: u64 = 4096;

/// An open file.
pub(crate) struct Inode {
    pub(crate) file: FileId,
    pub(crate) context: Arc<Context>,
    pub(crate) slot: RwLock<Slot>,
    state: Mutex<InodeState>,
    /// Held while the last handle that writes is closed: another that is opened meanwhile waits, as bytes
    /// that the former could not write are dropped.
    pub(crate) ending: AsyncMutex<()>,
    /// Held while the tail is placed.
    pub(crate) placing: AsyncMutex<()>,
    /// Held by the task whose turn it is to ask for locks.
    pub(crate) locking: Arc<AsyncMutex<()>>,
    /// Held while attributes are sent, one set after the other.
    pub(crate) telling: AsyncMutex<()>,
    /// Notified when bytes were written, or could not be.
    pub(crate) landed: Notify,
    /// True if the file's last name was removed here: the file lives as long as its lease.
    pub(crate) nameless: AtomicBool,
    /// `heard` counts reports that others have changed the file; `caught` is the count with which its open
    /// file has caught up.
    pub(crate) heard: AtomicU64,
    pub(crate) caught: AtomicU64,
    /// Held while the manager is asked to catch up.
    pub(crate) catching: AsyncMutex<()>,
    /// Version of the file from which the kernel's pages are.
    pub(crate) seen: Mutex<Option<Version>>,
    /// Number of calls under way by which the kernel drops its pages, while it may have some old ones.
    pub(crate) dropping: AtomicUsize,
}

/// The client's open file, if there is one.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) file: Option<File>,
    /// True if the file is open for writing.
    pub(crate) writes: bool,
    /// True if a write of the file failed: it writes no more.
    pub(crate) broken: AtomicBool,
    /// True if an answer said that its lease is lost.
    pub(crate) lost: AtomicBool,
    /// Time and error of the last failed try to open it for writing.
    refused: Option<(Instant, Errno)>,
    /// True if the writer was closed at a flush while a handle stayed open: the descriptor was copied, and
    /// the end of each copy is a flush. Next time it stays open.
    pub(crate) was_closed: bool,
}

impl Inode {
    pub(crate) fn new(file: FileId, context: Arc<Context>) -> Inode {
        Inode {
            file,
            context,
            slot: RwLock::default(),
            state: Mutex::new(InodeState::new()),
            ending: AsyncMutex::new(()),
            placing: AsyncMutex::new(()),
            locking: Arc::default(),
            telling: AsyncMutex::new(()),
            landed: Notify::new(),
            nameless: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            caught: AtomicU64::new(0),
            catching: AsyncMutex::new(()),
            seen: Mutex::new(None),
            dropping: AtomicUsize::new(0),
        }
    }

    /// Takes the file out, if it is open for reading only and not in use.
    pub(crate) fn take_reader(&self) -> Option<File> {
        let mut slot = self.slot.try_write().ok()?;
        if slot.writes { None } else { slot.file.take() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the bytes that wait to be written again, in the budget.
    pub(crate) fn recount(&self, state: &mut InodeState) {
        let now = state.held_bytes();
        self.context.budget.recount(&mut state.counted, now);
    }

    /// The file, open at least for reading. A file that was open for writing, under a lease that is lost, is
    /// opened again: others may have written since.
    pub(crate) async fn reading(&self) -> Result<RwLockReadGuard<'_, Slot>> {
        let slot = self.slot.read().await;
        if slot.file.is_some() && !slot.is_lost() {
            return Ok(slot);
        }
        drop(slot);
        let mut slot = self.slot.write().await;
        if slot.is_lost() {
            self.close_broken(&mut slot).await;
            drop(self.context.invalidate(self.file));
        }
        if slot.file.is_none() {
            self.open_again(&mut slot).await?;
        }
        Ok(slot.downgrade())
    }

    /// The file, open for writing, and with a lease as far as is known.
    pub(crate) async fn writing(&self) -> Result<RwLockReadGuard<'_, Slot>> {
        let slot = self.slot.read().await;
        if slot.can_write() {
            return Ok(slot);
        }
        drop(slot);
        let mut slot = self.slot.write().await;
        if !slot.can_write() {
            self.open_to_write(&mut slot).await?;
        }
        Ok(slot.downgrade())
    }

    /// The file, open for writing, for the many tasks that may write waiting bytes: if one's try fails, those
    /// that wait for it do not try again, as each try may take as long as the client's patience.
    pub(crate) async fn writing_out(&self) -> Outcome<RwLockReadGuard<'_, Slot>> {
        let asked = Instant::now();
        let slot = self.slot.read().await;
        if slot.can_write() {
            return Ok(slot);
        }
        drop(slot);
        let mut slot = self.slot.write().await;
        if !slot.can_write() {
            if let Some((_, why)) = slot.refused.filter(|(at, _)| *at > asked) {
                return Err(why);
            }
            if let Err(error) = self.open_to_write(&mut slot).await {
                tracing::warn!(file = %self.file, %error, "the file cannot be opened for writing");
                slot.refused = Some((Instant::now(), errno(&error)));
                return Err(errno(&error));
            }
        }
        Ok(slot.downgrade())
    }

    /// The size as this mount knows it: of the open file, and of the bytes that wait to be written.
    pub(crate) async fn size(&self) -> u64 {
        let slot = self.slot.read().await;
        reach(&self.state, || slot.file.as_ref().map_or(0, File::size))
    }

    /// Changes the manager's record to the size and times known here that the manager was not told yet.
    pub(crate) async fn tell(&self, row: &mut StatRow) {
        self.tell_of(&*self.slot.read().await, row);
    }

    pub(crate) fn tell_of(&self, slot: &Slot, row: &mut StatRow) {
        let own = slot.file.as_ref().filter(|_| slot.writes && !slot.is_lost());
        row.attributes.size = row.size().max(reach(&self.state, || own.map_or(0, File::size)));
        let state = self.state();
        if let Some(modified_ns) = state.modified {
            row.attributes.modified_ns = modified_ns;
        }
        if state.uncommitted {
            row.attributes.changed_ns = row.attributes.changed_ns.max(state.written_ns);
            // The manager will set a time of its own for this change.
            self.context.told_early(self.file);
        }
        state.overlay(row);
    }

    /// Reads bytes. Those that wait to be written are put over the drives' bytes.
    pub(crate) async fn read(self: &Arc<Inode>, offset: u64, size: u32) -> Outcome<Filled> {
        let end = offset.saturating_add(u64::from(size));
        let meets_tail = |state: &InodeState| !state.tail.is_empty() && end > state.tail_at;
        self.catch_up().await;
        // If no other mount can append, the tail's place is known.
        if meets_tail(&self.state()) && !self.is_alone().await {
            self.place_tail().await?;
        }
        let mut tries = 0;
        loop {
            let slot = self.reading().await.map_err(|error| errno(&error))?;
            match self.read_by(&slot, offset, size).await {
                Err(error) if slot.loses(&error) && tries + 1 < TRIES => tries += 1,
                read => return read.map_err(|error| errno(&error)),
            }
        }
    }

    /// Returns true if the file is written here, and by no other mount.
    async fn is_alone(&self) -> bool {
        let slot = self.slot.read().await;
        slot.can_write() && slot.file.as_ref().is_some_and(|file| !file.is_shared())
    }

    async fn read_by(&self, slot: &Slot, offset: u64, size: u32) -> Result<Filled> {
        let end = offset.saturating_add(u64::from(size));
        let file = slot.file.as_ref().expect("it is open");
        // This is looked at first: bytes that land meanwhile are then both here and there.
        let (over, dirty_end) = self.state().over(offset..end);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut buffer = self.context.buffers.take(size);
        let bytes = &mut buffer[..size];
        let mut filled = fill(file, bytes, offset).await?;
        let expects_more = end > file.size().next_multiple_of(PAGE_BYTES);
        if filled < size && !slot.writes && expects_more {
            // The kernel knows of more bytes than the file had when it was opened.
            file.stat().await?;
            let at = offset + length(&bytes[..filled]);
            filled += fill(file, &mut bytes[filled..], at).await?;
        }
        let known = usize::try_from(dirty_end.min(end).saturating_sub(offset)).unwrap_or(size);
        if known > filled {
            bytes[filled..known].fill(0);
            filled = known;
        }
        over.iter().for_each(|(from, run)| overlay(&mut bytes[..filled], offset, *from, run));
        Ok(Filled { buffer, bytes: filled })
    }
}

impl Slot {
    fn can_write(&self) -> bool {
        self.writes && self.file.is_some() && !self.broken.load(Ordering::Acquire) && !self.is_lost()
    }

    /// Returns true if the file was open for writing, and writes no more as a write failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.writes && self.broken.load(Ordering::Acquire)
    }

    /// Returns true if the file was open for writing, and its lease is lost.
    pub(crate) fn is_lost(&self) -> bool {
        let is_told = || self.file.as_ref().is_some_and(File::is_lost);
        self.writes && (self.lost.load(Ordering::Acquire) || is_told())
    }

    /// Returns true if an error says that the file's lease is lost, and notes it.
    pub(crate) fn loses(&self, error: &Error) -> bool {
        let says_so = matches!(error, Error::LeaseLost { .. }) || error.reason() == Some(Reason::LeaseLost);
        if self.writes && says_so {
            self.lost.store(true, Ordering::Release);
        }
        self.writes && says_so
    }

    /// Returns true if the operation may begin again after an error, with a new lease. The file writes no
    /// more after an error.
    pub(crate) fn failed(&self, error: &Error) -> bool {
        self.loses(error);
        let may_again = matches!(error, Error::LeaseLost { .. } | Error::Unfinished { .. })
            || matches!(error.reason(), Some(Reason::LeaseLost | Reason::StaleGeneration | Reason::Leased));
        // A commit that is refused, for quota, leaves the file as it was.
        if error.reason() != Some(Reason::Quota) {
            self.broken.store(true, Ordering::Release);
        }
        may_again
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes read.
pub(crate) async fn fill(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset.saturating_add(length(&buffer[..filled]));
        match file.read_at(&mut buffer[filled..], at).await? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}
