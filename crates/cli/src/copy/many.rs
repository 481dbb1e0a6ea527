//! Copies many files at once.
//!
//! A small file costs round trips and commits rather than bandwidth, so many in flight keep the manager and
//! all drives busy. A large file fills the network by itself and needs buffers, so fewer run at once. Shares
//! bound both. Directories are made in order, before their contents.
//!
//! An error of one file goes to standard error and does not stop the others; the command fails at its end.
//! Only an error of all files ends the copy. If dropped midway, unfinished files never appear.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_client::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

use super::jobs::{self, Job, Kind};
use super::{Options, copy_one, nodes};
use crate::files::names::Location;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::rate::{Progress, Rate};
use crate::output::report::complain;

/// Shares of all copies together: this many small files are in flight at once.
const SHARES: u32 = 32;
/// A file of at most this size takes one share.
const SMALL_BYTES: u64 = 2 << 20;
/// Shares of a larger file, or one of unknown size: four of them run at once.
const SHARES_LARGE: u32 = 8;

/// Outcome of one file's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyOutcome {
    /// Copied; holds the number of bytes.
    Copied(u64),
    /// The target was up to date already and was left alone.
    Same,
}

/// The results of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) same: u64,
    failed: u64,
    /// First error, if any job failed.
    first: Option<Failure>,
}

/// Copies in progress, and the results so far.
struct Many<'a, F> {
    progress: &'a Arc<Progress>,
    tasks: JoinSet<Ended>,
    summary: Summary,
    /// True if errors are printed as they come. The error of a single file is reported as the command's own.
    told: bool,
    each: F,
}

/// A finished job, with the time it took.
struct Ended {
    job: Job,
    outcome: Result<CopyOutcome, Failure>,
    time: Duration,
    _shares: OwnedSemaphorePermit,
}

/// Runs all jobs. `each` is called for every file that was copied.
pub(crate) async fn copy_all(
    client: &Client,
    jobs: Vec<Job>,
    options: Options,
    progress: &Arc<Progress>,
    each: impl FnMut(&Job, Rate) -> Result<(), Failure>,
) -> Result<Summary, Failure> {
    let told = jobs.len() > 1;
    let mut many = Many { progress, tasks: JoinSet::new(), summary: Summary::default(), told, each };
    let shares = Arc::new(Semaphore::new(SHARES as usize));
    // Directories that could not be made: nothing below them can be copied.
    let mut missing: Vec<Location> = Vec::new();
    // Jobs that need all files to be there: more names of them, and attributes of directories.
    let mut after = Vec::new();
    for job in jobs {
        if let Some(directory) = missing.iter().find(|directory| is_below(&job.target, directory)) {
            let why = format!("{} could not be made", directory.show());
            many.failed(Failure::new(Exit::Failed, format!("copy {}", job.source.show()), why))?;
        } else if job.kind == Kind::Directory {
            if let Err(failure) = jobs::make_directory(client, &job.target).await {
                many.failed(failure)?;
                missing.push(job.target);
            }
        } else if matches!(job.kind, Kind::Link(_) | Kind::Finish) {
            after.push(job);
        } else {
            let share = if job.size.is_some_and(|size| size <= SMALL_BYTES) { 1 } else { SHARES_LARGE };
            let permit = loop {
                tokio::select! {
                    permit = Arc::clone(&shares).acquire_many_owned(share) => break permit,
                    Some(ended) = many.tasks.join_next() => many.ended(ended)?,
                }
            };
            many.start(client, job, options, permit.expect("it is never closed"));
        }
    }
    while let Some(ended) = many.tasks.join_next().await {
        many.ended(ended)?;
    }
    for job in after {
        if let Err(failure) = nodes::make(client, &job).await {
            many.failed(failure)?;
        }
    }
    Ok(many.summary)
}

