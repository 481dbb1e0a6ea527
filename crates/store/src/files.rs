//! The store's files on its disk: `superblock`, `log/00000001.seg` and so on.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, Weak};

use crate::disk::{Disk, DiskFile, Space, Syncing, read_full, tolerate, twice, write_full};
use crate::error::Error;
use crate::format::record::PAGE_BYTES;
use crate::format::superblock::{self, Superblock};
use crate::format::{DIRS, LOG_DIR as LOG, segment};
use crate::mutex::Mutex;
use crate::segments::recycled::{RecycledSegment, RecycledSegments};

/// The most segments kept open for reading. Views keep theirs open in addition.
const OPEN_MAX: usize = 512;
/// The suffix of recycled segments' files.
pub(crate) const SPARE: &str = ".spare";
/// The superblock's file.
pub(crate) const SUPERBLOCK: &str = "superblock";

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    segments: RwLock<Segments>,
    /// Held while a segment is opened, renamed or removed, so that no other is opened meanwhile. Readers of
    /// segments that are open already do not wait.
    renames: Mutex<()>,
    recycled: RecycledSegments,
    /// Segments from this number on were made since the store was opened.
    own_from: AtomicU32,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: u32,
    file: Arc<dyn DiskFile>,
    users: Arc<Users>,
}

/// The segments that were opened since the store was.
#[derive(Debug, Default)]
struct Segments {
    known: BTreeMap<u32, Known>,
    /// Segments kept open even if nothing uses them, the oldest first.
    kept: VecDeque<Arc<Open>>,
}

/// A segment that has been opened.
#[derive(Debug)]
struct Known {
    users: Arc<Users>,
    /// The one open file, which all readers of the segment share.
    open: Weak<Open>,
}

/// Shared by all users of a segment: each [`Open`] of it counts as one reference.
#[derive(Debug, Default)]
struct Users {
    /// True if bytes of the segment may have been sent straight from the page cache.
    lent: AtomicBool,
}

impl Open {
    /// The operating system's file, for sending bytes from the page cache.
    pub(crate) fn lend(&self) -> Option<&File> {
        self.users.lent.store(true, Ordering::Relaxed);
        self.file.as_file()
    }
}

impl Deref for Open {
    type Target = dyn DiskFile;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

/// Make the files of an empty store.
pub(crate) fn format(disk: &dyn Disk, superblock: &Superblock) -> Result<(), Error> {
    let doing = |what| move |error| Error::io(what, error);
    for name in disk.list("").map_err(doing("list the store's directory"))? {
        // Leftovers of an interrupted format are fine, and so are the entries of a new file system.
        let empty = || disk.list(&name).is_ok_and(|names| names.is_empty());
        if name != "superblock.new" && name != "lost+found" && !(DIRS.contains(&&*name) && empty()) {
            return Err(Error::NotEmpty(disk.place().to_owned()));
        }
    }
    for dir in DIRS {
        tolerate(io::ErrorKind::AlreadyExists, disk.make_dir(dir))
            .map_err(doing("make the store's directories"))?;
    }
    // The directories must be durable before the superblock says that there is a store.
    disk.sync_dir("").map_err(doing("sync the store's directory"))?;
    let temporary = "superblock.new";
    tolerate(io::ErrorKind::NotFound, disk.remove(temporary))
        .map_err(doing("remove what an interrupted format left"))?;
    let file = disk.create(temporary).map_err(doing("make the superblock"))?;
    write_full(&*file, &[&superblock.encode()], 0).map_err(doing("write the superblock"))?;
    file.sync_all().map_err(doing("sync the superblock"))?;
    disk.rename(temporary, SUPERBLOCK).map_err(doing("put the superblock in place"))?;
    disk.sync_dir("").map_err(doing("sync the store's directory"))
}

impl Files {
    /// Opens the files and reads the superblock.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<(Files, Superblock), Error> {
        let superblock = read_superblock(&*disk)?;
        Ok((
            Files {
                disk,
                segments: RwLock::default(),
                renames: Mutex::default(),
                recycled: RecycledSegments::default(),
                own_from: AtomicU32::new(u32::MAX),
            },
            superblock,
        ))
    }

