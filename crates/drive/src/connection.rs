//! One connection: requests are received in order, started at once where possible, and answered as they are
//! done.
//!
//! It has two tasks. The *reader* reads a request, checks it before a byte of its payload is used or the
//! store is touched, and passes it on with a [`Ticket`]: writes to the store's queue, without waiting for
//! earlier ones; reads to a thread. Whoever has done the request gives the ticket its answer. The *answerer*
//! sends the answers as they come, so that a request that takes long holds up no other. The number of
//! unanswered requests is bounded: a peer that takes no answers is read no further, until the transport's
//! stall timeout ends the connection.
//!
//! A peer has a slot for strangers until one of its requests carries a good MAC; then it gets a slot from
//! [`crate::room`]. Waiting for the store or for memory is bounded by
//! [`Settings::store_wait`](crate::Settings::store_wait): after that the connection is closed, as if the
//! answer had been lost, and its slots are freed.
//!
//! The lease is checked twice: when a request arrives, and again before its answer is sent (PROTOCOL R8).

use std::collections::HashMap;
use std::sync::Arc;

use braid_layout::Generation;
use braid_transport::{FilePiece, Receiver, Sender, Stream, TransportError, Work, challenge};
use braid_wire::authorise::{Denied, Verified, authorise};
use braid_wire::capability::Binding;
use braid_wire::data::{DriveReply, HELLO, Hello, PeerRole, may_refuse};
use braid_wire::frame::{BODY_BYTES_MAX, FrameHeader, WIRE_VERSION};
use braid_wire::seal::{ReplySeal, split};
use braid_wire::{Reason, Refusal, Wire};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::core::{Core, Figures};
use crate::reply::{Answer, Payload};
use crate::requests::Requests;
use crate::room::Visitor;

/// Requests that wait too long are looked for this many times in the longest wait.
const LOOKS_PER_WAIT: u32 = 8;

/// Where the answer to one request goes. Dropped without an answer, it sends a refusal.
pub(crate) struct Ticket {
    /// `None` once it was used.
    job: Option<Box<Job>>,
    events: mpsc::UnboundedSender<Event>,
}

/// What the answerer is told. The number of unanswered requests bounds the queue.
enum Event {
    /// The request with this number waits for the store from now on.
    Waits(u64),
    /// A request is done.
    Done(Box<Job>, Box<Answer>),
    /// A request will never be done: waiting for this timed out.
    Late(u64, &'static str),
}

/// An unanswered request.
struct Job {
    kind: u16,
    seal: ReplySeal,
    /// Keeps the connection from counting as idle until the answer has been sent.
    _work: Option<Work>,
    /// Its share of the unanswered requests.
    _permit: OwnedSemaphorePermit,
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
    let permits = Arc::new(Semaphore::new(core.settings.requests_max.max(1)));
    let (events, told) = mpsc::unbounded_channel();
    // A set of one task: it is aborted with this task, however that ends.
    let mut answering = JoinSet::new();
    answering.spawn(answer(Arc::clone(&core), sender, told));
    let mut reader = RequestReader {
        binding: hello.binding(),
        sequence: 0,
        visitor,
        proven: false,
        events,
        permits,
        receiver,
    };
    let mut requests = Requests::new(core, is_local);
    let ended = reader.run(&mut requests, closing).await;
    // The answerer goes on until the reader and all tickets are gone.
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
    events: mpsc::UnboundedSender<Event>,
    /// One for each request that may be unanswered.
    permits: Arc<Semaphore>,
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
                () = self.events.closed() => return Ok(()),
                _ = closing.wait_for(|&closing| closing) => return Ok(()),
            };
            let Some((header, body)) = frame else { return Ok(()) };
            let permit = tokio::select! {
                permit = Arc::clone(&self.permits).acquire_owned() => permit.expect("it is never closed"),
                () = self.events.closed() => return Ok(()),
            };
            self.take(requests, &header, &body, permit).await?;
            self.receiver.recycle(body);
        }
    }

    /// Checks a request and starts it. An error ends the connection.
    async fn take(
        &mut self,
        requests: &mut Requests,
        header: &FrameHeader,
        body: &[u8],
        permit: OwnedSemaphorePermit,
    ) -> Result<(), TransportError> {
        let core = requests.core();
        let sequence = &mut self.sequence;
        let judged = core.with_scene(self.binding, |scene| authorise(scene, sequence, header, body));
        let placed = self.place(&core, body);
        let (seal, leaseless, accepted) = match (judged, placed) {
            (Ok(verified), Ok(())) => (verified.seal.clone(), verified.precedes_lease(), Ok(verified)),
            (Ok(Verified { seal, .. }), Err(refusal)) | (Err(Denied { refusal, seal }), _) => {
                debug!(peer = self.receiver.address(), reason = ?refusal.reason, %refusal, "refused");
                (seal, false, Err(refusal))
            }
        };
        let job = Job { kind: header.kind, seal, _work: self.receiver.work(), _permit: permit, leaseless };
        let ticket = Ticket { job: Some(Box::new(job)), events: self.events.clone() };
        match accepted {
            Ok(verified) => requests.carry_out(verified, &mut self.receiver, ticket).await,
            Err(refusal) => {
                ticket.refuse(Generation(0), refusal);
                Ok(())
            }
        }
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

/// Sends answers as they come.
async fn answer(
    core: Arc<Core>,
    mut sender: Sender,
    mut events: mpsc::UnboundedReceiver<Event>,
) -> Result<(), TransportError> {
    let wait = core.settings.store_wait;
    let between = (wait / LOOKS_PER_WAIT).max(Duration::from_millis(1));
    let mut waiting: HashMap<u64, Instant> = HashMap::new();
    let mut look = Instant::now() + between;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = sleep_until(look), if !waiting.is_empty() => {
                let now = Instant::now();
                look = now + between;
                let late = waiting.iter().find(|(_, since)| now.duration_since(**since) > wait);
                let Some((&request, _)) = late else { continue };
                Some(Event::Late(request, "the store: does its disk hang?"))
            }
        };
        match event {
            Some(Event::Waits(request)) => drop(waiting.insert(request, Instant::now())),
            Some(Event::Done(job, answer)) => {
                waiting.remove(&job.seal.request());
                send_answer(&core, &mut sender, &job, *answer).await?;
            }
            Some(Event::Late(request, what)) => {
                let peer = sender.address();
                warn!(
                    peer,
                    request, what, "waited too long: the connection is ended, so that its slots are free"
                );
                return Ok(());
            }
            None => return sender.shutdown().await,
        }
    }
}

