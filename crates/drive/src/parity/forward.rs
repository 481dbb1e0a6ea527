//! Sends the changes of unit writes to the parity drives, until those have them (PROTOCOL R3, R4).
//!
//! Each sister that is owed something has a [`lane`]. A debt outlives its writer: only a fence ends it, by
//! taking a column out of the set.
//!
//! When every parity column has a version, it is settled: its writer is told, and reads show it. The store
//! notes this a little later; until then the drive would send the version again after a restart, which does
//! no harm. A writer that waits too long is told which columns have not taken its write; the write stays
//! owed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use braid_layout::{
    Column, ColumnMask, Generation, ObjectId, OperationNumber, PartitionId, Role, Scheme, Shape, Stripe,
    Version,
};
use braid_store::{Attributes, Error, Mutation, ObjectState, Rejected};
use braid_transport::host;
use braid_wire::data::{ColumnMap, Written};
use braid_wire::{Reason, Refusal, Wire};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::connections::answerer::Ticket;
use crate::connections::reply::Answer;
use crate::core::Core;
use crate::parity::debts::{Creditors, Late, Owing, UnitRef};
use crate::parity::forwarder::{Lanes, Waiter};

mod lane;

/// Pause before the store is told again that a version is settled.
const NOTE_PAUSE: Duration = Duration::from_secs(1);
/// Number of objects that are listed together when the store is searched for debts.
const OBJECTS_LEN: usize = 256;
/// Longest wait of a writer for the parity drives before it is told to try again.
const WRITER_WAIT: Duration = Duration::from_secs(5);
/// Interval between two looks for writers that wait too long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The shape that a column map states; `None` if it is no shape.
pub(crate) fn shape_of(map: &ColumnMap) -> Option<Shape> {
    Shape::new(Scheme::from_number(map.scheme).ok()?, map.k, map.m, map.unit_bytes).ok()
}

/// State of an object's columns in its generation.
#[derive(Debug, Clone, Copy)]
struct Standing {
    g: Generation,
    set: ColumnMask,
    joining: ColumnMask,
}

impl Standing {
    fn of(object: &Attributes) -> Standing {
        Standing { g: object.g, set: object.set, joining: object.joining }
    }

    /// Returns true if the column is ready. A data column that is out or joining drops its debts (PROTOCOL
    /// section 7): whether their writes count was decided without it.
    fn is_ready(&self, column: Column) -> bool {
        self.set.minus(self.joining).contains(column)
    }
}

/// The parity columns of a stripe.
fn creditors(map: &ColumnMap, object: Standing, stripe: u64) -> Creditors {
    let parity = shape_of(map).map_or(ColumnMask::EMPTY, |shape| {
        (0..shape.m()).map(|p| shape.column(Stripe(stripe), Role::Parity(p))).collect()
    });
    let all = parity.and(object.set);
    Creditors { all, ready: all.minus(object.joining), g: object.g }
}

/// Stops the forwarder when its task ends, however it ends.
struct StopOnDrop(Arc<Core>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.forwarder.stop();
    }
}

/// A version is owed from now on; its writer waits.
pub(crate) fn handle_owed(
    core: &Arc<Core>,
    unit: UnitRef,
    map: &ColumnMap,
    version: Version,
    watermark: OperationNumber,
    ticket: Ticket,
    g: Generation,
) {
    // The object is looked at under the lock: a fence that comes later finds the debt, and one that came
    // before has changed the object.
    let mut debts = core.forwarder.debts();
    let look = |state: &ObjectState<'_>| Standing { g: state.g, set: state.set, joining: state.joining };
    let Ok(standing) = core.store.with_object(unit.0, unit.1, look) else {
        drop(debts);
        return ticket.refuse(g, Refusal::new(Reason::NoObject, "the object was removed"));
    };
    if !standing.is_ready(map.column) {
        drop(debts);
        return ticket.refuse(g, column_is_out());
    }
    let own = ColumnMask::EMPTY.with(map.column);
    let creditors = creditors(map, standing, unit.2);
    let parity = creditors.all.iter().filter_map(|column| map.drives.get(column.index()).copied()).collect();
    let waiter = Waiter { ticket, g, own, parity, since: Instant::now() };
    debts.handle_owed(unit, version, watermark, creditors, Some(waiter));
    drop(debts);
    wake(core, unit, map);
}

fn column_is_out() -> Refusal {
    Refusal::new(Reason::StaleGeneration, "the column is not in the file's set now: ask the manager")
}

