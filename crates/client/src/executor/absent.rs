//! Units that are missing though parity counts them: their drive has lost them, and does not know it. Reading
//! them as zeros would be wrong.
//!
//! Only a unit without any version raises the question, and parity alone answers it: every write of a unit,
//! whether of the whole stripe or of the unit, is in the cover of parity or in its deltas. A parity unit, or
//! a mirror's copy, that was read in its place may be lost like any other: the stripe's other parity tells.

use std::collections::BTreeMap;

use braid_layout::{Column, ColumnMask, Role, Stripe, Version};
use braid_plan::{InstructionId, MemoryRange, Op};
use braid_wire::Reason;
use braid_wire::data::{DriveReply, Listing, UnitState, VERSIONS_UNITS_MAX, Versions};

use super::{Executor, Failed, ask_columns};
use crate::handle::Handle;
use crate::peers::drive_requests::Failure;
use crate::peers::faults::{Remedy, read_remedy};
use crate::peers::retry::Tries;
use crate::view::FileView;

/// A read of a unit that has no version.
struct Absent {
    /// The data units whose bytes the read stands for, each with its column.
    data: Vec<(u8, Column)>,
    column: Column,
    into: MemoryRange,
    id: InstructionId,
}

/// The reads of one stripe.
#[derive(Default)]
struct Reads {
    absent: Vec<Absent>,
    /// Parity columns that are read.
    parity: ColumnMask,
    /// True if some read of the stripe brought a version, or did not arrive.
    has_more: bool,
}

/// Answers of parity columns about stripes.
#[derive(Default)]
struct Told {
    states: BTreeMap<Stripe, Vec<UnitState>>,
    /// Stripes without an answer yet, as the parity column does not serve yet or was asked with old
    /// capabilities.
    stale: BTreeMap<Stripe, (Column, Failure)>,
}

impl Told {
    /// Keeps for these columns only the units that no column has answered for yet.
    fn leave_open(&self, units: &mut BTreeMap<Column, Vec<u64>>, columns: ColumnMask) {
        let is_open = |stripe| !self.states.contains_key(&stripe) && !self.stale.contains_key(&stripe);
        units.retain(|column, units| {
            if columns.contains(*column) {
                units.retain(|unit| is_open(Stripe(*unit)));
            }
            !units.is_empty()
        });
    }
}

impl Executor<'_> {
    /// The reads that brought zeros for a unit that was written, according to parity. Where parity is read
    /// too and anything of the stripe is there, the check of the cut finds such reads.
    pub(super) async fn lost(&mut self) -> Vec<Failed> {
        let absent = self.absent();
        if absent.is_empty() {
            return Vec::new();
        }
        let asked = absent.iter().map(|(stripe, reads)| (*stripe, reads.parity));
        let told = self.handle.ask_parity(&self.view, self.set.segment, asked).await;
        let mut lost = Vec::new();
        for (stripe, (column, failure)) in told.stale {
            // The stripe is read again, with the manager's view by then.
            for one in absent.get(&stripe).into_iter().flat_map(|reads| &reads.absent) {
                self.arrived[one.id.index()] = None;
                let into = Some(one.into);
                let failure = failure.clone();
                lost.push(Failed { column, stripe, into, failure });
            }
        }
        for (stripe, states) in told.states {
            let Some(reads) = absent.get(&stripe) else { continue };
            for one in &reads.absent {
                let counted = one.data.iter().map(|&(data, column)| {
                    // If parity was read too, the read parity units have none of it: only what is settled
                    // elsewhere counts.
                    if reads.parity.is_empty() {
                        counted(&states, data, column)
                    } else {
                        settled(&states, data)
                    }
                });
                let Some(counted) = counted.max().filter(|version| !version.is_zero()) else { continue };
                self.arrived[one.id.index()] = None;
                let failure = Failure::Behind { has: Version::ZERO.to_string(), named: counted.to_string() };
                lost.push(Failed { column: one.column, stripe, into: Some(one.into), failure });
            }
        }
        lost
    }

    fn absent(&self) -> BTreeMap<Stripe, Reads> {
        let segment = &self.view.layout.segments()[self.set.segment];
        let mut stripes = BTreeMap::<Stripe, Reads>::new();
        if self.filling.is_some() || segment.shape.m() == 0 {
            return stripes;
        }
        for (plan, instruction) in self.set.instructions() {
            let Op::Read { stripe, into, .. } = instruction.op else { continue };
            let column = plan.column;
            let id = instruction.id;
            let reads = stripes.entry(stripe).or_default();
            let role = segment.role(stripe, column);
            if let Role::Parity(_) = role {
                reads.parity = reads.parity.with(column);
            }
            let data = match (role, &self.arrived[id.index()]) {
                (Role::Data(data), Some(arrived)) if arrived.version.is_zero() => Vec::from([(data, column)]),
                (Role::Parity(_), Some(arrived)) if arrived.cover.iter().all(|version| version.is_zero()) => {
                    (0..segment.shape.k())
                        .map(|data| (data, segment.column(stripe, Role::Data(data))))
                        .collect()
                }
                _ => {
                    reads.has_more = true;
                    continue;
                }
            };
            reads.absent.push(Absent { data, column, into, id });
        }
        stripes.retain(|_, reads| !reads.absent.is_empty() && (reads.parity.is_empty() || !reads.has_more));
        stripes
    }
}

