//! Locks: the program that holds the lock of each record, and those that have lost it.

use std::ops::Range;

use super::{At, FileNo, Judge, Life};

/// Time for which a program that has lost its lock may go on before it is told.
pub(super) const TOLD_AFTER_MS: u64 = 3000;

/// A program that holds a lock.
#[derive(Debug)]
pub(super) struct Holder {
    program: u64,
    pub(super) life: Life,
}

/// A program whose lock another has got.
#[derive(Debug)]
pub(super) struct Loser {
    /// Time at which the program lost the lock.
    lost_ms: u64,
    /// Time at which the program first did something after the loss.
    seen_ms: Option<u64>,
}

impl Judge {
    /// Grants the lock of a record to a program. The former holder has lost it, and bytes that it did not
    /// sync may be gone. Returns the moment since which the program must see everything done under the lock
    /// before. `None` if another program got the lock after this one asked for it: it is not known which
    /// was first, and this program has lost it.
    pub(crate) fn granted(
        &self,
        file: FileNo,
        record: u64,
        range: Range<u64>,
        program: u64,
        life: Life,
        asked: At,
    ) -> Option<At> {
        let mut state = self.lock();
        let now = state.now();
        if state.granted.get(&record).is_some_and(|last| last.tick > asked.tick) {
            return None;
        }
        state.granted.insert(record, now);
        // The program may have lost the same lock before, when its mount died.
        state.losers.remove(&(record, program));
        if let Some(holder) = state.holders.insert(record, Holder { program, life }) {
            state.losers.insert((record, holder.program), Loser { lost_ms: now.ms, seen_ms: None });
            let ops = &mut state.files[file.0].ops;
            for op in ops.iter_mut().filter(|op| op.by == holder.life && op.synced.is_none()) {
                op.in_doubt |= op.range.start < range.end && range.start < op.range.end;
            }
        }
        // No slack: locks exist to give this order.
        Some(At { ms: now.ms + state.slack_ms, ..now })
    }

    /// Returns true if a program has not lost the lock of a record.
    pub(crate) fn holds(&self, record: u64, program: u64) -> bool {
        self.lock().holders.get(&record).is_some_and(|holder| holder.program == program)
    }

    /// Notes that a program gives the lock back. Returns true if it had the lock.
    pub(crate) fn releases(&self, record: u64, program: u64) -> bool {
        let mut state = self.lock();
        state.losers.remove(&(record, program));
        let holds = state.holders.get(&record).is_some_and(|holder| holder.program == program);
        if holds {
            state.holders.remove(&record);
        }
        holds
    }

    /// Notes that a program which took the lock did something under it, from `began_ms` on. Once the lock
    /// is lost, the program must be told.
    pub(crate) fn went_on(&self, record: u64, program: u64, who: &str, began_ms: u64, is_done: bool) {
        let mut state = self.lock();
        let Some(loser) = state.losers.get_mut(&(record, program)) else { return };
        if began_ms < loser.lost_ms {
            return;
        }
        let seen_ms = *loser.seen_ms.get_or_insert(began_ms);
        if is_done && began_ms >= seen_ms + TOLD_AFTER_MS {
            let what = format!("{who} has lost the lock of record {record}, and is not told");
            state.failure.get_or_insert(what);
        }
    }
}
