//! A copy to a new file whose drives may turn out to be full: it begins again on others.
//!
//! The manager places new files where there is room, as far as drives have told. A large file, or many writers at once, can still
//! meet the end of a drive: nothing of the new file counts then, so it is given up and made anew beside the full drive.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_client::{Client, Kept, Name};

use super::pipeline::{self, Sink, Source};
use super::target::Unnamed;
use super::{Job, Opened, open_source, stripe_bytes};
use crate::exit::Failure;
use crate::names::Place;
use crate::rate::Progress;

/// The most full drives that one file meets.
const FULL_MAX: usize = 16;

/// Copies `source`, which `job` names, to `name`, with what is kept of it; the bytes copied.
pub(super) async fn run(
    client: &Client,
    job: &Job,
    (mut source, kept): (Source, Kept),
    name: &Name,
    progress: &Progress,
) -> Result<u64, Failure> {
    let (mut full, mut refused) = (BTreeSet::new(), None);
    loop {
        let unnamed = Unnamed::create(client, name.clone(), &full).await?;
        if let Some(failure) = refused.take()
            && unnamed.is_on(&full)
        {
            // There are no others.
            unnamed.give_up().await;
            return Err(failure);
        }
        let stripe = stripe_bytes(&unnamed.file);
        let failure =
            match pipeline::run(source, Sink::Remote(Arc::clone(&unnamed.file)), stripe, progress).await {
                Ok(bytes) => {
                    unnamed.commit(kept).await?;
                    return Ok(bytes);
                }
                Err(failure) => failure,
            };
        let (drive, written) = (unnamed.file.full_drive(), unnamed.file.size());
        unnamed.give_up().await;
        let Some(drive) = drive else { return Err(failure) };
        if matches!(job.source, Place::Pipe) {
            // What was read of it is gone.
            return Err(failure
                .remedy("a pipe cannot be read twice: give it again, and the full drive is passed over"));
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
