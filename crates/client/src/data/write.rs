//! Writes: stripe writes under the file's exclusive lease (PROTOCOL C1 to C3), in sets of bounded size, a few
//! at once. For writes under a shared lease see `shared`.
//!
//! A write holds its stripes, takes stamps, reads what it needs, computes the parity, and sends. It is
//! acknowledged when every column of the set has answered, all in one generation. When a column is lost
//! during the write, the manager takes it out and raises the generation, and the same stamps are sent again
//! to the remaining columns. If a drive would not store the write, the handle may write no more: its lease is
//! given up, and the manager rolls the stripe back.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, Role, Stripe, Version};
use braid_plan::{Body, Target, Write};
use braid_wire::Reason;
use braid_wire::capability::DataDirection;

use crate::concurrent;
use crate::config::PartWrites;
use crate::data::buffers::User;
use crate::data::joined::{JOINED_BYTES_MAX, Turn, Within};
use crate::data::planning::{Patience, SegmentChunk, stripes_of};
use crate::data::stamps::{Begun, Content, NotNow};
use crate::data::unit_writes::Operation;
pub(crate) use crate::data::write_side::WriteSide;
use crate::error::{Error, Result};
use crate::executor::{Executor, Failed, UnitEnd, UnitOutcome, Writer};
use crate::handle::Handle;
use crate::peers::drive_requests::Failure;
use crate::peers::faults::{Learnt, Remedy, write_remedy};
use crate::peers::retry::Tries;
use crate::view::FileView;

pub(crate) use source::{ReservedPlace, Source};

/// A column that failed in this many rounds counts as lost, whatever its answers.
const UNMENDED_MAX: u32 = 6;

/// Maximum number of times that the damaged units of a write are rewritten: a drive that reports more of them
/// each time does not keep what it is sent.
const MENDED_MAX: u32 = 3;

/// Pause before the next try of a handle that has the file alone.
const IN_TURN: Duration = Duration::from_millis(1);

/// End of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Acknowledged,
    /// The handle has another lease, and the manager has decided on what was sent: the caller must write
    /// again.
    NewLease,
}

/// Measures against the failures of one round of writes.
#[derive(Debug, Default)]
struct Verdict {
    /// Columns that cannot be written.
    lost: ColumnMask,
    /// True if the manager must be asked for the present view.
    refresh: bool,
    /// Columns that may answer later.
    wait: ColumnMask,
}

impl Handle {
    /// Makes a range of the file read as zeros, stored as holes.
    pub(crate) async fn punch_range(&self, side: &WriteSide, range: Range<u64>) -> Result<()> {
        let punches = self
            .chunks(self.view(), range)
            .map(|chunk| self.write_chunk(side, chunk, None, Body::Zeros, &[]));
        concurrent::windowed(self.client.shared.config.sets_per_request, punches).await
    }

    async fn write_chunk(
        &self,
        side: &WriteSide,
        chunk: SegmentChunk,
        place: Option<&ReservedPlace>,
        body: Body,
        data: &[u8],
    ) -> Result<()> {
        let mut tries = Tries::new(self.client.shared.config.patience);
        let mut in_vain = 0_u8;
        loop {
            side.check(&self.subject)?;
            let view = self.view();
            if place.is_some_and(|place| place.ends_with(&view)) {
                return Ok(());
            }
            let written = match (view.shared, body) {
                (true, Body::Zeros) => {
                    self.take_turn(&view, in_vain).await?;
                    Written::NewLease
                }
                (true, Body::Buffer { .. }) => self.write_units(side, &chunk, place, data, in_vain).await?,
                (false, _) => self.write_alone(side, &view, &chunk, body, data).await?,
            };
            if written == Written::Acknowledged {
                self.give_long_turn(in_vain).await;
                return Ok(());
            }
            // A shared lease was left for a turn, which is in vain if another has to be taken.
            in_vain = in_vain.saturating_add(u8::from(view.shared));
            // A turn that has begun goes on while its holder waits.
            let has_turn = !self.view().shared;
            let again = if has_turn { tries.again_in(IN_TURN).await } else { tries.again().await };
            if !again {
                let why = "the file's lease kept changing";
                return Err(self.timed_out(&Patience::new(self), why));
            }
        }
    }

