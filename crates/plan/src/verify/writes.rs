//! Rules 15 to 22: the bytes that writes and rebuilds send, their columns, and their stamps and covers.

use std::ops::Range;

use braid_layout::{Column, ColumnMask, Role, Segment, Stripe, Version};

use super::Violation;
use super::node::Node;
use super::run::{Bytes, Cuts, Memory, Old, asked, buffer_spot, fresh, live, run, sent, user_bytes};
use crate::ir::{InstructionId, Op, PlanSet, Source, VersionOf};
use crate::request::Write;

/// Kind of the writes of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Stripe,
    Unit,
}

/// One stripe of a write, with the result of running its reads and steps.
struct Judge<'a> {
    set: &'a PlanSet,
    segment: &'a Segment,
    stripe: Stripe,
    nodes: &'a [&'a Node<'a>],
    old: Old<'a>,
    cuts: Cuts,
    memory: Memory,
}

/// A write instruction, with its operation.
struct Sent<'a> {
    node: &'a Node<'a>,
    op: &'a Op,
}

pub(super) fn check_write(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    write: &Write,
    found: &mut Vec<Violation>,
) {
    let judge = Judge::new(set, segment, stripe, nodes);
    let kinds = |wanted: fn(&Op) -> bool| nodes.iter().any(|n| n.write().is_some_and(|(_, op)| wanted(op)));
    let unit_writes = kinds(|op| matches!(op, Op::UnitWrite { .. }));
    if unit_writes && kinds(|op| matches!(op, Op::StripeWrite { .. })) {
        found.push(Violation::Mixed { stripe });
        return;
    }
    let first = segment.stripe_at(write.range.start);
    let stamp = Version { n: write.stamp.n.wrapping_add(stripe.0 - first.0), ..write.stamp };
    let touched: Vec<u8> = (0..segment.shape.k()).filter(|&data| judge.touches(data)).collect();
    let parity: Vec<u8> = if unit_writes { Vec::new() } else { (0..segment.shape.m()).collect() };
    let roles = || {
        let data = touched.iter().map(|&data| Role::Data(data));
        data.chain(parity.iter().map(|&parity| Role::Parity(parity)))
    };
    let columns: ColumnMask = roles().map(|role| segment.column(stripe, role)).collect();
    let kind = if unit_writes { WriteKind::Unit } else { WriteKind::Stripe };
    let sent = judge.sent(columns, kind, found);
    for (column, sent) in &sent {
        judge.check_names(*column, sent, stamp, columns, &touched, found);
    }
    for role in roles() {
        let column = segment.column(stripe, role);
        if let Some((_, sent)) = sent.iter().find(|(sent, _)| *sent == column) {
            judge.check_bytes(role, column, sent, found);
        }
    }
}