/// The object was fenced: its owed versions are sent again, in the new generation and to the new set. A
/// column that is not ready now owes nothing any more.
pub(crate) fn handle_fence(core: &Arc<Core>, place: (PartitionId, ObjectId)) {
    let (partition, object) = place;
    let Ok(attributes) = core.store.object(partition, object) else { return };
    let Ok(map) = ColumnMap::from_bytes(&attributes.map) else { return };
    if !Standing::of(&attributes).is_ready(attributes.column) {
        let waiters = core.forwarder.debts().handle_removed((partition, object));
        for Waiter { ticket, g, .. } in waiters {
            ticket.refuse(g, column_is_out());
        }
        core.forwarder.progress.notify_waiters();
        return;
    }
    // Debts from before the drive was started may not have been found yet.
    find_owed_of(core, partition, object);
    let new = |stripe| creditors(&map, Standing::of(&attributes), stripe);
    let units = core.forwarder.debts().handle_fence((partition, object), new);
    units.into_iter().for_each(|unit| wake(core, unit, &map));
    core.forwarder.progress.notify_waiters();
}

/// The object is gone, and its debts with it.
pub(crate) fn handle_removed(core: &Core, place: (PartitionId, ObjectId)) {
    let waiters = core.forwarder.debts().handle_removed(place);
    for Waiter { ticket, g, .. } in waiters {
        ticket.refuse(g, Refusal::new(Reason::NoObject, "the object was removed"));
    }
    core.forwarder.progress.notify_waiters();
}

/// Waits until the object owes nothing to a ready parity column (PROTOCOL R7), for `wait` at most; then reads
/// show the versions that it owes to joining ones. Returns its remaining debts.
pub(crate) async fn drained(core: &Core, place: (PartitionId, ObjectId), wait: Duration) -> Owing {
    let paid = async {
        loop {
            let progress = core.forwarder.progress.notified();
            tokio::pin!(progress);
            // Registered before the check, so that what comes in between is not missed.
            progress.as_mut().enable();
            if core.forwarder.debts().show_drained(place.0, place.1) {
                return;
            }
            progress.await;
        }
    };
    let _ = timeout(wait, paid).await;
    core.forwarder.debts().owed_to(place)
}

/// The version that reads show though the store has not noted yet that it is settled; zero if there is none.
/// `None`: the unit owes nothing.
pub(crate) fn shown(core: &Core, unit: UnitRef) -> Option<Version> {
    core.forwarder.debts().shown(unit)
}

/// Starts the forwarder's task, which runs until [`Forwarder::stop`]. To be called once the store may write.
pub(crate) fn start(core: &Arc<Core>) {
    let mut lanes = core.forwarder.lanes.lock().unwrap_or_else(PoisonError::into_inner);
    lanes.tasks.spawn_on(run(Arc::clone(core)), &core.forwarder.runtime);
}

/// Finds the debts from before the store was opened, and sends them again (PROTOCOL R4). Then, without end,
/// tells writers that wait too long to try again.
async fn run(core: Arc<Core>) {
    let _stop = StopOnDrop(Arc::clone(&core));
    let finding = Arc::clone(&core);
    let _ = host::spawn_blocking(move || find_owed(&finding)).await;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let late = core.forwarder.debts().take_late(|waiter| waiter.since.elapsed() > WRITER_WAIT);
        tell_owed(late);
    }
}

