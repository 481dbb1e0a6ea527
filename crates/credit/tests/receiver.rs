//! The receiver: what it takes for late, and bad input.

use braid_credit::{Delivered, Receiver, Sent, Ticket};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

#[test]
fn a_request_beyond_all_measure_is_written_off_at_last() {
    let mut receiver = Receiver::default();
    for now in 0..20 {
        receiver.handle_loss(now * SECOND);
        let delivered = Delivered { bytes: now * 1_000_000, largest: 0, took: MS, flying: 0 };
        receiver.handle_delivered(now * SECOND, delivered);
        let sent = Sent { at: now * SECOND, arrived: now * SECOND + 900 * MS, flying: 1 << 20, delivered: 1 };
        receiver.handle_late(sent, 1 << 16);
    }
    assert!(!receiver.is_open());
    let (huge, _) = receiver.handle_request(20 * SECOND, 1, 1, u64::MAX);
    let (huger, _) = receiver.handle_request(20 * SECOND, 2, 2, u64::MAX);
    let (small, goes) = receiver.handle_request(20 * SECOND, 3, 3, 1 << 16);
    assert!(!goes);
    let went: Vec<Ticket> = std::iter::from_fn(|| receiver.poll_send(22 * SECOND)).collect();
    assert_eq!(went, [huger, small], "after two seconds in any case");
    assert_eq!(receiver.counts().flying, u64::MAX);
    assert_eq!(receiver.poll_send(52 * SECOND), None);
    assert_eq!(receiver.counts().flying, 0);
    [huge, huger, small].into_iter().for_each(|ticket| receiver.handle_end(ticket));
    assert_eq!(receiver.counts().flying, 0);
}
