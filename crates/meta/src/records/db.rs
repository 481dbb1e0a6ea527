//! Transactions over the store, many in one durable commit.
//!
//! Transactions are decided one after another, in memory. The changes of each are a layer over the durable
//! state and over the layers decided before; layers are *gathered* for the next commit. One caller at a time
//! is the *storer*: it takes all that was gathered, stores it in one commit, and answers. Meanwhile other
//! transactions are decided on top of what is being stored, and are gathered for the commit after it. So a
//! commit, with its sync, costs as much for a hundred requests as for one.
//!
//! It guarantees:
//! - No answer is given before all that it follows from is durable. That holds for refusals and for
//!   transactions that changed nothing too: they may have read changes that can still be lost.
//! - Answers are given in the order in which they were decided. The work in an answer (`then`) is done in
//!   that order too: tables beside the state change as the state did, and are never ahead of it.
//! - If a commit fails, all transactions in it are refused, and all that were decided on top of it. Nothing
//!   of the latter was stored. Of the former that is not known, as the disk failed while they were written;
//!   the next read of the store shows what is there, and transactions go on from that.
//! - A reader sees the durable state only. It could see more and wait until that is durable too, but then
//!   every read would cost a sync while others write. A reader loses nothing by it: a client that was
//!   answered sees its change, as that is durable. And drives are told only what was read so, as it must not
//!   be lost afterwards.
//!
//! This module uses no thread, no task and no clock: the caller chooses where the storing is done
//! ([`Db::decide`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use braid_wire::{Reason, Refusal};

use crate::records::kv::{Batch, Kv};
use crate::records::seats::Seats;
use crate::records::tx::Tx;

/// Maximum number of transactions that wait for their commit. A session waits for one at a time, but gives up
/// on a disk that hangs, and asks again.
pub const WAITING_MAX: usize = 4096;

/// The store, and the changes on their way to it. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    kv: Arc<dyn Kv>,
    state: Arc<Mutex<State>>,
    seats: Arc<Seats>,
}

/// The one that is to store what was gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Storer {
    /// The caller: it calls [`Db::store_step`] until that returns false.
    Caller,
    /// Another caller that is storing already; or nothing is to be stored.
    Other,
}

#[derive(Default)]
struct State {
    /// The group that the storer has taken; `None` between two commits.
    storing: Option<Group>,
    /// Transactions decided since, to be stored next.
    gathered: Group,
    has_storer: bool,
    /// Number of commits that have failed.
    failures: u64,
    /// Reason for which the last commit failed; `None` if it did not.
    trouble: Option<String>,
}

/// Decided transactions that become durable together, with those without changes that wait for them.
#[derive(Default)]
struct Group {
    changes: Arc<Batch>,
    /// Answers to be given, in the order in which the transactions were decided.
    waiting: Vec<Answer>,
    /// Result of the group's commit, once that has ended.
    ended: Option<Result<(), Refusal>>,
}

/// Answers one transaction: `Ok` if it is durable, else the refusal.
type Answer = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

impl Db {
    /// A database over this store.
    pub fn new(kv: Arc<dyn Kv>) -> Db {
        Db { kv, state: Arc::default(), seats: Arc::default() }
    }

    /// Refuses if no answer may be given from this store any more: see [`Kv::serving`].
    pub fn serving(&self) -> Result<(), Refusal> {
        Ok(self.kv.serving()?)
    }

    /// Reads one consistent, durable state. Blocks on the disk: not for an async task.
    pub fn read<R>(&self, work: impl FnOnce(&Tx) -> Result<R, Refusal>) -> Result<R, Refusal> {
        work(&Tx::new(self.kv.snapshot()?, Vec::new(), Arc::clone(&self.seats)))
    }

