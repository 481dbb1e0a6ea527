//! The bounded queue between submitters and the committer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clean::burst::Burst;
use crate::error::Error;
use crate::hope::Hope;
use crate::mutation::{Mutation, Outcome};

/// The most mutations that wait in the queue.
pub const QUEUE_LEN_MAX: usize = 4096;
/// The most payload bytes that wait in the queue; one mutation is always taken.
pub const QUEUE_BYTES_MAX: u64 = 256 << 20;

/// Where the answer to a mutation goes.
pub type Reply = Box<dyn FnOnce(Result<Outcome, Error>) + Send>;

/// A mutation that did not fit into the queue, handed back unharmed: try again when an answer has come.
pub struct Rejected {
    /// The mutation.
    pub mutation: Mutation,
    /// Where its answer was to go.
    pub reply: Reply,
}

/// A mutation and where its answer goes.
pub(crate) type Request = (Mutation, Reply);

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// How many requests wait, to be looked at without the lock.
    length: AtomicUsize,
    filled: Condvar,
    drained: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    bytes: u64,
    /// The committer sleeps until there is something for it,
    sleeping: bool,
    /// and as many requests at least.
    hoped: usize,
    /// How many submitters wait for room.
    blocked: usize,
    closed: bool,
    /// Nobody takes anything any more.
    abandoned: bool,
    /// From the cleaner, which waits for it: served before all others.
    burst: Option<Burst>,
    /// The cleaner has helped a committer that waits for space, as far as it could: whether it has emptied something.
    helped: Option<bool>,
    /// The cleaner has ended, and says no more.
    no_help: bool,
}

/// What a committer that hopes for requests gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// Some of them.
    Some,
    /// Nothing, after a wait.
    None,
    /// Nothing, for there is something else to do than to wait.
    Enough,
}

/// What a committer that waits for space gets from the cleaner.
pub(crate) enum Help {
    /// Moves to commit; more will come.
    Burst(Burst),
    /// The end: whether it has emptied something.
    Over(bool),
}

impl Queue {
    /// How many requests wait.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queue a request; blocks while the queue is full. A closed queue answers it.
    pub(crate) fn push(&self, request: Request) {
        let bytes = request.0.payload_bytes();
        let mut state = self.lock();
        while !state.closed && !state.fits(bytes) {
            state.blocked += 1;
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.blocked -= 1;
        }
        self.put(state, request, bytes, &|| true);
    }

