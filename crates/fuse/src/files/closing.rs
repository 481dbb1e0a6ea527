//! End of writing, and changes of a file as a whole: close, truncation, holes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_client::File;
use braid_wire::Reason;
use fuser::Errno;

use crate::errors::{Outcome, errno};
use crate::files::inode::{Inode, TRIES};

/// A change of a file as a whole.
enum Change {
    Length(u64),
    /// Bytes that become a hole and read as zeros.
    Hole(Range<u64>),
    /// Bytes for which the drives keep room free.
    Room(Range<u64>),
    /// Bytes for which they keep it no more.
    NoRoom(Range<u64>),
}

/// Guard during whose life nothing of the file is in flight.
struct Hold<'a>(&'a Arc<Inode>);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
        self.0.start();
        // Bytes for which a task waits may have been cut off.
        self.0.landed.notify_waiters();
    }
}

impl Inode {
    /// Flushes the file for the close of a handle that writes: all that was written by it is with the drives
    /// when this returns, and the manager has the size. `is_last` is true if no other handle writes; then the
    /// lease is ended too, in the same request.
    pub(crate) async fn flush(self: &Arc<Inode>, is_last: bool) -> Outcome<()> {
        let is_done = {
            let state = self.state();
            state.is_clean() && !state.uncommitted
        };
        if is_done {
            return Ok(());
        }
        self.drain().await?;
        // A file without a name would be gone without its lease.
        let lives_by_lease = self.nameless.load(Ordering::Acquire);
        let was_closed = self.slot.read().await.was_closed;
        if !is_last || lives_by_lease || was_closed {
            return self.sync().await;
        }
        self.close_writer().await?;
        self.slot.write().await.was_closed = true;
        Ok(())
    }

    /// Ends the lease, if nothing waits to be written.
    async fn close_writer(self: &Arc<Inode>) -> Outcome<()> {
        if self.context.has_quota.load(Ordering::Relaxed) {
            // A writer whose size is refused must not end its lease: the size would be settled from the
            // drives.
            self.sync().await?;
        }
        let mut slot = self.slot.write().await;
        let mark = {
            let mut state = self.state();
            if state.is_clean() {
                state.writes = false;
                Some(state.mark())
            } else {
                None
            }
        };
        let Some(mark) = mark else {
            // Another program writes through a copy of the descriptor.
            drop(slot);
            return self.sync().await;
        };
        let mut tries = 0;
        while slot.writes
            && let Some(file) = slot.file.take()
        {
            slot.writes = false;
            self.tell_time(&file);
            let was_broken = slot.broken.load(Ordering::Acquire);
            let telling = self.telling.lock().await;
            let later = self.state().take_later();
            let (closed, set) = tokio::join!(file.close(), self.set_now(later));
            let Err(error) = closed else {
                let mut state = self.state();
                let landed = state.landed_end;
                state.committed(mark, landed);
                state.told_later();
                drop(state);
                self.context.changed(self.file);
                return set.map_err(|error| errno(&error));
            };
            match set {
                Ok(()) => self.state().told_later(),
                Err(_) => self.state().put_back(later),
            }
            drop(telling);
            if error.reason() == Some(Reason::Quota) {
                // The close has taken back what did not fit.
                self.context.has_quota.store(true, Ordering::Relaxed);
                self.context.changed(self.file);
                self.give_up(Errno::EDQUOT);
                return Err(Errno::EDQUOT);
            }
            let may_again = slot.failed(&error) || was_broken;
            tries += 1;
            if !may_again || tries >= TRIES {
                self.context.changed(self.file);
                return Err(self.stopped_by(&error));
            }
            // With a new lease the manager knows the size, and the new lease can be ended cleanly.
            self.open_to_write(&mut slot).await.map_err(|error| self.stop(errno(&error)))?;
            self.state().writes = false;
        }
        self.context.changed(self.file);
        Ok(())
    }

    /// Gives up the open file, so that the file can get another layout: with no lease held, if nothing was
    /// written here that the manager may not know of. It is opened again at the next need.
    pub(crate) async fn step_aside(self: &Arc<Inode>) -> Outcome<()> {
        let is_written = {
            let state = self.state();
            !state.is_clean() || state.uncommitted
        };
        // A file without a name would be gone without its lease.
        if is_written || self.nameless.load(Ordering::Acquire) {
            return Err(Errno::EBUSY);
        }
        self.close_writer().await?;
        let mut slot = self.slot.write().await;
        if !slot.writes {
            slot.file = None;
        }
        Ok(())
    }

    /// Ends writing once the last handle that writes is gone: the lease ends, and bytes that cannot be
    /// written are dropped.
    pub(crate) async fn finish(self: &Arc<Inode>) {
        let drained = self.drain().await;
        let mut done = match drained {
            Ok(()) => self.close_writer().await,
            Err(why) => Err(why),
        };
        if let Err(why) = done {
            self.drop_waiting(why).await;
            done = self.close_writer().await;
        }
        let mut slot = self.slot.write().await;
        slot.was_closed = false;
        if let Err(why) = done {
            tracing::warn!(file = %self.file, errno = i32::from(why), "the file could not be closed");
            (slot.file, slot.writes) = (None, false);
            self.context.changed(self.file);
        }
    }

