//! A request: begun by its load, then done node by node.

use std::rc::Rc;

use super::collector::Sample;
use super::workload::Drawn;
use super::{Engine, Event, Job, NodeTimes, Work, WorkKind};
use crate::model::Requests;
use crate::number::{index, narrow, whole};
use crate::program::{Act, Program};
use crate::programs::Placed;
use crate::spec::Arrivals;

/// A request that is being served.
#[derive(Debug, Clone)]
pub(super) struct Active {
    pub(super) load: u32,
    client: u32,
    pub(super) file: u32,
    write: bool,
    bytes: u64,
    began: u64,
    /// Number of the request, never used again.
    pub(super) number: u64,
    pub(super) program: Rc<Program>,
    /// Number to add to the program's offsets.
    pub(super) shift: u64,
    /// Nodes that are not done.
    left: u32,
    /// Number of nodes for which each node still waits. For a unit write that has begun: parity drives that
    /// have not stored the change.
    pub(super) waits: Vec<u32>,
}

impl Engine<'_> {
    /// Starts all loads.
    pub(super) fn begin(&mut self) {
        for load in 0..narrow(self.loads.len()) {
            match self.spec.load[index(u64::from(load))].arrivals() {
                Arrivals::Open(_) => {
                    let after = self.loads[index(u64::from(load))].interval();
                    self.events.push(after, Event::Arrival { load });
                }
                Arrivals::Closed(outstanding) => {
                    for client in 0..self.spec.cluster.clients {
                        for _ in 0..outstanding {
                            let after = self.loads[index(u64::from(load))].think();
                            self.events.push(after, Event::Issue { load, client });
                        }
                    }
                }
                Arrivals::Trace => {
                    if let Some(first) = self.trace.first() {
                        self.events.push(first.at, Event::Arrival { load });
                    }
                }
            }
        }
    }

    /// The next request of an open load or of a trace arrives.
    pub(super) fn arrive(&mut self, load: u32) {
        if self.spec.load[index(u64::from(load))].trace.is_some() {
            let generator = &mut self.loads[index(u64::from(load))];
            let (entry, next) = generator.next_entry(self.trace);
            if let Some(next) = next {
                self.events.push(next, Event::Arrival { load });
            }
            let drawn = generator.of_entry(&entry);
            return self.start(load, entry.client, drawn);
        }
        if self.collector.saturated.is_some() {
            return;
        }
        let generator = &mut self.loads[index(u64::from(load))];
        let after = generator.interval();
        let client = generator.any_client();
        let drawn = generator.next(client);
        self.events.push(self.now + after, Event::Arrival { load });
        self.start(load, client, drawn);
    }

    /// A client of a closed load makes its next request.
    pub(super) fn issue(&mut self, load: u32, client: u32) {
        let drawn = self.loads[index(u64::from(load))].next(client);
        self.start(load, client, drawn);
    }

    fn start(&mut self, load: u32, client: u32, drawn: Drawn) {
        let placed = self
            .programs
            .get(drawn.file, drawn.kind, drawn.range.clone())
            .expect("the spec's check leaves no more drives out than the layout can do without");
        self.start_placed(load, client, &drawn, placed);
    }

    /// Starts a request whose program is known.
    pub(super) fn start_placed(&mut self, load: u32, client: u32, drawn: &Drawn, placed: Placed) {
        let mut waits = Vec::new();
        let slot = self.requests_free.pop();
        if let Some(slot) = slot {
            waits = std::mem::take(&mut self.requests[index(u64::from(slot))].waits);
            waits.clear();
        }
        waits.extend(placed.program.nodes.iter().map(|node| node.waits));
        self.requests_begun += 1;
        let nodes = u64::from(narrow(placed.program.nodes.len()));
        let active = Active {
            load,
            client,
            file: drawn.file,
            write: drawn.write,
            bytes: drawn.range.end - drawn.range.start,
            began: self.now,
            number: self.requests_begun,
            left: narrow(placed.program.nodes.len()),
            program: placed.program,
            shift: placed.shift,
            waits,
        };
        let slot = match slot {
            Some(slot) => {
                self.requests[index(u64::from(slot))] = active;
                slot
            }
            None => {
                self.requests.push(active);
                narrow(self.requests.len() - 1)
            }
        };
        self.instructions += nodes;
        self.collector.began(load, self.instructions);
        self.begin_roots(slot);
    }

    /// Begins the nodes that wait for nothing. Reads among them may be asked for by one message.
    fn begin_roots(&mut self, request: u32) {
        let program = Rc::clone(&self.requests[index(u64::from(request))].program);
        let multicast = self.spec.parts.protocol.requests == Requests::Multicast;
        let mut ask = false;
        for &node in &program.roots {
            if multicast && matches!(program.node(node).act, Act::Read { .. }) {
                ask = true;
                self.note_times(node, |times, now| times.begins = now);
            } else {
                self.begin_node(request, node);
            }
        }
        if ask {
            let client = self.requests[index(u64::from(request))].client;
            let work = Work { kind: WorkKind::AskAll, request, node: 0, place: 0 };
            self.send(client, None, self.spec.parts.protocol.request.0, false, work);
        }
    }

    fn begin_node(&mut self, request: u32, node: u32) {
        self.note_times(node, |times, now| times.begins = now);
        let active = &self.requests[index(u64::from(request))];
        let client = active.client;
        let act = &active.program.node(node).act;
        let own = self.spec.parts.protocol.request.0;
        let (kind, column, bytes, data) = match *act {
            Act::Compute { bytes } => {
                let service = whole(self.spec.parts.client.parity_time(bytes));
                return self.process(client, Job::Compute { request, node }, service, request);
            }
            Act::Read { column, .. } => (WorkKind::Ask, column, own, false),
            Act::Write { column, sent, .. } => (WorkKind::Put, column, own + u64::from(sent), true),
            Act::UnitWrite { column, bytes, .. } => (WorkKind::Put, column, own + u64::from(bytes), true),
        };
        let host = self.host_of(self.drive_of(request, column));
        self.send(client, Some(host), bytes, data, Work { kind, request, node, place: 0 });
    }

    /// A node is done. Begins the nodes that waited for it alone.
    pub(super) fn node_done(&mut self, request: u32, node: u32) {
        self.note_times(node, |times, now| times.done = now);
        let program = Rc::clone(&self.requests[index(u64::from(request))].program);
        for &follower in program.followers(node) {
            let waits = &mut self.requests[index(u64::from(request))].waits[index(u64::from(follower))];
            *waits -= 1;
            if *waits == 0 {
                self.begin_node(request, follower);
            }
        }
        let active = &mut self.requests[index(u64::from(request))];
        active.left -= 1;
        if active.left == 0 {
            self.request_done(request);
        }
    }

    /// Notes a time of a node, if times are kept.
    fn note_times(&mut self, node: u32, set: impl Fn(&mut NodeTimes, u64)) {
        if let Some(times) = &mut self.times {
            set(&mut times[index(u64::from(node))], self.now);
        }
    }

    fn request_done(&mut self, request: u32) {
        let Active { load, client, write, bytes, began, .. } = self.requests[index(u64::from(request))];
        self.requests_free.push(request);
        let nodes = self.requests[index(u64::from(request))].program.nodes.len();
        self.instructions -= u64::from(narrow(nodes));
        let sample = Sample { load, write, bytes, took: self.now - began };
        self.collector.done(self.now, sample);
        if let Arrivals::Closed(_) = self.spec.load[index(u64::from(load))].arrivals() {
            let after = self.loads[index(u64::from(load))].think();
            self.events.push(self.now + after, Event::Issue { load, client });
        }
    }

    /// The drive of a column of a request's file.
    pub(super) fn drive_of(&self, request: u32, column: u8) -> u32 {
        let file = self.requests[index(u64::from(request))].file;
        self.programs.files[index(u64::from(file))].drives[usize::from(column)]
    }

    /// The host of a drive; clients' hosts come first.
    pub(super) fn host_of(&self, drive: u32) -> u32 {
        self.spec.cluster.clients + drive / self.spec.cluster.drives_per_host
    }

    /// The client that made a request.
    pub(super) fn client_of(&self, request: u32) -> u32 {
        self.requests[index(u64::from(request))].client
    }

    /// The hosts of the drives that a request's first reads are for, each once.
    pub(super) fn hosts_of(&self, request: u32) -> Vec<u32> {
        let program = &self.requests[index(u64::from(request))].program;
        let column = |&node: &u32| match program.node(node).act {
            Act::Read { column, .. } => Some(column),
            _ => None,
        };
        let mut hosts: Vec<u32> = program
            .roots
            .iter()
            .filter_map(column)
            .map(|column| self.host_of(self.drive_of(request, column)))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}