async fn send_answer(
    core: &Core,
    sender: &mut Sender,
    job: &Job,
    mut answer: Answer,
) -> Result<(), TransportError> {
    let refused = match &answer.reply {
        DriveReply::Refused(refusal) => {
            debug_assert!(
                may_refuse(job.kind, refusal.reason),
                "{:#06x}: {refusal:?} is not documented",
                job.kind
            );
            true
        }
        _ => false,
    };
    if let (false, Err(refusal)) = (refused || job.leaseless, core.holds()) {
        answer = Answer::refused(answer.g, refusal);
    }
    let mut body = seal_answer(&job.seal, &answer);
    if u32::try_from(body.len()).is_ok_and(|bytes| bytes > BODY_BYTES_MAX) {
        let refusal = Refusal::new(Reason::Range, "the answer does not fit a frame: ask for less at a time");
        answer = Answer::refused(answer.g, refusal);
        body = seal_answer(&job.seal, &answer);
    }
    if matches!(answer.reply, DriveReply::Refused(_)) {
        Figures::add(&core.figures.refused, 1);
    }
    send(sender, answer.reply.kind(), job.seal.request(), &body, &answer.payload).await
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

impl Ticket {
    /// The request waits for the store from now on, which is bounded.
    pub(crate) fn waits(&self) {
        if let Some(job) = &self.job {
            // If the answerer is gone, so is the peer, here and below.
            let _ = self.events.send(Event::Waits(job.seal.request()));
        }
    }

    /// The request is done.
    pub(crate) fn answer(mut self, answer: Answer) {
        self.settle(answer);
    }

    /// The request is refused.
    pub(crate) fn refuse(self, g: Generation, refusal: Refusal) {
        self.answer(Answer::refused(g, refusal));
    }

    /// Waiting for this timed out: the connection ends.
    pub(crate) fn late(mut self, what: &'static str) {
        if let Some(job) = self.job.take() {
            let _ = self.events.send(Event::Late(job.seal.request(), what));
        }
    }

    fn settle(&mut self, answer: Answer) {
        if let Some(job) = self.job.take() {
            let _ = self.events.send(Event::Done(job, Box::new(answer)));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let refusal = Refusal::new(Reason::Medium, "internal: the request was dropped");
        self.settle(Answer::refused(Generation(0), refusal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ticket() -> (Ticket, mpsc::UnboundedReceiver<Event>) {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.acquire_owned().await.expect("it is never closed");
        let seal = ReplySeal::without_proof(7);
        let job = Job { kind: 0x0102, seal, _work: None, _permit: permit, leaseless: false };
        let (events, told) = mpsc::unbounded_channel();
        (Ticket { job: Some(Box::new(job)), events }, told)
    }

    #[tokio::test]
    async fn every_ticket_gets_one_answer() {
        let (given, mut told) = ticket().await;
        given.waits();
        given.answer(Answer::done(Generation(3)));
        assert!(matches!(told.try_recv(), Ok(Event::Waits(7))));
        assert!(matches!(told.try_recv(), Ok(Event::Done(_, answer)) if answer.g == Generation(3)));
        assert!(told.try_recv().is_err());
        let (late, mut told) = ticket().await;
        late.late("memory");
        assert!(matches!(told.try_recv(), Ok(Event::Late(7, "memory"))));
        assert!(told.try_recv().is_err());
        let (dropped, mut told) = ticket().await;
        drop(dropped);
        let Ok(Event::Done(_, answer)) = told.try_recv() else { panic!("no answer") };
        assert!(matches!(&answer.reply, DriveReply::Refused(refusal) if refusal.reason == Reason::Medium));
        assert!(told.try_recv().is_err());
    }
}
