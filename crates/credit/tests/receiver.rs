//! The receiver: what it takes for late, and bad input.

use braid_credit::{Receiver, Sent, Ticket};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const BYTES: u64 = 1 << 16;

/// In each second losses, many quick answers of peer 1, and one of peer 2 that takes so long.
fn run(receiver: &mut Receiver, seconds: std::ops::Range<u64>, took: impl Fn(u64) -> u64) {
    for second in seconds {
        let from = second * SECOND;
        receiver.handle_loss(from);
        for step in 0..10 {
            let arrived = from + step * 10 * MS;
            let sent = Sent { peer: 1, bytes: BYTES, at: arrived - MS, arrived, flying: 0, delivered: BYTES };
            receiver.handle_delivered(sent, (10 * second + step) * BYTES, 0);
        }
        let arrived = from + took(second);
        let sent = Sent { peer: 2, bytes: BYTES, at: from, arrived, flying: 1 << 20, delivered: BYTES };
        receiver.handle_late(sent, BYTES);
    }
}

#[test]
fn who_is_always_slow_is_not_late() {
    let mut receiver = Receiver::default();
    run(&mut receiver, 1..21, |_| 800 * MS);
    assert_eq!(receiver.counts().stalls, 0);
    run(&mut receiver, 21..41, |second| if second % 2 == 0 { 800 * MS } else { 300 * MS });
    assert!(receiver.counts().stalls > 0 && !receiver.is_open());
}

#[test]
fn a_request_beyond_all_measure_is_written_off_at_last() {
    let mut receiver = Receiver::default();
    run(&mut receiver, 1..21, |second| if second == 1 { 40 * MS } else { 400 * MS });
    assert!(!receiver.is_open());
    let (huge, _) = receiver.handle_request(21 * SECOND, 1, 1, u64::MAX);
    let (huger, _) = receiver.handle_request(21 * SECOND, 2, 2, u64::MAX);
    let (small, goes) = receiver.handle_request(21 * SECOND, 3, 3, BYTES);
    assert!(!goes);
    let went: Vec<Ticket> = std::iter::from_fn(|| receiver.poll_send(23 * SECOND)).collect();
    assert_eq!(went, [huger, small], "after two seconds in any case");
    assert_eq!(receiver.counts().flying, u64::MAX);
    assert_eq!(receiver.poll_send(53 * SECOND), None);
    assert_eq!(receiver.counts().flying, 0);
    [huge, huger, small].into_iter().for_each(|ticket| receiver.handle_end(ticket));
    assert_eq!(receiver.counts().flying, 0);
}
