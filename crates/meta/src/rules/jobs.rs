//! State of the manager's background jobs, as `braid status --jobs` lists it, and the pause after a failure.

use std::collections::BTreeMap;

use braid_wire::control::{JobRow, JobsReply};

/// Pause after the first failure, in milliseconds. It doubles with each further failure in a row.
const PAUSE_MIN_MS: u64 = 500;
/// Maximum pause after a failure, in milliseconds.
const PAUSE_MAX_MS: u64 = 8_000;

/// All jobs, by name.
#[derive(Debug, Default)]
pub struct JobBoard {
    jobs: BTreeMap<&'static str, JobState>,
}

#[derive(Debug, Default)]
struct JobState {
    about: &'static str,
    is_running: bool,
    rounds: u64,
    took_ms: u64,
    /// Time at which the present round began, or the last one ended.
    changed_ms: u64,
    next_ms: u64,
    progress: Progress,
    /// Time at which the work that `progress` is about began.
    work_began_ms: u64,
    failures: u64,
    error: String,
    error_at_ms: u64,
}

/// Progress of a piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Amount that is done.
    pub done: u64,
    /// Amount in all; 0: it is not known.
    pub total: u64,
    /// Unit of both, in the plural.
    pub unit: &'static str,
}

impl JobBoard {
    /// Records that a round of a job begins.
    pub fn begin(&mut self, name: &'static str, about: &'static str, now_ms: u64) {
        let job = self.jobs.entry(name).or_default();
        job.about = about;
        job.is_running = true;
        job.changed_ms = now_ms;
    }

    /// Records that a round ended, and that the next one begins in `wait_ms`.
    pub fn end(&mut self, name: &'static str, wait_ms: u64, now_ms: u64) {
        let job = self.jobs.entry(name).or_default();
        job.is_running = false;
        job.rounds += 1;
        job.took_ms = now_ms.saturating_sub(job.changed_ms);
        job.changed_ms = now_ms;
        job.next_ms = now_ms.saturating_add(wait_ms);
    }

    /// Records that a round did what was due.
    pub fn succeeded(&mut self, name: &'static str) {
        self.jobs.entry(name).or_default().failures = 0;
    }

    /// Records that a round failed. Returns the pause before the next one, in milliseconds.
    pub fn failed(&mut self, name: &'static str, error: String, now_ms: u64) -> u64 {
        self.failed_in_part(name, error, now_ms);
        let job = self.jobs.entry(name).or_default();
        job.failures += 1;
        let doublings = u32::try_from(job.failures - 1).unwrap_or(u32::MAX).min(16);
        (PAUSE_MIN_MS << doublings).min(PAUSE_MAX_MS)
    }

    /// Records that one of the things that a job works on failed. The job goes on with the others.
    pub fn failed_in_part(&mut self, name: &'static str, error: String, now_ms: u64) {
        let job = self.jobs.entry(name).or_default();
        job.error = error;
        job.error_at_ms = now_ms;
    }

    /// Number of rounds of a job that failed in a row.
    pub fn failures(&self, name: &'static str) -> u64 {
        self.jobs.get(name).map_or(0, |job| job.failures)
    }

    /// Records the progress of a job's present work. Other work has begun if less is done than before.
    pub fn progress(&mut self, name: &'static str, progress: Progress, now_ms: u64) {
        let job = self.jobs.entry(name).or_default();
        if job.progress.done == 0 || progress.done < job.progress.done {
            job.work_began_ms = now_ms;
        }
        job.progress = progress;
    }

    /// All jobs, for people.
    pub fn rows(&self, now_ms: u64) -> JobsReply {
        let row = |(name, job): (&&'static str, &JobState)| JobRow {
            name: (*name).to_owned(),
            about: job.about.to_owned(),
            running: job.is_running,
            rounds: job.rounds,
            took_ms: job.took_ms,
            since_ms: now_ms.saturating_sub(job.changed_ms),
            next_ms: if job.is_running { 0 } else { job.next_ms.saturating_sub(now_ms) },
            done: job.progress.done,
            total: job.progress.total,
            unit: job.progress.unit.to_owned(),
            work_ms: if job.progress.done == 0 { 0 } else { now_ms.saturating_sub(job.work_began_ms) },
            failures: job.failures,
            error: job.error.clone(),
            error_ms: if job.error.is_empty() { 0 } else { now_ms.saturating_sub(job.error_at_ms) },
        };
        JobsReply { jobs: self.jobs.iter().map(row).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_rises_with_failures_in_a_row() {
        let mut jobs = JobBoard::default();
        jobs.begin("sort", "Sorts.", 1_000);
        let pauses: Vec<u64> = (0..7).map(|at| jobs.failed("sort", "the disk is full".into(), at)).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000]);
        for at in 0..100 {
            jobs.failed("sort", "the disk is full".into(), at);
        }
        jobs.succeeded("sort");
        assert_eq!(jobs.failed("sort", "again".into(), 2_000), 500);
    }

    #[test]
    fn a_row_has_the_last_round_and_the_next() {
        let mut jobs = JobBoard::default();
        jobs.begin("sort", "Sorts.", 1_000);
        let row = |jobs: &JobBoard, now_ms| jobs.rows(now_ms).jobs.remove(0);
        let running = row(&jobs, 1_250);
        assert_eq!((running.running, running.since_ms, running.next_ms), (true, 250, 0));
        let progress = |done| Progress { done, total: 9, unit: "files" };
        jobs.progress("sort", progress(0), 1_100);
        jobs.progress("sort", progress(3), 1_200);
        jobs.failed_in_part("sort", "one file is busy".into(), 1_300);
        jobs.end("sort", 500, 1_400);
        let ended = row(&jobs, 1_500);
        assert_eq!((ended.running, ended.rounds, ended.took_ms), (false, 1, 400));
        assert_eq!((ended.since_ms, ended.next_ms, ended.failures), (100, 400, 0));
        assert_eq!((ended.error.as_str(), ended.error_ms), ("one file is busy", 200));
        assert_eq!((ended.done, ended.total, ended.unit.as_str(), ended.work_ms), (3, 9, "files", 300));
        jobs.progress("sort", progress(2), 1_450);
        assert_eq!(row(&jobs, 1_500).work_ms, 50, "this is other work");
        assert_eq!(row(&jobs, 9_000).next_ms, 0, "it is overdue");
    }
}
