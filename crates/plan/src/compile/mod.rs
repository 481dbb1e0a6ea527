//! From requests to plan sets: pure functions, one file per kind of request.
//!
//! Every function takes a [`Target`] (one segment and the state of its columns) and a request of at most
//! [`stripes_max`] stripes in that segment; [`parts`](crate::parts) splits larger ones. Each stripe is
//! drafted by itself (`draft.rs`). A write goes the way that costs least in bytes and round trips
//! (`write/ways.rs`); a read takes the units of which the fewest bytes are left to read (`gather.rs`).

mod check;
mod draft;
mod gather;
mod interval;
mod read;
mod rebuild;
mod run;
mod write;

use std::ops::Range;

use braid_layout::{Column, ColumnMask, Role, Stripe};

use crate::ir::PlanSet;
use crate::request::{PlanError, Request, Target, stripes_max};
use draft::Draft;

pub use check::check;
pub use read::read;
pub use rebuild::rebuild;
pub use run::{MethodCost, RunCost, RunSite, RunWays, run, run_ways};
pub use write::{Stamped, Way, fill, unit_write, ways, write, write_cheapest};

impl Target<'_> {
    fn unit(&self) -> u32 {
        self.segment.shape.unit_bytes()
    }

    fn column(&self, stripe: Stripe, role: Role) -> Column {
        self.segment.column(stripe, role)
    }

    fn readable(&self, stripe: Stripe, role: Role) -> bool {
        self.health.readable().contains(self.column(stripe, role))
    }

    fn in_set(&self, stripe: Stripe, role: Role) -> bool {
        self.health.set.contains(self.column(stripe, role))
    }

    fn joining(&self, stripe: Stripe, role: Role) -> bool {
        self.health.joining.contains(self.column(stripe, role))
    }

    fn data(&self) -> impl Iterator<Item = Role> + use<> {
        (0..self.segment.shape.k()).map(Role::Data)
    }

    fn parity(&self) -> impl Iterator<Item = Role> + use<> {
        (0..self.segment.shape.m()).map(Role::Parity)
    }

    /// The error that `stripe` cannot be done with only the columns `there`.
    fn too_few(&self, stripe: Stripe, there: ColumnMask) -> PlanError {
        let width = self.segment.shape.width();
        let missing = ColumnMask::all(width).minus(there);
        PlanError::TooFewReady {
            stripe,
            needed: self.segment.shape.k(),
            ready: width - u8::try_from(missing.count()).expect("at most 64 columns"),
            missing: missing.iter().map(|c| (c, self.segment.components[c.index()].drive)).collect(),
        }
    }

    fn check_health(&self) -> Result<(), PlanError> {
        let health = self.health;
        let width = self.segment.shape.width();
        let inside = health.set.minus(ColumnMask::all(width)).is_empty();
        if inside && health.joining.or(health.away).minus(health.set).is_empty() {
            return Ok(());
        }
        Err(PlanError::Health { set: health.set, joining: health.joining, away: health.away, width })
    }

    /// The stripes of `range`. Refuses a range that is empty, outside the segment or too large.
    fn check_range(&self, range: &Range<u64>) -> Result<Range<u64>, PlanError> {
        self.check_health()?;
        let segment = self.segment.start..self.segment.end;
        if range.start >= range.end || range.start < segment.start || range.end > segment.end {
            return Err(PlanError::Range { range: range.clone(), segment });
        }
        let stripes = self.segment.stripe_at(range.start).0..self.segment.stripe_at(range.end - 1).0 + 1;
        self.check_count(&stripes)?;
        Ok(stripes)
    }

    /// Refuses stripes that are not in the segment, or too many.
    fn check_stripes(&self, stripes: &Range<u64>) -> Result<(), PlanError> {
        self.check_health()?;
        let last = self.segment.stripe_at(self.segment.end - 1);
        if stripes.start >= stripes.end || stripes.end - 1 > last.0 {
            return Err(PlanError::Stripes { stripes: stripes.clone(), count: last.0 + 1 });
        }
        self.check_count(stripes)
    }

    fn check_count(&self, stripes: &Range<u64>) -> Result<(), PlanError> {
        let count = stripes.end - stripes.start;
        let max = stripes_max(&self.segment.shape);
        if count > max { Err(PlanError::TooLarge { stripes: count, max }) } else { Ok(()) }
    }

    /// Makes the plan set of `request` from its stripes' drafts.
    fn finish(
        &self,
        request: Request,
        drafts: impl Iterator<Item = Result<Draft, PlanError>>,
    ) -> Result<PlanSet, PlanError> {
        let mut all = draft::Assembly::new(self);
        for draft in drafts {
            all.push(draft?);
        }
        Ok(all.finish(request))
    }
}
