//! `braid-lab bench cost`: NASD's table 1 (E10), user instructions of a drive for one request.
//!
//! `perf stat` counts them where the machine's processor does; else the drive runs under valgrind's
//! callgrind, which counts each instruction. What the drive does in as long a time without requests is taken
//! off, so that its start and its heartbeats do not count.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use braid_bench::against::{Goal, Of, Question, Taken, Unit};
use braid_bench::stripes::Work;
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_cli::output::report::Report;
use braid_client::Name;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::client::{ClientProcess, alone};
use super::cluster::Cluster;
use super::ratios::{self, Bench, Run};
use super::small::meter::at_rest;
use super::stripes::{fill, job};
use crate::args::BenchCluster;

const BENCH: Bench =
    Bench { name: "cost", title: "Instructions of a drive for a request", needed: (1 << 30, 128 << 20) };
/// A modelled disk that costs no time to speak of: nothing is in its page cache.
const COLD: &str = "flash,iops=100000,read=10GB/s,write=10GB/s,sync=10us";
/// Sizes of reads, with what the paper counted, cold and warm.
const SIZES: [(&str, u64, [&str; 2]); 4] = [
    ("1 B", 1, ["46 k", "38 k"]),
    ("8 KB", 8 << 10, ["67 k", "57 k"]),
    ("64 KB", 64 << 10, ["247 k", "224 k"]),
    ("512 KB", 512 << 10, ["1488 k", "1410 k"]),
];
const FILE_BYTES: (u64, u64) = (64 << 20, 4 << 20);
/// Requests of a run; another of the same length has none.
const REQUESTS: (u64, u64) = (400, 40);
const SETTLE: Duration = Duration::from_millis(300);

/// The way to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    Perf,
    Callgrind,
}

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let counter = Counter::find().await?;
    ratios::run(BENCH, asked, report, async |run| rows(run, counter).await).await
}

async fn rows(run: &mut Run, counter: Counter) -> Result<(), Failure> {
    let by = if counter == Counter::Perf { "perf stat" } else { "callgrind" };
    for (index, state) in ["cold", "warm"].into_iter().enumerate() {
        let rows = SIZES.map(|(name, bytes, paper)| {
            let row = Question::value("E10", format!("read {name}, {state}"), Unit::Instructions, by);
            let row = row.paper(paper[index]);
            let is_judged = bytes == 1 && state == "warm";
            let goal = (Of::Value, Goal::AtMost(10_000.0));
            (if is_judged { row.goal(goal.0, goal.1) } else { row }, bytes)
        });
        if !run.wants_any(rows.iter().map(|(row, _)| row)) {
            continue;
        }
        run.tell(format!("E10, {state}: start"));
        let mut drive = Drive::up(run, state, counter).await?;
        for (row, bytes) in &rows {
            run.alone(row, async || drive.instructions(*bytes).await).await?;
        }
        drive.down().await?;
    }
    Ok(())
}

impl Counter {
    /// Finds what counts instructions on this machine.
    async fn find() -> Result<Counter, Failure> {
        let perf = Command::new("perf")
            .args(["stat", "-x,", "-e", "instructions:u", "true"])
            .stdin(Stdio::null())
            .output()
            .await;
        let counts = perf.is_ok_and(|ended| {
            ended.status.success() && perf_count(&String::from_utf8_lossy(&ended.stderr)).is_some()
        });
        if counts {
            return Ok(Counter::Perf);
        }
        let mut control = Command::new("callgrind_control");
        if control
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .await
            .is_ok_and(|ended| ended.status.success())
        {
            return Ok(Counter::Callgrind);
        }
        let why = "perf counts no instructions here, and valgrind is not installed";
        Err(Failure::new(Exit::Failed, "count instructions", why))
    }
}

/// The count in the output of `perf stat -x,`; `None` where the machine does not count.
fn perf_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("instructions"))?;
    line.split(',').next()?.parse().ok()
}

