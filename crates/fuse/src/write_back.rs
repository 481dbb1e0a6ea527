//! Writing: bytes are taken from the kernel into memory, and written to the drives later.
//!
//! They are written when a run is whole (a chunk, see `dirty`), when they are [`AGE_MAX`] old, when the mount
//! holds too many (`context`), and when somebody asks: fsync, close, truncation. The kernel does not hand on
//! `sync` and `syncfs`, so that age is all that these wait for. Several runs are in flight
//! at a time; no two that have a byte in common, so that the later write of a byte lands later.
//!
//! What fails stays. A writer whose lease was lost is opened again at once, and the bytes are written anew.
//! Any other error stops the file: it is told to whoever waits, and to the next write, which is not taken.
//! Then it is tried again whenever somebody asks, and now and then by itself (`caretaker`), until
//! [`KEPT_FOR`] is over. Bytes that were not written then, or when the last writer has left, are dropped;
//! every handle that is open is told so once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_client::{FILE_BYTES_MAX, File, Result};
use fuser::Errno;

use crate::dirty::length;
use crate::errors::errno;
use crate::inode::{Flight, Inode, State, TRIES};

/// How long bytes wait until they are written and synced, if nobody asks.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
/// How long bytes are kept that cannot be written. The client has tried for its own patience each time.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(60);
/// Runs of a file in flight.
const FLIGHTS_MAX: usize = 16;
/// Bytes of a file in flight, beyond which no other run begins.
const FLIGHT_BYTES_MAX: u64 = 32 << 20;
/// A run that ends a chunk is written at once if it has as many bytes.
const WHOLE_BYTES_MIN: u64 = 1 << 20;

/// What a program is told.
pub(crate) type Outcome<T> = std::result::Result<T, Errno>;

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    At(u64),
    /// At the end, wherever that is by then.
    End,
}

/// What must have happened before a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// Nothing: it is in memory.
    No,
    /// The drives have it.
    Drives,
    /// And the manager has the size.
    Manager,
}

/// All writes up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last write's number.
    order: u64,
    at: Instant,
}

/// A flight under way. Dropped without an answer (its task has ended), it has failed.
struct Aloft {
    inode: Arc<Inode>,
    flight: Option<Arc<Flight>>,
}

