//! One connection, from the end of its handshake on.
//!
//! A connection is open, closing (all is to arrive, then the peer is told), or over. It has no socket: see
//! [`Endpoint`](crate::Endpoint), which has the only references to it.

mod incoming;
mod outgoing;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;

use crate::acks::Acks;
use crate::codec::narrow;
use crate::config::Config;
use crate::error::{EndReason, SendError, Violation};
use crate::frame::REASON_BYTES_MAX;
use crate::keys::{Keys, Side};
use crate::mtu::{BASE_BYTES, Mtu};
use crate::opening::Opened;
use crate::pacer::Pacer;
use crate::policy::Policy;
use crate::recovery::{Carried, Recovery, Sent};
use crate::rtt::Rtt;
use crate::streams::{Inbound, Incoming, Outbound, StreamId, message_bytes_max};
use crate::{MILLISECOND, SECOND};

/// Timeouts in a row after which the path counts as silent: the window shrinks, and so do datagrams.
const SILENT_TIMEOUTS: u32 = 3;
/// Time that the peer has for a sign of life after somebody, who may lie, said that it is gone.
const DOUBT_NS: u64 = SECOND / 2;
/// Time in which all that was sent is to arrive after this side has closed.
const FINISH_NS: u64 = 60 * SECOND;
/// Closes that are sent at most.
const CLOSES_MAX: u8 = 8;

/// News for the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    Readable(StreamId),
    Writable(StreamId),
    Ended(EndReason),
}

/// A connection that is open or ending.
#[derive(Debug)]
pub(crate) struct Connection {
    side: Side,
    config: Config,
    peer_id: u32,
    peer: SocketAddr,
    keys: Keys,
    state: State,
    rtt: Rtt,
    policy: Box<dyn Policy>,
    pacer: Pacer,
    mtu: Mtu,
    recovery: Recovery,
    acks: Acks,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    /// The peer's window of each stream, as it was told in the handshake.
    peer_window_bytes: u32,
    /// Streams that may have bytes to send, in the order of their turns.
    turns: VecDeque<StreamId>,
    /// That which the peer lets be in flight; it has said nothing at first.
    peer_window: Option<u64>,
    control: Control,
    /// Datagrams that may go out whatever the window is, as nothing has arrived for long.
    probes: u8,
    /// The moment at which the pacer lets the next datagram go.
    paced_ns: Option<u64>,
    /// True since the window, not the owner, bounded what was sent.
    is_bound: bool,
    heard_ns: u64,
    /// The last time that something arrived of what was sent, or that something was sent with nothing in
    /// flight.
    progress_ns: u64,
    /// The end of the time that the peer has for a sign of life.
    doubt_ns: Option<u64>,
    /// The path to a new address of the peer that is being checked.
    path: Option<NewPath>,
    paths: u64,
    news: VecDeque<News>,
}

/// That which is to be sent beside streams.
#[derive(Debug, Default)]
struct Control {
    ping: bool,
    /// Streams whose credit the peer is to be told.
    credits: BTreeSet<StreamId>,
    /// The window to tell the peer, and whether it is to be told (again).
    window: Option<(u64, bool)>,
    response: Option<[u8; 8]>,
    /// The handshake's last datagram, until the opener is heard to have it.
    accept: Option<Vec<u8>>,
    resend_accept: bool,
}

#[derive(Debug)]
enum State {
    Open,
    /// Once all has arrived the peer is told the code and the reason.
    Finishing {
        until_ns: u64,
        code: u16,
        reason: String,
    },
    /// The peer is told, and told again when it sends something.
    Closing {
        close: bool,
        left: u8,
        until_ns: u64,
        code: u16,
        reason: String,
    },
    Over,
}

/// An address that datagrams of the peer have come from, and that has not answered a challenge yet.
#[derive(Debug)]
struct NewPath {
    address: SocketAddr,
    challenge: [u8; 8],
    /// Bytes that may be sent there: as many as came from there.
    allowed: usize,
    send: bool,
}

