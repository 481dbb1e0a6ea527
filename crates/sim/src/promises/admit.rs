//! Letting streams in: the manager's ledger and its decision, asked for one stream after another.

use braid_admission::{
    Admitted, Answer, Background, BackgroundRates, Demand, DriveParts, Ledger, Offer, Part, Policy, Prices,
    Promise, Qualified, Rail, Refused, Resource, Wish, answer, decide, statistical,
};
use braid_layout::{DriveId, Shape};
use braid_schedule::cost::SECOND_NS;
use braid_schedule::{Charge, DeviceCost, Direction, DirectionCost};

use super::outcome::{Refusal, Share};
use super::source::Rates;
use super::spec::{Admission, Class, Loss, PromisesSpec};
use crate::model::{DiskModel, LinkModel};
use crate::number::{index, narrow, real, whole};
use crate::units::Rate;

/// Factor by which less is asked for if all streams are let in: so there is room for so many times more
/// than admission would let in.
const LET_IN: f64 = 8.0;

/// A stream that was let in.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) class: usize,
    pub(super) shape: Shape,
    /// Drive of each column.
    pub(super) drives: Vec<u32>,
    /// The drives' promises, by column.
    pub(super) promises: Vec<Promise>,
    /// Bound on lateness that admission told.
    pub(super) lateness_ns: u64,
}

/// Result of asking for all streams of a class.
#[derive(Debug)]
pub(super) struct Asked {
    /// Shape of the files; `None`: not even one stream fits.
    pub(super) shape: Option<Shape>,
    pub(super) admitted: u32,
    pub(super) refusal: Option<Refusal>,
    pub(super) lateness_ns: u64,
    pub(super) start_latency_ns: u64,
}

/// All streams that were let in.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) places: Vec<Place>,
    pub(super) asked: Vec<Asked>,
    /// Shares of the disks' time that are booked with all drives there, and in the worst state; `None` if
    /// nothing was booked, as all were let in.
    pub(super) booked: Option<[Share; 2]>,
}

/// Device time of operations, by the means of the model.
pub(super) fn device_cost(disk: &DiskModel) -> DeviceCost {
    let way = |write: bool, rate: Rate| DirectionCost {
        operation_ns: whole(disk.positioning(write) / f64::from(disk.lanes)),
        bytes_per_second: whole(rate.0).max(1),
    };
    DeviceCost {
        charge: if disk.lanes == 1 { Charge::Sum } else { Charge::Larger },
        read: way(false, disk.read_rate),
        write: way(true, disk.write_rate),
        sync_ns: 0,
    }
}

/// The parts of a drive with this disk, on a link of its own, as admission takes them. A link of which the
/// rate means nothing is not booked.
pub fn drive_parts(number: u32, host: &str, disk: &DiskModel, link: &LinkModel) -> DriveParts {
    let rate = is_scheduled(link).then(|| whole(link.rate.0 * link.efficiency()));
    DriveParts {
        drive: DriveId(u128::from(number)),
        domain: vec![host.to_owned()],
        cost: device_cost(disk),
        qualified: Qualified::default(),
        service_permille: 1000,
        rail: Rail { in_bytes_per_second: rate, out_bytes_per_second: rate },
        processor: None,
        moved_permille: 0,
        free_bytes: 1 << 60,
        alive: true,
    }
}

/// Returns true if a link's rate is one: `free` stands for none.
pub(super) fn is_scheduled(link: &LinkModel) -> bool {
    link.rate.0 < 1e15
}

/// Admission's bounds, where these operations go beside the streams.
pub fn policy(cost: &DeviceCost, beside: &[u64]) -> Policy {
    let policy = Policy::default();
    let both = [Direction::Read, Direction::Write];
    let times = beside.iter().flat_map(|&bytes| both.map(|direction| cost.time_ns(direction, bytes)));
    Policy { operation_ns: times.fold(policy.operation_ns, u64::max), ..policy }
}

/// Number of data columns of the files, for the rebuild's reads: those of the first class.
pub(super) fn data_columns(asked: &[Asked]) -> u32 {
    asked.iter().find_map(|asked| asked.shape).map_or(1, |shape| u32::from(shape.k()))
}

