//! Writing: bytes are taken from the kernel into memory, and written to the drives later.
//!
//! The bytes are written when a run is whole (a chunk, see `dirty`), when they are [`AGE_MAX`] old, when the
//! mount holds too many (`context`), and on request: fsync, close, truncation. The kernel does not pass on
//! `sync` and `syncfs`, so these wait for that age at most. Several runs are in flight at a time; no two have
//! a byte in common, so that the later write of a byte lands later.
//!
//! Bytes whose write fails stay. A writer whose lease was lost is opened again at once, and its bytes are
//! written again. Any other error stops the file: it is returned to every request that waits, and to the next
//! write, which is not taken. Then the write is tried again on each request, and from time to time by the
//! caretaker (`caretaker`), until [`KEPT_FOR`] is over. Bytes that were not written then, or when the last
//! writer has left, are dropped; every open handle is told so once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_client::{Error, FILE_BYTES_MAX, File};
use braid_wire::Reason;
use fuser::Errno;

use crate::errors::{Outcome, errno};
use crate::files::dirty::length;
use crate::files::inode::{Inode, TRIES};
use crate::files::inode_state::InodeState;

/// Maximum age of bytes before they are written and synced without a request.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);
/// Time for which bytes are kept that cannot be written. The client has tried for its own patience each time.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(60);

/// Place of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePlace {
    At(u64),
    /// At the end, wherever that is when the bytes are placed.
    End,
}

/// Condition for the answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// None: the bytes are in memory.
    No,
    /// The drives have the bytes.
    Drives,
    /// The drives have the bytes, and the manager has the size.
    Manager,
}

/// Mark for all writes up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the last write.
    order: u64,
    at: Instant,
}

impl Inode {
    /// Takes a write, if it need not wait, and returns true then. `asked`: see [`Inode::write`].
    pub(crate) fn write_at_once(self: &Arc<Inode>, place: WritePlace, data: &[u8], asked: u64) -> bool {
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
            WritePlace::At(offset) => {
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
            WritePlace::End => {
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

    /// Takes a write, after waits where they are needed. `asked` is the number of the last write when the
    /// program was found to have its locks. The write is not taken if they were lost since.
    pub(crate) async fn write(
        self: &Arc<Inode>,
        place: WritePlace,
        data: &[u8],
        through: Through,
        asked: u64,
    ) -> Outcome<()> {
        if let WritePlace::At(offset) = place
            && offset.checked_add(length(data)).is_none_or(|end| end > FILE_BYTES_MAX)
        {
            return Err(Errno::EFBIG);
        }
        self.room(length(data)).await;
        if self.state().stopped.is_some() {
            // No more bytes of a file are taken while those that it has cannot be written.
            self.sync().await?;
        }
        drop(self.writing().await.map_err(|error| errno(&error))?);
        match place {
            WritePlace::At(offset) => self.put(offset, data, asked).await?,
            WritePlace::End => self.append(data, asked).await?,
        }
        match through {
            Through::No => Ok(()),
            Through::Drives => self.drain().await,
            Through::Manager => self.sync().await,
        }
    }

    /// Waits until there is room for more bytes of the file, or it takes none as a write failed. Waiting
    /// bytes are written meanwhile, or dropped when their time is over.
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
        // While `slot` is held the writer is not closed, whose size says where the end is.
        let slot = self.writing().await.map_err(|error| errno(&error))?;
        let mut state = self.state();
        state.allow(asked)?;
        if state.tail.is_empty() {
            // No waiting bytes get to the file while `state` is held.
            let end = slot.file.as_ref().map_or(0, File::size);
            state.tail_at = end.max(state.end());
        }
        state.wrote();
        state.tail.extend_from_slice(data);
        self.recount(&mut state);
        Ok(())
    }

    /// Gives the tail its place, at the present end of the file at the manager.
    pub(crate) async fn place_tail(self: &Arc<Inode>) -> Outcome<()> {
        let _placing = self.placing.lock().await;
        let bytes = self.state().tail.len();
        if bytes == 0 {
            return Ok(());
        }
        // Bytes that were written before lie below the tail, and the end is known only with them.
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
            // The kernel assumed the end that it knew.
            drop(self.context.invalidate(self.file));
        }
        Ok(())
    }

    /// Has all waiting bytes written, without waiting for them.
    pub(crate) fn start_all(self: &Arc<Inode>) {
        {
            let mut state = self.state();
            state.drain = state.order;
        }
        self.start();
    }

    /// Writes all waiting bytes. When it returns, the drives have them.
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

    /// Writes all waiting bytes, and tells the manager the size and that the file was changed: others who
    /// open it then see the bytes, also where the size is as before.
    pub(crate) async fn sync(self: &Arc<Inode>) -> Outcome<()> {
        // Bytes that are written from here on belong to the next sync.
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

    /// Has the time of the last write sent with the next size.
    pub(crate) fn tell_time(&self, file: &File) {
        let modified = {
            let state = self.state();
            state.modified.filter(|_| state.uncommitted)
        };
        if let Some(modified_ns) = modified
            && let Err(error) = file.set_modified(modified_ns)
        {
            tracing::debug!(file = %self.file, %error, "the file's time of change could not be set: it gets the manager's time");
        }
    }

    pub(crate) fn stop(&self, why: Errno) -> Errno {
        self.state().stop(why);
        // A writer that waits for room of this file does so in vain.
        self.context.budget.stir();
        why
    }

    /// Stops the file after an error of the manager.
    pub(crate) fn stopped_by(&self, error: &Error) -> Errno {
        if error.reason() == Some(Reason::Quota) {
            self.context.has_quota.store(true, Ordering::Relaxed);
        }
        self.stop(errno(error))
    }

    /// Drops all waiting bytes, as the locks under which they may have been written are lost and given to
    /// others: these bytes must not come after those that the new holders write.
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

    /// Drops the bytes that cannot be written. Every handle is told once. Returns the number of the last
    /// write dropped.
    pub(crate) fn give_up(self: &Arc<Inode>, why: Errno) -> u64 {
        let mut state = self.state();
        let order = state.order;
        let bytes = state.extents.bytes() + length(&state.tail);
        tracing::error!(file = %self.file, bytes, errno = %i32::from(why), "written bytes are lost: they could not be stored");
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
                tracing::warn!(file = %inode.file, %error, "attributes of the file could not be set: it keeps those it had");
            }
        });
        order
    }
}

