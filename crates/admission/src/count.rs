//! Operations of plan sets, for each column: what one whole rotation of stripes costs.
//!
//! Plan sets are compiled for every stripe of a rotation and their instructions are counted. What a drive
//! does beyond its instructions is counted too: the data drive of a unit write reads the old bytes and sends
//! what changed; each parity drive appends that, and folds it in later, which reads and writes as many bytes.
//!
//! Whole stripes are compiled with the smallest unit, and the counts are scaled: they are whole units,
//! whatever the unit. With roles that rotate, columns lost one place further cost the same, one place
//! further: only one of these sets is compiled.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use braid_layout::scheme::UNIT_BYTES_MIN;
use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Lease, ObjectId, OperationNumber, Role, Segment,
    Shape, Stripe, Version,
};
use braid_plan::{Body, Health, Instruction, Op, PlanError, PlanSet, Source, Step, Target, Want, Write};
use braid_schedule::Direction;

use crate::ask::Access;

/// Most sets of lost columns that are priced one by one. Of more, those of several columns are priced by a
/// ceiling. With pieces each set counts once for each data column.
pub const SETS_MAX: usize = 512;
/// Most counts that are kept.
const KEPT_MAX: usize = 4096;

/// Counts of all columns over one rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of the file that are read or written meanwhile.
    pub file_bytes: u64,
    /// Counts of each column; nothing for lost ones.
    pub columns: Vec<ColumnCount>,
    /// Bytes of operands of the client's arithmetic.
    pub arithmetic_bytes: u64,
    /// Instructions of all plan sets.
    pub instructions: u64,
}

/// Counts of one column over one rotation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ColumnCount {
    /// Operations, those that are alike as one.
    pub operations: Vec<Operation>,
    /// Bytes that the drive receives from the client.
    pub in_bytes: u64,
    /// Bytes that the drive sends to the client.
    pub out_bytes: u64,
    /// Bytes of deltas that the drive receives from others.
    pub delta_in_bytes: u64,
    /// Bytes of deltas that the drive sends to others.
    pub delta_out_bytes: u64,
    /// Most bytes of reads that come at once beyond an even flow.
    pub read_burst: u64,
    /// Most bytes of writes that come at once beyond an even flow.
    pub write_burst: u64,
}

/// Operations that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Direction on the disk.
    pub direction: Direction,
    /// Bytes of each.
    pub bytes: u64,
    /// Number of operations.
    pub count: u64,
    /// True if others ask for it; false if the drive does it by itself in consequence.
    pub asked: bool,
}

/// Counts, as they apply to a segment.
#[derive(Debug, Clone)]
pub struct Counted {
    counts: Arc<Counts>,
    /// Column 0 here is this column in the counts.
    turn: u8,
    /// Bytes here for each byte in the counts.
    scale: u64,
}

/// A state of a segment's columns, and its counts.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lost: ColumnMask,
    /// Number of columns that are lost at least.
    pub(crate) losses: u32,
    pub(crate) counted: Counted,
}

/// The states of a shape: the first is the present one.
#[derive(Debug)]
pub(crate) struct StateList {
    pub(crate) states: Vec<State>,
    /// Size of the largest operations that are asked for, before they are scaled.
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    /// True if all columns are alike, in a state without lost ones.
    pub(crate) alike: bool,
}

/// Counts that were made already. They depend on shapes only, never on drives.
#[derive(Debug, Default)]
pub struct Prices {
    known: HashMap<Key, Arc<Counts>>,
    /// States by the losses that they go up to.
    lists: HashMap<ListKey, Arc<StateList>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ListKey {
    now: Key,
    survive: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    lost: ColumnMask,
    direction: Direction,
    access: Access,
}

impl Counted {
    /// The counts of a column, before they are scaled.
    pub fn column(&self, column: u8) -> &ColumnCount {
        let columns = &self.counts.columns;
        &columns[(usize::from(column) + usize::from(self.turn)) % columns.len()]
    }

