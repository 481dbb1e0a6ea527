//! All connections of one socket.
//!
//! An acceptor keeps nothing of an opener before the opener has shown, by a cookie, that it is at its
//! address, and by a proof over the cookie, that it knows the secret of its identity. A connection that is
//! over is remembered until its cookie is, so that its Open, recorded, does not begin another.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::config::Config;
use crate::connection::Connection;
use crate::cookie::{COOKIE_NS, Cookies};
use crate::draws::Draws;
use crate::error::{EndReason, SendError};
use crate::event::{ConnectionId, Event};
use crate::keys::{Keys, Secret, Side, proofs_match};
use crate::opening::{Opened, Opening, accept_proof, base_key, open_proof};
use crate::packet::{Accept, IDENTITY_BYTES_MAX, Open, Packet, Refused, VERSION};
use crate::rtt::Rtt;
use crate::streams::{Incoming, StreamId};
use crate::transmit::{Ecn, Transmit};

/// Answers of the handshake that wait to be sent; more are dropped.
const REPLIES_MAX: usize = 64;
/// Datagrams of one connection that go before another's.
const TURN_DATAGRAMS: u32 = 64;
/// Connections that are over, for each that may be open, which are remembered.
const GONE_PER_CONNECTION: usize = 4;

/// All connections of one socket, to which this side accepts others and of which it opens some.
pub struct Endpoint {
    config: Config,
    accepts: bool,
    draws: Draws,
    cookies: Cookies,
    entries: BTreeMap<u32, Entry>,
    /// The connections of openers, by their address and number.
    openers: BTreeMap<(SocketAddr, u32), u32>,
    /// The open connections, by the peer's address and its number of them.
    peers: BTreeMap<(SocketAddr, u32), u32>,
    gone: usize,
    deadlines: BTreeSet<(u64, u32)>,
    /// Connections that may have datagrams to send, in the order of their turns.
    ready: VecDeque<u32>,
    /// Datagrams of the present turn.
    turn: u32,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Connections that have begun, and those that have not come to be.
    events: VecDeque<Event>,
    /// Open connections that have news, each once: these stay with the connection until they are polled.
    newsy: VecDeque<u32>,
}

struct Entry {
    stage: Stage,
    deadline: Option<u64>,
    is_ready: bool,
    is_newsy: bool,
    /// True once the owner wants to hear no more of it.
    is_released: bool,
    /// The opener's address and number, at an acceptor.
    opener: Option<(SocketAddr, u32)>,
}

