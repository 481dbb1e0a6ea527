//! The decision: whether a promise fits and, for new files, on which drives and in which shape.
//!
//! Width and unit follow from the rate, as in Swift (section 2): a low rate gets large units on few drives, a
//! high rate units small enough for all the drives that it needs to work at once. So widths are tried from
//! the narrowest on, and the first that fits is taken. The unit is at most so large that a stripe is there
//! within a number of periods, and that the client's buffer stays below a bound. With one data column it is
//! the largest of these: each operation costs the least. With several it is the smallest that costs the
//! drives hardly more than the largest: the stripe, and so the buffer, the start and the bursts, stay small.
//!
//! The least loaded drives are chosen, as far apart as placement would put them.

use std::collections::BTreeSet;

use braid_layout::{ColumnMask, Component, DriveId, ObjectId, Scheme, Segment, Shape};
use braid_plan::PlanError;
use braid_schedule::cost::SECOND_NS;

use crate::answer::{Admitted, Answer, Candidate, Explanation, Refused, Resource, Verdict};
use crate::ask::{About, Access, Ask, AskError, NewFiles, Terms, Wish};
use crate::count::Prices;
use crate::ledger::{Ledger, Need, NoDrives, Room, Shortage};
use crate::parts::DriveParts;
use crate::price::{PriceError, Priced, States, price};

/// Numbers of data columns that are tried.
const DATA_COLUMNS: [u8; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 60];
/// Most times that drives are chosen anew because one of them does not fit after all.
const TRIES_MAX: usize = 16;
/// Most drives with which those that may fit are looked at, beside those that fit for certain. With more
/// there are enough others.
const EXACT_DRIVES_MAX: usize = 64;
/// A smaller unit is as good if it costs at most this much more, in parts of the whole.
const HARDLY: u64 = 16;

/// Bounds of plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Device time of the requests below a drive's scheduler at most, in nanoseconds.
    pub in_flight_ns: u64,
    /// Device time of the largest operation of any work on a drive, in nanoseconds: lateness counts with it.
    /// Units that are free to choose cost no more. Files with larger ones are told more lateness.
    pub operation_ns: u64,
    /// Most periods that a stripe of a stream takes, for shapes that are free to choose.
    pub start_periods: u32,
    /// Most bytes of a client's buffers, for shapes that are free to choose.
    pub buffer_bytes_max: u64,
    /// Smallest unit of shapes that are free to choose: a power of two.
    pub unit_bytes_min: u32,
    /// Largest unit of shapes that are free to choose: a power of two.
    pub unit_bytes_max: u32,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            in_flight_ns: 20_000_000,
            operation_ns: 50_000_000,
            start_periods: 20,
            buffer_bytes_max: 1 << 30,
            unit_bytes_min: 64 << 10,
            unit_bytes_max: 4 << 20,
        }
    }
}

/// Decides, without offers in case of a refusal.
pub fn decide(ledger: &Ledger, prices: &mut Prices, policy: &Policy, ask: &Ask) -> Result<Answer, AskError> {
    ask.check()?;
    let mut decision = Decision { ledger, prices, policy, ask, explanation: Explanation::default() };
    let outcome = match &ask.about {
        About::Segments(segments) => decision.existing(segments),
        About::Planned(files) => decision.planned(files),
        About::New(Wish::Shape(shape)) => decision.of_shape(*shape),
        About::New(Wish::Free { m }) => decision.free((*m).max(ask.terms.survive)),
    };
    let explanation = decision.explanation;
    Ok(match outcome {
        Ok(admitted) => Answer::Admitted(Box::new(Admitted { explanation, ..admitted })),
        Err(refused) => Answer::Refused(Box::new(Refused { explanation, ..*refused })),
    })
}

/// Prices a promise on files that exist, or on drives that were chosen, without a check that it fits: for a
/// promise that was made already. It is refused only if the files cannot be read or written as asked.
pub fn quote(ledger: &Ledger, prices: &mut Prices, policy: &Policy, ask: &Ask) -> Result<Answer, AskError> {
    ask.check()?;
    let mut decision = Decision { ledger, prices, policy, ask, explanation: Explanation::default() };
    let quoted = match &ask.about {
        About::Segments(segments) => decision.quoted(segments, None),
        About::Planned(files) => decision.quoted(&[segment(files.shape, &files.drives)], Some(files)),
        About::New(_) => return Err(AskError::NotPlanned),
    };
    Ok(match quoted {
        Ok(admitted) => Answer::Admitted(Box::new(admitted)),
        Err(refused) => Answer::Refused(refused),
    })
}

