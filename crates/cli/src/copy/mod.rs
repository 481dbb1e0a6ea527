//! `braid cp` and `braid cat`.
//!
//! The command line becomes a list of jobs ([`jobs`]), each of one file or directory; many run at once
//! ([`many`]). A target appears whole or not at all ([`target`]). The bytes go through one pipeline
//! ([`pipeline`]) with [`local`] as its local end. Holes stay holes ([`zeros`]); attributes can be kept
//! ([`keep`]), and links and special files too ([`nodes`]).

mod elsewhere;
mod jobs;
mod keep;
mod local;
mod many;
mod nodes;
pub(crate) mod pipeline;
mod small;
pub(crate) mod target;
mod zeros;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use braid_client::AttributeChanges;
use braid_client::Client;
use braid_client::Name;
use braid_layout::{FileId, Shape};
use braid_wire::control::{FileAttributes, StatRow};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::args;
use crate::connect;
use crate::files::names::{Location, remote};
use crate::operate::snapshot::restore::give_xattrs;
use crate::operate::volume::Asked;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Bar, Progress, Rate};
use crate::output::report::{Report, count, unread};
use crate::output::size;

use elsewhere::Written;
use jobs::{Depth, Job, Jobs, Kind};
use keep::{Preserve, QuickCheckFacts, Which};
use many::CopyOutcome;
use pipeline::{Sink, Source};
pub(crate) use target::taken;
use target::{Sibling, is_special, pipe_file};

/// Options of a copy.
#[derive(Debug, Clone, Copy)]
struct Options {
    preserve: Preserve,
    which: Which,
    /// Layout of the files that are made in a volume; `None`: the one that counts there.
    shape: Option<Shape>,
    /// True if the drives keep room for a whole file before its first byte is copied.
    preallocate: bool,
}

/// One file copied; a line of `--json`.
#[derive(Debug, Serialize)]
struct Copied {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_bytes: Option<String>,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// Runs `braid cp`.
pub(crate) async fn run(cp: args::Cp, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let sources = cp.sources.iter().map(|source| Location::parse(source)).collect::<Result<Vec<_>, _>>()?;
    let target = Location::parse(&cp.target)?;
    if !sources.iter().chain([&target]).any(|location| matches!(location, Location::Remote { .. })) {
        return Err(Failure::usage("copy", "neither source nor target is braid://VOLUME/PATH")
            .remedy("for local files use cp"));
    }
    let wanted = wanted(&cp, &target)?;
    let client = connect::cluster(cluster).await?;
    let shape = match &wanted {
        Some(wanted) => Some(wanted.shape(&client, || "copy".to_owned()).await?),
        None => None,
    };
    let depth = match (cp.archive, cp.recursive) {
        (true, _) => Depth::Archive,
        (false, true) => Depth::Trees,
        (false, false) => Depth::Files,
    };
    let Jobs { list: jobs, skipped, .. } = jobs::list(&client, sources, target, depth).await?;
    let to_pipe = jobs.iter().any(|job| matches!(&job.target, Location::Pipe));
    let total = jobs.iter().map(|job| job.size).sum::<Option<u64>>();
    let of_files = jobs.iter().filter(|job| job.kind == Kind::File).count();
    let only = (of_files == 1)
        .then(|| jobs.iter().find(|job| job.kind == Kind::File).map(|job| job.target.show()))
        .flatten();
    let options = Options {
        preserve: match (cp.archive, cp.preserve) {
            (true, _) => Preserve::All,
            (false, true) => Preserve::Yes,
            (false, false) => Preserve::No,
        },
        which: if cp.update { Which::Changed } else { Which::All },
        shape,
        preallocate: cp.preallocate,
    };
    let of_files = u64::try_from(of_files).unwrap_or(u64::MAX);
    let bar = if cp.quiet || to_pipe { Bar::Hidden } else { Bar::Shown };
    let progress = Arc::new(Progress::begin(total, bar).count_files(Some(of_files)));
    let began = Instant::now();
    let each = |job: &Job, rate| match report.json && !to_pipe {
        true => report.note(&copied(job, rate), |_| String::new()),
        false => Ok(()),
    };
    let summary = many::copy_all(&client, jobs, options, &progress, each).await?;
    client.finish().await;
    progress.end();
    if !cp.quiet && !to_pipe && summary.files + summary.same > 0 {
        let all = Rate { bytes: summary.bytes, time: began.elapsed() };
        let what = only.unwrap_or_else(|| count(summary.files, "file"));
        let bytes = size::show(all.bytes);
        let seconds = all.time.as_secs_f64();
        let copied =
            (summary.files > 0).then(|| format!("{what}: {bytes} in {seconds:.2} s, {}", all.show()));
        let same = (summary.same > 0)
            .then(|| format!("{} unchanged and not copied again", count(summary.same, "file")));
        unread(report.say(copied.into_iter().chain(same).collect::<Vec<String>>().join("; ")))?;
    }
    summary.into_result(skipped)
}

/// The copy of a snapshot's file or tree to a new place, with all attributes.
pub(crate) fn whole(source: &OsStr, target: &OsStr, update: bool, quiet: bool) -> args::Cp {
    args::Cp {
        archive: true,
        recursive: true,
        preserve: false,
        update,
        scheme: None,
        width: None,
        unit: 0,
        preallocate: false,
        quiet,
        sources: vec![source.to_owned()],
        target: target.to_owned(),
    }
}

/// A file of a snapshot that was copied back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopiedBack {
    /// Number of the copy.
    pub(crate) file: FileId,
    pub(crate) bytes: u64,
}

