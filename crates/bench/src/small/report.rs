//! The figures of small work.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::operation::{Goals, Operation};
use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;

/// All rows of one run, with its conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Place, time and machine.
    #[serde(flatten)]
    pub ran: Conditions,
    /// Bytes of memory that were touched before anything was measured.
    pub touched_bytes: u64,
    /// Names in the directory that is listed, and from which files are opened and stat'ed.
    pub names: u64,
    /// Files of the tree that is copied and removed.
    pub tree_files: u64,
    /// Bytes of the large file.
    pub large_bytes: u64,
    pub rows: Vec<Row>,
    /// Rates at which the disks can sync plain files.
    pub syncs: Vec<SyncRate>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Kind of operation.
    pub operation: Operation,
    pub name: String,
    /// Operations in flight; `None`: as many as the command has.
    pub in_flight: Option<u32>,
    /// Operations of all samples.
    pub operations: u64,
    /// Files that a listing shows after the operations, in all samples together; `None`: the operation
    /// changes no files.
    pub files_there: Option<u64>,
    /// Operations a second.
    pub per_second: Spread,
    /// Median over the samples of their median times, in microseconds; `None`: operations were not timed
    /// one by one.
    pub p50_us: Option<f64>,
    /// Median over the samples of their 99th percentiles, in microseconds.
    pub p99_us: Option<f64>,
    /// Processor time for one operation, in microseconds.
    pub cpu_us: Processes,
    /// Processor time for one operation of all processes together, user and kernel.
    pub cpu_total_us: f64,
    /// Kernel part of that time.
    pub cpu_kernel_us: f64,
    /// Plain exchanges of the same bytes.
    pub plain: Option<Plain>,
    /// Operations for each sync that the disk can do in that time; `None`: nothing is synced, or only in
    /// memory.
    pub per_sync: Option<f64>,
    /// Goals of the row.
    pub goals: Goals,
    /// True if all goals are met; `None`: there are no goals.
    pub met: Option<bool>,
}

/// Processor time by kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Processes {
    pub client: CpuTime,
    /// All drives together.
    pub drives: CpuTime,
    pub manager: CpuTime,
}

/// Processor time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuTime {
    pub user: f64,
    /// Kernel time spent for the processes.
    pub kernel: f64,
}

/// The plain exchanges beside a row.
#[derive(Debug, Clone, Serialize)]
pub struct Plain {
    /// Median rate of operations a second; an operation is all of its exchanges.
    pub per_second: f64,
    /// Braid's rate over the plain rate, pair by pair.
    pub ratio: Spread,
    /// Processor time for one plain operation, at both ends, in microseconds.
    pub cpu_us: f64,
    /// Sockets to the process that stands for the manager, in the last sample.
    pub manager_sockets: u32,
    /// Sockets to all processes that stand for the drives.
    pub drive_sockets: u32,
}

/// The rate at which a disk can sync.
#[derive(Debug, Clone, Serialize)]
pub struct SyncRate {
    pub of: Synced,
    /// Kind of write.
    pub name: &'static str,
    /// Syncs a second.
    pub per_second: Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Synced {
    Manager,
    Drive,
}

/// One sample of a row, with the plain sample that was taken right before or after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub operations: u64,
    /// Seconds of all operations together.
    pub seconds: f64,
    /// Median time of an operation, as in a row.
    pub p50_us: Option<f64>,
    /// 99th percentile of the times, as in a row.
    pub p99_us: Option<f64>,
    /// Processor time of all operations together, in microseconds.
    pub cpu_us: Processes,
    /// Files that a listing shows afterwards.
    pub files_there: Option<u64>,
    /// Plain operations a second, and processor time for one of them in microseconds.
    pub plain: (f64, f64),
    /// Plain sockets: to the manager, and to all drives.
    pub sockets: (u32, u32),
}

impl Synced {
    /// The kind of write that is synced on that disk.
    pub fn name(self) -> &'static str {
        match self {
            Synced::Manager => "4 KiB in place + fdatasync, on the manager's disk",
            Synced::Drive => "append 4 KiB + fdatasync, on a drive's disk",
        }
    }
}

impl CpuTime {
    pub fn total(self) -> f64 {
        self.user + self.kernel
    }

    fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime { user: self.user + other.user, kernel: self.kernel + other.kernel }
    }

    fn per(self, count: f64) -> CpuTime {
        CpuTime { user: self.user / count, kernel: self.kernel / count }
    }
}

impl Processes {
    /// Processor time of all processes together.
    pub fn sum(&self) -> CpuTime {
        self.client.plus(self.drives).plus(self.manager)
    }

    fn plus(self, other: Processes) -> Processes {
        Processes {
            client: self.client.plus(other.client),
            drives: self.drives.plus(other.drives),
            manager: self.manager.plus(other.manager),
        }
    }

    fn per(self, count: f64) -> Processes {
        Processes {
            client: self.client.per(count),
            drives: self.drives.per(count),
            manager: self.manager.per(count),
        }
    }
}

impl Report {
    /// Begins a report of a run in `directory`, without rows.
    pub fn begin(directory: &Path, quick: bool) -> Result<Report, Error> {
        Ok(Report {
            ran: Conditions::begin("small", directory, quick)?,
            touched_bytes: 0,
            names: 0,
            tree_files: 0,
            large_bytes: 0,
            rows: Vec::new(),
            syncs: Vec::new(),
        })
    }

