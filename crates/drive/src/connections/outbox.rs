//! Answers that are sent together: one system call for as many as are ready.
//!
//! The lease is checked once for all of them, right before they are sent (PROTOCOL R8). If it has lapsed,
//! refusals take their places.

use braid_layout::Generation;
use braid_transport::{Sender, TransportError};
use braid_wire::data::{DriveReply, may_refuse};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, HEADER_BYTES};
use braid_wire::seal::ReplySeal;
use braid_wire::{Reason, Refusal};

use crate::connections::answerer::Job;
use crate::connections::reply::Answer;
use crate::core::{Core, Figures};

/// Maximum payload, in bytes, of an answer that is sent together with others, for which it is copied.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 16 << 10;
/// Number of bytes from which on the answers that are ready are sent.
const FULL_BYTES: usize = 32 << 10;
/// Capacity, in bytes, for the frames of one sending. It is allocated once and kept; an empty outbox keeps no
/// more.
const ROOM_BYTES: usize = 52 << 10;
const _: () = assert!(FULL_BYTES + PAYLOAD_BYTES_MAX as usize + 2048 < ROOM_BYTES, "a last read fits");

/// Answers that are ready to be sent.
#[derive(Default)]
pub(crate) struct Outbox {
    frames: Vec<u8>,
    answers: Vec<Placed>,
}

/// An answer in an outbox.
struct Placed {
    /// Offset at which the answer's frame begins; it ends where the next one begins.
    from: usize,
    seal: ReplySeal,
    g: Generation,
    /// True if the answer may not leave without a lease.
    needs_lease: bool,
    /// Resources that the request holds until it is answered.
    _job: Option<Box<Job>>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns true if it is time to send.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= FULL_BYTES
    }

    /// Adds an answer whose payload of at most [`PAYLOAD_BYTES_MAX`] is in memory.
    pub(crate) fn put(&mut self, core: &Core, job: Box<Job>, answer: &Answer, payload: &[u8]) {
        let from = self.frames.len();
        let bytes = u32::try_from(payload.len()).expect("it is small");
        let refused = put_frame(&mut self.frames, &job.seal, answer.g, &answer.reply, bytes);
        if let Some(refused) = refused {
            Figures::add(&core.figures.refused, 1);
            debug_assert!(may_refuse(job.kind, refused), "{:#06x}: {refused:?} is not documented", job.kind);
        } else {
            self.frames.extend_from_slice(payload);
        }
        let needs_lease = refused.is_none() && !job.leaseless;
        let seal = job.seal.clone();
        let g = answer.g;
        self.answers.push(Placed { from, seal, g, needs_lease, _job: Some(job) });
    }

    /// Adds the answer to a read. `fill` writes its payload of `bytes` bytes to the place from which it is
    /// sent. Returns false if that failed, or if the answer does not fit a frame: then nothing was added.
    pub(crate) fn put_read(
        &mut self,
        seal: &ReplySeal,
        g: Generation,
        reply: &DriveReply,
        bytes: u32,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        self.frames.reserve_exact(ROOM_BYTES.saturating_sub(self.frames.len()));
        let from = self.frames.len();
        let refused = put_frame(&mut self.frames, seal, g, reply, bytes);
        let begin = self.frames.len();
        self.frames.resize(begin + usize::try_from(bytes).expect("it is small"), 0);
        if refused.is_some() || !fill(&mut self.frames[begin..]) {
            self.frames.truncate(from);
            return false;
        }
        self.answers.push(Placed { from, seal: seal.clone(), g, needs_lease: true, _job: None });
        true
    }

    /// Sends as much as the connection takes now. Returns false if that was not all: then another task must
    /// get this outbox, and go on with [`Outbox::send`].
    pub(crate) async fn send_now(
        &mut self,
        core: &Core,
        sender: &mut Sender,
    ) -> Result<bool, TransportError> {
        self.look_at_lease(core);
        self.hand_to(sender).await
    }

    /// Gives the frames to the sender, unless it still has some that the connection does not take. Frames
    /// that the sender has taken cannot be refused by this outbox any more, whether they have left or not.
    async fn hand_to(&mut self, sender: &mut Sender) -> Result<bool, TransportError> {
        let has_left = sender.send_now(&mut self.frames).await?;
        if self.frames.is_empty() {
            self.emptied();
        }
        Ok(has_left)
    }

    /// Sends all answers, and the bytes that an earlier [`Outbox::send_now`] has left unsent.
    pub(crate) async fn send(&mut self, core: &Core, sender: &mut Sender) -> Result<(), TransportError> {
        self.look_at_lease(core);
        sender.send_frames(&mut self.frames).await?;
        self.emptied();
        Ok(())
    }

    fn emptied(&mut self) {
        self.answers.clear();
        if self.frames.capacity() > ROOM_BYTES {
            self.frames = Vec::new();
        }
    }

    fn look_at_lease(&mut self, core: &Core) {
        if self.answers.iter().any(|answer| answer.needs_lease)
            && let Err(refusal) = core.holds()
        {
            let refused = self.refuse(refusal);
            Figures::add(&core.figures.refused, refused);
        }
    }

    /// Replaces the answers that need a lease by `refusal`. Returns their number.
    fn refuse(&mut self, refusal: Refusal) -> u64 {
        let refusal = DriveReply::from(refusal);
        let mut refused = 0;
        let frames = std::mem::take(&mut self.frames);
        let ends: Vec<usize> =
            self.answers.iter().skip(1).map(|answer| answer.from).chain([frames.len()]).collect();
        for (answer, end) in self.answers.iter_mut().zip(ends) {
            let from = std::mem::replace(&mut answer.from, self.frames.len());
            if std::mem::take(&mut answer.needs_lease) {
                refused += 1;
                put_frame(&mut self.frames, &answer.seal, answer.g, &refusal, 0);
            } else {
                self.frames.extend_from_slice(&frames[from..end]);
            }
        }
        refused
    }
}