impl Connection {
    pub(crate) fn new(
        now_ns: u64,
        config: &Config,
        peer: SocketAddr,
        opened: Opened,
        accept: Option<Vec<u8>>,
    ) -> Connection {
        let Opened { peer_id, peer_settings, keys, sent_ns } = opened;
        let streams = config.settings.streams.min(peer_settings.streams);
        let datagram_bytes = config.settings.datagram_bytes_max.min(peer_settings.datagram_bytes_max);
        let mut rtt = Rtt::default();
        if let Some(sent_ns) = sent_ns {
            rtt.on_sample(now_ns.saturating_sub(sent_ns).max(1), 0);
        }
        let window = u64::from(peer_settings.window_bytes);
        Connection {
            side: if accept.is_some() { Side::Acceptor } else { Side::Opener },
            peer_id,
            peer,
            keys,
            state: State::Open,
            rtt,
            policy: config.policy.build(u64::from(BASE_BYTES), window),
            pacer: Pacer::new(now_ns),
            mtu: Mtu::new(datagram_bytes),
            recovery: Recovery::default(),
            acks: Acks::default(),
            outbound: (0..streams).map(|_| Outbound::new(window)).collect(),
            inbound: (0..streams).map(|_| Inbound::new(config.settings.window_bytes)).collect(),
            peer_window_bytes: peer_settings.window_bytes,
            turns: VecDeque::new(),
            peer_window: None,
            // The acceptor knows from the opener's first datagram that it has the Accept.
            control: Control {
                ping: accept.is_none(),
                resend_accept: accept.is_some(),
                accept,
                ..Control::default()
            },
            probes: 0,
            paced_ns: None,
            is_bound: false,
            heard_ns: now_ns,
            progress_ns: now_ns,
            doubt_ns: None,
            path: None,
            paths: 0,
            news: VecDeque::new(),
            config: config.clone(),
        }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's number of the connection.
    pub(crate) fn peer_id(&self) -> u32 {
        self.peer_id
    }

    pub(crate) fn rtt_ns(&self) -> u64 {
        self.rtt.smoothed()
    }

    pub(crate) fn datagram_bytes(&self) -> u16 {
        self.mtu.current()
    }

    pub(crate) fn streams(&self) -> u16 {
        u16::try_from(self.outbound.len()).expect("it was a u16")
    }

    /// The longest message that the peer takes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        message_bytes_max(self.peer_window_bytes)
    }

