//! Reading a segment record by record, and finding the way again after damage.
//!
//! Bounded memory: one window of the file and one header. Never panics, whatever the bytes are.

use crate::disk::{DiskFile, WHOLE, read_full};
use crate::error::Error;
use crate::format::record::{HEADER_BYTES_MAX, MAGIC, PAGE_BYTES, Record, decode_record};
use crate::format::{DecodeError, LOG_BLOCK, LOG_BLOCK_U64};

/// Bytes read ahead where records follow each other.
const WINDOW_BYTES: usize = 16 << 10;
/// Bytes read at a time while looking for the next record.
const SEARCH_BYTES: usize = 1 << 20;

/// What stands at a place in a segment.
#[derive(Debug)]
pub(crate) enum Found {
    /// A record whose header is right.
    Record {
        /// The record.
        record: Box<Record>,
        /// Whether all of its payload is inside the file.
        whole: bool,
    },
    /// No record, up to this offset, where one begins or the file ends.
    Bad {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
        /// What is wrong at `from`.
        why: DecodeError,
    },
}

/// Walks a segment.
pub(crate) struct Scanner<'a> {
    file: &'a dyn DiskFile,
    length: u64,
    number: u32,
    salt: u64,
    /// Where the next record begins.
    pub(crate) offset: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Scanner<'a> {
    /// Begins after the segment's header.
    pub(crate) fn new(file: &'a dyn DiskFile, length: u64, number: u32, salt: u64) -> Scanner<'a> {
        Scanner { file, length, number, salt, offset: LOG_BLOCK_U64, window: Vec::new(), window_at: 0 }
    }

    /// What comes next; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Error> {
        if self.offset >= self.length {
            return Ok(None);
        }
        let from = self.offset;
        let mut found = self.record_at(from)?;
        if found.is_err() {
            // One bad read proves nothing: ask the medium.
            self.file.drop_cache(WHOLE);
            self.window.clear();
            found = self.record_at(from)?;
        }
        match found {
            Ok(record) => {
                let end = from.saturating_add(record.disk_bytes());
                // The last payload's padding may be missing: it says nothing.
                let payload_end =
                    end - record.disk_bytes() + header_length(&record) + u64::from(record.payload_bytes);
                let whole = payload_end <= self.length;
                self.offset = end.min(self.length.max(from + LOG_BLOCK_U64));
                Ok(Some(Found::Record { record: Box::new(record), whole }))
            }
            Err(why) => {
                self.offset = self.search(from + LOG_BLOCK_U64)?;
                Ok(Some(Found::Bad { from, to: self.offset, why }))
            }
        }
    }

    /// The record at `offset`, if it is one and belongs there.
    pub(crate) fn record_at(&mut self, offset: u64) -> Result<Result<Record, DecodeError>, Error> {
        let mut need = LOG_BLOCK;
        loop {
            let bytes = self.bytes(offset, need)?;
            match decode_record(bytes) {
                Err(DecodeError::Short(more)) if more > need && more <= HEADER_BYTES_MAX + PAGE_BYTES => {
                    if bytes.len() < need {
                        return Ok(Err(DecodeError::Short(more)));
                    }
                    need = more;
                }
                Err(error) => return Ok(Err(error)),
                Ok(record) => {
                    let block = u32::try_from(offset / LOG_BLOCK_U64);
                    let here = record.segment == self.number && Ok(record.block) == block;
                    return Ok(if record.salt != self.salt {
                        Err(DecodeError::Malformed("a record of another store"))
                    } else if !here {
                        Err(DecodeError::Malformed("a record of another place"))
                    } else {
                        Ok(record)
                    });
                }
            }
        }
    }

    /// Up to `need` bytes from `offset`; fewer only at the file's end.
    fn bytes(&mut self, offset: u64, need: usize) -> Result<&[u8], Error> {
        let within = usize::try_from(offset.wrapping_sub(self.window_at)).unwrap_or(usize::MAX);
        if offset < self.window_at || within.saturating_add(need) > self.window.len() {
            self.fill(offset, need.max(WINDOW_BYTES))?;
        }
        let within = usize::try_from(offset - self.window_at).unwrap_or(usize::MAX);
        let rest = self.window.get(within..).unwrap_or_default();
        Ok(&rest[..need.min(rest.len())])
    }

    fn fill(&mut self, offset: u64, bytes: usize) -> Result<(), Error> {
        self.window.resize(bytes, 0);
        let got = read_full(self.file, &mut self.window, offset)
            .map_err(|error| Error::io("read the log", error))?;
        self.window.truncate(got);
        self.window_at = offset;
        Ok(())
    }

    /// The next place from `offset` on where a whole header stands; else the file's end.
    fn search(&mut self, mut offset: u64) -> Result<u64, Error> {
        while offset < self.length {
            self.fill(offset, SEARCH_BYTES)?;
            let window = std::mem::take(&mut self.window);
            for (block, bytes) in (0_u64..).zip(window.chunks(LOG_BLOCK)) {
                let at = offset + block * LOG_BLOCK_U64;
                if bytes.starts_with(&MAGIC) && self.record_at(at)?.is_ok() {
                    return Ok(at);
                }
            }
            if window.is_empty() {
                break;
            }
            offset += u64::try_from(window.len().next_multiple_of(LOG_BLOCK)).expect("a length");
        }
        Ok(self.length)
    }
}

/// Bytes of a record's padded header.
pub(crate) fn header_length(record: &Record) -> u64 {
    u64::try_from(record.header_padded()).expect("bounded")
}