/// Appends an answer's frame, without its payload. An answer that does not fit a frame becomes a refusal.
/// Returns the reason if the frame is a refusal, which has no payload.
fn put_frame(
    frames: &mut Vec<u8>,
    seal: &ReplySeal,
    g: Generation,
    reply: &DriveReply,
    payload_bytes: u32,
) -> Option<Reason> {
    let begin = frames.len();
    let body = begin + HEADER_BYTES;
    frames.resize(body, 0);
    seal.seal_into(g, reply, payload_bytes, frames);
    if u32::try_from(frames.len() - body).is_ok_and(|bytes| bytes > BODY_BYTES_MAX) {
        frames.truncate(begin);
        let detail = "the answer does not fit a frame: ask for less at a time";
        let refusal = DriveReply::from(Refusal::new(Reason::Range, detail));
        return put_frame(frames, seal, g, &refusal, 0);
    }
    let header = FrameHeader::new(reply.kind(), seal.request(), &frames[body..], payload_bytes);
    frames[begin..body].copy_from_slice(&header.emit());
    match reply {
        DriveReply::Refused(refusal) => Some(refusal.reason),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::Wire;
    use braid_wire::data::{Done, ReadReply, ReplyHead};

    use super::*;

    const G: Generation = Generation(3);

    fn read_reply() -> DriveReply {
        let reply = ReadReply {
            version: Default::default(),
            pending: false,
            columns: Default::default(),
            extents: Vec::new(),
            crcs: vec![7],
            cover: Vec::new(),
            ends: Vec::new(),
            times: None,
        };
        reply.into()
    }

    /// Number, refusal's reason and payload of each frame.
    fn frames(outbox: &Outbox) -> Vec<(u64, Option<Reason>, Vec<u8>)> {
        let mut rest = outbox.frames.as_slice();
        let mut out = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let header = FrameHeader::parse(header).expect("a frame");
            let (body, after) = after.split_at(usize::try_from(header.body_bytes).expect("small"));
            header.check_body(body).expect("its body");
            let (payload, after) = after.split_at(usize::try_from(header.payload_bytes).expect("small"));
            let mut arguments = body;
            ReplyHead::take(&mut arguments).expect("a head");
            let reason = match DriveReply::from_body(header.kind, arguments).expect("a reply") {
                DriveReply::Refused(refusal) => Some(refusal.reason),
                _ => None,
            };
            out.push((header.request, reason, payload.to_vec()));
            rest = after;
        }
        out
    }

    #[test]
    fn what_cannot_be_filled_leaves_no_trace() {
        let mut outbox = Outbox::default();
        let reply = read_reply();
        for (number, is_there) in [(1, true), (2, false), (3, true)] {
            let seal = ReplySeal::without_proof(number);
            let fill = |to: &mut [u8]| {
                to.fill(u8::try_from(number).expect("small"));
                is_there
            };
            assert_eq!(outbox.put_read(&seal, G, &reply, 5, fill), is_there);
        }
        assert_eq!(frames(&outbox), [(1, None, vec![1; 5]), (3, None, vec![3; 5])]);
    }

    #[test]
    fn without_a_lease_all_that_needs_one_is_refused_and_the_rest_is_sent() {
        let mut outbox = Outbox::default();
        let reply = read_reply();
        for number in 1..=3 {
            assert!(outbox.put_read(&ReplySeal::without_proof(number), G, &reply, 5, |_| true));
        }
        // As an answer to the manager, which needs none.
        outbox.answers[1].needs_lease = false;
        let lapsed = || Refusal::new(Reason::NotServing, "lapsed");
        assert_eq!(outbox.refuse(lapsed()), 2);
        let refused = Some(Reason::NotServing);
        let expected = [(1, refused, vec![]), (2, None, vec![0; 5]), (3, refused, vec![])];
        assert_eq!(frames(&outbox), expected);
        assert_eq!(outbox.refuse(lapsed()), 0, "once");
        assert_eq!(frames(&outbox), expected);
    }

    /// The connection takes a part: the rest goes with the sender, and no answer is given a second time.
    #[tokio::test]
    async fn what_the_sender_has_taken_is_not_refused_any_more() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let stream =
            braid_transport::Stream::connect(&address, &Default::default()).await.expect("connected");
        let (mut sender, _receiver) = stream.into_halves();
        let (_mute, _) = listener.accept().await.expect("accepted");
        let reply = read_reply();
        let mut number = 0;
        let mut outbox = Outbox::default();
        loop {
            while !outbox.is_full() {
                number += 1;
                let seal = ReplySeal::without_proof(number);
                assert!(outbox.put_read(&seal, G, &reply, 16 << 10, |_| true));
            }
            if !outbox.hand_to(&mut sender).await.expect("it is sound") {
                break;
            }
        }
        assert_eq!(outbox.refuse(Refusal::new(Reason::NotServing, "lapsed")), 0, "a part has left");
        assert!(outbox.is_empty());
        // While the sender has a rest it takes nothing: that can be refused.
        assert!(outbox.put_read(&ReplySeal::without_proof(number + 1), G, &reply, 5, |_| true));
        assert!(!outbox.hand_to(&mut sender).await.expect("it is sound"));
        assert_eq!(outbox.refuse(Refusal::new(Reason::NotServing, "lapsed")), 1);
        assert_eq!(frames(&outbox), [(number + 1, Some(Reason::NotServing), vec![])]);
    }

    #[test]
    fn an_answer_that_does_not_fit_a_frame_is_refused() {
        let mut all = Vec::new();
        let seal = ReplySeal::without_proof(1);
        assert_eq!(put_frame(&mut all, &seal, G, &Done {}.into(), 0), None);
        let DriveReply::Read(mut large) = read_reply() else { unreachable!() };
        large.crcs = vec![0; 300_000];
        let reason = put_frame(&mut all, &seal, G, &large.into(), 0);
        assert_eq!(reason, Some(Reason::Range));
        let outbox = Outbox { frames: all, answers: Vec::new() };
        assert_eq!(frames(&outbox), [(1, None, vec![]), (1, Some(Reason::Range), vec![])]);
    }
}