pub(super) fn check_rebuild(
    set: &PlanSet,
    segment: &Segment,
    stripe: Stripe,
    nodes: &[&Node<'_>],
    columns: ColumnMask,
    found: &mut Vec<Violation>,
) {
    let judge = Judge::new(set, segment, stripe, nodes);
    for (column, sent) in judge.sent(columns, WriteKind::Stripe, found) {
        judge.check_rebuilt(column, &sent, found);
    }
}

impl<'a> Judge<'a> {
    fn new(set: &'a PlanSet, segment: &'a Segment, stripe: Stripe, nodes: &'a [&'a Node<'a>]) -> Judge<'a> {
        let cuts = Cuts::new(set, segment, stripe, nodes);
        let old = Old::new(set, segment, stripe);
        let memory = run(&old, &cuts, nodes);
        Judge { set, segment, stripe, nodes, old, cuts, memory }
    }

    /// Returns true if the write includes this data unit: the request does, or a hole was written over a unit
    /// past the file's size whose version is not known.
    fn touches(&self, data: u8) -> bool {
        if !self.asked(data).is_empty() {
            return true;
        }
        let column = self.segment.column(self.stripe, Role::Data(data));
        let parity_columns = |op: &Op| match op {
            Op::StripeWrite { columns, .. } => columns.contains(column),
            _ => false,
        };
        let named = self.nodes.iter().any(|node| node.write().is_some_and(|(_, op)| parity_columns(op)));
        let unknown = live(self.set, self.segment, self.stripe, data) == 0
            && !fresh(self.set, self.segment, self.stripe, data);
        named && unknown
    }

    fn asked(&self, data: u8) -> Range<u32> {
        asked(self.set, self.segment, self.stripe, data)
    }

    /// Rule 15: each of `columns` that is in the set is written once, and no other.
    fn sent(
        &self,
        columns: ColumnMask,
        kind: WriteKind,
        found: &mut Vec<Violation>,
    ) -> Vec<(Column, Sent<'a>)> {
        let must = columns.and(self.set.set);
        let mut reached = ColumnMask::EMPTY;
        let mut all = Vec::new();
        for &node in self.nodes {
            let Some((column, op)) = node.write() else { continue };
            if !must.contains(column) || reached.contains(column) {
                found.push(Violation::Unwanted { id: node.id });
                continue;
            }
            reached = reached.with(column);
            all.push((column, Sent { node, op }));
        }
        // The bytes of a unit write can go nowhere else: its column is missing even if it is out.
        let missing = match kind {
            WriteKind::Unit => columns.minus(reached),
            WriteKind::Stripe => must.minus(reached),
        };
        found.extend(missing.iter().map(|column| Violation::Missing { stripe: self.stripe, column }));
        all
    }

    /// Rules 18 to 21.
    fn check_names(
        &self,
        column: Column,
        sent: &Sent<'_>,
        stamp: Version,
        all: ColumnMask,
        touched: &[u8],
        found: &mut Vec<Violation>,
    ) {
        let id = sent.node.id;
        match sent.op {
            Op::StripeWrite { stamp: named, columns, cover, .. } => {
                if *named != VersionOf::Given(stamp) {
                    found.push(Violation::Stamp { id });
                }
                if *columns != all {
                    found.push(Violation::Columns { id });
                }
                let covers = match self.segment.role(self.stripe, column) {
                    Role::Data(_) => cover.is_empty(),
                    Role::Parity(_) => {
                        let fits = |data: u8, version: &VersionOf| {
                            if touched.contains(&data) {
                                *version == VersionOf::Given(stamp)
                            } else {
                                self.is_version(data, version)
                            }
                        };
                        cover.len() == usize::from(self.segment.shape.k())
                            && (0..).zip(cover).all(|(data, version)| fits(data, version))
                    }
                };
                if !covers {
                    found.push(Violation::Cover { id });
                }
            }
            Op::UnitWrite { stamp: named, .. } => {
                if named.is_some_and(|named| named != stamp) {
                    found.push(Violation::Stamp { id });
                }
            }
            Op::Read { .. } | Op::Run { .. } => {}
        }
        let whole = sent.node.range == (0..self.segment.shape.unit_bytes());
        if self.set.joining.contains(column) && !whole && matches!(sent.op, Op::StripeWrite { .. }) {
            found.push(Violation::Joining { id });
        }
    }

    /// Returns true if `version` is that of data unit `data`: as it was read, or zero if it was never
    /// written.
    fn is_version(&self, data: u8, version: &VersionOf) -> bool {
        match version {
            VersionOf::Given(version) => {
                *version == Version::ZERO && fresh(self.set, self.segment, self.stripe, data)
            }
            VersionOf::Read(read) => self.read_role(*read) == Some(Role::Data(data)),
            VersionOf::Cover { read, data: of } => {
                *of == data && matches!(self.read_role(*read), Some(Role::Parity(_)))
            }
            VersionOf::Newest(_) => false,
        }
    }

    /// The role of the unit that this instruction of the stripe reads.
    fn read_role(&self, id: InstructionId) -> Option<Role> {
        let node = self.nodes.iter().find(|node| node.id == id)?;
        node.read().map(|(column, _)| self.segment.role(self.stripe, column))
    }

    /// Rules 16 and 17: the content of the column afterwards.
    fn check_bytes(&self, role: Role, column: Column, sent: &Sent<'_>, found: &mut Vec<Violation>) {
        let joining = self.set.joining.contains(column);
        for part in self.cuts.parts(&(0..self.segment.shape.unit_bytes())) {
            let at = part.start;
            let within = sent.node.range.start <= at && at < sent.node.range.end;
            if joining && !within {
                continue;
            }
            let holds = if within { self.bytes(sent, at) } else { self.old.bytes(role, at) };
            if holds != self.expected(role, at) {
                found.push(match role {
                    Role::Data(data) => Violation::WrongBytes { stripe: self.stripe, data, at },
                    Role::Parity(parity) => Violation::Parity { stripe: self.stripe, parity, at },
                });
                return;
            }
        }
    }

    fn bytes(&self, sent: &Sent<'_>, at: u32) -> Bytes {
        match sent.op {
            Op::StripeWrite { bytes, .. } | Op::UnitWrite { bytes, .. } => {
                super::run::sent(&self.old, &self.memory, sent.node, bytes, at)
            }
            Op::Read { .. } | Op::Run { .. } => Bytes::default(),
        }
    }

    /// Content that a unit must have after the write, in the part that begins at `at`.
    fn expected(&self, role: Role, at: u32) -> Bytes {
        match role {
            Role::Data(data) if self.asked(data).contains(&at) => {
                buffer_spot(self.set, self.segment, self.stripe, data, at)
                    .map_or(Bytes::default(), user_bytes)
            }
            Role::Data(_) => self.old.bytes(role, at),
            Role::Parity(index) => {
                let data: Vec<Bytes> =
                    (0..self.segment.shape.k()).map(|data| self.expected(Role::Data(data), at)).collect();
                self.old.parity(&data, index)
            }
        }
    }

    /// Rules 16 to 21 for a rebuilt unit.
    fn check_rebuilt(&self, column: Column, sent: &Sent<'_>, found: &mut Vec<Violation>) {
        let id = sent.node.id;
        let Op::StripeWrite { bytes, stamp, columns, cover, .. } = sent.op else {
            found.push(Violation::Unwanted { id });
            return;
        };
        if sent.node.range != (0..self.segment.shape.unit_bytes()) {
            found.push(Violation::Joining { id });
        }
        if *columns != ColumnMask::EMPTY.with(column) {
            found.push(Violation::Columns { id });
        }
        let role = self.segment.role(self.stripe, column);
        let (stamped, covers) = match role {
            Role::Data(data) => (self.is_version(data, stamp), cover.is_empty()),
            Role::Parity(_) => {
                let fits = (0..).zip(cover).all(|(data, version)| self.is_version(data, version));
                let whole = cover.len() == usize::from(self.segment.shape.k());
                (*stamp == VersionOf::Newest(cover.clone()), fits && whole)
            }
        };
        if !stamped {
            found.push(Violation::Stamp { id });
        }
        if !covers {
            found.push(Violation::Cover { id });
        }
        self.check_rebuilt_bytes(role, sent, bytes, found);
    }

    fn check_rebuilt_bytes(
        &self,
        role: Role,
        sent_as: &Sent<'_>,
        bytes: &Source,
        found: &mut Vec<Violation>,
    ) {
        for part in self.cuts.parts(&sent_as.node.range) {
            let at = part.start;
            if sent(&self.old, &self.memory, sent_as.node, bytes, at) != self.old.bytes(role, at) {
                found.push(match role {
                    Role::Data(data) => Violation::WrongBytes { stripe: self.stripe, data, at },
                    Role::Parity(parity) => Violation::Parity { stripe: self.stripe, parity, at },
                });
                return;
            }
        }
    }
}
