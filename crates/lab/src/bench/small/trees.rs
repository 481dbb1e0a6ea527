//! Whole trees of small files, by the commands that users run: `cp -r` in and out, and `rm -r`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use braid_bench::small::{Limit, Operation, Sample, Tree, count_same, make_tree};
use braid_cli::files::namespace::{entries, stat_if_there};
use braid_cli::machine::process::Handle;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::Name;
use braid_wire::control::EntryKind;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::Small;
use crate::bench::OnThread;
use crate::bench::cluster::VOLUME;

const TREE: Tree = Tree { files: 20_000, each: 200 };
const TREE_QUICK: Tree = Tree { files: 60, each: 20 };
/// Number of times that each command is run.
const ROUNDS: u32 = 3;
const ROUNDS_QUICK: u32 = 1;
/// Plain operations in flight: as many as `cp` has small files in flight.
const PLAIN_IN_FLIGHT: u32 = 32;
const PLAIN_SECONDS: (f64, f64) = (0.5, 0.1);
const PLAIN_MAX: u64 = 1 << 20;
/// Time limit for a command.
const BOUND: Duration = Duration::from_secs(900);

pub(super) async fn measure(small: &mut Small) -> Result<(), Failure> {
    if !Operation::OF_TREES.iter().any(|kind| small.run.wants(&kind.title(None))) {
        return Ok(());
    }
    let tree = small.run.size(TREE, TREE_QUICK);
    small.found.tree_files = tree.files;
    small.run.tell("a tree of small files");
    let source = small.run.path().join("tree");
    let copy = small.run.path().join("copy");
    let root = source.clone();
    OnThread::begin(move |stop| make_tree(&root, tree, stop))?.end().await?;
    let name = Name::new(VOLUME, b"tree").doing(|| "name a tree".into())?;
    let rounds = small.run.size(ROUNDS, ROUNDS_QUICK);
    let mut taken: [Vec<Sample>; 3] = Default::default();
    for round in 0..rounds {
        for (kind, samples) in Operation::OF_TREES.into_iter().zip(&mut taken) {
            if round == 0 {
                small.begin(kind, None, rounds);
            } else {
                small.run.tell(kind.title(None));
            }
            let mut sample = one(small, kind, tree, &source, &name, &copy).await?;
            sample.files_there = check(small, kind, tree, &name, &copy).await?;
            samples.push(sample);
            small.run.step();
        }
        let copy = copy.clone();
        OnThread::begin(move |_| Ok(std::fs::remove_dir_all(copy)))?
            .end()
            .await?
            .doing(|| "remove a copy".into())?;
    }
    for (kind, samples) in Operation::OF_TREES.into_iter().zip(taken) {
        if small.run.wants(&kind.title(None)) {
            small.found.add(kind, None, &samples);
        }
    }
    Ok(())
}

/// Runs one command, with a plain sample after it.
async fn one(
    small: &mut Small,
    kind: Operation,
    tree: Tree,
    source: &Path,
    name: &Name,
    copy: &Path,
) -> Result<Sample, Failure> {
    let mut command = Command::new(std::env::current_exe().doing(|| "find this program".into())?);
    match kind {
        Operation::CopyIn => command.args(["cp", "-rq"]).arg(source).arg(name.to_string()),
        Operation::CopyOut => command.args(["cp", "-rq"]).arg(name.to_string()).arg(copy),
        _ => command.args(["rm", "-r"]).arg(name.to_string()),
    };
    command.env("BRAID_CLUSTER", small.cluster.running.dir.root());
    let before = small.meter.read(None)?;
    let (seconds, pid, mut child) = run(kind, command).await?;
    // The child has ended, and its times can be read until it is waited for.
    let own = small.meter.read(Some(pid));
    child.wait().await.doing(|| "wait for a command".into())?;
    let own = own?;
    if !small.run.quick {
        small.meter.at_rest().await?;
    }
    let mut cpu_us = small.meter.between(before, small.meter.read(None)?);
    cpu_us.client = small.meter.between(before, own).client;
    let seconds_plain = small.run.size(PLAIN_SECONDS.0, PLAIN_SECONDS.1);
    let limit = Limit { seconds: Some(seconds_plain), operations: PLAIN_MAX };
    // A command's client has as many sockets as the bench's own, which has the same settings.
    let plain = small.plain(kind, PLAIN_IN_FLIGHT, limit).await?;
    Ok(Sample {
        operations: tree.files,
        seconds,
        p50_us: None,
        p99_us: None,
        cpu_us,
        files_there: None,
        plain: (plain.per_second, plain.cpu_us),
        sockets: (small.sockets.0, small.sockets.1.iter().sum()),
    })
}

/// Runs a command to its end, and leaves it to be waited for. Returns its time in seconds, its process id and
/// the child.
async fn run(kind: Operation, mut command: Command) -> Result<(f64, u32, tokio::process::Child), Failure> {
    let what = || format!("run {}", kind.title(None));
    // Not in this process group: Ctrl-C goes to this process, which kills it.
    command.kill_on_drop(true).process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let child = command.spawn().doing(what)?;
    let pid = child.id().ok_or_else(|| Failure::new(Exit::Failed, what(), "it has no process id"))?;
    let handle = Handle::of_pid(pid).doing(what)?;
    match timeout(BOUND, handle.ended()).await {
        Ok(ended) => ended.doing(what)?,
        Err(_) => {
            let why = format!("it is not done after {} s", BOUND.as_secs());
            return Err(Failure::new(Exit::Timeout, what(), why));
        }
    }
    Ok((began.elapsed().as_secs_f64(), pid, child))
}

/// Counts the files at the command's target. Fails if they are not those that must be there.
async fn check(
    small: &Small,
    kind: Operation,
    tree: Tree,
    name: &Name,
    copy: &Path,
) -> Result<Option<u64>, Failure> {
    let (there, expected) = match kind {
        Operation::CopyOut => {
            let copy = copy.to_owned();
            (OnThread::begin(move |stop| count_same(&copy, tree, stop))?.end().await?, tree.files)
        }
        Operation::CopyIn => (files_below(small, name).await?, tree.files),
        _ => (files_below(small, name).await?, 0),
    };
    if there == expected {
        return Ok(Some(there));
    }
    let why = format!("{there} files are as they must be, and {expected} were to be");
    Err(Failure::new(Exit::Mismatch, format!("count the files after {}", kind.title(None)), why))
}

/// Counts the files below a directory; 0 if there is no such directory.
async fn files_below(small: &Small, root: &Name) -> Result<u64, Failure> {
    let client = &small.cluster.client;
    let mut stack = Vec::new();
    let mut files = 0;
    stack.extend(stat_if_there(client, root).await?.map(|_| root.clone()));
    while let Some(directory) = stack.pop() {
        for entry in entries(client, &directory).await? {
            match entry.kind() {
                EntryKind::Directory => {
                    stack.push(directory.join(&entry.name).doing(|| format!("list {directory}"))?);
                }
                _ => files += 1,
            }
        }
    }
    Ok(files)
}
