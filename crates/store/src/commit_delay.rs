//! The time that a commit waits for requests to share its sync.
//!
//! A sync costs about the same for one request as for many, so it is worth waiting a little before a commit
//! if more requests are about to come. Databases have two settings for this (PostgreSQL: `commit_delay` and
//! `commit_siblings`). Here both come from the commit before: writers that were just answered tend to write
//! again at once. If they do not, the next commit loses a fraction of a sync, and the one after it expects
//! only those that came.

use std::time::Duration;

/// The delay is at most the time the last commit took, divided by this, ...
const TIME_PART: u32 = 4;
/// ... and at most this long.
const TIME_MAX: Duration = Duration::from_millis(2);
/// After a commit of more bytes there is no delay: it takes longer than its sync, and should start while
/// other writers still compute checksums.
const BYTES_MAX: u64 = 512 << 10;

/// A commit waits for this many requests, or this long after the first. The default is no delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CommitDelay {
    pub(crate) requests: usize,
    pub(crate) time: Duration,
}

impl CommitDelay {
    /// The delay after a commit of `bytes` that took `took`, with `requests` in it or queued behind it.
    pub(crate) fn after(bytes: u64, requests: usize, took: Duration) -> CommitDelay {
        let time = if bytes <= BYTES_MAX { (took / TIME_PART).min(TIME_MAX) } else { Duration::ZERO };
        CommitDelay { requests, time }
    }
}

/// Synced commits of requests since the store was opened, and the time that they took one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitTotals {
    pub commits: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Time from the first write to the end of the sync, in nanoseconds.
    pub alone_ns: u64,
}

impl CommitTotals {
    pub(crate) fn count(&mut self, bytes: u64, took: Duration) {
        self.commits += 1;
        self.bytes += bytes;
        self.alone_ns = self.alone_ns.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The commits after an earlier look.
    pub fn since(&self, before: &CommitTotals) -> CommitTotals {
        CommitTotals {
            commits: self.commits.saturating_sub(before.commits),
            bytes: self.bytes.saturating_sub(before.bytes),
            alone_ns: self.alone_ns.saturating_sub(before.alone_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_short_beside_a_sync_and_follows_small_commits_only() {
        let time = |bytes, millis| CommitDelay::after(bytes, 16, Duration::from_millis(millis)).time;
        assert_eq!(time(BYTES_MAX, 1), Duration::from_micros(250));
        assert_eq!(time(BYTES_MAX, 1000), TIME_MAX);
        assert_eq!(time(BYTES_MAX + 1, 1), Duration::ZERO);
    }
}
