//! The engine: events in the order of their times.

use braid_schedule::{Background, BackgroundRate, DeviceCost, Direction, Flow, FlowId};

use super::admit::{Entered, at, data_columns, device_cost, enter, is_scheduled};
use super::others::{Clients, Rebuild};
use super::outcome::{Overloaded, PromisesOutcome, Share};
use super::plans::Plans;
use super::spec::PromisesSpec;
use super::station::{Job, Purpose, Station, Wait};
use super::streams::Streams;
use crate::number::{index, narrow, real, seconds};
use crate::queue::EventQueue;
use crate::random::{Source as From, Stream as Numbers};

/// Runs a checked spec. Ends at once when more waits at a drive than one accepts.
pub fn run(spec: &PromisesSpec) -> Result<PromisesOutcome, Overloaded> {
    let mut engine = Engine::new(spec);
    engine.go(false);
    engine.overloaded.map_or_else(|| Ok(engine.finish()), Err)
}

/// Returns true if no period of any stream is late, and no drive refuses what is asked of it. Ends as soon as
/// that is so.
pub fn carries(spec: &PromisesSpec) -> bool {
    let mut engine = Engine::new(spec);
    engine.go(true);
    engine.streams.late_periods == 0 && engine.overloaded.is_none()
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A stream asks for its next stripe.
    Send { stream: u32 },
    /// The commands of a slot have positioned.
    Positioned { station: u32, slot: u32 },
    /// A device is done with a slot.
    End { station: u32, slot: u32 },
    /// A scheduler's limit opens.
    Open { station: u32 },
    /// A drive is lost.
    Loss,
}

/// Places of an operation, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Disk,
    RailOut,
    RailIn,
}

pub(super) struct Engine<'a> {
    pub(super) spec: &'a PromisesSpec,
    pub(super) now: u64,
    events: EventQueue<Event>,
    /// The stations of each drive, one after another: the disk, and the rail's two directions if it has a
    /// rate.
    stations: Vec<Station>,
    stages: usize,
    pub(super) lost: Option<u32>,
    pub(super) cost: DeviceCost,
    pub(super) entered: Entered,
    pub(super) streams: Streams,
    pub(super) plans: Plans,
    pub(super) clients: Clients,
    pub(super) rebuild: Option<Rebuild>,
    handled: u64,
    overloaded: Option<Overloaded>,
    /// Kept between calls so that they need no new memory.
    waits: Vec<Wait>,
}

