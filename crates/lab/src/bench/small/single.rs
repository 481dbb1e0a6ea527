//! The operations that a client does one by one, with a number of them in flight.

use braid_bench::small::{FILE_BYTES, IN_FLIGHT, Job, Limit, Operation, Sample, Work};
use braid_cli::files::namespace::entries;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::{Name, Parents};

use super::Small;
use crate::bench::client::{alone, go, one, prepare};
use crate::bench::cluster::VOLUME;

/// Number of samples that count, and of warm-ups before them.
const SAMPLES: (u32, u32) = (5, 1);
const SAMPLES_QUICK: (u32, u32) = (1, 0);
/// Seconds of a sample; a plain sample has half as many.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.2;
/// Maximum number of files that a sample makes: all are timed one by one.
const CREATES_MAX: u64 = 20_000;
/// Maximum number of operations of any other sample, which are timed one by one too.
const OPERATIONS_MAX: u64 = 1 << 20;
const OPERATIONS_QUICK: u64 = 48;
/// Number of names in the directory that rows open from, stat and list.
const NAMES: u64 = 2000;
const NAMES_QUICK: u64 = 40;
/// Bytes of the large file.
const LARGE_BYTES: u64 = 1 << 30;
const LARGE_BYTES_QUICK: u64 = 16 << 20;
/// Number of operations in flight while files are made that are not measured.
const SETUP_IN_FLIGHT: u32 = 16;

/// Full name of the large file.
fn large() -> String {
    format!("braid://{VOLUME}/large")
}

/// Full name of a directory.
fn directory(name: &str) -> String {
    format!("braid://{VOLUME}/{name}")
}

pub(super) async fn measure(small: &mut Small) -> Result<(), Failure> {
    let rows = |kinds: &[Operation]| -> Vec<(Operation, u32)> {
        let all = IN_FLIGHT.iter().flat_map(|&number| kinds.iter().map(move |&kind| (kind, number)));
        all.filter(|(kind, number)| small.run.wants(&kind.title(Some(*number)))).collect()
    };
    let pairs = rows(&[Operation::Create, Operation::Unlink]);
    let names = rows(&[Operation::OpenRead, Operation::Stat, Operation::List]);
    let pieces = rows(&[Operation::Read, Operation::Overwrite]);
    for in_flight in IN_FLIGHT {
        if pairs.iter().any(|(_, number)| *number == in_flight) {
            create_and_unlink(small, in_flight).await?;
        }
    }
    if !names.is_empty() {
        small.found.names = small.run.size(NAMES, NAMES_QUICK);
        small.run.tell("a directory of small files");
        let count = small.found.names;
        make(small, "names", count).await?;
        for (kind, in_flight) in names {
            row(small, kind, in_flight).await?;
        }
    }
    if !pieces.is_empty() {
        small.found.large_bytes = small.run.size(LARGE_BYTES, LARGE_BYTES_QUICK);
        small.run.tell("a large file");
        let work = Work::Fill { file: large(), bytes: small.found.large_bytes };
        let limit = Limit { seconds: None, operations: 0 };
        alone(&mut small.client, &Job { work, in_flight: 1, limit, seed: 0 }).await?;
        for (kind, in_flight) in pieces {
            row(small, kind, in_flight).await?;
        }
    }
    Ok(())
}

/// Makes a directory with `count` files.
async fn make(small: &mut Small, name: &str, count: u64) -> Result<(), Failure> {
    let directory = mkdir(small, name).await?;
    let limit = Limit { seconds: None, operations: count };
    let work = Work::Create { directory: directory.to_string() };
    alone(&mut small.client, &Job { work, in_flight: SETUP_IN_FLIGHT, limit, seed: 0 }).await?;
    Ok(())
}

async fn mkdir(small: &Small, name: &str) -> Result<Name, Failure> {
    let name = Name::new(VOLUME, name.as_bytes()).doing(|| "name a directory".into())?;
    small.cluster.client.mkdir(&name, Parents::MustExist).await?;
    Ok(name)
}

/// Number of samples that count, number of warm-ups before them, and the limit of one sample.
fn samples(small: &Small) -> (u32, u32, Limit) {
    let (count, warm_ups) = small.run.size(SAMPLES, SAMPLES_QUICK);
    let seconds = Some(small.run.size(SECONDS, SECONDS_QUICK));
    let operations = small.run.size(OPERATIONS_MAX, OPERATIONS_QUICK);
    (count, warm_ups, Limit { seconds, operations })
}

