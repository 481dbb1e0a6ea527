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

use braid_client::{Error, FILE_BYTES_MAX, File};
use braid_wire::Reason;
use fuser::Errno;

use crate::dirty::length;
use crate::errors::errno;
use crate::inode::{Inode, State, TRIES};

/// How long bytes wait until they are written and synced, if nobody asks.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
/// How long bytes are kept that cannot be written. The client has tried for its own patience each time.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(60);

/// What a program is told.
pub(crate) type Outcome<T> = Result<T, Errno>;

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

impl Inode {
    /// Takes a write, if it need wait for nothing. `asked`: see [`Inode::write`].
    pub(crate) fn write_at_once(self: &Arc<Inode>, place: Place, data: &[u8], asked: u64) -> bool {
        let bytes = length(data);
        let mut state = self.state();
        if state.allow(asked).is_err()
            || !state.writes
            || state.stopped.is_some()
            || !self.context.budget.has_room(state.counted(), bytes)
        {
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

    /// Takes a write, and waits for what it needs. `asked`: the number of the last write when it was found
    /// that its program has its locks. It is not taken if they were lost since.
    pub(crate) async fn write(
        self: &Arc<Inode>,
        place: Place,
        data: &[u8],
        through: Through,
        asked: u64,
    ) -> Outcome<()> {
        if let Place::At(offset) = place
            && offset.checked_add(length(data)).is_none_or(|end| end > FILE_BYTES_MAX)
        {
            return Err(Errno::EFBIG);
        }
        self.room(length(data)).await;
        if self.state().stopped.is_some() {
            // Nothing more is taken of a file while what it has cannot be written.
            self.sync().await?;
        }
        drop(self.writing().await.map_err(|error| errno(&error))?);
        match place {
            Place::At(offset) => self.put(offset, data, asked).await?,
            Place::End => self.append(data, asked).await?,
        }
        match through {
            Through::No => Ok(()),
            Through::Drives => self.drain().await,
            Through::Manager => self.sync().await,
        }
    }

    /// Waits until there is room for more bytes of the file, or it takes none as something failed. What waits
    /// is written meanwhile, or dropped when its time is over.
    async fn room(&self, bytes: u64) {
        let budget = &self.context.budget;
        loop {
            let stirred = budget.stirred();
            let mut stirred = std::pin::pin!(stirred);
            stirred.as_mut().enable();
            {
                let state = self.state();
                if state.stopped.is_some() || budget.has_room(state.counted(), bytes) {
                    return;
                }
            }
            budget.want();
            stirred.await;
        }
    }

    async fn put(self: &Arc<Inode>, offset: u64, data: &[u8], asked: u64) -> Outcome<()> {
        let end = offset + length(data);
        loop {
            {
                let mut state = self.state();
                state.allow(asked)?;
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

    async fn append(self: &Arc<Inode>, data: &[u8], asked: u64) -> Outcome<()> {
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
        let mut state = self.state();
        state.allow(asked)?;
        if state.tail.is_empty() {
            // Nothing that waits gets to the file while the state is held.
            let end = slot.file.as_ref().map_or(0, File::size);
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
            let slot = self.writing_out().await.map_err(|why| self.stop(why))?;
            let file = slot.file.as_ref().expect("it is open");
            match file.reserve(bytes).await {
                Ok(offset) => break offset,
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(self.stopped_by(&error)),
            }
        };
        let mut state = self.state();
        if state.tail.len() < bytes {
            return Ok(()); // it was dropped meanwhile
        }
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
            let slot = self.writing_out().await.map_err(|why| self.stop(why))?;
            let file = slot.file.as_ref().expect("it is open");
            self.tell_time(file);
            let telling = self.telling.lock().await;
            let later = self.state().take_later();
            let landed = self.state().landed_end;
            let (told, set) = tokio::join!(file.flush_time(), self.set_now(later));
            if let Err(error) = set {
                self.state().put_back(later);
                return Err(errno(&error));
            }
            self.state().told_later();
            drop(telling);
            match told {
                Ok(()) => {
                    self.state().committed(mark, landed);
                    self.context.changed(self.file);
                    return Ok(());
                }
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(self.stopped_by(&error)),
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
        // Who waits for room of this file does so in vain.
        self.context.budget.stir();
        why
    }

    /// The same, for an answer to what was asked of the manager.
    pub(crate) fn stopped_by(&self, error: &Error) -> Errno {
        if error.reason() == Some(Reason::Quota) {
            self.context.has_quota.store(true, Ordering::Relaxed);
        }
        self.stop(errno(error))
    }

    /// The locks under which it may have been written are lost, and others have been given them: what waits
    /// must not come after what these write.
    pub(crate) fn forfeit(self: &Arc<Inode>) {
        {
            let mut state = self.state();
            state.forfeit();
            if state.is_clean() {
                return;
            }
        }
        self.give_up(Errno::EIO);
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
        (state.since, state.modified, state.landed_end) = (None, None, 0);
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
    pub(crate) fn stop(&mut self, why: Errno) {
        (self.stopped, self.halted) = (Some(why), true);
        self.failing.get_or_insert_with(Instant::now);
    }

    /// Nothing that was written or asked for so far is to be written any more.
    fn forfeit(&mut self) {
        self.order += 1;
        self.forfeited = self.order;
    }

    /// Refuses a write whose program may have lost its locks since it asked.
    fn allow(&self, asked: u64) -> Outcome<()> {
        if self.forfeited > asked { Err(Errno::EIO) } else { Ok(()) }
    }

    /// All writes so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { order: self.order, at: Instant::now() }
    }

    /// All up to a mark is with the drives, and the manager has the size.
    /// `landed`: how far what had landed reached when it was told.
    pub(crate) fn committed(&mut self, mark: Mark, landed: u64) {
        (self.stopped, self.failing) = (None, None);
        if self.landed_end <= landed {
            self.landed_end = 0;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_locks_were_lost_is_not_taken() {
        let mut state = State::new();
        let asked = state.wrote();
        assert_eq!(state.allow(asked), Ok(()));
        state.forfeit();
        assert_eq!(state.allow(asked), Err(Errno::EIO));
        assert_eq!(state.allow(state.order), Ok(()), "asked for after that");
    }

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
        state.committed(mark, 0);
        assert!(state.uncommitted && state.modified.is_some(), "the manager has not its size");
        assert_eq!(state.since, Some(mark.at), "it is written by itself in time");
        // The next one is for that too.
        let mark = state.mark();
        state.committed(mark, 0);
        assert!(!state.uncommitted && state.since.is_none());
        // One that ends late changes nothing.
        state.committed(Mark { order: first, ..mark }, 0);
        assert!(!state.uncommitted && state.since.is_none());
    }
}
