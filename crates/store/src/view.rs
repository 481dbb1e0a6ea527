//! A view of one version of a unit: what a read found, and the way to its bytes.
//!
//! The view names files and offsets; it stays valid whatever is written, removed or freed after. Checksums come from
//! the log, unverified, for blocks that are asked for as they were stored: whoever receives the bytes verifies, end to
//! end. A block of which only a part is asked, or which several records share, is read whole, verified, and its part
//! gets a checksum of its own.

use std::ops::Range;
use std::sync::Arc;

use braid_layout::{ColumnMask, Generation, Version};
use bytes::Bytes;

use crate::crc::{BLOCK_BYTES, blocks, crc32c};
use crate::disk::{DiskFile, read_full};
use crate::error::Error;
use crate::format::record::{HEADER_BYTES_MAX, Record, decode_record};
use crate::format::{DecodeError, LOG_BLOCK_U64};
use crate::headers::{Header, Headers};
use crate::index::extent::Extent;
use crate::mutation::WriteKind;
use crate::residency::is_resident;

/// How much of a header is read at first: enough for the checksums of 3 MiB.
const HEADER_BYTES_FIRST: usize = 4096;

/// Which version of a unit is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The tip, pending or settled.
    Newest,
    /// The newest that is known here to be settled.
    Settled,
    /// This one: [`Error::Gone`] if the chain does not hold it.
    Exactly(Version),
}

/// A stretch of the asked range, in order; neighbours differ in kind, and together they are the asked range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewExtent {
    /// Reads as zeros; not sent.
    Hole {
        /// First byte in the unit.
        from: u32,
        /// One past the last.
        to: u32,
    },
    /// Stored bytes.
    Stored {
        /// First byte in the unit.
        from: u32,
        /// One past the last.
        to: u32,
    },
}

/// Bytes of a stored extent as they lie in a file, for the kernel's zero-copy.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The file: it stays readable as long as this is held.
    pub file: Arc<dyn DiskFile>,
    /// Offset in it.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    segment: u32,
}

/// What a read found. It stays valid whatever is written or removed after.
#[derive(Debug, Clone)]
pub struct View {
    /// The version's name; zero: never written.
    pub version: Version,
    /// Whether this version is pending.
    pub pending: bool,
    /// What the version is; `Data` for a unit that was never written.
    pub kind: WriteKind,
    /// The columns its write touched.
    pub columns: ColumnMask,
    /// Parity kinds: per data column the version counted in.
    pub cover: Vec<Version>,
    /// The asked range, cut into holes and stored bytes.
    pub extents: Vec<ViewExtent>,
    /// The object's generation.
    pub g: Generation,
    /// The object's set.
    pub set: ColumnMask,
    /// The object's joining columns.
    pub joining: ColumnMask,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) blocks: Vec<u32>,
    /// The bytes, where they are in no file as they are: parity with deltas.
    pub(crate) made: Option<Bytes>,
}

impl View {
    /// The CRC32C of each block of the stored extents, extent by extent; blocks are cut at multiples of 4096 of the
    /// unit's offset and at the extent's ends. A block stored as it is asked for has its stored checksum, unverified:
    /// the reader at the far end verifies. Of any other the stored blocks were read and verified.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Bytes of all stored extents.
    pub fn stored_bytes(&self) -> u32 {
        let made = self.made.as_ref().map_or(0, |made| u32::try_from(made.len()).expect("at most a unit"));
        self.pieces.iter().map(|piece| piece.length).sum::<u32>() + made
    }

    /// Append the stored extents' bytes to `to` (holes are left out). On an error `to` is as it was.
    pub fn read_into(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let begin = to.len();
        to.resize(begin + usize::try_from(self.stored_bytes()).expect("at most a unit"), 0);
        let read = self.read_exact_into(&mut to[begin..]);
        if read.is_err() {
            to.truncate(begin);
        }
        read
    }

    /// Fill `to` with the stored extents' bytes. It must be exactly [`View::stored_bytes`] long:
    /// [`Error::Malformed`] otherwise.
    pub fn read_exact_into(&self, to: &mut [u8]) -> Result<(), Error> {
        if u32::try_from(to.len()) != Ok(self.stored_bytes()) {
            return Err(Error::Malformed("the buffer is not as long as the view's stored bytes"));
        }
        if let Some(made) = &self.made {
            to.copy_from_slice(made);
            return Ok(());
        }
        let mut rest = to;
        for piece in &self.pieces {
            let (head, tail) = rest.split_at_mut(usize::try_from(piece.length).expect("at most a unit"));
            read_stored(&*piece.file, head, piece.offset, piece.segment)?;
            rest = tail;
        }
        Ok(())
    }

