//! Carries out the requests of one connection, after their MAC, time, scope and form were found good.
//!
//! First what only the store can tell: the object's logical version, its generation, the byte range. Then the request
//! itself. An object whose creation is still on its way to the disk counts as there for the requests behind it on the same
//! connection; the store takes them in the same order, so if the creation fails, so do they.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::{Generation, Version};
use braid_store::{Body, Mutation, Outcome, Rejected, Reply, Standing, Write};
use braid_transport::{Receiver, TransportError};
use braid_wire::authorise::{ObjectFacts, Verified, address, needs, term};
use braid_wire::capability::Rights;
use braid_wire::data::{ColumnMap, DriveRequest, Retire, StripeWrite, Written};
use braid_wire::{Capability, Reason, Refusal, Wire};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::buffers::{Connection, Share};
use crate::connection::Coming;
use crate::convert::{self, Place};
use crate::core::{Core, Figures};
use crate::queries::{self, Room};
use crate::reply::{Answer, refusal};

/// Above this the payload's checksums are computed off the connection's task: they would hold up others for too long.
const CHECKED_INLINE_BYTES: u32 = 2 << 20;

/// The requests of one connection.
pub(crate) struct Requests {
    core: Arc<Core>,
    buffers: Arc<Connection>,
    /// Reads of so many bytes and more leave by `sendfile` where they can; `None`: none do.
    sendfile_min: Option<u32>,
    making: Vec<Making>,
}

/// What is known of an object.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) object_version: u32,
    pub(crate) g: Generation,
    pub(crate) map: ColumnMap,
}

/// An object on its way to the disk.
struct Making {
    place: Place,
    facts: Facts,
    /// Set when the store has answered, and shows the object itself.
    answered: Arc<AtomicBool>,
}

