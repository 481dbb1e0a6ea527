//! Anything in any order: nothing is lost, nothing is given out twice, and the bounds below hold.

use crate::device::{MB, MS, SECOND, best_effort, config, promise, reserved};
use braid_schedule::{
    Actual, Background, BackgroundRate, Config, Direction, Flow, Next, Promise, Request, Scheduler, Share,
    Ticket,
};
use proptest::prelude::*;

const READS: usize = 5;
const WRITES: usize = 3;
const TIME_NS: u64 = 10 * MS;

#[derive(Debug, Clone)]
enum Step {
    Submit { flow: u64, is_write: bool, bytes: u64, cost_ns: u64 },
    Next,
    Done { place: usize, actual: Option<[u64; 2]> },
    Pass { time_ns: u64 },
    Back { time_ns: u64 },
    Background { kind: usize, rate: u64, limit: u64 },
    Weight { number: u64, weight: u32 },
    End { reservation: u64 },
    Remove { modulus: usize },
    Shares { system: u64, rest: u64 },
}

fn steps() -> impl Strategy<Value = Step> {
    let sizes = prop_oneof![Just(0), 1..4 * MB];
    prop_oneof![
        8 => (0..20u64, any::<bool>(), sizes, 0..6 * MS).prop_map(|(flow, is_write, bytes, cost_ns)| {
            Step::Submit { flow, is_write, bytes, cost_ns }
        }),
        8 => Just(Step::Next),
        6 => (0..8usize, prop::option::of([0..4 * MB, 0..9 * MS])).prop_map(|(place, actual)| {
            Step::Done { place, actual }
        }),
        6 => (0..5 * MS).prop_map(|time_ns| Step::Pass { time_ns }),
        1 => (0..3600 * SECOND).prop_map(|time_ns| Step::Pass { time_ns }),
        1 => (0..SECOND).prop_map(|time_ns| Step::Back { time_ns }),
        1 => (0..5usize, 0..500 * MB, 1..900 * MB).prop_map(|(kind, rate, limit)| {
            Step::Background { kind, rate, limit }
        }),
        1 => (0..4u64, any::<u32>()).prop_map(|(number, weight)| Step::Weight { number, weight }),
        1 => (0..4u64).prop_map(|reservation| Step::End { reservation }),
        1 => (2..9usize).prop_map(|modulus| Step::Remove { modulus }),
        1 => (0..300u64, 0..300u64).prop_map(|(system, rest)| Step::Shares { system, rest }),
    ]
}

/// The flow of this number: all kinds, with promises of several rates, directions and ends.
fn flow_of(number: u64, now: u64) -> Flow {
    let wide = promise(number * 50 * MB, number * MB);
    match number {
        0 => Flow::System,
        1..6 => Flow::Background(Background::ALL[usize::try_from(number - 1).unwrap()]),
        6..14 => best_effort(number % 3, number),
        14..17 => reserved(number % 4, wide),
        17 => reserved(1, Promise { until_ns: now + 10 * MS, ..wide }),
        18 => reserved(2, Promise { direction: Direction::Write, ..wide }),
        _ => reserved(3, Promise { rate: 0, ..wide }),
    }
}

struct Chaos {
    scheduler: Scheduler<usize>,
    now: u64,
    submitted: usize,
    seen: Vec<usize>,
    /// Requests in flight: direction, cost, ticket.
    running: Vec<(Direction, u64, Ticket)>,
    costs: Vec<(Direction, u64)>,
}

impl Chaos {
    fn next(&mut self) -> bool {
        let now = self.now;
        match self.scheduler.next(now) {
            Next::Go { item, ticket } => {
                self.seen.push(item);
                let (direction, cost_ns) = self.costs[item];
                self.running.push((direction, cost_ns, ticket));
                self.check();
                true
            }
            Next::WaitUntil(at) => {
                assert!(at > now);
                false
            }
            Next::Full => {
                assert!(!self.running.is_empty());
                false
            }
            Next::Empty => {
                assert_eq!(self.scheduler.waiting(), 0);
                false
            }
        }
    }

    fn check(&self) {
        let of = |own| self.running.iter().filter(|(direction, _, _)| *direction == own).count();
        assert!(of(Direction::Read) <= READS && of(Direction::Write) <= WRITES);
        let time_ns: u64 = self.running.iter().map(|(_, cost_ns, _)| cost_ns).sum();
        assert!(self.running.len() == 1 || time_ns <= TIME_NS);
        assert_eq!(self.scheduler.in_flight().operations, u64::try_from(self.running.len()).expect("few"));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit { flow, is_write, bytes, cost_ns } => {
                let direction = if is_write { Direction::Write } else { Direction::Read };
                let flow = flow_of(flow, self.now);
                let request = Request { flow, direction, bytes, cost_ns, item: self.submitted };
                self.scheduler.submit(self.now, request).unwrap();
                self.costs.push((direction, cost_ns));
                self.submitted += 1;
            }
            Step::Next => {
                self.next();
            }
            Step::Done { place, actual } => {
                if place < self.running.len() {
                    let (_, _, ticket) = self.running.swap_remove(place);
                    let actual = actual.map(|[bytes, cost_ns]| Actual { bytes, cost_ns });
                    self.scheduler.done(ticket, self.now, actual);
                }
            }
            Step::Pass { time_ns } => self.now += time_ns,
            Step::Back { time_ns } => self.now = self.now.saturating_sub(time_ns),
            Step::Background { kind, rate, limit } => {
                let rates = BackgroundRate { rate, limit, burst: MB, operation_bytes: MB, operation_ns: MS };
                self.scheduler.set_background(self.now, Background::ALL[kind], &rates);
            }
            Step::Weight { number, weight } => {
                let client = Share::Client { tenant: number % 3, client: number + 6 };
                for share in [Share::Tenant(number), Share::Reservation(number), client, Share::Background] {
                    self.scheduler.set_weight(share, weight);
                }
            }
            Step::End { reservation } => self.scheduler.end(self.now, reservation),
            Step::Remove { modulus } => {
                let removed = self.scheduler.remove(self.now, |_, item| item % modulus == 0);
                self.seen.extend(removed);
            }
            Step::Shares { system, rest } => {
                let config = *self.scheduler.config();
                self.scheduler.set_config(Config { system_permille: system, rest_permille: rest, ..config });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_is_lost_or_given_out_twice(steps in prop::collection::vec(steps(), 1..400)) {
        let bounds = Config {
            reads_in_flight: READS, writes_in_flight: WRITES, time_in_flight_ns: TIME_NS, ..config()
        };
        let mut chaos = Chaos {
            scheduler: Scheduler::new(bounds),
            now: SECOND,
            submitted: 0,
            seen: Vec::new(),
            running: Vec::new(),
            costs: Vec::new(),
        };
        for step in steps {
            chaos.step(step);
        }
        // All goes in the end, within a time that the slowest limit allows.
        for _ in 0..10_000 {
            while chaos.next() {}
            if chaos.running.is_empty() && chaos.scheduler.waiting() == 0 {
                break;
            }
            chaos.step(Step::Done { place: 0, actual: None });
            chaos.step(Step::Pass { time_ns: 100 * SECOND });
        }
        prop_assert!(chaos.scheduler.figures().all(|flow| flow.waiting == 0 && flow.in_flight == 0));
        chaos.seen.sort_unstable();
        prop_assert_eq!(chaos.seen, (0..chaos.submitted).collect::<Vec<_>>());
    }
}
