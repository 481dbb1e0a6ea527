//! The simulated network: connections that keep bytes in order and whole, as TCP does, until they are cut;
//! and datagrams, which it loses and changes (`datagrams`).
//!
//! Each direction of a connection is a pipe. Bytes that were sent arrive after a delay, at the end of a
//! step of the world ([`Net::deliver`]). A direction between two hosts can be blocked: its bytes then wait,
//! as TCP sends them again when the direction is open again. A host that is down takes and sends nothing;
//! after its return its old connections are reset by the first byte that arrives on them. [`Net::cut`]
//! resets a connection in the middle of the bytes in flight.

mod datagrams;
mod ends;
#[cfg(test)]
mod talk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use braid_transport::host::simulated::{Connecting, Listener, Socket};

use self::datagrams::Datagrams;
use self::ends::{Connection, Listening, ReadEnd, WriteEnd};
use crate::random::{Random, mix};
use crate::trace::Trace;

/// Most bytes of a direction that were sent and not yet read.
const WINDOW: usize = 128 << 10;
/// Time in which a datagram must arrive for the network to be busy.
const SOON_MS: u64 = 5;
/// Ports above this one are given to sockets that ask for none.
const FREE_PORT: u16 = 40_000;

/// The network. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    random: Random,
    trace: Trace,
    now_ms: u64,
    next: u64,
    next_port: u16,
    pipes: BTreeMap<u64, Pipe>,
    /// All pipes with something in flight, and perhaps others.
    flying: BTreeSet<u64>,
    /// True if an end of a pipe was dropped since the last delivery.
    shed: bool,
    listeners: BTreeMap<SocketAddr, Backlog>,
    attempts: BTreeMap<u64, Attempt>,
    datagrams: Datagrams,
    down: BTreeSet<IpAddr>,
    blocked: BTreeSet<(IpAddr, IpAddr)>,
    /// Addresses to and from which nothing passes: rails that are cut.
    severed: BTreeSet<SocketAddr>,
    /// Greatest extra delay of each direction, in milliseconds.
    slow: BTreeMap<(IpAddr, IpAddr), u64>,
    /// True if something was sent since the last call of [`Net::is_busy`].
    busy: bool,
}

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    from: SocketAddr,
    to: SocketAddr,
    /// Id of the other direction.
    other: u64,
    flight: VecDeque<(u64, Item)>,
    flight_bytes: usize,
    arrived: VecDeque<u8>,
    /// True if the sender's end has arrived.
    ended: bool,
    reset: bool,
    reader_gone: bool,
    writer_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    End,
}

#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<Socket>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Attempt {
    at_ms: u64,
    from: IpAddr,
    to: SocketAddr,
    result: Option<io::Result<Socket>>,
    waker: Option<Waker>,
}

