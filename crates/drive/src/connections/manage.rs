//! Requests that change more than a unit's bytes: creation, removal, fences, verdicts, attributes, snapshots,
//! partitions.
//!
//! All but creation finish before the connection's next request is looked at, so that later requests see
//! their effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_layout::{ColumnMask, DriveId, Generation, PartitionId};
use braid_store::{Change, Error, Mutation, MutationOutcome, UnitVerdict};
use braid_transport::host;
use braid_wire::capability::Rights;
use braid_wire::data::{
    Calibrate, ColumnMap, Create, Expect, FENCE_UNITS_MAX, Fence, FenceReply, PartitionSet, Ready, Remove,
    Scrub, ScrubAct, SetAttributes, Snapshot, StripeWrite, Verdict,
};
use braid_wire::{Capability, Reason, Refusal, Wire};
use tokio::time::timeout;

use crate::connections::answerer::Ticket;
use crate::connections::convert;
use crate::connections::facts::StoredFacts;
use crate::connections::reply::{Answer, refusal};
use crate::connections::requests::{Requests, always, done};
use crate::core::Core;
use crate::device::flows::flow_of;
use crate::parity::debts::Owing;
use crate::parity::forward;
use crate::{damage_checks, scrub};

/// Longest wait of a fence for the debts to ready parity columns to be paid. After that the manager asks
/// again, and meanwhile finds out which drive does not take its deltas.
const DRAIN_WAIT: Duration = Duration::from_secs(3);

impl Requests {
    /// Creates an object, or finds it present already. If it is present in another generation, the manager's
    /// newer generation is stored (its creation carries what a fence does); a client's is refused.
    pub(crate) async fn create(
        &mut self,
        capability: &Capability,
        facts: Option<StoredFacts>,
        create: Create,
        ticket: Ticket,
    ) {
        let place = (create.at.partition, create.at.object);
        let (partition, object) = place;
        let Some(facts) = facts else {
            let attributes = convert::new_object(capability, &create.attributes);
            let map = Arc::new(create.attributes.map);
            let g = capability.g;
            let ready = capability.set.minus(capability.joining);
            let facts = StoredFacts { g, ready, map, is_clustered: create.attributes.cluster != 0 };
            let answered = Arc::new(AtomicBool::new(false));
            self.objects.is_creating(place, facts, Arc::clone(&answered));
            self.core().readmission.handle_fenced(partition, object);
            let g = capability.g;
            if capability.rights.include(Rights::MANAGE) {
                self.core().revoked().handle_made(place, g);
            }
            let mutation = Mutation::Create { partition, object, attributes };
            let finish = move |result| {
                answered.store(true, Ordering::Release);
                done(g, result)
            };
            return self.submit(ticket, mutation, self.still(capability, Rights::CREATE), finish).await;
        };
        if !convert::same_column(&facts.map, &create.attributes.map) {
            let detail = "the object exists, and is another column or another file's";
            return ticket.refuse(facts.g, Refusal::new(Reason::Exists, detail));
        }
        let managed = capability.rights.include(Rights::MANAGE) && capability.g > facts.g;
        if capability.g != facts.g && !managed {
            let detail = format!("the drive's generation of the object is {}: ask the manager", facts.g);
            return ticket.refuse(facts.g, Refusal::new(Reason::StaleGeneration, detail));
        }
        // A map that the manager vouches for replaces the old one: a column may have moved to another drive.
        let new_map = (capability.map != [0; 16] && *facts.map != create.attributes.map)
            .then(|| create.attributes.map.to_bytes());
        let flow = flow_of(&self.core(), capability);
        let capability = capability.clone();
        let reserve_bytes = create.attributes.reserve_bytes;
        self.look_now(flow, ticket, move |core| {
            if let Some(map) = new_map {
                let change = Change { map: Some(map), ..Change::default() };
                let set = Mutation::SetAttributes { partition, object, g: capability.g, change };
                if let Err(error) = core.store.commit(set) {
                    return done(facts.g, Err(error));
                }
            }
            if !managed {
                return Answer::done(facts.g);
            }
            let fenced = fence(core, &capability, &[], reserve_bytes);
            forward::handle_fence(core, place);
            done(capability.g, fenced)
        })
        .await;
    }

