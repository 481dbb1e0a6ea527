//! Parts of a unit's bytes: stored extents with their records' headers, which locate the payload and its
//! checksums.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use braid_layout::{ObjectId, PartitionId};

use crate::crc::{BLOCK_BYTES, blocks, crc32c};
use crate::disk::read_full;
use crate::error::Error;
use crate::files::{Files, Open};
use crate::format::extent::Extent;
use crate::format::record::{HEADER_BYTES_MAX, PAGE_BYTES, Record, decode_record};
use crate::format::{DecodeError, LOG_BLOCK, LOG_BLOCK_U64, padded};
use crate::header_cache::{CachedHeader, HeaderCache};
use crate::index::extent::Few;

/// Bytes of a header's first read: enough for the checksums of 3 MiB.
const HEADER_BYTES_FIRST: usize = 4096;
/// A part of at most this many bytes is likely a whole record: its payload is read along with the header.
pub(crate) const NEAR_BYTES_MAX: u32 = 16 << 10;

/// The most bytes per read for verification: the system reads ahead while they are verified, and longer reads
/// would wait for it (ext4, units of 1 MiB from the medium, means of nine: 500 MiB/s by 4 KiB, 580 by 32 KiB,
/// 475 by 128 KiB, 400 by 1 MiB).
const VERIFIED_BYTES_MAX: u32 = 32 << 10;
const _: () = assert!(VERIFIED_BYTES_MAX.is_multiple_of(BLOCK_BYTES), "pieces end where blocks do");

/// The owner of the bytes, as the records must state it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) salt: u64,
    pub(crate) partition: PartitionId,
    pub(crate) object: ObjectId,
    pub(crate) unit: u64,
}

/// Choice between reads that may wait for the medium and reads that may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Waits,
    /// A read of bytes that are not in memory fails with [`Error::WouldWait`].
    AtOnce,
}

/// A stored extent with the file it lies in.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) extent: Extent,
    pub(crate) file: Arc<Open>,
    patience: Patience,
}

/// A stored extent whose record's header was read, which locates its payload and checksums.
pub(crate) struct Part {
    from: u32,
    to: u32,
    header: CachedHeader,
    /// Checksums of the stored blocks that contain the part.
    crcs: Few<u32>,
    file: Arc<Open>,
    patience: Patience,
    /// The record's whole payload, unverified, if it was read with the header.
    near: Option<Vec<u8>>,
}

/// A stretch of the requested range. Neighbours differ in kind, and together they make up the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewExtent {
    /// Reads as zeros. Not sent.
    Hole {
        /// First byte in the unit.
        from: u32,
        /// One past the last byte in the unit.
        to: u32,
    },
    Stored {
        /// First byte in the unit.
        from: u32,
        /// One past the last byte in the unit.
        to: u32,
    },
}

/// Bytes of a stored extent as they lie in a file, for the kernel's zero-copy.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The file. Its contents do not change while this is held.
    pub(crate) file: Arc<Open>,
    /// Byte offset in the file.
    pub offset: u64,
    pub length: u32,
}

impl Piece {
    /// The operating system's file, to send the bytes from. Pages that were sent are never overwritten, even
    /// after the piece is dropped. `None`: it is not a file of the operating system.
    pub fn lend(&self) -> Option<&File> {
        self.file.lend()
    }
}

/// The stored extents with their files. The index must be locked, so that no file is removed meanwhile.
pub(crate) fn stored(files: &Files, extents: &[Extent], patience: Patience) -> Result<Few<Stored>, Error> {
    let mut stored = Few::new();
    for &extent in extents.iter().filter(|extent| !extent.is_hole()) {
        let file = match patience {
            Patience::Waits => files.get(extent.segment)?,
            Patience::AtOnce => files.open_now(extent.segment).ok_or(Error::WouldWait)?,
        };
        stored.push(Stored { extent, file, patience });
    }
    Ok(stored)
}

/// Read the headers of the extents' records, or find them in `headers`.
pub(crate) fn load(
    stored: impl IntoIterator<Item = Stored>,
    whose: Whose,
    headers: Option<&HeaderCache>,
) -> Result<Few<Part>, Error> {
    let mut parts = Few::new();
    for stored in stored {
        parts.push(Part::load(stored, whose, headers)?);
    }
    Ok(parts)
}

