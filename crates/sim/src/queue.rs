//! The queue of events, in the order of their times; events of one time come in the order in which they
//! were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by time, in nanoseconds.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    added: u64,
}

/// An event. The order is total, so a run is the same on every machine.
#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Ord for Entry<E> {
    /// Orders the earliest event as the greatest, since the heap hands out the greatest.
    fn cmp(&self, other: &Entry<E>) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Entry<E>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Entry<E>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E: Copy> EventQueue<E> {
    pub(crate) fn new() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), added: 0 }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, at: u64, event: E) {
        self.heap.push(Entry { at, number: self.added, event });
        self.added += 1;
    }

    /// Takes the next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|first| (first.at, first.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Source, Stream};

    #[test]
    fn events_come_by_time_and_then_in_order() {
        let mut stream = Stream::new(3, Source::Arrivals(9));
        let mut queue = EventQueue::new();
        let mut expected = Vec::new();
        for number in 0..2000_u64 {
            let at = stream.below(100);
            queue.push(at, number);
            expected.push((at, number));
            if number % 3 == 0 {
                // The earliest event, as a sorted list has it.
                expected.sort_unstable();
                assert_eq!(queue.pop(), Some(expected.remove(0)));
            }
        }
        expected.sort_unstable();
        for entry in expected {
            assert_eq!(queue.pop(), Some(entry));
        }
        assert_eq!(queue.pop(), None);
    }
}
