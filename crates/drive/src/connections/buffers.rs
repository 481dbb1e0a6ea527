//! Buffers for payloads: bounded in total, reused, zeroed only when allocated, aligned to a block.
//!
//! A [`Buffer`] holds its share of the bound until it is dropped, wherever it goes: into the store's queue as
//! [`bytes::Bytes`], or to a socket. A request that needs one waits; that is the drive's backpressure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Alignment of a buffer's first byte, and the unit in which the bound is counted.
const GRAIN_BYTES: usize = 4096;

/// Hands out buffers.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// One permit per grain.
    grains: Arc<Semaphore>,
    grains_max: u32,
    /// Free buffers by capacity, a power of two; together at most `kept_bytes_max`.
    free: Mutex<Free>,
    kept_bytes_max: usize,
}

#[derive(Debug, Default)]
struct Free {
    by_capacity: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// A share of the bound, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _shared: Option<OwnedSemaphorePermit>,
    _connection: Option<OwnedSemaphorePermit>,
}

/// Memory for one payload.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes before the payload, for alignment.
    pad: usize,
    /// Bytes of the payload.
    length: usize,
    pool: Arc<Shared>,
    _share: Share,
}

impl Pool {
    /// At most `bytes_max` bytes are handed out at a time; up to a quarter of that is kept when free.
    pub(crate) fn new(bytes_max: usize) -> Pool {
        let grains_max = u32::try_from(bytes_max.div_ceil(GRAIN_BYTES)).unwrap_or(u32::MAX).max(1);
        let grains = Arc::new(Semaphore::new(usize::try_from(grains_max).unwrap_or(Semaphore::MAX_PERMITS)));
        let kept_bytes_max = bytes_max / 4;
        Pool { shared: Arc::new(Shared { grains, grains_max, free: Mutex::default(), kept_bytes_max }) }
    }

    /// One connection's part of the bound. It limits how much a peer that takes no replies can hold back the
    /// others.
    pub(crate) fn connection(&self) -> Connection {
        let grains_max = (self.shared.grains_max / 8).max(1);
        let grains = Arc::new(Semaphore::new(usize::try_from(grains_max).unwrap_or(Semaphore::MAX_PERMITS)));
        Connection { pool: self.clone(), grains, grains_max }
    }
}

/// A connection's access to the pool.
#[derive(Debug)]
pub(crate) struct Connection {
    pool: Pool,
    grains: Arc<Semaphore>,
    grains_max: u32,
}

impl Connection {
    /// Waits for a share of `bytes` of the bound, at most all of it. The connection's own part comes first,
    /// so that at most one request per connection waits for memory that others hold.
    pub(crate) async fn share(&self, bytes: u32) -> Result<Share, AcquireError> {
        if bytes == 0 {
            return Ok(Share { _shared: None, _connection: None });
        }
        let grains = bytes.div_ceil(u32::try_from(GRAIN_BYTES).expect("a grain is 4 KiB"));
        let own = Arc::clone(&self.grains).acquire_many_owned(grains.min(self.grains_max)).await?;
        let shared = &self.pool.shared;
        let all = Arc::clone(&shared.grains).acquire_many_owned(grains.min(shared.grains_max)).await?;
        Ok(Share { _shared: Some(all), _connection: Some(own) })
    }

    /// A buffer for a payload of `bytes`, under `share`. Its content before it is filled is unspecified:
    /// zeros, or what an earlier request left.
    pub(crate) fn buffer(&self, bytes: u32, share: Share) -> Buffer {
        let length = usize::try_from(bytes).expect("a payload is at most 64 MiB");
        let bytes = self.pool.shared.take((length + GRAIN_BYTES).next_power_of_two());
        let pad = bytes.as_ptr().align_offset(GRAIN_BYTES).min(GRAIN_BYTES - 1);
        Buffer { bytes, pad, length, pool: Arc::clone(&self.pool.shared), _share: share }
    }
}

impl Shared {
    fn take(&self, capacity: usize) -> Vec<u8> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.by_capacity.get_mut(&capacity).and_then(Vec::pop);
        match found {
            Some(buffer) => {
                free.bytes -= capacity;
                buffer
            }
            // The allocator gets zeroed pages from the kernel: nothing is written here.
            None => vec![0; capacity],
        }
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let capacity = buffer.len();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if capacity.is_power_of_two() && free.bytes + capacity <= self.kept_bytes_max {
            free.bytes += capacity;
            free.by_capacity.entry(capacity).or_default().push(buffer);
        }
    }
}

impl Buffer {
    /// The space for the payload: all of it must be filled.
    pub(crate) fn fill(&mut self) -> &mut [u8] {
        &mut self.bytes[self.pad..self.pad + self.length]
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.pad..self.pad + self.length]
    }

    /// The payload as shared bytes; the buffer is returned when the last of them is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.payload()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn buffers_are_aligned_bounded_and_used_again() {
        let pool = Pool::new(64 << 10);
        let connection = pool.connection();
        let share = connection.share(8 << 10).await.unwrap();
        let mut buffer = connection.buffer(8 << 10, share);
        buffer.fill().fill(7);
        let address = buffer.payload().as_ptr();
        assert_eq!(address.align_offset(GRAIN_BYTES), 0);
        assert_eq!(pool.shared.grains.available_permits(), 14);
        let bytes = buffer.into_bytes();
        assert_eq!(bytes, vec![7; 8 << 10]);
        drop(bytes);
        assert_eq!(pool.shared.grains.available_permits(), 16);
        let share = connection.share(8 << 10).await.unwrap();
        let again = connection.buffer(8 << 10, share);
        assert_eq!(again.payload().len(), 8 << 10);
        assert_eq!(again.bytes.as_ptr().wrapping_add(again.pad), address);
    }

    #[tokio::test]
    async fn one_connection_holds_an_eighth_at_most() {
        let pool = Pool::new(64 << 10);
        let greedy = pool.connection();
        let other = pool.connection();
        let held = greedy.share(64 << 10).await.unwrap_or_else(|_| unreachable!());
        assert!(greedy.grains.clone().try_acquire_owned().is_err());
        drop(held);
        let _first = greedy.share(8 << 10).await.unwrap();
        let _other = other.share(8 << 10).await.unwrap();
        assert_eq!(pool.shared.grains.available_permits(), 12);
    }
}
