//! Loads a checkpoint.
//!
//! One thread reads the pages in order and checks them; other threads decode their entries, so that a large
//! index loads as fast as it can be read. If a page is bad, the range of keys between its neighbours is
//! marked as lost.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::{KeptCheckpoint, file_name};
use crate::disk::salvage_read::{hits, salvage_read};
use crate::disk::{Disk, DiskFile, WHOLE, twice};
use crate::error::Error;
use crate::format::checkpoint::{BYTES, Block, CheckpointEnd, Totals};
use crate::format::entry::LostRange;
use crate::format::page::{FIXED_BYTES, Key, PageHead};
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK, LOG_BLOCK_U64};
use crate::index::Index;
use crate::index::image::Loaded;
use crate::mutex::Mutex;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// The most batches that wait for a decoder.
const WAITING_MAX: usize = 4;
/// About the memory that a page takes in the index. It is less than GNU's allocator takes from the system in
/// one piece.
const HEAP_BYTES: usize = 120 << 10;
/// The most decoder threads.
const DECODERS_MAX: usize = 4;

/// A checkpoint's file, of which at least the header or the trailer is good.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    file: Arc<dyn DiskFile>,
    /// The contents of the ends.
    pub(crate) end: CheckpointEnd,
    /// The trailer's totals; `None`: the trailer is damaged.
    pub(crate) totals: Option<Totals>,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// The byte range of the pages.
    pub(crate) pages: Range<u64>,
    /// Faults of the ends: offset and description of each.
    pub(crate) wrong: Vec<(u64, String)>,
}

/// A range of keys, and the last record that its page counts in; `None`: the page is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) from: Key,
    pub(crate) to: Key,
    pub(crate) as_of: Option<u64>,
}

/// The contents of a checkpoint's pages.
#[derive(Debug)]
pub(crate) struct PageContents {
    /// The state of all keys whose pages are good. All other keys are in its `lost`.
    pub(crate) index: Index,
    /// Ranges that cover all keys, in order.
    pub(crate) ranges: Vec<PageRange>,
    /// Faults of the pages: offset and description of each.
    pub(crate) wrong: Vec<(u64, String)>,
}

impl Checkpoint {
    /// Opens the checkpoint `number`. The inner `Err` says why it cannot be used.
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
        let read = |end| twice(&*file, || Ok(read_end(&*file, bytes, end).map_err(failed)?.and_then(ours)));
        let header = read(End::Header)?;
        let trailer = read(End::Trailer)?;
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
                    wrong.push((until, "the trailer does not match the header".to_owned()));
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
        let totals = end.totals;
        let pages = begin..until.max(begin);
        Ok(Ok(Checkpoint { file, end, totals, bytes, pages, wrong }))
    }

    /// The facts about this checkpoint that the checkpointer keeps.
    pub(crate) fn kept(&self) -> KeptCheckpoint {
        KeptCheckpoint { number: self.end.number, bytes: self.bytes, replay: self.end.replay }
    }

    /// Loads all pages.
    pub(crate) fn load(&self) -> Result<PageContents, Error> {
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
        Ok(PageContents { index, ranges: reader.ranges, wrong: reader.wrong })
    }

    /// Calls `act` with each good page (offset, head and entries), and with each offset where a page is bad.
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

/// One of a checkpoint's two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Header,
    Trailer,
}

fn read_end(
    file: &dyn DiskFile,
    length: u64,
    end: End,
) -> std::io::Result<Result<CheckpointEnd, DecodeError>> {
    let is_header = end == End::Header;
    let at = if is_header { 0 } else { length.saturating_sub(LOG_BLOCK_U64) };
    let mut block = [0; BYTES];
    let block = salvage_read(file, &mut block, at)?.all().and_then(|got| Block::decode(&block[..got]));
    let block = match block {
        Ok(block) if block.is_header() == is_header => block,
        Ok(_) => return Ok(Err(DecodeError::Malformed("the other end's block"))),
        Err(error) => return Ok(Err(error)),
    };
    let table_bytes = u64::try_from(block.table_bytes()).expect("bounded");
    let Some(at) = (if is_header { Some(LOG_BLOCK_U64) } else { at.checked_sub(table_bytes) }) else {
        return Ok(Err(DecodeError::Malformed("a table longer than the file")));
    };
    let mut table = vec![0; block.table_bytes()];
    let got = salvage_read(file, &mut table, at)?.all();
    Ok(got.and_then(|got| block.with_table(&table[..got])))
}

