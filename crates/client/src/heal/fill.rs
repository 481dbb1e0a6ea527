//! The fill of a file's new layout: a drive's columns of it get the file's bytes, in the drive's process.
//!
//! Each drive makes its own columns: it reads the bytes of its units from the layout in force, as any reader
//! does, and those of whole stripes where its unit is parity. All units get one version. A unit of zeros is
//! not made, and parity counts it as never written. So each drive can tell from the bytes alone what the
//! other drives have, and all fill at the same time without communication.
//!
//! While the new layout exists, the file cannot have been written since the layout was made (the manager
//! ensures that). So units that have the version are right, and an interrupted fill goes on where it was.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_layout::{Column, FileId, HolderId, Lease, ReservationId, Role, Segment, Stripe, Version};
use braid_plan::{Body, Target, Write};
use braid_wire::Reason;
use braid_wire::control::{Access, BeginHeal, ControlReply, ControlRequest, EndHeal, Refresh, Room, Turn};
use braid_wire::data::{DriveReply, UnitState};

use super::{Heal, HealTally, NAMED, ROUNDS_MAX, Wanted};
use crate::client::{Client, unexpected};
use crate::concurrent;
use crate::data::buffers::User;
use crate::data::extents::data_after;
use crate::data::held::runs;
use crate::data::planning::Patience;
use crate::error::{Error, Result};
use crate::executor::{Executor, Filling, ask_columns};
use crate::handle::{Handle, Purpose};
use crate::peers::faults::Learnt;
use crate::view::FileView;

/// Fills the columns of the file's new layout on the drive whose credentials the client has.
pub(super) async fn fill_file(client: &Client, file: FileId, tally: &HealTally) -> Result<()> {
    let subject = format!("file number {file}");
    for _ in 0..ROUNDS_MAX {
        let begin = BeginHeal { file, comparison: 0, filling: true, in_vain: 0 };
        let target = open(client, &subject, Purpose::Fill, begin.into()).await?;
        let refresh = Refresh {
            file,
            access: Access::Read,
            lease: Lease(0),
            holder: HolderId::NONE,
            turn: Turn::Any,
            in_vain: 0,
            reservation: ReservationId::NONE,
            reach: 0,
            room: Room::Keep,
            snapshot: 0,
        };
        let source = open(client, &subject, Purpose::Read, refresh.into()).await?;
        let view = target.view();
        let Some(version) = view.filling else {
            return Err(Error::Answer { subject, why: "the file has no new layout to fill".to_owned() });
        };
        let drive = client.config().credentials.drive;
        let heal = Heal { handle: &target, drive, tally: tally.other_work(), left: AtomicU64::new(0) };
        let fill = Fill { heal, source: &source, version, size: view.stat.size() };
        if !fill.whole(&view).await? {
            continue;
        }
        match client
            .ask_done(&subject, EndHeal { file, g: view.g, left: 0, comparison: 0, filling: true })
            .await
        {
            Err(error) if error.reason() == Some(Reason::StaleGeneration) => {}
            other => return other,
        }
    }
    let why = "its generation kept rising".to_owned();
    Err(Error::TimedOut { file: subject, after: client.config().patience, why })
}

async fn open(client: &Client, subject: &str, purpose: Purpose, request: ControlRequest) -> Result<Handle> {
    match client.ask_manager(subject, request).await? {
        ControlReply::Opened(opened) => {
            Handle::new(client.clone(), subject.to_owned(), purpose, HolderId::NONE, opened)
        }
        other => Err(unexpected(subject, &other)),
    }
}

struct Fill<'a> {
    /// The heal of the columns that are filled.
    heal: Heal<'a>,
    /// A reader's handle of the file, in the layout in force.
    source: &'a Handle,
    version: Version,
    size: u64,
}

/// The only segment of a view of the new layout.
const ONLY: usize = 0;

