//! The search for the end of the last segment's whole commits.

use crate::crc::verify_blocks;
use crate::disk::{DiskFile, read_full};
use crate::error::Error;
use crate::format::record::{Record, flags};
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::scan::{Found, Scanner, header_length};

/// The last segment, from where its records are not known yet.
pub(crate) struct Tail<'a> {
    pub(crate) file: &'a dyn DiskFile,
    pub(crate) length: u64,
    pub(crate) number: u32,
    pub(crate) salt: u64,
    /// Where the first record begins, and its number.
    pub(crate) from: u64,
    pub(crate) first: u64,
    /// Records up to this one are known to be durable.
    pub(crate) synced: u64,
}

impl Tail<'_> {
    fn scan(&self) -> Scanner<'_> {
        let mut scanner = Scanner::new(self.file, self.length, self.number, self.salt);
        scanner.offset = self.from;
        scanner
    }

    /// Where the whole commits end.
    pub(crate) fn find(&self) -> Result<u64, Error> {
        let synced = self.synced()?;
        // Where the newest commit began, how many of its records are missing, and the next record's number.
        let (mut commit_offset, mut commit_left, mut expected) = (self.from, 0, self.first);
        let mut scanner = self.scan();
        let mut end = self.from.min(self.length);
        loop {
            let offset = scanner.offset;
            let Some(found) = scanner.next()? else { break };
            let durable = expected <= synced;
            match found {
                Found::Record { record, whole } => {
                    if record.commit_first == record.sequence {
                        commit_offset = offset;
                    }
                    let follows = record.sequence == expected;
                    let good = durable || (whole && follows && verify(self.file, &record)?);
                    if !good {
                        return Ok(commit_offset);
                    }
                    (commit_left, expected) = (record.commit_left, record.sequence.saturating_add(1));
                }
                Found::Bad { .. } if durable => {}
                Found::Bad { .. } => {
                    end = offset;
                    break;
                }
            }
            end = scanner.offset;
        }
        // Not in the middle of a commit.
        Ok(if commit_left > 0 { commit_offset } else { end })
    }

    /// What is known to be durable: what was known before, and what a record says.
    fn synced(&self) -> Result<u64, Error> {
        let mut synced = self.synced;
        let mut scanner = self.scan();
        while let Some(found) = scanner.next()? {
            match found {
                Found::Record { record, .. } => synced = synced.max(record.synced_to),
                Found::Bad { why: DecodeError::Version(_), .. } => return Err(newer_record(self.number)),
                Found::Bad { .. } => {}
            }
        }
        Ok(synced)
    }
}

/// The error for a record that this release cannot read.
pub(crate) fn newer_record(number: u32) -> Error {
    Error::UnknownFormat(format!("segment {number}").into(), "a newer release's record")
}

/// Whether a record's payload matches its checksums.
pub(crate) fn verify(file: &dyn DiskFile, record: &Record) -> Result<bool, Error> {
    if !record.kind.has_range() || record.is(flags::HOLE) {
        return Ok(true);
    }
    let mut payload = vec![0; usize::try_from(record.payload_bytes).expect("at least 32 bits")];
    let offset = u64::from(record.block) * LOG_BLOCK_U64 + header_length(record);
    let got = read_full(file, &mut payload, offset).map_err(|error| Error::io("read the log", error))?;
    Ok(got == payload.len() && verify_blocks(record.from, &payload, &record.crcs).is_ok())
}