impl InodeState {
    pub(crate) fn stop(&mut self, why: Errno) {
        (self.stopped, self.halted) = (Some(why), true);
        self.failing.get_or_insert_with(Instant::now);
    }

    /// Marks all writes made or asked for so far as not to be written any more.
    fn forfeit(&mut self) {
        self.order += 1;
        self.forfeited = self.order;
    }

    /// Refuses a write whose program may have lost its locks since it asked.
    fn allow(&self, asked: u64) -> Outcome<()> {
        if self.forfeited > asked { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A mark for all writes so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { order: self.order, at: Instant::now() }
    }

    /// Notes that all writes up to a mark are with the drives, and the manager has the size. `landed` is the
    /// end of the landed bytes when the manager was told.
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

    /// Returns true if no bytes wait to be written.
    pub(crate) fn is_clean(&self) -> bool {
        self.extents.bytes() == 0 && self.tail.is_empty() && self.flights.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_locks_were_lost_is_not_taken() {
        let mut state = InodeState::new();
        let asked = state.wrote();
        assert_eq!(state.allow(asked), Ok(()));
        state.forfeit();
        assert_eq!(state.allow(asked), Err(Errno::EIO));
        assert_eq!(state.allow(state.order), Ok(()), "asked for after that");
    }

    #[test]
    fn what_is_written_during_a_sync_stays_to_be_synced() {
        let mut state = InodeState::new();
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
        // The next sync covers the second write too.
        let mark = state.mark();
        state.committed(mark, 0);
        assert!(!state.uncommitted && state.since.is_none());
        // A sync that ends late changes nothing.
        state.committed(Mark { order: first, ..mark }, 0);
        assert!(!state.uncommitted && state.since.is_none());
    }
}