    /// Whether all stored bytes are in the page cache now, so that sending them from their files waits for no disk. Where the
    /// kernel does not tell, or the bytes are in no file of its: no.
    pub fn is_resident(&self) -> bool {
        let resident = |piece: &Piece| {
            let file = piece.file.as_file();
            file.is_some_and(|file| is_resident(file, piece.offset, u64::from(piece.length)))
        };
        self.pieces.iter().all(resident)
    }

    /// Where the stored bytes lie, in order. None for parity with deltas, whose bytes are made when it is looked up.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

/// A stored extent with the file it lies in.
pub(crate) struct Stored {
    pub(crate) extent: Extent,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// A stored extent of which the record's header was read: where its payload and its checksums are.
pub(crate) struct Part {
    from: u32,
    to: u32,
    file: Arc<dyn DiskFile>,
    header: Arc<Header>,
}

/// Read the headers that the extents' records begin with, or find them in `headers`.
pub(crate) fn load(stored: Vec<Stored>, headers: Option<&Headers>) -> Result<Vec<Part>, Error> {
    stored.into_iter().map(|stored| Part::load(stored, headers)).collect()
}

impl Part {
    fn load(stored: Stored, headers: Option<&Headers>) -> Result<Part, Error> {
        let Stored { extent, file } = stored;
        if let Some(header) = headers.and_then(|headers| headers.find(extent.segment, extent.block))
            && header.payload.start <= extent.from
            && header.payload.end >= extent.to
        {
            return Ok(Part { from: extent.from, to: extent.to, file, header });
        }
        let offset = u64::from(extent.block) * LOG_BLOCK_U64;
        let record = read_header(&*file, offset)?;
        let damaged = |what| Error::Damaged { segment: u64::from(extent.segment), offset, what };
        let record = record.map_err(|_| damaged("a record's header is damaged"))?;
        let here = (record.segment, record.block) == (extent.segment, extent.block);
        if !here || record.crcs.is_empty() || record.from > extent.from || record.to < extent.to {
            return Err(damaged("another record is where the unit's bytes should be"));
        }
        let header = u64::try_from(record.header_padded()).expect("bounded");
        let header = Arc::new(Header {
            segment: extent.segment,
            block: extent.block,
            payload_offset: offset + header,
            payload: record.from..record.to,
            crcs: record.crcs,
        });
        if let Some(headers) = headers {
            headers.keep(&header);
        }
        Ok(Part { from: extent.from, to: extent.to, file, header })
    }

    fn piece(&self) -> Piece {
        let offset = self.header.payload_offset + u64::from(self.from - self.header.payload.start);
        Piece {
            file: Arc::clone(&self.file),
            offset,
            length: self.to - self.from,
            segment: self.header.segment,
        }
    }

    /// The stored block that holds the unit's byte `at`: shorter than 4 KiB at its record's ends.
    fn stored_block(&self, at: u32) -> Range<u32> {
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        from.max(self.header.payload.start)..from.saturating_add(BLOCK_BYTES).min(self.header.payload.end)
    }

    /// The stored checksum of the block that holds the unit's byte `at`.
    fn stored_crc(&self, at: u32) -> u32 {
        let block = at / BLOCK_BYTES - self.header.payload.start / BLOCK_BYTES;
        self.header.crcs[usize::try_from(block).expect("at most 16385")]
    }

    /// Its bytes, of which every stored block was verified.
    fn read_verified(&self) -> Result<Vec<u8>, Error> {
        let first = self.stored_block(self.from).start;
        let stored = first..self.stored_block(self.to - 1).end;
        let mut bytes = vec![0; stored.len()];
        let offset = self.header.payload_offset + u64::from(first - self.header.payload.start);
        read_stored(&*self.file, &mut bytes, offset, self.header.segment)?;
        let at = |at: u32| usize::try_from(at - first).expect("at most a unit");
        for block in blocks(stored) {
            if crc32c(&bytes[at(block.start)..at(block.end)]) != self.stored_crc(block.start) {
                let offset = offset + u64::from(block.start - first);
                let what = "a stored block does not match its checksum";
                return Err(Error::Damaged { segment: u64::from(self.header.segment), offset, what });
            }
        }
        bytes.truncate(at(self.to));
        bytes.drain(..at(self.from));
        Ok(bytes)
    }

