//! `braid-lab bench predict` (E3b): the simulator's predictions for reads, writes, degraded and small work on
//! limited links, with costs that `calibrate` has found on the same machine, beside measurements.

pub(crate) mod calibrate;
mod cases;

use braid_bench::predict::{Counts, Report as Found, Row, document};
use braid_bench::small;
use braid_bench::stripes::{self, LeftOut, show_figure};
use braid_cli::output::documents::write;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_cli::output::report::{Report, table};
use braid_client::Name;
use braid_sim::Spec;
use braid_sim::model::CostModel;

use super::client::{ClientProcess, alone, rate};
use super::cluster::{Cluster, UNIT_BYTES, VOLUME};
use super::hosts::Hosts;
use super::run::Run;
use crate::args::BenchCluster;
use cases::{Act, Group};

/// Samples of a row that count; one before them does not.
const SAMPLES: u32 = 5;
/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (4 << 30, 512 << 20);
/// Number of stripes of a large file.
const STRIPES: u64 = 24;
/// Number of large requests in flight, of a stripe each.
const STRIPES_AT_ONCE: u32 = 4;
/// Bytes of the file for small operations.
const PIECES_BYTES: u64 = 32 << 20;
/// Limits for a sample of small operations.
const SMALL: small::Limit = small::Limit { seconds: Some(2.0), operations: 1 << 16 };

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let run = Run::begin(&asked, NEEDED_BYTES)?;
    let found = Found::begin(&run.parent, run.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut predict = Predict { run, found };
    let ended = predict.all().await;
    predict.run.end();
    ended?;
    let mut found = predict.found;
    found.ran.end();
    if let Some(out) = &asked.out {
        let (command, when) = super::said();
        let documents = [("predict.md", document(&found, &command, &when))];
        write(out, &documents)?;
    }
    report.facts(&found, text)
}

/// The run so far.
struct Predict {
    run: Run,
    found: Found,
}

impl Predict {
    async fn all(&mut self) -> Result<(), Failure> {
        let wanted: Vec<Group> = cases::groups()
            .into_iter()
            .map(|group| {
                let wanted = |act: &Act| self.run.wants(&group.title(*act));
                let acts = group.acts.iter().copied().filter(wanted).collect();
                Group { acts, ..group }
            })
            .filter(|group| !group.acts.is_empty())
            .collect();
        if wanted.is_empty() {
            return Err(self.run.nothing_wanted("predict"));
        }
        let why = if self.run.quick { Some("a quick run limits no links".into()) } else { Hosts::lacking() };
        let model = calibrate::costs(&self.run).await?;
        self.found.parts = model.to_toml();
        for group in wanted {
            match &why {
                None => self.group(&group, &model).await?,
                Some(why) => {
                    let left_out = |act: &Act| LeftOut { name: group.title(*act), why: why.clone() };
                    self.found.left_out.extend(group.acts.iter().map(left_out));
                }
            }
        }
        Ok(())
    }

    /// Measures and predicts the rows of one cluster. Rows with a drive away come last.
    async fn group(&mut self, group: &Group, model: &CostModel) -> Result<(), Failure> {
        self.run.tell(format!("{}: start", group.name));
        let hosts = Hosts::up(usize::from(group.drives))?;
        let cluster = Cluster::up_on(&hosts, self.run.path(), "predict", group.drives, group.shape).await?;
        let mut measuring = Measuring::of(cluster, group).await?;
        hosts.limit(group.links, group.bits)?;
        for &act in &group.acts {
            self.run.tell(group.title(act));
            self.run.steps(u64::from(SAMPLES + 1));
            if act.is_degraded() {
                measuring.lose_a_drive().await?;
            }
            let mut samples = Vec::new();
            for round in 0..=SAMPLES {
                let sample = measuring.sample(group, act, u64::from(round)).await?;
                if round > 0 {
                    samples.push(sample);
                }
                self.run.step();
            }
            let spec = group.spec(act, model);
            let predicted = tokio::task::spawn_blocking(move || predict(&spec, act));
            let predicted = predicted.await.map_err(std::io::Error::other).doing(|| "simulate".into())?;
            let title = (group.experiment, group.row(act));
            self.found.add(title, act.counts(), predicted, &samples);
        }
        measuring.end().await
    }
}

