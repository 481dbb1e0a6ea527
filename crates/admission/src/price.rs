//! From counts to demands, promises and bookings.
//!
//! A demand is what the operations of a rotation cost, times rotations per second, rounded up:
//!
//! - *disk*: each operation by [`DeviceCost`], with its bytes as the plan set
//!   asks for them; for writes also one sync of a group commit each period (or one for each write, if they
//!   are fewer), and the bytes that the log's cleaning moves in consequence, in long operations. One that is
//!   so large that the disk may idle before it costs that time too ([`idle_ns`]);
//! - *whole*: the bytes at the qualified rates of the drive as a whole;
//! - *rails*: bytes sent and received, deltas included;
//! - *processors*: messages and their bytes.
//!
//! A drive's promise is for the worst state: the bytes that are asked of it per second, each operation
//! charged as the drive charges it ([`charged`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{Column, ColumnMask, DriveId, Segment, Shape};
use braid_plan::PlanError;
use braid_schedule::cost::SECOND_NS;
use braid_schedule::{DeviceCost, Direction, idle_ns};

use crate::ask::{Access, Terms};
use crate::count::{ColumnCount, Counted, Prices, State, StateList, scale};
use crate::demand::{Demand, PARTS, Sum, add, greatest, larger, less};
use crate::parts::{ClientParts, DriveParts, ProcessorCost};

/// Bytes of an operation of the log's cleaning.
pub const CLEANING_BYTES: u64 = 1 << 20;

/// Use of all parts by a promise, in every state. The ledger is the sum of bookings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Booking {
    /// Drives of the cluster that may be out at the same time.
    pub survive: u8,
    /// End of the promise, in milliseconds of the manager's time; `None`: until it is given back.
    pub until_ms: Option<u64>,
    /// Each drive once.
    pub drives: Vec<DriveBooking>,
    /// The client's part; `None`: not booked.
    pub client: Option<ClientBooking>,
}

/// One drive's part of a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveBooking {
    /// The drive that it is about.
    pub drive: DriveId,
    /// Demand with all drives there.
    pub healthy: Demand,
    /// Demand with another drive lost, for each other drive of the booking; none if no loss is survived. It
    /// is the worst over all sets of lost drives with that one in it.
    pub lost: Vec<Loss>,
    /// Bytes that new files take each second.
    pub stored_bytes_per_second: u64,
}

/// Demand on a drive with another one lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The lost drive.
    pub drive: DriveId,
    /// Demand while it is lost.
    pub demand: Demand,
}

/// The client's part of a booking, in the worst state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientBooking {
    /// The client, and what it can do.
    pub parts: ClientParts,
    /// Demand on its rail and processors.
    pub demand: Demand,
}

/// Rate in one direction, as a capability tells it to its drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Bytes per second of this drive in the worst state, as the drive charges them.
    pub bytes_per_second: u64,
    /// Bytes that may come at once.
    pub burst_bytes: u64,
    /// Size of the operations for which the rate is priced.
    pub operation_bytes: u64,
}

/// The promises of one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrivePromise {
    /// The drive that it is about.
    pub drive: DriveId,
    /// Rate of reads. Writes below a stripe may need some, too.
    pub read: Option<Promise>,
    /// Rate of writes, deltas included.
    pub write: Option<Promise>,
}

/// A promise's price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Priced {
    pub(crate) booking: Booking,
    /// The client's demand, booked or not.
    pub(crate) client: Demand,
    pub(crate) promises: Vec<DrivePromise>,
    /// Device time of its largest operation, in nanoseconds.
    pub(crate) operation_ns: u64,
}

/// Reason that there is no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PriceError {
    /// More losses are to be survived than the files can, with the drives that are there.
    #[error("the files survive {possible} losses")]
    Survive { possible: u8, missing: Option<DriveId> },
    /// The files cannot be read or written even now.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// The states of a shape, with the unit that it has.
pub(crate) struct States {
    list: Arc<StateList>,
    /// Bytes here for each byte in the counts.
    scale: u64,
    /// Size of the largest operations that are asked for.
    read_bytes: u64,
    write_bytes: u64,
}

/// A column's demand, and its parts by lost column.
struct Shares {
    healthy: Sum,
    lost: BTreeMap<Column, Sum>,
}

