//! Reading a checkpoint back.
//!
//! One thread reads pages in order and checks them; others decode what they say, so that a big index is there as fast as
//! it can be read. Where a page is bad, the range of keys between its neighbours is lost, and known to be.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Kept, file_name};
use crate::disk::around::{hits, read_around};
use crate::disk::{Disk, DiskFile, WHOLE, twice};
use crate::error::Error;
use crate::format::checkpoint::{BYTES, Block, CheckpointEnd, Totals};
use crate::format::entry::LostRange;
use crate::format::page::{FIXED_BYTES, Key, PageHead};
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK, LOG_BLOCK_U64};
use crate::index::Index;
use crate::index::image::Loaded;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Batches that wait for a decoder.
const WAITING_MAX: usize = 4;
/// What the index takes for a page, about: less than GNU's allocator takes from the system by itself.
const ROOM_BYTES: usize = 120 << 10;
/// The most threads that decode.
const DECODERS_MAX: usize = 4;

/// A checkpoint's file whose header or trailer is good.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    file: Arc<dyn DiskFile>,
    /// What both ends say.
    pub(crate) end: CheckpointEnd,
    /// What the trailer says; `None`: it is damaged.
    pub(crate) totals: Option<Totals>,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    /// Where the pages are.
    pub(crate) pages: Range<u64>,
    /// What is wrong with the ends: where and what.
    pub(crate) wrong: Vec<(u64, String)>,
}

/// A range of keys, and the last record that its page counts in; `None`: the page is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) from: Key,
    pub(crate) to: Key,
    pub(crate) as_of: Option<u64>,
}

/// What a checkpoint's pages say.
#[derive(Debug)]
pub(crate) struct Content {
    /// The state of all keys whose pages are good; the others are in its `lost`.
    pub(crate) index: Index,
    /// All keys, in order.
    pub(crate) ranges: Vec<PageRange>,
    /// What is wrong: where and what.
    pub(crate) wrong: Vec<(u64, String)>,
}

impl Checkpoint {
    /// The checkpoint `number`; `Err` inside: why it is none.
    pub(crate) fn open(
        disk: &dyn Disk,
        superblock: &Superblock,
        number: u32,
    ) -> Result<Result<Checkpoint, String>, Error> {
        let failed = |error| Error::io("read a checkpoint", error);
        let file = disk.open(&file_name(number)).map_err(failed)?;
        let bytes = file.length().map_err(failed)?;
        let mut wrong = Vec::new();
        let ours = |end| ours(end, superblock, number);
        let read =
            |header| twice(&*file, || Ok(read_end(&*file, bytes, header).map_err(failed)?.and_then(ours)));
        let (header, trailer) = (read(true)?, read(false)?);
        for end in [&header, &trailer] {
            if let Err(DecodeError::Version(_)) = end {
                return Err(Error::UnknownFormat(disk.place().join(file_name(number)), "a newer release's"));
            }
        }
        let length = |end: &CheckpointEnd| u64::try_from(end.encode().len()).expect("a length");
        let begin = header.as_ref().map_or(LOG_BLOCK_U64, length);
        let until = trailer.as_ref().map_or(bytes, |end| bytes - length(end));
        let end = match (header, trailer) {
            (Ok(header), Ok(trailer)) => {
                if (CheckpointEnd { totals: None, ..trailer.clone() }) != header {
                    wrong.push((until, "the trailer is not the header's".to_owned()));
                }
                trailer
            }
            (Ok(header), Err(why)) => {
                wrong.push((bytes.saturating_sub(LOG_BLOCK_U64), format!("the trailer: {why}")));
                header
            }
            (Err(why), Ok(trailer)) => {
                wrong.push((0, format!("the header: {why}")));
                trailer
            }
            (Err(header), Err(trailer)) => {
                return Ok(Err(format!("neither header ({header}) nor trailer ({trailer}) can be used")));
            }
        };
        let (totals, pages) = (end.totals, begin..until.max(begin));
        Ok(Ok(Checkpoint { file, end, totals, bytes, pages, wrong }))
    }

    /// What the keeper must know of it.
    pub(crate) fn kept(&self) -> Kept {
        Kept { number: self.end.number, bytes: self.bytes, replay: self.end.replay }
    }

