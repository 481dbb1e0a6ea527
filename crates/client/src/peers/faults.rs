//! Interprets a failure: whether a column is away, for how long, and whether to ask the manager.

use std::collections::BTreeMap;

use braid_layout::{Column, ColumnMask};
use braid_wire::Reason;

use crate::executor::Failed;
use crate::peers::drive_requests::Failure;

/// The reaction to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Ask again: the failure says nothing about the column.
    Again,
    /// A newer view may help.
    Refresh,
    /// The column is unavailable now, but may answer later.
    Wait,
    /// Do without the column.
    Without,
    /// The drive refused to store the data: the write has failed.
    NotStored,
}

/// The remedy for a read's failure.
pub(crate) fn read_remedy(failure: &Failure) -> Remedy {
    common_remedy(failure).unwrap_or(Remedy::Without)
}

/// The remedy for a write's failure.
pub(crate) fn write_remedy(failure: &Failure) -> Remedy {
    common_remedy(failure).unwrap_or_else(|reason| match reason {
        Reason::NoObject => Remedy::Again,
        _ => Remedy::NotStored,
    })
}

/// The remedy that is the same for reads and writes; otherwise the reason of the refusal.
fn common_remedy(failure: &Failure) -> Result<Remedy, Reason> {
    let refusal = match failure {
        Failure::Idle => return Ok(Remedy::Again),
        Failure::Lost(_) | Failure::Corrupt(_) | Failure::Behind { .. } => return Ok(Remedy::Without),
        Failure::Refused { refusal, .. } => refusal,
    };
    match refusal.reason {
        // A capability of a key before the last two turns is taken for a forged one.
        Reason::StaleGeneration | Reason::Expired | Reason::StaleKey | Reason::Forged | Reason::Scope => {
            Ok(Remedy::Refresh)
        }
        Reason::NotServing | Reason::Busy | Reason::Closing | Reason::NoPartition => Ok(Remedy::Wait),
        Reason::PayloadChecksum | Reason::Replayed | Reason::Gone => Ok(Remedy::Again),
        other => Err(other),
    }
}

/// Knowledge of one request about columns, from their failures.
#[derive(Debug, Default, Clone)]
pub(crate) struct Learnt {
    /// Per column that counts as away: the reason, and true if that may be temporary.
    away: BTreeMap<Column, (String, bool)>,
    /// Number of retries and refreshes that each column's failures have led to.
    unmended: BTreeMap<Column, u32>,
}

/// Number of retries and refreshes in vain after which a column counts as away.
const UNMENDED_MAX: u32 = 4;

impl Learnt {
    /// Records a failed read. Returns the remedy to apply before the next try.
    pub(crate) fn note(&mut self, failed: &Failed) -> Remedy {
        let remedy = read_remedy(&failed.failure);
        let passes = match remedy {
            Remedy::Again | Remedy::Refresh => {
                let times = self.unmended.entry(failed.column).or_default();
                *times += 1;
                if *times < UNMENDED_MAX {
                    return remedy;
                }
                true
            }
            Remedy::Wait => true,
            Remedy::Without | Remedy::NotStored => false,
        };
        self.away.insert(failed.column, (failed.failure.to_string(), passes));
        remedy
    }

    /// Counts these columns as away, without a recorded reason.
    pub(crate) fn with(mut self, columns: ColumnMask) -> Learnt {
        for column in columns.iter() {
            self.away.entry(column).or_default();
        }
        self
    }

    /// Columns to do without.
    pub(crate) fn away(&self) -> ColumnMask {
        self.away.keys().copied().collect()
    }

    /// Reason for which the column counts as away, if it is recorded.
    pub(crate) fn why(&self, column: Column) -> Option<&str> {
        self.away.get(&column).map(|(why, _)| why.as_str())
    }

    /// Returns true if waiting may help.
    pub(crate) fn may_pass(&self) -> bool {
        self.away.values().any(|(_, passes)| *passes)
    }

    /// Forgets everything, since all of it may have changed.
    pub(crate) fn forget(&mut self) {
        self.away.clear();
        self.unmended.clear();
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::Stripe;
    use braid_wire::Refusal;

    use super::*;

    fn failed(failure: Failure) -> Failed {
        Failed { column: Column(3), stripe: Stripe(0), into: None, failure }
    }

    fn refused(reason: Reason) -> Failure {
        Failure::Refused { refusal: Refusal::new(reason, "no"), proven: true }
    }

    #[test]
    fn remedies() {
        for (failure, read, write) in [
            (Failure::Idle, Remedy::Again, Remedy::Again),
            (Failure::Lost(String::new()), Remedy::Without, Remedy::Without),
            (Failure::Corrupt(0), Remedy::Without, Remedy::Without),
            (refused(Reason::StaleGeneration), Remedy::Refresh, Remedy::Refresh),
            (refused(Reason::Expired), Remedy::Refresh, Remedy::Refresh),
            (refused(Reason::NotServing), Remedy::Wait, Remedy::Wait),
            (refused(Reason::Damaged), Remedy::Without, Remedy::NotStored),
            (refused(Reason::Full), Remedy::Without, Remedy::NotStored),
            (refused(Reason::NoObject), Remedy::Without, Remedy::Again),
        ] {
            assert_eq!((read_remedy(&failure), write_remedy(&failure)), (read, write), "{failure:?}");
        }
    }

    #[test]
    fn a_column_that_no_refresh_mends_is_away() {
        let mut learnt = Learnt::default();
        for _ in 1..UNMENDED_MAX {
            assert_eq!(learnt.note(&failed(refused(Reason::StaleGeneration))), Remedy::Refresh);
            assert!(learnt.away().is_empty());
        }
        learnt.note(&failed(refused(Reason::StaleGeneration)));
        assert!(learnt.away().contains(Column(3)) && learnt.may_pass());
        learnt.forget();
        assert!(learnt.away().is_empty());
    }
}
