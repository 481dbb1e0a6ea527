//! The data units that a write of parity counts in: the version of each, and the end of its bytes. Also the
//! length of a unit that is made anew.

use std::ops::Range;

use braid_layout::{Column, EndBound, Role, Stripe, Version};
use braid_plan::{Body, InstructionId, Op, Request, VersionOf};

use super::Executor;
use crate::data::cut::Arrived;
use crate::error::Result;

/// Bytes examined at a time in the search for the last nonzero byte.
const PIECE: usize = 512;

impl Executor<'_> {
    /// The version that `of` refers to.
    pub(super) fn version(&self, of: &VersionOf) -> Result<Version> {
        let read = |id: InstructionId| {
            self.arrived[id.index()]
                .as_ref()
                .ok_or_else(|| self.handle.plan_error(&"a version of a read that has not arrived"))
        };
        Ok(match of {
            VersionOf::Given(version) => *version,
            VersionOf::Read(id) => read(*id)?.version,
            VersionOf::Cover { read: id, data } => {
                read(*id)?.cover.get(usize::from(*data)).copied().unwrap_or_default()
            }
            VersionOf::Newest(versions) => {
                let all: Vec<Version> =
                    versions.iter().map(|version| self.version(version)).collect::<Result<_>>()?;
                all.into_iter().max().unwrap_or_default()
            }
        })
    }

    /// Bounds on the end of each data unit's bytes, for a write of parity. `cover`: the data units' versions.
    /// `written`: the bytes of the parity unit that are written.
    pub(super) fn ends(
        &self,
        stripe: Stripe,
        cover: &[VersionOf],
        written: Range<u32>,
    ) -> Result<Vec<EndBound>> {
        let unit = self.view.layout.segments()[self.set.segment].shape.unit_bytes();
        let is_all = written == (0..unit);
        let bound = |(data, version)| match version {
            &VersionOf::Given(version) if version.is_zero() => Ok(EndBound::exactly(0)),
            VersionOf::Given(_) => self.written(stripe, data, is_all),
            read => Ok(EndBound::exactly(self.end_of(read)?)),
        };
        (0..).zip(cover).map(bound).collect()
    }

    /// End of the bytes of the data unit whose version was read.
    pub(super) fn end_of(&self, version: &VersionOf) -> Result<u32> {
        let (id, at) = match *version {
            VersionOf::Read(id) => (id, 0),
            VersionOf::Cover { read, data } => (read, usize::from(data)),
            _ => return Err(self.handle.plan_error(&"the end of bytes of which nothing is read")),
        };
        let arrived = self.arrived[id.index()].as_ref();
        let arrived =
            arrived.ok_or_else(|| self.handle.plan_error(&"the end of bytes that have not arrived"))?;
        self.told(arrived, at)
    }

    /// End of the bytes of a data unit: the one at index `at` of the read's cover, or the one that was read
    /// itself.
    fn told(&self, arrived: &Arrived, at: usize) -> Result<u32> {
        let version = if arrived.cover.is_empty() { Some(&arrived.version) } else { arrived.cover.get(at) };
        match arrived.ends.get(at) {
            Some(&end) => Ok(end),
            None if version.is_none_or(|version| version.is_zero()) => Ok(0),
            None => Err(self.handle.plan_error(&"a version without an end")),
        }
    }

    /// End of the bytes of a data unit that is sent whole, because it is made anew, or its column was joining
    /// when the write was planned. `None` if the unit is not sent whole. `sent`: the bytes of the unit that
    /// are sent.
    pub(super) fn whole_end(
        &self,
        column: Column,
        stripe: Stripe,
        stamp: &VersionOf,
        sent: Range<u32>,
    ) -> Result<Option<u32>> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let Role::Data(data) = segment.role(stripe, column) else { return Ok(None) };
        match &self.set.request {
            // A damaged unit takes no hole in place of its content, so one byte of zeros is sent for a unit
            // without bytes. Where nothing is damaged it would make the file longer if its writer died.
            Request::Rebuild { .. } => {
                let end = self.end_of(stamp)?;
                Ok(Some(if self.over_damage { end.max(1) } else { end }))
            }
            Request::Write(write) if self.filling.is_none() => {
                let in_unit = |byte: u64| self.in_unit(stripe, data, byte);
                let is_more = sent != (in_unit(write.range.start)..in_unit(write.range.end));
                let is_whole = is_more || self.set.joining.contains(column);
                is_whole.then(|| Ok(self.written(stripe, data, true)?.after(0))).transpose()
            }
            _ => Ok(None),
        }
    }

    /// Offset in this unit of a byte of the file: 0 if the byte is before the unit, the unit's length if it
    /// is behind.
    pub(super) fn in_unit(&self, stripe: Stripe, data: u8, byte: u64) -> u32 {
        let unit = self.view.layout.segments()[self.set.segment].unit_range(stripe, data);
        u32::try_from(byte.clamp(unit.start, unit.end) - unit.start).expect("units are below 4 GiB")
    }

    /// Bound on the end of a data unit's bytes after the request's write. A unit that the request touches
    /// without writing to it lies past the file's size. If a column's unit is written as a whole (`is_all`),
    /// what the column held of the data unit may be stale and does not count: then the rest of the data unit
    /// is read, or written anew.
    fn written(&self, stripe: Stripe, data: u8, is_all: bool) -> Result<EndBound> {
        let Request::Write(write) = &self.set.request else { return Ok(EndBound::NONE) };
        let in_unit = |byte: u64| self.in_unit(stripe, data, byte);
        let from = in_unit(write.range.start);
        let to = in_unit(write.range.end);
        if from >= to {
            return Ok(EndBound::exactly(0));
        }
        let before = self.end_before(stripe, data)?.or(is_all.then_some(0));
        let bound = match write.body {
            Body::Buffer { .. } => EndBound::at_least(to),
            // Bytes past the size are zeros.
            Body::Zeros if to >= before.unwrap_or(in_unit(write.size)) => EndBound::at_most(from),
            Body::Zeros => EndBound::NONE,
        };
        Ok(before.map_or(bound, |before| EndBound::exactly(bound.after(before))))
    }

    /// End of the data unit's bytes before the write, if a read of the stripe told it: the unit's own read,
    /// or one of parity.
    pub(super) fn end_before(&self, stripe: Stripe, data: u8) -> Result<Option<u32>> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let reads = self.set.instructions().filter(|(_, i)| matches!(i.op, Op::Read { .. }));
        let told = reads.filter(|(_, i)| i.op.stripe() == stripe).find_map(|(plan, instruction)| {
            let arrived = self.arrived[instruction.id.index()].as_ref()?;
            let at = match segment.role(stripe, plan.column) {
                Role::Data(own) if own == data => 0,
                Role::Data(_) => return None,
                Role::Parity(_) => usize::from(data),
            };
            Some(self.told(arrived, at))
        });
        told.transpose()
    }
}

