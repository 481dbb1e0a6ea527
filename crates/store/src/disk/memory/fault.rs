//! The operations that fail, and the way in which they do.

use std::io;
use std::ops::Range;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Reads, opens and lists: operations that change nothing.
    Read,
    /// Writes and changes of a file's length.
    Write,
    /// Syncs of files and directories.
    Sync,
    /// The start of write-back ahead of a sync: it changes nothing by itself, unless it fails.
    Start,
    /// Creating, renaming and removing files and directories.
    Name,
    /// All except reads and starts.
    Change,
}

/// Way in which an operation fails. An operation for which a fault has no meaning succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO. Any part of a write may have been done. Any part of the bytes that a sync or a start was to make
    /// durable is durable; a later sync does not retry the rest.
    Io,
    /// ENOSPC. Any part of a write may have been done.
    NoSpace,
    /// Only a part is read or written, and reported as such.
    Short,
    /// One bit of the bytes read or written is flipped, silently.
    Flip,
    /// The bytes are written at another offset of the file, silently.
    Misdirect,
}

/// The faults to inject, and the number of operations so far.
#[derive(Debug)]
pub(crate) struct Faults {
    counts: [u64; 6],
    planned: Vec<(On, Range<u64>, Fault)>,
    /// The power is cut after this many changes.
    pub(crate) cut_after: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { counts: [0; 6], planned: Vec::new(), cut_after: u64::MAX }
    }
}

impl Faults {
    pub(crate) fn inject(&mut self, on: On, which: Range<u64>, fault: Fault) {
        self.planned.push((on, which, fault));
    }

    pub(crate) fn forget(&mut self) {
        self.planned.clear();
    }

    pub(crate) fn count(&self, on: On) -> u64 {
        self.counts[on.place()]
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.count(On::Change) >= self.cut_after
    }

    /// Count one operation and return its fault. Without power nothing is counted and everything fails.
    pub(crate) fn next(&mut self, on: On) -> io::Result<Option<Fault>> {
        if self.is_cut() {
            return Err(io::Error::other("the power is cut"));
        }
        let change = (!matches!(on, On::Read | On::Start)).then_some(On::Change);
        let mut fault = None;
        for on in [Some(on), change].into_iter().flatten() {
            let number = self.count(on);
            let planned = self.planned.iter().find(|(kind, which, _)| *kind == on && which.contains(&number));
            fault = fault.or(planned.map(|&(_, _, fault)| fault));
            self.counts[on.place()] += 1;
        }
        Ok(fault)
    }
}

impl On {
    fn place(self) -> usize {
        match self {
            On::Read => 0,
            On::Write => 1,
            On::Sync => 2,
            On::Name => 3,
            On::Change => 4,
            On::Start => 5,
        }
    }
}

pub(crate) fn io_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

pub(crate) fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}
