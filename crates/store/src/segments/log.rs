//! The log's head: where the next commit goes.
//!
//! A commit is some records with their payloads, written with vectored writes and made durable by one
//! `fdatasync`. It lies in one segment. A commit that finds no space is cut off again, so that the log stays
//! intact and later commits can succeed. If its sync finds no space, its segment is sealed, unless empty.
//! Lack of space never makes the log fail.
//!
//! After any other failed write, or a failed sync, the disk's contents behind the last durable commit are
//! unknown: the *segment* has failed. It is sealed there and never appended to again. The commit is refused,
//! and the next one begins a segment whose header says where the failed one's valid part ends. If several
//! segments in a row fail, or cannot be made, the log pauses, longer each time, so that a dead disk is not
//! flooded with segments; then it tries another. So a disk that recovers is found without help. Only if
//! acknowledged commits that were never synced may be lost does the log fail for good, until it is reopened.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{DiskFile, Syncing, WHOLE, write_and_start, write_full};
use crate::error::Error;
use crate::files::{Files, Open};
use crate::format::checkpoint::ReplayPoint;
use crate::format::record::{Kind, PAGE_BYTES, Record};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{LOG_BLOCK_U64, padded};
use crate::segments::log_rest::Rest;
use crate::segments::recent::Recent;

/// The head of the log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) superblock: Superblock,
    /// The segment being written; `None` before the first.
    pub(crate) file: Option<Arc<Open>>,
    /// The number of the segment being written; 0 before the first.
    pub(crate) number: u32,
    /// Byte offset in the segment at which the next record goes.
    pub(crate) end: u64,
    /// Up to here the file may hold bytes of its earlier use; 0: nowhere.
    pub(crate) earlier: u64,
    /// A segment is sealed once it has this many bytes.
    pub(crate) segment_bytes: u64,
    /// The next record's sequence number.
    pub(crate) next: u64,
    /// Records up to this one are durable.
    pub(crate) synced_to: u64,
    pub(crate) recent: Recent,
    /// Sync policy of commits.
    pub(crate) syncing: Syncing,
    /// True if nothing more is appended to the segment, even if it is short.
    pub(crate) sealed: bool,
    /// Segments that failed, or could not be made, since the last commit, for reasons other than lack of
    /// space.
    pub(crate) failed_segments: u32,
    /// The pause, or final stop, after too many failures.
    pub(crate) rest: Rest,
    /// A buffer for the headers of the next commit.
    pub(crate) headers: Vec<u8>,
}

/// The most memory kept for the next commit's headers: enough for the largest commit of small records.
const HEADERS_KEPT_BYTES_MAX: usize = 1 << 20;

/// The log pauses after this many failed segments without a commit between them.
const FAILED_SEGMENTS_MAX: u32 = 3;

/// Reason why a commit is not in the log.
#[derive(Debug, Clone)]
pub(crate) enum AppendError {
    /// No space. Nothing was appended, and later commits can succeed.
    NoSpace,
    /// The commit is refused: its segment has failed, or the log has.
    Failed(Error),
}

/// A record to append, and its payload.
pub(crate) type Entry = (Record, Bytes);

/// A commit is written in parts of the segment length divided by this, ...
const PARTS_PER_SEGMENT: u64 = 8;
/// ... of at least this many bytes, the page cache's unit, ...
const PART_BYTES_MIN: usize = 4096;
/// ... and at most this many.
const PART_BYTES_MAX: usize = 512 << 10;
const _: () = assert!(PART_BYTES_MAX as u64 == braid_schedule::cost::PART_BYTES, "costs are of these parts");

/// A commit of at most this many bytes is not written ahead of its sync, even if it spans two parts: one disk
/// request is faster than two.
const STARTED_BYTES_MIN: u64 = 128 << 10;

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

impl Log {
    /// A log without a segment. Opening sets the segment length.
    pub(crate) fn new(superblock: Superblock) -> Log {
        Log {
            superblock,
            file: None,
            number: 0,
            end: 0,
            earlier: 0,
            segment_bytes: 0,
            next: 1,
            synced_to: 0,
            recent: Recent::default(),
            syncing: Syncing::On,
            sealed: false,
            failed_segments: 0,
            rest: Rest::default(),
            headers: Vec::new(),
        }
    }

    /// Returns true if the next commit begins a new segment.
    pub(crate) fn wants_segment(&self) -> bool {
        self.file.is_none() || self.sealed || self.end >= self.segment_bytes
    }

