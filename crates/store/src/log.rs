//! The log's head: where the next commit goes.
//!
//! A commit is some records with their payloads, written with vectored writes and made durable by one `fdatasync`. It
//! lies whole in one segment. A commit that finds no space is cut off again, so that the log stays whole and later
//! commits can succeed. After a failed sync, or a failed cut, nobody knows what the disk holds: the log fails, and is
//! trusted again only after a recovery has read it back from the disk.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{DiskFile, write_full};
use crate::error::Error;
use crate::files::Files;
use crate::format::checkpoint::ReplayPoint;
use crate::format::record::{Kind, Record, Subject};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{LOG_BLOCK, LOG_BLOCK_U64, padded};

/// The head of the log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) superblock: Superblock,
    /// The segment being written; `None` before the first.
    pub(crate) file: Option<Arc<dyn DiskFile>>,
    /// Its number; 0 before the first.
    pub(crate) number: u32,
    /// Where its next record goes.
    pub(crate) end: u64,
    /// A segment that has passed this is sealed.
    pub(crate) segment_bytes: u64,
    /// The next record's sequence number.
    pub(crate) next: u64,
    /// Records up to this one are durable.
    pub(crate) synced_to: u64,
    /// What the newest record is about.
    pub(crate) prior: Subject,
    /// Whether commits are synced.
    pub(crate) sync: bool,
    /// A write or sync failed: nothing more is written.
    pub(crate) failed: bool,
}

/// Why a commit is not in the log.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// No space; the log is as it was.
    NoSpace,
    /// The log has failed.
    Failed(Error),
}

/// A record to append, and its payload.
pub(crate) type Entry = (Record, Bytes);

static ZEROS: [u8; LOG_BLOCK] = [0; LOG_BLOCK];

impl Log {
    /// Whether the next commit begins a new segment.
    pub(crate) fn wants_segment(&self) -> bool {
        self.file.is_none() || self.end >= self.segment_bytes
    }

    /// Where the next record goes, as replay would look for it.
    pub(crate) fn head(&self) -> ReplayPoint {
        let block = u32::try_from(self.end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
        ReplayPoint { segment: self.number, block, sequence: self.next, prior: self.prior }
    }

    /// Make sure that everything so far is durable, also where commits are not synced.
    pub(crate) fn certify(&mut self) -> Result<(), AppendError> {
        if self.failed {
            return Err(AppendError::Failed(Error::Failed));
        }
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
        // A new segment says that everything before it is durable.
        self.certify()?;
        let number = self.number + 1;
        let (drive, salt) = (self.superblock.drive, self.superblock.salt);
        let header = SegmentHeader { number, drive, salt, first_sequence: self.next };
        match files.create(number, &header.encode(), self.sync) {
            Ok(file) => {
                (self.file, self.number, self.end) = (Some(file), number, LOG_BLOCK_U64);
                Ok(())
            }
            Err(error) if Error::is_no_space(&error) => Err(AppendError::NoSpace),
            Err(error) => Err(self.fail("make a segment", error)),
        }
    }

    /// Append `entries` as one commit and make it durable. They come back with their places filled in. The segment must
    /// have been made ([`Log::wants_segment`]).
    pub(crate) fn append(&mut self, entries: &mut [Entry]) -> Result<(), AppendError> {
        if self.failed {
            return Err(AppendError::Failed(Error::Failed));
        }
        let file = Arc::clone(self.file.as_ref().expect("a segment was made"));
        let mut end = self.end;
        let mut prior = self.prior;
        let mut headers = Vec::with_capacity(entries.len());
        let count = entries.len();
        for (i, (record, _)) in entries.iter_mut().enumerate() {
            record.sequence = self.next + u64::try_from(i).expect("a count");
            if matches!(record.kind, Kind::ObjectCreate | Kind::PartitionCreate) {
                record.birth = record.sequence;
            }
            record.salt = self.superblock.salt;
            record.segment = self.number;
            record.block = u32::try_from(end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
            record.synced_to = self.synced_to;
            record.commit_first = self.next;
            record.commit_left = u32::try_from(count - 1 - i).expect("a commit is bounded");
            record.prior = prior;
            prior = record.subject();
            headers.push(record.encode());
            end += record.disk_bytes();
        }
        let mut buffers: Vec<&[u8]> = Vec::with_capacity(3 * count);
        for (header, (_, payload)) in headers.iter().zip(entries.iter()) {
            buffers.push(header);
            if !payload.is_empty() {
                buffers.push(payload);
                buffers.push(&ZEROS[..padded(payload.len()) - payload.len()]);
            }
        }
        if let Err(error) = write_full(&*file, &buffers, self.end) {
            return Err(self.cut(&*file, error));
        }
        if self.sync
            && let Err(error) = file.sync_data()
        {
            return Err(self.fail("sync a commit", error));
        }
        self.next += u64::try_from(count).expect("a count");
        if self.sync {
            self.synced_to = self.next - 1;
        }
        (self.end, self.prior) = (end, prior);
        Ok(())
    }

    /// A write failed half-way: back to the last whole commit.
    fn cut(&mut self, file: &dyn DiskFile, error: io::Error) -> AppendError {
        if !Error::is_no_space(&error) {
            return self.fail("write a commit", error);
        }
        match file.set_length(self.end) {
            Ok(()) => AppendError::NoSpace,
            Err(error) => self.fail("cut off a commit without space", error),
        }
    }

    fn fail(&mut self, doing: &'static str, error: io::Error) -> AppendError {
        self.failed = true;
        tracing::error!(doing, %error, segment = self.number, "the log failed and takes no more writes");
        AppendError::Failed(Error::io(doing, error))
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::disk::{Directory, Disk};

    #[test]
    fn a_failed_write_fails_the_log_for_good() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("segment"), [0; LOG_BLOCK]).expect("write");
        let open = |disk: Result<Directory, Error>| disk.expect("a disk").open("segment").expect("a file");
        let mut log = Log {
            superblock: Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 },
            file: Some(open(Directory::read_only(dir.path()))),
            number: 1,
            end: LOG_BLOCK_U64,
            segment_bytes: 1 << 20,
            next: 1,
            synced_to: 0,
            prior: Subject::NONE,
            sync: true,
            failed: false,
        };
        let mut entries = [(Record::new(Kind::Mark), Bytes::new())];
        assert!(matches!(log.append(&mut entries), Err(AppendError::Failed(Error::Io { .. }))));
        log.file = Some(open(Directory::lock(dir.path())));
        assert!(matches!(log.append(&mut entries), Err(AppendError::Failed(Error::Failed))));
        assert_eq!((log.next, log.end), (1, LOG_BLOCK_U64), "nothing is taken for written");
    }
}
