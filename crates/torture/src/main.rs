//! `braid-torture --seed N` runs one seed, `--seeds A..B` many.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use braid_torture::{Outcome, Settings, note_panics, run};
use clap::Parser;

/// Runs the real roles in one process with faults, by seed, and checks what they keep.
#[derive(Debug, Parser)]
#[command(name = "braid-torture")]
struct Args {
    /// Run this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds: A..B.
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Stop after this many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Go on after a seed that fails.
    #[arg(long)]
    all: bool,
    /// Print every event as it happens.
    #[arg(long)]
    trace: bool,
    /// Print what the roles log: a filter as for RUST_LOG.
    #[arg(long)]
    log: Option<String>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("it looks like 1..100")?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(filter) = &args.log {
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        log.without_time().init();
    }
    note_panics();
    let seeds = match (args.seed, &args.seeds) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(seeds)) => seeds.clone(),
        (None, None) => 0..u64::MAX,
    };
    let (began, mut done, mut failed) = (Instant::now(), 0_u64, Vec::new());
    let (mut faults, mut passed_ms, mut operations) = (BTreeMap::new(), 0, 0);
    for seed in seeds {
        if args.minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes)) {
            break;
        }
        let outcome = run(seed, Settings { printed: args.trace });
        done += 1;
        passed_ms += outcome.passed_ms;
        operations += outcome.operations;
        for (kind, count) in &outcome.faults {
            *faults.entry(*kind).or_insert(0) += count;
        }
        if let Some(why) = &outcome.failure {
            tell(&outcome, why, args.trace || args.all);
            failed.push(seed);
            if !args.all {
                break;
            }
        }
        if args.seed.is_some() {
            println!("seed {seed}: hash {:016x}", outcome.hash);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{done} seeds in {seconds:.1} s: {:.2} virtual hours, {operations} operations",
        Duration::from_millis(passed_ms).as_secs_f64() / 3600.0
    );
    let faults: Vec<String> = faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("faults: {}", faults.join(", "));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}

/// Tells of a seed that failed.
fn tell(outcome: &Outcome, why: &str, brief: bool) {
    if !brief {
        outcome.last.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {} FAILED: {why}", outcome.seed);
    println!("again: cargo run -p braid-torture -- --seed {}", outcome.seed);
}
