//! A file that is open in this mount: all its handles share one record of it.
//!
//! The record has one open file of the client, to read or to write. It is opened by the first who needs it;
//! one for writing serves reads too, so that readers of the same mount see the writer's bytes and size. While
//! it is open for writing, the file has a lease at the manager.
//!
//! Lock order: `ending`, then `placing`, then `slot`, then `telling`, then `state`. Whoever writes or reads
//! holds `slot` to read; whoever opens, closes or truncates holds it to write.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use braid_client::{AttributeChanges, Error, File, Result};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::StatRow;
use fuser::Errno;
use tokio::sync::{Mutex as AsyncMutex, Notify, RwLock, RwLockReadGuard};

use crate::attributes::nanoseconds;
use crate::buffers::Filled;
use crate::context::Context;
use crate::dirty::{Extents, Run, length, overlay};
use crate::errors::errno;
use crate::fresh::Version;
use crate::reach::reach;
use crate::write_back::Outcome;

/// How often what a lost lease interrupted is begun again with a new one.
pub(crate) const TRIES: u32 = 3;
/// About as many bytes as a plan set of the client has: they are written together.
pub(crate) const CHUNK_BYTES: u64 = 8 << 20;
/// The most, of files whose stripes are longer.
pub(crate) const CHUNK_BYTES_MAX: u64 = 32 << 20;
/// The kernel reads whole pages, also of a file's end.
const PAGE_BYTES: u64 = 4096;

/// An open file.
pub(crate) struct Inode {
    pub(crate) file: FileId,
    pub(crate) context: Arc<Context>,
    pub(crate) slot: RwLock<Slot>,
    state: Mutex<State>,
    /// Held while the last handle that writes is closed: another that is opened meanwhile waits, as what the
    /// former could not write is dropped.
    pub(crate) ending: AsyncMutex<()>,
    /// Allows one to have the tail placed at a time.
    pub(crate) placing: AsyncMutex<()>,
    /// Allows one to ask for locks at a time.
    pub(crate) locking: Arc<AsyncMutex<()>>,
    /// Held while attributes are told, one set after the other.
    pub(crate) telling: AsyncMutex<()>,
    /// Something was written, or could not be.
    pub(crate) landed: Notify,
    /// Its last name was removed here: it lives as long as its lease.
    pub(crate) nameless: AtomicBool,
    /// How often it was heard that others have changed it, and with which of these what is open of it has
    /// caught up.
    pub(crate) heard: AtomicU64,
    pub(crate) caught: AtomicU64,
    /// Held while that is asked for.
    pub(crate) catching: AsyncMutex<()>,
    /// What the kernel's pages of it are from.
    pub(crate) seen: Mutex<Option<Version>>,
    /// How often the kernel is being told to drop its pages, and may have some of before.
    pub(crate) dropping: AtomicUsize,
}

/// The client's open file, if there is one.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) file: Option<File>,
    /// It is open for writing.
    pub(crate) writes: bool,
    /// A write of it failed: it writes no more.
    pub(crate) broken: AtomicBool,
    /// An answer said that its lease is lost.
    pub(crate) lost: AtomicBool,
    /// When it could not be opened for writing, the last time, and why.
    refused: Option<(Instant, Errno)>,
    /// The writer was closed at a flush, and a handle stayed open: a descriptor was copied, and each copy's
    /// end is a flush. Next time it stays open.
    pub(crate) was_closed: bool,
}

