//! Targets of the datagram machine: arbitrary datagrams, and sequences of events on a pair of endpoints, one
//! of which may be hostile. After the last event the path is good and both owners take what comes: then all
//! messages arrive, or the connection ends, in a bounded time.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use braid_datagram::{
    Config, ConnectionId, Ecn, Endpoint, Event, Frame, Incoming, Open, Packet, Secret, Settings,
    decode_frames,
};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// Time in which everything settles: a close waits for a minute, silence and the handshake for 10 s each.
const SETTLE_NS: u64 = 100 * SECOND;
const PEERS: [([u8; 4], u16); 2] = [([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2)];
const POLICIES: [&str; 6] = ["stop-and-wait", "window-4", "go-back-n", "selective-repeat", "credit", "cubic"];

fn secret_of(_: &[u8]) -> Option<Secret> {
    Some(Secret::new([1; 32]))
}

fn config(policy: u8) -> Config {
    let settings = Settings { streams: 2, datagram_bytes_max: 1472, window_bytes: 8192 };
    let policy = POLICIES[usize::from(policy) % POLICIES.len()].parse().expect("it is a policy");
    Config { settings, policy, unacked_bytes_max: 8192, connections: 4, ..Config::default() }
}

/// A datagram, and its bytes as the content of a sealed one.
pub fn datagram(bytes: &[u8]) {
    if let Some(packet) = Packet::parse(bytes) {
        let emitted = packet.emit();
        let is_other = matches!(packet, Packet::OpenOfOtherVersion { .. });
        assert!(is_other || bytes.starts_with(&emitted), "{packet:?}");
    }
    let mut again = Vec::new();
    for frame in decode_frames(bytes).flatten() {
        let begin = again.len();
        frame.put(&mut again);
        let back: Vec<_> = decode_frames(&again[begin..]).collect();
        assert_eq!(back, [Some(frame)]);
    }
    let mut acceptor = Endpoint::new(config(0), true, [2; 32]);
    let mut input = bytes.to_vec();
    acceptor.handle_datagram(5, SocketAddr::from(PEERS[0]), Ecn::Unaware, &mut input, &mut secret_of);
    let mut out = Vec::new();
    while acceptor.poll_transmit(5, &mut out).is_some() {}
    assert!(out.len() <= bytes.len(), "an answer is no longer than what it answers");
    assert_eq!(acceptor.connections(), 0);
}

/// Two endpoints, and what is on its way between them.
struct World {
    now_ns: u64,
    ends: [Endpoint; 2],
    ids: [Option<ConnectionId>; 2],
    flying: VecDeque<(usize, Vec<u8>)>,
    /// The opener's address changes.
    addresses: [SocketAddr; 2],
    /// True once the opener has the acceptor's answer.
    is_open: bool,
    /// True once an end has said that its connection is over, or its owner has released it.
    is_over: [bool; 2],
    sent: BTreeMap<(usize, u16), VecDeque<Vec<u8>>>,
    /// True once a peer has sent what it may not: what arrives is its affair then.
    is_hostile: bool,
}

/// Events, as the bytes say: what is sent, which datagrams arrive, are repeated, changed or lost, how much
/// time passes.
pub fn datagram_events(bytes: &[u8]) {
    let mut input = bytes.iter().copied().take(4096);
    let mut next = move || input.next();
    let Some(first) = next() else { return };
    let Some(second) = next() else { return };
    let ends = [Endpoint::new(config(first), false, [1; 32]), Endpoint::new(config(second), true, [2; 32])];
    let mut world = World {
        now_ns: 0,
        ends,
        ids: [None; 2],
        flying: VecDeque::new(),
        addresses: PEERS.map(SocketAddr::from),
        is_open: false,
        is_over: [false; 2],
        sent: BTreeMap::new(),
        is_hostile: false,
    };
    world.ids[0] = Some(world.ends[0].open(0, SocketAddr::from(PEERS[1]), b"who", Secret::new([1; 32])));
    while let Some(event) = next() {
        world.pump();
        let Some(a) = next() else { break };
        let Some(b) = next() else { break };
        world.step(event, a, b, &mut next);
    }
    world.pump();
    world.settle();
}

impl World {
    /// Delivers and takes everything from now on: nothing may wait for ever.
    fn settle(&mut self) {
        let until_ns = self.now_ns + SETTLE_NS;
        while self.now_ns < until_ns && !self.is_settled() {
            self.pump();
            self.now_ns = match self.flying.is_empty() {
                false => self.now_ns + MILLISECOND,
                true => match self.ends.iter().filter_map(Endpoint::next_deadline).min() {
                    Some(deadline) => deadline.max(self.now_ns + 1),
                    None => break,
                },
            };
            for _ in 0..self.flying.len() {
                self.deliver(0, Ecn::Capable);
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now_ns));
            for end in 0..2 {
                (0..2).for_each(|stream| while self.take(end, stream) {});
            }
        }
        self.pump();
        assert!(self.is_settled() || self.is_hostile, "something waits for ever");
    }

    /// Returns true if all messages have arrived, or whoever sent them knows that they may not.
    fn is_settled(&self) -> bool {
        self.sent.iter().all(|(&(end, _), sent)| sent.is_empty() || self.is_over[end])
    }

    fn step(&mut self, event: u8, a: u8, b: u8, next: &mut dyn FnMut() -> Option<u8>) {
        let end = usize::from(a & 1);
        let stream = u16::from(a >> 1 & 1);
        let id = self.ids[end];
        match event % 16 {
            0..=3 => self.deliver(0, if a & 64 > 0 { Ecn::Marked } else { Ecn::Capable }),
            4 => self.deliver(usize::from(b), Ecn::Unaware),
            5 => _ = self.flying.remove(usize::from(b)),
            6 => {
                if let Some((to, bytes)) = self.flying.get(usize::from(b)).cloned() {
                    self.flying.push_back((to, bytes));
                }
            }
            7 => {
                if let Some((_, bytes)) = self.flying.front_mut().filter(|(_, bytes)| !bytes.is_empty()) {
                    let at = usize::from(a) * usize::from(b) % bytes.len();
                    bytes[at] ^= 1 << (b & 7);
                }
            }
            8 | 9 => {
                self.now_ns += MILLISECOND / 4 * u64::from(a) * u64::from(b);
                self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now_ns));
            }
            10 | 11 => {
                let message = vec![b; usize::from(a) * usize::from(b) / 16];
                if let Some(id) = id
                    && self.ends[end].send(id, stream, message.clone().into()).is_ok()
                {
                    self.sent.entry((end, stream)).or_default().push_back(message);
                }
            }
            12 => _ = self.take(end, stream),
            13 => {
                if b % 8 == 6 {
                    // One that moves during the handshake gets two connections, of which it knows one.
                    if !self.is_open {
                        return;
                    }
                    let port = self.addresses[0].port();
                    return self.addresses[0].set_port(port ^ 64);
                }
                let id = id.unwrap_or_else(|| self.ids[0].expect("it was opened"));
                self.is_over[end] |= b % 8 == 2;
                let end = &mut self.ends[end];
                match b % 8 {
                    0 => end.close(self.now_ns, id, u16::from(b), "reason"),
                    1 => end.abort(self.now_ns, id, 1, ""),
                    2 => end.release(self.now_ns, id),
                    3 => _ = end.finish(id, stream),
                    4 => end.set_window(id, u64::from(b) * 100),
                    5 => end.set_rate(id, (a > 127).then(|| 10_000 * u64::from(a))),
                    _ => end.handle_unreachable(self.now_ns, id),
                }
            }
            14 => {
                let raw: Vec<u8> = std::iter::from_fn(&mut *next).take(usize::from(b)).collect();
                self.flying.push_back((end, raw));
            }
            _ => {
                let raw: Vec<u8> = std::iter::from_fn(&mut *next).take(usize::from(b)).collect();
                self.is_hostile |= decode_frames(&raw).any(|frame| frame != Some(Frame::Ping));
                let forged = id.and_then(|id| self.ends[end].forge(self.now_ns, id, &raw));
                self.flying.extend(forged.map(|bytes| (1 - end, bytes)));
            }
        }
    }

    fn deliver(&mut self, which: usize, ecn: Ecn) {
        let Some((to, mut bytes)) = self.flying.remove(which) else { return };
        let from = self.addresses[1 - to];
        self.ends[to].handle_datagram(self.now_ns, from, ecn, &mut bytes, &mut secret_of);
    }

    /// Takes what both ends have to send. What is too much is lost.
    fn pump(&mut self) {
        for end in 0..2 {
            let mut out = Vec::new();
            let mut datagrams = 0;
            while let Some(transmit) = self.ends[end].poll_transmit(self.now_ns, &mut out) {
                datagrams += 1;
                assert!(datagrams < 1000, "it sends without end");
                let datagram = std::mem::take(&mut out);
                // The opener does not get what goes to its former address.
                if transmit.to == self.addresses[1 - end] {
                    self.flying.push_back((1 - end, datagram));
                }
            }
            self.flying.truncate(256);
            while let Some(event) = self.ends[end].poll_event() {
                match event {
                    // One that the owner ended before the opener knew of it is opened again.
                    Event::Accepted(id, _) if self.ids[end].is_none() || self.is_over[end] => {
                        (self.ids[end], self.is_over[end]) = (Some(id), false);
                        self.sent.retain(|(from, _), _| *from != end);
                    }
                    Event::Ended(id, _) => self.is_over[end] |= self.ids[end] == Some(id),
                    Event::Opened(_) => self.is_open = true,
                    _ => {}
                }
            }
        }
    }

    /// Takes a message, which must be the next that was sent. Returns false if there is none.
    fn take(&mut self, end: usize, stream: u16) -> bool {
        let Some(id) = self.ids[end] else { return false };
        let Some(Incoming::Message(message)) = self.ends[end].receive(id, stream) else { return false };
        if !self.is_hostile {
            let sent = self.sent.get_mut(&(1 - end, stream)).and_then(VecDeque::pop_front);
            assert_eq!(sent, Some(message));
        }
        true
    }
}

