//! A copy to a new file that starts over on other drives if one turns out to be full.
//!
//! The manager places new files where drives have reported free space. A large file, or many writers at once,
//! can still fill a drive. The new file has no name yet, so it is given up and created again on other drives.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_client::{AttributeChanges, Client, Name};
use braid_layout::Shape;

use super::pipeline::{self, Sink, Source};
use super::target::Unnamed;
use super::{Job, Opened, open_source, stripe_bytes};
use crate::files::names::Location;
use crate::output::exit::Failure;
use crate::output::rate::Progress;

/// Maximum number of full drives that a copy works around.
const FULL_MAX: usize = 16;

/// Copies `source`, described by `job`, to `name` with the attributes `kept`, in this shape or the one that
/// counts there. Returns the bytes copied.
pub(super) async fn run(
    client: &Client,
    job: &Job,
    source: Source,
    kept: AttributeChanges,
    name: &Name,
    shape: Option<Shape>,
    preallocate: bool,
    progress: &Progress,
) -> Result<u64, Failure> {
    let copy = written(client, job, source, name, shape, preallocate, progress).await?;
    copy.unnamed.commit(kept).await?;
    Ok(copy.bytes)
}

/// A copy that is whole and has no name yet.
pub(super) struct Written {
    pub(super) unnamed: Unnamed,
    pub(super) bytes: u64,
}

/// Copies `source` like [`run`] to a file that is to have `name`.
pub(super) async fn written(
    client: &Client,
    job: &Job,
    mut source: Source,
    name: &Name,
    shape: Option<Shape>,
    preallocate: bool,
    progress: &Progress,
) -> Result<Written, Failure> {
    let mut full = BTreeSet::new();
    let mut refused = None;
    loop {
        let unnamed = Unnamed::create(client, name.clone(), shape, &full).await?;
        if let Some(failure) = refused.take()
            && unnamed.is_on(&full)
        {
            // The manager had no other drives to offer.
            unnamed.give_up().await;
            return Err(failure);
        }
        if let Some(size) = job.size.filter(|&size| preallocate && size > 0)
            && let Err(error) = unnamed.file.reserve_space(0..size).await
        {
            unnamed.give_up().await;
            return Err(error.into());
        }
        let stripe = stripe_bytes(&unnamed.file);
        let failure =
            match pipeline::run(source, Sink::Remote(Arc::clone(&unnamed.file)), stripe, progress).await {
                Ok(bytes) => return Ok(Written { unnamed, bytes }),
                Err(failure) => failure,
            };
        let drive = unnamed.file.full_drive();
        let written = unnamed.file.size();
        unnamed.give_up().await;
        let Some(drive) = drive else { return Err(failure) };
        if matches!(job.source, Location::Pipe) {
            // What was read from the pipe is gone.
            return Err(failure.remedy(
                "a pipe cannot be read twice: run the command again, and it will avoid the full drive",
            ));
        }
        if !full.insert(drive) || full.len() >= FULL_MAX {
            return Err(failure);
        }
        progress.take_back(written);
        refused = Some(failure);
        let Opened { source: again, .. } = open_source(client, &job.source).await?;
        source = again;
    }
}