/// The instructions in what `callgrind_control -e` prints.
fn callgrind_count(text: &str) -> Option<u64> {
    let numbers = |line: &str| {
        let (_, numbers) = line.split_once("Th")?;
        numbers.split_whitespace().nth(1)?.replace(',', "").parse::<u64>().ok()
    };
    let counts: Vec<u64> = text.lines().filter_map(numbers).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// One drive with a file, and a client.
struct Drive {
    cluster: Cluster,
    client: ClientProcess,
    file: Name,
    pid: u32,
    counter: Counter,
    within: u64,
    requests: u64,
    seed: u64,
    /// The drive under valgrind; it ends with this.
    child: Option<Child>,
}

/// The instructions of a drive while something was done, which took this long.
struct Counted {
    instructions: u64,
    took: Duration,
}

/// Instructions of each request, without those of as long a time at rest.
fn each(busy: u64, rest: u64, requests: u64) -> f64 {
    let difference = u32::try_from(busy.saturating_sub(rest)).unwrap_or(u32::MAX);
    f64::from(difference) / f64::from(u32::try_from(requests).unwrap_or(u32::MAX).max(1))
}

impl Drive {
    async fn up(run: &Run, state: &str, counter: Counter) -> Result<Drive, Failure> {
        let options =
            if state == "cold" { DriveOptions::modelled(COLD) } else { Ok(DriveOptions::default()) };
        let options = options.map_err(|why| Failure::new(Exit::Usage, "model a disk", why))?;
        let options = options.reading_ahead(0).uncalibrated();
        let mut cluster = Cluster::up_with(run.path(), state, 1, options, "600").await?;
        cluster.turn_to("cost", ("raid0", 1)).await?;
        let mut client = cluster.client_process().await?;
        let within = run.size(FILE_BYTES.0, FILE_BYTES.1);
        let file = fill(&mut cluster, &mut client, within).await?;
        let name = cluster.running.cluster.drives[0].clone();
        let (pid, child) = match counter {
            Counter::Perf => (cluster.pid(&name)?, None),
            Counter::Callgrind => {
                let child = cluster.under_valgrind(&name).await?;
                (child.id().unwrap_or(0), Some(child))
            }
        };
        let requests = run.size(REQUESTS.0, REQUESTS.1);
        Ok(Drive { cluster, client, file, pid, counter, within, requests, seed: 0, child })
    }

    /// User instructions for one read of `bytes` bytes: those of a run of requests without those of as long a
    /// time at rest.
    async fn instructions(&mut self, bytes: u64) -> Result<Taken, Failure> {
        // Once before: the file is open, sessions are made, and its places are known.
        self.reads(bytes, 4).await?;
        let requests = self.requests;
        let busy = self.counted(async |drive| drive.reads(bytes, requests).await).await?;
        let rest = self
            .counted(async |_| {
                sleep(busy.took).await;
                Ok(())
            })
            .await?;
        Ok(Taken::of(each(busy.instructions, rest.instructions, requests)))
    }

    async fn reads(&mut self, piece_bytes: u64, pieces: u64) -> Result<(), Failure> {
        self.seed += 1;
        let work = Work::Pieces { within: self.within, piece_bytes, pieces, depth: 1, seed: self.seed };
        alone(&mut self.client, &job(&self.file, work)).await.map(drop)
    }

    /// Counts the drive's instructions from a time at which it is at rest, while `work` runs, and until the
    /// drive is at rest again.
    async fn counted(
        &mut self,
        work: impl AsyncFnOnce(&mut Drive) -> Result<(), Failure>,
    ) -> Result<Counted, Failure> {
        at_rest(self.pid).await?;
        let pid = self.pid.to_string();
        if self.counter == Counter::Callgrind {
            let before = callgrind(&pid).await?;
            let took = self.timed(work).await?;
            let instructions = callgrind(&pid).await?.saturating_sub(before);
            return Ok(Counted { instructions, took });
        }
        let doing = || "run perf stat".to_owned();
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", "instructions:u", "-p", &pid]).stdin(Stdio::null());
        let child = perf.stderr(Stdio::piped()).kill_on_drop(true).spawn().doing(doing)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        sleep(SETTLE).await;
        let took = self.timed(work).await?;
        if let Some(id) = id {
            rustix::process::kill_process(id, rustix::process::Signal::INT)
                .map_err(std::io::Error::from)
                .doing(doing)?;
        }
        let ended = child.wait_with_output().await.doing(doing)?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let instructions = perf_count(&said)
            .ok_or_else(|| Failure::new(Exit::Failed, doing(), format!("it said: {}", said.trim())))?;
        Ok(Counted { instructions, took })
    }

    /// Runs `work` and waits until the drive is at rest; returns the time of the work.
    async fn timed(
        &mut self,
        work: impl AsyncFnOnce(&mut Drive) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let began = Instant::now();
        work(self).await?;
        let took = began.elapsed();
        at_rest(self.pid).await?;
        Ok(took)
    }

    async fn down(self) -> Result<(), Failure> {
        drop((self.client, self.child));
        self.cluster.down().await
    }
}

/// Instructions of a process under callgrind so far.
async fn callgrind(pid: &str) -> Result<u64, Failure> {
    let doing = || "run callgrind_control".to_owned();
    let mut control = Command::new("callgrind_control");
    let ended = control.args(["-e", pid]).stdin(Stdio::null()).output().await.doing(doing)?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    callgrind_count(&said)
        .ok_or_else(|| Failure::new(Exit::Failed, doing(), format!("it said: {}", said.trim())))
}

impl Cluster {
    fn pid(&self, drive: &str) -> Result<u32, Failure> {
        let server = self.running.servers.iter().find(|server| server.name == drive);
        let gone = || Failure::new(Exit::NotFound, format!("look at {drive}"), "it does not run");
        server.map(|server| server.record.pid).ok_or_else(gone)
    }

    /// Starts a drive anew under callgrind, and waits until the manager has heard of it.
    async fn under_valgrind(&mut self, drive: &str) -> Result<Child, Failure> {
        let doing = || format!("start {drive} under valgrind");
        let address = self.stop(drive).await?;
        let dir = &self.running.dir;
        let log = std::fs::File::create(dir.root().join("valgrind.log")).doing(doing)?;
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind");
        command.arg(format!("--callgrind-out-file={}", dir.root().join("callgrind.out").display()));
        command.arg(std::env::current_exe().doing(doing)?);
        let manager: &str = &self.running.cluster.manager;
        command.args([
            "drive",
            "serve",
            "--name",
            drive,
            "--manager",
            manager,
            "--listen",
            &address,
            "--dir",
        ]);
        command.arg(dir.drive(drive)).args(self.running.options.typed());
        command.arg("--token-file").arg(token(dir.manager().as_ref()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().doing(doing)?;
        let drives = [drive.to_owned()];
        let joined = braid_cli::machine::bring_up::all_joined(&self.client, &drives);
        let has_ended = tokio::select! {
            ended = child.wait() => ended.map(|_| true).doing(doing)?,
            joined = joined => joined.map(|()| false)?,
        };
        if has_ended {
            let why = "it has ended: this build reads the clock by a page of the kernel's that valgrind takes away; build the lab \
                       with RUSTFLAGS=--cfg=rustix_use_libc (docs/bench.md)";
            return Err(Failure::new(Exit::Failed, doing(), why));
        }
        Ok(child)
    }
}

fn token(manager: &Path) -> std::path::PathBuf {
    manager.join("join.token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_drive_does_at_rest_is_no_requests() {
        assert!((each(5_000_000, 1_000_000, 400) - 10_000.0).abs() < 1e-9);
        assert!(each(5, 9, 400) < 1e-9 && each(8, 0, 0) > 7.9);
        assert_eq!(DriveOptions::default().uncalibrated().typed(), ["--no-calibration"]);
    }

    #[test]
    fn what_perf_and_callgrind_print_is_understood() {
        assert_eq!(perf_count("1234567,,instructions:u,100000,100.00,,\n"), Some(1_234_567));
        assert_eq!(perf_count("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(perf_count(""), None);
        let said = "PID 12: drive serve\nsending command status internal to pid 12\n  Totals: Th             Ir\n   Th  1  1,234,500\n   Th  2  500\n";
        assert_eq!(callgrind_count(said), Some(1_235_000));
        assert_eq!(callgrind_count("nothing"), None);
    }
}
