//! mClock's properties, on random work: promises are met within the bound, limits hold, the rest is by
//! weight, and the tags are those of a model that computes them from the whole history each time.

use crate::device::{
    Arrival, MB, MS, SECOND, Served, best_effort, config, exact, flood, promise, read, reserved, run,
};
use braid_schedule::{
    Background, BackgroundRate, Config, Direction, Flow, FlowId, Load, Next, Phase, Promise, Request,
    Scheduler, Share, lateness_bound,
};
use proptest::prelude::*;

/// Random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

const SMALLEST: u64 = 64_000;
const LARGEST: u64 = 2 * MB;

/// Requests of a flow for a second: paced, in bursts, or far more than its rate.
fn work(random: &mut Random, flow: Flow, rate: u64) -> Vec<Arrival> {
    let kind = random.below(4);
    let mut at = random.below(2) * random.below(100 * MS);
    let mut arrivals = Vec::new();
    while at < SECOND && arrivals.len() < 2000 {
        let together = if kind == 1 { random.from(1, 20) } else { 1 };
        let mut sent = 0;
        for _ in 0..together {
            let bytes = random.from(SMALLEST, LARGEST);
            sent += bytes;
            arrivals.push(read(at, flow, bytes));
        }
        let span = sent * 1000 / (rate / MB).max(1);
        at += match kind {
            0 => span,
            1 => span + random.below(20 * MS),
            2 => random.below(2 * span),
            _ => span / 10,
        };
    }
    arrivals
}

/// The largest lateness of a flow's requests, from their due times in the order of arrival.
fn worst(arrivals: &[Arrival], served: &[Served], flow: Flow, rate: u64) -> u64 {
    let mut done = vec![None; arrivals.len()];
    for served in served {
        done[served.arrival] = Some(served.done);
    }
    let mut due: u64 = 0;
    let mut worst = 0;
    for (arrival, done) in arrivals.iter().zip(done).filter(|(arrival, _)| arrival.flow == flow) {
        let span = u128::from(arrival.bytes) * u128::from(SECOND) / u128::from(rate);
        due = due.max(arrival.at) + u64::try_from(span).unwrap();
        worst = worst.max(done.expect("all is done").saturating_sub(due));
    }
    worst
}