impl Net {
    pub(crate) fn new(random: Random, trace: Trace) -> Net {
        // Drawn from a copy of the stream, which goes on as if nothing had been drawn.
        let of_datagrams = Random::new(mix(random.clone().draw() ^ 0x6461_7461_6772_616d));
        Net(Arc::new(Mutex::new(State {
            random,
            trace,
            now_ms: 0,
            next: 0,
            next_port: FREE_PORT,
            pipes: BTreeMap::new(),
            flying: BTreeSet::new(),
            shed: false,
            listeners: BTreeMap::new(),
            attempts: BTreeMap::new(),
            datagrams: Datagrams::new(of_datagrams),
            down: BTreeSet::new(),
            blocked: BTreeSet::new(),
            severed: BTreeSet::new(),
            slow: BTreeMap::new(),
            busy: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the host off the network: it neither sends nor receives from now on.
    pub(crate) fn set_down(&self, host: IpAddr) {
        self.lock().down.insert(host);
    }

    /// Puts the host back on the network.
    pub(crate) fn set_up(&self, host: IpAddr) {
        self.lock().down.remove(&host);
    }

    /// Blocks the direction from one host to another.
    pub(crate) fn block(&self, from: IpAddr, to: IpAddr) {
        self.lock().blocked.insert((from, to));
    }

    /// Lets nothing pass to this address of a host, nor from it.
    pub(crate) fn sever(&self, address: SocketAddr) {
        self.lock().severed.insert(address);
    }

    /// Delays all that goes from one host to another, by at most this much more.
    pub(crate) fn slow(&self, from: IpAddr, to: IpAddr, delay_ms: u64) {
        self.lock().slow.insert((from, to), delay_ms);
    }

    /// Makes all links sound again.
    pub(crate) fn heal(&self) {
        let mut state = self.lock();
        state.blocked.clear();
        state.severed.clear();
        state.slow.clear();
    }

    /// Returns true if no link is blocked or slow.
    pub(crate) fn is_sound(&self) -> bool {
        let state = self.lock();
        state.blocked.is_empty() && state.severed.is_empty() && state.slow.is_empty()
    }

    /// Cuts one of the connections, chosen at random, somewhere in its bytes in flight. Returns false if
    /// there is none.
    pub(crate) fn cut(&self) -> bool {
        let mut state = self.lock();
        let ids: Vec<u64> = state.pipes.keys().copied().collect();
        let Some(id) = state.random.one(&ids) else { return false };
        let Some(pipe) = state.pipes.get(&id) else { return false };
        let bytes = pipe.flight_bytes;
        let other = pipe.other;
        let kept = usize::try_from(state.random.below(u64::try_from(bytes).unwrap_or(0) + 1)).unwrap_or(0);
        let mut wakers = Vec::new();
        if let Some(pipe) = state.pipes.get_mut(&id) {
            let items = std::mem::take(&mut pipe.flight);
            let all = items.into_iter().flat_map(|(_, item)| match item {
                Item::Bytes(bytes) => bytes,
                Item::End => Vec::new(),
            });
            pipe.arrived.extend(all.take(kept));
        }
        state.reset(id, &mut wakers);
        state.reset(other, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Returns true if anything was sent since the last call, or is in flight and can arrive.
    pub(crate) fn is_busy(&self) -> bool {
        let mut state = self.lock();
        let on_its_way =
            |pipe: &Pipe, state: &State| !pipe.flight.is_empty() && !state.is_cut_off_at(pipe.from, pipe.to);
        let mut flying = state.flying.iter().filter_map(|id| state.pipes.get(id));
        let flies = flying.any(|pipe| on_its_way(pipe, &state))
            || state.datagrams.arrives_until(state.now_ms + SOON_MS);
        std::mem::take(&mut state.busy) || flies
    }

    /// Delivers everything that arrives until `now_ms`.
    pub(crate) fn deliver(&self, now_ms: u64) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        state.now_ms = now_ms;
        state.make_connections(self, &mut wakers);
        state.bring_datagrams(&mut wakers);
        let ids: Vec<u64> = state.flying.iter().copied().collect();
        for id in ids {
            state.bring(id, &mut wakers);
            if state.pipes.get(&id).is_none_or(|pipe| pipe.flight.is_empty()) {
                state.flying.remove(&id);
            }
        }
        if std::mem::take(&mut state.shed) {
            state.pipes.retain(|_, pipe| !(pipe.reader_gone && pipe.writer_gone));
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Listens on this address of a host.
    pub(crate) fn listen(&self, host: IpAddr, address: &str) -> io::Result<Box<dyn Listener>> {
        let asked: SocketAddr = address.parse().map_err(io::Error::other)?;
        let mut state = self.lock();
        let port = if asked.port() == 0 { state.free_port() } else { asked.port() };
        let address = SocketAddr::new(host, port);
        if state.listeners.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        state.listeners.insert(address, Backlog::default());
        Ok(Box::new(Listening { net: self.clone(), address }))
    }

    /// Connects a host to an address.
    pub(crate) fn connect(&self, from: IpAddr, address: &str, now_ms: u64) -> Connecting {
        let to = match address.parse() {
            Ok(to) => to,
            Err(error) => return Box::pin(std::future::ready(Err(io::Error::other(error)))),
        };
        let mut state = self.lock();
        let id = state.number();
        let delay = 2 * state.delay(from, SocketAddr::ip(&to));
        state.busy = true;
        let attempt = Attempt { at_ms: now_ms + delay, from, to, result: None, waker: None };
        state.attempts.insert(id, attempt);
        Box::pin(Connection { net: self.clone(), id })
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn free_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FREE_PORT);
        self.next_port
    }

    fn delay(&mut self, from: IpAddr, to: IpAddr) -> u64 {
        let extra = self.slow.get(&(from, to)).copied().unwrap_or(0);
        self.random.below(2) + self.random.below(extra + 1)
    }

    fn is_cut_off(&self, from: IpAddr, to: IpAddr) -> bool {
        self.down.contains(&to) || self.blocked.contains(&(from, to))
    }

    fn is_cut_off_at(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let is_severed = self.severed.contains(&from) || self.severed.contains(&to);
        is_severed || self.is_cut_off(from.ip(), to.ip())
    }

    fn reset(&mut self, id: u64, wakers: &mut Vec<Waker>) {
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.reset = true;
            pipe.flight.clear();
            wakers.extend(pipe.reader.take().into_iter().chain(pipe.writer.take()));
        }
    }

    /// Delivers everything that has arrived on one pipe.
    fn bring(&mut self, id: u64, wakers: &mut Vec<Waker>) {
        let Some(pipe) = self.pipes.get(&id) else { return };
        if self.is_cut_off_at(pipe.from, pipe.to) {
            return;
        }
        let now_ms = self.now_ms;
        let other = pipe.other;
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let mut refused = false;
        while pipe.flight.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let Some((_, item)) = pipe.flight.pop_front() else { break };
            match item {
                Item::Bytes(bytes) if pipe.reader_gone => {
                    pipe.flight_bytes -= bytes.len();
                    refused = true;
                }
                Item::Bytes(bytes) => {
                    pipe.flight_bytes -= bytes.len();
                    self.trace.bytes(id, &bytes);
                    pipe.arrived.extend(bytes);
                }
                Item::End => pipe.ended = true,
            }
            wakers.extend(pipe.reader.take());
        }
        if refused {
            self.reset(id, wakers);
            self.reset(other, wakers);
        }
    }

    fn make_connections(&mut self, net: &Net, wakers: &mut Vec<Waker>) {
        let due: Vec<u64> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.result.is_none() && attempt.at_ms <= self.now_ms)
            .filter(|(_, attempt)| {
                let from = attempt.from;
                let to = attempt.to.ip();
                let is_severed = self.severed.contains(&attempt.to);
                !is_severed && !self.is_cut_off(from, to) && !self.is_cut_off(to, from)
            })
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            let Some(attempt) = self.attempts.get(&id) else { continue };
            let from = attempt.from;
            let to = attempt.to;
            let result = if self.listeners.contains_key(&to) {
                let near = SocketAddr::new(from, self.free_port());
                let (client, server) = self.pair(net, near, to);
                if let Some(backlog) = self.listeners.get_mut(&to) {
                    backlog.waiting.push_back(server);
                    wakers.extend(backlog.waker.take());
                }
                Ok(client)
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            };
            if let Some(attempt) = self.attempts.get_mut(&id) {
                attempt.result = Some(result);
                wakers.extend(attempt.waker.take());
            }
        }
    }

    /// The two ends of a new connection.
    fn pair(&mut self, net: &Net, near: SocketAddr, far: SocketAddr) -> (Socket, Socket) {
        let there = self.number();
        let back = self.number();
        for (id, other, from, to) in [(there, back, near, far), (back, there, far, near)] {
            let pipe = Pipe {
                from,
                to,
                other,
                flight: VecDeque::new(),
                flight_bytes: 0,
                arrived: VecDeque::new(),
                ended: false,
                reset: false,
                reader_gone: false,
                writer_gone: false,
                reader: None,
                writer: None,
            };
            self.pipes.insert(id, pipe);
        }
        let end = |local, peer, read, write| Socket {
            local,
            peer,
            read: Box::new(ReadEnd { net: net.clone(), id: read }),
            write: Box::new(WriteEnd { net: net.clone(), id: write }),
        };
        (end(near, far, back, there), end(far, near, there, back))
    }

    /// Sends bytes or an end on a pipe.
    fn send(&mut self, id: u64, item: Item) {
        let Some(pipe) = self.pipes.get(&id) else { return };
        let from = pipe.from.ip();
        let to = pipe.to.ip();
        if self.down.contains(&from) {
            return;
        }
        let delay = self.delay(from, to);
        let now_ms = crate::host::now_ms();
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let earliest = pipe.flight.back().map_or(0, |(at_ms, _)| *at_ms);
        if let Item::Bytes(bytes) = &item {
            pipe.flight_bytes += bytes.len();
        }
        pipe.flight.push_back(((now_ms + delay).max(earliest), item));
        self.flying.insert(id);
        self.busy = true;
    }
}
