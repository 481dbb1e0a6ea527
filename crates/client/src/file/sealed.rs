//! Files of encrypted volumes: what is read and written here are the file's bytes, and what goes to drives
//! and comes from them are sealed blocks ([`crate::sealed`]).
//!
//! - Reads get whole blocks, also beyond the size, as a writer may have made the last block longer meanwhile.
//!   A block that does not open is read again, as it may be in the middle of being written; then the read
//!   fails, and names it. No byte of it is returned.
//! - Writes make whole blocks. The first and the last are read first if they keep some of their bytes. Each
//!   block lies in one unit: after a crash it is the old one or the new one.
//! - A cut within a block seals what is left of it when the manager has the new size, and before the bytes
//!   behind it are removed. If the writer dies between, who opens the file next does both.
//! - The file has one writer, so the end of the file, and places for appends, are known here.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::File;
use crate::data::extents;
use crate::data::write::Source;
use crate::error::{Error, Result};
use crate::sealed::block::{FileSeals, Opener};
use crate::sealed::geometry::{
    BLOCK_BYTES, PLAIN_BYTES, blocks, length, plain_of, plain_range, stored_range, stored_size,
};
use crate::sealed::locks::BlockLocks;

/// Blocks that are sealed or opened at a time, up to a multiple of so many: 16 MiB, so whole stripes of them.
const PIECE_BLOCKS: u64 = 4096;
/// Pauses before a block that does not open is read again.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// The part of an open file whose bytes are sealed.
pub(crate) struct Sealed {
    seals: FileSeals,
    locks: BlockLocks,
    /// One past the last byte that was given to an append.
    reserved: Mutex<u64>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed")
    }
}

impl Sealed {
    pub(crate) fn new(seals: FileSeals) -> Sealed {
        Sealed { seals, locks: BlockLocks::default(), reserved: Mutex::new(0) }
    }

    fn reserved(&self) -> MutexGuard<'_, u64> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset that the next append gets, if nobody else is given it first.
    fn next_place(&self, size: u64) -> u64 {
        size.max(*self.reserved())
    }

    /// Gives these bytes to an append, unless they are not at the end any more.
    fn give_place(&self, size: u64, place: &Range<u64>) -> bool {
        let mut reserved = self.reserved();
        let is_next = size.max(*reserved) == place.start;
        if is_next {
            *reserved = place.end;
        }
        is_next
    }

    /// Takes back what was given to an append that failed, unless others have places behind it.
    fn take_back(&self, place: &Range<u64>) {
        let mut reserved = self.reserved();
        if *reserved == place.end {
            *reserved = place.start;
        }
    }

    /// Forgets what was given to appends, as the file was cut.
    pub(super) fn forget_places(&self) {
        *self.reserved() = 0;
    }
}

impl File {
    /// Reads these bytes, which are within the size.
    pub(super) async fn read_sealed(&self, sealed: &Sealed, buffer: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + bytes_of(buffer);
        let all = blocks(&(offset..end));
        let mut opener = sealed.seals.opener();
        let mut whole = vec![0; length(PLAIN_BYTES)];
        let mut first = all.start;
        while first < all.end {
            let piece = first..all.end.min((first / PIECE_BLOCKS + 1) * PIECE_BLOCKS);
            let mut stored = vec![0; length((piece.end - piece.start) * BLOCK_BYTES)];
            self.read_stored(&mut stored, piece.start * BLOCK_BYTES).await?;
            for (block, stored) in piece.clone().zip(stored.chunks_exact(length(BLOCK_BYTES))) {
                let of_block = plain_of(&(block..block + 1));
                let from = offset.max(of_block.start);
                let to = end.min(of_block.end);
                let into = &mut buffer[length(from - offset)..length(to - offset)];
                if into.len() == whole.len() {
                    self.open_block(&mut opener, block, stored, into).await?;
                } else {
                    self.open_block(&mut opener, block, stored, &mut whole).await?;
                    let begin = length(from - of_block.start);
                    into.copy_from_slice(&whole[begin..begin + into.len()]);
                }
            }
            first = piece.end;
        }
        Ok(())
    }

