//! Requests that wait for servers that do not answer. The kernel has a program wait until its request is
//! answered, even if the program is killed: so killed programs are looked for, and answered at once; and no
//! program waits for longer than [`PATIENCE`] without an answer of any server. The request is carried out all
//! the same, or fails later.
//!
//! Once a request has waited so long in vain, others do not wait for that time again, until a server answers.

use std::fs;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use braid_client::Client;
use fuser::Errno;
use tokio::time::{Instant, timeout};

use crate::errors::Outcome;

/// Maximum time that a request waits. Each of the library's requests has nearly as long; a request that comes
/// after others of the same file could wait for each of them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(59);
/// Maximum time that a request waits while no server answers.
const IN_VAIN: Duration = Duration::from_secs(2);
/// Interval between two looks whether a waiting program was killed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The bit of SIGKILL among the pending signals.
const KILL: u64 = 1 << 8;

/// Time limit of a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// [`PATIENCE`] after the request was made.
    Asked,
    /// [`PATIENCE`] after the last answer of any server, as there may be much to write.
    Answered,
    /// No limit: the request waits for another program, or no program waits for it.
    None,
}

/// Counts answers, to know whether servers answer: those to requests that had to wait, and those of drives.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Client whose drives' answers are counted.
    client: Option<Client>,
    count: AtomicU64,
    /// One more than the count at which servers were found not to answer; 0 while they do.
    missing_at: AtomicU64,
}

impl Answers {
    pub(crate) fn of(client: Client) -> Answers {
        Answers { client: Some(client), ..Answers::default() }
    }

    /// Counts an answer.
    pub(crate) fn came(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire) + self.client.as_ref().map_or(0, Client::drive_answers)
    }

    /// Notes that a request has waited for the maximum time: if no answer came since the count was `then`,
    /// servers do not answer.
    fn waited(&self, then: u64) {
        if self.count() == then {
            self.missing_at.store(then + 1, Ordering::Release);
        }
    }

    fn patience(&self) -> Duration {
        let are_missing = self.missing_at.load(Ordering::Acquire) == self.count() + 1;
        if are_missing { IN_VAIN } else { PATIENCE }
    }
}

/// A request that waits.
struct Wait<'a> {
    thread: u32,
    bound: Bound,
    answers: &'a Answers,
    began: Instant,
    /// Number of answers when the wait began, and at the last look.
    counts: (u64, u64),
}

impl Wait<'_> {
    fn new(thread: u32, bound: Bound, answers: &Answers) -> Wait<'_> {
        let count = answers.count();
        Wait { thread, bound, answers, began: Instant::now(), counts: (count, count) }
    }

    /// The error to answer if the request is to wait no longer.
    fn is_over(&mut self) -> Option<Errno> {
        let count = self.answers.count();
        if std::mem::replace(&mut self.counts.1, count) != count && self.bound == Bound::Answered {
            self.began = Instant::now();
        }
        if is_killed(self.thread) {
            return Some(Errno::EINTR);
        }
        if self.bound == Bound::None || self.began.elapsed() < self.answers.patience() {
            return None;
        }
        self.answers.waited(self.counts.0);
        Some(Errno::EIO)
    }
}

/// Carries out a thread's request, and answers it within a bound. A result that comes after the answer is
/// given to `late`.
pub(crate) async fn carry_out<T, L>(
    thread: u32,
    bound: Bound,
    answers: &Answers,
    work: impl Future<Output = Outcome<T>>,
    answer: impl FnOnce(Outcome<T>),
    late: impl FnOnce(T) -> L,
) where
    L: Future<Output = ()>,
{
    let mut work = pin!(work);
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        // No server was asked.
        return answer(done);
    }
    let came = |done: &Outcome<T>| {
        if !matches!(done, Err(Errno::EIO)) {
            answers.came();
        }
    };
    let mut wait = Wait::new(thread, bound, answers);
    let why = loop {
        if let Ok(done) = timeout(LOOK_EVERY, work.as_mut()).await {
            came(&done);
            return answer(done);
        }
        if let Some(why) = wait.is_over() {
            break why;
        }
    };
    answer(Err(why));
    let done = work.await;
    came(&done);
    if let Ok(done) = done {
        late(done).await;
    }
}