impl Handle {
    /// Returns true if a unit without a version at its drive was never written, as far as parity knows.
    pub(crate) async fn was_never_written(
        &self,
        view: &FileView,
        index: usize,
        stripe: Stripe,
        column: Column,
    ) -> bool {
        let segment = &view.layout.segments()[index];
        let Role::Data(data) = segment.role(stripe, column) else { return false };
        let told = self.ask_parity(view, index, [(stripe, ColumnMask::EMPTY)]).await;
        told.stale.is_empty() && told.states.values().all(|states| counted(states, data, column).is_zero())
    }

    /// Asks the ready parity columns, except those that are read, for their units of these stripes. A column
    /// that does not serve yet is waited for. So is a column that does not answer, if no other can tell,
    /// until the manager says that it is away.
    async fn ask_parity(
        &self,
        view: &FileView,
        index: usize,
        stripes: impl IntoIterator<Item = (Stripe, ColumnMask)>,
    ) -> Told {
        let segment = &view.layout.segments()[index];
        let columns = &view.segments[index];
        let ready = columns.set.minus(columns.joining);
        let avoided = self.avoided(view, index);
        let mut units = BTreeMap::<Column, Vec<u64>>::new();
        for (stripe, read) in stripes {
            let parity = (0..segment.shape.m()).map(|m| segment.column(stripe, Role::Parity(m)));
            let parity = parity.collect::<ColumnMask>().and(ready).minus(read);
            let mut asked = parity.minus(avoided);
            if asked.is_empty() {
                // No other column can tell.
                asked = parity.minus(columns.listed_away());
            }
            asked.iter().for_each(|column| units.entry(column).or_default().push(stripe.0));
        }
        let mut told = Told::default();
        let mut tries = Tries::new(self.client.shared.config.patience);
        while !units.is_empty() {
            let ask = |(column, units): (&Column, &Vec<u64>)| {
                let units = units[..units.len().min(VERSIONS_UNITS_MAX)].to_vec();
                let at = view.address(index, *column);
                (*column, Versions { at, list: Listing::Named, units, from: 0, limit: 0 }.into())
            };
            let questions = units.iter().map(ask).collect();
            let mut waits = false;
            let mut silent = ColumnMask::EMPTY;
            for (column, outcome) in ask_columns(self, view, index, questions).await {
                match outcome {
                    Ok(DriveReply::Versions(reply)) => {
                        let left = units.get_mut(&column).map(|units| {
                            units.drain(..reply.units.len().min(units.len()));
                            units.len()
                        });
                        if left == Some(0) || reply.units.is_empty() {
                            units.remove(&column);
                        }
                        for state in reply.units.into_iter().filter(|state| !state.damaged) {
                            told.states.entry(Stripe(state.unit)).or_default().push(state);
                        }
                    }
                    Err(failure) if matches!(read_remedy(&failure), Remedy::Again | Remedy::Wait) => {
                        waits = true;
                    }
                    Err(Failure::Lost(_)) => silent = silent.with(column),
                    outcome => {
                        let units = units.remove(&column).unwrap_or_default();
                        let Err(failure) = outcome else { continue };
                        if failure.is(Reason::NoObject) {
                            for unit in units {
                                told.states.entry(Stripe(unit)).or_default().push(UnitState::unwritten(unit));
                            }
                        } else if read_remedy(&failure) == Remedy::Refresh {
                            let of = |unit| (Stripe(unit), (column, failure.clone()));
                            told.stale.extend(units.into_iter().map(of));
                        }
                    }
                }
            }
            told.leave_open(&mut units, silent);
            waits |= !silent.is_empty() && !units.is_empty();
            if waits && !self.waits_for(view, index, &mut units, &mut tries).await {
                let of = |(column, units): (Column, Vec<u64>)| {
                    units.into_iter().map(move |unit| (Stripe(unit), (column, Failure::Idle)))
                };
                told.stale.extend(units.into_iter().flat_map(of));
                break;
            }
        }
        told.stale.retain(|stripe, _| !told.states.contains_key(stripe));
        told
    }