    /// Opens a block that was read, and reads it again if it does not open.
    async fn open_block(
        &self,
        opener: &mut Opener<'_>,
        block: u64,
        stored: &[u8],
        plain: &mut [u8],
    ) -> Result<usize> {
        if let Ok(bytes) = opener.open(block, stored, plain) {
            return Ok(bytes);
        }
        for pause in PAUSES {
            sleep(pause).await;
            let mut again = vec![0; length(BLOCK_BYTES)];
            self.read_stored(&mut again, block * BLOCK_BYTES).await?;
            if let Ok(bytes) = opener.open(block, &again, plain) {
                return Ok(bytes);
            }
        }
        let bytes = plain_of(&(block..block + 1));
        Err(Error::NotSealed { file: self.subject().to_owned(), block, bytes })
    }

    /// Reads a block, and returns how many bytes it holds.
    async fn read_block(&self, sealed: &Sealed, block: u64, plain: &mut [u8]) -> Result<usize> {
        let mut stored = vec![0; length(BLOCK_BYTES)];
        self.read_stored(&mut stored, block * BLOCK_BYTES).await?;
        self.open_block(&mut sealed.seals.opener(), block, &stored, plain).await
    }

    /// Writes these bytes. The caller holds `cuts`, so that nothing is cut meanwhile.
    pub(super) async fn write_sealed(&self, sealed: &Sealed, data: &[u8], offset: u64) -> Result<()> {
        let end = self.end_of(offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let all = blocks(&(offset..end));
        let _locked = sealed.locks.lock(all.clone()).await;
        let mut first = all.start;
        while first < all.end {
            let piece = first..all.end.min((first / PIECE_BLOCKS + 1) * PIECE_BLOCKS);
            let of_piece = plain_of(&piece);
            let from = offset.max(of_piece.start);
            let to = end.min(of_piece.end);
            let some = &data[length(from - offset)..length(to - offset)];
            let stored = self.seal(sealed, some, from).await?;
            self.write_from(&stored, piece.start * BLOCK_BYTES, None, Source::Still).await?;
            first = piece.end;
        }
        Ok(())
    }

    /// Seals the blocks of these bytes, with what else is in the first and the last.
    async fn seal(&self, sealed: &Sealed, data: &[u8], offset: u64) -> Result<Vec<u8>> {
        let end = offset + bytes_of(data);
        let all = blocks(&(offset..end));
        let size = self.size();
        let mut sealer = sealed.seals.sealer()?;
        let mut stored = Vec::with_capacity(length((all.end - all.start) * BLOCK_BYTES));
        for block in all {
            let of_block = plain_of(&(block..block + 1));
            let from = offset.max(of_block.start);
            let to = end.min(of_block.end);
            let new = &data[length(from - offset)..length(to - offset)];
            let keeps_before = from > of_block.start && of_block.start < size;
            let keeps_behind = to < of_block.end && to < size;
            if from == of_block.start && !keeps_behind {
                sealer.seal(block, new, &mut stored);
                continue;
            }
            let mut plain = vec![0; length(PLAIN_BYTES)];
            let mut bytes = 0;
            if keeps_before || keeps_behind {
                bytes = self.read_block(sealed, block, &mut plain).await?;
            }
            let begin = length(from - of_block.start);
            plain[begin..begin + new.len()].copy_from_slice(new);
            sealer.seal(block, &plain[..bytes.max(begin + new.len())], &mut stored);
        }
        Ok(stored)
    }

    /// Makes sure that the last block opens, if the file is to be cut within it: what is left of it is to be
    /// sealed. The caller has made sure that nothing is being written.
    pub(super) async fn may_cut(&self, sealed: &Sealed, size: u64) -> Result<()> {
        if size >= self.size() || size.is_multiple_of(PLAIN_BYTES) {
            return Ok(());
        }
        let mut plain = vec![0; length(PLAIN_BYTES)];
        self.read_block(sealed, size / PLAIN_BYTES, &mut plain).await.map(drop)
    }

    /// Seals what is left of the last block of a file that was cut to this size, unless that was done. The
    /// caller has made sure that nothing is being written.
    pub(super) async fn seal_end(&self, sealed: &Sealed, size: u64) -> Result<()> {
        let block = size / PLAIN_BYTES;
        let left = length(size % PLAIN_BYTES);
        if left == 0 {
            return Ok(());
        }
        let mut plain = vec![0; length(PLAIN_BYTES)];
        if self.read_block(sealed, block, &mut plain).await? <= left {
            return Ok(());
        }
        let mut stored = Vec::new();
        sealed.seals.sealer()?.seal(block, &plain[..left], &mut stored);
        self.write_from(&stored, block * BLOCK_BYTES, None, Source::Still).await
    }

    /// Makes a range within the size read as zeros.
    pub(super) async fn punch_sealed(&self, sealed: &Sealed, range: Range<u64>) -> Result<()> {
        let _no_cuts = self.writing()?.side.cuts.read().await;
        let size = self.size();
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(());
        }
        let all = blocks(&range);
        let _locked = sealed.locks.lock(all.clone()).await;
        let mut whole = all.clone();
        if range.start > whole.start * PLAIN_BYTES {
            self.zero(sealed, whole.start, &range).await?;
            whole.start += 1;
        }
        if whole.start < whole.end && range.end < size && range.end < whole.end * PLAIN_BYTES {
            whole.end -= 1;
            self.zero(sealed, whole.end, &range).await?;
        }
        if whole.is_empty() {
            return Ok(());
        }
        let end = plain_of(&whole).end.min(size);
        self.punch_stored(whole.start * BLOCK_BYTES..stored_size(end)).await
    }

