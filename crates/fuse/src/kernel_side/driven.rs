//! A mount without the system's kernel: a test plays the kernel's part. The test makes the kernel's requests,
//! one function for each, and is told to drop what it has cached. All else is as in a real mount: its
//! decisions, kept records, delayed writes, watches and locks.
//!
//! Requests are carried out by the task that makes them. Each function does what the request of this name
//! does in `mounted`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{AttributeChanges, Client, Name, NewAttributes};
use braid_wire::control::{LockKind, RenameHow, UnlinkOnly};
use fuser::{FileAttr, FileHandle, FopenFlags, INodeNo};

use crate::caretaker;
use crate::errors::Outcome;
use crate::files::lock_table::Wanted;
use crate::files::write_back::Through;
use crate::kernel_side::answers::{lock_span, open_flags};
use crate::kernel_side::kernel::Kernel;
use crate::kernel_side::unmapped::Unmapped;
use crate::mount::Mount;
use crate::shared::{Shared, manner};
use crate::tree::names::{Entry, known};
use crate::tree::news;

/// Inode number of the volume's root.
pub const ROOT: u64 = INodeNo::ROOT.0;

/// The cache of a kernel. The mount has the kernel drop entries from it.
pub trait Cache: Send + Sync {
    /// Drops the entry of a name in a directory.
    fn drop_name(&self, directory: u64, name: &[u8]);
    /// Drops the attributes of a file, and its pages from an offset on, if one is given.
    fn drop_file(&self, number: u64, pages_from: Option<u64>);
}

/// Attributes of a file as a kernel is told them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToldAttributes {
    pub number: u64,
    pub size: u64,
    /// Time for which the kernel may rely on the size.
    pub trust: Duration,
    /// Time for which the kernel may rely on the name under which the file was found.
    pub name_trust: Duration,
}

/// Answer to a kernel that has opened a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Handle for the following requests.
    pub handle: u64,
    /// True if the kernel may keep the pages that it has.
    pub keeps_pages: bool,
    /// True if a close need not be reported (no `flush`).
    pub closes_silently: bool,
    /// True if programs may map the file as shared memory.
    pub is_mapped: bool,
}

/// A mounted volume.
#[derive(Clone)]
pub struct Driven {
    shared: Arc<Shared>,
}

/// Result with the system's error number.
pub type Answer<T> = Result<T, i32>;

struct Told(Arc<dyn Cache>);

impl Kernel for Told {
    fn expire_name(&self, directory: INodeNo, name: &[u8]) -> io::Result<()> {
        self.0.drop_name(directory.0, name);
        Ok(())
    }

    fn inval_inode(&self, number: INodeNo, from: i64, _: i64) -> io::Result<()> {
        self.0.drop_file(number.0, u64::try_from(from).ok());
        Ok(())
    }
}

fn answer<T>(outcome: Outcome<T>) -> Answer<T> {
    outcome.map_err(i32::from)
}

impl Driven {
    /// Mounts a volume: its loops run in the runtime of the caller, until the last clone is dropped.
    ///
    /// # Errors
    /// There is no such volume, or the manager does not answer.
    pub async fn new(client: Client, volume: &str, cache: Arc<dyn Cache>) -> io::Result<Driven> {
        let root = Name::root(volume).map_err(io::Error::other)?;
        let shared = Mount::shared(client, &root).await?;
        // It is set only here.
        let _ = shared.context.kernel.set(Arc::new(Told(cache)));
        tokio::spawn(caretaker::run(Arc::downgrade(&shared)));
        let (watching, told) = shared.context.client.watch();
        shared.context.kept.begin(watching);
        tokio::spawn(news::run(Arc::downgrade(&shared), told));
        Ok(Driven { shared })
    }

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// As the system's.
    pub async fn lookup(&self, directory: u64, name: &str) -> Answer<ToldAttributes> {
        let found = self.shared.attributes(INodeNo(directory), name.as_bytes()).await;
        answer(found.map(|Entry { attributes, is_kept, .. }| {
            let trust = self.shared.context.trust();
            self.facts(&attributes, if is_kept { trust } else { Duration::ZERO })
        }))
    }

    fn facts(&self, attributes: &FileAttr, name_trust: Duration) -> ToldAttributes {
        let trust = self.shared.context.trust();
        ToldAttributes { number: attributes.ino.0, size: attributes.size, trust, name_trust }
    }

    /// Tells the mount that the kernel has forgotten a file.
    pub fn forget(&self, number: u64) {
        self.shared.forget(INodeNo(number));
    }

    /// Returns the attributes of a file.
    ///
    /// # Errors
    /// As the system's.
    pub async fn getattr(&self, number: u64) -> Answer<ToldAttributes> {
        let found = self.shared.attributes_by_number(INodeNo(number)).await;
        answer(found.map(|attributes| self.facts(&attributes, Duration::ZERO)))
    }

