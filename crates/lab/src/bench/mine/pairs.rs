//! E11: N clients count a file that is striped over N drives; and the same from one NFS server.

use std::fs;

use braid_bench::mining::{Counted, Job, Known, PRODUCERS, Source, combined};
use braid_bench::stripes::Goal;
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Doing, Failure};
use braid_client::Name;

use super::server::Server;
use super::{Plan, Points, check, failed, payload, sell, show};
use crate::bench::client::{ClientProcess, all_at_once};
use crate::bench::cluster::{Cluster, UNIT_BYTES};
use crate::bench::figures::Run;
use crate::bench::hosts::{Hosts, Links};

/// Common name of the rows.
pub(super) const GROUP: &str = "E11";
/// Items of the largest sets that are looked for: as many passes at most.
const PASSES: usize = 4;
/// Passes over single items, if one takes less than `LONG_SECONDS`.
const SAMPLES: usize = 3;
const LONG_SECONDS: f64 = 20.0;
/// Bytes that are read from the NFS server, at most: its rate does not depend on them.
const NFS_BYTES: u64 = 64 << 20;
/// A drive that is silent for so many seconds counts as lost: never here.
const LOST_AFTER: &str = "600";
/// Rows of a number of pairs: over limited links, and where links are not limited.
const ROWS: [&str; 5] = [
    "single items, of their links",
    "linear",
    "all passes, of their links",
    "single items, links not limited",
    "all passes, links not limited",
];
/// The server's link is as fast as this many of the pairs', at most.
const NFS_LINKS: u16 = 2;
/// Share of the links' payload that single items are to be counted at.
const SHARE: Goal = Goal::AtLeast(0.97);
/// Rate per pair against that of the first row.
const LINEAR: Goal = Goal::AtLeast(0.98);

pub(super) async fn measure(run: &mut Run, plan: &Plan, points: &mut Points) -> Result<(), Failure> {
    let wants_nfs = |run: &Run, count| (1..=NFS_LINKS).any(|links| run.wants(&nfs_row(count, links)));
    let mut server = None;
    if plan.link_bits.is_some() && plan.pairs.iter().any(|&count| wants_nfs(run, count)) {
        run.tell("E11: NFS server");
        match Server::start(run.path(), &plan.sales, NFS_BYTES).await {
            Ok(started) => server = Some(started),
            Err(failure) => run.ended("E11: NFS", Err(failure))?,
        }
    }
    // Bytes a second for each pair in the first row.
    let mut first: Option<f64> = None;
    for &count in &plan.pairs {
        let name = format!("E11: {count} pairs");
        let wants_rows = ROWS.iter().any(|row| run.wants(&format!("{name}, {row}")));
        let server = server.as_ref().filter(|_| wants_nfs(run, count));
        if !wants_rows && server.is_none() {
            continue;
        }
        run.tell(name.clone());
        let mut pairs = Pairs::up(run, plan, count).await?;
        let ended = pairs.rows(run, plan, &name, points, &mut first).await;
        let ended = match (server, ended) {
            (Some(server), Ok(rate)) => pairs.by_nfs(run, plan, server, rate, points).await,
            (_, ended) => ended.map(drop),
        };
        pairs.down().await?;
        ended?;
    }
    match server {
        Some(server) => server.stop().await,
        None => Ok(()),
    }
}

/// The row of so many clients of one NFS server, whose link is as fast as one or two of theirs.
fn nfs_row(count: u16, links: u16) -> String {
    let words = if links == 1 { "a link" } else { "a link of twice the rate" };
    format!("E11: NFS, pairs over {count} clients of one server with {words}")
}

/// Clients and drives, as many of one as of the other, and their file.
struct Pairs {
    hosts: Option<Hosts>,
    cluster: Cluster,
    clients: Vec<ClientProcess>,
    count: u16,
    file: Name,
    known: Known,
}

/// One pass of all clients.
struct Passed {
    bytes: u64,
    /// Seconds of the slowest client.
    seconds: f64,
    /// Share of the time in which the machine's processors were busy, with whatever.
    busy: f64,
    counted: Counted,
}

