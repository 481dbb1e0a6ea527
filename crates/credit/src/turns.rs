//! Requests that are on their way and those that wait, and which of these is next. Callers take turns.

use std::collections::{BTreeMap, VecDeque};

use crate::WAIT_MAX_NS;

/// Number of a caller's oldest requests among which the next is looked for.
const LOOKED_AT_MAX: usize = 64;

/// The number of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Requests on their way and waiting.
#[derive(Debug, Default)]
pub struct Turns {
    next: u64,
    /// On their way, in the order in which they went.
    flying: BTreeMap<Ticket, Flying>,
    /// Bytes on their way that count, of all and by drive.
    flying_bytes: u64,
    by_drive: BTreeMap<u128, u64>,
    /// By caller: what waits. Callers are in the order of their turns.
    waiting: VecDeque<(u64, VecDeque<Waiting>)>,
    waiting_count: usize,
}

#[derive(Debug)]
struct Flying {
    drive: u128,
    bytes: u64,
    since: u64,
    counts: bool,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    drive: u128,
    bytes: u64,
    since: u64,
}

impl Turns {
    /// A request goes now.
    pub fn go(&mut self, now: u64, drive: u128, bytes: u64) -> Ticket {
        let ticket = self.ticket();
        self.fly(now, ticket, drive, bytes);
        ticket
    }

    /// A caller's request waits for its turn.
    pub fn wait(&mut self, now: u64, caller: u64, drive: u128, bytes: u64) -> Ticket {
        let ticket = self.ticket();
        let waiting = Waiting { ticket, drive, bytes, since: now };
        self.waiting_count += 1;
        match self.waiting.iter_mut().find(|(of, _)| *of == caller) {
            Some((_, queue)) => queue.push_back(waiting),
            None => self.waiting.push_back((caller, VecDeque::from([waiting]))),
        }
        ticket
    }

    /// The next request that goes now, if at most `window` bytes may be on their way (`None` for no bound),
    /// and what went more than `away` before no longer counts.
    pub fn next(&mut self, now: u64, window: Option<u64>, away: u64) -> Option<Ticket> {
        self.write_off(now, away);
        let front = self.waiting.front()?;
        let caller = front.0;
        let on_way = |waiting: &Waiting| self.by_drive.get(&waiting.drive).copied().unwrap_or(0);
        let overdue = |waiting: &Waiting| now.saturating_sub(waiting.since) >= WAIT_MAX_NS;
        let late = self.waiting.iter().enumerate().find(|(_, (_, queue))| queue.front().is_some_and(overdue));
        if let Some((index, _)) = late {
            return Some(self.take(now, index, 0));
        }
        // The oldest of those with the least before them.
        let looked_at = front.1.iter().enumerate().take(LOOKED_AT_MAX);
        let first = looked_at.min_by_key(|(_, waiting)| on_way(waiting))?;
        let fits = window.is_none_or(|window| self.flying_bytes.saturating_add(first.1.bytes) <= window);
        if !fits && self.flying_bytes > 0 {
            return None;
        }
        let ticket = self.take(now, 0, first.0);
        // The caller is last among those that wait.
        if self.waiting.front().is_some_and(|(first, _)| *first == caller) {
            self.waiting.rotate_left(1);
        }
        Some(ticket)
    }

    /// A request has ended: its answer is there, it failed, or nobody waits for it any more.
    pub fn end(&mut self, ticket: Ticket) {
        if let Some(ended) = self.flying.remove(&ticket) {
            if ended.counts {
                self.uncount(ended.drive, ended.bytes);
            }
            return;
        }
        for (_, queue) in &mut self.waiting {
            if let Some(at) = queue.iter().position(|waiting| waiting.ticket == ticket) {
                queue.remove(at);
                self.waiting_count -= 1;
                break;
            }
        }
        self.waiting.retain(|(_, queue)| !queue.is_empty());
    }

