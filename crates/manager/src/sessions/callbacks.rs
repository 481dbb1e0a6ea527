//! Callbacks: clients that watch are told of others' changes, and a change is answered when they have heeded
//! it.
//!
//! Every transaction says which records it changed (`Core::write_then`); a directory's record changes with
//! its names. A request that changes something waits here for the news of it to be heeded. A manager that was
//! restarted does not know the clients that watched: until their leases are over, changes are not answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use braid_layout::{ClientId, FileId};
use braid_meta::records::inodes;
use braid_meta::records::schema::key;
use braid_meta::records::tx::Tx;
use braid_meta::rules::watchers::LEASE_MS;
use braid_meta::tree::files;
use braid_wire::control::{News, Watch};
use braid_wire::{Reason, Refusal};
use tokio::time::{Instant, timeout, timeout_at};

use crate::asker::asker;
use crate::core::Core;
use crate::jobs::{Again, Job};

/// Maximum wait for news.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Maximum time that an open of a file waits for other clients to write out what they have buffered of it.
const RECALL_MAX: Duration = Duration::from_secs(10);
/// Maximum number of files that are removed in one transaction.
const TOGETHER_MAX: usize = 64;
/// The word under which it is stored that a client has watched.
const WATCHED: &str = "watched";

/// Takes a client's request for news, and waits until there are some, or for the time that it asked for.
pub(crate) async fn watch(core: &Arc<Core>, asked: Watch) -> Result<News, Refusal> {
    if asked.client == ClientId::NONE {
        return Err(Refusal::new(
            Reason::Malformed,
            "a request for news must name the client's number, which is not 0",
        ));
    }
    if !core.is_watched.swap(true, Ordering::AcqRel) {
        core.write(|_, tx| {
            tx.set(key::meta(WATCHED), &1u64);
            Ok(())
        })
        .await?;
    }
    core.locking.watched(core.running_ms());
    if !core.watchers().hear(&asked, core.running_ms()) {
        return Err(Refusal::new(Reason::Busy, "too many clients wait for news: try again later"));
    }
    core.heeded.notify_waiters();
    if !asked.closed.is_empty() {
        let core = Arc::clone(core);
        let closed = asked.closed.clone();
        tokio::spawn(async move { bury_free(&core, Some(closed)).await });
    }
    let until = Instant::now() + Duration::from_millis(u64::from(asked.wait_ms)).min(WAIT_MAX);
    loop {
        let told = core.told.notified();
        let mut told = std::pin::pin!(told);
        told.as_mut().enable();
        if let Some(news) = core.watchers().news(asked.client, asked.seen, core.running_ms()) {
            return Ok(news);
        }
        if timeout_at(until, told).await.is_err() {
            return Ok(core.watchers().no_news(asked.client, core.running_ms()));
        }
    }
}

/// Has other clients that write a file write out what they have buffered of it, before the client of this
/// request opens it.
pub(crate) async fn recall(core: &Arc<Core>, file: FileId) {
    // After a start the writers are not all known before they have renewed their leases.
    let is_known = !core.was_watched || core.uptime_ms() > u64::from(core.client_lease_ms);
    let told = core.watchers().recall(file, asker(), is_known);
    if !told.is_empty() {
        core.told.notify_waiters();
        // A client that cannot write out, as drives are away, must not keep others from the data that is
        // there.
        let _ = timeout(RECALL_MAX, core.until_heeded(&told)).await;
    }
}

/// Returns true if a file that loses its last name is to be kept: the client `by` has it open (`keep`), or
/// others may have, which say so when they heed the news.
pub(crate) fn keeps(core: &Core, file: FileId, by: ClientId, keep: bool) -> bool {
    core.watchers().lose_name(file, by, keep, core.running_ms())
}

/// Returns true if a client has ever watched in this state.
pub(crate) fn was_watched(tx: &Tx) -> Result<bool, Refusal> {
    Ok(tx.number(WATCHED)? != 0)
}

/// Removes files without a name that no client has open any more. After a start clients are given time to say
/// what they have open.
#[derive(Default)]
pub(crate) struct Bury {
    has_waited: bool,
}

impl Job for Bury {
    const NAME: &'static str = "bury";
    const ABOUT: &'static str = "Removes files that have lost their names once no mount has them open.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        let lease = Duration::from_millis(u64::from(LEASE_MS));
        if !std::mem::replace(&mut self.has_waited, true) {
            return Ok(Again::In(2 * lease));
        }
        bury_free(core, None).await;
        Ok(Again::In(lease))
    }
}

/// Removes the files of `of`, or of all, that have no name and that no client has open any more. Files that
/// cannot be removed now are tried again later.
async fn bury_free(core: &Arc<Core>, of: Option<Vec<FileId>>) {
    let free = core.watchers().free(of.as_deref(), core.running_ms());
    for some in free.chunks(TOGETHER_MAX) {
        let mut left = bury(core, some).await;
        if left.len() > 1 {
            // One of these files may hold up the others.
            for file in std::mem::take(&mut left) {
                left.extend(bury(core, &[file]).await);
            }
        }
        left.iter().for_each(|&file| core.watchers().keepers.lost_name(file));
    }
}

/// Removes files in one transaction. Returns those that are not removed.
async fn bury(core: &Arc<Core>, files: &[FileId]) -> Vec<FileId> {
    let some = files.to_vec();
    let buried = core.write(move |core, tx| {
        let mut left = Vec::new();
        for file in some {
            let Some(inode) = inodes::find(tx, file)?.filter(|inode| inode.kept && !inode.is_named()) else {
                continue;
            };
            if files::is_only_kept(&inode) && !core.watchers().is_open(file, core.running_ms()) {
                inodes::bury(tx, file, &inode)?;
            } else {
                left.push(file);
            }
        }
        Ok(left)
    });
    let left = buried.await.unwrap_or_else(|refusal| {
        tracing::debug!(%refusal, "removed files whose last user is gone cannot be freed yet");
        files.to_vec()
    });
    core.wake.notify_waiters();
    left
}
