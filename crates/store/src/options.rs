//! Options for opening a store.

use std::sync::Arc;
use std::time::Duration;

use crate::disk::Syncing;
use crate::disk::modelled::Device;
use crate::error::Error;
use crate::turns::Turns;

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// A segment is sealed once it has this many bytes. Sequential reads lose some milliseconds where they
    /// cross to the next segment. Default 512 MiB; at most a 64th of what the store may use.
    pub segment_bytes: u64,
    /// Bytes the store may use on its disk; `None`: as many as the file system has.
    pub capacity: Option<u64>,
    /// Bytes the cleaner moves per 100 bytes of the foreground when space begins to be scarce (an eighth of
    /// the capacity is free), and more as it falls further. Default 25.
    pub clean_share_percent: u32,
    /// A store that is idle for this long frees what it does not need: recycled segments, then segments
    /// without a live byte, then slowly those that are mostly dead. `None` (the default): only when space is
    /// short.
    pub give_back: Option<Duration>,
    /// Until [`Store::release`](crate::Store::release) the store writes nothing: it refuses mutations with
    /// [`Error::Held`](crate::Error::Held), and moves, folds and marks nothing. Its log then ends where it
    /// ended when it was closed or lost, so that the caller can judge whether the store is as new as it was.
    /// Default: no.
    pub held: bool,
    /// Turns at the disk for the store's own work; `None`: it has the disk whenever it needs it.
    pub turns: Option<Arc<dyn Turns>>,
    /// True if each commit is synced to the medium. `false` is for tests and benches: a power cut then loses
    /// writes.
    pub sync: bool,
    /// Modelled device whose time the disk takes; `None` (the default): the disk is as fast as it is.
    pub device: Option<Arc<Device>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 512 << 20,
            capacity: None,
            clean_share_percent: 25,
            give_back: None,
            held: false,
            turns: None,
            sync: true,
            device: None,
        }
    }
}

impl Options {
    /// Sync policy that [`Options::sync`] chooses.
    pub(crate) fn syncing(&self) -> Syncing {
        if self.sync { Syncing::On } else { Syncing::Off }
    }

    /// Refuse invalid options.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.capacity.is_some_and(|capacity| capacity < 1 << 20) {
            return Err(Error::Malformed("a store's capacity is at least 1 MiB"));
        }
        if self.segment_bytes == 0 {
            return Err(Error::Malformed("a segment has at least one byte"));
        }
        Ok(())
    }
}