impl Requests {
    /// Those of one connection, whose peer is on this machine or not.
    pub(crate) fn new(core: Arc<Core>, is_local: bool) -> Requests {
        let buffers = Arc::new(core.pool.connection());
        let sendfile_min = core.settings.sending.bytes_min(is_local);
        Requests { core, buffers, sendfile_min, making: Vec::new() }
    }

    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core)
    }

    /// Carries out a request, or refuses it. Its payload is taken only where nothing else speaks against it. An error is the
    /// connection's.
    pub(crate) async fn carry_out(
        &mut self,
        verified: Verified,
        receiver: &mut Receiver,
    ) -> Result<Coming, TransportError> {
        use DriveRequest as R;
        if let Err(refusal) = self.serving(&verified) {
            return Ok(Coming::refused(Generation(0), refusal));
        }
        let facts = match address(&verified.request).filter(|at| !at.is_well_known()) {
            Some(at) => match self.examine(&verified, (at.partition, at.object)) {
                Ok(facts) => facts,
                Err(refused) => return Ok(Coming::Now(refused)),
            },
            None => None,
        };
        let g = facts.as_ref().map_or(Generation(0), |facts| facts.g);
        let (capability, request) = (&verified.capability, verified.request);
        Ok(match request {
            R::UnitWrite(_) | R::Delta(_) | R::Join(_) | R::Ready(_) => {
                let detail = format!("this release's drives do not serve {} yet", request.name());
                Coming::refused(g, Refusal::new(Reason::Unsupported, detail))
            }
            R::Read(read) => {
                let share = match self.share(read.to - read.from).await {
                    Ok(share) => share,
                    Err(coming) => return Ok(coming),
                };
                let room =
                    Room { buffers: Arc::clone(&self.buffers), share, sendfile_min: self.sendfile_min };
                let g = capability.g;
                self.look(move |core| queries::read(core, room, g, &read)).await
            }
            R::StripeWrite(write) => match facts {
                Some(facts) => return self.stripe_write(capability, &facts, write, receiver).await,
                None => Coming::refused(g, no_object()),
            },
            R::Versions(asked) => self.look(move |core| queries::versions(core, g, &asked)).await,
            R::GetAttributes(asked) => self.look(move |core| queries::attributes(core, &asked)).await,
            R::List(asked) => self.look(move |core| queries::list(core, &asked)).await,
            R::Flush(_) => self.submit(Mutation::Flush, always(), move |result| done(g, result)).await,
            R::Retire(retire) if facts.is_none() => {
                self.end_lease(capability, &retire);
                Coming::now(Answer::done(g))
            }
            R::Retire(retire) => self.retire(capability, g, &retire).await,
            R::Create(create) => self.create(capability, facts, create).await,
            request => self.manage(capability, facts, request).await,
        })
    }

    /// Whether the drive may take requests now, and whether the manager that this one comes from still leads.
    fn serving(&self, verified: &Verified) -> Result<(), Refusal> {
        let mut lease = self.core.lease();
        match lease.serving(self.core.clock().now()) {
            // A drive that returned is fenced before it gets a lease.
            Err(refusal) if refusal.reason == Reason::NotServing && verified.precedes_lease() => {}
            other => other?,
        }
        match term(&verified.request) {
            Some(term) => lease.handle_term(term),
            None => Ok(()),
        }
    }

    /// What is known of the object, if it is there and the request fits it.
    fn examine(&mut self, verified: &Verified, place: Place) -> Result<Option<Facts>, Box<Answer>> {
        use DriveRequest as R;
        let request = &verified.request;
        let refused = |g, refusal| Err(Box::new(Answer::refused(g, refusal)));
        let ends_lease = matches!(request, R::Retire(retire) if retire.ends_lease);
        if !ends_lease
            && let Err(refusal) = self.core.revoked().check(&verified.capability, needs(request).rights)
        {
            return refused(Generation(0), refusal);
        }
        let facts = match self.facts(place) {
            Ok(facts) => facts,
            Err(refusal) => return refused(Generation(0), refusal),
        };
        let Some(facts) = facts else {
            return match request {
                R::Create(_) | R::Remove(_) | R::Flush(_) => Ok(None),
                R::Retire(_) if ends_lease => Ok(None),
                _ => refused(Generation(0), no_object()),
            };
        };
        if matches!(request, R::Create(_)) {
            return Ok(Some(facts));
        }
        let known = ObjectFacts { object_version: facts.object_version, g: facts.g, map: &facts.map };
        if let Err(refusal) = verified.permit(&known) {
            return refused(facts.g, refusal);
        }
        let needs_fence = matches!(
            request,
            R::Read(_) | R::StripeWrite(_) | R::Versions(_) | R::Retire(_) | R::Verdict(_) | R::Snapshot(_)
        );
        match self.core.gate.admit(place.0, place.1) {
            Err(refusal) if needs_fence => refused(facts.g, refusal),
            _ => Ok(Some(facts)),
        }
    }

    fn facts(&mut self, place: Place) -> Result<Option<Facts>, Refusal> {
        self.making.retain(|making| !making.answered.load(Ordering::Acquire));
        if let Some(making) = self.making.iter().find(|making| making.place == place) {
            return Ok(Some(making.facts.clone()));
        }
        match self.core.store.object(place.0, place.1) {
            Ok(stored) => {
                let map = ColumnMap::from_bytes(&stored.map)
                    .map_err(|error| Refusal::new(Reason::Damaged, format!("the object's map: {error}")))?;
                Ok(Some(Facts { object_version: stored.object_version, g: stored.g, map }))
            }
            Err(braid_store::Error::NoObject(..)) => Ok(None),
            Err(error) => Err(refusal(&error)),
        }
    }

    async fn stripe_write(
        &mut self,
        capability: &Capability,
        facts: &Facts,
        write: StripeWrite,
        receiver: &mut Receiver,
    ) -> Result<Coming, TransportError> {
        if let Err(refusal) = check_write(capability, facts, &write) {
            return Ok(Coming::refused(facts.g, refusal));
        }
        let bytes = if write.hole { 0 } else { write.to - write.from };
        let body = if write.hole {
            Body::Hole
        } else {
            let share = match self.share(bytes).await {
                Ok(share) => share,
                Err(coming) => return Ok(coming),
            };
            let mut buffer = self.buffers.buffer(bytes, share);
            receiver.payload(buffer.fill()).await?;
            Body::Bytes { payload: buffer.into_bytes(), crcs: write.crcs }
        };
        let (g, stamp, core) = (capability.g, write.stamp, self.core());
        let mutation = Mutation::Write(Write {
            partition: write.at.partition,
            object: write.at.object,
            unit: write.unit,
            from: write.from,
            to: write.to,
            kind: convert::write_kind(&write.cover),
            standing: if write.install { Standing::Settled } else { Standing::Pending },
            version: stamp,
            columns: write.columns,
            cover: write.cover,
            client: write.client,
            operation: write.operation,
            g,
            settled_below: write.settled_below,
            body,
        });
        let finish = move |result| {
            Answer::from_store(g, result, |outcome| {
                let written = match outcome {
                    Outcome::Applied => Written { version: stamp, already: false },
                    Outcome::Already => Written { version: stamp, already: true },
                    Outcome::Older { tip } => Written { version: tip, already: true },
                    // Of unit writes and deltas only.
                    Outcome::Owed { version, .. } => Written { version, already: false },
                    Outcome::Known { version, .. } => Written { version, already: true },
                    Outcome::Counted { tip } => Written { version: tip, already: true },
                };
                if !written.already {
                    Figures::add(&core.figures.written_bytes, u64::from(bytes));
                }
                written.into()
            })
        };
        // The payload was long on its way, maybe: a lease that was given back meanwhile writes nothing any more.
        let still = self.still(capability, Rights::WRITE);
        if bytes <= CHECKED_INLINE_BYTES {
            return Ok(self.submit(mutation, still, finish).await);
        }
        Ok(self.submit_in_thread(mutation, still, finish).await)
    }

    async fn retire(&self, capability: &Capability, g: Generation, retire: &Retire) -> Coming {
        let settled_to = retire.settled_to;
        if settled_to.lease != capability.lease || settled_to.g > capability.g {
            let detail = format!("stamp {settled_to} is not of lease {}", capability.lease);
            return Coming::refused(g, Refusal::new(Reason::Scope, detail));
        }
        if retire.ends_lease {
            self.end_lease(capability, retire);
        }
        let settled_below = Version { n: settled_to.n.saturating_add(1), ..settled_to };
        let (partition, object) = (retire.at.partition, retire.at.object);
        let client = retire.client;
        let watermark = if client == 0 { 0 } else { retire.watermark };
        let mutation = Mutation::Retire { partition, object, g, settled_below, client, watermark };
        let coming = self.submit(mutation, always(), move |result| done(g, result)).await;
        if retire.durable { coming } else { Coming::now(Answer::done(g)) }
    }

    /// No capability of the request's lease, or of an earlier one, writes to the object any more.
    fn end_lease(&self, capability: &Capability, retire: &Retire) {
        let place = (retire.at.partition, retire.at.object);
        // The request would not have come so far without a lease.
        let now_ms = self.core.manager_ms().unwrap_or(capability.expires_ms);
        self.core.revoked().handle_lease_end(place, (capability.g, capability.lease), now_ms);
    }

    /// Whether the capability is good for these rights, to be asked again and again.
    pub(crate) fn still(&self, capability: &Capability, rights: Rights) -> Still {
        if capability.rights.include(Rights::MANAGE) {
            return always();
        }
        let (core, capability) = (self.core(), capability.clone());
        Box::new(move || {
            let in_time = core.manager_ms().is_some_and(|now_ms| now_ms < capability.expires_ms);
            in_time && core.revoked().check(&capability, rights).is_ok()
        })
    }

    /// The facts of an object that is being made count at once.
    pub(crate) fn is_making(&mut self, place: Place, facts: Facts, answered: Arc<AtomicBool>) {
        self.making.push(Making { place, facts, answered });
    }

    /// A share of the payload bound, or why there is none.
    async fn share(&self, bytes: u32) -> Result<Share, Coming> {
        match timeout(self.core.settings.store_wait, self.buffers.share(bytes)).await {
            Ok(share) => share.map_err(|_| closing()),
            Err(_) => Err(Coming::Late("memory for payloads: others hold all of it")),
        }
    }

    /// Runs `work` in a thread, of which there is a bounded number.
    pub(crate) async fn look(&self, work: impl FnOnce(&Core) -> Answer + Send + 'static) -> Coming {
        let permit = Arc::clone(&self.core.reads).acquire_owned();
        let permit = match timeout(self.core.settings.store_wait, permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return closing(),
            Err(_) => return Coming::Late("a thread: all of them wait for the store; does its disk hang?"),
        };
        let (core, (done, coming)) = (self.core(), oneshot::channel());
        tokio::task::spawn_blocking(move || {
            let answer = work(&core);
            drop(permit);
            // The connection may be gone: then nobody wants it.
            let _ = done.send(answer);
        });
        Coming::Later(coming)
    }

    /// Hands a mutation to the store, which carries it out if it is `still` allowed; `finish` makes its answer.
    pub(crate) async fn submit(
        &self,
        mutation: Mutation,
        still: Still,
        finish: impl FnOnce(Result<Outcome, braid_store::Error>) -> Answer + Send + 'static,
    ) -> Coming {
        let (done, coming) = oneshot::channel();
        let reply = Box::new(move |result| drop(done.send(finish(result))));
        if let Err(Rejected { mutation, reply }) = self.core.store.try_submit(mutation, reply, &still) {
            // The store's queue is full: wait for it in a thread, and take nothing more from this peer meanwhile.
            return self.queue_in_thread(mutation, still, reply, coming).await;
        }
        Coming::Later(coming)
    }

    async fn submit_in_thread(
        &self,
        mutation: Mutation,
        still: Still,
        finish: impl FnOnce(Result<Outcome, braid_store::Error>) -> Answer + Send + 'static,
    ) -> Coming {
        let (done, coming) = oneshot::channel();
        let reply = Box::new(move |result| drop(done.send(finish(result))));
        self.queue_in_thread(mutation, still, reply, coming).await
    }

    async fn queue_in_thread(
        &self,
        mutation: Mutation,
        still: Still,
        reply: Reply,
        coming: oneshot::Receiver<Answer>,
    ) -> Coming {
        let (store, wait) = (self.core.store.clone(), self.core.settings.store_wait);
        let queue = move || store.submit_within(mutation, reply, wait, &still).is_ok();
        match tokio::task::spawn_blocking(queue).await {
            Ok(false) => Coming::Late("a place in the store's queue: does its disk hang?"),
            _ => Coming::Later(coming),
        }
    }
}

