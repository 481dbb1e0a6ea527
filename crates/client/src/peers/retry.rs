//! Retries: pauses that double up to a bound, and a deadline for all of them.

use std::time::Duration;

use braid_wire::Refusal;
use tokio::time::Instant;

/// Pause before the second try; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two tries, also if a peer names a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) patience: Duration,
    began: Instant,
    pause: Duration,
}

impl Tries {
    /// Begins the tries now; they end after `patience`.
    pub(crate) fn new(patience: Duration) -> Tries {
        Tries { patience, began: Instant::now(), pause: PAUSE_MIN }
    }

    /// Time since the tries began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The pause before the next try; `None` if it would end past the deadline.
    fn next_pause(&mut self, now: Instant) -> Option<Duration> {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        (now + pause < self.began + self.patience).then_some(pause)
    }

    /// The pause that a peer named, which is the same from try to try; `None` if it would end past the
    /// deadline.
    fn named_pause(&mut self, pause: Duration, now: Instant) -> Option<Duration> {
        self.pause = PAUSE_MIN;
        let pause = pause.min(PAUSE_MAX);
        (now + pause < self.began + self.patience).then_some(pause)
    }

    /// Waits for the pause that the peer named. Returns false if the patience is used up.
    pub(crate) async fn again_in(&mut self, pause: Duration) -> bool {
        let pause = self.named_pause(pause, Instant::now());
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        pause.is_some()
    }

    /// Waits after a refusal: for the pause that it names, if it names one. Turns on a file are short: a
    /// client that asked less and less often would hardly get one. Returns false if the patience is used up.
    pub(crate) async fn after(&mut self, refusal: &Refusal) -> bool {
        match refusal.again_ms {
            0 => self.again().await,
            pause => self.again_in(Duration::from_millis(u64::from(pause))).await,
        }
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
        let mut now = tries.began;
        let mut pauses = Vec::new();
        while let Some(pause) = tries.next_pause(now) {
            pauses.push(pause);
            now += pause;
        }
        assert_eq!(pauses[..3], [20, 40, 80].map(Duration::from_millis));
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
        let whole: Duration = pauses.iter().sum();
        assert!(whole < Duration::from_secs(5) && whole > Duration::from_secs(3), "{whole:?}");
    }

    #[test]
    fn a_pause_that_a_peer_named_stays_and_has_a_bound() {
        let mut tries = Tries::new(Duration::from_secs(5));
        let now = tries.began;
        let short = Duration::from_millis(7);
        assert_eq!([(); 9].map(|()| tries.named_pause(short, now)), [Some(short); 9]);
        assert_eq!(tries.named_pause(Duration::from_secs(99), now), Some(PAUSE_MAX));
        assert_eq!(tries.named_pause(short, now + tries.patience - short), None);
        tries.next_pause(now);
        tries.named_pause(short, now);
        assert_eq!(tries.next_pause(now), Some(PAUSE_MIN), "it answers");
    }

    #[tokio::test]
    async fn no_patience_means_no_second_try() {
        assert!(!Tries::new(Duration::ZERO).again().await);
    }
}