/// The bytes of some pages as they were read.
struct Batch {
    number: u64,
    bytes: Vec<u8>,
    pages: Vec<BatchPage>,
}

/// A page's first key, end of its range, offset in the file, and its entries' range in the batch.
type BatchPage = (Key, Key, u64, Range<usize>);

#[derive(Default)]
struct Decoded {
    loaded: Loaded,
    /// Pages that cannot be decoded although their checksum is right.
    bad: Vec<(Key, Key, u64, String)>,
}

/// Decodes batches until there are no more. Returns their buffers for reuse.
fn decode_all(batches: &Mutex<Receiver<Batch>>, spent: &SyncSender<Vec<u8>>) -> Vec<(u64, Decoded)> {
    let next = || batches.lock().recv().ok();
    let decode = |batch: Batch| {
        let mut decoded = Decoded::default();
        for (from, to, offset, entries) in batch.pages {
            grow_heap();
            if let Err(why) = decoded.loaded.page(from, to, &batch.bytes[entries]) {
                decoded.bad.push((from, to, offset, why.to_string()));
            }
        }
        // If the channel is full or closed, the buffer is freed here.
        let _ = spent.try_send(batch.bytes);
        (batch.number, decoded)
    };
    std::iter::from_fn(next).map(decode).collect()
}

/// Called before many small allocations. In all threads but the first, GNU's allocator extends the heap by
/// one page at a time, and the page faults of all threads wait for each of these system calls: a seventh of
/// the whole time of opening. One large allocation, freed at once, leaves its memory in the heap.
fn grow_heap() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(HEAP_BYTES)));
}

/// Content found at an offset among the pages.
enum Page {
    /// A page, its offset in the file, and its entries' range in the bytes that were read.
    Good(PageHead, u64, Range<usize>),
    /// The offset of bytes that are no page, up to the next page, and the reason.
    Bad(u64, String),
}

/// The bytes of one read, and the pages found in them.
type Pages = (Vec<u8>, Vec<Page>);

/// Iterates over the pages.
struct Walker<'a> {
    checkpoint: &'a Checkpoint,
    /// File offset of the next page.
    at: u64,
    /// True if the last offset was bad, so that the next page is searched for.
    searching: bool,
    /// The offset that was read again because it was bad.
    again: Option<u64>,
    /// The least number that the next page can have.
    index: u64,
    /// The buffer for the next read.
    buffer: Vec<u8>,
}