    /// Gives back a turn that is longer than usual, as turns before it were in vain. Others would wait for
    /// its end.
    async fn give_long_turn(&self, in_vain: u8) {
        if in_vain > 1
            && let Err(error) = self.give_turn().await
        {
            tracing::debug!(file = %self.subject, %error, "a turn was not given back: other writers wait until it ends by itself");
        }
    }

    /// Writes a chunk under an exclusive lease, joined with others if it has to wait for them.
    async fn write_alone(
        &self,
        side: &WriteSide,
        view: &FileView,
        chunk: &SegmentChunk,
        body: Body,
        data: &[u8],
    ) -> Result<Written> {
        // Held to the end of the write, when the size has grown.
        let _under_way = side.stamps.under_way();
        let segment = chunk.segment;
        let stripes = stripes_of(view, segment, &chunk.range);
        let layout = &view.layout.segments()[segment];
        let is_whole = layout.stripe_range(Stripe(stripes.start)).start == chunk.range.start
            && layout.stripe_range(Stripe(stripes.end - 1)).end == chunk.range.end;
        let bytes = chunk.range.end - chunk.range.start;
        if is_whole || body == Body::Zeros || bytes > JOINED_BYTES_MAX {
            let _held = side.stripes.hold(segment, stripes).await;
            return self.write_stripes(side, view, chunk, body, data).await;
        }
        let within = Within { lease: view.lease, segment, bytes: self.set_around(view, chunk) };
        if !side.joins.is_wanted(&within)
            && let Some(_held) = side.stripes.hold_now(segment, stripes)
        {
            return self.write_stripes(side, view, chunk, body, data).await;
        }
        let mut member = side.joins.join(within, chunk.range.clone(), data);
        let stripes_of = |range: &Range<u64>| stripes_of(view, segment, range);
        match member.turn(&side.stripes, stripes_of).await {
            Turn::Ended(true) => Ok(Written::Acknowledged),
            // Alone it goes well, or it is told its own reason.
            Turn::Ended(false) => {
                drop(member);
                let _held = side.stripes.hold(segment, stripes_of(&chunk.range)).await;
                self.write_stripes(side, view, chunk, body, data).await
            }
            Turn::Write(taken) => {
                let all = SegmentChunk { segment, range: taken.range.clone() };
                let written = self.write_stripes(side, view, &all, body, &taken.bytes).await?;
                if written == Written::Acknowledged {
                    taken.done();
                }
                Ok(written)
            }
        }
    }

    /// Writes a chunk whose stripes are held.
    async fn write_stripes(
        &self,
        side: &WriteSide,
        view: &FileView,
        chunk: &SegmentChunk,
        body: Body,
        data: &[u8],
    ) -> Result<Written> {
        let lease = view.lease;
        let stripes = stripes_of(view, chunk.segment, &chunk.range);
        let _permit = self.client.set_permit_for(chunk.range.end - chunk.range.start).await;
        let count = stripes.end - stripes.start;
        let content = if body == Body::Zeros { Content::Hole } else { Content::Bytes };
        let begin = |g| side.stamps.begin(lease, g, count, chunk.range.end, content);
        let mut patience = Patience::new(self);
        // A set is either one unit write or all stripe writes, so that it can be taken back as a whole.
        let may_be_unit_write = count == 1
            && content == Content::Bytes
            && self.client.config().part_writes == PartWrites::Cheapest;
        let operation = may_be_unit_write.then(|| self.client.shared.unit_writes.begin());
        let mut begun = match begin(view.g) {
            Ok(begun) => begun,
            Err(NotNow::NewerLease) => return Ok(Written::NewLease),
            Err(NotNow::Broken(why)) => return Err(self.unfinished(why)),
        };
        let prepared =
            self.prepare(side, chunk, body, data, &begun, operation.as_ref(), &mut patience).await?;
        let Some(mut executor) = prepared else { return Ok(Written::NewLease) };
        let follows = side.recent.begins(&chunk.range) && content == Content::Bytes;
        begun.sending();
        if let (Some((column, stripe)), Some(operation)) = (executor.unit_write(), operation) {
            side.recent.forget(chunk.segment, &stripes);
            match self.send_unit(side, &mut executor, column, stripe, &operation, &mut patience).await {
                Ok(UnitEnd::Settled) => {
                    begun.settle();
                    self.grown(lease, chunk.range.end);
                    return Ok(Written::Acknowledged);
                }
                Ok(UnitEnd::NewLease) => {
                    begun.settle();
                    return Ok(Written::NewLease);
                }
                // By now it is decided whether the unit write counts. A stripe write of the same bytes,
                // under the next stamp, builds on what is settled.
                Ok(UnitEnd::ColumnOut) => begun.settle(),
                Err(error) => {
                    begun.fail(&error.to_string());
                    return Err(error);
                }
            }
            begun = match begin(self.view().g) {
                Ok(begun) => begun,
                Err(NotNow::NewerLease) => return Ok(Written::NewLease),
                Err(NotNow::Broken(why)) => return Err(self.unfinished(why)),
            };
            match self.prepare(side, chunk, body, data, &begun, None, &mut patience).await? {
                Some(prepared) => executor = prepared,
                None => return Ok(Written::NewLease),
            }
            begun.sending();
        }
        let sent = self.send(side, &mut executor, &mut patience).await;
        match &sent {
            Ok(Written::Acknowledged) => {
                executor.keep(&side.recent, follows);
                begun.settle();
                if content == Content::Bytes {
                    self.grown(lease, chunk.range.end);
                }
            }
            Ok(Written::NewLease) => begun.settle(),
            Err(error) => begun.fail(&error.to_string()),
        }
        sent
    }