    /// Removes an object.
    pub(crate) async fn remove(
        &self,
        capability: &Capability,
        g: Generation,
        asked: &Remove,
        ticket: Ticket,
    ) {
        let core = self.core();
        let place = (asked.at.partition, asked.at.object);
        // First, so that requests already on their way cannot create it again.
        let now_ms = core.manager_ms().unwrap_or(capability.expires_ms);
        core.revoked().handle_removal(place, now_ms);
        let mutation = Mutation::Remove { partition: place.0, object: place.1, g: capability.g };
        let finish = move |result: Result<MutationOutcome, Error>| {
            if result.is_ok() {
                forward::handle_removed(&core, place);
            }
            done(g, result)
        };
        self.submit(ticket, mutation, always(), finish).await;
    }

    /// Takes a still of an object (PROTOCOL section 11). The store refuses it where something is pending,
    /// owed or joining, so it changes nothing that debts or writers know of.
    pub(crate) async fn take(&self, capability: &Capability, asked: &Snapshot, ticket: Ticket) {
        let core = self.core();
        let partition = asked.at.partition;
        let object = asked.at.object;
        let still = asked.still;
        let g = capability.g;
        let attributes = convert::still(&asked.attributes);
        let made = attributes.g;
        let mutation = Mutation::Take { partition, object, g, still, attributes };
        let finish = move |result: Result<MutationOutcome, Error>| {
            if result.is_ok() {
                core.readmission.handle_fenced(partition, still);
                core.revoked().handle_made((partition, still), made);
            }
            done(g, result)
        };
        self.submit(ticket, mutation, always(), finish).await;
    }

    /// Notes units that a joining column has caught up with.
    pub(crate) async fn ready(&self, capability: &Capability, asked: &Ready, ticket: Ticket) {
        let g = capability.g;
        let partition = asked.at.partition;
        let object = asked.at.object;
        let mutation = Mutation::Ready { partition, object, g, unit: asked.unit, units: asked.units };
        let still = self.still(capability, Rights::WRITE);
        self.submit(ticket, mutation, still, move |result| done(g, result)).await;
    }

    /// Stores a fence, and answers once it is drained (PROTOCOL R7), which holds up nothing else.
    pub(crate) async fn fence(&self, capability: Capability, asked: Fence, ticket: Ticket) {
        let partition = capability.partition;
        let object = capability.object;
        let flow = flow_of(&self.core(), &capability);
        let runtime = tokio::runtime::Handle::current();
        let work = move |core: &Arc<Core>, ticket: Ticket| {
            if let Some(refusal) = is_not_this_columns(core, &capability, &asked.drives) {
                return ticket.refuse(capability.g, refusal);
            }
            if let Err(error) = fence(core, &capability, &asked.drives, asked.reserve_bytes) {
                return ticket.answer(done(capability.g, Err(error)));
            }
            forward::handle_fence(core, (partition, object));
            let core = Arc::clone(core);
            runtime.spawn(async move {
                let owing = forward::drained(&core, (partition, object), DRAIN_WAIT).await;
                if !owing.is_drained() {
                    return ticket.answer(not_drained(&core, &capability, owing));
                }
                let listing = move || ticket.answer(list_unsettled(&core, &capability, &asked));
                // This fails only when the runtime ends.
                let _ = host::spawn_blocking(listing).await;
            });
        };
        let _ = timeout(self.core().settings.store_wait, self.start(flow, ticket, work)).await;
    }
}

