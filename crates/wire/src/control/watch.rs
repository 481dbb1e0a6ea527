//! Callbacks: a client may keep what it was told of names and attributes, and answer from it, until the
//! manager tells it that something changed (Howard et al., "Scale and Performance in a Distributed File
//! System", 1988).
//!
//! A client that watches asks for news all the time, which renews its lease on what it keeps. What it looks
//! up with [`Lookup::watch`](super::Lookup), or lists, it then watches. A change by another client is
//! answered only when all who watch what it changed have heeded the news of it, or their leases are over.

use braid_layout::FileId;

record! {
    /// Asks for news, and waits for some. Answered at once if the manager does not know the asker.
    pub struct Watch {
        /// The asker's number, as in [`RequestHead`](super::RequestHead).
        client: u64,
        /// The request's number: rising. What an earlier one says counts for nothing after a later one.
        order: u64,
        /// News up to this number have arrived: later ones are answered at once.
        seen: u64,
        /// News up to this number are heeded: nothing is answered any more from what they concern.
        heeded: u64,
        /// What news up to this number recall is written out.
        written: u64,
        /// Of the files in heeded news, those that it has open: they are kept until they are closed there,
        /// though they may have no name any more. After news of everything: all that it has open.
        open: Vec<FileId>,
        /// Files that it has open no more.
        closed: Vec<FileId>,
        /// How long to wait for news, in milliseconds.
        wait_ms: u32,
    }
}

record! {
    /// What changed, as far as it is not heeded yet.
    pub struct News {
        /// Their number: all up to it.
        number: u64,
        /// What the asker keeps it may keep until so long after it sent the request.
        lease_ms: u32,
        /// It is not known what changed: nothing that was kept counts any more.
        everything: bool,
        /// What changed: a file's attributes, or a directory's names.
        changed: Vec<FileId>,
        /// Files that the asker writes and others open: it writes out what it has of them.
        recalled: Vec<FileId>,
    }
}
