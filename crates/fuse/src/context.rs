//! State that all files of a mount share: the client, the bound on the bytes that wait to be written, the
//! notifications to the kernel.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use braid_client::{Client, Name, Watching};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};
use fuser::INodeNo;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::timeout;

use crate::files::buffers::Buffers;
use crate::files::idle::Idle;
use crate::files::lock_table::Locks;
use crate::files::version::{Ends, KNOWN_FOR, Remembered};
use crate::kernel_side::kernel::{Kernel, Teller};
use crate::kernel_side::waits::Answers;
use crate::tree::attributes::number;
use crate::tree::former::Former;
use crate::tree::kept::Kept;
use crate::tree::said::Said;

/// Maximum number of bytes that wait to be written, of all files of a mount. Enough that a writer goes on
/// while some of them are on their way to the drives; a crash of this process may lose so many that were not
/// synced.
pub(crate) const DIRTY_BYTES_MAX: u64 = 64 << 20;

/// Time that the kernel may take to drop pages that a program has written past.
const PAGES_WAIT: Duration = Duration::from_secs(5);

/// Shared by all files of a mount.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) volume: String,
    /// The volume's root, as the manager has it.
    pub(crate) root: FileId,
    pub(crate) runtime: Handle,
    pub(crate) teller: Teller,
    pub(crate) budget: Budget,
    pub(crate) buffers: Buffers,
    /// True if the volume has a quota: a file's growth is committed before its writer gives up its lease.
    pub(crate) has_quota: AtomicBool,
    /// Number of times that bytes were dropped because they could not be written.
    pub(crate) lossy: AtomicUsize,
    /// Versions of which the kernel has pages, of files that are not open.
    pub(crate) remembered: Remembered,
    /// Versions that the kernel was told.
    pub(crate) told: Remembered,
    /// Versions of directories of which the kernel has listings.
    pub(crate) listed: Remembered,
    pub(crate) ends: Ends,
    pub(crate) kept: Kept,
    pub(crate) former: Former,
    pub(crate) locks: Arc<Locks>,
    pub(crate) said: Said,
    pub(crate) answers: Answers,
    /// Files of which the kernel was told attributes that the manager does not know yet.
    pub(crate) early: Mutex<BTreeSet<FileId>>,
    /// Open files of the client that no program has open any more.
    pub(crate) idle: Idle,
    /// The kernel, once the volume is mounted.
    pub(crate) kernel: OnceLock<Arc<dyn Kernel>>,
}

/// Budget of the bytes that wait to be written, of all files. A file may have no more of them than are left
/// for all others: so a file that cannot be written leaves them room.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: AtomicU64,
    /// Notified when bytes were written, or a file takes no more.
    stirred: Notify,
    /// Notified when a writer waits for room.
    wanted: Notify,
}

impl Context {
    /// Notes a change of a file made here that the manager knows.
    pub(crate) fn changed(&self, file: FileId) {
        self.ends.mark(file);
        self.kept.forget(file);
        if self.early().remove(&file) {
            self.expire(file);
        }
    }

    /// Notes that the kernel is told attributes of a file that the manager does not know yet; the kernel is
    /// made to ask again when the manager does.
    pub(crate) fn told_early(&self, file: FileId) {
        self.early().insert(file);
    }

    fn early(&self) -> MutexGuard<'_, BTreeSet<FileId>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes files that the manager takes to be open here.
    pub(crate) fn said_open(&self, files: impl IntoIterator<Item = FileId>) {
        self.said.put(files, Instant::now());
    }

    /// Notes a record that the manager returned: a file without a name is open from then on.
    pub(crate) fn found(&self, row: &StatRow) {
        if row.attributes.links == 0 && row.kind() == EntryKind::File {
            self.said_open([row.file]);
        }
    }

    /// Notes that a file that was said to be open no longer is.
    pub(crate) fn closed(&self, file: FileId) {
        self.early().remove(&file);
        if self.said.take(file)
            && let Some(watching) = self.kept.watching()
        {
            watching.closed(file);
        }
    }

    /// Time for which the kernel may rely on attributes and names.
    pub(crate) fn trust(&self) -> Duration {
        self.kept.watching().map_or(Duration::ZERO, Watching::live_for).min(KNOWN_FOR)
    }

