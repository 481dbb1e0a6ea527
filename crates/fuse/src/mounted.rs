//! The kernel's requests. No request waits for another: one that must wait is carried out by a task of its
//! own. A write that need not wait is taken at once.

use std::ffi::OsStr;
use std::future::ready;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use braid_client::{AttributeChanges, Node};
use braid_wire::control::{MODE_MAX, RenameHow, UnlinkOnly};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, FileType, OFlags};

use crate::errors::{Outcome, errno};
use crate::files::buffers::Filled;
use crate::files::lock_table::Wanted;
use crate::files::write_back::Through;
use crate::kernel_side::agreed;
use crate::kernel_side::answers::{
    give, give_lock, lock_kind, lock_span, nanoseconds_of, new_attributes, open_flags,
};
use crate::kernel_side::interrupts::Waiter;
use crate::kernel_side::unmapped::Unmapped;
use crate::kernel_side::waits::Bound;
use crate::shared::{Shared, manner};
use crate::tree::names::known;
use crate::tree::past;
use crate::tree::space;

/// A volume as the kernel sees it.
pub(crate) struct Mounted {
    pub(crate) shared: Arc<Shared>,
    /// True if each write is treated as one with O_SYNC.
    pub(crate) sync: bool,
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        agreed::with(config);
        Ok(())
    }

    fn lookup(&self, asker: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.spawn_entry(asker, reply, |shared| async move { shared.look_up(parent, &name).await });
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.shared.lookups.forget(number, times, || self.shared.forget(number));
    }

    fn getattr(&self, asker: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let look = |shared: Arc<Shared>| async move { shared.attributes_by_number(number).await };
        self.spawn_attributes(asker, Bound::Asked, reply, look);
    }

    fn setattr(
        &self,
        asker: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // With a size the kernel also sends the present time, which is set anyway.
        let changes = AttributeChanges {
            mode: mode.map(|mode| mode & MODE_MAX),
            uid,
            gid,
            accessed_ns: atime.map(nanoseconds_of),
            modified_ns: mtime
                .filter(|at| size.is_none() || !matches!(at, TimeOrNow::Now))
                .map(nanoseconds_of),
        };
        let set = |shared: Arc<Shared>| async move { shared.set(number, handle, size, changes).await };
        self.spawn_attributes(asker, Bound::Answered, reply, set);
    }

    fn readlink(&self, asker: &Request, number: INodeNo, reply: ReplyData) {
        self.spawn_look(asker, |shared| async move {
            match shared.target(number).await {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(error),
            }
        });
    }

    fn mknod(
        &self,
        asker: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let new = new_attributes(asker, mode & !umask);
        let node = match FileType::from_raw_mode(mode) {
            FileType::RegularFile => None,
            FileType::Fifo => Some(Node::Fifo),
            FileType::Socket => Some(Node::Socket),
            FileType::CharacterDevice => Some(Node::CharDevice(device)),
            FileType::BlockDevice => Some(Node::BlockDevice(device)),
            _ => return reply.error(Errno::EINVAL),
        };
        self.spawn_entry(
            asker,
            reply,
            |shared| async move { shared.make_node(parent, &name, node, new).await },
        );
    }

    fn mkdir(
        &self,
        asker: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes().to_vec();
        let new = new_attributes(asker, mode & !umask);
        self.spawn_entry(
            asker,
            reply,
            |shared| async move { shared.make_directory(parent, &name, new).await },
        );
    }

    fn symlink(&self, asker: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let target = target.as_os_str().as_bytes().to_vec();
        let new = new_attributes(asker, 0o777);
        self.spawn_entry(asker, reply, |shared| async move {
            shared.make_node(parent, &name, Some(Node::Symlink(&target)), new).await
        });
    }

    fn link(&self, asker: &Request, of: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.spawn_entry(asker, reply, |shared| async move { shared.link(of, parent, &name).await });
    }

    fn setxattr(
        &self,
        asker: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let name = name.as_bytes().to_vec();
        let value = value.to_vec();
        self.spawn_done(asker, Bound::Asked, reply, |shared| async move {
            shared.set_xattr(number, &name, &value, flags).await
        });
    }

    fn getxattr(&self, asker: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes().to_vec();
        self.spawn_look(asker, |shared| async move { give(shared.xattr(number, &name).await, size, reply) });
    }

    fn listxattr(&self, asker: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        self.spawn_look(asker, |shared| async move { give(shared.xattr_names(number).await, size, reply) });
    }

    fn removexattr(&self, asker: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.spawn_done(asker, Bound::Asked, reply, |shared| async move {
            shared.remove_xattr(number, &name).await
        });
    }

    fn unlink(&self, asker: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.spawn_done(asker, Bound::Asked, reply, |shared| async move {
            shared.remove(parent, &name, UnlinkOnly::NotDirectory).await
        });
    }

    fn rmdir(&self, asker: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.spawn_done(asker, Bound::Asked, reply, |shared| async move {
            shared.remove(parent, &name, UnlinkOnly::Directory).await
        });
    }

    fn rename(
        &self,
        asker: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => RenameHow::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameHow::Exchange,
            _ if flags.is_empty() => RenameHow::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let name = name.as_bytes().to_vec();
        let new_name = new_name.as_bytes().to_vec();
        self.spawn_done(asker, Bound::Asked, reply, |shared| async move {
            shared.rename((parent, &name), (new_parent, &new_name), how).await
        });
    }

    fn create(
        &self,
        asker: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.as_bytes().to_vec();
        let new = new_attributes(asker, mode & !umask);
        let shared = Arc::clone(&self.shared);
        let is_unmapped = Unmapped::has(&name);
        let answer = move |done: Outcome<(FileAttr, Duration, FileHandle)>| match done {
            Ok((attributes, trust, handle)) => {
                shared.tell(&attributes, is_unmapped);
                let how = shared.unmapped.flags(attributes.ino);
                reply.created(&trust, &attributes, Generation(0), handle, how);
            }
            Err(error) => reply.error(error),
        };
        let create =
            |shared: Arc<Shared>| async move { shared.create((parent, &name), open_flags(flags), new).await };
        let late = |shared: Arc<Shared>, (.., handle): (_, _, FileHandle)| async move {
            shared.release(handle, None).await
        };
        self.spawn_for(asker, Bound::Asked, create, answer, late);
    }

    fn open(&self, asker: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let answer = |done| match done {
            Ok((handle, how)) => reply.opened(handle, how),
            Err(error) => reply.error(error),
        };
        let flags = open_flags(flags.0);
        let is_root = asker.uid() == 0;
        // Truncating a large file may take long.
        let bound = if flags.contains(OFlags::TRUNC) { Bound::Answered } else { Bound::Asked };
        let open = |shared: Arc<Shared>| async move { shared.open_as(is_root, number, flags).await };
        let late = |shared: Arc<Shared>, (handle, _): (FileHandle, _)| async move {
            shared.release(handle, None).await
        };
        self.spawn_for(asker, bound, open, answer, late);
    }

    fn read(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let context = Arc::clone(&self.shared.context);
        let answer = move |read: Outcome<Filled>| match read {
            Ok(filled) => {
                reply.data(filled.as_slice());
                context.buffers.give(filled.buffer);
            }
            Err(error) => reply.error(error),
        };
        let read = |shared: Arc<Shared>| async move {
            if let Some(file) = shared.past.opened(handle) {
                return shared.read_past(&file, offset, size).await;
            }
            let open = known(&shared, handle)?;
            open.keeps_locks()?;
            open.inode.read(offset, size).await
        };
        self.spawn_for(asker, Bound::Asked, read, answer, |_, _| ready(()));
    }

    fn write(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let open = match known(&self.shared, handle) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        let asked = open_flags(flags.0) | if self.sync { OFlags::SYNC } else { OFlags::empty() };
        let (place, through) = manner(offset, asked, how.contains(WriteFlags::FUSE_WRITE_CACHE));
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if through == Through::No && open.write_at_once(place, data) {
            return reply.written(written);
        }
        let data = data.to_vec();
        let work = move |_| async move { open.write(offset, asked, &data, place, through).await };
        let answer = move |done| match done {
            Ok(()) => reply.written(written),
            Err(error) => reply.error(error),
        };
        if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // The program that has the kernel write its pages may be killed: the bytes may be another
            // program's.
            self.spawn(|shared| async move { answer(work(shared).await) });
        } else {
            self.spawn_for(asker, Bound::Answered, work, answer, |_, ()| ready(()));
        }
    }

    fn flush(&self, asker: &Request, _: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.spawn_done(asker, Bound::Answered, reply, |shared| async move {
            shared.flush(handle, owner.0).await
        });
    }

    fn getlk(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        LockOwner(owner): LockOwner,
        from: u64,
        to: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let span = lock_span(from, to);
        self.spawn_look(asker, |shared| async move {
            let asked = async {
                let wanted = Wanted { owner, pid, span, kind: lock_kind(kind)? };
                if shared.past.opened(handle).is_some() {
                    return past::lock(wanted.kind).map(|()| None);
                }
                shared.lock_in_the_way(&*known(&shared, handle)?, wanted).await
            };
            match asked.await {
                Ok(found) => give_lock(span, found, reply),
                Err(error) => reply.error(error),
            }
        });
    }

    fn setlk(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        LockOwner(owner): LockOwner,
        from: u64,
        to: u64,
        kind: i32,
        pid: u32,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        let waiter = wait.then(|| Waiter::new(asker.pid()));
        let waits = wait && lock_kind(kind).is_ok_and(|kind| kind.is_some());
        let bound = if waits { Bound::None } else { Bound::Answered };
        self.spawn_done(asker, bound, reply, |shared| async move {
            let wanted = Wanted { owner, pid, span: lock_span(from, to), kind: lock_kind(kind)? };
            if shared.past.opened(handle).is_some() {
                return past::lock(wanted.kind);
            }
            shared.lock(&known(&shared, handle)?, wanted, waiter).await
        });
    }

    fn fsync(&self, asker: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.spawn_done(asker, Bound::Answered, reply, |shared| async move { shared.sync(handle).await });
    }

    fn release(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.spawn_done(asker, Bound::None, reply, |shared| async move {
            shared.release(handle, owner).await;
            Ok(())
        });
    }

    fn fallocate(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        self.spawn_done(asker, Bound::Answered, reply, |shared| async move {
            shared.allocate(handle, offset, length, mode).await
        });
    }

    fn lseek(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.spawn_look(asker, |shared| async move {
            match shared.find(handle, offset, whence).await {
                Ok(at) => reply.offset(at),
                Err(error) => reply.error(error),
            }
        });
    }

    fn statfs(&self, asker: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.spawn_look(asker, |shared| async move {
            match shared.space.room(&shared.context).await {
                Ok(room) => space::tell(&room, reply),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn opendir(&self, asker: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let shared = Arc::clone(&self.shared);
        let answer = move |done| match done {
            Ok((listing, how)) => reply.opened(shared.directories.put(listing), how),
            Err(error) => reply.error(error),
        };
        let open = |shared: Arc<Shared>| async move { shared.open_directory(number).await };
        self.spawn_for(asker, Bound::Asked, open, answer, |_, _| ready(()));
    }

    fn readdir(
        &self,
        asker: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.spawn_look(asker, |shared| async move {
            let Some(listing) = shared.directories.get(handle) else { return reply.error(Errno::EBADF) };
            match listing.fill(offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.shared.directories.take(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // The manager's answer to a change of names comes when it is durable.
        reply.ok();
    }
}
