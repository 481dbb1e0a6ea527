//! A model of a network in virtual time: senders behind one link with a queue that drops what it has no room
//! for. Senders do what TCP does: slow start, halving after a loss that later segments show, and a timeout of
//! 200 ms after one that none shows, not even a probe.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use braid_credit::{LATE_NS, POLL_NS, Receiver, SAMPLE_NS, Sent, Ticket};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
const SEGMENT: u64 = 1448;
const FRAME: u64 = 1514;
const TIMEOUT: u64 = 200 * MS;
/// Silence after which the last segment is sent again, once, to learn what is missing (tail loss probe).
const PROBE: u64 = 10 * MS;
/// Time between two segments of a sender.
const SPACING: u64 = 1_200;
const WINDOW_FIRST: f64 = 10.0;
const WINDOW_MAX: f64 = 4000.0;

/// The link to the receivers and its queue.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) bytes_per_second: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) round_trip: u64,
}

/// A receiver's way of asking its senders.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) senders: usize,
    pub(crate) block: u64,
    /// True: all are asked at once, and again when all have answered. False: each has `depth` requests.
    pub(crate) in_step: bool,
    pub(crate) depth: usize,
    /// Time that a drive takes before it answers, and how many requests it serves at a time.
    pub(crate) disk: u64,
    pub(crate) with_credit: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Answer { conn: usize },
    Arrive { conn: usize, segment: usize, answer: u64, sent: u64 },
    Acked { conn: usize, segment: usize, answer: u64, sent: u64 },
    Timer { conn: usize, answer: u64, progress: u64 },
    Probe { conn: usize, answer: u64, progress: u64 },
    Poll,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unsent,
    Sent(u64),
    Lost,
    Done,
}

struct Conn {
    receiver: usize,
    window: f64,
    threshold: f64,
    cut_at: u64,
    /// Segments of the answer that is sent.
    segments: Vec<State>,
    arrived: Vec<bool>,
    answer: u64,
    progress: u64,
    saw_loss: bool,
    asked: VecDeque<Asked>,
}

struct Asked {
    wanted_at: u64,
    ticket: Ticket,
    went: u64,
    flying: u64,
    delivered: u64,
}

struct Peer {
    receiver: Receiver,
    load: Load,
    delivered: u64,
    sampled: u64,
    flying: u64,
    peak: u64,
    left_of_round: usize,
    waiting: Vec<(Ticket, usize, u64)>,
}

pub(crate) struct Found {
    pub(crate) bytes: Vec<u64>,
    /// Times in which blocks came, from when they were wanted, sorted.
    pub(crate) times: Vec<u64>,
}

pub(crate) struct Network {
    now: u64,
    link: Link,
    free_at: u64,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    number: u64,
    conns: Vec<Conn>,
    peers: Vec<Peer>,
    times: Vec<u64>,
    counted_from: u64,
    counted: Vec<u64>,
}

impl Network {
    pub(crate) fn new(link: Link, loads: &[Load]) -> Network {
        let mut network = Network {
            now: 0,
            link,
            free_at: 0,
            events: BinaryHeap::new(),
            number: 0,
            conns: Vec::new(),
            peers: Vec::new(),
            times: Vec::new(),
            counted_from: 0,
            counted: vec![0; loads.len()],
        };
        for (receiver, &load) in loads.iter().enumerate() {
            for _ in 0..load.senders {
                network.conns.push(Conn {
                    receiver,
                    window: WINDOW_FIRST,
                    threshold: f64::MAX,
                    cut_at: 0,
                    segments: Vec::new(),
                    arrived: Vec::new(),
                    answer: 0,
                    progress: 0,
                    saw_loss: false,
                    asked: VecDeque::new(),
                });
            }
            network.peers.push(Peer {
                receiver: Receiver::default(),
                load,
                delivered: 0,
                sampled: 0,
                flying: 0,
                peak: 0,
                left_of_round: 0,
                waiting: Vec::new(),
            });
        }
        for receiver in 0..loads.len() {
            network.round(receiver);
        }
        network.at(POLL_NS, What::Poll);
        network
    }

    /// Runs until `end`; counts what happens from `from` on.
    pub(crate) fn run(&mut self, from: u64, end: u64) -> Found {
        self.counted_from = from;
        self.counted.fill(0);
        self.times.clear();
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at < end
        {
            let Some(Reverse((at, _, what))) = self.events.pop() else { break };
            self.now = at;
            self.handle(what);
        }
        let mut times = std::mem::take(&mut self.times);
        times.sort_unstable();
        Found { bytes: self.counted.clone(), times }
    }

    pub(crate) fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    pub(crate) fn receiver(&self, index: usize) -> &Receiver {
        &self.peers[index].receiver
    }

    fn at(&mut self, after: u64, what: What) {
        self.number += 1;
        self.events.push(Reverse((self.now + after, self.number, what)));
    }

