//! Datagrams that come.

use std::net::SocketAddr;

use crate::connection::{Connection, NewPath, News, State};
use crate::error::{EndReason, Violation};
use crate::frame::{Ack, Frame, decode_frames};
use crate::keys::Side;
use crate::mtu::Mtu;
use crate::policy::Acked;
use crate::recovery::{Carried, Sent};
use crate::rtt::Rtt;
use crate::streams::StreamId;
use crate::transmit::Ecn;

impl Connection {
    /// Takes a Data for this connection; `low_bits` is what its header has of its number.
    pub(crate) fn handle_data(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        ecn: Ecn,
        low_bits: u32,
        datagram: &mut [u8],
    ) {
        // Only the opener may move: the acceptor is where it was called.
        if self.is_over() || (self.side == Side::Opener && from != self.peer) {
            return;
        }
        let number = self.acks.expand(low_bits);
        if !self.acks.is_new(number) {
            return;
        }
        let length = datagram.len();
        let Some(content) = self.keys.open(number, datagram) else { return };
        if let State::Closing { close, .. } = &mut self.state {
            *close = true;
            // What the peer says of its own end is heard; the rest comes too late.
            if decode_frames(content).flatten().any(|frame| matches!(frame, Frame::Close { .. })) {
                self.end(EndReason::Closed);
            }
            return;
        }
        // Nothing is done before all is understood, and can be kept: else the datagram counts as lost.
        if decode_frames(content).any(|frame| frame.is_none()) {
            return self.end_violated(now_ns, Violation::Malformed);
        }
        let frames = || decode_frames(content).flatten();
        if !frames().all(|frame| self.has_room(&frame)) {
            return;
        }
        let asks = frames().any(|frame| frame.asks());
        if self.acks.is_newest(number) {
            self.handle_address(from, length);
        }
        self.acks.on_arrived(now_ns, number, asks);
        self.marks.on_arrived(ecn);
        if ecn == Ecn::Marked || frames().any(|frame| matches!(frame, Frame::Ping)) {
            self.acks.hurry(now_ns);
        }
        (self.heard_ns, self.doubt_ns, self.control.accept) = (now_ns, None, None);
        for frame in frames() {
            if let Err(violation) = self.handle_frame(now_ns, from, number, frame) {
                return self.end_violated(now_ns, violation);
            }
            if self.is_over() {
                return;
            }
        }
        self.close_if_done(now_ns);
    }

    fn has_room(&self, frame: &Frame<'_>) -> bool {
        match frame {
            Frame::Stream { stream, offset, .. } => {
                self.inbound.get(usize::from(*stream)).is_none_or(|inbound| inbound.has_room(*offset))
            }
            _ => true,
        }
    }

    /// The newest datagram came from this address.
    fn handle_address(&mut self, from: SocketAddr, length: usize) {
        if from == self.peer {
            return;
        }
        if let Some(path) = self.path.as_mut().filter(|path| path.address == from) {
            (path.allowed, path.send) = (length, true);
            return;
        }
        self.paths += 1;
        let challenge = self.keys.challenge(self.paths);
        self.path = Some(NewPath { address: from, challenge, allowed: length, send: true });
    }

