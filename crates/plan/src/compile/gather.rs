//! The bytes of a stripe that are in memory, and how lost ones are made from `k` readable units.

use std::ops::Range;

use braid_layout::Role;

use super::draft::Draft;
use super::interval::{cut, holds, minus, total, union};
use crate::ir::{InstructionId, MemoryRange, Operand, Step, Want};
use crate::request::{PlanError, Target};

/// Bytes `range` of the unit `role` are in `location` once `id` is done.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) role: Role,
    pub(super) range: Range<u32>,
    pub(super) location: MemoryRange,
    pub(super) id: InstructionId,
}

/// The bytes of a stripe that are in memory.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) known: Vec<Known>,
    /// The reads so far, with the unit that each reads.
    pub(super) reads: Vec<(Role, InstructionId)>,
}

impl Gather {
    /// Reads `range` of `role` into `into`.
    pub(super) fn read(
        &mut self,
        target: &Target<'_>,
        draft: &mut Draft,
        role: Role,
        range: &Range<u32>,
        into: MemoryRange,
        want: Want,
    ) -> InstructionId {
        let id = draft.read(target.column(draft.stripe, role), range, into, want);
        self.known.push(Known { role, range: range.clone(), location: into, id });
        self.reads.push((role, id));
        id
    }

    /// Reads `range` of `role` into new scratch.
    pub(super) fn read_scratch(
        &mut self,
        target: &Target<'_>,
        draft: &mut Draft,
        role: Role,
        range: &Range<u32>,
        want: Want,
    ) -> InstructionId {
        let into = draft.scratch(range);
        self.read(target, draft, role, range, into, want)
    }

    /// The first read of `role`.
    pub(super) fn read_of(&self, role: Role) -> Option<InstructionId> {
        self.reads.iter().find(|(read, _)| *read == role).map(|(_, id)| *id)
    }

    /// The first read of any parity unit.
    pub(super) fn parity_read(&self) -> Option<InstructionId> {
        self.reads.iter().find(|(read, _)| matches!(read, Role::Parity(_))).map(|(_, id)| *id)
    }

    /// Location of `range` of `role`, if it is in one memory range.
    pub(super) fn find(&self, role: Role, range: &Range<u32>) -> Option<(MemoryRange, InstructionId)> {
        self.known.iter().find(|known| known.role == role && holds(&known.range, range)).map(|known| {
            (known.location.part(range.start - known.range.start, range.end - range.start), known.id)
        })
    }

    /// The ranges of `role` that are in memory.
    pub(super) fn ranges(&self, role: Role) -> impl Iterator<Item = &Range<u32>> {
        self.known.iter().filter(move |known| known.role == role).map(|known| &known.range)
    }

    /// Makes the bytes `wanted` of units that cannot be read, from `k` readable units. The units with the
    /// most needed bytes in memory are taken, and the rest of the needed bytes is read into scratch.
    pub(super) fn reconstruct(
        &mut self,
        target: &Target<'_>,
        draft: &mut Draft,
        wanted: &[(Role, Range<u32>, MemoryRange)],
        want: Want,
    ) -> Result<(), PlanError> {
        let needed = union(wanted.iter().map(|(_, range, _)| range.clone()));
        let have = self.choose(target, draft, wanted, &needed)?;
        for &role in &have {
            for range in &needed {
                for missing in minus(range, self.ranges(role)) {
                    self.read_scratch(target, draft, role, &missing, want);
                }
            }
        }
        for range in &needed {
            let ends: Vec<Range<u32>> = have
                .iter()
                .flat_map(|&role| self.ranges(role))
                .chain(wanted.iter().map(|(_, r, _)| r))
                .cloned()
                .collect();
            for part in cut(range, ends.iter()) {
                self.step(draft, &have, wanted, &part);
            }
        }
        Ok(())
    }

    /// The `k` readable units with the fewest bytes left to read; on a tie data before parity, lower before
    /// higher.
    fn choose(
        &self,
        target: &Target<'_>,
        draft: &Draft,
        wanted: &[(Role, Range<u32>, MemoryRange)],
        needed: &[Range<u32>],
    ) -> Result<Vec<Role>, PlanError> {
        let cost =
            |role: Role| -> u64 { needed.iter().map(|range| total(&minus(range, self.ranges(role)))).sum() };
        let mut there: Vec<(u64, Role)> = target
            .data()
            .chain(target.parity())
            .filter(|&role| {
                target.readable(draft.stripe, role) && wanted.iter().all(|(lost, ..)| *lost != role)
            })
            .map(|role| (cost(role), role))
            .collect();
        let k = usize::from(target.segment.shape.k());
        if there.len() < k {
            return Err(target.too_few(draft.stripe, target.health.readable()));
        }
        there.sort_by_key(|(cost, _)| *cost);
        there.truncate(k);
        Ok(there.into_iter().map(|(_, role)| role).collect())
    }

    /// Adds one step for `part`, which is in one memory range for each unit.
    fn step(
        &mut self,
        draft: &mut Draft,
        have: &[Role],
        wanted: &[(Role, Range<u32>, MemoryRange)],
        part: &Range<u32>,
    ) {
        let mut operands = Vec::new();
        let mut after = Vec::new();
        for &role in have {
            let (location, id) = self.find(role, part).expect("every chosen unit's bytes were read above");
            operands.push((role, Operand::MemoryRange(location)));
            after.push(id);
        }
        let lost: Vec<(Role, MemoryRange)> = wanted
            .iter()
            .filter(|(_, range, _)| holds(range, part))
            .map(|(role, range, location)| {
                (*role, location.part(part.start - range.start, part.end - part.start))
            })
            .collect();
        let id = draft.step(part, after, Step::Reconstruct { have: operands, lost: lost.clone() });
        self.known.extend(lost.into_iter().map(|(role, location)| Known {
            role,
            range: part.clone(),
            location,
            id,
        }));
    }
}