    /// Read a stored block and verify it.
    fn read_block(&self, block: &Range<u32>, crc: u32) -> Result<Vec<u8>, Error> {
        let offset = self.header.payload_offset + u64::from(block.start - self.header.payload.start);
        let mut bytes = vec![0; block.len()];
        read_stored(&*self.file, &mut bytes, offset, self.header.segment)?;
        if crc32c(&bytes) == crc {
            Ok(bytes)
        } else {
            let what = "a stored block does not match its checksum";
            Err(Error::Damaged { segment: u64::from(self.header.segment), offset, what })
        }
    }
}

/// `range` cut into holes and runs of stored bytes.
pub(crate) fn extents(parts: &[Part], range: &Range<u32>) -> Vec<ViewExtent> {
    let mut out: Vec<ViewExtent> = Vec::new();
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

/// Where the parts lie.
pub(crate) fn pieces(parts: &[Part]) -> Vec<Piece> {
    parts.iter().map(Part::piece).collect()
}

/// The checksums of the blocks of `extents`, made of `parts`.
pub(crate) fn block_crcs(parts: &[Part], extents: &[ViewExtent]) -> Result<Vec<u32>, Error> {
    let mut out = Vec::new();
    let mut first = 0;
    for extent in extents {
        let &ViewExtent::Stored { from, to } = extent else { continue };
        for block in blocks(from..to) {
            while parts[first].to <= block.start {
                first += 1;
            }
            let whole = parts[first].stored_block(block.start) == block && parts[first].to >= block.end;
            if whole {
                out.push(parts[first].stored_crc(block.start));
                continue;
            }
            let mut bytes = Vec::with_capacity(block.len());
            for part in parts.iter().skip(first).take_while(|part| part.from < block.end) {
                let (from, to) = (part.from.max(block.start), part.to.min(block.end));
                let stored = part.stored_block(from);
                let content = part.read_block(&stored, part.stored_crc(from))?;
                let offset = |at: u32| usize::try_from(at - stored.start).expect("within a block");
                bytes.extend_from_slice(&content[offset(from)..offset(to)]);
            }
            out.push(crc32c(&bytes));
        }
    }
    Ok(out)
}

/// Append the parts' bytes to `to`, unverified.
pub(crate) fn read_parts(parts: &[Part], to: &mut Vec<u8>) -> Result<(), Error> {
    for piece in parts.iter().map(Part::piece) {
        let begin = to.len();
        to.resize(begin + usize::try_from(piece.length).expect("at most a unit"), 0);
        read_stored(&*piece.file, &mut to[begin..], piece.offset, piece.segment)?;
    }
    Ok(())
}

/// The bytes of `range`: `parts`, zeros between them, and `layers` xored to them. All that is read is verified.
pub(crate) fn bytes_of(parts: &[Part], layers: &[Part], range: &Range<u32>) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; range.len()];
    let place = |part: &Part| {
        let offset = |at: u32| usize::try_from(at - range.start).expect("at most a unit");
        offset(part.from)..offset(part.to)
    };
    for part in parts {
        out[place(part)].copy_from_slice(&part.read_verified()?);
    }
    for part in layers {
        let bytes = part.read_verified()?;
        out[place(part)].iter_mut().zip(&bytes).for_each(|(to, from)| *to ^= from);
    }
    Ok(out)
}

/// Have the headers of the extents' records read from the medium.
pub(crate) fn drop_headers(stored: &[Stored]) {
    let most = u64::try_from(HEADER_BYTES_MAX).expect("bounded");
    for Stored { extent, file } in stored {
        let offset = u64::from(extent.block) * LOG_BLOCK_U64;
        file.drop_cache(offset..offset + most);
    }
}

/// Have the parts' bytes read from the medium.
pub(crate) fn drop_payloads(parts: &[Part]) {
    for piece in parts.iter().map(Part::piece) {
        piece.file.drop_cache(piece.offset..piece.offset + u64::from(piece.length));
    }
}

/// Read and verify every stored block that `parts` touch.
pub(crate) fn verify(parts: &[Part]) -> Result<u64, Error> {
    let mut bytes = 0;
    for part in parts {
        for block in blocks(part.from..part.to) {
            bytes += part.read_block(&part.stored_block(block.start), part.stored_crc(block.start))?.len();
        }
    }
    Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Read and check the header of the record that begins at `offset`: one read, but for the longest.
fn read_header(file: &dyn DiskFile, offset: u64) -> Result<Result<Record, DecodeError>, Error> {
    let mut bytes = vec![0; HEADER_BYTES_FIRST];
    loop {
        let got = read_full(file, &mut bytes, offset)
            .map_err(|error| Error::io("read a record's header", error))?;
        match decode_record(&bytes[..got]) {
            Err(DecodeError::Short(needed)) if got == bytes.len() => bytes.resize(needed, 0),
            decoded => return Ok(decoded),
        }
    }
}

/// Read bytes that the log must have; a file that ends before is damaged.
fn read_stored(file: &dyn DiskFile, to: &mut [u8], offset: u64, segment: u32) -> Result<(), Error> {
    let got = read_full(file, to, offset).map_err(|error| Error::io("read stored bytes", error))?;
    if got == to.len() {
        return Ok(());
    }
    Err(Error::Damaged { segment: u64::from(segment), offset, what: "a segment ends before its bytes" })
}