struct Decision<'a> {
    ledger: &'a Ledger,
    prices: &'a mut Prices,
    policy: &'a Policy,
    ask: &'a Ask,
    explanation: Explanation,
}

impl Decision<'_> {
    fn existing(&mut self, segments: &[Segment]) -> Result<Admitted, Box<Refused>> {
        let admitted = self.quoted(segments, None)?;
        self.ledger.check(&admitted.booking).map_err(|shortage| of_shortage(&shortage))?;
        Ok(admitted)
    }

    fn planned(&mut self, files: &NewFiles) -> Result<Admitted, Box<Refused>> {
        let admitted = self.quoted(&[segment(files.shape, &files.drives)], Some(files))?;
        self.ledger.check(&admitted.booking).map_err(|shortage| of_shortage(&shortage))?;
        for booked in &admitted.booking.drives {
            let bytes = self.stored_bytes(booked.stored_bytes_per_second);
            let free = self.ledger.free_bytes(booked.drive, self.ask.now_ms).unwrap_or(0);
            if free < i128::from(bytes) {
                let free = u64::try_from(free.max(0)).unwrap_or(u64::MAX);
                return Err(refused(Resource::Space { drive: booked.drive }, bytes, free));
            }
        }
        Ok(admitted)
    }

    fn quoted(&mut self, segments: &[Segment], files: Option<&NewFiles>) -> Result<Admitted, Box<Refused>> {
        let priced = self.price(segments)?;
        Ok(self.admitted(segments, files.cloned(), priced))
    }

    /// Bytes that are stored at this rate until the promise ends.
    fn stored_bytes(&self, bytes_per_second: u64) -> u64 {
        let stored = |ms: u64| u128::from(bytes_per_second) * u128::from(ms) / 1000;
        u64::try_from(self.ask.duration_ms.map_or(0, stored)).unwrap_or(u64::MAX)
    }

    /// Tries all widths from the narrowest on.
    fn free(&mut self, m: u8) -> Result<Admitted, Box<Refused>> {
        let mut refused = refused(Resource::Drives, u64::from(m) + 1, count(self.ledger.serving()));
        for k in DATA_COLUMNS {
            let Some(shape) = self.shape(k, m) else { continue };
            if usize::from(shape.width()) > self.ledger.serving() {
                break;
            }
            match self.of_shape(shape) {
                Ok(admitted) => return Ok(admitted),
                Err(wider) => refused = wider,
            }
        }
        Err(refused)
    }

    /// The shape with so many columns whose unit suits the rate; `None` if there is none.
    fn shape(&mut self, k: u8, m: u8) -> Option<Shape> {
        let scheme = match (k, m) {
            (_, 0) => Scheme::Raid0,
            (1, _) => Scheme::Raid1,
            (_, 1) => Scheme::Raid5,
            (_, _) => Scheme::Rs,
        };
        let terms = self.ask.terms;
        let parts = self.ledger.least_loaded()?;
        let small = self.policy.unit_bytes_min;
        let powers = std::iter::successors(Some(small), |unit| unit.checked_mul(2));
        let powers = powers.take_while(|unit| *unit <= self.policy.unit_bytes_max);
        let shapes: Vec<Shape> = powers
            .filter_map(|unit| Shape::new(scheme, k, m, unit).ok())
            .filter(|shape| shape.unit_bytes() == small || self.is_short(shape, parts))
            .collect();
        let largest = *shapes.last()?;
        if k == 1 {
            return Some(largest);
        }
        let mut busy = |shape: Shape| {
            let states = States::new(self.prices, shape, ColumnMask::EMPTY, &terms).ok()?;
            Some(self.ledger.busy(parts, &states.worst(parts, &terms)))
        };
        let least = busy(largest)?;
        let enough = least.saturating_add(least / HARDLY);
        let chosen = shapes.iter().copied().find(|&shape| busy(shape).is_some_and(|busy| busy <= enough))?;
        if chosen != largest {
            let verdict = Verdict::OtherUnit { unit_bytes: chosen.unit_bytes() };
            self.explanation.candidates.push(Candidate { shape: largest, busy_per_million: least, verdict });
        }
        Some(chosen)
    }

    /// Returns true if a unit is no larger operation than any, a stripe is there within the periods, and the
    /// buffers are small enough.
    fn is_short(&self, shape: &Shape, parts: &DriveParts) -> bool {
        let terms = &self.ask.terms;
        let most = terms.period_ns.saturating_mul(u64::from(self.policy.start_periods));
        let unit = parts.cost.time_ns(terms.direction, u64::from(shape.unit_bytes()));
        unit <= self.policy.operation_ns
            && step_ns(shape, terms) <= most
            && buffer_bytes(shape, terms) <= self.policy.buffer_bytes_max
    }

    /// Finds drives for files of this shape.
    fn of_shape(&mut self, shape: Shape) -> Result<Admitted, Box<Refused>> {
        let terms = self.ask.terms;
        if terms.survive > shape.m() {
            let resource = Resource::Survive { missing: None };
            return Err(refused(resource, u64::from(terms.survive), u64::from(shape.m())));
        }
        let states = States::new(self.prices, shape, ColumnMask::EMPTY, &terms).map_err(|e| of_plan(&e))?;
        let parts = self.ledger.least_loaded();
        let busy = parts.map_or(0, |parts| self.ledger.busy(parts, &states.worst(parts, &terms)));
        let stored_bytes = self.stored_bytes(states.stored_bytes_per_second(&terms));
        let mut short = None;
        let worst = |parts: &DriveParts| states.worst(parts, &terms);
        let least = |parts: &DriveParts| states.least(parts, &terms);
        let need = |room, demand| Need {
            width: shape.width(),
            room,
            demand,
            stored_bytes,
            now_ms: self.ask.now_ms,
            except: BTreeSet::new(),
        };
        let candidate = |verdict| Candidate { shape, busy_per_million: busy, verdict };
        let mut needs = vec![need(Room::Certain, &worst)];
        if self.ledger.serving() <= EXACT_DRIVES_MAX {
            needs.push(need(Room::Possible, &least));
        }
        for need in needs {
            match self.on_drives(shape, need)? {
                Ok(admitted) => {
                    self.explanation.candidates.push(candidate(Verdict::Taken));
                    return Ok(admitted);
                }
                Err(none) => short = Some(none),
            }
        }
        let none = short.expect("it was tried");
        let verdict = match none {
            NoDrives::Few { .. } => Verdict::Few,
            NoDrives::Space { .. } => Verdict::Space,
            NoDrives::Load(shortage) => Verdict::Short(shortage),
        };
        self.explanation.candidates.push(candidate(verdict));
        Err(of_choice(none, stored_bytes, shape.width()))
    }

    /// Chooses drives and checks them; those that do not fit after all are left out, and others are chosen.
    fn on_drives(
        &mut self,
        shape: Shape,
        mut need: Need<'_>,
    ) -> Result<Result<Admitted, NoDrives>, Box<Refused>> {
        loop {
            let drives = match self.ledger.choose(&need, &mut self.explanation.checked) {
                Ok(drives) => drives,
                Err(none) => return Ok(Err(none)),
            };
            let segments = [segment(shape, &drives)];
            let priced = self.price(&segments)?;
            let Err(shortage) = self.ledger.check(&priced.booking) else {
                return Ok(Ok(self.admitted(&segments, Some(NewFiles { shape, drives }), priced)));
            };
            match shortage.drive {
                Some(drive) if need.except.len() < TRIES_MAX => need.except.insert(drive),
                Some(_) | None => return Ok(Err(NoDrives::Load(shortage))),
            };
        }
    }

    fn price(&mut self, segments: &[Segment]) -> Result<Priced, Box<Refused>> {
        let parts = |drive: DriveId| self.ledger.parts(drive);
        let client = self.ask.client;
        price(self.prices, &parts, segments, &self.ask.terms, client).map_err(|error| match error {
            PriceError::Survive { possible, missing } => {
                let resource = Resource::Survive { missing };
                refused(resource, u64::from(self.ask.terms.survive), u64::from(possible))
            }
            PriceError::Plan(error) => of_plan(&error),
        })
    }

    fn admitted(&self, segments: &[Segment], plan: Option<NewFiles>, priced: Priced) -> Admitted {
        let terms = &self.ask.terms;
        let lateness_ns = self.policy.in_flight_ns + self.policy.operation_ns.max(priced.operation_ns);
        let shapes = || segments.iter().map(|segment| segment.shape);
        let step_ns = shapes().map(|shape| step_ns(&shape, terms)).max().unwrap_or(0);
        let mut booking = priced.booking;
        booking.until_ms = self.ask.duration_ms.map(|ms| self.ask.now_ms.saturating_add(ms));
        if plan.is_none() {
            booking.drives.iter_mut().for_each(|drive| drive.stored_bytes_per_second = 0);
        }
        Admitted {
            plan,
            promises: priced.promises,
            booking,
            client: priced.client,
            buffer_bytes: shapes().map(|shape| buffer_bytes(&shape, terms)).max().unwrap_or(0),
            lateness_ns,
            start_latency_ns: step_ns.saturating_add(lateness_ns),
            explanation: Explanation::default(),
        }
    }
}

