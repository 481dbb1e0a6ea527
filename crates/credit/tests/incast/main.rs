//! The receiver's credit against a model network in virtual time.

mod model;

use model::{Link, Load, MS, Network, SECOND};

const SLOW: Link = Link { bytes_per_second: 25_000_000, queue_bytes: 32 << 10, round_trip: 100_000 };
const IN_STEP: Load =
    Load { senders: 16, block: 64 << 10, in_step: true, depth: 1, disk: 0, with_credit: true };

fn shares(link: Link, load: Load, from: u64, until: u64) -> (f64, u64, Network) {
    let mut network = Network::new(link, &[load]);
    let found = network.run(from, until);
    (found.share(link, until - from), found.p99(), network)
}

#[test]
fn explore() {
    for (queue, block, n) in [(32, 64, 16), (64, 64, 16), (32, 256, 16), (64, 256, 16), (32, 64, 64), (32, 512, 16), (128, 64, 16), (4096, 512, 16)] {
        for in_step in [true, false] {
            for with_credit in [true] {
                let link = Link { queue_bytes: queue << 10, ..SLOW };
                let load = Load { senders: n, block: block << 10, in_step, with_credit, ..IN_STEP };
                let (share, p99, network) = shares(link, load, 0, 30 * SECOND); let (share2, p992, _) = shares(link, load, 10*SECOND, 40 * SECOND);
                let ideal = n as u64 * (block << 10) * 1514 / 1448 * 1000 / 25_000_000;
                println!("queue {queue} block {block} n {n} in_step {in_step} credit {with_credit}: {share:.3} {share2:.3} p99 {} {} ms (ideal {ideal}) {:?}", p99 / MS, p992/MS, network.receiver(0).counts());
            }
        }
    }
}