impl Passed {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

impl Pairs {
    async fn up(run: &Run, plan: &Plan, count: u16) -> Result<Pairs, Failure> {
        let shape = ("raid0", u8::try_from(count).unwrap_or(u8::MAX));
        let options = DriveOptions::default();
        let Some(bits) = plan.link_bits else {
            let mut cluster = Cluster::up_with(run.path(), "pairs", count, options, LOST_AFTER).await?;
            cluster.make_volume(shape, UNIT_BYTES).await?;
            let (file, known) = sell(&mut cluster, &plan.sales).await?;
            let mut clients = Vec::new();
            for _ in 0..count {
                clients.push(cluster.client_process().await?);
            }
            return Ok(Pairs { hosts: None, cluster, clients, count, file, known });
        };
        // The first hosts are for drives, the others for clients.
        let hosts = Hosts::up(usize::from(count) * 2)?;
        let mut cluster =
            Cluster::patient_on(&hosts, run.path(), "pairs", count, options, 1, LOST_AFTER).await?;
        cluster.make_volume(shape, UNIT_BYTES).await?;
        let (file, known) = sell(&mut cluster, &plan.sales).await?;
        hosts.limit(Links::Drives, bits)?;
        let mut clients = Vec::new();
        for client in count..2 * count {
            let host = hosts.name(usize::from(client));
            clients.push(ClientProcess::start_on(&host, &cluster.running.cluster).await?);
        }
        Ok(Pairs { hosts: Some(hosts), cluster, clients, count, file, known })
    }

    /// Takes the rows of this number of pairs. Returns the rate of single items.
    async fn rows(
        &mut self,
        run: &mut Run,
        plan: &Plan,
        name: &str,
        points: &mut Points,
        first: &mut Option<f64>,
    ) -> Result<f64, Failure> {
        let source = Source::Braid(self.file.to_string());
        let bytes = plan.sales.bytes;
        let mut asked = Vec::new();
        let mut sizes = Vec::new();
        let mut seconds = 0.0;
        let mut samples = Vec::new();
        for items in 1..=PASSES {
            run.tell(format!("{name}: sets of {items}"));
            let passed = self.pass(&source, bytes, &asked).await?;
            check(&passed.counted, &self.known, items)?;
            let frequent = passed.counted.frequent(plan.support);
            seconds += passed.seconds;
            sizes.push(frequent.len().to_string());
            if items == 1 {
                samples.push((passed.rate(), passed.busy));
            }
            asked = super::candidates(&frequent)?;
            if asked.is_empty() {
                break;
            }
        }
        let long = rate(bytes, LONG_SECONDS);
        while samples.len() < run.size(SAMPLES, 1) && samples[0].0 > long {
            let passed = self.pass(&source, bytes, &[]).await?;
            samples.push((passed.rate(), passed.busy));
        }
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        let least = samples[0].0;
        let (single, busy) = samples[samples.len() / 2];
        let passes = sizes.len();
        let all = rate(bytes, seconds) * f64::from(u32::try_from(passes).unwrap_or(1));
        let each = single / f64::from(self.count);
        let alone = *first.get_or_insert(each);
        points.pairs.push((f64::from(self.count), single / 1e6));
        let carried = plan.carried(self.count);
        let busy = format!("processors {:.0} % busy", busy * 100.0);
        let found = format!("{} (median of {}, least {})", show(single), samples.len(), show(least));
        let every = format!("{}, {passes} passes; frequent sets by size: {}", show(all), sizes.join(", "));
        if carried > 0.0 {
            points.links.push((f64::from(self.count), carried / 1e6));
            let of = format!("{found} of {} that the links carry; {busy}", show(carried));
            run.add(&format!("{name}, {}", ROWS[0]), of, single / carried, SHARE);
            let linear = format!("{} for each pair; {}", show(each), show(alone));
            run.add(&format!("{name}, {}", ROWS[1]), linear, each / alone, LINEAR);
            run.add(&format!("{name}, {}", ROWS[2]), every, all / carried, None);
        } else {
            let of = format!("{found}; one processor counts {}; {busy}", show(plan.counting));
            run.add(&format!("{name}, {}", ROWS[3]), of, single / plan.counting, None);
            run.add(&format!("{name}, {}", ROWS[4]), every, all / plan.counting, None);
        }
        Ok(single)
    }

