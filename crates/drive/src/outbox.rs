//! Answers that are sent together: one system call for as many as are ready.
//!
//! The lease is looked at once for all of them, right before they are sent (PROTOCOL R8). If it has lapsed,
//! refusals take their places.

use braid_layout::Generation;
use braid_transport::{Sender, TransportError};
use braid_wire::data::{DriveReply, may_refuse};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, HEADER_BYTES};
use braid_wire::seal::ReplySeal;
use braid_wire::{Reason, Refusal};

use crate::answerer::Job;
use crate::core::{Core, Figures};
use crate::reply::Answer;

/// The most bytes of payload of an answer that is sent with others: they are copied for it.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 16 << 10;
/// From this many bytes on, what is ready is sent.
const FULL_BYTES: usize = 32 << 10;
/// What is kept for the next answers when these are sent. A connection at rest has no more.
const KEPT_BYTES: usize = 64 << 10;

/// Answers that are ready to be sent.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Whole frames.
    frames: Vec<u8>,
    answers: Vec<Placed>,
}

/// An answer in an outbox.
struct Placed {
    /// Where its frame begins; it ends where the next one begins.
    from: usize,
    seal: ReplySeal,
    g: Generation,
    /// It may not leave without a lease.
    needs_lease: bool,
    /// What the request holds until it is answered.
    _job: Option<Box<Job>>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether it is time to send.
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
        let (seal, g) = (job.seal.clone(), answer.g);
        self.answers.push(Placed { from, seal, g, needs_lease, _job: Some(job) });
    }

    /// Adds the answer to a read, whose payload of `bytes` is filled in where it is sent from. False if it
    /// could not be filled: then nothing was added.
    pub(crate) fn put_read(
        &mut self,
        seal: &ReplySeal,
        (g, reply, bytes): (Generation, &DriveReply, u32),
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
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

    /// Sends what the connection takes now. False if that was not all: another must go on by
    /// [`Outbox::send`], and this outbox is for it.
    pub(crate) async fn send_now(
        &mut self,
        core: &Core,
        sender: &mut Sender,
    ) -> Result<bool, TransportError> {
        self.look_at_lease(core);
        let took_all = sender.send_now(&mut self.frames).await?;
        if took_all {
            self.emptied();
        }
        Ok(took_all)
    }

    /// Sends all, and what an earlier [`Outbox::send_now`] has left.
    pub(crate) async fn send(&mut self, core: &Core, sender: &mut Sender) -> Result<(), TransportError> {
        self.look_at_lease(core);
        sender.send_frames(&mut self.frames).await?;
        self.emptied();
        Ok(())
    }

    fn emptied(&mut self) {
        self.answers.clear();
        if self.frames.capacity() > KEPT_BYTES {
            self.frames = Vec::new();
        }
    }

    /// Without a lease, what needs one is refused.
    fn look_at_lease(&mut self, core: &Core) {
        if !self.answers.iter().any(|answer| answer.needs_lease) || self.frames.is_empty() {
            return;
        }
        let Err(refusal) = core.holds() else { return };
        let refusal = DriveReply::from(refusal);
        let frames = std::mem::take(&mut self.frames);
        let ends: Vec<usize> =
            self.answers.iter().skip(1).map(|answer| answer.from).chain([frames.len()]).collect();
        for (answer, end) in self.answers.iter_mut().zip(ends) {
            let from = std::mem::replace(&mut answer.from, self.frames.len());
            if std::mem::take(&mut answer.needs_lease) {
                Figures::add(&core.figures.refused, 1);
                put_frame(&mut self.frames, &answer.seal, answer.g, &refusal, 0);
            } else {
                self.frames.extend_from_slice(&frames[from..end]);
            }
        }
    }
}

/// Appends an answer's frame, without its payload. Returns the reason if it is a refusal, which an answer
/// becomes that does not fit a frame; that has no payload.
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
