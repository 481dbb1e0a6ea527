//! Streams: whole stripes, one after another, each with the units that its plan set names.

use braid_layout::{Column, ColumnMask};
use braid_schedule::{Due, Flow, Lateness, Pacer, Promise};

use super::admit::{Entered, at};
use super::engine::{Engine, Stage};
use super::outcome::ClassOutcome;
use super::source::Source;
use super::spec::PromisesSpec;
use super::station::{Job, Purpose};
use crate::number::{narrow, real, seconds, whole};
use crate::random::{Source as From, Stream as Numbers};

/// A stream and its client.
#[derive(Debug)]
struct Stream {
    numbers: Numbers,
    source: Source,
    pacer: Pacer,
    account: Lateness,
    begins: u64,
    /// Time at which the first stripe was there.
    started: Option<u64>,
    stripe: u64,
    lost: ColumnMask,
}

/// A stripe that is asked for.
#[derive(Debug)]
struct Flight {
    stream: u32,
    stripe: u64,
    due: Due,
    asked: ColumnMask,
    left: u32,
}

/// All streams and their stripes in flight.
#[derive(Debug)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// Column of each stream on the drive that will be lost.
    on_lost: Vec<(u32, Column)>,
    flights: Vec<Flight>,
    free: Vec<u32>,
    pub(super) late_periods: u64,
    /// Device time of disks.
    pub(super) used_ns: f64,
}

impl Streams {
    pub(super) fn new(spec: &PromisesSpec, entered: &Entered) -> Streams {
        let mut all = Vec::with_capacity(entered.places.len());
        let mut on_lost = Vec::new();
        for (number, place) in entered.places.iter().enumerate() {
            let class = &spec.stream[place.class];
            let mut numbers = Numbers::new(spec.seed, From::Arrivals(narrow(number)));
            let rate = whole(class.peak());
            let step = real(place.shape.stripe_bytes()) / class.rate.0;
            let begins = numbers.below(whole(step * crate::number::SECOND));
            all.push(Stream {
                source: Source::new(class, begins, &mut numbers),
                numbers,
                pacer: Pacer::new(rate, 0, class.period.0),
                account: Lateness::new(rate, class.period.0, place.lateness_ns),
                begins,
                started: None,
                stripe: 0,
                lost: ColumnMask::EMPTY,
            });
            let lost = spec.loss.as_ref().map(|loss| loss.drive);
            let columns = (0..place.shape.width()).zip(&place.drives);
            let columns = columns.filter(|(_, drive)| Some(**drive) == lost);
            on_lost.extend(columns.map(|(column, _)| (narrow(number), Column(column))));
        }
        let flights = Vec::new();
        Streams { all, on_lost, flights, free: Vec::new(), late_periods: 0, used_ns: 0.0 }
    }

    /// The drive is lost, so its columns are.
    pub(super) fn lose(&mut self) {
        for (stream, column) in &self.on_lost {
            self.all[at(*stream)].lost = ColumnMask::EMPTY.with(*column);
        }
    }

