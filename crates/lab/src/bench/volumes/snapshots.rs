//! Snapshots: the pause of writers while one of many files is made, what it holds before anything changes,
//! and how fast its files are read.

use std::time::Duration;

use braid_bench::median;
use braid_bench::stripes::{Goal, Work};
use braid_cli::connect::connect;
use braid_cli::output::exit::{Doing, Failure};
use braid_client::{Buffered, Parents};
use tokio::time::sleep;

use super::Run;
use super::load::Writers;
use super::tasks::make_files;
use crate::bench::client::{all_at_once, rate};
use crate::bench::cluster::{Cluster, VOLUME, name};
use crate::bench::promises::show;
use crate::bench::stripes::job;

pub(super) const GROUP: &str = "snapshots";
const PAUSE: &str = "pause of writers while a snapshot is made, in milliseconds";
const BYTES: &str = "bytes that a snapshot holds before anything changes, of all";
const READ: &str = "large reads of a file in a snapshot, since overwritten, against the live file";

const DRIVES: u16 = 5;
const FILES: u64 = 100_000;
const FILES_QUICK: u64 = 300;
const DIRECTORIES: u64 = 100;
const SMALL_BYTES: usize = 1000;
const WRITERS: u64 = 16;
const MADE: u32 = 5;
/// Time for drives to tell the manager what they hold.
const TOLD: Duration = Duration::from_secs(5);
const FILE_BYTES: u64 = 256 << 20;
const FILE_BYTES_QUICK: u64 = 4 << 20;
const REQUEST_BYTES: u64 = 2 << 20;
const DEPTH: u32 = 4;
const PAIRS: usize = 9;

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if ![PAUSE, BYTES, READ].iter().any(|row| run.wants(row)) {
        return Ok(());
    }
    run.tell(format!("{GROUP}: start"));
    let cluster = Cluster::up(run.path(), GROUP, DRIVES, ("raid5", 5)).await?;
    if run.wants(PAUSE) || run.wants(BYTES) {
        many_files(run, &cluster).await?;
    }
    if run.wants(READ) {
        read(run, &cluster).await?;
    }
    cluster.down().await
}

async fn many_files(run: &mut Run, cluster: &Cluster) -> Result<(), Failure> {
    let files = run.size(FILES, FILES_QUICK);
    run.tell(format!("{GROUP}: {files} files"));
    let mut names = Vec::new();
    for directory in 0..DIRECTORIES {
        cluster.client.mkdir(&name(&format!("many/{directory}"))?, Parents::Make).await?;
        for number in 0..files / DIRECTORIES {
            names.push(name(&format!("many/{directory}/{number}"))?);
        }
    }
    make_files(&cluster.client, names, SMALL_BYTES).await?;
    let root = name("")?;
    sleep(TOLD).await;
    let before = held(cluster).await?;
    cluster.client.make_snapshot(&root, "quiet", Buffered::WrittenOut).await?;
    sleep(TOLD).await;
    let more = held(cluster).await?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let share = more as f64 / before.max(1) as f64;
    run.add(BYTES, format!("{more} of {before} bytes"), share, Some(Goal::AtMost(0.01)));

    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let client = connect(&cluster.running.dir, &cluster.running.cluster).await?;
        writers.push((client, name(&format!("written-{writer}"))?));
    }
    let writers = Writers::start(writers).await?;
    let mut pauses = Vec::new();
    let mut late = 0;
    for made in 0..run.size(MADE, 1) {
        run.tell(format!("{GROUP}: beside {WRITERS} writers, {}", made + 1));
        sleep(Duration::from_secs(1)).await;
        let told = cluster.client.make_snapshot(&root, &format!("busy-{made}"), Buffered::WrittenOut).await?;
        late += told.late;
        pauses.push(Duration::from_micros(told.pause_us).as_secs_f64() * 1000.0);
    }
    let written = writers.end().await?;
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    let found = format!(
        "{longest:.0} ms at most, {:.0} ms in the middle, of {} files; {late} files late; the longest of {} writes {} ms",
        median(&pauses),
        files + WRITERS,
        written.writes,
        written.longest.as_millis(),
    );
    run.add(PAUSE, found, longest, Some(Goal::AtMost(100.0)));
    Ok(())
}

/// Bytes that the drives hold.
async fn held(cluster: &Cluster) -> Result<u64, Failure> {
    Ok(cluster.client.status().await?.drives.iter().map(|drive| drive.live_bytes).sum())
}

async fn read(run: &mut Run, cluster: &Cluster) -> Result<(), Failure> {
    let bytes = run.size(FILE_BYTES, FILE_BYTES_QUICK);
    let live = name("large")?;
    let doing = || "name a file in a snapshot".to_owned();
    let kept = braid_client::Name::parse(format!("braid://{VOLUME}@read/large").as_bytes()).doing(doing)?;
    cluster.create_at(&live).await?;
    let mut clients = [cluster.client_process().await?];
    let write = Work::Write { bytes, request_bytes: REQUEST_BYTES, depth: DEPTH };
    all_at_once(&mut clients, &[job(&live, write.clone())]).await?;
    cluster.client.make_snapshot(&name("")?, "read", Buffered::WrittenOut).await?;
    all_at_once(&mut clients, &[job(&live, write)]).await?;
    let pairs = run.size(PAIRS, 1);
    let mut ratios = Vec::new();
    let mut rates = [const { Vec::new() }; 2];
    // The first reads of each bring what is cached of headers, and do not count.
    for pair in 0..=pairs {
        run.tell(format!("{GROUP}: reads, {pair} of {pairs}"));
        let mut of = [0.0; 2];
        for which in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let work = Work::Read { bytes, request_bytes: REQUEST_BYTES, depth: DEPTH };
            of[which] = rate(&all_at_once(&mut clients, &[job([&kept, &live][which], work)]).await?);
        }
        if pair > 0 {
            ratios.push(of[0] / of[1]);
            (0..2).for_each(|which| rates[which].push(of[which]));
        }
    }
    let [of_kept, of_live] = rates.map(|of| median(&of));
    let found = format!("{} of {}", show(of_kept), show(of_live));
    run.add(READ, found, median(&ratios), Some(Goal::AtLeast(0.95)));
    Ok(())
}
