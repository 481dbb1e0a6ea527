//! Replays the log's tail.

mod loss;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::begin::Begin;
use super::tail::{Ends, Tail, newer_record, newer_segment};
use super::{Damage, Recovery, length};
use crate::checkpoint::load::PageRange;
use crate::disk::{DiskFile, Syncing};
use crate::error::Error;
use crate::files::Files;
use crate::format::checkpoint::{ReplayPoint, SegmentRow};
use crate::format::extent::LogPosition;
use crate::format::page::Key;
use crate::format::record::{Kind, Record};
use crate::format::segment::SegmentHeader;
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::index::Index;
use crate::segments::recent::Recent;
use crate::segments::scan::{Scanned, Scanner, read_segment_header};

/// The most places of damage that are listed in [`Recovery::damaged`].
const DAMAGED_MAX: usize = 1000;
/// More records than a segment has, with a commit that extends beyond its end.
const SEGMENT_RECORDS_MAX: u64 = 1 << 23;
/// Records are read ahead in batches of `BATCH_LEN`, at most `BATCHES_MAX` batches.
const BATCH_LEN: usize = 128;
const BATCHES_MAX: usize = 8;

/// Records, and bytes that are no record, in order.
type Batch = Vec<Scanned>;

pub(crate) struct Replay<'a> {
    files: &'a Files,
    superblock: Superblock,
    index: Index,
    ranges: Vec<PageRange>,
    /// No page counts in a record after this one; `None`: unknown, because pages are lost.
    counted_to: Option<u64>,
    /// The checkpoint's table of segments.
    rows: Vec<SegmentRow>,
    /// Records up to this one were durable, whether they can be found or not.
    durable_to: u64,
    pub(crate) recovery: Recovery,
    /// The position where replay began.
    from: ReplayPoint,
    /// The next record's sequence number.
    expected: u64,
    recent: Recent,
    /// Position where damage of unknown extent began, and the highest number that the next good record can
    /// have.
    gap: Option<(LogPosition, u64)>,
    /// The newest segment so far, and (`first`) the least number that its first record can have.
    previous: Option<u32>,
    first: u64,
    /// The newest segment's file was written up to here before it was recycled.
    pub(crate) earlier: u64,
}

