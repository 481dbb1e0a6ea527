//! Reads the last segment from the disk while the checkpoint is loaded from the page cache.
//!
//! A recycled segment's file must be read to its end, to be sure that none of its earlier contents belongs to
//! the log. That is a whole segment's length and, unlike the log's tail, it is mostly not in the cache.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};

use crate::disk::{DiskFile, read_full};
use crate::files::{Files, segment_name};
use crate::format::LOG_BLOCK_U64;
use crate::format::checkpoint::ReplayPoint;
use crate::format::segment::{self, SegmentHeader};

/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;

/// Fills the page cache in a thread. Only an optimization: recovery reads whatever the thread does not.
#[derive(Debug)]
pub(super) struct Prefetch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Starts to read the part of segment `last` that a replay from `point` will read, if it is worthwhile.
    pub(super) fn begin(files: &Files, last: u32, point: &ReplayPoint) -> Option<Prefetch> {
        files.get(last).ok()?.as_file()?;
        // The file is opened separately, because the system does readahead per open file.
        let file = files.disk().open(&segment_name(last)).ok()?;
        let from = if last == point.segment { point.offset() } else { LOG_BLOCK_U64 };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let read = move || read(&*file, from, &stopped);
        let thread = Builder::new().name("store-prefetch".to_owned()).spawn(read).ok()?;
        Some(Prefetch { stop, thread: Some(thread) })
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(file: &dyn DiskFile, from: u64, stop: &AtomicBool) {
    let mut header = [0; segment::BYTES];
    let got = read_full(file, &mut header, 0).unwrap_or(0);
    let earlier = SegmentHeader::decode(&header[..got]).map_or(0, |header| header.earlier_bytes);
    let mut bytes = vec![0; READ_BYTES];
    let mut at = from;
    while at < earlier && !stop.load(Relaxed) {
        match read_full(file, &mut bytes, at) {
            Ok(got) if got == READ_BYTES => at += READ_BYTES as u64,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::disk::residency::are_resident;
    use crate::disk::{Directory, WHOLE, write_full};
    use crate::files;
    use crate::format::superblock::Superblock;
    use crate::segments::log::Log;
    use crate::segments::recycled::RecycledSegment;

    const BYTES: u64 = 4 << 20;

    /// A first segment, made from a used file of [`BYTES`] or from a new one. None of it is in the page
    /// cache.
    fn segment(dir: &Path, is_used: bool) -> (Files, Log) {
        let disk = Directory::lock(dir).expect("locked");
        let superblock = Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 };
        files::format(&disk, &superblock).expect("formatted");
        let (files, superblock) = Files::open(Arc::new(disk)).expect("opened");
        if is_used {
            let name = "log/00000007.spare".to_owned();
            let file = files.disk().create(&name).expect("made");
            write_full(&*file, &[&[7; READ_BYTES][..]; 4], 0).expect("written");
            files.recycled().put(RecycledSegment { name, file, bytes: BYTES });
        }
        let mut log = Log { segment_bytes: BYTES, ..Log::new(superblock) };
        assert!(log.roll(&files).is_ok());
        let file = log.file.as_ref().expect("a segment");
        file.set_length(BYTES).expect("long");
        file.sync_all().expect("synced");
        file.drop_cache(WHOLE);
        (files, log)
    }

    #[test]
    fn a_used_file_is_read_from_the_replay_point_to_where_its_earlier_life_ends_and_a_new_one_is_not() {
        for (is_used, from, expected) in [(true, 2 << 20, [false, true]), (false, 512, [false, false])] {
            let dir = tempfile::tempdir().expect("a directory");
            let (files, log) = segment(dir.path(), is_used);
            let file = log.file.as_ref().expect("a segment");
            let read = |at| are_resident(file.as_file().expect("a file"), at, 4096);
            let before = 1 << 20;
            let end = BYTES - 4096;
            if read(end) != Some(false) {
                // In a memory file system everything is resident, and some systems do not tell.
                return;
            }
            let block = u32::try_from(from / LOG_BLOCK_U64).expect("small");
            let point = ReplayPoint { segment: 1, block, ..ReplayPoint::default() };
            let mut prefetch = Prefetch::begin(&files, 1, &point).expect("a thread");
            prefetch.thread.take().expect("it runs").join().expect("it ends");
            assert_eq!([read(before), read(end)], expected.map(Some), "used before: {is_used}");
        }
    }
}
