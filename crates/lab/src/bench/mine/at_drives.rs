//! E13: a method counts the transactions at the drives, while their links become slower.
//!
//! The drives' disks are modelled, as fast as the paper's drives, so that neither the drives' processors nor
//! the page cache set the rate.

use std::time::Instant;

use braid_bench::mining::{Counted, Known, Sales, arguments};
use braid_bench::stripes::Goal;
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Exit, Failure};
use braid_client::{Answer, Name, Ran, RunAsk, RunAt};

use super::{Plan, Points, check, payload, sell, show};
use crate::bench::cluster::{Cluster, UNIT_BYTES};
use crate::bench::figures::Run;
use crate::bench::hosts::{Hosts, Links};

/// Common name of the rows.
pub(super) const GROUP: &str = "E13";
/// Number of drives, in a full run and in a quick one.
const DRIVES: (u16, u16) = (4, 2);
/// The disk of each drive.
const DISK: &str = "flash,iops=5000,read=6MB/s,write=400MB/s,sync=100us";
/// Bytes of the file at most, in a full run and in a quick one.
const BYTES: (u64, u64) = (192 << 20, 4 << 20);
/// Rate of each drive's link, and the parts of it that are tried.
const LINK_BITS: u64 = 100_000_000;
const PARTS: [u64; 3] = [1, 10, 100];
/// The passes, which are taken by turns.
const PASSES: [&str; 2] = ["single items", "pairs of items"];
/// Samples of each row.
const SAMPLES: (usize, usize) = (3, 1);
/// Rate over a part of the link against that over all of it.
const SAME: Goal = Goal::AtLeast(0.95);
const LOST_AFTER: &str = "600";

/// One run of the method.
struct Scan {
    /// Bytes a second, of all drives.
    rate: f64,
    /// Bytes that drives sent for a byte of the file.
    answers: f64,
}

pub(super) async fn measure(run: &mut Run, plan: &Plan, points: &mut Points) -> Result<(), Failure> {
    let drives = run.size(DRIVES.0, DRIVES.1);
    let over_links = PASSES.iter().flat_map(|name| PARTS.map(|part| row(name, drives, part)));
    let all: Vec<String> = over_links.chain(PASSES.map(loopback_row)).chain([reading_row()]).collect();
    if !all.iter().any(|name| run.wants(name)) {
        return Ok(());
    }
    run.tell("E13: start");
    let hosts = match plan.link_bits {
        Some(_) => Some(Hosts::up(usize::from(drives))?),
        None => None,
    };
    let options =
        DriveOptions::modelled(DISK).map_err(|why| Failure::new(Exit::Usage, "model a disk", why))?;
    let options = options.uncalibrated();
    let mut cluster = match &hosts {
        Some(hosts) => {
            Cluster::patient_on(hosts, run.path(), "drives", drives, options, 1, LOST_AFTER).await?
        }
        None => Cluster::up_with(run.path(), "drives", drives, options, LOST_AFTER).await?,
    };
    cluster.make_volume(("raid0", u8::try_from(drives).unwrap_or(u8::MAX)), UNIT_BYTES).await?;
    let most = run.size(BYTES.0, BYTES.1);
    let sales = Sales { bytes: plan.sales.bytes.min(most), ..plan.sales };
    let (file, known) = sell(&mut cluster, &sales).await?;
    let at = AtDrives { cluster: &cluster, file, known, support: plan.support };
    let ended = match &hosts {
        Some(hosts) => at.over_links(run, hosts, drives, points).await,
        None => at.over_loopback(run, drives, &plan.lacks).await,
    };
    drop(at);
    cluster.down().await?;
    ended
}

/// Drives with the file.
struct AtDrives<'a> {
    cluster: &'a Cluster,
    file: Name,
    known: Known,
    support: u64,
}

