//! Opening: the log is read from the start and every record taken into the index.
//!
//! Where a record is bad, what is known to have been durable decides. A record whose number is at most some later
//! record's `synced_to` (or that lies in a sealed segment) *was* durable: that is damage, which is reported, and what it
//! may have hit reads as lost. Anything else was never acknowledged: a torn tail, which is cut at the last whole commit.
//! Payloads are verified here for what lies after the last `synced_to`; elsewhere by their readers.
//!
//! Who was hit by a bad header is told by the record after it, which names its predecessor's subject. If more than one
//! record is missing, any object so far may have been hit, and all of them read as lost: stale bytes are never returned.

use std::time::{Duration, Instant};

use crate::crc::verify_blocks;
use crate::disk::{DiskFile, read_full};
use crate::error::Error;
use crate::files::Files;
use crate::format::record::{Kind, Record, Subject, flags};
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::index::Index;
use crate::index::unit::Place;
use crate::log::Log;
use crate::scan::{Found, Scanner, header_length};

/// The most places of damage that are kept in [`Recovery::damaged`].
const DAMAGED_MAX: usize = 1000;

/// Damage found in the log before its tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's number.
    pub segment: u64,
    /// Byte offset in its file.
    pub offset: u64,
    /// What is wrong there, and what it hit.
    pub what: String,
}

/// What opening a store found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Segments read.
    pub segments: u64,
    /// Records replayed.
    pub records: u64,
    /// Bytes of a torn tail that were cut: none of them was ever acknowledged.
    pub torn_bytes: u64,
    /// Damage before the tail, at most 1000 entries.
    pub damaged: Vec<Damage>,
    /// Places of damage in all.
    pub damaged_count: u64,
    /// How long it took.
    pub took: Duration,
}

/// Replay the log of `files`.
pub(crate) fn recover(
    files: &Files,
    superblock: Superblock,
    segment_bytes: u64,
    sync: bool,
) -> Result<(Index, Log, Recovery), Error> {
    let began = Instant::now();
    let mut replay = Replay {
        files,
        superblock,
        index: Index::default(),
        recovery: Recovery::default(),
        expected: 1,
        prior: Subject::NONE,
        gap: None,
    };
    let numbers = files.list()?;
    let mut log = Log {
        superblock,
        file: None,
        number: 0,
        end: 0,
        segment_bytes,
        next: 1,
        synced_to: 0,
        prior: Subject::NONE,
        sync,
        failed: false,
    };
    let mut previous = None;
    for (i, &number) in numbers.iter().enumerate() {
        let last = i + 1 == numbers.len();
        if last && replay.is_torn_creation(number)? {
            break;
        }
        let adjacent = previous.is_none_or(|previous: u32| previous.checked_add(1) == Some(number));
        replay.begin_segment(number, adjacent && previous.is_some())?;
        let file = files.get(number)?;
        let length = if last { replay.cut_tail(number, &*file)? } else { length(&*file)? };
        replay.segment(number, &*file, length)?;
        (log.file, log.number, log.end) = (Some(file), number, crate::format::padded_u64(length));
        previous = Some(number);
    }
    if let Some(file) = log.file.as_ref().filter(|_| sync) {
        // What is shown from here on must not be lost again.
        file.sync_all().map_err(|error| Error::io("sync the log's tail", error))?;
    }
    replay.end(log.number);
    (log.next, log.synced_to, log.prior) = (replay.expected, replay.expected - 1, replay.prior);
    replay.recovery.took = began.elapsed();
    Ok((replay.index, log, replay.recovery))
}

struct Replay<'a> {
    files: &'a Files,
    superblock: Superblock,
    index: Index,
    recovery: Recovery,
    /// The next record's sequence number.
    expected: u64,
    /// What the newest record is about.
    prior: Subject,
    /// Where damage began whose extent the next good record tells.
    gap: Option<Place>,
}