/// Returns a refusal if the stored object is another column than the drive's present one, which `drives`
/// tells. One object number serves all columns of a file. A column may have moved away and been removed here,
/// and have come back with an older state of the disk, while the drive was given another column of the same
/// file. Then the stored data is not the present column's, which for the manager is as good as lost.
fn is_not_this_columns(core: &Core, capability: &Capability, drives: &[DriveId]) -> Option<Refusal> {
    let stored = core.store.object(capability.partition, capability.object).ok()?;
    let named = drives.iter().position(|drive| *drive == core.drive)?;
    (named != stored.column.index()).then(|| {
        let detail = format!(
            "damaged: the object stored here is column {} of its file, but this drive now has column {named}",
            stored.column
        );
        Refusal::new(Reason::Damaged, detail)
    })
}

/// Answer to a fence that is not drained: the columns that the manager may take out, so that the object owes
/// nothing any more.
fn not_drained(core: &Core, capability: &Capability, owing: Owing) -> Answer {
    let g = capability.g;
    let own = core.store.object(capability.partition, capability.object).map(|object| object.column);
    let owed_to = match own {
        Ok(own) if owing.is_unreadable => ColumnMask::EMPTY.with(own),
        _ => owing.columns,
    };
    if owed_to.is_empty() {
        let detail = "the drive is slow to note which writes are settled: try again";
        return Answer::refused(g, Refusal::new(Reason::Busy, detail));
    }
    Answer::new(g, FenceReply { unsettled: Vec::new(), more: false, owed_to })
}

/// Stores the capability's generation, set and joining columns, and the drives that have the columns now.
pub(crate) fn fence(
    core: &Core,
    capability: &Capability,
    drives: &[DriveId],
    reserve_bytes: u64,
) -> Result<MutationOutcome, Error> {
    let partition = capability.partition;
    let object = capability.object;
    let g = capability.g;
    let set = capability.set;
    let joining = capability.joining;
    let stored = core.store.object(partition, object)?;
    let mut map = ColumnMap::from_bytes(&stored.map)
        .map_err(|_| Error::Malformed("the object's column map does not decode"))?;
    if drives.len() == map.drives.len() && map.drives != drives && g > stored.g {
        // First, so that no debt goes to a drive that a column has left.
        map.drives = drives.to_vec();
        let change = Change { map: Some(map.to_bytes()), ..Change::default() };
        core.store.commit(Mutation::SetAttributes { partition, object, g, change })?;
    }
    let outcome = core.store.commit(Mutation::Fence { partition, object, g, set, joining })?;
    if reserve_bytes != stored.reserve_bytes {
        let change = Change { reserve_bytes: Some(reserve_bytes), ..Change::default() };
        match core.store.commit(Mutation::SetAttributes { partition, object, g, change }) {
            Err(error @ (Error::Full { .. } | Error::Quota { .. })) => {
                // The column has its place here, with less room than was promised for it.
                tracing::warn!(%partition, %object, reserve_bytes, %error, "no room to keep free");
            }
            kept => drop(kept?),
        }
    }
    core.readmission.handle_fenced(partition, object);
    Ok(outcome)
}

/// Checks that a write may install a version: where a column joins, or where a damaged unit is made anew.
pub(crate) fn may_install(
    core: &Core,
    capability: &Capability,
    facts: &StoredFacts,
    write: &StripeWrite,
) -> Result<(), Refusal> {
    if !write.install || capability.joining.contains(facts.map.column) {
        return Ok(());
    }
    if core.damage.is_damaged((write.at.partition, write.at.object, write.unit)) {
        return Ok(());
    }
    let unit = write.unit..write.unit.saturating_add(1);
    let chains = core.store.versions(write.at.partition, write.at.object, unit);
    if chains.map_err(|error| refusal(&error))?.iter().any(|chain| chain.lost) {
        return Ok(());
    }
    let detail = format!("column {} is not joining, and the unit is not damaged", facts.map.column);
    Err(Refusal::new(Reason::Scope, detail))
}

/// Removes a partition.
pub(crate) fn remove_partition(core: &Core, g: Generation, partition: PartitionId) -> Answer {
    match core.store.commit(Mutation::PartitionRemove { partition }) {
        Err(Error::NoPartition(_)) => Answer::done(g),
        result => done(g, result),
    }
}