    /// Read all pages.
    pub(crate) fn load(&self) -> Result<Content, Error> {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(DECODERS_MAX));
        let (sender, receiver) = sync_channel::<Batch>(WAITING_MAX);
        let receiver = Mutex::new(receiver);
        let (spent_sender, spent) = sync_channel(WAITING_MAX);
        let mut reader = Reader::new(self);
        let mut decoded: Vec<(u64, Decoded)> = Vec::new();
        std::thread::scope(|scope| {
            let decode = || scope.spawn(|| decode_all(&receiver, &spent_sender));
            let decoders: Vec<_> = (0..threads).map(|_| decode()).collect();
            let read = reader.read(&sender, &spent);
            drop(sender);
            for decoder in decoders {
                decoded.extend(decoder.join().expect("decoding does not panic"));
            }
            read
        })?;
        decoded.sort_unstable_by_key(|(number, _)| *number);
        let mut all = Loaded::default();
        for (_, batch) in decoded {
            all.append(batch.loaded);
            for (from, to, offset, why) in batch.bad {
                reader.lose(from, to, offset, &why);
            }
        }
        let mut index = all.into_index();
        reader.lost.iter().for_each(|&range| index.lost.add(range));
        reader.ranges.sort_unstable_by_key(|range| (range.from, range.as_of.is_some()));
        reader.ranges.dedup_by_key(|range| range.from);
        Ok(Content { index, ranges: reader.ranges, wrong: reader.wrong })
    }

    /// Call `act` with each good page, its head and its entries, and with each place where there is none.
    pub(crate) fn walk(
        &self,
        mut act: impl FnMut(u64, Result<(&PageHead, &[u8]), &str>),
    ) -> Result<(), Error> {
        let mut walker = Walker::new(self);
        while let Some((bytes, pages)) = walker.next()? {
            for page in pages {
                match page {
                    Page::Good(head, at, entries) => act(at, Ok((&head, &bytes[entries]))),
                    Page::Bad(at, why) => act(at, Err(&why)),
                }
            }
        }
        Ok(())
    }
}

fn ours(end: CheckpointEnd, superblock: &Superblock, number: u32) -> Result<CheckpointEnd, DecodeError> {
    if end.drive != superblock.drive || end.salt != superblock.salt {
        return Err(DecodeError::Malformed("it is of another store"));
    }
    if end.number != number {
        return Err(DecodeError::Malformed("it is of another checkpoint"));
    }
    Ok(end)
}

fn read_end(
    file: &dyn DiskFile,
    length: u64,
    header: bool,
) -> std::io::Result<Result<CheckpointEnd, DecodeError>> {
    let at = if header { 0 } else { length.saturating_sub(LOG_BLOCK_U64) };
    let mut block = [0; BYTES];
    let got = read_around(file, &mut block, at)?;
    if !got.unreadable.is_empty() {
        return Ok(Err(DecodeError::Unreadable));
    }
    let block = match Block::decode(&block[..got.bytes]) {
        Ok(block) => block,
        Err(error) => return Ok(Err(error)),
    };
    if block.is_header() != header {
        return Ok(Err(DecodeError::Malformed("the other end's block")));
    }
    let table_bytes = u64::try_from(block.table_bytes()).expect("bounded");
    let Some(at) = (if header { Some(LOG_BLOCK_U64) } else { at.checked_sub(table_bytes) }) else {
        return Ok(Err(DecodeError::Malformed("a table longer than the file")));
    };
    let mut table = vec![0; block.table_bytes()];
    let got = read_around(file, &mut table, at)?;
    if !got.unreadable.is_empty() {
        return Ok(Err(DecodeError::Unreadable));
    }
    Ok(block.with_table(&table[..got.bytes]))
}

/// Some pages' entries, as they were read.
struct Batch {
    number: u64,
    bytes: Vec<u8>,
    pages: Vec<BatchPage>,
}

/// A page's keys, place in the file and entries.
type BatchPage = (Key, Key, u64, Range<usize>);

#[derive(Default)]
struct Decoded {
    loaded: Loaded,
    /// Pages that make no sense although their checksum is right.
    bad: Vec<(Key, Key, u64, String)>,
}

/// What the batches say; their bytes are given back.
fn decode_all(batches: &Mutex<Receiver<Batch>>, spent: &SyncSender<Vec<u8>>) -> Vec<(u64, Decoded)> {
    let next = || batches.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    let decode = |batch: Batch| {
        let mut decoded = Decoded::default();
        for (from, to, offset, entries) in batch.pages {
            make_room();
            if let Err(why) = decoded.loaded.page(from, to, &batch.bytes[entries]) {
                decoded.bad.push((from, to, offset, why.to_string()));
            }
        }
        // No room, or nobody there: then they are freed here.
        let _ = spent.try_send(batch.bytes);
        (batch.number, decoded)
    };
    std::iter::from_fn(next).map(decode).collect()
}

