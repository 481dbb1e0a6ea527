//! Memory that is used again: a fresh MiB costs a page fault per page, and to be cleared.

use std::sync::{Mutex, PoisonError};

/// Length of a buffer: what the kernel reads at once, at most.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
const KEPT_MAX: usize = 32;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) buffer: Vec<u8>,
    /// Bytes of it that count; behind them is anything.
    pub(crate) bytes: usize,
}

impl Buffers {
    /// A buffer of so many bytes at least, with any content.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let kept = if bytes <= BUFFER_BYTES { self.free().pop() } else { None };
        kept.unwrap_or_else(|| vec![0; bytes.max(BUFFER_BYTES)])
    }

    /// It is not used any more.
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
