//! The bounded queue between submitters and the committer.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::clean::move_batch::MoveBatch;
use crate::commit_delay::CommitDelay;
use crate::error::Error;
use crate::folded::Folded;
use crate::mutation::{Mutation, MutationOutcome};
use crate::mutex::{Condvar, Mutex};

/// The most mutations in the queue.
pub const QUEUE_LEN_MAX: usize = 4096;
/// The most payload bytes in the queue. A single mutation is always accepted.
pub const QUEUE_BYTES_MAX: u64 = 256 << 20;

/// Longest time that a mutation waits for others to share a commit with, if it may wait.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// Callback that receives the answer to a mutation.
pub type Reply = Box<dyn FnOnce(Result<MutationOutcome, Error>) + Send>;

/// A mutation that did not fit into the queue, handed back unchanged. Retry after an answer has arrived.
pub struct Rejected {
    pub mutation: Mutation,
    /// The callback for the mutation's answer.
    pub reply: Reply,
}

/// A mutation and the callback for its answer.
pub(crate) type Request = (Mutation, Reply);

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    bytes: u64,
    /// Number of queued requests that may wait for others, and the time since which the first of these waits.
    patient: usize,
    patient_since: Option<Instant>,
    /// The committer sleeps until this many requests wait; `None`: it is awake.
    sleeps_until: Option<usize>,
    /// The committer sleeps without a time limit.
    sleeps_soundly: bool,
    /// No request waits for others to share its commit.
    is_hasty: bool,
    /// Number of submitters that wait for space in the queue.
    blocked: usize,
    closed: bool,
    /// The committer is gone.
    abandoned: bool,
    /// From the cleaner, which waits for its answer: served before all requests.
    batch: Option<MoveBatch>,
    /// From the folder, which waits for its answer.
    fold: Option<Folded>,
    /// The cleaner's final answer to a committer that waits for space: the cleaner can do no more.
    helped: Option<CleanRound>,
    /// The cleaner has ended and sends no more answers.
    no_help: bool,
}

/// The cleaner's answer to a committer that waits for space.
pub(crate) enum Help {
    /// Moves to commit. More will follow.
    MoveBatch(MoveBatch),
    /// No more moves.
    Over(CleanRound),
}

/// The result of a round of cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CleanRound {
    /// Segments were emptied.
    Emptied,
    /// There was nothing to empty.
    Nothing,
}

