//! One connection: requests are received in order, started at once where possible, and answered as they are
//! done.
//!
//! A connection has two tasks. The *reader* reads a request, checks it before a byte of its payload is used
//! or the store is touched, and passes it on with a [`Ticket`]: writes to the store's queue, without waiting
//! for earlier ones; reads to a thread. The code that completes the request gives its answer to the ticket.
//! The *answerer* sends the answers as they come, so that a request that takes long holds up no other. The
//! number of unanswered requests is bounded: a peer that takes no answers is read no further, until the
//! transport's stall timeout ends the connection.
//!
//! A short read of bytes in the page cache waits for nothing. The reader answers it itself: no thread, no
//! other task. The reader then goes on with the requests that came together with that one, and sends the
//! answers together before it waits for more. Answers that the connection does not take at once are left to
//! the answerer.
//!
//! A peer that begins with TLS is served in TLS, and only such a peer is served what is private. Nothing is
//! sent by `sendfile` then.
//!
//! A peer has a slot for strangers until one of its requests carries a good MAC; then it gets a slot from
//! [`crate::connections::room`]. Waiting for the store or for memory is bounded by
//! [`Settings::store_wait`](crate::Settings::store_wait): after that the connection is closed, as if the
//! answer had been lost, and its slots are freed.
//!
//! The lease is checked twice: when a request arrives, and again before its answer is sent (PROTOCOL R8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::Generation;
use braid_transport::{Receiver, Secured, Stream, TransportError, challenge, paced};
use braid_wire::authorise::{Denied, Verified, authorise_in};
use braid_wire::capability::{Binding, DataDirection};
use braid_wire::data::{HELLO, Hello, PeerRole};
use braid_wire::frame::{FrameHeader, WIRE_VERSION, WIRE_VERSION_OLDEST};
use braid_wire::seal::split;
use braid_wire::session::Session;
use braid_wire::{Refusal, Wire};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::connections::answerer::{Answers, Event, Job, Ticket, Timing, answer};
use crate::connections::inward::Inward;
use crate::connections::outbox::Outbox;
use crate::connections::requests::Requests;
use crate::connections::room::Visitor;
use crate::core::Core;

