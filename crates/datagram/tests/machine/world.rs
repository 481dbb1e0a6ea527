//! The world of the tests: two endpoints, the path between them, and a clock.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use braid_datagram::{Config, ConnectionId, Ecn, Endpoint, Event, Incoming, Secret, Transmit};

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;
pub(crate) const IDENTITY: &[u8] = b"client 1";
/// The opener's place in `World::ends`, and the acceptor's.
pub(crate) const OPENER: usize = 0;
pub(crate) const ACCEPTOR: usize = 1;

/// That which a path does to datagrams. The chances are of a thousand.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) changed: u64,
    pub(crate) delay_ns: u64,
    /// Delay that some datagrams have beyond it, which reorders them.
    pub(crate) jitter_ns: u64,
    /// Bytes per second, and of the queue before it; `None`: no bound.
    pub(crate) link: Option<(u64, u64)>,
    /// The longest datagram that gets through.
    pub(crate) longest: usize,
    /// Bytes in the link's queue beyond which it marks what may be marked.
    pub(crate) marks: Option<u64>,
    /// Drops what may be marked.
    pub(crate) eats_capable: bool,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            lost: 0,
            repeated: 0,
            changed: 0,
            delay_ns: 100_000,
            jitter_ns: 0,
            link: None,
            longest: 65_507,
            marks: None,
            eats_capable: false,
        }
    }
}

/// A datagram on its way.
#[derive(Debug, Clone)]
pub(crate) struct Flying {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) ends: [Endpoint; 2],
    pub(crate) addresses: [SocketAddr; 2],
    pub(crate) path: Path,
    /// The connection at each end.
    pub(crate) ids: [Option<ConnectionId>; 2],
    pub(crate) events: [VecDeque<Event>; 2],
    /// That which each end has received, by stream.
    pub(crate) received: [BTreeMap<u16, Vec<Vec<u8>>>; 2],
    /// The streams that each end has seen the end of.
    pub(crate) finished: [Vec<u16>; 2],
    /// Bytes of datagrams that were sent to each address.
    pub(crate) sent_to: BTreeMap<SocketAddr, u64>,
    /// All datagrams that were sent, if they are recorded.
    pub(crate) recorded: Option<Vec<Flying>>,
    /// The reason for which the acceptor's owner ends each connection at once, if it does.
    pub(crate) aborts: Option<&'static str>,
    /// True if the ends' owners take messages as soon as they come.
    pub(crate) takes: [bool; 2],
    /// Datagrams that the link's queue has dropped, and those that it has marked.
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
    /// The times at which the opener gets another address.
    pub(crate) moves: VecDeque<u64>,
    flying: BTreeMap<(u64, u64), Flying>,
    busy_ns: [u64; 2],
    sequence: u64,
    random: u64,
}

pub(crate) fn secret() -> Secret {
    Secret::new([9; 32])
}

pub(crate) fn secret_of(identity: &[u8]) -> Option<Secret> {
    (identity == IDENTITY).then(secret)
}

impl World {
    pub(crate) fn new(config: &Config, path: Path, seed: u64) -> World {
        World::between([config.clone(), config.clone()], path, seed)
    }

    pub(crate) fn between(configs: [Config; 2], path: Path, seed: u64) -> World {
        let [opener, acceptor] = configs;
        World {
            now_ns: SECOND,
            ends: [Endpoint::new(opener, false, [1; 32]), Endpoint::new(acceptor, true, [2; 32])],
            addresses: ["10.0.0.1:1000", "10.0.0.2:7401"].map(|address| address.parse().unwrap()),
            path,
            ids: [None; 2],
            events: Default::default(),
            received: Default::default(),
            finished: Default::default(),
            sent_to: BTreeMap::new(),
            recorded: None,
            aborts: None,
            takes: [true; 2],
            dropped: 0,
            marked: 0,
            moves: VecDeque::new(),
            flying: BTreeMap::new(),
            busy_ns: [0; 2],
            sequence: 0,
            random: seed,
        }
    }

    /// Opens the connection; returns true if it is open at both ends.
    pub(crate) fn open(&mut self) -> bool {
        let peer = self.addresses[ACCEPTOR];
        self.ids[OPENER] = Some(self.ends[OPENER].open(self.now_ns, peer, IDENTITY, secret()));
        self.run_until(11 * SECOND, |world| {
            world.ids[ACCEPTOR].is_some()
                && world.events[OPENER].iter().any(|event| matches!(event, Event::Opened(_)))
        })
    }

    pub(crate) fn id(&self, end: usize) -> ConnectionId {
        self.ids[end].expect("the connection was opened")
    }