    /// Has the same clients count the same file from one NFS server, whose link is as one of theirs, and as
    /// two: the paper's server had two.
    async fn by_nfs(
        &mut self,
        run: &mut Run,
        plan: &Plan,
        server: &Server,
        own: f64,
        points: &mut Points,
    ) -> Result<(), Failure> {
        let Some((bits, hosts)) = plan.link_bits.zip(self.hosts.as_ref()) else { return Ok(()) };
        let source = Source::Nfs(server.place(&hosts.address(None)));
        for (links, points) in (1_u16..).zip(&mut points.nfs) {
            let bits = bits * u64::from(links);
            hosts.limit(Links::Clients, bits)?;
            let name = nfs_row(self.count, links);
            run.tell(name.clone());
            let passed = pass(&mut self.clients, &source, server.bytes(), &[]).await?;
            points.push((f64::from(self.count), passed.rate() / 1e6));
            let found = format!(
                "{} of {} that its link carries; {} with as many drives",
                show(passed.rate()),
                show(payload(bits)),
                show(own)
            );
            run.add(&name, found, own / passed.rate(), None);
        }
        Ok(())
    }

    async fn pass(
        &mut self,
        source: &Source,
        bytes: u64,
        candidates: &[Vec<u32>],
    ) -> Result<Passed, Failure> {
        pass(&mut self.clients, source, bytes, candidates).await
    }

    async fn down(self) -> Result<(), Failure> {
        drop(self.clients);
        self.cluster.down().await
    }
}

/// Has all clients count their chunks, and adds up what they counted.
async fn pass(
    clients: &mut [ClientProcess],
    source: &Source,
    bytes: u64,
    candidates: &[Vec<u32>],
) -> Result<Passed, Failure> {
    let count = u64::try_from(clients.len()).unwrap_or(1);
    let job = |client| Job {
        source: source.clone(),
        client,
        clients: count,
        bytes,
        candidates: candidates.to_vec(),
    };
    let jobs: Vec<Job> = (0..count).map(job).collect();
    let before = Busy::read()?;
    let done = all_at_once(clients, &jobs).await?;
    let busy = Busy::read()?.since(before);
    let seconds = done.iter().map(|done| done.seconds).fold(0.0, f64::max);
    let counted = combined(candidates, done.iter().map(|done| done.partial.as_slice())).map_err(failed)?;
    Ok(Passed { bytes: done.iter().map(|done| done.bytes).sum(), seconds, busy, counted })
}

/// Ticks of all processors: those in which they did something, and all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Busy {
    busy: u64,
    all: u64,
}

impl Busy {
    fn read() -> Result<Busy, Failure> {
        let doing = || "read /proc/stat".to_owned();
        let text = fs::read_to_string("/proc/stat").doing(doing)?;
        Busy::of(&text).ok_or_else(|| std::io::Error::other("it has no line of all processors")).doing(doing)
    }

    fn of(text: &str) -> Option<Busy> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let all = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some(Busy { busy: all - idle, all })
    }

    /// Share of the time since then in which they did something.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    fn since(self, before: Busy) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.busy.saturating_sub(before.busy) as f64 / all as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds.max(1e-9)
}

const _: () = assert!(PRODUCERS == 4, "the help and docs/bench.md say four");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        let of = |text: &str| Busy::of(text).expect("a line");
        let before = of("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 2 3\n");
        assert_eq!(before, Busy { busy: 20, all: 100 });
        let after = of("cpu  40 10 20 100 20 5 5 0 9 9\n");
        assert!((after.since(before) - 0.6).abs() < 1e-9);
        assert_eq!(Busy::of("intr 1 2\n"), None);
    }
}