impl States {
    /// Counts for a shape of which the columns `out` are out now, and for all sets of up to `survive` more.
    pub(crate) fn new(
        prices: &mut Prices,
        shape: Shape,
        out: ColumnMask,
        terms: &Terms,
    ) -> Result<States, PlanError> {
        let list = prices.states(shape, out, terms.survive, terms.direction, terms.access)?;
        let scale = scale(&shape, terms.access);
        let read_bytes = list.read_bytes * scale;
        let write_bytes = list.write_bytes * scale;
        Ok(States { list, scale, read_bytes, write_bytes })
    }

    fn counted(&self, state: usize) -> Counted {
        self.list.states[state].counted.scaled(self.scale)
    }

    /// All states in which a column is there, with their counts.
    fn with(&self, column: Column) -> impl Iterator<Item = State> {
        let there = self.list.states.iter().filter(move |state| !state.lost.contains(column));
        there.map(|state| State { counted: state.counted.scaled(self.scale), ..*state })
    }

    /// The demand of a column on a drive with these parts, and by how much each loss raises it.
    ///
    /// A loss's part of a state with several is the same for each. The parts of its losses together are then
    /// no less than what any state adds, and for one loss exactly that.
    fn shares(&self, parts: &DriveParts, column: Column, terms: &Terms) -> Shares {
        let of = |counted: &Counted| demand(parts, counted.column(column.0), counted, terms).sum();
        let healthy = of(&self.counted(0));
        let mut lost: BTreeMap<Column, Sum> = BTreeMap::new();
        for state in self.with(column).filter(|state| state.losses > 0) {
            let more = less(&of(&state.counted), &healthy);
            let losses = i64::from(state.losses);
            let share = if losses == 1 { more } else { more.map(|more| (more + losses - 1).max(0) / losses) };
            for column in state.lost.iter() {
                let known = lost.entry(column).or_insert(share);
                *known = larger(known, &share);
            }
        }
        Shares { healthy, lost }
    }

    /// A demand on a drive with these parts that is no less than that of any column in any state.
    pub(crate) fn worst(&self, parts: &DriveParts, terms: &Terms) -> Demand {
        let of_column = |column| {
            let Shares { healthy, lost } = self.shares(parts, column, terms);
            Demand::from_sum(&add(&healthy, &greatest(lost.values(), usize::from(terms.survive))))
        };
        self.columns().map(of_column).fold(Demand::ZERO, |worst, demand| worst.max(&demand))
    }

    /// The least demand on such a drive, with all columns there.
    pub(crate) fn least(&self, parts: &DriveParts, terms: &Terms) -> Demand {
        let counted = self.counted(0);
        let demands = self.columns().map(|column| demand(parts, counted.column(column.0), &counted, terms));
        demands.reduce(|least, demand| least.min(&demand)).unwrap_or(Demand::ZERO)
    }

    /// The columns that differ.
    fn columns(&self) -> impl Iterator<Item = Column> {
        let all = self.list.states[0].counted.all().columns.len();
        (0..u8::MAX).map(Column).take(if self.list.alike { 1 } else { all })
    }

    /// Bytes per second that are stored on the drive of the column that stores most.
    pub(crate) fn stored_bytes_per_second(&self, terms: &Terms) -> u64 {
        let counted = self.counted(0);
        self.columns().map(|column| stored(&counted, column.0, terms)).max().unwrap_or(0)
    }

    fn promise(
        &self,
        parts: &DriveParts,
        column: Column,
        direction: Direction,
        terms: &Terms,
    ) -> Option<Promise> {
        let operation_bytes = match direction {
            Direction::Read => self.read_bytes,
            Direction::Write => self.write_bytes,
        };
        let mut promise = Promise { bytes_per_second: 0, burst_bytes: operation_bytes, operation_bytes };
        for state in self.with(column) {
            let scale = state.counted.scale();
            let count = state.counted.column(column.0);
            let mut sum = 0_u128;
            let mut plain = 0_u128;
            for op in count.operations.iter().filter(|op| op.asked && op.direction == direction) {
                let bytes = op.bytes * scale;
                plain += u128::from(op.count) * u128::from(bytes);
                sum += u128::from(op.count)
                    * u128::from(charged(&parts.cost, direction, operation_bytes, bytes));
            }
            let burst = match direction {
                Direction::Read => count.read_burst,
                Direction::Write => count.write_burst,
            };
            let burst = (u128::from(burst * scale) * sum).checked_div(plain).unwrap_or(0);
            promise.bytes_per_second = promise.bytes_per_second.max(per_second(sum, &state.counted, terms));
            promise.burst_bytes = promise.burst_bytes.max(narrow(burst));
        }
        (promise.bytes_per_second > 0).then_some(promise)
    }
}