/// Serves one connection until the peer closes it, breaks the format, stalls, or `closing` is set. Accepted
/// requests are still answered.
pub(crate) async fn serve(core: Arc<Core>, stream: Stream, closing: watch::Receiver<bool>) {
    let mut closing = closing;
    let peer = stream.address().to_owned();
    let is_local = stream.is_local();
    let takes_files = stream.takes_files();
    let (Ok(visitor), Ok(holder)) = (Visitor::of(&stream), stream.holder()) else { return };
    let link = stream.link();
    let (mut sender, receiver) = stream.into_halves();
    let hello = Hello {
        role: PeerRole::Drive,
        version_min: WIRE_VERSION_OLDEST,
        version_max: WIRE_VERSION,
        cluster: core.cluster,
        drive: core.drive,
        features: if core.certificate.is_ready() { Hello::TLS } else { 0 },
        challenge: challenge(),
    };
    if let Err(error) = sender.send(HELLO, 0, &hello.to_bytes(), &[]).await {
        debug!(%peer, %error, "gone before the hello");
        return;
    }
    let begun = tokio::select! {
        begun = Secured::accept_if_begun(sender, receiver, &core.certificate) => begun,
        _ = closing.wait_for(|&closing| closing) => return,
    };
    let secured = match begun {
        Ok(secured) => secured,
        Err(error) => {
            debug!(%peer, %error, "gone before its first request");
            return;
        }
    };
    let is_private = secured.is_private();
    let binding = secured.binding(&hello);
    let Secured { sender, receiver, .. } = secured;
    let permits = Arc::new(Semaphore::new(core.settings.requests_max.max(1)));
    let (events, told) = mpsc::unbounded_channel();
    // A set of one task: it is aborted with this task, however that ends.
    let mut answering = JoinSet::new();
    let inward = link.map(|link| Arc::new(Inward::new(core.inward.of(link))));
    let answers = Arc::new(Answers {
        sender: Mutex::new(sender),
        handed: AtomicBool::new(false),
        inward: inward.clone(),
    });
    answering.spawn(answer(Arc::clone(&core), Arc::clone(&answers), told));
    let mut reader = RequestReader {
        binding,
        session: Session::begun(is_private),
        visitor,
        proven: false,
        events,
        answers,
        outbox: Outbox::default(),
        permits,
        receiver,
    };
    let mut requests = Requests::new(Arc::clone(&core), is_local, takes_files && !is_private, inward);
    let ended = reader.run(&mut requests, closing).await;
    // Answers from before the end are sent, whatever the reason for the end.
    let ended = ended.and(reader.send_answers(&core).await);
    // The answerer goes on until the reader and all tickets are gone.
    drop(reader);
    let answered = answering.join_next().await;
    match ended {
        // Anybody who reaches the port can cause this line.
        Err(error) if error.is_misbehaviour() => {
            if let Some(left_out) = core.closed_log.due(holder) {
                info!(%peer, %error, left_out, "connection closed");
            }
        }
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
    /// State that requests have proved so far: their sequence, and known capabilities.
    session: Session,
    visitor: Visitor,
    /// True once the peer has shown a good MAC and has its slot.
    proven: bool,
    events: mpsc::UnboundedSender<Event>,
    answers: Arc<Answers>,
    /// Answers that the reader itself has made and not yet sent.
    outbox: Outbox,
    /// One permit for each request that may be unanswered.
    permits: Arc<Semaphore>,
    receiver: Receiver,
}

impl RequestReader {
    async fn run(
        &mut self,
        requests: &mut Requests,
        mut closing: watch::Receiver<bool>,
    ) -> Result<(), TransportError> {
        let core = requests.core();
        let wait = core.settings.limits.idle;
        loop {
            let frame = match self.receiver.frame_at_hand()? {
                Some(frame) => Some(frame),
                None => {
                    self.send_answers(&core).await?;
                    tokio::select! {
                        frame = self.receiver.frame_within(wait, "for the next request") => frame?,
                        () = self.events.closed() => return Ok(()),
                        _ = closing.wait_for(|&closing| closing) => return Ok(()),
                    }
                }
            };
            let Some((header, body)) = frame else { return Ok(()) };
            let permit = match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    self.send_answers(&core).await?;
                    tokio::select! {
                        permit = Arc::clone(&self.permits).acquire_owned() => permit.expect("it is never closed"),
                        () = self.events.closed() => return Ok(()),
                    }
                }
            };
            self.take(requests, &header, &body, permit).await?;
            self.receiver.recycle(body);
            if self.outbox.is_full() {
                self.send_answers(&core).await?;
            }
        }
    }

    /// Sends the reader's own answers, or leaves them to the answerer: it never waits.
    async fn send_answers(&mut self, core: &Core) -> Result<(), TransportError> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        if let Ok(mut sender) = self.answers.sender.try_lock()
            && self.outbox.send_now(core, &mut sender).await?
        {
            return Ok(());
        }
        self.answers.handed.store(true, Ordering::Release);
        let outbox = Box::new(std::mem::take(&mut self.outbox));
        // If the answerer is gone, so is the peer.
        let _ = self.events.send(Event::Handed(outbox, self.receiver.work()));
        Ok(())
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
        let session = &mut self.session;
        let arrival = core.arrival();
        let judged =
            core.with_scene(self.binding, arrival.now_ms, |scene| authorise_in(session, scene, header, body));
        if let Ok(verified) = &judged {
            self.receiver.pace(paced(&verified.capability, DataDirection::Read, arrival.now_ms));
        }
        let placed = self.place(&core, body);
        if let (Ok(verified), Ok(())) = (&judged, &placed)
            && !self.answers.handed.load(Ordering::Acquire)
            && requests.answer_at_once(verified, &arrival, &mut self.outbox)
        {
            return Ok(());
        }
        let (seal, leaseless, accepted) = match (judged, placed) {
            (Ok(verified), Ok(())) => (verified.seal.clone(), verified.precedes_lease(), Ok(verified)),
            (Ok(Verified { seal, .. }), Err(refusal)) | (Err(Denied { refusal, seal }), _) => {
                debug!(peer = self.receiver.address(), reason = ?refusal.reason, %refusal, "refused");
                (seal, false, Err(refusal))
            }
        };
        let timing = accepted.as_ref().ok().and_then(|verified| Timing::of(&verified.request));
        let _work = self.receiver.work();
        let job = Job { kind: header.kind, seal, _work, _permit: permit, leaseless, timing };
        let ticket = Ticket::new(job, self.events.clone());
        // This request may wait for its payload, for memory or for a thread: finished answers do not wait for
        // it.
        self.send_answers(&core).await?;
        match accepted {
            Ok(verified) => requests.carry_out(verified, &arrival, &mut self.receiver, ticket).await,
            Err(refusal) => {
                ticket.refuse(Generation(0), refusal);
                Ok(())
            }
        }
    }

    /// Gives the peer its slot once one of its requests had a good MAC, which proves the capability in
    /// `body`.
    fn place(&mut self, core: &Core, body: &[u8]) -> Result<(), Refusal> {
        if self.proven || self.session.sequence() == 0 {
            return Ok(());
        }
        let Ok((authority, _)) = split(body) else { return Ok(()) };
        self.receiver.admit(core.room.place(self.visitor, &authority.capability)?);
        self.proven = true;
        Ok(())
    }
}
