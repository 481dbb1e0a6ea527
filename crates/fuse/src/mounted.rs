//! The kernel's requests, each carried out by a task of its own: none waits for another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use braid_client::{Client, File, Name, OpenOptions};
use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};
use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};
use tokio::runtime::Handle;

use crate::attributes;
use crate::errors::errno;
use crate::listing::Listing;
use crate::table::Table;

/// How long the kernel may rely on what it was told.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// A volume as the kernel sees it.
pub(crate) struct Mounted {
    shared: Arc<Shared>,
    runtime: Handle,
}

struct Shared {
    client: Client,
    volume: String,
    /// The volume's root, as the manager has it.
    root: FileId,
    files: Table<File>,
    directories: Table<Listing>,
}

impl Mounted {
    pub(crate) fn new(client: Client, volume: String, root: FileId, runtime: Handle) -> Mounted {
        let (files, directories) = Default::default();
        Mounted { shared: Arc::new(Shared { client, volume, root, files, directories }), runtime }
    }
}

impl Shared {
    fn name(&self, number: INodeNo) -> Name {
        let file = if number == INodeNo::ROOT { self.root } else { FileId(number.0) };
        Name::number(&self.volume, file).expect("the volume's name was checked")
    }

    fn under(&self, directory: INodeNo, name: &[u8]) -> Result<Name, Errno> {
        self.name(directory).join(name).map_err(|_| Errno::EINVAL)
    }

    async fn stat(&self, name: &Name) -> Result<StatRow, Errno> {
        self.client.stat_itself(name).await.map_err(|error| errno(&error))
    }

    fn attributes(&self, row: &StatRow) -> FileAttr {
        attributes::of(row.file, &row.attributes, self.root)
    }

    async fn look_up(&self, directory: INodeNo, name: &[u8]) -> Result<FileAttr, Errno> {
        let row = self.stat(&self.under(directory, name)?).await?;
        Ok(self.attributes(&row))
    }

    async fn open_directory(&self, number: INodeNo) -> Result<Listing, Errno> {
        let name = self.name(number);
        let row = self.stat(&name).await?;
        if row.kind() != EntryKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        // The kernel goes up by names of its own: what is told here only shows in listings.
        Ok(Listing::new(&self.client, name, (number, INodeNo::ROOT), self.root))
    }

    async fn read(&self, handle: FileHandle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let file = self.files.get(handle).ok_or(Errno::EBADF)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match file.read_at(&mut bytes[filled..], at).await.map_err(|error| errno(&error))? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl Filesystem for Mounted {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (shared, name) = (Arc::clone(&self.shared), name.as_bytes().to_vec());
        self.runtime.spawn(async move {
            match shared.look_up(parent, &name).await {
                Ok(attributes) => reply.entry(&KNOWN_FOR, &attributes, Generation(0)),
                Err(error) => reply.error(error),
            }
        });
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            match shared.stat(&shared.name(number)).await {
                Ok(row) => reply.attr(&KNOWN_FOR, &shared.attributes(&row)),
                Err(error) => reply.error(error),
            }
        });
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            match shared.client.open(&shared.name(number), &OpenOptions::new().read(true)).await {
                Ok(file) => reply.opened(shared.files.put(file), FopenFlags::empty()),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            match shared.read(handle, offset, size).await {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(error),
            }
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.files.take(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            match shared.open_directory(number).await {
                Ok(listing) => reply.opened(shared.directories.put(listing), FopenFlags::empty()),
                Err(error) => reply.error(error),
            }
        });
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            let Some(listing) = shared.directories.get(handle) else { return reply.error(Errno::EBADF) };
            match listing.fill(&shared.client, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.directories.take(handle);
        reply.ok();
    }
}
