//! Callbacks: a client may cache names and attributes that the manager told it, and answer from the cache,
//! until the manager tells it that something changed (Howard et al., "Scale and Performance in a
//! Distributed File System", 1988).
//!
//! A client that watches asks for news all the time, which renews the lease on its cache. It watches every
//! object that it looks up with [`Lookup::watch`](super::Lookup) or lists. A change by another client is
//! answered only when every client that watches the changed object has heeded the news of the change, or
//! its lease has expired.

use braid_layout::{ClientId, FileId};

record! {
    /// Asks for news, and waits for some for at most `wait_ms`. Answered at once if the manager does not
    /// know the asker.
    pub struct Watch {
        /// The asker's number, as in [`RequestHead`](super::RequestHead).
        client: ClientId,
        /// Sequence number of the request, rising. Once a later request has come, the content of an earlier
        /// one is ignored.
        order: u64,
        /// Number of the last news that arrived at the asker. Later news is sent at once.
        seen: u64,
        /// Number of the last news that the asker has heeded: it answers nothing more from cached state
        /// that the news concerns.
        heeded: u64,
        /// Number of the last news whose recalled files the asker has written out.
        written: u64,
        /// Files named in heeded news that the asker has open. The manager keeps them until the asker has
        /// closed them, even if they no longer have a name. After news that names everything: all files
        /// that the asker has open.
        open: Vec<FileId>,
        /// Files that the asker has closed.
        closed: Vec<FileId>,
        /// Maximum time to wait for news, in milliseconds.
        wait_ms: u32,
    }
}

record! {
    /// The changes that the asker has not heeded yet.
    pub struct News {
        /// Number of the last change included: the news covers all changes up to it.
        number: u64,
        /// Lease on the asker's cache, in milliseconds, counted from when the asker sent the request.
        lease_ms: u32,
        /// True if it is unknown what changed: then nothing in the asker's cache is valid any more.
        everything: bool,
        /// The objects that changed: files whose attributes changed, or directories whose names changed.
        changed: Vec<FileId>,
        /// Files that the asker writes and another client opens: the asker must write out the data that it
        /// holds back.
        recalled: Vec<FileId>,
    }
}
