//! Units that are not there though parity counts them: their drive has lost them, and does not know it. Zeros
//! are not what was written there.
//!
//! Only a unit without any version raises the question, and parity alone answers it: every write of a unit,
//! whether of the whole stripe or of the unit, is in the cover of parity or in its deltas.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Column, Role, Stripe, Version};
use braid_plan::{InstructionId, MemoryRange, Op};
use braid_wire::data::{DriveReply, Listing, UnitState, VERSIONS_UNITS_MAX, Versions};

use super::{Executor, Failed, ask_columns};
use crate::drive_requests::Failure;

/// A read of a data unit that has no version.
struct Absent {
    data: u8,
    column: Column,
    into: MemoryRange,
    id: InstructionId,
}

impl Executor<'_> {
    /// The reads that brought zeros for a unit that was written, as parity says. Where parity is read too,
    /// the cut shows it.
    pub(super) async fn lost(&mut self) -> Vec<Failed> {
        let absent = self.absent();
        if absent.is_empty() {
            return Vec::new();
        }
        let told = self.ask_parity(absent.keys().copied()).await;
        let mut lost = Vec::new();
        for (stripe, states) in told {
            for one in absent.get(&stripe).into_iter().flatten() {
                // What was acknowledged is on all that are ready. What only some have may be taken back.
                let counted = states.iter().map(|state| counted(state, one.data, one.column)).min();
                let Some(counted) = counted.filter(|version| !version.is_zero()) else { continue };
                self.arrived[one.id.index()] = None;
                let failure = Failure::Behind { has: Version::ZERO.to_string(), named: counted.to_string() };
                lost.push(Failed { column: one.column, stripe, into: Some(one.into), failure });
            }
        }
        lost
    }

    fn absent(&self) -> BTreeMap<Stripe, Vec<Absent>> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let (mut absent, mut with_parity) = (BTreeMap::<Stripe, Vec<Absent>>::new(), BTreeSet::new());
        if self.filling.is_some() || segment.shape.m() == 0 {
            return absent;
        }
        for (plan, instruction) in self.set.instructions() {
            let Op::Read { stripe, into, .. } = instruction.op else { continue };
            let (column, id) = (plan.column, instruction.id);
            match (segment.role(stripe, column), &self.arrived[id.index()]) {
                (Role::Data(data), Some(arrived)) if arrived.version.is_zero() => {
                    absent.entry(stripe).or_default().push(Absent { data, column, into, id });
                }
                (Role::Data(_), _) => {}
                (Role::Parity(_), _) => drop(with_parity.insert(stripe)),
            }
        }
        absent.retain(|stripe, _| !with_parity.contains(stripe));
        absent
    }

    /// What ready parity columns hold of these stripes. One that does not answer tells nothing.
    async fn ask_parity(&self, stripes: impl Iterator<Item = Stripe>) -> BTreeMap<Stripe, Vec<UnitState>> {
        let index = self.set.segment;
        let (segment, columns) = (&self.view.layout.segments()[index], &self.view.segments[index]);
        let usable = columns.set.minus(columns.joining).minus(self.handle.avoided(&self.view, index));
        let mut units = BTreeMap::<Column, Vec<u64>>::new();
        for stripe in stripes {
            let parity = (0..segment.shape.m()).map(|m| segment.column(stripe, Role::Parity(m)));
            for column in parity.filter(|column| usable.contains(*column)) {
                units.entry(column).or_default().push(stripe.0);
            }
        }
        let mut told = BTreeMap::<Stripe, Vec<UnitState>>::new();
        while !units.is_empty() {
            let ask = |(column, units): (&Column, &Vec<u64>)| {
                let units = units[..units.len().min(VERSIONS_UNITS_MAX)].to_vec();
                let at = self.view.address(index, *column);
                (*column, Versions { at, list: Listing::Named, units, from: 0, limit: 0 }.into())
            };
            let questions = units.iter().map(ask).collect();
            for (column, outcome) in ask_columns(self.handle, &self.view, index, questions).await {
                let Ok(DriveReply::Versions(reply)) = outcome else {
                    units.remove(&column);
                    continue;
                };
                let left = units.get_mut(&column).map(|units| {
                    units.drain(..reply.units.len().min(units.len()));
                    units.len()
                });
                if left == Some(0) || reply.units.is_empty() {
                    units.remove(&column);
                }
                for state in reply.units.into_iter().filter(|state| !state.damaged) {
                    told.entry(Stripe(state.unit)).or_default().push(state);
                }
            }
        }
        told
    }
}

/// The version of a data unit that is in a parity unit, pending writes aside: these may be taken back.
fn counted(state: &UnitState, data: u8, column: Column) -> Version {
    let in_base = state.cover.get(usize::from(data)).copied().unwrap_or_default();
    let tips = state.tips.iter().filter(|tip| tip.column == column).map(|tip| tip.version);
    tips.fold(in_base, Version::max)
}
