//! The stripes that a handle writes part by part, one part after another: their content as it was written.
//!
//! A write of part of a stripe needs the parity as it is, or the other units. For a writer of small records
//! these are what it has just sent: kept here, they need not be read again. Only a writer that is alone knows
//! that nobody else has changed them, so the content counts for one exclusive lease and generation.

use std::ops::Range;
use std::sync::Mutex;

use braid_layout::{Column, Generation, Lease, Role, Segment, Stripe, Version};

use crate::executor::Arrived;
use crate::view::FileView;

/// Stripes kept. A writer in order is in one, and goes on in the next before the first is done.
const STRIPES_MAX: usize = 2;
/// Units' worth of memory that is kept for reuse.
const SPARE_MAX: usize = 8;
/// Bytes of a stripe, with its parity, up to which it is kept.
const STRIPE_BYTES_MAX: u64 = 16 << 20;

/// The stripes that a handle has just written parts of.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lease: Lease,
    g: Generation,
    /// End of the last write that has begun.
    end: u64,
    stripes: Vec<Content>,
    /// Memory for units, for reuse: fresh memory would cost page faults.
    spare: Vec<Vec<u8>>,
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

impl<'a> At<'a> {
    pub(crate) fn of(view: &'a FileView, segment: usize, stripe: Stripe) -> At<'a> {
        let layout = &view.layout.segments()[segment];
        At { lease: view.lease, g: view.g, segment, layout, stripe }
    }
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
    /// As long as the unit, or empty if nothing is known.
    bytes: Vec<u8>,
}

impl State {
    fn is_of(&self, at: &At<'_>) -> bool {
        self.lease == at.lease && self.g == at.g
    }

    fn forget(&mut self, index: usize) {
        let content = self.stripes.remove(index);
        self.spare.extend(content.known.into_iter().map(|known| known.bytes));
        self.spare.retain(|bytes| !bytes.is_empty());
        self.spare.truncate(SPARE_MAX);
    }

    fn find(&self, at: &At<'_>) -> Option<&Content> {
        let found = self.stripes.iter().find(|one| one.segment == at.segment && one.stripe == at.stripe);
        found.filter(|_| self.is_of(at))
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
        let mut state = self.lock();
        let is_meant = |one: &Content| one.segment == segment && stripes.contains(&one.stripe.0);
        while let Some(index) = state.stripes.iter().position(is_meant) {
            state.forget(index);
        }
    }

    /// The known content of a stripe, taken out to be changed.
    fn take(&self, at: &At<'_>) -> Option<Content> {
        let mut state = self.lock();
        let is_of = state.is_of(at);
        let own = |one: &Content| one.segment == at.segment && one.stripe == at.stripe;
        let index = state.stripes.iter().position(own)?;
        Some(state.stripes.remove(index)).filter(|_| is_of)
    }

    /// Keeps what a write has left in a stripe, beside what is known of it already.
    pub(crate) fn keep<'b>(&self, at: &At<'_>, facts: Facts, written: impl IntoIterator<Item = Written<'b>>) {
        let shape = &at.layout.shape;
        let unit = shape.unit_bytes();
        if u64::from(unit) * u64::from(shape.width()) > STRIPE_BYTES_MAX {
            return;
        }
        let before = self.take(at);
        let mut content = before.unwrap_or_else(|| Content {
            segment: at.segment,
            stripe: at.stripe,
            facts: facts.clone(),
            known: std::iter::repeat_with(Known::default).take(usize::from(shape.width())).collect(),
        });
        content.facts = facts;
        for Written { column, range, bytes } in written {
            let known = &mut content.known[column.index()];
            if known.bytes.is_empty() {
                known.bytes = self.lock().spare.pop().unwrap_or_default();
            }
            known.add(unit, range, bytes);
        }
        let mut state = self.lock();
        let is_of = state.is_of(at);
        state.lease = at.lease;
        state.g = at.g;
        while state.stripes.len() >= if is_of { STRIPES_MAX } else { 1 } {
            state.forget(0);
        }
        state.stripes.push(content);
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
        into.copy_from_slice(&known.bytes[wide(range.start)..wide(range.end)]);
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Known {
    /// Adds bytes. Those known before are forgotten if there is a gap between.
    fn add(&mut self, unit: u32, range: Range<u32>, bytes: &[u8]) {
        self.bytes.resize(wide(unit), 0);
        self.bytes[wide(range.start)..wide(range.end)].copy_from_slice(bytes);
        let touches = self.range.start <= range.end && range.start <= self.range.end;
        self.range = match (self.range.is_empty(), touches) {
            (false, true) => self.range.start.min(range.start)..self.range.end.max(range.end),
            _ => range,
        };
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
        let recent = Recent::default();
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
        let recent = Recent::default();
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
    fn a_write_goes_on_where_the_last_one_ended() {
        let recent = Recent::default();
        assert!(recent.begins(&(0..10)) && recent.begins(&(10..30)));
        assert!(!recent.begins(&(50..60)) && recent.begins(&(60..70)));
    }
}
