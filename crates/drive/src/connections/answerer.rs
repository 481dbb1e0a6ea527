//! The half of a connection that sends answers, and the tickets by which requests are answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::Generation;
use braid_store::Piece;
use braid_transport::{FilePiece, Sender, TransportError, Work};
use braid_wire::data::{DriveReply, DriveRequest, Receipt, Times, may_refuse};
use braid_wire::frame::BODY_BYTES_MAX;
use braid_wire::seal::ReplySeal;
use braid_wire::{Reason, Refusal};
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio::time::{Duration, Instant, sleep_until};
use tracing::warn;

use crate::connections::inward::Inward;
use crate::connections::outbox::{self, Outbox};
use crate::connections::reply::{Answer, Payload};
use crate::core::{Core, Figures};
use crate::device::rail::Turns;

/// Number of looks for requests that wait too long, per longest wait.
const LOOKS_PER_WAIT: u32 = 8;

/// Takes the answer to one request. A ticket that is dropped without an answer sends a refusal.
pub(crate) struct Ticket {
    /// `None` once the ticket was used.
    job: Option<Box<Job>>,
    events: mpsc::UnboundedSender<Event>,
}

/// Message to the answerer. The number of unanswered requests bounds the queue.
pub(crate) enum Event {
    /// The request with this number waits for the store from now on.
    Waits(u64),
    /// A request is done.
    Done(Box<Job>, Box<Answer>),
    /// A request will never be done, as its wait for the named resource timed out.
    Late(u64, &'static str),
    /// The reader's answers, which the connection did not take at once; the work keeps the connection from
    /// counting as idle.
    Handed(Box<Outbox>, Option<Work>),
}

/// An unanswered request.
pub(crate) struct Job {
    pub(crate) kind: u16,
    pub(crate) seal: ReplySeal,
    /// Keeps the connection from counting as idle until the answer has been sent.
    pub(crate) _work: Option<Work>,
    /// Permit that counts the request among the connection's unanswered ones.
    pub(crate) _permit: OwnedSemaphorePermit,
    /// True if the request is answered even without a lease.
    pub(crate) leaseless: bool,
    /// The time that the request takes; `None`: nobody asks.
    pub(crate) timing: Option<Timing>,
}

/// The time that a request takes, so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    came: Instant,
    times: Times,
}

impl Timing {
    /// The times of a request that comes now, if it asks for them.
    pub(crate) fn of(request: &DriveRequest) -> Option<Timing> {
        request.asks_times().then(|| Timing { came: Instant::now(), times: Times::default() })
    }
}

/// The sending half of a connection. The answerer uses it, and the reader while the answerer does not send.
pub(crate) struct Answers {
    pub(crate) sender: Mutex<Sender>,
    /// True while answers that the reader has handed over are not sent yet. Meanwhile the reader answers
    /// nothing itself, which bounds the answers that wait for a peer that takes none.
    pub(crate) handed: AtomicBool,
    /// The connection's payloads; `None`: they need no turns.
    pub(crate) inward: Option<Arc<Inward>>,
}