    /// A receiver asks all of its senders.
    fn round(&mut self, receiver: usize) {
        let load = self.peers[receiver].load;
        let conns: Vec<usize> =
            (0..self.conns.len()).filter(|&at| self.conns[at].receiver == receiver).collect();
        let each = if load.in_step { 1 } else { load.depth };
        self.peers[receiver].left_of_round = conns.len() * each;
        for _ in 0..each {
            conns.iter().for_each(|&conn| self.want(conn));
        }
    }

    fn want(&mut self, conn: usize) {
        let now = self.now;
        let peer = &mut self.peers[self.conns[conn].receiver];
        if !peer.load.with_credit {
            let ticket = Receiver::default().handle_request(now, 0, 0, 1).0;
            return self.go(conn, ticket, now);
        }
        let drive = u128::try_from(conn).expect("few");
        let (ticket, goes) = peer.receiver.handle_request(now, 1, drive, peer.load.block);
        if goes { self.go(conn, ticket, now) } else { peer.waiting.push((ticket, conn, now)) }
    }

    fn go(&mut self, conn: usize, ticket: Ticket, wanted_at: u64) {
        let peer = &mut self.peers[self.conns[conn].receiver];
        peer.flying += peer.load.block;
        peer.peak = peer.peak.max(peer.flying);
        let flying = peer.flying;
        let delivered = peer.delivered;
        let disk = peer.load.disk;
        let is_idle = self.conns[conn].asked.is_empty();
        self.conns[conn].asked.push_back(Asked { wanted_at, ticket, went: self.now, flying, delivered });
        if is_idle {
            self.at(self.link.round_trip / 2 + disk, What::Answer { conn });
        }
    }

    fn poll(&mut self, receiver: usize) {
        while let Some(ticket) = self.peers[receiver].receiver.poll_send(self.now) {
            let waiting = &mut self.peers[receiver].waiting;
            let at = waiting.iter().position(|(of, ..)| *of == ticket).expect("it waits");
            let (ticket, conn, wanted_at) = waiting.swap_remove(at);
            self.go(conn, ticket, wanted_at);
        }
    }

    fn handle(&mut self, what: What) {
        match what {
            What::Answer { conn } => {
                let block = self.peers[self.conns[conn].receiver].load.block;
                let of = &mut self.conns[conn];
                let count = usize::try_from(block.div_ceil(SEGMENT)).expect("few");
                of.segments = vec![State::Unsent; count];
                of.arrived = vec![false; count];
                of.answer += 1;
                (of.saw_loss, of.progress) = (false, self.now);
                self.send(conn);
            }
            What::Arrive { conn, segment, answer, sent } => {
                let of = &mut self.conns[conn];
                if of.answer == answer && !of.arrived[segment] {
                    of.saw_loss |= of.arrived[..segment].contains(&false);
                    of.arrived[segment] = true;
                    let receiver = of.receiver;
                    let is_whole = !of.arrived.contains(&false);
                    self.arrived(receiver);
                    if is_whole {
                        self.whole(conn);
                    }
                }
                self.at(self.link.round_trip / 2, What::Acked { conn, segment, answer, sent });
            }
            What::Acked { conn, segment, answer, sent } => self.acked(conn, segment, answer, sent),
            What::Timer { conn, answer, progress } => {
                let of = &mut self.conns[conn];
                if of.answer != answer || of.segments.iter().all(|state| *state == State::Done) {
                    return;
                }
                if of.progress != progress {
                    let progress = of.progress;
                    let after = progress + TIMEOUT - self.now;
                    return self.at(after, What::Timer { conn, answer, progress });
                }
                of.segments.iter_mut().for_each(|state| {
                    if matches!(state, State::Sent(_)) {
                        *state = State::Lost;
                    }
                });
                of.threshold = (of.window / 2.0).max(2.0);
                of.window = 1.0;
                of.progress = self.now;
                self.send(conn);
            }
            What::Probe { conn, answer, progress } => {
                let of = &mut self.conns[conn];
                let last = of.segments.iter().rposition(|state| matches!(state, State::Sent(_)));
                if let Some(segment) = last
                    && of.answer == answer
                    && of.progress == progress
                {
                    let sent = self.now;
                    of.segments[segment] = State::Sent(sent);
                    self.pass(0, What::Arrive { conn, segment, answer, sent });
                }
            }
            What::Poll => {
                (0..self.peers.len()).for_each(|receiver| self.poll(receiver));
                self.at(POLL_NS, What::Poll);
            }
        }
    }

    fn arrived(&mut self, receiver: usize) {
        let now = self.now;
        if now >= self.counted_from {
            self.counted[receiver] += SEGMENT;
        }
        self.peers[receiver].delivered += SEGMENT;
    }

