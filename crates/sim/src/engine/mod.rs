//! The engine: requests of loads, as plan sets, through processors, links and disks.
//!
//! Each instruction is a chain of visits. A read visits the client's processor, the link and the drive's
//! processor with the request; then the disk; and goes back the same way with the bytes. A write goes there
//! with the bytes, to the disk, and back with the acknowledgement. A unit write goes on from the data drive
//! to the parity drives with the change. Arithmetic steps are done by the client's processor. A node of the
//! program waits for the nodes in its plan set's `after`, and for nothing else.
//!
//! | file | about |
//! |---|---|
//! | `requests` | the life of a request, from its load's turn to the last node done |
//! | `messages` | messages from one host to another, in bursts |
//! | `drives` | the work at a drive, and its disk |
//! | `workload` | the requests that a load makes, and their times |
//! | `collector` | samples, and the end of the run |

mod collector;
mod drives;
mod messages;
mod requests;
mod workload;

use std::rc::Rc;

use crate::model::Medium;
use crate::number::index;
use crate::outcome::{PartKind, PartOutcome, RunOutcome};
use crate::parts::disk::{Command, Disk};
use crate::parts::network::{End, Network};
use crate::parts::server::Server;
use crate::program::Program;
use crate::programs::{Kind, Placed, Programs};
use crate::queue::EventQueue;
use crate::random::{Source, Stream};
use crate::spec::Spec;
use crate::trace::Entry;
use collector::{Collector, Ended};
use messages::Message;
use requests::Active;
use workload::{Drawn, Generator};

/// Runs a checked spec, with the entries of its load's trace if it has one.
pub fn run(spec: &Spec, trace: &[Entry]) -> RunOutcome {
    let mut engine = Engine::new(spec, trace);
    engine.begin();
    engine.go();
    engine.finish()
}

/// Times at which a node of a program begins and is done, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeTimes {
    pub(crate) begins: u64,
    pub(crate) done: u64,
}

/// Runs one program as a request of a spec's first client and load, with nothing beside it. Returns the
/// times of each of its nodes.
pub(crate) fn run_alone(spec: &Spec, program: &Rc<Program>) -> Vec<NodeTimes> {
    let mut engine = Engine::new(spec, &[]);
    engine.times = Some(vec![NodeTimes::default(); program.nodes.len()]);
    let nothing = Drawn { file: 0, kind: Kind::Read, write: false, range: 0..0 };
    engine.start_placed(0, 0, &nothing, Placed { program: Rc::clone(program), shift: 0 });
    // The slot of the one request becomes free when it is done.
    while engine.requests_free.is_empty()
        && let Some((at, event)) = engine.events.pop()
    {
        engine.now = at;
        engine.handle(event);
    }
    engine.times.take().unwrap_or_default()
}

/// Greatest simulated time, in nanoseconds: a century.
const TIME_MAX: u64 = 3_155_760_000_000_000_000;

/// An event at a simulated time.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The next request of an open load, or of a trace, arrives.
    Arrival { load: u32 },
    /// A client of a closed load has thought, and makes its next request.
    Issue { load: u32, client: u32 },
    /// A host's processor is done with a job.
    Processor { host: u32, job: Job },
    /// A port is done with a burst.
    Port { port: u32, burst: Burst },
    /// A burst has crossed the link, to a switch's port (`End::Receive`) or to its host.
    Across { burst: Burst, rail: u32, end: End },
    /// A lost burst is sent again.
    Resend { burst: Burst, rail: u32 },
    /// A disk has positioned for the commands of a slot.
    Positioned { disk: u32, slot: u32 },
    /// A disk is done with the commands of a slot.
    DiskDone { disk: u32, slot: u32 },
    /// A command is answered by the cache.
    Cached { work: Work },
    /// A refused command is handed in again; `at` is its place in `refused`.
    Retry { at: u32 },
}

/// Work of a processor.
#[derive(Debug, Clone, Copy)]
enum Job {
    Send(Burst),
    Receive(Burst),
    Compute { request: u32, node: u32 },
}