/// Asks for all streams of a spec.
pub(super) fn enter(spec: &PromisesSpec) -> Entered {
    let cost = device_cost(&spec.parts.disk);
    let best = spec.best_effort.as_ref().map(|best| best.size.0);
    let beside: Vec<u64> = best.into_iter().chain(spec.loss.as_ref().map(|loss| loss.unit.0)).collect();
    let mut office = Office {
        spec,
        ledger: ledger(spec),
        prices: Prices::default(),
        policy: policy(&cost, &beside),
        places: Vec::new(),
    };
    let mut asked = Vec::new();
    for (number, class) in spec.stream.iter().enumerate() {
        let shape = office.shape(class, number);
        // Until the first shape is known, the rebuild is not.
        if let (Some(loss), Ok(shape), 0) = (&spec.loss, &shape, number) {
            office.keep_for_rebuild(loss, u32::from(shape.k()));
        }
        asked.push(match shape {
            Ok(shape) => office.class(class, number, shape),
            Err(refused) => Asked {
                shape: None,
                admitted: 0,
                refusal: Some(refusal(&refused)),
                lateness_ns: 0,
                start_latency_ns: 0,
            },
        });
    }
    let booked = (spec.promises.admission != Admission::None).then(|| office.booked());
    Entered { places: office.places, asked, booked }
}

fn ledger(spec: &PromisesSpec) -> Ledger {
    let mut ledger = Ledger::default();
    for number in 0..spec.promises.drives {
        let host = format!("host-{number}");
        ledger.set_drive(drive_parts(number, &host, &spec.parts.disk, &spec.parts.link));
    }
    ledger
}

struct Office<'a> {
    spec: &'a PromisesSpec,
    ledger: Ledger,
    prices: Prices,
    policy: Policy,
    places: Vec<Place>,
}

