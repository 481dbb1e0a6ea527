//! Locks: who holds that of a record, and who has lost it.

use std::ops::Range;

use super::{At, FileNo, Judge, Life};

/// How long a program that has lost its lock may go on before it is told.
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
    /// When it lost it.
    lost_ms: u64,
    /// When it first did something after that.
    seen_ms: Option<u64>,
}

impl Judge {
    /// A program got the lock of a record. Who had it has lost it, and what it did not sync may be gone.
    /// Gives the moment since which it must see what was done under the lock before. `None` if another got it
    /// since it was asked for: it is not known who was first, and that one has lost it.
    pub(crate) fn granted(
        &self,
        file: FileNo,
        record: u64,
        range: Range<u64>,
        (program, life): (u64, Life),
        asked: At,
    ) -> Option<At> {
        let mut state = self.lock();
        let now = state.now();
        if state.granted.get(&record).is_some_and(|last| last.tick > asked.tick) {
            return None;
        }
        state.granted.insert(record, now);
        // It may have lost the same one before, when its mount died.
        state.losers.remove(&(record, program));
        if let Some(holder) = state.holders.insert(record, Holder { program, life }) {
            state.losers.insert((record, holder.program), Loser { lost_ms: now.ms, seen_ms: None });
            let ops = &mut state.files[file.0].ops;
            for op in ops.iter_mut().filter(|op| op.by == holder.life && op.synced.is_none()) {
                op.in_doubt |= op.range.start < range.end && range.start < op.range.end;
            }
        }
        // No slack: it is what locks are for.
        Some(At { ms: now.ms + state.slack_ms, ..now })
    }

    /// Whether a program has not lost the lock of a record.
    pub(crate) fn holds(&self, record: u64, program: u64) -> bool {
        self.lock().holders.get(&record).is_some_and(|holder| holder.program == program)
    }

    /// It gives the lock back. Whether it had it.
    pub(crate) fn releases(&self, record: u64, program: u64) -> bool {
        let mut state = self.lock();
        state.losers.remove(&(record, program));
        let holds = state.holders.get(&record).is_some_and(|holder| holder.program == program);
        if holds {
            state.holders.remove(&record);
        }
        holds
    }

    /// A program that took the lock did something under it, begun then. Once that is lost it must be told.
    pub(crate) fn went_on(&self, record: u64, (program, who): (u64, &str), began_ms: u64, is_done: bool) {
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
