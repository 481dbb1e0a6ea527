//! The program: `braid-torture --seed N` runs one seed, `--seeds A..B` runs many.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_torture::{Mix, SeedOutcome, Settings, Transport, note_panics, report, run, run_apart};
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
    /// Number of seeds that run at a time; by default one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the outcome for another program.
    #[arg(long, hide = true)]
    report: bool,
    /// Have programs on mounts take the clients' place: all that they can do, or without some: all/WORD.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    mounts: Option<Mix>,
    /// Have clients reach drives this way: tcp, udp or auto. By default each seed draws its own.
    #[arg(long)]
    transport: Option<Transport>,
    /// Print what the roles log: a filter as for RUST_LOG.
    #[arg(long)]
    log: Option<String>,
}

impl Args {
    fn settings(&self) -> Settings {
        Settings { mounts: self.mounts, transport: self.transport, ..Settings::default() }
    }
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
    match args.seed {
        Some(seed) => one(seed, &args),
        None => many(&args),
    }
}

/// Runs one seed in this process.
fn one(seed: u64, args: &Args) -> ExitCode {
    note_panics();
    let outcome = run(seed, Settings { printed: args.trace, ..args.settings() });
    if args.report {
        print!("{}", report(&outcome));
        return ExitCode::SUCCESS;
    }
    let mut sum = Sum::default();
    sum.add(&outcome);
    if let Some(why) = &outcome.failure {
        tell(&outcome, why, args.trace, args.settings());
    }
    println!("seed {seed}: hash {:016x}", outcome.hash);
    sum.print()
}

/// Runs many seeds, each in a process of its own, some at a time.
fn many(args: &Args) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("this program's own file is not known: {error}");
            return ExitCode::FAILURE;
        }
    };
    let seeds = args.seeds.clone().unwrap_or(0..u64::MAX);
    let next = AtomicU64::new(seeds.start);
    let sum = Mutex::new(Sum::default());
    let began = Instant::now();
    let work = || {
        loop {
            let over =
                args.minutes.is_some_and(|minutes| began.elapsed() >= Duration::from_secs(60 * minutes));
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if over || seed >= seeds.end {
                return;
            }
            let outcome = match run_apart(&program, seed, args.settings()) {
                Ok(outcome) => outcome,
                Err(error) => {
                    eprintln!("seed {seed} could not be run: {error}");
                    sum.lock().expect("no holder panics").failed.push(seed);
                    next.store(seeds.end, Ordering::Relaxed);
                    return;
                }
            };
            let mut sum = sum.lock().expect("no holder panics");
            sum.add(&outcome);
            if let Some(why) = &outcome.failure {
                tell(&outcome, why, args.all, args.settings());
                if !args.all {
                    next.store(seeds.end, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..args.jobs.unwrap_or(jobs).max(1)).for_each(|_| drop(scope.spawn(work)));
    });
    sum.into_inner().expect("no holder panics").print()
}

/// The sum of the outcomes of several seeds.
#[derive(Debug)]
struct Sum {
    began: Instant,
    seeds: u64,
    passed_ms: u64,
    operations: u64,
    faults: BTreeMap<String, u64>,
    failed: Vec<u64>,
}

impl Default for Sum {
    fn default() -> Sum {
        let (faults, failed) = Default::default();
        Sum { began: Instant::now(), seeds: 0, passed_ms: 0, operations: 0, faults, failed }
    }
}

impl Sum {
    fn add(&mut self, outcome: &SeedOutcome) {
        self.seeds += 1;
        self.passed_ms += outcome.passed_ms;
        self.operations += outcome.operations;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        if outcome.failure.is_some() {
            self.failed.push(outcome.seed);
        }
    }

    fn print(&self) -> ExitCode {
        let seconds = self.began.elapsed().as_secs_f64();
        let hours = Duration::from_millis(self.passed_ms).as_secs_f64() / 3600.0;
        println!(
            "{} seeds in {seconds:.1} s: {hours:.2} virtual hours, {} operations",
            self.seeds, self.operations
        );
        let faults: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!("faults: {}", faults.join(", "));
        if self.failed.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("failed: {:?}", self.failed);
        ExitCode::FAILURE
    }
}

/// Prints a seed that failed, with the command that runs it again.
fn tell(outcome: &SeedOutcome, why: &str, brief: bool, settings: Settings) {
    if !brief {
        outcome.last.iter().for_each(|line| println!("{line}"));
    }
    println!("seed {} FAILED: {why}", outcome.seed);
    let further: String = settings.arguments().iter().map(|argument| format!(" {argument}")).collect();
    println!("again: cargo run -p braid-torture -- --seed {}{further}", outcome.seed);
}
