//! Incast: many senders answer one receiver at once, over a link with a short queue.
//!
//! Reads: a client reads a file stripe by stripe, a block from each of 16 drives, all asked at once. Writes:
//! 16 clients write a block each to one drive, all at once. Each round begins when the last has ended. Plain
//! programs do the same over the same links. A row says how much of the link's TCP payload came, and how long
//! the slowest of a hundred rounds took, as a multiple of what the link needs for one.

use std::time::Duration;

use braid_bench::stripes::Goal;
use braid_bench::volumes::Row as Shown;
use braid_cli::DriveOptions;
use braid_cli::connect::config;
use braid_cli::output::exit::Failure;
use braid_client::{Client, Config, File, Name, OpenOptions};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answers::{Answering, Plain};
use crate::bench::cluster::{Cluster, name};
use crate::bench::hosts::{Hosts, Links, PAYLOAD_SHARE};
use crate::bench::run::Run;

const SENDERS: u16 = 16;
/// Bytes of each sender in a round.
const BLOCK: u32 = 64 << 10;
const LINK_BITS: u64 = 200_000_000;
const QUEUE_BYTES: u64 = 32 << 10;
/// Stripes of the file that is read.
const STRIPES: u64 = 32;
const BRAID: &str = "Braid";
const READS: &str = "incast: 16 drives to one client";
const WRITES: &str = "incast: 16 clients to one drive";

/// Share of the link's payload that Braid is to get.
const SHARE: Goal = Goal::AtLeast(0.95);
/// The slowest of a hundred rounds, over what the link needs for one.
const SLOWEST: Goal = Goal::AtMost(2.0);

/// Common name of the rows.
pub(super) const GROUP: &str = "incast";

/// Rows that were measured.
#[derive(Debug, Default)]
struct Found {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    way: &'static str,
    /// Share of the link's TCP payload.
    share: f64,
    /// The 99th percentile of the rounds' times over the time that the link needs for one.
    p99_over_ideal: f64,
    rounds: usize,
    /// The client's window at the end, and how many answers it saw late.
    window: Option<u64>,
    stalls: u64,
}

/// Times of a measurement: what runs before it counts, and the whole.
#[derive(Clone, Copy)]
struct Times {
    warm: Duration,
    whole: Duration,
}

/// Times of rounds.
#[derive(Default)]
struct Rounds {
    seconds: Vec<f64>,
    whole: f64,
}

/// Measures the rows that are wanted.
pub(super) async fn measure(run: &Run) -> Result<Vec<Shown>, Failure> {
    let mut found = Found::default();
    let seconds = |full, quick| Duration::from_secs(run.size(full, quick));
    let times = Times { warm: seconds(5, 2), whole: seconds(30, 6) };
    if run.wants(READS) {
        reads(run, times, &mut found).await?;
    }
    if run.wants(WRITES) {
        writes(run, times, &mut found).await?;
    }
    Ok(found.rows.iter().flat_map(Row::shown).collect())
}

async fn reads(run: &Run, times: Times, found: &mut Found) -> Result<(), Failure> {
    run.tell(READS);
    let hosts = Hosts::up(usize::from(SENDERS))?;
    let plain = (0..usize::from(SENDERS)).map(|host| Answering::start(&hosts, host));
    let plain = plain.collect::<Result<Vec<_>, _>>()?;
    let cluster = Cluster::bare_on(&hosts, run.path(), "incast", SENDERS, DriveOptions::default()).await?;
    cluster.make_volume(("raid0", u8::try_from(SENDERS).unwrap_or(u8::MAX)), BLOCK).await?;
    let file = name("read")?;
    let stripe = u64::from(BLOCK) * u64::from(SENDERS);
    let writer = open(&cluster.client, &file, true).await?;
    for index in 0..STRIPES {
        writer.write_at(&vec![1; usize::try_from(stripe).unwrap_or(0)], index * stripe).await?;
    }
    writer.close().await?;
    hosts.narrow(Links::Clients, LINK_BITS, QUEUE_BYTES)?;

    let mut peers = Vec::new();
    for program in &plain {
        peers.push(program.connect().await?);
    }
    found.plain(READS, times, peers, (1, BLOCK)).await?;
    drop(plain);
    for is_on in [false, true] {
        let client = client(&cluster, is_on).await?;
        let reader = open(&client, &file, false).await?;
        let mut buffer = vec![0; usize::try_from(stripe).unwrap_or(0)];
        let mut rounds = Rounds::default();
        let began = Instant::now();
        for index in 0.. {
            let at = Instant::now();
            if at - began >= times.whole {
                break;
            }
            reader.read_at(&mut buffer, index % STRIPES * stripe).await?;
            rounds.add(times, began, at);
        }
        let way = if is_on { BRAID } else { "Braid without credit" };
        found.add(READS, way, &rounds, Some(&client));
        reader.close().await?;
    }
    cluster.down().await
}

