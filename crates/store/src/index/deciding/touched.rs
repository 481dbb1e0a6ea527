//! The mutations that may be in one commit: those whose decisions do not depend on each other.

use std::collections::BTreeSet;

use braid_layout::{ObjectId, PartitionId};

use crate::mutation::{Mutation, Write};
use crate::step::{Delta, UnitWrite};

/// Partitions, objects and units that the mutations in the commit being gathered touch.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Partitions that are touched as a whole.
    partitions: BTreeSet<PartitionId>,
    /// Partitions with something touched in them.
    within_partitions: BTreeSet<PartitionId>,
    /// Objects that are touched as a whole.
    objects: BTreeSet<(PartitionId, ObjectId)>,
    /// The objects among these that are created, if they do not exist yet.
    created: BTreeSet<(PartitionId, ObjectId)>,
    /// Objects with a unit that is touched.
    within_objects: BTreeSet<(PartitionId, ObjectId)>,
    units: BTreeSet<(PartitionId, ObjectId, u64)>,
    /// Objects where a write settles other units too.
    settles: BTreeSet<(PartitionId, ObjectId)>,
    /// Objects where a decision depends on the pending versions.
    steps: BTreeSet<(PartitionId, ObjectId)>,
}

impl Touched {
    /// Adds `mutation` to the commit and returns true, unless its decision could depend on one already in it.
    pub(crate) fn admit(&mut self, mutation: &Mutation) -> bool {
        match mutation {
            Mutation::PartitionCreate { partition, .. }
            | Mutation::PartitionSet { partition, .. }
            | Mutation::PartitionRemove { partition } => {
                !self.within_partitions.contains(partition) && self.partitions.insert(*partition)
            }
            Mutation::Create { partition, object, .. }
            | Mutation::Remove { partition, object, .. }
            | Mutation::SetAttributes { partition, object, .. }
            | Mutation::Retire { partition, object, .. }
            | Mutation::Fence { partition, object, .. }
            | Mutation::Verdict { partition, object, .. }
            | Mutation::OwedSettled { partition, object, .. }
            | Mutation::DeltasSettled { partition, object, .. } => {
                if self.partitions.contains(partition)
                    || self.within_objects.contains(&(*partition, *object))
                    || !self.objects.insert((*partition, *object))
                {
                    return false;
                }
                self.within_partitions.insert(*partition);
                if matches!(mutation, Mutation::Create { .. }) {
                    self.created.insert((*partition, *object));
                }
                true
            }
            Mutation::Take { partition, object, still, .. } => {
                let own = [(*partition, *object), (*partition, *still)];
                let is_free = |own: &(PartitionId, ObjectId)| {
                    !self.objects.contains(own) && !self.within_objects.contains(own)
                };
                if self.partitions.contains(partition) || !own.iter().all(is_free) {
                    return false;
                }
                self.objects.extend(own);
                self.within_partitions.insert(*partition);
                true
            }
            Mutation::Write(Write { partition, object, unit, .. })
            | Mutation::Ready { partition, object, unit, .. }
            | Mutation::UnitWrite(UnitWrite { partition, object, unit, .. })
            | Mutation::Delta(Delta { partition, object, unit, .. }) => {
                let own = (*partition, *object);
                let (settles, step) = match mutation {
                    Mutation::Write(write) => (!write.settled_below.is_zero(), write.standing.is_settled()),
                    Mutation::UnitWrite(write) => (!write.settled_below.is_zero(), false),
                    _ => (false, true),
                };
                let follows = matches!(mutation, Mutation::Write(write) if !write.standing.is_settled())
                    && self.created.contains(&own);
                if self.partitions.contains(partition)
                    || (self.objects.contains(&own) && !follows)
                    || (step && self.settles.contains(&own))
                    || (settles && self.steps.contains(&own))
                    || !self.units.insert((*partition, *object, *unit))
                {
                    return false;
                }
                self.within_partitions.insert(*partition);
                self.within_objects.insert(own);
                let _ = settles && self.settles.insert(own);
                let _ = step && self.steps.insert(own);
                true
            }
            Mutation::Flush => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClientId, ColumnMask, Generation, Lease, OperationNumber, Version};

    use super::*;
    use crate::mutation::Standing;
    use crate::payload::Body;

    const P: PartitionId = PartitionId(1);

    fn version(n: u64) -> Version {
        Version { g: Generation(1), lease: Lease(1), n }
    }

    fn write(object: u64, unit: u64, standing: Standing, settled: u64) -> Mutation {
        Mutation::Write(Write {
            partition: P,
            object: ObjectId(object),
            unit,
            from: 0,
            to: 1,
            kind: crate::mutation::WriteKind::Data,
            standing,
            stamp: version(9),
            columns: ColumnMask::EMPTY,
            cover: Vec::new(),
            ends: Vec::new(),
            client: ClientId::NONE,
            operation: OperationNumber::NONE,
            g: Generation(1),
            settled_below: if settled > 0 { version(settled) } else { Version::ZERO },
            body: Body::Hole,
        })
    }

    /// Checks whether the two may be in one commit, in either order.
    fn check_pair(first: &Mutation, second: &Mutation, together: bool) {
        for (first, second) in [(first, second), (second, first)] {
            let mut touched = Touched::default();
            assert!(touched.admit(first));
            assert_eq!(touched.admit(second), together, "{second:?} after {first:?}");
        }
    }

    #[test]
    fn what_could_decide_on_another_is_not_in_its_commit() {
        let object = ObjectId(1);
        let unit = 3;
        let ready = Mutation::Ready { partition: P, object, g: Generation(1), unit, units: 1 };
        let install = write(1, 3, Standing::Installed, 0);
        let settling = write(1, 4, Standing::Pending, 5);
        // The settling write may settle the pending version of unit 3, on which a step there depends.
        check_pair(&settling, &install, false);
        check_pair(&settling, &ready, false);
        check_pair(&settling, &write(1, 5, Standing::Pending, 6), true);
        check_pair(&settling, &write(1, 3, Standing::Pending, 0), true);
        check_pair(&write(2, 4, Standing::Pending, 5), &install, true);
        check_pair(&install, &ready, false);
        check_pair(&install, &write(1, 4, Standing::Installed, 0), true);
        let remove = Mutation::Remove { partition: P, object, g: Generation(1) };
        check_pair(&remove, &install, false);
        check_pair(&remove, &write(2, 3, Standing::Installed, 0), true);
        let attributes = crate::mutation::Attributes::default();
        let create = Mutation::Create { partition: P, object, attributes };
        check_pair(&create, &remove, false);
        check_pair(&create, &install, false);
        let mut touched = Touched::default();
        assert!(touched.admit(&create) && touched.admit(&settling), "a write to what is created");
        assert!(!touched.admit(&create) && !touched.admit(&remove) && !touched.admit(&install));
        let mut touched = Touched::default();
        assert!(touched.admit(&settling) && !touched.admit(&create), "it may be created after that");
        check_pair(&Mutation::PartitionRemove { partition: P }, &remove, false);
        check_pair(&Mutation::PartitionRemove { partition: PartitionId(2) }, &remove, true);
        check_pair(&Mutation::Flush, &remove, true);
    }
}
