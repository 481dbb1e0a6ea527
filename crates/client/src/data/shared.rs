//! Writes while others write the file too: under a shared lease, which allows unit writes only (PROTOCOL C5).
//!
//! Each unit is a write of its own, through its data drive, which orders it among those of other writers.
//! Unit writes need neither a lock nor the manager. What a unit write cannot do (a column that is out or
//! joining, a damaged unit, a hole) is done in a *turn*: the manager gives this handle an exclusive lease for
//! a while, and the write is made as stripe writes.
//!
//! When the lease is replaced by another, the manager's fence has decided on the writes that were sent and
//! not answered. They are written again as new operations: a former one may count, and a cut may have come
//! after it.

use std::ops::Range;

use braid_layout::{ColumnMask, Version};
use braid_plan::{Body, PlanError, Stamped, Write};

use crate::concurrent;
use crate::data::buffers::User;
use crate::data::planning::{Patience, SegmentChunk};
use crate::data::stamps::NotNow;
use crate::data::write::{ReservedPlace, WriteSide, Written};
use crate::error::Result;
use crate::executor::{Executor, UnitEnd};
use crate::handle::Handle;

/// Unit writes in flight for one chunk.
const UNITS_AT_ONCE: usize = 16;

impl Handle {
    /// Writes a chunk, unit by unit. Returns [`Written::NewLease`] if it cannot be written as unit writes, or
    /// not any more. `in_vain`: turns for this chunk that ended before it was written.
    pub(crate) async fn write_units(
        &self,
        side: &WriteSide,
        chunk: &SegmentChunk,
        place: Option<&ReservedPlace>,
        data: &[u8],
        in_vain: u8,
    ) -> Result<Written> {
        let view = self.view();
        let segment = &view.layout.segments()[chunk.segment];
        let mut rest = data;
        let writes = segment.pieces(chunk.range.clone()).map(move |piece| {
            let length = usize::try_from(piece.len()).expect("it is part of the buffer");
            let (head, tail) = rest.split_at(length);
            rest = tail;
            let range = piece.file_offset..piece.file_offset + u64::from(piece.len());
            async move {
                match self.write_one(side, chunk.segment, range, place, head, in_vain).await {
                    Ok(Written::Acknowledged) => Ok(()),
                    Ok(Written::NewLease) => Err(None),
                    Err(error) => Err(Some(error)),
                }
            }
        });
        match concurrent::windowed(UNITS_AT_ONCE, writes).await {
            Ok(()) => Ok(Written::Acknowledged),
            Err(None) => Ok(Written::NewLease),
            Err(Some(error)) => Err(error),
        }
    }

    /// Writes a part of one unit, or leaves it out if its reserved place has ended.
    async fn write_one(
        &self,
        side: &WriteSide,
        segment: usize,
        range: Range<u64>,
        place: Option<&ReservedPlace>,
        data: &[u8],
        in_vain: u8,
    ) -> Result<Written> {
        let mut patience = Patience::new(self);
        loop {
            let view = self.view();
            if place.is_some_and(|place| place.ends_with(&view)) {
                return Ok(Written::Acknowledged);
            }
            if !view.shared {
                return Ok(Written::NewLease);
            }
            match side.stamps.begin_shared(view.lease, range.end) {
                Ok(()) => {}
                Err(NotNow::NewerLease) => return Ok(Written::NewLease),
                Err(NotNow::Broken(why)) => return Err(self.unfinished(why)),
            }
            let permit = self.client.set_permit_for(range.end - range.start).await;
            let operation = self.client.shared.unit_writes.begin();
            let request = Write {
                range: range.clone(),
                body: Body::Buffer { offset: 0 },
                size: u64::MAX,
                reach: u64::MAX,
                stamp: Version { g: view.g, lease: view.lease, n: 1 },
            };
            let target = view.target(segment, ColumnMask::EMPTY);
            let set = match braid_plan::unit_write(&target, request, operation.number, Stamped::ByDrive) {
                Ok(set) => set,
                Err(PlanError::ColumnOut { .. }) => {
                    drop(permit);
                    return self.in_turn(in_vain).await;
                }
                Err(error) => return Err(self.plan_error(&error)),
            };
            let mut executor = Executor::new(self, &view, set, User::From(data))?;
            let unit_write = executor.unit_write();
            let (column, stripe) = unit_write.ok_or_else(|| self.plan_error("no unit write"))?;
            match self.send_unit(side, &mut executor, column, stripe, &operation, &mut patience).await? {
                UnitEnd::Settled => {
                    self.grown(view.lease, range.end);
                    return Ok(Written::Acknowledged);
                }
                UnitEnd::NewLease => {}
                UnitEnd::ColumnOut => {
                    drop(permit);
                    return self.in_turn(in_vain).await;
                }
            }
        }
    }

    /// Takes a turn: the handle has the file alone, for a write that cannot be a unit write.
    async fn in_turn(&self, in_vain: u8) -> Result<Written> {
        let view = self.view();
        if view.shared {
            self.take_turn(&view, in_vain).await?;
        }
        Ok(Written::NewLease)
    }
}