/// Before many small allocations. GNU's allocator lets the heap of a thread other than the first grow by one page at a time,
/// with a system call each that all threads' page faults wait for: a seventh of all that opening cost. What one large
/// piece needed stays in the heap.
fn make_room() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(ROOM_BYTES)));
}

/// What stands at a place among the pages.
enum Page {
    /// A page, where it is, and its entries in the bytes that were read.
    Good(PageHead, u64, Range<usize>),
    /// No page, up to the next one.
    Bad(u64, String),
}

/// Some bytes and the pages in them.
type Pages = (Vec<u8>, Vec<Page>);

/// Walks over the pages.
struct Walker<'a> {
    checkpoint: &'a Checkpoint,
    /// Where the next page begins.
    at: u64,
    /// The last place was bad: the next page is looked for.
    searching: bool,
    /// The place that was read again, for it was bad.
    again: Option<u64>,
    /// The number that the next page has at least.
    index: u64,
    /// To read the next bytes to.
    buffer: Vec<u8>,
}

impl<'a> Walker<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Walker<'a> {
        let (at, buffer) = (checkpoint.pages.start, Vec::new());
        Walker { checkpoint, at, searching: false, again: None, index: 0, buffer }
    }

    /// What comes next; `None` at the end.
    fn next(&mut self) -> Result<Option<Pages>, Error> {
        let mut need = READ_BYTES;
        let mut bytes = std::mem::take(&mut self.buffer);
        while self.at < self.checkpoint.pages.end {
            let left = usize::try_from(self.checkpoint.pages.end - self.at).unwrap_or(usize::MAX);
            bytes.resize(need.min(left), 0);
            let around = read_around(&*self.checkpoint.file, &mut bytes, self.at)
                .map_err(|error| Error::io("read a checkpoint", error))?;
            // A file that shrank meanwhile ends in zeros, which are no page.
            bytes[around.bytes..].fill(0);
            let mut pages = Vec::new();
            let (mut done, mut more) = (0, None);
            while done < bytes.len() {
                let offset = self.at + u64::try_from(done).expect("a length");
                match self.page(&bytes[done..]) {
                    Ok((head, entries, length)) => {
                        pages.push(Page::Good(head, offset, done + entries.start..done + entries.end));
                        (self.searching, self.index) = (false, head.index.saturating_add(1));
                        done += length;
                    }
                    Err(DecodeError::Short(length)) if bytes.len() < left && done + length <= left => {
                        more = Some(length);
                        break;
                    }
                    Err(_) if !self.searching && self.again != Some(offset) => {
                        // One bad read proves nothing: ask the medium.
                        self.again = Some(offset);
                        self.checkpoint.file.drop_cache(WHOLE);
                        break;
                    }
                    Err(why) => {
                        let is_unreadable = hits(&around.unreadable, offset, LOG_BLOCK_U64);
                        let why = if is_unreadable { DecodeError::Unreadable } else { why };
                        if !self.searching {
                            pages.push(Page::Bad(offset, format!("no page: {why}")));
                        }
                        self.searching = true;
                        done += LOG_BLOCK;
                    }
                }
            }
            if let (Some(length), 0) = (more, done) {
                need = length;
                continue;
            }
            self.at += u64::try_from(done).expect("a length");
            return Ok(Some((bytes, pages)));
        }
        Ok(None)
    }

    /// The page at the start of `bytes`, its entries, and its length.
    fn page(&self, bytes: &[u8]) -> Result<(PageHead, Range<usize>, usize), DecodeError> {
        let length = PageHead::length(bytes)?;
        let (head, entries) = PageHead::decode(bytes)?;
        let end = &self.checkpoint.end;
        if head.checkpoint != end.number || head.salt != end.salt {
            return Err(DecodeError::Malformed("it is of another checkpoint"));
        }
        let pages = self.checkpoint.totals.map_or(u64::MAX, |totals| totals.pages);
        if head.index < self.index || head.index >= pages {
            return Err(DecodeError::Malformed("a page in another's place"));
        }
        if head.as_of.saturating_add(1) < end.replay.sequence {
            return Err(DecodeError::Malformed("a page from before the checkpoint was begun"));
        }
        Ok((head, FIXED_BYTES..FIXED_BYTES + entries.len(), length))
    }
}

/// An object whose parts are being gathered.
struct Parts {
    head: PageHead,
    offset: u64,
    entries: Vec<u8>,
}