    /// The numbers of all segments, in order. Other names are ignored.
    pub(crate) fn list(&self) -> Result<Vec<u32>, Error> {
        let names = self.disk.list(LOG).map_err(|error| Error::io("list the log", error))?;
        let number = |name: &String| name.strip_suffix(".seg")?.parse().ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A segment's file, opened if needed.
    pub(crate) fn get(&self, number: u32) -> Result<Arc<Open>, Error> {
        if let Some(open) = self.open_now(number) {
            return Ok(open);
        }
        let _renames = self.renames.lock();
        if let Some(open) = self.open_now(number) {
            return Ok(open);
        }
        let file =
            self.disk.open(&segment_name(number)).map_err(|error| Error::io("open a segment", error))?;
        Ok(self.keep(number, file))
    }

    /// A segment's file, if it is open anywhere.
    pub(crate) fn open_now(&self, number: u32) -> Option<Arc<Open>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.known.get(&number)?.open.upgrade()
    }

    fn segments(&self) -> RwLockWriteGuard<'_, Segments> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep a segment open. Beyond [`OPEN_MAX`] the one that was kept longest is dropped.
    fn keep(&self, number: u32, file: Arc<dyn DiskFile>) -> Arc<Open> {
        let mut segments = self.segments();
        let known = || Known { users: Arc::default(), open: Weak::new() };
        let known = segments.known.entry(number).or_insert_with(known);
        let open = Arc::new(Open { number, file, users: Arc::clone(&known.users) });
        known.open = Arc::downgrade(&open);
        segments.kept.push_back(Arc::clone(&open));
        if segments.kept.len() > OPEN_MAX {
            segments.kept.pop_front();
        }
        open
    }

    /// Forget a segment, and return its users.
    fn let_go(&self, number: u32) -> Option<Arc<Users>> {
        let mut segments = self.segments();
        segments.kept.retain(|open| open.number != number);
        segments.known.remove(&number).map(|known| known.users)
    }

    /// Begin a segment in a recycled file, or else in a new one. Its first block is `header`, given how many
    /// bytes the file had before. Returns the file and that number. A failure removes the files made.
    pub(crate) fn begin(
        &self,
        number: u32,
        header: impl Fn(u64) -> [u8; segment::BYTES],
        syncing: Syncing,
    ) -> io::Result<(Arc<Open>, u64)> {
        if let Some(segment) = self.recycled.take() {
            match self.reuse(&segment, number, &header(segment.bytes)) {
                Ok(()) => {
                    return Ok((self.keep(number, segment.file), segment.bytes));
                }
                Err(error) => {
                    tracing::warn!(%error, segment = number, "a freed segment's file could not be used again");
                    self.remove_file(&segment.name);
                    self.remove_file(&segment_name(number));
                }
            }
        }
        match self.create(number, &header(0), syncing) {
            Ok(file) => Ok((self.keep(number, file), 0)),
            Err(error) => {
                self.remove_file(&segment_name(number));
                Err(error)
            }
        }
    }

