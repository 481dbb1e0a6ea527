//! `braid-lab sim`: `braid sim run` with plots, and the figures of the paper.

mod charts;

use std::sync::atomic::AtomicBool;

use braid_cli::SimRun;
use braid_cli::output::bar::bar;
use braid_cli::output::documents::{prepare_out, write};
use braid_cli::output::exit::Failure;
use braid_cli::output::report::{Report, print};
use braid_cli::sim::{in_background, promised, simulated, threads};

use crate::args::{Sim, SimPromises, SimSwift};
use crate::promises;
use crate::swift::{self, Runner, Study, text};

/// Runs the command.
pub(crate) async fn run(sim: Sim, report: Report) -> Result<(), Failure> {
    match sim {
        Sim::Run(asked) => spec(asked, report).await,
        Sim::Swift1991(asked) => swift_1991(asked, report).await,
        Sim::Promises(asked) => promised_rates(asked, report).await,
    }
}

/// Runs `braid-lab sim run`.
async fn spec(asked: SimRun, report: Report) -> Result<(), Failure> {
    if promised(&asked, report).await? {
        return Ok(());
    }
    let found = simulated(&asked).await?;
    if let Some(out) = &asked.out {
        let mut pictures = Vec::new();
        for (name, chart) in charts::charts(&found.title, &found.points) {
            let (svg, png) = chart.pictures();
            pictures.push((format!("sim-{name}.svg"), svg.into_bytes()));
            pictures.push((format!("sim-{name}.png"), png));
        }
        write(out, &pictures)?;
    }
    found.tell(&asked, report)
}

/// Runs `braid-lab sim swift-1991`.
async fn swift_1991(asked: SimSwift, report: Report) -> Result<(), Failure> {
    prepare_out(asked.out.as_deref())?;
    let figure = asked.figure;
    let threads = threads(asked.threads);
    let study = in_background(move |stop| study(figure, threads, stop)).await?;
    if let Some(out) = &asked.out {
        let documents: Vec<(String, Vec<u8>)> = swift::documents(&study, &command(figure))
            .into_iter()
            .map(|document| (document.name, document.content))
            .collect();
        write(out, &documents)?;
    }
    if asked.csv && !report.json {
        return print(&swift::csv(&study));
    }
    report.facts(&study, text::study)
}

/// Runs `braid-lab sim promises`.
async fn promised_rates(asked: SimPromises, report: Report) -> Result<(), Failure> {
    prepare_out(asked.out.as_deref())?;
    let mut drives = asked.drives;
    drives.sort_unstable();
    drives.dedup();
    let threads = threads(asked.threads);
    let operations = f64::from(asked.operations);
    let list = drives.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let command = format!(
        "braid-lab sim promises --drives {list} --operations {} --out docs/results",
        asked.operations
    );
    let study = in_background(move |stop| {
        let bar = bar();
        let tell = |ended: usize, of: usize| {
            bar.set_length(u64::try_from(of).unwrap_or(u64::MAX));
            bar.set_position(u64::try_from(ended).unwrap_or(u64::MAX));
        };
        let found = promises::study(&drives, operations, threads, stop, &tell);
        bar.finish_and_clear();
        found
    });
    let study = study.await?;
    if let Some(out) = &asked.out {
        let documents = promises::documents(&study, &command);
        let documents: Vec<(String, Vec<u8>)> =
            documents.into_iter().map(|document| (document.name, document.content)).collect();
        write(out, &documents)?;
    }
    report.facts(&study, promises::text)
}

/// Command line that makes the documents again.
fn command(figure: Option<u8>) -> String {
    let figure = figure.map_or(String::new(), |number| format!(" --figure {number}"));
    format!("braid-lab sim swift-1991{figure} --out docs/results")
}

fn study(figure: Option<u8>, threads: usize, stop: &AtomicBool) -> Option<Study> {
    let bar = bar();
    let tell = |name: &str, ended: usize, of: usize| {
        bar.set_message(name.to_owned());
        bar.set_length(u64::try_from(of).unwrap_or(u64::MAX));
        bar.set_position(u64::try_from(ended).unwrap_or(u64::MAX));
    };
    let runner = Runner { threads, stop, tell: &tell };
    let found = match figure {
        Some(number) => swift::figure(number, &runner),
        None => swift::study(&runner),
    };
    bar.finish_and_clear();
    found
}