    /// Position of the next record, in the form that replay starts from.
    pub(crate) fn head(&self) -> ReplayPoint {
        let block = u32::try_from(self.end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
        ReplayPoint { segment: self.number, block, sequence: self.next, prior: self.recent.newest() }
    }

    /// Make everything so far durable, even if commits are not synced.
    pub(crate) fn certify(&mut self) -> Result<(), AppendError> {
        self.rest.check().map_err(AppendError::Failed)?;
        if let Some(file) = &self.file
            && self.synced_to + 1 < self.next
            && let Err(error) = file.sync_data()
        {
            return Err(self.fail("sync a segment", error));
        }
        self.synced_to = self.next - 1;
        Ok(())
    }

    /// Seal the segment and begin the next.
    pub(crate) fn roll(&mut self, files: &Files) -> Result<(), AppendError> {
        // Seal first: if the new segment cannot be made but reappears after a crash, its header must still be
        // true.
        self.sealed = true;
        // The new segment's header says that everything before it is durable.
        self.certify()?;
        let number = self.number + 1;
        let drive = self.superblock.drive;
        let salt = self.superblock.salt;
        let first_sequence = self.next;
        let previous_end = self.end;
        let header = |earlier_bytes| {
            SegmentHeader { number, drive, salt, first_sequence, previous_end, earlier_bytes }.encode()
        };
        match files.begin(number, header, self.syncing) {
            Ok((file, earlier)) => {
                self.trim();
                (self.file, self.number, self.end, self.earlier) =
                    (Some(file), number, LOG_BLOCK_U64, earlier);
                self.sealed = false;
                Ok(())
            }
            Err(error) if Error::is_no_space(&error) => Err(AppendError::NoSpace),
            Err(error) => Err(self.count_failure("make a segment", error)),
        }
    }

    /// Free the space behind the segment's end: XFS preallocates behind a growing file, and a recycled file
    /// may be longer. An error is ignored, as it does no harm.
    fn trim(&self) {
        let Some(file) = &self.file else { return };
        let cut = file.set_length(self.end);
        if self.syncing.is_on() && self.earlier > self.end && cut.is_ok() {
            let _ = file.sync_data();
        }
    }

    /// Append `entries` as one commit and make it durable. Their positions are filled in. The segment must
    /// exist ([`Log::wants_segment`]).
    pub(crate) fn append(&mut self, entries: &mut [Entry]) -> Result<(), AppendError> {
        self.rest.check().map_err(AppendError::Failed)?;
        let file = Arc::clone(self.file.as_ref().expect("a segment was made"));
        let mut end = self.end;
        let mut recent = self.recent.clone();
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        let count = entries.len();
        let mut births = BTreeMap::new();
        for (i, (record, _)) in entries.iter_mut().enumerate() {
            record.sequence = self.next + u64::try_from(i).expect("a count");
            if matches!(record.kind, Kind::ObjectCreate | Kind::PartitionCreate) {
                record.birth = record.sequence;
            }
            let own = (record.partition, record.object);
            if record.kind == Kind::ObjectCreate {
                births.insert(own, record.birth);
            } else if let Some(&birth) = births.get(&own) {
                record.birth = birth;
            }
            record.salt = self.superblock.salt;
            record.segment = self.number;
            record.block = u32::try_from(end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
            record.synced_to = self.synced_to;
            record.commit_first = self.next;
            record.commit_left = u32::try_from(count - 1 - i).expect("a commit is bounded");
            record.prior = recent.newest();
            record.before = recent.before().collect();
            recent.push(record, record.disk_bytes());
            record.encode_behind(&mut headers);
            end += record.disk_bytes();
        }
        let mut buffers: Vec<&[u8]> = Vec::with_capacity(3 * count + 1);
        let mut rest = &headers[..];
        for (record, payload) in entries.iter() {
            let (header, others) = rest.split_at(record.header_padded());
            buffers.extend([header, payload, &ZEROS[..padded(payload.len()) - payload.len()]]);
            rest = others;
        }
        buffers.push(&ZEROS[..self.page_rest(end)]);
        buffers.retain(|buffer| !buffer.is_empty());
        let written = if self.syncing.is_on() && end - self.end > STARTED_BYTES_MIN {
            write_and_start(&**file, &buffers, self.end, self.part_bytes())
        } else {
            write_full(&**file, &buffers, self.end)
        };
        if headers.capacity() <= HEADERS_KEPT_BYTES_MAX {
            self.headers = headers;
        }
        if let Err(error) = written {
            if Error::is_no_space(&error) && self.cut(&**file) {
                return Err(AppendError::NoSpace);
            }
            return Err(self.fail_segment(&**file, "write a commit", error));
        }
        if self.syncing.is_on()
            && let Err(error) = file.sync_data()
        {
            // A quota, or a thin volume. An empty segment is used again: otherwise each refusal would leave
            // another one.
            if Error::is_no_space(&error) && self.end == LOG_BLOCK_U64 && self.cut(&**file) {
                file.drop_cache(WHOLE);
                return Err(AppendError::NoSpace);
            }
            return Err(self.fail_segment(&**file, "sync a commit", error));
        }
        (self.failed_segments, self.rest) = (0, Rest::default());
        self.next += u64::try_from(count).expect("a count");
        if self.syncing.is_on() {
            self.synced_to = self.next - 1;
        }
        (self.end, self.recent) = (end, recent);
        Ok(())
    }

    /// Cut off a commit that found no space, durably, as a refused commit must not reappear after a power
    /// cut. Returns whether that worked.
    fn cut(&mut self, file: &dyn DiskFile) -> bool {
        let cut = file
            .set_length(self.end)
            .and_then(|()| if self.syncing.is_on() { file.sync_data() } else { Ok(()) });
        self.earlier = if cut.is_ok() { 0 } else { self.earlier };
        cut.is_ok()
    }

    /// Number of zeros to write behind a commit that ends at `end`. In a recycled file they complete the last
    /// page, which the kernel would otherwise have to read first.
    fn page_rest(&self, end: u64) -> usize {
        let page_end = end.next_multiple_of(u64::try_from(PAGE_BYTES).expect("small"));
        let rest = page_end.min(self.earlier).saturating_sub(end);
        usize::try_from(rest).expect("below a page")
    }

    /// Bytes of a commit to write before the kernel starts writing them back: fewer if segments are small.
    fn part_bytes(&self) -> usize {
        let share = usize::try_from(self.segment_bytes / PARTS_PER_SEGMENT).unwrap_or(PART_BYTES_MAX);
        (share / PART_BYTES_MIN * PART_BYTES_MIN).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
    }

    /// Seal the segment after a failed write or sync, as the bytes behind the last durable commit are
    /// unknown.
    fn fail_segment(&mut self, file: &dyn DiskFile, doing: &'static str, error: io::Error) -> AppendError {
        self.sealed = true;
        // Best effort: nothing reads the bytes behind the end, but they should take no space, and readers of
        // the rest should get what is on the medium.
        let _ = file.set_length(self.end);
        file.drop_cache(WHOLE);
        if Error::is_no_space(&error) {
            tracing::warn!(doing, %error, segment = self.number, end = self.end, "no space; the segment is sealed");
            return AppendError::NoSpace;
        }
        self.count_failure(doing, error)
    }

    /// Count a failed segment. The next commit tries another one, but after [`FAILED_SEGMENTS_MAX`] in a row
    /// the log pauses.
    fn count_failure(&mut self, doing: &'static str, error: io::Error) -> AppendError {
        self.failed_segments += 1;
        if self.failed_segments >= FAILED_SEGMENTS_MAX {
            let rest = self.rest.begin();
            tracing::error!(doing, %error, segment = self.number, ?rest, "one segment after the other failed");
            return AppendError::Failed(Error::io(doing, error));
        }
        tracing::error!(doing, %error, segment = self.number, end = self.end, "a segment failed and is sealed");
        AppendError::Failed(Error::io(doing, error))
    }

    /// Fail the log until it is reopened, as acknowledged changes that were never synced may be lost.
    fn fail(&mut self, doing: &'static str, error: io::Error) -> AppendError {
        self.rest = Rest::for_good();
        tracing::error!(doing, %error, segment = self.number, "the log failed and takes no more writes");
        AppendError::Failed(Error::io(doing, error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::crc::block_crcs;
    use crate::disk::Disk;
    use crate::disk::memory::{Fault, Memory, On};
    use crate::files;

    fn log() -> (Memory, Files, Log) {
        let disk = Memory::new(1);
        let superblock = Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 };
        files::format(&disk, &superblock).expect("formatted");
        let (files, superblock) = Files::open(Arc::new(disk.clone())).expect("open");
        (disk, files, Log { segment_bytes: 1 << 20, ..Log::new(superblock) })
    }

    fn append(log: &mut Log, files: &Files) -> Result<(), AppendError> {
        if log.wants_segment() {
            log.roll(files)?;
        }
        log.append(&mut [(Record::new(Kind::Mark), Bytes::new())])
    }

    fn fail_now(disk: &Memory, on: On, times: u64, fault: Fault) {
        let now = disk.operations(on);
        disk.inject(on, now..now + times, fault);
    }

    #[test]
    fn a_failed_segment_is_left_and_the_next_says_where_it_ends() {
        for (on, fault) in [(On::Write, Fault::Io), (On::Sync, Fault::Io), (On::Sync, Fault::NoSpace)] {
            let (disk, files, mut log) = log();
            append(&mut log, &files).expect("the first");
            fail_now(&disk, on, 1, fault);
            let refused = append(&mut log, &files).expect_err("refused");
            assert_eq!(matches!(refused, AppendError::NoSpace), fault == Fault::NoSpace);
            assert_eq!((log.number, log.next, log.end), (1, 2, 1024), "nothing is taken for written");
            append(&mut log, &files).expect("the next");
            assert_eq!((log.number, log.next, log.end), (2, 3, 1024));
            let header = disk.content("log/00000002.seg").expect("there");
            assert_eq!(SegmentHeader::decode(&header).expect("a header").previous_end, 1024);
        }
    }

    #[test]
    fn without_space_the_segment_goes_on() {
        let (disk, files, mut log) = log();
        append(&mut log, &files).expect("the first");
        fail_now(&disk, On::Write, 1, Fault::NoSpace);
        assert!(matches!(append(&mut log, &files), Err(AppendError::NoSpace)));
        assert_eq!(disk.content("log/00000001.seg").expect("there").len(), 1024, "it was cut off");
        append(&mut log, &files).expect("the next");
        assert_eq!((log.number, log.end), (1, 1536));
    }

    #[test]
    fn no_space_at_the_sync_never_fails_the_log() {
        let (disk, files, mut log) = log();
        append(&mut log, &files).expect("the first");
        for _ in 0..4 * FAILED_SEGMENTS_MAX {
            if log.wants_segment() {
                log.roll(&files).expect("made");
            }
            fail_now(&disk, On::Sync, 1, Fault::NoSpace);
            assert!(matches!(append(&mut log, &files), Err(AppendError::NoSpace)));
            assert!(log.rest.check().is_ok() && log.failed_segments == 0);
        }
        assert_eq!((log.number, log.end), (2, 512), "the second is used again and again");
        fail_now(&disk, On::Sync, 2, Fault::NoSpace);
        assert!(matches!(append(&mut log, &files), Err(AppendError::NoSpace)));
        assert!(log.sealed && log.rest.check().is_ok(), "where it cannot be cut it is left");
        append(&mut log, &files).expect("there is space");
    }

    #[test]
    fn a_long_commit_that_fails_in_any_of_its_parts_is_none() {
        let payload = Bytes::from(vec![7; 500 << 10]);
        let long = |log: &mut Log| {
            let mut record = Record::new(Kind::Data);
            (record.to, record.payload_bytes) = (500 << 10, 500 << 10);
            record.crcs = block_crcs(0, &payload);
            log.append(&mut [(record, payload.clone())])
        };
        // The commit begins in the first part of a segment and ends in the fourth, which is left to the sync.
        for (on, parts) in [(On::Write, 4), (On::Start, 3)] {
            for (part, fault) in (0..parts).flat_map(|part| [(part, Fault::Io), (part, Fault::NoSpace)]) {
                let (disk, files, mut log) = log();
                append(&mut log, &files).expect("the first");
                let which = disk.operations(on) + part;
                disk.inject(on, which..which + 1, fault);
                let refused = long(&mut log).expect_err("refused");
                assert_eq!(matches!(refused, AppendError::NoSpace), fault == Fault::NoSpace, "{on:?} {part}");
                assert_eq!((log.number, log.next, log.end), (1, 2, 1024), "nothing is taken for written");
                assert_eq!(disk.content("log/00000001.seg").expect("there").len(), 1024, "it was cut off");
                assert_eq!(log.sealed, fault == Fault::Io, "a segment that failed is left");
                append(&mut log, &files).expect("a short one");
                long(&mut log).expect("the same once more");
                let segment = disk.content(&format!("log/{:08}.seg", log.number)).expect("there");
                assert!(segment.ends_with(&payload), "{on:?} {part}");
                assert_eq!(u64::try_from(segment.len()).expect("memory"), log.end);
            }
        }
    }

    #[test]
    fn a_file_that_was_used_before_is_written_page_by_page_and_cut_where_there_is_no_space() {
        let (disk, files, mut log) = log();
        files.begin_own(1);
        let payload = Bytes::from(vec![7; 20_000]);
        let mut record = Record::new(Kind::Data);
        (record.to, record.payload_bytes, record.crcs) = (20_000, 20_000, block_crcs(0, &payload));
        log.roll(&files).expect("made");
        log.append(&mut [(record, payload)]).expect("the first");
        let before = disk.content("log/00000001.seg").expect("there");
        log.sealed = true;
        append(&mut log, &files).expect("the second");
        files.recycled().put(files.set_aside(1).expect("nobody has it"));
        log.sealed = true;
        append(&mut log, &files).expect("the third");
        assert_eq!((log.number, log.end, usize::try_from(log.earlier)), (3, 1024, Ok(before.len())));
        let third = disk.content("log/00000003.seg").expect("there");
        assert!(third[1024..4096].iter().all(|&byte| byte == 0) && third[4096..] == before[4096..]);
        assert!(disk.content("log/00000001.seg").is_none());
        fail_now(&disk, On::Write, 1, Fault::NoSpace);
        assert!(matches!(append(&mut log, &files), Err(AppendError::NoSpace)));
        assert_eq!(disk.content("log/00000003.seg").expect("there").len(), 1024, "all of the rest went");
        append(&mut log, &files).expect("again");
        assert_eq!((log.end, disk.content("log/00000003.seg").expect("there").len()), (1536, 1536));
    }

    #[test]
    fn a_disk_that_goes_on_failing_has_the_log_rest_until_it_is_well() {
        let (disk, files, mut log) = log();
        // The first sync of a new segment is for its header, the second for its directory.
        let fail = |log: &mut Log| {
            if log.wants_segment() {
                log.roll(&files).expect("made");
            }
            fail_now(&disk, On::Sync, 1, Fault::Io);
            assert!(matches!(append(log, &files), Err(AppendError::Failed(Error::Io { .. }))));
        };
        for _ in 0..FAILED_SEGMENTS_MAX {
            assert!(log.rest.check().is_ok());
            fail(&mut log);
        }
        for _ in 0..3 {
            assert!(log.rest.check().is_err(), "one more is enough");
            assert!(matches!(append(&mut log, &files), Err(AppendError::Failed(Error::Resting))));
            log.rest.cut_short();
            fail(&mut log);
        }
        log.rest.cut_short();
        append(&mut log, &files).expect("it is well");
        assert!(log.rest.check().is_ok() && log.failed_segments == 0 && log.rest == Rest::default());
        append(&mut log, &files).expect("and stays so");
    }

    #[test]
    fn commits_that_were_never_synced_and_may_be_lost_fail_the_log_for_good() {
        let (disk, files, mut log) = log();
        log.syncing = Syncing::Off;
        append(&mut log, &files).expect("without a sync");
        fail_now(&disk, On::Sync, 1, Fault::Io);
        assert!(log.certify().is_err());
        assert!(matches!(log.certify(), Err(AppendError::Failed(Error::Failed))));
        assert!(matches!(append(&mut log, &files), Err(AppendError::Failed(Error::Failed))));
    }

    #[test]
    fn where_no_segment_can_be_made_the_log_fails_and_without_space_it_waits() {
        let (disk, files, mut log) = log();
        append(&mut log, &files).expect("the first");
        log.sealed = true;
        fail_now(&disk, On::Name, 1, Fault::NoSpace);
        assert!(matches!(append(&mut log, &files), Err(AppendError::NoSpace)));
        append(&mut log, &files).expect("there is space");
        log.sealed = true;
        // The segment's name, header and directory entry fail in turn. Each time, the parts of the segment
        // that were made are removed.
        for on in [On::Name, On::Write, On::Sync] {
            assert!(log.rest.check().is_ok());
            fail_now(&disk, on, 1, Fault::Io);
            assert!(matches!(append(&mut log, &files), Err(AppendError::Failed(Error::Io { .. }))));
            assert!(disk.open("log/00000003.seg").is_err());
        }
        assert!(matches!(append(&mut log, &files), Err(AppendError::Failed(Error::Resting))));
    }
}