    pub(crate) fn unfinished(&self, why: String) -> Error {
        Error::Unfinished { file: self.subject.clone(), why }
    }

    /// Sends a unit write until it is settled, or its column is not in the set any more: then the fence that
    /// took the column out has decided on the write.
    pub(crate) async fn send_unit(
        &self,
        side: &WriteSide,
        executor: &mut Executor<'_>,
        column: Column,
        stripe: Stripe,
        operation: &Operation<'_>,
        patience: &mut Patience,
    ) -> Result<UnitEnd> {
        let (mut unmended, mut mended): (BTreeMap<Column, u32>, u32) = Default::default();
        loop {
            let now = self.view();
            if now.lease != executor.view.lease {
                return Ok(UnitEnd::NewLease);
            }
            executor.retarget(&now);
            let view = Arc::clone(&executor.view);
            let segment = executor.set.segment;
            let state = &view.segments[segment];
            let layout = &view.layout.segments()[segment];
            let mut parity = (0..layout.shape.m()).map(|index| layout.column(stripe, Role::Parity(index)));
            let takes_no_delta = view.shared && parity.any(|column| state.joining.contains(column));
            if !state.set.minus(state.joining).contains(column) || takes_no_delta {
                return Ok(UnitEnd::ColumnOut);
            }
            let failed = match executor.write_unit(self.writer(side), operation).await? {
                UnitOutcome::Settled => return Ok(UnitEnd::Settled),
                UnitOutcome::Failed(failed) => failed,
                UnitOutcome::Owed(owed_to) => {
                    let writer = self.writer(side);
                    // If the data column itself is among them, its owed deltas cannot be read there.
                    let is_lost = mended >= MENDED_MAX || owed_to.contains(column);
                    if is_lost || !self.mend_parity(executor, stripe, owed_to, writer).await? {
                        self.give_up_columns(&view, segment, owed_to, &[], patience).await?;
                    }
                    mended += 1;
                    Vec::new()
                }
            };
            if failed.iter().any(|one| one.failure.is(Reason::Damaged)) {
                // The drive refuses parts of the damaged unit, so it has none of this write. The unit can be
                // made anew from the other columns.
                return Ok(UnitEnd::ColumnOut);
            }
            self.act_on(side, &view, segment, &failed, &mut unmended, patience).await?;
            if !patience.again().await {
                let why = failed.first().map_or_else(
                    || "its parity drives do not accept the write".to_owned(),
                    |one| self.describe(&view, segment, one),
                );
                return Err(self.timed_out(patience, &why));
            }
        }
    }

    fn writer(&self, side: &WriteSide) -> Writer {
        // Under a shared lease a writer does not know what others have settled.
        let settled_below = if self.view().shared { Version::ZERO } else { side.stamps.settled_below() };
        Writer { client: self.client.shared.number, settled_below }
    }