    /// All of an answer is there.
    fn whole(&mut self, conn: usize) {
        let now = self.now;
        let of = &mut self.conns[conn];
        let receiver = of.receiver;
        let saw_loss = of.saw_loss;
        let asked = of.asked.pop_front().expect("it was asked for");
        if asked.wanted_at >= self.counted_from {
            self.times.push(now - asked.wanted_at);
        }
        let is_next = !of.asked.is_empty();
        let disk = self.peers[receiver].load.disk;
        if is_next {
            self.at(self.link.round_trip / 2 + disk, What::Answer { conn });
        }
        let peer = &mut self.peers[receiver];
        peer.flying -= peer.load.block;
        let number = u128::try_from(conn).expect("few");
        if peer.load.with_credit {
            let sent = Sent {
                peer: number,
                bytes: peer.load.block,
                at: asked.went,
                arrived: now,
                flying: asked.flying.max(peer.flying),
                delivered: peer.delivered - asked.delivered,
            };
            if now - peer.sampled >= SAMPLE_NS {
                peer.receiver.handle_delivered(sent, peer.delivered, peer.load.block);
                peer.sampled = now;
            }
            if saw_loss {
                peer.receiver.handle_loss(now);
            }
            if now - asked.went >= LATE_NS {
                let flying = asked.flying.max(peer.peak);
                peer.receiver.handle_late(Sent { flying, ..sent }, peer.load.block);
                peer.peak = peer.flying;
            }
            peer.receiver.handle_end(asked.ticket);
            self.poll(receiver);
        }
        let peer = &mut self.peers[receiver];
        peer.left_of_round -= 1;
        if !peer.load.in_step {
            peer.left_of_round += 1;
            self.want(conn);
        } else if peer.left_of_round == 0 {
            self.round(receiver);
        }
    }

    fn acked(&mut self, conn: usize, segment: usize, answer: u64, sent: u64) {
        let of = &mut self.conns[conn];
        if of.answer != answer {
            return;
        }
        of.progress = self.now;
        of.segments[segment] = State::Done;
        of.window += if of.window < of.threshold { 1.0 } else { 1.0 / of.window };
        of.window = of.window.min(WINDOW_MAX);
        let mut is_lost = false;
        // Three later ones, or one that was sent much later.
        for (at, state) in of.segments[..segment].iter_mut().enumerate() {
            let by = if at + 3 <= segment { 0 } else { PROBE / 2 };
            if matches!(state, State::Sent(at) if *at + by < sent) {
                *state = State::Lost;
                is_lost = true;
            }
        }
        let progress = of.progress;
        self.at(PROBE, What::Probe { conn, answer, progress });
        let of = &mut self.conns[conn];
        if is_lost && sent >= of.cut_at {
            of.threshold = (of.window / 2.0).max(2.0);
            of.window = of.threshold;
            of.cut_at = self.now;
        }
        self.send(conn);
    }

    fn send(&mut self, conn: usize) {
        let mut after = 0;
        loop {
            let of = &self.conns[conn];
            let in_flight = of.segments.iter().filter(|state| matches!(state, State::Sent(_))).count();
            let has_room = u32::try_from(in_flight).is_ok_and(|in_flight| f64::from(in_flight) < of.window);
            let wants = |state: &State| matches!(state, State::Unsent | State::Lost);
            let Some(segment) = of.segments.iter().position(wants).filter(|_| has_room) else { break };
            let answer = of.answer;
            let progress = of.progress;
            if in_flight == 0 && after == 0 {
                self.at(TIMEOUT, What::Timer { conn, answer, progress });
                self.at(PROBE, What::Probe { conn, answer, progress });
            }
            self.conns[conn].segments[segment] = State::Sent(self.now);
            let sent = self.now;
            self.pass(after, What::Arrive { conn, segment, answer, sent });
            after += SPACING;
        }
    }

    /// Sends a segment through the link, or drops it.
    fn pass(&mut self, after: u64, what: What) {
        let begins = self.free_at.max(self.now + after);
        let time = |bytes: u64| bytes * SECOND / self.link.bytes_per_second;
        let queued = begins - (self.now + after);
        if queued + time(FRAME) > time(self.link.queue_bytes) {
            return;
        }
        self.free_at = begins + time(FRAME);
        self.at(self.free_at - self.now + self.link.round_trip / 2, what);
    }
}

impl Found {
    /// Bytes of all receivers, as a share of what the link can carry in this time.
    pub(crate) fn share(&self, link: Link, time: u64) -> f64 {
        let can = link.bytes_per_second * SEGMENT / FRAME * (time / MS) / 1000;
        ratio(self.bytes.iter().sum(), can)
    }

    /// The time that all blocks but one in a hundred needed at most.
    pub(crate) fn p99(&self) -> u64 {
        self.times[self.times.len() * 99 / 100]
    }
}

pub(crate) fn ratio(a: u64, b: u64) -> f64 {
    let as_float = |value: u64| f64::from(u32::try_from(value / 1000).expect("it is small"));
    as_float(a) / as_float(b)
}
