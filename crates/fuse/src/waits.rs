//! Requests that wait for servers that do not answer. The kernel has a program wait until its request is
//! answered, also if it is killed: so whoever is killed is looked for, and answered at once; and nobody waits
//! for longer than [`PATIENCE`]. What was asked for is carried out all the same, or fails later.

use std::fs;
use std::pin::pin;
use std::time::Duration;

use fuser::Errno;
use tokio::time::{Instant, timeout};

use crate::write_back::Outcome;

/// How long a request waits at most. Each of the library's requests has nearly as long; one that comes after
/// others of the same file could wait for each of them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(59);
/// How often it is looked whether who waits was killed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The bit of SIGKILL among the pending signals.
const KILL: u64 = 1 << 8;

/// Carries out what a thread asked for, and answers it within a time. What is done after the answer is given
/// to `late`.
pub(crate) async fn carry_out<T, L>(
    thread: u32,
    within: Duration,
    work: impl Future<Output = Outcome<T>>,
    answer: impl FnOnce(Outcome<T>),
    late: impl FnOnce(T) -> L,
) where
    L: Future<Output = ()>,
{
    let mut work = pin!(work);
    let began = Instant::now();
    let why = loop {
        match timeout(LOOK_EVERY, work.as_mut()).await {
            Ok(done) => return answer(done),
            Err(_) if is_killed(thread) => break Errno::EINTR,
            Err(_) if began.elapsed() >= within => break Errno::EIO,
            Err(_) => {}
        }
    };
    answer(Err(why));
    if let Ok(done) = work.await {
        late(done).await;
    }
}

/// The same of what only looks, and answers by itself: it is given up.
pub(crate) async fn look(thread: u32, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let began = Instant::now();
    while timeout(LOOK_EVERY, work.as_mut()).await.is_err() {
        if is_killed(thread) || began.elapsed() >= PATIENCE {
            return;
        }
    }
}

/// Whether a thread is about to die. One that cannot be seen from here is not.
fn is_killed(thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status"));
    status.is_ok_and(|status| has_kill(&status))
}

/// Whether the thread has the signal that ends its process: one that is fatal becomes this for each thread.
fn has_kill(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_is_killed_has_the_signal_itself() {
        let status =
            |own: u64, shared: u64| format!("Name:\ta\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n");
        assert!(has_kill(&status(KILL | 1, 0)));
        assert!(!has_kill(&status(1 << 14, KILL)) && !has_kill("Name:\ta\n"));
        assert!(!is_killed(std::process::id()) && !is_killed(u32::MAX));
    }

    #[tokio::test]
    async fn a_request_that_waits_for_long_is_answered_and_undone_when_it_is_done() {
        let (end, ended) = tokio::sync::oneshot::channel::<u64>();
        let (end, undone) = (Cell::new(Some(end)), Cell::new(0));
        let work = async { ended.await.map_err(|_| Errno::ENOENT) };
        let answer = |done: Outcome<u64>| {
            assert_eq!(done, Err(Errno::EIO));
            end.take().expect("it is answered once").send(7).expect("the work goes on");
        };
        carry_out(0, Duration::ZERO, work, answer, async |late: u64| undone.set(late)).await;
        assert_eq!(undone.get(), 7);
    }

    #[tokio::test]
    async fn a_request_that_does_not_wait_is_answered_with_what_was_done() {
        let answer = |done| assert_eq!(done, Ok(8));
        carry_out(0, PATIENCE, async { Ok(8) }, answer, async |_| unreachable!("it is in time")).await;
    }
}