impl<F: FnMut(&Job, Rate) -> Result<(), Failure>> Many<'_, F> {
    fn start(&mut self, client: &Client, job: Job, options: Options, shares: OwnedSemaphorePermit) {
        self.progress.name(job.source.show());
        let client = client.clone();
        let progress = Arc::clone(self.progress);
        self.tasks.spawn(async move {
            let began = Instant::now();
            let outcome = copy_one(&client, &job, options, &progress).await;
            Ended { job, outcome, time: began.elapsed(), _shares: shares }
        });
    }

    fn ended(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Failure> {
        let Ended { job, outcome, time, .. } =
            ended.map_err(std::io::Error::other).doing(|| "copy".into())?;
        self.progress.file_done();
        match outcome {
            Ok(CopyOutcome::Copied(bytes)) => {
                self.summary.files += 1;
                self.summary.bytes += bytes;
                (self.each)(&job, Rate { bytes, time })
            }
            Ok(CopyOutcome::Same) => {
                self.summary.same += 1;
                Ok(())
            }
            Err(failure) => self.failed(failure),
        }
    }

    /// Records an error. Returns it if it concerns all files: the output's reader or the manager is gone.
    fn failed(&mut self, failure: Failure) -> Result<(), Failure> {
        if matches!(failure.exit, Exit::Ok | Exit::NoCluster | Exit::Interrupted) {
            return Err(failure);
        }
        if self.told {
            complain(&failure.to_string());
        }
        self.summary.failed += 1;
        self.summary.first.get_or_insert(failure);
        Ok(())
    }
}

impl Summary {
    /// Fails if anything was left out. `skipped` counts what was skipped before the copy began.
    pub(crate) fn into_result(self, skipped: u64) -> Result<(), Failure> {
        let things =
            |number: u64| if number == 1 { "1 thing was".into() } else { format!("{number} things were") };
        let (exit, what) = match (self.first, self.failed, skipped) {
            (None, _, 0) => return Ok(()),
            (None, ..) => (Exit::Failed, format!("{} skipped", things(skipped))),
            (Some(only), 1, 0) if self.files + self.same == 0 => return Err(only),
            (Some(first), failed, 0) => (first.exit, format!("{} not copied, as told above", things(failed))),
            (Some(first), failed, _) => {
                let told = format!("{} not copied, as told above, and {skipped} skipped", things(failed));
                (first.exit, told)
            }
        };
        Err(Failure::new(exit, "copy", format!("{what}; the rest is copied")))
    }
}

/// Returns true if a target lies below a directory.
fn is_below(target: &Location, directory: &Location) -> bool {
    match (target, directory) {
        (Location::Local(target), Location::Local(directory)) => {
            target.whole().starts_with(directory.whole())
        }
        (Location::Remote { name, .. }, Location::Remote { name: directory, .. }) => {
            let rest = name.path().strip_prefix(directory.path());
            name.label() == directory.label() && rest.is_some_and(|rest| rest.first() == Some(&b'/'))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn place(text: &str) -> Location {
        Location::parse(OsStr::new(text)).expect("a place")
    }

    #[test]
    fn what_lies_below_a_directory() {
        for (target, directory, below) in [
            ("a/b/c", "a/b", true),
            ("a/bc", "a/b", false),
            ("braid://v/a/b", "braid://v/a", true),
            ("braid://v/ab", "braid://v/a", false),
            ("braid://w/a/b", "braid://v/a", false),
            ("a/b", "braid://v/a", false),
        ] {
            assert_eq!(is_below(&place(target), &place(directory)), below, "{target} {directory}");
        }
    }

    #[test]
    fn the_end_says_all_that_is_missing() {
        let failure = || Some(Failure::new(Exit::NoSpace, "copy f", "full"));
        let end = |files, failed, first, skipped| {
            let summary = Summary { files, failed, first, ..Summary::default() };
            summary.into_result(skipped).map_err(|failure| (failure.exit, failure.to_string()))
        };
        assert_eq!(end(3, 0, None, 0), Ok(()));
        assert_eq!(end(0, 1, failure(), 0), Err((Exit::NoSpace, "copy f: full".into())));
        let said = |failed, first, skipped| end(3, failed, first, skipped).expect_err("something is missing");
        assert_eq!(said(0, None, 1), (Exit::Failed, "copy: 1 thing was skipped; the rest is copied".into()));
        assert_eq!(
            said(2, failure(), 0),
            (Exit::NoSpace, "copy: 2 things were not copied, as told above; the rest is copied".into())
        );
        assert_eq!(
            said(1, failure(), 6).1,
            "copy: 1 thing was not copied, as told above, and 6 skipped; the rest is copied"
        );
    }
}
