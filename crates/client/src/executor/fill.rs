//! Writes that fill a new layout: the version and the cover of each unit, derived from the file's bytes.

use std::collections::BTreeSet;

use braid_layout::{Column, ColumnMask, EndBound, Role, Stripe, Version};
use braid_plan::{MemoryRange, Request};

use super::Executor;
use super::counted::end_of_bytes;
use crate::error::Result;

/// Parameters of the writes that fill a new layout.
#[derive(Debug, Clone)]
pub(crate) struct Filling {
    /// The version of all units of the layout.
    pub(crate) version: Version,
    /// Stripes whose unit is lost on its drive: there a unit of zeros is installed too, as never written.
    pub(crate) lost: BTreeSet<Stripe>,
}

/// Parameters of one installed unit of a new layout: its version, its own column, and for a parity unit its
/// cover, with the ends of the data units that it counts in.
pub(super) type Filled = (Version, ColumnMask, Vec<Version>, Vec<EndBound>);

impl Executor<'_> {
    /// Makes the set's writes install units of a new layout.
    pub(crate) fn fill_with(&mut self, filling: Filling) {
        self.filling = Some(filling);
    }

    /// The parameters for this unit. `None` if it is not made, as all bytes that it stands for are zeros. The
    /// caller's memory holds whole stripes, from the first of the request on; of a stripe in which the column
    /// is data, only its own unit.
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
