//! Changes in the middle, odd clocks, corrections, bounds: on a scheduler alone.

use crate::device::{
    MB, MS, SECOND, best_effort, config, exact, figures, flood, promise, read, reserved, run, steady,
};
use braid_schedule::{
    Actual, Background, BackgroundRate, Cause, Config, Direction, Flow, FlowId, Next, Phase, Promise,
    Request, Scheduler, Ticket,
};

fn request(flow: Flow, item: usize) -> Request<usize> {
    Request { flow, direction: Direction::Read, bytes: MB, cost_ns: MS, item }
}

fn write(flow: Flow, item: usize) -> Request<usize> {
    Request { direction: Direction::Write, ..request(flow, item) }
}

fn submit(scheduler: &mut Scheduler<usize>, now: u64, requests: Vec<Request<usize>>) {
    for request in requests {
        scheduler.submit(now, request).unwrap();
    }
}

/// The next item, which is done at once.
fn go(scheduler: &mut Scheduler<usize>, now: u64) -> Option<usize> {
    let Next::Go { item, ticket } = scheduler.next(now) else { return None };
    scheduler.done(ticket, now, None);
    Some(item)
}

/// All that may go now, done at once.
fn all(scheduler: &mut Scheduler<usize>, now: u64) -> Vec<usize> {
    std::iter::from_fn(|| go(scheduler, now)).collect()
}

