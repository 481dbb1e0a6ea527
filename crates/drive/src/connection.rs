//! One connection: requests are received in order, started at once where possible, and answered in order.
//!
//! It has two tasks. The *reader* reads a request, checks it before a byte of its payload is used or the
//! store is touched, and passes it on: writes to the store's queue, without waiting for earlier ones; reads
//! to a thread. The *answerer* sends the answers in order. Between them is a bounded queue. A peer that takes
//! no answers fills it; then nothing more is read from that peer, until the transport's stall timeout ends
//! the connection.
//!
//! A peer has a slot for strangers until one of its requests carries a good MAC; then it gets a slot from
//! [`crate::room`]. Waiting for the store or for memory is bounded by
//! [`Settings::store_wait`](crate::Settings::store_wait): after that the connection is closed, as if the
//! answer had been lost, and its slots are freed.
//!
//! The lease is checked twice: when a request arrives, and again before its answer is sent (PROTOCOL R8).

use std::sync::Arc;

use braid_layout::Generation;
use braid_transport::{FilePiece, Receiver, Sender, Stream, TransportError, Work, challenge};
use braid_wire::authorise::{Denied, Verified, authorise};
use braid_wire::capability::Binding;
use braid_wire::data::{DriveReply, HELLO, Hello, PeerRole, may_refuse};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, WIRE_VERSION};
use braid_wire::seal::{ReplySeal, split};
use braid_wire::{Reason, Refusal, Wire};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use crate::core::{Core, Figures};
use crate::reply::{Answer, Payload};
use crate::requests::Requests;
use crate::room::Visitor;

/// An answer that is ready, or will be.
pub(crate) enum PendingReply {
    /// Ready.
    Now(Box<Answer>),
    /// Comes from the store or from a thread.
    Later(oneshot::Receiver<Answer>),
    /// Never: waiting for this timed out.
    Late(&'static str),
}

/// A request that was accepted.
struct Job {
    kind: u16,
    seal: ReplySeal,
    pending: PendingReply,
    /// How long the answer may be waited for.
    until: Instant,
    /// Keeps the connection from counting as idle until the answer has been sent.
    _work: Option<Work>,
    /// Answered even without a lease.
    leaseless: bool,
}

/// Serves one connection until the peer closes it, breaks the format, stalls, or `closing` is set. Accepted
/// requests are still answered.
pub(crate) async fn serve(core: Arc<Core>, stream: Stream, closing: watch::Receiver<bool>) {
    let (peer, is_local) = (stream.address().to_owned(), stream.is_local());
    let Ok(visitor) = Visitor::of(&stream) else { return };
    let (mut sender, receiver) = stream.into_halves();
    let hello = Hello {
        role: PeerRole::Drive,
        version_min: WIRE_VERSION,
        version_max: WIRE_VERSION,
        cluster: core.cluster,
        drive: core.drive,
        features: 0,
        challenge: challenge(),
    };
    if let Err(error) = sender.send(HELLO, 0, &hello.to_bytes(), &[]).await {
        debug!(%peer, %error, "gone before the hello");
        return;
    }
    let (jobs, due) = mpsc::channel(core.settings.requests_max.max(1));
    // A set of one task: it is aborted with this task, however that ends.
    let mut answering = JoinSet::new();
    answering.spawn(answer(Arc::clone(&core), sender, due));
    let mut reader =
        RequestReader { binding: hello.binding(), sequence: 0, visitor, proven: false, jobs, receiver };
    let mut requests = Requests::new(core, is_local);
    let ended = reader.run(&mut requests, closing).await;
    // Closes the queue: the answerer goes on until all accepted requests are answered.
    drop(reader);
    let answered = answering.join_next().await;
    match ended {
        Err(error) if error.is_misbehaviour() => info!(%peer, %error, "connection closed"),
        Err(error) => debug!(%peer, %error, "connection ended"),
        Ok(()) => {}
    }
    if let Some(Ok(Err(error))) = answered {
        debug!(%peer, %error, "answers not taken");
    }
}

/// The half of a connection that receives requests.
struct RequestReader {
    binding: Binding,
    /// The highest sequence number of a request with a good MAC.
    sequence: u64,
    visitor: Visitor,
    /// Whether the peer has shown a good MAC and has its slot.
    proven: bool,
    jobs: mpsc::Sender<Job>,
    receiver: Receiver,
}

impl RequestReader {
    async fn run(
        &mut self,
        requests: &mut Requests,
        mut closing: watch::Receiver<bool>,
    ) -> Result<(), TransportError> {
        let wait = requests.core().settings.limits.idle;
        loop {
            let frame = tokio::select! {
                frame = self.receiver.frame_within(wait, "for the next request") => frame?,
                () = self.jobs.closed() => return Ok(()),
                _ = closing.wait_for(|&closing| closing) => return Ok(()),
            };
            let Some((header, body)) = frame else { return Ok(()) };
            let Ok(slot) = self.jobs.clone().reserve_owned().await else { return Ok(()) };
            let job = self.take(requests, &header, &body).await?;
            self.receiver.recycle(body);
            slot.send(job);
        }
    }

