//! How the bytes of a read leave: copied through a buffer, or by `sendfile` from the page cache.
//!
//! To a peer on this machine `sendfile` saves nothing: the peer then copies from cold pages what it otherwise has from a warm
//! buffer. There a copy was as fast or faster for most lengths (`braid bench store`, rows *sendfile*). To another machine the drive's
//! own processor time is what counts, and for long reads `sendfile` takes less of it (`tests/send-ways.sh`).

use braid_store::disk::is_residency_told;

/// Reads of so many bytes and more cost a drive less processor time by `sendfile`; a shorter copy goes out with the reply in one call.
const BYTES_MIN: u32 = 256 << 10;

/// Which of them is used for what is in the page cache. What is not there is read into a buffer always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// What measured better: `sendfile` for long reads (256 KiB and more) by other machines.
    #[default]
    Auto,
    /// Never `sendfile`.
    Copy,
    /// Always, where the bytes are in the page cache.
    Sendfile,
}

impl Sending {
    /// Reads of so many bytes and more go by `sendfile` to a peer, which is on this machine or not; `None`: none do.
    pub(crate) fn bytes_min(self, is_local: bool) -> Option<u32> {
        match (self, is_local) {
            (Sending::Copy, _) | (Sending::Auto, true) => None,
            (Sending::Auto, false) => Some(BYTES_MIN),
            (Sending::Sendfile, _) => Some(1),
        }
    }

    /// Why it cannot be had of a disk that is reached past the page cache or through it.
    pub(crate) fn refusal(self, direct: bool) -> Option<&'static str> {
        match self {
            Sending::Sendfile if direct => Some("with O_DIRECT nothing is in the page cache"),
            Sending::Sendfile if !is_residency_told() => Some(
                "the system does not tell what is in the page cache (cachestat: Linux 6.5, or the container's policy)",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_used_and_else_the_peer_decides() {
        assert_eq!(Sending::Sendfile.bytes_min(true), Some(1));
        assert_eq!(Sending::Copy.bytes_min(false), None);
        assert_eq!(Sending::Auto.bytes_min(true), None);
        assert_eq!(Sending::Auto.bytes_min(false), Some(BYTES_MIN));
    }
}
