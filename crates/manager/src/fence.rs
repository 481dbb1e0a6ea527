//! Fences, surveys and verdicts as calls to drives: the parts of a procedure that leave this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId, PartitionId, VolumeId};
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, Attributes, Create, DriveReply, DriveRequest, Expect, Fence, Listing, PartitionSet,
    VERSIONS_UNITS_MAX, Verdict, Versions, VersionsReply,
};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::core::Core;
use crate::drive_calls::CallError;
use crate::grants::{self, CAPABILITY_MS, KEY_EPOCH_FIRST, OBJECT_VERSION};
use crate::recovery::{ColumnState, Survey, judge, part_for};
use crate::schema::{InodeRecord, PartitionRecord, key, table};

/// Most unsettled units taken from one column at a time; the rest follows after the verdict on these.
const UNSETTLED_MAX: usize = 1 << 18;
/// Most units in one verdict message.
const VERDICT_UNITS: usize = 1024;

/// The result of fencing a file's columns.
#[derive(Debug, Default)]
pub struct Fenced {
    /// Per segment, units that some column listed as unsettled.
    pub unsettled: BTreeMap<u32, BTreeSet<u64>>,
    /// Some column has more unsettled units than it listed.
    pub more: bool,
    /// Columns that could not be fenced, and why.
    pub failures: BTreeMap<(u32, Column), String>,
}

/// One column's object, and what is needed to call its drive about it.
#[derive(Clone)]
pub struct Target {
    drive: DriveId,
    address: String,
    grant: Grant,
    at: Address,
    attributes: Attributes,
    term: u64,
}

/// Fences every column of the file's set, all at once.
pub async fn fence_all(core: &Arc<Core>, file: FileId, inode: &InodeRecord) -> Fenced {
    let mut calls = JoinSet::new();
    let mut fenced = Fenced::default();
    for (index, column) in columns_of(inode) {
        match Target::new(core, file, inode, index, column) {
            Some(target) => {
                let core = Arc::clone(core);
                calls.spawn(async move { (index, column, target.fence(&core).await) });
            }
            None => {
                fenced.failures.insert((index, column), "it is not known".to_owned());
            }
        }
    }
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((index, _, Ok((units, more)))) => {
                fenced.unsettled.entry(index).or_default().extend(units);
                fenced.more |= more;
            }
            Ok((index, column, Err(error))) => {
                fenced.failures.insert((index, column), error.to_string());
            }
            Err(error) => tracing::error!(%error, "a fence failed within the manager"),
        }
    }
    fenced
}

/// Surveys the unsettled units on every column, judges them, and tells the columns. Gives the columns that
/// failed.
pub async fn judge_all(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    unsettled: &BTreeMap<u32, BTreeSet<u64>>,
) -> BTreeMap<(u32, Column), String> {
    let mut failures = BTreeMap::new();
    for (&index, units) in unsettled {
        let units: Vec<u64> = units.iter().copied().collect();
        for chunk in units.chunks(VERSIONS_UNITS_MAX) {
            let failed = judge_some(core, file, inode, index, chunk).await;
            failures.extend(failed.into_iter().map(|(column, why)| ((index, column), why)));
            if !failures.is_empty() {
                return failures;
            }
        }
    }
    failures
}

/// Fences one column for the file's present generation, whether or not it is in the set: for a drive that
/// returned.
pub async fn tell(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    index: u32,
    column: Column,
) -> Result<(), CallError> {
    let unknown = || CallError::Unreachable("it is not known".to_owned());
    let target = Target::new(core, file, inode, index, column).ok_or_else(unknown)?;
    target.fence(core).await.map(|_| ())
}

/// Makes a volume's partition on a drive, and records that it is there.
pub async fn make_partition(core: &Arc<Core>, drive: DriveId, volume: VolumeId) -> Result<(), CallError> {
    let request = PartitionSet {
        partition: volume.into(),
        expect: Expect::Absent,
        quota_bytes: 0,
        key_epoch: KEY_EPOCH_FIRST,
        term: core.term(),
    };
    match drive_call(core, drive, &request.into()).await {
        // If it exists already, that is as good.
        Ok(_) => {}
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::Exists => {}
        Err(error) => return Err(error),
    }
    let stored = core
        .write(move |_, tx| {
            // If the volume was removed meanwhile, its partition must be removed again.
            if tx.get(&key::volume(volume))?.is_some() {
                let record = PartitionRecord { key_epoch: KEY_EPOCH_FIRST };
                tx.set(key::partition(table::PARTITION, drive, volume), &record);
            } else {
                tx.mark(key::partition(table::PARTITION_REMOVAL, drive, volume));
            }
            Ok(())
        })
        .await;
    stored.map_err(CallError::Refused)
}

