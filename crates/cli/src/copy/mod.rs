//! `braid cp` and `braid cat`.
//!
//! The command line becomes a list of jobs ([`jobs`]), each one file from a source to a target; a target appears whole or
//! not at all ([`target`]); the bytes go through one pipeline ([`pipeline`]).

mod jobs;
pub(crate) mod pipeline;
mod target;

use std::fs::File as LocalFile;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use braid_client::{Client, Name};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::names::{Place, remote};
use crate::rate::{Progress, Rate};
use crate::report::Report;
use crate::size;

use jobs::{Job, Jobs};
use pipeline::{Sink, Source};
use target::{Sibling, Unnamed, is_special, pipe_file};

/// One file copied; a line of `--json`.
#[derive(Debug, Serialize)]
struct Copied {
    source: String,
    target: String,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// Runs `braid cp`.
pub(crate) async fn run(cp: args::Cp, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let sources = cp.sources.iter().map(|source| Place::parse(source)).collect::<Result<Vec<_>, _>>()?;
    let target = Place::parse(&cp.target)?;
    if !sources.iter().chain([&target]).any(|place| matches!(place, Place::Remote { .. })) {
        return Err(Failure::usage("copy", "neither source nor target is braid://VOLUME/PATH")
            .remedy("for local files use cp"));
    }
    let client = connect::cluster(cluster).await?;
    let Jobs { list: jobs, skipped } = jobs::list(&client, sources, target, cp.recursive).await?;
    let to_pipe = jobs.iter().any(|job| matches!(&job.target, Place::Pipe));
    let total = jobs.iter().map(|job| job.size).sum::<Option<u64>>();
    let progress = Progress::begin(total, !cp.quiet && !to_pipe);
    let (mut all, mut files) = (Rate::default(), 0_u64);
    for job in &jobs {
        if job.directory {
            jobs::make_directory(&client, &job.target).await?;
            continue;
        }
        progress.name(job.source.show());
        let began = Instant::now();
        let bytes = copy_one(&client, job, &progress).await?;
        let rate = Rate { bytes, time: began.elapsed() };
        all += rate;
        files += 1;
        if report.json && !to_pipe {
            report.line(&copied(job, rate), |_| String::new())?;
        }
    }
    progress.end();
    if !cp.quiet && !to_pipe {
        let what = if files == 1 {
            jobs.iter().find(|job| !job.directory).map_or(String::new(), |job| job.target.show())
        } else {
            format!("{files} files")
        };
        report.say(format!(
            "{what}: {} in {:.2} s, {}",
            size::show(all.bytes),
            all.time.as_secs_f64(),
            all.show()
        ))?;
    }
    match skipped {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Failed, "copy", "1 thing was skipped; the rest is copied")),
        more => {
            Err(Failure::new(Exit::Failed, "copy", format!("{more} things were skipped; the rest is copied")))
        }
    }
}

/// Runs `braid cat`.
pub(crate) async fn cat(cat: args::Cat, cluster: Option<&Path>) -> Result<(), Failure> {
    let names = cat.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let progress = Progress::begin(None, false);
    for name in names {
        let (source, stripe_bytes) = open_source(&client, &Place::Remote { name, directory: false }).await?;
        let sink = Sink::Local { file: pipe_file(&std::io::stdout())?, name: "standard output".into() };
        pipeline::run(source, sink, stripe_bytes, &progress).await?;
    }
    Ok(())
}

fn copied(job: &Job, rate: Rate) -> Copied {
    Copied {
        source: job.source.show(),
        target: job.target.show(),
        bytes: rate.bytes,
        seconds: rate.time.as_secs_f64(),
        bytes_per_second: rate.bytes_per_second(),
    }
}

/// Copies one file; the bytes copied.
async fn copy_one(client: &Client, job: &Job, progress: &Progress) -> Result<u64, Failure> {
    let (source, read_stripe) = open_source(client, &job.source).await?;
    match &job.target {
        Place::Pipe => {
            let sink = Sink::Local { file: pipe_file(&std::io::stdout())?, name: "standard output".into() };
            pipeline::run(source, sink, read_stripe, progress).await
        }
        Place::Local(path) if is_special(path) => {
            // On a thread of its own: a named pipe is waited for until somebody reads it.
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || LocalFile::options().write(true).open(path));
            let what = || format!("write {}", job.target.show());
            let file = opening.await.map_err(std::io::Error::other).doing(what)?.doing(what)?;
            pipeline::run(source, Sink::Local { file, name: job.target.show() }, read_stripe, progress).await
        }
        Place::Local(path) => {
            let (sibling, file) = Sibling::create(path)?;
            let bytes =
                pipeline::run(source, Sink::Local { file, name: job.target.show() }, read_stripe, progress)
                    .await?;
            sibling.commit()?;
            Ok(bytes)
        }
        Place::Remote { name, .. } => {
            let unnamed = Unnamed::create(client, name.clone()).await?;
            let stripe = stripe_bytes(&unnamed.file);
            let bytes =
                pipeline::run(source, Sink::Remote(Arc::clone(&unnamed.file)), stripe, progress).await?;
            unnamed.commit().await?;
            Ok(bytes)
        }
    }
}

/// Opens a source, and says how large its stripes are (0 for a local file).
async fn open_source(client: &Client, place: &Place) -> Result<(Source, u64), Failure> {
    let what = || format!("read {}", place.show());
    match place {
        Place::Pipe => {
            let file = pipe_file(&std::io::stdin())?;
            Ok((Source::Local { file, expected: None, name: "standard input".into() }, 0))
        }
        Place::Local(path) => {
            // If a named pipe took the file's place meanwhile: opened like this it does not wait for a writer.
            let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
            let file = LocalFile::options().read(true).custom_flags(flags).open(path).doing(what)?;
            let metadata = file.metadata().doing(what)?;
            if let Some(kind) = jobs::special_kind(&metadata) {
                return Err(jobs::special(place, kind));
            }
            if metadata.is_dir() {
                return Err(Failure::new(Exit::Conflict, what(), "it is a directory").remedy("use -r"));
            }
            // Files that the kernel makes up (/proc) have no size to go by.
            let expected = Some(metadata.len()).filter(|&len| len > 0);
            Ok((Source::Local { file, expected, name: place.show() }, 0))
        }
        Place::Remote { name, .. } => {
            let file = client.open(name, &braid_client::OpenOptions::new().read(true)).await?;
            let (size, stripe) = (file.size(), stripe_bytes(&file));
            Ok((Source::Remote { file: Arc::new(file), size }, stripe))
        }
    }
}

/// The stripes of a file's first segment, in bytes.
pub(crate) fn stripe_bytes(file: &braid_client::File) -> u64 {
    file.layout().segments().first().map_or(0, |segment| segment.shape.stripe_bytes())
}
