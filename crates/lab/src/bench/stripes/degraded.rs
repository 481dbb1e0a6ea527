//! E19: the rates that a cluster keeps while drives are away, and during a rebuild. One client reads or
//! writes a large file one request after another. Two files lie in the cluster, one with columns on the
//! drives that go away, and one without: so healthy and degraded samples can alternate, with the same
//! processes running.

use braid_bench::stripes::{Goal, Question, Unit};
use braid_cli::operate::heal::{HealTotals, until_healed};
use braid_cli::operate::replace::replace;
use braid_cli::output::exit::{Doing, Failure};
use braid_client::Name;

use super::files::{filled, healthy_and_hit, rate_of, read, write};
use super::{Run, Which};
use crate::bench::client::{ClientProcess, alone};
use crate::bench::cluster::Cluster;

/// Bytes of a sample.
const BYTES: u64 = 256 << 20;
const BYTES_QUICK: u64 = 8 << 20;
/// Number of files of `BYTES` whose columns a rebuild makes, beside the other two.
const BALLAST: u32 = 5;

/// A shape and its cluster.
struct Case {
    name: &'static str,
    shape: (&'static str, u8),
    drives: u16,
    parity: usize,
}

const CASES: [Case; 2] = [
    Case { name: "raid5 4+1", shape: ("raid5", 5), drives: 6, parity: 1 },
    Case { name: "rs(4,2)", shape: ("rs(4,2)", 6), drives: 8, parity: 2 },
];

fn question(case: &Case, what: &str, read: bool, goal: Option<Goal>) -> Question {
    let act = if read { "read" } else { "write" };
    Question {
        experiment: "E19",
        name: format!("{act}, {}, {what}", case.name),
        unit: Unit::BytesPerSecond,
        first: "then",
        second: "healthy",
        goal,
    }
}

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    for case in &CASES {
        let degraded: Vec<[Question; 2]> = (1..=case.parity)
            .map(|away| {
                let what = format!("{away} away");
                let goal = Some(Goal::AtLeast(0.85));
                [question(case, &what, true, goal), question(case, &what, false, None)]
            })
            .collect();
        let rebuild = [true, false].map(|reads| question(case, "during a rebuild", reads, None));
        let rebuilds = case.parity == 1;
        let wanted = degraded.iter().flatten().any(|question| run.wants(question));
        if wanted || rebuilds && rebuild.iter().any(|question| run.wants(question)) {
            Degraded::up(run, case)
                .await?
                .measure(run, case, &degraded, rebuilds.then_some(&rebuild))
                .await?;
        }
    }
    Ok(())
}

struct Degraded {
    cluster: Cluster,
    client: ClientProcess,
    bytes: u64,
    /// File that has no column on the drives that go away.
    healthy: Name,
    /// File that has a column on each of those drives.
    hit: Name,
    /// The drives that go away.
    victims: Vec<String>,
}

impl Degraded {
    async fn up(run: &Run, case: &Case) -> Result<Degraded, Failure> {
        run.tell(format!("E19, {}: start", case.name));
        let bytes = run.size(BYTES, BYTES_QUICK);
        let name = format!("e19-{}", case.parity);
        let mut cluster = Cluster::up(run.path(), &name, case.drives, case.shape).await?;
        let mut client = cluster.client_process().await?;
        let healthy = filled(&mut cluster, &mut client, bytes).await?;
        let is_hit = |drives: &[String], victims: &[String]| victims.iter().all(|one| drives.contains(one));
        let (hit, victims) = healthy_and_hit(&mut cluster, &mut client, &healthy, bytes, is_hit).await?;
        Ok(Degraded { cluster, client, bytes, healthy, hit, victims })
    }

    async fn measure(
        mut self,
        run: &mut Run,
        case: &Case,
        degraded: &[[Question; 2]],
        rebuild: Option<&[Question; 2]>,
    ) -> Result<(), Failure> {
        if let Some(questions) = rebuild
            && questions.iter().any(|question| run.wants(question))
        {
            self.rebuild(run, questions).await?;
        }
        for (index, [reads, writes]) in degraded.iter().enumerate() {
            run.tell(format!("E19, {}: {} away", case.name, index + 1));
            let victim = self.victims[index].clone();
            self.cluster.kill(&victim).await?;
            // Reads first: bytes written now are laid out without the drive, and stay so.
            for (question, is_read) in [(reads, true), (writes, false)] {
                run.pairs(question, async |which| {
                    let file = if which == Which::First { &self.hit } else { &self.healthy };
                    let job = if is_read { read(file, self.bytes) } else { write(file, self.bytes) };
                    Ok(rate_of(alone(&mut self.client, &job).await?))
                })
                .await?;
            }
        }
        drop(self.client);
        self.cluster.down().await
    }

    /// Reads and writes the file that the rebuild does not touch, while another drive's columns are made anew
    /// at the default rate.
    async fn rebuild(&mut self, run: &mut Run, questions: &[Question; 2]) -> Result<(), Failure> {
        let mut ballast = Vec::new();
        for _ in 0..run.size(BALLAST, 1) {
            ballast.push(filled(&mut self.cluster, &mut self.client, self.bytes).await?);
        }
        let directory = self.cluster.running.dir.drive(&self.victims[0]);
        for (question, is_read) in questions.iter().zip([true, false]) {
            run.pairs(question, async |which| {
                let job =
                    if is_read { read(&self.healthy, self.bytes) } else { write(&self.healthy, self.bytes) };
                if which == Which::Second {
                    return Ok(rate_of(alone(&mut self.client, &job).await?));
                }
                let old = self.victims[0].clone();
                let new = format!("{}x", self.victims[0]);
                self.cluster.kill(&old).await?;
                std::fs::remove_dir_all(&directory).doing(|| format!("empty {}", directory.display()))?;
                self.cluster.start(&new, &directory).await?;
                let before = HealTotals::now(&self.cluster.client).await?;
                replace(&self.cluster.client, &old, &new).await?;
                self.victims[0].clone_from(&new);
                let rate = rate_of(alone(&mut self.client, &job).await?);
                until_healed(&self.cluster.client, &new, before, |_| {}).await?;
                Ok(rate)
            })
            .await?;
        }
        self.cluster.remove(&ballast).await
    }
}
