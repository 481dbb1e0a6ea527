//! Full stripe and reconstruct-write: parity computed from all data of the hull.

use std::ops::Range;

use braid_layout::{Role, Version};

use super::{Job, Parity, Touched, Written};
use crate::compile::draft::Draft;
use crate::compile::gather::Gather;
use crate::compile::interval::{and, cut, holds, minus};
use crate::ir::{InstructionId, MemoryRange, Operand, Source, Step, Strategy, VersionOf, Want};
use crate::request::PlanError;

/// Drafts the stripe. Fails if needed bytes can neither be read nor be made.
pub(super) fn draft(job: &Job<'_>) -> Result<Draft, PlanError> {
    let hull = if must_widen(job) { 0..job.target.unit() } else { job.hull.clone() };
    let mut anew =
        Anew { job, hull, draft: Draft::new(job.stripe, Strategy::FullStripe), gather: Gather::default() };
    anew.read_rest()?;
    let cover = anew.cover()?;
    if !anew.gather.reads.is_empty() {
        anew.draft.strategy = Strategy::ReconstructWrite;
    }
    let touched = anew.touched();
    let parity = anew.parity(cover);
    job.send(&mut anew.draft, touched, parity);
    Ok(anew.draft)
}

/// Returns true if a joining column would be sent less than a whole unit.
fn must_widen(job: &Job<'_>) -> bool {
    let whole = 0..job.target.unit();
    let data = (0..).zip(&job.units).any(|(data, unit)| {
        let range = unit.written.as_ref().map_or(&job.hull, |written| &written.range);
        touches(job, data) && job.target.joining(job.stripe, Role::Data(data)) && *range != whole
    });
    let parity = job.parity_in_set().any(|index| job.target.joining(job.stripe, Role::Parity(index)));
    data || parity && job.hull != whole
}

/// Returns true if the stripe write includes this unit: it is written, or it lies past the size and may have
/// been written once, so that its version is not known.
fn touches(job: &Job<'_>, data: u8) -> bool {
    let unit = &job.units[usize::from(data)];
    unit.written.is_some() || unit.live == 0 && !unit.fresh
}

struct Anew<'a> {
    job: &'a Job<'a>,
    hull: Range<u32>,
    draft: Draft,
    gather: Gather,
}

