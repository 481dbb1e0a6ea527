//! Retries: pauses that double up to a bound, and a deadline for all of them.

use std::time::Duration;

use tokio::time::Instant;

/// First pause.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) patience: Duration,
    began: Instant,
    pause: Duration,
}

impl Tries {
    /// Begins now; ends after `patience`.
    pub(crate) fn new(patience: Duration) -> Tries {
        Tries { patience, began: Instant::now(), pause: PAUSE_MIN }
    }

    /// How long the tries have lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The pause before the next try; `None` if it would end past the deadline.
    fn next_pause(&mut self, now: Instant) -> Option<Duration> {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        (now + pause < self.began + self.patience).then_some(pause)
    }

    /// Waits until the next try is due. Returns false if the patience is used up.
    pub(crate) async fn again(&mut self) -> bool {
        match self.next_pause(Instant::now()) {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_double_to_a_bound_and_end_at_the_deadline() {
        let mut tries = Tries::new(Duration::from_secs(5));
        let (mut now, mut pauses) = (tries.began, Vec::new());
        while let Some(pause) = tries.next_pause(now) {
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses[..3], [20, 40, 80].map(Duration::from_millis));
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
        let whole: Duration = pauses.iter().sum();
        assert!(whole < Duration::from_secs(5) && whole > Duration::from_secs(3), "{whole:?}");
    }

    #[tokio::test]
    async fn no_patience_means_no_second_try() {
        assert!(!Tries::new(Duration::ZERO).again().await);
    }
}
