//! The runner of benches whose rows are rates against a bound: pairs by turns, a table, documents.

use std::path::Path;
use std::time::Duration;

use braid_bench::against::{LeftOut, Question, Report as Found, Row, Side, Taken, document, show, svg};
use braid_bench::stripes::show_figure;
use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::{Report, table};
use rustix::time::{ClockId, clock_gettime};

use super::client::{ClientJob, ClientProcess, alone};
use super::cluster::Cluster;
use super::mounted::Mounted;
use super::run::{Run as Common, Which, alternate};
use super::small::meter::Meter;
use crate::args::BenchCluster;

/// Number of pairs that count, and of those before them that do not.
const PAIRS: u32 = 9;
const WARM_UPS: u32 = 1;

/// A bench: its name on the command line, its title, and the free bytes that it needs in a full run and in a
/// quick one.
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) needed: (u64, u64),
}

/// The run so far.
pub(super) struct Run {
    pub(super) common: Common,
    found: Found,
}

/// Runs a bench, whose rows `measure` takes, and reports.
pub(super) async fn run(
    bench: Bench,
    asked: BenchCluster,
    report: Report,
    measure: impl AsyncFnOnce(&mut Run) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let common = Common::begin(&asked, bench.needed)?;
    let found = Found::begin(bench.name, &common.parent, common.quick)
        .map_err(|error| Failure::new(Exit::Failed, "look at the machine", error.to_string()))?;
    let mut run = Run { common, found };
    let ended = measure(&mut run).await;
    run.common.end();
    ended?;
    let Run { common, mut found } = run;
    found.ran.end();
    if found.rows.is_empty() && found.left_out.is_empty() {
        return Err(common.nothing_wanted(bench.name));
    }
    let documents =
        |command: &str, when: &str, plot: &str| document(&found, bench.title, command, when, plot);
    common.write(bench.name, documents, || svg(&found, bench.title))?;
    report.facts(&found, text)
}

impl Run {
    /// Returns `full` in a full run and `quick` in a quick one.
    pub(super) fn size<T>(&self, full: T, quick: T) -> T {
        self.common.size(full, quick)
    }

    pub(super) fn path(&self) -> &Path {
        self.common.path()
    }

    pub(super) fn tell(&self, what: impl Into<String>) {
        self.common.tell(what);
    }

    pub(super) fn wants(&self, question: &Question) -> bool {
        self.common.wants(&question.title())
    }

    /// Returns true if any of these rows is to be measured.
    pub(super) fn wants_any<'q>(&self, questions: impl IntoIterator<Item = &'q Question>) -> bool {
        questions.into_iter().any(|question| self.wants(question))
    }

    /// Notes that a row cannot be measured here, if it is wanted.
    pub(super) fn leave_out(&mut self, question: &Question, why: impl Into<String>) {
        if self.wants(question) {
            self.found.left_out.push(LeftOut { name: question.title(), why: why.into() });
        }
    }

    /// Measures a question by pairs of samples, whose order alternates.
    pub(super) async fn pairs(
        &mut self,
        question: &Question,
        sample: impl AsyncFnMut(Which) -> Result<Taken, Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(question) {
            return Ok(());
        }
        self.tell(question.title());
        let (rounds, warm_ups) = self.size((PAIRS, WARM_UPS), (1, 0));
        let pairs = alternate(&self.common, rounds, warm_ups, sample).await?;
        self.found.rows.push(Row::of(question, &pairs));
        Ok(())
    }

    /// Measures a question that has one side.
    pub(super) async fn alone(
        &mut self,
        question: &Question,
        mut sample: impl AsyncFnMut() -> Result<Taken, Failure>,
    ) -> Result<(), Failure> {
        if !self.wants(question) {
            return Ok(());
        }
        self.tell(question.title());
        let (rounds, warm_ups) = self.size((PAIRS, WARM_UPS), (1, 0));
        self.common.steps(u64::from(rounds + warm_ups));
        let mut samples = Vec::new();
        for round in 0..rounds + warm_ups {
            let taken = sample().await?;
            self.common.step();
            if round >= warm_ups {
                samples.push(taken);
            }
        }
        self.found.rows.push(Row::alone(question, &samples));
        Ok(())
    }
}