impl Queue {
    /// Number of requests in the queue.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Queue a request. Waits while the queue is full, at most for `wait` if there is a bound, and then hands
    /// the request back. A closed queue answers the request with [`Error::Closed`].
    #[expect(clippy::result_large_err, reason = "the request goes back as it came, without an allocation")]
    pub(crate) fn push(
        &self,
        request: Request,
        wait: Option<Duration>,
        still: &dyn Fn() -> bool,
    ) -> Result<(), Rejected> {
        let bytes = request.0.payload_bytes();
        let until = wait.map(|wait| Instant::now() + wait);
        let mut state = self.state.lock();
        while !state.closed && !state.fits(bytes) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Rejected { mutation: request.0, reply: request.1 });
            }
            state.blocked += 1;
            state = match left {
                None => self.drained.wait(state),
                Some(left) => self.drained.wait_for(state, left).0,
            };
            state.blocked -= 1;
        }
        self.put(state, request, bytes, still);
        Ok(())
    }

    /// `still` is asked under the queue's lock: its answer holds at the request's position in the order.
    fn put(&self, mut state: MutexGuard<'_, State>, request: Request, bytes: u64, still: &dyn Fn() -> bool) {
        let error = if state.closed { Some(Error::Closed) } else { (!still()).then_some(Error::Withdrawn) };
        if let Some(error) = error {
            drop(state);
            return request.1(Err(error));
        }
        state.bytes += bytes;
        let is_patient = request.0.may_wait();
        state.waiting.push_back(request);
        if is_patient {
            state.patient += 1;
            state.patient_since.get_or_insert_with(Instant::now);
        }
        // A committer that sleeps without a time limit must wake to set one, even for a request that may
        // wait.
        let waiting = state.waiting.len();
        let may_sleep = is_patient && !state.sleeps_soundly;
        let wake = state.sleeps_until.take_if(|count| waiting >= *count && !may_sleep).is_some();
        drop(state);
        if wake {
            self.filled.notify_all();
        }
    }

    /// Fill `to` up to `count` requests of about `bytes` payload bytes. If `to` is empty, waits for a request
    /// or a batch of moves, and after the first request for more, as `delay` says. Returns false if the queue
    /// is closed and nothing is left in it or in `to`.
    pub(crate) fn take(
        &self,
        to: &mut VecDeque<Request>,
        count: usize,
        bytes: u64,
        delay: CommitDelay,
    ) -> bool {
        let mut state = self.state.lock();
        if to.is_empty() {
            while let Some(most) = state.sleep() {
                state.sleeps_until = Some(1);
                state.sleeps_soundly = most.is_none();
                state = match most {
                    None => self.filled.wait(state),
                    Some(most) => self.filled.wait_for(state, most).0,
                };
            }
            state.sleeps_soundly = false;
            let enough = delay.requests.min(count);
            let until = Instant::now() + delay.time;
            while state.waiting.len() < enough && state.bytes < bytes && !state.is_pressing() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state.sleeps_until = Some(enough);
                state = self.filled.wait_for(state, left).0;
            }
        }
        state.sleeps_until = None;
        let mut taken: u64 = to.iter().map(|(mutation, _)| mutation.payload_bytes()).sum();
        while to.len() < count && taken < bytes {
            let Some(request) = state.waiting.pop_front() else { break };
            let size = request.0.payload_bytes();
            state.bytes -= size;
            if request.0.may_wait() {
                state.patient -= 1;
            }
            taken += size;
            to.push_back(request);
        }
        if state.patient == 0 {
            state.patient_since = None;
        }
        let more = !to.is_empty() || state.batch.is_some() || state.fold.is_some() || !state.closed;
        let blocked = state.blocked > 0;
        drop(state);
        if blocked {
            self.drained.notify_all();
        }
        more
    }

    /// Hand a batch of moves to the committer. If the committer is gone, the batch is never answered.
    pub(crate) fn push_move_batch(&self, batch: MoveBatch) {
        let mut state = self.state.lock();
        if !state.abandoned {
            state.batch = Some(batch);
        }
        drop(state);
        self.filled.notify_all();
    }

    /// The batch of moves that waits, if any.
    pub(crate) fn take_move_batch(&self) -> Option<MoveBatch> {
        self.state.lock().batch.take()
    }

    /// Hand a folded base to the committer. If the queue is closed, it is never answered.
    pub(crate) fn push_fold(&self, folded: Folded) {
        let mut state = self.state.lock();
        if !state.closed {
            state.fold = Some(folded);
        }
        drop(state);
        self.filled.notify_all();
    }

    /// The folded base that waits, if any.
    pub(crate) fn take_fold(&self) -> Option<Folded> {
        self.state.lock().fold.take()
    }

    /// Tell the committer, which waits for space, that the cleaner is done.
    pub(crate) fn end_stall(&self, round: CleanRound) {
        self.state.lock().helped = Some(round);
        self.filled.notify_all();
    }

    /// The cleaner has ended and helps no more.
    pub(crate) fn end_help(&self) {
        self.state.lock().no_help = true;
        self.filled.notify_all();
    }

    /// Wait for the cleaner's help, which must have been called for.
    pub(crate) fn wait_for_help(&self) -> Help {
        let mut state = self.state.lock();
        loop {
            if let Some(batch) = state.batch.take() {
                return Help::MoveBatch(batch);
            }
            if let Some(round) = state.helped.take() {
                return Help::Over(round);
            }
            if state.no_help {
                return Help::Over(CleanRound::Nothing);
            }
            state = self.filled.wait(state);
        }
    }

    /// From now on no request waits for others to share its commit.
    #[cfg(any(test, feature = "faulty-disk"))]
    pub(crate) fn do_without_waits(&self) {
        self.state.lock().is_hasty = true;
    }

    /// Refuse further requests. Those that wait are still served.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Close the queue and answer the requests that wait, as the committer is gone.
    pub(crate) fn abandon(&self) {
        self.close();
        let mut state = self.state.lock();
        state.abandoned = true;
        state.batch = None;
        state.fold = None;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, reply) in waiting {
            reply(Err(Error::Closed));
        }
    }
}

