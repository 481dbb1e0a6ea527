//! Promises, limits and shares on a device of 1 GB/s: 1 MB takes 1 ms.

use crate::device::{
    Arrival, MB, MS, SECOND, best_effort, bytes, config, exact, figures, flood, is_client, is_reserved,
    promise, read, reserved, run, steady,
};
use braid_schedule::{Background, BackgroundRate, Flow, FlowId, Scheduler, Share};

fn rate(rate: u64, limit: u64) -> BackgroundRate {
    BackgroundRate { rate, limit, burst: 0, operation_bytes: MB, operation_ns: MS }
}

fn near(actual: u64, expected: u64, within: u64) {
    assert!(actual.abs_diff(expected) <= within, "{actual} is not {expected} within {within}");
}

#[test]
fn a_promise_is_kept_beside_a_flood() {
    let mut arrivals = flood(0, best_effort(1, 1), 3000);
    arrivals.extend(steady(0, SECOND, reserved(1, promise(250 * MB, 0)), 250 * MB));
    let mut scheduler = Scheduler::new(config());
    let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
    let own = bytes(&arrivals, &served, SECOND, is_reserved(1));
    assert!(own >= 249 * MB, "{own}");
    let all = bytes(&arrivals, &served, SECOND, |_| true);
    assert!(all >= 995 * MB, "best effort gets all that is left: {all}");
    let figures = figures(&scheduler, FlowId::Reserved(1));
    assert_eq!((figures.late, figures.bytes_shared), (0, 0));
    assert!(figures.worst_lateness_ns < 6 * MS);
}

#[test]
fn who_exceeds_a_rate_harms_no_other_promise_and_gets_what_is_left() {
    let mut arrivals = flood(0, reserved(1, promise(200 * MB, 0)), 2000);
    arrivals.extend(steady(0, SECOND, reserved(2, promise(200 * MB, 0)), 200 * MB));
    arrivals.extend(flood(0, best_effort(1, 1), 2000));
    let mut scheduler = Scheduler::new(config());
    let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
    near(bytes(&arrivals, &served, SECOND, is_reserved(2)), 200 * MB, MB);
    // Its rate, and half of the 600 MB/s that are left: the share does not use up the promise.
    near(bytes(&arrivals, &served, SECOND, is_reserved(1)), 500 * MB, 5 * MB);
    let first = figures(&scheduler, FlowId::Reserved(1));
    near(first.bytes_promised, 200 * MB, MB);
    assert_eq!(first.late, 0, "each is done by its due time, which the flood itself put off");
    assert_eq!(figures(&scheduler, FlowId::Reserved(2)).late, 0);
}

#[test]
fn an_idle_promise_banks_its_burst_and_no_more() {
    for burst in [0, 20 * MB] {
        let begins = 10 * SECOND;
        let mut arrivals = flood(0, best_effort(1, 1), 11_000);
        arrivals.extend(flood(begins, reserved(1, promise(100 * MB, burst)), 500));
        let mut scheduler = Scheduler::new(config());
        run(&mut scheduler, &mut arrivals, &mut exact, begins + 100 * MS);
        let figures = figures(&scheduler, FlowId::Reserved(1));
        near(figures.bytes_promised, burst + 10 * MB, 2 * MB);
    }
}

#[test]
fn the_burst_of_one_promise_does_not_delay_another() {
    let mut arrivals = flood(SECOND, reserved(1, promise(400 * MB, 400 * MB)), 400);
    arrivals.extend(steady(0, 2 * SECOND, reserved(2, promise(400 * MB, 0)), 400 * MB));
    let mut scheduler = Scheduler::new(config());
    run(&mut scheduler, &mut arrivals, &mut exact, 2 * SECOND);
    for reservation in [1, 2] {
        let figures = figures(&scheduler, FlowId::Reserved(reservation));
        assert!(figures.worst_lateness_ns < 6 * MS, "{figures:?}");
    }
}

#[test]
fn many_requests_or_clients_take_nothing_from_others() {
    // Client 2 has 200 requests beside the thousands of client 1, and tenant 2 one client beside 50.
    let mut arrivals = flood(0, best_effort(1, 1), 3000);
    arrivals.extend(flood(100 * MS, best_effort(1, 2), 200));
    for client in 100..150 {
        arrivals.extend(flood(SECOND, best_effort(1, client), 100));
    }
    arrivals.extend(flood(SECOND, best_effort(2, 3), 400));
    let mut scheduler = Scheduler::new(config());
    let served = run(&mut scheduler, &mut arrivals, &mut exact, 2 * SECOND);
    near(bytes(&arrivals, &served, 300 * MS, is_client(2)), 100 * MB, 6 * MB);
    near(bytes(&arrivals, &served, 1500 * MS, is_client(3)), 250 * MB, 6 * MB);
    let one = bytes(&arrivals, &served, 2 * SECOND, is_client(117));
    near(one, 10 * MB, 2 * MB);
}

#[test]
fn tenants_and_clients_share_by_weight() {
    let mut scheduler = Scheduler::new(config());
    scheduler.set_weight(Share::Tenant(2), 300);
    scheduler.set_weight(Share::Client { tenant: 2, client: 4 }, 50);
    let mut arrivals = Vec::new();
    for [tenant, client] in [[1, 1], [1, 2], [2, 3], [2, 4]] {
        arrivals.extend(flood(0, best_effort(tenant, client), 2000));
    }
    let served = run(&mut scheduler, &mut arrivals, &mut exact, 2 * SECOND);
    for [client, expected] in [[1, 250], [2, 250], [3, 1000], [4, 500]] {
        near(bytes(&arrivals, &served, 2 * SECOND, is_client(client)), expected * MB, 5 * MB);
    }
}