    /// Makes a part of a block read as zeros.
    async fn zero(&self, sealed: &Sealed, block: u64, range: &Range<u64>) -> Result<()> {
        let of_block = plain_of(&(block..block + 1));
        let mut plain = vec![0; length(PLAIN_BYTES)];
        let bytes = self.read_block(sealed, block, &mut plain).await?;
        let from = length(range.start.max(of_block.start) - of_block.start);
        let to = length(range.end.min(of_block.end) - of_block.start).min(bytes);
        if from >= to {
            return Ok(());
        }
        plain[from..to].fill(0);
        let mut stored = Vec::new();
        sealed.seals.sealer()?.seal(block, &plain[..bytes], &mut stored);
        self.write_from(&stored, block * BLOCK_BYTES, None, Source::Still).await
    }

    /// Writes bytes at the end. Returns their offset.
    pub(super) async fn append_sealed(&self, sealed: &Sealed, data: &[u8]) -> Result<u64> {
        let _no_cuts = self.writing()?.side.cuts.read().await;
        let offset = self.reserve_sealed(sealed, data.len()).await?;
        let written = self.write_sealed(sealed, data, offset).await;
        if written.is_err() {
            sealed.take_back(&(offset..offset + bytes_of(data)));
        }
        written.map(|()| offset)
    }

    /// Gives bytes at the end to an append. Before that the manager has agreed to them, if there is a quota.
    pub(super) async fn reserve_sealed(&self, sealed: &Sealed, bytes: usize) -> Result<u64> {
        self.writing()?.side.check(self.subject())?;
        // A turn in vain is another append's success.
        loop {
            let offset = sealed.next_place(self.size());
            let end = self.end_of(offset, bytes)?;
            self.handle.reach(stored_size(end)).await?;
            if sealed.give_place(self.size(), &(offset..end)) {
                return Ok(offset);
            }
        }
    }

    /// The first range from `from` on that may hold bytes, as [`File::data_after`].
    pub(super) async fn sealed_data_after(&self, from: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        if from >= size {
            return Ok(None);
        }
        let found = extents::data_after(&self.handle, stored_range(&(from..size))).await?;
        Ok(found.map(|stored| {
            let plain = plain_range(&stored);
            plain.start.max(from)..plain.end.min(size)
        }))
    }
}

fn bytes_of(buffer: &[u8]) -> u64 {
    u64::try_from(buffer.len()).expect("a buffer is below 2^64 bytes")
}
