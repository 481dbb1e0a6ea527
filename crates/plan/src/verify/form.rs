//! Rules 1 to 9: the form of a plan set.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_layout::{ColumnMask, Role, Segment};

use super::Violation;
use super::node::{Act, Node, stripes};
use crate::ir::{InstructionId, MemoryRange, PlanSet, Step};
use crate::request::{Body, INSTRUCTIONS_MAX, Request};

pub(super) fn check(set: &PlanSet, segment: &Segment, nodes: &[Node<'_>], found: &mut Vec<Violation>) {
    if !request_fits(set, segment) {
        found.push(Violation::Request);
        return;
    }
    if nodes.len() > INSTRUCTIONS_MAX {
        found.push(Violation::TooMany { count: nodes.len() });
        return;
    }
    check_notes(set, segment, nodes, found);
    check_plans(set, segment, found);
    check_ids(nodes, found);
    let range = stripes(&set.request, segment);
    for node in nodes {
        check_node(set, segment, &range, node, found);
    }
    if found.is_empty() {
        check_cycles(nodes, found);
    }
}

fn request_fits(set: &PlanSet, segment: &Segment) -> bool {
    let all = ColumnMask::all(segment.shape.width());
    let masks = set.set.minus(all).or(set.joining.or(set.away).minus(set.set));
    let within = |range: &Range<u64>| {
        range.start < range.end && range.start >= segment.start && range.end <= segment.end
    };
    let last = segment.stripe_at(segment.end - 1).0;
    masks.is_empty()
        && match &set.request {
            Request::Read { range, .. } | Request::Run { range, .. } => within(range),
            Request::Write(write) => within(&write.range),
            Request::Rebuild { stripes, columns } => {
                stripes.start < stripes.end
                    && stripes.end - 1 <= last
                    && columns.minus(set.joining).is_empty()
            }
            Request::Check { stripes } => stripes.start < stripes.end && stripes.end - 1 <= last,
        }
}

fn check_notes(set: &PlanSet, segment: &Segment, nodes: &[Node<'_>], found: &mut Vec<Violation>) {
    let range = stripes(&set.request, segment);
    if u64::try_from(set.stripes.len()) != Ok(range.end - range.start) {
        found.push(Violation::Note { stripe: braid_layout::Stripe(range.start) });
        return;
    }
    let together: BTreeSet<_> = nodes
        .iter()
        .filter(|node| {
            !node.versions().is_empty() || matches!(node.act, Act::Client(_)) && reads_something(set, node)
        })
        .map(|node| node.stripe)
        .collect();
    for (note, stripe) in set.stripes.iter().zip(range) {
        if note.stripe.0 != stripe || together.contains(&note.stripe) && !note.strategy.needs_cut() {
            found.push(Violation::Note { stripe: note.stripe });
        }
    }
}

/// Returns true if a step uses anything but the caller's bytes.
fn reads_something(set: &PlanSet, node: &Node<'_>) -> bool {
    let written = matches!(set.request, Request::Write(_));
    node.uses()
        .into_iter()
        .chain(node.changes())
        .any(|location| matches!(location, MemoryRange::Scratch { .. }) || !written)
}

fn check_plans(set: &PlanSet, segment: &Segment, found: &mut Vec<Violation>) {
    let mut seen = ColumnMask::EMPTY;
    for plan in &set.plans {
        let component = segment.components.get(plan.column.index());
        let right = component.is_some_and(|c| c.drive == plan.drive && c.object == plan.object);
        if !right || seen.contains(plan.column) || plan.instructions.is_empty() {
            found.push(Violation::Plan { column: plan.column });
        }
        if plan.column.0 < 64 {
            seen = seen.with(plan.column);
        }
    }
}

fn check_ids(nodes: &[Node<'_>], found: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for node in nodes {
        if node.id.index() >= nodes.len() || !seen.insert(node.id) {
            found.push(Violation::Id { id: node.id });
        }
    }
    for id in nodes.iter().flat_map(|node| node.after) {
        if id.index() >= nodes.len() {
            found.push(Violation::Id { id: *id });
        }
    }
}

fn check_node(
    set: &PlanSet,
    segment: &Segment,
    stripes: &Range<u64>,
    node: &Node<'_>,
    found: &mut Vec<Violation>,
) {
    let id = node.id;
    let range = &node.range;
    if range.start >= range.end || range.end > segment.shape.unit_bytes() || !stripes.contains(&node.stripe.0)
    {
        found.push(Violation::Range { id });
        return;
    }
    let length = range.end - range.start;
    let inputs = node.uses();
    let outputs = node.makes().into_iter().chain(node.changes());
    let in_place = inputs.iter().all(|location| location.len() == length && may_use(set, location))
        && outputs.clone().all(|location| location.len() == length && may_make(set, &location));
    if !in_place {
        found.push(Violation::MemoryRange { id });
    }
    match node.act {
        Act::Client(step) if !operands_fit(segment, step) => found.push(Violation::Operands { id }),
        _ => {}
    }
    if let Some(column) = node.read().map(|(column, _)| column).or(node.run())
        && !set.set.minus(set.joining).minus(set.away).contains(column)
    {
        found.push(Violation::NotReadable { id, column });
    }
}

/// Returns true if bytes may be taken from this memory range.
fn may_use(set: &PlanSet, location: &MemoryRange) -> bool {
    match *location {
        MemoryRange::Scratch { piece, offset, len } => in_scratch(set, piece, offset, len),
        MemoryRange::User { offset, len } => match &set.request {
            Request::Read { range, buffer } | Request::Run { range, buffer } => {
                in_buffer(*buffer, range, offset, len)
            }
            Request::Write(write) => match write.body {
                Body::Buffer { offset: buffer } => in_buffer(buffer, &write.range, offset, len),
                Body::Zeros => false,
            },
            Request::Rebuild { .. } | Request::Check { .. } => false,
        },
    }
}

/// Returns true if bytes may be put into this memory range.
fn may_make(set: &PlanSet, location: &MemoryRange) -> bool {
    may_use(set, location)
        && (matches!(location, MemoryRange::Scratch { .. })
            || matches!(set.request, Request::Read { .. } | Request::Run { .. }))
}

fn in_scratch(set: &PlanSet, piece: u32, offset: u32, len: u32) -> bool {
    let piece = usize::try_from(piece).ok().and_then(|piece| set.scratch.get(piece));
    piece.is_some_and(|&size| offset.checked_add(len).is_some_and(|end| end <= size))
}

fn in_buffer(buffer: u64, range: &Range<u64>, offset: u64, len: u32) -> bool {
    let Some(skip) = offset.checked_sub(buffer) else { return false };
    skip.checked_add(u64::from(len)).is_some_and(|end| end <= range.end - range.start)
}

/// Returns true if a step's operands have the number and roles that the code requires.
fn operands_fit(segment: &Segment, step: &Step) -> bool {
    let k = segment.shape.k();
    let m = segment.shape.m();
    let role_fits = |role: &Role| match *role {
        Role::Data(index) => index < k,
        Role::Parity(index) => index < m,
    };
    let parity_fits = |parity: &[(u8, MemoryRange)]| {
        let distinct: BTreeSet<u8> = parity.iter().map(|(index, _)| *index).collect();
        !parity.is_empty() && distinct.len() == parity.len() && distinct.iter().all(|&index| index < m)
    };
    match step {
        Step::Copy { .. } => true,
        Step::Encode { data, parity } => data.len() == usize::from(k) && parity_fits(parity),
        Step::Reconstruct { have, lost } => {
            let roles = || have.iter().map(|(role, _)| *role).chain(lost.iter().map(|(role, _)| *role));
            let fit = roles().all(|role| role_fits(&role));
            let distinct: BTreeSet<_> = roles().collect();
            fit && distinct.len() == roles().count() && have.len() == usize::from(k) && !lost.is_empty()
        }
        Step::Delta { data, parity, .. } => *data < k && parity_fits(parity),
        Step::Compare { parity, .. } => *parity < m,
    }
}

/// Finds a cycle: repeatedly removes the nodes that wait for no node that is left. A node that remains is in
/// a cycle or waits for one.
fn check_cycles(nodes: &[Node<'_>], found: &mut Vec<Violation>) {
    let mut waiters: Vec<Vec<InstructionId>> = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0_usize; nodes.len()];
    for node in nodes {
        for other in node.after.iter().chain(&node.previous) {
            waiters[other.index()].push(node.id);
            waits[node.id.index()] += 1;
        }
    }
    let mut free: Vec<InstructionId> =
        nodes.iter().map(|node| node.id).filter(|id| waits[id.index()] == 0).collect();
    while let Some(id) = free.pop() {
        for waiter in &waiters[id.index()] {
            waits[waiter.index()] -= 1;
            if waits[waiter.index()] == 0 {
                free.push(*waiter);
            }
        }
    }
    let stuck = |id: &InstructionId| waits[id.index()] > 0;
    let by_id: BTreeMap<InstructionId, &Node<'_>> = nodes.iter().map(|node| (node.id, node)).collect();
    let on =
        |id: InstructionId| by_id[&id].after.iter().chain(&by_id[&id].previous).copied().find(|id| stuck(id));
    let Some(mut at) = nodes.iter().map(|node| node.id).find(|id| stuck(id)) else { return };
    // Each stuck node waits for another. After as many steps as there are nodes, we are in the cycle.
    for _ in nodes {
        at = on(at).expect("what is stuck waits for something that is stuck");
    }
    let mut circle = vec![at];
    while let Some(next) = on(circle[circle.len() - 1]).filter(|next| *next != at) {
        circle.push(next);
    }
    found.extend(circle.into_iter().min().map(|id| Violation::Cycle { id }));
}