impl<'a> Engine<'a> {
    fn new(spec: &'a PromisesSpec) -> Engine<'a> {
        let entered = enter(spec);
        let cost = device_cost(&spec.parts.disk);
        let with_rail = is_scheduled(&spec.parts.link);
        let mut stations = Vec::new();
        for drive in 0..spec.promises.drives {
            let numbers = Numbers::new(spec.seed, From::Disk(drive));
            stations.push(Station::disk(&spec.parts.disk, numbers));
            if with_rail {
                stations.push(Station::rail(&spec.parts.link));
                stations.push(Station::rail(&spec.parts.link));
            }
        }
        let streams = Streams::new(spec, &entered);
        let mut engine = Engine {
            spec,
            now: 0,
            events: EventQueue::new(),
            stations,
            stages: if with_rail { 3 } else { 1 },
            lost: None,
            cost,
            entered,
            streams,
            plans: Plans::default(),
            clients: Clients::new(spec, &cost),
            rebuild: None,
            handled: 0,
            overloaded: None,
            waits: Vec::new(),
        };
        engine.limit_rebuild();
        engine
    }

    /// Sets the rate of rebuilds on all drives, for which admission has left room.
    fn limit_rebuild(&mut self) {
        let Some(loss) = &self.spec.loss else { return };
        let ways = [Direction::Read, Direction::Write];
        let rate = crate::number::whole(loss.rate.0);
        for (number, station) in self.stations.iter_mut().enumerate() {
            let operation_ns = if number.is_multiple_of(self.stages) {
                ways.map(|way| self.cost.time_ns(way, loss.unit.0)).into_iter().max().unwrap_or(0)
            } else {
                self.spec.parts.link.time(loss.unit.0, false)
            };
            let rates = BackgroundRate {
                rate,
                limit: rate,
                burst: loss.unit.0,
                operation_bytes: loss.unit.0,
                operation_ns,
            };
            station.scheduler.set_background(0, Background::Rebuild, &rates);
        }
    }

    fn go(&mut self, until_late: bool) {
        self.begin_streams();
        self.begin_clients();
        if let Some(loss) = &self.spec.loss {
            self.events.push(loss.at.0, Event::Loss);
        }
        while let Some((at, event)) = self.events.pop() {
            if matches!(event, Event::Send { .. }) && !self.goes_on(at) {
                continue;
            }
            self.now = at;
            self.handled += 1;
            self.handle(event);
            if until_late && self.streams.late_periods > 0 || self.overloaded.is_some() {
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send { stream } => self.send(stream),
            Event::Loss => self.lose(),
            Event::Positioned { station, .. } | Event::End { station, .. } | Event::Open { station }
                if self.lost == Some(self.drive_of(station)) => {}
            Event::Positioned { station, slot } => {
                let wait = self.stations[at(station)].positioned(self.now, slot);
                self.waits.extend(wait);
                self.wait_for(station);
            }
            Event::Open { station } => {
                self.stations[at(station)].go(self.now, &mut self.waits);
                self.wait_for(station);
            }
            Event::End { station, slot } => {
                let mut jobs = Vec::new();
                self.stations[at(station)].end(self.now, slot, &mut self.waits, &mut jobs);
                self.wait_for(station);
                jobs.into_iter().for_each(|job| self.passed(station, job));
            }
        }
    }

    /// Time to which streams and clients go on: the stated one, or the rebuild's end.
    pub(super) fn goes_on(&self, now: u64) -> bool {
        let rebuilds = self.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_expected(now));
        now < self.spec.promises.duration.0 || rebuilds
    }

    /// A stream asks for its next stripe at this time.
    pub(super) fn send_at(&mut self, time: u64, stream: u32) {
        self.events.push(time, Event::Send { stream });
    }

    fn drive_of(&self, station: u32) -> u32 {
        narrow(index(u64::from(station)) / self.stages)
    }

    fn wait_for(&mut self, station: u32) {
        for wait in self.waits.drain(..) {
            let (after, event) = match wait {
                Wait::Position { slot, after } => (self.now + after, Event::Positioned { station, slot }),
                Wait::End { slot, after } => (self.now + after, Event::End { station, slot }),
                Wait::Open { at } => (at, Event::Open { station }),
            };
            self.events.push(after, event);
        }
    }

    /// An operation begins at a drive.
    pub(super) fn ask(&mut self, drive: u32, job: Job) {
        let first = match job.direction {
            Direction::Write if self.stages > 1 => Stage::RailIn,
            Direction::Read | Direction::Write => Stage::Disk,
        };
        self.enter_stage(drive, first, job);
    }

    fn enter_stage(&mut self, drive: u32, stage: Stage, job: Job) {
        let cost_ns = self.time_ns(stage, job.direction, u64::from(job.bytes));
        let flow = self.flow(stage, &job);
        let station = at(drive) * self.stages + stage as usize;
        if !self.stations[station].submit(self.now, flow, job, cost_ns) {
            self.overloaded.get_or_insert(Overloaded { drive, seconds: seconds(self.now) });
            return;
        }
        self.stations[station].go(self.now, &mut self.waits);
        self.wait_for(narrow(station));
    }

    /// Device time of an operation, as it is charged.
    pub(super) fn time_ns(&self, stage: Stage, direction: Direction, bytes: u64) -> u64 {
        match stage {
            Stage::Disk => self.cost.time_ns(direction, bytes),
            Stage::RailOut | Stage::RailIn => self.spec.parts.link.time(bytes, false),
        }
    }

    fn flow(&self, stage: Stage, job: &Job) -> Flow {
        match job.purpose {
            Purpose::Unit { flight, column } => self.reserved(stage, flight, column),
            Purpose::BestEffort { client } => Flow::BestEffort { tenant: 0, client: u64::from(client) },
            Purpose::Rebuild { .. } => Flow::Background(Background::Rebuild),
        }
    }

    /// An operation has passed a station of its drive.
    fn passed(&mut self, station: u32, job: Job) {
        let drive = self.drive_of(station);
        let stage = index(u64::from(station)) % self.stages;
        if stage == Stage::Disk as usize {
            self.count(&job);
        }
        if self.stages > 1 && job.direction == Direction::Read && stage == Stage::Disk as usize {
            self.enter_stage(drive, Stage::RailOut, job);
        } else if stage == Stage::RailIn as usize {
            self.enter_stage(drive, Stage::Disk, job);
        } else {
            match job.purpose {
                Purpose::Unit { flight, .. } => self.unit_done(flight),
                Purpose::BestEffort { client } => self.client_done(client, job.bytes),
                Purpose::Rebuild { task } => self.rebuild_done(task, job.direction),
            }
        }
    }

    /// Counts device time by its users.
    fn count(&mut self, job: &Job) {
        let time = real(self.cost.time_ns(job.direction, u64::from(job.bytes)));
        match job.purpose {
            Purpose::Unit { .. } => self.streams.used_ns += time,
            Purpose::BestEffort { .. } => self.clients.used_ns += time,
            Purpose::Rebuild { .. } => {
                self.rebuild.iter_mut().for_each(|rebuild| rebuild.used_ns += time);
            }
        }
    }

    /// The drive is lost: plan sets go around it from now on, and the rebuild begins.
    fn lose(&mut self) {
        let Some(loss) = &self.spec.loss else { return };
        let drive = loss.drive;
        self.lost = Some(drive);
        let first = at(drive) * self.stages;
        let mut jobs = Vec::new();
        for station in &mut self.stations[first..first + self.stages] {
            jobs.extend(station.lose(self.now));
        }
        self.streams.lose();
        for job in jobs {
            if let Purpose::Unit { flight, column } = job.purpose {
                self.ask_around(flight, column);
            }
        }
        let k = data_columns(&self.entered.asked);
        self.rebuild = Some(Rebuild::new(loss, self.spec.promises.drives, k, self.now));
        self.begin_rebuild();
    }

    fn finish(mut self) -> PromisesOutcome {
        let now = self.now;
        let drives_worst = self.drives_worst();
        let classes = self.streams.outcomes(self.spec, &self.entered, &drives_worst);
        let alive = (0..self.spec.promises.drives).filter(|&drive| self.lost != Some(drive));
        let stages = self.stages;
        let busy = alive.map(|drive| self.stations[at(drive) * stages].busy(now)).collect::<Vec<f64>>();
        let disks_ns = self.disks_ns();
        let rebuild_ns = self.rebuild.as_ref().map_or(0.0, |rebuild| rebuild.used_ns);
        let left_ns = disks_ns - self.streams.used_ns - rebuild_ns;
        PromisesOutcome {
            drives: self.spec.promises.drives,
            asked: classes.iter().map(|class| u64::from(class.asked)).sum(),
            admitted: classes.iter().map(|class| u64::from(class.admitted)).sum(),
            late_periods: classes.iter().map(|class| class.late_periods).sum(),
            classes,
            booked: self.entered.booked.map(|[healthy, _]| healthy),
            booked_worst: self.entered.booked.map(|[_, worst]| worst),
            busy: Share::of(busy),
            streams_used: if disks_ns > 0.0 { self.streams.used_ns / disks_ns } else { 0.0 },
            best_effort: self.spec.best_effort.as_ref().map(|_| self.clients.outcome(now, left_ns)),
            rebuild: self.rebuild.as_ref().map(Rebuild::outcome),
            seconds: seconds(now),
            events: self.handled,
        }
    }

    /// By class, the greatest lateness of an operation of its streams at any station.
    fn drives_worst(&self) -> Vec<u64> {
        let mut worst = vec![0; self.spec.stream.len()];
        for known in self.stations.iter().flat_map(|station| station.scheduler.figures()) {
            if let FlowId::Reserved(stream) = known.flow {
                let of_class = &mut worst[self.entered.places[index(stream)].class];
                *of_class = known.figures.worst_lateness_ns.max(*of_class);
            }
        }
        worst
    }

    /// Time of all disks together while they served.
    fn disks_ns(&self) -> f64 {
        let lost_at = self.spec.loss.as_ref().map(|loss| loss.at.0).filter(|_| self.lost.is_some());
        let lost = lost_at.map_or(0, |at| self.now - at);
        real(self.now) * f64::from(self.spec.promises.drives) - real(lost)
    }
}