impl Part {
    fn load(stored: Stored, whose: Whose, headers: Option<&HeaderCache>) -> Result<Part, Error> {
        let Stored { extent: Extent { from, to, segment, block }, file: _, patience } = stored;
        let kept = headers.and_then(|headers| headers.find(&stored.extent, &(from..to)));
        if let Some((header, crcs)) = kept {
            return Ok(Part { from, to, header, crcs, file: stored.file, patience, near: None });
        }
        let file = stored.file;
        let offset = u64::from(block) * LOG_BLOCK_U64;
        let payload = if to - from <= NEAR_BYTES_MAX { to - from } else { 0 };
        let payload = padded(usize::try_from(payload).expect("it is short"));
        let (record, mut read) = read_header(&file, offset, LOG_BLOCK + payload, patience)?;
        let damaged = |what| Error::Damaged { segment: u64::from(segment), offset, what };
        let record = record.map_err(|_| damaged("a record's header is damaged"))?;
        let here = (record.segment, record.block, record.salt) == (segment, block, whose.salt);
        let own =
            (record.partition, record.object, record.unit) == (whose.partition, whose.object, whose.unit);
        if !here || !own || record.crcs.is_empty() || record.from > from || record.to < to {
            return Err(damaged("another record is where the unit's bytes should be"));
        }
        let begin = record.header_padded();
        let near = begin..begin.saturating_add(usize::try_from(record.payload_bytes).expect("memory"));
        let near = (near.end <= read.len()).then(|| {
            read.truncate(near.end);
            read.drain(..near.start);
            read
        });
        let header = CachedHeader {
            segment,
            block,
            payload_offset: offset + u64::try_from(begin).expect("bounded"),
            payload: record.from..record.to,
        };
        if let Some(headers) = headers {
            headers.keep(&header, &record.crcs);
        }
        let crcs = record.crcs.get(header.crcs_of(&(from..to))).map(Few::from_slice);
        let crcs = crcs.ok_or(damaged("a record has fewer checksums than blocks"))?;
        Ok(Part { from, to, header, crcs, file, patience, near })
    }

    fn into_piece(self) -> Piece {
        let offset = self.offset_of(self.from);
        Piece { file: self.file, offset, length: self.to - self.from }
    }

    /// File offset of the unit's byte `at`.
    fn offset_of(&self, at: u32) -> u64 {
        self.header.offset_of(at)
    }