fn ticket(scheduler: &mut Scheduler<usize>, now: u64) -> Ticket {
    match scheduler.next(now) {
        Next::Go { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    }
}

/// Phases of the next requests, done at once.
fn phases(scheduler: &mut Scheduler<usize>, now: u64, count: usize) -> Vec<Phase> {
    let mut phases = Vec::new();
    for _ in 0..count {
        let ticket = ticket(scheduler, now);
        phases.push(ticket.phase());
        scheduler.done(ticket, now, None);
    }
    phases
}

#[test]
fn a_rate_changed_in_the_middle_counts_for_what_waits() {
    let mut scheduler = Scheduler::new(config());
    let mut arrivals = flood(0, best_effort(1, 1), 4000);
    arrivals.extend(flood(0, reserved(1, promise(100 * MB, 0)), 3000));
    arrivals.push(read(SECOND, reserved(1, promise(400 * MB, 0)), MB));
    arrivals.push(read(2 * SECOND, reserved(1, promise(10 * MB, 0)), MB));
    let mut promised = Vec::new();
    run(&mut scheduler, &mut arrivals, &mut exact, SECOND - MS);
    promised.push(figures(&scheduler, FlowId::Reserved(1)).bytes_promised / MB);
    for until in [2 * SECOND - MS, 3 * SECOND] {
        let mut scheduler = Scheduler::new(config());
        run(&mut scheduler, &mut arrivals, &mut exact, until);
        promised.push(figures(&scheduler, FlowId::Reserved(1)).bytes_promised / MB);
    }
    for [actual, expected] in [[promised[0], 100], [promised[1], 500], [promised[2], 510]] {
        assert!(actual.abs_diff(expected) <= 3, "{promised:?}");
    }
}

#[test]
fn a_promise_that_ends_leaves_best_effort() {
    let until_ns = SECOND;
    let flow = reserved(1, Promise { until_ns, ..promise(100 * MB, 50 * MB) });
    let mut scheduler = Scheduler::new(Config { rest_permille: 0, ..config() });
    submit(&mut scheduler, until_ns - 1, (0..20).map(|item| request(flow, item)).collect());
    assert_eq!(phases(&mut scheduler, until_ns - 1, 2), [Phase::Promised; 2]);
    assert_eq!(phases(&mut scheduler, until_ns, 2), [Phase::Shared; 2]);
    submit(&mut scheduler, until_ns, vec![request(flow, 20)]);
    let uncovered = scheduler.figures().find(|flow| flow.flow == FlowId::Uncovered(1)).unwrap();
    assert_eq!(uncovered.waiting, 1);
    // A longer promise counts for all that waits, from now on.
    let longer = reserved(1, Promise { until_ns: u64::MAX, ..promise(100 * MB, 0) });
    submit(&mut scheduler, 10 * SECOND, vec![request(longer, 21)]);
    let next = phases(&mut scheduler, 10 * SECOND, 3);
    assert_eq!(next, [Phase::Promised, Phase::Shared, Phase::Shared]);
    scheduler.end(10 * SECOND, 1);
    assert_eq!(phases(&mut scheduler, 20 * SECOND, 2), [Phase::Shared; 2]);
}

#[test]
fn an_older_capability_ends_no_promise() {
    let lasts = reserved(1, promise(100 * MB, 50 * MB));
    let over = reserved(1, Promise { until_ns: SECOND, ..promise(100 * MB, 50 * MB) });
    let mut scheduler = Scheduler::new(Config { rest_permille: 0, ..config() });
    submit(&mut scheduler, SECOND, vec![request(lasts, 0), request(over, 1)]);
    assert_eq!(phases(&mut scheduler, SECOND, 2), [Phase::Promised, Phase::Shared]);
}

#[test]
fn a_promise_is_of_one_direction() {
    let flow = reserved(1, promise(100 * MB, 50 * MB));
    let mut scheduler = Scheduler::new(config());
    submit(&mut scheduler, SECOND, vec![write(flow, 0), write(flow, 1), request(flow, 2)]);
    assert_eq!(phases(&mut scheduler, SECOND, 3), [Phase::Promised, Phase::Shared, Phase::Shared]);
    assert_eq!(figures(&scheduler, FlowId::Uncovered(1)).bytes_shared, 2 * MB);
    // No promise at all: none comes into being.
    let none = reserved(2, Promise { rate: 0, ..promise(0, 0) });
    submit(&mut scheduler, SECOND, vec![request(none, 3)]);
    assert_eq!(phases(&mut scheduler, SECOND, 1), [Phase::Shared]);
    assert!(scheduler.figures().all(|flow| flow.flow != FlowId::Reserved(2)));
}

#[test]
fn small_operations_use_up_a_promise_for_large_ones() {
    // 64 kB in 1 ms, as 1 MB: each uses up 1 MB of the burst of 10.
    let flow = reserved(1, promise(100 * MB, 9 * MB));
    let mut scheduler = Scheduler::new(config());
    let small = |item| Request { bytes: 64_000, ..request(flow, item) };
    submit(&mut scheduler, SECOND, (0..12).map(small).collect());
    let phases = phases(&mut scheduler, SECOND, 12);
    assert_eq!(phases.iter().filter(|phase| **phase == Phase::Promised).count(), 10);
}

#[test]
fn a_clock_that_stands_still_or_goes_back_changes_nothing() {
    let mut scheduler = Scheduler::new(config());
    let flow = reserved(1, promise(100 * MB, 4 * MB));
    let mut requests: Vec<Request<usize>> = (0..10).map(|item| request(flow, item)).collect();
    requests.extend((10..20).map(|item| request(best_effort(1, 1), item)));
    submit(&mut scheduler, SECOND, requests);
    let mut order = all(&mut scheduler, SECOND);
    assert_eq!(order[..5], [0, 1, 2, 3, 4], "the burst, and one");
    order.sort_unstable();
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    submit(&mut scheduler, 0, vec![request(flow, 0), request(best_effort(1, 1), 1)]);
    assert_eq!(all(&mut scheduler, SECOND / 2).len(), 2);
}

#[test]
fn a_clock_that_jumps_gives_nobody_credit() {
    const HOUR: u64 = 3600 * SECOND;
    let mut scheduler = Scheduler::new(Config { rest_permille: 0, ..config() });
    scheduler.set_background(
        0,
        Background::Scrub,
        &BackgroundRate { rate: 0, limit: 10 * MB, burst: 0, operation_bytes: MB, operation_ns: MS },
    );
    let flow = reserved(1, promise(100 * MB, 0));
    submit(&mut scheduler, 0, (0..3).map(|item| request(flow, item)).collect());
    submit(
        &mut scheduler,
        0,
        (3..6).map(|item| request(Flow::Background(Background::Scrub), item)).collect(),
    );
    // What waits was due long ago; all of it goes, but for what is limited.
    assert_eq!(all(&mut scheduler, HOUR), [0, 1, 2, 3]);
    assert!(matches!(scheduler.next(HOUR), Next::WaitUntil(at) if at == HOUR + 100 * MS));
    submit(&mut scheduler, HOUR, (6..9).map(|item| request(flow, item)).collect());
    assert_eq!(phases(&mut scheduler, HOUR, 3), [Phase::Promised, Phase::Shared, Phase::Shared]);
    let mut arrivals = flood(0, best_effort(1, 1), 2000);
    arrivals.extend(steady(0, SECOND, reserved(2, promise(250 * MB, 0)), 250 * MB));
    for arrival in &mut arrivals {
        arrival.at += 2 * HOUR;
    }
    run(&mut scheduler, &mut arrivals, &mut exact, 2 * HOUR + SECOND);
    assert_eq!(figures(&scheduler, FlowId::Reserved(2)).late, 0);
}

#[test]
fn a_read_from_memory_is_not_charged() {
    let cached = Some(Actual { bytes: MB, cost_ns: 0 });
    let flow = reserved(1, promise(100 * MB, 0));
    for [actual, expected] in [[None, None], [cached, cached]] {
        let mut scheduler = Scheduler::new(config());
        submit(&mut scheduler, SECOND, (0..3).map(|item| request(flow, item)).collect());
        let mut promised = 0;
        for _ in 0..3 {
            let ticket = ticket(&mut scheduler, SECOND);
            promised += usize::from(ticket.phase() == Phase::Promised);
            scheduler.done(ticket, SECOND, actual);
        }
        assert_eq!(promised, if expected.is_some() { 3 } else { 1 });
    }
    // By weight: client 1 has all from memory, and so does not pay.
    let mut scheduler = Scheduler::new(config());
    for item in 0..40 {
        submit(&mut scheduler, 0, vec![request(best_effort(1, item as u64 % 2), item)]);
    }
    let mut from_memory = 0;
    for _ in 0..20 {
        let Next::Go { item, ticket } = scheduler.next(0) else { panic!("all wait") };
        let actual = if item % 2 == 1 { cached } else { None };
        from_memory += item % 2;
        scheduler.done(ticket, 0, actual);
    }
    assert!(from_memory >= 18, "{from_memory}");
}

#[test]
fn a_limited_and_a_system_request_are_mended_too() {
    let mut scheduler = Scheduler::new(config());
    let limit = BackgroundRate { rate: 0, limit: 10 * MB, burst: 0, operation_bytes: MB, operation_ns: MS };
    scheduler.set_background(0, Background::Move, &limit);
    submit(&mut scheduler, 0, (0..3).map(|item| request(Flow::Background(Background::Move), item)).collect());
    let first = ticket(&mut scheduler, SECOND);
    assert!(matches!(scheduler.next(SECOND), Next::WaitUntil(_)));
    scheduler.done(first, SECOND, Some(Actual { bytes: 0, cost_ns: 0 }));
    let second = ticket(&mut scheduler, SECOND);
    scheduler.done(second, SECOND, Some(Actual { bytes: 4 * MB, cost_ns: 4 * MS }));
    assert!(matches!(scheduler.next(SECOND), Next::WaitUntil(at) if at == SECOND + 400 * MS));

    submit(&mut scheduler, SECOND, (0..3).map(|item| request(Flow::System, item)).collect());
    let first = ticket(&mut scheduler, SECOND);
    assert_eq!(first.phase(), Phase::System);
    scheduler.done(first, SECOND, Some(Actual { bytes: MB, cost_ns: 0 }));
    let second = ticket(&mut scheduler, SECOND);
    assert_eq!(second.phase(), Phase::System);
    scheduler.done(second, SECOND, Some(Actual { bytes: MB, cost_ns: 100 * MS }));
    assert_eq!(phases(&mut scheduler, SECOND, 1), [Phase::Shared]);
}

#[test]
fn only_so_much_is_in_flight() {
    let bounds = Config { reads_in_flight: 2, writes_in_flight: 1, time_in_flight_ns: 5 * MS, ..config() };
    let mut scheduler = Scheduler::new(bounds);
    let large = |item| Request { cost_ns: 50 * MS, ..request(best_effort(1, 1), item) };
    // A single large request may go when nothing else is there, and smaller ones do not pass it.
    submit(&mut scheduler, 0, vec![request(best_effort(1, 1), 0), large(1), request(best_effort(1, 1), 2)]);
    let small = ticket(&mut scheduler, 0);
    assert!(matches!(scheduler.next(0), Next::Full));
    submit(&mut scheduler, 0, vec![request(best_effort(1, 1), 3)]);
    assert!(matches!(scheduler.next(0), Next::Full));
    scheduler.done(small, 0, None);
    let large = ticket(&mut scheduler, 0);
    assert!(matches!(scheduler.next(0), Next::Full));
    scheduler.done(large, 0, None);
    assert_eq!(all(&mut scheduler, 0), [2, 3]);
    assert!(matches!(scheduler.next(0), Next::Empty));
}

#[test]
fn a_direction_without_a_place_is_passed_by_the_other() {
    let bounds = Config { reads_in_flight: 3, writes_in_flight: 1, time_in_flight_ns: 4 * MS, ..config() };
    let mut scheduler = Scheduler::new(bounds);
    let flow = Flow::Background(Background::Cleaning);
    submit(&mut scheduler, 0, vec![write(best_effort(1, 1), 0), write(best_effort(1, 1), 1)]);
    let first = ticket(&mut scheduler, 0);
    assert!(matches!(scheduler.next(0), Next::Full));
    submit(&mut scheduler, 0, (2..5).map(|item| request(flow, item)).collect());
    let reads = [ticket(&mut scheduler, 0), ticket(&mut scheduler, 0)];
    // A third read would take the time that the write waits for.
    assert!(matches!(scheduler.next(0), Next::Full));
    scheduler.done(first, 0, None);
    assert_eq!(scheduler.in_flight().operations, 2);
    assert_eq!(go(&mut scheduler, 0), Some(1));
    for read in reads {
        scheduler.done(read, 0, None);
    }
    assert_eq!(all(&mut scheduler, 0), [4]);
}

#[test]
fn requests_are_taken_out_and_refused() {
    let mut scheduler = Scheduler::new(Config { waiting_max: 3, ..config() });
    let flow = reserved(1, promise(100 * MB, 0));
    let limit = BackgroundRate { limit: MB, operation_bytes: MB, operation_ns: MS, ..BackgroundRate::LEFT };
    scheduler.set_background(0, Background::Scrub, &limit);
    let scrub = Flow::Background(Background::Scrub);
    for item in 0..3 {
        let requests = [flow, best_effort(1, 1), scrub, Flow::System].map(|flow| request(flow, item));
        submit(&mut scheduler, 0, requests.into());
    }
    let refused = scheduler.submit(0, request(best_effort(1, 1), 77)).unwrap_err();
    assert_eq!(refused.item, 77);
    submit(&mut scheduler, 0, vec![request(best_effort(1, 2), 3)]);
    assert_eq!(scheduler.remove(0, |flow, item| flow != FlowId::System && *item == 0).len(), 3);
    assert_eq!(scheduler.waiting(), 10);
    let order = all(&mut scheduler, SECOND);
    assert_eq!((order.len(), scheduler.waiting()), (9, 1));
    assert_eq!(scheduler.drain(SECOND), [2]);
    assert!(matches!(scheduler.next(SECOND), Next::Empty));
}

#[test]
fn flows_that_are_gone_are_forgotten() {
    let mut scheduler = Scheduler::new(config());
    for number in 0..1000 {
        let now = number * MS;
        let ends = reserved(number, Promise { until_ns: now + MS, ..promise(100 * MB, 0) });
        submit(&mut scheduler, now, vec![request(ends, 0), request(best_effort(number, number), 1)]);
        assert_eq!(all(&mut scheduler, now).len(), 2);
    }
    let known = scheduler.figures().count();
    assert!(known < 30, "{known}");
    // One with a promise that lasts stays, until it is ended.
    submit(&mut scheduler, SECOND, vec![request(reserved(7, promise(MB, 0)), 0)]);
    all(&mut scheduler, SECOND);
    let is_known = |scheduler: &mut Scheduler<usize>, now| {
        for client in 0..50 {
            submit(scheduler, now, vec![request(best_effort(1, client), 0)]);
            all(scheduler, now);
        }
        scheduler.figures().any(|flow| flow.flow == FlowId::Reserved(7))
    };
    assert!(is_known(&mut scheduler, 10 * SECOND));
    scheduler.end(10 * SECOND, 7);
    assert!(!is_known(&mut scheduler, 20 * SECOND));
}

#[test]
fn work_that_costs_nothing_is_shared_too() {
    let mut scheduler = Scheduler::new(config());
    let free = |client, item| Request { cost_ns: 0, ..request(best_effort(1, client), item) };
    submit(&mut scheduler, 0, (0..100).map(|item| free(1, item)).collect());
    submit(&mut scheduler, 0, (100..110).map(|item| free(2, item)).collect());
    let order = all(&mut scheduler, 0);
    assert!(order[..24].contains(&109), "{order:?}");
}

#[test]
fn who_owes_is_not_forgotten() {
    let mut scheduler = Scheduler::new(config());
    let large = Request { cost_ns: 50 * MS, ..request(best_effort(1, 1), 0) };
    submit(&mut scheduler, 0, vec![large]);
    submit(&mut scheduler, 0, (1..100).map(|item| request(best_effort(1, 2), item)).collect());
    assert_eq!([go(&mut scheduler, 0), go(&mut scheduler, 0)], [Some(0), Some(1)]);
    for client in 3..6 {
        submit(&mut scheduler, SECOND, vec![request(best_effort(1, client), 100)]);
    }
    submit(&mut scheduler, SECOND, vec![request(best_effort(1, 1), 101)]);
    let order = all(&mut scheduler, SECOND);
    let place = order.iter().position(|item| *item == 101).unwrap();
    assert!((50..56).contains(&place), "{place}");
}

#[test]
fn late_requests_say_why() {
    let bounds = Config { lateness_ns: 10 * MS, rest_permille: 0, ..config() };
    let causes = |scheduler: &Scheduler<usize>, flow| {
        let figures = figures(scheduler, flow);
        [Cause::Rate, Cause::Queue, Cause::Device].map(|cause| figures.late_by(cause))
    };
    let flow = reserved(1, promise(100 * MB, 0));
    // The device takes long.
    let mut scheduler = Scheduler::new(bounds);
    submit(&mut scheduler, 0, vec![request(flow, 0)]);
    let slow = ticket(&mut scheduler, 0);
    scheduler.done(slow, 25 * MS, None);
    assert_eq!(causes(&scheduler, FlowId::Reserved(1)), [0, 0, 1]);
    // The device was full of others.
    let mut scheduler = Scheduler::new(bounds);
    submit(&mut scheduler, 0, vec![Request { cost_ns: 50 * MS, ..request(best_effort(1, 1), 0) }]);
    let other = ticket(&mut scheduler, 0);
    submit(&mut scheduler, 0, vec![request(flow, 1)]);
    assert!(matches!(scheduler.next(0), Next::Full));
    scheduler.done(other, 50 * MS, None);
    assert_eq!(go(&mut scheduler, 50 * MS), Some(1));
    assert_eq!(causes(&scheduler, FlowId::Reserved(1)), [0, 1, 0]);
    // The operations are smaller than the promise was priced for, and others have the rest.
    let mut scheduler = Scheduler::new(bounds);
    let small = |item| Request { bytes: 1000, ..request(flow, item) };
    submit(&mut scheduler, 0, (0..10).map(small).collect());
    submit(&mut scheduler, 0, (0..200).map(|item| request(best_effort(1, 1), item)).collect());
    for now in 0..150 {
        go(&mut scheduler, now * MS);
    }
    let [by_rate, by_queue, by_device] = causes(&scheduler, FlowId::Reserved(1));
    assert!(by_rate >= 3 && by_queue + by_device == 0, "{by_rate} {by_queue} {by_device}");
}

#[test]
fn the_same_requests_go_in_the_same_order() {
    let order = || {
        let mut scheduler = Scheduler::new(config());
        let mut arrivals = flood(0, best_effort(1, 1), 300);
        arrivals.extend(flood(3 * MS, best_effort(2, 1), 300));
        arrivals.extend(steady(0, SECOND, reserved(1, promise(333 * MB, 0)), 333 * MB));
        let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
        served.iter().map(|served| [served.arrival as u64, served.done]).collect::<Vec<_>>()
    };
    assert_eq!(order(), order());
}

#[test]
fn parts_that_come_one_after_another_are_due_as_the_whole() {
    // 10 MB/s: 100 ms for a part of 1 MB. Another flow of the same rate comes 50 ms later.
    let promised = reserved(1, promise(10 * MB, 0));
    let other = reserved(2, promise(10 * MB, 0));
    let mut scheduler = Scheduler::new(Config::new(MS));
    scheduler.submit(0, request(promised, 1)).unwrap();
    scheduler.submit(50 * MS, request(other, 10)).unwrap();
    // The second part is asked for when the first goes, which is late. It is due at 200 ms, and not 100 ms
    // after it was asked for.
    assert_eq!(go(&mut scheduler, 140 * MS), Some(1));
    scheduler.submit_since(140 * MS, 0, request(promised, 2)).unwrap();
    scheduler.submit(140 * MS, request(other, 11)).unwrap();
    assert_eq!(all(&mut scheduler, 250 * MS), [10, 2, 11]);
    let late = figures(&scheduler, FlowId::Reserved(1)).worst_lateness_ns;
    assert_eq!(late, 50 * MS, "the first was 40 ms late, and the second 50 ms");
}