/// A request about the drive itself.
pub async fn drive_call(
    core: &Core,
    drive: DriveId,
    request: &DriveRequest,
) -> Result<DriveReply, CallError> {
    let (address, grant) = {
        let (now_ms, table) = (core.now_ms(), core.drives());
        let known = table.drive(drive).ok_or_else(|| CallError::Unreachable("it is not known".to_owned()))?;
        let grant = grants::for_drive(&known.record.master, drive, now_ms + CAPABILITY_MS);
        (known.record.address.clone(), grant)
    };
    core.drive_calls.call(drive, &address, &grant, request).await
}

/// A request about a partition.
pub async fn partition_call(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    request: &DriveRequest,
) -> Result<DriveReply, CallError> {
    let (address, grant) = {
        let (now_ms, table) = (core.now_ms(), core.drives());
        let known = table.drive(drive).ok_or_else(|| CallError::Unreachable("it is not known".to_owned()))?;
        let grant = grants::for_partition(&known.record.master, drive, partition, now_ms + CAPABILITY_MS);
        (known.record.address.clone(), grant)
    };
    core.drive_calls.call(drive, &address, &grant, request).await
}

async fn judge_some(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    index: u32,
    units: &[u64],
) -> BTreeMap<Column, String> {
    let Some(segment) = usize::try_from(index).ok().and_then(|index| inode.segments.get(index)) else {
        return BTreeMap::new();
    };
    let targets: BTreeMap<Column, Target> = segment
        .set
        .iter()
        .filter_map(|column| Some((column, Target::new(core, file, inode, index, column)?)))
        .collect();
    let mut calls = JoinSet::new();
    for (&column, target) in &targets {
        let (core, target, units) = (Arc::clone(core), target.clone(), units.to_vec());
        calls.spawn(async move { (column, target.versions(&core, units).await) });
    }
    let (mut surveys, mut failures) = (BTreeMap::<u64, Survey>::new(), BTreeMap::new());
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((column, Ok(states))) => states.into_iter().for_each(|state| {
                surveys.entry(state.unit).or_default().insert(column, state);
            }),
            Ok((column, Err(error))) => drop(failures.insert(column, error.to_string())),
            Err(error) => tracing::error!(%error, "a survey failed within the manager"),
        }
    }
    if !failures.is_empty() {
        return failures;
    }
    let mut parts: BTreeMap<Column, Vec<_>> = BTreeMap::new();
    for (&unit, survey) in &surveys {
        let Some(verdict) = judge(unit, segment.set, segment.joining, survey) else { continue };
        for (&column, state) in survey {
            let joins = segment.joining.contains(column);
            let column_state = if joins { ColumnState::Joining } else { ColumnState::Ready };
            parts.entry(column).or_default().extend(part_for(&verdict, state, column_state));
        }
    }
    let mut calls = JoinSet::new();
    for (column, verdicts) in parts {
        if let Some(target) = targets.get(&column).filter(|_| !verdicts.is_empty()).cloned() {
            let core = Arc::clone(core);
            calls.spawn(async move { (column, target.verdict(&core, verdicts).await) });
        }
    }
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((column, Err(error))) => drop(failures.insert(column, error.to_string())),
            Ok((_, Ok(()))) => {}
            Err(error) => tracing::error!(%error, "a verdict failed within the manager"),
        }
    }
    failures
}

fn columns_of(inode: &InodeRecord) -> Vec<(u32, Column)> {
    let segments = (0u32..).zip(&inode.segments);
    segments.flat_map(|(index, segment)| segment.set.iter().map(move |column| (index, column))).collect()
}

