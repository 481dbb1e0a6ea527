//! A server of some lanes with one queue: a processor, a link's port, a disk's transfers. It serves first
//! come, first served; reserved jobs go before others, and no job is interrupted.

use std::collections::VecDeque;

use super::usage::Usage;
use crate::number::narrow;

/// Priority of a job: reserved ones are served before the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Reserved,
    Rest,
}

impl Class {
    pub(crate) fn index(self) -> usize {
        match self {
            Class::Reserved => 0,
            Class::Rest => 1,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Server<J> {
    lanes: u32,
    busy: u32,
    waiting: [VecDeque<(J, u64)>; 2],
    pub(crate) usage: Usage,
}

impl<J> Server<J> {
    pub(crate) fn new(lanes: u32) -> Server<J> {
        Server { lanes, busy: 0, waiting: [VecDeque::new(), VecDeque::new()], usage: Usage::default() }
    }

    /// Hands in a job of `service` nanoseconds. Returns the job if it starts now; [`Server::end`] must be
    /// called when it ends.
    pub(crate) fn begin(&mut self, now: u64, job: J, service: u64, class: Class) -> Option<(J, u64)> {
        if self.busy < self.lanes {
            self.busy += 1;
            self.usage.served += 1;
            self.note(now);
            return Some((job, service));
        }
        self.waiting[class.index()].push_back((job, service));
        self.note(now);
        None
    }

    /// A job has ended. Returns the next job, which starts now, with its time.
    pub(crate) fn end(&mut self, now: u64) -> Option<(J, u64)> {
        let next = self.waiting.iter_mut().find_map(VecDeque::pop_front);
        match next {
            Some(_) => self.usage.served += 1,
            None => self.busy -= 1,
        }
        self.note(now);
        next
    }

    /// Returns true if a job would start at once.
    pub(crate) fn is_free(&self) -> bool {
        self.busy < self.lanes
    }

    /// Number of jobs that wait.
    pub(crate) fn waiting(&self) -> u32 {
        narrow(self.waiting.iter().map(VecDeque::len).sum())
    }

    /// Number of jobs that are served at the same time.
    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    fn note(&mut self, now: u64) {
        self.usage.note(now, self.busy, self.waiting());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_in_order_and_reserved_ones_come_first() {
        let mut server = Server::new(1);
        assert_eq!(server.begin(0, 'a', 10, Class::Rest), Some(('a', 10)));
        assert_eq!(server.begin(1, 'b', 10, Class::Rest), None);
        assert_eq!(server.begin(2, 'c', 10, Class::Rest), None);
        assert_eq!(server.begin(3, 'r', 5, Class::Reserved), None);
        assert_eq!((server.waiting(), server.is_free()), (3, false));
        let order: Vec<char> =
            [10, 15, 25].iter().map(|&now| server.end(now).expect("one waits").0).collect();
        assert_eq!(order, ['r', 'b', 'c']);
        assert_eq!((server.end(35), server.is_free()), (None, true));
        assert_eq!(server.usage.utilisation(40, 1), 35.0 / 40.0);
    }

    #[test]
    fn lanes_serve_at_once() {
        let mut server = Server::new(2);
        assert!(server.begin(0, 1, 10, Class::Rest).is_some());
        assert!(server.begin(0, 2, 10, Class::Rest).is_some());
        assert!(server.begin(0, 3, 10, Class::Rest).is_none());
    }
}