/// Answer to a fence that is drained: the units with unsettled versions.
pub(crate) fn list_unsettled(core: &Core, capability: &Capability, asked: &Fence) -> Answer {
    let partition = capability.partition;
    let object = capability.object;
    Answer::from_store(capability.g, core.store.unsettled(partition, object), |mut unsettled| {
        unsettled.retain(|&unit| unit >= asked.units_from);
        let more = unsettled.len() > FENCE_UNITS_MAX;
        unsettled.truncate(FENCE_UNITS_MAX);
        FenceReply { unsettled, more, owed_to: ColumnMask::EMPTY }.into()
    })
}

pub(crate) fn give_verdict(core: &Core, g: Generation, verdict: Verdict) -> Result<MutationOutcome, Error> {
    let partition = verdict.at.partition;
    let object = verdict.at.object;
    let units = verdict.units.into_iter();
    let units = units
        .map(|unit| UnitVerdict {
            unit: unit.unit,
            forward: unit.forward,
            back: unit.back,
            cut_offs: unit.cutoff.iter().map(|cut| (cut.column, cut.version)).collect(),
        })
        .collect();
    core.store.commit(Mutation::Verdict { partition, object, g, units })
}

pub(crate) fn set_attributes(
    core: &Core,
    g: Generation,
    set: SetAttributes,
) -> Result<MutationOutcome, Error> {
    let change = Change {
        modified_ms: core.lease().manager_ms(core.clock().now()),
        reserve_bytes: set.reserve_bytes,
        cluster: set.cluster,
        opaque: Some(set.opaque),
        ..Change::default()
    };
    let partition = set.at.partition;
    let object = set.at.object;
    core.store.commit(Mutation::SetAttributes { partition, object, g, change })
}

pub(crate) fn scrub(core: &Core, asked: &Scrub) -> Answer {
    // A request without a lease would not have come this far.
    let manager_ms = core.manager_ms().unwrap_or_default();
    if asked.act == ScrubAct::Forget && asked.rate != core.start.load(Ordering::Relaxed) {
        // The manager has not looked at what this process lost when it started.
        let detail = "the drive has restarted since it was examined";
        return Answer::refused(Generation(0), Refusal::new(Reason::Busy, detail));
    }
    if asked.act == ScrubAct::Forget
        && let Err(error) = core.store.forget_lost()
    {
        return Answer::refused(Generation(0), refusal(&error));
    }
    let stat = core.store.stat().unwrap_or_default();
    let lost = scrub::lost(&core.store);
    let objects = damage_checks::lost_objects(core);
    let mut scrub = core.scrub();
    if asked.act == ScrubAct::Start {
        scrub.handle_start(asked.rate, manager_ms);
    }
    // Under one lock: a short pass may end at once, and a requester that waits for its end has to know that
    // it began.
    let mut report = scrub.report(&stat, lost);
    drop(scrub);
    if asked.act == ScrubAct::Start {
        core.scrub_wake.notify_one();
    }
    report.state.objects = objects;
    Answer::new(Generation(0), report)
}

pub(crate) fn calibrate(core: &Core, asked: &Calibrate) -> Answer {
    let mut calibration = core.calibration();
    if let Err(refusal) = calibration.handle_request(asked.act, core.traffic(), core.clock().now()) {
        return Answer::refused(Generation(0), refusal);
    }
    core.calibrate_wake.notify_one();
    Answer::new(Generation(0), calibration.state())
}

pub(crate) fn set_partition(core: &Core, set: &PartitionSet) -> Answer {
    let g = Generation(0);
    let partition = set.partition;
    let key_epoch = set.key_epoch;
    let quota_bytes = convert::quota(set.quota_bytes);
    let mutation = match set.expect {
        Expect::Absent => Mutation::PartitionCreate { partition, quota_bytes, key_epoch },
        Expect::Present => Mutation::PartitionSet { partition, quota_bytes, key_epoch },
    };
    done(g, core.store.commit(mutation))
}
