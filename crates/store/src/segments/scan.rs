//! Reading a segment record by record, and finding the next record after damage.
//!
//! Memory is bounded: one window of the file and one header. The scanner never panics, whatever the bytes
//! are.

use std::io;

use crate::disk::salvage_read::{hits, salvage_read};
use crate::disk::{DiskFile, twice};
use crate::error::Error;
use crate::format::field::get;
use crate::format::record::{
    F_BLOCK, F_SALT, F_SEGMENT, FIXED_BYTES, HEADER_BYTES_MAX, MAGIC, PAGE_BYTES, Record, decode_record,
};
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK, LOG_BLOCK_U64};

/// Bytes read for one header. Nearly all headers are shorter.
const HEADER_BYTES: usize = 4 << 10;
/// Bytes read at a time where short records follow each other: a call for each would cost more than copying
/// their payloads.
const WINDOW_BYTES: usize = 128 << 10;
/// Of records with at least this many bytes only the headers are read.
const LONG_BYTES: u64 = 32 << 10;
/// Bytes read at a time while looking for the next record.
const SEARCH_BYTES: usize = 256 << 10;

/// Bytes to drop from the page cache before a second read: more than a system's read-ahead.
const ALONG_BYTES: u64 = 16 << 20;

/// Content found at a position in a segment.
#[derive(Debug)]
pub(crate) enum Scanned {
    /// A record with a valid header.
    Record {
        record: Box<Record>,
        /// The record's length in bytes, with padding.
        bytes: u64,
        /// True if the record's whole payload is inside the file.
        whole: bool,
    },
    /// No valid record up to the offset where one begins or the file ends.
    Bad {
        /// First byte offset without a valid record.
        from: u64,
        /// Offset where the next record begins, or the file ends.
        to: u64,
        /// The fault at `from`.
        why: DecodeError,
    },
}

impl Scanned {
    /// The record, if one was found.
    pub(crate) fn record(&self) -> Option<&Record> {
        match self {
            Scanned::Record { record, .. } => Some(record),
            Scanned::Bad { .. } => None,
        }
    }
}

/// Walks a segment.
pub(crate) struct Scanner<'a> {
    file: &'a dyn DiskFile,
    length: u64,
    number: u32,
    salt: u64,
    /// Byte offset of the next record.
    pub(crate) offset: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes that decoding the last header needed.
    needed: u64,
    /// Pages read so far that the disk could not read. They count as zeros.
    pub(crate) unreadable: Vec<u64>,
    /// Bytes to read at the next record.
    ahead: usize,
}

impl<'a> Scanner<'a> {
    /// Starts after the segment's header.
    pub(crate) fn new(file: &'a dyn DiskFile, length: u64, number: u32, salt: u64) -> Scanner<'a> {
        let offset = LOG_BLOCK_U64;
        let window = Vec::new();
        let window_at = 0;
        let needed = LOG_BLOCK_U64;
        let unreadable = Vec::new();
        let ahead = HEADER_BYTES;
        Scanner { file, length, number, salt, offset, window, window_at, needed, unreadable, ahead }
    }

    /// Returns the next record or bad range; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Scanned>, Error> {
        if self.offset >= self.length {
            return Ok(None);
        }
        let from = self.offset;
        let mut found = self.record_at(from)?;
        if found.is_err() {
            // One bad read proves nothing: read from the medium, including what was read ahead.
            self.file.drop_cache(from..from.saturating_add(ALONG_BYTES));
            self.window.clear();
            self.ahead = HEADER_BYTES;
            found = self.record_at(from)?;
        }
        match found {
            Ok(record) => {
                let bytes = record.disk_bytes();
                self.ahead =
                    if bytes < LONG_BYTES { (2 * self.ahead).min(WINDOW_BYTES) } else { HEADER_BYTES };
                let end = from.saturating_add(bytes);
                // The last payload's padding may be missing; it carries no information.
                let payload_end = end - bytes + header_length(&record) + u64::from(record.payload_bytes);
                let whole = payload_end <= self.length;
                self.offset = end.min(self.length.max(from + LOG_BLOCK_U64));
                Ok(Some(Scanned::Record { record: Box::new(record), bytes, whole }))
            }
            Err(why) => {
                // A header left from the file's earlier use may claim to extend over pages that do not
                // matter.
                let salt = self.salt;
                let number = self.number;
                let begins = is_placed(self.bytes(from, LOG_BLOCK)?, salt, number, from);
                let needed = if begins { self.needed } else { LOG_BLOCK_U64 };
                let why = if hits(&self.unreadable, from, needed) { DecodeError::Unreadable } else { why };
                self.offset = self.search(from + LOG_BLOCK_U64)?;
                Ok(Some(Scanned::Bad { from, to: self.offset, why }))
            }
        }
    }

