//! Runs several futures together within one task.
//!
//! The futures borrow the caller's buffers, so they cannot be spawned. They are polled in place, all of them
//! whenever one wakes the task. That costs one poll per unfinished future and wake-up: negligible next to a
//! unit's transfer for the few dozen drives of a plan set, and it needs no other crate.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs all futures to completion; the results are in the futures' order.
pub(crate) async fn all<'a, T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'a,
    T: Send + Unpin,
{
    let mut all = All::of(futures);
    all.ended().await;
    all.results().into_iter().flatten().collect()
}

/// Runs the futures, started in order and at most `flights` at a time, until all have ended or one has
/// failed. The others are then dropped.
pub(crate) async fn windowed<'a, E, F>(flights: usize, futures: impl IntoIterator<Item = F>) -> Result<(), E>
where
    F: Future<Output = Result<(), E>> + Send + 'a,
    E: Send + Unpin,
{
    let mut waiting = futures.into_iter();
    let mut running: Vec<Boxed<'a, Result<(), E>>> = Vec::new();
    std::future::poll_fn(|context| {
        loop {
            while running.len() < flights.max(1) {
                match waiting.next() {
                    Some(future) => running.push(Box::pin(future)),
                    None => break,
                }
            }
            if running.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let before = running.len();
            let mut failed = None;
            running.retain_mut(|future| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => {
                    failed.get_or_insert(error);
                    false
                }
            });
            if let Some(error) = failed {
                return Poll::Ready(Err(error));
            }
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await
}

enum Entry<'a, T> {
    Running(Boxed<'a, T>),
    Ended(T),
}

/// Futures that run together, and can be given up.
pub(crate) struct All<'a, T> {
    entries: Vec<Entry<'a, T>>,
}

impl<'a, T: Send + Unpin> All<'a, T> {
    pub(crate) fn of<F>(futures: impl IntoIterator<Item = F>) -> All<'a, T>
    where
        F: Future<Output = T> + Send + 'a,
    {
        let running = |future| Entry::Running(Box::pin(future) as Boxed<'a, T>);
        All { entries: futures.into_iter().map(running).collect() }
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&mut self) {
        self.all_but(0).await;
    }

    /// Waits until no more than `spare` have not ended.
    pub(crate) async fn all_but(&mut self, spare: usize) {
        std::future::poll_fn(|context| {
            for entry in &mut self.entries {
                if let Entry::Running(future) = entry
                    && let Poll::Ready(value) = future.as_mut().poll(context)
                {
                    *entry = Entry::Ended(value);
                }
            }
            if self.running().count() <= spare { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The numbers of those that have not ended.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        let entries = self.entries.iter().enumerate();
        entries.filter(|(_, entry)| matches!(entry, Entry::Running(_))).map(|(number, _)| number)
    }

    /// The results, in the futures' order; `None` for those that have not ended, which are given up.
    pub(crate) fn results(self) -> Vec<Option<T>> {
        let result = |entry| match entry {
            Entry::Ended(value) => Some(value),
            Entry::Running(_) => None,
        };
        self.entries.into_iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn all_keeps_the_order() {
        let results = all((0..5u64).map(|i| async move {
            for _ in 0..(5 - i) {
                tokio::task::yield_now().await;
            }
            i
        }))
        .await;
        assert_eq!(results, [0, 1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn those_that_do_not_end_can_be_given_up() {
        let job = |i: u64| async move {
            match i {
                1 | 3 => std::future::pending().await,
                i => i,
            }
        };
        let mut all = All::of((0..5).map(job));
        all.all_but(2).await;
        assert_eq!(all.running().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(all.results(), [Some(0), None, Some(2), None, Some(4)]);
    }

    #[tokio::test]
    async fn windowed_bounds_the_flights_and_stops_at_the_first_error() {
        let running = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let ended = AtomicUsize::new(0);
        let job = |i: usize, fail: bool| {
            let running = &running;
            let most = &most;
            let ended = &ended;
            async move {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
                for _ in 0..i % 3 + 1 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::Relaxed);
                ended.fetch_add(1, Ordering::Relaxed);
                if fail { Err(i) } else { Ok(()) }
            }
        };
        assert_eq!(windowed(3, (0..20).map(|i| job(i, false))).await, Ok(()));
        assert_eq!((most.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)), (3, 20));
        assert_eq!(windowed(2, (0..20).map(|i| job(i, i == 4))).await, Err(4));
        assert!(ended.load(Ordering::Relaxed) < 28);
    }
}
