//! News of what others change: what is kept of it is dropped here, and in the kernel, before they are heeded.
//! Others wait for that. What others open is written out, if it is written here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use braid_client::News;
use braid_layout::FileId;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::attributes::number;
use crate::shared::Shared;

/// How long the kernel may take to drop something. It waits for requests that are under way in the same
/// directory, and one of those may wait for others to heed news of theirs.
const KERNEL_WAIT: Duration = Duration::from_millis(50);

/// Heeds news until the mount is gone.
pub(crate) async fn run(shared: Weak<Shared>, mut news: Receiver<News>) {
    while let Some(news) = news.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        heed(&shared, news).await;
    }
}

async fn heed(shared: &Arc<Shared>, news: News) {
    let context = &shared.context;
    let mut entries = Vec::new();
    let mut changed = news.changed.clone();
    if news.everything {
        let (names, files) = context.kept.heed_all();
        entries.extend(names);
        changed.extend(files);
        changed.extend(shared.inodes.all().iter().map(|inode| inode.file));
    }
    for &file in &news.changed {
        entries.extend(context.kept.heed(file).into_iter().map(|name| (file, name)));
    }
    drop_in_kernel(shared, entries, changed).await;
    let open = |file: &FileId| shared.inodes.get(*file).is_some();
    let open: Vec<FileId> = match news.everything {
        true => shared.inodes.all().iter().map(|inode| inode.file).collect(),
        false => news.changed.iter().copied().filter(open).collect(),
    };
    if news.everything {
        let shared = Arc::clone(shared);
        context.runtime.spawn(async move { shared.context.claim_locks().await });
    }
    context.said_open(&open);
    if let Some(watching) = context.kept.watching() {
        watching.heed(news.number, open);
    }
    // What is written out waits for others: so it must not hold up what they wait for.
    let (shared, recalled, number) = (Arc::clone(shared), news.recalled, news.number);
    shared.context.runtime.clone().spawn(async move {
        for file in recalled {
            if let Some(inode) = shared.inodes.get(file)
                && let Err(error) = inode.sync().await
            {
                tracing::info!(%file, errno = i32::from(error), "others do not see what waits to be written");
            }
        }
        if let Some(watching) = shared.context.kept.watching() {
            watching.written(number);
        }
    });
}

/// Has the kernel drop names, attributes and pages.
async fn drop_in_kernel(shared: &Arc<Shared>, entries: Vec<(FileId, Vec<u8>)>, files: Vec<FileId>) {
    let context = Arc::clone(&shared.context);
    let Some(notifier) = context.notifier.get().cloned() else { return };
    let mut pages = Vec::new();
    for file in files {
        let inode = shared.inodes.get(file);
        let is_written = inode.as_ref().is_some_and(|inode| inode.forget_seen());
        if let Some(inode) = inode.filter(|_| is_written) {
            // Others may write it too by now, which is found out so.
            context.runtime.spawn(async move { inode.catch_up().await });
        }
        context.remembered.forget(file);
        pages.push((file, is_written));
    }
    let dropping = context.runtime.clone().spawn_blocking(move || {
        use std::os::unix::ffi::OsStrExt;
        for (directory, name) in entries {
            let name = std::ffi::OsStr::from_bytes(&name);
            let _ = notifier.inval_entry(number(directory, context.root), name);
        }
        for (file, is_written) in pages {
            // What is written here may be on its way: a page that is read anew would miss it.
            let from = if is_written { -1 } else { 0 };
            let _ = notifier.inval_inode(number(file, context.root), from, 0);
        }
    });
    if timeout(KERNEL_WAIT, dropping).await.is_err() {
        tracing::debug!("the kernel drops what changed as soon as it can");
    }
}