enum Stage {
    Opening(Box<Opening>),
    Open(Box<Connection>),
    /// Over; remembered until its deadline.
    Gone,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("connections", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint that opens connections, and accepts those of others if `accepts`. The seed must be random:
    /// all that is drawn follows from it.
    ///
    /// # Panics
    ///
    /// If the settings are none that a peer may have: no stream, datagrams below 1200 bytes, windows below
    /// 4096.
    pub fn new(config: Config, accepts: bool, seed: [u8; 32]) -> Endpoint {
        assert!(config.settings.are_valid(), "{:?}: peers refuse such settings", config.settings);
        let draws = Draws::new(&seed);
        Endpoint {
            config,
            accepts,
            cookies: Cookies::new(draws.key("braid datagram cookies 1")),
            draws,
            entries: BTreeMap::new(),
            openers: BTreeMap::new(),
            peers: BTreeMap::new(),
            gone: 0,
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            turn: 0,
            replies: VecDeque::new(),
            events: VecDeque::new(),
            newsy: VecDeque::new(),
        }
    }

    /// Begins to open a connection with a peer who knows the identity's secret.
    ///
    /// # Panics
    ///
    /// If the identity is longer than [`IDENTITY_BYTES_MAX`](crate::format::IDENTITY_BYTES_MAX).
    pub fn open(&mut self, now_ns: u64, peer: SocketAddr, identity: &[u8], secret: Secret) -> ConnectionId {
        assert!(identity.len() <= IDENTITY_BYTES_MAX, "an identity has at most {IDENTITY_BYTES_MAX} bytes");
        let id = self.new_id();
        let nonce = self.draws.draw();
        let opening = Opening::new(now_ns, &self.config, peer, id, identity.to_vec(), secret, nonce);
        self.insert(id, Stage::Opening(Box::new(opening)), None);
        ConnectionId(id)
    }

    /// Number of connections, those that are opening or ending among them.
    pub fn connections(&self) -> usize {
        self.entries.len() - self.gone
    }

    /// Takes a datagram, which is changed. `ecn` is what its IP header said when it came; `secret_of` finds
    /// the secret of an opener's identity.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        ecn: Ecn,
        datagram: &mut [u8],
        secret_of: &mut dyn FnMut(&[u8]) -> Option<Secret>,
    ) {
        let Some(packet) = Packet::parse(datagram) else { return };
        match packet {
            Packet::Data { to, number } => match self.entries.get_mut(&to) {
                Some(Entry { stage: Stage::Open(connection), .. }) => {
                    let before = connection.peer();
                    connection.handle_data(now_ns, from, ecn, number, datagram);
                    let peer = connection.peer();
                    if peer != before {
                        let peer_id = connection.peer_id();
                        self.forget_peer((before, peer_id), to);
                        self.peers.insert((peer, peer_id), to);
                    }
                    self.touch(now_ns, to);
                }
                // An Accept may be on its way behind its first Data.
                Some(Entry { stage: Stage::Opening(_), .. }) => {}
                // The peer has not got the Close.
                Some(Entry { stage: Stage::Gone, .. }) | None => {
                    self.reply(from, &Packet::Unknown { of: to });
                }
            },
            Packet::Open(open) if self.accepts => self.handle_open(now_ns, from, &open, secret_of),
            Packet::OpenOfOtherVersion { from: to } if self.accepts => {
                self.reply(from, &Packet::Versions { to, min: VERSION, max: VERSION });
            }
            Packet::Open(_) | Packet::OpenOfOtherVersion { .. } => {}
            Packet::Unknown { of } => self.handle_unknown(now_ns, from, of),
            Packet::Retry { to, .. } | Packet::Refused { to, .. } | Packet::Versions { to, .. } => {
                self.handle_answer(now_ns, from, to, &packet);
            }
            Packet::Accept(accept) => self.handle_accept(now_ns, from, &accept),
        }
    }

    /// The system says that nothing listens at the peer's address. It may be wrong: the connection ends if
    /// the peer gives no sign of life soon.
    pub fn handle_unreachable(&mut self, now_ns: u64, id: ConnectionId) {
        match self.entries.get_mut(&id.0).map(|entry| &mut entry.stage) {
            Some(Stage::Opening(opening)) => opening.handle_refusal(now_ns, EndReason::NotOpened),
            Some(Stage::Open(connection)) => connection.handle_doubt(now_ns),
            Some(Stage::Gone) | None => {}
        }
        self.touch(now_ns, id.0);
    }

    fn handle_unknown(&mut self, now_ns: u64, from: SocketAddr, of: u32) {
        // The number is the peer's, which nobody off the path knows: guesses cost a look into a map.
        if let Some(id) = self.peers.get(&(from, of)).copied() {
            self.handle_unreachable(now_ns, ConnectionId(id));
        }
    }

    fn handle_open(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        open: &Open<'_>,
        secret_of: &mut dyn FnMut(&[u8]) -> Option<Secret>,
    ) {
        let Some(age_ns) = self.cookies.age(now_ns, from, open) else {
            let cookie = self.cookies.make(now_ns, from, open);
            return self.reply(from, &Packet::Retry { to: open.from, cookie });
        };
        let opener = (from, open.from);
        if let Some(id) = self.openers.get(&opener).copied() {
            if let Some(connection) = self.connection(ConnectionId(id)) {
                connection.handle_open_again();
                self.touch(now_ns, id);
            }
            return;
        }
        let is_proved = |secret: &Secret| proofs_match(&open_proof(secret, open), &open.proof);
        let secret = secret_of(open.identity).and_then(|secret| secret.proved(is_proved));
        let Some(secret) = secret else {
            return self.reply(from, &Packet::Refused { to: open.from, why: Refused::Unproved });
        };
        let is_full = self.gone >= GONE_PER_CONNECTION * self.config.connections;
        if is_full || self.connections() >= self.config.connections {
            return self.reply(from, &Packet::Refused { to: open.from, why: Refused::Busy });
        }
        let id = self.new_id();
        let settings = self.config.settings;
        let mut accept =
            Accept { to: open.from, from: id, settings, nonce: self.draws.draw(), proof: [0; 16] };
        let base = base_key(&secret, open, &accept);
        accept.proof = accept_proof(&base);
        let keys = Keys::new(base, Side::Acceptor);
        // The cookie went to the opener and came back, in a round trip or some more time.
        let rtt = Rtt::assumed(age_ns);
        let opened = Opened { peer_id: open.from, peer_settings: open.settings, keys, rtt };
        let accept = Packet::Accept(accept).emit();
        let connection = Connection::new(now_ns, &self.config, from, opened, Some(accept));
        self.openers.insert(opener, id);
        self.peers.insert(opener, id);
        self.insert(id, Stage::Open(Box::new(connection)), Some(opener));
        self.events.push_back(Event::Accepted(ConnectionId(id), open.identity.to_vec()));
        self.touch(now_ns, id);
    }