    /// Checks a request and starts it. An error ends the connection.
    async fn take(
        &mut self,
        requests: &mut Requests,
        header: &FrameHeader,
        body: &[u8],
    ) -> Result<Job, TransportError> {
        let core = requests.core();
        let sequence = &mut self.sequence;
        let judged = core.with_scene(self.binding, |scene| authorise(scene, sequence, header, body));
        let placed = self.place(&core, body);
        let (seal, pending, leaseless) = match (judged, placed) {
            (Ok(verified), Ok(())) => {
                let (seal, leaseless) = (verified.seal.clone(), verified.precedes_lease());
                (seal, requests.carry_out(verified, &mut self.receiver).await?, leaseless)
            }
            (Ok(Verified { seal, .. }), Err(refusal)) | (Err(Denied { refusal, seal }), _) => {
                debug!(peer = self.receiver.address(), reason = ?refusal.reason, %refusal, "refused");
                (seal, PendingReply::refused(Generation(0), refusal), false)
            }
        };
        let until = Instant::now() + core.settings.store_wait;
        Ok(Job { kind: header.kind, seal, pending, until, _work: self.receiver.work(), leaseless })
    }

    /// Gives the peer its slot once one of its requests had a good MAC, which proves the capability in
    /// `body`.
    fn place(&mut self, core: &Core, body: &[u8]) -> Result<(), Refusal> {
        if self.proven || self.sequence == 0 {
            return Ok(());
        }
        let Ok((authority, _)) = split(body) else { return Ok(()) };
        self.receiver.admit(core.room.place(self.visitor, &authority.capability)?);
        self.proven = true;
        Ok(())
    }
}

/// Sends answers in the order of their requests.
async fn answer(
    core: Arc<Core>,
    mut sender: Sender,
    mut due: mpsc::Receiver<Job>,
) -> Result<(), TransportError> {
    while let Some(Job { kind, seal, pending, until, _work, leaseless }) = due.recv().await {
        let mut answer = match pending.wait(until).await {
            Ok(answer) => answer,
            Err(what) => {
                let (peer, request) = (sender.address(), seal.request());
                warn!(
                    peer,
                    request, what, "waited too long: the connection is ended, so that its slots are free"
                );
                return Ok(());
            }
        };
        let refused = match &answer.reply {
            DriveReply::Refused(refusal) => {
                debug_assert!(may_refuse(kind, refusal.reason), "{kind:#06x}: {refusal:?} is not documented");
                true
            }
            _ => false,
        };
        if let (false, Err(refusal)) = (refused || leaseless, core.holds()) {
            answer = Answer::refused(answer.g, refusal);
        }
        let mut body = seal_answer(&seal, &answer);
        if u32::try_from(body.len()).is_ok_and(|bytes| bytes > BODY_BYTES_MAX) {
            let refusal =
                Refusal::new(Reason::Range, "the answer does not fit a frame: ask for less at a time");
            answer = Answer::refused(answer.g, refusal);
            body = seal_answer(&seal, &answer);
        }
        if matches!(answer.reply, DriveReply::Refused(_)) {
            Figures::add(&core.figures.refused, 1);
        }
        send(&mut sender, answer.reply.kind(), seal.request(), &body, &answer.payload).await?;
    }
    sender.shutdown().await
}

async fn send(
    sender: &mut Sender,
    kind: u16,
    request: u64,
    body: &[u8],
    payload: &Payload,
) -> Result<(), TransportError> {
    let pieces: Vec<FilePiece<'_>> = match payload {
        Payload::Empty => return sender.send(kind, request, body, &[]).await,
        Payload::Memory(buffer) => return sender.send(kind, request, body, &[buffer.payload()]).await,
        Payload::Files { pieces, .. } => pieces
            .iter()
            .map(|piece| {
                let file = piece.lend().expect("resident bytes are in a file");
                FilePiece { file, offset: piece.offset, length: piece.length }
            })
            .collect(),
    };
    let missing = sender.send_files(kind, request, body, &pieces).await?;
    if missing > 0 {
        warn!(missing, "stored bytes could not be read: the reader got zeros, which its checksums will tell");
    }
    Ok(())
}

fn seal_answer(seal: &ReplySeal, answer: &Answer) -> Vec<u8> {
    seal.seal(answer.g, &answer.reply, answer.payload.bytes())
}

impl PendingReply {
    /// An answer that is ready.
    pub(crate) fn now(answer: Answer) -> PendingReply {
        PendingReply::Now(Box::new(answer))
    }

    /// A refusal that is ready.
    pub(crate) fn refused(g: Generation, refusal: Refusal) -> PendingReply {
        PendingReply::now(Answer::refused(g, refusal))
    }

    /// The answer; on a timeout, what was waited for.
    pub(crate) async fn wait(self, until: Instant) -> Result<Answer, &'static str> {
        match self {
            PendingReply::Now(answer) => Ok(*answer),
            PendingReply::Later(pending) => match timeout_at(until, pending).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(_)) => {
                    let refusal = Refusal::new(Reason::Medium, "internal: the request was dropped");
                    Ok(Answer::refused(Generation(0), refusal))
                }
                Err(_) => Err("the store: does its disk hang?"),
            },
            PendingReply::Late(what) => Err(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_answer_is_waited_for_within_its_bound() {
        let until = || Instant::now() + Duration::from_millis(50);
        let (_kept, pending) = oneshot::channel();
        assert!(PendingReply::Later(pending).wait(until()).await.is_err());
        assert!(PendingReply::Late("memory").wait(until()).await.is_err_and(|what| what == "memory"));
        let (done, pending) = oneshot::channel();
        assert!(done.send(Answer::done(Generation(3))).is_ok());
        assert!(
            PendingReply::Later(pending).wait(until()).await.is_ok_and(|answer| answer.g == Generation(3))
        );
    }
}