    /// The stored checksums of the leading blocks of `at..to`, as long as each is a whole stored block that
    /// lies in the part.
    fn whole_crcs(&self, at: u32, to: u32) -> &[u32] {
        let payload = &self.header.payload;
        let begins = at.is_multiple_of(BLOCK_BYTES) || at == payload.start;
        let ends = self.to.is_multiple_of(BLOCK_BYTES) || (self.to == payload.end && self.to == to);
        let block = |at: u32| at / BLOCK_BYTES - self.from / BLOCK_BYTES;
        let end = if ends { block(self.to - 1) + 1 } else { block(self.to) };
        let range = block(at)..if begins { end } else { 0 };
        let index = |block| usize::try_from(block).expect("at most 16385");
        self.crcs.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    /// The stored bytes of `range`, unverified.
    fn read(&self, range: Range<u32>) -> Result<Vec<u8>, Error> {
        let at = |at: u32| usize::try_from(at - self.header.payload.start).expect("at most a unit");
        if let Some(near) = &self.near {
            return Ok(near[at(range.start)..at(range.end)].to_vec());
        }
        let mut bytes = vec![0; range.len()];
        read_stored(&self.file, &mut bytes, self.offset_of(range.start), self.patience)?;
        Ok(bytes)
    }

    /// The bytes of `range`. Every stored block they touch is verified.
    fn read_verified(&self, range: &Range<u32>) -> Result<Vec<u8>, Error> {
        let stored = self.header.stored_blocks(range);
        let first = stored.start;
        let mut bytes = self.read(stored.clone())?;
        let at = |at: u32| usize::try_from(at - first).expect("at most a unit");
        let crcs = self.header.crcs_of(range);
        let skipped = self.header.crcs_of(&(self.from..self.to)).start;
        for (block, &crc) in blocks(stored).zip(&self.crcs[crcs.start - skipped..crcs.end - skipped]) {
            self.header.verify(block.start, &bytes[at(block.start)..at(block.end)], crc)?;
        }
        bytes.truncate(at(range.end));
        bytes.drain(..at(range.start));
        Ok(bytes)
    }
}

/// `range` cut into holes and runs of stored bytes.
pub(crate) fn extents(parts: &[Part], range: &Range<u32>) -> Few<ViewExtent> {
    let mut out: Few<ViewExtent> = Few::new();
    let mut at = range.start;
    for part in parts {
        if part.from > at {
            out.push(ViewExtent::Hole { from: at, to: part.from });
        }
        at = part.to;
        match out.last_mut() {
            Some(ViewExtent::Stored { to, .. }) if *to == part.from => *to = part.to,
            _ => out.push(ViewExtent::Stored { from: part.from, to: part.to }),
        }
    }
    if at < range.end {
        out.push(ViewExtent::Hole { from: at, to: range.end });
    }
    out
}

/// The places of the parts in their files.
pub(crate) fn pieces(parts: Few<Part>) -> Few<Piece> {
    let mut pieces = Few::new();
    for part in parts {
        pieces.push(part.into_piece());
    }
    pieces
}

/// Returns true if the parts' bytes should be read now: they are few, and some are in memory already or must
/// be read for their checksums.
pub(crate) fn is_at_hand(parts: &[Part]) -> bool {
    let bytes: u32 = parts.iter().map(|part| part.to - part.from).sum();
    let ragged = |part: &Part| part.header.stored_blocks(&(part.from..part.to)) != (part.from..part.to);
    bytes <= NEAR_BYTES_MAX && parts.iter().any(|part| part.near.is_some() || ragged(part))
}

/// The concatenated bytes of the parts, all verified.
pub(crate) fn gather(parts: &[Part]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for part in parts {
        let bytes = part.read_verified(&(part.from..part.to))?;
        if out.is_empty() { out = bytes } else { out.extend_from_slice(&bytes) }
    }
    Ok(out)
}

/// The checksums of the blocks of `extents`, which consist of `parts`.
pub(crate) fn block_crcs(parts: &[Part], extents: &[ViewExtent]) -> Result<Few<u32>, Error> {
    let mut out = Few::new();
    let mut first = 0;
    for extent in extents {
        let &ViewExtent::Stored { from, to } = extent else { continue };
        let mut at = from;
        while at < to {
            while parts[first].to <= at {
                first += 1;
            }
            let whole = parts[first].whole_crcs(at, to);
            if !whole.is_empty() {
                out.extend_from_slice(whole);
                let blocks = u32::try_from(whole.len()).expect("at most 16385");
                at = (at / BLOCK_BYTES + blocks).saturating_mul(BLOCK_BYTES).min(to);
                continue;
            }
            let block = at..(at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(to);
            let mut bytes = Vec::with_capacity(block.len());
            for part in parts[first..].iter().take_while(|part| part.from < block.end) {
                let range = part.from.max(block.start)..part.to.min(block.end);
                bytes.extend_from_slice(&part.read_verified(&range)?);
            }
            out.push(crc32c(&bytes));
            at = block.end;
        }
    }
    Ok(out)
}

/// Append the parts' bytes to `to`, unverified.
pub(crate) fn read_parts(parts: &[Part], to: &mut Vec<u8>) -> Result<(), Error> {
    for part in parts {
        let begin = to.len();
        to.resize(begin + usize::try_from(part.to - part.from).expect("at most a unit"), 0);
        read_stored(&part.file, &mut to[begin..], part.offset_of(part.from), part.patience)?;
    }
    Ok(())
}

/// The bytes of `range`: `parts`, zeros between them, and `layers` xored in. All bytes read are verified.
pub(crate) fn bytes_of(parts: &[Part], layers: &[Part], range: &Range<u32>) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; range.len()];
    let within = |part: &Part| part.from.max(range.start)..part.to.min(range.end);
    let place = |within: &Range<u32>| {
        let offset = |at: u32| usize::try_from(at - range.start).expect("at most a unit");
        offset(within.start)..offset(within.end)
    };
    for part in parts {
        let within = within(part);
        if !within.is_empty() {
            out[place(&within)].copy_from_slice(&part.read_verified(&within)?);
        }
    }
    for part in layers {
        let within = within(part);
        if !within.is_empty() {
            let bytes = part.read_verified(&within)?;
            out[place(&within)].iter_mut().zip(&bytes).for_each(|(to, from)| *to ^= from);
        }
    }
    Ok(out)
}

