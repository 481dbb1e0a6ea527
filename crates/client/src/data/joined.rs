//! Small writes that wait for the same stripes, and are made as one.
//!
//! A stripe has one write at a time (PROTOCOL C1). Small writes of one writer, such as records that follow
//! one another, mostly meet in one stripe. If each waited for the round of each before it, they would be as
//! slow as rounds are. So those that wait and touch each other are joined, as a group commit does: the first
//! of them *leads*, and when the stripes are free, writes the bytes of all.
//!
//! Bytes are copied when they join: a caller may give up its write while another one makes it. The order of
//! writes that are under way at the same time is not defined, so later ones replace bytes of earlier ones.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use braid_layout::Lease;
use tokio::sync::Notify;

use crate::data::stripes::{HeldStripes, Stripes, Ticket};

/// Longest write that joins others. Longer ones gain little by it, and cost a copy.
pub(crate) const JOINED_BYTES_MAX: u64 = 512 << 10;

/// Number of times that a leader lets other tasks run, for those to join whose last joined write has just
/// ended: about 50 us. A writer that is alone by now does so once.
const REJOIN_YIELDS: usize = 32;
/// Pieces of memory that are kept for the next joined writes, and the most bytes of each.
const SPARE_MAX: usize = 2;
const SPARE_BYTES_MAX: usize = 16 << 20;

/// The joined writes of one file that wait for their stripes.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    waiting: Mutex<Vec<Waiting>>,
    /// Number of callers of the last one that was made.
    last: AtomicUsize,
    /// Memory for the next joined writes: fresh memory would cost page faults.
    spare: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct Waiting {
    /// Several if writes with a gap between were joined when it closed.
    joined: Vec<Arc<Joined>>,
    within: Within,
    /// All of its parts together.
    range: Range<u64>,
    /// The range of each caller, in the order in which they came: so their bytes follow in `bytes`.
    parts: Vec<Range<u64>>,
    bytes: Vec<u8>,
}

/// Where a joined write may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Within {
    /// The lease of the callers: one that has an older one must not be written under a newer.
    pub(crate) lease: Lease,
    pub(crate) segment: usize,
    /// The bytes of the file that all of it must lie in.
    pub(crate) bytes: Range<u64>,
}

/// The end of a joined write.
#[derive(Debug, Default)]
struct Joined {
    /// True if its bytes are written; false if each caller must see to its own. Unset until it ends.
    outcome: OnceLock<bool>,
    /// Told when it ends.
    ended: Notify,
}

/// A caller's part of a joined write.
pub(crate) struct Member<'a> {
    joins: &'a Joins,
    joined: Arc<Joined>,
    /// True if this member waits for the stripes. The others wait for the end: as long as the write waits, no
    /// member has given up.
    leads: bool,
}

/// The next step of a member.
pub(crate) enum Turn<'a> {
    /// It writes these bytes, whose stripes it holds.
    Write(Taken<'a>),
    /// Another member has written its bytes (true), or could not (false).
    Ended(bool),
}

/// A joined write that has its stripes. Unless it is said to be done, each member sees to its own bytes when
/// this is dropped.
pub(crate) struct Taken<'a> {
    joins: &'a Joins,
    _held: HeldStripes<'a>,
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Vec<u8>,
    joined: Vec<Arc<Joined>>,
}

impl Joins {
    /// Returns true if a write there should join: one waits, or the last one had several callers, which come
    /// again at once.
    pub(crate) fn is_wanted(&self, within: &Within) -> bool {
        self.last.load(Ordering::Relaxed) > 1 || self.lock().iter().any(|one| one.within == *within)
    }

