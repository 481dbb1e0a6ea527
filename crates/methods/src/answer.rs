//! Whole answers.

/// The answer of a method for a whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The numbers of records and of their bytes.
    Count {
        /// Number of records.
        records: u64,
        /// Bytes of all of them, end marks included.
        bytes: u64,
    },
    /// Records, in the file's order.
    Records(Vec<Found>),
    /// The spread of values.
    Histogram {
        /// The bins, in order.
        bins: Vec<Bin>,
        /// Values below the first bin.
        below: u64,
        /// Values at or above the end of the last bin.
        above: u64,
        /// Records that have no such value.
        without: u64,
    },
    /// A hash of all bytes.
    Digest {
        /// The hash's name.
        algorithm: &'static str,
        /// The hash's bytes.
        digest: [u8; 32],
    },
    /// Hashes of the file's blocks, in order.
    Blocks {
        /// Bytes of each block but the last.
        block_bytes: u64,
        /// The hash of each block.
        digests: Vec<[u8; 32]>,
    },
    /// Sets of items with the number of lines that hold them.
    Sets {
        /// The sets that were counted.
        sets: Vec<ItemSet>,
        /// Number of lines.
        lines: u64,
        /// Lines of which a part is no item.
        bad_lines: u64,
    },
    /// Where two files differ.
    Difference {
        /// The first byte in which they differ, or the end of the shorter one; `None`: they are the same.
        first: Option<u64>,
    },
    /// Rows of a table, as CSV with a header.
    Rows(Vec<u8>),
    /// Rows of a table, as a stream of Arrow IPC.
    Arrow(Vec<u8>),
    /// Bytes that a module of a user emitted.
    Bytes(Vec<u8>),
}

/// A record that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// First byte, in the file.
    pub offset: u64,
    /// The record; a line without its line feed.
    pub bytes: Vec<u8>,
}

/// One bin of a histogram: values from `from` up to, and without, `to`, in units that the method documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bin {
    /// The least value.
    pub from: i64,
    /// One past the greatest value.
    pub to: i64,
    /// Number of values.
    pub count: u64,
}

/// A set of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSet {
    /// The items, in order.
    pub items: Vec<u32>,
    /// Number of lines that hold all of them.
    pub count: u64,
}
