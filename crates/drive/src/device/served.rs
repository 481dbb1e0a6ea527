//! Sums over reads, or writes, that are done: what the manager is told of a drive's work.
//!
//! Only requests of clients and other drives are added: what the drive looks up, reads ahead, reads of old
//! bytes and does of its own accord has turns at the disk too, and is none.

/// Sums over requests that had a turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Served {
    pub(crate) requests: u64,
    /// Nanoseconds of wait for their turns.
    pub(crate) queue_ns: u64,
    /// Nanoseconds for which they had their places.
    pub(crate) disk_ns: u64,
}

impl Served {
    /// Adds a request that is done.
    pub(super) fn add(&mut self, queue_ns: u64, disk_ns: u64) {
        self.requests += 1;
        self.queue_ns += queue_ns;
        self.disk_ns += disk_ns;
    }
}