    /// Counts of all columns together, before they are scaled.
    pub fn all(&self) -> &Counts {
        &self.counts
    }

    /// Bytes of the file that are read or written, scaled.
    pub fn file_bytes(&self) -> u64 {
        self.counts.file_bytes * self.scale
    }

    /// The same counts, scaled further.
    pub(crate) fn scaled(&self, scale: u64) -> Counted {
        Counted { scale: self.scale * scale, ..self.clone() }
    }

    /// Factor by which bytes are scaled.
    pub fn scale(&self) -> u64 {
        self.scale
    }
}

impl Prices {
    /// The counts for a shape with these columns lost.
    pub fn counted(
        &mut self,
        shape: Shape,
        lost: ColumnMask,
        direction: Direction,
        access: Access,
    ) -> Result<Counted, PlanError> {
        let access = sort(&shape, access);
        let scale = scale(&shape, access);
        let shape = unscaled(shape, access);
        let turn = if rotates(&shape) { first_turn(lost, shape.width()) } else { 0 };
        let lost = turned(lost, shape.width(), turn);
        let key = Key { shape, lost, direction, access };
        let counts = match self.known.get(&key) {
            Some(counts) => counts.clone(),
            None => {
                let counts = Arc::new(count(shape, lost, direction, access)?);
                if self.known.len() >= KEPT_MAX {
                    self.known.clear();
                }
                self.known.insert(key, counts.clone());
                counts
            }
        };
        Ok(Counted { counts, turn, scale })
    }

    /// The counts of all states of a shape of which the columns `out` are out now: of that one, and with
    /// every set of up to `survive` more lost. They are not scaled.
    pub(crate) fn states(
        &mut self,
        shape: Shape,
        out: ColumnMask,
        survive: u8,
        direction: Direction,
        access: Access,
    ) -> Result<Arc<StateList>, PlanError> {
        let access = sort(&shape, access);
        let shape = unscaled(shape, access);
        let key = ListKey { now: Key { shape, lost: out, direction, access }, survive };
        if let Some(list) = self.lists.get(&key) {
            return Ok(list.clone());
        }
        let left = ColumnMask::all(shape.width()).minus(out);
        let now = self.counted(shape, out, direction, access)?;
        let mut states = vec![State { lost: ColumnMask::EMPTY, losses: 0, counted: now }];
        let compiled = if access == Access::Whole { 1 } else { usize::from(shape.k()) };
        let all = sets(left.count(), survive) * compiled <= SETS_MAX;
        for lost in subsets(left, if all { survive } else { 1 }) {
            let counted = self.counted(shape, out.or(lost), direction, access)?;
            states.push(State { lost, losses: lost.count(), counted });
        }
        if !all {
            let counted = self.ceiling(shape, out, direction, access)?;
            let more = |column| {
                let lost = ColumnMask::EMPTY.with(column);
                State { lost, losses: 2, counted: counted.clone() }
            };
            states.extend(left.iter().map(more));
        }
        let list = Arc::new(StateList::new(states, rotates(&shape) && out.is_empty()));
        if self.lists.len() >= KEPT_MAX {
            self.lists.clear();
        }
        self.lists.insert(key, list.clone());
        Ok(list)
    }

