//! `braid-lab bench calibrate`: measures what the parts of a cluster cost on this machine, by short runs on
//! the loopback.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use braid_bench::disk::disk_rates;
use braid_bench::small::{self, CpuTime, Limit};
use braid_bench::{median, stripes};
use braid_cli::output::exit::{Doing, Failure};
use braid_cli::output::report::Report;
use braid_client::Name;
use braid_sim::calibrate::{Disk, Measured, SMALL_BYTES, Sides};
use braid_sim::model::CostModel;
use braid_sim::spec::Files;
use braid_sim::units::Bytes;

use super::PIECES_BYTES;
use crate::args::{BenchCalibrate, BenchCluster};
use crate::bench::OnThread;
use crate::bench::client::{ClientProcess, alone};
use crate::bench::cluster::{Cluster, UNIT_BYTES, VOLUME};
use crate::bench::run::Run;
use crate::bench::small::meter::{Meter, Reading};

/// Number of drives.
const DRIVES: u16 = 5;
/// Scheme and width of the volume.
const SHAPE: (&str, u8) = ("raid5", 5);
/// Data units of a stripe.
const K: u64 = 4;
/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (4 << 30, 512 << 20);
/// Bytes of the file for large requests, and how many times it is written and read.
const LARGE: (u64, u32) = (256 << 20, 5);
const LARGE_QUICK: (u64, u32) = (16 << 20, 1);
/// Limits for one round of small operations.
const SMALL: Limit = Limit { seconds: Some(1.0), operations: 1 << 16 };
/// Number of rounds, of which the medians count.
const SMALL_ROUNDS: u64 = 5;
const SMALL_QUICK: Limit = Limit { seconds: Some(0.2), operations: 48 };
/// Number of small updates whose bytes on the link are counted.
const COUNTED: u64 = 64;

/// Runs the command.
pub(crate) async fn run(asked: BenchCalibrate, report: Report) -> Result<(), Failure> {
    let BenchCalibrate { dir, quick, out } = asked;
    let run = Run::begin(&BenchCluster { dir, quick, only: None, out: None }, NEEDED_BYTES)?;
    let model = costs(&run).await;
    run.end();
    let model = model?;
    let text = model.to_toml();
    if let Some(out) = out {
        save(&out, &text)?;
    }
    report.facts(&model, |_| text)
}

fn save(out: &PathBuf, text: &str) -> Result<(), Failure> {
    fs::write(out, text).doing(|| format!("write {}", out.display()))
}

/// Measures, and finds the costs that explain the measurements.
pub(super) async fn costs(run: &Run) -> Result<CostModel, Failure> {
    run.tell("calibrate: the disk");
    run.steps(5);
    let disk = disk(run).await?;
    run.step();
    run.tell("calibrate: a cluster");
    let cluster = Cluster::up(run.path(), "calibrate", DRIVES, SHAPE).await?;
    let mut runs = Runs::of(run, cluster).await?;
    let (write, read) = runs.large().await?;
    let request_bytes = runs.request_bytes().await?;
    let (small_read_seconds, small_read) = runs.small(true).await?;
    let (small_write_seconds, _) = runs.small(false).await?;
    runs.end().await?;
    let measured = Measured {
        files: Files {
            count: 1,
            size: Bytes(run.size(LARGE, LARGE_QUICK).0),
            scheme: SHAPE.0.to_owned(),
            width: Some(SHAPE.1),
            unit: Bytes(u64::from(UNIT_BYTES)),
        },
        drives: u32::from(DRIVES),
        read,
        write,
        small_read,
        small_read_seconds,
        small_write_seconds,
        request_bytes,
        disk,
        cache_bytes: braid_bench::available_bytes() / u64::from(DRIVES),
    };
    run.tell("calibrate: what explains it");
    tokio::task::spawn_blocking(move || measured.fit())
        .await
        .map_err(std::io::Error::other)
        .doing(|| "find the costs".into())
}

async fn disk(run: &Run) -> Result<Disk, Failure> {
    let (bytes, rounds) = run.size(LARGE, LARGE_QUICK);
    let directory = run.path().to_owned();
    let rates =
        OnThread::begin(move |stop: &AtomicBool| disk_rates(&directory, bytes, rounds, stop))?.end().await?;
    let positioning = rates.small_read_seconds - real(SMALL_BYTES) / rates.read_rate;
    Ok(Disk {
        read_rate: rates.read_rate,
        write_rate: rates.write_rate,
        positioning: positioning.max(0.0) * 1e9,
    })
}