/// Bytes of a promise that a request of this many bytes uses up, if the promise is priced for operations of
/// `operation_bytes`: at least its bytes, and as many as its device time stands for.
pub fn charged(cost: &DeviceCost, direction: Direction, operation_bytes: u64, bytes: u64) -> u64 {
    let of_time = u128::from(operation_bytes) * u128::from(cost.time_ns(direction, bytes));
    let whole = u128::from(cost.time_ns(direction, operation_bytes));
    bytes.max(narrow(of_time.checked_div(whole).unwrap_or(0)))
}

/// Prices a promise on these segments. `parts` tells a drive's parts; a drive that it does not know, or that
/// does not serve, is lost.
pub(crate) fn price<'a>(
    prices: &mut Prices,
    parts: &dyn Fn(DriveId) -> Option<&'a DriveParts>,
    segments: &[Segment],
    terms: &Terms,
    client: Option<ClientParts>,
) -> Result<Priced, PriceError> {
    let mut each = Vec::new();
    let mut sum = Merged { client, ..Merged::default() };
    for segment in segments {
        let drive = |column: Column| segment.components[column.index()].drive;
        let all = ColumnMask::all(segment.shape.width());
        let out: ColumnMask =
            all.iter().filter(|&column| parts(drive(column)).is_none_or(|parts| !parts.alive)).collect();
        let missing = u8::try_from(out.count()).expect("at most 64 columns");
        let possible = segment.shape.m().saturating_sub(missing);
        if missing > segment.shape.m() || possible < terms.survive {
            let missing = out.iter().next().map(drive);
            return Err(PriceError::Survive { possible, missing });
        }
        if !out.is_empty() {
            // What is out comes back, and is written to again: then more goes over the client's rail.
            let with_all = Terms { survive: 0, ..*terms };
            sum.add_client(&States::new(prices, segment.shape, ColumnMask::EMPTY, &with_all)?, terms);
        }
        each.push((segment, all.minus(out), States::new(prices, segment.shape, out, terms)?));
    }
    // A promise has one size of operations, whichever segment it is used on.
    let read_bytes = each.iter().map(|(.., states)| states.read_bytes).max().unwrap_or(0);
    let write_bytes = each.iter().map(|(.., states)| states.write_bytes).max().unwrap_or(0);
    for (segment, there, mut states) in each {
        states.read_bytes = read_bytes;
        states.write_bytes = write_bytes;
        for column in there.iter() {
            let parts = parts(segment.components[column.index()].drive).expect("it is not out");
            sum.add(&states, segment, column, parts, terms);
        }
        sum.add_client(&states, terms);
    }
    Ok(sum.finish(terms, segments.len() > 1))
}

/// Prices of several segments: a stream is in one of them at a time, so the largest counts.
#[derive(Default)]
struct Merged {
    drives: BTreeMap<DriveId, Slot>,
    client: Option<ClientParts>,
    client_demand: Demand,
    operation_ns: u64,
}

#[derive(Default)]
struct Slot {
    healthy: Sum,
    lost: BTreeMap<DriveId, Raised>,
    read: Option<Promise>,
    write: Option<Promise>,
    stored: u64,
}

/// The load with a drive lost, and the part of it that the loss adds.
struct Raised {
    load: Sum,
    share: Sum,
}

impl Raised {
    const LEAST: Raised = Raised { load: [i64::MIN; PARTS], share: [i64::MIN; PARTS] };
}

