//! Writes wait for a commit of the log, which makes one at a time, beside reads.

use crate::device::{Arrival, MB, MS, SECOND, best_effort, promise, reserved};
use braid_schedule::{
    Charge, Config, DeviceCost, Direction, DirectionCost, Flow, Next, Promise, Request, Scheduler, Ticket,
};
use std::collections::VecDeque;

use Direction::{Read, Write};

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
    fn price(&self, direction: Direction, bytes: u64) -> u64 {
        match direction {
            Read => self.cost.time_ns(direction, bytes),
            Write => self.cost.append_ns(bytes),
        }
    }

    fn take(&mut self, now: u64, cost_ns: u64) -> u64 {
        self.busy_until = self.busy_until.max(now) + cost_ns;
        self.busy_until
    }

    /// Gives out what may go, and begins a commit if none is under way.
    fn turn(&mut self, now: u64, arrivals: &[Arrival]) {
        while let Next::Go { item, ticket } = self.scheduler.next(now) {
            let Arrival { direction, bytes, .. } = arrivals[item];
            match direction {
                Read => {
                    let at = self.take(now, self.price(direction, bytes));
                    self.reads.push_back((at, item, ticket));
                }
                Write => self.gathered.push((item, ticket)),
            }
        }
        if self.commit.is_none() && !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            for (item, _) in &gathered {
                self.take(now, self.price(Write, arrivals[*item].bytes));
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
                let cost_ns = self.price(direction, bytes);
                let request = Request { flow, direction, bytes, cost_ns, item: come };
                assert!(self.scheduler.submit(now, request).is_ok());
                come += 1;
            }
            self.end(now);
            self.turn(now, arrivals);
        }
    }
}

/// Promised work: one reader and one writer.
#[derive(Clone, Copy)]
struct Promised {
    /// Bytes of an operation.
    bytes: u64,
    /// Share of the device of each, in hundredths.
    shares: [u64; 2],
    /// Time at which each begins.
    begins: [u64; 2],
}

/// Requests that come evenly, for this long.
fn evenly(
    flow: Flow,
    direction: Direction,
    rate: u64,
    bytes: u64,
    time: u64,
) -> impl Iterator<Item = Arrival> {
    let spacing = bytes * SECOND / rate;
    (0..time / spacing).map(move |number| Arrival { at: number * spacing, flow, direction, bytes })
}

/// The promised work, for as long as three seconds are for operations of a unit, beside far more than fits.
/// Returns the worst lateness of each.
fn worst(cost: DeviceCost, promised: Promised, others: &[Direction]) -> [u64; 2] {
    let config = Config::for_device(&cost);
    let time = 3 * SECOND * (promised.bytes / UNIT);
    let promised_bytes = promised.bytes;
    let mut device = Logged {
        cost,
        scheduler: Scheduler::new(config),
        busy_until: 0,
        reads: VecDeque::new(),
        gathered: Vec::new(),
        commit: None,
        done: Vec::new(),
    };
    let both = [Read, Write];
    let rate = |direction: Direction| {
        let share = promised.shares[direction as usize];
        share * promised_bytes * SECOND / device.price(direction, promised_bytes) / 100
    };
    let rates = both.map(rate);
    let flow = |way: Direction| {
        let direction = both[way as usize];
        let operation_ns = device.price(direction, promised_bytes);
        let of = Promise {
            direction,
            operation_bytes: promised_bytes,
            operation_ns,
            ..promise(rates[way as usize], 0)
        };
        reserved(way as u64, of)
    };
    let flows = both.map(flow);
    let mut arrivals: Vec<Arrival> = Vec::new();
    for direction in both {
        let way = direction as usize;
        let at = promised.begins[way];
        let evenly = evenly(flows[way], direction, rates[way], promised_bytes, time);
        arrivals.extend(evenly.map(|arrival| Arrival { at: arrival.at + at, ..arrival }));
    }
    for (client, direction) in (0..).zip(others) {
        arrivals.extend(evenly(best_effort(1, client), *direction, 60 * MB, UNIT, time));
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    device.run(&arrivals);
    both.map(|direction| {
        let mut due = 0;
        let mut worst = 0;
        for (arrival, done) in arrivals.iter().zip(&device.done) {
            if arrival.flow == flows[direction as usize] {
                due = arrival.at.max(due) + promised_bytes * SECOND / rates[direction as usize];
                worst = done.expect("all is done").saturating_sub(due).max(worst);
            }
        }
        worst
    })
}

/// Directions of those that come beside promises.
const OTHERS: [&[Direction]; 5] =
    [&[Write], &[Write, Write], &[Read, Write], &[Read], &[Read, Write, Write, Read]];

#[test]
fn promised_writes_are_answered_within_their_bound_and_reads_within_theirs() {
    let promised = Promised { bytes: UNIT, shares: [30; 2], begins: [0; 2] };
    for cost in [flash(), spindle()] {
        let config = Config::for_device(&cost);
        for others in OTHERS {
            let [reads, writes] = worst(cost, promised, others);
            assert!(reads <= config.kept_within_ns(Read, 0), "{others:?}: reads {reads}, {config:?}");
            assert!(writes <= config.kept_within_ns(Write, 0), "{others:?}: writes {writes}, {config:?}");
        }
    }
}

#[test]
fn larger_operations_are_kept_within_the_bound_of_their_size() {
    let mut beyond_the_usual = 0;
    for cost in [flash(), spindle()] {
        let config = Config::for_device(&cost);
        for bytes in [2, 8, 32].map(|units| units * UNIT) {
            let times = [cost.time_ns(Read, bytes), cost.append_ns(bytes) + cost.commit_ns()];
            let bounds = [config.kept_within_ns(Read, times[0]), config.kept_within_ns(Write, times[1])];
            // One that is seldom due comes just before one that is due soon, and is done first.
            let spacing = times.map(|time| time * 100 / 60 - MS);
            for (shares, begins) in [([60, 15], [0, spacing[0]]), ([15, 60], [spacing[1], 0])] {
                for others in OTHERS {
                    let worst = worst(cost, Promised { bytes, shares, begins }, others);
                    let is_kept = worst.iter().zip(bounds).all(|(worst, bound)| *worst <= bound);
                    assert!(is_kept, "{bytes}, {shares:?}, {others:?}: {worst:?}, {bounds:?}");
                    let usual = [config.lateness_ns, config.write_lateness_ns];
                    beyond_the_usual +=
                        u64::from(worst.iter().zip(usual).any(|(worst, bound)| *worst > bound));
                }
            }
        }
    }
    assert!(beyond_the_usual > 0, "the bound of usual operations would have done");
}