    /// Drops the bytes that cannot be written. Bytes that were refused for quota are cut off at the drives
    /// too.
    pub(crate) async fn drop_waiting(self: &Arc<Inode>, why: Errno) {
        let order = self.give_up(why);
        if why == Errno::EDQUOT {
            self.cut_back(order).await;
        }
    }

    /// Cuts off the bytes that the manager refused for quota, if nothing was written since `order`, and as
    /// long as no other mount writes the file: bytes there may then be another's.
    async fn cut_back(self: &Arc<Inode>, order: u64) {
        // No bytes get to the drives while `slot` is held.
        let slot = self.slot.write().await;
        if self.state().order != order {
            return;
        }
        let Some(file) = slot.file.as_ref().filter(|_| slot.writes) else { return };
        if slot.broken.load(Ordering::Acquire) {
            return; // what was not acknowledged is rolled back
        }
        // What was written before the refusal has room, and stays.
        if file.flush().await.is_ok() {
            return;
        }
        match file.withdraw().await {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!(file = %self.file, "bytes over the quota stay in the file, as other clients write it too")
            }
            Err(error) => {
                slot.failed(&error);
                tracing::warn!(file = %self.file, %error, "bytes over the quota could not be cut off the file");
            }
        }
    }

    /// Sets the size.
    pub(crate) async fn set_len(self: &Arc<Inode>, size: u64) -> Outcome<()> {
        let meets_tail = {
            let state = self.state();
            !state.tail.is_empty() && size > state.tail_at
        };
        if meets_tail {
            self.place_tail().await?;
        }
        self.change(Change::Length(size)).await
    }

    /// Makes a range read as zeros. The size stays.
    pub(crate) async fn punch(self: &Arc<Inode>, range: Range<u64>) -> Outcome<()> {
        // The bytes that wait may be all that makes the file so long.
        self.drain().await?;
        self.change(Change::Hole(range)).await
    }

    /// Has the drives keep room free for a range, or none from its start on. The size stays.
    pub(crate) async fn keep_room(self: &Arc<Inode>, range: Range<u64>, keep: bool) -> Outcome<()> {
        if range.end > braid_client::FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        self.change(if keep { Change::Room(range) } else { Change::NoRoom(range) }).await
    }

    /// Makes a change of the file at the drives while no bytes are on their way to them, and then drops the
    /// bytes that wait to be written there.
    async fn change(self: &Arc<Inode>, change: Change) -> Outcome<()> {
        let _hold = self.hold().await;
        let mut tries = 0;
        loop {
            drop(self.writing().await.map_err(|error| errno(&error))?);
            // Reads wait too: they would see the change half done.
            let slot = self.slot.write().await;
            let Some(file) = slot.file.as_ref().filter(|_| slot.writes) else { continue };
            let made = match &change {
                Change::Length(size) => file.set_len(*size).await,
                Change::Hole(range) => file.punch(range.clone()).await,
                Change::Room(range) => file.reserve_space(range.clone()).await,
                Change::NoRoom(range) => file.give_space_back(range.clone()).await,
            };
            match made {
                Ok(()) => break,
                Err(error) if slot.failed(&error) && tries + 1 < TRIES => tries += 1,
                Err(error) => return Err(errno(&error)),
            }
        }
        self.context.changed(self.file);
        let mut state = self.state();
        match change {
            Change::Length(size) => {
                state.extents.cut(size..u64::MAX);
                state.landed_end = state.landed_end.min(size);
                if state.tail_at >= size {
                    state.tail.clear();
                }
            }
            Change::Hole(range) => state.extents.cut(range),
            Change::Room(_) | Change::NoRoom(_) => return Ok(()),
        }
        state.wrote();
        self.recount(&mut state);
        Ok(())
    }

    /// Waits until nothing is in flight, and keeps it so until the returned guard is dropped.
    async fn hold(self: &Arc<Inode>) -> Hold<'_> {
        self.state().holds += 1;
        let hold = Hold(self);
        loop {
            let landed = self.landed.notified();
            let mut landed = std::pin::pin!(landed);
            landed.as_mut().enable();
            if self.state().flights.is_empty() {
                return hold;
            }
            landed.await;
        }
    }

    /// Takes over a file that was just opened for writing.
    pub(crate) async fn adopt(self: &Arc<Inode>, file: File) -> Outcome<()> {
        let mut slot = self.slot.write().await;
        if slot.file.is_some() && slot.writes {
            // Another handle was opened for writing first.
            return file.close().await.map_err(|error| errno(&error));
        }
        self.install(&mut slot, file);
        Ok(())
    }

    /// Extends the file to at least `end`, without reserving space on the drives.
    pub(crate) async fn extend(self: &Arc<Inode>, end: u64) -> Outcome<()> {
        self.place_tail().await?;
        drop(self.writing().await.map_err(|error| errno(&error))?);
        if end <= self.size().await {
            return Ok(());
        }
        if end > braid_client::FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        self.set_len(end).await
    }
}