    /// Counts that no set of lost columns exceeds, for many sets: a column is asked for at most one unit of a
    /// stripe, or for two reads and a write of a piece. It is exact where as many columns may be lost as are
    /// redundant: then every stripe needs all others.
    pub(crate) fn ceiling(
        &mut self,
        shape: Shape,
        lost: ColumnMask,
        direction: Direction,
        access: Access,
    ) -> Result<Counted, PlanError> {
        let healthy = self.counted(shape, lost, direction, access)?;
        let mut counts = Counts::clone(&healthy.counts);
        let stripe = u64::from(shape.k()) * u64::from(shape.unit_bytes()) / healthy.scale;
        let small = match access {
            Access::Pieces { bytes } if bytes < shape.stripe_bytes() => Some(bytes),
            Access::Pieces { .. } | Access::Whole => None,
        };
        let unit = stripe / u64::from(shape.k());
        let times = counts.file_bytes / small.unwrap_or(stripe);
        let bytes = small.map_or(unit, |piece| piece.min(unit));
        let times = times * if small.is_some() { 2 } else { 1 };
        for column in &mut counts.columns {
            let op = |direction, count| Operation { direction, bytes, count, asked: true };
            let read = op(Direction::Read, times * if direction == Direction::Write { 2 } else { 1 });
            let write = op(Direction::Write, times);
            *column = ColumnCount::default();
            if direction == Direction::Read || small.is_some() {
                column.operations.push(read);
                column.out_bytes = read.count * bytes;
                column.read_burst = bytes;
            }
            if direction == Direction::Write {
                column.operations.push(write);
                column.in_bytes = write.count * bytes;
                column.write_burst = bytes;
            }
        }
        Ok(Counted { counts: Arc::new(counts), ..healthy })
    }
}

impl StateList {
    fn new(states: Vec<State>, alike: bool) -> StateList {
        let largest = |direction| {
            let columns = states.iter().flat_map(|state| &state.counted.all().columns);
            let operations = columns.flat_map(|column| &column.operations);
            let asked = operations.filter(|op| op.asked && op.direction == direction);
            asked.map(|op| op.bytes).max().unwrap_or(0)
        };
        let read_bytes = largest(Direction::Read);
        let write_bytes = largest(Direction::Write);
        StateList { states, read_bytes, write_bytes, alike }
    }
}

/// The access as it is counted: pieces of a stripe or more are whole stripes.
fn sort(shape: &Shape, access: Access) -> Access {
    match access {
        Access::Pieces { bytes } if bytes < shape.stripe_bytes() => access,
        Access::Pieces { .. } | Access::Whole => Access::Whole,
    }
}

/// The shape with the unit that is compiled.
fn unscaled(shape: Shape, access: Access) -> Shape {
    let unit = if sort(&shape, access) == Access::Whole { UNIT_BYTES_MIN } else { shape.unit_bytes() };
    Shape::new(shape.scheme(), shape.k(), shape.m(), unit).expect("the unit is valid by itself")
}

/// Bytes for each byte of the unit that is compiled.
pub(crate) fn scale(shape: &Shape, access: Access) -> u64 {
    u64::from(shape.unit_bytes() / unscaled(*shape, access).unit_bytes())
}

/// Returns true if roles move from stripe to stripe.
fn rotates(shape: &Shape) -> bool {
    shape.column(Stripe(1), Role::Data(0)) != shape.column(Stripe(0), Role::Data(0))
}

/// The turn after which the set of columns is the lowest as a number.
fn first_turn(columns: ColumnMask, width: u8) -> u8 {
    (0..width).min_by_key(|&turn| turned(columns, width, turn).0).unwrap_or(0)
}

/// The columns, each moved `turn` places up, and from the end to the beginning.
fn turned(columns: ColumnMask, width: u8, turn: u8) -> ColumnMask {
    columns.iter().map(|column| Column((column.0 + turn) % width)).collect()
}

/// A segment of this shape without an end, on drives numbered by column.
fn segment(shape: Shape) -> Segment {
    let components = (0..shape.width())
        .map(|column| Component { drive: DriveId(u128::from(column)), object: ObjectId(1) })
        .collect();
    Segment { start: 0, end: u64::MAX, shape, components }
}

fn count(shape: Shape, lost: ColumnMask, direction: Direction, access: Access) -> Result<Counts, PlanError> {
    let segment = segment(shape);
    let mut health = Health::whole(&shape, Generation(1));
    health.set = health.set.minus(lost);
    let target = Target { segment: &segment, index: 0, health };
    let mut tally = Tally::new(shape, health.set);
    for range in ranges(shape, access) {
        tally.begin(range.end - range.start);
        for stripe in segment.stripes(range.clone()) {
            let whole = segment.stripe_range(stripe);
            let part = range.start.max(whole.start)..range.end.min(whole.end);
            tally.add(&compile(&target, part, direction, access)?, &segment);
        }
    }
    Ok(tally.finish())
}

/// The ranges of a file that are read or written one after another in a rotation.
fn ranges(shape: Shape, access: Access) -> Vec<Range<u64>> {
    let stripes = if rotates(&shape) { u64::from(shape.width()) } else { 1 };
    match access {
        Access::Whole => {
            let bytes = shape.stripe_bytes();
            (0..stripes).map(|stripe| stripe * bytes..(stripe + 1) * bytes).collect()
        }
        Access::Pieces { bytes } => {
            let unit = u64::from(shape.unit_bytes());
            (0..stripes * u64::from(shape.k())).map(|index| index * unit..index * unit + bytes).collect()
        }
    }
}

fn compile(
    target: &Target<'_>,
    range: Range<u64>,
    direction: Direction,
    access: Access,
) -> Result<PlanSet, PlanError> {
    if direction == Direction::Read {
        return braid_plan::read(target, range, 0, Want::Newest);
    }
    let stamp = Version { g: Generation(1), lease: Lease(1), n: 1 };
    let size = if access == Access::Whole { range.end } else { u64::MAX };
    let write = Write { range, body: Body::Buffer { offset: 0 }, size, reach: u64::MAX, stamp };
    braid_plan::write_cheapest(target, write, OperationNumber::FIRST)
}

/// Counts while plan sets are compiled.
struct Tally {
    counts: Counts,
    set: ColumnMask,
    /// For each range, the bytes of each column that are read and written.
    flow: Vec<Vec<Flow>>,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    read: u64,
    written: u64,
}

impl Tally {
    fn new(shape: Shape, set: ColumnMask) -> Tally {
        let columns = vec![ColumnCount::default(); usize::from(shape.width())];
        let counts = Counts { file_bytes: 0, columns, arithmetic_bytes: 0, instructions: 0 };
        Tally { counts, set, flow: Vec::new() }
    }