#[test]
fn a_limit_holds_on_an_idle_device_and_on_a_busy_one() {
    for beside in [0, 2000] {
        let mut scheduler = Scheduler::new(config());
        scheduler.set_background(0, Background::Scrub, &rate(50 * MB, 100 * MB));
        let mut arrivals = flood(0, Flow::Background(Background::Scrub), 500);
        arrivals.extend(flood(0, best_effort(1, 1), beside));
        let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
        for until in [100 * MS, 500 * MS, SECOND] {
            let own = bytes(&arrivals, &served, until, |flow| matches!(flow, Flow::Background(_)));
            assert!(own <= until / 10 + 2 * MB, "{own} in {until}");
            assert!(own + 3 * MB >= if beside == 0 { until / 10 } else { until / 20 });
        }
    }
}

#[test]
fn background_work_has_its_rate_beside_all_others_and_little_more() {
    let mut scheduler = Scheduler::new(config());
    scheduler.set_background(0, Background::Rebuild, &rate(100 * MB, u64::MAX));
    let mut arrivals = flood(0, Flow::Background(Background::Rebuild), 2000);
    arrivals.extend(flood(0, Flow::Background(Background::Cleaning), 2000));
    arrivals.extend(steady(0, SECOND, reserved(1, promise(500 * MB, 0)), 500 * MB));
    arrivals.extend(flood(0, best_effort(1, 1), 2000));
    let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
    assert_eq!(figures(&scheduler, FlowId::Reserved(1)).late, 0);
    let of = |kind| {
        bytes(&arrivals, &served, SECOND, |flow| matches!(flow, Flow::Background(own) if *own == kind))
    };
    // 400 MB are left, of which all background work has a part in eleven.
    near(of(Background::Rebuild), 118 * MB, 3 * MB);
    near(of(Background::Cleaning), 18 * MB, 3 * MB);
    scheduler.set_background(SECOND, Background::Rebuild, &rate(300 * MB, u64::MAX));
    let before = figures(&scheduler, FlowId::Background(Background::Rebuild)).bytes_promised;
    near(before, 100 * MB, 2 * MB);
}

#[test]
fn the_system_goes_first_within_its_share_and_starves_nobody() {
    let mut arrivals = flood(0, best_effort(1, 1), 2000);
    arrivals.extend(steady(0, SECOND, reserved(1, promise(500 * MB, 0)), 500 * MB));
    arrivals.extend((0..100).map(|i| read(i * 10 * MS, Flow::System, 100_000)));
    let mut scheduler = Scheduler::new(config());
    let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
    let slowest = served
        .iter()
        .filter(|served| arrivals[served.arrival].flow == Flow::System)
        .map(|served| served.done - arrivals[served.arrival].at)
        .max();
    // What is in flight goes before it.
    assert!(slowest.is_some_and(|slowest| slowest <= 5 * MS), "{slowest:?}");

    let mut arrivals: Vec<Arrival> = flood(0, Flow::System, 5000);
    arrivals.extend(steady(0, SECOND, reserved(1, promise(500 * MB, 0)), 500 * MB));
    arrivals.extend(flood(0, best_effort(1, 1), 2000));
    let mut scheduler = Scheduler::new(config());
    let served = run(&mut scheduler, &mut arrivals, &mut exact, SECOND);
    assert_eq!(figures(&scheduler, FlowId::Reserved(1)).late, 0);
    // Its share of 5 %, and half of the 450 MB that are left.
    near(bytes(&arrivals, &served, SECOND, |flow| *flow == Flow::System), 275 * MB, 10 * MB);
}

#[test]
fn overbooked_promises_degrade_alike_and_starve_nobody() {
    let mut scheduler = Scheduler::new(config());
    scheduler.set_background(0, Background::Rebuild, &rate(200 * MB, u64::MAX));
    let end = 4 * SECOND;
    let joins = 2 * SECOND;
    let mut arrivals = flood(0, reserved(1, promise(1200 * MB, 0)), 5000);
    arrivals.extend(flood(0, reserved(2, promise(600 * MB, 0)), 5000));
    arrivals.extend(flood(0, Flow::Background(Background::Rebuild), 5000));
    arrivals.extend(flood(0, best_effort(1, 1), 5000));
    arrivals.extend(steady(joins, end, reserved(3, promise(500 * MB, 0)), 500 * MB));
    let served = run(&mut scheduler, &mut arrivals, &mut exact, end);
    let between = |from, until, which: &dyn Fn(&Flow) -> bool| {
        bytes(&arrivals, &served, until, which) - bytes(&arrivals, &served, from, which)
    };
    // 2000 MB/s and the rest's 50 are asked of 1000.
    near(between(SECOND, joins, &is_reserved(1)), 1200 * 1000 / 2050 * MB, 12 * MB);
    near(between(SECOND, joins, &is_reserved(2)), 600 * 1000 / 2050 * MB, 12 * MB);
    let rebuild = |flow: &Flow| matches!(flow, Flow::Background(_));
    near(between(SECOND, joins, &rebuild), 200 * 1000 / 2050 * MB, 12 * MB);
    near(between(SECOND, joins, &is_client(1)), 50 * 1000 / 2050 * MB, 3 * MB);
    // A promise that begins later is served as the others are, soon.
    near(between(joins + SECOND, end, &is_reserved(3)), 500 * 1000 / 2550 * MB, 12 * MB);
    near(between(joins + SECOND, end, &is_reserved(1)), 1200 * 1000 / 2550 * MB, 12 * MB);
}
