//! Datagrams that go.

use smallvec::SmallVec;

use crate::SECOND;
use crate::codec::{low, wide};
use crate::connection::{Connection, State};
use crate::frame::{Frame, STREAM_HEAD_BYTES, put_stream_head};
use crate::packet::{DATA_HEADER_BYTES, TAG_BYTES, emit_data_header};
use crate::recovery::{Carried, Sent};
use crate::transmit::{Ecn, Transmit};

/// Fewer bytes of a stream than this are not put into what is left of a datagram.
const PIECE_BYTES_MIN: usize = 64;
/// Bytes that control frames take at most in one datagram, so that acknowledgements and data fit too.
const CONTROL_BYTES_MAX: usize = 400;

/// A datagram that is being put together.
struct Draft {
    begin: usize,
    /// Number of bytes that it may have without its tag.
    room: usize,
    /// True if the peer is to acknowledge it.
    asks: bool,
    ecn: Ecn,
    carried: SmallVec<[Carried; 2]>,
}

/// A window below so many datagrams is empty soon, and full again only when an acknowledgement comes.
const SMALL_WINDOW_DATAGRAMS: u64 = 8;

impl Connection {
    /// Appends the next datagram to `out`, and returns where it goes.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        if self.is_over() {
            return None;
        }
        // Before the end, too, which the opener could not read without it.
        if std::mem::take(&mut self.control.resend_accept)
            && let Some(accept) = &self.control.accept
        {
            out.extend_from_slice(accept);
            return Some(Transmit::plain(self.peer));
        }
        if let State::Closing { .. } = self.state {
            return self.transmit_close(now_ns, out);
        }
        if let Some(challenge) = self.transmit_challenge(now_ns, out) {
            return Some(challenge);
        }
        let may_send = self.may_send(now_ns);
        if may_send
            && self.probes == 0
            && let Some(bytes) = self.mtu.next_probe(now_ns)
        {
            return self.transmit_mtu_probe(now_ns, bytes, out);
        }
        let mut draft = self.draft(self.mtu.current(), out);
        let is_ack_due = self.acks.due_ns().is_some_and(|due| now_ns >= due);
        let has_data = may_send && !self.turns.is_empty();
        let has_control = self.has_control();
        if !(is_ack_due || has_data || has_control || self.probes > 0) {
            out.truncate(draft.begin);
            return None;
        }
        if let Some(ack) = self.acks.next(now_ns) {
            ack.put(draft.room / 2, out);
            draft.carried.push(Carried::Ack(ack.largest()));
            if let Some(total) = self.marks.arrived() {
                Frame::Marked { total }.put(out);
            }
            self.acks.on_ack_sent();
        }
        self.put_control(&mut draft, out);
        let hurries = has_data && self.fills_small_window();
        if has_data {
            draft.room -= usize::from(hurries);
            self.put_data(now_ns, &mut draft, out);
        }
        if (self.probes > 0 && !draft.asks) || (hurries && draft.asks) {
            Frame::Ping.put(out);
            draft.asks = true;
        }
        if out.len() == draft.begin + DATA_HEADER_BYTES {
            // What the streams had to send has arrived meanwhile.
            out.truncate(draft.begin);
            return None;
        }
        self.probes = self.probes.saturating_sub(1);
        draft.ecn = if draft.asks { self.marks.on_sent() } else { Ecn::Unaware };
        Some(self.finish_draft(now_ns, draft, out))
    }

    /// A datagram with this content, whatever it is, as a hostile peer may send it.
    #[cfg(any(test, feature = "hostile"))]
    pub(crate) fn forge(&mut self, now_ns: u64, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let draft = self.draft(self.mtu.current(), &mut out);
        out.extend_from_slice(content);
        self.finish_draft(now_ns, draft, &mut out);
        out
    }

    /// Returns true if the window and the pacer let a datagram of data go.
    fn may_send(&mut self, now_ns: u64) -> bool {
        if self.probes > 0 {
            return true;
        }
        if self.turns.is_empty() {
            // The owner, not the window, bounds what is sent, unless the window is nearly full.
            self.is_bound &= self.recovery.in_flight() >= self.policy.window_bytes() / 2;
        }
        let bytes = u64::from(self.mtu.current());
        let window = self.window();
        let in_flight = self.recovery.in_flight();
        if in_flight > 0 && in_flight + bytes > window {
            self.is_bound |= !self.turns.is_empty();
            return false;
        }
        let by_policy = || {
            let window = self.policy.window_bytes();
            // A quarter more than the window in a round trip, so that pacing does not bound it (RFC 9002,
            // section 7.7).
            let rate =
                u128::from(window) * u128::from(SECOND) * 5 / 4 / u128::from(self.rtt.smoothed().max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let rate = self.config.rate.or_else(|| self.policy.is_paced().then(by_policy));
        let at = self.pacer.ready_at(now_ns, rate, bytes);
        self.paced_ns = (at > now_ns && !self.turns.is_empty()).then_some(at);
        at <= now_ns
    }

    /// Returns true if nothing can follow the next datagram before an acknowledgement comes, and the window
    /// is so small that the peer might wait for company before it sends one: so it is asked to hurry.
    fn fills_small_window(&self) -> bool {
        let bytes = u64::from(self.mtu.current());
        let window = self.window();
        window < SMALL_WINDOW_DATAGRAMS * bytes && self.recovery.in_flight() + 2 * bytes > window
    }

    /// Bytes that both the policy and the peer let be in flight.
    fn window(&self) -> u64 {
        self.policy.window_bytes().min(self.peer_window.unwrap_or(u64::MAX))
    }

    fn draft(&self, bytes: u16, out: &mut Vec<u8>) -> Draft {
        let begin = out.len();
        let number = low(self.recovery.next_number());
        emit_data_header(self.peer_id, number, out);
        let room = usize::from(bytes) - TAG_BYTES;
        Draft { begin, room, asks: false, ecn: Ecn::Unaware, carried: SmallVec::new() }
    }

    /// Seals the datagram, which is the last part of `out`.
    fn finish_draft(&mut self, now_ns: u64, draft: Draft, out: &mut Vec<u8>) -> Transmit {
        let number = self.recovery.next_number();
        self.keys.seal(number, draft.begin, out);
        let bytes = wide(out.len() - draft.begin);
        let sent = Sent { number, sent_ns: now_ns, bytes, ecn: draft.ecn, carried: draft.carried };
        if !draft.asks {
            self.recovery.on_sent_quietly(now_ns);
            return Transmit::plain(self.peer);
        }
        if self.recovery.in_flight() == 0 && self.recovery.timeouts() == 0 {
            self.progress_ns = now_ns;
        }
        self.pacer.on_sent(bytes);
        // A probe of the path's length does not count as in flight: that it is lost says nothing.
        self.recovery.on_sent(if sent.is_probe() { Sent { bytes: 0, ..sent } } else { sent });
        Transmit { ecn: draft.ecn, ..Transmit::plain(self.peer) }
    }

    fn has_control(&self) -> bool {
        let control = &self.control;
        control.ping
            || !control.credits.is_empty()
            || control.response.is_some()
            || control.window.is_some_and(|(_, tell)| tell)
    }

    fn put_control(&mut self, draft: &mut Draft, out: &mut Vec<u8>) {
        let begin = out.len();
        let control = &mut self.control;
        if let Some(response) = control.response.take() {
            Frame::Response(response).put(out);
        }
        if let Some((bytes, tell)) = &mut control.window
            && std::mem::take(tell)
        {
            Frame::Window { bytes: *bytes }.put(out);
            draft.carried.push(Carried::Window);
        }
        while out.len() - begin < CONTROL_BYTES_MAX
            && let Some(stream) = control.credits.pop_first()
        {
            let limit = self.inbound[usize::from(stream)].tell_credit();
            Frame::Credit { stream, limit }.put(out);
            draft.carried.push(Carried::Credit(stream));
        }
        if std::mem::take(&mut control.ping) {
            Frame::Ping.put(out);
        }
        draft.asks |= out.len() > begin;
    }

    /// Fills the datagram with bytes of streams, which take turns.
    fn put_data(&mut self, now_ns: u64, draft: &mut Draft, out: &mut Vec<u8>) {
        for _ in 0..self.turns.len() {
            let left = (draft.begin + draft.room).saturating_sub(out.len() + STREAM_HEAD_BYTES);
            if left < PIECE_BYTES_MIN {
                return;
            }
            let Some(stream) = self.turns.pop_front() else { return };
            let outbound = &mut self.outbound[usize::from(stream)];
            if let Some(range) = outbound.next(now_ns, left) {
                let length = u16::try_from(range.end - range.start).expect("a datagram is below 64 KiB");
                put_stream_head(stream, range.start, length, out);
                outbound.copy(&range, out);
                draft.carried.push(Carried::Bytes(stream, range));
                draft.asks = true;
                self.tell_if_writable(stream);
            }
            self.take_turn(stream);
        }
    }

    /// A datagram of this length that carries nothing else.
    fn transmit_mtu_probe(&mut self, now_ns: u64, bytes: u16, out: &mut Vec<u8>) -> Option<Transmit> {
        let mut draft = self.draft(bytes, out);
        Frame::Ping.put(out);
        out.resize(draft.begin + draft.room, crate::frame::kind::PADDING);
        draft.asks = true;
        draft.carried.push(Carried::MtuProbe(bytes));
        self.mtu.on_probe_sent(bytes);
        Some(Transmit { is_probe: true, ..self.finish_draft(now_ns, draft, out) })
    }

    /// A challenge to an address that is not proved, no longer than what came from there.
    fn transmit_challenge(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let path = self.path.as_mut().filter(|path| path.send)?;
        path.send = false;
        let address = path.address;
        let challenge = path.challenge;
        let allowed = path.allowed;
        let draft = self.draft(self.mtu.current(), out);
        Frame::Challenge(challenge).put(out);
        if out.len() - draft.begin + TAG_BYTES > allowed {
            out.truncate(draft.begin);
            return None;
        }
        Some(Transmit { to: address, ..self.finish_draft(now_ns, draft, out) })
    }

    fn transmit_close(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Option<Transmit> {
        let draft = self.draft(self.mtu.current(), out);
        let State::Closing { close, left, code, reason, .. } = &mut self.state else { return None };
        if !std::mem::take(close) || *left == 0 {
            out.truncate(draft.begin);
            return None;
        }
        *left -= 1;
        // What is acknowledged here need not be sent again by the peer, which learns the end from it too.
        let code = *code;
        let reason = reason.clone();
        if let Some(ack) = self.acks.next(now_ns) {
            ack.put(draft.room / 2, out);
        }
        Frame::Close { code, reason: reason.as_bytes() }.put(out);
        Some(self.finish_draft(now_ns, draft, out))
    }
}
