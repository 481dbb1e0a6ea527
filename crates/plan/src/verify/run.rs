//! Runs one stripe's instructions and steps over a few bytes that stand for all.
//!
//! Every range in a stripe begins and ends at a cut: an end of some instruction's or step's range, or of the
//! requested bytes, or of the bytes that may be nonzero. Between two cuts all bytes are treated alike, and
//! the code works on each byte by itself, so eight bytes stand for the whole part. The content of units and
//! of the caller's buffer is a hash of the position, so that bytes in the wrong place do not pass by chance.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_layout::code::Code;
use braid_layout::{Role, Segment, Stripe};

use super::node::{Act, Node};
use crate::ir::{MemoryRange, Op, Operand, PlanSet, Source, Step};
use crate::request::{Body, Request};

/// Bytes that stand for all bytes of one part.
pub(super) type Bytes = [u8; 8];

/// A byte of the client's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot {
    /// `None`: the caller's buffer; else the scratch piece.
    pub(super) area: Option<u32>,
    pub(super) offset: u64,
}

/// The byte with this index in a memory range.
pub(super) fn spot(location: &MemoryRange, index: u32) -> Spot {
    match *location {
        MemoryRange::User { offset, .. } => Spot { area: None, offset: offset + u64::from(index) },
        MemoryRange::Scratch { piece, offset, .. } => {
            Spot { area: Some(piece), offset: u64::from(offset) + u64::from(index) }
        }
    }
}

/// Offsets at which the units of one stripe are cut.
pub(super) struct Cuts(Vec<u32>);

impl Cuts {
    pub(super) fn new(set: &PlanSet, segment: &Segment, stripe: Stripe, nodes: &[&Node<'_>]) -> Cuts {
        let mut points = vec![0, segment.shape.unit_bytes()];
        points.extend(nodes.iter().flat_map(|node| [node.range.start, node.range.end]));
        for data in 0..segment.shape.k() {
            points.push(live(set, segment, stripe, data));
            let asked = asked(set, segment, stripe, data);
            points.extend([asked.start, asked.end]);
        }
        points.sort_unstable();
        points.dedup();
        Cuts(points)
    }

    /// The parts of `range`, which begins and ends at cuts.
    pub(super) fn parts(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        let within = |pair: &&[u32]| range.start <= pair[0] && pair[1] <= range.end;
        self.0.windows(2).filter(within).map(|pair| pair[0]..pair[1]).collect()
    }
}

/// First byte of the file in a data unit; past the segment's end if the segment ends before it.
fn unit_start(segment: &Segment, stripe: Stripe, data: u8) -> u64 {
    let unit = u64::from(segment.shape.unit_bytes());
    segment.stripe_range(stripe).start.saturating_add(u64::from(data) * unit)
}

/// Number of bytes of a data unit, from its first, that lie before byte `end` of the file.
fn before(segment: &Segment, stripe: Stripe, data: u8, end: u64) -> u32 {
    let bytes = end.min(segment.end).saturating_sub(unit_start(segment, stripe, data));
    let unit = segment.shape.unit_bytes();
    u32::try_from(bytes).map_or(unit, |bytes| bytes.min(unit))
}

/// The bytes of a data unit that are to be read or written.
pub(super) fn asked(set: &PlanSet, segment: &Segment, stripe: Stripe, data: u8) -> Range<u32> {
    let range = match &set.request {
        Request::Read { range, .. } | Request::Run { range, .. } => range,
        Request::Write(write) => &write.range,
        Request::Rebuild { .. } | Request::Check { .. } => return 0..0,
    };
    before(segment, stripe, data, range.start)..before(segment, stripe, data, range.end)
}

/// Number of bytes of a data unit, from its first, that may be nonzero before the request.
pub(super) fn live(set: &PlanSet, segment: &Segment, stripe: Stripe, data: u8) -> u32 {
    match &set.request {
        Request::Write(write) => before(segment, stripe, data, write.size),
        _ => segment.shape.unit_bytes(),
    }
}

/// Returns true if a data unit is known never to have been written.
pub(super) fn fresh(set: &PlanSet, segment: &Segment, stripe: Stripe, data: u8) -> bool {
    match &set.request {
        Request::Write(write) => unit_start(segment, stripe, data) >= write.reach,
        _ => false,
    }
}

/// Spot of byte `at` of a data unit in the caller's buffer.
pub(super) fn buffer_spot(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    data: u8,
    at: u32,
) -> Option<Spot> {
    let byte = unit_start(segment, stripe, data) + u64::from(at);
    let (buffer, range) = match &set.request {
        Request::Read { range, buffer } | Request::Run { range, buffer } => (*buffer, range),
        Request::Write(write) => match write.body {
            Body::Buffer { offset } => (offset, &write.range),
            Body::Zeros => return None,
        },
        Request::Rebuild { .. } | Request::Check { .. } => return None,
    };
    Some(Spot { area: None, offset: buffer + (byte - range.start) })
}

/// Content of the caller's buffer in a part that begins at `spot`.
pub(super) fn user_bytes(spot: Spot) -> Bytes {
    mixed(&[1, spot.offset])
}

/// The stripe before the request: every unit, part by part.
pub(super) struct Old<'a> {
    set: &'a PlanSet,
    segment: &'a Segment,
    stripe: Stripe,
    code: Code,
    /// A unit whose content is falsified, to test whether a check finds it.
    pub(super) damaged: Option<Role>,
}

