//! The store's files on its disk: `superblock`, `log/00000001.seg` and so on.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::checkpoint;
use crate::disk::{Disk, DiskFile, Space, read_full, twice, write_full};
use crate::error::Error;
use crate::format::superblock::{self, Superblock};
use crate::seen::Seen;

/// The most segments kept open for reading; views hold on to theirs beyond that.
const OPEN_MAX: usize = 512;
/// The log's directory.
const LOG: &str = "log";
/// All directories.
const DIRS: [&str; 2] = [LOG, checkpoint::DIR];
/// The superblock's file.
const SUPERBLOCK: &str = "superblock";

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    /// Each segment has the one slot that its number falls on, so that threads that read different ones do not meet.
    open: Vec<ArcSwapOption<Open>>,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Open {
    number: u32,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// Make the files of an empty store.
pub(crate) fn format(disk: &dyn Disk, superblock: &Superblock) -> Result<(), Error> {
    let doing = |what| move |error| Error::io(what, error);
    for name in disk.list("").map_err(doing("list the store's directory"))? {
        // What an interrupted format leaves, and what a fresh file system has, is no obstacle.
        let empty = || disk.list(&name).is_ok_and(|names| names.is_empty());
        if name != "superblock.new" && name != "lost+found" && !(DIRS.contains(&&*name) && empty()) {
            return Err(Error::NotEmpty(disk.place().to_owned()));
        }
    }
    for dir in DIRS {
        match disk.make_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the store's directories", error));
            }
            _ => {}
        }
    }
    // Before the superblock says that there is a store.
    disk.sync_dir("").map_err(doing("sync the store's directory"))?;
    let temporary = "superblock.new";
    match disk.remove(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("remove what an interrupted format left", error));
        }
        _ => {}
    }
    let file = disk.create(temporary).map_err(doing("make the superblock"))?;
    write_full(&*file, &[&superblock.encode()], 0).map_err(doing("write the superblock"))?;
    file.sync_all().map_err(doing("sync the superblock"))?;
    disk.rename(temporary, SUPERBLOCK).map_err(doing("put the superblock in place"))?;
    disk.sync_dir("").map_err(doing("sync the store's directory"))
}

impl Files {
    /// Read who the store is.
    pub(crate) fn open(disk: Arc<dyn Disk>) -> Result<(Files, Superblock), Error> {
        let superblock = read_superblock(&*disk)?;
        let open = (0..OPEN_MAX).map(|_| ArcSwapOption::empty()).collect();
        Ok((Files { disk, open }, superblock))
    }

    /// The numbers of all segments, in order. Other names are none of the log's.
    pub(crate) fn list(&self) -> Result<Vec<u32>, Error> {
        let names = self.disk.list(LOG).map_err(|error| Error::io("list the log", error))?;
        let number = |name: &String| name.strip_suffix(".seg")?.parse().ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A segment's file.
    pub(crate) fn get(&self, number: u32) -> Result<Arc<dyn DiskFile>, Error> {
        if let Some(open) = self.look(number) {
            return Ok(Arc::clone(&open.file));
        }
        let file =
            self.disk.open(&segment_name(number)).map_err(|error| Error::io("open a segment", error))?;
        self.keep(number, &file);
        Ok(file)
    }

    /// A segment's file, if it is open.
    pub(crate) fn look(&self, number: u32) -> Option<Seen<Open>> {
        Seen::of(self.slot(number), |open| open.number == number)
    }

    fn keep(&self, number: u32, file: &Arc<dyn DiskFile>) {
        self.slot(number).store(Some(Arc::new(Open { number, file: Arc::clone(file) })));
    }

    fn let_go(&self, number: u32) {
        let slot = self.slot(number);
        if let Some(open) = self.look(number) {
            // Another segment's that came meanwhile stays.
            slot.compare_and_swap(&open.to_arc(), None);
        }
    }

    fn slot(&self, number: u32) -> &ArcSwapOption<Open> {
        &self.open[usize::try_from(number).expect("32 bits") % OPEN_MAX]
    }

    /// A new segment with its first block, durable before it is returned. What failed half-way is taken away again.
    pub(crate) fn create(&self, number: u32, header: &[u8], sync: bool) -> io::Result<Arc<dyn DiskFile>> {
        let name = segment_name(number);
        let made = (|| {
            let file = self.disk.create(&name)?;
            write_full(&*file, &[header], 0)?;
            if sync {
                file.sync_all()?;
                self.disk.sync_dir(LOG)?;
            }
            Ok(file)
        })();
        if let Ok(file) = &made {
            self.keep(number, file);
        } else {
            let _ = self.disk.remove(&name);
        }
        made
    }

    /// Take a segment away, durably; one that is missing is gone already. Views that hold it can still read it.
    pub(crate) fn remove(&self, number: u32, sync: bool) -> Result<(), Error> {
        let failed = |error| Error::io("remove a segment", error);
        self.let_go(number);
        match self.disk.remove(&segment_name(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        // Whoever was looking at it may have put it back.
        self.let_go(number);
        if sync { self.disk.sync_dir(LOG).map_err(failed) } else { Ok(()) }
    }

    /// Make durable which segments there are. A failure means that some may come back, which opening deals with.
    pub(crate) fn sync_log(&self) {
        if let Err(error) = self.disk.sync_dir(LOG) {
            tracing::warn!(%error, "the log's directory could not be synced after segments were freed");
        }
    }

    /// Make durable which files there are.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        for dir in DIRS {
            match self.disk.sync_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The disk they are on.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// How much the disk has; `None` where it tells no bound.
    pub(crate) fn space(&self) -> Option<Space> {
        self.disk.space()
    }
}

fn segment_name(number: u32) -> String {
    format!("{LOG}/{number:08}.seg")
}

fn read_superblock(disk: &dyn Disk) -> Result<Superblock, Error> {
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