    /// Joins a waiting write whose bytes touch these, or begins one.
    pub(crate) fn join(&self, within: Within, range: Range<u64>, bytes: &[u8]) -> Member<'_> {
        let mut waiting = self.lock();
        let touches = |one: &Waiting, range: &Range<u64>| {
            one.within == within && one.range.start <= range.end && range.start <= one.range.end
        };
        if let Some(index) = waiting.iter().position(|one| touches(one, &range)) {
            let mut one = waiting.swap_remove(index);
            // The new bytes may close a gap to others. They go over all that is there: they are the latest.
            while let Some(next) = waiting.iter().position(|next| touches(next, &range)) {
                let next = waiting.swap_remove(next);
                one.add(&next.range, next.parts, &next.bytes);
                one.joined.extend(next.joined);
                self.give_back(next.bytes);
            }
            one.add(&range, vec![range.clone()], bytes);
            let joined = Arc::clone(&one.joined[0]);
            waiting.push(one);
            return Member { joins: self, joined, leads: false };
        }
        let joined = Arc::new(Joined::default());
        waiting.push(Waiting {
            joined: vec![Arc::clone(&joined)],
            within,
            parts: vec![range.clone()],
            range,
            bytes: self.memory(bytes),
        });
        Member { joins: self, joined, leads: true }
    }

    /// Memory with these bytes.
    fn memory(&self, bytes: &[u8]) -> Vec<u8> {
        let mut memory = self.spare.lock().expect("no holder panics").pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(bytes);
        memory
    }

    /// The bytes of a write in the order of the file.
    fn in_order(&self, range: &Range<u64>, parts: &[Range<u64>], bytes: Vec<u8>) -> Vec<u8> {
        if parts.windows(2).all(|two| two[0].end == two[1].start) {
            return bytes;
        }
        let length =
            |range: &Range<u64>| usize::try_from(range.end - range.start).expect("a buffer's length");
        let mut ordered = self.memory(&[]);
        // All of it is replaced: the parts have no gap between them.
        ordered.resize(length(range), 0);
        let mut rest = bytes.as_slice();
        for part in parts {
            let (own, after) = rest.split_at(length(part));
            let at = length(&(range.start..part.start));
            ordered[at..at + own.len()].copy_from_slice(own);
            rest = after;
        }
        self.give_back(bytes);
        ordered
    }

    fn give_back(&self, memory: Vec<u8>) {
        let mut spare = self.spare.lock().expect("no holder panics");
        if spare.len() < SPARE_MAX && memory.capacity() <= SPARE_BYTES_MAX {
            spare.push(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().expect("no holder panics")
    }
}

impl Waiting {
    fn is(&self, joined: &Arc<Joined>) -> bool {
        self.joined.iter().any(|own| Arc::ptr_eq(own, joined))
    }

    /// Adds parts. Once a caller has joined, all parts touch each other.
    fn add(&mut self, range: &Range<u64>, parts: Vec<Range<u64>>, bytes: &[u8]) {
        self.range = self.range.start.min(range.start)..self.range.end.max(range.end);
        self.parts.extend(parts);
        self.bytes.extend_from_slice(bytes);
    }
}

impl<'a> Member<'a> {
    /// Waits until the write has ended, or is this member's to make. `stripes_of` gives the stripes of a
    /// range.
    pub(crate) async fn turn(
        &mut self,
        stripes: &'a Stripes,
        stripes_of: impl Fn(&Range<u64>) -> Range<u64>,
    ) -> Turn<'a> {
        let mut ticket = None;
        if self.leads {
            self.let_others_join().await;
        }
        loop {
            // Registered before the checks, so that nothing in between is missed.
            let ended = self.joined.ended.notified();
            let freed = stripes.freed();
            if let Some(&is_written) = self.joined.outcome.get() {
                return Turn::Ended(is_written);
            }
            if !self.leads {
                ended.await;
                continue;
            }
            if let Some(taken) = self.take(stripes, &mut ticket, &stripes_of) {
                return Turn::Write(taken);
            }
            freed.await;
            self.let_others_join().await;
        }
    }

    /// Waits for callers whose writes have just ended: they come again at once, and their next ones can join.
    async fn let_others_join(&self) {
        let mut yields = 0;
        while yields < REJOIN_YIELDS && !self.is_full() {
            tokio::task::yield_now().await;
            yields += 1;
        }
    }

    /// Returns true if the write has more callers than the last one that was made: all of these are back.
    fn is_full(&self) -> bool {
        let last = self.joins.last.load(Ordering::Relaxed);
        let waiting = self.joins.lock();
        let own = waiting.iter().find(|one| one.is(&self.joined));
        own.is_none_or(|own| own.parts.len() > last)
    }

    /// Takes the write, if its stripes are free. Until then its place in their queue is kept.
    fn take(
        &self,
        stripes: &'a Stripes,
        ticket: &mut Option<Ticket<'a>>,
        stripes_of: impl Fn(&Range<u64>) -> Range<u64>,
    ) -> Option<Taken<'a>> {
        let mut waiting = self.joins.lock();
        let index = waiting.iter().position(|one| one.is(&self.joined))?;
        let wanted = stripes_of(&waiting[index].range);
        let ticket = ticket.get_or_insert_with(|| stripes.queue(waiting[index].within.segment));
        let held = ticket.hold_now(wanted)?;
        let Waiting { joined, range, parts, bytes, .. } = waiting.remove(index);
        drop(waiting);
        self.joins.last.store(parts.len(), Ordering::Relaxed);
        let bytes = self.joins.in_order(&range, &parts, bytes);
        Some(Taken { joins: self.joins, _held: held, range, bytes, joined })
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut waiting = self.joins.lock();
        let Some(index) = waiting.iter().position(|one| one.is(&self.joined)) else {
            return;
        };
        // Its bytes must not be written after it has given up, over those of a later write. The others have
        // theirs still, and go again.
        let Waiting { joined, bytes, .. } = waiting.swap_remove(index);
        drop(waiting);
        end(&joined, false);
        self.joins.give_back(bytes);
    }
}

