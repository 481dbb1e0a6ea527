//! Read-modify-write: old parity changed by the xor of old and new bytes.

use std::ops::Range;

use braid_layout::Role;

use super::{Job, Parity, Touched, Unit, Written};
use crate::compile::draft::Draft;
use crate::compile::gather::Gather;
use crate::compile::interval::{and, cut};
use crate::ir::{InstructionId, MemoryRange, Operand, Source, Step, Strategy, VersionOf, Want};

/// Drafts the stripe, if possible: every parity column of the set must be readable, and so must the old bytes
/// of the written ranges.
pub(super) fn draft(job: &Job<'_>) -> Option<Draft> {
    let target = job.target;
    let stripe = job.stripe;
    let indices: Vec<u8> = job.parity_in_set().collect();
    let parity_there = indices.iter().all(|&index| target.readable(stripe, Role::Parity(index)));
    let data_there = job.written().all(|(data, _)| {
        let role = Role::Data(data);
        let joining = target.joining(stripe, role);
        !joining && (target.readable(stripe, role) || old(&job.units[usize::from(data)]).is_empty())
    });
    if !parity_there || !data_there {
        return None;
    }
    let mut draft = Draft::new(stripe, Strategy::ReadModifyWrite);
    let mut gather = Gather::default();
    let locations: Vec<MemoryRange> = indices.iter().map(|_| draft.scratch(&job.hull)).collect();
    let mut reads = Vec::new();
    for (&index, &location) in indices.iter().zip(&locations) {
        let role = Role::Parity(index);
        reads.push(gather.read(target, &mut draft, role, &job.hull, location, Want::Newest));
    }
    let mut steps = Vec::new();
    for (data, written) in job.written() {
        let old = old(&job.units[usize::from(data)]);
        if !old.is_empty() {
            gather.read_scratch(target, &mut draft, Role::Data(data), &old, Want::Newest);
        }
        steps.extend(deltas(job, &mut draft, &gather, data, written, &indices, &locations, &reads));
    }
    let touched =
        job.written().map(|(data, written)| Touched { data, written: written.clone(), after: Vec::new() });
    let touched = touched.collect();
    let part = |((&index, &location), &read): ((&u8, &MemoryRange), &InstructionId)| Parity {
        index,
        written: Written { range: job.hull.clone(), source: Source::MemoryRange(location) },
        after: steps.clone(),
        cover: cover(job, read),
    };
    let parity = indices.iter().zip(&locations).zip(&reads).map(part).collect();
    job.send(&mut draft, touched, parity);
    Some(draft)
}

/// The bytes of a unit that are overwritten and may be nonzero.
fn old(unit: &Unit) -> Range<u32> {
    unit.written.as_ref().map_or(0..0, |written| and(&written.range, &(0..unit.live)))
}

/// The version of each data unit after the write. Untouched units keep the version in the old parity's cover.
fn cover(job: &Job<'_>, read: InstructionId) -> Vec<VersionOf> {
    let version = |(data, unit): (u8, &Unit)| match unit.written {
        Some(_) => VersionOf::Given(job.stamp),
        None => VersionOf::Cover { read, data },
    };
    (0..).zip(&job.units).map(version).collect()
}

fn deltas(
    job: &Job<'_>,
    draft: &mut Draft,
    gather: &Gather,
    data: u8,
    written: &Written,
    indices: &[u8],
    locations: &[MemoryRange],
    reads: &[InstructionId],
) -> Vec<InstructionId> {
    let mut steps = Vec::new();
    let live = 0..job.units[usize::from(data)].live;
    for part in cut(&written.range, std::iter::once(&live)) {
        let length = part.end - part.start;
        let new = match written.source {
            Source::Hole => Operand::Zeros,
            Source::MemoryRange(location) => {
                Operand::MemoryRange(location.part(part.start - written.range.start, length))
            }
        };
        let mut after = reads.to_vec();
        let old = match gather.find(Role::Data(data), &part) {
            None => Operand::Zeros,
            Some((location, read)) => {
                after.push(read);
                Operand::MemoryRange(location)
            }
        };
        if old == Operand::Zeros && new == Operand::Zeros {
            continue;
        }
        let within = |location: &MemoryRange| location.part(part.start - job.hull.start, length);
        let parity = indices.iter().copied().zip(locations.iter().map(within)).collect();
        steps.push(draft.step(&part, after, Step::Delta { data, old, new, parity }));
    }
    steps
}