    /// That which an acceptor says before it accepts.
    fn handle_answer(&mut self, now_ns: u64, from: SocketAddr, to: u32, packet: &Packet<'_>) {
        let Some(Entry { stage: Stage::Opening(opening), .. }) = self.entries.get_mut(&to) else { return };
        if opening.peer != from {
            return;
        }
        match *packet {
            Packet::Retry { cookie, .. } => opening.handle_retry(now_ns, cookie),
            Packet::Refused { why, .. } => opening.handle_refusal(now_ns, EndReason::Refused(why)),
            Packet::Versions { min, max, .. } if !(min..=max).contains(&VERSION) => {
                opening.handle_refusal(now_ns, EndReason::Version { min, max });
            }
            _ => {}
        }
        self.touch(now_ns, to);
    }

    fn handle_accept(&mut self, now_ns: u64, from: SocketAddr, accept: &Accept) {
        let Some(entry) = self.entries.get_mut(&accept.to) else { return };
        let Stage::Opening(opening) = &entry.stage else { return };
        if opening.peer != from {
            return;
        }
        let Some(opened) = opening.handle_accept(now_ns, accept) else { return };
        self.peers.insert((from, opened.peer_id), accept.to);
        entry.stage = Stage::Open(Box::new(Connection::new(now_ns, &self.config, from, opened, None)));
        self.events.push_back(Event::Opened(ConnectionId(accept.to)));
        self.touch(now_ns, accept.to);
    }

