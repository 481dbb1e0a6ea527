//! A writer's stamps, and the state of its writes: which stamps are settled, and how far bytes may extend.
//!
//! Stamps belong to one lease. When another lease replaces it, the manager has decided on the former lease's
//! stamps, and nothing is known any more about the bytes beyond the size: others may have written there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use braid_layout::{Generation, Lease, Version};

/// The stamps that this handle issued.
#[derive(Debug)]
pub(crate) struct Stamps {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The newest lease of the handle.
    lease: Lease,
    g: Generation,
    /// The next stamp's number.
    next: u64,
    /// Issued stamps that are not known to be settled.
    unsettled: BTreeSet<Version>,
    /// Per write that has begun and not ended: a lower bound of its first stamp.
    under_way: BTreeMap<u64, Version>,
    /// The number of the next write that begins.
    next_write: u64,
    /// Bytes at or past this are zeros on every column, as far as this handle's writes under the lease are
    /// concerned.
    written_end: u64,
    /// Bytes at or past this are zeros on every column, whichever handle wrote.
    live_end: u64,
    /// One past the highest byte that was ever written, as bytes or as a hole; `None` if earlier writers are
    /// unknown.
    reach: Option<u64>,
    /// Number of writes of bytes that have begun.
    writes: u64,
    /// Reason for which nothing more may be written; `None` while writing is allowed.
    broken: Option<String>,
}

/// The number of writes at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// Knowledge about writes to the file before this lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlierWrites {
    /// The file was never written before.
    None,
    Unknown,
}

/// Kind of content that a write stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes,
    Hole,
}

/// A write that has its stamps, with the facts that the planner needs.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    stamps: &'a Stamps,
    /// The stamp of the first stripe; each further stripe has the next number.
    pub(crate) first: Version,
    count: u64,
    /// Bytes at or past this are zeros.
    pub(crate) size: u64,
    /// Units from this byte on were never written; `u64::MAX` if that is not known.
    pub(crate) reach: u64,
    /// True if one of its stripe writes may have been sent.
    sent: bool,
}

/// A write that has begun and not ended.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    stamps: &'a Stamps,
    write: u64,
}

/// Reason for which a write cannot begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// The handle has a newer lease.
    NewerLease,
    /// The handle may write no more, for this reason.
    Broken(String),
}

/// A cut that may have begun at the manager. While the manager has the cut's mark, bytes written past the
/// size are discarded when the lease ends. So if the cut does not end properly, nothing more may be written.
#[derive(Debug)]
pub(crate) struct Cutting<'a> {
    stamps: &'a Stamps,
    over: bool,
}

impl Stamps {
    /// Creates the stamps of a lease just granted on a file of this size.
    pub(crate) fn new(lease: Lease, g: Generation, size: u64, earlier: EarlierWrites) -> Stamps {
        let state = State {
            lease,
            g,
            next: 1,
            unsettled: BTreeSet::new(),
            under_way: BTreeMap::new(),
            next_write: 0,
            written_end: size,
            live_end: size,
            reach: (earlier == EarlierWrites::None).then_some(0),
            writes: 0,
            broken: None,
        };
        Stamps { state: Mutex::new(state) }
    }

