//! Files made a second, where the manager's state is in its own directory and where it is in three members of
//! etcd. Two clusters run at once, and are measured by turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_bench::spread;
use braid_bench::stripes::Goal;
use braid_cli::output::exit::{Doing, Failure};
use braid_client::{Client, Error, Name, OpenOptions, Parents};
use tokio::task::JoinSet;

use super::{Run, managers};
use crate::bench::cluster::{Cluster, name};
use crate::bench::run::{Which, alternate};

pub(super) const GROUP: &str = "creates";
/// Goal on three members of etcd.
const ON_ETCD: f64 = 3000.0;

const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
const IN_FLIGHT: [u32; 2] = [64, 256];
const PIECE_BYTES: usize = 4096;
const PAIRS: (u32, u32) = (7, 1);
const PAIRS_QUICK: (u32, u32) = (1, 0);
const SAMPLE: Duration = Duration::from_secs(2);
const SAMPLE_QUICK: Duration = Duration::from_millis(300);

/// The kind of file that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// A file without bytes: a change at the manager, and another one when it is closed.
    Empty,
    /// A file of 4 KiB, durable when it is closed.
    Small,
}

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    let rows: Vec<(Made, u32)> = [Made::Empty, Made::Small]
        .into_iter()
        .flat_map(|made| IN_FLIGHT.map(|in_flight| (made, in_flight)))
        .filter(|(made, in_flight)| run.wants(&title(*made, *in_flight)))
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    run.tell("creates: start");
    let embedded = Cluster::up(run.path(), "embedded", DRIVES, SHAPE).await?;
    let several = managers::up(run, "several", DRIVES, SHAPE).await?;
    let (pairs, warm_ups) = run.size(PAIRS, PAIRS_QUICK);
    let sample = run.size(SAMPLE, SAMPLE_QUICK);
    let mut number = 0;
    for (made, in_flight) in rows {
        let title = title(made, in_flight);
        run.tell(&title);
        let taken = alternate(&run.common, pairs, warm_ups, async |which| {
            number += 1;
            let cluster = if which == Which::First { &several } else { &embedded };
            rate(&cluster.client, number, made, in_flight, sample).await
        })
        .await?;
        let several = spread(&taken.iter().map(|pair| pair.0).collect::<Vec<f64>>());
        let embedded = spread(&taken.iter().map(|pair| pair.1).collect::<Vec<f64>>());
        let found = format!(
            "{:.0} a second ({:.0} .. {:.0}); with one manager {:.0} ({:.0} .. {:.0})",
            several.median, several.min, several.max, embedded.median, embedded.min, embedded.max
        );
        let goal = (made == Made::Empty).then_some(Goal::AtLeast(ON_ETCD));
        run.add(&title, found, several.median, goal);
    }
    embedded.down().await?;
    several.down().await
}

fn title(made: Made, in_flight: u32) -> String {
    let what = match made {
        Made::Empty => "files made and closed",
        Made::Small => "files of 4 KiB made, written and closed",
    };
    format!("{what} a second on three etcd, {in_flight} in flight")
}

/// Files made a second, in a directory of their own, and counted there.
async fn rate(
    client: &Client,
    number: u32,
    made: Made,
    in_flight: u32,
    sample: Duration,
) -> Result<f64, Failure> {
    let name = name(&format!("made-{number}"))?;
    client.mkdir(&name, Parents::MustExist).await?;
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..in_flight {
        let next = Arc::clone(&next);
        let client = client.clone();
        let directory = name.clone();
        tasks.spawn(async move {
            while began.elapsed() < sample {
                let number = next.fetch_add(1, Ordering::Relaxed);
                make(&client, &directory, number, made).await?;
            }
            Ok::<(), Error>(())
        });
    }
    for ended in tasks.join_all().await {
        ended?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let files = next.load(Ordering::Relaxed);
    let there = u64::try_from(client.list(&name).all().await?.len()).unwrap_or_default();
    if there != files {
        let why = format!("{there} files are there, of {files} that were made");
        return Err(std::io::Error::other(why)).doing(|| format!("count the files of {name}"));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(files as f64 / seconds)
}

async fn make(client: &Client, directory: &Name, number: u64, made: Made) -> Result<(), Error> {
    let name = directory.join(format!("file-{number}").as_bytes()).expect("a short name");
    let file = client.open(&name, &OpenOptions::new().write(true).create_new(true)).await?;
    if made == Made::Small {
        file.write_at(&[7; PIECE_BYTES], 0).await?;
    }
    file.close().await
}
