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
use crate::error::{EndReason, SendError, UNFINISHED_CODE, Violation};
use crate::frame::REASON_BYTES_MAX;
use crate::keys::{Keys, Side};
use crate::marks::Marks;
use crate::mtu::{BASE_BYTES, Mtu};
use crate::opening::Opened;
use crate::pacer::Pacer;
use crate::policy::Policy;
use crate::recovery::{Carried, Recovery, Sent};
use crate::rtt::Rtt;
use crate::streams::{Inbound, Incoming, Outbound, StreamId, message_bytes_max};
use crate::{MILLISECOND, SECOND};

/// Timeouts in a row, and time without progress, after which the path counts as silent: the window shrinks,
/// and so do datagrams. On a short path the timeouts alone are over while the peer waits for its processor.
const SILENT_TIMEOUTS: u32 = 3;
const SILENT_NS: u64 = 100 * MILLISECOND;
/// Time that the peer has for a sign of life after somebody, who may lie, said that it is gone; on a long
/// path it is this many timeouts.
const DOUBT_NS: u64 = SECOND / 2;
const DOUBT_TIMEOUTS: u64 = 4;
/// Time in which all that was sent is to arrive after this side has closed.
const FINISH_NS: u64 = 60 * SECOND;
/// Closes that are sent at most, and timeouts after which it is over. One is sent at each, as the peer, who
/// says nothing more, may not have got it.
const CLOSES_MAX: u8 = 8;
const CLOSE_TIMEOUTS: u64 = 3;

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
    marks: Marks,
    /// The time at which the last datagram that is acknowledged was sent.
    acked_sent_ns: u64,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    /// The peer's window of each stream, as it was told in the handshake.
    peer_window_bytes: u32,
    /// Streams that may have bytes to send, in the order of their turns.
    turns: VecDeque<StreamId>,
    /// That which the peer lets be in flight; it has said nothing at first.
    peer_window: Option<u64>,
    /// One past the number of the datagram that told it: what is older and comes later is out of date.
    peer_window_end: u64,
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
    /// True since the path counts as silent.
    is_silent: bool,
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
    /// The peer is told, and told again at times and when it sends something.
    Closing {
        close: bool,
        left: u8,
        again_ns: u64,
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
        let Opened { peer_id, peer_settings, keys, rtt } = opened;
        let streams = config.settings.streams.min(peer_settings.streams);
        let datagram_bytes = config.settings.datagram_bytes_max.min(peer_settings.datagram_bytes_max);
        let window = u64::from(peer_settings.window_bytes);
        let policy = config.policy.build(u64::from(BASE_BYTES), window);
        Connection {
            side: if accept.is_some() { Side::Acceptor } else { Side::Opener },
            peer_id,
            peer,
            keys,
            state: State::Open,
            rtt,
            marks: Marks::new(policy.heeds_marks()),
            acked_sent_ns: now_ns,
            policy,
            pacer: Pacer::new(now_ns),
            mtu: Mtu::new(datagram_bytes),
            recovery: Recovery::default(),
            acks: Acks::default(),
            outbound: (0..streams).map(|_| Outbound::new(window)).collect(),
            inbound: (0..streams).map(|_| Inbound::new(config.settings.window_bytes)).collect(),
            peer_window_bytes: peer_settings.window_bytes,
            turns: VecDeque::new(),
            peer_window: None,
            peer_window_end: 0,
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
            is_silent: false,
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

    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
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
        let unacked_max = self.config.unacked_bytes_max;
        let unsent_max = self.config.unsent_bytes_max;
        let outbound = self.writable(stream)?;
        if bytes > most {
            return Err(SendError::TooLong { bytes, most });
        }
        let waiting = outbound.waiting();
        let is_full = waiting > 0 && narrow(waiting).saturating_add(bytes) > narrow(unacked_max);
        if is_full || outbound.unsent() >= unsent_max.max(1) {
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

    /// The owner takes nothing any more: what has come is dropped, and so is what will.
    pub(crate) fn discard(&mut self) {
        self.inbound.iter_mut().for_each(Inbound::discard);
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
            let until_ns = now_ns + FINISH_NS;
            self.state = State::Finishing { until_ns, code, reason: fitting(reason) };
            self.close_if_done(now_ns);
        }
    }

    /// Ends the connection now. What has not arrived may never do so.
    pub(crate) fn abort(&mut self, now_ns: u64, code: u16, reason: &str) {
        self.close(now_ns, code, reason);
        if matches!(self.state, State::Finishing { .. }) {
            self.close_unfinished(now_ns, code, fitting(reason));
        }
    }

    fn close_if_done(&mut self, now_ns: u64) {
        let is_done = self.outbound.iter().all(|outbound| outbound.waiting() == 0);
        if let State::Finishing { code, reason, .. } = &mut self.state
            && is_done
        {
            let code = *code;
            let reason = std::mem::take(reason);
            self.begin_closing(now_ns, code, reason, EndReason::Closed);
        }
    }

    /// Ends the connection though something is left to send.
    fn close_unfinished(&mut self, now_ns: u64, code: u16, reason: String) {
        let code = if code == 0 { UNFINISHED_CODE } else { code };
        self.begin_closing(now_ns, code, reason, EndReason::Unfinished);
    }

    /// Nothing goes out from now on but the connection's end.
    fn begin_closing(&mut self, now_ns: u64, code: u16, reason: String, why: EndReason) {
        self.outbound.iter_mut().for_each(Outbound::clear);
        self.turns.clear();
        let timeout = self.rtt.timeout();
        let again_ns = now_ns + timeout;
        let until_ns = now_ns + CLOSE_TIMEOUTS * timeout;
        self.state = State::Closing { close: true, left: CLOSES_MAX, again_ns, until_ns, code, reason };
        self.news.push_back(News::Ended(why));
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
        let reason = violation.to_string();
        self.begin_closing(now_ns, violation.code(), reason, EndReason::Violated(violation));
    }

    /// Somebody says that the peer is gone: the system, or who is now at its address. It may be a lie.
    pub(crate) fn handle_doubt(&mut self, now_ns: u64) {
        if matches!(self.state, State::Open | State::Finishing { .. }) && self.doubt_ns.is_none() {
            self.doubt_ns = Some(now_ns + DOUBT_NS.max(DOUBT_TIMEOUTS * self.rtt.timeout()));
            self.control.ping = true;
        }
    }

    /// The opener repeats the handshake: it has not got the Accept.
    pub(crate) fn handle_open_again(&mut self) {
        self.control.resend_accept = self.control.accept.is_some();
        if let State::Closing { close, .. } = &mut self.state {
            *close = true;
        }
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        let timeout = self.rtt.timeout();
        match &mut self.state {
            State::Over => return,
            State::Closing { until_ns, .. } if now_ns >= *until_ns => return self.end(EndReason::Closed),
            State::Closing { again_ns, close, .. } => {
                if now_ns >= *again_ns {
                    (*again_ns, *close) = (now_ns + timeout, true);
                }
                return;
            }
            State::Finishing { until_ns, code, reason } if now_ns >= *until_ns => {
                let code = *code;
                let reason = std::mem::take(reason);
                return self.close_unfinished(now_ns, code, reason);
            }
            State::Open | State::Finishing { .. } => {}
        }
        if now_ns >= self.silent_at() {
            let silent_ms = now_ns.saturating_sub(self.heard_ns) / MILLISECOND;
            let is_opened = self.control.accept.is_none();
            return self.end(if is_opened { EndReason::Silent(silent_ms) } else { EndReason::NotOpened });
        }
        if let Some(since_ns) = self.waits_since()
            && now_ns >= since_ns.saturating_add(self.config.silence_ns)
        {
            return self.end(EndReason::Stuck((now_ns - since_ns) / MILLISECOND));
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
        self.marks.on_timeouts(self.recovery.timeouts());
        let is_silent = self.recovery.timeouts() >= SILENT_TIMEOUTS && now_ns >= self.progress_ns + SILENT_NS;
        if is_silent && !std::mem::replace(&mut self.is_silent, true) {
            self.policy.on_silence();
            return self.handle_black_hole(now_ns);
        }
        if self.policy.goes_back() {
            let all = self.recovery.take_all();
            all.iter().for_each(|sent| self.repair(sent));
        } else if let Some(oldest) = self.recovery.oldest() {
            let carried = oldest.carried.clone();
            carried.iter().for_each(|carried| self.send_again(carried));
        }
    }

    /// Datagrams may be too long for the path: all goes out in shorter ones.
    fn handle_black_hole(&mut self, now_ns: u64) {
        if self.mtu.on_black_hole(now_ns) {
            self.policy.on_datagram_bytes(u64::from(self.mtu.current()));
        }
        let all = self.recovery.take_all();
        all.iter().for_each(|sent| self.repair(sent));
    }

    fn find_lost(&mut self, now_ns: u64) {
        let lost =
            self.recovery.take_lost(now_ns, &self.rtt, self.policy.reordering(), self.policy.goes_back());
        let of_data = || lost.iter().filter(|sent| !sent.is_probe());
        if let Some(sent_ns) = of_data().map(|sent| sent.sent_ns).max() {
            self.policy.on_lost(now_ns, sent_ns);
        }
        lost.iter().for_each(|sent| self.repair(sent));
        // What is short may well have arrived meanwhile.
        if let Some(bytes) =
            of_data().map(|sent| sent.bytes).filter(|bytes| *bytes > u64::from(BASE_BYTES)).min()
            && self.mtu.on_lost(bytes)
        {
            self.handle_black_hole(now_ns);
        }
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
            Carried::Ack(_) | Carried::MtuProbe(_) => {}
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

    /// Since when something that was sent waits to arrive: anything that is in flight, and the first byte of
    /// each stream, whatever else arrives. What the peer's owner does not take has arrived, so an owner that
    /// is slow, or never takes anything, lets nothing wait.
    fn waits_since(&self) -> Option<u64> {
        let in_flight = (self.recovery.in_flight() > 0).then_some(self.progress_ns);
        let of_streams = self.outbound.iter().filter_map(Outbound::waits_since);
        of_streams.chain(in_flight).min()
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
            State::Closing { again_ns, until_ns, .. } => return Some(until_ns.min(again_ns)),
            State::Open | State::Finishing { .. } => {}
        }
        let finished_at = match self.state {
            State::Finishing { until_ns, .. } => Some(until_ns),
            _ => None,
        };
        let all = [
            finished_at,
            Some(self.silent_at()),
            self.waits_since().map(|since_ns| since_ns.saturating_add(self.config.silence_ns)),
            self.recovery.deadline(&self.rtt),
            self.acks.due_ns(),
            self.paced_ns,
            Some(self.lively_until()),
        ];
        all.into_iter().flatten().min()
    }
}

/// As much of a reason as fits into a Close.
fn fitting(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned()
}
