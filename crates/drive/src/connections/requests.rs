//! Carries out the requests of one connection, once their MAC, time, scope and form have been checked.
//!
//! First come the checks that need the store: the object's logical version, its generation, the byte range.
//! Then the request itself. An object whose creation is still on its way to the disk counts as present for
//! later requests on the same connection. The store takes them in the same order, so if the creation fails,
//! so do they.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_layout::{ClientId, Generation, OperationNumber};
use braid_schedule::{Direction, Flow};
use braid_store::{Body, Mutation, MutationOutcome, Rejected, Reply, Standing};
use braid_transport::{Receiver, TransportError, host};
use braid_wire::authorise::{ObjectFacts, Verified, needs};
use braid_wire::capability::Rights;
use braid_wire::data::{Absent, DriveRequest, FenceRule, Retire, StripeWrite, Written};
use braid_wire::{Capability, Reason, Refusal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::connections::answerer::{Ticket, micros};
use crate::connections::buffers::{Connection, Share};
use crate::connections::convert::{self, ObjectRef};
use crate::connections::facts::{Objects, StoredFacts};
use crate::connections::inward::{self, Inward};
use crate::connections::manage;
use crate::connections::queries::{self, Room};
use crate::connections::reply::Answer;
use crate::core::{Arrival, Core, Figures, Timed};
use crate::damage_checks;
use crate::device::flows::{flow_of, is_promised};
use crate::parity::forward;
use crate::revoked::Revoked;

/// Above this size a payload's checksums are computed off the connection's task, which they would block for
/// too long.
const CHECKED_INLINE_BYTES: u32 = 2 << 20;

/// Longest wait for memory: clients take a drive for lost that does not answer for 8 s.
const MEMORY_WAIT: Duration = Duration::from_secs(4);
/// Bytes that requests are taken to read which only look something up.
const LOOK_BYTES: u64 = 4096;

/// The requests of one connection.
pub(crate) struct Requests {
    pub(crate) core: Arc<Core>,
    buffers: Arc<Connection>,
    /// Buffers of requests under a promise.
    promised_buffers: Arc<Connection>,
    /// True if the peer is on this machine.
    is_local: bool,
    /// True if the connection takes bytes from files: not in TLS or by datagrams, where what is sent passes
    /// through this process.
    takes_files: bool,
    /// The connection's payloads; `None`: they need no turns.
    inward: Option<Arc<Inward>>,
    pub(crate) objects: Objects,
}

impl Requests {
    /// Creates the state of one connection. `is_local`: its peer is on this machine; `takes_files`: it takes
    /// bytes from files.
    pub(crate) fn new(
        core: Arc<Core>,
        is_local: bool,
        takes_files: bool,
        inward: Option<Arc<Inward>>,
    ) -> Requests {
        let buffers = Arc::new(core.pool.connection());
        let promised_buffers = Arc::new(core.promised_pool.connection());
        Requests {
            core,
            buffers,
            promised_buffers,
            is_local,
            takes_files,
            inward,
            objects: Objects::default(),
        }
    }

    /// Reads of this many bytes or more are sent by `sendfile` where possible; `None`: none are.
    pub(crate) fn sendfile_min(&self) -> Option<u32> {
        // A modelled disk has no file of the system.
        let is_real = self.core.settings.disk_model.is_none();
        (is_real && self.takes_files).then(|| self.core.sending.bytes_min(self.is_local))
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    /// Carries out a request, or refuses it; its answer goes to `ticket`. Its payload is read only when all
    /// other checks have passed. An error ends the connection.
    pub(crate) async fn carry_out(
        &mut self,
        verified: Verified,
        arrival: &Arrival,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        if let Err(refusal) = self.serving(&verified, arrival) {
            ticket.refuse(Generation(0), refusal);
            return Ok(());
        }
        let at = verified.request.target().at;
        let facts = if at.is_well_known() {
            None
        } else {
            match self.examine(&verified, (at.partition, at.object)) {
                Ok(facts) => facts,
                Err(refused) => {
                    ticket.answer(*refused);
                    return Ok(());
                }
            }
        };
        let Verified { capability, request, .. } = verified;
        self.start_one(capability, facts, request, receiver, ticket).await
    }

    /// Starts a request that passed all checks common to its kind.
    async fn start_one(
        &mut self,
        capability: Capability,
        facts: Option<StoredFacts>,
        request: DriveRequest,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        use DriveRequest as R;
        let g = facts.as_ref().map_or(Generation(0), |facts| facts.g);
        let flow = flow_of(&self.core, &capability);
        match request {
            R::UnitWrite(write) => match facts {
                Some(facts) => self.unit_write(&capability, facts, write, receiver, ticket).await?,
                None => ticket.refuse(g, no_object()),
            },
            R::Delta(delta) => match facts {
                Some(facts) => self.delta(&capability, &facts, delta, receiver, ticket).await?,
                None => ticket.refuse(g, no_object()),
            },
            R::Read(read) => {
                if let Some(refusal) = queries::not_caught_up(&self.core, facts.as_ref(), &read) {
                    ticket.refuse(g, refusal);
                    return Ok(());
                }
                let buffers = Arc::clone(self.buffers_of(&flow, Direction::Read));
                if let Some((share, ticket)) = self.share(&buffers, read.to - read.from, ticket).await {
                    let room = Room { buffers, share, sendfile_min: self.sendfile_min() };
                    self.read(&capability, facts.as_ref(), room, read, ticket);
                }
            }
            R::StripeWrite(write) => match facts {
                Some(facts) => self.stripe_write(&capability, &facts, write, receiver, ticket).await?,
                None => ticket.refuse(g, no_object()),
            },
            R::Versions(asked) => self.look(flow, ticket, move |core| queries::versions(core, g, &asked)),
            R::GetAttributes(asked) => self.look(flow, ticket, move |core| queries::attributes(core, &asked)),
            R::List(asked) => self.look(flow, ticket, move |core| queries::list(core, &asked)),
            R::Retire(retire) if facts.is_none() => {
                self.end_lease(&capability, &retire);
                ticket.answer(Answer::done(g));
            }
            R::Retire(retire) => self.retire(&capability, g, &retire, ticket).await,
            R::Ready(asked) => self.ready(&capability, &asked, ticket).await,
            R::Create(create) => self.create(&capability, facts, create, ticket).await,
            R::Remove(asked) => {
                if asked.at.is_well_known() {
                    let partition = asked.at.partition;
                    self.look_now(flow, ticket, move |core| manage::remove_partition(core, g, partition))
                        .await;
                } else {
                    self.remove(&capability, g, &asked, ticket).await;
                }
            }
            R::Fence(asked) => self.fence(capability, asked, ticket).await,
            R::Verdict(verdict) => {
                let at = (verdict.at.partition, verdict.at.object);
                let work = move |core: &Arc<Core>| {
                    let answer = done(g, manage::give_verdict(core, capability.g, verdict));
                    forward::handle_fence(core, at);
                    answer
                };
                self.look_now(flow, ticket, work).await;
            }
            R::SetAttributes(set) => {
                let work = move |core: &Arc<Core>| done(g, manage::set_attributes(core, capability.g, set));
                self.look_now(flow, ticket, work).await;
            }
            R::Snapshot(asked) => self.take(&capability, &asked, ticket).await,
            R::PartitionSet(set) => {
                self.look_now(flow, ticket, move |core| manage::set_partition(core, &set)).await;
            }
            R::Scrub(asked) => self.look_now(flow, ticket, move |core| manage::scrub(core, &asked)).await,
            R::WriteTurn(asked) => self.write_turn(g, capability.client, asked.bytes, ticket),
            R::ModulePart(_) if facts.is_none() => ticket.refuse(g, no_object()),
            R::ModulePart(part) => match self.core.modules.take(part) {
                Ok(()) => ticket.answer(Answer::done(g)),
                Err(refusal) => ticket.refuse(g, refusal),
            },
            R::Run(run) => self.run_method(&capability, facts, run, ticket).await,
            R::Calibrate(asked) => ticket.answer(manage::calibrate(&self.core, &asked)),
        }
        Ok(())
    }

    /// Checks that the drive may take requests now, and that the manager that sent this one still leads.
    pub(crate) fn serving(&self, verified: &Verified, arrival: &Arrival) -> Result<(), Refusal> {
        match &arrival.serving {
            Ok(()) => {}
            // A drive that returned is fenced before it gets a lease.
            Err(refusal) if refusal.reason == Reason::NotServing && verified.precedes_lease() => {}
            Err(refusal) => return Err(refusal.clone()),
        }
        match verified.request.target().term {
            Some(term) => self.core.lease().handle_term(term),
            None => Ok(()),
        }
    }

    /// Facts about the object, if it exists and the request fits it; otherwise the refusal.
    pub(crate) fn examine(
        &mut self,
        verified: &Verified,
        place: ObjectRef,
    ) -> Result<Option<StoredFacts>, Box<Answer>> {
        use DriveRequest as R;
        let (request, rules) = (&verified.request, verified.request.rules());
        let refused = |g, refusal| Err(Box::new(Answer::refused(g, refusal)));
        let ends_lease = matches!(request, R::Retire(retire) if retire.ends_lease);
        let rights = needs(request).rights;
        if !ends_lease
            && Revoked::concerns(rights)
            && let Err(refusal) = self.core.revoked().check(&verified.capability, rights)
        {
            return refused(Generation(0), refusal);
        }
        let facts = match self.objects.facts(&self.core, place) {
            Ok(facts) => facts,
            // A lost object is removed, whatever it was.
            Err(lost) if lost.reason == Reason::Damaged && matches!(request, R::Remove(_)) => None,
            Err(refusal) => return refused(Generation(0), refusal),
        };
        let Some(facts) = facts else {
            return match rules.absent {
                Absent::Refused if !ends_lease => refused(Generation(0), no_object()),
                Absent::Refused | Absent::Served => Ok(None),
            };
        };
        if matches!(request, R::Create(_)) {
            return Ok(Some(facts));
        }
        let known = ObjectFacts { g: facts.g, map: &facts.map };
        if let Err(refusal) = verified.permit(&known) {
            return refused(facts.g, refusal);
        }
        match self.core.readmission.admit(place.0, place.1) {
            Err(refusal) if rules.fence == FenceRule::Needed => refused(facts.g, refusal),
            _ => Ok(Some(facts)),
        }
    }

    async fn stripe_write(
        &mut self,
        capability: &Capability,
        facts: &StoredFacts,
        mut write: StripeWrite,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<(), TransportError> {
        if let Err(refusal) = convert::check_write(facts.map.k, &write)
            .and_then(|()| manage::may_install(&self.core, capability, facts, &write))
        {
            ticket.refuse(facts.g, refusal);
            return Ok(());
        }
        let flow = flow_of(&self.core, capability);
        let bytes = if write.hole { 0 } else { write.to - write.from };
        let crcs = std::mem::take(&mut write.crcs);
        let Some((body, ticket)) =
            self.body((&flow, capability.client), bytes, crcs, receiver, ticket).await?
        else {
            return Ok(());
        };
        let g = capability.g;
        let stamp = write.stamp;
        let core = self.core();
        let place = (write.at.partition, write.at.object, write.unit);
        let repairs = write.install && core.damage.is_damaged(place);
        let is_managers = flow == Flow::System;
        let mut write = convert::stripe_write(write, g, body);
        if repairs {
            write.standing = Standing::Repaired;
        }
        let finish = move |result| {
            if repairs && matches!(result, Ok(MutationOutcome::Applied)) {
                damage_checks::handle_repaired(&core, place);
            }
            Answer::from_store(g, result, |outcome| {
                let written = match outcome {
                    MutationOutcome::Applied => Written::new(stamp, false),
                    MutationOutcome::Already => Written::new(stamp, true),
                    MutationOutcome::Older { tip } => Written::new(tip, true),
                    // Only unit writes and deltas have these outcomes.
                    MutationOutcome::Owed { version, .. } => Written::new(version, false),
                    MutationOutcome::Known { version, .. } => Written::new(version, true),
                    MutationOutcome::Counted { tip } => Written::new(tip, true),
                };
                if !written.already {
                    Figures::add(&core.figures.written_bytes, u64::from(bytes));
                    if is_managers {
                        Figures::add(&core.figures.system_bytes, u64::from(bytes));
                    }
                }
                written.into()
            })
        };
        // The payload may have taken long to arrive: if the lease was given back meanwhile, nothing may be
        // written.
        let still = self.still(capability, Rights::WRITE);
        let then = move |ticket: Ticket, result| ticket.answer(finish(result));
        self.hand_over(flow, ticket, Mutation::Write(write), bytes, still, then).await;
        Ok(())
    }

    /// Receives a payload in the form in which it is stored; 0 bytes are a hole. `None` if there is no memory
    /// for it: then the ticket is used up.
    pub(crate) async fn body(
        &self,
        whose: (&Flow, ClientId),
        bytes: u32,
        crcs: Vec<u32>,
        receiver: &mut Receiver,
        ticket: Ticket,
    ) -> Result<Option<(Body, Ticket)>, TransportError> {
        if bytes == 0 {
            return Ok(Some((Body::Hole, ticket)));
        }
        let (flow, client) = whose;
        let buffers = self.buffers_of(flow, Direction::Write);
        let Some((share, ticket)) = self.share(buffers, bytes, ticket).await else { return Ok(None) };
        let arriving = self.inward.as_ref().map(|inward| inward.arriving(client, bytes));
        let mut buffer = buffers.buffer(bytes, share);
        match &self.core.rails {
            None => receiver.payload(buffer.fill()).await?,
            Some(rails) => {
                let mut left = buffer.fill();
                let mut turns = rails.inward.turns(*flow, bytes);
                loop {
                    // Without a turn the ticket is dropped, which refuses the request.
                    let Ok(piece) = turns.next().await else { return Ok(None) };
                    let Some(piece) = piece else { break };
                    let (now, later) = left.split_at_mut(usize::try_from(piece).expect("a part of it"));
                    receiver.payload(now).await?;
                    left = later;
                }
            }
        }
        if let Some(turn) = arriving {
            inward::arrived(turn, bytes, receiver);
        }
        Ok(Some((Body::Bytes { payload: buffer.into_bytes(), crcs }, ticket)))
    }

    /// Answers when a client may send this many bytes.
    fn write_turn(&self, g: Generation, client: ClientId, bytes: u64, ticket: Ticket) {
        let Some(inward) = self.inward.clone() else { return ticket.answer(Answer::done(g)) };
        tokio::spawn(async move {
            inward.give(client, bytes).await;
            ticket.answer(Answer::done(g));
        });
    }

    async fn retire(&self, capability: &Capability, g: Generation, retire: &Retire, ticket: Ticket) {
        let settled_to = retire.settled_to;
        if settled_to.lease != capability.lease || settled_to.g > capability.g {
            let detail = format!("stamp {settled_to} does not belong to lease {}", capability.lease);
            return ticket.refuse(g, Refusal::new(Reason::Scope, detail));
        }
        if retire.ends_lease {
            self.end_lease(capability, retire);
        }
        let partition = retire.at.partition;
        let object = retire.at.object;
        let settled_below = retire.settled_below();
        let client = retire.client;
        let watermark = if client == ClientId::NONE { OperationNumber::NONE } else { retire.watermark };
        let mutation = Mutation::Retire { partition, object, g, settled_below, client, watermark };
        if retire.durable {
            return self.submit(ticket, mutation, always(), move |result| done(g, result)).await;
        }
        let not_waited_for = Box::new(drop);
        let queued = self.core.store.submit_within(mutation, not_waited_for, Some(Duration::ZERO), &always());
        if let Err(Rejected { mutation, reply }) = queued {
            self.queue_in_thread(mutation, always(), reply).await;
        }
        ticket.answer(Answer::done(g));
    }

    /// From now on no capability of the request's lease, or of an earlier one, writes to the object.
    fn end_lease(&self, capability: &Capability, retire: &Retire) {
        let place = (retire.at.partition, retire.at.object);
        // A request without a lease would not have come this far.
        let now_ms = self.core.manager_ms().unwrap_or(capability.expires_ms);
        self.core.revoked().handle_lease_end(place, (capability.g, capability.lease), now_ms);
    }

    /// Returns a check, for repeated use, that the capability still allows these rights.
    pub(crate) fn still(&self, capability: &Capability, rights: Rights) -> Still {
        if capability.rights.include(Rights::MANAGE) {
            return always();
        }
        let core = self.core();
        let capability = capability.clone();
        Box::new(move || {
            let in_time = core.manager_ms().is_some_and(|now_ms| now_ms < capability.expires_ms);
            in_time && core.revoked().check(&capability, rights).is_ok()
        })
    }

    /// Waits for a share of the payload bound; `None` if none is to be had: then `ticket` is used up.
    pub(crate) async fn share(
        &self,
        buffers: &Connection,
        bytes: u32,
        ticket: Ticket,
    ) -> Option<(Share, Ticket)> {
        match timeout(MEMORY_WAIT, buffers.share(bytes)).await {
            Ok(Ok(share)) => return Some((share, ticket)),
            Ok(Err(_)) => ticket.refuse(Generation(0), closing()),
            Err(_) => {
                let detail = "other requests hold all of the memory for payloads: try again";
                ticket.refuse(Generation(0), Refusal::new(Reason::Busy, detail));
            }
        }
        None
    }

    /// Memory of requests of this flow in this direction.
    pub(crate) fn buffers_of(&self, flow: &Flow, direction: Direction) -> &Arc<Connection> {
        if is_promised(&self.core, flow, direction) { &self.promised_buffers } else { &self.buffers }
    }

    /// Runs `work`, which may read a little, in a thread when it is this request's turn.
    pub(crate) fn look(
        &self,
        flow: Flow,
        ticket: Ticket,
        work: impl FnOnce(&Arc<Core>) -> Answer + Send + 'static,
    ) {
        drop(self.start(flow, ticket, |core, ticket| ticket.answer(work(core))));
    }

    /// As [`Requests::look`], but waits for the end, so that later requests see the effect.
    pub(crate) async fn look_now(
        &self,
        flow: Flow,
        ticket: Ticket,
        work: impl FnOnce(&Arc<Core>) -> Answer + Send + 'static,
    ) {
        let working = self.start(flow, ticket, |core, ticket| ticket.answer(work(core)));
        // If this takes too long, the answerer ends the connection.
        let _ = timeout(self.core.settings.store_wait, working).await;
    }

    /// Runs `work` in a thread when it is this request's turn. What is returned ends when the work has ended.
    pub(crate) fn start(
        &self,
        flow: Flow,
        ticket: Ticket,
        work: impl FnOnce(&Arc<Core>, Ticket) + Send + 'static,
    ) -> oneshot::Receiver<()> {
        ticket.waits();
        let core = self.core();
        let (ended, has_ended) = oneshot::channel();
        self.core.gate.enter(flow, Direction::Read, LOOK_BYTES, move |slot| {
            host::spawn_blocking(move || {
                work(&core, ticket);
                // As a rule the index in memory tells all.
                slot.did_nothing();
                drop(ended);
            });
        });
        has_ended
    }

    /// Hands a mutation without payload to the store, which carries it out if `still` allows it; `finish`
    /// makes the answer.
    pub(crate) async fn submit(
        &self,
        ticket: Ticket,
        mutation: Mutation,
        still: Still,
        finish: impl FnOnce(Result<MutationOutcome, braid_store::Error>) -> Answer + Send + 'static,
    ) {
        let then = move |ticket: Ticket, result| ticket.answer(finish(result));
        ticket.waits();
        self.hand_over_at_once(ticket, mutation, still, then).await;
    }

    /// Hands a mutation with `bytes` bytes of payload to the store when it is its turn; `then` gets the
    /// ticket and the result.
    pub(crate) async fn hand_over(
        &self,
        flow: Flow,
        ticket: Ticket,
        mutation: Mutation,
        bytes: u32,
        still: Still,
        then: impl FnOnce(Ticket, Result<MutationOutcome, braid_store::Error>) + Send + 'static,
    ) {
        ticket.waits();
        let core = self.core();
        if bytes == 0 {
            return self.hand_over_at_once(ticket, mutation, still, then).await;
        }
        let checked = if bytes > CHECKED_INLINE_BYTES {
            host::spawn_blocking(move || mutation.check()).await.unwrap_or(Err(braid_store::Error::Closed))
        } else {
            mutation.check()
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => return then(ticket, Err(error)),
        };
        self.core.gate.enter(flow, Direction::Write, u64::from(bytes), move |mut slot| {
            slot.count();
            let began = Instant::now();
            let mut ticket = ticket;
            ticket.time(|times| times.queue_us = micros(slot.waited()));
            let store = core.store.clone();
            let wait = 2 * core.settings.store_wait;
            let reply: Reply = Box::new(move |result| {
                core.note_latency(Timed::Commit, began);
                drop(slot);
                ticket.time(|times| times.commit_us = micros(began.elapsed()));
                then(ticket, result);
            });
            let queued = store.submit_checked(checked, reply, Some(Duration::ZERO), &still);
            if let Err(Rejected { mutation, reply }) = queued {
                // The store's queue is full of what did not pass the gate.
                let queue = move || drop(store.submit_within(mutation, reply, Some(wait), &still));
                drop(host::spawn_blocking(queue));
            }
        });
    }

    /// Hands a mutation without payload to the store. It needs no turn at the disk: its record goes with
    /// the next commit, and requests that come later on the connection rely on the order.
    async fn hand_over_at_once(
        &self,
        ticket: Ticket,
        mutation: Mutation,
        still: Still,
        then: impl FnOnce(Ticket, Result<MutationOutcome, braid_store::Error>) + Send + 'static,
    ) {
        let core = self.core();
        let began = Instant::now();
        let reply: Reply = Box::new(move |result| {
            core.note_latency(Timed::Commit, began);
            then(ticket, result);
        });
        let queued = self.core.store.submit_within(mutation, reply, Some(Duration::ZERO), &still);
        if let Err(Rejected { mutation, reply }) = queued {
            // The store's queue is full: wait in a thread, and take no more requests from this peer
            // meanwhile.
            self.queue_in_thread(mutation, still, reply).await;
        }
    }

    async fn queue_in_thread(&self, mutation: Mutation, still: Still, reply: Reply) {
        // Longer than the wait after which the answerer ends the connection, so nobody is told of a refusal
        // here.
        let store = self.core.store.clone();
        let wait = Some(2 * self.core.settings.store_wait);
        let queue = move || drop(store.submit_within(mutation, reply, wait, &still));
        let _ = host::spawn_blocking(queue).await;
    }
}

/// Check that a request may still be carried out.
type Still = Box<dyn Fn() -> bool + Send + Sync>;

/// Check that always passes, for requests that no revocation affects.
pub(crate) fn always() -> Still {
    Box::new(|| true)
}

pub(crate) fn done(g: Generation, result: Result<MutationOutcome, braid_store::Error>) -> Answer {
    Answer::from_store(g, result, |_| braid_wire::data::Done {}.into())
}

pub(crate) fn no_object() -> Refusal {
    Refusal::new(Reason::NoObject, "no such object on this drive")
}

fn closing() -> Refusal {
    Refusal::new(Reason::Closing, "the drive is shutting down")
}
