//! Rules 10 to 13: bytes that are used were produced, once, and are waited for.

use std::collections::BTreeMap;

use braid_layout::{Segment, Stripe};

use super::Violation;
use super::node::{Act, Node};
use super::run::{Cuts, Spot, spot};
use crate::ir::{InstructionId, MemoryRange, Op, PlanSet};
use crate::request::Request;

/// Rule 10, over the whole set.
pub(super) fn check_made_twice(nodes: &[Node<'_>], found: &mut Vec<Violation>) {
    let mut made: Vec<(Spot, u64, InstructionId)> = nodes
        .iter()
        .flat_map(|node| {
            node.makes().into_iter().map(|location| (spot(&location, 0), u64::from(location.len()), node.id))
        })
        .collect();
    made.sort_unstable();
    for pair in made.windows(2) {
        let (a, length, other) = pair[0];
        let (b, _, id) = pair[1];
        if a.area == b.area && b.offset < a.offset + length {
            found.push(Violation::MadeTwice { id, other });
        }
    }
}

/// Rules 11 to 13, for one stripe.
pub(super) fn check(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    found: &mut Vec<Violation>,
) {
    let cuts = Cuts::new(set, segment, stripe, nodes);
    // The ids that produce and change the bytes at a spot, and the byte of the unit that the spot stands for.
    let mut makers: BTreeMap<Spot, (u32, InstructionId)> = BTreeMap::new();
    let mut changers: BTreeMap<Spot, Vec<InstructionId>> = BTreeMap::new();
    for node in nodes {
        for (at, location) in spots(&cuts, node, node.makes()) {
            makers.insert(location, (at, node.id));
        }
        for (_, location) in spots(&cuts, node, node.changes()) {
            changers.entry(location).or_default().push(node.id);
        }
    }
    let given = |location: &MemoryRange| {
        matches!((location, &set.request), (MemoryRange::User { .. }, Request::Write(_)))
    };
    for node in nodes {
        let used: Vec<MemoryRange> = node.uses().into_iter().filter(|location| !given(location)).collect();
        let mut waits = Vec::new();
        for (at, location) in spots(&cuts, node, used.clone()) {
            waits.extend(changers.get(&location).into_iter().flatten().copied());
            waits.extend(made(&makers, at, location, node, found));
        }
        for (at, location) in spots(&cuts, node, node.changes()) {
            waits.extend(made(&makers, at, location, node, found));
        }
        waits.extend(node.versions());
        waits.sort_unstable();
        waits.dedup();
        let missing = waits.into_iter().filter(|on| !node.after.contains(on));
        found.extend(missing.map(|on| Violation::Unordered { id: node.id, on }));
    }
    check_early(nodes, found);
}

/// Id that produces the spot, if the spot stands for the byte that `node` expects.
fn made(
    makers: &BTreeMap<Spot, (u32, InstructionId)>,
    at: u32,
    location: Spot,
    node: &Node<'_>,
    found: &mut Vec<Violation>,
) -> Option<InstructionId> {
    match makers.get(&location) {
        Some((stands_for, maker)) if *stands_for == at => Some(*maker),
        _ => {
            let violation = Violation::Undefined { id: node.id };
            if found.last() != Some(&violation) {
                found.push(violation);
            }
            None
        }
    }
}

/// Rule 13. Reads whose versions the write uses are left to rule 12.
fn check_early(nodes: &[&Node<'_>], found: &mut Vec<Violation>) {
    let reads: Vec<InstructionId> =
        nodes.iter().filter(|node| node.read().is_some()).map(|node| node.id).collect();
    for node in nodes {
        if !matches!(node.act, Act::Drive(_, Op::StripeWrite { .. } | Op::UnitWrite { .. })) {
            continue;
        }
        let versions = node.versions();
        let early = reads.iter().filter(|read| !node.after.contains(read));
        for &read in early {
            let known = Violation::Unordered { id: node.id, on: read };
            if !versions.contains(&read) && !found.contains(&known) {
                found.push(Violation::Early { id: node.id, read });
            }
        }
    }
}

/// The spots of these memory ranges, with the byte of the unit that each stands for.
fn spots(cuts: &Cuts, node: &Node<'_>, locations: Vec<MemoryRange>) -> Vec<(u32, Spot)> {
    let parts = cuts.parts(&node.range);
    locations
        .iter()
        .flat_map(|location| {
            parts.iter().map(|part| (part.start, spot(location, part.start - node.range.start)))
        })
        .collect()
}
