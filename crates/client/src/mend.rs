//! Repairs damaged units that a partial write could not update.
//!
//! A drive that has lost a unit refuses a partial write to it, since the rest of the unit would be unknown.
//! So the write first goes to the stripe's other columns. From these the whole unit is reconstructed at the
//! write's stamp, as in a rebuild: parity and data of one cut give the missing unit. It is sent whole, under
//! the same stamp, and replaces the damaged one. If the writer dies first, the drive lacks the stamp, and the
//! write is rolled back everywhere, like any other.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ColumnMask, Stripe};
use braid_plan::Target;
use braid_wire::{Reason, Refusal};

use crate::buffers::User;
use crate::drive_requests::Failure;
use crate::error::{Error, Result};
use crate::executor::{Executor, Failed, Writer};
use crate::faults::Learnt;
use crate::handle::Handle;

/// How often a stripe's reads are recompiled because a column did not answer.
const TRIES_MAX: u32 = 4;

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
            if !self.mend_stripe(executor, stripe, columns, writer).await? {
                let one = failed.iter().find(|one| one.stripe == stripe).expect("it is one of theirs");
                return Err(self.cannot_be_mended(executor, one));
            }
        }
        Ok(())
    }

    /// Returns false if too little of the stripe is available.
    async fn mend_stripe(
        &self,
        executor: &Executor<'_>,
        stripe: Stripe,
        columns: ColumnMask,
        writer: Writer,
    ) -> Result<bool> {
        let (view, segment) = (&executor.view, executor.set.segment);
        let mut learnt = Learnt::default();
        for _ in 0..TRIES_MAX {
            // Treated as joining: written whole, and not read.
            let compile = |target: &Target<'_>| {
                let mut target = *target;
                target.health.joining = target.health.joining.or(columns);
                target.health.away = target.health.away.minus(columns);
                braid_plan::rebuild(&target, stripe.0..stripe.0 + 1, columns)
            };
            let Some(set) = self.compile(view, segment, &learnt, compile)? else { return Ok(false) };
            let mut whole = Executor::new(self, view, set, User::Nothing)?;
            let failed = whole.read().await?;
            if failed.is_empty() {
                whole.compute(&BTreeSet::new())?;
                whole.stand_in_for(executor);
                let failed = whole.write(writer).await?;
                // Other failures show when the original write is sent again.
                return Ok(!failed.iter().any(|one| one.failure.is(Reason::Damaged)));
            }
            for one in &failed {
                learnt.note(one);
            }
        }
        Ok(false)
    }

    fn cannot_be_mended(&self, executor: &Executor<'_>, one: &Failed) -> Error {
        let drive = executor.view.segments[executor.set.segment].columns[one.column.index()].name.clone();
        let refusal = match &one.failure {
            Failure::Refused { refusal, .. } => {
                let detail = format!(
                    "{}; the stripe's other drives do not have enough to make the unit anew: write all of it, or bring \
                     them back",
                    refusal.detail
                );
                Refusal::new(refusal.reason, detail)
            }
            other => Refusal::new(Reason::Damaged, other.to_string()),
        };
        Error::NotStored { file: self.subject.clone(), drive, refusal }
    }
}
