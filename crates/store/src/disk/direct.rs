//! Past the page cache (`O_DIRECT`): the device reads and writes the caller's memory, in whole blocks at aligned addresses.
//!
//! Records lie at multiples of 512 bytes, so that is the unit. What does not fit is copied through an aligned buffer.

use std::fs::File;
use std::io::IoSlice;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, statx};

/// Offsets and lengths are multiples of this; what the log is made of.
const BLOCK: usize = 512;
const BLOCK_U64: u64 = 512;
/// Addresses are multiples of this: enough for every device.
const ALIGNMENT: usize = 4096;
/// The most bytes of one call; longer ones are cut short and go on with the next.
const BYTES_MAX: usize = 4 << 20;
/// Buffers kept for the next call.
const KEPT_MAX: usize = 16;

/// Why the files of a directory cannot be reached past the page cache; `None`: they can.
pub(crate) fn refusal(dir: &File) -> Option<String> {
    // A file system tells it of files, not of directories: one without a name.
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    let file = match rustix::fs::openat(dir, ".", flags, rustix::fs::Mode::RUSR) {
        Ok(file) => file,
        Err(error) => return Some(error.to_string()),
    };
    match statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Err(error) => Some(error.to_string()),
        Ok(stat) if stat.stx_dio_offset_align == 0 => Some("not offered by the file system".to_owned()),
        Ok(stat) if stat.stx_dio_offset_align > 512 || stat.stx_dio_mem_align > 4096 => {
            Some(format!("only in units of {} bytes", stat.stx_dio_offset_align))
        }
        Ok(_) => None,
    }
}

/// Whether memory, offset and length are aligned.
pub(crate) fn fits(bytes: &[u8], offset: u64) -> bool {
    bytes.as_ptr().align_offset(ALIGNMENT) == 0
        && bytes.len().is_multiple_of(BLOCK)
        && offset.is_multiple_of(BLOCK_U64)
}

/// The blocks around a range.
pub(crate) struct Around {
    /// Where they begin.
    pub(crate) from: u64,
    /// Their length.
    pub(crate) bytes: usize,
    /// Bytes before the range.
    pub(crate) skip: usize,
}

pub(crate) fn around(offset: u64, bytes: usize) -> Around {
    let skip = offset % BLOCK_U64;
    let from = offset - skip;
    let skip = usize::try_from(skip).expect("below a block");
    Around { from, bytes: (skip + bytes.min(BYTES_MAX)).next_multiple_of(BLOCK), skip }
}

/// How many bytes of `buffers` to write at once; `None` if they are not whole blocks.
pub(crate) fn gathered_bytes(buffers: &[IoSlice<'_>], offset: u64) -> Option<usize> {
    let bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let whole = bytes.is_multiple_of(BLOCK) && offset.is_multiple_of(BLOCK_U64);
    whole.then_some(bytes.min(BYTES_MAX))
}

/// Fill `to` with the beginning of `buffers`.
pub(crate) fn gather(buffers: &[IoSlice<'_>], mut to: &mut [u8]) {
    for buffer in buffers {
        let count = buffer.len().min(to.len());
        let (head, rest) = to.split_at_mut(count);
        head.copy_from_slice(&buffer[..count]);
        to = rest;
    }
}

/// Aligned memory, used again and again.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// Some of it.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl Buffers {
    pub(crate) fn take(&self, bytes: usize) -> Buffer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut memory = kept.unwrap_or_default();
        if memory.len() < bytes + ALIGNMENT {
            memory.resize(bytes + ALIGNMENT, 0);
        }
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        Buffer { memory, begin, bytes }
    }

    pub(crate) fn give(&self, buffer: Buffer) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(buffer.memory);
        }
    }
}

impl Buffer {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }
}