impl AtDrives<'_> {
    /// Takes the rows of each part of the link, by turns.
    async fn over_links(
        &self,
        run: &mut Run,
        hosts: &Hosts,
        drives: u16,
        points: &mut Points,
    ) -> Result<(), Failure> {
        let (_, counted) = self.scan(&[], RunAt::Drives).await?;
        let pairs = super::candidates(&counted.frequent(self.support))?;
        let asked: [&[Vec<u32>]; 2] = [&[], &pairs];
        // Samples by pass, and by part.
        let mut samples: [[Vec<Scan>; PARTS.len()]; 2] = Default::default();
        for _ in 0..run.size(SAMPLES.0, SAMPLES.1) {
            for (index, part) in PARTS.iter().enumerate() {
                hosts.limit(Links::Drives, LINK_BITS / part)?;
                for ((name, asked), samples) in PASSES.iter().zip(asked).zip(&mut samples) {
                    run.tell(format!("E13: {name}, links of {}", mbits(*part)));
                    samples[index].push(self.scan(asked, RunAt::Drives).await?.0);
                }
            }
        }
        for (name, samples) in PASSES.into_iter().zip(samples) {
            let mut base = None;
            for (part, mut samples) in PARTS.into_iter().zip(samples) {
                samples.sort_by(|a, b| a.rate.total_cmp(&b.rate));
                let scan = &samples[samples.len() / 2];
                let base = *base.get_or_insert(scan.rate);
                if name == PASSES[0] {
                    points.at_drives.push((megabits(part), scan.rate / 1e6));
                }
                let goal = (part > 1).then_some(SAME);
                run.add(&row(name, drives, part), scan.words(drives), scan.rate / base, goal);
            }
        }
        self.by_reading(run, hosts, drives, points).await
    }

    /// The same over one of the slow links by a client that reads the file.
    async fn by_reading(
        &self,
        run: &mut Run,
        hosts: &Hosts,
        drives: u16,
        points: &mut Points,
    ) -> Result<(), Failure> {
        let part = PARTS[1];
        let row = reading_row();
        if run.wants(&row) {
            run.tell(row.clone());
            hosts.limit(Links::Drives, LINK_BITS / part)?;
            let (scan, _) = self.scan(&[], RunAt::Client).await?;
            points.at_client.push((megabits(part), scan.rate / 1e6));
            let carried = payload(LINK_BITS / part) * f64::from(drives);
            let found = format!("{}; the links carry {}", scan.words(drives), show(carried));
            run.add(&row, found, scan.rate / carried, None);
        }
        Ok(())
    }

    async fn over_loopback(&self, run: &mut Run, drives: u16, lacks: &str) -> Result<(), Failure> {
        let (scan, counted) = self.scan(&[], RunAt::Drives).await?;
        run.add(&loopback_row(PASSES[0]), scan.words(drives), scan.rate / 1e6, None);
        let pairs = super::candidates(&counted.frequent(self.support))?;
        let (scan, _) = self.scan(&pairs, RunAt::Drives).await?;
        run.add(&loopback_row(PASSES[1]), scan.words(drives), scan.rate / 1e6, None);
        run.ended("E13: slower links", Err(Failure::new(Exit::Usage, "limit links", lacks)))
    }

    /// Counts these sets once, and checks what is known of them.
    async fn scan(&self, asked: &[Vec<u32>], at: RunAt) -> Result<(Scan, Counted), Failure> {
        let ask = RunAsk::new("frequent-sets", arguments(asked)).at(at);
        let began = Instant::now();
        let ran = self.cluster.client.run(&self.file, &ask).await?;
        let seconds = began.elapsed().as_secs_f64();
        let not_there = ran.bytes - ran.bytes_at_drives;
        if at == RunAt::Drives && not_there > 0 {
            let why = format!("{not_there} of {} bytes were read by the client", ran.bytes);
            return Err(Failure::new(Exit::Failed, "count at the drives", why));
        }
        let scan = Scan::of(&ran, seconds);
        let Answer::Sets { sets, lines, .. } = ran.answer else {
            return Err(Failure::new(
                Exit::Failed,
                "count at the drives",
                "it gave another answer than sets",
            ));
        };
        let counted = Counted { sets, lines };
        check(&counted, &self.known, asked.first().map_or(1, Vec::len))?;
        Ok((scan, counted))
    }
}

impl Scan {
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    fn of(ran: &Ran, seconds: f64) -> Scan {
        let bytes = ran.bytes as f64;
        Scan { rate: bytes / seconds.max(1e-9), answers: ran.answer_bytes as f64 / bytes.max(1.0) }
    }

    fn words(&self, drives: u16) -> String {
        let each = show(self.rate / f64::from(drives));
        format!("{each} a drive, {} in all; answers of {:.2} %", show(self.rate), self.answers * 100.0)
    }
}

/// Names of the rows: a pass over a part of the link; over links that are not limited; and the client's.
fn row(pass: &str, drives: u16, part: u64) -> String {
    format!("E13: {pass} at {drives} drives, links of {}, over the fastest", mbits(part))
}

fn loopback_row(pass: &str) -> String {
    format!("E13: {pass} at the drives, links not limited")
}

fn reading_row() -> String {
    format!("E13: read by the client and counted there, links of {}, of them", mbits(PARTS[1]))
}

/// The rate of a part of the link, for people.
fn mbits(part: u64) -> String {
    format!("{} Mbit/s", LINK_BITS / part / 1_000_000)
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn megabits(part: u64) -> f64 {
    (LINK_BITS / part) as f64 / 1e6
}