impl Merged {
    fn add(&mut self, states: &States, segment: &Segment, column: Column, parts: &DriveParts, terms: &Terms) {
        let slot = self.drives.entry(parts.drive).or_default();
        let Shares { healthy, lost } = states.shares(parts, column, terms);
        slot.stored = slot.stored.max(stored(&states.counted(0), column.0, terms));
        for (lost, share) in lost {
            let known = slot.lost.entry(segment.components[lost.index()].drive).or_insert(Raised::LEAST);
            known.load = larger(&known.load, &add(&healthy, &share));
            known.share = larger(&known.share, &share);
        }
        slot.healthy = larger(&slot.healthy, &healthy);
        for state in states.with(column) {
            let count = state.counted.column(column.0);
            for op in &count.operations {
                let time = parts.cost.time_ns(op.direction, op.bytes * state.counted.scale());
                self.operation_ns = self.operation_ns.max(time);
            }
        }
        let read = states.promise(parts, column, Direction::Read, terms);
        let write = states.promise(parts, column, Direction::Write, terms);
        slot.read = greater(slot.read, read);
        slot.write = greater(slot.write, write);
    }

    fn add_client(&mut self, states: &States, terms: &Terms) {
        let processor = self.client.and_then(|client| client.processor);
        for state in 0..states.list.states.len() {
            let counted = states.counted(state);
            let all = counted.all();
            let scale = u128::from(counted.scale());
            let bytes = |of: fn(&ColumnCount) -> u64| {
                all.columns.iter().map(|column| u128::from(of(column))).sum::<u128>() * scale
            };
            // What a drive sends, the client receives.
            let received = bytes(|column| column.out_bytes);
            let sent = bytes(|column| column.in_bytes);
            let arithmetic = u128::from(all.arithmetic_bytes) * scale;
            let work = processor.map_or(0, |cost| {
                work_ns(&cost, u128::from(all.instructions), received + sent)
                    + (arithmetic * u128::from(cost.arithmetic_byte_ps)).div_ceil(1000)
            });
            let demand = Demand {
                in_bytes: per_second(received, &counted, terms),
                out_bytes: per_second(sent, &counted, terms),
                processor_ns: per_second(work, &counted, terms),
                ..Demand::ZERO
            };
            self.client_demand = self.client_demand.max(&demand);
        }
    }

    fn finish(self, terms: &Terms, several: bool) -> Priced {
        let mut booking = Booking { survive: terms.survive, ..Booking::default() };
        let mut promises = Vec::new();
        for (drive, slot) in self.drives {
            let demand = |raised: &Raised| match (several, terms.survive) {
                (false, _) => raised.load,
                // In a segment without the lost drive all is as before.
                (true, 0 | 1) => larger(&raised.load, &slot.healthy),
                // With several lost, the parts of the losses are added to the largest of all segments.
                (true, _) => add(&slot.healthy, &larger(&raised.share, &[0; PARTS])),
            };
            let lost = slot
                .lost
                .iter()
                .map(|(lost, raised)| Loss { drive: *lost, demand: Demand::from_sum(&demand(raised)) });
            booking.drives.push(DriveBooking {
                drive,
                healthy: Demand::from_sum(&slot.healthy),
                lost: lost.collect(),
                stored_bytes_per_second: slot.stored,
            });
            promises.push(DrivePromise { drive, read: slot.read, write: slot.write });
        }
        booking.client = self.client.map(|parts| ClientBooking { parts, demand: self.client_demand });
        Priced { booking, client: self.client_demand, promises, operation_ns: self.operation_ns }
    }
}

fn greater(a: Option<Promise>, b: Option<Promise>) -> Option<Promise> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Promise {
            bytes_per_second: a.bytes_per_second.max(b.bytes_per_second),
            burst_bytes: a.burst_bytes.max(b.burst_bytes),
            operation_bytes: a.operation_bytes,
        }),
        (one, other) => one.or(other),
    }
}

/// The demand of a column's operations on a drive.
pub(crate) fn demand(parts: &DriveParts, count: &ColumnCount, counted: &Counted, terms: &Terms) -> Demand {
    let scale = counted.scale();
    let mut work = Work::default();
    for op in &count.operations {
        work.add(parts, op.direction, op.bytes * scale, op.count);
    }
    let asked = count.operations.iter().filter(|op| op.asked).map(|op| u128::from(op.count)).sum();
    let sync = u128::from(parts.cost.sync_ns);
    let sync_each = per_second(u128::from(work.writes) * sync, counted, terms);
    let sync_periods = narrow((sync * u128::from(SECOND_NS)).div_ceil(u128::from(terms.period_ns.max(1))));
    let bytes_in = u128::from(count.in_bytes + count.delta_in_bytes) * u128::from(scale);
    let bytes_out = u128::from(count.out_bytes + count.delta_out_bytes) * u128::from(scale);
    let processor = parts.processor.map_or(0, |cost| work_ns(&cost, asked, bytes_in + bytes_out));
    let device = per_second(work.device_ns + work.cleaning_ns(parts), counted, terms);
    Demand {
        device_ns: device.saturating_add(sync_each.min(sync_periods)),
        whole_ns: per_second(work.whole_ns, counted, terms),
        in_bytes: per_second(bytes_in, counted, terms),
        out_bytes: per_second(bytes_out, counted, terms),
        processor_ns: per_second(processor, counted, terms),
    }
}