    /// Bytes on their way.
    pub fn flying_bytes(&self) -> u64 {
        self.flying_bytes
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting_count
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    fn fly(&mut self, now: u64, ticket: Ticket, drive: u128, bytes: u64) {
        self.flying.insert(ticket, Flying { drive, bytes, since: now, counts: true });
        self.flying_bytes = self.flying_bytes.saturating_add(bytes);
        let of_drive = self.by_drive.entry(drive).or_default();
        *of_drive = of_drive.saturating_add(bytes);
    }

    fn take(&mut self, now: u64, caller: usize, at: usize) -> Ticket {
        let queue = &mut self.waiting[caller].1;
        let Waiting { ticket, drive, bytes, .. } = queue.remove(at).expect("it waits there");
        if queue.is_empty() {
            self.waiting.remove(caller);
        }
        self.waiting_count -= 1;
        self.fly(now, ticket, drive, bytes);
        ticket
    }

    fn uncount(&mut self, drive: u128, bytes: u64) {
        self.flying_bytes = self.flying_bytes.saturating_sub(bytes);
        if let Some(of_drive) = self.by_drive.get_mut(&drive) {
            *of_drive = of_drive.saturating_sub(bytes);
            if *of_drive == 0 {
                self.by_drive.remove(&drive);
            }
        }
    }

    /// Requests whose answers should have come long ago give their credit back.
    fn write_off(&mut self, now: u64, away: u64) {
        let is_gone = |flying: &Flying| flying.counts && now.saturating_sub(flying.since) >= away;
        let gone: Vec<Ticket> =
            self.flying.iter().filter(|(_, flying)| is_gone(flying)).map(|(&ticket, _)| ticket).collect();
        for ticket in gone {
            let Some(flying) = self.flying.get_mut(&ticket) else { continue };
            flying.counts = false;
            let bytes = flying.bytes;
            let drive = flying.drive;
            self.uncount(drive, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AWAY_NS;

    fn waits(turns: &mut Turns, asks: &[(u64, u128, u64)]) -> Vec<Ticket> {
        asks.iter().map(|&(caller, drive, bytes)| turns.wait(0, caller, drive, bytes)).collect()
    }

    #[test]
    fn callers_take_turns() {
        let mut turns = Turns::default();
        let tickets = waits(&mut turns, &[(1, 1, 10), (1, 2, 10), (1, 3, 10), (2, 4, 10), (2, 5, 10)]);
        let went: Vec<Ticket> = std::iter::from_fn(|| turns.next(0, None, AWAY_NS)).collect();
        assert_eq!(went, [0, 3, 1, 4, 2].map(|at| tickets[at]));
        assert_eq!((turns.waiting(), turns.flying_bytes()), (0, 50));
    }

    #[test]
    fn drives_with_the_least_on_their_way_come_first() {
        let mut turns = Turns::default();
        turns.go(0, 1, 10);
        let tickets = waits(&mut turns, &[(1, 1, 10), (1, 2, 10)]);
        assert_eq!(turns.next(0, Some(30), AWAY_NS), Some(tickets[1]));
        assert_eq!(turns.next(0, Some(30), AWAY_NS), Some(tickets[0]));
    }

    #[test]
    fn what_is_larger_than_the_window_goes_alone() {
        let mut turns = Turns::default();
        let tickets = waits(&mut turns, &[(1, 1, 100), (1, 2, 1)]);
        assert_eq!(turns.next(0, Some(10), AWAY_NS), Some(tickets[0]));
        assert_eq!(turns.next(0, Some(10), AWAY_NS), None);
        turns.end(tickets[0]);
        assert_eq!(turns.next(0, Some(10), AWAY_NS), Some(tickets[1]));
    }

    #[test]
    fn a_lost_drive_gives_its_credit_back_and_no_wait_is_for_ever() {
        let mut turns = Turns::default();
        turns.go(0, 1, 100);
        let tickets = waits(&mut turns, &[(1, 2, 60), (2, 3, 60)]);
        assert_eq!(turns.next(AWAY_NS - 1, Some(100), AWAY_NS), None);
        assert_eq!(turns.next(AWAY_NS, Some(100), AWAY_NS), Some(tickets[0]));
        assert_eq!(turns.next(AWAY_NS, Some(100), AWAY_NS), None, "one is on its way");
        assert_eq!(
            turns.next(WAIT_MAX_NS, Some(100), AWAY_NS),
            Some(tickets[1]),
            "it has waited long enough"
        );
        assert_eq!(turns.next(WAIT_MAX_NS, Some(100), AWAY_NS), None);
    }

    #[test]
    fn what_waits_can_be_given_up() {
        let mut turns = Turns::default();
        let tickets = waits(&mut turns, &[(1, 1, 10), (2, 2, 10)]);
        turns.end(tickets[0]);
        turns.end(tickets[0]);
        assert_eq!((turns.next(0, None, AWAY_NS), turns.next(0, None, AWAY_NS)), (Some(tickets[1]), None));
    }
}
