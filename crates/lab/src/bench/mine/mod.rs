//! `braid-lab mine`: frequent sets of sales transactions, counted by pairs of a client and a drive (E11, as
//! NASD's figure 9), from one NFS server, and at the drives over slow links (E13, as its Active Disks).
//!
//! The clients' work is that of [`braid_bench::mining::Job`]. Each group of rows is a module.

mod at_drives;
mod charts;
mod pairs;
mod server;

use braid_bench::mining::{CHUNK_BYTES, Known, PLANTED, Sales, counting_rate};
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::Report;
use braid_client::{Name, OpenOptions};

use super::cluster::Cluster;
use super::figures::{self, Bench, Run};
use super::hosts::{Hosts, PAYLOAD_SHARE};
use crate::args::Mine;

/// The transactions to mine, and the links between clients and drives.
struct Plan {
    sales: Sales,
    /// Numbers of pairs.
    pairs: Vec<u16>,
    /// Rate of each link; `None`: links are not limited, for the reason in `lacks`.
    link_bits: Option<u64>,
    lacks: String,
    /// Lines of 1,000 that hold a frequent set.
    support: u64,
    /// Bytes a second that one processor counts in memory: single items.
    counting: f64,
}

/// Points of the pictures: numbers of pairs, or a link's Mbit/s, with MB/s.
#[derive(Default)]
struct Points {
    pairs: Vec<(f64, f64)>,
    links: Vec<(f64, f64)>,
    /// From an NFS server with the link of one pair, and of two.
    nfs: [Vec<(f64, f64)>; 2],
    at_drives: Vec<(f64, f64)>,
    at_client: Vec<(f64, f64)>,
}

/// Runs the command.
pub(crate) async fn run(asked: Mine, report: Report) -> Result<(), Failure> {
    let quick = asked.bench.quick;
    let bytes = asked.bytes.unwrap_or(if quick { 8 << 20 } else { 320 << 20 });
    if bytes < CHUNK_BYTES {
        let why = format!("a file of {bytes} bytes has no chunk of 2 MiB: give --bytes 2M or more");
        return Err(Failure::new(Exit::Usage, "make the transactions", why));
    }
    let lacks = if quick { Some("a quick run limits no links".to_owned()) } else { Hosts::lacking() };
    let mut plan = Plan {
        sales: Sales { seed: asked.seed, bytes },
        pairs: if asked.pairs.is_empty() { usual(quick) } else { asked.pairs },
        link_bits: lacks.is_none().then_some(asked.link * 1_000_000),
        lacks: lacks.unwrap_or_default(),
        support: asked.support,
        counting: 0.0,
    };
    let needed = bytes.saturating_mul(3) + (64 << 20);
    let bench = Bench { name: "mine", title: "Mining sales transactions", needed: (needed, needed) };
    figures::run(bench, asked.bench, report, async |run| groups(run, &mut plan).await).await
}

fn usual(quick: bool) -> Vec<u16> {
    if quick { vec![1, 2] } else { vec![1, 2, 4, 8] }
}

async fn groups(run: &mut Run, plan: &mut Plan) -> Result<(), Failure> {
    let mut points = Points::default();
    bound(run, plan)?;
    let ended = pairs::measure(run, plan, &mut points).await;
    run.charts = charts::all(&points);
    run.ended(pairs::GROUP, ended)?;
    let ended = at_drives::measure(run, plan, &mut points).await;
    run.charts = charts::all(&points);
    run.ended(at_drives::GROUP, ended)
}

/// Measures what counting costs alone, which no number of links can exceed.
fn bound(run: &mut Run, plan: &mut Plan) -> Result<(), Failure> {
    run.tell("counting in memory");
    let few = Sales { bytes: plan.sales.bytes.min(4 * CHUNK_BYTES), ..plan.sales };
    plan.counting = counting_rate(&few, &[]).map_err(failed)?;
    // As many candidates as single items that are frequent make: about forty.
    let single: Vec<Vec<u32>> = (100..128).map(|item| vec![item]).collect();
    let pairs = counting_rate(&few, &candidates(&single)?).map_err(failed)?;
    let most = plan.pairs.iter().copied().max().unwrap_or(1);
    let all = plan.carried(most);
    let links = if all > 0.0 { format!("; {most} links carry {}", show(all)) } else { String::new() };
    let found = format!("{} single items, {} pairs of items{links}", show(plan.counting), show(pairs));
    let share = if all > 0.0 { all / plan.counting } else { 0.0 };
    run.add("bound: one processor counts in memory; its share for all links", found, share, None);
    Ok(())
}

impl Plan {
    /// Payload that so many links carry, in bytes a second; 0 if they are not limited.
    fn carried(&self, links: u16) -> f64 {
        self.link_bits.map_or(0.0, |bits| payload(bits) * f64::from(links))
    }
}

/// Payload of TCP on a link, in bytes a second.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn payload(bits: u64) -> f64 {
    bits as f64 / 8.0 * PAYLOAD_SHARE
}

/// Makes the file of transactions in the cluster's volume.
async fn sell(cluster: &mut Cluster, sales: &Sales) -> Result<(Name, Known), Failure> {
    let name = cluster.create().await?;
    let file = cluster.client.open(&name, &OpenOptions::new().write(true)).await?;
    let mut known = Known::default();
    for number in 0..sales.chunks() {
        let chunk = sales.chunk(number);
        file.write_at(&chunk.bytes, number * CHUNK_BYTES).await?;
        known += chunk.known;
    }
    file.close().await?;
    Ok((name, known))
}

/// Checks what a pass over sets of `items` items counted with what is known.
fn check(counted: &braid_bench::mining::Counted, known: &Known, items: usize) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::new(Exit::Failed, "check what was counted", why));
    if counted.lines != known.lines {
        return wrong(format!("{} lines, where {} were written", counted.lines, known.lines));
    }
    for (set, &lines) in PLANTED.iter().zip(&known.planted).filter(|(set, _)| set.items.len() == items) {
        // One that is not frequent is no candidate, and is not counted.
        if let Some(count) = counted.count_of(set.items).filter(|&count| count != lines) {
            return wrong(format!("{:?} in {count} lines, where it was put into {lines}", set.items));
        }
    }
    Ok(())
}

/// The sets to count after these.
fn candidates(frequent: &[Vec<u32>]) -> Result<Vec<Vec<u32>>, Failure> {
    let sets = braid_bench::mining::candidates(frequent);
    sets.map_err(|error| Failure::new(Exit::Failed, "find the sets to count", error.to_string()))
}

fn failed(error: braid_bench::Error) -> Failure {
    Failure::new(Exit::Failed, "mine", error.to_string())
}

/// A rate in MB/s.
fn show(rate: f64) -> String {
    format!("{:.2} MB/s", rate / 1e6)
}