impl Office<'_> {
    /// The shape of a class's files: the spec's, or what admission chooses for a stream alone.
    fn shape(&mut self, class: &Class, number: usize) -> Result<Shape, Box<Refused>> {
        let by_spec = class.shape(&format!("stream.{number}")).expect("the spec was checked");
        if let Some(shape) = by_spec {
            return Ok(shape);
        }
        let ask = class.ask(class.peak(), Wish::Free { m: class.survive });
        let empty = ledger(self.spec);
        match decide(&empty, &mut self.prices, &self.policy, &ask).expect("the spec was checked") {
            Answer::Admitted(admitted) => Ok(admitted.plan.expect("the files are new").shape),
            Answer::Refused(refused) => Err(refused),
        }
    }

    fn keep_for_rebuild(&mut self, loss: &Loss, k: u32) {
        let reads = loss.rate.0 * f64::from(k) / f64::from(k + 1);
        let rates = BackgroundRates {
            scrub: 0,
            rebuild_reads: whole(reads),
            rebuild_writes: whole(loss.rate.0 - reads),
            operation_bytes: loss.unit.0,
        };
        let drives: Vec<DriveParts> = self.ledger.drives().cloned().collect();
        for parts in drives {
            let background = Background::priced(&parts, &rates);
            self.ledger.set_background(parts.drive, background).expect("the drive is in the ledger");
        }
    }

    /// Asks for the streams of a class until one is refused: the others would be, too.
    fn class(&mut self, class: &Class, number: usize, shape: Shape) -> Asked {
        let rate = match self.spec.promises.admission {
            Admission::Deterministic => class.peak(),
            Admission::Statistical => self.effective_rate(class, shape),
            Admission::None => class.peak() / LET_IN,
        };
        let ask = class.ask(rate, Wish::Shape(shape));
        let mut asked =
            Asked { shape: Some(shape), admitted: 0, refusal: None, lateness_ns: 0, start_latency_ns: 0 };
        while asked.admitted < class.count {
            let decided = decide(&self.ledger, &mut self.prices, &self.policy, &ask);
            match decided.expect("the spec was checked") {
                Answer::Admitted(admitted) => {
                    asked.lateness_ns = admitted.lateness_ns;
                    asked.start_latency_ns = admitted.start_latency_ns;
                    self.place(number, &admitted, class.peak() / rate);
                }
                Answer::Refused(_) => {
                    let full = answer(&mut self.ledger, &mut self.prices, &self.policy, &ask);
                    if let Ok(Answer::Refused(refused)) = full {
                        asked.refusal = Some(refusal(&refused));
                    }
                    break;
                }
            }
            asked.admitted += 1;
        }
        asked
    }

    /// Books a stream. Its drives' promises are for its peak, whatever was booked.
    fn place(&mut self, class: usize, admitted: &Admitted, factor: f64) {
        let files = admitted.plan.as_ref().expect("the files are new");
        let promise_of = |drive: &DriveId| {
            let own = admitted.promises.iter().find(|promise| promise.drive == *drive);
            let own = own.and_then(|promise| promise.read.or(promise.write));
            let own = own.unwrap_or(Promise { bytes_per_second: 0, burst_bytes: 0, operation_bytes: 0 });
            Promise { bytes_per_second: whole((real(own.bytes_per_second) * factor).ceil()), ..own }
        };
        let number = |drive: &DriveId| u32::try_from(drive.0).expect("drives are numbered from 0");
        let place = Place {
            class,
            shape: files.shape,
            drives: files.drives.iter().map(number).collect(),
            promises: files.drives.iter().map(promise_of).collect(),
            lateness_ns: admitted.lateness_ns,
        };
        let reservation = u64::from(narrow(self.places.len()));
        self.ledger.add(reservation, admitted.booking.clone()).expect("it is new, and its drives are known");
        self.places.push(place);
    }

    /// The rate to book for each stream so that as many fit on a drive as statistical admission lets in.
    fn effective_rate(&mut self, class: &Class, shape: Shape) -> f64 {
        let Rate(mean) = class.rate;
        let ask = class.ask(mean, Wish::Shape(shape));
        let empty = ledger(self.spec);
        let alone = decide(&empty, &mut self.prices, &self.policy, &ask).expect("the spec was checked");
        let Answer::Admitted(alone) = alone else { return class.peak() };
        // Demands with all drives there: a stream's is greater only if the right other drive is lost, and
        // then for few of a drive's streams at a time.
        let streams = alone.booking.drives.iter().map(|own| {
            let capacity = self.ledger.capacity(own.drive).unwrap_or(Demand::ZERO);
            let used = self.ledger.worst(own.drive).unwrap_or(Demand::ZERO);
            let streams = |part: Part| {
                let demand = own.healthy.on(part);
                let capacity = capacity.on(part).saturating_sub(used.on(part));
                let mean = real(demand);
                let deviation = mean * Rates::of(class).deviation() / class.rate.0;
                let stream = statistical::Variable { mean, deviation };
                statistical::streams_max(stream, real(capacity), self.spec.promises.deviations)
            };
            [Part::Disk, Part::RailIn, Part::RailOut].map(streams).into_iter().min().unwrap_or(0)
        });
        let streams = streams.min().unwrap_or(0).max(1);
        let effective = statistical::demand(
            statistical::Variable { mean, deviation: Rates::of(class).deviation() },
            streams,
            self.spec.promises.deviations,
        );
        (effective / f64::from(streams)).min(class.peak())
    }

    /// Shares of the disks' time that are booked: with all drives there, and in the worst state.
    fn booked(&self) -> [Share; 2] {
        let all: Vec<DriveId> = self.ledger.drives().map(|parts| parts.drive).collect();
        let share = |demand: &dyn Fn(DriveId) -> Option<Demand>| {
            let device_ns = all.iter().map(|&drive| demand(drive).map_or(0, |demand| demand.device_ns));
            Share::of(device_ns.map(|ns| real(ns) / real(SECOND_NS)).collect())
        };
        [share(&|drive| self.ledger.load(drive, &[])), share(&|drive| self.ledger.worst(drive))]
    }
}

fn refusal(refused: &Refused) -> Refusal {
    let Refused { resource, needed, free, offers, .. } = refused;
    let offered = offers.iter().find_map(|offer| match offer {
        Offer::Rate(rate) => Some(*rate),
        _ => None,
    });
    let per_second = |part: Part, value: u64| match part {
        Part::RailIn | Part::RailOut => format!("{}", Rate(real(value))),
        _ => format!("{:.1} ms of each second", real(value) / 1e6),
    };
    let why = match resource {
        Resource::Drive { drive, part, lost } => {
            let lost = lost.map_or(String::new(), |lost| format!(" while drive {} is lost", lost.0));
            let needed = per_second(*part, *needed);
            let free = per_second(*part, *free);
            format!("the {part} of drive {}{lost}: {needed} needed, {free} free", drive.0)
        }
        other => format!("{other}: {needed} needed, {free} there"),
    };
    Refusal { why, offered }
}

/// Index of a drive in tables.
pub(super) fn at(drive: u32) -> usize {
    index(u64::from(drive))
}