/// Sends answers as they come. Small answers that come together are sent together.
pub(crate) async fn answer(
    core: Arc<Core>,
    answers: Arc<Answers>,
    mut events: mpsc::UnboundedReceiver<Event>,
) -> Result<(), TransportError> {
    let wait = core.settings.store_wait;
    let between = (wait / LOOKS_PER_WAIT).max(Duration::from_millis(1));
    let mut waiting: HashMap<u64, Instant> = HashMap::new();
    let mut look = Instant::now() + between;
    let mut outbox = Outbox::default();
    loop {
        let mut event = tokio::select! {
            event = events.recv() => match event {
                None => return answers.sender.lock().await.shutdown().await,
                event => event,
            },
            () = sleep_until(look), if !waiting.is_empty() => {
                let now = Instant::now();
                look = now + between;
                let late = waiting.iter().find(|(_, since)| now.duration_since(**since) > wait);
                let Some((&request, _)) = late else { continue };
                Some(Event::Late(request, "the store: does its disk hang?"))
            }
        };
        while let Some(told) = event {
            match told {
                Event::Waits(request) => drop(waiting.insert(request, Instant::now())),
                Event::Done(job, answer) => {
                    waiting.remove(&job.seal.request());
                    answers.put(&core, &mut outbox, job, *answer).await?;
                }
                Event::Handed(mut handed, _work) => {
                    handed.send(&core, &mut *answers.sender.lock().await).await?;
                    answers.handed.store(false, Ordering::Release);
                }
                Event::Late(request, what) => {
                    let sender = answers.sender.lock().await;
                    let peer = sender.address();
                    warn!(
                        peer,
                        request, what, "waited too long: the connection is ended, so that its slots are free"
                    );
                    return Ok(());
                }
            }
            // Events that have come by now are handled along with this one.
            event = events.try_recv().ok();
        }
        if !outbox.is_empty() {
            outbox.send(&core, &mut *answers.sender.lock().await).await?;
        }
    }
}

impl Answers {
    /// Adds to the answer to a write whether the link is congested, and this drive's own receipt. Everything
    /// that the answer states was durable before.
    fn add_own(&self, core: &Core, reply: &mut DriveReply) {
        if let DriveReply::Written(written) = reply {
            written.turns = self.inward.as_ref().is_some_and(|inward| inward.is_congested());
            written.receipts.push(Receipt { drive: core.drive, log: core.store.last_record() });
        }
    }

    /// Adds an answer to those that are sent together, or sends it at once if it is too large for that.
    async fn put(
        &self,
        core: &Core,
        outbox: &mut Outbox,
        job: Box<Job>,
        mut answer: Answer,
    ) -> Result<(), TransportError> {
        self.add_own(core, &mut answer.reply);
        if let Some(timing) = job.timing {
            add_times(timing, &mut answer.reply);
        }
        let payload = match &answer.payload {
            Payload::Empty => Some(&[][..]),
            Payload::Memory(buffer) => Some(buffer.payload()),
            Payload::Files { .. } => None,
        };
        let is_small = answer.payload.bytes() <= outbox::PAYLOAD_BYTES_MAX;
        if let Some(payload) = payload.filter(|_| is_small) {
            outbox.put(core, job, &answer, payload);
            if !outbox.is_full() {
                return Ok(());
            }
            return outbox.send(core, &mut *self.sender.lock().await).await;
        }
        let mut sender = self.sender.lock().await;
        if !outbox.is_empty() {
            outbox.send(core, &mut sender).await?;
        }
        send_answer(core, &mut sender, &job, answer).await
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
    let kind = answer.reply.kind();
    let request = job.seal.request();
    let missing = match answer.turns.take() {
        None => send(sender, kind, request, &body, &answer.payload).await?,
        Some(turns) => {
            sender.begin(kind, request, &body, length(&answer.payload)).await?;
            send_in_turns(sender, &answer.payload, turns).await?
        }
    };
    if missing > 0 {
        warn!(
            missing,
            "stored bytes could not be read: the reader was sent zeros, which do not match their checksums"
        );
    }
    Ok(())
}

/// Sends a frame. Returns the number of bytes that could not be read.
async fn send(
    sender: &mut Sender,
    kind: u16,
    request: u64,
    body: &[u8],
    payload: &Payload,
) -> Result<u32, TransportError> {
    match payload {
        Payload::Empty => sender.send(kind, request, body, &[]).await?,
        Payload::Memory(buffer) => sender.send(kind, request, body, &[buffer.payload()]).await?,
        Payload::Files { pieces, .. } => {
            let all = file_pieces(pieces, 0, u64::MAX);
            return sender.send_files(kind, request, body, &all).await;
        }
    }
    Ok(0)
}

/// Sends the payload of a frame that was begun, each piece at its turn. Returns the number of bytes that
/// could not be read.
async fn send_in_turns(
    sender: &mut Sender,
    payload: &Payload,
    mut turns: Turns,
) -> Result<u32, TransportError> {
    let mut missing = 0;
    let mut from = 0;
    loop {
        // A piece that is not the first has no turn only if the drive ends.
        let closed = |_| TransportError::Closed { address: sender.address().to_owned() };
        let Some(bytes) = turns.next().await.map_err(closed)? else { return Ok(missing) };
        let to = from + u64::from(bytes);
        match payload {
            Payload::Empty => {}
            Payload::Memory(buffer) => {
                let range = [from, to].map(|at| usize::try_from(at).expect("a payload is at most 64 MiB"));
                sender.part(&buffer.payload()[range[0]..range[1]]).await?;
            }
            Payload::Files { pieces, .. } => {
                for piece in file_pieces(pieces, from, to) {
                    missing += sender.file_part(&piece).await?;
                }
            }
        }
        from = to;
    }
}

/// The pieces of files in which the bytes from `from` to `to` of a payload lie.
fn file_pieces(pieces: &[Piece], from: u64, to: u64) -> Vec<FilePiece<'_>> {
    let mut found = Vec::with_capacity(pieces.len());
    let mut begin = 0;
    for piece in pieces {
        let end = begin + u64::from(piece.length);
        let skipped = from.max(begin) - begin;
        let length = to.min(end).saturating_sub(begin + skipped);
        if length > 0 {
            let file = piece.lend().expect("resident bytes are in a file");
            let length = u32::try_from(length).expect("a part of the piece");
            found.push(FilePiece { file, offset: piece.offset + skipped, length });
        }
        begin = end;
    }
    found
}

