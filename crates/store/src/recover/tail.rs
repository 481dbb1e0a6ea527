//! Finds the end of the last segment's whole commits.

use crate::crc::{blocks, crc32c, verify_blocks};
use crate::disk::salvage_read::{hits, salvage_read};
use crate::disk::{DiskFile, twice};
use crate::error::Error;
use crate::format::record::{Kind, Record, flags};
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::segments::scan::{Scanned, Scanner, failed, header_length};

/// The last segment, from the first record that is not yet known.
pub(crate) struct Tail<'a> {
    pub(crate) file: &'a dyn DiskFile,
    pub(crate) length: u64,
    pub(crate) number: u32,
    pub(crate) salt: u64,
    /// The offset of the first record, and its number (`first`).
    pub(crate) from: u64,
    pub(crate) first: u64,
    /// All records up to this number are known to be durable.
    pub(crate) synced: u64,
}

/// Ends of the commits and records in the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    /// End offset of the whole commits.
    pub(crate) commits: u64,
    /// End offset of the last record, even if its commit is not whole.
    pub(crate) records: u64,
    /// All records up to this one are known to have been durable, whether they can be found or not.
    pub(crate) synced: u64,
    /// Set if the whole commits end where the disk cannot read the bytes that follow. These can be of a write
    /// torn by a crash, or of an acknowledged one.
    pub(crate) unreadable: Option<u64>,
}

impl Tail<'_> {
    fn scan(&self, length: u64) -> Scanner<'_> {
        let mut scanner = Scanner::new(self.file, length, self.number, self.salt);
        scanner.offset = self.from;
        scanner
    }

    /// Searches the segment.
    pub(crate) fn find(&self) -> Result<Ends, Error> {
        let (synced, records, behind) = self.synced()?;
        let (commits, within) = self.commits_end(records, synced)?;
        Ok(Ends { commits, records, synced, unreadable: within.or(behind) })
    }

    /// Returns the end of the whole commits and, if they end there because the disk cannot read a header
    /// before `records`, that header's offset. The last record ends at `records`; nothing after it is read
    /// again.
    fn commits_end(&self, records: u64, synced: u64) -> Result<(u64, Option<u64>), Error> {
        // The newest commit's offset and first record, the number of its records still to come, and the next
        // record's number.
        let mut commit_offset = self.from;
        let mut commit_first = 0;
        let mut commit_left = 0;
        let mut expected = self.first;
        let mut scanner = self.scan(records);
        let mut unreadable = None;
        let mut end = self.from.min(self.length);
        loop {
            let offset = scanner.offset;
            let Some(found) = scanner.next()? else { break };
            let durable = expected <= synced;
            match found {
                Scanned::Record { record, whole, .. } => {
                    // A commit is either durable as a whole or not known to be durable at all.
                    let left: u32 = if expected <= synced.saturating_add(1) { 0 } else { commit_left };
                    let begins = record.commit_first == record.sequence;
                    let goes_on = record.commit_first == commit_first
                        && left.checked_sub(1) == Some(record.commit_left);
                    // Records that an earlier torn commit left after a new one may have the right numbers.
                    let follows = record.sequence == expected && if begins { left == 0 } else { goes_on };
                    // An unreadable payload is left to its readers: it affects nothing else.
                    let good = durable || (whole && follows && verify(self.file, &record)? != Payload::Wrong);
                    if !good {
                        return Ok((if left == 0 { offset } else { commit_offset }, None));
                    }
                    if begins {
                        (commit_offset, commit_first) = (offset, record.sequence);
                    }
                    (commit_left, expected) = (record.commit_left, record.sequence.saturating_add(1));
                }
                Scanned::Bad { .. } if durable => {}
                Scanned::Bad { why, .. } => {
                    end = offset;
                    unreadable = (why == DecodeError::Unreadable).then_some(offset);
                    break;
                }
            }
            end = scanner.offset;
        }
        // If more records were durable than are found, the rest is damage, not a torn tail.
        if expected <= synced {
            end = self.length;
        }
        // Never cut within a commit, unless its missing rest was durable: that is damage, not a torn tail.
        let torn = commit_left > 0 && expected > synced;
        Ok((if torn { commit_offset } else { end }, unreadable))
    }

    /// The last record known to be durable (known before, or named by a record), the end of the last record,
    /// and that offset once more if the disk cannot read the bytes that follow.
    fn synced(&self) -> Result<(u64, u64, Option<u64>), Error> {
        let mut synced = self.synced;
        let mut end = self.from;
        let mut unreadable = None;
        let mut scanner = self.scan(self.length);
        while let Some(found) = scanner.next()? {
            match found {
                Scanned::Record { record, .. } => {
                    (synced, end) = (synced.max(record.synced_to), scanner.offset)
                }
                Scanned::Bad { why: DecodeError::Version(_), .. } => return Err(newer_record(self.number)),
                Scanned::Bad { from, why, .. } => {
                    unreadable = (from == end && why == DecodeError::Unreadable).then_some(from);
                }
            }
        }
        Ok((synced, end, unreadable.filter(|&from| from == end)))
    }
}