/// Copies a file of a snapshot to a name in the same volume, with its layout and attributes. The copy gets
/// the name when it is whole, if that is free or still a name of `over`, which it then replaces at once.
pub(crate) async fn restored(
    client: &Client,
    from: &Name,
    to: &Name,
    over: Option<FileId>,
    progress: &Progress,
) -> Result<CopiedBack, Failure> {
    let source = Location::Remote { name: from.clone(), directory: false };
    let target = Location::Remote { name: to.clone(), directory: false };
    let Opened { source: opened, kept, shape, .. } = open_source(client, &source).await?;
    let job = Job { source, target, size: None, kind: Kind::File };
    let Written { unnamed, bytes } =
        elsewhere::written(client, &job, opened, to, shape, false, progress).await?;
    let file = unnamed.file.number();
    let was = client.stat_itself(from).await?;
    if was.attributes.has_xattrs {
        // Before it has a name: so nobody finds it without them.
        let copy = to.beneath(&StatRow { file, snapshot: 0, ..was }, Vec::new());
        if let Err(failure) = give_xattrs(client, from, &copy).await {
            unnamed.give_up().await;
            return Err(failure);
        }
    }
    unnamed.commit_over(client, kept, over).await?;
    Ok(CopiedBack { file, bytes })
}

/// The attributes of a file or directory that a copy gets which keeps all.
pub(crate) fn kept_of(of: &FileAttributes) -> AttributeChanges {
    keep::of_remote(of)
}

/// The layout that the command line asks for. Only files in a volume have one.
fn wanted<'a>(cp: &'a args::Cp, target: &Location) -> Result<Option<Asked<'a>>, Failure> {
    if !matches!(target, Location::Remote { .. }) && (cp.scheme.is_some() || cp.preallocate) {
        let option = if cp.scheme.is_some() { "--scheme" } else { "--preallocate" };
        return Err(Failure::usage("copy", format!("{option} is for copies that are made in a volume"))
            .remedy("leave it out, or name a target such as braid://VOLUME/PATH"));
    }
    let Some(scheme) = &cp.scheme else { return Ok(None) };
    Asked::new(scheme, cp.width, cp.unit).doing(|| "copy".to_owned()).map(Some)
}

/// Runs `braid cat`.
pub(crate) async fn cat(cat: args::Cat, cluster: Option<&Path>) -> Result<(), Failure> {
    let names = cat.names.iter().map(|name| remote(name)).collect::<Result<Vec<Name>, _>>()?;
    let client = connect::cluster(cluster).await?;
    let progress = Progress::begin(None, Bar::Hidden);
    for name in names {
        let Opened { source, stripe_bytes, .. } =
            open_source(&client, &Location::Remote { name, directory: false }).await?;
        let sink = Sink::Pipe { file: pipe_file(&std::io::stdout())?, name: "standard output".into() };
        pipeline::run(source, sink, stripe_bytes, &progress).await?;
    }
    Ok(())
}

fn copied(job: &Job, rate: Rate) -> Copied {
    let source = job.source.text();
    let target = job.target.text();
    Copied {
        source: source.text,
        source_bytes: source.bytes,
        target: target.text,
        target_bytes: target.bytes,
        bytes: rate.bytes,
        seconds: rate.time.as_secs_f64(),
        bytes_per_second: rate.bytes_per_second(),
    }
}