/// Puts pages together to ranges of all keys.
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    ranges: Vec<PageRange>,
    lost: Vec<LostRange>,
    wrong: Vec<(u64, String)>,
    /// The first key that no page was seen of.
    expected: Key,
    parts: Option<Parts>,
    batches: u64,
}

impl<'a> Reader<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Reader<'a> {
        Reader {
            checkpoint,
            ranges: Vec::new(),
            lost: Vec::new(),
            wrong: checkpoint.wrong.clone(),
            expected: Key::FIRST,
            parts: None,
            batches: 0,
        }
    }

    /// Read all pages and hand them to the decoders.
    fn read(&mut self, decoders: &SyncSender<Batch>, spent: &Receiver<Vec<u8>>) -> Result<(), Error> {
        let mut walker = Walker::new(self.checkpoint);
        while let Some((bytes, found)) = walker.next()? {
            walker.buffer = spent.try_recv().unwrap_or_default();
            let mut pages = Vec::new();
            for page in found {
                match page {
                    Page::Bad(offset, why) => self.wrong.push((offset, why)),
                    Page::Good(head, offset, entries) if head.parts == 1 => {
                        if self.begins(&head, offset) {
                            pages.push((head.from, head.to, offset, entries));
                        }
                    }
                    Page::Good(head, offset, entries) => {
                        let whole = self.part(&head, offset, &bytes[entries]);
                        if let Some(Parts { head, offset, entries }) = whole {
                            let all = 0..entries.len();
                            self.send(decoders, entries, vec![(head.from, head.to, offset, all)]);
                        }
                    }
                }
            }
            if !pages.is_empty() {
                self.send(decoders, bytes, pages);
            }
        }
        self.end_parts();
        if let Some(totals) = self.checkpoint.totals
            && totals.pages != walker.index
        {
            let what = format!("{} pages, and the trailer says {}", walker.index, totals.pages);
            self.wrong.push((self.checkpoint.pages.end, what));
        }
        if self.expected < Key::End {
            self.lose(self.expected, Key::End, self.checkpoint.pages.end, "no page is about them");
        }
        Ok(())
    }

    fn send(&mut self, decoders: &SyncSender<Batch>, bytes: Vec<u8>, pages: Vec<BatchPage>) {
        // Decoders live until the sender goes.
        let _ = decoders.send(Batch { number: self.batches, bytes, pages });
        self.batches += 1;
    }

    /// Whether a page's range comes next; what is skipped by it is lost.
    fn begins(&mut self, head: &PageHead, offset: u64) -> bool {
        self.end_parts();
        if head.from < self.expected {
            self.wrong.push((offset, format!("a page of keys that were there before, from {}", head.from)));
            return false;
        }
        if head.from > self.expected {
            self.lose(self.expected, head.from, offset, "no page before this is about them");
        }
        self.ranges.push(PageRange { from: head.from, to: head.to, as_of: Some(head.as_of) });
        self.expected = head.to;
        true
    }

    /// Take in one part; the whole when it is the last.
    fn part(&mut self, head: &PageHead, offset: u64, entries: &[u8]) -> Option<Parts> {
        if head.part == 0 {
            if self.begins(head, offset) {
                self.parts = Some(Parts { head: *head, offset, entries: entries.to_vec() });
            }
            return None;
        }
        let follows = |parts: &Parts| {
            (parts.head.part + 1, parts.head.from, parts.head.as_of) == (head.part, head.from, head.as_of)
        };
        let Some(mut parts) = self.parts.take_if(|parts| follows(parts)) else {
            self.end_parts();
            if self.expected < head.to {
                self.lose(self.expected, head.to, offset, "an earlier part of the object is missing");
                self.expected = head.to;
            }
            return None;
        };
        parts.entries.extend_from_slice(entries);
        parts.head.part = head.part;
        if head.part + 1 == head.parts {
            return Some(parts);
        }
        self.parts = Some(parts);
        None
    }

    /// What is not whole by now is lost.
    fn end_parts(&mut self) {
        if let Some(Parts { head, offset, .. }) = self.parts.take() {
            self.lose(head.from, head.to, offset, "a later part of the object is missing");
        }
    }

    fn lose(&mut self, from: Key, to: Key, offset: u64, why: &str) {
        self.wrong.push((offset, format!("everything from {from} up to {to} is lost: {why}")));
        self.lost.push(LostRange { from, to, checkpoint: self.checkpoint.end.number, segment: 0, offset });
        self.ranges.push(PageRange { from, to, as_of: None });
    }
}