/// Measures the row of an operation that changes no names.
async fn row(small: &mut Small, kind: Operation, in_flight: u32) -> Result<(), Failure> {
    let (count, warm_ups, limit) = samples(small);
    let file = large();
    let bytes = small.found.large_bytes;
    let files = small.found.names;
    let directory = directory("names");
    let work = match kind {
        Operation::OpenRead => Work::OpenRead { directory, files },
        Operation::Stat => Work::Stat { directory, files },
        Operation::List => Work::List { directory, files },
        Operation::Read => Work::Read { file, bytes },
        Operation::Overwrite => Work::Overwrite { file, bytes },
        other => return Err(Failure::new(Exit::Failed, "measure", format!("{other:?} is no such row"))),
    };
    small.begin(kind, Some(in_flight), count + warm_ups);
    let mut taken = Vec::new();
    for round in 0..count + warm_ups {
        let job = Job { work: work.clone(), in_flight, limit, seed: small.seed() };
        let sample = pair(small, kind, round, job).await?;
        if round >= warm_ups {
            taken.push(sample);
        }
    }
    small.found.add(kind, Some(in_flight), &taken);
    Ok(())
}

/// Makes files and removes them, which gives two rows.
async fn create_and_unlink(small: &mut Small, in_flight: u32) -> Result<(), Failure> {
    let (count, warm_ups, limit) = samples(small);
    let most = Limit { operations: limit.operations.min(CREATES_MAX), ..limit };
    small.begin(Operation::Create, Some(in_flight), count + warm_ups);
    let mut made = Vec::new();
    let mut removed = Vec::new();
    for round in 0..count + warm_ups {
        let number = small.seed();
        let name = mkdir(small, &format!("made-{number}")).await?;
        let directory = name.to_string();
        let work = Work::Create { directory: directory.clone() };
        let job = Job { work, in_flight, limit: most, seed: 0 };
        let mut create = pair(small, Operation::Create, round, job).await?;
        create.files_there = Some(files(small, &name, create.operations).await?);
        let limit = Limit { seconds: None, operations: create.operations };
        let job = Job { work: Work::Unlink { directory }, in_flight, limit, seed: 0 };
        let mut unlink = pair(small, Operation::Unlink, round, job).await?;
        unlink.files_there = Some(files(small, &name, 0).await?);
        small.cluster.client.unlink(&name).await?;
        if round >= warm_ups {
            made.push(create);
            removed.push(unlink);
        }
    }
    for (kind, samples) in [(Operation::Create, made), (Operation::Unlink, removed)] {
        if small.run.wants(&kind.title(Some(in_flight))) {
            small.found.add(kind, Some(in_flight), &samples);
        }
    }
    Ok(())
}

/// Counts a directory's files of 4 KiB. Fails if they are not as many as were made and not removed.
async fn files(small: &Small, directory: &Name, expected: u64) -> Result<u64, Failure> {
    let found = entries(&small.cluster.client, directory).await?;
    let right = found.iter().filter(|entry| entry.size() == u64::from(FILE_BYTES)).count();
    let there = found.len() as u64;
    let right = right as u64;
    if there == expected && right == expected {
        return Ok(there);
    }
    let why = format!("{there} files are there, {right} of them of 4 KiB, where {expected} were to be");
    Err(Failure::new(Exit::Mismatch, format!("count the files of {directory}"), why))
}

/// Takes a sample, and a plain one right before or after it: the order alternates.
async fn pair(small: &mut Small, kind: Operation, round: u32, job: Job) -> Result<Sample, Failure> {
    // The plain side has as many sockets as Braid has used, so Braid is first.
    let first = round.is_multiple_of(2);
    let in_flight = job.in_flight;
    let seconds = job.limit.seconds.unwrap_or(SECONDS);
    let limit = Limit { seconds: Some(seconds.min(SECONDS) / 2.0), operations: OPERATIONS_MAX };
    let mut plain = None;
    if !first {
        plain = Some(small.plain(kind, in_flight, limit).await?);
    }
    let mut sample = braid(small, job).await?;
    let plain = match plain {
        Some(plain) => plain,
        None => small.plain(kind, in_flight, limit).await?,
    };
    sample.plain = (plain.per_second, plain.cpu_us);
    sample.sockets = (small.sockets.0, small.sockets.1.iter().sum());
    small.run.step();
    Ok(sample)
}

/// Takes a sample of Braid itself.
async fn braid(small: &mut Small, job: Job) -> Result<Sample, Failure> {
    let pid = small.client.pid()?;
    let clients = std::slice::from_mut(&mut small.client);
    prepare(clients, &[job]).await?;
    let before = small.meter.read(Some(pid))?;
    let done: braid_bench::small::Done = one(go(clients).await?)?;
    if !small.run.quick {
        small.meter.at_rest().await?;
    }
    let cpu_us = small.meter.between(before, small.meter.read(Some(pid))?);
    small.sockets = small.meter.sockets(pid)?;
    Ok(Sample {
        operations: done.operations,
        seconds: done.seconds,
        p50_us: Some(done.p50_us),
        p99_us: Some(done.p99_us),
        cpu_us,
        files_there: None,
        plain: (0.0, 0.0),
        sockets: (0, 0),
    })
}