impl Inode {
    /// Takes a write, if it need wait for nothing.
    pub(crate) fn write_at_once(self: &Arc<Inode>, place: Place, data: &[u8]) -> bool {
        let bytes = length(data);
        if !self.context.budget.has_room(bytes) {
            return false;
        }
        let mut state = self.state();
        if !state.writes || state.stopped.is_some() {
            return false;
        }
        let is_whole = match place {
            Place::At(offset) => {
                let Some(end) = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX) else {
                    return false;
                };
                if !state.tail.is_empty() && end > state.tail_at {
                    return false;
                }
                let order = state.wrote();
                state.extents.put(offset, data, order);
                state.extents.passes_chunk(offset, end)
            }
            Place::End => {
                if state.tail.is_empty() || length(&state.tail) + bytes > state.extents.chunk() {
                    return false;
                }
                state.wrote();
                state.tail.extend_from_slice(data);
                false
            }
        };
        self.recount(&mut state);
        drop(state);
        if is_whole {
            self.start();
        }
        true
    }

    /// Takes a write, and waits for what it needs.
    pub(crate) async fn write(self: &Arc<Inode>, place: Place, data: &[u8], through: Through) -> Outcome<()> {
        if let Place::At(offset) = place
            && offset.checked_add(length(data)).is_none_or(|end| end > FILE_BYTES_MAX)
        {
            return Err(Errno::EFBIG);
        }
        self.context.budget.room(length(data)).await;
        if self.state().stopped.is_some() {
            // Nothing more is taken of a file while what it has cannot be written.
            self.sync().await?;
        }
        drop(self.writing().await.map_err(|error| errno(&error))?);
        match place {
            Place::At(offset) => self.put(offset, data).await?,
            Place::End => self.append(data).await?,
        }
        match through {
            Through::No => Ok(()),
            Through::Drives => self.drain().await,
            Through::Manager => self.sync().await,
        }
    }

    async fn put(self: &Arc<Inode>, offset: u64, data: &[u8]) -> Outcome<()> {
        let end = offset + length(data);
        loop {
            {
                let mut state = self.state();
                if state.tail.is_empty() || end <= state.tail_at {
                    let order = state.wrote();
                    state.extents.put(offset, data, order);
                    self.recount(&mut state);
                    break;
                }
            }
            self.place_tail().await?;
        }
        self.start();
        Ok(())
    }

    async fn append(self: &Arc<Inode>, data: &[u8]) -> Outcome<()> {
        let is_long = {
            let state = self.state();
            length(&state.tail) + length(data) > state.extents.chunk()
        };
        if is_long {
            self.place_tail().await?;
            self.start_all();
        }
        // While it is held nobody closes the writer, whose size says where the end is.
        let slot = self.writing().await.map_err(|error| errno(&error))?;
        let end = slot.file.as_ref().map_or(0, File::size);
        let mut state = self.state();
        if state.tail.is_empty() {
            state.tail_at = end.max(state.end());
        }
        state.wrote();
        state.tail.extend_from_slice(data);
        self.recount(&mut state);
        Ok(())
    }

    /// Gives what is to be appended its place, at the end that the file has by now at the manager.
    pub(crate) async fn place_tail(self: &Arc<Inode>) -> Outcome<()> {
        let _placing = self.placing.lock().await;
        let bytes = self.state().tail.len();
        if bytes == 0 {
            return Ok(());
        }
        // What was written before lies below it, and the end is known only with it.
        self.drain_extents().await?;
        let mut tries = 0;
        let offset = loop {
            let slot = self.writing().await.map_err(|error| self.stop(errno(&error)))?;
            let file = slot.file.as_ref().expect("it is open");
            match file.reserve(bytes).await {
                Ok(offset) => break offset,
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(self.stop(errno(&error))),
            }
        };
        let mut state = self.state();
        let rest = state.tail.split_off(bytes);
        let placed = std::mem::replace(&mut state.tail, rest);
        let is_elsewhere = offset != state.tail_at;
        let order = state.order;
        state.extents.put(offset, &placed, order);
        state.tail_at = offset + length(&placed);
        self.recount(&mut state);
        drop(state);
        if is_elsewhere {
            // The kernel took it for the end that it knew.
            drop(self.context.invalidate(self.file));
        }
        Ok(())
    }

    /// Has all that waits now written, without waiting for it.
    pub(crate) fn start_all(self: &Arc<Inode>) {
        {
            let mut state = self.state();
            state.drain = state.order;
        }
        self.start();
    }

    /// Begins what may begin.
    pub(crate) fn start(self: &Arc<Inode>) {
        let mut begun = Vec::new();
        {
            let mut state = self.state();
            while let Some(flight) = state.next_flight() {
                begun.push(flight);
            }
        }
        for flight in begun {
            let aloft = Aloft { inode: Arc::clone(self), flight: Some(flight) };
            self.context.runtime.spawn(aloft.fly());
        }
    }

    /// Writes all that waits. When it returns, the drives have it.
    pub(crate) async fn drain(self: &Arc<Inode>) -> Outcome<()> {
        self.place_tail().await?;
        self.drain_extents().await
    }

    async fn drain_extents(self: &Arc<Inode>) -> Outcome<()> {
        let upto = {
            let mut state = self.state();
            state.halted = false;
            state.drain = state.order;
            state.order
        };
        self.start();
        loop {
            let landed = self.landed.notified();
            let mut landed = std::pin::pin!(landed);
            landed.as_mut().enable();
            {
                let state = self.state();
                let flies = state.flights.iter().any(|flight| flight.run.order <= upto);
                if !flies && !state.extents.has_up_to(upto) {
                    return Ok(());
                }
                if state.halted && state.flights.is_empty() {
                    return Err(state.stopped.unwrap_or(Errno::EIO));
                }
            }
            landed.await;
        }
    }

    /// Writes all that waits, and tells the manager the size and that it was changed: others who open it then
    /// see what was written, also where the size is as before.
    pub(crate) async fn sync(self: &Arc<Inode>) -> Outcome<()> {
        // What is written from here on is the next sync's.
        let mark = self.state().mark();
        self.drain().await?;
        self.commit(mark).await
    }

    async fn commit(&self, mark: Mark) -> Outcome<()> {
        let mut tries = 0;
        loop {
            {
                let mut state = self.state();
                if !state.uncommitted {
                    (state.stopped, state.failing) = (None, None);
                    return Ok(());
                }
            }
            let slot = self.writing().await.map_err(|error| self.stop(errno(&error)))?;
            let file = slot.file.as_ref().expect("it is open");
            self.tell_time(file);
            let telling = self.telling.lock().await;
            let later = self.state().take_later();
            let (told, set) = tokio::join!(file.flush_time(), self.set_now(later));
            if let Err(error) = set {
                self.state().put_back(later);
                return Err(errno(&error));
            }
            self.state().told_later();
            drop(telling);
            match told {
                Ok(()) => {
                    self.state().committed(mark);
                    self.context.changed(self.file);
                    return Ok(());
                }
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(self.stop(errno(&error))),
            }
        }
    }

    /// Has the time of the last write go with the next size.
    pub(crate) fn tell_time(&self, file: &File) {
        let modified = {
            let state = self.state();
            state.modified.filter(|_| state.uncommitted)
        };
        if let Some(modified_ns) = modified
            && let Err(error) = file.set_modified(modified_ns)
        {
            tracing::debug!(file = %self.file, %error, "it has the manager's time");
        }
    }

    pub(crate) fn stop(&self, why: Errno) -> Errno {
        self.state().stop(why);
        why
    }

    /// Writes a run, with a new lease if the one is lost.
    async fn write_out(&self, flight: &Flight) -> Result<()> {
        let mut tries = 0;
        loop {
            let slot = self.writing().await?;
            let file = slot.file.as_ref().expect("it is open");
            match file.write_at(&flight.run.bytes, flight.from).await {
                Ok(()) => return Ok(()),
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops what cannot be written. Every handle is told once. Returns the number of the last write dropped.
    pub(crate) fn give_up(self: &Arc<Inode>, why: Errno) -> u64 {
        let mut state = self.state();
        let order = state.order;
        let bytes = state.extents.bytes() + length(&state.tail);
        tracing::error!(file = %self.file, bytes, errno = %i32::from(why), "bytes are lost: they cannot be written");
        state.extents.cut(0..u64::MAX);
        state.tail.clear();
        (state.stopped, state.halted, state.failing, state.uncommitted) = (None, false, None, false);
        (state.since, state.modified) = (None, None);
        // Attributes are not lost with the bytes.
        let later = std::mem::take(&mut state.later);
        state.lost = (state.lost.0 + 1, Some(why));
        self.context.lossy.fetch_add(1, Ordering::Relaxed);
        self.recount(&mut state);
        drop(state);
        self.landed.notify_waiters();
        drop(self.context.invalidate(self.file));
        let inode = Arc::clone(self);
        self.context.runtime.spawn(async move {
            let _telling = inode.telling.lock().await;
            if let Err(error) = inode.set_now(later).await {
                tracing::warn!(file = %inode.file, %error, "its attributes are as before");
            }
        });
        order
    }
}

impl State {
    /// Takes the next run that may be written.
    fn next_flight(&mut self) -> Option<Arc<Flight>> {
        let flying: u64 = self.flights.iter().map(|flight| length(&flight.run.bytes)).sum();
        let is_full = self.flights.len() >= FLIGHTS_MAX || flying >= FLIGHT_BYTES_MAX;
        if self.halted || self.holds > 0 || is_full {
            return None;
        }
        let (flights, drain, chunk) = (&self.flights, self.drain, self.extents.chunk());
        let (from, run) = self.extents.take(self.cursor, |from, run| {
            let end = from + length(&run.bytes);
            let is_whole = end.is_multiple_of(chunk) && length(&run.bytes) >= WHOLE_BYTES_MIN;
            let is_due = run.order <= drain || is_whole;
            is_due && !flights.iter().any(|flight| flight.from < end && from < flight.end())
        })?;
        let flight = Arc::new(Flight { from, run });
        self.cursor = flight.end();
        self.flights.push(Arc::clone(&flight));
        Some(flight)
    }

    fn stop(&mut self, why: Errno) {
        (self.stopped, self.halted) = (Some(why), true);
        self.failing.get_or_insert_with(Instant::now);
    }

    /// All writes so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { order: self.order, at: Instant::now() }
    }

    /// All up to a mark is with the drives, and the manager has the size.
    pub(crate) fn committed(&mut self, mark: Mark) {
        (self.stopped, self.failing) = (None, None);
        if mark.order == self.order {
            (self.uncommitted, self.modified, self.since) = (false, None, None);
        } else if self.uncommitted {
            self.since = Some(mark.at);
        }
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_clean(&self) -> bool {
        self.extents.bytes() == 0 && self.tail.is_empty() && self.flights.is_empty()
    }
}

impl Aloft {
    async fn fly(mut self) {
        let flight = Arc::clone(self.flight.as_ref().expect("it has not landed"));
        let written = self.inode.write_out(&flight).await;
        let written = written.map_err(|error| {
            tracing::warn!(file = %self.inode.file, from = flight.from, %error, "could not be written");
            errno(&error)
        });
        drop(flight);
        self.land(written);
    }

    fn land(&mut self, written: Outcome<()>) {
        let Some(flight) = self.flight.take() else { return };
        let inode = &self.inode;
        {
            let mut state = inode.state();
            state.flights.retain(|one| !Arc::ptr_eq(one, &flight));
            if let Err(why) = written {
                state.extents.put_under(flight.from, &flight.run.bytes, flight.run.order);
                state.stop(why);
            } else if let Some(flight) = Arc::into_inner(flight) {
                state.extents.written(flight.run);
            }
            inode.recount(&mut state);
        }
        inode.landed.notify_waiters();
        inode.start();
    }
}

impl Drop for Aloft {
    fn drop(&mut self) {
        self.land(Err(Errno::EIO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_during_a_sync_stays_to_be_synced() {
        let mut state = State::new();
        let first = state.wrote();
        state.extents.put(0, &[1; 10], first);
        // A sync begins, and its drain takes the first write; then there is another.
        let mark = state.mark();
        state.extents.cut(0..10);
        let second = state.wrote();
        state.extents.put(10, &[2; 10], second);
        state.committed(mark);
        assert!(state.uncommitted && state.modified.is_some(), "the manager has not its size");
        assert_eq!(state.since, Some(mark.at), "it is written by itself in time");
        // The next one is for that too.
        let mark = state.mark();
        state.committed(mark);
        assert!(!state.uncommitted && state.since.is_none());
        // One that ends late changes nothing.
        state.committed(Mark { order: first, ..mark });
        assert!(!state.uncommitted && state.since.is_none());
    }
}
