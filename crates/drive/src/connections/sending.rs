//! Ways to send the bytes of a read: copied through a buffer, or by `sendfile` from the page cache.
//!
//! To a peer on this machine `sendfile` saves nothing: the peer then copies from cold pages instead of a warm
//! buffer. There a copy was as fast or faster for most lengths (`braid-lab bench store`, rows *sendfile*). To
//! another machine the drive's own processor time counts, and for long reads `sendfile` takes less of it
//! (`crates/lab/scripts/send-ways.sh`).

use braid_store::disk::is_residency_told;

/// From this many bytes on `sendfile` costs a drive less processor time; a shorter copy is sent together with
/// the reply in one call.
const BYTES_MIN: u32 = 256 << 10;

/// Way to send bytes that are in the page cache. Other bytes are always read into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// The way that measured better: `sendfile` for long reads (256 KiB and more) by other machines, else a
    /// copy.
    #[default]
    Auto,
    /// A copy through a buffer, never `sendfile`.
    Copy,
    /// `sendfile` for all bytes that are in the page cache.
    Sendfile,
}

impl Sending {
    /// Reads of this many bytes or more are sent by `sendfile`, to a peer on this machine (`is_local`) or
    /// another; `None`: none are.
    pub(crate) fn bytes_min(self, is_local: bool) -> Option<u32> {
        match (self, is_local) {
            (Sending::Copy, _) | (Sending::Auto, true) => None,
            (Sending::Auto, false) => Some(BYTES_MIN),
            (Sending::Sendfile, _) => Some(1),
        }
    }

    /// Reason why this way cannot be used on this system; `None` if it can.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
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