    fn handle_frame(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        number: u64,
        frame: Frame<'_>,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Ping => {}
            Frame::Ack(ack) => self.handle_ack(now_ns, &ack)?,
            Frame::Stream { stream, offset, bytes } => {
                let inbound = self.inbound.get_mut(usize::from(stream)).ok_or(Violation::NoStream)?;
                if inbound.handle_bytes(offset, bytes)? {
                    self.news_once(News::Readable(stream));
                }
            }
            Frame::Credit { stream, limit } => {
                let outbound = self.outbound.get_mut(usize::from(stream)).ok_or(Violation::NoStream)?;
                outbound.on_credit(limit);
                self.take_turn(stream);
            }
            Frame::Window { bytes } => {
                if number >= self.peer_window_end {
                    self.peer_window_end = number + 1;
                    self.peer_window = Some(bytes);
                    self.policy.on_receiver_window(bytes);
                }
            }
            Frame::Challenge(challenge) => self.control.response = Some(challenge),
            Frame::Response(response) => self.handle_response(from, response),
            Frame::Close { code, reason } => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.end(EndReason::ClosedByPeer { code, reason });
            }
            Frame::Marked { total } => {
                if self.marks.handle_told(total) {
                    self.policy.on_lost(now_ns, self.acked_sent_ns);
                }
            }
        }
        Ok(())
    }

    /// The peer is at its new address: what is known of the path to the former one no longer holds.
    fn handle_response(&mut self, from: SocketAddr, response: [u8; 8]) {
        if self.path.as_ref().is_none_or(|path| path.address != from || path.challenge != response) {
            return;
        }
        self.path = None;
        self.peer = from;
        // What went to the former address is not seen there; that it is lost says nothing of the new path.
        let all = self.recovery.take_all();
        all.iter().for_each(|sent| self.repair(sent));
        self.recovery.on_path();
        self.is_silent = false;
        self.rtt = Rtt::default();
        self.mtu = Mtu::new(self.mtu.most());
        let window = self.peer_window.unwrap_or(u64::from(self.peer_window_bytes));
        self.policy = self.config.policy.build(u64::from(self.mtu.current()), window);
        self.marks.begin_again(self.policy.heeds_marks());
    }

    /// The owner hears that a stream has room again, if it was refused a message.
    pub(crate) fn tell_if_writable(&mut self, stream: StreamId) {
        let outbound = &mut self.outbound[usize::from(stream)];
        if outbound.is_writable_again(self.config.unacked_bytes_max, self.config.unsent_bytes_max) {
            self.news_once(News::Writable(stream));
        }
    }

    /// The owner hears the same news once.
    fn news_once(&mut self, news: News) {
        if !self.news.contains(&news) {
            self.news.push_back(news);
        }
    }

    fn handle_ack(&mut self, now_ns: u64, ack: &Ack) -> Result<(), Violation> {
        let outcome = self.recovery.handle_ack(now_ns, ack)?;
        if let Some(sample) = outcome.sample_ns {
            self.rtt.on_sample(sample, u64::from(ack.delay_us) * crate::MICROSECOND);
        }
        let next_number = self.recovery.next_number();
        if !outcome.acked.is_empty() || !outcome.late.is_empty() {
            (self.progress_ns, self.is_silent) = (now_ns, false);
        }
        for sent in &outcome.late {
            self.handle_arrived(now_ns, sent);
        }
        for sent in &outcome.acked {
            self.acked_sent_ns = self.acked_sent_ns.max(sent.sent_ns);
            self.marks.on_acked(sent.ecn);
            self.handle_arrived(now_ns, sent);
            if !sent.is_probe() {
                self.policy.on_acked(&Acked {
                    now_ns,
                    sent_ns: sent.sent_ns,
                    number: sent.number,
                    next_number,
                    bytes: sent.bytes,
                    rtt: &self.rtt,
                    is_bound: self.is_bound,
                });
            }
        }
        if !outcome.acked.is_empty() {
            self.probes = 0;
            self.find_lost(now_ns);
        }
        Ok(())
    }

    /// That which a datagram carried has arrived.
    fn handle_arrived(&mut self, now_ns: u64, sent: &Sent) {
        if !sent.is_probe() {
            self.mtu.on_arrived(sent.bytes);
        }
        for carried in &sent.carried {
            match carried {
                Carried::Bytes(stream, range) => {
                    self.outbound[usize::from(*stream)].on_acked(now_ns, range.clone());
                    self.tell_if_writable(*stream);
                }
                Carried::MtuProbe(bytes) => {
                    if self.mtu.on_probe_acked(*bytes) {
                        self.policy.on_datagram_bytes(u64::from(*bytes));
                    }
                }
                Carried::Ack(largest) => self.acks.on_told(*largest),
                Carried::Credit(_) | Carried::Window => {}
            }
        }
    }
}
