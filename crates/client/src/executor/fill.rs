//! Writes that fill a new layout: which version and cover a unit gets, from the bytes that all are made from.

use std::collections::BTreeSet;

use braid_layout::{Column, ColumnMask, Role, Stripe, Version};
use braid_plan::{MemoryRange, Request};

use super::Executor;
use super::reach::is_zero;
use crate::error::Result;

/// What units of a new layout are installed as.
#[derive(Debug, Clone)]
pub(crate) struct Filling {
    /// The version of all of them.
    pub(crate) version: Version,
    /// Stripes whose unit is lost on its drive: one of zeros is installed too, as never written.
    pub(crate) lost: BTreeSet<Stripe>,
}

/// How a unit of a new layout is installed: its version, its own column, and the cover of a parity unit.
pub(super) type Filled = (Version, ColumnMask, Vec<Version>);

impl Executor<'_> {
    /// The writes install units of a new layout.
    pub(crate) fn fill_with(&mut self, filling: Filling) {
        self.filling = Some(filling);
    }

    /// How this unit is installed. `None`: it is not made, as all that it stands for is zeros. The caller's
    /// memory holds whole stripes, from the first of the request on; of those in which the column is data,
    /// its own unit only.
    pub(super) fn filled(&self, column: Column, stripe: Stripe, filling: &Filling) -> Result<Option<Filled>> {
        let (version, is_lost) = (filling.version, filling.lost.contains(&stripe));
        let segment = &self.view.layout.segments()[self.set.segment];
        let (shape, own) = (segment.shape, ColumnMask::EMPTY.with(column));
        let Request::Write(write) = &self.set.request else {
            return Err(self.handle.plan_error(&"a new layout is filled by writes"));
        };
        let skip = segment.stripe_range(stripe).start - write.range.start;
        let has_bytes = |data: u8| {
            let unit = shape.unit_bytes();
            let offset = skip + u64::from(data) * u64::from(unit);
            let bytes = self.memory.at(MemoryRange::User { offset, len: unit });
            bytes.map(|bytes| !is_zero(bytes)).map_err(|error| self.handle.plan_error(&error))
        };
        let of = |data: u8| Ok(if has_bytes(data)? { version } else { Version::ZERO });
        let (version, cover) = match segment.role(stripe, column) {
            Role::Data(data) => (of(data)?, Vec::new()),
            Role::Parity(_) => {
                let cover = (0..shape.k()).map(of).collect::<Result<Vec<Version>>>()?;
                (cover.iter().copied().max().unwrap_or_default(), cover)
            }
        };
        Ok((!version.is_zero() || is_lost).then_some((version, own, cover)))
    }
}