    /// Runs until `done`, for at most `within_ns`; returns true if it is.
    pub(crate) fn run_until(&mut self, within_ns: u64, done: impl Fn(&World) -> bool) -> bool {
        let end_ns = self.now_ns + within_ns;
        loop {
            self.pump();
            if done(self) {
                return true;
            }
            let next = self.ends.iter().filter_map(Endpoint::next_deadline).min();
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            match [next, arrival].into_iter().flatten().min() {
                Some(at) if at <= end_ns => self.now_ns = at.max(self.now_ns),
                _ => {
                    self.now_ns = end_ns;
                    return false;
                }
            }
            if self.moves.pop_front_if(|at| *at <= self.now_ns).is_some() {
                let port = self.addresses[OPENER].port();
                self.addresses[OPENER].set_port(port + 1);
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now_ns));
            while let Some((_, datagram)) = self
                .flying
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now_ns)
                .map(|entry| entry.remove_entry())
            {
                self.deliver(datagram);
            }
        }
    }

    pub(crate) fn run_for(&mut self, ns: u64) {
        self.run_until(ns, |_| false);
    }

    /// Delivers a datagram now.
    pub(crate) fn deliver(&mut self, datagram: Flying) {
        let Flying { from, to, ecn, mut bytes } = datagram;
        for end in [OPENER, ACCEPTOR] {
            if to == self.addresses[end] {
                self.ends[end].handle_datagram(self.now_ns, from, ecn, &mut bytes, &mut secret_of);
                return;
            }
        }
    }

    /// Takes all that both ends have to send, and their events and messages.
    pub(crate) fn pump(&mut self) {
        for end in [OPENER, ACCEPTOR] {
            self.take_events(end);
            let mut bytes = Vec::new();
            while let Some(Transmit { to, ecn, .. }) = self.ends[end].poll_transmit(self.now_ns, &mut bytes) {
                let from = self.addresses[end];
                let datagram = Flying { from, to, ecn, bytes: std::mem::take(&mut bytes) };
                self.fly(end, datagram);
            }
            assert!(bytes.is_empty(), "what was not sent leaves nothing behind");
            self.take_events(end);
        }
    }

    fn take_events(&mut self, end: usize) {
        while let Some(event) = self.ends[end].poll_event() {
            if let Event::Accepted(id, identity) = &event {
                assert_eq!(identity, IDENTITY);
                self.ids[end] = Some(*id);
                if let Some(reason) = self.aborts {
                    self.ends[end].abort(self.now_ns, *id, 0, reason);
                }
            }
            self.events[end].push_back(event);
        }
        if self.takes[end] {
            self.take_messages(end, usize::MAX);
        }
    }

    /// Has an end's owner take messages; returns their number.
    pub(crate) fn take_messages(&mut self, end: usize, most: usize) -> usize {
        let Some(id) = self.ids[end] else { return 0 };
        let mut taken = 0;
        for stream in 0..self.ends[end].streams(id) {
            while taken < most && !self.finished[end].contains(&stream) {
                match self.ends[end].receive(id, stream) {
                    None => break,
                    Some(Incoming::End) => self.finished[end].push(stream),
                    Some(Incoming::Message(message)) => {
                        taken += 1;
                        self.received[end].entry(stream).or_default().push(message);
                    }
                }
            }
        }
        taken
    }

    fn fly(&mut self, end: usize, mut datagram: Flying) {
        *self.sent_to.entry(datagram.to).or_default() += u64::try_from(datagram.bytes.len()).unwrap();
        if let Some(recorded) = &mut self.recorded {
            recorded.push(datagram.clone());
        }
        let bytes = u64::try_from(datagram.bytes.len()).unwrap();
        let mut at = self.now_ns;
        if let Some((rate, queue)) = self.path.link {
            let begin = self.busy_ns[end].max(at);
            let waiting = (begin - at) * rate / SECOND + bytes;
            if waiting > queue {
                self.dropped += 1;
                return;
            }
            if datagram.ecn == Ecn::Capable && self.path.marks.is_some_and(|marks| waiting > marks) {
                datagram.ecn = Ecn::Marked;
                self.marked += 1;
            }
            at = begin + (bytes * SECOND).div_ceil(rate);
            self.busy_ns[end] = at;
        }
        let is_eaten = self.path.eats_capable && datagram.ecn != Ecn::Unaware;
        if self.chance(self.path.lost) || is_eaten || datagram.bytes.len() > self.path.longest {
            return;
        }
        for _ in 0..=u64::from(self.chance(self.path.repeated)) {
            let mut datagram = datagram.clone();
            if self.chance(self.path.changed) {
                let bit = usize::try_from(self.below(8 * bytes)).unwrap();
                datagram.bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let jitter = if self.path.jitter_ns > 0 { self.below(self.path.jitter_ns) } else { 0 };
            self.sequence += 1;
            self.flying.insert((at + self.path.delay_ns + jitter, self.sequence), datagram);
        }
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