/// Whether what is asked for may still be done.
type Still = Box<dyn Fn() -> bool + Send + Sync>;

/// For what no capability's end speaks against.
fn always() -> Still {
    Box::new(|| true)
}

/// What a stripe write's fields must keep to besides what every request does.
fn check_write(capability: &Capability, facts: &Facts, write: &StripeWrite) -> Result<(), Refusal> {
    if write.install && !capability.joining.contains(facts.map.column) {
        let detail = format!("column {} is not joining: nothing is installed there", facts.map.column);
        return Err(Refusal::new(Reason::Scope, detail));
    }
    if !write.install && write.stamp.lease != capability.lease {
        let detail = format!("stamp {} is not of lease {}", write.stamp, capability.lease);
        return Err(Refusal::new(Reason::Scope, detail));
    }
    if write.stamp.n == 0 {
        return Err(Refusal::new(Reason::Malformed, "stamps are numbered from 1"));
    }
    if !write.cover.is_empty() && write.cover.len() != usize::from(facts.map.k) {
        let detail = format!("a cover of {} versions for {} data columns", write.cover.len(), facts.map.k);
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    Ok(())
}

pub(crate) fn done(g: Generation, result: Result<Outcome, braid_store::Error>) -> Answer {
    Answer::from_store(g, result, |_| braid_wire::data::Done {}.into())
}

fn no_object() -> Refusal {
    Refusal::new(Reason::NoObject, "no such object on this drive")
}

fn closing() -> Coming {
    Coming::refused(Generation(0), Refusal::new(Reason::Closing, "the drive is shutting down"))
}
