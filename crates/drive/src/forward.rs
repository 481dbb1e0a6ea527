//! Sends what unit writes changed to the parity drives, until they have it (PROTOCOL R3, R4).
//!
//! Each sister that is owed something has a *lane*: a task with one session, which sends the deltas of all
//! units that wait for that sister, a batch at a time. What comes meanwhile waits for the next batch, and so
//! shares the sister's commit. A unit whose deltas are refused waits a growing while and is tried again, for
//! ever: a debt outlives its writer. Only a fence ends it, by taking the column out of the set.
//!
//! When every parity column has a version, the store is told that it is settled, and then its writer. A
//! writer that waits too long is told to try again; its write stays owed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_layout::{
    Column, ColumnMask, DriveId, Generation, ObjectId, PartitionId, Role, Scheme, Shape, Stripe, Version,
};
use braid_store::{Error, Mutation, Rejected};
use braid_transport::{DriveSession, Limits, TransportError};
use braid_wire::control::Grant;
use braid_wire::data::{Address, ColumnMap, Delta, DriveReply, DriveRequest, Written};
use braid_wire::{Reason, Refusal, Wire};
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connection::Ticket;
use crate::core::Core;
use crate::debts::{Creditors, Debts, UnitRef};
use crate::reply::Answer;
use crate::sisters::Sisters;

/// The most deltas, and about the most bytes, of one batch.
const BATCH_LEN: usize = 256;
const BATCH_BYTES: usize = 8 << 20;
/// How long a refused unit waits before it is sent again: the first time, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For a sister's answers. Its own store may be slow; one that hangs is found out by others.
const SISTER_WAIT: Duration = Duration::from_secs(10);
/// How long a writer waits for the parity drives before it is told to try again.
const WRITER_WAIT: Duration = Duration::from_secs(8);
/// How often writers that wait too long are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A unit's deltas for one parity column.
type Job = (UnitRef, Column);

/// A writer that waits until its version is settled.
struct Waiter {
    ticket: Ticket,
    g: Generation,
    since: Instant,
}

/// The drive's debts and the lanes that pay them.
pub(crate) struct Forwarder {
    debts: Mutex<Debts<Waiter>>,
    sisters: Sisters,
    lanes: Mutex<Lanes>,
    /// Notified when something was acknowledged or dropped.
    progress: Notify,
    /// Where the lanes run: the store's thread, which tells of owed versions, is no part of it.
    runtime: Handle,
}

#[derive(Default)]
struct Lanes {
    senders: HashMap<DriveId, mpsc::UnboundedSender<Job>>,
    tasks: JoinSet<()>,
}

/// A delta that is ready to be sent.
struct Item {
    job: Job,
    request: DriveRequest,
    payload: Bytes,
}

/// The shape that a column map states; `None` if it is no shape.
pub(crate) fn shape_of(map: &ColumnMap) -> Option<Shape> {
    Shape::new(Scheme::from_number(map.scheme).ok()?, map.k, map.m, map.unit_bytes).ok()
}

/// The parity columns of a stripe.
fn creditors(map: &ColumnMap, set: ColumnMask, joining: ColumnMask, stripe: u64) -> Creditors {
    let parity = shape_of(map).map_or(ColumnMask::EMPTY, |shape| {
        (0..shape.m()).map(|p| shape.column(Stripe(stripe), Role::Parity(p))).collect()
    });
    let all = parity.and(set);
    Creditors { all, ready: all.minus(joining) }
}

impl Forwarder {
    /// Called in the runtime in which its lanes are to run.
    pub(crate) fn new(sisters: Sisters) -> Forwarder {
        let (debts, lanes, progress) = Default::default();
        Forwarder { debts, sisters, lanes, progress, runtime: Handle::current() }
    }

    fn debts(&self) -> MutexGuard<'_, Debts<Waiter>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all lanes, and what [`start`] began.
    pub(crate) fn stop(&self) {
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = Lanes::default();
    }
}