    /// The name of a file by its number.
    pub(crate) fn name(&self, file: FileId) -> Name {
        Name::number(&self.volume, file).expect("the volume's name was checked")
    }

    /// Has the kernel ask for the attributes of a file before it next needs them.
    pub(crate) fn expire(&self, file: FileId) {
        // An offset below 0 means no pages, so that the call waits for no request.
        let expired = self.kernel.get().map(|kernel| kernel.inval_inode(number(file, self.root), -1, 0));
        if let Some(Err(error)) = expired {
            tracing::debug!(%file, %error, "the kernel could not be told to drop a file's attributes");
        }
    }

    /// Has the kernel ask for a name before it next uses the name. The call may have to wait for requests
    /// that are under way in the directory.
    pub(crate) fn expire_name(&self, directory: FileId, name: &[u8]) {
        let expired = self.kernel.get().map(|kernel| kernel.expire_name(number(directory, self.root), name));
        if let Some(Err(error)) = expired {
            tracing::debug!(%directory, %error, "the kernel could not be told to drop a name");
        }
    }

    /// Has the kernel drop all that it has cached of a file. It may have to wait for requests that are under
    /// way, so no request may await the returned future, which is done when the kernel has dropped it.
    pub(crate) fn invalidate(&self, file: FileId) -> impl Future<Output = ()> + use<> {
        self.invalidate_range(file, 0, 0)
    }

    /// Does the same for a range of the file, given as first byte and length; length 0 means to the end.
    fn invalidate_range(&self, file: FileId, from: i64, length: i64) -> impl Future<Output = ()> + use<> {
        let kernel = self.kernel.get().cloned();
        let ino: INodeNo = number(file, self.root);
        let dropping = self.teller.tell(ino, move || {
            if let Some(Err(error)) = kernel.map(|kernel| kernel.inval_inode(ino, from, length)) {
                tracing::debug!(file = ino.0, %error, "the kernel could not be told to drop a file's pages");
            }
        });
        async move { drop(dropping.await) }
    }

    /// Has the kernel drop pages past which a program has written (`O_DIRECT`), before that program is
    /// answered. The kernel drops them by itself only where the program waits in the call, and not for one
    /// that is told later.
    pub(crate) async fn wrote_past_pages(&self, file: FileId, offset: u64, length: usize) {
        let (Ok(from), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
        if length > 0 && timeout(PAGES_WAIT, self.invalidate_range(file, from, length)).await.is_err() {
            tracing::debug!(%file, "the kernel takes long to drop a file's pages: not waiting for it");
        }
    }
}

impl Budget {
    /// Counts that a file has `now` bytes waiting, of which `counted` were counted before.
    pub(crate) fn recount(&self, counted: &mut u64, now: u64) {
        if now >= *counted {
            self.used.fetch_add(now - *counted, Ordering::AcqRel);
        } else {
            self.used.fetch_sub(*counted - now, Ordering::AcqRel);
            self.stir();
        }
        *counted = now;
    }

    /// Returns true if there is room for so many bytes of a file that has `held` already. A file's first
    /// bytes find room as long as there is any.
    pub(crate) fn has_room(&self, held: u64, bytes: u64) -> bool {
        let used = self.used.load(Ordering::Acquire) + bytes;
        used <= DIRTY_BYTES_MAX && (held == 0 || held + bytes <= DIRTY_BYTES_MAX - used)
    }

    /// Tells the caretaker that a writer waits for room.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Wakes the writers that wait for room, to look again.
    pub(crate) fn stir(&self) {
        self.stirred.notify_waiters();
    }

    /// A future that is done when a writer that waits for room is to look again.
    pub(crate) fn stirred(&self) -> Notified<'_> {
        self.stirred.notified()
    }

    /// Waits until a writer waits for room.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_leaves_room_for_others() {
        const PIECE: u64 = 1 << 20;
        let budget = Budget::default();
        for file in 0..5 {
            let mut counted = 0;
            while budget.has_room(counted, PIECE) {
                let now = counted + PIECE;
                budget.recount(&mut counted, now);
            }
            let share = DIRTY_BYTES_MAX >> (file + 1);
            assert!(counted >= share && counted <= share + PIECE, "file {file} has {counted} bytes");
        }
        assert!(budget.has_room(0, PIECE) && !budget.has_room(PIECE, PIECE));
        assert!(!budget.has_room(0, DIRTY_BYTES_MAX));
    }
}
