//! Read buffers that are used again: a fresh MiB costs a page fault per page, and must be cleared.

use std::sync::{Mutex, PoisonError};

/// Length of a buffer in bytes: the maximum that the kernel reads at once.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
const KEPT_MAX: usize = 32;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer with the bytes that were read.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) buffer: Vec<u8>,
    /// Number of bytes that were read; the rest of the buffer has any content.
    pub(crate) bytes: usize,
}

impl Buffers {
    /// A buffer of so many bytes at least, with any content.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let kept = if bytes <= BUFFER_BYTES { self.free().pop() } else { None };
        kept.unwrap_or_else(|| vec![0; bytes.max(BUFFER_BYTES)])
    }

    /// Gives back a buffer that is no longer used.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut free = self.free();
        if free.len() < KEPT_MAX && buffer.len() == BUFFER_BYTES {
            free.push(buffer);
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filled {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }
}