impl Replay<'_> {
    pub(crate) fn new(files: &Files, superblock: Superblock, begin: Begin) -> Replay<'_> {
        let mut as_of = begin.ranges.iter().map(|range| range.as_of);
        let mut replay = Replay {
            files,
            superblock,
            index: begin.index,
            counted_to: as_of.try_fold(0, |newest, as_of| as_of.map(|as_of| newest.max(as_of))),
            ranges: begin.ranges,
            rows: begin.segments,
            durable_to: begin.durable_to,
            recovery: Recovery::default(),
            from: begin.replay,
            expected: begin.replay.sequence,
            recent: Recent::at(&begin.replay),
            gap: None,
            previous: None,
            first: 0,
            earlier: 0,
        };
        begin.damaged.into_iter().for_each(|damage| replay.report(damage));
        replay
    }

    /// Removes a segment torn at its creation (no whole header, no records). Returns true if it was one.
    pub(crate) fn is_torn_creation(&mut self, number: u32) -> Result<bool, Error> {
        let file = self.files.get(number)?;
        let length = length(&**file)?;
        match self.header(&**file, number)? {
            Ok(_) | Err(DecodeError::Unreadable) => return Ok(false),
            Err(DecodeError::Version(_)) => return Err(newer_segment(number)),
            Err(_) => {}
        }
        if length > LOG_BLOCK_U64 {
            let mut scanner = Scanner::new(&**file, length, number, self.superblock.salt);
            while let Some(found) = scanner.next()? {
                match found {
                    Scanned::Record { .. } => return Ok(false),
                    Scanned::Bad { why: DecodeError::Version(_), .. } => return Err(newer_record(number)),
                    Scanned::Bad { .. } => {}
                }
            }
        }
        self.recovery.torn_bytes += length;
        self.files.remove(number, Syncing::On)?;
        Ok(true)
    }

    fn header(&self, file: &dyn DiskFile, number: u32) -> Result<Result<SegmentHeader, DecodeError>, Error> {
        read_segment_header(file, &self.superblock, number)
    }

    /// Adds the segments before the tail, as the checkpoint's table describes them. A segment that the table
    /// does not name was freed, but the crash came before that was durable.
    pub(crate) fn settled_segments(&mut self, numbers: &[u32]) -> Result<(), Error> {
        for &number in numbers {
            let row = self.rows.binary_search_by_key(&number, |row| row.number).map(|at| self.rows[at]);
            if let Ok(row) = row {
                self.index.segments.add(number, row.first_sequence, row.bytes);
                self.index.segments.entry(number).damaged = row.damaged;
            } else {
                let file = self.files.get(number)?;
                let first = self.header(&**file, number)?.map_or(0, |header| header.first_sequence);
                self.index.segments.add(number, first, length(&**file)?);
            }
        }
        Ok(())
    }

    /// Notes that the segment where replay should begin is missing, and so are its later records.
    pub(crate) fn begin_without(&mut self, number: u32) {
        self.damage(number, 0, "the segment where replay begins is missing".to_owned());
        self.gap_of(LogPosition { segment: number, block: 0 }, SEGMENT_RECORDS_MAX);
    }

    /// Notes that up to `records` records may be missing at `position`.
    fn gap_of(&mut self, position: LogPosition, records: u64) {
        self.gap.get_or_insert((position, self.expected.max(self.first))).1 += records;
    }

    /// Begins the next segment of the tail. If segments before it are missing, their records are lost.
    pub(crate) fn begin_segment(&mut self, number: u32) -> Result<(), Error> {
        let file = self.files.get(number)?;
        let header = self.header(&**file, number)?;
        let first = header.map_or(self.expected, |header| header.first_sequence);
        self.earlier = header.map_or(0, |header| header.earlier_bytes);
        // A segment is made only when all records before it are durable.
        self.durable_to = self.durable_to.max(first.saturating_sub(1));
        self.index.segments.add(number, first, length(&**file)?);
        self.recovery.segments += 1;
        if let Err(why) = header {
            if let DecodeError::Version(_) = why {
                return Err(newer_segment(number));
            }
            self.damage(number, 0, format!("segment header: {why}"));
        }
        let before = self.previous.unwrap_or(self.from.segment);
        let missing = number.saturating_sub(before).saturating_sub(1);
        if missing > 0 {
            self.damage(number, 0, "the segment before this one is missing".to_owned());
            self.gap_of(LogPosition { segment: number, block: 0 }, SEGMENT_RECORDS_MAX * u64::from(missing));
        }
        if let (Ok(_), Some((_, next))) = (header, &mut self.gap) {
            // The header shows which records came before it.
            *next = first.max(self.expected);
        }
        self.first = first;
        self.previous = Some(number);
        Ok(())
    }

    /// Returns the end of a segment's valid records. After a failed write this is not the end of the file:
    /// the next segment's header records it.
    pub(crate) fn sealed_end(&mut self, number: u32, file: &dyn DiskFile, next: u32) -> Result<u64, Error> {
        let length = length(file)?;
        if number.checked_add(1) != Some(next) {
            return Ok(length);
        }
        let header = self.header(&**self.files.get(next)?, next)?;
        let end = header.map_or(length, |header| length.min(header.previous_end));
        self.index.segments.set_bytes(number, end);
        if end < length && end < self.earlier {
            // The crash came before the recycled file's old contents were cut off. A failure is ignored here
            // as it is at sealing: it does no harm.
            let _ = file.set_length(end);
        }
        Ok(end)
    }

    /// Finds where the last segment's whole commits end, cuts the segment there, and returns that length.
    pub(crate) fn cut_tail(&mut self, number: u32, file: &dyn DiskFile) -> Result<u64, Error> {
        let length = length(file)?;
        let from = self.first_offset(number);
        if length < from {
            return Ok(length);
        }
        let synced = self.durable_to.max(self.expected.saturating_sub(1));
        let salt = self.superblock.salt;
        let tail = Tail { file, length, number, salt, from, first: self.expected.max(self.first), synced };
        let Ends { commits: end, records, synced, unreadable } = tail.find()?;
        if let Some(offset) = unreadable.filter(|&offset| offset >= end) {
            let what = "the disk cannot read what comes after the last whole commit: what was written last may be lost";
            self.damage(number, offset, what.to_owned());
        }
        self.durable_to = self.durable_to.max(synced);
        // The last record may lack part of its padding. The log continues after it, so the file must extend
        // that far.
        let end = end.next_multiple_of(LOG_BLOCK_U64);
        // In a recycled file, only records show which bytes were written since it was recycled. The rest can
        // stay, as the log will overwrite it.
        let torn_to = if length > self.earlier { length } else { records };
        self.earlier = self.earlier.min(length);
        if end < torn_to || end > length || unreadable.is_some() {
            file.set_length(end).map_err(|error| Error::io("cut the torn tail", error))?;
            self.earlier = 0;
        }
        if end < torn_to {
            self.recovery.torn_bytes += torn_to - end;
            tracing::warn!(segment = number, bytes = torn_to - end, "cut a torn tail");
        }
        self.index.segments.set_bytes(number, end);
        Ok(end)
    }

    /// The offset of the first record of a segment that may be replayed.
    fn first_offset(&self, number: u32) -> u64 {
        if number == self.from.segment { self.from.offset() } else { LOG_BLOCK_U64 }
    }

    pub(crate) fn segment(&mut self, number: u32, file: &dyn DiskFile, length: u64) -> Result<(), Error> {
        let mut scanner = Scanner::new(file, length, number, self.superblock.salt);
        scanner.offset = self.first_offset(number);
        if length < scanner.offset {
            self.damage(number, length, "the segment ends before the place where replay begins".to_owned());
            self.gap_of(LogPosition { segment: number, block: self.from.block }, SEGMENT_RECORDS_MAX);
        }
        // Another thread reads and decodes records, and also frees them, because memory is cheap to free only
        // in the thread that allocated it. This thread applies them.
        let (sender, batches) = sync_channel(BATCHES_MAX);
        let (taken_sender, taken) = sync_channel(BATCHES_MAX);
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || read_ahead(&mut scanner, &sender, &taken));
            let result = self.take_all(number, batches, &taken_sender);
            result.and(reading.join().expect("reading does not panic"))
        })
    }

    /// Applies the batches that are read. If this ends early, the reader ends too.
    fn take_all(
        &mut self,
        number: u32,
        batches: Receiver<Batch>,
        taken: &SyncSender<Batch>,
    ) -> Result<(), Error> {
        for batch in batches {
            let records = batch.iter().filter_map(Scanned::record);
            self.index.warm(records.map(|record| (record.partition, record.object)));
            batch.iter().try_for_each(|found| self.take(number, found))?;
            // If the channel is full or closed, the batch is freed here.
            let _ = taken.try_send(batch);
        }
        Ok(())
    }

    fn take(&mut self, number: u32, found: &Scanned) -> Result<(), Error> {
        match *found {
            Scanned::Record { ref record, .. } if record.sequence < self.expected => self.repeated(record),
            Scanned::Record { ref record, bytes, whole } => {
                self.record(record, bytes);
                if !whole {
                    self.cut_short(record);
                }
            }
            Scanned::Bad { why: DecodeError::Version(_), .. } => return Err(newer_record(number)),
            Scanned::Bad { from, to, why } => {
                self.damage(number, from, format!("{} bytes without a record: {why}", to - from));
                let block = u32::try_from(from / LOG_BLOCK_U64).unwrap_or(u32::MAX);
                self.gap_of(LogPosition { segment: number, block }, (to - from).div_ceil(LOG_BLOCK_U64));
            }
        }
        Ok(())
    }

    /// A refused commit and a later one have the same numbers. One of the two is skipped.
    fn repeated(&mut self, record: &Record) {
        let offset = u64::from(record.block) * LOG_BLOCK_U64;
        self.damage(record.segment, offset, format!("record {} comes again", record.sequence));
        self.lose_one(record.kind, &record.subject(), record.sequence, record.position());
    }

    fn record(&mut self, record: &Record, bytes: u64) {
        let missing = record.sequence - self.expected;
        let gap = self.gap.take();
        if missing > 0 {
            self.lose(record, missing, gap.map_or(record.position(), |(begin, _)| begin));
            self.recent.clear();
        }
        if self.takes(record) {
            if record.kind == Kind::PartitionRemove {
                self.forget_partition(record);
            }
            self.index.apply(record);
        }
        self.expected = record.sequence.saturating_add(1);
        self.recent.push(record, bytes);
        // Records that a page counts in are included: the checkpoint's totals end where replay begins.
        self.index.appended.count(record.kind, bytes);
        self.recovery.records += 1;
    }

    /// The payload of the record just replayed extends beyond its file's end.
    fn cut_short(&mut self, record: &Record) {
        let offset = u64::from(record.block) * LOG_BLOCK_U64;
        self.damage(
            record.segment,
            offset,
            format!("the payload of record {} is cut short", record.sequence),
        );
        if self.as_of(record.subject().key()).is_none_or(|as_of| as_of < record.sequence) {
            self.index.mark_lost(record.partition, record.object, Some(record.unit), record.position());
        }
        // The file was longer and may have held more records.
        self.gap_of(record.position(), SEGMENT_RECORDS_MAX);
    }

    /// Returns true if a record must be applied: the page of its key does not count it in. If that page is
    /// lost, only records that need no state from before replay are applied.
    fn takes(&self, record: &Record) -> bool {
        if self.counted_to.is_some_and(|counted_to| record.sequence > counted_to) {
            return true;
        }
        let Some(range) = self.range(record.subject().key()) else { return true };
        match range.as_of {
            Some(as_of) => record.sequence > as_of,
            None => {
                let whole = matches!(
                    record.kind,
                    Kind::ObjectRemove | Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove
                );
                whole || record.birth >= self.from.sequence
            }
        }
    }

    /// The range of the page with a key; `None` without a checkpoint.
    fn range(&self, key: Key) -> Option<&PageRange> {
        let at = self.ranges.partition_point(|range| range.from <= key);
        self.ranges.get(at.checked_sub(1)?)
    }

    fn as_of(&self, key: Key) -> Option<u64> {
        self.range(key)?.as_of
    }

    /// Ends replay. The last value is true if records at the end are missing, or may be, so that the next
    /// number does not follow the last one.
    pub(crate) fn end(mut self) -> (Index, Recovery, Recent, bool) {
        let gap = self.gap.take();
        let first = self.expected;
        let durable = self.durable_to;
        // The last record that may be missing. If the file ends before the durable records do, the number of
        // records after that is unknown.
        let next = gap.map_or(first.max(self.first), |(_, next)| next);
        let last = if next <= durable { durable + SEGMENT_RECORDS_MAX } else { next - 1 };
        let ends_early = first <= last;
        if ends_early {
            let segment = self.previous.unwrap_or(self.from.segment);
            let position = gap.map_or(LogPosition { segment, block: 0 }, |(begin, _)| begin);
            self.lose_all(position, last);
            if first <= durable {
                let what = format!("the log ends before records {first} to {durable}, which were durable");
                self.damage(position.segment, u64::from(position.block) * LOG_BLOCK_U64, what);
            }
            // The numbers of the missing records are not reused: pages may count these in, and bytes that
            // cannot be read now may become readable later.
            self.expected = last + 1;
            self.recent.clear();
        }
        for (segment, hit) in self.index.lose_missing_segments() {
            self.damage(segment, 0, format!("the segment is missing: {hit} units are lost"));
        }
        self.index.drop_unnamed_snapshots();
        for (partition, object) in self.index.without_attributes() {
            let what = format!("the attributes of object {object} in partition {partition} are lost");
            self.damage(0, 0, what);
        }
        let prior = self.recent.newest();
        self.index.head = ReplayPoint { sequence: self.expected, prior, ..self.from };
        (self.index, self.recovery, self.recent, ends_early)
    }

    fn damage(&mut self, segment: u32, offset: u64, what: String) {
        if segment > 0 {
            self.index.segments.entry(segment).damaged = true;
        }
        self.report(Damage { segment: u64::from(segment), offset, what });
    }

    fn report(&mut self, damage: Damage) {
        let Damage { segment, offset, what } = &damage;
        tracing::error!(segment, offset, %what, "damage in the store");
        self.recovery.damaged_count += 1;
        if self.recovery.damaged.len() < DAMAGED_MAX {
            self.recovery.damaged.push(damage);
        }
    }
}

/// Sends the scanner's findings in batches, until the receiver is gone.
fn read_ahead(
    scanner: &mut Scanner<'_>,
    to: &SyncSender<Batch>,
    taken: &Receiver<Batch>,
) -> Result<(), Error> {
    let mut batch = Batch::with_capacity(BATCH_LEN);
    while let Some(mut found) = scanner.next()? {
        if let Scanned::Record { record, .. } = &mut found {
            // Replay does not need the payload's checksums.
            record.crcs = Vec::new();
        }
        batch.push(found);
        if batch.len() == BATCH_LEN {
            let mut next = taken.try_recv().unwrap_or_else(|_| Batch::with_capacity(BATCH_LEN));
            next.clear();
            if to.send(std::mem::replace(&mut batch, next)).is_err() {
                return Ok(());
            }
        }
    }
    // Sending fails only if the receiver ended early, with an error of its own.
    let _ = to.send(batch);
    Ok(())
}
