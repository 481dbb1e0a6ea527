//! Finds areas of the log that are worth a sweep: a machine without files, threads or clocks.
//!
//! Small objects of one cluster lie side by side in the log, and are read together. So a second read in an
//! area begins a sweep of all of it, and waits for that, as do the reads after it. A sweep takes no longer
//! than a few reads one by one. Reads that come to an area once only, as those at random places of a large
//! cluster do, cost nothing more.

use std::collections::VecDeque;

use braid_store::Area;

use crate::readahead::streams::{ChunkId, Place, Queue};

/// Areas that are remembered at most.
const AREAS_MAX: usize = 256;
/// Time after which an area that is not read is forgotten, in nanoseconds.
const IDLE_NS: u64 = 10_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was read once.
    Met,
    Coming(ChunkId),
    /// It was read as a whole.
    Swept,
}

#[derive(Debug)]
struct Known {
    area: Area,
    state: State,
    used_ns: u64,
}

/// The areas of one drive that were read lately.
#[derive(Debug)]
pub(super) struct Areas {
    /// Bytes of all areas that are remembered, at most; 0: none are.
    bytes_max: u64,
    /// The one that was read last is the last.
    known: VecDeque<Known>,
    sweeps: u64,
}

impl Areas {
    pub(super) fn new(bytes_max: u64) -> Areas {
        Areas { bytes_max, known: VecDeque::new(), sweeps: 0 }
    }

    /// A read of a small object in `area` has come. Returns the place of its bytes, and the chunk if the area
    /// is to be swept now.
    pub(super) fn handle_read(&mut self, now_ns: u64, area: Area, queue: Queue) -> (Place, Option<ChunkId>) {
        if self.bytes_max == 0 {
            return (Place::Disk, None);
        }
        let is_there = |known: &Known| known.area == area;
        let before = self.known.iter().position(is_there).and_then(|at| self.known.remove(at));
        let before = before.filter(|known| {
            now_ns.saturating_sub(known.used_ns) < IDLE_NS || matches!(known.state, State::Coming(_))
        });
        let (state, place, sweep) = match before.map(|known| known.state) {
            None => (State::Met, Place::Disk, None),
            // A read that has a better turn of its own does not wait for best effort.
            Some(state @ (State::Met | State::Coming(_))) if queue == Queue::Other => {
                (state, Place::Disk, None)
            }
            Some(State::Met) => {
                self.sweeps += 1;
                let chunk = ChunkId::of_area(self.sweeps);
                (State::Coming(chunk), Place::Coming(chunk), Some(chunk))
            }
            Some(state @ State::Coming(chunk)) => (state, Place::Coming(chunk), None),
            Some(State::Swept) => (State::Swept, Place::Memory, None),
        };
        self.known.push_back(Known { area, state, used_ns: now_ns });
        let most =
            usize::try_from(self.bytes_max / area.bytes.max(1)).unwrap_or(AREAS_MAX).clamp(1, AREAS_MAX);
        while self.known.len() > most {
            self.known.pop_front();
        }
        (place, sweep)
    }

    /// A sweep has ended.
    pub(super) fn handle_end(&mut self, chunk: ChunkId) {
        for known in self.known.iter_mut().filter(|known| known.state == State::Coming(chunk)) {
            known.state = State::Swept;
        }
    }

    /// A sweep was not done: the area is met anew.
    pub(super) fn handle_failed(&mut self, chunk: ChunkId) {
        self.known.retain(|known| known.state != State::Coming(chunk));
    }

    /// Returns true if the sweep is under way.
    pub(super) fn is_coming(&self, chunk: ChunkId) -> bool {
        self.known.iter().any(|known| known.state == State::Coming(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    fn area(number: u64) -> Area {
        Area { segment: 1, number, bytes: BYTES }
    }

    #[test]
    fn the_second_read_of_an_area_sweeps_it_and_later_ones_find_it_in_memory() {
        let mut areas = Areas::new(64 << 20);
        let read = |areas: &mut Areas, number| areas.handle_read(0, area(number), Queue::Same);
        assert_eq!(read(&mut areas, 1), (Place::Disk, None));
        assert_eq!(read(&mut areas, 2), (Place::Disk, None), "another one");
        let (place, Some(chunk)) = read(&mut areas, 1) else { panic!("no sweep") };
        assert_eq!(place, Place::Coming(chunk));
        assert!(areas.is_coming(chunk));
        assert_eq!(read(&mut areas, 1), (Place::Coming(chunk), None), "once");
        areas.handle_end(chunk);
        assert!(!areas.is_coming(chunk));
        assert_eq!(read(&mut areas, 1), (Place::Memory, None));
        assert!(matches!(read(&mut areas, 2), (Place::Coming(_), Some(other)) if other != chunk));
    }

    #[test]
    fn a_sweep_that_was_not_done_is_forgotten() {
        let mut areas = Areas::new(64 << 20);
        let read = |areas: &mut Areas| areas.handle_read(0, area(1), Queue::Same);
        read(&mut areas);
        let (_, Some(chunk)) = read(&mut areas) else { panic!("no sweep") };
        areas.handle_failed(chunk);
        assert!(!areas.is_coming(chunk));
        assert_eq!(read(&mut areas), (Place::Disk, None));
    }

    #[test]
    fn reads_that_were_promised_wait_for_no_sweep() {
        let mut areas = Areas::new(64 << 20);
        for _ in 0..3 {
            assert_eq!(areas.handle_read(0, area(1), Queue::Other), (Place::Disk, None));
        }
    }

    #[test]
    fn areas_are_forgotten_after_a_while_and_beyond_the_bytes_that_may_be_ahead() {
        let mut areas = Areas::new(4 * BYTES);
        let read = |areas: &mut Areas, now_ns, number| areas.handle_read(now_ns, area(number), Queue::Same);
        read(&mut areas, 0, 1);
        assert_eq!(read(&mut areas, 11 * SECOND, 1), (Place::Disk, None), "too long ago");
        for number in 2..6 {
            read(&mut areas, 11 * SECOND, number);
        }
        assert_eq!(read(&mut areas, 11 * SECOND, 1), (Place::Disk, None), "too many since");
        assert!(matches!(read(&mut areas, 11 * SECOND, 5), (Place::Coming(_), Some(_))));
        assert_eq!(areas.known.len(), 4);
    }
}
