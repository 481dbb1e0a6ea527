//! State of a file that is open in a mount.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use braid_client::AttributeChanges;
use fuser::Errno;

use crate::files::dirty::{Extents, Run, length};
use crate::tree::attributes::nanoseconds;

/// Usual size of a chunk in bytes, about that of one plan set of the client: a chunk is written together.
pub(crate) const CHUNK_BYTES: u64 = 8 << 20;

/// Bytes and attributes that are not yet with the drives or not with the manager.
pub(crate) struct InodeState {
    pub(crate) extents: Extents,
    /// Runs on their way to the drives; no two have a byte in common.
    pub(crate) flights: Vec<Arc<Flight>>,
    /// Bytes to be appended, whose offset is not fixed yet.
    pub(crate) tail: Vec<u8>,
    /// Offset of the tail if no other mount appends.
    pub(crate) tail_at: u64,
    /// The number of the last write.
    pub(crate) order: u64,
    /// Bytes of writes up to this number are to be written now.
    pub(crate) drain: u64,
    /// End of the last flight.
    pub(crate) cursor: u64,
    /// One past the last byte that the drives have and the manager may not know of.
    pub(crate) landed_end: u64,
    /// Number of holders that want nothing in flight.
    pub(crate) holds: u32,
    /// Number of bytes counted in the budget.
    pub(crate) counted: u64,
    /// Time since which there is something to be written or committed.
    pub(crate) since: Option<Instant>,
    /// Error of a failed write, while not all has been written since: no other write is taken before that.
    pub(crate) stopped: Option<Errno>,
    /// True if no run is sent until a request asks for it.
    pub(crate) halted: bool,
    /// Time since which nothing could be written.
    pub(crate) failing: Option<Instant>,
    /// True while the caretaker syncs the file.
    pub(crate) tended: bool,
    /// Time of the caretaker's last sync, if it failed.
    pub(crate) failed_at: Option<Instant>,
    /// Bytes of writes up to this number are not to be written any more, as the locks under which they may
    /// have been written are lost.
    pub(crate) forfeited: u64,
    /// Number of times that bytes were dropped, and the last reason.
    pub(crate) lost: (u64, Option<Errno>),
    /// Time of the last write, or one that was set after it, until the manager knows of it.
    pub(crate) modified: Option<i64>,
    /// Time of the last write, in nanoseconds since 1970.
    pub(crate) written_ns: i64,
    /// True if the file was made here, and the manager was told of no change since.
    pub(crate) is_new: bool,
    /// Attribute changes to be sent with the next commit.
    pub(crate) later: AttributeChanges,
    /// Attribute changes that are being sent.
    pub(crate) told_now: AttributeChanges,
    /// True if there were writes since the last commit.
    pub(crate) uncommitted: bool,
    /// True if the slot's file is open for writing.
    pub(crate) writes: bool,
}

impl InodeState {
    pub(crate) fn new() -> InodeState {
        InodeState {
            extents: Extents::new(CHUNK_BYTES),
            flights: Vec::new(),
            tail: Vec::new(),
            tail_at: 0,
            order: 0,
            drain: 0,
            cursor: 0,
            landed_end: 0,
            holds: 0,
            counted: 0,
            since: None,
            stopped: None,
            halted: false,
            failing: None,
            tended: false,
            failed_at: None,
            forfeited: 0,
            lost: (0, None),
            modified: None,
            written_ns: i64::MIN,
            is_new: false,
            later: AttributeChanges::NONE,
            told_now: AttributeChanges::NONE,
            uncommitted: false,
            writes: false,
        }
    }

    /// Number of bytes that wait to be written, as counted in the budget.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// Number of bytes that wait to be written.
    pub(crate) fn held_bytes(&self) -> u64 {
        let flying: u64 = self.flights.iter().map(|flight| length(&flight.run.bytes)).sum();
        self.extents.bytes() + length(&self.tail) + flying
    }

    /// Offset one past the last byte that waits.
    pub(crate) fn end(&self) -> u64 {
        let flying = self.flights.iter().map(|flight| flight.end()).max().unwrap_or(0);
        let tail = if self.tail.is_empty() { 0 } else { self.tail_at + length(&self.tail) };
        self.extents.end().max(flying).max(tail)
    }

    /// Copies of the waiting bytes within a range, older first, and the end of all waiting bytes.
    pub(crate) fn over(&self, range: std::ops::Range<u64>) -> (Vec<(u64, Vec<u8>)>, u64) {
        let mut over = Vec::new();
        for flight in &self.flights {
            let from = flight.from.max(range.start);
            let to = flight.end().min(range.end);
            if from < to {
                let at = |offset: u64| usize::try_from(offset - flight.from).expect("it is within a slice");
                over.push((from, flight.run.bytes[at(from)..at(to)].to_vec()));
            }
        }
        over.extend(self.extents.copies(range.clone()));
        // Bytes that were appended since a reader had the tail placed are here too, at their place as far as
        // it is known.
        let from = self.tail_at.max(range.start);
        let to = (self.tail_at + length(&self.tail)).min(range.end);
        if from < to {
            let at = |offset: u64| usize::try_from(offset - self.tail_at).expect("it is within a slice");
            over.push((from, self.tail[at(from)..at(to)].to_vec()));
        }
        (over, self.end())
    }

    /// Counts a new write, and returns its number.
    pub(crate) fn wrote(&mut self) -> u64 {
        self.order += 1;
        self.uncommitted = true;
        self.written_ns = nanoseconds(SystemTime::now());
        self.modified = Some(self.written_ns);
        self.since.get_or_insert_with(Instant::now);
        self.order
    }
}

/// A run on its way to the drives.
pub(crate) struct Flight {
    pub(crate) from: u64,
    pub(crate) run: Run,
}

impl Flight {
    pub(crate) fn end(&self) -> u64 {
        self.from + length(&self.run.bytes)
    }
}