impl<'a> Walker<'a> {
    fn new(checkpoint: &'a Checkpoint) -> Walker<'a> {
        let at = checkpoint.pages.start;
        let buffer = Vec::new();
        Walker { checkpoint, at, searching: false, again: None, index: 0, buffer }
    }

    /// The next pages; `None` at the end.
    fn next(&mut self) -> Result<Option<Pages>, Error> {
        let mut need = READ_BYTES;
        let mut bytes = std::mem::take(&mut self.buffer);
        while self.at < self.checkpoint.pages.end {
            let left = usize::try_from(self.checkpoint.pages.end - self.at).unwrap_or(usize::MAX);
            bytes.resize(need.min(left), 0);
            let got = salvage_read(&*self.checkpoint.file, &mut bytes, self.at)
                .map_err(|error| Error::io("read a checkpoint", error))?;
            // If the file has shrunk, the rest is zeros, which are not a page.
            bytes[got.bytes..].fill(0);
            let mut pages = Vec::new();
            let mut done = 0;
            let mut more = None;
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
                        // One bad read proves nothing: read it again from the medium.
                        self.again = Some(offset);
                        self.checkpoint.file.drop_cache(WHOLE);
                        break;
                    }
                    Err(why) => {
                        let is_unreadable = hits(&got.unreadable, offset, LOG_BLOCK_U64);
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

    /// Decodes the page at the start of `bytes`. Returns its head, the range of its entries, and its length.
    fn page(&self, bytes: &[u8]) -> Result<(PageHead, Range<usize>, usize), DecodeError> {
        let length = PageHead::length(bytes)?;
        let (head, entries) = PageHead::decode(bytes)?;
        let end = &self.checkpoint.end;
        if head.checkpoint != end.number || head.salt != end.salt {
            return Err(DecodeError::Malformed("it is of another checkpoint"));
        }
        let pages = self.checkpoint.totals.map_or(u64::MAX, |totals| totals.pages);
        if head.index < self.index || head.index >= pages {
            return Err(DecodeError::Malformed("a page that belongs at another place"));
        }
        if head.as_of.saturating_add(1) < end.replay.sequence {
            return Err(DecodeError::Malformed("a page from before the checkpoint was begun"));
        }
        Ok((head, FIXED_BYTES..FIXED_BYTES + entries.len(), length))
    }
}

/// The parts read so far of an object that has several pages.
struct PartialObject {
    head: PageHead,
    offset: u64,
    entries: Vec<u8>,
}

/// Assembles pages into ranges that cover all keys.
struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    ranges: Vec<PageRange>,
    lost: Vec<LostRange>,
    wrong: Vec<(u64, String)>,
    /// The first key that no page has covered yet.
    expected: Key,
    parts: Option<PartialObject>,
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

    /// Reads all pages and passes them to the decoders.
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
                        if let Some(PartialObject { head, offset, entries }) = whole {
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
            let what = format!("{} pages are there, but the trailer says {}", walker.index, totals.pages);
            self.wrong.push((self.checkpoint.pages.end, what));
        }
        if self.expected < Key::End {
            self.lose(self.expected, Key::End, self.checkpoint.pages.end, "no page lists what is there");
        }
        Ok(())
    }

    fn send(&mut self, decoders: &SyncSender<Batch>, bytes: Vec<u8>, pages: Vec<BatchPage>) {
        // The decoders run until the sender is dropped.
        let _ = decoders.send(Batch { number: self.batches, bytes, pages });
        self.batches += 1;
    }

    /// Returns true if a page's range continues the earlier ones. Keys that it skips are marked as lost.
    fn begins(&mut self, head: &PageHead, offset: u64) -> bool {
        self.end_parts();
        if head.from < self.expected {
            self.wrong
                .push((offset, format!("a page repeats keys of an earlier page, from {} on", head.from)));
            return false;
        }
        if head.from > self.expected {
            self.lose(self.expected, head.from, offset, "no page before this one lists what is there");
        }
        self.ranges.push(PageRange { from: head.from, to: head.to, as_of: Some(head.as_of) });
        self.expected = head.to;
        true
    }

    /// Adds one part. Returns the whole object with the last part.
    fn part(&mut self, head: &PageHead, offset: u64, entries: &[u8]) -> Option<PartialObject> {
        if head.part == 0 {
            if self.begins(head, offset) {
                self.parts = Some(PartialObject { head: *head, offset, entries: entries.to_vec() });
            }
            return None;
        }
        let follows = |parts: &PartialObject| {
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

    /// Marks an object whose parts are incomplete as lost.
    fn end_parts(&mut self) {
        if let Some(PartialObject { head, offset, .. }) = self.parts.take() {
            self.lose(head.from, head.to, offset, "a later part of the object is missing");
        }
    }

    fn lose(&mut self, from: Key, to: Key, offset: u64, why: &str) {
        self.wrong.push((offset, format!("everything from {from} up to {to} is lost: {why}")));
        self.lost.push(LostRange { from, to, checkpoint: self.checkpoint.end.number, segment: 0, offset });
        self.ranges.push(PageRange { from, to, as_of: None });
    }
}
