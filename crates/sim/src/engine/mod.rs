//! The engine: requests of loads, as plan sets, through processors, links and disks.
//!
//! Each instruction is a chain of visits. A read: the client's processor, the link and the drive's processor
//! with the request; the disk; and the way back with the bytes. A write: the way there with the bytes, the
//! disk, and the way back with the acknowledgement. A unit write goes on from the data drive to the parity
//! drives with what changed. Arithmetic steps are the client's processor's. What a node of the program waits
//! for is its plan set's `after`, and nothing else.
//!
//! | file | about |
//! |---|---|
//! | `requests` | from a load's turn to the last node done |
//! | `messages` | from one host to another, in bursts |
//! | `drives` | what arrives at a drive, and its disk |
//! | `workload` | which requests, and when |
//! | `collector` | samples, and when the run ends |

mod collector;
mod drives;
mod messages;
mod requests;
mod workload;

use std::rc::Rc;

use crate::model::Medium;
use crate::number::index;
use crate::outcome::{Outcome, PartKind, PartOutcome};
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

/// Runs a spec that was checked; with the entries of its load's trace, if it has one.
pub fn run(spec: &Spec, trace: &[Entry]) -> Outcome {
    let mut engine = Engine::new(spec, trace);
    engine.begin();
    engine.go();
    engine.finish()
}

/// When a node of a program begins and is done, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeTimes {
    pub(crate) begins: u64,
    pub(crate) done: u64,
}

/// Runs one program as a request of a spec's first client and load, with nothing beside it: when each of its
/// nodes begins and is done.
pub(crate) fn run_alone(spec: &Spec, program: &Rc<Program>) -> Vec<NodeTimes> {
    let mut engine = Engine::new(spec, &[]);
    engine.times = Some(vec![NodeTimes::default(); program.nodes.len()]);
    let nothing = Drawn { file: 0, kind: Kind::Read, write: false, range: 0..0 };
    engine.start_placed(0, 0, &nothing, Placed { program: Rc::clone(program), shift: 0 });
    // The one request's place is free when it is done.
    while engine.requests_free.is_empty()
        && let Some((at, event)) = engine.events.pop()
    {
        engine.now = at;
        engine.handle(event);
    }
    engine.times.take().unwrap_or_default()
}

/// The most nanoseconds that are simulated: a century.
const TIME_MAX: u64 = 3_155_760_000_000_000_000;

/// What happens at a time.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// An open load's next request.
    Arrival { load: u32 },
    /// A client of a closed load has thought.
    Issue { load: u32, client: u32 },
    /// A host's processor is done.
    Processor { host: u32, job: Job },
    /// A port is done with a burst.
    Port { port: u32, burst: Burst },
    /// A burst has crossed the link, to a switch's port (`End::Receive`) or to its host.
    Across { burst: Burst, rail: u32, end: End },
    /// A lost burst is sent again.
    Resend { burst: Burst, rail: u32 },
    /// Commands have positioned.
    Positioned { disk: u32, slot: u32 },
    /// Commands are done.
    DiskDone { disk: u32, slot: u32 },
    /// A command that the cache answered.
    Cached { work: Work },
    /// A refused command is handed in again: which one is in `refused`.
    Retry { at: u32 },
}

/// What a processor does.
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

/// What a message or a disk's command is for.
#[derive(Debug, Clone, Copy)]
struct Work {
    kind: WorkKind,
    request: u32,
    node: u32,
    /// Of a delta: which of the parity columns.
    place: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkKind {
    /// All reads that can begin are asked for, at all drives.
    AskAll,
    /// A read is asked for; at the disk: the read.
    Ask,
    /// A read's bytes go to the client.
    Reply,
    /// A write's bytes go to the drive; at the disk: the write.
    Put,
    /// A write is durable.
    Acknowledge,
    /// What a unit write replaces is read.
    Old,
    /// What changed goes to a parity drive; at the disk: the append.
    Delta,
    /// A parity drive has what changed.
    DeltaDone,
}

struct Engine<'a> {
    spec: &'a Spec,
    now: u64,
    events: EventQueue<Event>,
    handled: u64,
    /// Of clients, then of drives' hosts.
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
    /// Commands just done; kept for its memory.
    done: Vec<Command<Work>>,
    /// Of a program that runs alone, its nodes' times.
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
            network: Network::new(spec.parts.link.clone(), cluster.rails, cluster.clients + drive_hosts),
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

    /// The warm-up is over: what parts were used for counts from now on.
    fn reset(&mut self) {
        self.collector.wants_reset = false;
        let now = self.now;
        self.processors.iter_mut().for_each(|processor| processor.usage.reset(now));
        self.network.ports.iter_mut().for_each(|port| port.usage.reset(now));
        self.disks.iter_mut().for_each(|disk| disk.reset(now));
    }

    /// A host's processor is handed a job of so many nanoseconds.
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

    fn finish(mut self) -> Outcome {
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