    /// Records that a write begins. Until it has ended, none of its stamps counts as within the handle's
    /// size; after it, the size includes its bytes if it was acknowledged.
    pub(crate) fn under_way(&self) -> UnderWay<'_> {
        let mut state = self.lock();
        let write = state.next_write;
        let from = state.next_stamp();
        state.next_write += 1;
        state.under_way.insert(write, from);
        UnderWay { stamps: self, write }
    }

    /// A stamp below which all writes of the handle's lease are settled, and lie within the size that the
    /// handle has from now on.
    pub(crate) fn within(&self) -> Version {
        let state = self.lock();
        let unsettled = state.unsettled.iter().filter(|stamp| stamp.lease == state.lease).copied();
        // A write that began under an earlier lease may take its stamps from the present one.
        let under_way = state.under_way.values().map(|from| Version { lease: state.lease, ..*from });
        unsettled.chain(under_way).fold(state.next_stamp(), Version::min)
    }

    /// Issues stamps for `count` stripes under this exclusive lease and generation, for a write that ends at
    /// byte `end` of the file. The caller holds the stripes.
    pub(crate) fn begin(
        &self,
        lease: Lease,
        g: Generation,
        count: u64,
        end: u64,
        content: Content,
    ) -> Result<Begun<'_>, NotNow> {
        let mut state = self.lock();
        state.take_up(lease)?;
        // A later stamp is never lower: a request that still has an older view uses the newer generation.
        state.g = state.g.max(g);
        let first = Version { g: state.g, lease: state.lease, n: state.next };
        state.next += count;
        state.unsettled.extend((0..count).map(|i| Version { n: first.n + i, ..first }));
        let begun = Begun {
            stamps: self,
            first,
            count,
            size: state.live_end,
            reach: state.reach.unwrap_or(u64::MAX),
            sent: false,
        };
        if content == Content::Bytes {
            state.written_end = state.written_end.max(end);
            state.live_end = state.live_end.max(end);
            state.writes += 1;
        }
        // A hole has a stamp too: the units it covers are not new any more.
        state.reach = state.reach.map(|reach| reach.max(end));
        Ok(begun)
    }

    /// Records that a unit write under this shared lease begins, which ends at byte `end` of the file. It has
    /// no stamp.
    pub(crate) fn begin_shared(&self, lease: Lease, end: u64) -> Result<(), NotNow> {
        let mut state = self.lock();
        state.take_up(lease)?;
        state.written_end = state.written_end.max(end);
        state.writes += 1;
        Ok(())
    }

    /// The stamp below which all writes of this lease are settled.
    pub(crate) fn settled_below(&self) -> Version {
        let state = self.lock();
        let next = state.next_stamp();
        // The manager has decided on the stamps of former leases.
        state.unsettled.iter().find(|stamp| stamp.lease == state.lease).copied().unwrap_or(next)
    }

    /// The last stamp, if all are settled; otherwise `None`.
    pub(crate) fn all_settled(&self) -> Option<Version> {
        let state = self.lock();
        let last = Version { g: state.g, lease: state.lease, n: state.next - 1 };
        (state.unsettled.is_empty() && state.broken.is_none()).then_some(last)
    }

    /// Offset from which all bytes of the file are zeros on every column, as far as this handle's writes are
    /// concerned. It is not below the end of any write of bytes that has begun, even a failed one, unless a
    /// truncation removed those bytes.
    pub(crate) fn written_end(&self) -> u64 {
        self.lock().written_end
    }

    /// Offset from which all bytes of the file are zeros on every column, whichever handle wrote, while this
    /// exclusive lease is held; `u64::MAX` if it is not known.
    pub(crate) fn live_end(&self, lease: Lease) -> u64 {
        let state = self.lock();
        if state.lease == lease { state.live_end } else { u64::MAX }
    }

    /// Returns true if a write ever began.
    pub(crate) fn is_used(&self) -> bool {
        let state = self.lock();
        state.next > 1 || state.writes > 0
    }

    /// Forbids further writes: what was sent is not settled. Only the first reason is kept.
    pub(crate) fn break_off(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
    }

    /// Begins a cut. Must be called before the manager is told.
    pub(crate) fn cutting(&self) -> Cutting<'_> {
        Cutting { stamps: self, over: false }
    }

    /// Reason for which nothing more may be written; `None` while writing is allowed.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    /// The mark for [`Stamps::truncated`], to be taken before the search for the bytes to remove. `None`
    /// while a write is in progress.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let state = self.lock();
        state.unsettled.is_empty().then_some(Mark(state.writes))
    }

    /// Records that all bytes past `size` that existed at `mark` became holes. If bytes were written since,
    /// some may lie past `size`, and nothing is recorded.
    pub(crate) fn truncated(&self, size: u64, mark: Option<Mark>) {
        let mut state = self.lock();
        if mark == Some(Mark(state.writes)) && state.unsettled.is_empty() {
            state.written_end = state.written_end.min(size);
            state.live_end = state.live_end.min(size);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl State {
    fn next_stamp(&self) -> Version {
        Version { g: self.g, lease: self.lease, n: self.next }
    }

    /// Changes to this lease, if it is newer, before a write under it.
    fn take_up(&mut self, lease: Lease) -> Result<(), NotNow> {
        if let Some(why) = &self.broken {
            return Err(NotNow::Broken(why.clone()));
        }
        if lease < self.lease {
            return Err(NotNow::NewerLease);
        }
        if lease > self.lease {
            (self.lease, self.written_end, self.live_end, self.reach) = (lease, 0, u64::MAX, None);
        }
        Ok(())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.stamps.lock().under_way.remove(&self.write);
    }
}

impl Begun<'_> {
    /// Records that a drive may have one of the write's stripe writes from now on.
    pub(crate) fn sending(&mut self) {
        self.sent = true;
    }

    /// Settles the write: every column of the set has answered.
    pub(crate) fn settle(mut self) {
        self.sent = false;
    }

    /// Forbids further writes: the write failed after it was sent.
    pub(crate) fn fail(self, why: &str) {
        self.stamps.break_off(why);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.sent {
            self.stamps.break_off("it was dropped before every drive had answered");
            return;
        }
        let mut state = self.stamps.lock();
        for n in self.first.n..self.first.n + self.count {
            state.unsettled.remove(&Version { n, ..self.first });
        }
    }
}

impl Cutting<'_> {
    /// Ends the cut: its mark at the manager is gone, or never existed.
    pub(crate) fn over(mut self) {
        self.over = true;
    }

    /// Forbids further writes: the cut failed, and its mark may exist.
    pub(crate) fn fail(self, why: &str) {
        self.stamps.break_off(why);
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.stamps.break_off("a cut was dropped before it had ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(earlier: EarlierWrites) -> Stamps {
        Stamps::new(Lease(7), Generation(2), 100, earlier)
    }

    fn n(version: Version) -> u64 {
        version.n
    }

    #[test]
    fn stamps_rise_and_settle_from_below() {
        let stamps = stamps(EarlierWrites::Unknown);
        let first = stamps.begin(Lease(7), Generation(2), 3, 300, Content::Bytes).expect("sound");
        let second = stamps.begin(Lease(7), Generation(3), 1, 50, Content::Bytes).expect("sound");
        assert_eq!((n(first.first), n(second.first)), (1, 4));
        assert!(first.first < second.first);
        assert_eq!((first.size, second.size), (100, 300));
        assert_eq!(stamps.settled_below(), first.first);
        second.settle();
        assert_eq!(n(stamps.settled_below()), 1);
        assert_eq!(stamps.all_settled(), None);
        first.settle();
        assert_eq!(n(stamps.settled_below()), 5);
        assert_eq!(stamps.all_settled().map(n), Some(4));
        // The generation of an older view is not used again.
        assert_eq!(
            stamps.begin(Lease(7), Generation(2), 1, 0, Content::Bytes).expect("sound").first.g,
            Generation(3)
        );
    }

    #[test]
    fn a_write_that_was_not_sent_leaves_no_trace_and_one_that_was_breaks_the_handle() {
        let stamps = stamps(EarlierWrites::Unknown);
        drop(stamps.begin(Lease(7), Generation(2), 1, 0, Content::Bytes).expect("sound"));
        assert!(stamps.all_settled().is_some());
        let mut begun = stamps.begin(Lease(7), Generation(2), 1, 0, Content::Bytes).expect("sound");
        begun.sending();
        drop(begun);
        assert!(stamps.broken().is_some() && stamps.all_settled().is_none());
        assert_eq!(n(stamps.settled_below()), 2);
        assert!(stamps.begin(Lease(7), Generation(2), 1, 0, Content::Bytes).is_err());
    }

    #[test]
    fn a_write_that_comes_after_one_that_failed_is_told_why_that_failed() {
        let stamps = stamps(EarlierWrites::Unknown);
        let begin = || stamps.begin(Lease(7), Generation(2), 1, 0, Content::Bytes);
        let mut begun = begin().expect("sound");
        let mut other = begin().expect("sound");
        begun.sending();
        other.sending();
        begun.fail("drive c is full");
        drop(other);
        assert_eq!(begin().expect_err("broken"), NotNow::Broken("drive c is full".to_owned()));
    }

    #[test]
    fn a_stamp_is_within_the_size_when_its_write_has_ended() {
        let stamps = stamps(EarlierWrites::Unknown);
        let begin = |g| stamps.begin(Lease(7), Generation(g), 1, 9, Content::Bytes).expect("sound");
        let first = stamps.under_way();
        let second = stamps.under_way();
        let own = begin(2);
        // Settled, and the size has not grown yet. Stamps of a later generation are above it too.
        begin(3).settle();
        own.settle();
        assert_eq!(n(stamps.within()), 1);
        drop(second);
        assert_eq!((n(stamps.within()), stamps.within().g), (1, Generation(2)));
        drop(first);
        assert_eq!((n(stamps.within()), stamps.within().g), (3, Generation(3)));
        let mut failed = begin(3);
        failed.sending();
        failed.fail("it is full");
        assert_eq!(n(stamps.within()), 3, "it may have left bytes");
    }

    #[test]
    fn reach_is_known_for_a_fresh_file_only() {
        assert_eq!(
            stamps(EarlierWrites::Unknown)
                .begin(Lease(7), Generation(2), 1, 10, Content::Bytes)
                .expect("sound")
                .reach,
            u64::MAX
        );
        let stamps = stamps(EarlierWrites::None);
        stamps.begin(Lease(7), Generation(2), 1, 500, Content::Bytes).expect("sound").settle();
        stamps.truncated(0, stamps.mark());
        let begun = stamps.begin(Lease(7), Generation(2), 1, 10, Content::Bytes).expect("sound");
        assert_eq!((begun.size, begun.reach), (0, 500));
    }

    #[test]
    fn a_hole_reaches_as_far_as_bytes_do() {
        let stamps = stamps(EarlierWrites::None);
        stamps.begin(Lease(7), Generation(2), 1, 10, Content::Bytes).expect("sound").settle();
        let mark = stamps.mark();
        // The rest of the stripe, as a truncation writes it.
        stamps.begin(Lease(7), Generation(2), 1, 400, Content::Hole).expect("sound").settle();
        stamps.truncated(0, mark);
        let begun = stamps.begin(Lease(7), Generation(2), 1, 10, Content::Bytes).expect("sound");
        assert_eq!((begun.size, begun.reach), (0, 400));
    }

    #[test]
    fn bytes_written_during_a_truncation_are_not_taken_for_zeros() {
        let stamps = stamps(EarlierWrites::Unknown);
        let mark = stamps.mark();
        stamps.begin(Lease(7), Generation(2), 1, 700, Content::Bytes).expect("sound").settle();
        stamps.begin(Lease(7), Generation(2), 1, 200, Content::Hole).expect("sound").settle();
        stamps.truncated(0, mark);
        let begun = stamps.begin(Lease(7), Generation(2), 1, 10, Content::Bytes).expect("sound");
        assert_eq!(begun.size, 700);
        assert_eq!(stamps.mark(), None, "one is under way");
        begun.settle();
        stamps.truncated(5, stamps.mark());
        assert_eq!(stamps.begin(Lease(7), Generation(2), 1, 10, Content::Bytes).expect("sound").size, 5);
    }

    #[test]
    fn another_lease_ends_what_was_known_under_the_former() {
        let stamps = stamps(EarlierWrites::None);
        let mut old = stamps.begin(Lease(7), Generation(2), 1, 300, Content::Bytes).expect("sound");
        old.sending();
        stamps.begin_shared(Lease(8), 50).expect("sound");
        assert_eq!(stamps.written_end(), 50);
        let late = stamps.begin(Lease(7), Generation(2), 1, 300, Content::Bytes);
        assert_eq!(late.expect_err("its lease is over"), NotNow::NewerLease);
        let new = stamps.begin(Lease(9), Generation(4), 1, 20, Content::Bytes).expect("sound");
        assert_eq!((new.size, new.reach, new.first.lease), (u64::MAX, u64::MAX, Lease(9)));
        assert_eq!(stamps.settled_below(), new.first, "that of the former lease was judged");
        old.settle();
        new.settle();
        assert_eq!(stamps.all_settled().map(|last| last.lease), Some(Lease(9)));
        assert_eq!(stamps.written_end(), 20);
    }
}