    /// Runs one transaction and waits until it is durable. An error of `work` changes nothing. Blocks on the
    /// disk: not for an async task.
    pub fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let (answer, answered) = mpsc::sync_channel(1);
        let storer = self.decide(work, move |result| drop(answer.send(result)));
        if storer == Storer::Caller {
            while self.store_step() {}
        }
        answered.recv().unwrap_or_else(|_| Err(dropped()))
    }

    /// Decides one transaction, while no other is being decided. `then` gets the result, once all that it
    /// follows from is durable, on the storer's thread; it must be brief. May read the disk, but does not
    /// wait for a commit.
    pub fn decide<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<R, Refusal>,
        then: impl FnOnce(Result<R, Refusal>) + Send + 'static,
    ) -> Storer {
        let mut state = self.state();
        if state.gathered.waiting.len() >= WAITING_MAX {
            drop(state);
            then(Err(full()));
            return Storer::Other;
        }
        // The layers are taken before the snapshot: what becomes durable in between is in both, not in
        // neither.
        let below = state.layers();
        let mut tx = match self.kv.snapshot() {
            Ok(base) => Tx::new(base, below, Arc::clone(&self.seats)),
            Err(error) => {
                drop(state);
                then(Err(error.into()));
                return Storer::Other;
            }
        };
        let result = work(&mut tx);
        let changes = tx.into_changes();
        let group = match (&result, changes.is_empty()) {
            (Ok(_), false) => {
                Arc::make_mut(&mut state.gathered.changes).extend(changes);
                Some(&mut state.gathered)
            }
            _ => state.newest(),
        };
        let Some(group) = group else {
            drop(state);
            then(result);
            return Storer::Other;
        };
        group.waiting.push(Box::new(move |stored| then(stored.and(result))));
        if std::mem::replace(&mut state.has_storer, true) { Storer::Other } else { Storer::Caller }
    }

    /// Number of transactions that wait for the next commit.
    pub fn gathered(&self) -> usize {
        self.state().gathered.waiting.len()
    }

    /// Number of commits that have failed. Their changes may be stored all the same.
    pub fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Reason for which the last commit failed; `None` if it succeeded.
    pub fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    /// Does one step of the storer: stores what was gathered, or answers the transactions whose commit has
    /// ended. Returns false if nothing is left: then the caller is the storer no more. Blocks on the disk.
    ///
    /// Between the two steps the changes are durable and not answered yet: a process may end there as well.
    pub fn store_step(&self) -> bool {
        let guard = RefuseAll(self);
        let more = self.step();
        std::mem::forget(guard);
        more
    }

    fn step(&self) -> bool {
        let mut state = self.state();
        let ended = state.storing.as_ref().map(|group| group.ended.clone());
        match ended {
            Some(Some(Ok(()))) => {
                let done = state.storing.take().unwrap_or_default();
                drop(state);
                done.waiting.into_iter().for_each(|answer| answer(Ok(())));
                true
            }
            Some(Some(Err(refusal))) => {
                drop(state);
                self.refuse_all(&refusal);
                true
            }
            // There is one storer, so no step begins while another stores.
            Some(None) => unreachable!("two store at a time"),
            None if state.gathered.waiting.is_empty() => {
                state.has_storer = false;
                false
            }
            None => {
                let group = std::mem::take(&mut state.gathered);
                let changes = Arc::clone(&group.changes);
                state.storing = Some(group);
                drop(state);
                let stored = self.kv.commit(&changes).map_err(Refusal::from);
                let mut state = self.state();
                state.failures += u64::from(stored.is_err());
                state.trouble = stored.as_ref().err().map(|refusal| refusal.detail.clone());
                if let Some(group) = &mut state.storing {
                    group.ended = Some(stored);
                }
                true
            }
        }
    }

    /// Drops all layers, and refuses the transactions that wait: the group that was being stored for the
    /// reason `why`, and those decided on top of it because it was not stored.
    fn refuse_all(&self, why: &Refusal) {
        let (storing, gathered) = {
            let mut state = self.state();
            (state.storing.take(), std::mem::take(&mut state.gathered))
        };
        let storing = storing.unwrap_or_default();
        storing.waiting.into_iter().for_each(|answer| answer(Err(why.clone())));
        let detail = format!(
            "nothing was changed, as an earlier change that this one builds on was not stored: {}",
            why.detail
        );
        let on_top = Refusal::new(why.reason, detail);
        gathered.waiting.into_iter().for_each(|answer| answer(Err(on_top.clone())));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Changes that were decided and are not known to be durable, the oldest first.
    fn layers(&self) -> Vec<Arc<Batch>> {
        let groups = self.storing.iter().chain([&self.gathered]);
        groups.map(|group| &group.changes).filter(|changes| !changes.is_empty()).cloned().collect()
    }

    /// The group with the newest layer, if there is one.
    fn newest(&mut self) -> Option<&mut Group> {
        if self.gathered.changes.is_empty() { self.storing.as_mut() } else { Some(&mut self.gathered) }
    }
}

/// Guard that, dropped when the storer panics, refuses all that wait and lets another caller store.
struct RefuseAll<'a>(&'a Db);

impl Drop for RefuseAll<'_> {
    fn drop(&mut self) {
        self.0.refuse_all(&dropped());
        self.0.state().has_storer = false;
    }
}

fn dropped() -> Refusal {
    Refusal::new(Reason::Medium, "the manager met an internal error: see its log")
}

fn full() -> Refusal {
    let detail =
        format!("{WAITING_MAX} changes wait for the manager's disk: nothing was changed; try again later");
    Refusal::new(Reason::Busy, detail)
}

#[cfg(test)]
mod tests;
