//! Stripes over servers, as far as a transport sees them: how many units each server sends or takes, and
//! which are computed. And the rows of it: Swift/RAID's setting, and with a server away.

use std::time::{Duration, Instant};

use braid_bench::median;
use braid_bench::stripes::Goal;
use braid_cli::output::exit::Failure;
use braid_layout::code::xor_into;

use super::peer::{Exchange, Peer, Server};
use super::rate::{bytes, show};
use super::way::{Way, carried};
use super::{PaperRow, Points, Run};
use crate::bench::hosts::{Hosts, Shape};

/// Common names of the rows.
pub(super) const PAPER: &str = "paper";
pub(super) const AWAY: &str = "away";

/// Swift/RAID's unit, its usual transfer, and the frames that its systems had room for.
const PAPER_UNIT: usize = 7340;
const PAPER_BLOCKS: usize = 40;
const PAPER_QUEUE: u64 = 50 * 1514;
/// The time of its machines for an exchange, beyond the wire, in each direction. With two servers its stop
/// and wait had 651 KB/s (section 5.2), so a unit took 22.5 ms; the wire needs 12.3 ms of that for two units,
/// of 7400 bytes with their headers.
const PAPER_HELD: Duration = Duration::from_millis(5);
/// Its Ethernet, and one whose ratio of wire to processor is more that of today.
const PAPER_SETS: [(u64, &[usize]); 2] = [(10_000_000, &[3, 4, 5]), (100_000_000, &[3])];
const PAPER_WAYS: [&str; 7] =
    ["stop-and-wait", "window-1", "window-2", "window-3", "window-4", "window-5", "go-back-n"];
const BASE_WAY: &str = "stop-and-wait";
const ADAPTIVE_WAY: &str = "go-back-n";
/// The gains of the paper's adaptive control over its stop and wait: 910 for 758 KB/s, 927 for 671, 896 for
/// 729 read; 768 for 616, 482 for 400, 559 for 375 written (section 5.2).
const PAPER_GAINS: [(Scheme, f64, f64); 3] =
    [(Scheme::Raid0, 1.20, 1.25), (Scheme::Raid4, 1.38, 1.20), (Scheme::Raid5, 1.23, 1.49)];

/// The rows with a server away: five drives, units of today, over a link of 100 Mbit/s.
const AWAY_DRIVES: usize = 5;
const AWAY_UNIT: usize = 64 << 10;
const AWAY_STRIPES: usize = 8;
const AWAY_WAYS: [&str; 4] = ["tcp", "go-back-n", "selective-repeat", "cubic"];
/// A read with a server away over one with all, as E4 has it.
const DEGRADED: Goal = Goal::AtLeast(0.97);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Raid0,
    Raid4,
    Raid5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// A transfer of whole stripes.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    scheme: Scheme,
    drives: usize,
    unit_bytes: usize,
    stripes: usize,
    /// The drive that is away.
    away: Option<usize>,
}

impl Scheme {
    const ALL: [Scheme; 3] = [Scheme::Raid0, Scheme::Raid4, Scheme::Raid5];

    fn name(self) -> &'static str {
        match self {
            Scheme::Raid0 => "raid0",
            Scheme::Raid4 => "raid4",
            Scheme::Raid5 => "raid5",
        }
    }

    fn parity_units(self) -> usize {
        usize::from(self != Scheme::Raid0)
    }
}

impl Direction {
    const ALL: [Direction; 2] = [Direction::Read, Direction::Write];

    fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

impl Transfer {
    fn data_units(&self) -> usize {
        self.drives - self.scheme.parity_units()
    }

    /// Bytes of the file that move.
    fn data_bytes(&self) -> usize {
        self.stripes * self.data_units() * self.unit_bytes
    }

    /// The drive with a stripe's parity.
    fn parity_of(&self, stripe: usize) -> Option<usize> {
        match self.scheme {
            Scheme::Raid0 => None,
            Scheme::Raid4 => Some(self.drives - 1),
            Scheme::Raid5 => Some(self.drives - 1 - stripe % self.drives),
        }
    }

    /// Drives whose units of a stripe move.
    fn moved(&self, stripe: usize, direction: Direction) -> impl Iterator<Item = usize> {
        let parity = self.parity_of(stripe);
        let needs_parity = direction == Direction::Write || self.is_rebuilt(stripe);
        let away = self.away;
        (0..self.drives).filter(move |&drive| Some(drive) != away && (needs_parity || Some(drive) != parity))
    }

