//! Fences, surveys and verdicts as calls to drives: the parts of a procedure that leave this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId, Generation, ObjectId, PartitionId, VolumeId};
use braid_meta::records::schema::{Freezing, InodeRecord, SegmentRecord};
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_meta::rules::recovery::{ColumnState, Columns, Stamps, Survey, judge, part_for};
use braid_meta::tree::shapes::from_spec;
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, Attributes, Create, DriveReply, DriveRequest, Fence, FenceReply, GetAttributes, Listing, Remove,
    SetAttributes, Snapshot, VERSIONS_UNITS_MAX, Verdict, Versions, VersionsReply,
};
use braid_wire::{Addresses, Reason, Refusal};
use tokio::task::JoinSet;

use crate::columns::calls::unexpected;
use crate::columns::partitions::make_partition;
use crate::core::Core;
use crate::drive_calls::CallError;

/// Maximum number of unsettled units taken from one column at a time; the rest follows when these were
/// judged.
const UNSETTLED_MAX: usize = 1 << 18;
/// Maximum number of units in one verdict message.
const VERDICT_UNITS: usize = 1024;

/// The result of fencing a file's columns.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    /// Per segment, units that some column listed as unsettled.
    pub unsettled: BTreeMap<u32, BTreeSet<u64>>,
    /// Present if some column has more unsettled units than it listed: all units below this one were listed.
    pub next: Option<u64>,
    /// Columns that could not be fenced, each with the reason.
    pub failures: BTreeMap<(u32, Column), String>,
    /// Columns that do not take the deltas that others owe them, or cannot read those that they owe.
    pub owed_to: BTreeSet<(u32, Column)>,
}

/// One column's object, with the addresses and grant to call its drive about it.
#[derive(Clone)]
pub(crate) struct Target {
    drive: DriveId,
    addresses: Addresses,
    grant: Grant,
    /// Grant of the generation before, which cannot remove an object made in this generation.
    older: Option<Grant>,
    at: Address,
    attributes: Attributes,
    term: u64,
}

/// Fences every column of the file's set, all at once, and has them list unsettled units from `from` on.
pub(crate) async fn fence_all(core: &Arc<Core>, file: FileId, inode: &InodeRecord, from: u64) -> Fenced {
    let mut calls = JoinSet::new();
    let mut fenced = Fenced::default();
    for (index, column) in columns_of(inode) {
        match Target::new(core, file, inode, index, column) {
            Some(target) => {
                let core = Arc::clone(core);
                calls.spawn(async move { (index, column, target.fence(&core, from).await) });
            }
            None => {
                fenced.failures.insert((index, column), "the manager does not know its drive".to_owned());
            }
        }
    }
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((index, column, Ok(listed))) if !listed.owed_to.is_empty() => {
                fenced.owed_to.extend(listed.owed_to.iter().map(|owed_to| (index, owed_to)));
                let why = format!("parity column(s) {} do not accept its deltas", listed.owed_to);
                fenced.failures.insert((index, column), why);
            }
            Ok((index, _, Ok(listed))) => {
                let last = listed.unsettled.last().filter(|_| listed.more);
                let next = last.map(|last| last + 1).into_iter().chain(fenced.next).min();
                fenced.next = next;
                fenced.unsettled.entry(index).or_default().extend(listed.unsettled);
            }
            Ok((index, column, Err(error))) => {
                if is_lost(&error) {
                    fenced.owed_to.insert((index, column));
                }
                fenced.failures.insert((index, column), error.to_string());
            }
            Err(error) => tracing::error!(%error, "a fence failed within the manager"),
        }
    }
    if let Some(next) = fenced.next {
        // Above that unit not every column has listed its unsettled units.
        fenced.unsettled.values_mut().for_each(|units| drop(units.split_off(&next)));
    }
    fenced
}