impl Fill<'_> {
    /// Fills all own columns. Returns false if the view changed on the way, or something must be tried again.
    async fn whole(&self, view: &Arc<FileView>) -> Result<bool> {
        let segment = &view.layout.segments()[ONLY];
        for own in self.heal.own(view, ONLY).iter() {
            let mut at = 0;
            while at < self.size {
                let Some(data) = data_after(self.source, at..self.size).await? else { break };
                let stripes = segment.stripe_at(data.start).0..segment.stripe_at(data.end - 1).0 + 1;
                at = segment.stripe_range(Stripe(stripes.end - 1)).end;
                if !self.stripes(view, own, stripes).await? {
                    return Ok(false);
                }
            }
        }
        Ok(self.heal.handle.view().g == view.g)
    }

    async fn stripes(&self, view: &Arc<FileView>, own: Column, stripes: Range<u64>) -> Result<bool> {
        let mut from = stripes.start;
        while from < stripes.end {
            let to = stripes.end.min(from + u64::try_from(NAMED).expect("a small number"));
            let Some(states) = self.states(view, own, (from..to).collect()).await? else { return Ok(false) };
            let next = from + u64::try_from(states.len()).expect("at most as many as were named");
            let shape = view.layout.segments()[ONLY].shape;
            let (current, behind): (Vec<_>, Vec<_>) =
                states.iter().partition(|state| is_current(state, self.version));
            let unit = u64::from(shape.unit_bytes());
            current.iter().for_each(|_| self.heal.tally.compared(unit));
            let step = self.heal.handle.stripes_per_set(view, ONLY);
            let lost: BTreeSet<Stripe> =
                states.iter().filter(|state| state.damaged).map(|state| Stripe(state.unit)).collect();
            let lost = &lost;
            let runs = runs(behind.iter().map(|state| state.unit), step);
            let again = std::sync::atomic::AtomicBool::new(false);
            let sets = runs.into_iter().map(|run| {
                let again = &again;
                async move {
                    self.heal.tally.take((run.end - run.start) * unit).await;
                    if !self.set(view, own, run, lost).await? {
                        again.store(true, std::sync::atomic::Ordering::Relaxed);
                    }
                    Ok::<(), Error>(())
                }
            });
            concurrent::windowed(self.heal.handle.client.config().sets_per_request, sets).await?;
            if again.into_inner() {
                return Ok(false);
            }
            from = next;
        }
        Ok(true)
    }

    /// States of the own column's units in these stripes, or in the first of them. `None` if the fill must be
    /// tried again.
    async fn states(
        &self,
        view: &Arc<FileView>,
        own: Column,
        stripes: Vec<u64>,
    ) -> Result<Option<Vec<UnitState>>> {
        let handle = self.heal.handle;
        let wanted = Wanted::Named(stripes.clone());
        let mut patience = Patience::new(handle);
        loop {
            let now = handle.view();
            let asked = vec![(own, wanted.request(&now, ONLY, own))];
            let outcome = ask_columns(handle, &now, ONLY, asked).await.pop().map(|(_, outcome)| outcome);
            let why = match outcome {
                Some(Ok(DriveReply::Versions(reply))) => match wanted.objection(&reply) {
                    None => return Ok(Some(reply.units)),
                    Some(why) => why.to_owned(),
                },
                // Nothing was installed yet.
                Some(Err(failure)) if failure.is(Reason::NoObject) => {
                    return Ok(Some(stripes.into_iter().map(UnitState::unwritten).collect()));
                }
                Some(Err(failure)) => failure.to_string(),
                _ => "it does not answer".to_owned(),
            };
            if handle.refresh(&now).await?.g != view.g {
                return Ok(None);
            }
            if !patience.again().await {
                return Err(handle.timed_out(&patience, &why));
            }
        }
    }

    /// Fills a few stripes of the own column. Returns false if they must be tried again.
    async fn set(
        &self,
        view: &Arc<FileView>,
        own: Column,
        run: Range<u64>,
        lost: &BTreeSet<Stripe>,
    ) -> Result<bool> {
        let segment = &view.layout.segments()[ONLY];
        let stripe_bytes = usize::try_from(segment.shape.stripe_bytes()).expect("a stripe is in memory");
        let count = usize::try_from(run.end - run.start).expect("a set is in memory");
        let mut buffer = vec![0; count * stripe_bytes];
        let mut reads = Vec::with_capacity(count);
        for (stripe, into) in run.clone().zip(buffer.chunks_mut(stripe_bytes)) {
            let begin = segment.stripe_range(Stripe(stripe)).start;
            let wanted = self.needed(segment, own, Stripe(stripe));
            let wanted = wanted.start..wanted.end.min(self.size);
            if !wanted.is_empty() {
                let at = |byte: u64| usize::try_from(byte - begin).expect("a stripe is in memory");
                reads.push(self.source.read_range(wanted.start, &mut into[at(wanted.start)..at(wanted.end)]));
            }
        }
        concurrent::windowed(self.heal.handle.client.config().sets_per_request, reads).await?;
        let _permit = self.heal.handle.client.set_permit().await;
        let first = segment.stripe_range(Stripe(run.start)).start;
        let last = segment.stripe_range(Stripe(run.end - 1)).end;
        let compile = |target: &Target<'_>| {
            let body = Body::Buffer { offset: 0 };
            let stamp = self.version;
            braid_plan::fill(target, Write { range: first..last, body, size: 0, reach: 0, stamp }, own)
        };
        let handle = self.heal.handle;
        let Some(plan) = handle.compile_with(view, ONLY, &Learnt::default(), compile)? else {
            return Ok(false);
        };
        let mut executor = Executor::new(handle, view, plan, User::From(&buffer))?;
        executor.fill_with(Filling { version: self.version, lost: lost.clone() });
        executor.compute(&BTreeSet::new())?;
        Ok(self.heal.install(view, executor, BTreeSet::new()).await?.is_empty())
    }

    /// The bytes of the file that the column's unit of this stripe is made from.
    fn needed(&self, segment: &Segment, own: Column, stripe: Stripe) -> Range<u64> {
        match segment.role(stripe, own) {
            Role::Data(data) => segment.unit_range(stripe, data),
            Role::Parity(_) => segment.stripe_range(stripe),
        }
    }
}

/// Returns true if the unit is filled. A unit of zeros is never stored, and so is examined each time.
fn is_current(state: &UnitState, version: Version) -> bool {
    let counts = |cover: &Version| cover.is_zero() || *cover == version;
    let is_there = state.settled == version && state.cover.iter().all(counts);
    !state.damaged && state.pending.is_none() && is_there
}