/// The unit's bytes up to `end`, or up to its last nonzero byte if that is later.
pub(super) fn up_to(end: u32, unit: &[u8]) -> &[u8] {
    let end = usize::try_from(end).expect("a unit").min(unit.len());
    &unit[..end_of_bytes(unit).max(end)]
}

/// Offset at which the zeros at the end of the unit begin. Most are passed over in pieces, as many units are
/// zeros altogether.
pub(super) fn end_of_bytes(unit: &[u8]) -> usize {
    let zeros: usize = unit.rchunks(PIECE).take_while(|piece| is_zero(piece)).map(<[u8]>::len).sum();
    unit[..unit.len() - zeros].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Returns true if all bytes are zeros. Compares piece by piece, each without branches, up to the first piece
/// with another byte.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(PIECE).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_end_behind_the_last_that_is_not_zero() {
        for len in [0, 1, PIECE, 3 * PIECE + 7] {
            let mut unit = vec![0; len];
            assert_eq!(end_of_bytes(&unit), 0);
            for at in 0..len {
                unit[at] = 1;
                assert_eq!(end_of_bytes(&unit), at + 1);
            }
        }
    }

    #[test]
    fn zeros_at_the_end_belong_to_a_unit_as_far_as_its_end_was_told() {
        let unit = [1, 0, 0, 0];
        assert_eq!([0, 3, 9].map(|end| up_to(end, &unit).len()), [1, 3, 4]);
    }
}