/// The runs on a cluster whose links are not the limit.
struct Runs<'a> {
    run: &'a Run,
    cluster: Cluster,
    client: ClientProcess,
    meter: Meter,
    file: Name,
}

impl Runs<'_> {
    async fn of(run: &Run, mut cluster: Cluster) -> Result<Runs<'_>, Failure> {
        let client = cluster.client_process().await?;
        let meter = Meter::of(&cluster)?;
        let file = cluster.create().await?;
        Ok(Runs { run, cluster, client, meter, file })
    }

    /// Processor time of both sides in nanoseconds, divided by `of`, the number of bytes or operations.
    fn sides(&self, before: Reading, after: Reading, of: f64) -> Sides {
        let spent = self.meter.between(before, after);
        let ns = |time: CpuTime| (time.user + time.kernel) * 1e3 / of.max(1.0);
        Sides { client: ns(spent.client), drives: ns(spent.drives) }
    }

    async fn reading(&self) -> Result<Reading, Failure> {
        self.meter.at_rest().await?;
        self.meter.read(Some(self.client.pid()?))
    }

    /// Writes and reads a file in whole stripes, one after another. Returns the processor time for a byte.
    async fn large(&mut self) -> Result<(Sides, Sides), Failure> {
        let (bytes, rounds) = self.run.size(LARGE, LARGE_QUICK);
        let request_bytes = K * u64::from(UNIT_BYTES);
        let write = stripes::Work::Write { bytes, request_bytes, depth: 2 };
        let read = stripes::Work::Read { bytes, request_bytes, depth: 2 };
        let mut found = Vec::new();
        for (what, work) in [("written", write), ("read", read)] {
            self.run.tell(format!("calibrate: whole stripes are {what}"));
            let job = stripes::Job { file: self.file.to_string(), by_stripe: false, work };
            // Not measured: the first run creates what later runs find.
            alone(&mut self.client, &job).await?;
            let before = self.reading().await?;
            for _ in 0..rounds {
                alone(&mut self.client, &job).await?;
            }
            let after = self.reading().await?;
            found.push(self.sides(before, after, real(bytes) * f64::from(rounds)));
            self.run.step();
        }
        Ok((found[0], found[1]))
    }

    /// Bytes that a request sends beside its data.
    async fn request_bytes(&mut self) -> Result<u64, Failure> {
        let within = self.run.size(LARGE, LARGE_QUICK).0;
        let work =
            stripes::Work::Updates { within, piece_bytes: SMALL_BYTES, pieces: COUNTED, depth: 1, seed: 1 };
        let job = stripes::Job { file: self.file.to_string(), by_stripe: false, work };
        let done = alone(&mut self.client, &job).await?;
        Ok((done.sent_bytes / COUNTED).saturating_sub(SMALL_BYTES))
    }

    /// Does small reads or overwrites, one after another. Returns seconds and processor time for one.
    async fn small(&mut self, read: bool) -> Result<(f64, Sides), Failure> {
        self.run.tell(format!("calibrate: small {}", if read { "reads" } else { "overwrites" }));
        let bytes = PIECES_BYTES;
        let limit = self.run.size(SMALL, SMALL_QUICK);
        let file = format!("braid://{VOLUME}/pieces");
        if read {
            let work = small::Work::Fill { file: file.clone(), bytes };
            let limit = Limit { seconds: None, operations: 0 };
            alone(&mut self.client, &small::Job { work, in_flight: 1, limit, seed: 0 }).await?;
        }
        let work = match read {
            true => small::Work::Read { file, bytes },
            false => small::Work::Overwrite { file, bytes },
        };
        let job = |seed| small::Job { work: work.clone(), in_flight: 1, limit, seed };
        alone(&mut self.client, &job(0)).await?;
        let mut seconds = Vec::new();
        let mut client = Vec::new();
        let mut drives = Vec::new();
        for seed in 1..=SMALL_ROUNDS {
            let before = self.reading().await?;
            let done = alone(&mut self.client, &job(seed)).await?;
            let after = self.reading().await?;
            let operations = real(done.operations);
            let sides = self.sides(before, after, operations);
            seconds.push(done.seconds / operations.max(1.0));
            client.push(sides.client);
            drives.push(sides.drives);
        }
        self.run.step();
        Ok((median(&seconds), Sides { client: median(&client), drives: median(&drives) }))
    }

    async fn end(self) -> Result<(), Failure> {
        drop(self.client);
        self.cluster.down().await
    }
}

#[expect(clippy::cast_precision_loss, reason = "a cost needs no sixteen digits")]
fn real(count: u64) -> f64 {
    count as f64
}