impl Anew<'_> {
    /// Reads or makes the live bytes of the hull that keep their content.
    fn read_rest(&mut self) -> Result<(), PlanError> {
        let mut lost = Vec::new();
        for (data, unit) in (0..).zip(&self.job.units) {
            let role = Role::Data(data);
            let live = and(&self.hull, &(0..unit.live));
            for range in minus(&live, unit.written.iter().map(|written| &written.range)) {
                if self.job.target.readable(self.job.stripe, role) {
                    self.gather.read_scratch(self.job.target, &mut self.draft, role, &range, Want::Newest);
                } else {
                    let location = self.draft.scratch(&range);
                    lost.push((role, range, location));
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        self.gather.reconstruct(self.job.target, &mut self.draft, &lost, Want::Newest)
    }

    /// The version of each data unit after the write.
    fn cover(&mut self) -> Result<Vec<VersionOf>, PlanError> {
        let mut cover = Vec::new();
        for (data, unit) in (0..).zip(&self.job.units) {
            cover.push(if touches(self.job, data) {
                VersionOf::Given(self.job.stamp)
            } else if unit.live == 0 {
                VersionOf::Given(Version::ZERO)
            } else {
                self.version(data)?
            });
        }
        Ok(cover)
    }

    /// The version of a unit that is not touched: from a read of the unit, from a parity unit's cover, or
    /// from a read of one byte for this purpose.
    fn version(&mut self, data: u8) -> Result<VersionOf, PlanError> {
        let target = self.job.target;
        let stripe = self.job.stripe;
        if let Some(read) = self.gather.read_of(Role::Data(data)) {
            return Ok(VersionOf::Read(read));
        }
        if let Some(read) = self.gather.parity_read() {
            return Ok(VersionOf::Cover { read, data });
        }
        let range = self.hull.start..self.hull.start + 1;
        let mut probe = |role| self.gather.read_scratch(target, &mut self.draft, role, &range, Want::Newest);
        if target.readable(stripe, Role::Data(data)) {
            return Ok(VersionOf::Read(probe(Role::Data(data))));
        }
        match target.parity().find(|&role| target.readable(stripe, role)) {
            Some(role) => Ok(VersionOf::Cover { read: probe(role), data }),
            None => Err(target.too_few(stripe, target.health.readable())),
        }
    }

    /// The stripe write's parts for the data columns.
    fn touched(&mut self) -> Vec<Touched> {
        let whole = 0..self.job.target.unit();
        let touched: Vec<u8> =
            (0..self.job.target.segment.shape.k()).filter(|&data| touches(self.job, data)).collect();
        let mut parts = Vec::new();
        for data in touched {
            let unit = &self.job.units[usize::from(data)];
            let hole = Written { range: self.hull.clone(), source: Source::Hole };
            let written = unit.written.clone().unwrap_or(hole);
            let joining = self.job.target.joining(self.job.stripe, Role::Data(data));
            parts.push(if joining && written.range != whole {
                self.put_together(data)
            } else {
                Touched { data, written, after: Vec::new() }
            });
        }
        parts
    }

    /// Puts the whole unit together in scratch, from old and new bytes.
    fn put_together(&mut self, data: u8) -> Touched {
        let whole = 0..self.job.target.unit();
        let location = self.draft.scratch(&whole);
        let mut after = Vec::new();
        for part in self.cuts(&[data]) {
            let (from, waits) = self.operand(data, &part);
            let into = location.part(part.start, part.end - part.start);
            after.push(self.draft.step(&part, waits, Step::Copy { from, into }));
        }
        Touched { data, written: Written { range: whole, source: Source::MemoryRange(location) }, after }
    }

    /// The stripe write's parts for the parity columns.
    fn parity(&mut self, cover: Vec<VersionOf>) -> Vec<Parity> {
        let indices: Vec<u8> = self.job.parity_in_set().collect();
        let all: Vec<u8> = (0..self.job.target.segment.shape.k()).collect();
        let zeros = self.gather.known.is_empty()
            && self.job.written().all(|(_, written)| written.source == Source::Hole);
        let (sources, after) = if zeros {
            (vec![Source::Hole; indices.len()], Vec::new())
        } else if let Some(copy) = self.mirrored() {
            (vec![copy; indices.len()], Vec::new())
        } else {
            let locations: Vec<MemoryRange> =
                indices.iter().map(|_| self.draft.scratch(&self.hull)).collect();
            let after = self.encode(&all, &indices, &locations);
            (locations.into_iter().map(Source::MemoryRange).collect(), after)
        };
        let part = |(index, source): (&u8, Source)| Parity {
            index: *index,
            written: Written { range: self.hull.clone(), source },
            after: after.clone(),
            cover: cover.clone(),
        };
        indices.iter().zip(sources).map(part).collect()
    }

    /// The source of the data's own bytes, if the scheme is a mirror and they cover the hull.
    fn mirrored(&self) -> Option<Source> {
        let written = self.job.units[0].written.as_ref()?;
        let mirror = self.job.target.segment.shape.scheme().is_mirror();
        (mirror && written.range == self.hull).then_some(written.source)
    }

    fn encode(&mut self, all: &[u8], indices: &[u8], locations: &[MemoryRange]) -> Vec<InstructionId> {
        let mut steps = Vec::new();
        for part in self.cuts(all) {
            let mut data = Vec::new();
            let mut after = Vec::new();
            for &index in all {
                let (operand, waits) = self.operand(index, &part);
                data.push(operand);
                after.extend(waits);
            }
            let within =
                |location: &MemoryRange| location.part(part.start - self.hull.start, part.end - part.start);
            let parity = indices.iter().copied().zip(locations.iter().map(within)).collect();
            steps.push(self.draft.step(&part, after, Step::Encode { data, parity }));
        }
        steps
    }

    /// The hull, split so that in each part the bytes of each of these units come from one source.
    fn cuts(&self, units: &[u8]) -> Vec<Range<u32>> {
        let ends: Vec<Range<u32>> = units
            .iter()
            .flat_map(|&data| {
                let written = self.job.units[usize::from(data)].written.iter().map(|written| &written.range);
                written.chain(self.gather.ranges(Role::Data(data))).cloned()
            })
            .collect();
        cut(&self.hull, ends.iter())
    }

    /// Source of the bytes of `part` of a data unit: new, old or zeros.
    fn operand(&self, data: u8, part: &Range<u32>) -> (Operand, Vec<InstructionId>) {
        let unit = &self.job.units[usize::from(data)];
        if let Some(written) = unit.written.as_ref().filter(|written| holds(&written.range, part)) {
            let operand = match written.source {
                Source::Hole => Operand::Zeros,
                Source::MemoryRange(location) => Operand::MemoryRange(
                    location.part(part.start - written.range.start, part.end - part.start),
                ),
            };
            return (operand, Vec::new());
        }
        match self.gather.find(Role::Data(data), part) {
            Some((location, id)) => (Operand::MemoryRange(location), vec![id]),
            None => (Operand::Zeros, Vec::new()),
        }
    }
}