fn length(payload: &Payload) -> usize {
    usize::try_from(payload.bytes()).expect("a payload is at most 64 MiB")
}

fn seal_answer(seal: &ReplySeal, answer: &Answer) -> Vec<u8> {
    seal.seal(answer.g, &answer.reply, answer.payload.bytes())
}

impl Ticket {
    pub(crate) fn new(job: Job, events: mpsc::UnboundedSender<Event>) -> Ticket {
        Ticket { job: Some(Box::new(job)), events }
    }

    /// The request waits for the store from now on; the wait is bounded.
    pub(crate) fn waits(&self) {
        if let Some(job) = &self.job {
            // If the answerer is gone, so is the peer, here and below.
            let _ = self.events.send(Event::Waits(job.seal.request()));
        }
    }

    /// Has the request's times written down, if they are asked for.
    pub(crate) fn time(&mut self, note: impl FnOnce(&mut Times)) {
        if let Some(timing) = self.job.as_mut().and_then(|job| job.timing.as_mut()) {
            note(&mut timing.times);
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

    fn settle(&mut self, answer: Answer) {
        if let Some(job) = self.job.take() {
            let _ = self.events.send(Event::Done(job, Box::new(answer)));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let detail = "the drive has too much to do, and the request waited too long: try again";
        let refusal = Refusal::new(Reason::Busy, detail);
        self.settle(Answer::refused(Generation(0), refusal));
    }
}

fn add_times(timing: Timing, reply: &mut DriveReply) {
    let times = Some(Times { total_us: micros(timing.came.elapsed()), ..timing.times });
    match reply {
        DriveReply::Read(reply) => reply.times = times,
        DriveReply::Written(reply) => reply.times = times,
        _ => {}
    }
}

/// A time as it is told.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    async fn ticket() -> (Ticket, mpsc::UnboundedReceiver<Event>) {
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.acquire_owned().await.expect("it is never closed");
        let seal = ReplySeal::without_proof(7);
        let job = Job { kind: 0x0102, seal, _work: None, _permit: permit, leaseless: false, timing: None };
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
        let (dropped, mut told) = ticket().await;
        drop(dropped);
        let Ok(Event::Done(_, answer)) = told.try_recv() else { panic!("no answer") };
        assert!(matches!(&answer.reply, DriveReply::Refused(refusal) if refusal.reason == Reason::Busy));
        assert!(told.try_recv().is_err());
    }
}