impl<'a> Old<'a> {
    pub(super) fn new(set: &'a PlanSet, segment: &'a Segment, stripe: Stripe) -> Old<'a> {
        Old { set, segment, stripe, code: Code::new(segment.shape), damaged: None }
    }

    /// Content of the unit `role` in a part that begins at `at`.
    pub(super) fn bytes(&self, role: Role, at: u32) -> Bytes {
        let mut bytes = match role {
            Role::Data(data) => self.data(data, at),
            Role::Parity(parity) => {
                let data: Vec<Bytes> = (0..self.segment.shape.k()).map(|data| self.data(data, at)).collect();
                self.parity(&data, parity)
            }
        };
        if self.damaged == Some(role) {
            bytes[0] ^= 0xff;
        }
        bytes
    }

    fn data(&self, data: u8, at: u32) -> Bytes {
        if at >= live(self.set, self.segment, self.stripe, data) {
            return Bytes::default();
        }
        mixed(&[2, self.stripe.0, u64::from(data), u64::from(at)])
    }

    /// The parity of these data units.
    pub(super) fn parity(&self, data: &[Bytes], index: u8) -> Bytes {
        let mut parity = Bytes::default();
        for (unit, bytes) in (0..).zip(data) {
            self.code.add(unit, bytes, index, &mut parity);
        }
        parity
    }
}

/// Content of the client's memory after a run, and whether any comparison differed.
pub(super) struct Memory {
    cells: BTreeMap<Spot, Bytes>,
    pub(super) differ: bool,
}

impl Memory {
    /// The bytes of the part that begins at `spot`.
    pub(super) fn get(&self, spot: Spot) -> Option<Bytes> {
        self.cells.get(&spot).copied()
    }
}

/// Runs the reads and steps of one stripe, in an order that `after` allows. The flow must have been checked.
pub(super) fn run(old: &Old<'_>, cuts: &Cuts, nodes: &[&Node<'_>]) -> Memory {
    let mut memory = Memory { cells: BTreeMap::new(), differ: false };
    let ids: Vec<_> = nodes.iter().map(|node| node.id).collect();
    let mut done = Vec::new();
    let mut left = nodes.to_vec();
    while !left.is_empty() {
        let (now, later): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|node| node.after.iter().all(|id| done.contains(id) || !ids.contains(id)));
        assert!(!now.is_empty(), "the form was found good: no instruction waits for itself");
        for node in &now {
            for part in cuts.parts(&node.range) {
                apply(old, node, part.start, &mut memory);
            }
        }
        done.extend(now.iter().map(|node| node.id));
        left = later;
    }
    memory
}

fn apply(old: &Old<'_>, node: &Node<'_>, at: u32, memory: &mut Memory) {
    let here = |location: &MemoryRange| spot(location, at - node.range.start);
    let value = |operand: &Operand, memory: &Memory| match operand {
        Operand::MemoryRange(location) => load(old, memory, here(location)),
        Operand::Zeros => Bytes::default(),
    };
    match node.act {
        Act::Drive(column, Op::Read { into, .. }) => {
            let role = old.segment.role(old.stripe, column);
            memory.cells.insert(here(into), old.bytes(role, at));
        }
        Act::Drive(..) => {}
        Act::Client(Step::Copy { from, into }) => {
            let bytes = value(from, memory);
            memory.cells.insert(here(into), bytes);
        }
        Act::Client(Step::Encode { data, parity }) => {
            let data: Vec<Bytes> = data.iter().map(|operand| value(operand, memory)).collect();
            for (index, location) in parity {
                memory.cells.insert(here(location), old.parity(&data, *index));
            }
        }
        Act::Client(Step::Reconstruct { have, lost }) => {
            let have: Vec<(Role, Bytes)> =
                have.iter().map(|(role, operand)| (*role, value(operand, memory))).collect();
            let have: Vec<(Role, &[u8])> = have.iter().map(|(role, bytes)| (*role, &bytes[..])).collect();
            let mut made = vec![Bytes::default(); lost.len()];
            let mut out: Vec<(Role, &mut [u8])> =
                lost.iter().zip(&mut made).map(|((role, _), bytes)| (*role, &mut bytes[..])).collect();
            old.code.reconstruct(&have, &mut out).expect("the operands were found good");
            for ((_, location), bytes) in lost.iter().zip(made) {
                memory.cells.insert(here(location), bytes);
            }
        }
        Act::Client(Step::Delta { data, old: before, new, parity }) => {
            let before = value(before, memory);
            let new = value(new, memory);
            let change: Vec<u8> = before.iter().zip(&new).map(|(a, b)| a ^ b).collect();
            for (index, location) in parity {
                let mut bytes = load(old, memory, here(location));
                old.code.add(*data, &change, *index, &mut bytes);
                memory.cells.insert(here(location), bytes);
            }
        }
        Act::Client(Step::Compare { stored, computed, .. }) => {
            memory.differ |= load(old, memory, here(stored)) != load(old, memory, here(computed));
        }
    }
}

/// The bytes that a write sends for the part that begins at `at`.
pub(super) fn sent(old: &Old<'_>, memory: &Memory, node: &Node<'_>, source: &Source, at: u32) -> Bytes {
    match source {
        Source::Hole => Bytes::default(),
        Source::MemoryRange(location) => load(old, memory, spot(location, at - node.range.start)),
    }
}

fn load(old: &Old<'_>, memory: &Memory, spot: Spot) -> Bytes {
    match (memory.get(spot), spot.area, &old.set.request) {
        (Some(bytes), ..) => bytes,
        (None, None, Request::Write(_)) => user_bytes(spot),
        (None, ..) => panic!("the flow was found good: {spot:?} is made before it is used"),
    }
}

/// Eight bytes that depend on all of `words` (a 64-bit finalizer over each word in turn).
fn mixed(words: &[u64]) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in words {
        state = (state ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 32;
    }
    state.to_le_bytes()
}
