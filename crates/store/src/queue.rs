//! The bounded queue between submitters and the committer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clean::burst::Burst;
use crate::error::Error;
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

/// How many requests the committer expects to come soon: from the writers that it has just answered. A commit costs a sync,
/// however many it is for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hope {
    /// As many as were answered together last.
    pub(crate) count: usize,
    /// How long to wait for all of them: less than a sync of its own for the late ones would take.
    pub(crate) patience: Duration,
}

/// About what it takes to go to sleep and be woken: so long the committer looks again and again for those that it hopes for, and
/// lets others have the processor in between.
const WAKING: Duration = Duration::from_micros(50);

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
    /// The cleaner has helped a committer that waits for space, as far as it could.
    helped: bool,
    /// The cleaner has ended, and says no more.
    no_help: bool,
}

/// What a committer that waits for space gets from the cleaner.
pub(crate) enum Help {
    /// Moves to commit; more will come.
    Burst(Burst),
    /// The end: it has gained something, or there is nothing to gain.
    Over,
}

impl Queue {
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
        self.put(state, request, bytes);
    }

    /// Queue a request, or hand it back if the queue is full.
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub(crate) fn try_push(&self, request: Request) -> Result<(), Rejected> {
        let bytes = request.0.payload_bytes();
        let state = self.lock();
        if !state.closed && !state.fits(bytes) {
            return Err(Rejected { mutation: request.0, reply: request.1 });
        }
        self.put(state, request, bytes);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State>, request: Request, bytes: u64) {
        if state.closed {
            drop(state);
            return request.1(Err(Error::Closed));
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

    /// Fill `to` up to `count` requests of about `bytes` payload bytes. If it is empty, waits for one, or for a burst; then a
    /// little for as many as `hope` says. Returns false when the queue is closed and nothing is left anywhere.
    pub(crate) fn take(&self, to: &mut VecDeque<Request>, count: usize, bytes: u64, hope: Hope) -> bool {
        let hopes = |state: &State| {
            state.waiting.len() < hope.count && state.burst.is_none() && !state.closed && state.bytes < bytes
        };
        if to.is_empty() && hope.count > 1 {
            let until = Instant::now() + hope.patience.min(WAKING);
            // Without the lock: those that it looks for would wait for it.
            while self.length.load(Ordering::Relaxed) < hope.count && Instant::now() < until {
                std::thread::yield_now();
            }
        }
        let mut state = self.lock();
        while to.is_empty() && state.waiting.is_empty() && state.burst.is_none() && !state.closed {
            state.sleeping = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + hope.patience;
        while to.is_empty() && hopes(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state.sleeping, state.hoped) = (true, hope.count);
            state = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
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

    /// Tell the committer, which waits for space, that the cleaner is done.
    pub(crate) fn end_stall(&self) {
        self.lock().helped = true;
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
            if std::mem::take(&mut state.helped) || state.no_help {
                return Help::Over;
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

    fn take(queue: &Queue, hope: Hope) -> (bool, usize) {
        let mut taken = VecDeque::new();
        let more = queue.take(&mut taken, 100, 1 << 20, hope);
        (more, taken.len())
    }

    #[test]
    fn what_is_hoped_for_is_waited_for_as_long_as_there_is_patience() {
        let queue = Queue::default();
        put(&queue);
        assert_eq!(take(&queue, Hope { count: 2, patience: Duration::from_millis(1) }), (true, 1), "it ends");
        put(&queue);
        let both = std::thread::scope(|scope| {
            let taking = scope.spawn(|| take(&queue, Hope { count: 2, patience: LONG }));
            while queue.lock().hoped == 0 {
                std::thread::yield_now();
            }
            put(&queue);
            taking.join().expect("taken")
        });
        assert_eq!(both, (true, 2));
        put(&queue);
        let closed = std::thread::scope(|scope| {
            let taking = scope.spawn(|| take(&queue, Hope { count: 2, patience: LONG }));
            while queue.lock().hoped == 0 {
                std::thread::yield_now();
            }
            queue.close();
            taking.join().expect("taken")
        });
        assert_eq!(closed, (true, 1), "closing ends it too");
        assert_eq!(take(&queue, Hope { count: 2, patience: LONG }), (false, 0));
    }
}
