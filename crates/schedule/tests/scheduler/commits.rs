//! Writes wait for a commit of the log, which makes one at a time, beside reads.

use crate::device::{Arrival, MB, MS, SECOND, best_effort, promise, reserved};
use braid_schedule::{
    Charge, Config, DeviceCost, Direction, DirectionCost, Flow, Next, Promise, Request, Scheduler, Ticket,
};
use std::collections::VecDeque;

const UNIT: u64 = MB;

fn flash() -> DeviceCost {
    let way = DirectionCost { operation_ns: MS / 2, bytes_per_second: 40 * MB };
    DeviceCost { charge: Charge::Larger, read: way, write: way, sync_ns: MS }
}

fn spindle() -> DeviceCost {
    let way = DirectionCost { operation_ns: 8 * MS, bytes_per_second: 60 * MB };
    DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 4 * MS }
}

/// A device that does one thing after another, under a log that commits all that waits together.
struct Logged {
    cost: DeviceCost,
    scheduler: Scheduler<usize>,
    busy_until: u64,
    reads: VecDeque<(u64, usize, Ticket)>,
    gathered: Vec<(usize, Ticket)>,
    commit: Option<(u64, Vec<(usize, Ticket)>)>,
    done: Vec<Option<u64>>,
}

impl Logged {
    fn price(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Read => self.cost.time_ns(direction, UNIT),
            Direction::Write => self.cost.append_ns(UNIT),
        }
    }

    fn take(&mut self, now: u64, cost_ns: u64) -> u64 {
        self.busy_until = self.busy_until.max(now) + cost_ns;
        self.busy_until
    }

    /// Gives out what may go, and begins a commit if none is under way.
    fn turn(&mut self, now: u64, arrivals: &[Arrival]) {
        while let Next::Go { item, ticket } = self.scheduler.next(now) {
            let direction = arrivals[item].direction;
            match direction {
                Direction::Read => {
                    let at = self.take(now, self.price(direction));
                    self.reads.push_back((at, item, ticket));
                }
                Direction::Write => self.gathered.push((item, ticket)),
            }
        }
        if self.commit.is_none() && !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            for _ in &gathered {
                self.take(now, self.price(Direction::Write));
            }
            let at = self.take(now, self.cost.commit_ns());
            self.commit = Some((at, gathered));
        }
    }

    fn finish(&mut self, now: u64, item: usize, ticket: Ticket) {
        self.done[item] = Some(now);
        self.scheduler.done(ticket, now, None);
    }

    /// Ends what is done by now.
    fn end(&mut self, now: u64) {
        while let Some((at, item, ticket)) = self.reads.pop_front() {
            if at > now {
                self.reads.push_front((at, item, ticket));
                break;
            }
            self.finish(now, item, ticket);
        }
        if let Some((at, gathered)) = self.commit.take() {
            if at > now {
                self.commit = Some((at, gathered));
            } else {
                gathered.into_iter().for_each(|(item, ticket)| self.finish(now, item, ticket));
            }
        }
    }

    /// Time of the next event at the device.
    fn next_end(&self) -> Option<u64> {
        let read = self.reads.front().map(|(at, ..)| *at);
        let commit = self.commit.as_ref().map(|(at, _)| *at);
        read.into_iter().chain(commit).min()
    }

    fn run(&mut self, arrivals: &[Arrival]) {
        self.done = vec![None; arrivals.len()];
        let mut come = 0;
        loop {
            let arrives = arrivals.get(come).map(|arrival| arrival.at);
            let Some(now) = arrives.into_iter().chain(self.next_end()).min() else { break };
            while let Some(arrival) = arrivals.get(come)
                && arrival.at <= now
            {
                let Arrival { flow, direction, bytes, .. } = *arrival;
                let cost_ns = self.price(direction);
                let request = Request { flow, direction, bytes, cost_ns, item: come };
                assert!(self.scheduler.submit(now, request).is_ok());
                come += 1;
            }
            self.end(now);
            self.turn(now, arrivals);
        }
    }
}

/// Requests that come evenly, for three seconds.
fn evenly(flow: Flow, direction: Direction, rate: u64) -> impl Iterator<Item = Arrival> {
    let spacing = UNIT * SECOND / rate;
    (0..3 * SECOND / spacing).map(move |number| Arrival {
        at: number * spacing,
        flow,
        direction,
        bytes: UNIT,
    })
}

/// Three seconds of a promised reader and a promised writer, which have booked 0.6 of the device, beside far
/// more than fits. Returns the worst lateness of each.
fn worst(cost: DeviceCost, others: &[Direction]) -> [u64; 2] {
    let config = Config::for_device(&cost);
    let mut device = Logged {
        cost,
        scheduler: Scheduler::new(config),
        busy_until: 0,
        reads: VecDeque::new(),
        gathered: Vec::new(),
        commit: None,
        done: Vec::new(),
    };
    let both = [Direction::Read, Direction::Write];
    let rate = |direction| 3 * UNIT * SECOND / device.price(direction) / 10;
    let rates = both.map(rate);
    let flow = |way: Direction| {
        let direction = both[way as usize];
        let operation_ns = device.price(direction);
        let of =
            Promise { direction, operation_bytes: UNIT, operation_ns, ..promise(rates[way as usize], 0) };
        reserved(way as u64, of)
    };
    let flows = both.map(flow);
    let mut arrivals: Vec<Arrival> = Vec::new();
    for direction in both {
        arrivals.extend(evenly(flows[direction as usize], direction, rates[direction as usize]));
    }
    for (client, direction) in (0..).zip(others) {
        arrivals.extend(evenly(best_effort(1, client), *direction, 60 * MB));
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    device.run(&arrivals);
    both.map(|direction| {
        let mut due = 0;
        let mut worst = 0;
        for (arrival, done) in arrivals.iter().zip(&device.done) {
            if arrival.flow == flows[direction as usize] {
                due = arrival.at.max(due) + UNIT * SECOND / rates[direction as usize];
                worst = done.expect("all is done").saturating_sub(due).max(worst);
            }
        }
        worst
    })
}

#[test]
fn promised_writes_are_answered_within_their_bound_and_reads_within_theirs() {
    use Direction::{Read, Write};
    for cost in [flash(), spindle()] {
        let config = Config::for_device(&cost);
        for others in [&[Write][..], &[Write, Write], &[Read, Write], &[Read], &[Read, Write, Write, Read]] {
            let [reads, writes] = worst(cost, others);
            assert!(reads <= config.kept_within_ns(Read), "{others:?}: reads {reads}, {config:?}");
            assert!(writes <= config.kept_within_ns(Write), "{others:?}: writes {writes}, {config:?}");
        }
    }
}