/// A version is owed from now on; its writer waits.
pub(crate) fn handle_owed(
    core: &Arc<Core>,
    unit: UnitRef,
    map: &ColumnMap,
    (version, watermark): (Version, u64),
    (ticket, g): (Ticket, Generation),
) {
    let Ok(object) = core.store.object(unit.0, unit.1) else {
        return ticket.refuse(g, Refusal::new(Reason::NoObject, "the object was removed"));
    };
    let creditors = creditors(map, object.set, object.joining, unit.2);
    let waiter = Waiter { ticket, g, since: Instant::now() };
    core.forwarder.debts().handle_owed(unit, (version, watermark), creditors, Some(waiter));
    wake(core, unit, map);
}

/// The object was fenced: what it owes is sent again, in the new generation and to the new set.
pub(crate) fn handle_fence(core: &Arc<Core>, (partition, object): (PartitionId, ObjectId)) {
    let Ok(attributes) = core.store.object(partition, object) else { return };
    let Ok(map) = ColumnMap::from_bytes(&attributes.map) else { return };
    let new = |stripe| creditors(&map, attributes.set, attributes.joining, stripe);
    let units = core.forwarder.debts().handle_fence((partition, object), new);
    units.into_iter().for_each(|unit| wake(core, unit, &map));
}

/// The object is gone, and with it what it owed.
pub(crate) fn handle_removed(core: &Core, place: (PartitionId, ObjectId)) {
    let waiters = core.forwarder.debts().handle_removed(place);
    for Waiter { ticket, g, .. } in waiters {
        ticket.refuse(g, Refusal::new(Reason::NoObject, "the object was removed"));
    }
    core.forwarder.progress.notify_waiters();
}

/// Waits until the object owes nothing to a ready parity column (PROTOCOL R7). False if that takes longer
/// than `wait`.
pub(crate) async fn drained(core: &Core, place: (PartitionId, ObjectId), wait: Duration) -> bool {
    let paid = async {
        loop {
            let progress = core.forwarder.progress.notified();
            tokio::pin!(progress);
            // Registered before the check, so that what comes in between is not missed.
            progress.as_mut().enable();
            if core.forwarder.debts().is_drained(place) {
                return;
            }
            progress.await;
        }
    };
    timeout(wait, paid).await.is_ok()
}

/// Starts what runs until [`Forwarder::stop`].
pub(crate) fn start(core: &Arc<Core>) {
    let mut lanes = core.forwarder.lanes.lock().unwrap_or_else(PoisonError::into_inner);
    lanes.tasks.spawn_on(run(Arc::clone(core)), &core.forwarder.runtime);
}

/// Finds what the store owes since before it was opened, and sends it again (PROTOCOL R4). Then, for ever:
/// tells writers that wait too long to try again.
async fn run(core: Arc<Core>) {
    let finding = Arc::clone(&core);
    let _ = tokio::task::spawn_blocking(move || find_owed(&finding)).await;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let late = core.forwarder.debts().take_late(|waiter| waiter.since.elapsed() > WRITER_WAIT);
        for Waiter { ticket, g, .. } in late {
            let detail = "the write is stored here, and not yet on every parity drive: repeat it";
            ticket.refuse(g, Refusal::new(Reason::Busy, detail));
        }
    }
}

/// What the store owes when it is opened.
fn find_owed(core: &Arc<Core>) {
    for partition in core.store.partitions() {
        let mut after = None;
        while let Ok(objects) = core.store.objects(partition.partition, after, BATCH_LEN)
            && let Some(&last) = objects.last()
        {
            for object in objects {
                find_owed_of(core, partition.partition, object);
            }
            after = Some(last);
        }
    }
}

