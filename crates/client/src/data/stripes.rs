//! Locks on stripes: one write per stripe at a time (PROTOCOL C1). A writer holds its stripes from before it
//! reads them until every column has answered. Other stripes are not blocked.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// The stripes of one file that are being written, and those that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: Vec<Wanted>,
    /// In the order in which they came. Nobody goes past one that wants the same stripes.
    queue: Vec<(u64, Wanted)>,
    /// Number of the next place in the queue.
    next: u64,
}

/// Some stripes of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    segment: usize,
    range: Range<u64>,
}

/// Held stripes, released on drop.
#[derive(Debug)]
pub(crate) struct HeldStripes<'a> {
    stripes: &'a Stripes,
    held: Wanted,
}

/// A place in the queue, left on drop.
pub(crate) struct Ticket<'a> {
    stripes: &'a Stripes,
    segment: usize,
    number: u64,
}

impl Wanted {
    fn meets(&self, other: &Wanted) -> bool {
        self.segment == other.segment
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl State {
    /// Holds the stripes for the place with this number, all or none.
    fn hold(&mut self, number: u64, wanted: &Wanted) -> bool {
        let mut before = self.queue.iter().take_while(|(other, _)| *other < number);
        let is_free = !self.held.iter().any(|held| held.meets(wanted))
            && !before.any(|(_, earlier)| earlier.meets(wanted));
        if is_free {
            self.held.push(wanted.clone());
        }
        is_free
    }
}

impl Stripes {
    /// Waits until none of these stripes of the segment is held, then holds all of them: all or none, so that
    /// two callers that want the same stripes cannot deadlock. Who came first is first.
    pub(crate) async fn hold(&self, segment: usize, range: Range<u64>) -> HeldStripes<'_> {
        let mut ticket = self.queue(segment);
        loop {
            // Registered before the check, so that a release in between is not missed.
            let freed = self.freed();
            if let Some(held) = ticket.hold_now(range.clone()) {
                return held;
            }
            freed.await;
        }
    }

    /// Holds these stripes of the segment, all or none; `None` if one of them is held or waited for.
    pub(crate) fn hold_now(&self, segment: usize, range: Range<u64>) -> Option<HeldStripes<'_>> {
        let held = Wanted { segment, range };
        self.lock().hold(u64::MAX, &held).then(|| HeldStripes { stripes: self, held })
    }

    /// The last place in the queue.
    pub(crate) fn queue(&self, segment: usize) -> Ticket<'_> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.queue.push((number, Wanted { segment, range: 0..0 }));
        Ticket { stripes: self, segment, number }
    }

    /// Ends when stripes are released, or a place in the queue is left, after this call.
    pub(crate) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl<'a> Ticket<'a> {
    /// Holds these stripes, if none of them is held or wanted by an earlier place. Otherwise they are what
    /// this place wants from now on.
    pub(crate) fn hold_now(&mut self, range: Range<u64>) -> Option<HeldStripes<'a>> {
        let held = Wanted { segment: self.segment, range };
        let mut state = self.stripes.lock();
        if state.hold(self.number, &held) {
            return Some(HeldStripes { stripes: self.stripes, held });
        }
        if let Some((_, wanted)) = state.queue.iter_mut().find(|(number, _)| *number == self.number) {
            *wanted = held;
        }
        None
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.stripes.lock().queue.retain(|(number, _)| *number != self.number);
        self.stripes.freed.notify_waiters();
    }
}

impl Drop for HeldStripes<'_> {
    fn drop(&mut self) {
        let mut state = self.stripes.lock();
        if let Some(index) = state.held.iter().position(|held| *held == self.held) {
            state.held.swap_remove(index);
        }
        drop(state);
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
        assert!(stripes.hold_now(0, 2..4).is_none());
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

    #[tokio::test]
    async fn nobody_goes_past_one_who_waits_for_the_same_stripes() {
        let stripes = Stripes::default();
        let first = stripes.hold(0, 0..1).await;
        let mut second = stripes.queue(0);
        assert!(second.hold_now(0..3).is_none());
        drop(first);
        assert!(stripes.hold_now(0, 2..4).is_none(), "the second one wants them too");
        assert!(stripes.hold_now(0, 3..4).is_some() && stripes.hold_now(1, 0..1).is_some());
        let mut third = stripes.queue(0);
        assert!(third.hold_now(1..2).is_none());
        let held = second.hold_now(0..3).expect("it is its turn");
        drop(second);
        assert!(third.hold_now(1..2).is_none());
        drop(held);
        assert!(third.hold_now(1..2).is_some());
        assert!(stripes.hold_now(0, 1..2).is_none());
        // One that gives up is in nobody's way.
        drop(third);
        assert!(stripes.hold_now(0, 1..2).is_some());
    }
}
