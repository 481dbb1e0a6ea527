//! The stripes that a handle writes part by part, one part after another: their content as it was written.
//!
//! A write of part of a stripe needs the parity as it is, or the other units. For a writer of small records
//! these are what it has just sent: kept here, they need not be read again. Only a writer that is alone knows
//! that nobody else has changed them, so the content counts for one exclusive lease and generation.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use braid_layout::{Column, Generation, Lease, Role, Segment, Stripe, Version};

use crate::data::cut::Arrived;

/// Stripes kept. A writer in order is in one, and goes on in the next before the first is done.
const STRIPES_MAX: usize = 2;
/// Bytes of a stripe, with its parity, up to which it is kept.
const STRIPE_BYTES_MAX: u64 = 16 << 20;
/// Bytes that all handles of a client keep. Beyond that the one that has not written for longest forgets.
const KEPT_BYTES_MAX: usize = 128 << 20;
/// From this many known bytes of a unit on, memory for all of it is taken at once.
const GROWS_BELOW: usize = 64 << 10;

/// The content that all handles of a client keep.
#[derive(Debug, Default)]
pub(crate) struct AllRecent {
    bytes: AtomicUsize,
    /// Number of the last write, of any handle, whose content is kept.
    writes: AtomicU64,
    handles: Mutex<Vec<Weak<Mutex<State>>>>,
}

/// The stripes that a handle has just written parts of.
#[derive(Debug)]
pub(crate) struct Recent {
    state: Arc<Mutex<State>>,
    all: Arc<AllRecent>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last write whose content is kept.
    last_write: u64,
    lease: Lease,
    g: Generation,
    /// End of the last write that has begun.
    end: u64,
    stripes: Vec<Content>,
}

/// A stripe of a file, under one lease and generation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) lease: Lease,
    pub(crate) g: Generation,
    pub(crate) segment: usize,
    pub(crate) layout: &'a Segment,
    pub(crate) stripe: Stripe,
}

/// Bytes that a write has sent to a column.
pub(crate) struct Written<'b> {
    pub(crate) column: Column,
    /// Where they are in the column's unit.
    pub(crate) range: Range<u32>,
    pub(crate) bytes: &'b [u8],
}

/// The known content of a stripe.
#[derive(Debug)]
struct Content {
    segment: usize,
    stripe: Stripe,
    facts: Facts,
    /// The content of each column.
    known: Vec<Known>,
}

/// A stripe's versions after a write that every column has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The version of the parity.
    pub(crate) stamp: Version,
    /// The version of each data unit.
    pub(crate) versions: Vec<Version>,
    /// The end of each data unit's bytes.
    pub(crate) ends: Vec<u32>,
}

/// The bytes of a column's unit that are known.
#[derive(Debug, Default)]
struct Known {
    range: Range<u32>,
    bytes: Vec<u8>,
}

impl State {
    fn is_of(&self, at: &At<'_>) -> bool {
        self.lease == at.lease && self.g == at.g
    }

    fn bytes(&self) -> usize {
        self.stripes.iter().flat_map(|one| &one.known).map(|known| known.bytes.capacity()).sum()
    }

    fn find(&self, at: &At<'_>) -> Option<&Content> {
        let found = self.stripes.iter().find(|one| one.segment == at.segment && one.stripe == at.stripe);
        found.filter(|_| self.is_of(at))
    }
}

impl AllRecent {
    /// The content of one more handle.
    pub(crate) fn of_handle(self: &Arc<AllRecent>) -> Recent {
        let state = Arc::default();
        let mut handles = self.handles.lock().expect("no holder panics");
        // Only when the list would grow: an open does not look at all that are open.
        if handles.len() == handles.capacity() {
            handles.retain(|handle| handle.strong_count() > 0);
        }
        handles.push(Arc::downgrade(&state));
        Recent { state, all: Arc::clone(self) }
    }

    /// If all handles keep too many bytes, others than this one forget, those first that have not written for
    /// longest. Returns false if that was not enough.
    fn make_room_for(&self, own: &Arc<Mutex<State>>) -> bool {
        if self.bytes.load(Ordering::Relaxed) <= KEPT_BYTES_MAX {
            return true;
        }
        let handles: Vec<Arc<Mutex<State>>> = {
            let handles = self.handles.lock().expect("no holder panics");
            handles.iter().filter_map(Weak::upgrade).filter(|other| !Arc::ptr_eq(other, own)).collect()
        };
        let last_write = |state: &Arc<Mutex<State>>| state.lock().expect("no holder panics").last_write;
        let mut others: Vec<_> = handles.iter().map(|other| (last_write(other), other)).collect();
        others.sort_unstable_by_key(|(last_write, _)| *last_write);
        for (_, other) in others {
            if self.bytes.load(Ordering::Relaxed) <= KEPT_BYTES_MAX {
                break;
            }
            let mut state = other.lock().expect("no holder panics");
            self.bytes.fetch_sub(state.bytes(), Ordering::Relaxed);
            state.stripes.clear();
        }
        self.bytes.load(Ordering::Relaxed) <= KEPT_BYTES_MAX
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        self.change(|state| state.stripes.clear());
    }
}