    pub(super) fn outcomes(
        &self,
        spec: &PromisesSpec,
        entered: &Entered,
        drives_worst: &[u64],
    ) -> Vec<ClassOutcome> {
        let mut outcomes = Vec::new();
        for (class, (own, asked)) in spec.stream.iter().zip(&entered.asked).enumerate() {
            let mut outcome = ClassOutcome {
                name: own.name.clone(),
                asked: own.count,
                admitted: asked.admitted,
                refusal: asked.refusal.clone(),
                scheme: asked.shape.map(|shape| shape.to_string()),
                unit_bytes: asked.shape.map(|shape| shape.unit_bytes()),
                bytes_per_second: 0.0,
                periods: 0,
                late_periods: 0,
                late_streams: 0,
                worst_ms: 0.0,
                drives_worst_ms: 1e3 * seconds(drives_worst[class]),
                bound_ms: 1e3 * seconds(asked.lateness_ns),
                start_ms: 0.0,
                start_bound_ms: 1e3 * seconds(asked.start_latency_ns),
            };
            let of_class = entered.places.iter().zip(&self.all).filter(|(place, _)| place.class == class);
            for (_, stream) in of_class {
                let delivered = stream.account.delivered();
                outcome.bytes_per_second += real(delivered.rate);
                outcome.periods += delivered.periods;
                outcome.late_periods += delivered.periods_late;
                outcome.late_streams += u32::from(delivered.periods_late > 0);
                outcome.worst_ms = outcome.worst_ms.max(1e3 * seconds(delivered.worst_ns));
                let started = stream.started.map_or(0, |started| started - stream.begins);
                outcome.start_ms = outcome.start_ms.max(1e3 * seconds(started));
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

impl Engine<'_> {
    pub(super) fn begin_streams(&mut self) {
        for number in 0..self.streams.all.len() {
            self.send_at(self.streams.all[number].begins, narrow(number));
        }
    }

    /// A stream asks for its next stripe.
    pub(super) fn send(&mut self, number: u32) {
        let place = &self.entered.places[at(number)];
        let direction = self.spec.stream[place.class].direction();
        let bytes = place.shape.stripe_bytes();
        let stream = &mut self.streams.all[at(number)];
        let units = self.plans.stripe(place.shape, stream.lost, stream.stripe, direction);
        let flight = Flight {
            stream: number,
            stripe: stream.stripe,
            due: stream.account.arrived(self.now, bytes),
            asked: units.iter().map(|unit| Column(unit.column)).collect(),
            left: narrow(units.len()),
        };
        stream.stripe += 1;
        let next = stream.source.take(bytes, &mut stream.numbers);
        let next = stream.pacer.when(next, bytes);
        let flight = self.streams.keep(flight);
        for unit in units.iter() {
            let purpose = Purpose::Unit { flight, column: unit.column };
            self.ask_unit(flight, Job { purpose, direction, bytes: unit.bytes });
        }
        self.send_at(next, number);
    }

    fn ask_unit(&mut self, flight: u32, job: Job) {
        let Purpose::Unit { column, .. } = job.purpose else { return };
        let stream = self.streams.flights[at(flight)].stream;
        let drive = self.entered.places[at(stream)].drives[usize::from(column)];
        self.ask(drive, job);
    }

    /// A unit's drive was lost while it was asked for: what the plan set without it needs more is asked for.
    pub(super) fn ask_around(&mut self, number: u32, lost: u8) {
        let flight = &self.streams.flights[at(number)];
        let place = &self.entered.places[at(flight.stream)];
        let direction = self.spec.stream[place.class].direction();
        let mask = self.streams.all[at(flight.stream)].lost;
        debug_assert!(mask.contains(Column(lost)));
        let units = self.plans.stripe(place.shape, mask, flight.stripe, direction);
        let more: Vec<_> =
            units.iter().filter(|unit| !flight.asked.contains(Column(unit.column))).copied().collect();
        let flight = &mut self.streams.flights[at(number)];
        flight.asked = more.iter().fold(flight.asked, |asked, unit| asked.with(Column(unit.column)));
        flight.left += narrow(more.len());
        for unit in more {
            let purpose = Purpose::Unit { flight: number, column: unit.column };
            self.ask_unit(number, Job { purpose, direction, bytes: unit.bytes });
        }
        self.unit_done(number);
    }

    /// The flow of a unit's operation, with the promise that its drive was told.
    pub(super) fn reserved(&self, stage: Stage, flight: u32, column: u8) -> Flow {
        let stream = self.streams.flights[at(flight)].stream;
        let place = &self.entered.places[at(stream)];
        let told = &place.promises[usize::from(column)];
        let direction = self.spec.stream[place.class].direction();
        let promise = Promise {
            direction,
            rate: told.bytes_per_second,
            burst: told.burst_bytes,
            operation_bytes: told.operation_bytes,
            operation_ns: self.time_ns(stage, direction, told.operation_bytes),
            until_ns: u64::MAX,
        };
        let tenant = 1 + u64::from(narrow(place.class));
        Flow::Reserved { reservation: u64::from(stream), tenant, promise }
    }

    /// A unit of a stripe is there, or will never be.
    pub(super) fn unit_done(&mut self, number: u32) {
        let flight = &mut self.streams.flights[at(number)];
        flight.left -= 1;
        if flight.left > 0 {
            return;
        }
        let done = self.now + self.spec.parts.link.latency.0;
        let stream = &mut self.streams.all[at(flight.stream)];
        stream.started.get_or_insert(done);
        stream.pacer.ended(done);
        let late = stream.account.done(done, flight.due);
        self.streams.late_periods += u64::from(late.is_some_and(|late| late.is_first));
        self.streams.free.push(number);
    }
}

impl Streams {
    fn keep(&mut self, flight: Flight) -> u32 {
        if let Some(free) = self.free.pop() {
            self.flights[at(free)] = flight;
            return free;
        }
        self.flights.push(flight);
        narrow(self.flights.len() - 1)
    }
}