/// Surveys the unsettled units on every column, judges them, and sends the verdicts. Returns the columns that
/// failed, each with the reason.
pub(crate) async fn judge_all(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    unsettled: &BTreeMap<u32, BTreeSet<u64>>,
    judged: &Stamps,
) -> BTreeMap<(u32, Column), String> {
    let mut failures = BTreeMap::new();
    for (&index, units) in unsettled {
        let units: Vec<u64> = units.iter().copied().collect();
        for chunk in units.chunks(VERSIONS_UNITS_MAX) {
            let failed = judge_some(core, file, inode, index, chunk, judged).await;
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
pub(crate) async fn tell(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    index: u32,
    column: Column,
) -> Result<(), CallError> {
    let unknown = || CallError::Unreachable("the manager does not know its drive".to_owned());
    let target = Target::new(core, file, inode, index, column).ok_or_else(unknown)?;
    match target.fence(core, 0).await {
        // A drive serves nothing of an object whose record is damaged.
        Err(error) if !is_lost(&error) => Err(error),
        _ => Ok(()),
    }
}

async fn judge_some(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    index: u32,
    units: &[u64],
    judged: &Stamps,
) -> BTreeMap<Column, String> {
    let Some(segment) = inode.segment(index) else {
        return BTreeMap::new();
    };
    let shape = match from_spec(&segment.shape, &segment.shape) {
        Ok(shape) => shape,
        Err(refusal) => return segment.set.iter().map(|column| (column, refusal.detail.clone())).collect(),
    };
    let of_segment = Columns { shape, set: segment.set, joining: segment.joining };
    let targets: BTreeMap<Column, Target> = segment
        .set
        .iter()
        .filter_map(|column| Some((column, Target::new(core, file, inode, index, column)?)))
        .collect();
    let mut calls = JoinSet::new();
    for (&column, target) in &targets {
        let core = Arc::clone(core);
        let target = target.clone();
        let units = units.to_vec();
        calls.spawn(async move { (column, target.versions(&core, units).await) });
    }
    let mut surveys = BTreeMap::<u64, Survey>::new();
    let mut failures = BTreeMap::new();
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
        let verdict = judge(unit, of_segment, judged, survey);
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
    let of = |segment: &SegmentRecord| {
        let number = segment.number;
        segment.set.iter().map(move |column| (number, column)).collect::<Vec<_>>()
    };
    inode.segments.iter().flat_map(of).collect()
}

impl Target {
    pub(crate) fn new(
        core: &Core,
        file: FileId,
        inode: &InodeRecord,
        index: u32,
        column: Column,
    ) -> Option<Target> {
        let segment = inode.segment(index)?;
        let drive = segment.drive(column);
        let partition = PartitionId::from(inode.volume);
        let now_ms = core.now_ms();
        let table = core.drives();
        let record = &table.drive(drive)?.record;
        let at = Address { partition, object: segment.object };
        let map = grants::column_map(file, segment, column);
        let sign = |g| {
            let state = (g, segment.set, segment.joining);
            let expires_ms = now_ms + CAPABILITY_MS;
            grants::for_object(
                &record.master,
                drive,
                partition,
                segment.object,
                file,
                state,
                map.digest(),
                expires_ms,
            )
        };
        let joins = segment.joining.contains(column);
        let before = inode.g.0.checked_sub(1).filter(|_| joins).map(Generation);
        Some(Target {
            drive,
            addresses: record.addresses.clone(),
            grant: sign(inode.g),
            older: before.map(sign),
            at,
            attributes: Attributes {
                g: inode.g,
                set: segment.set,
                joining: segment.joining,
                map,
                size: 0,
                reach: 0,
                stored_bytes: 0,
                created_ms: inode.created_ms,
                modified_ms: inode.created_ms,
                reserve_bytes: inode.kept_free(segment),
                cluster: inode.cluster,
                opaque: Vec::new(),
                base: ObjectId(0),
            },
            term: core.term(),
        })
    }

    /// The object of a frozen file that is to be, in its first generation. `still`: its segment.
    pub(crate) fn of_still(
        core: &Core,
        begun: &Freezing,
        base: &InodeRecord,
        still: &SegmentRecord,
        column: Column,
    ) -> Option<Target> {
        let inode = InodeRecord { g: begun.g, segments: vec![still.clone()], ..base.clone() };
        Target::new(core, begun.data, &inode, still.number, column)
    }

    /// Has the drive take a still of the object. One that is there already is as good.
    pub(crate) async fn take(&self, core: &Core, still: &Target) -> Result<(), CallError> {
        let attributes = still.attributes.clone();
        let request = Snapshot { at: self.at, still: still.at.object, attributes, term: self.term };
        self.call(core, &request.into()).await.map(drop)
    }

    async fn call(&self, core: &Core, request: &DriveRequest) -> Result<DriveReply, CallError> {
        core.drive_calls.call(self.drive, &self.addresses, &self.grant, request).await
    }

    /// Fences the object. One that does not exist is created first, so that no older capability can create
    /// it. Returns the unsettled units from `units_from` on, as far as they were listed.
    async fn fence(&self, core: &Arc<Core>, mut units_from: u64) -> Result<FenceReply, CallError> {
        let mut units = Vec::new();
        let mut made = false;
        // Nothing on a joining column counts yet: if its object is lost, that is removed and made anew. The
        // removal is of the generation before, so that one which arrives late cannot remove the new object.
        let mut older = self.older.as_ref();
        loop {
            let drives = self.attributes.map.drives.clone();
            let reserve_bytes = self.attributes.reserve_bytes;
            let request = Fence { at: self.at, term: self.term, units_from, drives, reserve_bytes };
            match self.call(core, &request.into()).await {
                Ok(DriveReply::Fence(mut reply)) => {
                    let last = reply.unsettled.last().copied();
                    units.append(&mut reply.unsettled);
                    match last {
                        Some(last) if reply.more && units.len() < UNSETTLED_MAX => units_from = last + 1,
                        _ => return Ok(FenceReply { unsettled: units, ..reply }),
                    }
                }
                Ok(other) => return Err(unexpected(&other)),
                Err(CallError::Refused(refusal)) if !made && is_missing(&refusal) => {
                    made = true;
                    match self.make(core, &refusal, self.attributes.reserve_bytes).await {
                        // The column has its place there, with less room than was promised for it.
                        Err(CallError::Refused(full))
                            if matches!(full.reason, Reason::Full | Reason::Quota) =>
                        {
                            self.make(core, &refusal, 0).await?;
                        }
                        made => made?,
                    }
                }
                Err(error) if is_lost(&error) => {
                    let Some(older) = older.take() else { return Err(error) };
                    let remove = Remove { at: self.at, term: self.term }.into();
                    core.drive_calls.call(self.drive, &self.addresses, older, &remove).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns true if the drive has lost the object's record, or cannot tell that it never had one.
    pub(crate) async fn has_lost(&self, core: &Core) -> Result<bool, CallError> {
        match self.call(core, &GetAttributes { at: self.at }.into()).await {
            Ok(_) => Ok(false),
            Err(error) if is_lost(&error) => Ok(true),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::NoObject => Ok(false),
            // Without the partition it is not known what was in it.
            Err(error) => Err(error),
        }
    }

    /// Returns true if the drive has the object.
    pub(crate) async fn is_there(&self, core: &Core) -> Result<bool, CallError> {
        match self.call(core, &GetAttributes { at: self.at }.into()).await {
            Ok(_) => Ok(true),
            Err(CallError::Refused(refusal)) if is_missing(&refusal) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, core: &Arc<Core>, missing: &Refusal, reserve_bytes: u64) -> Result<(), CallError> {
        if missing.reason == Reason::NoPartition {
            make_partition(core, self.drive, VolumeId(self.at.partition.0)).await?;
        }
        let attributes = Attributes { reserve_bytes, ..self.attributes.clone() };
        let create = Create { at: self.at, attributes };
        match self.call(core, &create.into()).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::Exists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Has the drive keep room free for the column, as the record says. A column that is not there is made
    /// first if there is any to be kept.
    pub(crate) async fn keep_free(&self, core: &Arc<Core>) -> Result<(), CallError> {
        let reserve_bytes = self.attributes.reserve_bytes;
        let request = SetAttributes {
            at: self.at,
            reserve_bytes: Some(reserve_bytes),
            cluster: None,
            opaque: Vec::new(),
            term: self.term,
        };
        let request = DriveRequest::from(request);
        match self.call(core, &request).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused(refusal)) if is_missing(&refusal) && reserve_bytes == 0 => Ok(()),
            Err(CallError::Refused(refusal)) if is_missing(&refusal) => {
                self.make(core, &refusal, reserve_bytes).await?;
                // A client may have made it first, and keeps nothing free.
                self.call(core, &request).await.map(drop)
            }
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

    /// Lists some of the units that the column has: at most `limit`, and where to go on.
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

/// Returns true if the error says that the drive has lost the object's record: the column goes out, though
/// its drive lives.
pub(crate) fn is_lost(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal) if refusal.reason == Reason::Damaged)
}

fn is_missing(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NoObject | Reason::NoPartition)
}