fn find_owed_of(core: &Arc<Core>, partition: PartitionId, object: ObjectId) {
    let Ok(units) = core.store.unsettled(partition, object) else { return };
    let Ok(attributes) = core.store.object(partition, object) else { return };
    let Ok(map) = ColumnMap::from_bytes(&attributes.map) else { return };
    for number in units {
        let unit = (partition, object, number);
        let creditors = creditors(&map, attributes.set, attributes.joining, number);
        let chains = core.store.versions(partition, object, number..number.saturating_add(1));
        let owed: Vec<Version> = chains
            .iter()
            .flatten()
            .flat_map(|chain| &chain.entries)
            .filter(|entry| entry.owed)
            .map(|entry| entry.version)
            .collect();
        for &version in &owed {
            core.forwarder.debts().handle_owed(unit, (version, 0), creditors, None);
        }
        if !owed.is_empty() {
            wake(core, unit, &map);
        }
    }
}

/// Has the lanes of the unit's parity drives look at it; settles what needs none.
fn wake(core: &Arc<Core>, unit: UnitRef, map: &ColumnMap) {
    let creditors = core.forwarder.debts().creditors(unit);
    for column in creditors.iter() {
        let Some(&drive) = map.drives.get(column.index()) else { continue };
        let mut lanes = core.forwarder.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Lanes { senders, tasks } = &mut *lanes;
        let sender = senders.entry(drive).or_insert_with(|| {
            let (sender, jobs) = mpsc::unbounded_channel();
            tasks.spawn_on(lane(Arc::clone(core), drive, jobs), &core.forwarder.runtime);
            sender
        });
        // It fails only when the drive stops.
        let _ = sender.send((unit, column));
    }
    settle(core, unit);
}

/// Tells the store what all parity columns have, and then the writers.
fn settle(core: &Arc<Core>, unit: UnitRef) {
    let Some(up_to) = core.forwarder.debts().take_settled(unit) else { return };
    let (partition, object, number) = unit;
    let mutation = Mutation::OwedSettled { partition, object, unit: number, up_to };
    let told = Arc::clone(core);
    let reply = Box::new(move |result: Result<_, Error>| match result {
        Ok(_) => handle_settled(&told, unit, up_to),
        Err(error) => {
            tracing::warn!(%error, %partition, %object, unit = number, "cannot note that a write is settled");
            told.forwarder.debts().handle_unsettled(unit);
            let again = Arc::clone(&told);
            told.forwarder.runtime.spawn(async move {
                tokio::time::sleep(PAUSE_MAX).await;
                settle(&again, unit);
            });
        }
    });
    let queued = core.store.submit_within(mutation, reply, Some(Duration::ZERO), &|| true);
    if let Err(Rejected { mutation, reply }) = queued {
        // The queue is full. This may be the store's own thread, which empties it: it must not wait.
        let store = core.store.clone();
        core.forwarder.runtime.spawn_blocking(move || store.submit(mutation, reply));
    }
}

fn handle_settled(core: &Core, unit: UnitRef, up_to: Version) {
    let waiters = core.forwarder.debts().handle_settled(unit, up_to);
    for (version, Waiter { ticket, g, .. }) in waiters {
        ticket.answer(Answer::new(g, Written { version, already: false }));
    }
    core.forwarder.progress.notify_waiters();
}

/// Sends one sister what it is owed.
async fn lane(core: Arc<Core>, sister: DriveId, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut session = None;
    let mut due: BTreeMap<Job, (Instant, Duration)> = BTreeMap::new();
    loop {
        let next = due.values().map(|(at, _)| *at).min();
        tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => drop(due.insert(job, (Instant::now(), PAUSE_MIN))),
                None => return,
            },
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
        while let Ok(job) = jobs.try_recv() {
            due.insert(job, (Instant::now(), PAUSE_MIN));
        }
        let now = Instant::now();
        let mut batch: Vec<Job> = due.iter().filter(|(_, (at, _))| *at <= now).map(|(job, _)| *job).collect();
        batch.truncate(BATCH_LEN);
        let reused = session.is_some();
        let mut sent = send(&core, sister, &mut session, &batch).await;
        if sent.is_err() && reused {
            // A session that was idle may be broken without a fault of the sister.
            session = None;
            sent = send(&core, sister, &mut session, &batch).await;
        }
        let again = sent.unwrap_or_else(|why| {
            tracing::debug!(%sister, why, "deltas wait for a sister");
            session = None;
            // Their writers find out sooner whether she is lost, and have the manager take her out.
            for (unit, _) in &batch {
                tell_waiters(
                    &core,
                    *unit,
                    &format!("it is stored here, and not on parity drive {sister}: {why}"),
                );
            }
            batch.clone()
        });
        for job in batch {
            // Also after a batch that failed midway: what was acknowledged before is not sent again.
            settle(&core, job.0);
            due.entry(job).and_modify(|(at, pause)| {
                *at = Instant::now() + *pause;
                *pause = (*pause * 2).min(PAUSE_MAX);
            });
            if !again.contains(&job) {
                due.remove(&job);
            }
        }
    }
}