impl State {
    /// Longest time that the committer may sleep before it takes requests. `Some(None)`: until a request
    /// comes. `None`: there are requests to take now.
    fn sleep(&self) -> Option<Option<Duration>> {
        if self.is_pressing() || self.waiting.len() > self.patient {
            return None;
        }
        let Some(since) = self.patient_since else { return Some(None) };
        let left = WAIT_MAX.saturating_sub(since.elapsed());
        (!self.is_hasty && !left.is_zero()).then_some(Some(left))
    }

    /// Returns true if the committer has work that must not be delayed: moves or a base to commit, or the
    /// end.
    fn is_pressing(&self) -> bool {
        self.batch.is_some() || self.fold.is_some() || self.closed
    }

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
        assert!(queue.push((Mutation::Flush, Box::new(|_| {})), None, &|| true).is_ok());
    }

    fn take(queue: &Queue) -> (bool, usize) {
        take_after(queue, CommitDelay::default())
    }

    fn take_after(queue: &Queue, delay: CommitDelay) -> (bool, usize) {
        let mut taken = VecDeque::new();
        (queue.take(&mut taken, 100, 1 << 20, delay), taken.len())
    }

    /// Result of a [`Queue::take`] in a thread that sleeps until `requests` requests wait; `act` runs
    /// meanwhile.
    fn while_asleep(queue: &Queue, requests: usize, act: impl FnOnce()) -> (bool, usize) {
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| take_after(queue, CommitDelay { requests, time: LONG }));
            while queue.state.lock().sleeps_until != Some(requests.min(100)) {
                std::thread::yield_now();
            }
            act();
            taking.join().expect("taken")
        })
    }

    #[test]
    fn a_delayed_commit_takes_what_comes_meanwhile() {
        let queue = Queue::default();
        let brief = |requests| CommitDelay { requests, time: Duration::from_millis(1) };
        put(&queue);
        assert_eq!(take_after(&queue, brief(2)), (true, 1), "the delay ends");
        put(&queue);
        assert_eq!(take_after(&queue, CommitDelay { requests: 1, time: LONG }), (true, 1), "all are there");
        put(&queue);
        assert_eq!(while_asleep(&queue, 3, || (0..2).for_each(|_| put(&queue))), (true, 3));
        put(&queue);
        let all = while_asleep(&queue, 1000, || (0..99).for_each(|_| put(&queue)));
        assert_eq!(all, (true, 100), "as many as can be taken are enough");
        put(&queue);
        assert_eq!(while_asleep(&queue, 2, || queue.close()), (true, 1), "closing ends it too");
        assert_eq!(take(&queue), (false, 0));
    }

    #[test]
    fn what_may_wait_goes_with_the_next_or_after_a_while() {
        let queue = Queue::default();
        let partition = braid_layout::PartitionId(1);
        let object = braid_layout::ObjectId(1);
        let g = braid_layout::Generation(1);
        let up_to = braid_layout::Version::ZERO;
        let put_patient = || {
            let mutation = Mutation::OwedSettled { partition, object, g, unit: 0, up_to };
            assert!(queue.push((mutation, Box::new(|_| {})), None, &|| true).is_ok());
        };
        let began = Instant::now();
        put_patient();
        put_patient();
        assert_eq!(take(&queue), (true, 2), "after a while");
        assert!(began.elapsed() >= WAIT_MAX);
        put_patient();
        put(&queue);
        let began = Instant::now();
        assert_eq!(take_after(&queue, CommitDelay { requests: 1, time: LONG }), (true, 2), "with another");
        let slept = |act: &dyn Fn()| while_asleep(&queue, 1, act);
        assert_eq!(slept(&put_patient), (true, 1), "it wakes who sleeps, to wait");
        assert!(began.elapsed() >= WAIT_MAX);
        put_patient();
        queue.close();
        assert_eq!((take(&queue), take(&queue)), ((true, 1), (false, 0)));
    }

    #[test]
    fn a_full_queue_hands_back_what_it_could_not_take_in_time() {
        let queue = Queue::default();
        (0..QUEUE_LEN_MAX).for_each(|_| put(&queue));
        let request = || -> Request { (Mutation::Flush, Box::new(|_| {})) };
        for wait in [Duration::ZERO, Duration::from_millis(50)] {
            assert!(queue.push(request(), Some(wait), &|| true).is_err());
        }
        assert_eq!(take(&queue), (true, 100));
        assert!(queue.push(request(), Some(Duration::ZERO), &|| true).is_ok(), "there is room");
        assert_eq!(queue.len(), QUEUE_LEN_MAX - 99);
    }
}