/// Carries out a request that only reads, and answers by itself: after the bound it is dropped.
pub(crate) async fn look(thread: u32, answers: &Answers, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    if poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await.is_ready() {
        return;
    }
    let mut wait = Wait::new(thread, Bound::Asked, answers);
    loop {
        if timeout(LOOK_EVERY, work.as_mut()).await.is_ok() {
            return answers.came();
        }
        if wait.is_over().is_some() {
            return;
        }
    }
}

/// Returns true if a thread is about to die. A thread that cannot be seen from here is not.
fn is_killed(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| has_kill(&status))
}

/// Returns true if the thread has the signal that ends its process: a fatal signal becomes this one for each
/// thread. A thread that is dying, and closes its files, has taken its own; that of the process stays.
fn has_kill<'a>(status: &'a str) -> bool {
    let pending = |line: &'a str| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
    let masks = status.lines().filter_map(pending);
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    #[test]
    fn who_is_killed_has_the_signal_or_his_process_has() {
        let status =
            |own: u64, shared: u64| format!("Name:\ta\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n");
        assert!(has_kill(&status(KILL | 1, 0)));
        assert!(has_kill(&status(0, KILL)), "it is dying");
        assert!(!has_kill(&status(1 << 14, 1 << 14)) && !has_kill("Name:\ta\n"));
        assert!(!is_killed(std::process::id()) && !is_killed(u32::MAX));
    }

    /// Makes a request that is never done, and returns the number of seconds until it was given up.
    async fn in_vain(bound: Bound, answers: &Answers) -> u64 {
        let (tell, told) = tokio::sync::oneshot::channel();
        let began = Instant::now();
        let answer = |done: Outcome<()>| {
            assert_eq!(done, Err(Errno::EIO));
            tell.send(began.elapsed().as_secs()).expect("somebody waits");
        };
        tokio::select! {
            () = carry_out(0, bound, answers, pending(), answer, async |()| ()) => unreachable!("it is never done"),
            took = told => took.expect("it is answered"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_as_long_after_an_answer_and_the_next_in_vain_for_less() {
        let answers = Answers::default();
        let some = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            answers.came();
        };
        let (asked, answered, ()) =
            tokio::join!(in_vain(Bound::Asked, &answers), in_vain(Bound::Answered, &answers), some);
        assert_eq!((asked, answered), (59, 99));
        // An answer came while these requests waited.
        assert_eq!(in_vain(Bound::Answered, &answers).await, 59);
        assert_eq!(in_vain(Bound::Asked, &answers).await, 2);
        look(0, &answers, pending()).await;
        assert_eq!(in_vain(Bound::Answered, &answers).await, 2);
        // A request that needed no server proves nothing.
        carry_out(0, Bound::Asked, &answers, async { Ok(()) }, |_| (), async |()| ()).await;
        assert_eq!(in_vain(Bound::Asked, &answers).await, 2);
        let asks = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err::<(), Errno>(Errno::ENOENT)
        };
        carry_out(0, Bound::Asked, &answers, asks, |_| (), async |()| ()).await;
        assert_eq!(in_vain(Bound::Asked, &answers).await, 59);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_for_long_is_answered_and_undone_when_it_is_done() {
        let (end, ended) = tokio::sync::oneshot::channel::<u64>();
        let end = Cell::new(Some(end));
        let undone = Cell::new(0);
        let work = async { ended.await.map_err(|_| Errno::ENOENT) };
        let answer = |done: Outcome<u64>| {
            assert_eq!(done, Err(Errno::EIO));
            end.take().expect("it is answered once").send(7).expect("the work goes on");
        };
        let answers = Answers::default();
        carry_out(0, Bound::Asked, &answers, work, answer, async |late: u64| undone.set(late)).await;
        assert_eq!(undone.get(), 7);
    }

    #[tokio::test]
    async fn a_request_that_does_not_wait_is_answered_with_what_was_done() {
        let answer = |done| assert_eq!(done, Ok(8));
        let answers = Answers::default();
        let late = async |_| unreachable!("it is in time");
        carry_out(0, Bound::Asked, &answers, async { Ok(8) }, answer, late).await;
    }
}