    /// As [`Queue::push`], but hands it back if the queue stays full for so long.
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub(crate) fn push_within(
        &self,
        request: Request,
        wait: Duration,
        still: &dyn Fn() -> bool,
    ) -> Result<(), Rejected> {
        let (bytes, until) = (request.0.payload_bytes(), Instant::now() + wait);
        let mut state = self.lock();
        while !state.closed && !state.fits(bytes) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Rejected { mutation: request.0, reply: request.1 });
            }
            state.blocked += 1;
            state = self.drained.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.blocked -= 1;
        }
        self.put(state, request, bytes, still);
        Ok(())
    }

    /// Queue a request, or hand it back if the queue is full.
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub(crate) fn try_push(&self, request: Request, still: &dyn Fn() -> bool) -> Result<(), Rejected> {
        let bytes = request.0.payload_bytes();
        let state = self.lock();
        if !state.closed && !state.fits(bytes) {
            return Err(Rejected { mutation: request.0, reply: request.1 });
        }
        self.put(state, request, bytes, still);
        Ok(())
    }

    /// `still` is asked under the queue's lock: what it says holds for the request's place among the others.
    fn put(&self, mut state: MutexGuard<'_, State>, request: Request, bytes: u64, still: &dyn Fn() -> bool) {
        let error = if state.closed { Some(Error::Closed) } else { (!still()).then_some(Error::Withdrawn) };
        if let Some(error) = error {
            drop(state);
            return request.1(Err(error));
        }
        state.bytes += bytes;
        state.waiting.push_back(request);
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        let wake = state.sleeping && state.waiting.len() >= state.hoped;
        state.sleeping &= !wake;
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Fill `to` up to `count` requests of about `bytes` payload bytes. If it is empty, waits for one, or for a burst. Returns
    /// false when the queue is closed and nothing is left anywhere.
    pub(crate) fn take(&self, to: &mut VecDeque<Request>, count: usize, bytes: u64, hope: &Hope) -> bool {
        if to.is_empty() {
            self.look(hope);
        }
        let mut state = self.lock();
        while to.is_empty() && state.waiting.is_empty() && state.burst.is_none() && !state.closed {
            state.sleeping = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.fill(state, to, count, bytes)
    }

    /// Fill `to`, which is empty, with some of those that are hoped for, up to `count` of about `bytes` payload bytes: at first with
    /// whatever is there as they come, after a while with all together.
    pub(crate) fn take_hoped(
        &self,
        to: &mut VecDeque<Request>,
        count: usize,
        bytes: u64,
        hope: &Hope,
    ) -> Came {
        let most = hope.count.min(count);
        if most == 0 || bytes == 0 {
            return Came::Enough;
        }
        let mut waited = self.look(hope);
        let mut state = self.lock();
        let hopes = |state: &State| state.waiting.len() < most && state.bytes < bytes;
        let is_other = |state: &State| state.burst.is_some() || state.closed;
        if state.waiting.is_empty() {
            while hopes(&state) && !is_other(&state) {
                let left = hope.until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                (state.sleeping, state.hoped, waited) = (true, most, true);
                state = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        let in_vain = waited && !is_other(&state);
        self.fill(state, to, count, bytes);
        match to.is_empty() {
            false => Came::Some,
            true if in_vain => Came::None,
            true => Came::Enough,
        }
    }

    /// Look for requests for a while, without the lock: those who bring them would wait for it. Whether there were none at first.
    fn look(&self, hope: &Hope) -> bool {
        let mut looked = false;
        while hope.count > 0 && self.len() == 0 && Instant::now() < hope.looks_until {
            looked = true;
            std::thread::yield_now();
        }
        looked
    }

    fn fill(
        &self,
        mut state: MutexGuard<'_, State>,
        to: &mut VecDeque<Request>,
        count: usize,
        bytes: u64,
    ) -> bool {
        (state.sleeping, state.hoped) = (false, 0);
        let mut taken: u64 = to.iter().map(|(mutation, _)| mutation.payload_bytes()).sum();
        while to.len() < count && taken < bytes {
            let Some(request) = state.waiting.pop_front() else { break };
            let size = request.0.payload_bytes();
            state.bytes -= size;
            taken += size;
            to.push_back(request);
        }
        self.length.store(state.waiting.len(), Ordering::Relaxed);
        let more = !to.is_empty() || state.burst.is_some() || !state.closed;
        let blocked = state.blocked > 0;
        drop(state);
        if blocked {
            self.drained.notify_all();
        }
        more
    }

    /// Hand moves to the committer. If there is none any more, their answer never comes.
    pub(crate) fn push_burst(&self, burst: Burst) {
        let mut state = self.lock();
        if !state.abandoned {
            state.burst = Some(burst);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// The moves that wait.
    pub(crate) fn take_burst(&self) -> Option<Burst> {
        self.lock().burst.take()
    }

    /// Tell the committer, which waits for space, that the cleaner is done, and whether it has `emptied` something.
    pub(crate) fn end_stall(&self, emptied: bool) {
        self.lock().helped = Some(emptied);
        self.filled.notify_one();
    }

    /// There will be no help any more.
    pub(crate) fn end_help(&self) {
        self.lock().no_help = true;
        self.filled.notify_one();
    }

    /// Wait for what the cleaner does; only after it was called.
    pub(crate) fn wait_for_help(&self) -> Help {
        let mut state = self.lock();
        loop {
            if let Some(burst) = state.burst.take() {
                return Help::Burst(burst);
            }
            if let Some(emptied) = state.helped.take() {
                return Help::Over(emptied);
            }
            if state.no_help {
                return Help::Over(false);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Take no more requests; what waits is still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Close, and answer what waits: the committer is gone.
    pub(crate) fn abandon(&self) {
        self.close();
        let mut state = self.lock();
        state.abandoned = true;
        state.burst = None;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, reply) in waiting {
            reply(Err(Error::Closed));
        }
    }
}

impl State {
    fn fits(&self, bytes: u64) -> bool {
        self.waiting.is_empty()
            || (self.waiting.len() < QUEUE_LEN_MAX && self.bytes.saturating_add(bytes) <= QUEUE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn put(queue: &Queue) {
        queue.push((Mutation::Flush, Box::new(|_| {})));
    }

    fn take(queue: &Queue) -> (bool, usize) {
        let mut taken = VecDeque::new();
        let more = queue.take(&mut taken, 100, 1 << 20, &Hope::none());
        (more, taken.len())
    }

    fn take_hoped(queue: &Queue, count: usize, patience: Duration) -> (Came, usize) {
        let mut taken = VecDeque::new();
        let hope = Hope::new(count, patience, Instant::now());
        (queue.take_hoped(&mut taken, 100, 1 << 20, &hope), taken.len())
    }

    /// What is taken by one who sleeps meanwhile.
    fn while_asleep(queue: &Queue, count: usize, act: impl FnOnce()) -> (Came, usize) {
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| take_hoped(queue, count, LONG));
            while queue.lock().hoped == 0 {
                std::thread::yield_now();
            }
            act();
            taking.join().expect("taken")
        })
    }

    #[test]
    fn what_is_hoped_for_is_waited_for_as_long_as_there_is_patience() {
        let queue = Queue::default();
        assert_eq!(take_hoped(&queue, 2, Duration::from_millis(100)), (Came::None, 0), "it ends");
        assert_eq!(take_hoped(&queue, 2, Duration::ZERO), (Came::Enough, 0), "nobody waited");
        put(&queue);
        assert_eq!(take_hoped(&queue, 0, LONG), (Came::Enough, 0), "nothing is hoped for");
        assert_eq!(take_hoped(&queue, 2, LONG), (Came::Some, 1), "what is there is taken at once");
        let both = while_asleep(&queue, 2, || {
            put(&queue);
            std::thread::sleep(Duration::from_millis(1));
            put(&queue);
        });
        assert_eq!(both, (Came::Some, 2), "who sleeps is woken once");
        let most = 100;
        let all = while_asleep(&queue, most + 1, || (0..most).for_each(|_| put(&queue)));
        assert_eq!(all, (Came::Some, most), "and when there are as many as can be taken");
        assert_eq!(while_asleep(&queue, 2, || queue.close()), (Came::Enough, 0), "closing ends it too");
        assert_eq!(take(&queue), (false, 0));
    }

    #[test]
    fn a_full_queue_hands_back_what_it_could_not_take_in_time() {
        let queue = Queue::default();
        (0..QUEUE_LEN_MAX).for_each(|_| put(&queue));
        let request = || -> Request { (Mutation::Flush, Box::new(|_| {})) };
        let brief = Duration::from_millis(50);
        assert!(queue.push_within(request(), brief, &|| true).is_err());
        assert_eq!(take(&queue), (true, 100));
        assert!(queue.push_within(request(), brief, &|| true).is_ok(), "there is room");
        assert_eq!(queue.len(), QUEUE_LEN_MAX - 99);
    }
}
