//! Units that are damaged where they lie, mended by the write that they refuse.
//!
//! A drive that has lost a unit takes no part of it: of the rest nobody could say what it is. So the write goes to the stripe's
//! other columns first, and these then say what the whole unit is at the write's stamp: parity and data of one cut give the unit
//! that is missing, as in a rebuild. It is sent whole, under the same stamp, and the drive takes it in the damaged one's place. If
//! the writer dies before, the drive lacks the stamp, and the write goes back everywhere, as any other would.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ColumnMask, Stripe};
use braid_plan::Target;
use braid_wire::{Reason, Refusal};

use crate::buffers::User;
use crate::error::{Error, Result};
use crate::exchange::Failure;
use crate::faults::Learnt;
use crate::handle::Handle;
use crate::run::{Failed, Run, Writer};

/// How often a stripe's reads are compiled anew because some column did not answer.
const TRIES_MAX: u32 = 4;

impl Handle {
    /// Writes the units whole that refused a part of themselves as damaged. All other columns of the set have answered the write.
    /// What is needed for it and is not there makes the refusal an error.
    pub(crate) async fn mend_units(&self, run: &Run<'_>, failed: &[Failed], writer: Writer) -> Result<()> {
        let mut stripes: BTreeMap<Stripe, ColumnMask> = BTreeMap::new();
        for one in failed {
            let columns = stripes.entry(one.stripe).or_default();
            *columns = columns.with(one.column);
        }
        for (stripe, columns) in stripes {
            if !self.mend_stripe(run, stripe, columns, writer).await? {
                let one = failed.iter().find(|one| one.stripe == stripe).expect("it is one of theirs");
                return Err(self.cannot_be_mended(run, one));
            }
        }
        Ok(())
    }

    /// Whether it was done: else too little of the stripe is there.
    async fn mend_stripe(
        &self,
        run: &Run<'_>,
        stripe: Stripe,
        columns: ColumnMask,
        writer: Writer,
    ) -> Result<bool> {
        let (view, segment) = (&run.view, run.set.segment);
        let mut learnt = Learnt::default();
        for _ in 0..TRIES_MAX {
            // As if they were joining: written whole, and not read.
            let compile = |target: &Target<'_>| {
                let mut target = *target;
                target.health.joining = target.health.joining.or(columns);
                target.health.away = target.health.away.minus(columns);
                braid_plan::rebuild(&target, stripe.0..stripe.0 + 1, columns)
            };
            let Some(set) = self.compile(view, segment, &learnt, compile)? else { return Ok(false) };
            let mut whole = Run::new(self, view, set, User::Nothing)?;
            let failed = whole.read().await?;
            if failed.is_empty() {
                whole.compute(&BTreeSet::new())?;
                whole.stand_in_for(run);
                let failed = whole.write(writer).await?;
                // What else is wrong shows when the write itself is sent again.
                return Ok(!failed.iter().any(|one| one.failure.is(Reason::Damaged)));
            }
            for one in &failed {
                learnt.note(one);
            }
        }
        Ok(false)
    }

    fn cannot_be_mended(&self, run: &Run<'_>, one: &Failed) -> Error {
        let drive = run.view.segments[run.set.segment].columns[one.column.index()].name.clone();
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