    /// The record at `offset`, if there is one that belongs there.
    pub(crate) fn record_at(&mut self, offset: u64) -> Result<Result<Record, DecodeError>, Error> {
        let mut need = LOG_BLOCK;
        let salt = self.salt;
        let number = self.number;
        loop {
            self.needed = u64::try_from(need).expect("bounded");
            let bytes = self.bytes(offset, need)?;
            match decode_record(bytes) {
                Err(DecodeError::Short(more)) if more > need && more <= HEADER_BYTES_MAX + PAGE_BYTES => {
                    if bytes.len() < need {
                        return Ok(Err(DecodeError::Short(more)));
                    }
                    need = more;
                }
                // User data may look like a newer release's record, but it does not know this store's salt.
                Err(DecodeError::Version(_)) if !is_placed(bytes, salt, number, offset) => {
                    return Ok(Err(DecodeError::Malformed("a record that belongs at another place")));
                }
                Err(error) => return Ok(Err(error)),
                Ok(record) => {
                    let block = u32::try_from(offset / LOG_BLOCK_U64);
                    let here = record.segment == self.number && Ok(record.block) == block;
                    return Ok(if record.salt != self.salt {
                        Err(DecodeError::Malformed("a record of another store"))
                    } else if !here {
                        Err(DecodeError::Malformed("a record that belongs at another place"))
                    } else {
                        Ok(record)
                    });
                }
            }
        }
    }

    /// Up to `need` bytes from `offset`. Fewer only at the file's end.
    fn bytes(&mut self, offset: u64, need: usize) -> Result<&[u8], Error> {
        let within = usize::try_from(offset.wrapping_sub(self.window_at)).unwrap_or(usize::MAX);
        if offset < self.window_at || within.saturating_add(need) > self.window.len() {
            self.fill(offset, need.max(self.ahead))?;
        }
        let within = usize::try_from(offset - self.window_at).unwrap_or(usize::MAX);
        let rest = self.window.get(within..).unwrap_or_default();
        Ok(&rest[..need.min(rest.len())])
    }

    fn fill(&mut self, offset: u64, bytes: usize) -> Result<(), Error> {
        self.window.resize(bytes, 0);
        let mut window = std::mem::take(&mut self.window);
        let got = self.read(&mut window, offset)?;
        window.truncate(got);
        (self.window, self.window_at) = (window, offset);
        Ok(())
    }

    /// Read to `to`. Unreadable pages are noted and read as zeros.
    fn read(&mut self, to: &mut [u8], offset: u64) -> Result<usize, Error> {
        let got = salvage_read(self.file, to, offset).map_err(|error| failed(self.number, &error))?;
        for page in got.unreadable {
            // A page may be read more than once.
            if !self.unreadable.contains(&page) {
                self.unreadable.push(page);
            }
        }
        Ok(got.bytes)
    }

    /// The next position from `offset` on with a whole header; else the file's end. A recycled file may be
    /// full of another segment's old records behind the end: they are as cheap to skip as other bytes.
    fn search(&mut self, mut offset: u64) -> Result<u64, Error> {
        let mut bytes = vec![0; SEARCH_BYTES];
        while offset < self.length {
            let left = usize::try_from(self.length - offset).unwrap_or(usize::MAX);
            let part = &mut bytes[..left.min(SEARCH_BYTES)];
            let got = self.read(part, offset)?;
            for (at, block) in (offset..).step_by(LOG_BLOCK).zip(part[..got].chunks(LOG_BLOCK)) {
                if is_placed(block, self.salt, self.number, at) && self.record_at(at)?.is_ok() {
                    return Ok(at);
                }
            }
            if got < part.len() {
                break;
            }
            offset += u64::try_from(got).expect("a length");
        }
        Ok(self.length)
    }
}

/// The error for a segment that cannot be read at all.
pub(crate) fn failed(number: u32, error: &io::Error) -> Error {
    let named = io::Error::new(error.kind(), format!("segment {number}: {error}"));
    Error::io("read the log", named)
}

/// The header of segment `number`, if it can be read and is that segment's.
pub(crate) fn read_segment_header(
    file: &dyn DiskFile,
    superblock: &Superblock,
    number: u32,
) -> Result<Result<SegmentHeader, DecodeError>, Error> {
    twice(file, || {
        let mut bytes = [0; segment::BYTES];
        let got = salvage_read(file, &mut bytes, 0).map_err(|error| failed(number, &error))?;
        let header = got.all().and_then(|got| SegmentHeader::decode(&bytes[..got]));
        Ok(header.and_then(|header| {
            if header.drive != superblock.drive || header.salt != superblock.salt {
                return Err(DecodeError::Malformed("the header is of another store's segment"));
            }
            if header.number != number {
                return Err(DecodeError::Malformed("the header is of another segment"));
            }
            Ok(header)
        }))
    })
}

/// Returns true if these bytes may begin a record that belongs at `offset` of this store's segment. Nothing
/// is verified.
fn is_placed(bytes: &[u8], salt: u64, segment: u32, offset: u64) -> bool {
    bytes.get(..FIXED_BYTES).is_some_and(|fixed| {
        let block = get::<u32>(fixed, F_BLOCK).map(u64::from);
        fixed.starts_with(&MAGIC)
            && get(fixed, F_SEGMENT) == Ok(segment)
            && get(fixed, F_SALT) == Ok(salt)
            && block.is_ok_and(|block| block * LOG_BLOCK_U64 == offset)
    })
}