    fn begin(&mut self, bytes: u64) {
        self.counts.file_bytes += bytes;
        self.flow.push(vec![Flow::default(); self.counts.columns.len()]);
    }

    fn add(&mut self, set: &PlanSet, segment: &Segment) {
        for (plan, instruction) in set.instructions() {
            self.instruction(plan.column, instruction, segment);
        }
        self.counts.arithmetic_bytes += arithmetic_bytes(set);
    }

    fn instruction(&mut self, column: Column, instruction: &Instruction, segment: &Segment) {
        self.counts.instructions += 1;
        let range = instruction.op.range();
        let bytes = u64::from(range.end - range.start);
        match &instruction.op {
            Op::Read { .. } => {
                self.operation(column, Direction::Read, bytes, true);
                self.counts.columns[column.index()].out_bytes += bytes;
            }
            Op::Run { answer, .. } => {
                self.operation(column, Direction::Read, bytes, true);
                self.counts.columns[column.index()].out_bytes += u64::from(*answer);
            }
            Op::StripeWrite { bytes: source, .. } => {
                self.operation(column, Direction::Write, bytes, true);
                let sent = if *source == Source::Hole { 0 } else { bytes };
                self.counts.columns[column.index()].in_bytes += sent;
            }
            Op::UnitWrite { stripe, .. } => {
                self.operation(column, Direction::Write, bytes, true);
                self.operation(column, Direction::Read, bytes, false);
                self.counts.columns[column.index()].in_bytes += bytes;
                for index in 0..segment.shape.m() {
                    let parity = segment.column(*stripe, Role::Parity(index));
                    if self.set.contains(parity) {
                        self.delta(column, parity, bytes);
                    }
                }
            }
        }
    }

    /// A delta: sent, appended, and folded in later.
    fn delta(&mut self, from: Column, to: Column, bytes: u64) {
        self.counts.columns[from.index()].delta_out_bytes += bytes;
        self.counts.columns[to.index()].delta_in_bytes += bytes;
        self.operation(to, Direction::Write, bytes, true);
        self.operation(to, Direction::Read, bytes, false);
        self.operation(to, Direction::Write, bytes, false);
    }

