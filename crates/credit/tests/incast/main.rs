//! The receiver's credit against a model network in virtual time.

mod model;

use model::{Found, Link, Load, MS, Network, SECOND, ratio};

/// 200 Mbit/s with a queue of 32 KiB.
const SHORT: Link = Link { bytes_per_second: 25_000_000, queue_bytes: 32 << 10, round_trip: 100_000 };
/// The same with a queue that holds all that is asked for.
const LONG: Link = Link { queue_bytes: 4 << 20, ..SHORT };
/// 16 senders, a block each, all at once, and again when all have come.
const IN_STEP: Load =
    Load { senders: 16, block: 64 << 10, in_step: true, depth: 1, disk: 0, with_credit: true };

/// Outcome of this load from `from` until `until`, in seconds.
fn run(link: Link, load: Load, from: u64, until: u64) -> (Found, Network) {
    let mut network = Network::new(link, &[load]);
    let found = network.run(from * SECOND, until * SECOND);
    (found, network)
}

fn share(link: Link, load: Load) -> f64 {
    let (found, _) = run(link, load, 10, 40);
    found.share(link, 30 * SECOND)
}

#[test]
fn without_credit_senders_in_step_leave_most_of_the_link_idle() {
    let load = Load { with_credit: false, ..IN_STEP };
    let share = share(SHORT, load);
    assert!(share < 0.3, "the model shows no incast: {share}");
}

#[test]
fn with_credit_they_fill_it_and_no_round_takes_twice_its_time() {
    let (found, _) = run(SHORT, IN_STEP, 20, 50);
    let share = found.share(SHORT, 30 * SECOND);
    assert!(share >= 0.95, "{share}");
    let round = 16 * (64 << 10) * 1514 / 1448 * 40;
    assert!(found.p99() <= 2 * round, "{} ms", found.p99() / MS);
}

#[test]
fn larger_blocks_more_senders_and_longer_queues_fill_it_too() {
    let of = |queue_kib: u64, block_kib: u64, senders: usize| {
        let link = Link { queue_bytes: queue_kib << 10, ..SHORT };
        share(link, Load { block: block_kib << 10, senders, ..IN_STEP })
    };
    for (queue, block, senders) in [(64, 64, 16), (128, 64, 16), (32, 256, 16), (32, 512, 16), (32, 64, 64)] {
        let share = of(queue, block, senders);
        assert!(share >= 0.94, "{queue} KiB, {senders} senders of {block} KiB: {share}");
    }
}

#[test]
fn senders_that_are_not_in_step_keep_their_rate_and_wait_less() {
    let load = Load { in_step: false, ..IN_STEP };
    let without = run(SHORT, Load { with_credit: false, ..load }, 10, 40).0;
    let with = run(SHORT, load, 10, 40).0;
    let [before, after] = [&without, &with].map(|found| found.share(SHORT, 30 * SECOND));
    assert!(after >= 0.97 * before, "{after} of {before}");
    assert!(with.p99() < without.p99() / 4, "{} of {} ms", with.p99() / MS, without.p99() / MS);
}

#[test]
fn where_the_queue_holds_all_nothing_is_bounded() {
    let (found, network) = run(LONG, IN_STEP, 0, 20);
    let without = run(LONG, Load { with_credit: false, ..IN_STEP }, 0, 20).0;
    assert_eq!(found.bytes, without.bytes);
    assert!(network.receiver(0).is_open());
    assert_eq!(network.receiver(0).counts().waits, 0);
}

#[test]
fn slow_disks_are_not_taken_for_a_slow_link() {
    // Each answer takes 90 ms at its drive: late, but for no loss.
    let load = Load { disk: 90 * MS, in_step: false, ..IN_STEP };
    let (_, network) = run(LONG, load, 0, 20);
    assert!(network.receiver(0).is_open());
}

#[test]
fn a_decrease_that_costs_rate_is_undone() {
    // Slow disks behind a link that drops now and then: the window is not what is wrong.
    let load = Load { disk: 90 * MS, in_step: false, depth: 1, senders: 64, ..IN_STEP };
    let with = run(SHORT, load, 10, 60).0;
    let without = run(SHORT, Load { with_credit: false, ..load }, 10, 60).0;
    let rest = ratio(with.bytes[0], without.bytes[0]);
    assert!(rest >= 0.8, "{rest} of what came without");
}

#[test]
fn a_link_that_gets_faster_or_slower_is_followed() {
    let fast = Link { bytes_per_second: 125_000_000, queue_bytes: 128 << 10, ..SHORT };
    let mut network = Network::new(SHORT, &[IN_STEP]);
    network.run(0, 20 * SECOND);
    network.set_link(fast);
    let found = network.run(30 * SECOND, 50 * SECOND);
    // TCP itself gets no more there: repairs of 10 ms take as long as a round. The window is out of the way.
    let share = found.share(fast, 20 * SECOND);
    assert!(share >= 0.45, "faster: {share}");
    let window = network.receiver(0).counts().window;
    assert!(window.is_none_or(|window| window >= 16 * IN_STEP.block), "faster: {window:?}");
    network.set_link(SHORT);
    let found = network.run(60 * SECOND, 80 * SECOND);
    let share = found.share(SHORT, 20 * SECOND);
    assert!(share >= 0.85, "slower again: {share}");
}

#[test]
fn two_receivers_share_a_link() {
    let load = Load { in_step: false, ..IN_STEP };
    let mut network = Network::new(SHORT, &[load, load]);
    let found = network.run(20 * SECOND, 60 * SECOND);
    let share = found.share(SHORT, 40 * SECOND);
    assert!(share >= 0.95, "{share}");
    let balance = ratio(found.bytes[0], found.bytes[1]);
    assert!((0.4..=2.5).contains(&balance), "{balance}");
}