/// Copies one file, unless only changes are asked for and its copy is up to date.
async fn copy_one(
    client: &Client,
    job: &Job,
    options: Options,
    progress: &Progress,
) -> Result<CopyOutcome, Failure> {
    if job.kind == Kind::Node {
        nodes::make(client, job).await?;
        return Ok(CopyOutcome::Copied(0));
    }
    if options.which == Which::Changed && is_same(client, job).await? {
        progress.add(usize::try_from(job.size.unwrap_or(0)).unwrap_or(usize::MAX));
        return Ok(CopyOutcome::Same);
    }
    let Opened { source, stripe_bytes: read_stripe, kept, .. } = open_source(client, &job.source).await?;
    let kept = keep::kept(kept, options.preserve, options.which);
    let bytes = match &job.target {
        Location::Pipe => {
            let sink = Sink::Pipe { file: pipe_file(&std::io::stdout())?, name: "standard output".into() };
            pipeline::run(source, sink, read_stripe, progress).await?
        }
        Location::Local(path) if is_special(path) => {
            // On its own thread: opening a named pipe blocks until a reader opens it.
            let path = path.clone();
            let opening = tokio::task::spawn_blocking(move || path.open(OFlags::WRONLY));
            let what = || format!("write {}", job.target.show());
            let file = opening.await.map_err(std::io::Error::other).doing(what)?.doing(what)?;
            pipeline::run(source, Sink::Pipe { file, name: job.target.show() }, read_stripe, progress).await?
        }
        Location::Local(path) => {
            let what = || format!("write {}", job.target.show());
            let (sibling, file) = Sibling::create(path).doing(what)?;
            let written = file.try_clone().doing(what)?;
            let sink = Sink::Local { file, name: job.target.show() };
            let bytes = pipeline::run(source, sink, read_stripe, progress).await?;
            keep::give(&written, kept).doing(what)?;
            sibling.commit().doing(what)?;
            bytes
        }
        Location::Remote { name, .. } => {
            let Options { shape, preallocate, .. } = options;
            elsewhere::run(client, job, source, kept, name, shape, preallocate, progress).await?
        }
    };
    Ok(CopyOutcome::Copied(bytes))
}

/// Returns true if the target exists and is the same as the source by the quick check.
async fn is_same(client: &Client, job: &Job) -> Result<bool, Failure> {
    if matches!(&job.target, Location::Local(path) if path.as_typed().is_none() && path.is_symlink()) {
        return Ok(false);
    }
    let Some(target) = QuickCheckFacts::of(client, &job.target).await? else { return Ok(false) };
    Ok(QuickCheckFacts::of(client, &job.source).await? == Some(target))
}

/// An opened source, with the facts that its copy needs.
struct Opened {
    source: Source,
    /// Size of the source's stripes in bytes; 0 for a local file.
    stripe_bytes: u64,
    /// The attributes that a copy may keep.
    kept: AttributeChanges,
    /// The source's layout, if it is in a volume.
    shape: Option<Shape>,
}

async fn open_source(client: &Client, location: &Location) -> Result<Opened, Failure> {
    let what = || format!("read {}", location.show());
    match location {
        Location::Pipe => {
            let file = pipe_file(&std::io::stdin())?;
            let source = Source::Local { file, expected: None, name: "standard input".into() };
            Ok(Opened { source, stripe_bytes: 0, kept: AttributeChanges::NONE, shape: None })
        }
        Location::Local(path) => {
            // Opened with O_NONBLOCK, so that it does not wait for a writer if a named pipe has taken the
            // file's place.
            let file = path.open(OFlags::RDONLY | OFlags::NONBLOCK).doing(what)?;
            let metadata = file.metadata().doing(what)?;
            if let Some(kind) = jobs::special_kind(&metadata) {
                return Err(jobs::special(location, kind));
            }
            if metadata.is_dir() {
                return Err(Failure::new(Exit::Conflict, what(), "it is a directory").remedy("use -r"));
            }
            // Files generated by the kernel (/proc) report no size.
            let expected = Some(metadata.len()).filter(|&len| len > 0);
            let source = Source::Local { file, expected, name: location.show() };
            Ok(Opened { source, stripe_bytes: 0, kept: keep::of_local(&metadata), shape: None })
        }
        Location::Remote { name, .. } => {
            let file = client.open(name, &braid_client::OpenOptions::new().read(true)).await?;
            let size = file.size();
            let stripe_bytes = stripe_bytes(&file);
            let kept = keep::of_remote(&file.attributes());
            let shape = file.layout().segments().first().map(|segment| segment.shape);
            Ok(Opened { source: Source::Remote { file: Arc::new(file), size }, stripe_bytes, kept, shape })
        }
    }
}

/// The stripe size of a file's first segment, in bytes.
pub(crate) fn stripe_bytes(file: &braid_client::File) -> u64 {
    file.stripe_bytes()
}