    /// Reads what the write needs and computes its parity. Nothing is sent yet, so the write may still start
    /// over. `unit_write`: the number to use if the write is made as a unit write; `None` if it must not be.
    /// Returns `None` if the handle has another lease.
    async fn prepare<'a>(
        &'a self,
        side: &'a WriteSide,
        chunk: &SegmentChunk,
        body: Body,
        data: &'a [u8],
        begun: &Begun<'_>,
        unit_write: Option<&Operation<'_>>,
        patience: &mut Patience,
    ) -> Result<Option<Executor<'a>>> {
        let mut learnt = Learnt::default();
        loop {
            let view = self.view();
            if view.lease != begun.first.lease {
                return Ok(None);
            }
            let request = Write {
                range: chunk.range.clone(),
                body,
                size: begun.size,
                reach: begun.reach,
                stamp: begun.first,
            };
            let first = stripes_of(&view, chunk.segment, &chunk.range).start;
            // Where the stripe's content is known, a stripe write reads nothing.
            let unit_write =
                unit_write.filter(|_| !side.recent.knows(&view.at(chunk.segment, Stripe(first))));
            let compile = |target: &Target<'_>| match unit_write {
                Some(operation) => braid_plan::write_cheapest(target, request.clone(), operation.number),
                None => braid_plan::write(target, request.clone()),
            };
            let Some(set) = self.compile(&view, chunk.segment, &learnt, compile)? else {
                let stripes = stripes_of(&view, chunk.segment, &chunk.range);
                self.wait_for_columns(&view, chunk.segment, stripes, "written", &mut learnt, patience)
                    .await?;
                continue;
            };
            let user = if data.is_empty() { User::Nothing } else { User::From(data) };
            let mut executor = Executor::new(self, &view, set, user)?;
            executor.recent = Some(&side.recent);
            let read = executor.read().await;
            if executor.saw_absent && !self.is_hole(&view).await? {
                self.pause(patience).await?;
                continue;
            }
            let failed = read?;
            if failed.is_empty() {
                executor.compute(&BTreeSet::new())?;
                return Ok(Some(executor));
            }
            if let Some(one) = failed.iter().find(|one| matches!(one.failure, Failure::Behind { .. })) {
                // Writing part of such a unit would make all of it look current.
                return Err(self.torn(&view, chunk.segment, one));
            }
            let mut remedy = Remedy::Without;
            for one in &failed {
                match learnt.note(one) {
                    Remedy::Refresh => remedy = Remedy::Refresh,
                    Remedy::Again if remedy != Remedy::Refresh => remedy = Remedy::Again,
                    _ => {}
                }
            }
            self.mend(&view, remedy, patience).await?;
        }
    }

    /// Sends until every column of the set has answered in one generation.
    async fn send(
        &self,
        side: &WriteSide,
        executor: &mut Executor<'_>,
        patience: &mut Patience,
    ) -> Result<Written> {
        let mut unmended: BTreeMap<Column, u32> = BTreeMap::new();
        let mut mended = 0;
        loop {
            let now = self.view();
            if now.lease != executor.view.lease {
                return Ok(Written::NewLease);
            }
            executor.retarget(&now);
            let segment = executor.set.segment;
            executor.failover =
                self.failover(DataDirection::Write, &executor.view, segment, &Learnt::default());
            let writer = self.writer(side);
            let mut failed = executor.write(writer).await?;
            if failed.is_empty() {
                if self.write_joined(executor, writer).await? {
                    return Ok(Written::Acknowledged);
                }
                self.refresh(&Arc::clone(&executor.view)).await?;
                if !patience.again().await {
                    return Err(self.timed_out(
                        patience,
                        "a column that began to join meanwhile does not accept the write",
                    ));
                }
                continue;
            }
            if failed.iter().all(|one| one.failure.is(Reason::Damaged)) && mended < MENDED_MAX {
                self.mend_units(executor, &failed, writer).await?;
                mended += 1;
                continue;
            }
            if mended < MENDED_MAX {
                // Damaged units are rewritten once the others have answered.
                failed.retain(|one| !one.failure.is(Reason::Damaged));
            }
            let view = Arc::clone(&executor.view);
            self.act_on(side, &view, executor.set.segment, &failed, &mut unmended, patience).await?;
            if !patience.again().await {
                let why = failed
                    .first()
                    .map_or_else(String::new, |one| self.describe(&view, executor.set.segment, one));
                return Err(self.timed_out(patience, &why));
            }
        }
    }

    /// Takes the measures against a round's failures.
    async fn act_on(
        &self,
        side: &WriteSide,
        view: &Arc<FileView>,
        segment: usize,
        failed: &[Failed],
        unmended: &mut BTreeMap<Column, u32>,
        patience: &mut Patience,
    ) -> Result<()> {
        let mut verdict = self.judge(side, view, segment, failed, unmended)?;
        if !verdict.wait.is_empty() && !patience.again_for_a_while().await {
            verdict.lost = verdict.lost.or(verdict.wait);
        }
        if !verdict.lost.is_empty() {
            self.give_up_columns(view, segment, verdict.lost, failed, patience).await?;
        } else if verdict.refresh {
            self.refresh(view).await?;
        }
        Ok(())
    }

    /// Decides on the measures against a round's failures. A drive that would not store the write is an
    /// error; a column that still fails after repeated tries is lost.
    fn judge(
        &self,
        side: &WriteSide,
        view: &FileView,
        segment: usize,
        failed: &[Failed],
        unmended: &mut BTreeMap<Column, u32>,
    ) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        for column in Failed::columns(failed).iter() {
            *unmended.entry(column).or_default() += 1;
        }
        for one in failed {
            let times = unmended.get(&one.column).copied().unwrap_or_default();
            match write_remedy(&one.failure) {
                Remedy::Again | Remedy::Refresh if times > UNMENDED_MAX => {
                    verdict.lost = verdict.lost.with(one.column);
                }
                Remedy::Again => {}
                Remedy::Refresh => verdict.refresh = true,
                Remedy::Wait => verdict.wait = verdict.wait.with(one.column),
                Remedy::Without => verdict.lost = verdict.lost.with(one.column),
                Remedy::NotStored => {
                    if let Failure::Refused { refusal, .. } = &one.failure {
                        let column = &view.segments[segment].columns[one.column.index()];
                        if refusal.reason == Reason::Full {
                            let _ = side.full.set(column.drive);
                        }
                        return Err(Error::NotStored {
                            file: self.subject.clone(),
                            drive: column.name.clone(),
                            refusal: refusal.clone(),
                        });
                    }
                }
            }
        }
        Ok(verdict)
    }

    /// Asks the manager to take columns out of the set. If it refuses for now, the next round asks again; if
    /// too few columns would be left, the write fails.
    async fn give_up_columns(
        &self,
        view: &Arc<FileView>,
        segment: usize,
        lost: ColumnMask,
        failed: &[Failed],
        patience: &Patience,
    ) -> Result<()> {
        match self.report_lost(view, segment, lost, patience.insists()).await {
            Ok(_) => Ok(()),
            Err(Error::Refused { refusal, .. }) if refusal.reason == Reason::TooManyAway => {
                let mut learnt = Learnt::default();
                for one in failed {
                    learnt.note(one);
                }
                let stripes = failed.iter().map(|one| one.stripe.0);
                let first = stripes.clone().min().unwrap_or(0);
                let last = stripes.max().unwrap_or(0);
                match self.too_many_away(view, segment, first..last + 1, "written", &learnt) {
                    // This write may have met fewer drives than are away; the manager's refusal names all.
                    Error::TooManyAway { drives, spare, .. } if drives.len() <= usize::from(spare) => {
                        Err(Error::Refused { subject: self.subject.clone(), refusal })
                    }
                    error => Err(error),
                }
            }
            Err(Error::Refused { refusal, .. }) if may_change(refusal.reason) => {
                tracing::info!(file = %self.subject, %refusal, "the manager does not take the columns out of the file's set yet");
                // The drive may have come back at another address, which the manager knows.
                self.refresh(view).await.map(|_| ())
            }
            Err(error) => Err(error),
        }
    }

    fn torn(&self, view: &FileView, segment: usize, one: &Failed) -> Error {
        let why = self.describe(view, segment, one);
        Error::Torn { file: self.subject.clone(), segment, stripe: one.stripe.0, why }
    }

    fn describe(&self, view: &FileView, segment: usize, failed: &Failed) -> String {
        format!("drive {}: {}", view.segments[segment].columns[failed.column.index()].name, failed.failure)
    }
}

/// Returns true if the manager may answer differently in a while.
fn may_change(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Busy | Reason::NotServing | Reason::DriveInUse | Reason::NotAllowed | Reason::Unsupported
    )
}
