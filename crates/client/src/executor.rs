//! The executor: carries out one verified plan set against the drives.
//!
//! It runs the set in four phases: the reads, at all drives at once; repeated reads of torn stripes; the
//! client's own steps; the writes, at all drives at once. Within a set no read waits for a step, and a write
//! waits only for reads and steps, so the phases keep the plan's order. A set's arithmetic overlaps with the
//! transfer of the request's other sets. All of it runs in the caller's task, as it borrows the caller's
//! buffer.
//!
//! The executor decides nothing: the reader or writer sees what failed and how, and acts on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{ClientId, Column, ColumnMask, OperationNumber, Stripe, Version};
use braid_plan::{Instruction, InstructionId, MemoryRange, Op, PlanSet, Request, Source, Want};
use braid_wire::data::{self, Create, DriveReply, DriveRequest, Read, StripeWrite};
use braid_wire::{Reason, Refusal};
use torn::Looks;

use crate::concurrent;
use crate::data::arithmetic::{self, Unequal};
use crate::data::buffers::{Memory, User};
use crate::data::cut::Arrived;
use crate::data::recent::Recent;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::peers::drive_requests::{Failure, Item, RequestOutcome, request_all};
use crate::view::FileView;

mod absent;
mod again;
mod counted;
mod cuts;
mod doubt;
mod failover;
mod fill;
mod keep;
mod torn;
mod unit;

pub(crate) use failover::Failover;
pub(crate) use fill::Filling;
pub(crate) use unit::{UnitEnd, UnitOutcome};

/// Maximum number of times that a torn stripe is read again. A writer that rewrites one stripe without a
/// pause tears about every second read, so this many torn reads in a row mean that the columns will not
/// agree.
const CUTS_MAX: u32 = 64;
/// Number of the first repeated read with a pause before it. The pauses grow, so that the reads do not stay
/// in step with such a writer.
const CUTS_PAUSED: u32 = 8;

/// A plan set while it is carried out.
pub(crate) struct Executor<'a> {
    handle: &'a Handle,
    pub(crate) view: Arc<FileView>,
    pub(crate) set: PlanSet,
    memory: Memory<'a>,
    /// Per instruction: the result of a read.
    arrived: Vec<Option<Arrived>>,
    /// Per instruction: true if a write was answered in the present generation.
    written: Vec<bool>,
    /// The stripes that the set was planned to write, each with all columns of its stripe write.
    pub(crate) stripe_writes: BTreeMap<Stripe, ColumnMask>,
    /// True if some column's object did not exist; its bytes were taken for a hole.
    pub(crate) saw_absent: bool,
    /// Set when this set's whole units replace another set's stripe writes: by stripe, the stamp and the
    /// columns of that write.
    stands_in: Option<BTreeMap<Stripe, (Version, ColumnMask)>>,
    /// True if the units that these whole units replace are damaged.
    over_damage: bool,
    /// Set when the columns are those of a new layout.
    filling: Option<Filling>,
    /// The rule for columns that do not answer in time; `None`: they are waited for.
    pub(crate) failover: Option<Failover>,
    /// Content that need not be read, for a writer that is alone.
    pub(crate) recent: Option<&'a Recent>,
}

/// An instruction that failed.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) column: Column,
    pub(crate) stripe: Stripe,
    /// The memory in which the bytes of a read were to be put.
    pub(crate) into: Option<MemoryRange>,
    pub(crate) failure: Failure,
}

/// The facts about the writer that each write request carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) client: ClientId,
    pub(crate) settled_below: Version,
}

/// An instruction as a request.
struct Asked<'b> {
    column: Column,
    id: Option<InstructionId>,
    stripe: Stripe,
    into: Option<MemoryRange>,
    item: Item<'b>,
}

fn stripe_writes(set: &PlanSet) -> BTreeMap<Stripe, ColumnMask> {
    let writes = set.instructions().filter_map(|(_, instruction)| match &instruction.op {
        Op::StripeWrite { stripe, columns, .. } => Some((*stripe, *columns)),
        _ => None,
    });
    writes.collect()
}

