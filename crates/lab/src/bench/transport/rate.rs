//! Rates: blocks that are asked for one after another, with some of them in flight.

use std::time::Duration;

use braid_cli::output::exit::Failure;
use tokio::time::Instant;

use super::peer::{Exchange, Peer};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 256 << 10;
/// Blocks in flight on a connection, so that the link is not idle while the next is asked for.
const IN_FLIGHT: usize = 2;

/// Times of one sample: what runs before it counts, and what counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) warm: Duration,
    pub(super) counted: Duration,
}

impl Times {
    pub(super) fn new(warm_ms: u64, counted_ms: u64) -> Times {
        Times { warm: Duration::from_millis(warm_ms), counted: Duration::from_millis(counted_ms) }
    }
}

/// Bytes a second of one peer's blocks: from the first answer after the warm time to the first after what
/// counts.
pub(super) async fn of_one(peer: &mut Peer, exchange: Exchange, times: Times) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut counted = None;
    let mut blocks = 0;
    for _ in 0..IN_FLIGHT {
        peer.ask(exchange).await?;
    }
    let seconds = loop {
        peer.answer(exchange).await?;
        let now = Instant::now();
        match counted {
            None if now >= began + times.warm => counted = Some(now),
            None => {}
            Some(from) => {
                blocks += 1;
                if now >= from + times.counted {
                    break (now - from).as_secs_f64();
                }
            }
        }
        peer.ask(exchange).await?;
    };
    for _ in 1..IN_FLIGHT {
        peer.answer(exchange).await?;
    }
    Ok(bytes(exchange.bytes() * blocks) / seconds.max(1e-9))
}

/// Bytes a second of each peer, while all of them exchange blocks at the same time. Those that answer seldom
/// are counted in parts of blocks.
pub(super) async fn of_all(
    peers: &mut [Peer],
    exchange: Exchange,
    times: Times,
) -> Result<Vec<f64>, Failure> {
    let began = Instant::now();
    let [from, until] = [began + times.warm, began + times.warm + times.counted];
    let each = peers.iter_mut().map(async |peer| {
        for _ in 0..IN_FLIGHT {
            peer.ask(exchange).await?;
        }
        let mut before = began;
        let mut blocks = 0.0;
        loop {
            peer.answer(exchange).await?;
            let now = Instant::now();
            // The block counts by the part of its time that counts.
            let inside = now.min(until).saturating_duration_since(before.max(from));
            blocks += inside.as_secs_f64() / (now - before).as_secs_f64().max(1e-9);
            before = now;
            if now >= until {
                break;
            }
            peer.ask(exchange).await?;
        }
        for _ in 1..IN_FLIGHT {
            peer.answer(exchange).await?;
        }
        Ok::<f64, Failure>(blocks * bytes(exchange.bytes()) / times.counted.as_secs_f64())
    });
    futures_util::future::try_join_all(each).await
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has all.
pub(super) fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let count = f64::from(u32::try_from(rates.len()).unwrap_or(u32::MAX));
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub(super) fn bytes(count: usize) -> f64 {
    count as f64
}

/// A rate in MB/s.
pub(super) fn show(rate: f64) -> String {
    format!("{:.2} MB/s", rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_part_for_one_that_has_all() {
        for (rates, index) in [(&[3.0, 3.0][..], 1.0), (&[5.0, 0.0], 0.5), (&[1.0, 3.0], 0.8), (&[0.0], 0.0)]
        {
            assert!((jain(rates) - index).abs() < 1e-9, "{rates:?}");
        }
    }
}
