//! Reading one segment from end to end, trusting nothing in it.

use crate::disk::Disk;
use crate::error::Error;
use crate::format::record::Record;
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::recover::tail::{Payload, verify};
use crate::segments::scan::{Scanned, Scanner, header_length, read_segment_header};

/// A piece of a segment.
pub(crate) enum Item<'a> {
    Header(&'a Result<SegmentHeader, DecodeError>),
    /// A record, its offset, and the fault of its payload, if any.
    Record(&'a Record, u64, Option<&'static str>),
    /// Bytes that are no record: from, to and the reason.
    Bad(u64, u64, DecodeError),
    /// Bytes behind the segment's end, which nothing reads: from and to.
    Behind(u64, u64),
}

/// Treatment of payloads: they are read and verified, or not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payloads {
    Verify,
    Skip,
}

/// The file of segment `number`.
pub(crate) fn name(number: u32) -> String {
    format!("log/{number:08}.seg")
}

/// Call `act` with everything in segment `number`, in order; returns the file's length.
pub(crate) fn walk(
    disk: &dyn Disk,
    superblock: &Superblock,
    number: u32,
    payloads: Payloads,
    mut act: impl FnMut(Item<'_>),
) -> Result<u64, Error> {
    let failed = |error| Error::io("read a segment", error);
    let file = disk.open(&name(number)).map_err(failed)?;
    let length = file.length().map_err(failed)?;
    let header = read_segment_header(&*file, superblock, number)?;
    act(Item::Header(&header));
    let earlier = header.map_or(0, |header| header.earlier_bytes);
    let next = next_header(disk, superblock, number);
    let is_last = next.is_none();
    let end = next.map_or(length, |next| length.min(next.previous_end));
    let mut scanner = Scanner::new(&*file, end, number, superblock.salt);
    while let Some(found) = scanner.next()? {
        match found {
            Scanned::Bad { from, to, .. } if is_last && to == length && length <= earlier => {
                act(Item::Behind(from, to));
            }
            Scanned::Bad { from, to, why } => act(Item::Bad(from, to, why)),
            Scanned::Record { record, whole, .. } => {
                let offset = u64::from(record.block) * LOG_BLOCK_U64;
                let wrong = if !whole {
                    Some("its payload is cut short")
                } else if payloads == Payloads::Verify {
                    match verify(&*file, &record)? {
                        Payload::Good => None,
                        Payload::Wrong => Some("its payload does not match its checksums"),
                        Payload::Unreadable => Some("the disk cannot read its payload"),
                    }
                } else {
                    None
                };
                act(Item::Record(&record, offset, wrong));
            }
        }
    }
    if end < length {
        act(Item::Behind(end, length));
    }
    Ok(length)
}

/// The header of the segment after `number`, which tells where `number` ends; `None`: it is missing or
/// damaged.
fn next_header(disk: &dyn Disk, superblock: &Superblock, number: u32) -> Option<SegmentHeader> {
    let next = number.checked_add(1)?;
    read_segment_header(&*disk.open(&name(next)).ok()?, superblock, next).ok()?.ok()
}

/// File offset of a record's payload.
pub(crate) fn payload_offset(record: &Record) -> u64 {
    u64::from(record.block) * LOG_BLOCK_U64 + header_length(record)
}
