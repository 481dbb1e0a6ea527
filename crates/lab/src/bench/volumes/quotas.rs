//! Quotas: how far many writers get beyond one, and what one costs that nobody meets.

use braid_bench::median;
use braid_bench::stripes::{Goal, Work};
use braid_cli::connect::connect;
use braid_cli::output::exit::Failure;
use braid_client::{Client, Error, Name, OpenOptions};
use braid_wire::Reason;
use tokio::task::JoinSet;

use super::Run;
use crate::bench::client::{all_at_once, rate};
use crate::bench::cluster::{Cluster, name};
use crate::bench::promises::show;
use crate::bench::stripes::job;

pub(super) const GROUP: &str = "quotas";
const OVERSHOOT: &str = "bytes beyond a quota, by 16 writers at once";
const COST: &str = "large writes, with quotas on against off";

const DRIVES: u16 = 5;
const WRITERS: u64 = 16;
const QUOTA_BYTES: u64 = 200_000_000;
const QUOTA_BYTES_QUICK: u64 = 20_000_000;
const PIECE_BYTES: usize = 100_000;
const FILE_BYTES: u64 = 256 << 20;
const FILE_BYTES_QUICK: u64 = 4 << 20;
const REQUEST_BYTES: u64 = 2 << 20;
const DEPTH: u32 = 4;
const PAIRS: usize = 9;

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if !run.wants(OVERSHOOT) && !run.wants(COST) {
        return Ok(());
    }
    run.tell(format!("{GROUP}: start"));
    let cluster = Cluster::up(run.path(), GROUP, DRIVES, ("raid5", 5)).await?;
    if run.wants(OVERSHOOT) {
        overshoot(run, &cluster).await?;
    }
    if run.wants(COST) {
        cost(run, &cluster).await?;
    }
    cluster.down().await
}

async fn overshoot(run: &mut Run, cluster: &Cluster) -> Result<(), Failure> {
    let quota = run.size(QUOTA_BYTES, QUOTA_BYTES_QUICK);
    let tree = name("full")?;
    cluster.client.mkdir(&tree, braid_client::Parents::MustExist).await?;
    cluster.client.set_quota(&tree, None, quota, 0).await?;
    run.tell(format!("{GROUP}: {WRITERS} writers"));
    let mut writing = JoinSet::new();
    for writer in 0..WRITERS {
        // A client of its own, as on another machine.
        let client = connect(&cluster.running.dir, &cluster.running.cluster).await?;
        let file = name(&format!("full/{writer}"))?;
        writing.spawn(async move { fill(&client, &file).await });
    }
    for ended in writing.join_all().await {
        ended?;
    }
    let mut bytes = 0;
    for writer in 0..WRITERS {
        bytes += cluster.client.stat(&name(&format!("full/{writer}"))?).await?.size();
    }
    let found = format!("{bytes} bytes of a quota of {quota}");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let beyond = bytes.saturating_sub(quota) as f64;
    run.add(OVERSHOOT, found, beyond, Some(Goal::AtMost(0.0)));
    Ok(())
}

/// Writes a file until the quota is met.
async fn fill(client: &Client, file: &Name) -> Result<(), Error> {
    let file = client.open(file, &OpenOptions::new().write(true).create_new(true)).await?;
    let piece = vec![7; PIECE_BYTES];
    let mut at = 0;
    let ended = loop {
        match file.write_at(&piece, at).await {
            Ok(()) => at += u64::try_from(piece.len()).expect("small"),
            Err(error) => break error,
        }
    };
    match (ended.reason(), file.close().await) {
        (Some(Reason::Quota), Ok(())) => Ok(()),
        (Some(Reason::Quota), Err(error)) => Err(error),
        _ => Err(ended),
    }
}

async fn cost(run: &mut Run, cluster: &Cluster) -> Result<(), Failure> {
    for (tree, quota) in [("with", u64::MAX / 4), ("without", 0)] {
        cluster.client.mkdir(&name(tree)?, braid_client::Parents::MustExist).await?;
        if quota > 0 {
            cluster.client.set_quota(&name(tree)?, None, quota, 0).await?;
        }
    }
    let mut clients = [cluster.client_process().await?];
    let bytes = run.size(FILE_BYTES, FILE_BYTES_QUICK);
    let pairs = run.size(PAIRS, 1);
    let mut ratios = Vec::new();
    let mut rates = [const { Vec::new() }; 2];
    for pair in 0..pairs {
        run.tell(format!("{GROUP}: pair {} of {pairs}", pair + 1));
        let mut of = [0.0; 2];
        // The order alternates.
        for tree in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let file = name(&format!("{}/{pair}", ["with", "without"][tree]))?;
            cluster.create_at(&file).await?;
            let work = Work::Write { bytes, request_bytes: REQUEST_BYTES, depth: DEPTH };
            of[tree] = rate(&all_at_once(&mut clients, &[job(&file, work)]).await?);
            rates[tree].push(of[tree]);
            cluster.remove(&[file]).await?;
        }
        ratios.push(of[0] / of[1]);
    }
    let [with, without] = rates.map(|of| median(&of));
    let found = format!("{} of {}", show(with), show(without));
    run.add(COST, found, median(&ratios), Some(Goal::AtLeast(0.98)));
    Ok(())
}
