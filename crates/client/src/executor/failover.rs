//! The way around a drive that does not answer under a promise, though nothing says that it is dead: it may
//! be stopped, cut off, or only slow.
//!
//! All columns of a set are asked at once. When the time is over in which drives that keep their promises
//! answer, and no more columns are open than the file can do without, these count as late. A read goes on
//! without them: what it needs more of the others is booked, as for a lost drive. A write tells the manager,
//! which finds out whether the drive lives, and waits on: a slow drive's answer is as good as before, and
//! nothing is sent twice. If the manager has the columns out, the write goes on without them.
//!
//! If more are late than can be done without, it is not a drive that fails, and all are waited for.

use std::time::Duration;

use braid_layout::{Column, ColumnMask};
use braid_wire::capability::DataDirection;

use crate::concurrent::All;
use crate::handle::Handle;
use crate::peers::faults::Learnt;
use crate::view::FileView;

/// The shortest time after which a column counts as late: below it, what this machine does beside may be the
/// reason.
const AFTER_MIN: Duration = Duration::from_millis(50);

/// The rule for a plan set under a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failover {
    direction: DataDirection,
    /// Time from the sending after which columns that are open count as late.
    after: Duration,
    /// Number of columns that can be done without, beside those that are out or away.
    spare: usize,
}

impl Handle {
    /// The rule for a set of this direction with these columns away. `None` if the handle has no promise for
    /// it, or no column is to spare.
    pub(crate) fn failover(
        &self,
        direction: DataDirection,
        view: &FileView,
        segment: usize,
        learnt: &Learnt,
    ) -> Option<Failover> {
        let bound = Duration::from_micros(self.promised(direction)?.promise().lateness_us);
        let shape = view.layout.segments()[segment].shape;
        let columns = &view.segments[segment];
        let away = match direction {
            DataDirection::Read => learnt.away().or(self.avoided(view, segment)),
            DataDirection::Write => ColumnMask::EMPTY,
        };
        let there = columns.set.minus(columns.joining).minus(away);
        let spare = there.count().checked_sub(u32::from(shape.k())).filter(|spare| *spare > 0)?;
        let spare = usize::try_from(spare).expect("a shape has few columns");
        Some(Failover { direction, after: bound.max(AFTER_MIN), spare })
    }
}

impl Failover {
    /// Waits for answers. Those that have not come when this returns are given up. `column_of`: the column of
    /// each. `is_out` tells the manager of columns that are late, and returns true if they are out.
    pub(crate) async fn wait<T: Send + Unpin>(
        self,
        all: &mut All<'_, T>,
        column_of: impl Fn(usize) -> Column,
        is_out: impl AsyncFnOnce(ColumnMask) -> bool,
    ) {
        tokio::select! {
            () = all.ended() => return,
            () = tokio::time::sleep(self.after) => {}
        }
        all.all_but(self.spare).await;
        let late: ColumnMask = all.running().map(&column_of).collect();
        if late.is_empty() || self.direction == DataDirection::Read {
            return;
        }
        tokio::select! {
            () = all.ended() => {}
            is_out = is_out(late) => if !is_out {
                all.ended().await;
            },
        }
    }
}

/// Tells the manager that columns do not answer. Returns true if the generation has risen, and the set is to
/// be sent again.
pub(super) async fn is_out(handle: &Handle, view: &FileView, segment: usize, late: ColumnMask) -> bool {
    match handle.report_lost(view, segment, late, false).await {
        Ok(now) => now.g != view.g,
        Err(error) => {
            tracing::debug!(file = %handle.subject, %late, %error, "columns that are late stay in the file's set");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{Instant, sleep};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Five columns that answer after these milliseconds, one to spare, late after 100 ms. The manager needs
    /// 1000 ms to say whether the late ones are out. Returns the time that the wait took, who answered, and
    /// what the manager was told.
    async fn waited(
        direction: DataDirection,
        answers: [u32; 5],
        are_out: bool,
    ) -> (Duration, Vec<bool>, Option<ColumnMask>) {
        let began = Instant::now();
        let told = Cell::new(None);
        let mut all = All::of(answers.map(|after| sleep(MS * after)));
        let rule = Failover { direction, after: MS * 100, spare: 1 };
        let is_out = async |late| {
            told.set(Some(late));
            sleep(MS * 1000).await;
            are_out
        };
        rule.wait(&mut all, |number| Column(u8::try_from(number).expect("one of five")), is_out).await;
        let answered = all.results().iter().map(Option::is_some).collect();
        (began.elapsed(), answered, told.get())
    }

    const ALL: [bool; 5] = [true; 5];
    const BUT_THE_THIRD: [bool; 5] = [true, true, false, true, true];

    fn third() -> Option<ColumnMask> {
        Some(ColumnMask::EMPTY.with(Column(2)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_goes_on_without_one_that_is_late() {
        let read = DataDirection::Read;
        assert_eq!(waited(read, [1, 2, 90, 4, 5], true).await, (MS * 90, ALL.to_vec(), None));
        assert_eq!(waited(read, [1, 2, 9000, 4, 5], true).await, (MS * 100, BUT_THE_THIRD.to_vec(), None));
        // It is not known which of two fails, until one of them has answered.
        assert_eq!(waited(read, [1, 2, 9000, 700, 5], true).await, (MS * 700, BUT_THE_THIRD.to_vec(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_asks_the_manager_and_waits_on() {
        let write = DataDirection::Write;
        // Stopped, and out as soon as the manager is sure.
        let out = waited(write, [1, 2, 9000, 4, 5], true).await;
        assert_eq!(out, (MS * 1100, BUT_THE_THIRD.to_vec(), third()));
        // Slow: its answer counts, before and after the manager's.
        assert_eq!(waited(write, [1, 2, 900, 4, 5], true).await, (MS * 900, ALL.to_vec(), third()));
        assert_eq!(waited(write, [1, 2, 9000, 4, 5], false).await, (MS * 9000, ALL.to_vec(), third()));
    }
}