    fn operation(&mut self, column: Column, direction: Direction, bytes: u64, asked: bool) {
        if asked {
            let flow = &mut self.flow.last_mut().expect("a range has begun")[column.index()];
            match direction {
                Direction::Read => flow.read += bytes,
                Direction::Write => flow.written += bytes,
            }
        }
        let operations = &mut self.counts.columns[column.index()].operations;
        let alike = |op: &&mut Operation| (op.direction, op.bytes, op.asked) == (direction, bytes, asked);
        match operations.iter_mut().find(alike) {
            Some(known) => known.count += 1,
            None => operations.push(Operation { direction, bytes, count: 1, asked }),
        }
    }

    fn finish(mut self) -> Counts {
        for (index, column) in self.counts.columns.iter_mut().enumerate() {
            column.read_burst = burst(self.flow.iter().map(|range| range[index].read).collect());
            column.write_burst = burst(self.flow.iter().map(|range| range[index].written).collect());
        }
        self.counts
    }
}

/// Most bytes of a flow that come at once beyond an even flow. The ranges follow each other in equal times
/// and begin again after the last: the bytes of successive ranges, less what an even flow brings from the
/// first of them to the last.
fn burst(flow: Vec<u64>) -> u64 {
    let len = i128::try_from(flow.len()).expect("it is small");
    let total: i128 = flow.iter().map(|&bytes| i128::from(bytes)).sum();
    let mut best = 0;
    let mut ending_here = 0;
    for &bytes in flow.iter().chain(&flow) {
        ending_here = 0.max(ending_here) + i128::from(bytes) * len - total;
        best = best.max(ending_here);
    }
    let most = if total == 0 { 0 } else { best + total };
    u64::try_from((most + len - 1) / len.max(1)).unwrap_or(u64::MAX)
}

/// Bytes of operands of all steps of a plan set.
fn arithmetic_bytes(set: &PlanSet) -> u64 {
    set.arithmetic.iter().map(|step| operand_bytes(&step.step, u64::from(step.to - step.from))).sum()
}

/// Bytes of operands of a step of this many bytes: each operand counts once for each unit that is made of it.
pub fn operand_bytes(step: &Step, bytes: u64) -> u64 {
    let times = |a: usize, b: usize| u64::try_from(a * b).expect("columns are few") * bytes;
    match step {
        Step::Copy { .. } | Step::Compare { .. } => bytes,
        Step::Encode { data, parity } => times(data.len(), parity.len()),
        Step::Reconstruct { have, lost } => times(have.len(), lost.len()),
        Step::Delta { parity, .. } => times(2, parity.len()),
    }
}

/// Number of sets of 1 to `most` of `of` columns.
fn sets(of: u32, most: u8) -> usize {
    let mut choose = 1_usize;
    let mut sum = 0_usize;
    for taken in 0..u32::from(most).min(of) {
        let left = usize::try_from(of - taken).expect("at most 64");
        choose = choose * left / (usize::try_from(taken).expect("at most 4") + 1);
        sum += choose;
    }
    sum
}

/// All sets of 1 to `most` of these columns.
fn subsets(columns: ColumnMask, most: u8) -> Vec<ColumnMask> {
    let mut all = vec![ColumnMask::EMPTY];
    for column in columns.iter() {
        for known in 0..all.len() {
            if all[known].count() < u32::from(most) {
                all.push(all[known].with(column));
            }
        }
    }
    all.remove(0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_counted_and_listed() {
        for (of, most, count) in [(5, 1, 5), (5, 2, 15), (6, 2, 21), (8, 4, 162), (4, 0, 0), (64, 4, 679_120)]
        {
            assert_eq!(sets(of, most), count);
            if count <= SETS_MAX {
                let width = u8::try_from(of).expect("few columns");
                assert_eq!(subsets(ColumnMask::all(width), most).len(), count);
            }
        }
    }
}
