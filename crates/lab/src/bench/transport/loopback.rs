//! The loopback without a limit: what the machine carries, and what it costs.

use std::time::Duration;

use braid_bench::median;
use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;
use rustix::time::{ClockId, clock_gettime};

use super::Run;
use super::peer::{Exchange, Server};
use super::rate::{self, BLOCK_BYTES, Times, show};
use super::way::Way;

/// Common name of the rows.
pub(super) const GROUP: &str = "loopback";
const WAYS: [&str; 7] =
    ["tcp", "tcp-of-system", "window-32", "go-back-n", "selective-repeat", "credit", "cubic"];
/// Bytes that the receiver lets be in flight under credit.
const CREDIT_BYTES: u64 = 1 << 20;
/// Rate over that of TCP.
const RATE: Goal = Goal::AtLeast(0.9);
/// The default is judged.
const DEFAULT_WAY: &str = "cubic";

/// A sample: bytes a second, and processor seconds of both processes for a GiB.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rate: f64,
    cpu: f64,
}

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let kinds = [("read", Exchange::read(BLOCK_BYTES)), ("write", Exchange::write(BLOCK_BYTES))];
    let row = |name: &str, way: Way| format!("{GROUP}, {name}: {} over TCP (cubic)", way.shown());
    let all = Way::named(&WAYS);
    if !kinds.iter().any(|kind| all.iter().any(|&way| run.wants(&row(kind.0, way)))) {
        return Ok(());
    }
    let server = Server::start(None, &all)?;
    for (name, exchange) in kinds {
        let row = |way: Way| row(name, way);
        let mut ways: Vec<Way> = all.iter().copied().filter(|&way| run.wants(&row(way))).collect();
        if ways.is_empty() {
            continue;
        }
        if !ways.contains(&Way::Tcp) {
            ways.insert(0, Way::Tcp);
        }
        let mut peers = Vec::new();
        for &way in &ways {
            let peer = server.connect(way).await?;
            if way.is_credit() {
                peer.set_window(CREDIT_BYTES);
            }
            peers.push(peer);
        }
        let (rounds, times) = run.size((5, Times::new(200, 800)), (1, Times::new(50, 100)));
        let mut found = vec![Vec::new(); ways.len()];
        for round in 0..rounds {
            for at in 0..ways.len() {
                let at = (at + round) % ways.len();
                run.tell(format!("{}, round {} of {rounds}", row(ways[at]), round + 1));
                rate::of_one(&mut peers[at], exchange, Times { counted: Duration::ZERO, ..times }).await?;
                let before = cpu_seconds(&server)?;
                let began = std::time::Instant::now();
                let warm = Times { warm: Duration::ZERO, ..times };
                let rate = rate::of_one(&mut peers[at], exchange, warm).await?;
                let cpu = cpu_seconds(&server)? - before;
                let moved = rate * began.elapsed().as_secs_f64();
                found[at].push(Sample { rate, cpu: cpu * f64::from(1 << 30) / moved });
            }
        }
        let tcp = ways.iter().position(|&way| way == Way::Tcp).unwrap_or(0);
        for (&way, samples) in ways.iter().zip(&found) {
            let pairs = samples.iter().zip(&found[tcp]);
            let ratio = median(&pairs.map(|(own, tcp)| own.rate / tcp.rate).collect::<Vec<_>>());
            let middle = |of: fn(&Sample) -> f64, of_samples: &[Sample]| {
                median(&of_samples.iter().map(of).collect::<Vec<_>>())
            };
            let words = |samples: &[Sample]| {
                let rate = show(middle(|sample| sample.rate, samples));
                format!("{rate}, {:.2} CPU s/GiB", middle(|sample| sample.cpu, samples))
            };
            let goal = (way.to_string() == DEFAULT_WAY).then_some(RATE);
            run.add(&row(way), format!("{}; TCP {}", words(samples), words(&found[tcp])), ratio, goal);
        }
    }
    Ok(())
}

/// Processor time of this process and of the server so far.
fn cpu_seconds(server: &Server) -> Result<f64, Failure> {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::try_from(own).unwrap_or_default().as_secs_f64() + server.cpu_seconds()?)
}
