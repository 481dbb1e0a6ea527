//! `braid-lab bench privacy`: what a volume with private data costs, and one that is encrypted, beside one
//! with integrity. Volumes of one cluster on this machine, raid5 4+1 with units of 512 KiB, by turns.
//!
//! The value of a row is the number of bytes for a second of processor time, of the client, the drives and
//! the manager together: so the ratio does not depend on what else holds a transfer up.

use braid_bench::against::{Goal, Of, Question, Taken};
use braid_bench::stripes::Work;
use braid_bench::touch_memory;
use braid_cli::output::exit::{Doing, Failure};
use braid_cli::output::report::Report;
use braid_client::Name;
use braid_wire::capability::Protection;

use super::cluster::Cluster;
use super::ratios::{self, Bench, Metered, Run};
use super::run::Which;
use super::stripes::{fill, job, read, write};
use crate::args::BenchCluster;

const BENCH: Bench = Bench {
    name: "privacy",
    title: "Private and encrypted data against integrity",
    needed: (12 << 30, 1 << 30),
};
const DRIVES: u16 = 5;
const SHAPE: (&str, u8) = ("raid5", 5);
const BYTES: (u64, u64) = (1 << 30, 64 << 20);
/// Private data may take this many times the processor time of integrity.
const COST_MAX: f64 = 1.35;
const GIB: f64 = 1_073_741_824.0;
/// Bytes of a small overwrite, and the number of those in flight.
const PIECE: (u64, u32) = (64 << 10, 16);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| rows(run).await).await
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    let works = ["sequential read", "sequential write", "random overwrites of 64 KiB, 16 in flight"];
    let private = works.map(|name| {
        Question::rates("CPU", name, ["private", "integrity"]).goal(Of::Ratio, Goal::AtLeast(1.0 / COST_MAX))
    });
    let sealed =
        works.map(|name| Question::rates("CPU", format!("{name}; encrypted"), ["encrypted", "integrity"]));
    if !run.wants_any(private.iter().chain(&sealed)) {
        return Ok(());
    }
    let bytes = run.size(BYTES.0, BYTES.1);
    run.tell("privacy: start");
    let mut cluster = Cluster::up(run.path(), "privacy", DRIVES, SHAPE).await?;
    let key = run.path().join("volume.key");
    std::fs::write(&key, "5a".repeat(32)).doing(|| format!("write {}", key.display()))?;
    cluster.running.cluster.volume_keys.insert("sealed".to_owned(), key.display().to_string());
    let mut metered = Metered::start(&cluster).await?;
    let plain = fill(&mut cluster, &mut metered.client, bytes).await?;
    cluster.turn_to("private", SHAPE).await?;
    cluster.client.volume_protect("private", Protection::Privacy).await?;
    let of_private = fill(&mut cluster, &mut metered.client, bytes).await?;
    cluster.turn_to_sealed("sealed", SHAPE, &key).await?;
    let of_sealed = fill(&mut cluster, &mut metered.client, bytes).await?;
    let mut seed = 0;
    for (questions, first) in [(private, of_private), (sealed, of_sealed)] {
        let of = |which| if which == Which::First { first.clone() } else { plain.clone() };
        let [reads, writes, small] = questions;
        run.pairs(&reads, async |which| Ok(for_cpu(metered.rate(&read(&of(which), bytes)).await?))).await?;
        run.pairs(&writes, async |which| {
            touch_memory(bytes / 4 * 5);
            Ok(for_cpu(metered.rate(&write(&of(which), bytes)).await?))
        })
        .await?;
        run.pairs(&small, async |which| {
            seed += 1;
            let updates = overwrites(&of(which), bytes, seed);
            Ok(for_cpu(metered.rate(&updates).await?))
        })
        .await?;
    }
    drop(metered);
    cluster.down().await
}

fn overwrites(file: &Name, within: u64, seed: u64) -> braid_bench::stripes::Job {
    let (piece_bytes, depth) = PIECE;
    let pieces = within / piece_bytes / 4;
    job(file, Work::Updates { within, piece_bytes, pieces, depth, seed })
}

/// The same sample, with the bytes for a second of processor time as its value.
fn for_cpu(taken: Taken) -> Taken {
    let value = taken.cpu.filter(|cpu| *cpu > 0.0).map_or(0.0, |cpu| GIB / cpu);
    Taken { value, ..taken }
}