    /// Returns true if the connection is over and has nothing more to send.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    pub(crate) fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    pub(crate) fn send(&mut self, stream: StreamId, message: Bytes) -> Result<(), SendError> {
        self.check_send(stream, message.len())?.put(message);
        self.take_turn(stream);
        Ok(())
    }

    /// Checks that a message of this length can be sent now. If it is refused, there is news when it can.
    pub(crate) fn check_send(&mut self, stream: StreamId, bytes: usize) -> Result<&mut Outbound, SendError> {
        let most = self.message_bytes_max();
        let unsent_max = self.config.unsent_bytes_max;
        let outbound = self.writable(stream)?;
        if bytes > most {
            return Err(SendError::TooLong { bytes, most });
        }
        let waiting = outbound.waiting();
        if waiting > 0 && narrow(waiting).saturating_add(bytes) > narrow(unsent_max) {
            outbound.on_refused();
            return Err(SendError::Full { waiting });
        }
        Ok(outbound)
    }

    /// No more messages follow on the stream.
    pub(crate) fn finish(&mut self, stream: StreamId) -> Result<(), SendError> {
        self.writable(stream)?.finish();
        self.take_turn(stream);
        Ok(())
    }

    fn writable(&mut self, stream: StreamId) -> Result<&mut Outbound, SendError> {
        let streams = self.streams();
        let is_open = matches!(self.state, State::Open);
        let outbound = self.outbound.get_mut(usize::from(stream));
        let outbound = outbound.ok_or(SendError::NoStream { stream, streams })?;
        if !is_open || outbound.is_finished() {
            return Err(SendError::Ended);
        }
        Ok(outbound)
    }

    /// The next message of the stream. What has arrived can be taken after the connection's end, too.
    pub(crate) fn receive(&mut self, stream: StreamId) -> Option<Incoming> {
        let inbound = self.inbound.get_mut(usize::from(stream))?;
        let incoming = inbound.receive();
        if inbound.owes_credit() && !self.is_over() {
            self.control.credits.insert(stream);
        }
        incoming
    }

    /// Returns true if the peer is to be told of credit.
    pub(crate) fn owes_credit(&self) -> bool {
        !self.control.credits.is_empty()
    }

    /// The sender may have so many bytes in flight to this side.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        if self.control.window.is_none_or(|(told, _)| told != bytes) {
            self.control.window = Some((bytes, true));
        }
    }

    /// That which this side sends is paced by this rate from now on, in bytes per second.
    pub(crate) fn set_rate(&mut self, rate: Option<u64>) {
        self.config.rate = rate;
    }

    /// Ends the connection, once all that was sent has arrived.
    pub(crate) fn close(&mut self, now_ns: u64, code: u16, reason: &str) {
        if matches!(self.state, State::Open) {
            let reason = String::from_utf8_lossy(&reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)]);
            let until_ns = now_ns + FINISH_NS;
            self.state = State::Finishing { until_ns, code, reason: reason.into_owned() };
            self.close_if_done(now_ns);
        }
    }

    /// Ends the connection now. What has not arrived may never do so.
    pub(crate) fn abort(&mut self, now_ns: u64, code: u16, reason: &str) {
        self.close(now_ns, code, reason);
        if matches!(self.state, State::Finishing { .. }) {
            self.outbound.iter_mut().for_each(Outbound::clear);
            self.close_if_done(now_ns);
        }
    }

    fn close_if_done(&mut self, now_ns: u64) {
        let is_done = self.outbound.iter().all(|outbound| outbound.waiting() == 0);
        if let State::Finishing { code, reason, .. } = &mut self.state
            && is_done
        {
            let code = *code;
            let reason = std::mem::take(reason);
            let until_ns = now_ns + 3 * self.rtt.timeout();
            self.state = State::Closing { close: true, left: CLOSES_MAX, until_ns, code, reason };
            self.news.push_back(News::Ended(EndReason::Closed));
        }
    }

    /// The connection ends here and now, without another word to the peer.
    fn end(&mut self, why: EndReason) {
        let was_told = matches!(self.state, State::Closing { .. } | State::Over);
        self.state = State::Over;
        self.outbound.iter_mut().for_each(Outbound::clear);
        self.turns.clear();
        self.recovery.take_all();
        if !was_told {
            self.news.push_back(News::Ended(why));
        }
    }

    /// The peer has done what it may not do: it is told, and the connection ends.
    fn end_violated(&mut self, now_ns: u64, violation: Violation) {
        if matches!(self.state, State::Closing { .. } | State::Over) {
            return;
        }
        self.outbound.iter_mut().for_each(Outbound::clear);
        self.turns.clear();
        let until_ns = now_ns + 3 * self.rtt.timeout();
        let reason = violation.to_string();
        self.state =
            State::Closing { close: true, left: CLOSES_MAX, until_ns, code: violation.code(), reason };
        self.news.push_back(News::Ended(EndReason::Violated(violation)));
    }

    /// Somebody says that the peer is gone: the system, or who is now at its address. It may be a lie.
    pub(crate) fn handle_doubt(&mut self, now_ns: u64) {
        if matches!(self.state, State::Open | State::Finishing { .. }) && self.doubt_ns.is_none() {
            self.doubt_ns = Some(now_ns + DOUBT_NS);
            self.control.ping = true;
        }
    }

    /// The opener repeats the handshake: it has not got the Accept.
    pub(crate) fn handle_open_again(&mut self) {
        self.control.resend_accept = self.control.accept.is_some();
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        match self.state {
            State::Over => return,
            State::Closing { until_ns, .. } => {
                if now_ns >= until_ns {
                    self.end(EndReason::Closed);
                }
                return;
            }
            State::Finishing { until_ns, .. } if now_ns >= until_ns => {
                self.outbound.iter_mut().for_each(Outbound::clear);
                return self.close_if_done(now_ns);
            }
            State::Open | State::Finishing { .. } => {}
        }
        if now_ns >= self.silent_at() {
            let silent_ms = now_ns.saturating_sub(self.heard_ns) / MILLISECOND;
            let is_opened = self.control.accept.is_none();
            return self.end(if is_opened { EndReason::Silent(silent_ms) } else { EndReason::NotOpened });
        }
        if self.stuck_at().is_some_and(|at| now_ns >= at) {
            return self.end(EndReason::Stuck(now_ns.saturating_sub(self.progress_ns) / MILLISECOND));
        }
        self.find_lost(now_ns);
        if self.recovery.is_timeout(now_ns, &self.rtt) {
            self.handle_retransmission_timeout(now_ns);
        }
        self.control.ping |= now_ns >= self.lively_until();
        self.paced_ns = None;
    }

    /// Nothing has arrived for a timeout: the oldest goes out again, to be acknowledged.
    fn handle_retransmission_timeout(&mut self, now_ns: u64) {
        self.probes = if self.policy.goes_back() { 1 } else { 2 };
        if self.recovery.timeouts() == SILENT_TIMEOUTS {
            self.policy.on_silence();
            if self.mtu.on_black_hole(now_ns) {
                self.policy.on_datagram_bytes(u64::from(self.mtu.current()));
            }
            // Datagrams may have been too long for the path: all goes out in shorter ones.
            let all = self.recovery.take_all();
            return all.iter().for_each(|sent| self.repair(sent));
        }
        if self.policy.goes_back() {
            let all = self.recovery.take_all();
            all.iter().for_each(|sent| self.repair(sent));
        } else if let Some(oldest) = self.recovery.oldest() {
            let carried = oldest.carried.clone();
            carried.iter().for_each(|carried| self.send_again(carried));
        }
    }

    fn find_lost(&mut self, now_ns: u64) {
        let lost =
            self.recovery.take_lost(now_ns, &self.rtt, self.policy.reordering(), self.policy.goes_back());
        let of_data = lost.iter().filter(|sent| !sent.is_probe()).map(|sent| sent.sent_ns).max();
        if let Some(sent_ns) = of_data {
            self.policy.on_lost(now_ns, sent_ns);
        }
        lost.iter().for_each(|sent| self.repair(sent));
    }

    /// A datagram was lost: what it carried is to be sent again.
    fn repair(&mut self, lost: &Sent) {
        for carried in &lost.carried {
            match carried {
                Carried::MtuProbe(bytes) => self.mtu.on_probe_lost(*bytes),
                carried => self.send_again(carried),
            }
        }
    }

    fn send_again(&mut self, carried: &Carried) {
        match carried {
            Carried::Bytes(stream, range) => {
                self.outbound[usize::from(*stream)].on_lost(range.clone());
                self.take_turn(*stream);
            }
            Carried::Credit(stream) => _ = self.control.credits.insert(*stream),
            Carried::Window => {
                self.control.window = self.control.window.map(|(bytes, _)| (bytes, true));
            }
            Carried::MtuProbe(_) => {}
        }
    }

    /// The stream may have bytes to send: it is in line, once.
    fn take_turn(&mut self, stream: StreamId) {
        if self.outbound[usize::from(stream)].can_send() && !self.turns.contains(&stream) {
            self.turns.push_back(stream);
        }
    }

    /// The moment at which the peer has been silent for too long.
    fn silent_at(&self) -> u64 {
        let most = if self.control.accept.is_some() { self.config.open_ns } else { self.config.silence_ns };
        let at = self.heard_ns.saturating_add(most);
        self.doubt_ns.map_or(at, |doubt| doubt.min(at))
    }

    /// The moment at which what is in flight has made no progress for too long.
    fn stuck_at(&self) -> Option<u64> {
        (self.recovery.in_flight() > 0).then(|| self.progress_ns.saturating_add(self.config.silence_ns))
    }

    /// The moment at which the peer is asked for a sign of life, unless something is in flight that asks.
    fn lively_until(&self) -> u64 {
        match self.recovery.in_flight() {
            0 => self.heard_ns.saturating_add(self.config.keep_alive_ns),
            _ => u64::MAX,
        }
    }

    /// The moment at which [`Connection::handle_timeout`] is to be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Over => return None,
            State::Closing { until_ns, .. } => return Some(until_ns),
            State::Open | State::Finishing { .. } => {}
        }
        let finished_at = match self.state {
            State::Finishing { until_ns, .. } => Some(until_ns),
            _ => None,
        };
        let all = [
            finished_at,
            Some(self.silent_at()),
            self.stuck_at(),
            self.recovery.deadline(&self.rtt),
            self.acks.due_ns(),
            self.paced_ns,
            Some(self.lively_until()),
        ];
        all.into_iter().flatten().min()
    }
}
