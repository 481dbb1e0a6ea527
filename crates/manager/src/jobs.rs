//! Background jobs: work that the manager does in rounds, each kind as a [`Job`].
//!
//! The work of a job is a list in the state, so a restart loses nothing. A round that fails is repeated after
//! a pause that rises with each failure. A job that panics begins anew, with an empty state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use braid_meta::rules::jobs::Progress;
use braid_wire::Refusal;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use crate::core::Core;
use crate::leading::{ROUND, pause, until_leading};

/// Maximum pause before a job that panicked begins anew, and the pause of a task's key.
const AFTER_PANIC: Duration = Duration::from_secs(30);

/// A kind of background work.
pub(crate) trait Job: Default + Send + 'static {
    /// Name, as `braid status --jobs` lists it: one or two words.
    const NAME: &'static str;
    /// Purpose: a sentence for people.
    const ABOUT: &'static str;
    /// True if a round must not begin before the state is known to be current.
    const NEEDS_LEADING: bool = true;
    /// Maximum pause after rounds that failed.
    const PAUSE_MAX: Duration = Duration::from_secs(8);

    /// Does what is due. Returns when to look again.
    fn round(&mut self, core: &Arc<Core>) -> impl Future<Output = Result<Again, Refusal>> + Send;

    /// Records the job's progress.
    fn progress(core: &Core, progress: Progress) {
        core.jobs().progress(Self::NAME, progress, core.running_ms());
    }

    /// Records that one of the things that the job works on failed. The job goes on with the others.
    fn failed_in_part(core: &Core, error: &impl Display) {
        core.jobs().failed_in_part(Self::NAME, error.to_string(), core.running_ms());
    }
}

/// Time of a job's next round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// The next round begins at once.
    Now,
    /// The next round begins when a request has changed something, or after [`ROUND`].
    Woken,
    /// The next round begins after this time.
    In(Duration),
    /// There is no next round before the next start: the job is done.
    Never,
}

/// A running job.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a job's rounds, until it is done for good or dropped.
pub(crate) fn run<J: Job>(core: Arc<Core>) -> Running {
    Box::pin(async move {
        let mut job = J::default();
        loop {
            if J::NEEDS_LEADING {
                until_leading(&core).await;
            }
            core.jobs().begin(J::NAME, J::ABOUT, core.running_ms());
            let again = match job.round(&core).await {
                Ok(again) => {
                    let failures = core.jobs().succeeded(J::NAME);
                    if failures > 0 {
                        tracing::info!(job = J::NAME, failures, "a background job succeeds again");
                    }
                    again
                }
                Err(refusal) => Again::In(failed::<J>(&core, &refusal)),
            };
            let wait = match again {
                Again::Now => Duration::ZERO,
                Again::Woken => ROUND,
                Again::In(time) => time,
                Again::Never => Duration::MAX,
            };
            core.jobs().end(J::NAME, milliseconds(wait), core.running_ms());
            match again {
                Again::Now => tokio::task::yield_now().await,
                Again::Woken => pause(&core).await,
                Again::In(time) => sleep(time).await,
                Again::Never => return,
            }
        }
    })
}

/// Records that a round failed. Returns the pause before the next one.
fn failed<J: Job>(core: &Core, refusal: &Refusal) -> Duration {
    let pause_max_ms = milliseconds(J::PAUSE_MAX);
    let failed = core.jobs().failed(J::NAME, refusal.detail.clone(), pause_max_ms, core.running_ms());
    if failed.is_new {
        let about = J::ABOUT;
        tracing::warn!(job = J::NAME, about, %refusal, "a background job failed: it is tried again until it succeeds");
    }
    Duration::from_millis(failed.pause_ms)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A job that is not running yet.
pub(crate) struct Start {
    name: &'static str,
    pause_max: Duration,
    run: fn(Arc<Core>) -> Running,
}

impl Start {
    pub(crate) const fn of<J: Job>() -> Start {
        Start { name: J::NAME, pause_max: J::PAUSE_MAX, run: run::<J> }
    }
}

/// Runs jobs until the future is dropped.
pub(crate) async fn run_all(core: Arc<Core>, starts: &[Start]) {
    let mut running = JoinSet::new();
    let mut started: BTreeMap<Id, &Start> = BTreeMap::new();
    for start in starts {
        started.insert(running.spawn((start.run)(Arc::clone(&core))).id(), start);
    }
    while let Some(ended) = running.join_next_with_id().await {
        let Err(error) = ended else { continue };
        let Some(start) = started.remove(&error.id()) else { continue };
        tracing::error!(job = start.name, %error, "a background job failed within the manager: it begins anew");
        let text = "the job failed within the manager: its log has the reason";
        let now_ms = core.running_ms();
        core.jobs().failed(start.name, text.to_owned(), 0, now_ms);
        let pause = AFTER_PANIC.min(start.pause_max);
        core.jobs().end(start.name, milliseconds(pause), now_ms);
        let anew = (start.run)(Arc::clone(&core));
        let later = async move {
            sleep(pause).await;
            anew.await;
        };
        started.insert(running.spawn(later).id(), start);
    }
}

/// Tasks of a job that works on several things at a time: at most one task per thing.
pub(crate) struct Tasks<K, T = ()> {
    running: JoinSet<Result<T, String>>,
    keys: BTreeMap<Id, K>,
    /// Keys of the tasks that run, or that panicked just now.
    busy: BTreeSet<K>,
    /// Keys of tasks that panicked, each with the time from which another may begin.
    panicked: Vec<(Instant, K)>,
    ended: Vec<Ended<K, T>>,
}

/// A task that has ended.
pub(crate) struct Ended<K, T = ()> {
    pub(crate) key: K,
    /// The task's result, or the reason for which it failed, for people.
    pub(crate) result: Result<T, String>,
}

impl<K, T> Default for Tasks<K, T> {
    fn default() -> Tasks<K, T> {
        let (running, keys, busy, panicked, ended) = Default::default();
        Tasks { running, keys, busy, panicked, ended }
    }
}

impl<K: Copy + Ord, T: Send + 'static> Tasks<K, T> {
    /// Number of tasks that run.
    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if no task may begin for this key now.
    pub(crate) fn is_busy(&self, key: &K) -> bool {
        self.busy.contains(key)
    }

    /// Begins a task for a key, unless one runs.
    pub(crate) fn begin<E: Display>(
        &mut self,
        key: K,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) {
        if self.busy.insert(key) {
            let task = self.running.spawn(async move { work.await.map_err(|error| error.to_string()) });
            self.keys.insert(task.id(), key);
        }
    }

    /// Waits until a task ends; for ever if none runs.
    pub(crate) async fn one_ends(&mut self) {
        match self.running.join_next_with_id().await {
            Some(joined) => self.take(joined),
            None => std::future::pending().await,
        }
    }

    /// Returns the tasks that have ended since the last call.
    pub(crate) fn ended(&mut self) -> Vec<Ended<K, T>> {
        let now = Instant::now();
        let busy = &mut self.busy;
        self.panicked.retain(|(until, key)| {
            let waits = *until > now;
            if !waits {
                busy.remove(key);
            }
            waits
        });
        while let Some(joined) = self.running.try_join_next_with_id() {
            self.take(joined);
        }
        std::mem::take(&mut self.ended)
    }

    fn take(&mut self, joined: Result<(Id, Result<T, String>), JoinError>) {
        match joined {
            Ok((id, result)) => {
                if let Some(key) = self.keys.remove(&id) {
                    self.busy.remove(&key);
                    self.ended.push(Ended { key, result });
                }
            }
            Err(error) => {
                tracing::error!(%error, "a task of a background job failed within the manager");
                if let Some(key) = self.keys.remove(&error.id()) {
                    self.panicked.push((Instant::now() + AFTER_PANIC, key));
                    let text = "the task failed within the manager: its log has the reason";
                    self.ended.push(Ended { key, result: Err(text.to_owned()) });
                }
            }
        }
    }
}