/// Good inputs of both targets.
pub(crate) fn seeds(name: &str) -> Vec<Vec<u8>> {
    if name == "datagram_events" {
        let talk = |policy: u8| {
            let mut bytes = vec![policy, policy];
            for step in 0..120u8 {
                // Mostly deliveries, some time, messages both ways, and their taking.
                let event = [0, 1, 10, 2, 8, 3, 12, 0, 4, 5, 6, 7][usize::from(step) % 12];
                bytes.extend_from_slice(&[event, step, step.wrapping_mul(37)]);
            }
            bytes
        };
        let mut all: Vec<Vec<u8>> = (0..6).map(talk).collect();
        // With closes, windows, rates and addresses that change, each at another time.
        all.extend((0..48).map(|at: u8| {
            let mut bytes = talk(at % 6);
            let place = 2 + 3 * (6 + usize::from(at) * 2);
            bytes[place..place + 3].copy_from_slice(&[13, at.wrapping_mul(41), at / 6]);
            bytes
        }));
        let frames =
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 1, 13, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9];
        all.push([&[1, 2], frames.as_slice()].concat());
        return all;
    }
    let nonce = [3; 32];
    let settings = Settings::default();
    let open = Open { from: 7, settings, nonce, cookie: [0; 24], proof: [4; 16], identity: b"who" };
    let accept = braid_datagram::Accept { to: 7, from: 8, settings, nonce, proof: [4; 16] };
    let packets = [
        Packet::Open(open),
        Packet::Retry { to: 7, cookie: [1; 24] },
        Packet::Accept(accept),
        Packet::Refused { to: 7, why: braid_datagram::Refused::Busy },
        Packet::Versions { to: 7, min: 1, max: 1 },
        Packet::Unknown { of: 7 },
    ];
    let mut all: Vec<Vec<u8>> = packets.iter().map(Packet::emit).collect();
    let ack = braid_datagram::Ack { delay_us: 5, ranges: vec![20..30, 5..6] };
    let frames = [
        Frame::Ack(ack),
        Frame::Stream { stream: 1, offset: 9, bytes: b"content" },
        Frame::Credit { stream: 1, limit: 99 },
        Frame::Window { bytes: 9 },
        Frame::Challenge([1; 8]),
        Frame::Response([1; 8]),
        Frame::Close { code: 1, reason: b"why" },
        Frame::Marked { total: 3 },
    ];
    let mut content = Vec::new();
    frames.iter().for_each(|frame| frame.put(&mut content));
    all.push(content);
    all
}
