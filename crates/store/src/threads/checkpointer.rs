//! The thread that writes checkpoints, and the list of those on the disk.

use std::io;
use std::sync::Arc;

use crate::checkpoint::write::write;
use crate::checkpoint::{DIR, KeptCheckpoint, file_name};
use crate::disk::tolerate;
use crate::error::Error;
use crate::mutex::{Condvar, Mutex};
use crate::threads::shared::Shared;
use crate::threads::{OnEnd, reclaim};
use crate::turns::OwnWork;

/// Number of checkpoints that are kept.
pub(crate) const KEPT: usize = 2;
/// A checkpoint is made when the log's tail is longer than this (or than a sixteenth of the capacity, if that
/// is less), ...
const TAIL_BYTES: u64 = 64 << 20;
/// ... and longer than this many times the last checkpoint.
const TAIL_CHECKPOINTS: u64 = 2;
/// Segments without a live byte wait for a checkpoint until they have this many times the last checkpoint's
/// bytes.
const FREED_CHECKPOINTS: u64 = 4;

/// Requests for checkpoints, and the list of those on the disk.
#[derive(Debug, Default)]
pub(crate) struct Checkpointer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last request, of the last one that was begun, and of the last one that is over.
    asked: u64,
    begun: u64,
    done: u64,
    closed: bool,
    /// The usable checkpoints, oldest first.
    kept: Vec<KeptCheckpoint>,
    /// Files to remove once there is a new checkpoint: damaged ones, and those that could not be removed.
    doubtful: Vec<u32>,
    next_number: u32,
    /// The error of the last checkpoint, if it failed.
    error: Option<Error>,
    /// The tail's length when it last led to a request.
    tail: u64,
    /// There is no thread: a caller that waits for a checkpoint writes it.
    without_thread: bool,
}

impl Checkpointer {
    /// The state after opening, which found these usable checkpoints, oldest first, and these unusable ones.
    pub(crate) fn new(kept: Vec<KeptCheckpoint>, doubtful: Vec<u32>) -> Checkpointer {
        let numbers = kept.iter().map(|kept| kept.number).chain(doubtful.iter().copied());
        let next_number = numbers.max().unwrap_or(0).saturating_add(1);
        let state = State { kept, doubtful, next_number, ..State::default() };
        Checkpointer { state: Mutex::new(state), changed: Condvar::default() }
    }