/// Tells the writers that wait for a unit to try again.
fn tell_waiters(core: &Core, unit: UnitRef, why: &str) {
    let waiters = core.forwarder.debts().take_waiters(unit);
    for Waiter { ticket, g, .. } in waiters {
        ticket.refuse(g, Refusal::new(Reason::Busy, why));
    }
}

/// Sends one batch. Returns the jobs that must be sent again; an error means that all must, on a new session.
async fn send(
    core: &Arc<Core>,
    sister: DriveId,
    session: &mut Option<DriveSession>,
    batch: &[Job],
) -> Result<Vec<Job>, String> {
    let (jobs, preparing) = (batch.to_vec(), Arc::clone(core));
    let prepared = tokio::task::spawn_blocking(move || prepare(&preparing, &jobs)).await;
    let (items, mut again) = prepared.map_err(|error| error.to_string())?;
    let mut partitions: BTreeMap<PartitionId, Vec<Item>> = BTreeMap::new();
    items.into_iter().for_each(|item| partitions.entry(item.job.0.0).or_default().push(item));
    for (partition, items) in partitions {
        let Some(now_ms) = core.manager_ms() else { return Err("this drive has no lease now".to_owned()) };
        let row = core.forwarder.sisters.find(sister, partition, now_ms).await?;
        let gone = |error: TransportError| {
            core.forwarder.sisters.forget(sister, partition);
            error.to_string()
        };
        if session.is_none() {
            let limits = Limits { reply: SISTER_WAIT, ..core.settings.limits };
            let connecting = DriveSession::connect(&row.address, sister, core.cluster, &limits);
            *session = Some(connecting.await.map_err(gone)?);
        }
        let session = session.as_mut().expect("it was made above");
        let refused = exchange(core, session, &row.grant, &items).await.map_err(gone)?;
        for (job, refusal) in refused {
            tracing::debug!(%sister, unit = ?job.0, %refusal, "a sister does not take a delta yet");
            if matches!(refusal.reason, Reason::Expired | Reason::StaleKey | Reason::Rights | Reason::Scope) {
                core.forwarder.sisters.forget(sister, partition);
            }
            again.push(job);
        }
        core.forwarder.progress.notify_waiters();
    }
    Ok(again)
}

/// Sends the deltas and takes the answers. Returns what was refused.
async fn exchange(
    core: &Core,
    session: &mut DriveSession,
    grant: &Grant,
    items: &[Item],
) -> Result<Vec<(Job, Refusal)>, TransportError> {
    let (asker, answers) = session.halves();
    let asking = async {
        for (item, tag) in items.iter().zip(0..) {
            let payload: &[&[u8]] = if item.payload.is_empty() { &[] } else { &[&item.payload] };
            asker.ask(tag, grant, &item.request, payload).await?;
        }
        Ok(())
    };
    let answering = async {
        let mut refused = Vec::new();
        for _ in items {
            let answer = answers.next().await?;
            let Some(item) = usize::try_from(answer.tag).ok().and_then(|tag| items.get(tag)) else {
                continue;
            };
            let (unit, column) = item.job;
            match answer.reply {
                DriveReply::Written(written) => {
                    core.forwarder.debts().handle_acknowledged(unit, column, written.version);
                }
                DriveReply::Refused(refusal) => refused.push((item.job, refusal)),
                other => {
                    let detail = format!("a delta was answered with {}", other.name());
                    refused.push((item.job, Refusal::new(Reason::Malformed, detail)));
                }
            }
        }
        Ok(refused)
    };
    let ((), refused) = tokio::try_join!(asking, answering)?;
    Ok(refused)
}