impl Target {
    pub(crate) fn new(
        core: &Core,
        file: FileId,
        inode: &InodeRecord,
        index: u32,
        column: Column,
    ) -> Option<Target> {
        let segment = inode.segments.get(usize::try_from(index).ok()?)?;
        let (drive, partition) = (segment.drive(column), PartitionId::from(inode.volume));
        let (now_ms, table) = (core.now_ms(), core.drives());
        let record = &table.drive(drive)?.record;
        let at = Address { partition, object: segment.object };
        let place = (drive, partition, segment.object, file);
        let state = (inode.g, segment.set, segment.joining);
        let map = grants::column_map(file, index, segment, column);
        Some(Target {
            drive,
            address: record.address.clone(),
            grant: grants::for_object(
                &record.master,
                KEY_EPOCH_FIRST,
                place,
                state,
                map.digest(),
                now_ms + CAPABILITY_MS,
            ),
            at,
            attributes: Attributes {
                object_version: OBJECT_VERSION,
                g: inode.g,
                set: segment.set,
                joining: segment.joining,
                map,
                size: 0,
                reach: 0,
                stored_bytes: 0,
                created_ms: inode.created_ms,
                modified_ms: inode.created_ms,
                reserve_bytes: 0,
                cluster: 0,
                opaque: Vec::new(),
                snapshots: Vec::new(),
            },
            term: core.term(),
        })
    }

    async fn call(&self, core: &Core, request: &DriveRequest) -> Result<DriveReply, CallError> {
        core.drive_calls.call(self.drive, &self.address, &self.grant, request).await
    }

    /// Fences the object. One that does not exist is created first, so that no older capability can create
    /// it. Gives the units listed as unsettled, and whether there are more.
    async fn fence(&self, core: &Arc<Core>) -> Result<(Vec<u64>, bool), CallError> {
        let (mut units, mut units_from) = (Vec::new(), 0);
        let mut made = false;
        loop {
            let request = Fence { at: self.at, term: self.term, units_from };
            match self.call(core, &request.into()).await {
                Ok(DriveReply::Fence(reply)) => {
                    let last = reply.unsettled.last().copied();
                    units.extend(reply.unsettled);
                    match last {
                        Some(last) if reply.more && units.len() < UNSETTLED_MAX => units_from = last + 1,
                        _ => return Ok((units, reply.more)),
                    }
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(CallError::Refused(refusal)) if !made && is_missing(&refusal) => {
                    made = true;
                    self.make(core, &refusal).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn make(&self, core: &Arc<Core>, missing: &Refusal) -> Result<(), CallError> {
        if missing.reason == Reason::NoPartition {
            make_partition(core, self.drive, VolumeId(self.at.partition.0)).await?;
        }
        let create = Create { at: self.at, attributes: self.attributes.clone() };
        match self.call(core, &create.into()).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::Exists => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn versions(
        &self,
        core: &Core,
        units: Vec<u64>,
    ) -> Result<Vec<braid_wire::data::UnitState>, CallError> {
        let mut states = Vec::with_capacity(units.len());
        while states.len() < units.len() {
            let rest = units.get(states.len()..).unwrap_or_default().to_vec();
            let asked = Versions { at: self.at, list: Listing::Named, units: rest, from: 0, limit: 0 };
            match self.call(core, &asked.into()).await? {
                DriveReply::Versions(reply) if !reply.units.is_empty() => states.extend(reply.units),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(states)
    }

    /// Part of the units that the column has: at most `limit`, and where to go on.
    pub(crate) async fn list(
        &self,
        core: &Core,
        list: Listing,
        from: u64,
        limit: u32,
    ) -> Result<VersionsReply, CallError> {
        let asked = Versions { at: self.at, list, units: Vec::new(), from, limit };
        match self.call(core, &asked.into()).await? {
            DriveReply::Versions(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    async fn verdict(&self, core: &Core, units: Vec<braid_wire::data::UnitVerdict>) -> Result<(), CallError> {
        for some in units.chunks(VERDICT_UNITS) {
            let request = Verdict { at: self.at, term: self.term, units: some.to_vec() };
            self.call(core, &request.into()).await?;
        }
        Ok(())
    }
}

fn is_missing(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NoObject | Reason::NoPartition)
}

pub(crate) fn unexpected(reply: &DriveReply) -> CallError {
    CallError::Unreachable(format!("it answers {} where that has no place", reply.name()))
}