/// Bytes of a record's padded header.
pub(crate) fn header_length(record: &Record) -> u64 {
    u64::try_from(record.header_padded()).expect("bounded")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::Version;

    use super::*;
    use crate::disk::memory::Memory;
    use crate::disk::{Disk, write_full};
    use crate::format::FORMAT_VERSION;
    use crate::format::field::put;
    use crate::format::record::{F_CRC, F_VERSION, Kind};

    const SALT: u64 = 3;
    const SEGMENT: u32 = 7;

    /// A record's position and number.
    type Here = (u64, u64);
    /// A range without a record, and the reason.
    type Nothing = (u64, u64, DecodeError);

    /// A growing segment's bytes.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn new() -> Bytes {
            Bytes(vec![0; LOG_BLOCK])
        }

        /// Append a write of `payload_bytes` bytes; returns its offset.
        fn push(&mut self, segment: u32, sequence: u64, payload_bytes: u32) -> u64 {
            let at = self.0.len();
            let mut record = Record::new(Kind::Data);
            (record.segment, record.salt, record.sequence) = (segment, SALT, sequence);
            record.block = u32::try_from(at / LOG_BLOCK).expect("small");
            (record.units, record.to, record.payload_bytes) = (1, payload_bytes, payload_bytes);
            record.version = Version { n: sequence, ..Version::ZERO };
            record.crcs = vec![0; usize::try_from(payload_bytes.div_ceil(4096)).expect("small")];
            self.0.extend(record.encode());
            self.0.resize(at + usize::try_from(record.disk_bytes()).expect("small"), 0x5a);
            u64::try_from(at).expect("small")
        }

        fn noise(&mut self, bytes: usize) {
            self.0.resize(self.0.len() + bytes, 0x5a);
        }

        fn length(&self) -> u64 {
            u64::try_from(self.0.len()).expect("small")
        }

        /// The records and the gaps that a scanner finds.
        fn found(&self) -> Vec<Result<Here, Nothing>> {
            let disk = Memory::new(1);
            let file: Arc<dyn DiskFile> = disk.create("a").expect("made");
            write_full(&*file, &[&self.0], 0).expect("written");
            let mut scanner = Scanner::new(&*file, self.length(), SEGMENT, SALT);
            std::iter::from_fn(|| scanner.next().expect("readable"))
                .map(|found| match found {
                    Scanned::Record { record, .. } => {
                        Ok((u64::from(record.block) * LOG_BLOCK_U64, record.sequence))
                    }
                    Scanned::Bad { from, to, why } => Err((from, to, why)),
                })
                .collect()
        }
    }

    #[test]
    fn short_and_long_records_are_found_in_any_order() {
        let mut bytes = Bytes::new();
        // The last one's header alone is longer than one header read.
        let sizes = [512, 4096, 60_000, 4096, 512, 512, 512, 512, 512, 300_000, 512, 600_000, 8 << 20];
        let sizes = sizes.iter().cycle().take(3 * sizes.len()).chain([&4096; 200]);
        let expected: Vec<_> = (1..)
            .zip(sizes)
            .map(|(sequence, &size)| Ok((bytes.push(SEGMENT, sequence, size), sequence)))
            .collect();
        assert_eq!(bytes.found(), expected);
    }

    #[test]
    fn the_next_record_is_found_behind_those_of_another_segment() {
        let mut bytes = Bytes::new();
        let first = bytes.push(SEGMENT, 1, 4096);
        let stale = bytes.length();
        for sequence in 1..500 {
            bytes.push(SEGMENT - 1, sequence, 4096);
        }
        // A record in the right place that is torn.
        let torn = usize::try_from(bytes.push(SEGMENT, 2, 4096)).expect("small");
        bytes.0[torn + 300] ^= 1;
        let second = bytes.push(SEGMENT, 3, 4096);
        let behind = bytes.length();
        bytes.noise(1 << 20);
        let end = bytes.length();
        let other_place = DecodeError::Malformed("a record that belongs at another place");
        assert_eq!(
            bytes.found(),
            [
                Ok((first, 1)),
                Err((stale, second, other_place)),
                Ok((second, 3)),
                Err((behind, end, DecodeError::Magic))
            ]
        );
    }

    #[test]
    fn a_newer_release_is_told_from_stale_bytes() {
        let newer = FORMAT_VERSION + 1;
        let mut bytes = Bytes::new();
        let first = usize::try_from(bytes.push(SEGMENT, 1, 512)).expect("small");
        let header = &mut bytes.0[first..first + LOG_BLOCK];
        put(header, F_VERSION, newer);
        let crc = crate::crc::crc32c_of(&[&header[..F_CRC.start], &header[F_CRC.end..]]);
        put(header, F_CRC, crc);
        let from = LOG_BLOCK_U64;
        assert_eq!(bytes.found(), [Err((from, bytes.length(), DecodeError::Version(newer)))]);
    }
}