/// Work given out by these, weighed, from one time to another.
fn given(arrivals: &[Arrival], served: &[Served], from: u64, to: u64, which: impl Fn(&Flow) -> bool) -> u64 {
    let within = served.iter().filter(|served| (from..to).contains(&served.given));
    within.map(|served| &arrivals[served.arrival]).filter(|a| which(&a.flow)).map(|a| a.bytes).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_promised_request_is_done_within_the_bound(seed: u64, count in 1..6u64, deep: bool) {
        let mut random = Random::new(seed);
        let latency_ns = random.below(3 * MS);
        let load = Load { booked_permille: 900, smallest_ns: SMALLEST, largest_ns: LARGEST, latency_ns };
        let time_in_flight_ns = latency_ns + 2 * LARGEST + if deep { 10 * MS } else { 0 };
        let mut config = Config { time_in_flight_ns, system_burst_ns: 3 * MS, ..config() };
        let bound = lateness_bound(&config, &load).unwrap();
        config.lateness_ns = bound;
        let mut scheduler = Scheduler::new(config);

        // All of what may be booked is booked: the system and the rest have 50 of a thousand each.
        let rebuild = random.from(1, 200) * MB;
        let mut left = 900 * MB - rebuild;
        let rates = BackgroundRate {
            burst: random.below(10) * MB, rate: rebuild, operation_bytes: MB, operation_ns: MS,
            ..BackgroundRate::LEFT
        };
        scheduler.set_background(0, Background::Rebuild, &rates);
        let mut arrivals = work(&mut random, Flow::Background(Background::Rebuild), rebuild);
        let mut flows = vec![(Flow::Background(Background::Rebuild), rebuild)];
        for number in 0..count {
            let rate = if number + 1 == count { left } else { random.from(1, left / MB / 2) * MB };
            left -= rate;
            let flow = reserved(number, promise(rate, random.below(50) * MB));
            arrivals.extend(work(&mut random, flow, rate));
            flows.push((flow, rate));
        }
        for client in 0..random.from(1, 4) {
            arrivals.extend(flood(random.below(SECOND), best_effort(client % 2, client), 300));
        }
        arrivals.extend(work(&mut random, Flow::System, 40 * MB));
        for arrival in &mut arrivals {
            if matches!(arrival.flow, Flow::BestEffort { .. }) && seed % 3 == 0 {
                arrival.direction = Direction::Write;
            }
        }
        let mut service = |arrival: &Arrival| {
            let fastest = if seed % 2 == 0 { arrival.bytes } else { arrival.bytes / 2 };
            [random.from(fastest, arrival.bytes), random.below(latency_ns + 1)]
        };
        let served = run(&mut scheduler, &mut arrivals, &mut service, u64::MAX);
        prop_assert_eq!(served.len(), arrivals.len());
        for (flow, rate) in flows {
            let worst = worst(&arrivals, &served, flow, rate);
            prop_assert!(worst <= bound, "{:?} is {} late, {} allowed", flow, worst, bound);
        }
        for flow in scheduler.figures() {
            prop_assert_eq!(flow.figures.late, 0, "{:?}", flow);
        }
    }

    #[test]
    fn a_limit_holds_in_every_window(seed: u64, limit in 1..400u64, burst in 0..20u64) {
        let mut random = Random::new(seed);
        let limit = limit * MB;
        let mut scheduler = Scheduler::new(config());
        let rates = BackgroundRate {
            rate: limit / 2, limit, burst: burst * MB, operation_bytes: MB, operation_ns: MS
        };
        scheduler.set_background(0, Background::Cleaning, &rates);
        let flow = Flow::Background(Background::Cleaning);
        let mut arrivals = work(&mut random, flow, random_rate(seed));
        arrivals.extend(work(&mut random, best_effort(1, 1), 800 * MB));
        let served = run(&mut scheduler, &mut arrivals, &mut exact, 2 * SECOND);
        let own: Vec<[u64; 2]> = served.iter()
            .map(|served| (served, &arrivals[served.arrival]))
            .filter(|(_, arrival)| arrival.flow == flow)
            .map(|(served, arrival)| [served.given, arrival.bytes])
            .collect();
        for (first, begin) in own.iter().enumerate() {
            let mut sum = 0;
            for [end, bytes] in &own[first..] {
                sum += bytes;
                let allowed = u128::from(limit) * u128::from(end - begin[0]) / u128::from(SECOND);
                prop_assert!(u128::from(sum) <= allowed + u128::from(burst * MB + LARGEST));
            }
        }
    }

    #[test]
    fn what_is_left_is_shared_by_weight(seed: u64) {
        let mut random = Random::new(seed);
        let mut scheduler = Scheduler::new(config());
        let mut clients = Vec::new();
        let mut tenants = Vec::new();
        let mut arrivals = work(&mut random, reserved(1, promise(200 * MB, 0)), 200 * MB);
        for tenant in 0..random.from(1, 3) {
            let weight = random.from(1, 500);
            scheduler.set_weight(Share::Tenant(tenant), u32::try_from(weight).unwrap());
            let mut begins = SECOND;
            for client in 0..random.from(1, 3) {
                let weight = random.from(1, 500);
                scheduler.set_weight(Share::Client { tenant, client }, u32::try_from(weight).unwrap());
                let at = random.below(300 * MS);
                begins = begins.min(at);
                clients.push(([tenant, client], weight, at));
                for _ in 0..800 {
                    arrivals.push(read(at, best_effort(tenant, client), random.from(MB, LARGEST)));
                }
            }
            tenants.push((tenant, weight, begins));
        }
        let served = run(&mut scheduler, &mut arrivals, &mut exact, 800 * MS);
        let fair = |one: [u64; 2], other: [u64; 2]| {
            let weighed = one.map(|work| work as f64);
            let weights = other.map(|weight| weight as f64);
            let off = (weighed[0] / weights[0] - weighed[1] / weights[1]).abs();
            off <= LARGEST as f64 / weights[0] + LARGEST as f64 / weights[1] + 1.0
        };
        for from in (0..800).step_by(50).map(|at| at * MS) {
            for to in (from / MS + 50..800).step_by(50).map(|at| at * MS) {
                for (one, two) in tenants.iter().flat_map(|one| tenants.iter().map(move |two| (one, two))) {
                    let work = [one, two].map(|(tenant, _, _)| {
                        given(&arrivals, &served, from, to, |flow| {
                            matches!(flow, Flow::BestEffort { tenant: own, .. } if own == tenant)
                        })
                    });
                    let both = one.2.max(two.2) < from;
                    prop_assert!(!both || fair(work, [one.1, two.1]), "{:?} {:?} {:?}", one, two, work);
                }
                for (one, two) in clients.iter().flat_map(|one| clients.iter().map(move |two| (one, two))) {
                    let work = [one, two].map(|([tenant, client], _, _)| {
                        given(&arrivals, &served, from, to, |flow| *flow == best_effort(*tenant, *client))
                    });
                    let both = one.0[0] == two.0[0] && one.2.max(two.2) < from;
                    prop_assert!(!both || fair(work, [one.1, two.1]), "{:?} {:?} {:?}", one, two, work);
                }
            }
        }
    }

    #[test]
    fn tags_are_those_of_the_whole_history(seed: u64, count in 1..5usize) {
        let mut random = Random::new(seed);
        let config = Config { rest_permille: 0, lateness_ns: u64::MAX / 4, ..config() };
        let mut scheduler = Scheduler::new(config);
        let mut model = vec![Model::default(); count];
        let mut now = SECOND;
        for step in 0..600 {
            now += random.below(3) * random.below(4 * MS);
            match random.below(3) {
                0 => {
                    let flow = usize::try_from(random.below(count as u64)).unwrap();
                    if model[flow].promise.is_none() || random.below(5) == 0 {
                        let rate = random.from(1, 500) * MB;
                        model[flow].promise = Some(promise(rate, random.below(5) * MB));
                    }
                    let bytes = random.from(SMALLEST, LARGEST);
                    model[flow].waiting.push([now, bytes]);
                    let flow = reserved(flow as u64, model[flow].promise.unwrap());
                    let request = Request { flow, ..read_of(bytes, step) };
                    let other = Request { flow: best_effort(1, 1), ..read_of(bytes, step) };
                    scheduler.submit(now, request).unwrap();
                    scheduler.submit(now, other).unwrap();
                }
                _ => {
                    let Next::Go { ticket, .. } = scheduler.next(now) else { continue };
                    let due: Vec<Option<u64>> = model.iter().map(|flow| flow.due_if_eligible(now)).collect();
                    let first = due.iter().flatten().min();
                    prop_assert_eq!(ticket.phase() == Phase::Promised, first.is_some());
                    let before: Vec<[usize; 2]> = standing(&scheduler, count);
                    scheduler.done(ticket, now, None);
                    let after = standing(&scheduler, count);
                    let gone = (0..count).find(|flow| before[*flow][1] != after[*flow][1]);
                    if let Some(flow) = gone {
                        prop_assert!(first.is_none() || due[flow].as_ref() == first);
                        model[flow].serve(first.is_some());
                    } else {
                        prop_assert!(first.is_none());
                    }
                }
            }
        }
    }
}