impl Recent {
    /// Records that a write of these bytes of the file begins. Returns true if its stripes are worth keeping:
    /// it goes on where the last one ended.
    pub(crate) fn begins(&self, range: &Range<u64>) -> bool {
        let mut state = self.lock();
        let follows = range.start == state.end;
        state.end = range.end;
        follows
    }

    /// Forgets the stripes: they are about to change.
    pub(crate) fn forget(&self, segment: usize, stripes: &Range<u64>) {
        let is_meant = |one: &Content| one.segment == segment && stripes.contains(&one.stripe.0);
        self.change(|state| state.stripes.retain(|one| !is_meant(one)));
    }

    /// Changes what is kept, and counts its bytes. If all handles keep too many, this one forgets.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = state.bytes();
        change(&mut state);
        // Counted while the state is locked: who makes room takes off what is counted.
        self.all.bytes.fetch_add(state.bytes(), Ordering::Relaxed);
        self.all.bytes.fetch_sub(before, Ordering::Relaxed);
        drop(state);
        if !self.all.make_room_for(&self.state) {
            let mut state = self.lock();
            self.all.bytes.fetch_sub(state.bytes(), Ordering::Relaxed);
            state.stripes.clear();
        }
    }

    /// Keeps what a write has left in a stripe, beside what is known of it already.
    pub(crate) fn keep<'b>(&self, at: &At<'_>, facts: Facts, written: impl IntoIterator<Item = Written<'b>>) {
        let shape = &at.layout.shape;
        let unit = shape.unit_bytes();
        if u64::from(unit) * u64::from(shape.width()) > STRIPE_BYTES_MAX {
            return;
        }
        let width = usize::from(shape.width());
        let number = self.all.writes.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(|state| {
            if !state.is_of(at) {
                state.stripes.clear();
                state.lease = at.lease;
                state.g = at.g;
            }
            state.last_write = number;
            let own = |one: &Content| one.segment == at.segment && one.stripe == at.stripe;
            let mut content = match state.stripes.iter().position(own) {
                Some(index) => state.stripes.remove(index),
                None => {
                    let known = std::iter::repeat_with(Known::default).take(width).collect();
                    Content { segment: at.segment, stripe: at.stripe, facts: facts.clone(), known }
                }
            };
            content.facts = facts;
            for Written { column, range, bytes } in written {
                content.known[column.index()].add(unit, range, bytes);
            }
            if state.stripes.len() == STRIPES_MAX {
                state.stripes.remove(0);
            }
            state.stripes.push(content);
        });
    }

    /// Versions and ends of the stripe's data units; `None` if they are not known.
    pub(crate) fn facts(&self, at: &At<'_>) -> Option<Facts> {
        Some(self.lock().find(at)?.facts.clone())
    }

    /// Returns true if something of the stripe is known.
    pub(crate) fn knows(&self, at: &At<'_>) -> bool {
        self.lock().find(at).is_some()
    }

    /// The answer to a read of part of a unit, with its bytes put into `into`; `None` if not all are known.
    pub(crate) fn read(
        &self,
        at: &At<'_>,
        column: Column,
        range: &Range<u32>,
        into: &mut [u8],
    ) -> Option<Arrived> {
        let state = self.lock();
        let content = state.find(at)?;
        let known = &content.known[column.index()];
        if known.range.start > range.start || known.range.end < range.end {
            return None;
        }
        let from = wide(range.start - known.range.start);
        into.copy_from_slice(&known.bytes[from..from + wide(range.end - range.start)]);
        let facts = &content.facts;
        Some(match at.layout.role(at.stripe, column) {
            Role::Data(data) => Arrived {
                version: facts.versions[usize::from(data)],
                cover: Vec::new(),
                ends: vec![facts.ends[usize::from(data)]],
                pending: false,
            },
            Role::Parity(_) => Arrived {
                version: facts.stamp,
                cover: facts.versions.clone(),
                ends: facts.ends.clone(),
                pending: false,
            },
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Known {
    /// Adds bytes. Those known before are forgotten if there is a gap between, or if the new ones begin
    /// before them and do not cover them.
    fn add(&mut self, unit: u32, range: Range<u32>, bytes: &[u8]) {
        let goes_on = self.range.start <= range.start && range.start <= self.range.end;
        if self.range.is_empty() || !goes_on {
            self.bytes.clear();
            self.range = range.start..range.start;
        }
        let from = wide(range.start - self.range.start);
        let end = from + bytes.len();
        if end > self.bytes.len() {
            if end > GROWS_BELOW {
                self.bytes.reserve_exact(wide(unit - self.range.start) - self.bytes.len());
            }
            self.bytes.resize(end, 0);
        }
        self.bytes[from..end].copy_from_slice(bytes);
        self.range.end = self.range.end.max(range.end);
    }
}

fn wide(value: u32) -> usize {
    usize::try_from(value).expect("this runs on 32 bits and up")
}

#[cfg(test)]
mod tests {
    use braid_layout::{Component, DriveId, ObjectId, Scheme, Shape};

    use super::*;

    fn layout() -> Segment {
        let shape = Shape::new(Scheme::Raid4, 2, 1, 4096).expect("good");
        let component = |drive| Component { drive: DriveId(drive), object: ObjectId(1) };
        Segment { start: 0, end: u64::MAX, shape, components: (1..4).map(component).collect() }
    }

    fn at(layout: &Segment, lease: u32, stripe: u64) -> At<'_> {
        At { lease: Lease(lease), g: Generation(1), segment: 0, layout, stripe: Stripe(stripe) }
    }

    fn facts(n: u64) -> Facts {
        let stamp = Version { g: Generation(1), lease: Lease(1), n };
        Facts { stamp, versions: vec![stamp, Version::ZERO], ends: vec![300, 0] }
    }

    fn written(column: u8, range: Range<u32>, bytes: &[u8]) -> Written<'_> {
        Written { column: Column(column), range, bytes }
    }

    #[test]
    fn what_was_written_is_known_under_its_lease_alone() {
        let layout = layout();
        let recent = Arc::<AllRecent>::default().of_handle();
        let here = at(&layout, 1, 5);
        recent.keep(&here, facts(1), [written(0, 100..200, &[1; 100])]);
        recent.keep(&here, facts(2), [written(0, 200..300, &[2; 100]), written(2, 200..300, &[3; 100])]);
        let mut bytes = [0; 150];
        let data = recent.read(&here, Column(0), &(125..275), &mut bytes).expect("known");
        assert_eq!((bytes[0], bytes[149]), (1, 2));
        assert_eq!((data.version, data.ends), (facts(2).stamp, vec![300]));
        let mut bytes = [0; 100];
        let parity = recent.read(&here, Column(2), &(200..300), &mut bytes).expect("known");
        assert_eq!((parity.version, parity.cover), (facts(2).stamp, facts(2).versions));
        assert!(recent.read(&here, Column(2), &(199..299), &mut bytes).is_none(), "part of it is not known");
        assert!(recent.read(&here, Column(1), &(0..100), &mut bytes).is_none());
        assert!(recent.read(&at(&layout, 1, 6), Column(2), &(200..300), &mut bytes).is_none());
        assert!(!recent.knows(&at(&layout, 2, 5)), "another lease");
        recent.keep(&at(&layout, 2, 7), facts(3), [written(0, 0..1, &[1])]);
        assert!(!recent.knows(&here) && recent.knows(&at(&layout, 2, 7)));
        recent.forget(0, &(7..8));
        assert!(!recent.knows(&at(&layout, 2, 7)));
    }

    #[test]
    fn bytes_before_a_gap_are_forgotten_and_so_are_older_stripes() {
        let layout = layout();
        let recent = Arc::<AllRecent>::default().of_handle();
        recent.keep(&at(&layout, 1, 1), facts(1), [written(0, 0..10, &[1; 10])]);
        recent.keep(&at(&layout, 1, 1), facts(2), [written(0, 20..30, &[2; 10])]);
        let mut bytes = [0; 10];
        assert!(recent.read(&at(&layout, 1, 1), Column(0), &(0..10), &mut bytes).is_none());
        assert!(recent.read(&at(&layout, 1, 1), Column(0), &(20..30), &mut bytes).is_some());
        recent.keep(&at(&layout, 1, 2), facts(3), [written(0, 0..10, &[1; 10])]);
        recent.keep(&at(&layout, 1, 3), facts(4), [written(0, 0..10, &[1; 10])]);
        assert!(!recent.knows(&at(&layout, 1, 1)) && recent.knows(&at(&layout, 1, 2)));
    }

    #[test]
    fn a_client_keeps_so_many_bytes_and_no_more() {
        let layout = layout();
        let all: Arc<AllRecent> = Arc::default();
        let old = all.of_handle();
        let new = all.of_handle();
        old.keep(&at(&layout, 1, 1), facts(1), [written(0, 0..100, &[1; 100])]);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 100);
        all.bytes.fetch_add(KEPT_BYTES_MAX - 100, Ordering::Relaxed);
        new.keep(&at(&layout, 1, 1), facts(2), [written(0, 0..50, &[1; 50])]);
        assert!(new.knows(&at(&layout, 1, 1)) && !old.knows(&at(&layout, 1, 1)));
        all.bytes.fetch_add(50, Ordering::Relaxed);
        new.keep(&at(&layout, 1, 2), facts(3), [written(0, 0..50, &[1; 50])]);
        assert!(!new.knows(&at(&layout, 1, 1)) && !new.knows(&at(&layout, 1, 2)), "nobody else can forget");
        all.bytes.fetch_sub(KEPT_BYTES_MAX - 50, Ordering::Relaxed);
        drop((old, new));
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_write_goes_on_where_the_last_one_ended() {
        let recent = Arc::<AllRecent>::default().of_handle();
        assert!(recent.begins(&(0..10)) && recent.begins(&(10..30)));
        assert!(!recent.begins(&(50..60)) && recent.begins(&(60..70)));
    }
}
