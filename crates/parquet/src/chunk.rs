//! A column of a row group: where its pages lie.
//!
//! The file's page index tells it. Where there is none, the headers of the pages are read one after another.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use parquet::file::page_index::offset_index::PageLocation;

use crate::header::{Header, HeaderError, Kind};
use crate::page::AT_CLIENT;
use crate::pages::PagePlace;
use crate::rows::wide;

/// Bytes that are read for a header at first, and at most: statistics make it long.
const HEADER_BYTES: u64 = 128;
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// A column of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The page of its dictionary, if there is one.
    pub dictionary: Option<Range<u64>>,
    /// The pages that have rows, in order.
    pub pages: Vec<PagePlace>,
}

/// The headers of a column as they are read.
#[derive(Debug)]
pub struct Walk {
    at: u64,
    end: u64,
    rows: usize,
    first: usize,
    asked: u64,
    chunk: Chunk,
}

/// The next need of a walk.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes of the file.
    Read(Range<u64>),
    /// Nothing: the pages are known.
    Known(Chunk),
    /// The headers do not fit the footer.
    Bad,
}

impl Chunk {
    /// The pages that the page index tells; `None` if they do not fit the column.
    pub(crate) fn of(range: Range<u64>, places: &[PageLocation], rows: usize) -> Option<Chunk> {
        let mut pages = Vec::new();
        let mut at = None;
        for (number, place) in places.iter().enumerate() {
            let offset = u64::try_from(place.offset).ok()?;
            let bytes = u32::try_from(place.compressed_page_size).ok()?;
            let first = usize::try_from(place.first_row_index).ok()?;
            let end = places.get(number + 1).map_or(Some(rows), |next| {
                usize::try_from(next.first_row_index).ok().filter(|&end| end <= rows)
            })?;
            let own = end.checked_sub(first)?;
            let after = offset.checked_add(u64::from(bytes))?;
            let begins = at.unwrap_or(range.start);
            if offset < begins || after > range.end || (number == 0 && first != 0) {
                return None;
            }
            at = Some(after);
            if own > 0 {
                pages.push(PagePlace { offset, bytes, first, rows: own });
            }
        }
        let first = u64::try_from(places.first()?.offset).ok()?;
        Some(Chunk { dictionary: (first > range.start).then_some(range.start..first), pages })
    }

    /// The rows that were selected in pages, by the pages' first rows; in others none is. There are `length`
    /// rows.
    pub fn rows_of(&self, length: usize, selected: &BTreeMap<usize, BooleanBuffer>) -> BooleanBuffer {
        let mut rows = BooleanBufferBuilder::new(length);
        for page in &self.pages {
            rows.append_n(page.first - rows.len(), false);
            match selected.get(&page.first) {
                Some(own) if own.len() == page.rows => rows.append_buffer(own),
                _ => rows.append_n(page.rows, false),
            }
        }
        rows.append_n(length - rows.len(), false);
        rows.finish()
    }

    /// The pages that have rows among these.
    pub fn touched(&self, rows: &BooleanBuffer) -> Vec<PagePlace> {
        let is_touched = |page: &&PagePlace| rows.slice(page.first, page.rows).count_set_bits() > 0;
        self.pages.iter().filter(is_touched).copied().collect()
    }
}

impl Walk {
    /// A walk over the bytes `range` of a flat column of so many rows.
    pub fn new(range: Range<u64>, rows: usize) -> Walk {
        let chunk = Chunk { dictionary: None, pages: Vec::new() };
        Walk { at: range.start, end: range.end, rows, first: 0, asked: HEADER_BYTES, chunk }
    }

    /// The next thing to be done.
    pub fn step(&mut self) -> Step {
        if self.first == self.rows {
            return Step::Known(self.chunk.clone());
        }
        if self.at >= self.end {
            return Step::Bad;
        }
        Step::Read(self.at..self.end.min(self.at.saturating_add(self.asked)))
    }

    /// Takes the bytes that were asked for. Returns false if they are no header that fits.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let header = match Header::parse(bytes) {
            Ok(header) => header,
            Err(HeaderError::Short) if self.asked < HEADER_BYTES_MAX && wide(bytes.len()) == self.asked => {
                self.asked *= 8;
                return true;
            }
            Err(_) => return false,
        };
        self.asked = HEADER_BYTES;
        let offset = self.at;
        self.at = self.at.saturating_add(header.bytes());
        let rows = usize::try_from(header.values).unwrap_or(usize::MAX);
        let Ok(bytes) = u32::try_from(header.bytes()) else { return false };
        if self.at > self.end {
            return false;
        }
        match header.kind {
            Kind::Dictionary if self.chunk.pages.is_empty() => self.chunk.dictionary = Some(offset..self.at),
            Kind::Data => {
                if rows > self.rows - self.first {
                    return false;
                }
                if rows > 0 {
                    self.chunk.pages.push(PagePlace { offset, bytes, first: self.first, rows });
                }
                self.first += rows;
            }
            _ => {}
        }
        true
    }
}

/// The first page of a column's bytes whose header is none, or claims too much.
pub(crate) fn first_bad(bytes: &[u8]) -> Option<(usize, u64)> {
    let mut at = 0;
    while at < bytes.len() {
        let Ok(header) = Header::parse(&bytes[at..]) else { return Some((at, 0)) };
        if header.uncompressed > AT_CLIENT.page_bytes {
            return Some((at, u64::from(header.uncompressed)));
        }
        at = at.saturating_add(usize::try_from(header.bytes()).unwrap_or(usize::MAX));
    }
    None
}