    fn end_opening(&mut self, now_ns: u64, id: u32, why: EndReason) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.stage = Stage::Gone;
        self.gone += 1;
        if !entry.is_released {
            self.events.push_back(Event::Ended(ConnectionId(id), why));
        }
        self.set_deadline(id, Some(now_ns));
    }

    /// Does what is due. Call it at [`Endpoint::next_deadline`]; a call that comes late does no harm.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let due: Vec<(u64, u32)> =
            self.deadlines.iter().take_while(|(at, _)| *at <= now_ns).copied().collect();
        for (at, id) in due {
            self.deadlines.remove(&(at, id));
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.deadline = None;
            match &mut entry.stage {
                Stage::Gone => self.forget(id),
                Stage::Opening(opening) => match opening.handle_timeout(now_ns) {
                    Some(why) => self.end_opening(now_ns, id, why),
                    None => self.make_ready(id),
                },
                Stage::Open(connection) => {
                    connection.handle_timeout(now_ns);
                    self.make_ready(id);
                    self.collect(now_ns, id);
                }
            }
        }
    }

    /// The moment at which [`Endpoint::handle_timeout`] is to be called, once all datagrams and events were
    /// polled.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Appends the next datagram to `out`, and returns where and how it goes.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if let Some((to, reply)) = self.replies.pop_front() {
            out.extend_from_slice(&reply);
            return Some(Transmit::plain(to));
        }
        while let Some(&id) = self.ready.front() {
            let sent = match self.entries.get_mut(&id).map(|entry| &mut entry.stage) {
                Some(Stage::Open(connection)) => connection.poll_transmit(now_ns, out),
                Some(Stage::Opening(opening)) => {
                    opening.poll_transmit(now_ns, out).then(|| Transmit::plain(opening.peer))
                }
                Some(Stage::Gone) | None => None,
            };
            self.turn += 1;
            if sent.is_none() || self.turn >= TURN_DATAGRAMS {
                self.turn = 0;
                self.ready.pop_front();
                match self.entries.get_mut(&id) {
                    Some(_) if sent.is_some() => self.ready.push_back(id),
                    Some(entry) => {
                        entry.is_ready = false;
                        self.collect(now_ns, id);
                    }
                    None => {}
                }
            }
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(&id) = self.newsy.front() {
            if let Some(entry) = self.entries.get_mut(&id) {
                if let Stage::Open(connection) = &mut entry.stage
                    && !entry.is_released
                    && let Some(news) = connection.poll_news()
                {
                    return Some(Event::of(ConnectionId(id), news));
                }
                entry.is_newsy = false;
            }
            self.newsy.pop_front();
        }
        None
    }

    /// Sends a message. It is kept until it has arrived.
    pub fn send(&mut self, id: ConnectionId, stream: StreamId, message: Bytes) -> Result<(), SendError> {
        let sent = self.connection(id).ok_or(SendError::Ended)?.send(stream, message);
        self.make_ready(id.0);
        sent
    }

    /// Checks that a message of this length could be sent now.
    pub fn check_send(&mut self, id: ConnectionId, stream: StreamId, bytes: usize) -> Result<(), SendError> {
        self.connection(id).ok_or(SendError::Ended)?.check_send(stream, bytes).map(drop)
    }

    /// Says that no message follows on the stream.
    pub fn finish(&mut self, id: ConnectionId, stream: StreamId) -> Result<(), SendError> {
        let finished = self.connection(id).ok_or(SendError::Ended)?.finish(stream);
        self.make_ready(id.0);
        finished
    }

    /// Takes the next message of a stream; `None` if none is there.
    pub fn receive(&mut self, id: ConnectionId, stream: StreamId) -> Option<Incoming> {
        let connection = self.connection(id)?;
        let incoming = connection.receive(stream);
        if connection.owes_credit() {
            self.make_ready(id.0);
        }
        incoming
    }

    /// Returns true if [`Endpoint::poll_transmit`] may have something.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// Tells the peer that it may have so many bytes in flight to this side: a receiver's credit.
    pub fn set_window(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(connection) = self.connection(id) {
            connection.set_window(bytes);
            self.make_ready(id.0);
        }
    }

    /// Paces what this side sends by an admitted rate, in bytes per second; `None`: as the policy does.
    pub fn set_rate(&mut self, id: ConnectionId, rate: Option<u64>) {
        if let Some(connection) = self.connection(id) {
            connection.set_rate(rate);
            self.make_ready(id.0);
        }
    }

    /// Ends the connection, once all that was sent has arrived. Code 0 says: no fault.
    pub fn close(&mut self, now_ns: u64, id: ConnectionId, code: u16, reason: &str) {
        self.close_opening(now_ns, id);
        if let Some(connection) = self.connection(id) {
            connection.close(now_ns, code, reason);
            self.touch(now_ns, id.0);
        }
    }

    /// Ends the connection now, whatever has not arrived ([`EndReason::Unfinished`]).
    pub fn abort(&mut self, now_ns: u64, id: ConnectionId, code: u16, reason: &str) {
        self.close_opening(now_ns, id);
        if let Some(connection) = self.connection(id) {
            connection.abort(now_ns, code, reason);
            self.touch(now_ns, id.0);
        }
    }

    /// A connection that is not open yet will not be.
    fn close_opening(&mut self, now_ns: u64, id: ConnectionId) {
        if let Some(Entry { stage: Stage::Opening(_), .. }) = self.entries.get(&id.0) {
            self.end_opening(now_ns, id.0, EndReason::Closed);
        }
    }

    /// Says that the owner has no more use for the connection: it is forgotten as soon as it is at its end,
    /// and what comes until then is not kept. One that is not closed is closed.
    pub fn release(&mut self, now_ns: u64, id: ConnectionId) {
        let Some(entry) = self.entries.get_mut(&id.0) else { return };
        entry.is_released = true;
        match &mut entry.stage {
            Stage::Opening(_) => self.close_opening(now_ns, id),
            Stage::Open(connection) => {
                connection.discard();
                connection.close(now_ns, 0, "");
                self.touch(now_ns, id.0);
            }
            Stage::Gone => {}
        }
    }

    /// Returns true until the connection is over, and released.
    pub fn has(&self, id: ConnectionId) -> bool {
        self.entries.get(&id.0).is_some_and(|entry| !matches!(entry.stage, Stage::Gone))
    }

    /// Returns true if a peer of an open connection is at this address.
    pub fn has_peer(&self, peer: SocketAddr) -> bool {
        self.peers.range((peer, 0)..=(peer, u32::MAX)).next().is_some()
    }

    /// Number of streams of a connection; 0 if it is not open.
    pub fn streams(&self, id: ConnectionId) -> u16 {
        self.open_connection(id).map_or(0, Connection::streams)
    }

    /// The longest message that the peer takes; 0 if the connection is not open.
    pub fn message_bytes_max(&self, id: ConnectionId) -> usize {
        self.open_connection(id).map_or(0, Connection::message_bytes_max)
    }

    /// The peer's address; `None` if the connection is not open.
    pub fn peer(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.open_connection(id).map(Connection::peer)
    }

    /// The smoothed round-trip time, in nanoseconds, and the length of the datagrams that are sent.
    pub fn path(&self, id: ConnectionId) -> Option<(u64, u16)> {
        self.open_connection(id).map(|connection| (connection.rtt_ns(), connection.datagram_bytes()))
    }

    /// A datagram of the connection with this content, whatever it is, as a hostile peer may send it.
    #[cfg(any(test, feature = "hostile"))]
    pub fn forge(&mut self, now_ns: u64, id: ConnectionId, content: &[u8]) -> Option<Vec<u8>> {
        self.connection(id).map(|connection| connection.forge(now_ns, content))
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        match &mut self.entries.get_mut(&id.0)?.stage {
            Stage::Open(connection) => Some(connection),
            Stage::Opening(_) | Stage::Gone => None,
        }
    }

    fn open_connection(&self, id: ConnectionId) -> Option<&Connection> {
        match &self.entries.get(&id.0)?.stage {
            Stage::Open(connection) => Some(connection),
            Stage::Opening(_) | Stage::Gone => None,
        }
    }

    fn insert(&mut self, id: u32, stage: Stage, opener: Option<(SocketAddr, u32)>) {
        let entry =
            Entry { stage, deadline: None, is_ready: false, is_newsy: false, is_released: false, opener };
        self.entries.insert(id, entry);
        self.make_ready(id);
    }

    /// Something has happened to a connection.
    fn touch(&mut self, now_ns: u64, id: u32) {
        self.make_ready(id);
        self.collect(now_ns, id);
    }

    fn make_ready(&mut self, id: u32) {
        if let Some(entry) = self.entries.get_mut(&id)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Takes a connection's news and its deadline; and the connection, if it is over and released.
    fn collect(&mut self, now_ns: u64, id: u32) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let is_released = entry.is_released;
        let deadline = match &mut entry.stage {
            Stage::Gone => return,
            Stage::Opening(opening) => Some(opening.deadline()),
            Stage::Open(connection) => {
                if connection.has_news() && !is_released && !std::mem::replace(&mut entry.is_newsy, true) {
                    self.newsy.push_back(id);
                }
                match connection.is_over() && is_released {
                    false => connection.deadline(),
                    true => {
                        let peer = (connection.peer(), connection.peer_id());
                        entry.stage = Stage::Gone;
                        self.gone += 1;
                        let until_ns = if entry.opener.is_some() { now_ns + COOKIE_NS } else { now_ns };
                        self.forget_peer(peer, id);
                        Some(until_ns)
                    }
                }
            }
        };
        self.set_deadline(id, deadline);
    }

    fn set_deadline(&mut self, id: u32, deadline: Option<u64>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.deadline == deadline {
            return;
        }
        if let Some(before) = std::mem::replace(&mut entry.deadline, deadline) {
            self.deadlines.remove(&(before, id));
        }
        self.deadlines.extend(deadline.map(|at| (at, id)));
    }

    fn forget(&mut self, id: u32) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.gone -= usize::from(matches!(entry.stage, Stage::Gone));
        if let Some(opener) = entry.opener {
            self.openers.remove(&opener);
        }
    }

    fn forget_peer(&mut self, peer: (SocketAddr, u32), id: u32) {
        if self.peers.get(&peer) == Some(&id) {
            self.peers.remove(&peer);
        }
    }

    fn reply(&mut self, to: SocketAddr, packet: &Packet<'_>) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, packet.emit()));
        }
    }

    fn new_id(&mut self) -> u32 {
        loop {
            let drawn = self.draws.draw();
            let id = u32::from_le_bytes(*drawn.first_chunk().expect("32 bytes have a first 4"));
            if id != 0 && !self.entries.contains_key(&id) {
                return id;
            }
        }
    }
}