impl<'a> Executor<'a> {
    /// Verifies the set; `user` is the caller's memory.
    pub(crate) fn new(
        handle: &'a Handle,
        view: &Arc<FileView>,
        set: PlanSet,
        user: User<'a>,
    ) -> Result<Executor<'a>> {
        let segment = &view.layout.segments()[set.segment];
        braid_plan::verify::verify(&set, segment).map_err(|violations| {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            handle.plan_error(&list.join("; "))
        })?;
        let memory = Memory::new(user, &set.scratch, &handle.client.paths.scratch);
        let arrived = vec![None; set.len()];
        let written = vec![false; set.len()];
        let view = Arc::clone(view);
        let (saw_absent, stands_in) = (false, None);
        let stripe_writes = stripe_writes(&set);
        Ok(Executor {
            handle,
            view,
            set,
            memory,
            arrived,
            written,
            stripe_writes,
            saw_absent,
            stands_in,
            over_damage: false,
            filling: None,
            failover: None,
            recent: None,
        })
    }

    /// Runs the reads, and repeats those of stripes that are not of one cut. Returns what failed; stripes
    /// named there must not be computed with. If the reads of a stripe are still not of one cut though nobody
    /// writes, those of older versions have failed with [`Failure::Behind`].
    pub(crate) async fn read(&mut self) -> Result<Vec<Failed>> {
        let all =
            self.set.instructions().filter(|(_, i)| !i.op.is_write()).map(|(_, i)| (i.id, None)).collect();
        let mut failed = self.ask_reads(all).await?;
        failed.extend(self.lost().await);
        let mut looks = Looks::default();
        for round in 0.. {
            let mut torn = self.torn(&failed);
            for stripe in looks.unchanged(self, &torn) {
                failed.extend(self.behind(stripe));
                torn.remove(&stripe);
            }
            let Some((&stripe, _)) = torn.first_key_value() else { break };
            if round == CUTS_MAX {
                return Err(Error::Torn {
                    file: self.handle.subject.clone(),
                    segment: self.set.segment,
                    stripe: stripe.0,
                    why: format!("after {CUTS_MAX} tries"),
                });
            }
            let pause = Duration::from_millis(u64::from(round.saturating_sub(CUTS_PAUSED)));
            if !pause.is_zero() && round % 2 == 1 {
                tokio::time::sleep(pause).await;
            }
            let again = self.ask_again(&torn, round);
            failed.retain(|one| !torn.contains_key(&one.stripe));
            let (gone, others): (Vec<_>, Vec<_>) =
                self.ask_reads(again).await?.into_iter().partition(|one| one.failure.is(Reason::Gone));
            failed.extend(others);
            if !gone.is_empty() {
                tracing::debug!(stripes = gone.len(), "a version that was asked for is gone; reading again");
            }
        }
        Ok(failed)
    }

    /// Runs the client's own steps of all stripes except `without`. Returns what comparisons found.
    pub(crate) fn compute(&mut self, without: &BTreeSet<Stripe>) -> Result<Vec<Unequal>> {
        let shape = self.view.layout.segments()[self.set.segment].shape;
        let mut found = Vec::new();
        for step in self.set.arithmetic.iter().filter(|step| !without.contains(&step.stripe)) {
            let memory = &mut self.memory;
            let unequal = match &self.handle.client.paths.drives.recorder {
                None => arithmetic::run(shape, step, memory),
                Some(recorder) => recorder.compute(|| arithmetic::run(shape, step, memory)),
            };
            found.extend(unequal.map_err(|error| self.handle.plan_error(&error))?);
        }
        Ok(found)
    }

    /// Runs the writes that were not answered in this generation, to columns in the set. Returns what failed;
    /// if nothing did, every column of the set has answered.
    pub(crate) async fn write(&mut self, writer: Writer) -> Result<Vec<Failed>> {
        let mut asked = Vec::new();
        let mut skipped = Vec::new();
        let mut stamps = BTreeMap::new();
        for plan in &self.set.plans {
            let mut first = true;
            for instruction in plan.instructions.iter().filter(|i| i.op.is_write()) {
                if self.written[instruction.id.index()] {
                    continue;
                }
                let Some((request, payload)) = self.write_request(plan.column, instruction, writer)? else {
                    skipped.push(instruction.id);
                    continue;
                };
                if std::mem::take(&mut first) && !self.handle.is_created(self.set.segment, plan.column) {
                    asked.push(self.create(plan.column, instruction.op.stripe()));
                }
                stamps.insert(instruction.id, request.stamp);
                let item = Item { request: request.into(), payload, into: &mut [] };
                let column = plan.column;
                let stripe = instruction.op.stripe();
                asked.push(Asked { column, id: Some(instruction.id), stripe, into: None, item });
            }
        }
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked, self.failover).await;
        for id in skipped {
            self.written[id.index()] = true;
        }
        let mut failed = Vec::new();
        for (mut label, outcome) in outcomes {
            if let Ok(DriveReply::Written(reply)) = &outcome {
                self.handle.receipts.heed(&reply.receipts);
            }
            match (outcome, label.id) {
                (Ok(DriveReply::Written(reply)), Some(id)) if stamps.get(&id) == Some(&reply.version) => {
                    self.written[id.index()] = true;
                }
                // The drive has a newer version and ignored the write: its content is not the one that the
                // stripe's other columns count.
                (Ok(DriveReply::Written(reply)), Some(_)) => {
                    let why = format!(
                        "it already has version {} of the unit, which is newer, and ignored the write",
                        reply.version
                    );
                    let refusal = Refusal::new(Reason::Exists, why);
                    label.failed.failure = Failure::Refused { refusal, proven: true };
                    failed.push(label.failed);
                }
                (Ok(DriveReply::Done(_)), None) => {
                    self.handle.set_created(self.set.segment, label.failed.column);
                }
                (Ok(other), _) => {
                    let why = format!("it answered a write with {}", other.name());
                    label.failed.failure = Failure::Lost(why);
                    failed.push(label.failed);
                }
                (Err(failure), _) => {
                    if failure.is(Reason::NoObject) {
                        self.handle.set_absent(self.set.segment, label.failed.column);
                    }
                    label.failed.failure = failure;
                    failed.push(label.failed);
                }
            }
        }
        Ok(failed)
    }

    fn create(&self, column: Column, stripe: Stripe) -> Asked<'static> {
        let at = self.view.address(self.set.segment, column);
        let attributes = self.view.attributes(self.set.segment, column);
        let item = Item::bare(Create { at, attributes });
        Asked { column, id: None, stripe, into: None, item }
    }

    /// The request and bytes of a write; `None` if there is nothing to send (part of a write to a unit that
    /// was never written).
    fn write_request(
        &self,
        column: Column,
        instruction: &Instruction,
        writer: Writer,
    ) -> Result<Option<(StripeWrite, &[u8])>> {
        let Op::StripeWrite { stripe, from, to, bytes, stamp, columns, cover } = &instruction.op else {
            return Err(self.handle.plan_error(&"unit writes are not run by this executor"));
        };
        let (version, mut columns, cover, ends) = match &self.filling {
            Some(filling) => match self.filled(column, *stripe, filling)? {
                Some(filled) => filled,
                None => return Ok(None),
            },
            None => {
                let versions = cover.iter().map(|version| self.version(version)).collect::<Result<_>>()?;
                (self.version(stamp)?, *columns, versions, self.ends(*stripe, cover, *from..*to)?)
            }
        };
        let rebuilds = matches!(self.set.request, Request::Rebuild { .. }) && self.stands_in.is_none();
        let install = rebuilds || self.filling.is_some();
        let end = self.whole_end(column, *stripe, stamp, *from..*to)?;
        let stamp = version;
        // Where nothing was ever written, only a lost unit is installed, so that it is whole again.
        if stamp.is_zero() && !install {
            return Ok(None);
        }
        if let Some(writes) = &self.stands_in {
            // If the reads gave another version, they do not have that write's content, which must not go
            // under its stamp.
            let Some(&(_, own)) = writes.get(stripe).filter(|(named, _)| *named == stamp) else {
                return Err(self
                    .handle
                    .plan_error(&format!("stripe {} at {stamp} was not written", stripe.0)));
            };
            columns = own;
        }
        let payload = match bytes {
            Source::Hole => &[][..],
            Source::MemoryRange(range) => {
                self.memory.at(*range).map_err(|error| self.handle.plan_error(&error))?
            }
        };
        // An install stands for the whole unit, and so does a write to a joining column. A rebuild reads
        // holes as zeros and cannot tell them apart. Zeros behind the end of the unit's bytes are not sent,
        // as the file's size depends on that end; nor is a unit that is zeros altogether.
        let is_all = install || end.is_some();
        let payload = if is_all { counted::up_to(end.unwrap_or(0), payload) } else { payload };
        let hole = matches!(bytes, Source::Hole) || payload.is_empty();
        let to = if hole { *to } else { from + u32::try_from(payload.len()).expect("a unit") };
        let request = StripeWrite {
            at: self.view.address(self.set.segment, column),
            unit: stripe.0,
            from: *from,
            to,
            hole,
            install,
            whole: end.is_some() && !install && !hole,
            stamp,
            columns,
            cover,
            ends,
            settled_below: writer.settled_below,
            client: writer.client,
            operation: OperationNumber(stamp.n),
            crcs: Vec::new(),
            timed: false,
        };
        Ok(Some((request, payload)))
    }

    /// Sends these reads, each for exactly the versions given with it, or else as the plan says.
    async fn ask_reads(&mut self, wanted: Vec<(InstructionId, Option<Vec<Version>>)>) -> Result<Vec<Failed>> {
        let mut wanted: BTreeMap<InstructionId, Option<Vec<Version>>> = wanted.into_iter().collect();
        let mut requests = Vec::new();
        for (plan, instruction) in self.set.instructions() {
            let Op::Read { stripe, from, to, into, want } = instruction.op else { continue };
            let Some(exactly) = wanted.remove(&instruction.id) else { continue };
            let want = match (&exactly, want) {
                (Some(_), _) => data::Want::Exactly,
                (None, Want::Newest) => data::Want::Newest,
                (None, Want::Settled) => data::Want::Settled,
            };
            let at = self.view.address(self.set.segment, plan.column);
            let exactly = exactly.unwrap_or_default();
            let request = Read { at, unit: stripe.0, from, to, want, exactly, timed: false };
            requests.push((plan.column, instruction.id, stripe, into, request));
        }
        let ranges: Vec<MemoryRange> = requests.iter().map(|(.., into, _)| *into).collect();
        let split = self.memory.split(&[], &ranges).map_err(|error| self.handle.plan_error(&error))?;
        let mut asked = Vec::with_capacity(requests.len());
        for ((column, id, stripe, into, request), bytes) in requests.into_iter().zip(split.outputs) {
            let at = self.view.at(self.set.segment, stripe);
            if let Some(recent) = self.recent.filter(|_| request.want == data::Want::Newest)
                && let Some(known) = recent.read(&at, column, &(request.from..request.to), bytes)
            {
                self.arrived[id.index()] = Some(known);
                continue;
            }
            let item = Item { request: request.into(), payload: &[], into: bytes };
            asked.push(Asked { column, id: Some(id), stripe, into: Some(into), item });
        }
        let outcomes = ask_drives(self.handle, &self.view, self.set.segment, asked, self.failover).await;
        let joining = self.view.segments[self.set.segment].joining;
        let mut holes = Vec::new();
        let mut failed = Vec::new();
        for (mut label, outcome) in outcomes {
            let Some(id) = label.id else { continue };
            self.arrived[id.index()] = None;
            match outcome {
                Ok(DriveReply::Read(reply)) => {
                    self.arrived[id.index()] = Some(Arrived {
                        version: reply.version,
                        cover: reply.cover,
                        ends: reply.ends,
                        pending: reply.pending,
                    });
                }
                Ok(other) => {
                    label.failed.failure = Failure::Lost(format!("it answered a read with {}", other.name()));
                    failed.push(label.failed);
                }
                // An object that was never created is a hole, if the drive that says so knows the capability
                // and the column is ready. A joining column may merely not have received the object yet.
                Err(Failure::Refused { refusal, proven: true })
                    if refusal.reason == Reason::NoObject && !joining.contains(label.failed.column) =>
                {
                    self.arrived[id.index()] = Some(Arrived {
                        version: Version::ZERO,
                        cover: Vec::new(),
                        ends: Vec::new(),
                        pending: false,
                    });
                    holes.extend(label.failed.into);
                    self.saw_absent = true;
                }
                Err(failure) => {
                    label.failed.failure = failure;
                    failed.push(label.failed);
                }
            }
        }
        self.doubt(&failed).await;
        let split = self.memory.split(&[], &holes).map_err(|error| self.handle.plan_error(&error))?;
        split.outputs.into_iter().for_each(|bytes| bytes.fill(0));
        Ok(failed)
    }
}

