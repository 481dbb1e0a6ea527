//! Writes that fill a new layout: which version and cover a unit gets, from the bytes that all are made from.

use std::collections::BTreeSet;

use braid_layout::{Column, ColumnMask, EndBound, Role, Stripe, Version};
use braid_plan::{MemoryRange, Request};

use super::Executor;
use super::counted::end_of_bytes;
use crate::error::Result;

/// What units of a new layout are installed as.
#[derive(Debug, Clone)]
pub(crate) struct Filling {
    /// The version of all of them.
    pub(crate) version: Version,
    /// Stripes whose unit is lost on its drive: one of zeros is installed too, as never written.
    pub(crate) lost: BTreeSet<Stripe>,
}

/// How a unit of a new layout is installed: its version, its own column, and the cover of a parity unit with
/// the ends of what it counts in.
pub(super) type Filled = (Version, ColumnMask, Vec<Version>, Vec<EndBound>);

impl Executor<'_> {
    /// The writes install units of a new layout.
    pub(crate) fn fill_with(&mut self, filling: Filling) {
        self.filling = Some(filling);
    }

    /// How this unit is installed. `None`: it is not made, as all that it stands for is zeros. The caller's
    /// memory holds whole stripes, from the first of the request on; of those in which the column is data,
    /// its own unit only.
    pub(super) fn filled(&self, column: Column, stripe: Stripe, filling: &Filling) -> Result<Option<Filled>> {
        let version = filling.version;
        let is_lost = filling.lost.contains(&stripe);
        let segment = &self.view.layout.segments()[self.set.segment];
        let shape = segment.shape;
        let own = ColumnMask::EMPTY.with(column);
        let Request::Write(write) = &self.set.request else {
            return Err(self.handle.plan_error(&"a new layout is filled by writes"));
        };
        let skip = segment.stripe_range(stripe).start - write.range.start;
        let end = |data: u8| {
            let unit = shape.unit_bytes();
            let offset = skip + u64::from(data) * u64::from(unit);
            let bytes = self.memory.at(MemoryRange::User { offset, len: unit });
            let end = bytes.map(|bytes| u32::try_from(end_of_bytes(bytes)).expect("a unit"));
            end.map_err(|error| self.handle.plan_error(&error))
        };
        let of = |end: u32| if end > 0 { version } else { Version::ZERO };
        let (version, cover, ends) = match segment.role(stripe, column) {
            Role::Data(data) => (of(end(data)?), Vec::new(), Vec::new()),
            Role::Parity(_) => {
                let ends = (0..shape.k()).map(end).collect::<Result<Vec<u32>>>()?;
                let cover: Vec<Version> = ends.iter().copied().map(of).collect();
                let ends = ends.into_iter().map(EndBound::exactly).collect();
                (cover.iter().copied().max().unwrap_or_default(), cover, ends)
            }
        };
        Ok((!version.is_zero() || is_lost).then_some((version, own, cover, ends)))
    }
}