    /// Waits until columns that do not answer yet are to be asked again. After a while, columns that the
    /// manager has not heard from either are dropped from `units`. Returns false if everything must be read
    /// again.
    async fn waits_for(
        &self,
        view: &FileView,
        index: usize,
        units: &mut BTreeMap<Column, Vec<u64>>,
        tries: &mut Tries,
    ) -> bool {
        if !tries.again().await {
            return false;
        }
        if tries.elapsed() < self.client.shared.config.grace {
            return true;
        }
        let Ok(now) = self.refresh(&self.view()).await else { return true };
        if now.g != view.g {
            return false;
        }
        let away = now.segments[index].listed_away();
        units.retain(|column, _| !away.contains(*column));
        true
    }
}

/// The version of a data unit that these parity units count. Pending writes do not count, as they may be
/// taken back. A version that is settled in one parity unit was on all ready ones, so a unit without it has
/// lost it. Of the deltas on top, only those that all have count: the others may be taken back too.
fn counted(states: &[UnitState], data: u8, column: Column) -> Version {
    let in_all = states.iter().map(|state| {
        let tips = state.tips.iter().filter(|tip| tip.column == column).map(|tip| tip.version);
        tips.fold(in_base(state, data), Version::max)
    });
    in_all.min().unwrap_or_default().max(settled(states, data))
}

fn settled(states: &[UnitState], data: u8) -> Version {
    states.iter().map(|state| in_base(state, data)).max().unwrap_or_default()
}

fn in_base(state: &UnitState, data: u8) -> Version {
    state.cover.get(usize::from(data)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Lease};
    use braid_wire::data::Tip;

    use super::*;

    const COLUMN: Column = Column(0);

    fn version(n: u64) -> Version {
        if n == 0 { Version::ZERO } else { Version { g: Generation(1), lease: Lease(1), n } }
    }

    /// A parity unit that counts these versions of data unit 0.
    fn parity(base: u64, tip: u64) -> UnitState {
        let tips =
            if tip == 0 { Vec::new() } else { vec![Tip { column: COLUMN, version: version(tip), end: 0 }] };
        UnitState { cover: vec![version(base), version(9)], tips, ..UnitState::unwritten(3) }
    }

    #[test]
    fn parity_counts_what_is_settled_in_one_and_else_what_all_have() {
        let check = |parities: &[(u64, u64)], expected: u64| {
            let states: Vec<UnitState> = parities.iter().map(|&(base, tip)| parity(base, tip)).collect();
            assert_eq!(counted(&states, 0, COLUMN), version(expected), "{parities:?}");
        };
        check(&[], 0);
        check(&[(0, 0), (0, 0)], 0);
        check(&[(0, 2)], 2);
        // On its way to the other, or it is taken back.
        check(&[(0, 2), (0, 0)], 0);
        check(&[(0, 2), (0, 3)], 2);
        // The other has lost its unit.
        check(&[(4, 0), (0, 0)], 4);
        check(&[(4, 5), (4, 0)], 4);
    }
}