/// Ends a joined write for all its members, unless it has ended.
fn end(joined: &[Arc<Joined>], is_written: bool) {
    for one in joined {
        let _ = one.outcome.set(is_written);
        one.ended.notify_waiters();
    }
}

impl Taken<'_> {
    /// Ends the write: all of its bytes are written.
    pub(crate) fn done(self) {
        end(&self.joined, true);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        end(&self.joined, false);
        self.joins.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Within {
        Within { lease: Lease(1), segment: 0, bytes: 0..1000 }
    }

    fn stripes_of(range: &Range<u64>) -> Range<u64> {
        range.start / 100..range.end.div_ceil(100)
    }

    #[tokio::test]
    async fn writes_that_touch_each_other_are_made_as_one() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        let busy = stripes.hold(0, 0..1).await;
        let mut first = joins.join(all(), 20..30, &[1; 10]);
        let mut second = joins.join(all(), 25..40, &[2; 15]);
        let mut third = joins.join(all(), 15..20, &[3; 5]);
        let mut apart = joins.join(all(), 60..70, &[4; 10]);
        assert!(joins.is_wanted(&all()) && !joins.is_wanted(&Within { lease: Lease(2), ..all() }));
        drop(busy);
        let Turn::Write(taken) = first.turn(&stripes, stripes_of).await else { panic!("the first leads") };
        assert_eq!(taken.range, 15..40);
        assert_eq!(taken.bytes, [&[3; 5][..], &[1; 5], &[2; 15]].concat());
        assert!(stripes.hold_now(0, 0..1).is_none(), "its stripe is held");
        taken.done();
        assert!(matches!(first.turn(&stripes, stripes_of).await, Turn::Ended(true)));
        assert!(matches!(second.turn(&stripes, stripes_of).await, Turn::Ended(true)));
        assert!(matches!(third.turn(&stripes, stripes_of).await, Turn::Ended(true)));
        assert!(matches!(apart.turn(&stripes, stripes_of).await, Turn::Write(_)));
    }

    #[tokio::test]
    async fn a_write_that_closes_a_gap_joins_both_sides() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        let mut before = joins.join(all(), 20..30, &[1; 10]);
        let mut after = joins.join(all(), 40..50, &[2; 10]);
        let mut between = joins.join(all(), 30..40, &[3; 10]);
        let Turn::Write(taken) = after.turn(&stripes, stripes_of).await else { panic!("it leads") };
        assert_eq!(taken.bytes, [[1; 10], [3; 10], [2; 10]].concat());
        taken.done();
        for member in [&mut before, &mut after, &mut between] {
            assert!(matches!(member.turn(&stripes, stripes_of).await, Turn::Ended(true)));
        }
    }

    #[tokio::test]
    async fn bytes_that_come_later_are_written_over_those_before() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        let mut before = joins.join(all(), 20..30, &[1; 10]);
        let _after = joins.join(all(), 40..50, &[2; 10]);
        let _both = joins.join(all(), 25..45, &[3; 20]);
        let Turn::Write(taken) = before.turn(&stripes, stripes_of).await else { panic!("it leads") };
        assert_eq!(taken.range, 20..50);
        assert_eq!(taken.bytes, [&[1; 5][..], &[3; 20], &[2; 5]].concat());
    }

    #[tokio::test]
    async fn after_a_joined_write_the_first_waits_for_the_others() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        let mut first = joins.join(all(), 20..30, &[1; 10]);
        let _second = joins.join(all(), 30..40, &[2; 10]);
        let Turn::Write(taken) = first.turn(&stripes, stripes_of).await else { panic!("the first leads") };
        taken.done();
        assert!(joins.is_wanted(&all()), "both come again");
        // No stripe is held, and yet what comes a little later is written with it.
        let mut third = joins.join(all(), 50..60, &[3; 10]);
        let lead = async {
            let Turn::Write(taken) = third.turn(&stripes, stripes_of).await else { panic!("it leads") };
            assert_eq!((taken.range.clone(), taken.bytes.len()), (40..60, 20));
        };
        let mut fourth = None;
        let follow = async { fourth = Some(joins.join(all(), 40..50, &[4; 10])) };
        tokio::join!(lead, follow);
    }

    #[tokio::test]
    async fn when_one_gives_up_nothing_of_it_is_written_and_the_others_go_again() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        for leader_gives_up in [true, false] {
            let mut first = joins.join(all(), 20..30, &[1; 10]);
            let mut second = joins.join(all(), 30..40, &[2; 10]);
            let stays = if leader_gives_up {
                drop(first);
                &mut second
            } else {
                drop(second);
                &mut first
            };
            assert!(matches!(stays.turn(&stripes, stripes_of).await, Turn::Ended(false)));
            assert!(!joins.is_wanted(&all()));
        }
        // A write that has its stripes is made, or fails, for all.
        let mut first = joins.join(all(), 20..30, &[1; 10]);
        let mut second = joins.join(all(), 30..40, &[2; 10]);
        let Turn::Write(taken) = first.turn(&stripes, stripes_of).await else { panic!("it leads") };
        drop(taken);
        assert!(matches!(second.turn(&stripes, stripes_of).await, Turn::Ended(false)));
    }

    #[tokio::test]
    async fn a_member_waits_for_the_leader_s_write() {
        let stripes = Stripes::default();
        let joins = Joins::default();
        let mut first = joins.join(all(), 20..30, &[1; 10]);
        let mut second = joins.join(all(), 30..40, &[2; 10]);
        let lead = async {
            let Turn::Write(taken) = first.turn(&stripes, stripes_of).await else { panic!("it leads") };
            tokio::task::yield_now().await;
            taken.done();
        };
        let follow = async {
            assert!(matches!(second.turn(&stripes, stripes_of).await, Turn::Ended(true)));
        };
        tokio::join!(follow, lead);
    }
}
