//! Locks on stripes: one write per stripe at a time (PROTOCOL C1). A writer holds its stripes from before it
//! reads them until every column has answered. Other stripes are not blocked.

use std::ops::Range;
use std::sync::Mutex;

use tokio::sync::Notify;

/// The stripes of one file that are being written.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    held: Mutex<Vec<(usize, Range<u64>)>>,
    freed: Notify,
}

/// Held stripes, released on drop.
#[derive(Debug)]
pub(crate) struct HeldStripes<'a> {
    stripes: &'a Stripes,
    segment: usize,
    range: Range<u64>,
}

impl Stripes {
    /// Waits until none of these stripes of the segment is held, then holds all of them: all or none, so that
    /// two callers that want the same stripes cannot deadlock.
    pub(crate) async fn hold(&self, segment: usize, range: Range<u64>) -> HeldStripes<'_> {
        loop {
            // Registered before the check, so that a release in between is not missed.
            let freed = self.freed.notified();
            if let Some(held) = self.hold_now(segment, range.clone()) {
                return held;
            }
            freed.await;
        }
    }

    /// Holds these stripes of the segment, all or none; `None` if one of them is held.
    pub(crate) fn hold_now(&self, segment: usize, range: Range<u64>) -> Option<HeldStripes<'_>> {
        self.try_hold(segment, &range).then(|| HeldStripes { stripes: self, segment, range })
    }

    /// Ends when stripes are released after this call.
    pub(crate) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
    }

    fn try_hold(&self, segment: usize, range: &Range<u64>) -> bool {
        let mut held = self.held.lock().expect("no holder panics");
        let meets = |(other, stripes): &(usize, Range<u64>)| {
            *other == segment && stripes.start < range.end && range.start < stripes.end
        };
        if held.iter().any(meets) {
            return false;
        }
        held.push((segment, range.clone()));
        true
    }
}

impl Drop for HeldStripes<'_> {
    fn drop(&mut self) {
        let mut held = self.stripes.held.lock().expect("no holder panics");
        if let Some(index) = held.iter().position(|(s, range)| *s == self.segment && *range == self.range) {
            held.swap_remove(index);
        }
        self.stripes.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::concurrent;

    #[tokio::test]
    async fn overlapping_writes_take_turns_and_others_do_not() {
        let stripes = Stripes::default();
        let first = stripes.hold(0, 0..3).await;
        drop(stripes.hold(0, 3..5).await);
        drop(stripes.hold(1, 0..3).await);
        assert!(!stripes.try_hold(0, &(2..4)));
        drop(first);
        let inside = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        let turn = |from: u64| {
            let stripes = &stripes;
            let inside = &inside;
            let most = &most;
            async move {
                let _held = stripes.hold(0, from..from + 4).await;
                most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::Relaxed);
            }
        };
        concurrent::all((0..3).map(turn)).await;
        assert_eq!(most.load(Ordering::Relaxed), 1);
    }
}
