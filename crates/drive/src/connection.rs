//! One connection: requests are taken in order, carried out at once where they can be, and answered in order.
//!
//! Two tasks. The *taker* reads a request, checks it before a byte of its payload is used or the store is touched, and
//! hands it on: writes to the store's queue, without waiting for those before; reads to a thread. The *answerer* sends
//! the answers as they come due. Between them is a queue with a bound; a peer that takes no answers fills it, and nothing more is
//! read from that peer, until the transport's stall bound ends the connection.
//!
//! The lease is checked twice: when a request comes, and again before its answer leaves (PROTOCOL R8).

use std::sync::Arc;

use braid_layout::Generation;
use braid_transport::{FilePiece, Receiver, Sender, Stream, TransportError, challenge};
use braid_wire::authorise::{Denied, authorise};
use braid_wire::capability::Binding;
use braid_wire::data::{DriveReply, HELLO, Hello, PeerRole, may_refuse};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, WIRE_VERSION};
use braid_wire::seal::ReplySeal;
use braid_wire::{Reason, Refusal, Wire};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::core::{Core, Figures};
use crate::reply::{Answer, Payload};
use crate::requests::Requests;

/// An answer that is there, or will be.
pub(crate) enum Coming {
    /// There.
    Now(Box<Answer>),
    /// When the store or a thread has it.
    Later(oneshot::Receiver<Answer>),
}

/// A request that was taken.
struct Job {
    kind: u16,
    seal: ReplySeal,
    coming: Coming,
    /// Answered whether or not the lease holds.
    leaseless: bool,
}

/// Serves one connection until the peer ends it, breaks the format, stalls, or `closing` is set. What was taken is answered.
pub(crate) async fn serve(core: Arc<Core>, stream: Stream, closing: watch::Receiver<bool>) {
    let (peer, is_local) = (stream.address().to_owned(), stream.is_local());
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
    // A set of one: it ends with this task, whatever ends that.
    let mut answering = JoinSet::new();
    answering.spawn(answer(Arc::clone(&core), sender, due));
    let mut taker = Taker { binding: hello.binding(), sequence: 0, proven: false, jobs, receiver };
    let mut requests = Requests::new(core, is_local);
    let ended = taker.run(&mut requests, closing).await;
    // Ends the queue: the answerer goes on until what was taken is answered.
    drop(taker);
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

/// The side of a connection that takes requests.
struct Taker {
    binding: Binding,
    /// The highest sequence number of a request with a good MAC.
    sequence: u64,
    /// Whether the peer has shown a good capability: until then it has less time.
    proven: bool,
    jobs: mpsc::Sender<Job>,
    receiver: Receiver,
}

impl Taker {
    async fn run(
        &mut self,
        requests: &mut Requests,
        mut closing: watch::Receiver<bool>,
    ) -> Result<(), TransportError> {
        let limits = requests.core().settings.limits;
        loop {
            let wait = if self.proven { limits.idle } else { limits.idle.min(limits.reply) };
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

    /// Checks a request and has it carried out. An error is the connection's end.
    async fn take(
        &mut self,
        requests: &mut Requests,
        header: &FrameHeader,
        body: &[u8],
    ) -> Result<Job, TransportError> {
        let core = requests.core();
        let sequence = &mut self.sequence;
        match core.with_scene(self.binding, |scene| authorise(scene, sequence, header, body)) {
            Ok(verified) => {
                self.proven = true;
                let (seal, leaseless) = (verified.seal.clone(), verified.precedes_lease());
                let coming = requests.carry_out(verified, &mut self.receiver).await?;
                Ok(Job { kind: header.kind, seal, coming, leaseless })
            }
            Err(Denied { refusal, seal }) => {
                debug!(peer = self.receiver.address(), reason = ?refusal.reason, %refusal, "refused");
                let coming = Coming::refused(Generation(0), refusal);
                Ok(Job { kind: header.kind, seal, coming, leaseless: false })
            }
        }
    }
}

/// Sends answers in the order in which their requests came.
async fn answer(
    core: Arc<Core>,
    mut sender: Sender,
    mut due: mpsc::Receiver<Job>,
) -> Result<(), TransportError> {
    while let Some(Job { kind, seal, coming, leaseless }) = due.recv().await {
        let mut answer = coming.wait().await;
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

impl Coming {
    /// An answer, there.
    pub(crate) fn now(answer: Answer) -> Coming {
        Coming::Now(Box::new(answer))
    }

    /// A refusal, there.
    pub(crate) fn refused(g: Generation, refusal: Refusal) -> Coming {
        Coming::now(Answer::refused(g, refusal))
    }

    pub(crate) async fn wait(self) -> Answer {
        match self {
            Coming::Now(answer) => *answer,
            Coming::Later(coming) => coming.await.unwrap_or_else(|_| {
                Answer::refused(
                    Generation(0),
                    Refusal::new(Reason::Medium, "internal: the request was dropped"),
                )
            }),
        }
    }
}