/// Drop the headers of the extents' records from the cache, so that they are read from the medium.
pub(crate) fn drop_headers(stored: &[Stored]) {
    let most = u64::try_from(HEADER_BYTES_MAX).expect("bounded");
    for Stored { extent, file, .. } in stored {
        let offset = u64::from(extent.block) * LOG_BLOCK_U64;
        file.drop_cache(offset..offset + most);
    }
}

/// Drop the extents' whole records, at their greatest possible length, from the cache.
pub(crate) fn drop_records(stored: &[Stored]) {
    let header = u64::try_from(HEADER_BYTES_MAX + PAGE_BYTES).expect("bounded");
    for Stored { extent, file, .. } in stored {
        let offset = u64::from(extent.block) * LOG_BLOCK_U64;
        // The payload may begin before the extent, which is a part of it.
        file.drop_cache(offset..offset + header + u64::from(extent.to));
    }
}

/// Drop the parts' bytes from the cache.
pub(crate) fn drop_payloads(parts: &[Part]) {
    for part in parts.iter().filter(|part| part.near.is_none()) {
        part.file.drop_cache(part.offset_of(part.from)..part.offset_of(part.to));
    }
}

/// Read and verify every stored block that `parts` touch. Returns the number of bytes.
pub(crate) fn verify(parts: &[Part]) -> Result<u64, Error> {
    let mut bytes = 0;
    for part in parts {
        let Range { start: mut at, end } = part.header.stored_blocks(&(part.from..part.to));
        while at < end {
            let piece = at..(at / VERIFIED_BYTES_MAX + 1).saturating_mul(VERIFIED_BYTES_MAX).min(end);
            at = piece.end;
            bytes += u64::from(piece.end - piece.start);
            if part.read_verified(&piece).is_err() {
                // Block by block, to report exactly where.
                blocks(piece).try_for_each(|block| part.read_verified(&block).map(drop))?;
            }
        }
    }
    Ok(bytes)
}

/// Read and check the header of the record at `offset`: one read, except for the longest headers. The bytes
/// read are at least `least`, unless the file ends.
fn read_header(
    file: &Open,
    offset: u64,
    least: usize,
    patience: Patience,
) -> Result<(Result<Record, DecodeError>, Vec<u8>), Error> {
    let mut bytes = vec![0; least.max(HEADER_BYTES_FIRST)];
    loop {
        let got = read(file, &mut bytes, offset, patience, "read a record's header")?;
        match decode_record(&bytes[..got]) {
            Err(DecodeError::Short(needed)) if got == bytes.len() => bytes.resize(needed, 0),
            decoded => {
                bytes.truncate(got);
                return Ok((decoded, bytes));
            }
        }
    }
}

/// Read bytes that the log must have. If the file ends before them, it is damaged.
pub(crate) fn read_stored(file: &Open, to: &mut [u8], offset: u64, patience: Patience) -> Result<(), Error> {
    let got = read(file, to, offset, patience, "read stored bytes")?;
    if got == to.len() {
        return Ok(());
    }
    if patience == Patience::AtOnce {
        // The rest may be on the medium.
        return Err(Error::WouldWait);
    }
    let segment = u64::from(file.number);
    Err(Error::Damaged { segment, offset, what: "a segment ends before its bytes" })
}

/// Fill `to` from `offset`, up to the file's end. A read that may not wait may return less.
fn read(
    file: &Open,
    to: &mut [u8],
    offset: u64,
    patience: Patience,
    what: &'static str,
) -> Result<usize, Error> {
    match patience {
        Patience::Waits => read_full(&**file, to, offset).map_err(|error| Error::io(what, error)),
        Patience::AtOnce => file.read_cached_at(to, offset).ok_or(Error::WouldWait),
    }
}