/// What is not with the drives or not with the manager.
pub(crate) struct State {
    pub(crate) extents: Extents,
    /// Runs on their way to the drives; no two have a byte in common.
    pub(crate) flights: Vec<Arc<Flight>>,
    /// Bytes to be appended, which have no place yet.
    pub(crate) tail: Vec<u8>,
    /// Where they will be if nobody else appends.
    pub(crate) tail_at: u64,
    /// The number of the last write.
    pub(crate) order: u64,
    /// What is from writes of up to this number is to be written now.
    pub(crate) drain: u64,
    /// Where the last flight ended.
    pub(crate) cursor: u64,
    /// One past the last byte that the drives have and the manager may not know of.
    pub(crate) landed_end: u64,
    /// How many want that nothing is in flight.
    pub(crate) holds: u32,
    /// Bytes counted in the budget.
    counted: u64,
    /// Since when there is something to be written or committed.
    pub(crate) since: Option<Instant>,
    /// A write failed, and not all has been written since: no other is taken before that.
    pub(crate) stopped: Option<Errno>,
    /// No run is sent until somebody asks for it.
    pub(crate) halted: bool,
    /// Since when nothing could be written.
    pub(crate) failing: Option<Instant>,
    /// It is being synced though nobody has asked.
    pub(crate) tended: bool,
    /// When that failed, if it did the last time.
    pub(crate) failed_at: Option<Instant>,
    /// What is from writes of up to this number is not to be written any more, as the locks under which it
    /// may have been are lost.
    pub(crate) forfeited: u64,
    /// How often bytes were dropped, and why the last time.
    pub(crate) lost: (u64, Option<Errno>),
    /// The time of the last write, or what was set after it, until the manager knows of it.
    pub(crate) modified: Option<i64>,
    /// When something was written last.
    pub(crate) written_ns: i64,
    /// It was made here, and the manager was told of nothing since.
    pub(crate) is_new: bool,
    /// What else is to be told with the next commit.
    pub(crate) later: AttributeChanges,
    /// What of it is being told.
    pub(crate) told_now: AttributeChanges,
    /// Written since the last commit.
    pub(crate) uncommitted: bool,
    /// The slot's file is open for writing.
    pub(crate) writes: bool,
}

/// A run on its way.
pub(crate) struct Flight {
    pub(crate) from: u64,
    pub(crate) run: Run,
}