/// A part of a message.
#[derive(Debug, Clone, Copy)]
struct Burst {
    message: u32,
    bytes: u32,
    first: bool,
}

/// Purpose of a message or of a disk's command.
#[derive(Debug, Clone, Copy)]
struct Work {
    kind: WorkKind,
    request: u32,
    node: u32,
    /// Index of the parity column; only for a delta.
    place: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkKind {
    /// A message asks all drives for all reads that can begin.
    AskAll,
    /// A message asks for a read; at the disk: the read.
    Ask,
    /// A read's bytes go to the client.
    Reply,
    /// A write's bytes go to the drive; at the disk: the write.
    Put,
    /// A write is durable.
    Acknowledge,
    /// The disk reads the bytes that a unit write replaces.
    Old,
    /// The change goes to a parity drive; at the disk: the append.
    Delta,
    /// A parity drive has stored the change.
    DeltaDone,
}

struct Engine<'a> {
    spec: &'a Spec,
    now: u64,
    events: EventQueue<Event>,
    handled: u64,
    /// Processors of the clients, then of the drives' hosts.
    processors: Vec<Server<Job>>,
    network: Network<Burst>,
    disks: Vec<Disk<Work>>,
    programs: Programs,
    requests: Vec<Active>,
    requests_free: Vec<u32>,
    requests_begun: u64,
    /// Instructions and steps of all requests in the system.
    instructions: u64,
    messages: Vec<Message>,
    messages_free: Vec<u32>,
    refused: Vec<(u32, Command<Work>)>,
    refused_free: Vec<u32>,
    loads: Vec<Generator>,
    trace: &'a [Entry],
    collector: Collector,
    /// Commands just done; kept to reuse its memory.
    done: Vec<Command<Work>>,
    /// Times of the nodes; only for a program that runs alone.
    times: Option<Vec<NodeTimes>>,
}

