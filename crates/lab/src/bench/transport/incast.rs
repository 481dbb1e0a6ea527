//! Incast: blocks of 256 KiB from many servers at once, over one link with a short queue. The next round
//! begins when the last block of this one has come.

use std::sync::Arc;
use std::time::Duration;

use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;
use braid_transport::Credit;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::peer::{Exchange, Peer, Server};
use super::rate::{BLOCK_BYTES, bytes};
use super::way::{Way, carried};
use super::{Points, Run};
use crate::bench::hosts::{Hosts, Shape};

/// Common name of the rows.
pub(super) const GROUP: &str = "incast";
const LINK_BITS: u64 = 200_000_000;
/// Bytes of the queue, with numbers of servers.
const SETS: [(u64, &[usize]); 2] = [(64 << 10, &[4, 8, 16, 32]), (32 << 10, &[16, 32])];
const QUICK_SETS: [(u64, &[usize]); 1] = [(64 << 10, &[4])];
/// Bytes in flight of one sender that has its turn: enough to go on while acknowledgements are under way.
const TURN_BYTES: u64 = 8 << 10;
/// The share of the link, and the slowest round of a hundred over the ideal.
const SHARE: Goal = Goal::AtLeast(0.95);
const SLOWEST: Goal = Goal::AtMost(2.0);
/// Senders from which the goals hold.
const MANY: usize = 16;

/// Who decides how many senders answer at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turns {
    /// Nobody: all are asked at once.
    None,
    /// The client's credit, as Braid's clients have it, which finds a window by lost time.
    Found,
    /// The client, which knows its link's product and tells each its share.
    Known,
}

const CASES: [(&str, Turns); 7] = [
    ("tcp", Turns::None),
    ("tcp-of-system", Turns::None),
    ("tcp", Turns::Found),
    ("tcp", Turns::Known),
    ("go-back-n", Turns::None),
    ("cubic", Turns::None),
    ("credit", Turns::Known),
];

/// Times of rounds.
#[derive(Debug, Default)]
struct Rounds {
    seconds: Vec<f64>,
}

impl Turns {
    fn words(self) -> &'static str {
        match self {
            Turns::None => "",
            Turns::Found => " with the client's credit",
            Turns::Known => " with a known credit",
        }
    }
}

pub(super) async fn measure(run: &mut Run, points: &mut Points) -> Result<(), Failure> {
    for &(queue_bytes, senders) in run.size(&SETS[..], &QUICK_SETS[..]) {
        let shape = Shape { bits: LINK_BITS, queue_bytes };
        for &senders in senders {
            let name = format!("{GROUP}, {shape}, {senders} servers");
            let named = |way: Way, turns: Turns| {
                let turns = if way.is_credit() { "" } else { turns.words() };
                format!("{name}: {}{turns}", way.shown())
            };
            let rows = |name: &str| [format!("{name}, of the link"), format!("{name}, slowest of a hundred")];
            let cases = CASES.iter().map(|(name, turns)| (Way::named(&[name])[0], *turns));
            let is_wanted =
                |(way, turns): &(Way, Turns)| rows(&named(*way, *turns)).iter().any(|row| run.wants(row));
            let cases: Vec<(Way, Turns)> = cases.filter(is_wanted).collect();
            if cases.is_empty() {
                continue;
            }
            let hosts = Hosts::up(senders)?;
            let mut ways: Vec<Way> = Vec::new();
            for (way, _) in &cases {
                if !ways.contains(way) {
                    ways.push(*way);
                }
            }
            let servers = Server::on_each(&hosts, senders, &ways)?;
            hosts.shape(&shape)?;
            for &(way, turns) in &cases {
                let name = named(way, turns);
                run.tell(name.clone());
                let rounds = rounds(run, &servers, &shape, way, turns).await?;
                let ideal = bytes(BLOCK_BYTES * senders) / carried(LINK_BITS);
                let [share, p99] = [rounds.share(ideal), rounds.part(0.99) / ideal];
                let words = format!(
                    "{} rounds of {:.1} ms, half of them {:.2} of the ideal",
                    rounds.seconds.len(),
                    rounds.part(0.5) * 1e3,
                    rounds.part(0.5) / ideal
                );
                let has_goal = way.is_credit() && senders >= MANY;
                let [first, second] = rows(&name);
                run.add(&first, words.clone(), share, has_goal.then_some(SHARE));
                run.add(&second, words, p99, has_goal.then_some(SLOWEST));
                points.incast.push((
                    queue_bytes,
                    format!("{}{}", way.shown(), turns.words()),
                    senders,
                    share,
                ));
            }
        }
    }
    Ok(())
}