/// Time that a stripe or piece of a stream takes at its rate, in nanoseconds.
fn step_ns(shape: &Shape, terms: &Terms) -> u64 {
    let time = u128::from(step_bytes(shape, terms)) * u128::from(SECOND_NS);
    u64::try_from(time / u128::from(terms.stream_bytes_per_second())).unwrap_or(u64::MAX)
}

/// Bytes of a file that a stream asks for at once.
fn step_bytes(shape: &Shape, terms: &Terms) -> u64 {
    match terms.access {
        Access::Whole => shape.stripe_bytes(),
        Access::Pieces { bytes } => bytes.min(shape.stripe_bytes()),
    }
}

/// Bytes that the client needs: two stripes of each stream, parity included, or what two periods bring.
fn buffer_bytes(shape: &Shape, terms: &Terms) -> u64 {
    let stripe = u128::from(step_bytes(shape, terms)) * u128::from(shape.width());
    let streams = 2 * u128::from(terms.streams) * stripe.div_ceil(u128::from(shape.k()));
    let period = u128::from(terms.bytes_per_second) * u128::from(terms.period_ns);
    let periods = 2 * period.div_ceil(u128::from(SECOND_NS));
    u64::try_from(streams.max(periods)).unwrap_or(u64::MAX)
}

/// A segment of new files. Its object is not known yet.
fn segment(shape: Shape, drives: &[DriveId]) -> Segment {
    let components = drives.iter().map(|&drive| Component { drive, object: ObjectId(0) }).collect();
    Segment { start: 0, end: u64::MAX, shape, components }
}