    /// Ends the run. Puts the rows in order: they were measured in another order, by what they need.
    pub fn end(&mut self) {
        self.ran.end();
        self.rows.sort_by_key(|row| (row.operation, row.in_flight));
    }

    /// Adds a row of these samples.
    pub fn add(&mut self, operation: Operation, in_flight: Option<u32>, samples: &[Sample]) {
        let memory = self.ran.place.memory;
        let sync = self.syncs.iter().find(|sync| Some(sync.of) == operation.synced() && !memory);
        let goals = operation.goals(in_flight, memory);
        let sync = sync.map(|sync| sync.per_second.median);
        self.rows.push(Row::of(operation, in_flight, goals, samples, sync));
    }
}

impl Row {
    /// The row of some samples. `sync` is the rate of the syncs that the operation needs.
    fn of(
        operation: Operation,
        in_flight: Option<u32>,
        goals: Goals,
        samples: &[Sample],
        sync: Option<f64>,
    ) -> Row {
        let operations: u64 = samples.iter().map(|sample| sample.operations).sum();
        let rates: Vec<f64> = samples.iter().map(Sample::per_second).collect();
        let median = |of: fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = samples.iter().map(of).collect();
            values.filter(|values| !values.is_empty()).map(|values| stats::median(&values))
        };
        // Summed over all samples: the system counts in hundredths of a second.
        let cpu = samples.iter().fold(Processes::default(), |sum, sample| sum.plus(sample.cpu_us));
        let cpu_us = cpu.per(float(operations).max(1.0));
        let per_second = stats::spread(&rates);
        let plain = Plain::of(samples);
        let cpu_total_us = cpu_us.sum().total();
        let share = plain.as_ref().map(|plain| plain.ratio.median);
        Row {
            operation,
            name: operation.title(in_flight),
            in_flight,
            operations,
            files_there: samples.iter().map(|sample| sample.files_there).sum(),
            p50_us: median(|sample| sample.p50_us),
            p99_us: median(|sample| sample.p99_us),
            cpu_us,
            cpu_total_us,
            cpu_kernel_us: cpu_us.sum().kernel,
            plain,
            per_sync: sync.map(|syncs| per_second.median / syncs.max(1e-9)),
            goals,
            met: goals.are_met(per_second.median, cpu_total_us, share),
            per_second,
        }
    }
}

impl Plain {
    fn of(samples: &[Sample]) -> Option<Plain> {
        let last = samples.last()?;
        let rates: Vec<f64> = samples.iter().map(|sample| sample.plain.0).collect();
        let cpu: Vec<f64> = samples.iter().map(|sample| sample.plain.1).collect();
        let ratios: Vec<f64> =
            samples.iter().map(|sample| sample.per_second() / sample.plain.0.max(1e-9)).collect();
        Some(Plain {
            per_second: stats::median(&rates),
            ratio: stats::spread(&ratios),
            cpu_us: stats::median(&cpu),
            manager_sockets: last.sockets.0,
            drive_sockets: last.sockets.1,
        })
    }
}

impl Sample {
    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        float(self.operations) / self.seconds.max(1e-9)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(operations: u64, plain: f64) -> Sample {
        let cpu = |user, kernel| CpuTime { user, kernel };
        Sample {
            operations,
            seconds: 0.5,
            p50_us: Some(float(operations)),
            p99_us: Some(200.0),
            cpu_us: Processes {
                client: cpu(100.0, 200.0),
                drives: cpu(300.0, 100.0),
                manager: cpu(50.0, 50.0),
            },
            files_there: Some(operations),
            plain: (plain, 10.0),
            sockets: (1, 12),
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_samples_and_the_sum_of_their_time() {
        let samples = [sample(10, 40.0), sample(40, 100.0), sample(30, 60.0)];
        let goals = Goals { per_second: Some(60.0), cpu_us: Some(30.0), of_plain: Some(0.7) };
        let row = Row::of(Operation::Create, Some(16), goals, &samples, Some(30.0));
        assert_eq!((row.per_second.median, row.operations, row.files_there), (60.0, 80, Some(80)));
        assert_eq!((row.p50_us, row.p99_us, row.per_sync), (Some(30.0), Some(200.0), Some(2.0)));
        // 3 * 800 us for 80 operations, 3 * 350 of them in the kernel.
        assert_eq!((row.cpu_total_us, row.cpu_kernel_us), (30.0, 13.125));
        assert_eq!(row.cpu_us.drives, CpuTime { user: 11.25, kernel: 3.75 });
        let plain = row.plain.expect("measured");
        // 20/40, 80/100 and 60/60.
        assert_eq!((plain.per_second, plain.ratio.median, plain.drive_sockets), (60.0, 0.8, 12));
        assert_eq!(row.met, Some(true));
    }

    #[test]
    fn without_times_there_are_no_percentiles() {
        let untimed = Sample { p50_us: None, p99_us: None, files_there: None, ..sample(10, 40.0) };
        let row = Row::of(Operation::CopyOut, None, Goals::default(), &[untimed], None);
        assert_eq!((row.p50_us, row.p99_us, row.files_there, row.met), (None, None, None, None));
        assert_eq!(row.name, "cp -r out, a file");
    }
}