/// Finds the versions that the store owes when it is opened.
fn find_owed(core: &Arc<Core>) {
    for partition in core.store.partitions() {
        let mut after = None;
        while let Ok(objects) = core.store.objects(partition.partition, after, OBJECTS_LEN)
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
    if !Standing::of(&attributes).is_ready(attributes.column) {
        return;
    }
    for number in units {
        let unit = (partition, object, number);
        let creditors = creditors(&map, Standing::of(&attributes), number);
        let chains = core.store.versions(partition, object, number..number.saturating_add(1));
        let owed: Vec<Version> = chains
            .iter()
            .flatten()
            .flat_map(|chain| &chain.entries)
            .filter(|entry| entry.owed)
            .map(|entry| entry.version)
            .collect();
        for &version in &owed {
            core.forwarder.debts().handle_owed(unit, version, OperationNumber::NONE, creditors, None);
        }
        if !owed.is_empty() {
            wake(core, unit, &map);
        }
    }
}

/// Has the lanes of the unit's parity drives look at the unit; settles versions that need no parity drive.
fn wake(core: &Arc<Core>, unit: UnitRef, map: &ColumnMap) {
    let creditors = core.forwarder.debts().creditors(unit);
    for column in creditors.iter() {
        let Some(&drive) = map.drives.get(column.index()) else { continue };
        let mut lanes = core.forwarder.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Lanes { senders, tasks, is_stopped } = &mut *lanes;
        if *is_stopped {
            return;
        }
        let sender = senders.entry(drive).or_insert_with(|| {
            let (sender, jobs) = mpsc::unbounded_channel();
            tasks.spawn_on(lane::run(Arc::clone(core), drive, jobs), &core.forwarder.runtime);
            sender
        });
        // Sending fails only when the drive stops.
        let _ = sender.send((unit, column));
    }
    settle(core, unit);
}

/// Tells the writers and the store which versions all parity columns have.
fn settle(core: &Arc<Core>, unit: UnitRef) {
    let (settled, waiters) = {
        let mut debts = core.forwarder.debts();
        let Some(settled) = debts.take_settled(unit) else { return };
        (settled, debts.handle_settled(unit, settled.0))
    };
    tell(core, waiters);
    let (up_to, g) = settled;
    let (partition, object, number) = unit;
    let mutation = Mutation::OwedSettled { partition, object, g, unit: number, up_to };
    let told = Arc::clone(core);
    let reply = Box::new(move |result: Result<_, Error>| match result {
        Ok(_) => handle_noted(&told, unit, up_to),
        // A fence came in between, and asks for the acknowledgements anew.
        Err(Error::StaleGeneration { .. }) => {}
        Err(error) => {
            tracing::warn!(%error, %partition, %object, unit = number, "cannot note that a write is settled");
            told.forwarder.debts().handle_unsettled(unit);
            let again = Arc::clone(&told);
            told.forwarder.runtime.spawn(async move {
                tokio::time::sleep(NOTE_PAUSE).await;
                settle(&again, unit);
            });
        }
    });
    let queued = core.store.submit_within(mutation, reply, Some(Duration::ZERO), &|| true);
    if let Err(Rejected { mutation, reply }) = queued {
        // The queue is full. This may be the store's own thread, which empties the queue and so must not wait
        // for it.
        let store = core.store.clone();
        host::spawn_blocking(move || store.submit(mutation, reply));
    }
}

fn handle_noted(core: &Core, unit: UnitRef, up_to: Version) {
    let waiters = core.forwarder.debts().handle_noted(unit, up_to);
    tell(core, waiters);
    core.forwarder.progress.notify_waiters();
}

/// Tells writers which columns have not taken their versions.
fn tell_owed(waiters: Vec<Late<Waiter>>) {
    for (version, owed_to, Waiter { ticket, g, own, .. }) in waiters {
        // Data that cannot be read here must be made anew here: the parity columns are not to blame.
        let owed_to = owed_to.unwrap_or(own);
        if owed_to.is_empty() {
            let detail = "the write is stored, but the drive is slow to note that it is settled: repeat it";
            ticket.refuse(g, Refusal::new(Reason::Busy, detail));
        } else {
            ticket.answer(Answer::new(g, Written { owed_to, ..Written::new(version, false) }));
        }
    }
}

/// Tells writers that their versions are settled.
fn tell(core: &Core, waiters: Vec<(Version, Waiter)>) {
    for (version, Waiter { ticket, g, parity, .. }) in waiters {
        let receipts = core.forwarder.receipts.of(&parity);
        ticket.answer(Answer::new(g, Written { receipts, ..Written::new(version, false) }));
    }
}

/// The store does not owe a version any more: it was settled, or a verdict took it back.
fn handle_not_owed(core: &Arc<Core>, unit: UnitRef, version: Version) {
    let (partition, object, number) = unit;
    let chains = core.store.versions(partition, object, number..number.saturating_add(1));
    let has = |chain: &braid_store::Chain| {
        chain.entries.iter().any(|entry| entry.settled && entry.version >= version)
    };
    if chains.iter().flatten().any(has) {
        return handle_noted(core, unit, version);
    }
    let waiters = core.forwarder.debts().handle_dropped(unit, version);
    for Waiter { ticket, g, .. } in waiters {
        ticket.refuse(g, Refusal::new(Reason::Busy, "the write was taken back: repeat it"));
    }
    core.forwarder.progress.notify_waiters();
}