/// Runs rounds with new connections to all servers.
async fn rounds(
    run: &Run,
    servers: &[Server],
    shape: &Shape,
    way: Way,
    turns: Turns,
) -> Result<Rounds, Failure> {
    let mut peers = Vec::new();
    for server in servers {
        peers.push(server.connect(way).await?);
    }
    let at_once = usize::try_from(shape.product() / TURN_BYTES).unwrap_or(1).clamp(1, servers.len());
    if way.is_credit() {
        let each = shape.product() / u64::try_from(at_once).unwrap_or(1);
        peers.iter().for_each(|peer| peer.set_window(each));
    }
    // Credit that is found needs some seconds.
    let warm = Duration::from_millis(run.size(if turns == Turns::Found { 5000 } else { 1000 }, 100));
    let counted = Duration::from_millis(run.size(4000, 300));
    let credit = Arc::new(Credit::default());
    let permits = Semaphore::new(at_once);
    let mut rounds = Rounds::default();
    let began = Instant::now();
    loop {
        let at = Instant::now();
        if at >= began + warm + counted {
            return Ok(rounds);
        }
        let blocks =
            peers.iter_mut().zip(0..).map(|(peer, index)| block(peer, index, turns, &permits, &credit));
        futures_util::future::try_join_all(blocks).await?;
        if at >= began + warm {
            rounds.seconds.push(at.elapsed().as_secs_f64());
        }
    }
}

/// Gets one server's block, in its turn.
async fn block(
    peer: &mut Peer,
    index: u128,
    turns: Turns,
    permits: &Semaphore,
    credit: &Arc<Credit>,
) -> Result<(), Failure> {
    let exchange = Exchange::read(BLOCK_BYTES);
    let bytes = u64::try_from(BLOCK_BYTES).unwrap_or(u64::MAX);
    match turns {
        Turns::None => peer.exchange(exchange).await,
        Turns::Known => {
            let _permit = permits.acquire().await;
            peer.exchange(exchange).await
        }
        Turns::Found => {
            let turn = credit.turn(1, index, bytes).await;
            peer.exchange(exchange).await?;
            let is_lossy = turn.is_worth_a_look() && peer.has_lost();
            turn.arrived(bytes, is_lossy);
            Ok(())
        }
    }
}

impl Rounds {
    /// The time that this part of the rounds took at most.
    fn part(&self, part: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let above = sorted.iter().enumerate().find(|(at, _)| bytes(at + 1) >= part * bytes(sorted.len()));
        above.map_or(f64::NAN, |(_, seconds)| *seconds)
    }

    /// Share of the link that the rounds had.
    fn share(&self, ideal: f64) -> f64 {
        ideal * bytes(self.seconds.len()) / self.seconds.iter().sum::<f64>().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_is_the_slowest_of_less() {
        let rounds = Rounds { seconds: vec![1.0, 9.0, 2.0, 4.0] };
        assert_eq!((rounds.part(0.5), rounds.part(0.99)), (2.0, 9.0));
        assert!((rounds.share(2.0) - 0.5).abs() < 1e-9);
        let many = Rounds { seconds: (1..=200).map(f64::from).collect() };
        assert_eq!(many.part(0.99), 198.0);
    }
}