async fn writes(run: &Run, times: Times, found: &mut Found) -> Result<(), Failure> {
    run.tell(WRITES);
    let hosts = Hosts::up(1)?;
    let plain = Answering::start(&hosts, 0)?;
    let mut peers = Vec::new();
    for _ in 0..SENDERS {
        peers.push(plain.connect().await?);
    }
    hosts.narrow(Links::Drives, LINK_BITS, QUEUE_BYTES)?;
    found.plain(WRITES, times, peers, (BLOCK, 1)).await?;
    drop(plain);
    for is_on in [false, true] {
        // A drive of its own: what a drive has learnt of its link would show in the next row.
        let directory = format!("incast-{is_on}");
        let cluster = Cluster::bare_on(&hosts, run.path(), &directory, 1, DriveOptions::default()).await?;
        cluster.make_volume(("raid0", 1), BLOCK).await?;
        let mut writers = Vec::new();
        let mut clients = Vec::new();
        for index in 0..SENDERS {
            let client = client(&cluster, is_on).await?;
            let file = name(&format!("written-{is_on}-{index}"))?;
            writers.push(open(&client, &file, true).await?);
            clients.push(client);
        }
        let block = vec![1; usize::try_from(BLOCK).unwrap_or(0)];
        let mut rounds = Rounds::default();
        let began = Instant::now();
        for index in 0.. {
            let at = Instant::now();
            if at - began >= times.whole {
                break;
            }
            let offset = index % STRIPES * u64::from(BLOCK);
            all(writers.iter().map(|writer| async { Ok(writer.write_at(&block, offset).await?) })).await?;
            rounds.add(times, began, at);
        }
        let way = if is_on { BRAID } else { "Braid without credit" };
        found.add(WRITES, way, &rounds, None);
        for writer in writers {
            writer.close().await?;
        }
        drop(clients);
        cluster.down().await?;
    }
    Ok(())
}

/// Rounds of plain exchanges, with all programs, so many of them at once.
async fn plain_rounds(
    times: Times,
    peers: &mut [Plain],
    exchange: (u32, u32),
    at_once: usize,
) -> Result<Rounds, Failure> {
    let [out, back] = [exchange.0, exchange.1].map(|bytes| usize::try_from(bytes).unwrap_or(0));
    let permits = Semaphore::new(at_once);
    let mut rounds = Rounds::default();
    let began = Instant::now();
    loop {
        let at = Instant::now();
        if at - began >= times.whole {
            return Ok(rounds);
        }
        let exchange = async |peer: &mut Plain| {
            let _permit = permits.acquire().await;
            peer.exchange(out, back).await
        };
        all(peers.iter_mut().map(exchange)).await?;
        rounds.add(times, began, at);
    }
}

/// Runs all of these at once.
async fn all(
    futures: impl Iterator<Item = impl Future<Output = Result<(), Failure>>>,
) -> Result<(), Failure> {
    futures_util::future::try_join_all(futures).await.map(drop)
}

async fn client(cluster: &Cluster, credit: bool) -> Result<Client, Failure> {
    let config = Config { credit, ..config(&cluster.running.cluster)? };
    Ok(Client::connect(config).await?)
}

async fn open(client: &Client, file: &Name, writes: bool) -> Result<File, Failure> {
    let options =
        if writes { OpenOptions::new().write(true).create(true) } else { OpenOptions::new().read(true) };
    Ok(client.open(file, &options).await?)
}

impl Rounds {
    /// A round that began at `at` has ended.
    fn add(&mut self, times: Times, began: Instant, at: Instant) {
        if at - began >= times.warm {
            self.seconds.push(at.elapsed().as_secs_f64());
            self.whole = (began.elapsed() - times.warm).as_secs_f64();
        }
    }

    fn p99(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    }
}

impl Found {
    /// Rows of plain programs: all at once, and two at a time, which the queue has just room for.
    async fn plain(
        &mut self,
        name: &'static str,
        times: Times,
        mut peers: Vec<Plain>,
        exchange: (u32, u32),
    ) -> Result<(), Failure> {
        let ways = [("plain TCP", usize::from(SENDERS)), ("plain TCP, two at a time", 2)];
        for (way, at_once) in ways {
            let rounds = plain_rounds(times, &mut peers, exchange, at_once).await?;
            self.add(name, way, &rounds, None);
        }
        Ok(())
    }

    fn add(&mut self, name: &'static str, way: &'static str, rounds: &Rounds, client: Option<&Client>) {
        let bytes = f64::from(BLOCK) * f64::from(SENDERS);
        let link = f64::from(u32::try_from(LINK_BITS).unwrap_or(u32::MAX)) / 8.0 * PAYLOAD_SHARE;
        let count = f64::from(u32::try_from(rounds.seconds.len()).unwrap_or(u32::MAX));
        let counts = client.and_then(|client| client.credit().first().map(|link| link.counts));
        self.rows.push(Row {
            name,
            way,
            share: count * bytes / rounds.whole.max(1e-9) / link,
            p99_over_ideal: rounds.p99() / (bytes / link),
            rounds: rounds.seconds.len(),
            window: counts.and_then(|counts| counts.window),
            stalls: counts.map_or(0, |counts| counts.stalls),
        });
    }
}

impl Row {
    /// Its two figures. Only those of Braid as it is have goals.
    fn shown(&self) -> [Shown; 2] {
        let has_goal = self.way == BRAID;
        let window = self.window.map_or(String::new(), |bytes| format!(", window {} KiB", bytes >> 10));
        let words = format!("{} rounds{window}, {} late answers", self.rounds, self.stalls);
        let share = format!("{}, {}, of the link", self.name, self.way);
        let slowest = format!("{}, {}, slowest round of a hundred over ideal", self.name, self.way);
        [
            Shown::new(&share, words.clone(), self.share, has_goal.then_some(SHARE)),
            Shown::new(&slowest, words, self.p99_over_ideal, has_goal.then_some(SLOWEST)),
        ]
    }
}