/// The error for a segment that this release cannot read.
pub(crate) fn newer_segment(number: u32) -> Error {
    Error::UnknownFormat(format!("segment {number}").into(), "a newer release's")
}

/// The error for a record that this release cannot read.
pub(crate) fn newer_record(number: u32) -> Error {
    Error::UnknownFormat(format!("segment {number}").into(), "a newer release's record")
}

/// The state of a record's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    Good,
    /// The payload does not match its checksums.
    Wrong,
    /// The disk cannot read some of it; the rest is right.
    Unreadable,
}

/// Checks a record's payload against its checksums.
pub(crate) fn verify(file: &dyn DiskFile, record: &Record) -> Result<Payload, Error> {
    if !record.kind.has_range() || record.is(flags::HOLE) {
        return Ok(Payload::Good);
    }
    let offset = u64::from(record.block) * LOG_BLOCK_U64 + header_length(record);
    let verified = twice(file, || {
        let mut payload = vec![0; usize::try_from(record.payload_bytes).expect("at least 32 bits")];
        let got = salvage_read(file, &mut payload, offset).map_err(|error| failed(record.segment, &error))?;
        let whole = got.bytes == payload.len();
        if whole && verify_blocks(record.from, &payload, &record.crcs).is_ok() {
            return Ok(Ok(Payload::Good));
        }
        // Until a move is known to be durable, the moved bytes are also at their old place.
        let may_stay = whole && !got.unreadable.is_empty() && record.kind != Kind::Move;
        let stays = may_stay && rest_is_right(record, &payload, offset, &got.unreadable);
        Ok(Err(if stays { Payload::Unreadable } else { Payload::Wrong }))
    })?;
    Ok(verified.unwrap_or_else(|wrong| wrong))
}

