//! The front of a run: the byte up to which its pieces have been put together.
//!
//! The ends of later pieces wait in memory for those before them. So nobody begins far behind the front.

use tokio::sync::watch;

/// How far a run is, for those who are to go on behind it.
#[derive(Debug)]
pub(super) struct Front {
    reached: watch::Sender<u64>,
    ahead_max: u64,
}

impl Front {
    pub(super) fn new(ahead_max: u64) -> Front {
        Front { reached: watch::Sender::new(0), ahead_max }
    }

    /// Waits until this byte is near enough to the front. Whoever is before it has begun, and moves the
    /// front.
    pub(super) async fn near(&self, byte: u64) {
        let least = byte.saturating_sub(self.ahead_max);
        let mut reached = self.reached.subscribe();
        // The sender lives as long as this borrow.
        drop(reached.wait_for(|reached| *reached >= least).await);
    }

    /// Moves the front to this byte, if it is further on.
    pub(super) fn reach(&self, byte: u64) {
        self.reached.send_if_modified(|reached| {
            let is_further = byte > *reached;
            *reached = byte.max(*reached);
            is_further
        });
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn nobody_begins_far_behind_the_front() {
        let front = Front::new(100);
        let mut context = Context::from_waker(Waker::noop());
        let mut near = Box::pin(front.near(150));
        assert_eq!(near.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(Box::pin(front.near(100)).as_mut().poll(&mut context), Poll::Ready(()));
        front.reach(49);
        assert_eq!(near.as_mut().poll(&mut context), Poll::Pending);
        front.reach(50);
        front.reach(20);
        assert_eq!(near.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