/// Reads the deltas that these jobs need, oldest first. Returns them, and the jobs that are to be looked at
/// again: those that do not fit the batch, or that cannot be read now.
fn prepare(core: &Arc<Core>, jobs: &[Job]) -> (Vec<Item>, Vec<Job>) {
    let (mut items, mut again, mut bytes) = (Vec::new(), Vec::new(), 0);
    for &job in jobs {
        let (unit, column) = job;
        if items.len() >= BATCH_LEN || bytes >= BATCH_BYTES {
            again.push(job);
            continue;
        }
        let versions = core.forwarder.debts().unacknowledged(unit, column);
        for (version, watermark) in versions {
            match item(core, job, version, watermark) {
                Ok(item) => {
                    bytes += item.payload.len();
                    items.push(item);
                }
                Err(Error::NoObject(..)) => handle_removed(core, (unit.0, unit.1)),
                Err(Error::Chain { .. }) => handle_not_owed(core, unit, version),
                Err(error) => {
                    tracing::warn!(%error, unit = ?unit, %version, "a delta cannot be read: it stays owed");
                    again.push(job);
                    break;
                }
            }
        }
    }
    (items, again)
}

fn item(core: &Core, job: Job, version: Version, watermark: u64) -> Result<Item, Error> {
    let (unit, column) = job;
    let (partition, object, number) = unit;
    let attributes = core.store.object(partition, object)?;
    let map = ColumnMap::from_bytes(&attributes.map)
        .map_err(|_| Error::Malformed("the object's column map does not decode"))?;
    let delta = core.store.delta(partition, object, number, version)?;
    let Some(&sister_object) = map.objects.get(column.index()) else {
        return Err(Error::Malformed("the object's column map has no such column"));
    };
    let request = Delta {
        at: Address { partition, object: sister_object },
        unit: number,
        from: delta.from,
        to: delta.to,
        column: map.column,
        from_version: delta.from_version,
        to_version: delta.to_version,
        client: delta.client,
        operation: delta.operation,
        settled_to: settled(core, unit)?,
        crcs: delta.crcs,
        g: attributes.g,
        watermark,
    };
    Ok(Item { job, request: request.into(), payload: delta.bytes })
}

/// The unit's settled version. A sister may fold in what is settled.
fn settled(core: &Core, (partition, object, number): UnitRef) -> Result<Version, Error> {
    let chains = core.store.versions(partition, object, number..number.saturating_add(1))?;
    let entries = chains.iter().flat_map(|chain| &chain.entries);
    Ok(entries.filter(|entry| entry.settled).map(|entry| entry.version).max().unwrap_or_default())
}

/// The store owes a version no more: it was settled, or a verdict took it back.
fn handle_not_owed(core: &Arc<Core>, unit: UnitRef, version: Version) {
    let (partition, object, number) = unit;
    let chains = core.store.versions(partition, object, number..number.saturating_add(1));
    let has = |chain: &braid_store::Chain| {
        chain.entries.iter().any(|entry| entry.settled && entry.version >= version)
    };
    if chains.iter().flatten().any(has) {
        return handle_settled(core, unit, version);
    }
    let waiters = core.forwarder.debts().handle_dropped(unit, version);
    for Waiter { ticket, g, .. } in waiters {
        ticket.refuse(g, Refusal::new(Reason::Busy, "the write was taken back: repeat it"));
    }
    core.forwarder.progress.notify_waiters();
}
