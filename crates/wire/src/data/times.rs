//! What a drive tells, if asked, of the time that a request took at it; and its counts of all requests.

use super::{DriveReply, DriveRequest};

record! {
    /// The time that a request spent at a drive, part by part. A drive tells it only of requests that ask.
    #[derive(Copy, Default)]
    pub struct Times {
        /// Microseconds of wait for a turn at the disk.
        queue_us: u64,
        /// Microseconds in which the disk read, or in which the drive waited for what it was reading ahead.
        disk_us: u64,
        /// Microseconds until the write was durable, from its turn on: the log's write and its sync.
        commit_us: u64,
        /// Microseconds in all, from the request's head to its answer: the wait for memory and for the
        /// payload, and of a unit write the wait for the parity drives, are in none of the others.
        total_us: u64,
        /// True if the bytes of a read came from the page cache or from memory.
        cached: bool,
    }
}

record! {
    /// Counts of a drive since its start.
    #[derive(Copy, Default)]
    pub struct DriveCounts {
        /// Reads that had a turn at the disk, or were answered from memory.
        reads: u64,
        /// Writes that had a turn at the disk: of stripes and units, and changes of parity.
        writes: u64,
        /// Requests that were refused.
        refused: u64,
        /// Bytes that were read.
        read_bytes: u64,
        /// Bytes of those read that were sent from the page cache by `sendfile`.
        sent_bytes: u64,
        /// Bytes that were read ahead.
        ahead_bytes: u64,
        /// Bytes that were written.
        written_bytes: u64,
        /// Microseconds for which reads have waited for their turn at the disk, all together.
        read_queue_us: u64,
        /// Microseconds for which reads have had their place at the disk, all together.
        read_disk_us: u64,
        /// Microseconds for which writes have waited for their turn at the disk, all together.
        write_queue_us: u64,
        /// Microseconds from the turn of writes until they were durable, all together.
        write_disk_us: u64,
    }
}

impl DriveRequest {
    /// Has the answer say how long the request took, where answers can.
    pub fn ask_times(&mut self) {
        match self {
            DriveRequest::Read(read) => read.timed = true,
            DriveRequest::StripeWrite(write) => write.timed = true,
            DriveRequest::UnitWrite(write) => write.timed = true,
            _ => {}
        }
    }

    /// Returns true if the request asks how long it takes.
    pub fn asks_times(&self) -> bool {
        match self {
            DriveRequest::Read(read) => read.timed,
            DriveRequest::StripeWrite(write) => write.timed,
            DriveRequest::UnitWrite(write) => write.timed,
            _ => false,
        }
    }
}

impl DriveReply {
    /// The time that the request took, if it has asked for that.
    pub fn times(&self) -> Option<Times> {
        match self {
            DriveReply::Read(reply) => reply.times,
            DriveReply::Written(reply) => reply.times,
            _ => None,
        }
    }
}