impl Replay<'_> {
    /// A crash while a segment was being made leaves a file without a whole header and without records.
    fn is_torn_creation(&mut self, number: u32) -> Result<bool, Error> {
        let file = self.files.get(number)?;
        let length = length(&*file)?;
        if self.header(&*file, number)?.is_ok() {
            return Ok(false);
        }
        if length > LOG_BLOCK_U64 {
            let mut scanner = Scanner::new(&*file, length, number, self.superblock.salt);
            while let Some(found) = scanner.next()? {
                if matches!(found, Found::Record { .. }) {
                    return Ok(false);
                }
            }
        }
        self.recovery.torn_bytes += length;
        self.files.remove(number, true)?;
        Ok(true)
    }

    fn header(&self, file: &dyn DiskFile, number: u32) -> Result<Result<SegmentHeader, DecodeError>, Error> {
        let mut bytes = [0; segment::BYTES];
        let got =
            read_full(file, &mut bytes, 0).map_err(|error| Error::io("read a segment's header", error))?;
        Ok(SegmentHeader::decode(&bytes[..got]).and_then(|header| {
            if header.number != number
                || header.salt != self.superblock.salt
                || header.drive != self.superblock.drive
            {
                return Err(DecodeError::Malformed("the header is of another segment"));
            }
            Ok(header)
        }))
    }

    /// Segments between two that are not adjacent were freed: records are missing, rightly.
    fn begin_segment(&mut self, number: u32, adjacent: bool) -> Result<(), Error> {
        let file = self.files.get(number)?;
        let header = self.header(&*file, number)?;
        let first = header.map_or(self.expected, |header| header.first_sequence);
        self.index.segments.add(number, first, length(&*file)?);
        self.recovery.segments += 1;
        if let Err(why) = header {
            if let DecodeError::Version(_) = why {
                return Err(Error::UnknownFormat(format!("segment {number}").into(), "a newer release's"));
            }
            self.damage(number, 0, format!("segment header: {why}"));
        }
        if !adjacent {
            if let Some(place) = self.gap.take() {
                self.index.mark_all_lost(place);
            }
            self.expected = self.expected.max(first);
        }
        Ok(())
    }

    /// Find where the last segment's whole commits end, cut there, and return that length.
    fn cut_tail(&mut self, number: u32, file: &dyn DiskFile) -> Result<u64, Error> {
        // After a failed sync the page cache may hold what the disk does not: read from the disk.
        file.drop_cache();
        let length = length(file)?;
        let end = Tail::find(file, length, number, &self.superblock, self.expected)?;
        if end < length {
            file.set_length(end).map_err(|error| Error::io("cut the torn tail", error))?;
            self.recovery.torn_bytes += length - end;
            tracing::warn!(segment = number, bytes = length - end, "cut a torn tail");
        }
        self.index.segments.set_bytes(number, end);
        Ok(end)
    }

    fn segment(&mut self, number: u32, file: &dyn DiskFile, length: u64) -> Result<(), Error> {
        let mut scanner = Scanner::new(file, length, number, self.superblock.salt);
        while let Some(found) = scanner.next()? {
            match found {
                Found::Record { record, whole } => self.record(&record, whole),
                Found::Bad { why: DecodeError::Version(_), .. } => {
                    return Err(newer_record(number));
                }
                Found::Bad { from, to, why } => {
                    self.damage(number, from, format!("{} bytes without a record: {why}", to - from));
                    let block = u32::try_from(from / LOG_BLOCK_U64).unwrap_or(u32::MAX);
                    self.gap.get_or_insert(Place { segment: number, block });
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, whole: bool) {
        let place = Place { segment: record.segment, block: record.block };
        let offset = u64::from(record.block) * LOG_BLOCK_U64;
        if record.sequence < self.expected {
            self.damage(record.segment, offset, format!("record {} comes again", record.sequence));
            return;
        }
        let missing = record.sequence - self.expected;
        let gap = self.gap.take();
        if missing > 0 {
            self.lose(record, missing, gap.unwrap_or(place));
        }
        self.index.apply(record);
        if !whole {
            self.damage(
                record.segment,
                offset,
                format!("the payload of record {} is cut short", record.sequence),
            );
            self.index.mark_lost(record.partition, record.object, Some(record.unit), place);
        }
        self.expected = record.sequence.saturating_add(1);
        self.prior = record.subject();
        self.recovery.records += 1;
    }

    /// `missing` records before `next` are gone.
    fn lose(&mut self, next: &Record, missing: u64, place: Place) {
        let offset = u64::from(place.block) * LOG_BLOCK_U64;
        let Subject { kind, partition, object, unit } = next.prior;
        let hit = match kind {
            Some(kind) if kind.writes() => {
                self.index.mark_lost(partition, object, Some(unit), place);
                format!("unit {unit} of object {object} in partition {partition}")
            }
            Some(Kind::SettledTo | Kind::Mark | Kind::Ready) | None => "nothing that matters".to_owned(),
            Some(Kind::PartitionCreate | Kind::PartitionSet | Kind::PartitionRemove) => {
                format!("the values of partition {partition}")
            }
            Some(_) => {
                self.index.mark_lost(partition, object, None, place);
                format!("object {object} in partition {partition}")
            }
        };
        let what = format!("record {} is lost: {hit}", next.sequence - 1);
        self.damage(place.segment, offset, what);
        if missing > 1 {
            self.index.mark_all_lost(place);
            let what = format!("{} more records are lost before it: any object may be hit", missing - 1);
            self.damage(place.segment, offset, what);
        }
    }

    fn end(&mut self, last: u32) {
        if let Some(place) = self.gap.take() {
            self.index.mark_all_lost(place);
        }
        self.index.finish_replay();
        let mut unknown = Vec::new();
        for (&partition, owner) in &self.index.partitions {
            unknown.extend(
                owner.objects.iter().filter(|(_, o)| o.meta.is_none()).map(|(&id, _)| (partition, id)),
            );
        }
        for (partition, object) in unknown {
            self.damage(
                last,
                0,
                format!("the attributes of object {object} in partition {partition} are lost"),
            );
        }
    }

    fn damage(&mut self, segment: u32, offset: u64, what: String) {
        tracing::error!(segment, offset, %what, "damage in the log");
        self.index.incomplete = true;
        self.index.segments.entry(segment).damaged = true;
        self.recovery.damaged_count += 1;
        if self.recovery.damaged.len() < DAMAGED_MAX {
            self.recovery.damaged.push(Damage { segment: u64::from(segment), offset, what });
        }
    }
}

/// The search for the end of the last segment's whole commits.
struct Tail {
    /// Where the newest commit began.
    commit_offset: u64,
    /// How many of its records are missing.
    commit_left: u32,
    /// The next record's number.
    expected: u64,
}

impl Tail {
    fn find(
        file: &dyn DiskFile,
        length: u64,
        number: u32,
        superblock: &Superblock,
        first: u64,
    ) -> Result<u64, Error> {
        let scan = || Scanner::new(file, length, number, superblock.salt);
        // What is known to be durable: everything before the segment, and what a record says.
        let mut synced = first.saturating_sub(1);
        let mut scanner = scan();
        while let Some(found) = scanner.next()? {
            match found {
                Found::Record { record, .. } => synced = synced.max(record.synced_to),
                Found::Bad { why: DecodeError::Version(_), .. } => return Err(newer_record(number)),
                Found::Bad { .. } => {}
            }
        }
        let mut tail = Tail { commit_offset: LOG_BLOCK_U64, commit_left: 0, expected: first };
        let mut scanner = scan();
        let mut end = LOG_BLOCK_U64.min(length);
        loop {
            let offset = scanner.offset;
            let Some(found) = scanner.next()? else { break };
            let durable = tail.expected <= synced;
            match found {
                Found::Record { record, whole } => {
                    if record.commit_first == record.sequence {
                        (tail.commit_offset, tail.commit_left) = (offset, 0);
                    }
                    let follows = record.sequence == tail.expected;
                    let good = durable || (whole && follows && verify(file, &record)?);
                    if !good {
                        return Ok(tail.commit_offset);
                    }
                    (tail.commit_left, tail.expected) =
                        (record.commit_left, record.sequence.saturating_add(1));
                }
                Found::Bad { .. } if durable => {}
                Found::Bad { .. } => return Ok(tail.end_at(offset)),
            }
            end = scanner.offset;
        }
        Ok(tail.end_at(end))
    }

    /// `offset`, unless that is in the middle of a commit.
    fn end_at(&self, offset: u64) -> u64 {
        if self.commit_left > 0 { self.commit_offset } else { offset }
    }
}

fn newer_record(number: u32) -> Error {
    Error::UnknownFormat(format!("segment {number}").into(), "a newer release's record")
}

/// Whether a record's payload matches its checksums.
fn verify(file: &dyn DiskFile, record: &Record) -> Result<bool, Error> {
    if !record.kind.writes() || record.is(flags::HOLE) {
        return Ok(true);
    }
    let mut payload = vec![0; usize::try_from(record.payload_bytes).expect("at least 32 bits")];
    let offset = u64::from(record.block) * LOG_BLOCK_U64 + header_length(record);
    let got = read_full(file, &mut payload, offset).map_err(|error| Error::io("read the log", error))?;
    Ok(got == payload.len() && verify_blocks(record.from, &payload, &record.crcs).is_ok())
}

fn length(file: &dyn DiskFile) -> Result<u64, Error> {
    file.length().map_err(|error| Error::io("stat a segment", error))
}
