//! Repairs damaged units that a partial write could not update.
//!
//! A drive that has lost a unit refuses a partial write to it, since the rest of the unit would be unknown.
//! So the write first goes to the stripe's other columns. From these the whole unit is reconstructed at the
//! write's stamp, as in a rebuild: parity and data of one cut give the missing unit. It is sent whole, under
//! the same stamp, and replaces the damaged one. If the writer dies first, the drive lacks the stamp, and the
//! write is rolled back everywhere, like any other.
//!
//! A damaged parity unit takes no delta of a unit write. It is made anew, from the data columns, as it was
//! before the write; then the delta fits.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ColumnMask, Stripe, Version};
use braid_plan::Target;
use braid_wire::data::{DriveReply, Listing, Versions};
use braid_wire::{Reason, Refusal};

use crate::data::buffers::User;
use crate::error::{Error, Result};
use crate::executor::{Executor, Failed, Writer, ask_columns};
use crate::handle::Handle;
use crate::peers::drive_requests::{Failure, RequestOutcome};
use crate::peers::faults::Learnt;

/// Maximum number of compilations of a stripe's reads; each further one is for a column that did not answer.
const TRIES_MAX: u32 = 4;

/// Content with which a unit is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// The content after the write, under the write's stamp.
    PartOfWrite,
    /// As [`As::PartOfWrite`], but in place of a damaged unit.
    PartOverDamage,
    /// The content before the write, under the version that the other columns name.
    BeforeWrite,
}

impl Handle {
    /// Writes whole units where damage made a drive refuse a part. All other columns of the set have answered
    /// the write. If the data to reconstruct a unit is missing, the refusal becomes the error.
    pub(crate) async fn mend_units(
        &self,
        executor: &Executor<'_>,
        failed: &[Failed],
        writer: Writer,
    ) -> Result<()> {
        let mut stripes: BTreeMap<Stripe, ColumnMask> = BTreeMap::new();
        for one in failed {
            let columns = stripes.entry(one.stripe).or_default();
            *columns = columns.with(one.column);
        }
        for (stripe, columns) in stripes {
            // Other failures show when the original write is sent again.
            let is_damaged = |failed: &[Failed]| failed.iter().any(|one| one.failure.is(Reason::Damaged));
            let mended = self.mend_stripe(executor, stripe, columns, As::PartOverDamage, writer).await?;
            if mended.is_none_or(|failed| is_damaged(&failed)) {
                let one = failed.iter().find(|one| one.stripe == stripe).expect("it is one of theirs");
                return Err(self.cannot_be_mended(executor, one));
            }
        }
        Ok(())
    }

    /// Sends a write to columns that joined after it was planned, which its plan leaves out. Their units are
    /// made from the other columns, which have the write, and are sent whole under its stamp. That is needed
    /// because the heal of such a column may have passed the stripe already. Returns false if it cannot be
    /// done now.
    pub(crate) async fn write_joined(&self, executor: &Executor<'_>, writer: Writer) -> Result<bool> {
        let joined = executor.view.segments[executor.set.segment].set.minus(executor.set.set);
        if joined.is_empty() {
            return Ok(true);
        }
        for (&stripe, &written) in &executor.stripe_writes {
            let mut columns = written.and(joined);
            for mended_as in [As::PartOfWrite, As::PartOverDamage] {
                if columns.is_empty() {
                    break;
                }
                let sent = self.mend_stripe(executor, stripe, columns, mended_as, writer).await?;
                // A unit without bytes leaves a damaged one as it is: it is sent once more, to replace it.
                match sent {
                    Some(failed) if failed.iter().all(|one| one.failure.is(Reason::Damaged)) => {
                        columns = failed.iter().map(|one| one.column).collect();
                    }
                    _ => return Ok(false),
                }
            }
            if !columns.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes anew the damaged ones of these parity units, which do not take a unit write. Returns true if
    /// there were any and all could be made.
    pub(crate) async fn mend_parity(
        &self,
        executor: &Executor<'_>,
        stripe: Stripe,
        parity: ColumnMask,
        writer: Writer,
    ) -> Result<bool> {
        let view = &executor.view;
        let segment = executor.set.segment;
        let ask = |column| {
            let at = view.address(segment, column);
            let list = Listing::Named;
            (column, Versions { at, list, units: vec![stripe.0], from: 0, limit: 0 }.into())
        };
        let answers = ask_columns(self, view, segment, parity.iter().map(ask).collect()).await;
        let is_damaged = |answer: &RequestOutcome| match answer {
            Ok(DriveReply::Versions(reply)) => reply.units.iter().any(|unit| unit.damaged),
            _ => false,
        };
        let damaged: ColumnMask =
            answers.iter().filter(|(_, answer)| is_damaged(answer)).map(|(column, _)| *column).collect();
        if damaged.is_empty() {
            return Ok(false);
        }
        // An installed unit settles no writes.
        let writer = Writer { settled_below: Version::ZERO, ..writer };
        let mended = self.mend_stripe(executor, stripe, damaged, As::BeforeWrite, writer).await?;
        Ok(mended.is_some_and(|failed| failed.is_empty()))
    }

    /// Writes whole units of a stripe. Returns the writes that failed; `None` if too little of the stripe is
    /// available.
    async fn mend_stripe(
        &self,
        executor: &Executor<'_>,
        stripe: Stripe,
        columns: ColumnMask,
        mended_as: As,
        writer: Writer,
    ) -> Result<Option<Vec<Failed>>> {
        let view = &executor.view;
        let segment = executor.set.segment;
        let mut learnt = Learnt::default();
        for _ in 0..TRIES_MAX {
            // The columns are treated as joining: written whole, and not read.
            let compile = |target: &Target<'_>| {
                let mut target = *target;
                target.health.joining = target.health.joining.or(columns);
                target.health.away = target.health.away.minus(columns);
                braid_plan::rebuild(&target, stripe.0..stripe.0 + 1, columns)
            };
            let Some(set) = self.compile(view, segment, &learnt, compile)? else { return Ok(None) };
            let mut whole = Executor::new(self, view, set, User::Nothing)?;
            let read = whole.read().await;
            if whole.saw_absent && !self.is_hole(view).await? {
                return Ok(None); // a column that was read has moved
            }
            let failed = read?;
            if failed.is_empty() {
                whole.compute(&BTreeSet::new())?;
                if mended_as != As::BeforeWrite {
                    whole.stand_in_for(executor, mended_as == As::PartOverDamage);
                }
                let failed = whole.write(writer).await?;
                return Ok(Some(failed));
            }
            for one in &failed {
                learnt.note(one);
            }
        }
        Ok(None)
    }

    fn cannot_be_mended(&self, executor: &Executor<'_>, one: &Failed) -> Error {
        let drive = executor.view.segments[executor.set.segment].columns[one.column.index()].name.clone();
        let refusal = match &one.failure {
            Failure::Refused { refusal, .. } => {
                let detail = format!(
                    "{}; too little is left on the stripe's other drives to make the unit anew: write the whole unit, \
                     or bring drives back",
                    refusal.detail
                );
                Refusal::new(refusal.reason, detail)
            }
            other => Refusal::new(Reason::Damaged, other.to_string()),
        };
        Error::NotStored { file: self.subject.clone(), drive, refusal }
    }
}