/// A cluster's client whose processor time, and that of the cluster, is counted.
pub(super) struct Metered {
    pub(super) client: ClientProcess,
    meter: Meter,
}

impl Metered {
    /// Starts a client of the cluster. To be made anew when the cluster's processes change.
    pub(super) async fn start(cluster: &Cluster) -> Result<Metered, Failure> {
        Ok(Metered { client: cluster.client_process().await?, meter: Meter::of(cluster)? })
    }

    /// The rate of a job, with the processor time that the client, the drives and the manager take until
    /// nothing is left to do.
    pub(super) async fn rate(&mut self, job: &braid_bench::stripes::Job) -> Result<Taken, Failure> {
        let pid = self.client.pid()?;
        let before = self.meter.read(Some(pid))?;
        let done = run_job(&mut self.client, job).await?;
        self.meter.at_rest().await?;
        let spent = self.meter.between(before, self.meter.read(Some(pid))?);
        let cpu_us: f64 =
            [spent.client, spent.drives, spent.manager].iter().map(|of| of.user + of.kernel).sum();
        Ok(Taken::rate(done.bytes, done.seconds, cpu_us))
    }

    /// The rate of work through a mount, which returns its seconds and bytes. The processor time is that of
    /// this process, the mount and the cluster.
    pub(super) async fn around(
        &mut self,
        mounted: &Mounted,
        work: impl FnOnce() -> Result<(f64, u64), Failure>,
    ) -> Result<Taken, Failure> {
        let own = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
        let before = self.meter.read(None)?;
        let ticks = mounted.ticks()?;
        let cpu = own();
        let (seconds, bytes) = tokio::task::block_in_place(work)?;
        let cpu_us = (own() - cpu).as_secs_f64() * 1e6;
        self.meter.at_rest().await?;
        let spent = self.meter.between(before, self.meter.read(None)?);
        let servers: f64 = [spent.drives, spent.manager].iter().map(|of| of.user + of.kernel).sum();
        let mount = self.meter.us(mounted.ticks()?.saturating_sub(ticks));
        Ok(Taken::rate(bytes, seconds, cpu_us + servers + mount))
    }

    /// Counts the servers anew, after one was started or killed.
    pub(super) fn look_again(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        self.meter = Meter::of(cluster)?;
        Ok(())
    }
}

async fn run_job<J: ClientJob>(client: &mut ClientProcess, job: &J) -> Result<J::Done, Failure> {
    alone(client, job).await
}

/// Formats the results as text.
fn text(found: &Found) -> String {
    let mut text = format!("{}\n", super::head(&found.ran));
    let header = [
        "",
        "",
        "RATIO",
        "MIN",
        "MAX",
        "FIRST",
        "",
        "CPU s/GiB",
        "SECOND",
        "",
        "CPU s/GiB",
        "PAPER",
        "GOALS",
    ];
    text.push_str(&table(&header, &[2, 3, 4, 5, 7, 8, 10], found.rows.iter().map(cells)));
    for LeftOut { name, why } in &found.left_out {
        text.push_str(&format!("not measured: {name}: {why}\n"));
    }
    if found.ran.quick {
        text.push_str("\na quick run: the figures mean nothing\n");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let ratio = |of: fn(&braid_bench::Spread) -> f64| {
        row.ratio.as_ref().map_or(String::new(), |ratio| show_figure(of(ratio)))
    };
    let second = row.second.as_ref();
    vec![
        row.group.to_owned(),
        row.name.clone(),
        ratio(|ratio| ratio.median),
        ratio(|ratio| ratio.min),
        ratio(|ratio| ratio.max),
        show(row.first.value.median, row.unit),
        row.first.name.to_owned(),
        row.first.show_cpu(),
        second.map_or(String::new(), |side| show(side.value.median, row.unit)),
        second.map_or(String::new(), |side| side.name.to_owned()),
        second.map_or(String::new(), Side::show_cpu),
        row.paper.unwrap_or_default().to_owned(),
        row.show_goals(),
    ]
}