fn refused(resource: Resource, needed: u64, free: u64) -> Box<Refused> {
    let explanation = Explanation::default();
    Box::new(Refused { resource, needed, free, offers: Vec::new(), explanation })
}

fn of_shortage(shortage: &Shortage) -> Box<Refused> {
    let Shortage { drive, part, lost, needed, free } = *shortage;
    let resource = match drive {
        Some(drive) => Resource::Drive { drive, part, lost },
        None => Resource::Client { part },
    };
    refused(resource, needed, free)
}

fn of_choice(none: NoDrives, stored_bytes: u64, width: u8) -> Box<Refused> {
    match none {
        NoDrives::Few { serving } => refused(Resource::Drives, u64::from(width), count(serving)),
        NoDrives::Space { drive, free } => refused(Resource::Space { drive }, stored_bytes, free),
        NoDrives::Load(shortage) => of_shortage(&shortage),
    }
}

/// Too few columns are there for a plan.
fn of_plan(error: &PlanError) -> Box<Refused> {
    match error {
        PlanError::TooFewReady { needed, ready, missing, .. } => {
            let missing = missing.first().map(|(_, drive)| *drive);
            refused(Resource::Survive { missing }, u64::from(*needed), u64::from(*ready))
        }
        _ => refused(Resource::Survive { missing: None }, 0, 0),
    }
}

fn count(drives: usize) -> u64 {
    u64::try_from(drives).unwrap_or(u64::MAX)
}