impl Inode {
    pub(crate) fn new(file: FileId, context: Arc<Context>) -> Inode {
        Inode {
            file,
            context,
            slot: RwLock::default(),
            state: Mutex::new(State::new()),
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

    /// Takes the file out, if it is open to be read only and nobody uses it.
    pub(crate) fn take_reader(&self) -> Option<File> {
        let mut slot = self.slot.try_write().ok()?;
        if slot.writes { None } else { slot.file.take() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what waits to be written anew.
    pub(crate) fn recount(&self, state: &mut State) {
        let now = state.held_bytes();
        self.context.budget.recount(&mut state.counted, now);
    }

    /// The file, open at least for reading. One that was open for writing, under a lease that is lost, is
    /// opened anew: others may have written since.
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

    /// The same for what waits to be written, of which there may be much: those who wait for a try that fails
    /// try no more, as each may take as long as the client is patient.
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
                tracing::warn!(file = %self.file, %error, "it cannot be opened to be written");
                slot.refused = Some((Instant::now(), errno(&error)));
                return Err(errno(&error));
            }
        }
        Ok(slot.downgrade())
    }

    /// The size as this mount knows it: of what it has open, and of what waits to be written.
    pub(crate) async fn size(&self) -> u64 {
        let slot = self.slot.read().await;
        reach(&self.state, || slot.file.as_ref().map_or(0, File::size))
    }

    /// Changes what the manager says to what is known here: the size and time of what it was not told yet.
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
            // The manager will have a time of its own for it.
            self.context.told_early(self.file);
        }
        state.overlay(row);
    }

    /// Reads. What waits to be written is put over what the drives have.
    pub(crate) async fn read(self: &Arc<Inode>, offset: u64, size: u32) -> Outcome<Filled> {
        let end = offset.saturating_add(u64::from(size));
        let meets_tail = |state: &State| !state.tail.is_empty() && end > state.tail_at;
        self.catch_up().await;
        // Where nobody else can append it is known where the tail will be.
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

    /// Whether it is written here, and by nobody elsewhere.
    async fn is_alone(&self) -> bool {
        let slot = self.slot.read().await;
        slot.can_write() && slot.file.as_ref().is_some_and(|file| !file.is_shared())
    }

    async fn read_by(&self, slot: &Slot, offset: u64, size: u32) -> Result<Filled> {
        let end = offset.saturating_add(u64::from(size));
        let file = slot.file.as_ref().expect("it is open");
        // Looked at first: what lands meanwhile is then both here and there.
        let (over, dirty_end) = self.state().over(offset..end);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut buffer = self.context.buffers.take(size);
        let bytes = &mut buffer[..size];
        let mut filled = fill(file, bytes, offset).await?;
        let expects_more = end > file.size().next_multiple_of(PAGE_BYTES);
        if filled < size && !slot.writes && expects_more {
            // The kernel knows of more bytes than there were when it was opened.
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

    /// Whether it was open for writing, and writes no more as a write failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.writes && self.broken.load(Ordering::Acquire)
    }

    /// Whether it was open for writing, and its lease is lost.
    pub(crate) fn is_lost(&self) -> bool {
        let is_told = || self.file.as_ref().is_some_and(File::is_lost);
        self.writes && (self.lost.load(Ordering::Acquire) || is_told())
    }

    /// Whether an error says that its lease is lost: then it is noted.
    pub(crate) fn loses(&self, error: &Error) -> bool {
        let says_so = matches!(error, Error::LeaseLost { .. }) || error.reason() == Some(Reason::LeaseLost);
        if self.writes && says_so {
            self.lost.store(true, Ordering::Release);
        }
        self.writes && says_so
    }

    /// Whether to begin again after an error, with a new lease. The file writes no more after one.
    pub(crate) fn failed(&self, error: &Error) -> bool {
        self.loses(error);
        let may_again = matches!(error, Error::LeaseLost { .. } | Error::Unfinished { .. })
            || matches!(error.reason(), Some(Reason::LeaseLost | Reason::StaleGeneration | Reason::Leased));
        // A refused commit, for quota, leaves it as it was.
        if error.reason() != Some(Reason::Quota) {
            self.broken.store(true, Ordering::Release);
        }
        may_again
    }
}

impl State {
    pub(crate) fn new() -> State {
        State {
            extents: Extents::new(CHUNK_BYTES),
            flights: Vec::new(),
            tail: Vec::new(),
            tail_at: 0,
            order: 0,
            drain: 0,
            cursor: 0,
            landed_end: 0,
            holds: 0,
            counted: 0,
            since: None,
            stopped: None,
            halted: false,
            failing: None,
            tended: false,
            failed_at: None,
            forfeited: 0,
            lost: (0, None),
            modified: None,
            written_ns: i64::MIN,
            is_new: false,
            later: AttributeChanges::NONE,
            told_now: AttributeChanges::NONE,
            uncommitted: false,
            writes: false,
        }
    }

    /// Bytes that wait to be written, as the budget has them.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// Bytes that wait to be written.
    pub(crate) fn held_bytes(&self) -> u64 {
        let flying: u64 = self.flights.iter().map(|flight| length(&flight.run.bytes)).sum();
        self.extents.bytes() + length(&self.tail) + flying
    }

    /// One past the last byte that waits.
    pub(crate) fn end(&self) -> u64 {
        let flying = self.flights.iter().map(|flight| flight.end()).max().unwrap_or(0);
        let tail = if self.tail.is_empty() { 0 } else { self.tail_at + length(&self.tail) };
        self.extents.end().max(flying).max(tail)
    }

    /// Copies of what waits within a range, older first, and where all of it ends.
    fn over(&self, range: std::ops::Range<u64>) -> (Vec<(u64, Vec<u8>)>, u64) {
        let mut over = Vec::new();
        for flight in &self.flights {
            let from = flight.from.max(range.start);
            let to = flight.end().min(range.end);
            if from < to {
                let at = |offset: u64| usize::try_from(offset - flight.from).expect("it is within a slice");
                over.push((from, flight.run.bytes[at(from)..at(to)].to_vec()));
            }
        }
        over.extend(self.extents.copies(range.clone()));
        // What was appended since a reader had all of it placed is here too, where it will be as far as is
        // known.
        let from = self.tail_at.max(range.start);
        let to = (self.tail_at + length(&self.tail)).min(range.end);
        if from < to {
            let at = |offset: u64| usize::try_from(offset - self.tail_at).expect("it is within a slice");
            over.push((from, self.tail[at(from)..at(to)].to_vec()));
        }
        (over, self.end())
    }

    /// The number of a new write.
    pub(crate) fn wrote(&mut self) -> u64 {
        self.order += 1;
        self.uncommitted = true;
        self.written_ns = nanoseconds(SystemTime::now());
        self.modified = Some(self.written_ns);
        self.since.get_or_insert_with(Instant::now);
        self.order
    }
}

impl Flight {
    pub(crate) fn end(&self) -> u64 {
        self.from + length(&self.run.bytes)
    }
}

/// Reads until the buffer is full or the file ends. Returns how much.
async fn fill(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
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
