//! A simulated device below a scheduler: it works off what it is given in order, each request in a time of
//! its own, and answers some time after.

use braid_schedule::{
    Config, Direction, Figures, Flow, FlowFigures, FlowId, Next, Promise, Request, Scheduler, Ticket,
};
use std::collections::BTreeMap;

pub(crate) const MB: u64 = 1_000_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Device time of a byte: operations of 1 MB take 1 ms.
pub(crate) fn cost_ns(bytes: u64) -> u64 {
    bytes
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    pub(crate) flow: Flow,
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    /// Index of the arrival.
    pub(crate) arrival: usize,
    pub(crate) given: u64,
    pub(crate) done: u64,
}

pub(crate) fn config() -> Config {
    Config { reads_in_flight: 1000, writes_in_flight: 1000, ..Config::new(4 * MS) }
}

pub(crate) fn best_effort(tenant: u64, client: u64) -> Flow {
    Flow::BestEffort { tenant, client }
}

/// A promise of reads, in operations of 1 MB.
pub(crate) fn promise(rate: u64, burst: u64) -> Promise {
    let operation_bytes = 1_000_000;
    let operation_ns = cost_ns(operation_bytes);
    let direction = Direction::Read;
    Promise { direction, rate, burst, operation_bytes, operation_ns, until_ns: u64::MAX }
}

pub(crate) fn reserved(reservation: u64, promise: Promise) -> Flow {
    Flow::Reserved { reservation, tenant: 1000 + reservation, promise }
}

pub(crate) fn read(at: u64, flow: Flow, bytes: u64) -> Arrival {
    Arrival { at, flow, direction: Direction::Read, bytes }
}

/// This many reads of 1 MB at once.
pub(crate) fn flood(at: u64, flow: Flow, count: usize) -> Vec<Arrival> {
    vec![read(at, flow, 1_000_000); count]
}

/// Reads of 1 MB at this rate.
pub(crate) fn steady(from: u64, until: u64, flow: Flow, rate: u64) -> Vec<Arrival> {
    let gap = 1_000_000 * SECOND / rate;
    (0..).map(|i| from + i * gap).take_while(|at| *at < until).map(|at| read(at, flow, 1_000_000)).collect()
}

/// The time that a device takes for a request to work it off, and to answer after.
pub(crate) type Service<'a> = dyn FnMut(&Arrival) -> [u64; 2] + 'a;

/// Runs a scheduler and a device until this time, or until all is done.
///
/// # Panics
/// Panics if the scheduler lets the device idle while work waits that is not limited.
pub(crate) fn run(
    scheduler: &mut Scheduler<usize>,
    arrivals: &mut [Arrival],
    service: &mut Service<'_>,
    end: u64,
) -> Vec<Served> {
    arrivals.sort_by_key(|arrival| arrival.at);
    let mut coming = arrivals.iter().enumerate().peekable();
    let mut running: BTreeMap<[u64; 2], Ticket> = BTreeMap::new();
    let mut given: BTreeMap<[u64; 2], Served> = BTreeMap::new();
    let mut served = Vec::new();
    let mut now = 0;
    let mut free_at = 0;
    let mut number = 0;
    while now < end {
        while let Some((index, arrival)) = coming.next_if(|(_, arrival)| arrival.at <= now) {
            let Arrival { flow, direction, bytes, .. } = *arrival;
            let request = Request { flow, direction, bytes, cost_ns: cost_ns(bytes), item: index };
            scheduler.submit(now, request).unwrap();
        }
        while let Some((key, _)) = running.first_key_value()
            && key[0] <= now
        {
            let first = running.pop_first().unwrap();
            served.push(given.remove(&first.0).unwrap());
            scheduler.done(first.1, now, None);
        }
        let wait = loop {
            match scheduler.next(now) {
                Next::Go { item, ticket } => {
                    let [work, latency] = service(&arrivals[item]);
                    free_at = now.max(free_at) + work;
                    let done = free_at + latency;
                    given.insert([done, number], Served { arrival: item, given: now, done });
                    running.insert([done, number], ticket);
                    number += 1;
                }
                Next::WaitUntil(at) => {
                    assert!(at > now);
                    let limited = |flow: &FlowFigures| matches!(flow.flow, FlowId::Background(_));
                    assert!(scheduler.figures().all(|flow| flow.waiting == 0 || limited(&flow)));
                    break at;
                }
                Next::Full => {
                    assert!(scheduler.in_flight().operations > 0 && scheduler.waiting() > 0);
                    break u64::MAX;
                }
                Next::Empty => {
                    assert_eq!(scheduler.waiting(), 0);
                    break u64::MAX;
                }
            }
        };
        let done = running.first_key_value().map_or(u64::MAX, |(key, _)| key[0]);
        let arrives = coming.peek().map_or(u64::MAX, |(_, arrival)| arrival.at);
        now = wait.min(done).min(arrives);
    }
    served
}

/// A device as fast as it says.
pub(crate) fn exact(arrival: &Arrival) -> [u64; 2] {
    [cost_ns(arrival.bytes), 0]
}

/// Bytes that this flow was served until this time.
pub(crate) fn bytes(
    arrivals: &[Arrival],
    served: &[Served],
    until: u64,
    which: impl Fn(&Flow) -> bool,
) -> u64 {
    let done = served.iter().filter(|served| served.done <= until);
    done.map(|served| &arrivals[served.arrival]).filter(|a| which(&a.flow)).map(|a| a.bytes).sum()
}

pub(crate) fn is_reserved(number: u64) -> impl Fn(&Flow) -> bool {
    move |flow| matches!(flow, Flow::Reserved { reservation, .. } if *reservation == number)
}

pub(crate) fn is_client(number: u64) -> impl Fn(&Flow) -> bool {
    move |flow| matches!(flow, Flow::BestEffort { client, .. } if *client == number)
}

pub(crate) fn figures(scheduler: &Scheduler<usize>, flow: FlowId) -> Figures {
    scheduler.figures().find(|figures| figures.flow == flow).unwrap().figures
}
