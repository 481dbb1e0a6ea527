//! A scheduler, and the device below it: a drive's disk, or one direction of its rail.

use braid_schedule::{Config, Direction, Flow, Next, Request, Scheduler, Ticket};

use crate::model::{DiskModel, LinkModel, Placement, StoreModel};
use crate::number::{index, narrow};
use crate::parts::disk::{Command, Disk, Start, Taken};
use crate::parts::server::{Class, Server};
use crate::random::Stream;

/// Device time in flight below a disk's scheduler, as on a drive.
pub(super) const DISK_IN_FLIGHT_NS: u64 = 20_000_000;
/// Reads in flight below a disk's scheduler, as on a drive.
pub(super) const READS_IN_FLIGHT: usize = 32;
/// Time in flight below a rail's scheduler.
const RAIL_IN_FLIGHT_NS: u64 = 2_000_000;

/// An operation on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) purpose: Purpose,
    pub(super) direction: Direction,
    pub(super) bytes: u32,
}

/// The one for whom an operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A unit of a stripe in flight.
    Unit { flight: u32, column: u8 },
    /// A client of the load without promises.
    BestEffort { client: u32 },
    /// A task of the rebuild.
    Rebuild { task: u32 },
}

/// Something that a station waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The commands of a slot position.
    Position { slot: u32, after: u64 },
    /// The device is done with a slot.
    End { slot: u32, after: u64 },
    /// The scheduler's limit opens at this time.
    Open { at: u64 },
}

#[derive(Debug)]
enum Device {
    Disk(Box<Disk<u32>>),
    Rail(Box<Rail>),
}

#[derive(Debug)]
struct Rail {
    port: Server<u32>,
    link: LinkModel,
}

#[derive(Debug)]
pub(super) struct Station {
    pub(super) scheduler: Scheduler<Job>,
    device: Device,
    given: Vec<Option<(Job, Ticket)>>,
    free: Vec<u32>,
    /// Time for which a wait is set already.
    opens: u64,
    done: Vec<Command<u32>>,
}

impl Station {
    pub(super) fn disk(model: &DiskModel, numbers: Stream) -> Station {
        let store = StoreModel { placement: Placement::Scattered, ..StoreModel::default() };
        let config = Config { reads_in_flight: READS_IN_FLIGHT, ..Config::new(DISK_IN_FLIGHT_NS) };
        // What waits, waits in the scheduler.
        let model = DiskModel { queue: None, ..model.clone() };
        Station::new(config, Device::Disk(Box::new(Disk::new(model, store, numbers))))
    }

    pub(super) fn rail(link: &LinkModel) -> Station {
        let rail = Rail { port: Server::new(1), link: link.clone() };
        Station::new(Config::new(RAIL_IN_FLIGHT_NS), Device::Rail(Box::new(rail)))
    }

    fn new(config: Config, device: Device) -> Station {
        let scheduler = Scheduler::new(config);
        Station { scheduler, device, given: Vec::new(), free: Vec::new(), opens: 0, done: Vec::new() }
    }

    /// Takes an operation. Returns false if as many of its flow wait as a drive allows.
    pub(super) fn submit(&mut self, now: u64, flow: Flow, job: Job, cost_ns: u64) -> bool {
        let Job { direction, bytes, .. } = job;
        let request = Request { flow, direction, bytes: u64::from(bytes), cost_ns, item: job };
        self.scheduler.submit(now, request).is_ok()
    }

    /// Gives to the device what may go, and puts what is to be waited for into `waits`.
    pub(super) fn go(&mut self, now: u64, waits: &mut Vec<Wait>) {
        loop {
            match self.scheduler.next(now) {
                Next::Go { item, ticket } => waits.extend(self.give(now, item, ticket)),
                Next::WaitUntil(at) => {
                    if self.opens <= now || at < self.opens {
                        self.opens = at;
                        waits.push(Wait::Open { at });
                    }
                    return;
                }
                Next::Full | Next::Empty => return,
            }
        }
    }

    fn give(&mut self, now: u64, job: Job, ticket: Ticket) -> Option<Wait> {
        let work = self.free.pop().unwrap_or_else(|| {
            self.given.push(None);
            narrow(self.given.len() - 1)
        });
        self.given[index(u64::from(work))] = Some((job, ticket));
        let bytes = job.bytes;
        match &mut self.device {
            Device::Disk(disk) => {
                let write = job.direction == Direction::Write;
                let request = u64::from(work);
                let command =
                    Command { work, request, object: 0, offset: 0, bytes, write, class: Class::Rest };
                match disk.begin(now, command) {
                    Taken::Starts(start) => Some(started(disk, start)),
                    Taken::Waits | Taken::Cached | Taken::Refused => None,
                }
            }
            Device::Rail(rail) => {
                let time = rail.link.time(u64::from(bytes), false);
                let (slot, after) = rail.port.begin(now, work, time, Class::Rest)?;
                Some(Wait::End { slot, after })
            }
        }
    }

    /// The commands of a slot have positioned.
    pub(super) fn positioned(&mut self, now: u64, slot: u32) -> Option<Wait> {
        match &mut self.device {
            Device::Disk(disk) => {
                disk.positioned(now, slot).map(|Start { slot, after }| Wait::End { slot, after })
            }
            Device::Rail(_) => None,
        }
    }

    /// The device is done with a slot. Puts the operations into `jobs`.
    pub(super) fn end(&mut self, now: u64, slot: u32, waits: &mut Vec<Wait>, jobs: &mut Vec<Job>) {
        let mut works = Vec::new();
        match &mut self.device {
            Device::Disk(disk) => {
                let [transfer, next] = disk.end(now, slot, &mut self.done);
                waits.extend(transfer.map(|Start { slot, after }| Wait::End { slot, after }));
                waits.extend(next.map(|start| started(disk, start)));
                works.extend(self.done.iter().map(|command| command.work));
            }
            Device::Rail(rail) => {
                works.push(slot);
                waits.extend(rail.port.end(now).map(|(slot, after)| Wait::End { slot, after }));
            }
        }
        for work in works {
            self.free.push(work);
            if let Some((job, ticket)) = self.given[index(u64::from(work))].take() {
                self.scheduler.done(ticket, now, None);
                jobs.push(job);
            }
        }
        self.go(now, waits);
    }

    /// The drive is lost: gives back all that waits or is in flight.
    pub(super) fn lose(&mut self, now: u64) -> Vec<Job> {
        let mut jobs = self.scheduler.drain(now);
        jobs.extend(self.given.iter_mut().filter_map(Option::take).map(|(job, _)| job));
        jobs
    }

    /// Share of the time in which the device was busy.
    pub(super) fn busy(&mut self, now: u64) -> f64 {
        match &mut self.device {
            Device::Disk(disk) => disk.utilisation(now),
            Device::Rail(rail) => rail.port.usage.utilisation(now, 1),
        }
    }
}

fn started(disk: &Disk<u32>, start: Start) -> Wait {
    let Start { slot, after } = start;
    if disk.has_lanes() { Wait::Position { slot, after } } else { Wait::End { slot, after } }
}
