//! Rules 14, 23 and 24: a read returns what was asked for, a check finds damage, a method runs once on all.
//! Writes have their own file.

use braid_layout::{Role, Segment, Stripe};

use super::Violation;
use super::node::Node;
use super::run::{Cuts, Old, asked, buffer_spot, run};
use super::writes;
use crate::ir::PlanSet;
use crate::request::Request;

pub(super) fn check(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    found: &mut Vec<Violation>,
) {
    match &set.request {
        Request::Read { .. } => {
            no_writes(nodes, found);
            check_read(set, segment, stripe, nodes, found);
        }
        Request::Write(write) => writes::check_write(set, segment, stripe, nodes, write, found),
        Request::Rebuild { columns, .. } => {
            writes::check_rebuild(set, segment, stripe, nodes, *columns, found);
        }
        Request::Run { .. } => {
            no_writes(nodes, found);
            check_run(set, segment, stripe, nodes, found);
        }
        Request::Check { .. } => {
            no_writes(nodes, found);
            check_check(set, segment, stripe, nodes, found);
        }
    }
}

fn no_writes(nodes: &[&Node<'_>], found: &mut Vec<Violation>) {
    let writes = nodes.iter().filter(|node| node.write().is_some());
    found.extend(writes.map(|node| Violation::Unwanted { id: node.id }));
}

fn check_read(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    found: &mut Vec<Violation>,
) {
    let cuts = Cuts::new(set, segment, stripe, nodes);
    let old = Old::new(set, segment, stripe);
    let memory = run(&old, &cuts, nodes);
    for data in 0..segment.shape.k() {
        for part in cuts.parts(&asked(set, segment, stripe, data)) {
            let at = part.start;
            let spot = buffer_spot(set, segment, stripe, data, at);
            let violation = match spot.and_then(|spot| memory.get(spot)) {
                None => Violation::NotProduced { stripe, data, at },
                Some(bytes) if bytes != old.bytes(Role::Data(data), at) => {
                    Violation::WrongBytes { stripe, data, at }
                }
                Some(_) => continue,
            };
            found.push(violation);
            break;
        }
    }
}

/// Rule 24: the method runs once on each byte: at its own column's drive, or at the client, which has it
/// then.
fn check_run(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    found: &mut Vec<Violation>,
) {
    let cuts = Cuts::new(set, segment, stripe, nodes);
    let old = Old::new(set, segment, stripe);
    let memory = run(&old, &cuts, nodes);
    let strays = nodes.iter().filter(|node| {
        let is_data = |column| match segment.role(stripe, column) {
            Role::Data(data) => {
                let asked = asked(set, segment, stripe, data);
                asked.start <= node.range.start && node.range.end <= asked.end
            }
            Role::Parity(_) => false,
        };
        node.run().is_some_and(|column| !is_data(column))
    });
    found.extend(strays.map(|node| Violation::Stray { id: node.id }));
    for data in 0..segment.shape.k() {
        let column = segment.column(stripe, Role::Data(data));
        for part in cuts.parts(&asked(set, segment, stripe, data)) {
            let at = part.start;
            let runs = nodes.iter().filter(|node| node.run() == Some(column) && node.range.contains(&at));
            let here = buffer_spot(set, segment, stripe, data, at).and_then(|spot| memory.get(spot));
            let violation = match (runs.count(), here) {
                (1, None) => continue,
                (0, Some(bytes)) if bytes == old.bytes(Role::Data(data), at) => continue,
                (0, Some(_)) => Violation::WrongBytes { stripe, data, at },
                (0, None) => Violation::NotProduced { stripe, data, at },
                _ => Violation::RunTwice { stripe, data, at },
            };
            found.push(violation);
            break;
        }
    }
}

/// Damages one unit at a time, and tests whether a comparison differs.
fn check_check(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    found: &mut Vec<Violation>,
) {
    let readable = set.set.minus(set.joining).minus(set.away);
    let shows = readable.count() > u32::from(segment.shape.k());
    let cuts = Cuts::new(set, segment, stripe, nodes);
    let mut old = Old::new(set, segment, stripe);
    let false_alarm = run(&old, &cuts, nodes).differ;
    for column in readable.iter() {
        let whole = |node: &&&Node<'_>| {
            node.read().is_some_and(|(read, _)| read == column)
                && node.range == (0..segment.shape.unit_bytes())
        };
        let read = nodes.iter().filter(whole).count() == 1;
        old.damaged = Some(segment.role(stripe, column));
        if !read || false_alarm || shows && !run(&old, &cuts, nodes).differ {
            found.push(Violation::NotChecked { stripe, column });
        }
    }
}