/// The demand of operations of one size at a rate, reads that are sent or writes that are received.
pub(crate) fn plain_demand(
    parts: &DriveParts,
    direction: Direction,
    bytes_per_second: u64,
    operation_bytes: u64,
) -> Demand {
    let operation_bytes = operation_bytes.max(1);
    let operations = bytes_per_second.div_ceil(operation_bytes);
    let mut work = Work::default();
    work.add(parts, direction, operation_bytes, operations);
    let bytes = u128::from(bytes_per_second);
    let processor = parts.processor.map_or(0, |cost| work_ns(&cost, u128::from(operations), bytes));
    let demand = Demand {
        device_ns: narrow(work.device_ns + work.cleaning_ns(parts)),
        whole_ns: narrow(work.whole_ns),
        processor_ns: narrow(processor),
        ..Demand::ZERO
    };
    match direction {
        Direction::Read => Demand { out_bytes: bytes_per_second, ..demand },
        Direction::Write => Demand { in_bytes: bytes_per_second, ..demand },
    }
}

/// Time of operations on a disk.
#[derive(Default)]
struct Work {
    device_ns: u128,
    whole_ns: u128,
    writes: u64,
    written_bytes: u128,
}

impl Work {
    fn add(&mut self, parts: &DriveParts, direction: Direction, bytes: u64, count: u64) {
        let times = u128::from(count);
        let time_ns = parts.cost.time_ns(direction, bytes);
        self.device_ns += times * (u128::from(time_ns) + u128::from(idle_ns(&parts.cost, time_ns)));
        let bytes = times * u128::from(bytes);
        let qualified = match direction {
            Direction::Read => parts.qualified.read_bytes_per_second,
            Direction::Write => parts.qualified.write_bytes_per_second,
        };
        let of_whole = |rate: u64| (bytes * u128::from(SECOND_NS)).div_ceil(u128::from(rate.max(1)));
        self.whole_ns += qualified.map_or(0, of_whole);
        if direction == Direction::Write {
            self.writes += count;
            self.written_bytes += bytes;
        }
    }

    /// Time of the bytes that cleaning moves in consequence.
    fn cleaning_ns(&self, parts: &DriveParts) -> u128 {
        let time = |direction| u128::from(parts.cost.time_ns(direction, CLEANING_BYTES));
        let moved = self.written_bytes * u128::from(parts.moved_permille);
        let moving = time(Direction::Read) + time(Direction::Write);
        (moved * moving).div_ceil(u128::from(CLEANING_BYTES) * 1000)
    }
}

/// Time of processors for requests and bytes, in nanoseconds.
fn work_ns(cost: &ProcessorCost, requests: u128, bytes: u128) -> u128 {
    requests * u128::from(cost.request_ns) + (bytes * u128::from(cost.byte_ps)).div_ceil(1000)
}

/// Bytes that writes of new files store on a column each second.
fn stored(counted: &Counted, column: u8, terms: &Terms) -> u64 {
    let bytes = match (terms.direction, terms.access) {
        (Direction::Write, Access::Whole) => counted.column(column).in_bytes,
        (Direction::Read, _) | (_, Access::Pieces { .. }) => 0,
    };
    per_second(u128::from(bytes) * u128::from(counted.scale()), counted, terms)
}

/// Work of a rotation, per second, rounded up.
fn per_second(in_rotation: u128, counted: &Counted, terms: &Terms) -> u64 {
    let each_second = in_rotation.saturating_mul(u128::from(terms.bytes_per_second));
    narrow(each_second.div_ceil(u128::from(counted.file_bytes().max(1))))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