    /// Sets the size.
    ///
    /// # Errors
    /// As the system's.
    pub async fn truncate(&self, number: u64, handle: Option<u64>, size: u64) -> Answer<ToldAttributes> {
        let handle = handle.map(FileHandle);
        let changes = AttributeChanges::NONE;
        let set = self.shared.set(INodeNo(number), handle, Some(size), changes).await;
        answer(set.map(|attributes| self.facts(&attributes, Duration::ZERO)))
    }

    /// Creates and opens a file.
    ///
    /// # Errors
    /// As the system's.
    pub async fn create(&self, directory: u64, name: &str, flags: i32) -> Answer<(ToldAttributes, Opened)> {
        let new = NewAttributes { mode: 0o644, uid: 0, gid: 0 };
        let made = self.shared.create((INodeNo(directory), name.as_bytes()), open_flags(flags), new).await;
        answer(made.map(|(attributes, trust, handle)| {
            let is_mapped = !Unmapped::has(name.as_bytes());
            let opened = Opened { handle: handle.0, keeps_pages: false, closes_silently: false, is_mapped };
            (self.facts(&attributes, trust), opened)
        }))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As the system's.
    pub async fn open(&self, number: u64, flags: i32) -> Answer<Opened> {
        let opened = self.shared.open_as(true, INodeNo(number), open_flags(flags)).await;
        answer(opened.map(|(handle, how)| Opened {
            handle: handle.0,
            keeps_pages: how.contains(FopenFlags::FOPEN_KEEP_CACHE),
            closes_silently: how.contains(FopenFlags::FOPEN_NOFLUSH),
            is_mapped: !how.contains(FopenFlags::FOPEN_DIRECT_IO),
        }))
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// As the system's.
    pub async fn read(&self, handle: u64, offset: u64, size: u32) -> Answer<Vec<u8>> {
        let read = async {
            let open = known(&self.shared, FileHandle(handle))?;
            open.keeps_locks()?;
            open.inode.read(offset, size).await
        };
        answer(read.await.map(|filled| {
            let bytes = filled.as_slice().to_vec();
            self.shared.context.buffers.give(filled.buffer);
            bytes
        }))
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// As the system's.
    pub async fn write(&self, handle: u64, offset: u64, data: &[u8], flags: i32) -> Answer<()> {
        let write = async {
            let open = known(&self.shared, FileHandle(handle))?;
            let flags = open_flags(flags);
            let (place, through) = manner(offset, flags, false);
            if through == Through::No && open.write_at_once(place, data) {
                return Ok(());
            }
            open.write(offset, flags, data, place, through).await
        };
        answer(write.await)
    }

    /// Closes a descriptor.
    ///
    /// # Errors
    /// As the system's.
    pub async fn flush(&self, handle: u64, owner: u64) -> Answer<()> {
        answer(self.shared.flush(FileHandle(handle), owner).await)
    }

    /// Syncs a file.
    ///
    /// # Errors
    /// As the system's.
    pub async fn fsync(&self, handle: u64) -> Answer<()> {
        answer(self.shared.sync(FileHandle(handle)).await)
    }

    /// Gives a handle back.
    pub async fn release(&self, handle: u64) {
        self.shared.release(FileHandle(handle), None).await;
    }

    /// Takes a lock on a range of bytes, exclusive or shared, or releases it; never waits for another holder.
    ///
    /// # Errors
    /// As the system's.
    pub async fn lock(
        &self,
        handle: u64,
        owner: u64,
        bytes: (u64, u64),
        kind: Option<LockKind>,
    ) -> Answer<()> {
        let lock = async {
            let wanted = Wanted { owner, pid: 1, span: lock_span(bytes.0, bytes.1), kind };
            self.shared.lock(&known(&self.shared, FileHandle(handle))?, wanted, None).await
        };
        answer(lock.await)
    }

    /// Removes a name.
    ///
    /// # Errors
    /// As the system's.
    pub async fn unlink(&self, directory: u64, name: &str) -> Answer<()> {
        let only = UnlinkOnly::NotDirectory;
        answer(self.shared.remove(INodeNo(directory), name.as_bytes(), only).await)
    }

    /// Renames an entry within a directory.
    ///
    /// # Errors
    /// As the system's.
    pub async fn rename(&self, directory: u64, name: &str, new_name: &str) -> Answer<()> {
        let from = name.as_bytes();
        let to = new_name.as_bytes();
        let directory = INodeNo(directory);
        answer(self.shared.rename((directory, from), (directory, to), RenameHow::Replace).await)
    }
}