fn read_of(bytes: u64, item: usize) -> Request<usize> {
    Request { flow: Flow::System, direction: Direction::Read, bytes, cost_ns: bytes, item }
}

fn random_rate(seed: u64) -> u64 {
    [50 * MB, 200 * MB, 1000 * MB][usize::try_from(seed % 3).unwrap()]
}

/// For each reserved flow: requests that wait, and that are in flight.
fn standing(scheduler: &Scheduler<usize>, count: usize) -> Vec<[usize; 2]> {
    let mut standing = vec![[0; 2]; count];
    for flow in scheduler.figures() {
        if let FlowId::Reserved(number) = flow.flow {
            standing[usize::try_from(number).unwrap()] = [flow.waiting, flow.in_flight];
        }
    }
    standing
}

/// A flow that keeps all its history, and computes its tags from it each time.
#[derive(Debug, Clone, Default)]
struct Model {
    promise: Option<Promise>,
    /// Arrivals and bytes of what waits.
    waiting: Vec<[u64; 2]>,
    /// Arrivals, bytes and rates of what was served by right of the promise.
    served: Vec<[u64; 3]>,
}

impl Model {
    fn span(bytes: u64, rate: u64) -> u64 {
        let span = (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(rate));
        u64::try_from(span).unwrap()
    }

    fn due_if_eligible(&self, now: u64) -> Option<u64> {
        let [arrival, bytes] = *self.waiting.first()?;
        let promise = self.promise?;
        let mut used = 0;
        for [arrival, bytes, rate] in &self.served {
            used = used.max(*arrival) + Model::span(*bytes, *rate);
        }
        let start = used.max(arrival);
        let eligible = start.saturating_sub(Model::span(promise.burst, promise.rate));
        (eligible <= now).then(|| start + Model::span(bytes, promise.rate))
    }

    fn serve(&mut self, promised: bool) {
        let [arrival, bytes] = self.waiting.remove(0);
        if let (true, Some(promise)) = (promised, self.promise) {
            self.served.push([arrival, bytes, promise.rate]);
        }
    }
}
