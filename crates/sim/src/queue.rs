//! The events to come, in the order of their time; those of one time in the order in which they were added.
//!
//! A binary heap of one vector. The order is total, so a run is the same on every machine.

/// Events by time in nanoseconds.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    heap: Vec<Entry<E>>,
    added: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn before(&self, other: &Entry<E>) -> bool {
        (self.at, self.number) < (other.at, other.number)
    }
}

impl<E: Copy> EventQueue<E> {
    pub(crate) fn new() -> EventQueue<E> {
        EventQueue { heap: Vec::new(), added: 0 }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, at: u64, event: E) {
        let entry = Entry { at, number: self.added, event };
        self.added += 1;
        let mut hole = self.heap.len();
        self.heap.push(entry);
        while hole > 0 {
            let parent = (hole - 1) / 2;
            if !entry.before(&self.heap[parent]) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }

    /// Takes the next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        let length = self.heap.len();
        if length > 0 {
            let mut hole = 0;
            loop {
                let mut child = 2 * hole + 1;
                if child >= length {
                    break;
                }
                if child + 1 < length && self.heap[child + 1].before(&self.heap[child]) {
                    child += 1;
                }
                if !self.heap[child].before(&last) {
                    break;
                }
                self.heap[hole] = self.heap[child];
                hole = child;
            }
            self.heap[hole] = last;
        }
        Some((first.at, first.event))
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
                // The earliest of those there are, as a sorted list has it.
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