    /// Request a checkpoint. A request that was not begun yet serves this one too.
    pub(crate) fn request(&self) {
        let mut state = self.state.lock();
        state.asked = state.begun + 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Note that the log's tail has `tail` bytes. If that is too much, request a checkpoint, unless one is
    /// under way. If the last one failed, the next is requested only when the tail has grown by as much
    /// again.
    pub(crate) fn on_tail(&self, tail: u64, capacity: Option<u64>) {
        let most = self.tail_bytes_max(capacity);
        let mut state = self.state.lock();
        let bound = if state.error.is_some() { state.tail.saturating_add(most) } else { most };
        if tail > bound && state.asked == state.done {
            state.asked = state.begun + 1;
            state.tail = tail;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A number that no checkpoint had yet, not even an unfinished one.
    fn number(&self) -> u32 {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number = number.saturating_add(1);
        number
    }

    /// No thread writes checkpoints: see [`crate::threads::by_hand`].
    #[cfg(any(test, feature = "faulty-disk"))]
    pub(crate) fn do_without_thread(&self) {
        self.state.lock().without_thread = true;
    }

    /// Request a checkpoint of everything up to now, and wait for it.
    pub(crate) fn make(&self, shared: &Shared) -> Result<KeptCheckpoint, Error> {
        let mut state = self.state.lock();
        state.asked = state.begun + 1;
        let mine = state.asked;
        if state.without_thread {
            drop(state);
            turn(shared);
            state = self.state.lock();
        }
        self.changed.notify_all();
        while state.done < mine && !state.closed {
            state = self.changed.wait(state);
        }
        match (&state.error, state.kept.last()) {
            _ if state.done < mine => Err(Error::Closed),
            (Some(error), _) => Err(error.clone()),
            (None, Some(&kept)) => Ok(kept),
            (None, None) => Err(Error::Closed),
        }
    }

    /// Write no more checkpoints.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The newest usable checkpoint.
    pub(crate) fn newest(&self) -> Option<KeptCheckpoint> {
        self.state.lock().kept.last().copied()
    }

    /// All usable checkpoints, oldest first.
    pub(crate) fn all(&self) -> Vec<KeptCheckpoint> {
        self.state.lock().kept.clone()
    }

    /// Bytes of the usable checkpoints' files.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().kept.iter().map(|kept| kept.bytes).sum()
    }

    /// The first segment that a replay may need: the one where the oldest checkpoint's replay begins. While
    /// there is no second checkpoint, all segments are needed.
    pub(crate) fn floor(&self) -> u32 {
        let state = self.state.lock();
        if state.kept.len() < KEPT { 0 } else { state.kept[0].replay.segment }
    }

    /// Returns true if freeing `bytes` of segments is worth a checkpoint.
    pub(crate) fn is_worth(&self, bytes: u64) -> bool {
        bytes >= self.newest().map_or(0, |kept| kept.bytes).saturating_mul(FREED_CHECKPOINTS)
    }

    /// The tail's length at which a checkpoint is due.
    pub(crate) fn tail_bytes_max(&self, capacity: Option<u64>) -> u64 {
        let share = capacity.map_or(u64::MAX, |capacity| capacity / 16);
        let last = self.newest().map_or(0, |kept| kept.bytes);
        TAIL_BYTES.min(share).max(last.saturating_mul(TAIL_CHECKPOINTS))
    }

    /// Remove all checkpoints but the newest, as space is short. Returns the first segment that its replay
    /// needs.
    pub(crate) fn forget_older(&self, shared: &Shared) -> u32 {
        let mut state = self.state.lock();
        let Some(newest) = state.kept.pop() else { return 0 };
        let older = std::mem::replace(&mut state.kept, vec![newest]);
        let numbers: Vec<u32> = older.iter().map(|kept| kept.number).collect();
        // The lock is held meanwhile: a segment may be freed only after the checkpoints that need it are
        // gone.
        match remove(shared, &numbers) {
            Ok(()) => newest.replay.segment,
            Err(error) => {
                tracing::warn!(%error, "an older checkpoint could not be removed");
                state.doubtful.extend(numbers);
                0
            }
        }
    }
}

/// Write checkpoints as they are asked for, until the checkpointer is closed.
pub(crate) fn run(shared: &Arc<Shared>) {
    let checkpointer = &shared.checkpointer;
    // No caller must wait for a checkpoint that cannot come.
    let _ending = OnEnd(|| checkpointer.close());
    let mut state = checkpointer.state.lock();
    loop {
        while state.begun >= state.asked && !state.closed {
            state = checkpointer.changed.wait(state);
        }
        if state.begun >= state.asked || state.closed {
            break;
        }
        drop(state);
        turn(shared);
        state = checkpointer.state.lock();
    }
    drop(state);
}

/// Write the checkpoint that was asked for, if one was.
pub(crate) fn turn(shared: &Shared) {
    let checkpointer = &shared.checkpointer;
    let mut state = checkpointer.state.lock();
    if state.begun >= state.asked || state.closed {
        return;
    }
    state.begun = state.asked;
    drop(state);
    let made = one(shared);
    reclaim::free_segments(shared, checkpointer.floor());
    state = checkpointer.state.lock();
    state.error = made.err();
    if let Some(error) = &state.error {
        tracing::error!(%error, "a checkpoint could not be written; the log's tail grows until one is");
    }
    state.done = state.begun;
    drop(state);
    checkpointer.changed.notify_all();
}

/// Write one checkpoint, and remove those that are no longer needed.
fn one(shared: &Shared) -> Result<(), Error> {
    let checkpointer = &shared.checkpointer;
    let once = || {
        let number = checkpointer.number();
        let is_awaited = || checkpointer.state.lock().closed;
        let turn = |bytes| shared.turn(OwnWork::Checkpoint, 0, bytes, &is_awaited);
        let Shared { files, index, superblock, .. } = shared;
        write(files, index, superblock, number, shared.syncing, &turn).inspect_err(|_| {
            // Writing failed, but the file may have got its final name already.
            if remove(shared, &[number]).is_err() {
                checkpointer.state.lock().doubtful.push(number);
            }
        })
    };
    let kept = once().or_else(|error| {
        if !Error::is_no_space(&error) {
            return Err(error);
        }
        shared.files.give_up_all();
        if checkpointer.state.lock().kept.len() == KEPT {
            checkpointer.forget_older(shared);
        }
        once()
    });
    let kept = kept.map_err(|error| Error::io("write a checkpoint", error))?;
    let mut state = checkpointer.state.lock();
    state.kept.push(kept);
    let surplus = state.kept.len().saturating_sub(KEPT);
    let mut gone: Vec<u32> = state.kept.drain(..surplus).map(|kept| kept.number).collect();
    gone.append(&mut state.doubtful);
    drop(state);
    if let Err(error) = remove(shared, &gone) {
        tracing::warn!(%error, "an older checkpoint could not be removed");
        checkpointer.state.lock().doubtful.extend(gone);
    }
    Ok(())
}

fn remove(shared: &Shared, numbers: &[u32]) -> Result<(), Error> {
    let disk = shared.files.disk();
    for &number in numbers {
        tolerate(io::ErrorKind::NotFound, disk.remove(&file_name(number)))
            .map_err(|error| Error::io("remove a checkpoint", error))?;
    }
    if shared.syncing.is_on() && !numbers.is_empty() {
        disk.sync_dir(DIR).map_err(|error| Error::io("sync the checkpoints' directory", error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_tail_asks_once_and_after_a_failure_not_at_once_again() {
        let checkpointer = Checkpointer::default();
        let asked = |tail| {
            let before = checkpointer.state.lock().asked;
            checkpointer.on_tail(tail, None);
            checkpointer.state.lock().asked > before
        };
        assert!(!asked(TAIL_BYTES));
        assert!(asked(TAIL_BYTES + 1));
        assert!(!asked(TAIL_BYTES + 2), "it is asked for");
        checkpointer.state.lock().begun = 1;
        assert!(!asked(TAIL_BYTES + 3), "it is being written");
        (checkpointer.state.lock().done, checkpointer.state.lock().error) = (1, Some(Error::Failed));
        assert!(!asked(2 * TAIL_BYTES), "it failed just now");
        assert!(asked(2 * TAIL_BYTES + 2));
        let mut state = checkpointer.state.lock();
        (state.begun, state.done, state.error) = (2, 2, None);
        drop(state);
        assert!(!asked(10) && asked(TAIL_BYTES + 1), "the next did not");
    }
}