impl<'a> Engine<'a> {
    fn new(spec: &'a Spec, trace: &'a [Entry]) -> Engine<'a> {
        let cluster = &spec.cluster;
        let drive_hosts = cluster.drives.div_ceil(cluster.drives_per_host);
        let processors = (0..cluster.clients)
            .map(|_| Server::new(spec.parts.client.cores))
            .chain((0..drive_hosts).map(|_| Server::new(spec.parts.drive.cores)))
            .collect();
        let disk = |number| {
            let stream = Stream::new(spec.seed, Source::Disk(number));
            Disk::new(spec.parts.disk.clone(), spec.parts.store.clone(), stream)
        };
        let loads = (0..).zip(&spec.load).map(|(number, load)| Generator::new(spec, load, number)).collect();
        Engine {
            spec,
            now: 0,
            events: EventQueue::new(),
            handled: 0,
            processors,
            network: Network::new(spec.parts.link.clone(), cluster.rails, cluster.clients + drive_hosts)
                .with_percents(cluster.rail_percents.clone()),
            disks: (0..cluster.drives).map(disk).collect(),
            programs: Programs::new(spec),
            requests: Vec::new(),
            requests_free: Vec::new(),
            requests_begun: 0,
            instructions: 0,
            messages: Vec::new(),
            messages_free: Vec::new(),
            refused: Vec::new(),
            refused_free: Vec::new(),
            loads,
            trace,
            collector: Collector::new(spec, trace.len()),
            done: Vec::new(),
            times: None,
        }
    }

    fn go(&mut self) {
        while self.collector.ended.is_none() {
            let Some((at, event)) = self.events.pop() else {
                let is_trace = !self.trace.is_empty();
                self.collector.ended = Some(if is_trace { Ended::Nothing } else { Ended::Bound });
                break;
            };
            if at > TIME_MAX {
                self.collector.ended = Some(Ended::Bound);
                break;
            }
            self.now = at;
            self.handled += 1;
            self.handle(event);
            if self.collector.wants_reset {
                self.reset();
            }
            if self.handled >= self.spec.run.events_max && self.collector.ended.is_none() {
                self.collector.ended = Some(Ended::Bound);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { load } => self.arrive(load),
            Event::Issue { load, client } => self.issue(load, client),
            Event::Processor { host, job } => self.processed(host, job),
            Event::Port { port, burst } => self.through_port(port, burst),
            Event::Across { burst, rail, end } => self.across(burst, rail, end),
            Event::Resend { burst, rail } => self.at_receiver(burst, rail),
            Event::Positioned { disk, slot } => self.positioned(disk, slot),
            Event::DiskDone { disk, slot } => self.disk_done(disk, slot),
            Event::Cached { work } => self.on_disk_done(work),
            Event::Retry { at } => self.retry(at),
        }
    }

    /// The warm-up is over: the use of parts is counted from now on.
    fn reset(&mut self) {
        self.collector.wants_reset = false;
        let now = self.now;
        self.processors.iter_mut().for_each(|processor| processor.usage.reset(now));
        self.network.ports.iter_mut().for_each(|port| port.usage.reset(now));
        self.disks.iter_mut().for_each(|disk| disk.reset(now));
    }

    /// Hands a host's processor a job of `service` nanoseconds.
    fn process(&mut self, host: u32, job: Job, service: u64, request: u32) {
        let class = self.class_of(request, crate::spec::Reserved::All);
        let processor = &mut self.processors[index(u64::from(host))];
        if service == 0 && processor.is_free() {
            return self.done_by_processor(host, job);
        }
        if let Some((job, service)) = processor.begin(self.now, job, service, class) {
            self.events.push(self.now + service, Event::Processor { host, job });
        }
    }

    fn processed(&mut self, host: u32, job: Job) {
        if let Some((next, service)) = self.processors[index(u64::from(host))].end(self.now) {
            self.events.push(self.now + service, Event::Processor { host, job: next });
        }
        self.done_by_processor(host, job);
    }

    fn done_by_processor(&mut self, host: u32, job: Job) {
        match job {
            Job::Send(burst) => self.transmit(host, burst),
            Job::Receive(burst) => self.received(burst),
            Job::Compute { request, node } => self.node_done(request, node),
        }
    }

    fn finish(mut self) -> RunOutcome {
        let now = self.now;
        let clients = self.spec.cluster.clients;
        let mut parts = Vec::new();
        for (number, disk) in (0_u32..).zip(&mut self.disks) {
            let utilisation = disk.utilisation(now);
            parts.push(PartOutcome::new(
                PartKind::Disk,
                number.to_string(),
                utilisation,
                &mut disk.usage,
                now,
            ));
        }
        for (number, processor) in (0_u32..).zip(&mut self.processors) {
            let (kind, number) = match number.checked_sub(clients) {
                None => (PartKind::ClientProcessor, number),
                Some(host) => (PartKind::DriveProcessor, host),
            };
            let utilisation = processor.usage.utilisation(now, processor.lanes());
            parts.push(PartOutcome::new(kind, number.to_string(), utilisation, &mut processor.usage, now));
        }
        for port in 0..crate::number::narrow(self.network.ports.len()) {
            let (host, rail, end) = self.network.of_port(port);
            let (kind, name) = match (self.network.model.medium, end, host < clients) {
                (Medium::Shared, _, _) => (PartKind::Medium, format!("rail {rail}")),
                (_, End::Send, true) => (PartKind::ClientSend, format!("{host} rail {rail}")),
                (_, End::Receive, true) => (PartKind::ClientReceive, format!("{host} rail {rail}")),
                (_, End::Send, false) => (PartKind::DriveSend, format!("{} rail {rail}", host - clients)),
                (_, End::Receive, false) => {
                    (PartKind::DriveReceive, format!("{} rail {rail}", host - clients))
                }
            };
            let usage = &mut self.network.ports[index(u64::from(port))].usage;
            let utilisation = usage.utilisation(now, 1);
            parts.push(PartOutcome::new(kind, name, utilisation, usage, now));
        }
        self.collector.outcome(self.spec, parts, now, self.handled)
    }
}
