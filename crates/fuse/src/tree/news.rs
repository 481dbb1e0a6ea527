//! News of changes made by others: the kept records of what changed are dropped here, and in the kernel,
//! before the news are heeded. Others wait for that. A file that others open is written out, if it is written
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use braid_client::{News, Watching};
use braid_layout::FileId;
use braid_wire::control::StatRow;
use fuser::INodeNo;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::shared::Shared;
use crate::tree::attributes::number;

/// Time that the kernel may take to drop something. It waits for requests that are under way in the same
/// directory, and one of those may wait for other mounts to heed their news.
const KERNEL_WAIT: Duration = Duration::from_millis(50);

/// Interval between two looks whether the lease is over: timers stand still while the machine sleeps.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Heeds news until the mount is gone. When the lease is over, nothing that was told before counts any more.
pub(crate) async fn run(shared: Weak<Shared>, mut news: Receiver<News>) {
    let mut was_live = false;
    loop {
        let live_for = match shared.upgrade() {
            Some(shared) => shared.context.kept.watching().map_or(Duration::ZERO, Watching::live_for),
            None => return,
        };
        if !was_live
            && !live_for.is_zero()
            && let Some(shared) = shared.upgrade()
        {
            shared.context.answers.came();
            for inode in shared.inodes.all_written() {
                // The bytes that others wrote meanwhile could not be asked for, and no page was dropped.
                shared.context.runtime.spawn(async move { inode.catch_up().await });
            }
        }
        let is_over = was_live && live_for.is_zero();
        was_live = !live_for.is_zero();
        if is_over && let Some(shared) = shared.upgrade() {
            tracing::debug!(
                "the manager has not confirmed in time that cached names and attributes are current: they are dropped"
            );
            drop_all(&shared, &[]).await;
        }
        let wait = if was_live { live_for.min(LOOK_EVERY) } else { LOOK_EVERY };
        match timeout(wait, news.recv()).await {
            Ok(Some(news)) => {
                let Some(shared) = shared.upgrade() else { return };
                heed(&shared, news).await;
            }
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

/// Drops all kept records, and those of the files in `changed`, here and in the kernel.
async fn drop_all(shared: &Arc<Shared>, changed: &[FileId]) {
    let context = &shared.context;
    let (names, rows) = context.kept.heed_all();
    keep_former(shared, &rows);
    let open = shared.inodes.all();
    let files = rows.iter().map(|row| row.file).chain(open.iter().map(|inode| inode.file));
    drop_in_kernel(shared, names, files.chain(changed.iter().copied()).collect()).await;
}

/// Keeps records of entries that may have been removed: programs that have them open go on with these.
fn keep_former(shared: &Arc<Shared>, rows: &[StatRow]) {
    let context = &shared.context;
    let known = rows.iter().filter(|row| context.told.get(row.file).is_some());
    known.for_each(|row| context.former.put(row));
}

async fn heed(shared: &Arc<Shared>, news: News) {
    let context = &shared.context;
    let is_known = |file: &FileId| context.told.get(*file).is_some();
    let known: BTreeSet<FileId> = news.changed.iter().copied().filter(is_known).collect();
    if news.everything {
        drop_all(shared, &news.changed).await;
    } else {
        let rows: Vec<StatRow> =
            news.changed.iter().filter_map(|file| context.kept.known_row(*file)).collect();
        keep_former(shared, &rows);
        let mut entries = Vec::new();
        for &file in &news.changed {
            entries.extend(context.kept.heed(file).into_iter().map(|name| (file, name)));
        }
        drop_in_kernel(shared, entries, news.changed.clone()).await;
    }
    // A program may be about to open a file that the kernel knows.
    let is_open = |file: &FileId| shared.inodes.get(*file).is_some() || known.contains(file);
    let mut open: Vec<FileId> = news.changed.iter().copied().filter(is_open).collect();
    if news.everything {
        open.extend(shared.inodes.all().iter().map(|inode| inode.file));
        open.extend(context.said.all());
    }
    if news.everything {
        let shared = Arc::clone(shared);
        context.runtime.spawn(async move { shared.context.claim_locks().await });
    }
    context.said_open(open.iter().copied());
    if let Some(watching) = context.kept.watching() {
        watching.heed(news.number, open);
    }
    // A file that is written out waits for others: so it must not hold up what they wait for.
    let shared = Arc::clone(shared);
    let recalled = news.recalled;
    let number = news.number;
    shared.context.runtime.clone().spawn(async move {
        for file in recalled {
            if let Some(inode) = shared.inodes.get(file)
                && let Err(error) = inode.sync().await
            {
                tracing::info!(%file, errno = i32::from(error), "other clients do not see yet what was written, as it could not be stored");
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
    let Some(kernel) = context.kernel.get().cloned() else { return };
    let mut dropping = Vec::new();
    let mut names = BTreeMap::<FileId, Vec<Vec<u8>>>::new();
    entries.into_iter().for_each(|(directory, name)| names.entry(directory).or_default().push(name));
    for (directory, names) in names {
        let told = Arc::clone(&context);
        dropping.push(context.teller.tell(number(directory, context.root), move || {
            names.iter().for_each(|name| told.expire_name(directory, name));
        }));
    }
    let mut closed = Vec::new();
    for file in files {
        let inode = shared.inodes.get(file);
        let is_written = inode.as_ref().is_some_and(|inode| {
            inode.dropping.fetch_add(1, Ordering::AcqRel);
            inode.forget_seen()
        });
        if let Some(inode) = inode.clone().filter(|_| is_written) {
            // Others may write the file too by now, which this finds out.
            context.runtime.spawn(async move { inode.catch_up().await });
        }
        context.remembered.forget(file);
        let number = number(file, context.root);
        let Some(inode) = inode else {
            closed.push(number);
            continue;
        };
        // Bytes that are written here may be on their way: a page that is read again would miss them.
        let kernel = Arc::clone(&kernel);
        let from = if is_written { -1 } else { 0 };
        dropping.push(context.teller.tell(number, move || {
            let _ = kernel.inval_inode(number, from, 0);
            inode.dropping.fetch_sub(1, Ordering::AcqRel);
        }));
    }
    // No handle reads these files, so the kernel does not have to wait.
    dropping.push(context.teller.tell(INodeNo(0), move || {
        closed.into_iter().for_each(|number| drop(kernel.inval_inode(number, 0, 0)));
    }));
    let all = async {
        for one in dropping {
            let _ = one.await;
        }
    };
    if timeout(KERNEL_WAIT, all).await.is_err() {
        tracing::debug!("the kernel takes long to drop what has changed: not waiting for it");
    }
}
