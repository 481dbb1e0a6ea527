//! The load beside the streams: best effort, and the rebuild of a lost drive.

use braid_schedule::{DeviceCost, Direction};

use super::engine::Engine;
use super::outcome::{BestEffortOutcome, RebuildOutcome};
use super::spec::{Loss, PromisesSpec};
use super::station::{DISK_IN_FLIGHT_NS, Job, Purpose, READS_IN_FLIGHT};
use crate::number::{SECOND, count, index, narrow, real, seconds, whole};
use crate::random::{Source as From, Stream as Numbers};

/// Operations of the rebuild that wait or are done at each drive.
const REBUILD_DEPTH: u32 = 4;

/// Clients without a promise, each with one operation on the way.
#[derive(Debug)]
pub(super) struct Clients {
    /// Clients of each drive.
    each: u32,
    numbers: Numbers,
    operations: u64,
    bytes: u64,
    /// Device time of disks.
    pub(super) used_ns: f64,
}

impl Clients {
    pub(super) fn new(spec: &PromisesSpec, cost: &DeviceCost) -> Clients {
        let each = spec.best_effort.as_ref().map_or(0, |best| {
            let time = |direction| real(cost.time_ns(direction, best.size.0));
            let mean = best.read * time(Direction::Read) + (1.0 - best.read) * time(Direction::Write);
            let at_once = (real(DISK_IN_FLIGHT_NS) / mean.max(1.0)).min(count(READS_IN_FLIGHT));
            u32::try_from(whole((best.overload * at_once).ceil())).unwrap_or(u32::MAX)
        });
        let numbers = Numbers::new(spec.seed, From::Requests(0));
        Clients { each, numbers, operations: 0, bytes: 0, used_ns: 0.0 }
    }

    pub(super) fn outcome(&self, now: u64, left_ns: f64) -> BestEffortOutcome {
        BestEffortOutcome {
            operations: self.operations,
            bytes_per_second: real(self.bytes) / seconds(now).max(1e-9),
            of_left: if left_ns > 0.0 { self.used_ns / left_ns } else { 0.0 },
        }
    }
}

/// A rebuild: tasks, each of which reads a unit of as many drives as the files have data columns, and then
/// writes one. All drives have the same part of it, as with files all over them.
#[derive(Debug)]
pub(super) struct Rebuild {
    begins: u64,
    eta_ns: u64,
    ends: Option<u64>,
    reads: u32,
    tasks: u64,
    begun: u64,
    done: u64,
    bytes: u32,
    alive: Vec<u32>,
    /// For each task on the way its number, and the reads that are left.
    running: Vec<(u64, u32)>,
    pub(super) used_ns: f64,
}

impl Rebuild {
    pub(super) fn new(loss: &Loss, drives: u32, k: u32, begins: u64) -> Rebuild {
        let alive: Vec<u32> = (0..drives).filter(|&drive| drive != loss.drive).collect();
        let tasks = loss.stored.0.div_ceil(loss.unit.0);
        let all = real(tasks) * f64::from(k + 1) * real(loss.unit.0);
        let running = count(alive.len()) * f64::from(REBUILD_DEPTH) / f64::from(k + 1);
        let running = whole(running.ceil()).min(tasks);
        Rebuild {
            begins,
            eta_ns: whole(all / count(alive.len()) / loss.rate.0 * SECOND),
            ends: (tasks == 0).then_some(begins),
            reads: k,
            tasks,
            begun: 0,
            done: 0,
            bytes: u32::try_from(loss.unit.0).expect("the spec was checked"),
            alive,
            running: vec![(0, 0); index(running)],
            used_ns: 0.0,
        }
    }

    /// Returns true if it is not done, and not hopelessly late.
    pub(super) fn is_expected(&self, now: u64) -> bool {
        self.ends.is_none() && now < self.begins + 2 * self.eta_ns
    }

    pub(super) fn outcome(&self) -> RebuildOutcome {
        let took = self.ends.map(|ends| seconds(ends - self.begins));
        RebuildOutcome { eta_seconds: seconds(self.eta_ns), seconds: took }
    }

    /// The drive that does a part of a task: the reads, then the write.
    fn drive(&self, task: u64, part: u32) -> u32 {
        let turn = task * u64::from(self.reads + 1) + u64::from(part);
        self.alive[index(turn) % self.alive.len()]
    }
}

impl Engine<'_> {
    pub(super) fn begin_clients(&mut self) {
        for client in 0..self.clients.each * self.spec.promises.drives {
            self.client_asks(client);
        }
    }

    fn client_asks(&mut self, client: u32) {
        let Some(best) = &self.spec.best_effort else { return };
        let reads = self.clients.numbers.unit() < best.read;
        let direction = if reads { Direction::Read } else { Direction::Write };
        let bytes = u32::try_from(best.size.0).expect("the spec was checked");
        let purpose = Purpose::BestEffort { client };
        self.ask(client / self.clients.each, Job { purpose, direction, bytes });
    }

    pub(super) fn client_done(&mut self, client: u32, bytes: u32) {
        self.clients.operations += 1;
        self.clients.bytes += u64::from(bytes);
        if self.goes_on(self.now) {
            self.client_asks(client);
        }
    }

    pub(super) fn begin_rebuild(&mut self) {
        let running = self.rebuild.as_ref().map_or(0, |rebuild| rebuild.running.len());
        (0..running).for_each(|task| self.next_task(narrow(task)));
    }

    /// Begins the next task in this place, if there is one.
    fn next_task(&mut self, place: u32) {
        let Some(rebuild) = &mut self.rebuild else { return };
        if rebuild.begun == rebuild.tasks {
            return;
        }
        let number = rebuild.begun;
        rebuild.begun += 1;
        rebuild.running[index(u64::from(place))] = (number, rebuild.reads);
        let bytes = rebuild.bytes;
        let drives: Vec<u32> = (0..rebuild.reads).map(|part| rebuild.drive(number, part)).collect();
        let purpose = Purpose::Rebuild { task: place };
        for drive in drives {
            self.ask(drive, Job { purpose, direction: Direction::Read, bytes });
        }
    }

    pub(super) fn rebuild_done(&mut self, place: u32, direction: Direction) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let (number, left) = &mut rebuild.running[index(u64::from(place))];
        if direction == Direction::Read {
            *left -= 1;
            if *left == 0 {
                let number = *number;
                let drive = rebuild.drive(number, rebuild.reads);
                let bytes = rebuild.bytes;
                let purpose = Purpose::Rebuild { task: place };
                self.ask(drive, Job { purpose, direction: Direction::Write, bytes });
            }
            return;
        }
        rebuild.done += 1;
        if rebuild.done == rebuild.tasks {
            rebuild.ends = Some(self.now);
        }
        self.next_task(place);
    }
}
