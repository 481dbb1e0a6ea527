//! Messages from one host to another, in bursts: the sender's processor, its port, the link, the switch's
//! port, the receiver's processor. A message has arrived when its last burst has.

use super::{Burst, Engine, Event, Job, Work, WorkKind};
use crate::model::Medium;
use crate::number::{index, narrow};
use crate::parts::network::End;
use crate::parts::server::Class;
use crate::spec::Reserved;

/// A message on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    pub(super) work: Work,
    /// Receiving host. `None`: the hosts of all drives that the request begins with.
    to: Option<u32>,
    /// Bytes that the receiver has not yet processed.
    left: u32,
    /// True if the message carries bytes of files, which have checksums.
    data: bool,
}

impl Engine<'_> {
    /// Sends a message of this many bytes.
    pub(super) fn send(&mut self, from: u32, to: Option<u32>, bytes: u64, data: bool, work: Work) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let message = self.add_message(Message { work, to, left: bytes, data });
        let whole = u32::try_from(self.network.model.burst.0).unwrap_or(u32::MAX);
        let mut left = bytes;
        let mut first = true;
        loop {
            let part = left.min(whole);
            let burst = Burst { message, bytes: part, first };
            let service = self.processor_ns(from, burst, data, true);
            self.process(from, Job::Send(burst), service, work.request);
            left -= part;
            first = false;
            if left == 0 {
                break;
            }
        }
    }

    fn add_message(&mut self, message: Message) -> u32 {
        match self.messages_free.pop() {
            Some(at) => {
                self.messages[index(u64::from(at))] = message;
                at
            }
            None => {
                self.messages.push(message);
                narrow(self.messages.len() - 1)
            }
        }
    }

    fn message(&mut self, burst: Burst) -> &mut Message {
        &mut self.messages[index(u64::from(burst.message))]
    }

    /// The time that a host's processor needs for a burst, in nanoseconds. A client computes checksums of
    /// data that it sends or receives, a drive only of data that it receives.
    fn processor_ns(&self, host: u32, burst: Burst, data: bool, sends: bool) -> u64 {
        let is_client = host < self.spec.cluster.clients;
        let model = if is_client { &self.spec.parts.client } else { &self.spec.parts.drive };
        let bytes = u64::from(burst.bytes);
        let summed = if data && (is_client || !sends) { bytes } else { 0 };
        model.time_ns(bytes, burst.first, summed)
    }

    /// The sender's processor is done with a burst.
    pub(super) fn transmit(&mut self, host: u32, burst: Burst) {
        let message = *self.message(burst);
        if message.to == Some(host) {
            // Sender and receiver are on one host: nothing goes over the link.
            return self.arrived(burst);
        }
        let rail = self.network.take_rail(host, burst.bytes);
        let port = self.network.port(host, rail, End::Send);
        self.at_port(port, burst);
    }

    fn at_port(&mut self, port: u32, burst: Burst) {
        let of_client = self.network.of_port(port).0 < self.spec.cluster.clients;
        let service = self.network.service(self.now, port, burst.bytes, of_client);
        let request = self.message(burst).work.request;
        let class = self.class_of(request, Reserved::All);
        let server = &mut self.network.ports[index(u64::from(port))];
        if service == 0 && server.is_free() {
            return self.out_of_port(port, burst);
        }
        if let Some((burst, service)) = server.begin(self.now, burst, service, class) {
            self.events.push(self.now + service, Event::Port { port, burst });
        }
    }

    pub(super) fn through_port(&mut self, port: u32, burst: Burst) {
        if let Some((next, service)) = self.network.ports[index(u64::from(port))].end(self.now) {
            self.events.push(self.now + service, Event::Port { port, burst: next });
        }
        self.out_of_port(port, burst);
    }

    fn out_of_port(&mut self, port: u32, burst: Burst) {
        let (_, rail, end) = self.network.of_port(port);
        match (self.network.model.medium, end) {
            (Medium::Switch, End::Receive) => {
                self.network.note_bytes(port, burst.bytes, End::Send);
                self.arrived(burst);
            }
            (Medium::Switch, End::Send) => self.cross(burst, rail, End::Receive),
            (Medium::Shared, _) => self.cross(burst, rail, End::Send),
        }
    }

    fn cross(&mut self, burst: Burst, rail: u32, end: End) {
        let latency = self.network.model.latency.0;
        if latency == 0 {
            return self.across(burst, rail, end);
        }
        self.events.push(self.now + latency, Event::Across { burst, rail, end });
    }

    /// A burst has crossed the link. A multicast becomes one burst for each receiving host.
    pub(super) fn across(&mut self, burst: Burst, rail: u32, end: End) {
        let message = *self.message(burst);
        if message.to.is_some() {
            return match end {
                End::Receive => self.at_receiver(burst, rail),
                End::Send => self.arrived(burst),
            };
        }
        for host in self.hosts_of(message.work.request) {
            let copy = self.add_message(Message { to: Some(host), ..message });
            let burst = Burst { message: copy, ..burst };
            match end {
                End::Receive => self.at_receiver(burst, rail),
                End::Send => self.arrived(burst),
            }
        }
        self.messages_free.push(burst.message);
    }

    /// Puts a burst into the switch's port to the receiver if it has room; else the burst is lost and sent
    /// again.
    pub(super) fn at_receiver(&mut self, burst: Burst, rail: u32) {
        let host = self.message(burst).to.expect("it was copied for each host");
        let port = self.network.port(host, rail, End::Receive);
        if !self.network.has_room(port, burst.bytes) {
            let again = self.now + self.network.model.resend.0;
            return self.events.push(again, Event::Resend { burst, rail });
        }
        self.network.note_bytes(port, burst.bytes, End::Receive);
        self.at_port(port, burst);
    }

    /// A burst has reached its host.
    fn arrived(&mut self, burst: Burst) {
        let Message { to, data, work, .. } = *self.message(burst);
        let host = to.expect("it was copied for each host");
        let service = self.processor_ns(host, burst, data, false);
        self.process(host, Job::Receive(burst), service, work.request);
    }

    /// The receiver's processor is done with a burst.
    pub(super) fn received(&mut self, burst: Burst) {
        let message = self.message(burst);
        message.left -= burst.bytes;
        if message.left > 0 {
            return;
        }
        let Message { work, to, .. } = *message;
        self.messages_free.push(burst.message);
        let host = to.expect("it was copied for each host");
        match work.kind {
            WorkKind::Reply | WorkKind::Acknowledge => self.node_done(work.request, work.node),
            WorkKind::AskAll => self.ask_all(host, work.request),
            WorkKind::Put => self.put(work),
            WorkKind::Ask | WorkKind::Delta => self.ask_disk(work),
            WorkKind::DeltaDone => self.delta_done(work),
            WorkKind::Old => unreachable!("what is replaced is read where it is"),
        }
    }

    /// The class that a request has at these parts: reserved if its load has them reserved.
    pub(super) fn class_of(&self, request: u32, parts: Reserved) -> Class {
        let load = self.requests[index(u64::from(request))].load;
        let reserved = self.spec.load[index(u64::from(load))].reserved;
        if reserved == Reserved::All || reserved == parts { Class::Reserved } else { Class::Rest }
    }
}
