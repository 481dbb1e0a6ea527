//! Derating: the part of the calibrated capacity that can be counted on, as the disk is slower than it was,
//! or others use it.

use braid_schedule::drift::{Drift, InFlight, Sample};
use braid_schedule::{DeviceCost, Direction};
use braid_store::CommitTotals;

use super::foreign::Counters;
use crate::life::clock::Moment;

/// Work of the disk since the start, as a heartbeat knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    pub(crate) commits: CommitTotals,
    /// Counters of the device; `None`: there are none.
    pub(crate) counters: Option<Counters>,
}

#[derive(Debug, Default)]
pub(crate) struct Derating {
    own: Drift,
    foreign: Drift,
    last: Option<(Moment, Work)>,
    /// Reads that went to the disk since the last heartbeat.
    reads: u64,
}

impl Derating {
    /// Takes a read that went to the disk: its time, and what was in flight with it.
    pub(crate) fn handle_read(
        &mut self,
        now: Moment,
        cost: &DeviceCost,
        measured_ns: u64,
        in_flight: InFlight,
    ) {
        self.reads += 1;
        self.own.handle_parallel(now.0, cost.charge, measured_ns, in_flight);
    }

    /// Takes the work since the last heartbeat.
    pub(crate) fn handle_work(&mut self, now: Moment, cost: &DeviceCost, work: Work) {
        let Some((then, last)) = self.last.replace((now, work)) else { return };
        let commits = work.commits.since(&last.commits);
        // Beside reads a commit takes longer, and the disk is no slower.
        let is_alone = std::mem::take(&mut self.reads) == 0;
        if let Some(mean) = commits.bytes.checked_div(commits.commits).filter(|_| is_alone) {
            // Calibration timed writes and syncs one after another too.
            let each_ns = cost.time_ns(Direction::Write, mean).saturating_add(cost.sync_ns);
            let modelled_ns = each_ns.saturating_mul(commits.commits);
            let sample = Sample { modelled_ns, measured_ns: commits.alone_ns };
            self.own.handle(now.0, sample);
        }
        let passed_ns = now.since(then).saturating_mul(1_000_000);
        if let (Some(counters), Some(before)) = (work.counters, last.counters) {
            // What others leave of the time is what there is.
            let left_ns = passed_ns - counters.foreign_ns(&before, cost, passed_ns);
            let sample = Sample { modelled_ns: left_ns, measured_ns: passed_ns };
            self.foreign.handle(now.0, sample);
        }
    }

    /// The part of the capacity in thousandths, and the cause if it is below 1000.
    pub(crate) fn told(&self) -> (u32, String) {
        let own = self.own.derate();
        let foreign = self.foreign.derate();
        let percent = |derate: u32| (1000 - derate) / 10;
        let cause = match (own < 1000, foreign < 1000) {
            (_, true) if foreign <= own => {
                format!("others use {} % of its disk's time", percent(foreign))
            }
            (true, _) => format!("its disk does {} % less than when it was calibrated", percent(own)),
            _ => String::new(),
        };
        (own.min(foreign), cause)
    }
}

#[cfg(test)]
mod tests {
    use braid_schedule::{Charge, DirectionCost};

    use super::*;

    const MS: u64 = 1_000_000;

    fn cost() -> DeviceCost {
        let way = DirectionCost { operation_ns: MS, bytes_per_second: 100 << 20 };
        DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 4 * MS }
    }

    /// Beats of a second in each of which 100 empty commits take so long.
    fn beats(derating: &mut Derating, commit_ms: u64) {
        for beat in 0..200 {
            let totals =
                CommitTotals { commits: 100 * beat, bytes: 0, alone_ns: 100 * beat * commit_ms * MS };
            derating.handle_work(Moment(beat * 1000), &cost(), Work { commits: totals, counters: None });
        }
    }

    #[test]
    fn slow_commits_and_slow_reads_derate() {
        let mut derating = Derating::default();
        beats(&mut derating, 5);
        assert_eq!(derating.told(), (1000, String::new()));
        let mut derating = Derating::default();
        beats(&mut derating, 10);
        let told = derating.told();
        assert_eq!(told, (500, "its disk does 50 % less than when it was calibrated".to_owned()));
        let mut derating = Derating::default();
        for read in 0..10_000 {
            let in_flight = InFlight { operations: 2, cost_ns: 2 * MS };
            derating.handle_read(Moment(read * 10), &cost(), 8 * MS, in_flight);
        }
        assert_eq!(derating.told().0, 250);
    }

    #[test]
    fn commits_beside_reads_say_nothing() {
        let mut derating = Derating::default();
        for beat in 0..200 {
            let in_flight = InFlight { operations: 1, cost_ns: MS };
            derating.handle_read(Moment(beat * 1000), &cost(), MS, in_flight);
            let totals = CommitTotals { commits: 100 * beat, bytes: 0, alone_ns: 2000 * beat * MS };
            derating.handle_work(Moment(beat * 1000), &cost(), Work { commits: totals, counters: None });
        }
        assert_eq!(derating.told().0, 1000);
    }

    #[test]
    fn others_on_the_disk_derate() {
        let mut derating = Derating::default();
        for beat in 0..200_u64 {
            let work = Work { counters: Some(Counters::foreign((beat * 50) << 20)), ..Work::default() };
            derating.handle_work(Moment(beat * 1000), &cost(), work);
        }
        let (derate, cause) = derating.told();
        assert!((400..=500).contains(&derate), "{derate}");
        assert!(cause.starts_with("others use "), "{cause}");
    }
}