/// Runs the simulator. Returns bytes or operations a second, and the part that limits them.
fn predict(spec: &Spec, act: Act) -> (f64, String) {
    let outcome = braid_sim::run(spec, &[]);
    let load = &outcome.loads[0];
    let a_second = match act.counts() {
        Counts::Bytes => load.bytes_per_second,
        Counts::Operations => load.per_second,
    };
    let bottleneck = outcome.bottleneck.map_or("nothing".to_owned(), |part| {
        format!("{} {} ({:.0} %)", part.kind.name(), part.name, part.utilisation * 100.0)
    });
    (a_second, bottleneck)
}

/// A cluster that is measured.
struct Measuring {
    cluster: Cluster,
    client: ClientProcess,
    file: Name,
    is_degraded: bool,
}

impl Measuring {
    /// Prepares the cluster with both files, made before any link is limited.
    async fn of(mut cluster: Cluster, group: &Group) -> Result<Measuring, Failure> {
        let mut client = cluster.client_process().await?;
        let file = cluster.create().await?;
        let work = small::Work::Fill { file: pieces(), bytes: PIECES_BYTES };
        let limit = small::Limit { seconds: None, operations: 0 };
        alone(&mut client, &small::Job { work, in_flight: 1, limit, seed: 0 }).await?;
        alone(&mut client, &large(&file, group, false)).await?;
        Ok(Measuring { cluster, client, file, is_degraded: false })
    }

    async fn lose_a_drive(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.is_degraded, true) {
            let drive = self.cluster.running.cluster.drives[0].clone();
            self.cluster.kill(&drive).await?;
        }
        Ok(())
    }

    async fn sample(&mut self, group: &Group, act: Act, seed: u64) -> Result<f64, Failure> {
        let (work, in_flight) = match act {
            Act::Read { .. } | Act::Write { .. } => {
                let reads = matches!(act, Act::Read { .. });
                return Ok(rate(&[alone(&mut self.client, &large(&self.file, group, reads)).await?]));
            }
            Act::SmallRead(in_flight) => {
                (small::Work::Read { file: pieces(), bytes: PIECES_BYTES }, in_flight)
            }
            Act::SmallWrite(in_flight) => {
                (small::Work::Overwrite { file: pieces(), bytes: PIECES_BYTES }, in_flight)
            }
        };
        let done =
            alone(&mut self.client, &small::Job { work, in_flight, limit: SMALL, seed: seed + 1 }).await?;
        let operations = f64::from(u32::try_from(done.operations).unwrap_or(u32::MAX));
        Ok(operations / done.seconds.max(1e-9))
    }

    async fn end(self) -> Result<(), Failure> {
        drop(self.client);
        self.cluster.down().await
    }
}

/// Full name of the file for small operations.
fn pieces() -> String {
    format!("braid://{VOLUME}/pieces")
}

/// The job that reads or writes a large file in whole stripes.
fn large(file: &Name, group: &Group, reads: bool) -> stripes::Job {
    let request_bytes = group.k * u64::from(UNIT_BYTES);
    let bytes = STRIPES * request_bytes;
    let depth = STRIPES_AT_ONCE;
    let work = match reads {
        true => stripes::Work::Read { bytes, request_bytes, depth },
        false => stripes::Work::Write { bytes, request_bytes, depth },
    };
    stripes::Job { file: file.to_string(), by_stripe: false, work }
}

/// Formats the results as text.
fn text(found: &Found) -> String {
    let mut text = format!("{}\n", super::head(&found.ran));
    let header = ["", "", "PREDICTED", "MEASURED", "MIN", "MAX", "RATIO", "", "LIMITED BY"];
    text.push_str(&table(&header, &[2, 3, 4, 5, 6], found.rows.iter().map(cells)));
    for LeftOut { name, why } in &found.left_out {
        text.push_str(&format!("not measured: {name}: {why}\n"));
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.experiment.to_owned(),
        row.name.clone(),
        row.counts.show(row.predicted),
        row.counts.show(row.measured.median),
        row.counts.show(row.measured.min),
        row.counts.show(row.measured.max),
        show_figure(row.ratio),
        if row.is_near { String::new() } else { "not within 10 %".to_owned() },
        row.bottleneck.clone(),
    ]
}
