//! A link that datagrams share with TCP: how fairly.

use braid_bench::median;
use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;

use super::Run;
use super::peer::{Exchange, Server};
use super::rate::{self, BLOCK_BYTES, Times, jain, show};
use super::way::Way;
use crate::bench::hosts::{Hosts, Shape};

/// Common name of the rows.
pub(super) const GROUP: &str = "shared";
/// Numbers of TCP connections beside one of datagrams.
const BESIDE: (&[usize], &[usize]) = (&[1, 2, 4], &[1]);
/// Jain's index that the policy that is to be fair has.
const FAIR: Goal = Goal::AtLeast(0.9);
const FAIR_WAY: &str = "cubic";
/// The ways of the one connection: that of TCP is what is usual.
const WAYS: [&str; 2] = ["tcp", "cubic"];

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let ways = Way::named(&WAYS);
    for shape in run.size(&Shape::ALL[..2], &Shape::ALL[..1]) {
        for &beside in run.size(BESIDE.0, BESIDE.1) {
            let row = |way: Way| {
                format!("{GROUP}, {shape}: {} beside {beside} of TCP (cubic), Jain's index", way.shown())
            };
            let ways: Vec<Way> = ways.iter().copied().filter(|&way| run.wants(&row(way))).collect();
            if ways.is_empty() {
                continue;
            }
            let found = case(run, shape, beside, &ways).await?;
            for (&way, rates) in ways.iter().zip(&found) {
                let middle = |at: usize| median(&rates.iter().map(|rates| rates[at]).collect::<Vec<_>>());
                let others = (1..=beside).map(|at| show(middle(at))).collect::<Vec<_>>().join(", ");
                let indices: Vec<f64> = rates.iter().map(|rates| jain(rates)).collect();
                let goal = (way.to_string() == FAIR_WAY).then_some(FAIR);
                let found = format!("{} beside {others}", show(middle(0)));
                run.add(&row(way), found, median(&indices), goal);
            }
        }
    }
    Ok(())
}

/// Rates of the one and of those beside it, by ways and samples.
async fn case(run: &Run, shape: &Shape, beside: usize, ways: &[Way]) -> Result<Vec<Vec<Vec<f64>>>, Failure> {
    let hosts = Hosts::up(1 + beside)?;
    let mut served = ways.to_vec();
    if !served.contains(&Way::Tcp) {
        served.push(Way::Tcp);
    }
    let servers = Server::on_each(&hosts, 1 + beside, &served)?;
    hosts.shape(shape)?;
    let (rounds, times) = run.size((5, Times::new(1000, 2000)), (1, Times::new(100, 200)));
    let mut found = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for (&way, found) in ways.iter().zip(&mut found) {
            run.tell(format!("{GROUP}, {shape}: {way} beside {beside}, round {} of {rounds}", round + 1));
            // New connections: what the last ones have learnt of the link is not to count.
            let mut peers = vec![servers[0].connect(way).await?];
            for server in &servers[1..] {
                peers.push(server.connect(Way::Tcp).await?);
            }
            found.push(rate::of_all(&mut peers, Exchange::read(BLOCK_BYTES), times).await?);
        }
    }
    Ok(found)
}
