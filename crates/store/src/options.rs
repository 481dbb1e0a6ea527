//! How a store is opened.

use std::time::Duration;

use crate::disk::Method;
use crate::error::Error;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// A segment is sealed when it has passed this many bytes: a stream of reads loses some milliseconds where it goes from one to the
    /// next. Default 512 MiB; at most a 64th of what the store may use.
    pub segment_bytes: u64,
    /// Bytes the store may use on its disk; `None`: what the file system has.
    pub capacity: Option<u64>,
    /// Bytes the cleaner moves for 100 of the foreground where space begins to be scarce (an eighth of the capacity is
    /// free); more as it falls further. Default 25.
    pub clean_share_percent: u32,
    /// A store that was at rest for so long gives back what it can do without: spare files, then segments without a live byte, then
    /// slowly those that are mostly dead. `None` (the default): it does so only when space is short.
    pub give_back: Option<Duration>,
    /// The store writes nothing of its own (moves, folds, marks) before [`Store::release`](crate::Store::release): its log then ends where it ended when it was
    /// closed or lost, for as long as somebody is to judge by that whether it is as new as it was. Default: no.
    pub held: bool,
    /// Whether a commit is synced to the medium. `false` is for tests and benches: a power cut then loses writes.
    pub sync: bool,
    /// How the operating system is asked to read and write.
    pub method: Method,
    /// Past the page cache (`O_DIRECT`); not opened where the file system does not offer it. Default: through it. For a drive whose clients
    /// rarely read the same bytes twice, on a host whose memory is wanted for other things; bytes are then copied when
    /// they are sent.
    pub direct: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 512 << 20,
            capacity: None,
            clean_share_percent: 25,
            give_back: None,
            held: false,
            sync: true,
            method: Method::Auto,
            direct: false,
        }
    }
}

impl Options {
    /// Refuse what makes no sense.
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
