//! Waits of tests: for what must come about, and not for a time. Each has a bound, which is long, as machines
//! that run tests are slow and shared: it ends a test that fails, and no test that passes.

use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Time after which a wait is in vain.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds. Panics if it does not come about in time.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until `condition` holds, in a runtime.
#[track_caller]
pub fn eventually<F: Future<Output = bool>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        while !condition().await {
            assert!(Instant::now() < end, "{caller}: waited in vain until {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits until `condition` holds, in a runtime, where the condition speaks for itself.
#[track_caller]
pub fn wait_for<F: Future<Output = bool>>(condition: impl FnMut() -> F) -> impl Future<Output = ()> {
    eventually("it holds", condition)
}

/// Asks until there is an answer, in a runtime, and returns it.
#[track_caller]
pub fn answer<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(Instant::now() < end, "{caller}: waited in vain until {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_wait_ends_with_its_condition() {
        let looks = Cell::new(0);
        until("there were three looks", || {
            looks.set(looks.get() + 1);
            looks.get() == 3
        });
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn an_answer_is_asked_for_until_there_is_one() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
        let mut asked = 0;
        let found = runtime.block_on(answer("there were three questions", async || {
            asked += 1;
            (asked == 3).then_some(asked)
        }));
        assert_eq!(found, 3);
        runtime.block_on(wait_for(|| async { true }));
    }
}
