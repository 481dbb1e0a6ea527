//! A view of one version of a unit: the result of a read, and the way to its bytes.
//!
//! The view names files and offsets, and stays valid whatever is written, removed or freed later. Blocks that
//! are requested as they were stored come with their checksums from the log, unverified: the receiver
//! verifies them, end to end. A block that is requested in part, or that several records share, is read whole
//! and verified, and its part gets a checksum of its own.

use std::ops::Range;

use braid_layout::{ColumnMask, Generation, Version};
use bytes::Bytes;

use crate::crc::{blocks, crc32c};
use crate::error::Error;
use crate::index::extent::Few;
use crate::mutation::WriteKind;
use crate::stored_extent::{Patience, Piece, ViewExtent, read_stored};

/// The result of a read. It stays valid whatever is written or removed later.
#[derive(Debug, Clone)]
pub struct View {
    /// The version's name; zero: never written.
    pub version: Version,
    /// True if this version is pending.
    pub pending: bool,
    /// Kind of the version's content; `Data` for a unit that was never written.
    pub kind: WriteKind,
    /// The columns that the version's write touched.
    pub columns: ColumnMask,
    /// Parity kinds: per data column the version that is included.
    pub cover: Vec<Version>,
    /// One past the last byte that is not in a hole. Parity kinds: of each data unit, in the version that is
    /// included; else of the unit itself, in this version. Empty for a unit that was never written.
    pub ends: Vec<u32>,
    /// The object's generation.
    pub g: Generation,
    /// The object's set.
    pub set: ColumnMask,
    /// The object's joining columns.
    pub joining: ColumnMask,
    pub(crate) extents: Few<ViewExtent>,
    pub(crate) held: ViewBytes,
}

/// The place of a view's stored bytes, and their checksums.
#[derive(Debug, Clone)]
pub(crate) enum ViewBytes {
    Files {
        pieces: Few<Piece>,
        blocks: Few<u32>,
    },
    /// Bytes in memory already, or that no file has as they are: parity with deltas.
    Memory {
        bytes: Bytes,
        blocks: Few<u32>,
    },
}

impl View {
    /// The requested range, cut into holes and stored bytes.
    pub fn extents(&self) -> &[ViewExtent] {
        &self.extents
    }

    /// The CRC32C of each block of the stored extents, extent by extent. Blocks are cut at multiples of 4096
    /// of the unit's offset and at the extent's ends. A block requested as it was stored has its stored
    /// checksum, unverified: the receiver verifies. For any other block the stored blocks were read and
    /// verified.
    pub fn blocks(&self) -> &[u32] {
        match &self.held {
            ViewBytes::Files { blocks, .. } | ViewBytes::Memory { blocks, .. } => blocks,
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

    /// Fill `to` with the stored extents' bytes, without the holes. `to` must be exactly
    /// [`View::stored_bytes`] long: [`Error::Malformed`] otherwise.
    pub fn read_exact_into(&self, to: &mut [u8]) -> Result<(), Error> {
        self.read_into(to, Patience::Waits)
    }

    /// As [`View::read_exact_into`], but never waits: [`Error::WouldWait`] if a byte is not in memory.
    pub fn read_at_once_into(&self, to: &mut [u8]) -> Result<(), Error> {
        self.read_into(to, Patience::AtOnce)
    }

    fn read_into(&self, to: &mut [u8], patience: Patience) -> Result<(), Error> {
        if u32::try_from(to.len()) != Ok(self.stored_bytes()) {
            return Err(Error::Malformed("the buffer is not as long as the view's stored bytes"));
        }
        match &self.held {
            ViewBytes::Files { pieces, .. } => {
                let mut rest = to;
                for piece in pieces {
                    let length = usize::try_from(piece.length).expect("at most a unit");
                    let (head, tail) = rest.split_at_mut(length);
                    read_stored(&piece.file, head, piece.offset, patience)?;
                    rest = tail;
                }
                Ok(())
            }
            ViewBytes::Memory { bytes, .. } => {
                to.copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// The checksums of the stored extents' blocks, computed from `bytes`, which are the extents' bytes.
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

    /// Returns true if all stored bytes are in the page cache now, so that sending them does not wait for the
    /// disk. False if the kernel does not tell, or if the view itself holds the bytes.
    pub fn is_resident(&self) -> bool {
        let resident =
            |piece: &Piece| piece.file.is_cached(piece.offset..piece.offset + u64::from(piece.length));
        match &self.held {
            ViewBytes::Files { pieces, .. } => pieces.iter().all(resident),
            ViewBytes::Memory { .. } => false,
        }
    }

    /// The places of the stored bytes in files, in order. Empty if the view itself holds them: a few KiB that
    /// were read for their checksums, and parity with deltas, which is computed at lookup.
    pub fn pieces(&self) -> Vec<Piece> {
        match &self.held {
            ViewBytes::Files { pieces, .. } => pieces.to_vec(),
            ViewBytes::Memory { .. } => Vec::new(),
        }
    }
}