/// The instruction that an outcome belongs to, and the failure to report for it.
struct Label {
    id: Option<InstructionId>,
    failed: Failed,
}

/// Sends the requests to their columns' drives, all drives at once.
async fn ask_drives(
    handle: &Handle,
    view: &FileView,
    segment: usize,
    asked: Vec<Asked<'_>>,
    failover: Option<Failover>,
) -> Vec<(Label, RequestOutcome)> {
    let mut columns: BTreeMap<Column, (Vec<Label>, Vec<Item<'_>>)> = BTreeMap::new();
    for Asked { column, id, stripe, into, item } in asked {
        if matches!(
            item.request,
            DriveRequest::Create(_) | DriveRequest::StripeWrite(_) | DriveRequest::UnitWrite(_)
        ) {
            handle.touches(segment, column);
        }
        let failed = Failed { column, stripe, into, failure: Failure::Idle };
        let entry = columns.entry(column).or_default();
        entry.0.push(Label { id, failed });
        entry.1.push(item);
    }
    let caller = u64::try_from(std::ptr::from_ref(handle).addr()).unwrap_or_default();
    let mut labels = Vec::with_capacity(columns.len());
    let mut requests = Vec::with_capacity(columns.len());
    for (column, (of_column, items)) in columns {
        labels.push((column, of_column));
        requests.push(async move {
            let target = &view.segments[segment].columns[column.index()];
            match &target.grant {
                Some(grant) => {
                    let drives = &handle.client.paths.drives;
                    let limit = handle.client.in_flight_limit(caller);
                    request_all(drives, target.drive, &target.addresses, grant, limit, items).await
                }
                None => {
                    vec![Err(Failure::Lost("the column is out of the file's set".to_owned())); items.len()]
                }
            }
        });
    }
    let mut all = concurrent::All::of(requests);
    match failover {
        Some(failover) => {
            let column_of = |number: usize| labels[number].0;
            let is_out = async |late| failover::is_out(handle, view, segment, late).await;
            failover.wait(&mut all, column_of, is_out).await;
        }
        None => all.ended().await,
    }
    let mut outcomes = Vec::new();
    for ((column, labels), answers) in labels.into_iter().zip(all.results()) {
        let answers = answers.unwrap_or_else(|| {
            let target = &view.segments[segment].columns[column.index()];
            let why = "it did not answer in time, and the others did";
            handle.note_silent(target.drive, why);
            vec![Err(Failure::Lost(why.to_owned())); labels.len()]
        });
        outcomes.extend(labels.into_iter().zip(answers));
    }
    outcomes
}

/// Sends one request to each of these columns of a segment, all at once.
pub(crate) async fn ask_columns(
    handle: &Handle,
    view: &FileView,
    segment: usize,
    questions: Vec<(Column, DriveRequest)>,
) -> Vec<(Column, RequestOutcome)> {
    let asked = questions
        .into_iter()
        .map(|(column, request)| Asked {
            column,
            id: None,
            stripe: Stripe(0),
            into: None,
            item: Item::bare(request),
        })
        .collect();
    let outcomes = ask_drives(handle, view, segment, asked, None).await;
    outcomes.into_iter().map(|(label, outcome)| (label.failed.column, outcome)).collect()
}

impl Failed {
    /// The columns of these failures.
    pub(crate) fn columns(failed: &[Failed]) -> ColumnMask {
        failed.iter().map(|one| one.column).collect()
    }
}

impl Handle {
    /// An error for a plan that the planner or the verifier refuses.
    pub(crate) fn plan_error(&self, why: &(impl ToString + ?Sized)) -> Error {
        Error::Plan { file: self.subject.clone(), why: why.to_string() }
    }
}