/// Times before which things that failed are not tried again.
pub(crate) struct NotBefore<K>(BTreeMap<K, Instant>);

impl<K> Default for NotBefore<K> {
    fn default() -> NotBefore<K> {
        NotBefore(BTreeMap::new())
    }
}

impl<K: Ord> NotBefore<K> {
    /// Has a thing wait.
    pub(crate) fn set(&mut self, key: K, pause: Duration) {
        self.0.insert(key, Instant::now() + pause);
    }

    /// Returns true if a thing is to wait.
    pub(crate) fn waits(&self, key: &K) -> bool {
        self.0.get(key).is_some_and(|at| *at > Instant::now())
    }

    /// Forgets waits that are over.
    pub(crate) fn forget(&mut self) {
        self.0.retain(|_, at| *at > Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::session_slots::SessionSlots;
    use crate::start::{Config, start};
    use braid_meta::records::memory::MemoryKv;
    use braid_wire::Reason;
    use std::sync::atomic::{AtomicU64, Ordering};

    static ROUNDS: AtomicU64 = AtomicU64::new(0);

    /// Fails twice, panics once, and is done.
    #[derive(Default)]
    struct Clumsy;

    impl Job for Clumsy {
        const NAME: &'static str = "clumsy";
        const ABOUT: &'static str = "Fails at first.";

        async fn round(&mut self, _: &Arc<Core>) -> Result<Again, Refusal> {
            match ROUNDS.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(Refusal::new(Reason::Busy, "not yet")),
                2 => panic!("a fault"),
                _ => Ok(Again::Never),
            }
        }
    }

    #[tokio::test]
    async fn a_job_that_fails_or_panics_is_tried_again() {
        let config = Config::new("memory", "");
        let core = start(Arc::new(MemoryKv::new()), &config, SessionSlots::of(4, 4)).await.unwrap();
        tokio::time::pause();
        run_all(Arc::clone(&core), &[Start::of::<Clumsy>()]).await;
        assert_eq!(ROUNDS.load(Ordering::Relaxed), 4);
        let row = core.jobs().rows(core.running_ms()).jobs.remove(0);
        assert_eq!((row.name.as_str(), row.rounds, row.failures), ("clumsy", 4, 0),);
        assert!(row.error.contains("its log has the reason"), "{}", row.error);
    }

    #[tokio::test]
    async fn a_key_has_one_task_at_a_time_and_waits_after_a_panic() {
        let mut tasks: Tasks<u64> = Tasks::default();
        tasks.begin(1, async { Err("busy") });
        tasks.begin(1, async { Ok::<(), String>(()) });
        tasks.begin(2, async {
            if true {
                panic!("a fault");
            }
            Ok::<(), String>(())
        });
        assert_eq!((tasks.count(), tasks.is_busy(&1)), (2, true));
        tasks.one_ends().await;
        tasks.one_ends().await;
        let mut ended = tasks.ended();
        ended.sort_by_key(|ended| ended.key);
        assert_eq!(ended[0].result, Err("busy".to_owned()));
        assert!(ended[1].key == 2 && ended[1].result.is_err());
        assert!(tasks.count() == 0 && !tasks.is_busy(&1) && tasks.is_busy(&2));
        tokio::time::pause();
        tokio::time::advance(AFTER_PANIC).await;
        assert!(tasks.ended().is_empty() && !tasks.is_busy(&2));
    }
}
