//! A view of one version of a unit: what a read found, and the way to its bytes.
//!
//! The view names files and offsets; it stays valid whatever is written, removed or freed after. Checksums come from
//! the log, unverified, for blocks that are asked for as they were stored: whoever receives the bytes verifies, end to
//! end. A block of which only a part is asked, or which several records share, is read whole, verified, and its part
//! gets a checksum of its own.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use braid_layout::{ColumnMask, Generation, Version};
use bytes::Bytes;

use crate::crc::{blocks, crc32c};
use crate::error::Error;
use crate::files::Open;
use crate::mutation::WriteKind;
use crate::part::{Few, read_stored};
use crate::seen::Seen;

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
    /// The file: it stays as it is as long as this is held.
    pub(crate) file: Arc<Open>,
    /// Offset in it.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Piece {
    /// The operating system's file, to send the bytes from: what was sent stays as it is in the page cache for good, also once
    /// the piece is gone. `None`: it is not reached through the page cache.
    pub fn lend(&self) -> Option<&File> {
        self.file.lend()
    }
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
    /// The object's generation.
    pub g: Generation,
    /// The object's set.
    pub set: ColumnMask,
    /// The object's joining columns.
    pub joining: ColumnMask,
    pub(crate) extents: Few<ViewExtent>,
    pub(crate) held: Held,
}

/// Where a view has its stored bytes and their checksums.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    /// One extent, in one record, each block as it was stored: what most reads find, which then takes nothing but this.
    Record {
        /// The segment's.
        file: Seen<Open>,
        /// Where it begins in it.
        offset: u64,
        blocks: Few<u32>,
    },
    /// In files.
    Files { pieces: Few<Piece>, blocks: Few<u32> },
    /// In memory already, or in no file as they are: parity with deltas.
    Memory { bytes: Bytes, blocks: Few<u32> },
}

impl View {
    /// The asked range, cut into holes and stored bytes.
    pub fn extents(&self) -> &[ViewExtent] {
        &self.extents
    }

    /// The CRC32C of each block of the stored extents, extent by extent; blocks are cut at multiples of 4096 of the
    /// unit's offset and at the extent's ends. A block stored as it is asked for has its stored checksum, unverified:
    /// the reader at the far end verifies. Of any other the stored blocks were read and verified.
    pub fn blocks(&self) -> &[u32] {
        match &self.held {
            Held::Record { blocks, .. } | Held::Files { blocks, .. } | Held::Memory { blocks, .. } => blocks,
        }
    }

    /// Bytes of all stored extents.
    pub fn stored_bytes(&self) -> u32 {
        let stored = |extent: &ViewExtent| match *extent {
            ViewExtent::Stored { from, to } => to - from,
            ViewExtent::Hole { .. } => 0,
        };
        self.extents.iter().map(stored).sum()
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
        match &self.held {
            Held::Record { file, offset, .. } => read_stored(file, to, *offset),
            Held::Files { pieces, .. } => {
                let mut rest = to;
                for piece in pieces {
                    let length = usize::try_from(piece.length).expect("at most a unit");
                    let (head, tail) = rest.split_at_mut(length);
                    read_stored(&piece.file, head, piece.offset)?;
                    rest = tail;
                }
                Ok(())
            }
            Held::Memory { bytes, .. } => {
                to.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// The checksums of the blocks of the stored extents, whose bytes these are.
    pub(crate) fn stored_crcs(&self, bytes: &[u8]) -> Few<u32> {
        let mut rest = bytes;
        let stored = self.extents.iter().filter_map(|extent| match *extent {
            ViewExtent::Stored { from, to } => Some(from..to),
            ViewExtent::Hole { .. } => None,
        });
        let crc = |block: Range<u32>| {
            let (head, tail) = rest.split_at(block.len());
            rest = tail;
            crc32c(head)
        };
        stored.flat_map(blocks).map(crc).collect()
    }

    /// Whether all stored bytes are in the page cache now, so that sending them from their files waits for no disk. Where the
    /// kernel does not tell, or the view holds the bytes, or they are in no file of its: no.
    pub fn is_resident(&self) -> bool {
        let resident = |file: &Open, offset, length: u32| file.is_cached(offset..offset + u64::from(length));
        match &self.held {
            Held::Record { file, offset, .. } => resident(file, *offset, self.stored_bytes()),
            Held::Files { pieces, .. } => {
                pieces.iter().all(|piece| resident(&piece.file, piece.offset, piece.length))
            }
            Held::Memory { .. } => false,
        }
    }

    /// Where the stored bytes lie, in order. None for what the view holds itself: bytes of a few KiB that were read for their
    /// checksums, and parity with deltas, which is made when it is looked up.
    pub fn pieces(&self) -> Vec<Piece> {
        match &self.held {
            Held::Record { file, offset, .. } => {
                vec![Piece { file: file.to_arc(), offset: *offset, length: self.stored_bytes() }]
            }
            Held::Files { pieces, .. } => pieces.to_vec(),
            Held::Memory { .. } => Vec::new(),
        }
    }
}
