//! One server and the client's link: clean, and with random losses.

use braid_bench::median;
use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;

use super::peer::{Exchange, Peer, Server};
use super::rate::{self, BLOCK_BYTES, Times, show};
use super::way::{Way, carried};
use super::{Points, Run};
use crate::bench::hosts::{Hosts, Shape};

/// Common names of the rows.
pub(super) const CLEAN: &str = "clean";
pub(super) const LOSS: &str = "loss";

/// All ways, in the order of their rows.
const ALL: [&str; 13] = [
    "tcp",
    "tcp-of-system",
    "stop-and-wait",
    "window-1",
    "window-2",
    "window-3",
    "window-4",
    "window-5",
    "window-32",
    "go-back-n",
    "selective-repeat",
    "credit",
    "cubic",
];
/// Those of a link whose rate a few datagrams in flight cannot fill, and of a quick run.
const FAST: [&str; 8] =
    ["tcp", "tcp-of-system", "window-5", "window-32", "go-back-n", "selective-repeat", "credit", "cubic"];
/// Ways that find or know how much may be in flight on any of the links.
const ADAPTIVE: [&str; 4] = ["go-back-n", "selective-repeat", "credit", "cubic"];
/// Ways over links that lose.
const LOSSY: [&str; 7] =
    ["tcp", "tcp-of-system", "window-32", "go-back-n", "selective-repeat", "credit", "cubic"];
/// Links, and frames of 1,000 that are lost.
const LOSSES: [(Shape, u32); 6] = [
    (Shape::ALL[0], 1),
    (Shape::ALL[0], 10),
    (Shape::ALL[0], 30),
    (Shape::ALL[2], 1),
    (Shape::ALL[2], 10),
    (Shape::ALL[2], 30),
];
/// Share of what UDP's payload can carry, of a clean link.
const FULL: Goal = Goal::AtLeast(0.97);
/// The same with one frame of 100 lost.
const LOST: Goal = Goal::AtLeast(0.90);
/// The window that fills a link of 100 Mbit/s and may not fill one of 1 Gbit/s.
const SLOW_BITS: u64 = 100_000_000;

/// A link, what of its frames is lost, and the ways that are compared on it.
struct Case {
    name: String,
    shape: Shape,
    losses: u32,
    ways: Vec<Way>,
}

impl Case {
    fn row(&self, way: Way) -> String {
        format!("{}: {}", self.name, way.shown())
    }

    /// The goal of a way's row.
    fn goal(&self, way: Way) -> Option<Goal> {
        let adapts = Way::named(&ADAPTIVE).contains(&way);
        let name = way.to_string();
        let is_wide = name.starts_with("window-") && name != "window-1";
        match self.losses {
            0 if adapts || is_wide && self.shape.bits <= SLOW_BITS => Some(FULL),
            10 if adapts => Some(LOST),
            _ => None,
        }
    }
}

pub(super) async fn clean(run: &mut Run) -> Result<(), Failure> {
    for shape in run.size(&Shape::ALL[..], &Shape::ALL[..1]) {
        let names = if run.size(shape.bits > SLOW_BITS, true) { &FAST[..] } else { &ALL[..] };
        let ways = Way::named(names);
        let case = Case { name: format!("{CLEAN}, {shape}"), shape: *shape, losses: 0, ways };
        measure(run, &case).await?;
    }
    Ok(())
}

pub(super) async fn lossy(run: &mut Run, points: &mut Points) -> Result<(), Failure> {
    for &(shape, losses) in run.size(&LOSSES[..], &LOSSES[1..2]) {
        let percent = f64::from(losses) / 10.0;
        let name = format!("{LOSS} {percent} %, {shape}");
        let case = Case { name, shape, losses, ways: Way::named(&LOSSY) };
        for (way, share) in measure(run, &case).await? {
            points.loss.push((shape.bits, way, percent, share));
        }
    }
    Ok(())
}

/// Takes a case's rows; returns the share of each way.
async fn measure(run: &mut Run, case: &Case) -> Result<Vec<(Way, f64)>, Failure> {
    let is_wanted = |way: &Way| run.wants(&case.row(*way));
    let mut ways: Vec<Way> = case.ways.iter().copied().filter(is_wanted).collect();
    if ways.is_empty() {
        return Ok(Vec::new());
    }
    // TCP is beside every row.
    if !ways.contains(&Way::Tcp) {
        ways.insert(0, Way::Tcp);
    }
    run.tell(case.name.clone());
    let hosts = Hosts::up(1)?;
    let server = Server::start(Some((&hosts, 0)), &ways)?;
    let mut peers = Vec::new();
    for &way in &ways {
        let peer = server.connect(way).await?;
        if way.is_credit() {
            peer.set_window(case.shape.product());
        }
        peers.push(peer);
    }
    hosts.shape(&case.shape)?;
    hosts.lose(case.losses)?;
    let (rounds, times) = run.size((5, Times::new(300, 700)), (1, Times::new(100, 100)));
    let mut found = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for at in 0..ways.len() {
            // Each round begins with another way.
            let at = (at + round) % ways.len();
            run.tell(format!("{}, round {} of {rounds}", case.row(ways[at]), round + 1));
            found[at].push(sample(&mut peers[at], times).await?);
        }
    }
    let link = carried(case.shape.bits);
    let tcp = median(&found[ways.iter().position(|&way| way == Way::Tcp).unwrap_or(0)]);
    let mut shares = Vec::new();
    for (&way, rates) in ways.iter().zip(&found) {
        let middle = median(rates);
        let [least, most] = [rates.iter().copied().reduce(f64::min), rates.iter().copied().reduce(f64::max)]
            .map(|rate| rate.unwrap_or(0.0));
        let beside = if way == Way::Tcp { String::new() } else { format!("; TCP {}", show(tcp)) };
        let words = format!("{} ({:.2} to {:.2}){beside}", show(middle), least / 1e6, most / 1e6);
        run.add(&case.row(way), words, middle / link, case.goal(way));
        shares.push((way, middle / link));
    }
    Ok(shares)
}

async fn sample(peer: &mut Peer, times: Times) -> Result<f64, Failure> {
    rate::of_one(peer, Exchange::read(BLOCK_BYTES), times).await
}
