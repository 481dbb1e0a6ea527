//! Reading the last segment from the disk while the checkpoint is loaded from the page cache.
//!
//! The file of a segment that was made of a freed one is read to its end, for only then it is known that none of what it held before is
//! of the log. That is as long as a segment, and is not in the cache, as the log's tail mostly is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::disk::{DiskFile, read_full};
use crate::files::Open;
use crate::format::segment::{self, SegmentHeader};

/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;

/// A thread that fills the page cache. It is advice: what it cannot read, the recovery reads again.
#[derive(Debug)]
pub(super) struct Ahead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Read this segment's file, if it is worth it.
    pub(super) fn begin(file: &Arc<Open>) -> Ahead {
        let stop = Arc::new(AtomicBool::new(false));
        let is_cached = file.as_file().is_some() && file.is_buffered();
        let (file, stopped) = (Arc::clone(file), Arc::clone(&stop));
        let read = move || read(&**file, &stopped);
        let thread =
            is_cached.then(|| std::thread::Builder::new().name("store-ahead".to_owned()).spawn(read).ok());
        Ahead { stop, thread: thread.flatten() }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(file: &dyn DiskFile, stop: &AtomicBool) {
    let mut header = [0; segment::BYTES];
    let got = read_full(file, &mut header, 0).unwrap_or(0);
    let earlier = SegmentHeader::decode(&header[..got]).map_or(0, |header| header.earlier_bytes);
    let mut bytes = vec![0; READ_BYTES];
    let mut at = 0;
    while at < earlier && !stop.load(Relaxed) {
        match read_full(file, &mut bytes, at) {
            Ok(got) if got == READ_BYTES => at += READ_BYTES as u64,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::disk::{Directory, WHOLE, write_full};
    use crate::files::{self, Files};
    use crate::format::superblock::Superblock;
    use crate::log::Log;
    use crate::spares::Spare;

    const BYTES: u64 = 3 << 20;

    /// The first segment's file, made of a freed one of [`BYTES`] or of none; nothing of it is in the page cache.
    fn segment(dir: &std::path::Path, is_used: bool) -> Arc<Open> {
        let disk = Directory::lock(dir).expect("locked");
        files::format(&disk, &Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 })
            .expect("formatted");
        let (files, superblock) = Files::open(Arc::new(disk)).expect("opened");
        if is_used {
            let name = "log/00000007.spare".to_owned();
            let file = files.disk().create(&name).expect("made");
            write_full(&*file, &[&[7; READ_BYTES][..]; 3], 0).expect("written");
            files.spares().put(Spare { name, file, bytes: BYTES });
        }
        let mut log = Log { segment_bytes: BYTES, ..Log::new(superblock) };
        assert!(log.roll(&files).is_ok());
        let file = log.file.expect("a segment");
        file.set_length(BYTES).expect("long");
        file.sync_all().expect("synced");
        file.drop_cache(WHOLE);
        file
    }

    #[test]
    fn a_used_file_is_read_to_where_its_earlier_life_ends_and_a_new_one_is_not() {
        let end = BYTES - 4096..BYTES;
        let (used, new) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let file = segment(used.path(), true);
        let ahead = Ahead::begin(&file);
        let began = Instant::now();
        while !file.is_cached(end.clone()) {
            assert!(began.elapsed() < Duration::from_secs(30), "it is not read");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(ahead);
        let file = segment(new.path(), false);
        let in_memory = file.is_cached(end.clone());
        let thread = Ahead::begin(&file).thread.take().expect("a thread");
        thread.join().expect("it ends");
        assert_eq!(file.is_cached(end), in_memory);
    }
}