    /// Returns true if a read computes a unit of the stripe, as its drive is away.
    fn is_rebuilt(&self, stripe: usize) -> bool {
        self.away.is_some() && self.parity_of(stripe).is_some() && self.parity_of(stripe) != self.away
    }

    /// Number of units that each drive sends or takes.
    fn units(&self, direction: Direction) -> Vec<usize> {
        let mut units = vec![0; self.drives];
        for stripe in 0..self.stripes {
            self.moved(stripe, direction).for_each(|drive| units[drive] += 1);
        }
        units
    }

    /// Moves all units, those of all drives at the same time, and computes parity before it or what is
    /// missing after it.
    async fn run(&self, peers: &mut [Peer], direction: Direction) -> Result<f64, Failure> {
        let began = Instant::now();
        if direction == Direction::Write {
            let parities = (0..self.stripes).filter(|&stripe| self.parity_of(stripe) != self.away).count();
            self.compute(peers, parities * self.scheme.parity_units());
        }
        let units = self.units(direction);
        let moved = peers.iter_mut().zip(&units).filter(|(_, units)| **units > 0);
        let each = moved.map(async |(peer, units)| {
            let bytes = units * self.unit_bytes;
            peer.exchange(match direction {
                Direction::Read => Exchange::read(bytes),
                Direction::Write => Exchange::write(bytes),
            })
            .await
        });
        futures_util::future::try_join_all(each).await?;
        if direction == Direction::Read {
            self.compute(peers, (0..self.stripes).filter(|&stripe| self.is_rebuilt(stripe)).count());
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// Computes this many units, each from as many as a stripe has of data.
    fn compute(&self, peers: &[Peer], units: usize) {
        let mut unit = vec![0; self.unit_bytes];
        for _ in 0..units {
            for peer in peers.iter().take(self.data_units()) {
                xor_into(&mut unit, &peer.buffer[..self.unit_bytes]);
            }
        }
        std::hint::black_box(&unit);
    }
}

/// The setting of the paper: 40 blocks, by windows of 1 to 5 and by its adaptive control.
pub(super) async fn paper(run: &mut Run, points: &mut Points) -> Result<(), Failure> {
    for &(bits, drives) in run.size(&PAPER_SETS[..], &PAPER_SETS[1..]) {
        for &drives in drives {
            let row = |scheme: Scheme, direction: Direction| {
                let [scheme, direction] = [scheme.name(), direction.name()];
                let name = format!("{PAPER}, {} Mbit/s, {drives} drives", bits / 1_000_000);
                format!("{name}, {scheme}, {direction}: {ADAPTIVE_WAY} over {BASE_WAY}")
            };
            let kinds = Scheme::ALL.iter().flat_map(|&scheme| Direction::ALL.map(|way| (scheme, way)));
            let kinds: Vec<(Scheme, Direction)> =
                kinds.filter(|kind| run.wants(&row(kind.0, kind.1))).collect();
            if kinds.is_empty() {
                continue;
            }
            let ways = Way::named(&PAPER_WAYS);
            let shape = Shape { bits, queue_bytes: PAPER_QUEUE };
            let mut set = Set::up(drives, &ways, &shape, PAPER_HELD).await?;
            for (scheme, direction) in kinds {
                let name = row(scheme, direction);
                run.tell(name.clone());
                let stripes = PAPER_BLOCKS.div_ceil(drives - scheme.parity_units());
                let transfer = Transfer { scheme, drives, unit_bytes: PAPER_UNIT, stripes, away: None };
                let rates = set.rates(&transfer, direction, run.size((5, 1), (1, 0))).await?;
                let of = |name: &str| rates[PAPER_WAYS.iter().position(|way| *way == name).unwrap_or(0)];
                let words = PAPER_WAYS
                    .iter()
                    .zip(&ways)
                    .map(|(name, way)| format!("{} {:.0}", way.shown(), of(name) / 1e3));
                let words = words.collect::<Vec<_>>().join(", ");
                let gain = PAPER_GAINS.iter().find(|gain| gain.0 == scheme).map(|gain| match direction {
                    Direction::Read => gain.1,
                    Direction::Write => gain.2,
                });
                let share = of(ADAPTIVE_WAY) / carried(bits) * bytes(transfer.units(direction).iter().sum())
                    / bytes(transfer.stripes * transfer.data_units());
                let found = format!("KB/s: {words}; {share:.2} of the link");
                run.add(&name, found, of(ADAPTIVE_WAY) / of(BASE_WAY), gain.map(Goal::AtLeast));
                if scheme == Scheme::Raid5 {
                    let windows: Vec<(f64, f64)> = (1..=5u8)
                        .map(|window| (f64::from(window), of(&format!("window-{window}"))))
                        .collect();
                    let adaptive = of(ADAPTIVE_WAY);
                    let direction = direction.name();
                    points.paper.push(PaperRow { bits, drives, direction, windows, adaptive });
                }
            }
        }
    }
    Ok(())
}

/// The same transfer with a drive away and with all.
pub(super) async fn away(run: &mut Run) -> Result<(), Failure> {
    let shape = Shape::ALL[0];
    for scheme in [Scheme::Raid4, Scheme::Raid5] {
        for direction in Direction::ALL {
            let row = |way: Way| {
                let [scheme, direction] = [scheme.name(), direction.name()];
                format!(
                    "{AWAY}, {AWAY_DRIVES} drives, {scheme}, {direction}: {} with a data drive away over all",
                    way.shown()
                )
            };
            let ways = Way::named(&AWAY_WAYS).into_iter().filter(|&way| run.wants(&row(way)));
            let ways: Vec<Way> = ways.collect();
            if ways.is_empty() {
                continue;
            }
            run.tell(row(ways[0]));
            let mut set = Set::up(AWAY_DRIVES, &ways, &shape, Duration::ZERO).await?;
            let whole = Transfer {
                scheme,
                drives: AWAY_DRIVES,
                unit_bytes: AWAY_UNIT,
                stripes: AWAY_STRIPES,
                away: None,
            };
            let times = run.size((5, 1), (1, 0));
            let all = set.rates(&whole, direction, times).await?;
            let less = set.rates(&Transfer { away: Some(0), ..whole }, direction, times).await?;
            for ((&way, all), less) in ways.iter().zip(all).zip(less) {
                let goal = (direction == Direction::Read).then_some(DEGRADED);
                run.add(&row(way), format!("{}; {} with all", show(less), show(all)), less / all, goal);
            }
        }
    }
    Ok(())
}

/// Servers on hosts, with connections by each way to each of them.
struct Set {
    _servers: Vec<Server>,
    peers: Vec<Vec<Peer>>,
    _hosts: Hosts,
}

impl Set {
    async fn up(drives: usize, ways: &[Way], shape: &Shape, held: Duration) -> Result<Set, Failure> {
        let hosts = Hosts::up(drives)?;
        let servers = Server::on_each_held(&hosts, drives, ways, held)?;
        let mut peers = Vec::new();
        for &way in ways {
            let mut of_way = Vec::new();
            for server in &servers {
                of_way.push(server.connect(way).await?);
            }
            peers.push(of_way);
        }
        hosts.shape(shape)?;
        Ok(Set { _servers: servers, peers, _hosts: hosts })
    }

    /// Bytes a second of the file, by ways: medians of transfers by turns.
    async fn rates(
        &mut self,
        transfer: &Transfer,
        direction: Direction,
        times: (usize, usize),
    ) -> Result<Vec<f64>, Failure> {
        let (rounds, warm_ups) = times;
        let mut found = vec![Vec::new(); self.peers.len()];
        for round in 0..rounds + warm_ups {
            for (peers, found) in self.peers.iter_mut().zip(&mut found) {
                let seconds = transfer.run(peers, direction).await?;
                if round >= warm_ups {
                    found.push(bytes(transfer.data_bytes()) / seconds);
                }
            }
        }
        Ok(found.iter().map(|rates| median(rates)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(scheme: Scheme, away: Option<usize>) -> [Vec<usize>; 2] {
        let transfer = Transfer { scheme, drives: 4, unit_bytes: 100, stripes: 4, away };
        Direction::ALL.map(|direction| transfer.units(direction))
    }

    #[test]
    fn each_scheme_moves_its_units() {
        assert_eq!(units(Scheme::Raid0, None), [vec![4; 4], vec![4; 4]]);
        assert_eq!(units(Scheme::Raid4, None), [vec![4, 4, 4, 0], vec![4; 4]]);
        assert_eq!(units(Scheme::Raid5, None), [vec![3; 4], vec![4; 4]]);
        // Without a data drive its unit is read from the others, the parity among them; without the parity
        // drive nothing is missing.
        assert_eq!(units(Scheme::Raid4, Some(0)), [vec![0, 4, 4, 4], vec![0, 4, 4, 4]]);
        assert_eq!(units(Scheme::Raid4, Some(3)), [vec![4, 4, 4, 0], vec![4, 4, 4, 0]]);
        assert_eq!(units(Scheme::Raid5, Some(0)), [vec![0, 4, 4, 4], vec![0, 4, 4, 4]]);
    }
}