/// Returns true if the blocks of a record's payload at `offset` match their checksums, except those on
/// unreadable pages.
fn rest_is_right(record: &Record, payload: &[u8], offset: u64, unreadable: &[u64]) -> bool {
    let at = |at: u32| usize::try_from(at - record.from).expect("at least 32 bits");
    blocks(record.from..record.to).zip(&record.crcs).all(|(block, &crc)| {
        let begin = offset + u64::from(block.start - record.from);
        hits(unreadable, begin, u64::from(block.end - block.start))
            || crc32c(&payload[at(block.start)..at(block.end)]) == crc
    })
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, DriveId};
    use bytes::Bytes;

    use super::*;
    use crate::crc::block_crcs;
    use crate::disk::memory::Memory;
    use crate::files::{self, Files};
    use crate::format::record::Kind;
    use crate::format::superblock::Superblock;
    use crate::segments::log::Log;

    /// A log on `disk` with its first segment.
    fn log(disk: &Memory) -> (Files, Log) {
        let superblock = Superblock { cluster: ClusterId(1), drive: DriveId(2), salt: 3 };
        files::format(disk, &superblock).expect("formatted");
        let (files, superblock) = Files::open(std::sync::Arc::new(disk.clone())).expect("opened");
        let mut log = Log { segment_bytes: 1 << 20, ..Log::new(superblock) };
        assert!(log.roll(&files).is_ok());
        (files, log)
    }

    /// A commit of three records of 512 bytes each.
    fn commit() -> (Files, Log) {
        let (files, mut log) = log(&Memory::new(1));
        let mut entries: Vec<_> = (0..3).map(|_| (Record::new(Kind::SettledTo), Bytes::new())).collect();
        assert!(log.append(&mut entries).is_ok());
        (files, log)
    }

    /// The commit of [`commit`], of which only the first record can be read.
    fn spoilt_commit() -> (Files, u64) {
        let (files, log) = commit();
        let file = files.get(1).expect("there");
        let noise = [0x5a; 1024];
        crate::disk::write_full(&**file, &[&noise], 2 * LOG_BLOCK_U64).expect("written");
        (files, log.end)
    }

    #[test]
    fn what_a_torn_commit_left_behind_a_new_one_is_not_the_next() {
        let (files, mut log) = commit();
        let length = log.end;
        (log.end, log.next, log.synced_to) = (LOG_BLOCK_U64, 1, 0);
        log.recent.clear();
        assert!(log.append(&mut [(Record::new(Kind::SettledTo), Bytes::new())]).is_ok());
        let file = files.get(1).expect("there");
        let number = 1;
        let salt = 3;
        let from = LOG_BLOCK_U64;
        let first = 1;
        let synced = 0;
        let ends =
            Tail { file: &**file, length, number, salt, from, first, synced }.find().expect("readable");
        assert_eq!((ends.commits, ends.records), (2 * LOG_BLOCK_U64, length), "its numbers are right");
    }

    #[test]
    fn a_commit_that_was_durable_is_not_cut_because_its_end_is_damaged() {
        let (files, length) = spoilt_commit();
        let file = files.get(1).expect("there");
        let tail = |synced| Tail {
            file: &**file,
            length,
            number: 1,
            salt: 3,
            from: LOG_BLOCK_U64,
            first: 1,
            synced,
        };
        let ends = |synced| tail(synced).find().expect("readable");
        let records = 2 * LOG_BLOCK_U64;
        assert_eq!(ends(3), Ends { commits: length, records, synced: 3, unreadable: None });
        assert_eq!(
            ends(0),
            Ends { commits: LOG_BLOCK_U64, records, synced: 0, unreadable: None },
            "torn: back to the commit before"
        );
    }

    /// One commit with one record of this kind and a payload of 2 MiB. Its header has 2304 bytes, and its
    /// payload begins at a page.
    fn long(kind: Kind) -> (Memory, Files, Log, Record) {
        let disk = Memory::new(1);
        let (files, mut log) = log(&disk);
        let payload = Bytes::from(vec![7; 2 << 20]);
        let mut record = Record::new(kind);
        (record.units, record.to, record.payload_bytes) = (1, 2 << 20, 2 << 20);
        (record.version.n, record.crcs) = (1, block_crcs(0, &payload));
        let mut entries = [(record, payload)];
        assert!(log.append(&mut entries).is_ok());
        let [(record, _)] = entries;
        (disk, files, log, record)
    }

    const FILE: &str = "log/00000001.seg";

    #[test]
    fn a_payload_is_unreadable_only_if_the_rest_of_it_is_right() {
        let (disk, files, _, record) = long(Kind::Data);
        let file = files.get(1).expect("there");
        let payload = u64::from(record.block) * LOG_BLOCK_U64 + header_length(&record);
        let verify = |record: &Record| verify(&**file, record).expect("some of it is readable");
        assert_eq!(verify(&record), Payload::Good);
        disk.spoil(FILE, payload + 8192..payload + 8193);
        assert_eq!(verify(&record), Payload::Unreadable);
        assert_eq!(
            verify(&Record { kind: Kind::Move, ..record.clone() }),
            Payload::Wrong,
            "it was somewhere before"
        );
        crate::disk::write_full(&**file, &[b"x"], payload + 40_000).expect("written");
        assert_eq!(verify(&record), Payload::Wrong);
    }

    #[test]
    fn a_header_of_which_a_later_page_cannot_be_read_is_no_torn_write() {
        let (disk, files, mut log, _) = long(Kind::Data);
        // Makes the next header begin on one page and end on the next.
        while log.end % 4096 != 4096 - LOG_BLOCK_U64 {
            assert!(log.append(&mut [(Record::new(Kind::SettledTo), Bytes::new())]).is_ok());
        }
        let begin = log.end;
        let payload = Bytes::from(vec![7; 2 << 20]);
        let mut record = Record::new(Kind::Data);
        (record.units, record.to, record.payload_bytes) = (1, 2 << 20, 2 << 20);
        (record.version.n, record.crcs) = (2, block_crcs(0, &payload));
        assert!(log.append(&mut [(record, payload)]).is_ok());
        let file = files.get(1).expect("there");
        let length = log.end;
        let number = 1;
        let from = LOG_BLOCK_U64;
        let first = 1;
        let synced = 0;
        let find = |salt, from| {
            let tail = Tail { file: &**file, length, number, salt, from, first, synced };
            let ends = tail.find().expect("readable");
            (ends.commits, ends.unreadable)
        };
        assert_eq!(find(3, from), (length, None));
        disk.spoil(FILE, begin + LOG_BLOCK_U64..begin + LOG_BLOCK_U64 + 1);
        assert_eq!(find(3, from), (begin, Some(begin)));
        assert_eq!(find(4, begin), (begin, None), "another store's header: that it goes on says nothing");
    }
}