    fn create(&self, number: u32, header: &[u8], syncing: Syncing) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(&segment_name(number))?;
        write_full(&*file, &[header], 0)?;
        if syncing.is_on() {
            file.sync_all()?;
            self.disk.sync_dir(LOG)?;
        }
        Ok(file)
    }

    fn reuse(&self, segment: &RecycledSegment, number: u32, header: &[u8]) -> io::Result<()> {
        // A whole page, so that the kernel need not read it first.
        let page = &[0; PAGE_BYTES][header.len()..];
        write_full(&*segment.file, &[header, page], 0)?;
        segment.file.sync_data()?;
        self.disk.rename(&segment.name, &segment_name(number))?;
        self.disk.sync_dir(LOG)
    }

    /// A file that cannot be removed is left to the next opening.
    fn remove_file(&self, name: &str) {
        let _ = self.disk.remove(name);
    }

    /// Remove a segment. It is no error if it is missing. Views that hold it can still read it.
    pub(crate) fn remove(&self, number: u32, syncing: Syncing) -> Result<(), Error> {
        let failed = |error| Error::io("remove a segment", error);
        let renames = self.renames.lock();
        self.let_go(number);
        tolerate(io::ErrorKind::NotFound, self.disk.remove(&segment_name(number))).map_err(failed)?;
        drop(renames);
        if syncing.is_on() { self.disk.sync_dir(LOG).map_err(failed) } else { Ok(()) }
    }

    /// Make the removal of segments durable; returns whether it is. If not, some may reappear, which opening
    /// handles.
    pub(crate) fn sync_log(&self) -> bool {
        let synced = self.disk.sync_dir(LOG);
        if let Err(error) = &synced {
            tracing::warn!(%error, "the log's directory could not be synced after segments were freed");
        }
        synced.is_ok()
    }

    /// The recycled segments.
    pub(crate) fn recycled(&self) -> &RecycledSegments {
        &self.recycled
    }

    /// Note that this process makes the segments from `number` on. Older segments may have been sent from the
    /// page cache by an earlier process, so they are not recycled.
    pub(crate) fn begin_own(&self, number: u32) {
        self.own_from.store(number, Ordering::Relaxed);
    }

    /// Rename a segment's file for recycling, if it is not open elsewhere and nothing was sent from it. It
    /// may be reused once the rename is durable. `None`: it cannot be reused, and keeps its name.
    pub(crate) fn set_aside(&self, number: u32) -> Option<RecycledSegment> {
        if number < self.own_from.load(Ordering::Relaxed) {
            return None;
        }
        let _renames = self.renames.lock();
        let users = self.let_go(number);
        let is_ours = |users| Arc::try_unwrap(users).is_ok_and(|users: Users| !users.lent.into_inner());
        if !users.is_none_or(is_ours) {
            return None;
        }
        let from = segment_name(number);
        let name = format!("{LOG}/{number:08}{SPARE}");
        let file = self.disk.open(&from).ok()?;
        let bytes = file.length().ok().filter(|&bytes| bytes >= u64::try_from(PAGE_BYTES).expect("small"))?;
        self.disk.rename(&from, &name).ok()?;
        Some(RecycledSegment { name, file, bytes })
    }

    /// Delete a recycled segment's file.
    pub(crate) fn give_up(&self, segment: &RecycledSegment) {
        self.remove_file(&segment.name);
    }

    /// Delete all recycled segments.
    pub(crate) fn give_up_all(&self) {
        while let Some(segment) = self.recycled.take() {
            self.give_up(&segment);
        }
    }

    /// Delete the recycled segments of a process that was killed.
    pub(crate) fn remove_recycled(&self) -> Result<(), Error> {
        let names = self.disk.list(LOG).map_err(|error| Error::io("list the log", error))?;
        for name in names.iter().filter(|name| name.ends_with(SPARE)) {
            self.remove_file(&format!("{LOG}/{name}"));
        }
        Ok(())
    }

    /// Make all file names durable.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        DIRS.iter().try_for_each(|dir| tolerate(io::ErrorKind::NotFound, self.disk.sync_dir(dir)))
    }

    /// The disk that the files are on.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The disk's space; `None` if it reports no bound.
    pub(crate) fn space(&self) -> Option<Space> {
        self.disk.space()
    }
}

pub(crate) fn segment_name(number: u32) -> String {
    format!("{LOG}/{number:08}.seg")
}

pub(crate) fn read_superblock(disk: &dyn Disk) -> Result<Superblock, Error> {
    let failed = |error| Error::io("read the superblock", error);
    let unknown = |why| Error::UnknownFormat(path(disk, SUPERBLOCK), why);
    let file = disk.open(SUPERBLOCK).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotAStore(disk.place().to_owned()),
        _ => failed(error),
    })?;
    let read = twice(&*file, || {
        let mut bytes = [0; superblock::BYTES];
        let got = read_full(&*file, &mut bytes, 0).map_err(failed)?;
        Ok(Superblock::decode(&bytes[..got]))
    })?;
    let superblock = read.map_err(|error| match error {
        crate::format::DecodeError::Version(_) => unknown("a newer release's"),
        crate::format::DecodeError::Magic => unknown("no superblock"),
        _ => unknown("a damaged superblock"),
    })?;
    if file.length().map_err(failed)? != u64::try_from(superblock::BYTES).expect("small") {
        return Err(unknown("a superblock of another length"));
    }
    Ok(superblock)
}

fn path(disk: &dyn Disk, name: &str) -> PathBuf {
    disk.place().join(name)
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::disk::memory::Memory;

    #[test]
    fn a_segment_has_one_open_file_though_others_took_its_place() {
        let disk = Memory::new(1);
        let superblock = Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 };
        format(&disk, &superblock).expect("format");
        let (files, _) = Files::open(Arc::new(disk)).expect("open");
        let begin = |number| files.begin(number, |_| [0; segment::BYTES], Syncing::Off).expect("a segment").0;
        let held = begin(1);
        let most = u32::try_from(OPEN_MAX).expect("small");
        (2..most + 3).for_each(|number| drop(begin(number)));
        assert!(Arc::ptr_eq(&files.get(1).expect("open"), &held));
        drop(held);
        let open: Vec<u32> = (1..most + 3).filter(|&number| files.open_now(number).is_some()).collect();
        assert!(open.iter().copied().eq(3..most + 3), "what nobody holds is closed: {open:?}");
    }
}
